"""ONNX models of one Conv node."""

from probe.geometry import Windows

#: The operator set of the model: the first in which Conv's text is today's.
OPSET, IR_VERSION = 11, 6
#: ONNX's names of the conventions whose padding depends on the size.
AUTO_PAD = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}


def model(onnx, spec, kind, constant):
    """The ModelProto of a spec; its initializers (where ``constant``) are still empty.

    Batch and sizes are open. ``kind``: ONNX's dtype.
    """
    helper, rank = onnx.helper, len(spec["kernel"])
    named = {"w": [spec["filters"], spec["in_channels"] // spec["groups"]] + list(spec["kernel"])}
    if spec["bias"]:
        named["b"] = [spec["filters"]]
    x = ["batch", spec["in_channels"]] + [f"size{axis}" for axis in range(rank)]
    y = ["batch", spec["filters"]] + [f"out{axis}" for axis in range(rank)]
    node = helper.make_node("Conv", ["x"] + list(named), ["y"], **attributes(spec))
    fed = [helper.make_tensor_value_info("x", kind, x)]
    kept = []
    for name, shape in named.items():
        if constant:
            kept.append(onnx.TensorProto(name=name, data_type=kind, dims=shape))
        else:
            fed.append(helper.make_tensor_value_info(name, kind, shape))
    returned = [helper.make_tensor_value_info("y", kind, y)]
    graph = helper.make_graph([node], "convolution", fed, returned, kept)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)


def attributes(spec):
    """Conv's attributes. ``same`` is auto_pad=SAME_UPPER: the odd zero goes after; see AUTO_PAD.

    ONNX Runtime refuses auto_pad with dilation. Without a stride its pads are the same at all
    sizes and are written out, as converters do.
    """
    found = {
        "kernel_shape": spec["kernel"],
        "strides": spec["stride"],
        "dilations": spec["dilation"],
        "group": spec["groups"],
    }
    name = AUTO_PAD.get(str(spec["padding"]))
    if name and (set(spec["dilation"]) == {1} or set(spec["stride"]) != {1}):
        found["auto_pad"] = name
    elif spec["padding"] != "valid":
        before, after = zip(*pads(spec))
        found["pads"] = list(before) + list(after)
    return found


def pads(spec):
    """(before, after) for each axis, where that does not depend on sizes: explicit, or stride 1."""
    return Windows.of(spec).pads([1] * len(spec["kernel"]))

"""ONNX models of one MaxPool or AveragePool node."""

from probe.backends import pooling
from probe.backends.contract import Unsupported

NODES = {"max": "MaxPool", "avg": "AveragePool"}
#: The operator set: the first in which an average has dilations, and ceil_mode means one thing.
OPSET, IR_VERSION = 19, 9


def attributes(spec):
    """The node's attributes. ``same`` is auto_pad=SAME_UPPER, ``same_lower`` SAME_LOWER."""
    largest = pooling.kind(spec) == "max"
    found = {
        "kernel_shape": spec["kernel"],
        "strides": spec["stride"],
        "dilations": spec["dilation"],
        "ceil_mode": int(spec["ceil_mode"]),
    }
    if not largest:
        found["count_include_pad"] = int(spec["pad_with"] == "zeros")
    elif zeros_first(spec):
        return found
    if isinstance(spec["padding"], str) and spec["padding"] != "valid":
        found["auto_pad"] = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}[spec["padding"]]
    elif spec["padding"] != "valid":
        before, after = zip(*spec["padding"])
        found["pads"] = list(before) + list(after)
    return found


def zeros_first(spec):
    """Whether a Pad node goes before: MaxPool itself leaves padding out. Raises Unsupported."""
    if pooling.kind(spec) == "avg" or spec["pad_with"] != "zeros" or spec["padding"] == "valid":
        return False
    if isinstance(spec["padding"], str):
        raise Unsupported("ONNX's MaxPool leaves auto_pad's padding out: use explicit padding")
    return True


def nodes(onnx, spec, x, y):
    """The nodes from the value named ``x`` to ``y``: zeros around it where they count, the pool."""
    found, read = [], x
    if zeros_first(spec):
        before, after = zip(*spec["padding"])
        sizes = [0, 0] + list(before) + [0, 0] + list(after)
        tensor = onnx.helper.make_tensor("sizes", onnx.TensorProto.INT64, [len(sizes)], sizes)
        found.append(onnx.helper.make_node("Constant", [], [y + ".sizes"], value=tensor))
        read = y + ".padded"
        found.append(onnx.helper.make_node("Pad", [x, y + ".sizes"], [read]))
    found.append(onnx.helper.make_node(NODES[pooling.kind(spec)], [read], [y], **attributes(spec)))
    return found


def model(onnx, spec, kind):
    """The ModelProto of a pooling spec; batch and sizes are open. ``kind``: ONNX's dtype."""
    helper, rank = onnx.helper, len(spec["kernel"])
    shapes = {
        name: ["batch", spec["in_channels"]] + [f"{size}{axis}" for axis in range(rank)]
        for name, size in (("x", "size"), ("y", "out"))
    }
    fed, given = [[helper.make_tensor_value_info(n, kind, shapes[n])] for n in "xy"]
    graph = helper.make_graph(nodes(onnx, spec, "x", "y"), "pooling", fed, given)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)

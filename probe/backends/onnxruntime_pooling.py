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
    elif spec["pad_with"] == "zeros" and spec["padding"] != "valid":
        raise Unsupported("ONNX's MaxPool leaves padding out; a Pad node before it adds zeros")
    if isinstance(spec["padding"], str) and spec["padding"] != "valid":
        found["auto_pad"] = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}[spec["padding"]]
    elif spec["padding"] != "valid":
        before, after = zip(*spec["padding"])
        found["pads"] = list(before) + list(after)
    return found


def model(onnx, spec, kind):
    """The ModelProto of a pooling spec; batch and sizes are open. ``kind``: ONNX's dtype."""
    helper, rank = onnx.helper, len(spec["kernel"])
    shapes = {
        name: ["batch", spec["in_channels"]] + [f"{size}{axis}" for axis in range(rank)]
        for name, size in (("x", "size"), ("y", "out"))
    }
    node = helper.make_node(NODES[pooling.kind(spec)], ["x"], ["y"], **attributes(spec))
    fed, given = [[helper.make_tensor_value_info(n, kind, shapes[n])] for n in "xy"]
    graph = helper.make_graph([node], "pooling", fed, given)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)

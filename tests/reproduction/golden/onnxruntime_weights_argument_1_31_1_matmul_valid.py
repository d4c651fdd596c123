"""ONNX Runtime 1.31.1: matmul gives different bits at length 10 and at length 12.

matmul, 3 -> 2, length 10 against 12, float32, on onnxruntime,weights=argument.
Outputs are compared where both sides read the same inputs with the same weights.

Needs numpy, onnxruntime, onnx. Exit status: 1 they differ, 0 they don't, 2 it can't run.
"""

import platform
import sys

try:
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper
except ImportError as error:
    print("can't run: {}".format(error))
    sys.exit(2)


def options():
    """How it runs."""
    found = onnxruntime.SessionOptions()
    found.log_severity_level = 4
    found.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return found


# numbers (6ffd08): in shared.py
# x is -0.5040862, -1.1748261, 0.69154656, -0.13806365, 0.17978187, 0.4282146, 1.3672454, ...
x = numbers(
    "-0x1.021796p-1 -0x1.2cc168p+0 0x1.621264p-1 -0x1.1ac11ep-3 0x1.70317ap-3 0x1.b67de4p-2 "
    "0x1.5e03ccp+0 0x1.e5fab4p-7 -0x1.c21ef4p-1 -0x1.6e7bp+0 -0x1.443996p-2 -0x1.4520a2p+0 "
    "-0x1.4cc30cp-2 0x1.2269b2p+0 0x1.9c50b6p+0 0x1.d0a00cp-2 -0x1.74431ep-1 -0x1.da846ap+0 "
    "-0x1.4f5c14p-3 -0x1.1c6846p+1 -0x1.a0fa9cp-1 -0x1.ee391cp-1 0x1.63bc6p+0 -0x1.3f88dap-5 "
    "-0x1.1d7cfep-2 -0x1.317078p+0 -0x1.20d0fcp+0 0x1.146f54p+1 0x1.0a7988p-1 -0x1.7dd7p-1 "
    "0x1.211f9p-1 0x1.e81f5p+0 0x1.f5baa6p-3 0x1.d6bb34p-3 0x1.07c294p+1 -0x1.aa8d72p-1",
    1,
    12,
    3,
)
# w is 0.9229466, -0.5974436, 0.58681, -0.12996927, -0.12522419, -0.04125987
w = numbers(
    "0x1.d88c74p-1 -0x1.31e42p-1 0x1.2c725cp-1 -0x1.0a2d54p-3 -0x1.00758ap-3 -0x1.520038p-5",
    1,
    3,
    2,
)
# b is 1.0, 1.0
b = numbers("0x1p+0 0x1p+0", 2)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, 0:10]),
]


def compute(x, w, b):
    """The outputs, channels last."""
    value_info = helper.make_tensor_value_info
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "model",
        [
            value_info("x", TensorProto.FLOAT, ["size0", 3]),
            value_info("w", TensorProto.FLOAT, [3, 2]),
            value_info("b", TensorProto.FLOAT, [2]),
        ],
        [value_info("y", TensorProto.FLOAT, None)],
    )
    opset = helper.make_opsetid("", 11)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=6)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options(), providers=["CPUExecutionProvider"]
    )
    x = x[0]
    w = w[0]
    y = session.run(["y"], {"x": x, "w": w, "b": b})[0]
    return y.reshape(1, -1, 2)


# processor (c27d30): in shared.py
# bits (593c87): in shared.py
# ordered (3fa860): in shared.py
# text (5ab459): in shared.py
# listed (0938a2): in shared.py
# compare (84dc64): in shared.py


def main():
    """The exit status."""
    python, numpy = platform.python_version(), np.__version__
    print("ONNX Runtime {}".format(onnxruntime.__version__))
    print("NumPy {}, Python {}".format(numpy, python))
    print("{} {}".format(platform.machine(), processor()))
    print("left: length 10; right: length 12")
    one = compute(np.ascontiguousarray(x[:, :10]), w, b)
    two = compute(x, w, b)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py

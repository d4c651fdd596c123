"""Keras 3.15.1: matmul gives different bits at length 10 and at length 12.

matmul, 4 -> 1, length 10 against 12, float32, on keras,xla=1.
Outputs are compared where both sides read the same inputs with the same weights.

Needs numpy, keras, tensorflow. Exit status: 1 they differ, 0 they don't, 2 it can't run.
"""

import os
import platform
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["ABSL_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["KERAS_BACKEND"] = "tensorflow"

try:
    import keras
    import numpy as np
    import tensorflow as tf
except ImportError as error:
    print("can't run: {}".format(error))
    sys.exit(2)


# numbers (6ffd08): in shared.py
# x is -0.5040862, -1.1748261, 0.69154656, -0.37415272, -0.13806365, 0.17978187, 0.4282146, ...
x = numbers(
    "-0x1.021796p-1 -0x1.2cc168p+0 0x1.621264p-1 -0x1.7f21e4p-2 -0x1.1ac11ep-3 0x1.70317ap-3 "
    "0x1.b67de4p-2 -0x1.46134cp-1 0x1.5e03ccp+0 0x1.e5fab4p-7 -0x1.c21ef4p-1 -0x1.0f23dcp-3 "
    "-0x1.6e7bp+0 -0x1.443996p-2 -0x1.4520a2p+0 0x1.211b46p-1 -0x1.4cc30cp-2 0x1.2269b2p+0 "
    "0x1.9c50b6p+0 0x1.dac5c4p+0 0x1.d0a00cp-2 -0x1.74431ep-1 -0x1.da846ap+0 0x1.1ff336p-1 "
    "-0x1.4f5c14p-3 -0x1.1c6846p+1 -0x1.a0fa9cp-1 -0x1.c6787p-3 -0x1.ee391cp-1 0x1.63bc6p+0 "
    "-0x1.3f88dap-5 0x1.d064eap-1 -0x1.1d7cfep-2 -0x1.317078p+0 -0x1.20d0fcp+0 -0x1.43b1ap+0 "
    "0x1.146f54p+1 0x1.0a7988p-1 -0x1.7dd7p-1 0x1.aa6e6ep-2 0x1.211f9p-1 0x1.e81f5p+0 "
    "0x1.f5baa6p-3 -0x1.349adep-2 0x1.d6bb34p-3 0x1.07c294p+1 -0x1.aa8d72p-1 0x1.c955b8p-5",
    1,
    12,
    4,
)
# w is 0.9229466, 0.58681, -0.12522419, -0.59516287
w = numbers("0x1.d88c74p-1 0x1.2c725cp-1 -0x1.00758ap-3 -0x1.30b93p-1", 1, 4, 1)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, 0:10]),
]


def compute(x, w):
    """The outputs, channels last."""
    layer = keras.layers.Dense(1, use_bias=False)
    layer.build((None, 4))

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32)], jit_compile=True)
    def model(x):
        return layer(x)

    x = keras.ops.convert_to_tensor(x[0])
    layer.kernel.assign(w[0])
    y = model(x)
    return keras.ops.convert_to_numpy(y).reshape(1, -1, 1)


# processor (c27d30): in shared.py
# bits (593c87): in shared.py
# ordered (3fa860): in shared.py
# text (5ab459): in shared.py
# listed (0938a2): in shared.py
# compare (84dc64): in shared.py


def main():
    """The exit status."""
    python, numpy = platform.python_version(), np.__version__
    print("Keras {}".format(keras.__version__))
    print("NumPy {}, Python {}".format(numpy, python))
    print("{} {}".format(platform.machine(), processor()))
    print("left: length 10; right: length 12")
    one = compute(np.ascontiguousarray(x[:, :10]), w)
    two = compute(x, w)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py

"""TensorFlow 2.21.0: conv1d gives different bits at length 10 and at length 12.

conv1d 5, 2 -> 1, length 10 against 12, float32, on tensorflow.
Outputs are compared where both sides read the same inputs with the same weights.

Needs numpy and tensorflow. Exit status: 1 they differ, 0 they don't, 2 it can't run.
"""

import os
import platform
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["ABSL_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

try:
    import numpy as np
    import tensorflow as tf
except ImportError as error:
    print("can't run: {}".format(error))
    sys.exit(2)


# numbers (6ffd08): in shared.py
# x is -0.5040862, -1.1748261, -0.13806365, 0.17978187, 1.3672454, 0.0148309115, -1.4315643, ...
x = numbers(
    "-0x1.021796p-1 -0x1.2cc168p+0 -0x1.1ac11ep-3 0x1.70317ap-3 0x1.5e03ccp+0 0x1.e5fab4p-7 "
    "-0x1.6e7bp+0 -0x1.443996p-2 -0x1.4cc30cp-2 0x1.2269b2p+0 0x1.d0a00cp-2 -0x1.74431ep-1 "
    "-0x1.4f5c14p-3 -0x1.1c6846p+1 -0x1.ee391cp-1 0x1.63bc6p+0 -0x1.1d7cfep-2 -0x1.317078p+0 "
    "0x1.146f54p+1 0x1.0a7988p-1 0x1.211f9p-1 0x1.e81f5p+0 0x1.d6bb34p-3 0x1.07c294p+1",
    1,
    12,
    2,
)
# w is 0.9229466, 0.58681, -1.3811823, -1.5165917, -1.5525317, 2.6436272, 0.665063, 1.5295054, ...
w = numbers(
    "0x1.d88c74p-1 0x1.2c725cp-1 -0x1.61952ap+0 -0x1.843f5ap+0 -0x1.8d72b8p+0 0x1.52626p+1 "
    "0x1.548324p-1 0x1.878daap+0 -0x1.728e66p-2 0x1.d1943cp-4",
    5,
    2,
    1,
)
b = numbers("0x1p-1", 1)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, 0:6]),
]


def compute(x, w, b):
    """The outputs, channels last."""
    x = tf.constant(x)
    w = tf.constant(w)
    b = tf.constant(b)
    y = tf.nn.conv1d(x, w, stride=1, padding="VALID")
    y = tf.nn.bias_add(y, b)
    return y.numpy()


# processor (c27d30): in shared.py
# bits (593c87): in shared.py
# ordered (3fa860): in shared.py
# text (5ab459): in shared.py
# listed (0938a2): in shared.py
# compare (84dc64): in shared.py


def main():
    """The exit status."""
    python, numpy = platform.python_version(), np.__version__
    print("TensorFlow {}".format(tf.__version__))
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

"""TensorFlow 1.2.1: conv2d gives different bits at length 10 and at length 12.

conv2d 1x5, 1 -> 1, 1:0,0, length 10 against 12, float32, on tensorflow.
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

config = tf.ConfigProto(allow_soft_placement=True)


# numbers (6ffd08): in shared.py
# x is -0.6796448, -1.3555155, -0.7314526, 0.1003452, 1.0765023, 0.76513386, 0.9733352, ...
x = numbers(
    "-0x1.5bfa68p-1 -0x1.5b031p+0 -0x1.7680f4p-1 0x1.9b0392p-4 0x1.1395a8p+0 0x1.87bfap-1 "
    "0x1.f258fep-1 0x1.fb6b52p-2 0x1.0807bp-2 -0x1.6fb0aap+0 0x1.56f352p-2 0x1.351eccp-1",
    1,
    1,
    12,
    1,
)
# w is 1.7839365, -0.0018027397, -1.4139723, 0.50426584, -1.7659589
w = numbers("0x1.c8b01p+0 -0x1.d893dp-10 -0x1.69fa16p+0 0x1.022f22p-1 -0x1.c415e2p+0", 1, 5, 1, 1)
b = numbers("0x1p-1", 1)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, :, 0:6]),
]


def compute(x, w, b):
    """The outputs, channels last."""

    def traced(x, w, b):
        x = tf.pad(x, [[0, 0], [1, 0], [0, 0], [0, 0]])
        y = tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="VALID")
        return tf.nn.bias_add(y, b)

    with tf.Graph().as_default(), tf.device("/cpu:0"):
        fed = [
            tf.placeholder(tf.float32, (None, None, None, 1)),
            tf.placeholder(tf.float32, (1, 5, 1, 1)),
            tf.placeholder(tf.float32, (1,)),
        ]
        call = tf.Session(config=config).make_callable(traced(*fed), fed)
    y = call(x, w, b)
    return y


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
    one = compute(np.ascontiguousarray(x[:, :, :10]), w, b)
    two = compute(x, w, b)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py

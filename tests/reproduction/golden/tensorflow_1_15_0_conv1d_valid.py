"""TensorFlow 1.15.0: conv1d gives different bits at length 10 and at length 12.

conv1d 3, 1 -> 1, bfloat16, length 10 against 12, on tensorflow.
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
# x is -0.50390625, -0.13769531, 1.3671875, -1.4296875, -0.32421875, 0.453125, -0.1640625, ...
x = numbers(
    "-0x1.02p-1 -0x1.1ap-3 0x1.5ep+0 -0x1.6ep+0 -0x1.4cp-2 0x1.dp-2 -0x1.5p-3 -0x1.eep-1 "
    "-0x1.1ep-2 0x1.14p+1 0x1.22p-1 0x1.d6p-3",
    1,
    12,
    1,
)
# w is 0.921875, -1.3828125, -1.5546875
w = numbers("0x1.d8p-1 -0x1.62p+0 -0x1.8ep+0", 3, 1, 1)
b = numbers("0x1p-1", 1)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, 0:8]),
]


def compute(x, w, b):
    """The outputs, channels last."""

    def traced(x, w, b):
        x = tf.cast(x, tf.bfloat16)
        w = tf.cast(w, tf.bfloat16)
        b = tf.cast(b, tf.bfloat16)
        y = tf.nn.conv1d(x, w, stride=1, padding="VALID")
        y = tf.nn.bias_add(y, b)
        return tf.cast(y, tf.float32)

    with tf.Graph().as_default(), tf.device("/cpu:0"):
        fed = [
            tf.placeholder(tf.float32, (None, None, 1)),
            tf.placeholder(tf.float32, (3, 1, 1)),
            tf.placeholder(tf.float32, (1,)),
        ]
        call = tf.Session(config=config).make_callable(traced(*fed), fed)
    y = call(x, w, b)
    return y


# processor (c27d30): in shared.py
# bits (bb6790): in shared.py
# ordered (ffb963): in shared.py
# text (73c036): in shared.py
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

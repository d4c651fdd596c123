"""TensorFlow 1.15.0: conv1d gives different bits at length 10 and at length 12.

conv1d 3, 1 -> 1, same, length 10 against 12, float32, on tensorflow,threads=1.
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
config.intra_op_parallelism_threads = 1
config.inter_op_parallelism_threads = 1


# numbers (6ffd08): in shared.py
# x is -0.5040862, -0.13806365, 1.3672454, -1.4315643, -0.3249628, 0.45373553, -0.16374984, ...
x = numbers(
    "-0x1.021796p-1 -0x1.1ac11ep-3 0x1.5e03ccp+0 -0x1.6e7bp+0 -0x1.4cc30cp-2 0x1.d0a00cp-2 "
    "-0x1.4f5c14p-3 -0x1.ee391cp-1 -0x1.1d7cfep-2 0x1.146f54p+1 0x1.211f9p-1 0x1.d6bb34p-3",
    1,
    12,
    1,
)
# w is 0.9229466, -1.3811823, -1.5525317
w = numbers("0x1.d88c74p-1 -0x1.61952ap+0 -0x1.8d72b8p+0", 3, 1, 1)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:, 0:9], np.s_[:, 0:9]),
]


def compute(x, w):
    """The outputs, channels last."""

    def traced(x, w):
        return tf.nn.conv1d(x, w, stride=1, padding="SAME")

    with tf.Graph().as_default(), tf.device("/cpu:0"):
        fed = [tf.placeholder(tf.float32, (None, None, 1)), tf.placeholder(tf.float32, (3, 1, 1))]
        call = tf.Session(config=config).make_callable(traced(*fed), fed)
    y = call(x, w)
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
    one = compute(np.ascontiguousarray(x[:, :10]), w)
    two = compute(x, w)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py

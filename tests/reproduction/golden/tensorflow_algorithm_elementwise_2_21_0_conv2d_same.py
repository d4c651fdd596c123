"""TensorFlow 2.21.0: conv2d gives different bits at length 10 and at length 12.

conv2d 2x2, 1 -> 1, same, length 10 against 12, float32, on tensorflow,algorithm=elementwise.
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
# x is -0.6796448, -1.3555155, -0.7314526, 0.1003452, 1.0765023, 0.76513386, 0.9733352, ...
x = numbers(
    "-0x1.5bfa68p-1 -0x1.5b031p+0 -0x1.7680f4p-1 0x1.9b0392p-4 0x1.1395a8p+0 0x1.87bfap-1 "
    "0x1.f258fep-1 0x1.fb6b52p-2 0x1.0807bp-2 -0x1.6fb0aap+0 0x1.56f352p-2 0x1.351eccp-1 "
    "-0x1.2400dep-1 0x1.31e28ap+0 0x1.7d0e9cp+0 -0x1.7acc66p+0 -0x1.5a4ffp-3 -0x1.f23cap-1 "
    "-0x1.c6b042p-2 -0x1.8d52c6p-2 -0x1.a5aca2p+0 0x1.65f29ap+0 -0x1.d39ed4p-1 -0x1.4fd2d8p-1",
    1,
    2,
    12,
    1,
)
# w is 1.7839365, -0.0018027397, 0.39215022, -1.6258708
w = numbers("0x1.c8b01p+0 -0x1.d893dp-10 0x1.918fd4p-2 -0x1.a03912p+0", 2, 2, 1, 1)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:, :, 0:9], np.s_[:, :, 0:9]),
]


def compute(x, w):
    """The outputs, channels last."""
    x = tf.constant(x)
    w = tf.constant(w)
    x = tf.pad(x, [[0, 0], [0, 1], [0, 1], [0, 0]])
    weights = tf.unstack(tf.reshape(w, [4, 1]))
    y = None
    for n, (i, j) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        product = tf.multiply(x[:, i : i - 1 or None, j : j - 1 or None], weights[n])
        y = product if y is None else tf.add(y, product)
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
    one = compute(np.ascontiguousarray(x[:, :, :10]), w)
    two = compute(x, w)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py

"""TensorFlow 2.21.0: conv3d gives different bits at length 10 and at length 12.

conv3d 2x2x2, 1 -> 1, length 10 against 12, float32, on tensorflow,weights=constant.
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
# x is 0.876426, 1.4299184, 0.861171, 2.6311114, 0.12841552, 0.9829149, 0.32451746, ...
x = numbers(
    "0x1.c0bae8p-1 0x1.6e0f22p+0 0x1.b8eb68p-1 0x1.50c842p+1 0x1.06feb8p-3 0x1.f740ap-1 "
    "0x1.4c4e4ep-2 0x1.798cd6p-6 -0x1.b44b72p-3 -0x1.d1956p-1 0x1.aa7c94p-5 0x1.b0590cp-1 "
    "-0x1.646a74p-2 -0x1.6d12ccp+0 -0x1.cbb83ep-1 -0x1.19dafep-1 -0x1.441f54p+0 -0x1.b37798p+1 "
    "-0x1.b8b058p+0 0x1.3a2114p-1 -0x1.90d46ep-3 0x1.68218cp-1 -0x1.281856p-4 -0x1.607188p-4 "
    "0x1.0cc17ap-2 -0x1.cf1cf4p-5 0x1.5ce0cap-3 0x1.8455e4p+0 0x1.c2a4a2p-1 -0x1.d99cfep-3 "
    "-0x1.10a6cep-2 0x1.e12198p-1 0x1.03d1aep-3 -0x1.36d19cp-1 -0x1.e984fep-1 0x1.008956p+0 "
    "0x1.2a22b8p+0 0x1.b7ac6cp-1 -0x1.214faep-1 -0x1.eca446p+0 -0x1.79d13ep+0 -0x1.ea8236p+0 "
    "0x1.c5ce84p+0 0x1.181b38p+0 0x1.523f46p-3 -0x1.eb03c6p-1 0x1.77c62ap-2 0x1.3b2a42p-1",
    1,
    2,
    2,
    12,
    1,
)
# w is 0.114042416, -1.1410549, -1.0230242, 1.584561, 1.6951414, -1.1713866, -2.5330906, ...
w = numbers(
    "0x1.d31e24p-4 -0x1.241c2cp+0 -0x1.05e4eap+0 0x1.95a5cap+0 0x1.b1f4cap+0 -0x1.2bdffep+0 "
    "-0x1.443c5p+1 0x1.5fe62p-7",
    2,
    2,
    2,
    1,
    1,
)
b = numbers("-0x1.35b59ap-3", 1)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, :, :, 0:9]),
]


def compute(x, w, b):
    """The outputs, channels last."""
    x = tf.constant(x)

    @tf.function(input_signature=[tf.TensorSpec((None, None, None, None, 1), tf.float32)])
    def traced(x):
        y = tf.nn.conv3d(x, tf.constant(w), strides=[1, 1, 1, 1, 1], padding="VALID")
        return tf.nn.bias_add(y, tf.constant(b))

    y = traced(x)
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
    one = compute(np.ascontiguousarray(x[:, :, :, :10]), w, b)
    two = compute(x, w, b)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py

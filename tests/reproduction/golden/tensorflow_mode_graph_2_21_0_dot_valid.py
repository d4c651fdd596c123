"""TensorFlow 2.21.0: dot gives different bits at length 10 and at length 12.

dot, 9 -> 1, length 10 against 12, float32, on tensorflow,mode=graph.
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
# x is -0.5040862, -1.1748261, 0.69154656, -0.37415272, -0.5633884, -0.51012975, -2.4982483, ...
x = numbers(
    "-0x1.021796p-1 -0x1.2cc168p+0 0x1.621264p-1 -0x1.7f21e4p-2 -0x1.207472p-1 -0x1.052fbap-1 "
    "-0x1.3fc69ap+1 -0x1.50b3f2p+0 0x1.539d34p-2 -0x1.1ac11ep-3 0x1.70317ap-3 0x1.b67de4p-2 "
    "-0x1.46134cp-1 -0x1.211ad2p+1 0x1.f20d36p+0 -0x1.e1903ep-1 0x1.f0b42cp-2 0x1.440a56p-3 "
    "0x1.5e03ccp+0 0x1.e5fab4p-7 -0x1.c21ef4p-1 -0x1.0f23dcp-3 0x1.21729ep-3 0x1.2dcd7p-1 "
    "-0x1.2698fep+1 0x1.cbad6p+0 -0x1.2828ecp-1 -0x1.6e7bp+0 -0x1.443996p-2 -0x1.4520a2p+0 "
    "0x1.211b46p-1 -0x1.6411e6p+0 0x1.0da73ap+0 -0x1.a455f4p-3 -0x1.0fa89ap-1 0x1.7c8998p-1 "
    "-0x1.4cc30cp-2 0x1.2269b2p+0 0x1.9c50b6p+0 0x1.dac5c4p+0 0x1.137e22p-1 0x1.007448p+0 "
    "-0x1.18292ep+0 -0x1.02e306p-4 -0x1.472236p-5 0x1.d0a00cp-2 -0x1.74431ep-1 -0x1.da846ap+0 "
    "0x1.1ff336p-1 0x1.578c4ep-1 -0x1.70b002p-2 0x1.138aeep-4 0x1.1750a2p-1 -0x1.a1fa22p-1 "
    "-0x1.4f5c14p-3 -0x1.1c6846p+1 -0x1.a0fa9cp-1 -0x1.c6787p-3 0x1.fc8e2cp-4 -0x1.db8c52p-1 "
    "0x1.f34836p-4 -0x1.135878p-2 0x1.60c27ap-1 -0x1.ee391cp-1 0x1.63bc6p+0 -0x1.3f88dap-5 "
    "0x1.d064eap-1 -0x1.da410cp-1 -0x1.ca994cp-4 0x1.38a8ecp-1 0x1.89351ap-3 -0x1.408aa2p-1 "
    "-0x1.1d7cfep-2 -0x1.317078p+0 -0x1.20d0fcp+0 -0x1.43b1ap+0 -0x1.e7d522p-6 0x1.e6ca0ep-3 "
    "-0x1.44974p+0 -0x1.dae496p-2 0x1.5bc972p+0 0x1.146f54p+1 0x1.0a7988p-1 -0x1.7dd7p-1 "
    "0x1.aa6e6ep-2 -0x1.207f42p+0 0x1.da710ep-3 0x1.636948p-3 0x1.49cb06p+0 0x1.a9a0bcp-4 "
    "0x1.211f9p-1 0x1.e81f5p+0 0x1.f5baa6p-3 -0x1.349adep-2 0x1.af8906p+0 -0x1.691dc6p-1 "
    "0x1.e2b744p-3 -0x1.22d2f8p-1 0x1.8e14bcp-1 0x1.d6bb34p-3 0x1.07c294p+1 -0x1.aa8d72p-1 "
    "0x1.c955b8p-5 0x1.dcebfap-1 0x1.e6d474p-2 -0x1.bccac8p-1 -0x1.24b84ep+1 0x1.0e2cb2p-1",
    1,
    12,
    9,
)
# w is 0.9229466, 0.58681, -0.12522419, -0.59516287, -0.1676473, -0.2739455, -1.2647744, ...
w = numbers(
    "0x1.d88c74p-1 0x1.2c725cp-1 -0x1.00758ap-3 -0x1.30b93p-1 -0x1.575778p-3 -0x1.18852cp-2 "
    "-0x1.43c842p+0 0x1.78eac4p+0 -0x1.b3d7e4p-4",
    1,
    9,
    1,
)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, 0:10]),
]


def compute(x, w):
    """The outputs, channels last."""

    @tf.function(
        input_signature=[tf.TensorSpec((None, 9), tf.float32), tf.TensorSpec((9,), tf.float32)]
    )
    def traced(x, w):
        return tf.tensordot(x, w, 1)

    x = tf.constant(x[0])
    w = tf.constant(w[0, :, 0])
    y = traced(x, w)
    return y.numpy().reshape(1, -1, 1)


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

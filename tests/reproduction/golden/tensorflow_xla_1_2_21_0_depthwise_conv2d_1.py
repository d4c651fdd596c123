"""TensorFlow 2.21.0: depthwise_conv2d gives different bits at length 10 and at length 12.

depthwise_conv2d 3x3, 2 -> 2, 1, length 10 against 12, float32, on tensorflow,xla=1.
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
# x is -0.6796448, -1.1004013, -1.3555155, 0.5620166, -0.7314526, 2.2083013, 0.1003452, ...
x = numbers(
    "-0x1.5bfa68p-1 -0x1.19b3e6p+0 -0x1.5b031p+0 0x1.1fc0a4p-1 -0x1.7680f4p-1 0x1.1aa99ep+1 "
    "0x1.9b0392p-4 -0x1.af984p-8 0x1.1395a8p+0 -0x1.b1937ep-3 0x1.87bfap-1 -0x1.12aad8p-3 "
    "0x1.f258fep-1 -0x1.de9f5ep-4 0x1.fb6b52p-2 0x1.3fa8d4p-2 0x1.0807bp-2 -0x1.983114p-2 "
    "-0x1.6fb0aap+0 -0x1.2e0936p-1 0x1.56f352p-2 -0x1.53747ap+0 0x1.351eccp-1 -0x1.ef3a9ap-2 "
    "-0x1.2400dep-1 -0x1.164cep+0 0x1.31e28ap+0 0x1.e02098p-1 0x1.7d0e9cp+0 -0x1.b2a8e2p-3 "
    "-0x1.7acc66p+0 -0x1.f5b94ap-2 -0x1.5a4ffp-3 -0x1.7bbd5ap-3 -0x1.f23cap-1 0x1.1ff4cep+0 "
    "-0x1.c6b042p-2 0x1.081fep-3 -0x1.8d52c6p-2 0x1.8bb98p-3 -0x1.a5aca2p+0 0x1.3546d2p-1 "
    "0x1.65f29ap+0 0x1.7e13d2p+0 -0x1.d39ed4p-1 -0x1.a8853cp+0 -0x1.4fd2d8p-1 -0x1.b09fe2p-1 "
    "0x1.7ab2fap-2 0x1.79c9b4p-2 0x1.665bf4p-1 0x1.dfdd4p+0 -0x1.cfd07ep-2 -0x1.9a20e8p+0 "
    "-0x1.810bdep-1 -0x1.2ad79ep-2 0x1.8d8cccp-3 0x1.2e9bdp+1 -0x1.0c7eccp+1 -0x1.7ac2bp+0 "
    "-0x1.67282cp+0 -0x1.17a614p-1 -0x1.bf10b2p-7 0x1.66381ep-2 -0x1.53741ap-3 0x1.1898a4p+0 "
    "0x1.2fab48p-1 0x1.6876fp+1 -0x1.502bb6p-2 0x1.2b61e2p-1 -0x1.428e6p-1 -0x1.9f2a44p-2",
    1,
    3,
    12,
    2,
)
# w is 1.7839365, 1.7398618, -0.0018027397, 1.3777703, -1.4139723, -1.9356014, 0.39215022, ...
w = numbers(
    "0x1.c8b01p+0 0x1.bd6796p+0 -0x1.d893dp-10 0x1.60b58ep+0 -0x1.69fa16p+0 -0x1.ef8392p+0 "
    "0x1.918fd4p-2 -0x1.340cd4p+0 -0x1.a03912p+0 0x1.342f42p+0 -0x1.b67e5cp-1 -0x1.bcab6p-2 "
    "0x1.65ed04p+0 0x1.41c9bp+0 -0x1.4bf798p+0 0x1.2b1158p-1 0x1.9bc654p-2 -0x1.dabffap+0",
    3,
    3,
    1,
    2,
)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:, :, 0:9], np.s_[:, :, 0:9]),
]


def compute(x, w):
    """The outputs, channels last."""

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, None, 2), tf.float32),
            tf.TensorSpec((3, 3, 2, 1), tf.float32),
        ],
        jit_compile=True,
    )
    def traced(x, w):
        return tf.nn.depthwise_conv2d(
            x, w, strides=[1, 1, 1, 1], padding=[[0, 0], [1, 1], [1, 1], [0, 0]]
        )

    x = tf.constant(x)
    w = tf.constant(w.reshape((3, 3, 2, 1)))
    y = traced(x, w)
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

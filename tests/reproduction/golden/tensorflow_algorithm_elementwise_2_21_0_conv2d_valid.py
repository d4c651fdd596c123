"""TensorFlow 2.21.0: conv2d gives different bits at length 10 and at length 12.

conv2d 2x2, 4 -> 8, 2 groups, length 10 against 12, float32, on tensorflow,algorithm=elementwise.
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
# x is -0.6796448, -1.1004013, -0.6826408, -0.8218469, -1.3555155, 0.5620166, 1.297584, ...
x = numbers(
    "-0x1.5bfa68p-1 -0x1.19b3e6p+0 -0x1.5d8318p-1 -0x1.a4c91ep-1 -0x1.5b031p+0 0x1.1fc0a4p-1 "
    "0x1.4c2e78p+0 -0x1.357526p-1 -0x1.7680f4p-1 0x1.1aa99ep+1 0x1.187a8ap+0 -0x1.8f8f8ap-4 "
    "0x1.9b0392p-4 -0x1.af984p-8 0x1.6ffd74p-3 0x1.1e08cep+0 0x1.1395a8p+0 -0x1.b1937ep-3 "
    "0x1.3cebe6p-1 0x1.9410b8p-1 0x1.87bfap-1 -0x1.12aad8p-3 -0x1.7443ecp-2 0x1.ba36cap-1 "
    "0x1.f258fep-1 -0x1.de9f5ep-4 0x1.0b1e5ep-1 -0x1.f20c0ap-2 0x1.fb6b52p-2 0x1.3fa8d4p-2 "
    "-0x1.3a9f28p+0 0x1.4a2216p+0 0x1.0807bp-2 -0x1.983114p-2 0x1.11c17ep-1 0x1.bf5bc2p+0 "
    "-0x1.6fb0aap+0 -0x1.2e0936p-1 -0x1.3b3732p-2 -0x1.84463ep+0 0x1.56f352p-2 -0x1.53747ap+0 "
    "-0x1.d2ef04p-2 0x1.f6185cp-3 0x1.351eccp-1 -0x1.ef3a9ap-2 0x1.511138p-1 0x1.7e31eap-2 "
    "-0x1.2400dep-1 -0x1.164cep+0 -0x1.1af4aep+0 -0x1.2339a6p-1 0x1.31e28ap+0 0x1.e02098p-1 "
    "-0x1.8021fep+0 0x1.6ec92p-2 0x1.7d0e9cp+0 -0x1.b2a8e2p-3 0x1.788176p-3 0x1.b8343ep-3 "
    "-0x1.7acc66p+0 -0x1.f5b94ap-2 0x1.3485ep-2 0x1.7e4ddcp-5 -0x1.5a4ffp-3 -0x1.7bbd5ap-3 "
    "0x1.66bfaep+0 0x1.838154p-2 -0x1.f23cap-1 0x1.1ff4cep+0 0x1.bb67aap-1 -0x1.4f3be8p-3 "
    "-0x1.c6b042p-2 0x1.081fep-3 -0x1.711f4p+0 0x1.799ac4p+0 -0x1.8d52c6p-2 0x1.8bb98p-3 "
    "0x1.dfbee4p-4 0x1.5de69ap-1 -0x1.a5aca2p+0 0x1.3546d2p-1 0x1.aa8d0cp-2 -0x1.e61838p+0 "
    "0x1.65f29ap+0 0x1.7e13d2p+0 0x1.6be18p-1 0x1.19ad44p-2 -0x1.d39ed4p-1 -0x1.a8853cp+0 "
    "-0x1.2e0b1p-1 0x1.129de6p+0 -0x1.4fd2d8p-1 -0x1.b09fe2p-1 0x1.07b5b2p+0 0x1.46fb9ap+0",
    1,
    2,
    12,
    4,
)
# w is 1.7839365, 1.7398618, 0.93817157, -0.0027236326, -2.340727, -0.12879723, -0.050325602, ...
w = numbers(
    "0x1.c8b01p+0 0x1.bd6796p+0 0x1.e05806p-1 -0x1.64fdf2p-9 -0x1.2b9cf2p+1 -0x1.07c6d8p-3 "
    "-0x1.9c447p-5 0x1.34e1c4p+0 0x1.53111p-2 0x1.31e85p-4 0x1.041bf6p-2 0x1.932f6cp-5 "
    "-0x1.3502bap-1 -0x1.c421ap-1 0x1.0f26acp+0 -0x1.0f7e9ap-1 -0x1.d893dp-10 0x1.60b58ep+0 "
    "-0x1.908bd4p+0 -0x1.53ffbap-2 -0x1.82388ep-3 -0x1.2392acp+1 0x1.3ac592p-2 0x1.3067f4p-1 "
    "0x1.adc5ecp+0 -0x1.0468eap-2 0x1.ba9506p-7 0x1.421b2cp-7 -0x1.c4a192p+0 0x1.edde9cp+0 "
    "0x1.cfdd3ep+0 -0x1.880cf6p+0 0x1.918fd4p-2 -0x1.340cd4p+0 0x1.48d4f4p-1 -0x1.00c674p-2 "
    "0x1.ba4154p-1 -0x1.d1241ap-3 0x1.c3ae42p-2 0x1.c94ab2p-2 0x1.f57c56p-4 -0x1.723b42p-1 "
    "-0x1.8a02ep-2 0x1.84682ep-1 0x1.1e55c2p-2 -0x1.79e474p+0 0x1.71429cp+0 -0x1.a42c2ep+0 "
    "-0x1.a03912p+0 0x1.342f42p+0 0x1.a1a0ap-3 0x1.86225ep-3 -0x1.d42e38p+0 -0x1.aaa05cp-1 "
    "0x1.78e53ep-2 0x1.535f2p-2 0x1.e6661ap+0 0x1.cd52c8p+0 -0x1.3a1a2p-1 -0x1.f2a346p-2 "
    "0x1.591ba8p-1 0x1.48819ap+0 0x1.7d4426p+0 0x1.3cf74p-5",
    2,
    2,
    2,
    8,
)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, :, 0:9]),
]


def compute(x, w):
    """The outputs, channels last."""
    x = tf.constant(x)
    w = tf.constant(w)
    x = tf.reshape(x, tf.concat([tf.shape(x)[:-1], [2, 2]], 0))
    weights = tf.unstack(tf.reshape(w, [8, 2, 4]))
    y = None
    for n, (i, j) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        for c, part in enumerate(tf.split(x[:, i : i - 1 or None, j : j - 1 or None], 2, axis=-1)):
            product = tf.multiply(part, weights[2 * n + c])
            y = product if y is None else tf.add(y, product)
    y = tf.reshape(y, tf.concat([tf.shape(y)[:-2], [8]], 0))
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

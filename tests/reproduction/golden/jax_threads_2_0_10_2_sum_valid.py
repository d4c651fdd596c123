"""JAX 0.10.2: sum gives different bits at length 10 and at length 12.

sum, 4, float64, length 10 against 12, on jax,threads=2.
Outputs are compared where both sides read the same inputs with the same weights.

Needs numpy and jax. Exit status: 1 they differ, 0 they don't, 2 it can't run.
"""

import os
import platform
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["NPROC"] = "2"
os.environ["PJRT_NPROC"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError as error:
    print("can't run: {}".format(error))
    sys.exit(2)


# numbers (3c1aa9): in shared.py
# x is -0.5040861670859158, -1.1748261146713048, 0.6915465753991157, -0.3741527197416872, ...
x = numbers(
    "-0x1.02179504p-1 -0x1.2cc1677dp+0 0x1.6212648ap-1 -0x1.7f21e3fcp-2 -0x1.1ac11e18p-3 "
    "0x1.7031791p-3 0x1.b67de4d8p-2 -0x1.46134b5cp-1 0x1.5e03cccap+0 0x1.e5fab3p-7 "
    "-0x1.c21ef404p-1 -0x1.0f23db9p-3 -0x1.6e7b0077p+0 -0x1.443995b4p-2 -0x1.4520a2dap+0 "
    "0x1.211b4542p-1 -0x1.4cc30b98p-2 0x1.2269b1b5p+0 0x1.9c50b598p+0 0x1.dac5c382p+0 "
    "0x1.d0a00bc8p-2 -0x1.74431efap-1 -0x1.da846adap+0 0x1.1ff335c2p-1 -0x1.4f5c13b8p-3 "
    "-0x1.1c6845738p+1 -0x1.a0fa9b06p-1 -0x1.c67870d8p-3 -0x1.ee391c0ap-1 0x1.63bc60abp+0 "
    "-0x1.3f88d92p-5 0x1.d064ea18p-1 -0x1.1d7cfebp-2 -0x1.3170789ep+0 -0x1.20d0fcdap+0 "
    "-0x1.43b19f25p+0 0x1.146f534fp+1 0x1.0a79883cp-1 -0x1.7dd6fffcp-1 0x1.aa6e6d68p-2 "
    "0x1.211f8f64p-1 0x1.e81f507ap+0 0x1.f5baa61p-3 -0x1.349ade54p-2 0x1.d6bb33fp-3 "
    "0x1.07c294cdp+1 -0x1.aa8d72eep-1 0x1.c955b8cp-5",
    1,
    12,
    4,
)
# Outputs that are compared, on the left and on the right.
COMPARED = [
    (np.s_[:], np.s_[:, 0:10]),
]


def compute(x):
    """The outputs, channels last."""

    @jax.jit
    def computed(x):
        return jnp.sum(x, axis=-1)

    with jax.enable_x64(True):
        x = jnp.array(x)
    with jax.enable_x64(True):
        y = computed(x).block_until_ready()
    return np.asarray(y)[..., None]


# processor (c27d30): in shared.py
# bits (206489): in shared.py
# ordered (e3c16d): in shared.py
# text (1aa8bc): in shared.py
# listed (0938a2): in shared.py
# compare (84dc64): in shared.py


def main():
    """The exit status."""
    python, numpy = platform.python_version(), np.__version__
    print("JAX {}".format(jax.__version__))
    print("NumPy {}, Python {}".format(numpy, python))
    print("{} {}".format(platform.machine(), processor()))
    print("left: length 10; right: length 12")
    one = compute(np.ascontiguousarray(x[:, :10]))
    two = compute(x)
    counted, differing, largest = compare(one, two)
    verdict = "{} of {} outputs differ, up to {} ulp".format(differing, counted, largest)
    print(verdict if differing else "none of {} outputs differs".format(counted))
    return int(differing > 0)


# __name__ (ffba77): in shared.py

"""NumPy as its users call it: ``x @ w``, ``np.dot`` and ``np.sum(x, axis=-1)``.

float32 and float64 products go to the BLAS that NumPy was built with, OpenBLAS in its wheels: gemm,
or gemv and dot where a side has one row or column. float16 has no BLAS and goes through NumPy's own
loops, sums go through its pairwise summation, and bfloat16 it does not have.
"""

from typing import Callable, Dict

import numpy as np

from probe.backends import products
from probe.backends.contract import Backend, Key, Operator, OutOfMemory, Unsupported

#: OpenBLAS's names of processors: the kernels of one use these instructions and no later ones.
CORES = {"sse41": "Nehalem", "avx": "Sandybridge", "avx2": "Haswell", "avx512_core": "SkylakeX"}

KEYS = {
    "threads": Key(None, "one a core", "threads of OpenBLAS"),
    "isa": Key(tuple(CORES), "the best this CPU has", "the most that OpenBLAS's kernels may use"),
}


def total(x, w):
    """The sums of a sum; its weights are 1 and stay out of it."""
    return np.sum(x, axis=-1)


FUNCTIONS: Dict[str, Callable] = {
    "matmul": np.matmul,
    "dot": np.dot,
    "sum": total,
    "dense": np.matmul,
}


class Arrays(Backend):
    """NumPy on its own arrays."""

    name = "numpy"
    distributions = ("numpy",)
    module = "numpy"
    keys = KEYS
    doc = "NumPy: x @ w, np.dot, np.sum"
    suggestions = (",threads=1", ",isa=avx2", ",isa=sse41")

    @classmethod
    def environment(cls, switches, device):
        """OpenBLAS reads these when it is loaded; other BLAS libraries ignore them."""
        variables = {}
        if "threads" in switches:
            variables["OPENBLAS_NUM_THREADS"] = switches["threads"]
        if "isa" in switches:
            variables["OPENBLAS_CORETYPE"] = CORES[switches["isa"]]
        return variables

    def start(self, switches, device):
        """Nothing to import; the facts are NumPy's and its BLAS's."""
        versions = {"library_version": np.__version__, "numpy_version": np.__version__}
        threads = int(switches["threads"]) if "threads" in switches else None
        return dict(versions, library="numpy", devices=["cpu"], threads=threads, blas=blas())

    def operator(self, spec):
        return Product(spec)


def blas():
    """The name and version of NumPy's BLAS; None where it doesn't say (before 1.26)."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']}"
    except (KeyError, TypeError):
        return None


class Product(Operator):
    """One spec. Values are NumPy arrays as users have them."""

    def __init__(self, spec):
        Operator.__init__(self, spec)
        if spec["op"] not in FUNCTIONS:
            raise Unsupported(f"op={spec['op']}: NumPy has {', '.join(FUNCTIONS)}")
        if spec["dtype"] == "bfloat16":
            raise Unsupported("dtype=bfloat16: NumPy has none")
        function = FUNCTIONS[spec["op"]]

        def call(x, w, b):
            try:
                with np.errstate(all="ignore"):
                    y = function(x, w)
                    return y if b is None else y + b
            except MemoryError as error:
                raise OutOfMemory(str(error)) from None

        self.call = call

    def input(self, x):
        return products.left(self.spec, x)

    def weights(self, w):
        return products.right(self.spec, w)

    def bias(self, b):
        return b

    def output(self, y):
        return np.ascontiguousarray(products.restored(self.spec, np.asarray(y)))

"""NumPy as its users call it: ``x @ w``, ``np.dot`` and ``np.sum(x, axis=-1)``.

float32 and float64 products go to the BLAS that NumPy was built with, OpenBLAS in its wheels: gemm,
or gemv and dot where a side has one row or column. float16 has no BLAS and goes through NumPy's own
loops, sums go through its pairwise summation, and bfloat16 it does not have.
"""

import numpy as np

from probe.backends import products
from probe.backends.contract import Backend, Key, Unsupported
from probe.backends.source import Writing, assigned, straight

#: OpenBLAS's names of processors: the kernels of one use these instructions and no later ones.
CORES = {"sse41": "Nehalem", "avx": "Sandybridge", "avx2": "Haswell", "avx512_core": "SkylakeX"}

KEYS = {
    "threads": Key(None, "one a core", "threads of OpenBLAS"),
    "isa": Key(tuple(CORES), "the best this CPU has", "the most that OpenBLAS's kernels may use"),
}

CALLS = {
    "matmul": "np.matmul({x}, {w})",
    "dot": "np.dot({x}, {w})",
    "sum": "np.sum({x}, axis=-1)",
    "dense": "np.matmul({x}, {w})",
}


class Arrays(Writing):
    """NumPy on its own arrays."""

    name = "numpy"
    distributions = ("numpy",)
    module = "numpy"
    keys = KEYS
    doc = "NumPy: x @ w, np.dot, np.sum"
    suggestions = (",threads=1", ",isa=avx2", ",isa=sse41")
    title = "NumPy"
    version_text = "np.__version__"
    program = Backend.program

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
        self.opened(switches, device, np.__version__)
        versions = {"library_version": np.__version__, "numpy_version": np.__version__}
        threads = int(switches["threads"]) if "threads" in switches else None
        return dict(versions, library="numpy", devices=["cpu"], threads=threads, blas=blas())

    def guarded(self, call):
        def quiet(*given):
            with np.errstate(all="ignore"):
                return call(*given)

        return Writing.guarded(self, quiet)

    def emit(self, program, shapes):
        layer = program.steps[0].layer
        if not program.single or layer["op"] not in CALLS:
            raise Unsupported(f"op={layer['op']}: NumPy has {', '.join(CALLS)}")
        if layer["dtype"] == "bfloat16":
            raise Unsupported("dtype=bfloat16: NumPy has none")
        return straight(self, program, shapes)

    def enter(self, program, shapes):
        return assigned("x", products.left_text(program.steps[0].layer, shapes))

    def operand(self, layer, name, at):
        return assigned(at, products.right_text(layer, at)) if name == "w" else []

    def leave(self, program, shapes):
        return products.restored_text(program.steps[0].layer, "y", shapes)

    def lines(self, layer, number, x, y, given, shapes):
        """Lines from the value named ``x`` to ``y``; see ``source.straight``."""
        call = CALLS[layer["op"]].format(x=x[0], w=given.get("w"))
        return [f"{y} = {call}" + f" + {given.get('b')}" * ("b" in given)]


def blas():
    """The name and version of NumPy's BLAS; None where it doesn't say (before 1.26)."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']}"
    except (KeyError, TypeError):
        return None

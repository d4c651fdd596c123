"""Runs NumPy as its users call it: ``x @ w``, ``np.dot`` and ``np.sum(x, axis=-1)``.

float32 and float64 products go to the BLAS that NumPy was built with, OpenBLAS in its wheels: gemm,
or gemv and dot where a side has one row or column. float16 has no BLAS and goes through NumPy's own
loops, sums go through its pairwise summation, and bfloat16 it does not have.
"""

import numpy as np

from probe import activations, layout
from probe.backends import elementwise, products
from probe.backends.contract import Key, Unsupported
from probe.backends.source import Writing, assigned, number, straight

#: OpenBLAS's names of processors: the kernels of one use these instructions and no later ones.
CORES = {"sse41": "Nehalem", "avx": "Sandybridge", "avx2": "Haswell", "avx512_core": "SkylakeX"}

KEYS = {
    "threads": Key(None, "one per core", "threads of OpenBLAS"),
    "isa": Key(tuple(CORES), "the best this CPU has", "newest instructions that OpenBLAS may use"),
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
    layouts = (layout.CONTIGUOUS, layout.TRANSPOSED, "strided", "offset:N")
    title = "NumPy"
    version_text = "np.__version__"

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
        if layer["dtype"] == "bfloat16":
            raise Unsupported("dtype=bfloat16: NumPy has no such type")
        source = straight(self, program, shapes)
        return source._replace(standard=("math",) * ("math." in " ".join(source.run)))

    def enter(self, program, shapes):
        layer = program.steps[0].layer
        array = products.left(layer, shapes) if program.single else "x"
        return laid("x", array, program.layout)

    def operand(self, layer, name, at):
        return laid(at, products.right(layer, at), layout.of(layer)) if name == "w" else []

    def leave(self, program, shapes):
        layer = program.steps[-1].layer
        return products.restored(layer, "y", shapes) if program.single else "y"

    def lines(self, layer, number, x, y, given, shapes):
        """Returns lines from the value named ``x`` to ``y``; see ``source.straight``."""
        if layer["op"] == "activation":
            return activation(layer, x[0], y)
        if "kernel" not in layer:
            words = shapes.rank, "numpy", padded, "np"
            return [f"{y} = {elementwise.text(layer, x, given, *words)}"]
        if layer["op"] not in CALLS:
            raise Unsupported(f"op={layer['op']}: NumPy has {', '.join(CALLS)}")
        call = CALLS[layer["op"]].format(x=x[0], w=given.get("w"))
        return [f"{y} = {call}" + f" + {given.get('b')}" * ("b" in given)]


def laid(name, array, word):
    """Returns lines that assign an array to a name as a layout says."""
    if word == layout.TRANSPOSED and not products.is_vector(array):
        return [f"{name} = np.swapaxes(np.swapaxes({array}, -1, -2).copy(), -1, -2)"]
    if word == "strided":
        return [f"{name} = np.stack([{array}, {array}], -1)[..., 0]"]
    return assigned(name, array) + layout.shifted(name, word)


def padded(x, pairs, value):
    """``np.pad`` along the spatial axes."""
    pairs = [(0, 0), *(tuple(pair) for pair in pairs), (0, 0)]
    return f'np.pad({x}, {pairs}, "constant", constant_values={number(value)})'


def activation(layer, x, y):
    """Returns lines of an activation, in the dtype of x."""
    alpha = layer["parameters"].get("alpha", 1.0)
    *before, last = activations.lines(layer["activation"], "numpy", alpha, x)
    if "number(" in " ".join([*before, last]):
        before.insert(0, f"number = {x}.dtype.type")
    return [*before, f"{y} = np.asarray({last}, {x}.dtype)"]


def blas():
    """Returns the name and version of NumPy's BLAS; None where it doesn't say (before 1.26)."""
    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']}"
    except (KeyError, TypeError):
        return None

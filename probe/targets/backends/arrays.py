"""Runs NumPy, SciPy and OpenBLAS as their users call them.

NumPy: ``x @ w``, ``np.dot`` and ``np.sum(x, axis=-1)``.

float32 and float64 products go to the BLAS that NumPy was built with, OpenBLAS in its wheels: gemm,
or gemv and dot where a side has one row or column. float16 has no BLAS and goes through NumPy's own
loops, sums go through its pairwise summation, and bfloat16 it does not have.

SciPy, on NumPy's arrays: the BLAS of its wheels, an OpenBLAS of their own, which need not be the
release that NumPy's carry, and ``scipy.signal.correlate``. That adds over positions and channels of
arrays with several channels; it has one filter a call, and neither strides, dilation nor groups.
Arrays of one axis it hands on to NumPy's.

OpenBLAS alone, the library that both are built with: the wheels ``scipy-openblas64`` hold it by
itself, one for each build, so that several releases can be asked on one machine (OpenBLAS#6021).
"""

import ctypes
import itertools
import os
from typing import Tuple

import numpy as np

from probe.case import layout
from probe.targets.backends.contract import ONEDNN_ISA, Key, Unavailable, Unsupported
from probe.targets.backends.source import (
    Writing,
    assignment,
    is_vector,
    left_expression,
    number_text,
    result_expression,
    right_expression,
    straight,
)

# OpenBLAS's names of processors: the kernels of one use these instructions and no later ones.
CORES = {"sse41": "Nehalem", "avx": "Sandybridge", "avx2": "Haswell", "avx512_core": "SkylakeX"}

# Names for which OpenBLAS builds have kernels of their own. One that a build lacks it replaces
# without a word (Zen by Haswell in NumPy's wheels), so :meth:`Arrays.start` asks what it took.
CORETYPES = (
    *("Prescott", "Core2", "Penryn", "Nehalem", "Sandybridge", "Haswell", "SkylakeX", "Cooperlake"),
    *("SapphireRapids", "Atom", "Bobcat", "Barcelona", "Bulldozer", "Piledriver", "Steamroller"),
    *("Excavator", "Zen", "ARMV8", "CORTEXA53", "CORTEXA57", "CORTEXA76", "NEOVERSEN1"),
    *("NEOVERSEV1", "NEOVERSEN2", "NEOVERSEV2", "ARMV8SVE", "THUNDERX2T99", "VORTEX"),
)

# What OpenBLAS says of itself -> the name that chooses it.
CALLED = {"katmai": "prescott", "coppermine": "prescott"}

# Level of NumPy's own loops -> features above the one before, by the names that releases gave
# them: 2.4 has levels, those before it single features. A feature that a build has no loops for is
# ignored, with an ImportWarning in the child process, which does not print it.
LEVELS = {
    "x86_v2": (),
    "x86_v3": ("AVX", "F16C", "FMA3", "AVX2", "X86_V3"),
    "x86_v4": ("AVX512F", "AVX512CD", "AVX512_KNL", "AVX512_KNM", "AVX512_SKX", "X86_V4"),
    "avx512_icl": ("AVX512_CLX", "AVX512_CNL", "AVX512_ICL"),
    "avx512_spr": ("AVX512_SPR",),
}

# What they need: see ``Key``.
NEEDS = {
    "x86_v3": ("avx2", "fma"),
    "x86_v4": ("avx512f", "avx512bw", "avx512vl", "avx512dq"),
    "avx512_icl": ("avx512f", "avx512_vbmi2", "avx512_vnni"),
    "avx512_spr": ("avx512f", "avx512_fp16"),
}

KEYS = {
    "threads": Key(None, "one per core", "threads of OpenBLAS"),
    "isa": Key(
        tuple(CORES),
        "the best this CPU has",
        "newest instructions that OpenBLAS may use",
        ONEDNN_ISA,
    ),
    "core": Key(CORETYPES, "this CPU's", "the processor whose kernels OpenBLAS takes"),
    "cpu": Key(tuple(LEVELS), "the best this CPU has", "newest level of NumPy's own loops", NEEDS),
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
    suggestions: Tuple[str, ...] = (
        *(",threads=1", ",isa=avx2", ",isa=sse41", ",core=Haswell", ",cpu=x86_v3"),
    )
    layouts: Tuple[str, ...] = (layout.CONTIGUOUS, layout.TRANSPOSED, "strided", "offset:N")
    title = "NumPy"
    version_text = "np.__version__"
    operations: Tuple[str, ...] = tuple(CALLS)
    dtypes: Tuple[str, ...] = ("float32", "float64", "float16")

    @classmethod
    def conflict(cls, switches):
        if "isa" in switches and "core" in switches:
            cores = switches["core"], switches["isa"]
            why = "%s, and isa=%s chooses OpenBLAS's kernels too" % cores
            return "core", why, "leave one of the two out"
        return ()

    @classmethod
    def environment(cls, switches, device):
        """OpenBLAS and NumPy read these when they are loaded; other BLAS libraries ignore them."""
        variables = {}
        if "threads" in switches:
            variables["OPENBLAS_NUM_THREADS"] = switches["threads"]
        if "isa" in switches:
            variables["OPENBLAS_CORETYPE"] = CORES[switches["isa"]]
        if "core" in switches:
            variables["OPENBLAS_CORETYPE"] = switches["core"]
        if "cpu" in switches:
            levels = list(LEVELS)
            above = levels[levels.index(switches["cpu"]) + 1 :]
            features = [name for level in above for name in LEVELS[level]]
            variables["NPY_DISABLE_CPU_FEATURES"] = " ".join(features)
        return variables

    def start(self, switches, device):
        self.opened(switches, device, np.__version__)
        if "core" in switches:
            require_core(switches["core"])
        return self.facts(blas=blas())

    def guarded(self, call):
        def quiet(*values):
            with np.errstate(all="ignore"):
                return call(*values)

        return Writing.guarded(self, quiet)

    def emit(self, layer, shapes):
        return straight(self, layer, shapes)

    def enter(self, layer, shapes):
        return layout_lines("x", left_expression(layer, shapes), layout.layout_of_spec(layer))

    def operand(self, layer, name):
        if name != "w":
            return []
        return layout_lines("w", right_expression(layer, "w"), layout.layout_of_spec(layer))

    def leave(self, layer, shapes):
        return result_expression(layer, "y", shapes)

    def lines(self, layer, operands, shapes):
        call = CALLS[layer["op"]].format(x="x", w="w")
        return [f"y = {call}" + " + b" * ("b" in operands)]


def layout_lines(name, array, word):
    """Lines that assign an array to a name as a layout says."""
    if word == layout.TRANSPOSED and not is_vector(array):
        # copied as it is turned, and turned back: the same values, columns side by side in memory
        return [f"{name} = np.swapaxes(np.swapaxes({array}, -1, -2).copy(), -1, -2)"]
    if word == "strided":
        # every second element of an array that has each twice
        return [f"{name} = np.stack([{array}, {array}], -1)[..., 0]"]
    return assignment(name, array) + layout.offset_copy_lines(name, word)


def padded(x, pairs, value):
    pairs = [(0, 0), *(tuple(pair) for pair in pairs), (0, 0)]
    return f'np.pad({x}, {pairs}, "constant", constant_values={number_text(value)})'


def require_core(core):
    """Raises Unavailable where an OpenBLAS of this process did not take a processor's kernels."""
    cores = [core_taken().decode() for core_taken, _, _ in openblas_functions().values()]
    if not cores:
        raise Unavailable("core=%s: no OpenBLAS is loaded that says what it takes" % core)
    for taken in cores:
        if CALLED.get(taken.lower(), taken.lower()) != core.lower():
            why = "this OpenBLAS has no such kernels; it took those of %s" % taken
            raise Unavailable("core=%s: %s" % (core, why))


PREFIXES, SUFFIXES = ("scipy_", ""), ("64_", "_64", "64", "")


def openblas_functions():
    """Functions of each loaded OpenBLAS by who has it: of its core, threads and release.

    Its exported functions have a prefix in SciPy's wheels, and a suffix where integers have 64
    bits.
    """
    functions = {}  # type: dict
    try:
        with open("/proc/self/maps") as file:
            paths = {line.split()[-1] for line in file if "openblas" in line.lower()}
    except OSError:  # another system: it does not say what it loaded
        return functions
    # LD_PRELOAD puts another OpenBLAS in front: its names come before a wheel's own
    first = ctypes.CDLL(None)
    for path in sorted(path for path in paths if "openblas" in os.path.basename(path).lower()):
        try:
            library = ctypes.CDLL(path)
        except OSError:  # it was replaced since
            continue
        # numpy.libs/libscipy_openblas64_-56d6093b.so, scipy_openblas64/lib/libscipy_openblas64_.so
        above, folder = os.path.split(os.path.dirname(path))
        owner = os.path.basename(above)
        if folder.endswith(".libs"):
            owner = "cv2" if folder.startswith("opencv") else folder[: -len(".libs")]
        elif path in os.environ.get("LD_PRELOAD", ""):
            continue  # it is the one that a wheel of NumPy calls
        for before, behind in itertools.product(PREFIXES, SUFFIXES):
            words = ("corename", "num_threads", "config")
            names = [before + "openblas_get_" + word + behind for word in words]
            exported = [
                getattr(first, name, None) or getattr(library, name, None) for name in names
            ]
            if None not in exported:
                for text in (exported[0], exported[2]):
                    text.restype = ctypes.c_char_p  # type: ignore[union-attr]
                functions[owner] = exported
                break
    return functions


def blas():
    """The name and version of NumPy's BLAS; None where it doesn't say (before 1.26)."""
    try:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{built['name']} {built['version']}"
    except (KeyError, TypeError):
        return None


# How BLAS calls the dtypes that it has.
LETTERS = {"float32": "s", "float64": "d"}

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")

BLAS_KEYS = {name: KEYS[name] for name in ("threads", "isa", "core")}


class SciPy(Arrays):
    """SciPy on NumPy's arrays: what it has no operation for it refuses."""

    name = "scipy"
    distributions = ("scipy",)
    module = "scipy"
    keys = BLAS_KEYS
    doc = "SciPy: scipy.linalg.blas, scipy.signal.correlate"
    suggestions = (",threads=1", ",core=Haswell")
    layouts = ("contiguous",)
    operations = (*CONVOLUTIONS, "matmul", "dense", "dot")
    dtypes = tuple(LETTERS)
    title = "SciPy"
    imports = ("import scipy", "from scipy import signal", "from scipy.linalg import blas")
    modules = ("scipy",)
    version_text = "scipy.__version__"

    def start(self, switches, device):
        import scipy
        import scipy.linalg.blas  # its OpenBLAS is loaded with it

        Arrays.start(self, switches, device)
        self.version = scipy.__version__
        built = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return self.facts(blas="%s %s" % (built["name"], built["version"]))

    def check(self, layer):
        Arrays.check(self, layer)
        if layer["op"] in CONVOLUTIONS:
            for name in ("stride", "dilation"):
                if set(layer[name]) != {1}:
                    raise Unsupported("%s=%s: correlate has none" % (name, layer[name]))
            if layer["groups"] != 1:
                raise Unsupported("groups=%d: correlate has none" % layer["groups"])

    def lines(self, layer, operands, shapes):
        bias = " + b" * ("b" in operands)
        if layer["op"] in CONVOLUTIONS:
            return [*self._correlated(layer, shapes.around), f"y = y{bias}"]
        if layer["op"] != "dense" and shapes.stacked:
            raise Unsupported("batch: BLAS multiplies two matrices")
        row = layer["op"] == "dot" and shapes.shape[1] == 1
        column = layer["op"] == "dot" and layer["filters"] == 1
        call = {
            (False, False): "gemm(1.0, x, w)",
            (False, True): "gemv(1.0, x, w)",
            (True, False): "gemv(1.0, w, x, trans=1)",
            (True, True): "dot(x, w)",
        }[row, column]
        product = f"blas.{LETTERS[layer['dtype']]}{call}"
        if row and column:  # a Python float, which holds either format exactly
            product = f"np.asarray({product}, x.dtype)"
        return [f"y = {product}{bias}"]

    def _correlated(self, layer, pairs):
        """Lines to ``y``: every example with every filter, as users loop over them."""
        lines = []
        if any(map(any, pairs)):
            lines.append(f"x = {padded('x', pairs, 0.0)}")
        example, kernel, end = "example", "w[..., f]", "[..., 0]"
        if layer["in_channels"] == 1:  # as one writes it without channels
            example, kernel, end = "example[..., 0]", "w[..., 0, f]", ""
        call = f'signal.correlate({example}, {kernel}, mode="valid", method="direct"){end}'
        filters = f"np.stack([{call} for f in range({layer['filters']})], -1)"
        return [*lines, f"y = np.stack([{filters} for example in x])"]


# Rows lie one after the other, as NumPy's arrays do.
GEMM = """
blas = ctypes.CDLL(
    os.path.join(scipy_openblas64.get_lib_dir(), scipy_openblas64.get_library(fullname=True))
)


def gemm(x, w):
    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    y = np.empty((x.shape[0], w.shape[1]), x.dtype)
    single = x.dtype == np.float32
    call = blas.scipy_cblas_sgemm64_ if single else blas.scipy_cblas_dgemm64_
    real = ctypes.c_float if single else ctypes.c_double
    rows, inner, columns = map(ctypes.c_int64, (*x.shape, w.shape[1]))
    at = [ctypes.c_void_p(array.ctypes.data) for array in (x, w, y)]
    given = [rows, columns, inner, real(1), at[0], inner, at[1], columns, real(0), at[2], columns]
    call(101, 111, 111, *given)  # row-major, neither transposed
    return y
"""


class OpenBlas(Arrays):
    """A build of OpenBLAS by its C interface: ``cblas_sgemm`` and ``cblas_dgemm``."""

    name = "openblas"
    distributions = ("scipy-openblas64",)
    module = "scipy_openblas64"
    keys = BLAS_KEYS
    doc = "OpenBLAS from scipy-openblas64: cblas_sgemm, cblas_dgemm"
    suggestions = (",threads=1", ",core=Haswell")
    layouts = ("contiguous",)
    operations = ("matmul", "dense")
    dtypes = tuple(LETTERS)
    title = "OpenBLAS"
    imports = ("import ctypes", "import os", "import scipy_openblas64")
    modules = ("scipy-openblas64",)
    version_text = "scipy_openblas64.__version__"

    def setup(self):
        return tuple(GEMM.strip().split("\n"))

    def start(self, switches, device):
        import scipy_openblas64

        # what it took for ``core=`` is asked of the libraries of this process: it has to be here
        self.opened(switches, device, scipy_openblas64.__version__)
        Arrays.start(self, switches, device)
        self.version = scipy_openblas64.__version__
        named = dict(self.facts(), library="scipy-openblas64")
        return dict(named, blas="scipy-openblas64 %s" % self.version)

    def lines(self, layer, operands, shapes):
        if layer["op"] == "matmul" and shapes.stacked:
            raise Unsupported("batch: BLAS multiplies two matrices")
        return ["y = gemm(x, w)" + " + b" * ("b" in operands)]

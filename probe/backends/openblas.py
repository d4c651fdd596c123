"""Runs one release of OpenBLAS alone: the library that NumPy's and SciPy's wheels are built with.

The wheels ``scipy-openblas64`` hold it by itself, one for each build, so that several releases can
be asked on one machine (OpenBLAS#6021). Rows lie one after the other, as NumPy's arrays do.
"""

from probe.backends.arrays import Arrays
from probe.backends.contract import Unsupported
from probe.backends.scipy import KEYS

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
    keys = KEYS
    doc = "OpenBLAS from scipy-openblas64: cblas_sgemm, cblas_dgemm"
    suggestions = (",threads=1", ",core=Haswell")
    layouts = ("contiguous",)
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
        facts = Arrays.start(self, switches, device)
        self.version = scipy_openblas64.__version__
        named = {"library": "scipy-openblas64", "library_version": self.version}
        return dict(facts, blas="scipy-openblas64 %s" % self.version, **named)

    def emit(self, program, shapes):
        layer = program.steps[0].layer
        if not program.single or layer["op"] not in ("matmul", "dense"):
            raise Unsupported("op=%s: OpenBLAS has products of two matrices alone" % layer["op"])
        if layer["dtype"] not in ("float32", "float64"):
            raise Unsupported("dtype=%s: BLAS has float32 and float64" % layer["dtype"])
        return Arrays.emit(self, program, shapes)

    def lines(self, layer, number, x, y, given, shapes):
        if layer["op"] == "matmul" and shapes.stacked:
            raise Unsupported("batch: BLAS multiplies two matrices")
        bias = f" + {given.get('b')}" * ("b" in given)
        return [f"{y} = gemm({x[0]}, {given['w']}){bias}"]

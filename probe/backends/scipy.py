"""Runs SciPy as its users call it: the BLAS of its wheels, and ``scipy.signal.correlate``.

SciPy's wheels carry an OpenBLAS of their own, which need not be the release that NumPy's carry.
``correlate`` of arrays with several channels adds over positions and channels; it has one filter a
call, and neither strides, dilation nor groups. Arrays of one axis it hands on to NumPy's.
"""

from probe.backends import arrays
from probe.backends.arrays import Arrays
from probe.backends.contract import Unsupported

# How BLAS calls the dtypes that it has.
LETTERS = {"float32": "s", "float64": "d"}

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")

KEYS = {name: arrays.KEYS[name] for name in ("threads", "isa", "core")}


class SciPy(Arrays):
    """SciPy on NumPy's arrays: what it has no operation for it refuses."""

    name = "scipy"
    distributions = ("scipy",)
    module = "scipy"
    keys = KEYS
    doc = "SciPy: scipy.linalg.blas, scipy.signal.correlate"
    suggestions = (",threads=1", ",core=Haswell")
    layouts = ("contiguous",)
    title = "SciPy"
    imports = ("import scipy", "from scipy import signal", "from scipy.linalg import blas")
    modules = ("scipy",)
    version_text = "scipy.__version__"

    def start(self, switches, device):
        import scipy
        import scipy.linalg.blas  # its OpenBLAS is loaded with it

        facts = Arrays.start(self, switches, device)
        self.version = scipy.__version__
        built = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
        blas = "%s %s" % (built["name"], built["version"])
        return dict(facts, library="scipy", library_version=scipy.__version__, blas=blas)

    def emit(self, program, shapes):
        layer = program.steps[0].layer
        if not program.single or layer["op"] not in (*CONVOLUTIONS, "matmul", "dense", "dot"):
            raise Unsupported("op=%s: SciPy has products and convolutions alone" % layer["op"])
        if layer["dtype"] not in LETTERS:
            raise Unsupported("dtype=%s: BLAS has float32 and float64" % layer["dtype"])
        return Arrays.emit(self, program, shapes)

    def check(self, program):
        layer = program.steps[0].layer
        if layer["op"] in CONVOLUTIONS:
            for name in ("stride", "dilation"):
                if set(layer[name]) != {1}:
                    raise Unsupported("%s=%s: correlate has none" % (name, layer[name]))
            if layer["groups"] != 1:
                raise Unsupported("groups=%d: correlate has none" % layer["groups"])

    def lines(self, layer, number, x, y, given, shapes):
        bias = f" + {given.get('b')}" * ("b" in given)
        if layer["op"] in CONVOLUTIONS:
            return [*self._correlated(layer, number, x[0], given["w"], shapes), f"{y} = y{bias}"]
        letter, w = LETTERS[layer["dtype"]], given["w"]
        if layer["op"] != "dense" and shapes.stacked:
            raise Unsupported("batch: BLAS multiplies two matrices")
        row = layer["op"] == "dot" and shapes.shape[1] == 1
        column = layer["op"] == "dot" and layer["filters"] == 1
        call = {
            (False, False): f"gemm(1.0, {x[0]}, {w})",
            (False, True): f"gemv(1.0, {x[0]}, {w})",
            (True, False): f"gemv(1.0, {w}, {x[0]}, trans=1)",
            (True, True): f"dot({x[0]}, {w})",
        }[row, column]
        found = f"blas.{letter}{call}"
        if row and column:  # a Python float, which holds either format exactly
            found = f"np.asarray({found}, {x[0]}.dtype)"
        return [f"{y} = {found}{bias}"]

    def _correlated(self, layer, number, x, w, shapes):
        """Returns lines to ``y``: every example with every filter, as users loop over them."""
        pairs = shapes.around(number)
        lines = []
        if any(map(any, pairs)):
            lines.append(f"{x} = {arrays.padded(x, pairs, 0.0)}")
        one, kernel, end = "example", f"{w}[..., f]", "[..., 0]"
        if layer["in_channels"] == 1:  # as one writes it without channels
            one, kernel, end = "example[..., 0]", f"{w}[..., 0, f]", ""
        call = f'signal.correlate({one}, {kernel}, mode="valid", method="direct"){end}'
        filters = f"np.stack([{call} for f in range({layer['filters']})], -1)"
        return [*lines, f"y = np.stack([{filters} for example in {x}])"]

"""Runs PyTorch as its users call it: ``torch.nn.functional`` on NCHW tensors, no gradients.

Symmetric padding goes to the convolution. What isn't symmetric goes through ``F.pad`` first, since
``F.conv2d`` takes one number an axis; so does TensorFlow's ``same`` where it is uneven (PyTorch's
own ``padding="same"`` pads the same way, and refuses strides). Products: ``torch.matmul`` is
``torch.mm`` on two matrices, ``torch.mv`` and ``torch.dot`` where ``dot`` hands over vectors, and
on a stack of matrices one ``mm`` of all their rows. ``F.linear`` keeps w as (filters, in_channels)
and takes the bias with it, as layers do: that is the default with a bias, and what ``dense`` means.

The remedy ``invariant`` is the mode of ``probe.stable.invariant``, which sees what the operator
calls, whatever lines make it; it needs the interpreter that probe itself runs in.
"""

from importlib import import_module

from probe.case import floats
from probe.case.layout import CHANNELS_LAST, TRANSPOSED, WORDS, layout_of_spec, offset
from probe.case.operation import operation_of_spec
from probe.targets.backends.contract import (
    ONEDNN_KEY,
    Key,
    Operator,
    PoolingLibrary,
    Unavailable,
    Unsupported,
    composed_pool,
    isa_variables,
    pool_kind,
)
from probe.targets.backends.source import (
    PRODUCT_OPS,
    Text,
    Writing,
    channels_first_weights,
    is_vector,
    keywords,
    left_expression,
    number_text,
    one_or_all,
    refuse_gpu_keys,
    result_expression,
    right_expression,
    straight,
)

KEYS = {
    "mkldnn": Key(("0", "1"), "1", "oneDNN's convolutions; 0: PyTorch's own, on MKL or NNPACK"),
    "isa": ONEDNN_KEY,
    "threads": Key(None, "one per core", "threads within an operator"),
    "deterministic": Key(("0", "1"), "0", "torch.use_deterministic_algorithms"),
    "flush": Key(("0", "1"), "0", "torch.set_flush_denormal: subnormal numbers become zero"),
    "linear": Key(
        ("0", "1"), "1 with a bias and for dense, else 0", "products as F.linear; 0: torch.matmul"
    ),
    "casts": Key(
        ("0", "1"), "0", "1: torch.compile rounds to 16 bits where eager does; a model's alone"
    ),
    "tf32": Key(("0", "1"), "1", "cuDNN may round float32 products to TF32; GPUs alone"),
    "benchmark": Key(("0", "1"), "0", "cuDNN takes the algorithm that it timed best; GPUs alone"),
}
GPU_KEYS = ("tf32", "benchmark")

# Lines that apply a switch.
SETUP = {
    "threads": "torch.set_num_threads({})",
    "mkldnn": "torch.backends.mkldnn.set_flags({})",
    "deterministic": "torch.use_deterministic_algorithms({})",
    "flush": "torch.set_flush_denormal({})",
    "tf32": "torch.backends.cudnn.allow_tf32 = {}",
    "benchmark": "torch.backends.cudnn.benchmark = {}",
}


class Torch(Writing):
    """torch.nn.functional, one process a target."""

    name = "torch"
    distributions = ("torch",)
    module = "torch"
    keys = KEYS
    devices = ("cpu", "cuda:N")
    doc = "torch.nn.functional, NCHW, F.linear and torch.matmul"
    suggestions = (
        *(",mkldnn=0", ",mkldnn=0,threads=1", ",threads=1", ",threads=2"),
        *(",isa=sse41", ",isa=avx2", ",isa=avx512_core", ",deterministic=1"),
        *("@cuda:0", "@cuda:0,tf32=0", "@cuda:0,deterministic=1", "@cuda:0,benchmark=1"),
    )
    undilated = ("avg",)
    title = "PyTorch"
    version_text = "torch.__version__"
    layouts = (*WORDS, "offset:N")
    imports = ("import torch", "import torch.nn.functional as F")
    modules = ("torch",)

    @classmethod
    def environment(cls, switches, device):
        """oneDNN's limit; what cuBLAS wants for determinism; CPU targets see no GPU.

        Idle OpenMP threads sleep instead of spinning. That moves no bits, and where processors are
        shared with others it makes small calls ten to a hundred times faster.
        """
        variables = dict(isa_variables(switches), OMP_WAIT_POLICY="PASSIVE")
        if "casts" in switches:
            variables["TORCHINDUCTOR_EMULATE_PRECISION_CASTS"] = switches["casts"]
        if not device.startswith("cuda"):
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        elif switches.get("deterministic") == "1":
            variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        return variables

    def start(self, switches, device):
        # refused before an import of seconds
        refuse_gpu_keys(GPU_KEYS, switches, device, "cuda:0")
        import torch

        if device.startswith("cuda"):
            require_gpu(torch, device)
        self.torch = torch
        self.refusals = (NotImplementedError, RuntimeError)
        self.exhausted = (getattr(torch, "OutOfMemoryError", MemoryError),)
        self.opened(switches, device, torch.__version__)
        return self.facts(**torch_facts(torch, device))

    def setup(self):
        lines = ["torch.set_grad_enabled(False)"]
        for name, text in SETUP.items():
            if name in self.switches:
                value = self.switches[name]
                lines.append(text.format(value if name == "threads" else value == "1"))
        return tuple(lines)

    def check(self, layer):
        Writing.check(self, layer)
        if layer["op"] not in ("matmul", "dense") and self.switches.get("linear") == "1":
            raise Unsupported(f"op={layer['op']}: linear=1 is for matmul and dense")

    def emit(self, layer, shapes):
        source = straight(self, layer, shapes)
        if "stable" in layer:
            source = source._replace(make=("from probe.sizes.stable import torch_conv as conv",))
        wait = ("torch.cuda.synchronize()",) if self.device.startswith("cuda") else ()
        return source._replace(run=source.run + wait)

    def stable(self, spec, accumulate=None):
        if operation_of_spec(spec).kind != "convolution":
            raise Unsupported("op=%s: the prefix-stable operator is a convolution" % spec["op"])
        return self.operator(dict(spec, stable=accumulate))

    def invariant(self, spec, sizes):
        return in_invariant_mode(self.operator(spec), self.torch.nn.Module, sizes)

    def enter(self, layer, shapes):
        word = layout_of_spec(layer)
        if layer["op"] in PRODUCT_OPS:
            return self.laid("x", left_expression(layer, shapes), layer, word)
        if word == TRANSPOSED:
            return ["x = " + self.tensor("x.copy()", layer) + ".movedim(-1, 1)"]
        # a view with one channel has strides that tell PyTorch another memory format; a copy hasn't
        lines = ["x = np.moveaxis(x, -1, 1).copy()", "x = " + self.tensor("x", layer)]
        return lines + memory_format_lines("x", layer, word)

    def operand(self, layer, name):
        if name != "w":
            return [f"b = {self.tensor('b', layer)}"]
        word = layout_of_spec(layer)
        if layer["op"] in PRODUCT_OPS:
            turned = ".T.copy()" * self.linear(layer)
            return self.laid("w", right_expression(layer, "w") + turned, layer, word)
        lines = [f"w = {channels_first_weights(layer)}.copy()"]
        lines.append(f"w = {self.tensor('w', layer)}")
        return lines + memory_format_lines("w", layer, word) * (word == CHANNELS_LAST)

    def laid(self, name, array, layer, word):
        """Lines that assign an operand of a product, such as ``x[0]``, as the layout says."""
        if word == TRANSPOSED and not is_vector(array):
            turned = f"np.swapaxes({array}, -1, -2).copy()"
            return [f"{name} = {self.tensor(turned, layer)}.transpose(-1, -2)"]
        return [f"{name} = {self.tensor(array, layer)}", *memory_format_lines(name, layer, word)]

    def leave(self, layer, shapes):
        wide = ".float()" if layer["dtype"] == "bfloat16" else ""
        array = f"y{'.cpu()' * (self.device != 'cpu')}{wide}.numpy()"
        if layer["op"] in PRODUCT_OPS:
            return result_expression(layer, array, shapes)
        return f"np.moveaxis({array}, 1, -1)"

    def tensor(self, array, layer):
        """A tensor of its own of an array; PyTorch's memory is aligned, NumPy's may not be."""
        kind = ", dtype=torch.bfloat16" if layer["dtype"] == "bfloat16" else ""
        where = "" if self.device == "cpu" else f', device="{self.device}"'
        return f"torch.tensor({array}{kind}{where})"

    def lines(self, layer, operands, shapes):
        if layer["op"] in PRODUCT_OPS:
            return [f"y = {self.product(layer, operands)}"]
        if pool_kind(layer):
            return [f"y = {pooled(layer, 'x', shapes.spatial)}"]
        if "stable" in layer:
            words = {
                name: repr(layer[name]) for name in ("stride", "dilation", "groups", "padding")
            }
            words["accumulate"] = repr(layer["stable"])
            return [f"y = conv({', '.join(['x', *operands, keywords(words)])})"]
        if operation_of_spec(layer).transposed:
            return transposed_lines(layer, operands, shapes.around)
        return convolution_lines(layer, operands, shapes.around)

    def product(self, layer, operands):
        if layer["op"] == "sum":
            return "torch.sum(x, -1)"
        if self.linear(layer):
            return f"F.linear({', '.join(['x', *operands])})"
        return "torch.matmul(x, w)" + " + b" * ("b" in operands)

    def linear(self, layer):
        """Whether ``F.linear`` computes a product."""
        op = layer["op"]
        by_default = op == "dense" or (op == "matmul" and layer["bias"])
        return self.switches.get("linear", str(int(by_default))) == "1"

    def kernels(self, spec, shapes):
        """PyTorch's own choice of a convolution backend, such as ``Mkldnn`` or ``Slow2d``."""
        if "conv" not in spec["op"] or not hasattr(self.torch._C, "_select_conv_backend"):
            return {}  # the choice can be asked for from 1.12 on
        chosen = Choosing(self.torch, spec)
        self.watched(spec, shapes, F=chosen)
        return {"backend-choice": chosen.names}


class Choosing:
    """Stands for ``torch.nn.functional``; a convolution tells who would compute it."""

    def __init__(self, torch, spec):
        self.torch, self.rank, self.names = torch, len(spec["kernel"]), []
        self.pad = torch.nn.functional.pad
        self.transposed = operation_of_spec(spec).transposed
        name = f"conv_transpose{self.rank}d" if self.transposed else f"conv{self.rank}d"
        setattr(self, name, self.choose)

    def choose(self, x, w, b=None, groups=1, **windows):
        """Keeps the name of the backend for these arguments; x stands for the result."""
        plain = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
        each = [
            [value] * self.rank if isinstance(value, int) else list(value)
            for value in dict(plain, **windows).values()
        ]
        select = self.torch._C._select_conv_backend
        self.names.append(select(x, w, b, *each[:3], self.transposed, each[3], groups).name)
        return x


def convolution_lines(layer, operands, pairs):
    """``F.conv`` with its own padding where that is symmetric, else behind ``F.pad``."""
    lines, around = [], "0"
    if all(before == after for before, after in pairs):
        around = one_or_all([before for before, _ in pairs])
    else:
        lines = [f"x = {padded('x', pairs)}"]
    words = {"stride": one_or_all(layer["stride"]), "padding": around}
    if set(layer["dilation"]) != {1}:
        words["dilation"] = one_or_all(layer["dilation"])
    if layer["groups"] > 1:
        words["groups"] = str(layer["groups"])
    arguments = ", ".join(["x", *operands, keywords(words)])
    return [*lines, f"y = F.conv{len(layer['kernel'])}d({arguments})"]


def transposed_lines(layer, operands, pairs):
    """``F.conv_transpose``, which cuts off as much before as after but for ``output_padding``; what
    it can't say is cut off its outputs."""
    axes = []
    for (before, after), stride, dilation in zip(pairs, layer["stride"], layer["dilation"]):
        both = max(min(before, after), 0)
        cut = f"{before - both or ''}:{both - max(after, 0) or ''}"
        by_library = 0 <= before - after < max(stride, dilation)
        axes.append((before, before - after, ":") if by_library else (both, max(-after, 0), cut))
    around, more, kept = zip(*axes)
    words = {"stride": one_or_all(layer["stride"]), "padding": one_or_all(around)}
    if any(more):
        words["output_padding"] = one_or_all(more)
    if layer["groups"] > 1:
        words["groups"] = str(layer["groups"])
    if set(layer["dilation"]) != {1}:
        words["dilation"] = one_or_all(layer["dilation"])
    arguments = ", ".join(["x", *operands, keywords(words)])
    lines = [f"y = F.conv_transpose{len(kept)}d({arguments})"]
    return lines + [f"y = y[:, :, {', '.join(kept)}]"] * (set(kept) != {":"})


def memory_format_lines(x, layer, word):
    """Lines that lay a tensor out as a word says, where turning an array does not do it."""
    if word == CHANNELS_LAST:
        three = "_3d" * (len(layer["kernel"]) == 3)
        return [f"{x} = {x}.to(memory_format=torch.channels_last{three})"]
    if word == "strided":
        return [f"{x} = torch.stack([{x}, {x}], -1)[..., 0]"]
    if offset(word) < 0:
        return []
    # PyTorch aligns to 64 bytes
    start = offset(word) // floats.container_of_format(layer["dtype"]).itemsize
    before = f"{x}.new_zeros({start})"
    return [f"{x} = torch.cat([{before}, {x}.reshape(-1)])[{start}:].reshape({x}.shape)"]


def padded(x, pairs, value=0.0):
    """``F.pad``, which takes the last axis first."""
    fill = f", value={number_text(value)}" if value else ""
    return f"F.pad({x}, {tuple(n for pair in pairs[::-1] for n in pair)}{fill})"


def pooled(layer, x, sizes):
    """``F.max_pool`` or ``F.avg_pool``; their padding is symmetric and at most half a window."""
    rank, largest = len(layer["kernel"]), pool_kind(layer) == "max"
    name = f"F.{'max' if largest else 'avg'}_pool{rank}d"
    dilated, zeros = set(layer["dilation"]) != {1}, layer["pad_with"] == "zeros"
    words = {"stride": one_or_all(layer["stride"])}
    if dilated:
        words["dilation"] = one_or_all(layer["dilation"])
    kernel = one_or_all(layer["kernel"])

    def native(x, spans):
        symmetric = all(
            span.before == span.after <= k // 2 for span, k in zip(spans, layer["kernel"])
        )
        around = any(span.before for span in spans)
        if not symmetric or (largest and zeros and around):
            return None
        more = {"padding": one_or_all([span.before for span in spans])} if around else {}
        if layer["ceil_mode"]:
            more["ceil_mode"] = "True"
        if around and not largest:
            more["count_include_pad"] = str(zeros)
        return f"{name}({x}, {kernel}, {keywords(dict(words, **more))})"

    def whole(x):
        return Text(f"{name}({x}, {kernel}, {keywords(words)})")

    library = PoolingLibrary(padded, whole, "torch.ones_like({})".format, native)
    return composed_pool(layer, library, sizes, x)


def require_gpu(torch, device):
    number, count = int(device.split(":")[1]), torch.cuda.device_count()
    if number >= count:
        built = "" if torch.version.cuda else "; this build is for CPUs"
        raise Unavailable(f"PyTorch sees {count} GPUs here, so there is no {device}{built}")


def torch_facts(torch, device):
    """What to publish about a started PyTorch; ``onednn`` tells whether it may be used."""
    cpu = getattr(torch.backends, "cpu", None)  # from 2.1 on
    # a switch from 1.11 on
    enabled = getattr(torch._C, "_get_mkldnn_enabled", lambda: True)
    facts = {
        "threads": torch.get_num_threads(),
        "onednn": bool(torch.backends.mkldnn.is_available() and enabled()),
        "capability": cpu.get_cpu_capability() if cpu else None,
    }
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name(device)
        facts["cuda"] = str(torch.version.cuda)
        facts["cudnn"] = str(torch.backends.cudnn.version())
        facts["threads"] = None
    return facts


def in_invariant_mode(inner, module, sizes):
    """``inner`` in the mode, for batches of these sizes; ``module``: ``torch.nn.Module``.

    Raises Unsupported where the interpreter is too old for it.
    """
    try:
        invariant = import_module("probe.sizes.stable").invariant
    except (ImportError, SyntaxError) as error:
        raise Unsupported("probe.stable.invariant: %s" % error) from None

    class GivenModule(module):  # type: ignore[misc, valid-type]
        """Calls what it is given."""

        def forward(self, run, x):
            return run(x)

    return InvariantModule(inner, invariant(GivenModule().eval(), sizes)[0])


class InvariantModule(Operator):
    """``inner``, run by ``model(run, x)``, a module in the invariant mode."""

    def __init__(self, inner, model):
        Operator.__init__(self, inner.spec)
        self.inner, self.model = inner, model
        self.constant_weights = inner.constant_weights

    def at(self, shape):
        inner = self.inner.at(shape)
        return self if inner is self.inner else InvariantModule(inner, self.model)

    def input(self, x):
        return self.inner.input(x)

    def output(self, y):
        return self.inner.output(y)

    def bind(self, operands):
        run, model = self.inner.bind(operands), self.model
        return lambda x: model(run, x)

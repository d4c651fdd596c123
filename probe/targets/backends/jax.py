"""Runs JAX as its users call it: ``jax.lax`` and ``jax.numpy`` under ``jax.jit``, channels last.

That is Flax's layout. Weights are arguments of the compiled function, as parameters of a model
are. XLA compiles one program for every shape. float64 is enabled for its own calls alone.
"""

import re

import numpy as np

from probe.case.operation import operand_names, operation_of_spec, windows_of_spec
from probe.targets.backends.contract import (
    ONEDNN_ISA,
    Key,
    PoolingLibrary,
    Unavailable,
    composed_pool,
    pool_kind,
)
from probe.targets.backends.source import (
    PRODUCT_OPS,
    Text,
    Writing,
    defined,
    indented,
    keywords,
    left_expression,
    major_minor,
    number_text,
    refuse_gpu_keys,
    result_expression,
    right_expression,
    straight,
)

LAYOUTS = {
    1: '("NWC", "WIO", "NWC")',
    2: '("NHWC", "HWIO", "NHWC")',
    3: '("NDHWC", "DHWIO", "NDHWC")',
}

# XLA's names of instruction sets.
ISA = {"sse42": "SSE4_2", "avx": "AVX", "avx2": "AVX2", "avx512": "AVX512"}

# Releases of jaxlib from which on XLA has the flag; it ends the process at flags it lacks.
SINCE = {"isa": (0, 6), "ynn": (0, 9)}

KEYS = {
    "threads": Key(None, "one per core", "threads of XLA's CPU client"),
    "isa": Key(
        tuple(ISA),
        "all of the processor's",
        "newest instructions that XLA may use; CPUs",
        {level: ONEDNN_ISA.get(level, ()) for level in ISA},
    ),
    "ynn": Key(("0", "1"), "1", "YNNPACK's kernels for sums and products inside XLA; CPUs"),
    "deterministic": Key(("0", "1"), "0", "XLA's deterministic operators; GPUs alone"),
    "tf32": Key(("0", "1"), "1 where the GPU has it", "float32 products in TF32; GPUs alone"),
}
GPU_KEYS, CPU_KEYS = ("deterministic", "tf32"), ("isa", "ynn")

PRODUCTS = {
    "matmul": "jnp.matmul({x}, {w})",
    "dot": "jnp.dot({x}, {w})",
    "dense": "jnp.dot({x}, {w})",
    "sum": "jnp.sum({x}, axis=-1)",
}

# What an instruction of XLA's program does; these only name, hold or pass on values.
SILENT = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "copy"}


class Jax(Writing):
    """jax.lax under jit, one process a target."""

    name = "jax"
    distributions = ("jax",)
    module = "jax"
    keys = KEYS
    devices = ("cpu", "gpu:N")
    doc = "jax.lax.conv_general_dilated and jnp.matmul, jitted, channels last"
    suggestions = (
        *(",threads=1", ",threads=2", ",ynn=0", ",isa=avx2"),
        *("@gpu:0", "@gpu:0,tf32=0", "@gpu:0,deterministic=1"),
    )
    title = "JAX"
    version_text = "jax.__version__"
    imports = ("import jax", "import jax.numpy as jnp", "from jax import lax")
    modules = ("jax",)

    @classmethod
    def environment(cls, switches, device):
        """The platform, the client's threads (``NPROC`` before 0.4.31) and XLA's flags."""
        variables = {
            "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        if "threads" in switches:
            variables.update(NPROC=switches["threads"], PJRT_NPROC=switches["threads"])
        flags = []
        if device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
            if "isa" in switches:
                flags.append("--xla_cpu_max_isa=" + ISA[switches["isa"]])
            if switches.get("ynn") == "0":  # no fusion is given to YNNPACK
                flags.append("--xla_cpu_experimental_ynn_fusion_type=")
        elif switches.get("deterministic") == "1":
            flags.append("--xla_gpu_deterministic_ops=true")
        if flags:
            variables["XLA_FLAGS"] = " ".join(flags)
        return variables

    def start(self, switches, device):
        refuse_gpu_keys(GPU_KEYS, switches, device, "gpu:0")
        import jax

        for key in CPU_KEYS:
            if key in switches and device != "cpu":
                raise Unavailable(f"{key} is a switch of XLA's CPU kernels: use @cpu, or no {key}")
            if key in switches and major_minor(jax.lib.__version__) < SINCE[key]:
                since = ".".join(map(str, SINCE[key]))
                raise Unavailable(f"{key} is a flag of jaxlib {since} and newer")
        seen = self._seen(jax, device)
        self.refusals = (NotImplementedError, TypeError, ValueError, RuntimeError)
        self.opened(switches, device, jax.__version__)
        facts = self.facts(jaxlib_version=jax.lib.__version__)
        return facts if device == "cpu" else dict(facts, gpu=seen.device_kind)

    def _seen(self, jax, device):
        """JAX's device of that name. Raises Unavailable where JAX doesn't see it."""
        platform, _, number = device.partition(":")
        try:
            devices = jax.devices(platform)
        except (RuntimeError, AssertionError) as error:  # the latter where it has no plugin at all
            raise Unavailable(f"JAX has no {platform} here: {self.said(error)}") from None
        if int(number or 0) >= len(devices):
            raise Unavailable(
                f"JAX sees {len(devices)} {platform} devices, so there is no {device}"
            )
        return devices[int(number or 0)]

    def setup(self):
        lines, update = [], "jax.config.update"
        if "tf32" in self.switches:
            precision = {"0": "highest", "1": "default"}[self.switches["tf32"]]
            lines.append(f'{update}("jax_default_matmul_precision", "{precision}")')
        if self.device != "cpu":
            number = self.device.partition(":")[2]
            lines.append(f'{update}("jax_default_device", jax.devices("gpu")[{number}])')
        return tuple(lines)

    def emit(self, layer, shapes):
        source = straight(self, layer, shapes)
        arguments = ["x", *operand_names(layer)]
        source = source._replace(
            make=("@jax.jit",) + defined("computed", arguments, source.run),
            # JAX hands back a result that is still being computed: what is timed waits for it
            run=(f"y = computed({', '.join(arguments)}).block_until_ready()",),
        )
        if layer["dtype"] != "float64":
            return source
        # float64 is enabled around its own calls alone: jax has it itself from 0.8 on
        has_layouts = self.release() >= (0, 8)
        make = () if has_layouts else ("from jax.experimental import enable_x64", "")
        head = f"with {'jax.' * has_layouts}enable_x64(True):"
        stages = {name: getattr(source, name) for name in ("enter", "load", "run")}
        wide = {name: (head, *indented(lines)) for name, lines in stages.items() if lines}
        return source._replace(make=make + source.make, **wide)

    def shown(self, layer, shapes):
        return straight(self, layer, shapes).run

    def enter(self, layer, shapes):
        return ["x = " + jax_array(left_expression(layer, shapes), layer)]

    def operand(self, layer, name):
        written = right_expression(layer, name) if name == "w" else name
        if name == "w" and operation_of_spec(layer).transposed:  # its taps are never turned
            written = f"w[{', '.join(['::-1'] * len(layer['kernel']))}]"
        return [f"{name} = {jax_array(written, layer)}"]

    def leave(self, layer, shapes):
        array = f"np.asarray(y{', np.float32' * (layer['dtype'] == 'bfloat16')})"
        return result_expression(layer, array, shapes)

    def lines(self, layer, operands, shapes):
        if pool_kind(layer):
            return [f"y = {pooled(layer, 'x', shapes.spatial)}"]
        if layer["op"] in PRODUCT_OPS:
            lines = [f"y = {PRODUCTS[layer['op']].format(x='x', w='w')}"]
        else:
            lines = [f"y = {convolution_call(layer, 'x', 'w')}"]
        return lines + ["y = y + b"] * ("b" in operands)

    def kernels(self, spec, shapes):
        """The operations of XLA's program, in its order."""
        lowering = Lowering(self.namespace["jax"])
        self.watched(spec, shapes, jax=lowering)
        return {"xla-program": operations(lowering.text)}


class Lowering:
    """Stands for ``jax``; what it jits leaves XLA's text of the program that is compiled."""

    def __init__(self, jax):
        self.jax, self.text = jax, ""

    def __getattr__(self, name):
        return getattr(self.jax, name)

    def jit(self, function):
        jitted = self.jax.jit(function)

        def call(*arguments):
            self.text = jitted.lower(*arguments).compile().as_text()
            return jitted(*arguments)

        return call


def operations(program):
    """The opcodes of XLA's text of a program, with the targets of its custom calls."""
    instruction = r"^ *(?:ROOT )?%?[\w.-]+ = (?:\([^)]*\)|\S+) ([a-z][\w-]*)\((.*)$"
    instructions = re.findall(instruction, program, re.MULTILINE)
    names = []
    for opcode, arguments in instructions:
        target = re.search(r'custom_call_target="([^"]+)"', arguments)
        name = f"{opcode} {target.group(1)}" if target else opcode
        if opcode not in SILENT and name not in names:
            names.append(name)
    return names


def jax_array(text, layer):
    """Copies an array to JAX, which may share NumPy's memory otherwise."""
    return f"jnp.array({text}{', jnp.bfloat16' * (layer['dtype'] == 'bfloat16')})"


def convolution_call(layer, x, w):
    """``lax.conv_general_dilated``, which takes conventions by name and a pair for each axis."""
    padding, name, stride = layer["padding"], "conv_general_dilated", tuple(layer["stride"])
    around = f'"{padding.upper()}"' if isinstance(padding, str) else str(pairs(padding))
    words = {"window_strides": str(stride), "padding": around}
    if operation_of_spec(layer).transposed:
        spread = windows_of_spec(layer).spread
        around = around if padding in ("valid", "same") else str(spread.padding)
        name, words = "conv_transpose", {"strides": str(stride), "padding": around}
        if layer["groups"] > 1:  # what conv_transpose calls
            name = "conv_general_dilated"
            words = {"window_strides": str(spread.stride), "padding": str(spread.padding)}
            words["lhs_dilation"] = str(stride)
    if set(layer["dilation"]) != {1}:
        words["rhs_dilation"] = str(tuple(layer["dilation"]))
    words["dimension_numbers"] = LAYOUTS[len(layer["kernel"])]
    if layer["groups"] > 1:
        words["feature_group_count"] = str(layer["groups"])
    return f"lax.{name}({x}, {w}, {keywords(words)})"


def pairs(padding):
    return tuple(tuple(pair) for pair in padding)


def padded(x, padding, value):
    """``jnp.pad`` along the spatial axes."""
    fill = f", constant_values={number_text(value)}" if value else ""
    return f"jnp.pad({x}, {((0, 0), *pairs(padding), (0, 0))}{fill})"


def pooled(layer, x, sizes):
    """``lax.reduce_window``, as Flax and Haiku pool; its padding is the start value."""
    largest = pool_kind(layer) == "max"
    start = "-jnp.inf, lax.max" if largest else "0.0, lax.add"
    steps = f"{(1, *layer['kernel'], 1)}, {(1, *layer['stride'], 1)}"

    def reduced(x, padding):
        words = {"padding": str(((0, 0), *padding, (0, 0)))}
        if set(layer["dilation"]) != {1}:
            words["window_dilation"] = str((1, *layer["dilation"], 1))
        return f"lax.reduce_window({x}, {start}, {steps}, {keywords(words)})"

    def native(x, spans):
        if not largest or layer["pad_with"] == "zeros":
            return None
        return reduced(x, [(span.before, span.after + span.beyond) for span in spans])

    def whole(x):
        total = reduced(x, [(0, 0)] * len(layer["kernel"]))
        return Text(total if largest else f"({total} / {int(np.prod(layer['kernel']))})")

    library = PoolingLibrary(padded, whole, "jnp.ones_like({})".format, native)
    return composed_pool(layer, library, sizes, x)

"""JAX as its users call it: ``lax.conv_general_dilated`` under ``jax.jit``, channels last.

That is Flax's layout. The weights are arguments of the compiled function. XLA compiles one program
for every shape.
"""

import functools
import re

import numpy as np

from probe import floats
from probe.backends import jax_chain, jax_pooling, jax_products, pooling, products
from probe.backends._old import WithChain
from probe.backends.contract import Key, Operator, Unavailable
from probe.backends.jax_arrays import Arrays, said

LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}

KEYS = {
    "threads": Key(None, "one a core", "threads of XLA's CPU client"),
    "deterministic": Key(("0", "1"), "0", "XLA's deterministic operators; GPUs alone"),
    "tf32": Key(("0", "1"), "1 where the GPU has it", "float32 products in TF32; GPUs alone"),
}
GPU_KEYS = ("deterministic", "tf32")


class Jax(WithChain):
    """jax.lax under jit, one process a target."""

    name = "jax"
    distributions = ("jax",)
    module = "jax"
    keys = KEYS
    devices = ("cpu", "gpu:N")
    doc = "jax.lax.conv_general_dilated and jnp.matmul, jitted, channels last"
    suggestions = (",threads=1", ",threads=2", "@gpu:0", "@gpu:0,tf32=0", "@gpu:0,deterministic=1")

    @classmethod
    def environment(cls, switches, device):
        """The platform, the client's threads (``NPROC`` before 0.4.31) and XLA's flags."""
        variables = {
            "JAX_PLATFORMS": "cpu" if device == "cpu" else "cuda",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        if "threads" in switches:
            variables.update(NPROC=switches["threads"], PJRT_NPROC=switches["threads"])
        if device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        elif switches.get("deterministic") == "1":
            variables["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"
        return variables

    def start(self, switches, device):
        for key in GPU_KEYS:
            if key in switches and device == "cpu":
                raise Unavailable(
                    f"{key} is a switch of the GPU's kernels: use @gpu:0, or no {key}"
                )
        import jax

        self.jax, self.device = jax, the_device(jax, device)
        precision = {"0": "highest", "1": "default"}.get(switches.get("tf32"))
        if precision:
            jax.config.update("jax_default_matmul_precision", precision)
        facts = {
            "library": "jax",
            "library_version": jax.__version__,
            "jaxlib_version": jax.lib.__version__,
            "numpy_version": np.__version__,
            "devices": [device],
            "threads": int(switches["threads"]) if "threads" in switches else None,
        }
        return facts if device == "cpu" else dict(facts, gpu=self.device.device_kind)

    def operator(self, spec):
        return JaxOperator(self.jax, spec, self.device)

    def chain(self, specs, operands):
        """All layers in one jitted function."""
        windows = functools.partial(convolution, self.jax)
        return jax_chain.Chain(self.jax, specs, operands, self.device, windows)

    def kernels(self, spec, shapes):
        """The operations of XLA's program, in its order."""
        operator = self.operator(spec)
        x, w = (np.zeros(shapes[name], floats.container(spec["dtype"])) for name in "xw")
        b = np.zeros(spec["filters"], w.dtype) if spec["bias"] else None
        given = operator.input(x), operator.weights(w), operator.bias(b)
        return {"xla-program": operations(operator.program(*given))}


def the_device(jax, device):
    """JAX's device of that name. Raises Unavailable where it doesn't see it."""
    platform, _, number = device.partition(":")
    try:
        found = jax.devices(platform)
    except (RuntimeError, AssertionError) as error:  # the latter where it has no plugin at all
        raise Unavailable(f"JAX has no {platform} here: {said(error)}") from None
    if int(number or 0) >= len(found):
        raise Unavailable(f"JAX sees {len(found)} {platform} devices, so there is no {device}")
    return found[int(number or 0)]


#: What an instruction of XLA's program does; these only name, hold or pass on values.
SILENT = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "copy"}


def operations(program):
    """The opcodes of XLA's text of a program, with the targets of its custom calls."""
    instruction = r"^ *(?:ROOT )?%?[\w.-]+ = (?:\([^)]*\)|\S+) ([a-z][\w-]*)\((.*)$"
    found = re.findall(instruction, program, re.MULTILINE)
    names = []
    for opcode, rest in found:
        target = re.search(r'custom_call_target="([^"]+)"', rest)
        name = f"{opcode} {target.group(1)}" if target else opcode
        if opcode not in SILENT and name not in names:
            names.append(name)
    return names


class JaxOperator(Operator):
    """One spec, compiled by the first call at each shape. Values are arrays on the device."""

    def __init__(self, jax, spec, device):
        Operator.__init__(self, spec)
        self.arrays = Arrays(jax, device, spec["dtype"])
        product = spec["op"] in products.OPS
        made = jax_products.operator(jax, spec) if product else convolution(jax, spec)
        self.jitted = jitted = jax.jit(made)
        self.call = self.arrays.refusing(lambda x, w, b: jitted(x, w, b).block_until_ready())

    def program(self, x, w, b):
        """XLA's text of the program that it compiles for these values."""
        lower = self.arrays.enabled(lambda *given: self.jitted.lower(*given).compile().as_text())
        return lower(x, w, b)

    def input(self, x):
        return self.arrays.put(products.left(self.spec, x))

    def weights(self, w):
        return self.arrays.put(products.right(self.spec, w))

    def bias(self, b):
        return None if b is None else self.arrays.put(b)

    def output(self, y):
        return products.restored(self.spec, self.arrays.container(y))


def convolution(jax, spec):
    """f(x, w, b) of arrays for a convolution or a pool."""
    if pooling.kind(spec):
        pooled = jax_pooling.operator(jax, spec)
        return lambda x, w, b: pooled(x)
    keywords = {
        "window_strides": tuple(spec["stride"]),
        "padding": padding(spec),
        "rhs_dilation": tuple(spec["dilation"]),
        "dimension_numbers": LAYOUTS[len(spec["kernel"])],
        "feature_group_count": spec["groups"],
    }

    def run(x, w, b):
        y = jax.lax.conv_general_dilated(x, w, **keywords)
        return y if b is None else y + b

    return run


def padding(spec):
    """The argument of that name: pairs, or "SAME" (TensorFlow's windows), "SAME_LOWER", "VALID"."""
    if isinstance(spec["padding"], str):
        return spec["padding"].upper()
    return [tuple(pair) for pair in spec["padding"]]

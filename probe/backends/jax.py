"""JAX as its users call it: ``lax.conv_general_dilated`` under ``jax.jit``, channels last.

That is Flax's layout. The weights are arguments of the compiled function. XLA compiles one program
for every shape.
"""

import re

import numpy as np

from probe import floats
from probe.backends import channels_first, jax_pooling, jax_products, pooling, products
from probe.backends.contract import Backend, Key, Operator, OutOfMemory, Unavailable, Unsupported

LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}

KEYS = {
    "threads": Key(None, "one a core", "threads of XLA's CPU client"),
    "deterministic": Key(("0", "1"), "0", "XLA's deterministic operators; GPUs alone"),
    "tf32": Key(("0", "1"), "1 where the GPU has it", "float32 products in TF32; GPUs alone"),
}
GPU_KEYS = ("deterministic", "tf32")


class Jax(Backend):
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
        self.jax, self.device = jax, device
        self.narrow, self.wide = spec["dtype"] == "bfloat16", spec["dtype"] == "float64"
        self.call = self._refusing(self._call())

    def _call(self):
        if self.spec["op"] in products.OPS:
            function = jax_products.operator(self.jax, self.spec)
        else:
            function = self._convolution()
        self.jitted = jitted = self.jax.jit(function)
        return lambda x, w, b: jitted(x, w, b).block_until_ready()

    def _convolution(self):
        jax, spec = self.jax, self.spec
        keywords = {
            "window_strides": tuple(spec["stride"]),
            "padding": padding(spec),
            "rhs_dilation": tuple(spec["dilation"]),
            "dimension_numbers": LAYOUTS[len(spec["kernel"])],
            "feature_group_count": spec["groups"],
        }

        pooled = jax_pooling.operator(jax, spec) if pooling.kind(spec) else None

        def convolution(x, w, b):
            if pooled is not None:
                return pooled(x)
            y = jax.lax.conv_general_dilated(x, w, **keywords)
            return y if b is None else y + b

        return convolution

    def program(self, x, w, b):
        """XLA's text of the program that it compiles for these values."""
        if not self.wide:
            return self.jitted.lower(x, w, b).compile().as_text()
        with self._enabled():
            return self.jitted.lower(x, w, b).compile().as_text()

    def _refusing(self, call):
        """``call`` with JAX's refusals turned into Unsupported; float64 is enabled for its own."""
        wide = self._enabled if self.wide else None

        def guarded(x, w, b):
            try:
                if wide is None:
                    return call(x, w, b)
                with wide():
                    return call(x, w, b)
            except (NotImplementedError, TypeError, ValueError) as error:
                raise Unsupported("JAX refuses: " + said(error)) from None
            except RuntimeError as error:  # XlaRuntimeError is one
                kind = OutOfMemory if "RESOURCE_EXHAUSTED" in str(error) else Unsupported
                raise kind("JAX refuses: " + said(error)) from None

        return guarded

    def _enabled(self):
        """A context in which JAX keeps float64. Outside of it nothing changes."""
        if hasattr(self.jax, "enable_x64"):  # from 0.8 on
            return self.jax.enable_x64(True)
        from jax.experimental import enable_x64

        return enable_x64(True)

    def put(self, array):
        """An array on the device with a container array's bits."""
        array = channels_first.copied(array)
        if self.narrow:
            array = array.view(self.jax.numpy.bfloat16)
        if not self.wide:
            return self.jax.device_put(array, self.device)
        with self._enabled():
            return self.jax.device_put(array, self.device)

    def input(self, x):
        return self.put(products.left(self.spec, x))

    def weights(self, w):
        return self.put(products.right(self.spec, w))

    def bias(self, b):
        return None if b is None else self.put(b)

    def output(self, y):
        array = np.ascontiguousarray(y)
        return products.restored(self.spec, array.view(np.uint16) if self.narrow else array)


def padding(spec):
    """The argument of that name: pairs, or "SAME" (TensorFlow's windows), "SAME_LOWER", "VALID"."""
    if isinstance(spec["padding"], str):
        return spec["padding"].upper()
    return [tuple(pair) for pair in spec["padding"]]


def said(error):
    """The first line of what JAX says, at most 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

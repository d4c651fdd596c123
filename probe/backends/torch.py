"""PyTorch as its users call it: ``torch.nn.functional`` on contiguous NCHW tensors, no gradients.

Symmetric padding goes to the convolution. What isn't symmetric goes through ``F.pad`` first, since
``F.conv2d`` takes one number an axis; so does TensorFlow's ``same`` where it is uneven (PyTorch's
own ``padding="same"`` pads the same way, and refuses strides).
"""

import numpy as np

from probe import floats
from probe.backends import (
    channels_first,
    onednn,
    pooling,
    products,
    torch_chain,
    torch_pooling,
    torch_products,
)
from probe.backends.contract import Backend, Key, Operator, OutOfMemory, Unavailable, Unsupported
from probe.geometry import Windows
from probe.stable.torch import conv

KEYS = {
    "mkldnn": Key(("0", "1"), "1", "oneDNN's convolutions; 0: PyTorch's own, on MKL or NNPACK"),
    "isa": onednn.KEY,
    "threads": Key(None, "one a core", "threads within an operator"),
    "deterministic": Key(("0", "1"), "0", "torch.use_deterministic_algorithms"),
    "linear": Key(
        ("0", "1"), "1 with a bias and for dense, else 0", "products as F.linear; 0: torch.matmul"
    ),
    "tf32": Key(("0", "1"), "1", "cuDNN may round float32 products to TF32; GPUs alone"),
    "benchmark": Key(("0", "1"), "0", "cuDNN takes the algorithm that it timed best; GPUs alone"),
}
GPU_KEYS = ("tf32", "benchmark")


class Torch(Backend):
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

    @classmethod
    def environment(cls, switches, device):
        """oneDNN's limit; what cuBLAS wants for determinism; CPU targets see no GPU.

        Idle OpenMP threads sleep instead of spinning. That moves no bits, and where processors are
        shared with others it makes small calls ten to a hundred times faster.
        """
        variables = dict(onednn.environment(switches), OMP_WAIT_POLICY="PASSIVE")
        if not device.startswith("cuda"):
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        elif switches.get("deterministic") == "1":
            variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        return variables

    def start(self, switches, device):
        import torch

        self.torch, self.device, self.switches = torch, device, switches
        if device.startswith("cuda"):
            require_gpu(torch, device)
        for key in GPU_KEYS:
            if key in switches and device == "cpu":
                raise Unavailable(
                    f"{key} is a switch of the GPU's kernels: use @cuda:0, or no {key}"
                )
        configure(torch, switches)
        torch.set_grad_enabled(False)
        return facts(torch, device)

    def operator(self, spec):
        return TorchOperator(self.torch, spec, self.device, self.switches)

    def stable(self, spec, accumulate=None):
        if pooling.kind(spec) or spec["op"] in products.OPS:
            raise Unsupported("op=%s: the prefix-stable operator is a convolution" % spec["op"])
        return StableOperator(self.torch, spec, self.device, self.switches, accumulate)

    def chain(self, specs, operands):
        return torch_chain.Chain(self.torch, specs, operands, self.device, self.operator)

    def kernels(self, spec, shapes):
        """PyTorch's own choice of a convolution backend, such as ``Mkldnn`` or ``Slow2d``."""
        chooses = hasattr(self.torch._C, "_select_conv_backend")  # from 1.12 on
        if spec["op"] in products.OPS or not chooses:
            return {}
        operator = self.operator(spec)
        x, w = (np.zeros(shapes[name], floats.container(spec["dtype"])) for name in "xw")
        b = np.zeros(spec["filters"], w.dtype) if spec["bias"] else None
        given = operator.input(x), operator.weights(w), operator.bias(b)
        return {"backend-choice": [operator.selected(*given)]}


def require_gpu(torch, device):
    """Raises Unavailable where PyTorch doesn't see the device."""
    number, found = int(device.split(":")[1]), torch.cuda.device_count()
    if number >= found:
        built = "" if torch.version.cuda else "; this build is for CPUs"
        raise Unavailable(f"PyTorch sees {found} GPUs here, so there is no {device}{built}")


def configure(torch, switches):
    """Applies the switches that aren't variables. Nothing has been computed yet."""
    if "threads" in switches:
        torch.set_num_threads(int(switches["threads"]))
    if "mkldnn" in switches:
        torch.backends.mkldnn.set_flags(switches["mkldnn"] == "1")
    if "deterministic" in switches:
        torch.use_deterministic_algorithms(switches["deterministic"] == "1")
    if "tf32" in switches:
        torch.backends.cudnn.allow_tf32 = switches["tf32"] == "1"
    if "benchmark" in switches:
        torch.backends.cudnn.benchmark = switches["benchmark"] == "1"


def facts(torch, device):
    """What to publish about a started PyTorch; ``onednn`` tells whether it may be used."""
    cpu = getattr(torch.backends, "cpu", None)  # from 2.1 on
    enabled = getattr(torch._C, "_get_mkldnn_enabled", lambda: True)  # a switch from 1.11 on
    found = {
        "library": "torch",
        "library_version": torch.__version__,
        "numpy_version": np.__version__,
        "devices": [device],
        "threads": torch.get_num_threads(),
        "onednn": bool(torch.backends.mkldnn.is_available() and enabled()),
        "capability": cpu.get_cpu_capability() if cpu else None,
    }
    if device.startswith("cuda"):
        found["gpu"] = torch.cuda.get_device_name(device)
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
        found["threads"] = None
    return found


class TorchOperator(Operator):
    """One spec on one device. Values are tensors in PyTorch's own layout."""

    def __init__(self, torch, spec, device, switches):
        Operator.__init__(self, spec)
        self.torch, self.device = torch, device
        self.linear = torch_products.is_linear(spec, switches)
        product = spec["op"] in products.OPS
        self.layout = products.Layout(spec, self.linear) if product else channels_first
        self.dtype = getattr(torch, spec["dtype"])
        self.narrow = spec["dtype"] == "bfloat16"
        rank = len(spec["kernel"])
        self.function = getattr(torch.nn.functional, f"conv{rank or 1}d")
        self.pads = {}
        self.call = self._refusing(self._call(device.startswith("cuda")))

    def padding(self, sizes):
        """(zeros that ``F.pad`` adds, padding of the convolution) for an input of these sizes.

        The first is in the order of ``F.pad``, last axis first, and empty where there are none.
        """
        found = self.pads.get(sizes)
        if found is None:
            pairs = Windows.of(self.spec).pads(sizes)
            if all(before == after for before, after in pairs):
                found = (), tuple(before for before, _ in pairs)
            else:
                found = tuple(n for pair in pairs[::-1] for n in pair), (0,) * len(pairs)
            self.pads[sizes] = found
        return found

    def _call(self, gpu):
        if pooling.kind(self.spec):
            return self._pooling(gpu)
        if self.spec["op"] in products.OPS:
            return self._product(gpu)
        convolve, pad, padding = self.function, self.torch.nn.functional.pad, self.padding
        stride, dilation = tuple(self.spec["stride"]), tuple(self.spec["dilation"])
        groups, wait = self.spec["groups"], self.torch.cuda.synchronize if gpu else None

        def call(x, w, b):
            before, within = padding(x.shape[2:])
            if before:
                x = pad(x, before)
            y = convolve(x, w, b, stride, within, dilation, groups)
            if wait is not None:
                wait()
            return y

        return call

    def _pooling(self, gpu):
        pooled = torch_pooling.operator(self.torch, self.spec)

        def call(x, w, b):
            y = pooled(x)
            if gpu:
                self.torch.cuda.synchronize()
            return y

        return call

    def _product(self, gpu):
        product = torch_products.operator(self.torch, self.spec, self.linear)

        def call(x, w, b):
            y = product(x, w, b)
            if gpu:
                self.torch.cuda.synchronize()
            return y

        return call

    def _refusing(self, call):
        """``call`` with PyTorch's refusals of an operator turned into Unsupported."""
        exhausted = getattr(self.torch, "OutOfMemoryError", MemoryError)

        def guarded(x, w, b):
            try:
                return call(x, w, b)
            except exhausted as error:
                raise OutOfMemory(said(error)) from None
            except (NotImplementedError, RuntimeError) as error:
                if "can't allocate memory" in str(error):
                    raise OutOfMemory(said(error)) from None
                raise Unsupported("PyTorch refuses: " + said(error)) from None

        return guarded

    def selected(self, x, w, b):
        """The name of the backend that PyTorch chooses for these values."""
        torch, spec = self.torch, self.spec
        before, within = self.padding(x.shape[2:])
        x = torch.nn.functional.pad(x, before) if before else x
        steps = list(spec["stride"]), list(within), list(spec["dilation"])
        none = [0] * len(spec["kernel"])
        return torch._C._select_conv_backend(x, w, b, *steps, False, none, spec["groups"]).name

    def tensor(self, array):
        """A tensor on the device with a container array's bits; on the CPU it is that memory."""
        made = self.torch.from_numpy(array.view(np.int16) if self.narrow else array)
        made = made.view(self.dtype) if self.narrow else made
        return made if self.device == "cpu" else made.to(self.device)

    def input(self, x):
        return self.tensor(self.layout.activations(x))

    def weights(self, w):
        return self.tensor(self.layout.kernels(w))

    def bias(self, b):
        return None if b is None else self.tensor(channels_first.copied(b))

    def output(self, y):
        y = y.cpu()
        array = y.view(self.torch.int16).numpy().view(np.uint16) if self.narrow else y.numpy()
        return self.layout.channels_last(array)


class StableOperator(TorchOperator):
    """``probe.stable``'s convolution in the place of ``torch.nn.functional``'s."""

    def __init__(self, torch, spec, device, switches, accumulate):
        self.accumulate = accumulate
        TorchOperator.__init__(self, torch, spec, device, switches)

    def _call(self, gpu):
        words = {name: self.spec[name] for name in ("stride", "dilation", "groups", "padding")}
        words["accumulate"] = self.accumulate

        def call(x, w, b):
            y = conv(x, w, b, **words)
            if gpu:
                self.torch.cuda.synchronize()
            return y

        return call


def said(error):
    """The first line of what PyTorch says, at most 300 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

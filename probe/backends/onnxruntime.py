"""ONNX Runtime on a model of one Conv node, NCHW, made with the ``onnx`` package.

The sizes of batch and space are symbolic, so one model serves every length. Weights and bias are
initializers, as in users' models: ONNX Runtime then packs them, lays channels out in blocks, and
runs other kernels than for weights that are fed (``weights=argument``).
"""

import os
import tempfile
from typing import Callable, Dict

import numpy as np

from probe import floats
from probe.backends import (
    channels_first,
    onnxruntime_chain,
    onnxruntime_convolution,
    onnxruntime_pooling,
    onnxruntime_products,
    pooling,
    products,
)
from probe.backends._old import WithChain
from probe.backends.contract import Key, Operator, OutOfMemory, Unsupported

#: ONNX's names of dtypes. Its bfloat16 can't be fed from NumPy, and has no Conv on CPUs.
TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16"}

KEYS = {
    "threads": Key(None, "one a physical core", "threads within an operator"),
    "weights": Key(
        ("argument", "constant"), "constant", "constant: initializers of the model; argument: fed"
    ),
    "deterministic": Key(("0", "1"), "0", "the session's use_deterministic_compute"),
}


class OnnxRuntime(WithChain):
    """onnxruntime.InferenceSession, one process a target."""

    name = "onnxruntime"
    distributions = ("onnxruntime",)
    module = "onnxruntime"
    keys = KEYS
    doc = "a model of one node (Conv, MatMul, ...) with constant weights, NCHW"
    suggestions = (",threads=1", ",threads=2", ",weights=argument")

    @classmethod
    def requires(cls, switches):
        """The models are made with ``onnx``."""
        return (("onnx", "onnx"),)

    def start(self, switches, device):
        import onnx
        import onnxruntime

        self.onnx, self.runtime = onnx, onnxruntime
        self.switches = switches
        self.options = session_options(onnxruntime, switches)
        self.constant = switches.get("weights", "constant") == "constant"
        return {
            "library": "onnxruntime",
            "library_version": onnxruntime.__version__,
            "onnx_version": onnx.__version__,
            "numpy_version": np.__version__,
            "devices": ["cpu"],
            "threads": int(switches["threads"]) if "threads" in switches else None,
        }

    def operator(self, spec):
        return ConvNode(self, spec)

    def chain(self, specs, operands):
        """One model of all layers."""
        return onnxruntime_chain.Chain(self, specs, operands)

    def kind(self, dtype):
        """ONNX's number of a dtype. Raises Unsupported."""
        if dtype not in TYPES:
            raise Unsupported(f"dtype={dtype}: it can't be fed from NumPy")
        return getattr(self.onnx.TensorProto, TYPES[dtype])

    def session(self, model, options=None):
        """An InferenceSession of a ModelProto."""
        return self.runtime.InferenceSession(
            model.SerializeToString(),
            options or self.options,
            providers=["CPUExecutionProvider"],
        )

    def refusing(self, call):
        """``call`` with ONNX Runtime's refusals turned into Unsupported."""
        said = self.runtime.capi.onnxruntime_pybind11_state
        refusals = (said.NotImplemented, said.InvalidGraph, said.InvalidArgument, said.Fail)

        def guarded(*given, **options):
            try:
                return call(*given, **options)
            except refusals + (said.RuntimeException,) as error:
                text = (str(error).strip().splitlines() or [""])[0][:300]
                if "Failed to allocate memory" in text or "bad_alloc" in text:
                    raise OutOfMemory(text) from None
                raise Unsupported("ONNX Runtime refuses: " + text) from None

        return guarded

    def kernels(self, spec, shapes):
        """The nodes of the optimised model, such as ``Conv (com.microsoft.nchwc)``."""
        operator = self.operator(spec)
        w = np.ones(shapes["w"], floats.container(spec["dtype"]))
        arrays = operator.weights(w), np.ones(spec["filters"], w.dtype)
        with tempfile.TemporaryDirectory() as folder:
            options = session_options(self.runtime, self.switches)
            options.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
            self.refusing(operator.session)(*arrays, options=options)
            nodes = self.onnx.load(options.optimized_model_filepath).graph.node
        named = [
            f"{node.op_type} ({node.domain})" if node.domain else node.op_type for node in nodes
        ]
        return {"optimised-model": named}


def session_options(runtime, switches):
    """SessionOptions of the switches.

    Idle threads sleep instead of spinning. That moves no bits, and a model is rebuilt for every
    set of weights: its old threads would take the processor from the new ones.
    """
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if "threads" in switches:
        options.intra_op_num_threads = int(switches["threads"])
        options.inter_op_num_threads = 1
    if "deterministic" in switches:
        options.use_deterministic_compute = switches["deterministic"] == "1"
    return options


class ConvNode(Operator):
    """One spec. Values are NumPy arrays in ONNX's layout."""

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        backend.kind(spec["dtype"])
        self.models = {}
        self.backend, self.constant_weights = backend, backend.constant
        turned = products.Layout(spec, transposed=spec["op"] == "dense")
        self.layout = turned if spec["op"] in products.OPS else channels_first
        fixed = backend.constant or pooling.kind(spec) or spec["op"] == "sum"
        self.call = backend.refusing(self._rebuilding() if fixed else self._fed())

    def model(self, rank):
        """The ModelProto for an x of that many dimensions; initializers are still empty."""
        onnx, constant, spec = self.backend.onnx, self.backend.constant, self.spec
        kind = self.backend.kind(spec["dtype"])
        if spec["op"] in products.OPS:
            return onnxruntime_products.model(onnx, spec, kind, constant, rank)
        if pooling.kind(spec):
            return onnxruntime_pooling.model(onnx, spec, kind)
        return onnxruntime_convolution.model(onnx, spec, kind, constant)

    def session(self, w=None, b=None, options=None, rank=2):
        """An InferenceSession's own ``run``, on the model with these weights and bias."""
        if rank not in self.models:
            self.models[rank] = self.model(rank)
        model = self.models[rank]
        for tensor, array in zip(model.graph.initializer, (w, b)):
            tensor.raw_data = array.tobytes()
        return self.backend.session(model, options).run

    def _rebuilding(self):
        kept_w = kept_b = run = rank = None

        def call(x, w, b):
            nonlocal kept_w, kept_b, run, rank
            if run is None or w is not kept_w or b is not kept_b or x.ndim != rank:
                run = self.session(w, b, rank=x.ndim)
                kept_w, kept_b, rank = w, b, x.ndim
            return run(["y"], {"x": x})[0]

        return call

    def _fed(self):
        runs: Dict[int, Callable] = {}

        def call(x, w, b):
            run = runs.get(x.ndim)
            if run is None:
                run = runs[x.ndim] = self.session(rank=x.ndim)
            return run(["y"], {"x": x, "w": w} if b is None else {"x": x, "w": w, "b": b})[0]

        return call

    def input(self, x):
        return self.layout.activations(x)

    def weights(self, w):
        return self.layout.kernels(w)

    def bias(self, b):
        return None if b is None else channels_first.copied(b)

    def output(self, y):
        return self.layout.channels_last(y)

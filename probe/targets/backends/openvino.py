"""Runs OpenVINO's CPU plugin on the ONNX models of ``probe.targets.backends.onnxruntime``, NCHW.

The sizes of batch and space are open, so one compiled model serves every length. Weights and bias
are constants, as in users' models; ``weights=argument`` makes them parameters. On processors with
bfloat16 instructions the plugin computes float32 models in bfloat16 unless it is told otherwise:
that is what its users get, and ``precision=f32`` is what they write who don't want it. float64 is
refused, since the plugin would silently compute it in float32.
"""

import json

from probe.targets.backends import onnxruntime
from probe.targets.backends.contract import Key
from probe.targets.backends.source import Writing

KEYS = {
    "precision": Key(
        ("f32", "bf16", "f16"),
        "bf16 where the processor has instructions for it, else f32",
        "INFERENCE_PRECISION_HINT: what float32 is computed in",
    ),
    "threads": Key(None, "one per physical core", "INFERENCE_NUM_THREADS"),
    "weights": onnxruntime.KEYS["weights"],
}
# The properties that switches set.
PROPERTIES = {
    "precision": '"INFERENCE_PRECISION_HINT": "%s"',
    "threads": '"INFERENCE_NUM_THREADS": %s',
}


class OpenVino(onnxruntime.OnnxRuntime):
    """openvino.compile_model for the CPU, one process a target."""

    name = "openvino"
    distributions = ("openvino",)
    installs = "onnx openvino"
    module = "openvino"
    keys = KEYS
    doc = "OpenVINO's CPU plugin: an ONNX model of one operation, constant weights, NCHW"
    suggestions = (",precision=f32", ",precision=f32,threads=1", ",weights=argument")
    title = "OpenVINO"
    version_text = 'ov.__version__.partition("-")[0]'
    layouts = Writing.layouts
    imports = ("import openvino as ov", "from onnx import TensorProto, helper, numpy_helper")
    modules = ("openvino", "onnx")
    dtypes = ("float32", "float16")
    runs = "y = session({%s})[0]"

    def start(self, switches, device):
        import openvino

        self.refusals = (RuntimeError, TypeError)
        self.opened(switches, device, openvino.__version__.partition("-")[0])
        self.constant_weights = self.holds()
        able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return self.facts(capability=", ".join(able))

    def setup(self):
        return ()

    def opens(self):
        words = [
            PROPERTIES[name] % self.switches[name] for name in PROPERTIES if name in self.switches
        ]
        properties = ", {%s}" % ", ".join(words) if words else ""
        return (
            "model = ov.Core().read_model(model.SerializeToString())",
            'session = ov.compile_model(model, "CPU"%s)' % properties,
        )

    def run_file(self, path, arrays):
        own = [
            PROPERTIES[name] % self.switches[name] for name in PROPERTIES if name in self.switches
        ]
        properties = json.loads("{%s}" % ", ".join(own))
        model = self.namespace["ov"].compile_model(path, "CPU", properties)
        return list(model(arrays).values())

    def kernels(self, spec, shapes):
        """Returns the nodes of the compiled model, such as ``Convolution (brgconv_avx512_f32)``."""
        recorder = CompileRecorder(self.namespace["ov"])
        self.watched(spec, shapes, ov=recorder)
        nodes = [node.get_rt_info() for node in recorder.made.get_runtime_model().get_ordered_ops()]
        named = [
            [node[key].astype(str) for key in ("layerType", "primitiveType")] for node in nodes
        ]
        names = ["%s (%s)" % (kind, how) for kind, how in named if kind not in ("Const", "Input")]
        return {"runtime-model": names[:-1]}  # the last one is the output


class CompileRecorder:
    """Stands for ``openvino``; keeps the model that is compiled."""

    def __init__(self, ov):
        self.ov, self.Core = ov, ov.Core

    def compile_model(self, *arguments):
        self.made = self.ov.compile_model(*arguments)
        return self.made

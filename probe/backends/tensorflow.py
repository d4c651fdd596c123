"""TensorFlow as its users call it: ``tf.nn``, eager from 2.0 on, fed placeholders before.

Its switches are here, for ``keras`` too; its operators are in ``tensorflow_operators``.
"""

import numpy as np

from probe.backends import (
    onednn,
    pooling,
    products,
    tensorflow_chain,
    tensorflow_elementwise,
    tensorflow_operators,
    tensorflow_pooling,
    tensorflow_products,
)
from probe.backends._old import WithChain
from probe.backends.contract import Key, Unavailable
from probe.backends.tensorflow_operators import release

#: Switches of every target that runs on TensorFlow; ``keras`` has them too.
SWITCHES = {
    "onednn": Key(
        ("0", "1"),
        "TensorFlow's own choice: 1 from 2.9 on x86 with VNNI",
        "1: oneDNN's operators, 0: TensorFlow's own",
    ),
    "contraction": Key(
        ("0", "1"),
        "1",
        "1: oneDNN's sgemm inside Eigen's matrix products, 0: Eigen's own",
    ),
    "isa": onednn.KEY,
    "threads": Key(None, "one a core", "threads within an operator; one operator at a time"),
    "deterministic": Key(("0", "1"), "0", "op determinism (2.9 on; TF_DETERMINISTIC_OPS before)"),
}

KEYS = {
    "onednn": SWITCHES["onednn"],
    "contraction": SWITCHES["contraction"],
    "isa": SWITCHES["isa"],
    "threads": SWITCHES["threads"],
    "mode": Key(
        ("eager", "graph"),
        "eager; graph before 2.0, with xla=1 and with weights=constant",
        "graph: a tf.function, or a session before 2.0",
    ),
    "xla": Key(("0", "1"), "0", "a tf.function with jit_compile"),
    "weights": Key(
        ("argument", "constant"), "argument", "constant: part of the graph, one graph for each"
    ),
    "deterministic": SWITCHES["deterministic"],
    "algorithm": Key(
        ("operator", "elementwise"),
        "operator",
        "elementwise: by hand, a multiplication and an addition for each product: probe.stable",
    ),
}


def environment(switches, device):
    """The variables of SWITCHES, and those that keep the log short. CPU targets see no GPU."""
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "ABSL_MIN_LOG_LEVEL": "3"}
    variables.update(onednn.environment(switches))
    if "onednn" in switches:
        variables["TF_ENABLE_ONEDNN_OPTS"] = switches["onednn"]
    if "contraction" in switches:
        variables["TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL"] = switches["contraction"]
    if switches.get("deterministic") == "1":
        variables["TF_DETERMINISTIC_OPS"] = "1"
    if not device.startswith("gpu"):
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    return variables


def configure(tf, switches, device):
    """Applies threads, determinism and device to a TensorFlow 2 that has done nothing yet."""
    if "threads" in switches:
        tf.config.threading.set_intra_op_parallelism_threads(int(switches["threads"]))
        tf.config.threading.set_inter_op_parallelism_threads(1)
    if switches.get("deterministic") == "1" and release(tf) >= (2, 9):
        tf.random.set_seed(1)
        tf.config.experimental.enable_op_determinism()
    if device.startswith("gpu"):
        number, gpus = int(device.split(":")[1]), tf.config.list_physical_devices("GPU")
        if number >= len(gpus):
            raise Unavailable(f"TensorFlow sees {len(gpus)} GPUs here, so there is no {device}")
        tf.config.set_visible_devices(gpus[number], "GPU")


def facts(tf, switches):
    """What to publish about a started TensorFlow; ``onednn`` is None where it doesn't say."""
    threads = int(switches["threads"]) if "threads" in switches else None
    try:
        from tensorflow.python.framework import test_util

        rewritten = bool(test_util.IsMklEnabled())
    except (ImportError, AttributeError):
        rewritten = None
    return {
        "library": "tensorflow",
        "library_version": tf.__version__,
        "build": str(getattr(tf, "__git_version__", "")),
        "compiler": str(getattr(tf, "__compiler_version__", "")),
        "numpy_version": np.__version__,
        "onednn": rewritten,
        "threads": threads,
    }


class TensorFlow(WithChain):
    """tf.nn, one process a target."""

    name = "tensorflow"
    distributions = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
    module = "tensorflow"
    keys = KEYS
    devices = ("cpu", "gpu:N")
    doc = "tf.nn, eager from 2.0 on"
    suggestions = (
        *(",onednn=0", ",onednn=0,contraction=0", ",onednn=0,threads=1", ",onednn=1"),
        *(",isa=sse41", ",isa=avx2", ",isa=avx512_core", ",isa=avx512_core_amx"),
        *(",threads=1", ",threads=2", ",mode=graph", ",xla=1", ",weights=constant"),
        *(",deterministic=1", ",algorithm=elementwise", "@gpu:0", "@gpu:0,deterministic=1"),
    )

    @classmethod
    def conflict(cls, switches):
        """Eager operators are neither compiled nor part of a graph."""
        if switches.get("mode") != "eager":
            return ()
        for key, value in (("xla", "1"), ("weights", "constant")):
            if switches.get(key) == value:
                return (key, f"{value} needs a graph, and mode=eager has none", "leave out mode")
        return ()

    @classmethod
    def environment(cls, switches, device):
        return environment(switches, device)

    def start(self, switches, device):
        import tensorflow as tf

        self.tf, self.switches, self.device = tf, switches, device
        self.session = release(tf) < (2, 0) and switches.get("mode") != "eager"
        if release(tf) >= (2, 0):
            configure(tf, switches, device)
        elif not self.session:
            enter_eager_mode(tf, switches)
        return dict(facts(tf, switches), devices=[device], mode=self._mode())

    def _mode(self):
        if self.session:
            return "session"
        switches = self.switches
        graph = switches.get("mode") == "graph" or switches.get("weights") == "constant"
        return "graph" if graph or switches.get("xla") == "1" else "eager"

    def operator(self, spec):
        if self.switches.get("algorithm") == "elementwise":
            return self.stable(spec)
        if spec["op"] in products.OPS:
            return self._bound(spec, tensorflow_products.function(self.tf, spec), True)
        if pooling.kind(spec):
            return self._bound(spec, tensorflow_pooling.operator(self.tf, spec))
        return self._bound(spec, tensorflow_operators.convolution(self.tf, spec))

    def stable(self, spec, accumulate=None):
        if pooling.kind(spec):
            return self._bound(spec, tensorflow_pooling.operator(self.tf, spec))
        computed = tensorflow_elementwise.convolution(self.tf, spec, accumulate)
        return self._bound(spec, computed)

    def _bound(self, spec, computed, product=False):
        """An operator that calls ``computed``, f(x, w), as the switches say."""
        constant = self.switches.get("weights") == "constant"
        xla = self.switches.get("xla") == "1"
        if not self.session:
            tensors = tensorflow_products.Tensors if product else tensorflow_operators.Tensors
            return tensors(self.tf, spec, computed, self._mode() == "graph", xla, constant)
        config = session_config(self.tf, self.switches, xla)
        session = tensorflow_products.Session if product else tensorflow_operators.Session
        return session(self.tf, spec, computed, config, "/" + self.device, constant)

    def chain(self, specs, operands):
        """See ``tensorflow_chain``; weights are never constants of the graph there."""
        if self.switches.get("algorithm") == "elementwise":
            return None
        if self.session:
            config = session_config(self.tf, self.switches, self.switches.get("xla") == "1")
            where = "/" + self.device
            return tensorflow_chain.SessionChain(self.tf, specs, operands, config, where)
        xla = self.switches.get("xla") == "1"
        return tensorflow_chain.Chain(self.tf, specs, operands, self._mode() == "graph", xla)


def session_config(tf, switches, xla=False):
    """The ConfigProto of a 1.x session: threads as asked, and XLA's global switch."""
    config = tf.ConfigProto(allow_soft_placement=True)
    if "threads" in switches:
        config.intra_op_parallelism_threads = int(switches["threads"])
        config.inter_op_parallelism_threads = 1
    if xla:
        config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    return config


def enter_eager_mode(tf, switches):
    """Eager execution in 1.x, which has it from 1.7 on. Raises Unavailable before."""
    if not hasattr(tf, "enable_eager_execution"):
        raise Unavailable(f"TensorFlow {tf.__version__} has no eager mode; leave out mode=eager")
    tf.enable_eager_execution(config=session_config(tf, switches))

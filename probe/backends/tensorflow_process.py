"""How TensorFlow is started, what it says of itself, and what its errors say: Keras' too."""

import re

import numpy as np

from probe.backends.contract import ONEDNN_KEY, Key, Unavailable, isa_variables
from probe.backends.source import major_minor

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
    "isa": ONEDNN_KEY,
    "threads": Key(None, "one per core", "threads within an operator; one operator at a time"),
    "deterministic": Key(("0", "1"), "0", "op determinism (2.9 on; TF_DETERMINISTIC_OPS before)"),
}

#: Places in a graph, operator names and colours: what an error's line holds beside its message.
NOISE = re.compile(r"\[\[.*?\]\]|{{.*?}}|\[Op:.*?\]|\x1b\[\d+m|\s+name:\s*$|^\s*\w+Error: ")
#: Errors that tell where before what.
HEADINGS = ("in user code", "Graph execution error")


def tensorflow_variables(switches, device):
    """Returns variables of SWITCHES, and those that keep the log short. CPU targets see no GPU."""
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "ABSL_MIN_LOG_LEVEL": "3"}
    variables.update(isa_variables(switches))
    if "onednn" in switches:
        variables["TF_ENABLE_ONEDNN_OPTS"] = switches["onednn"]
    if "contraction" in switches:
        variables["TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL"] = switches["contraction"]
    if switches.get("deterministic") == "1":
        variables["TF_DETERMINISTIC_OPS"] = "1"
    if not device.startswith("gpu"):
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    return variables


def setup_lines(switches, device, version):
    """Lines that apply threads, determinism and device to a TensorFlow that has done nothing yet.

    ``version``: its text. Before 2.0 they make ``config``, the ConfigProto of sessions.
    """
    found, threads = [], switches.get("threads")
    if major_minor(version) < (2, 0):
        found.append("config = tf.ConfigProto(allow_soft_placement=True)")
        if threads:
            found.append(f"config.intra_op_parallelism_threads = {threads}")
            found.append("config.inter_op_parallelism_threads = 1")
        if switches.get("xla") == "1":
            level = "config.graph_options.optimizer_options.global_jit_level"
            found.append(f"{level} = tf.OptimizerOptions.ON_1")
        if switches.get("mode") == "eager":
            found.append("tf.enable_eager_execution(config=config)")
        return tuple(found)
    if threads:
        found.append(f"tf.config.threading.set_intra_op_parallelism_threads({threads})")
        found.append("tf.config.threading.set_inter_op_parallelism_threads(1)")
    if switches.get("deterministic") == "1" and major_minor(version) >= (2, 9):
        found += ["tf.random.set_seed(1)", "tf.config.experimental.enable_op_determinism()"]
    if device.startswith("gpu"):
        gpu = f'tf.config.list_physical_devices("GPU")[{device.partition(":")[2]}]'
        found.append(f'tf.config.set_visible_devices({gpu}, "GPU")')
    return tuple(found)


def require_gpu(tf, device):
    """Raises Unavailable where a TensorFlow 2 doesn't see the device."""
    if device.startswith("gpu"):
        number, found = int(device.split(":")[1]), len(tf.config.list_physical_devices("GPU"))
        if number >= found:
            raise Unavailable(f"TensorFlow sees {found} GPUs here, so there is no {device}")


def tensorflow_facts(tf, switches):
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


def refusals(tf):
    """Exceptions by which TensorFlow refuses an operator, or a release does not have it."""
    errors = tf.errors
    found = (errors.UnimplementedError, errors.InvalidArgumentError, errors.NotFoundError)
    return found + (NotImplementedError, ValueError, TypeError, AttributeError)


def error_line(error):
    """Returns what a library's error says, in one line of at most 300 characters.

    That is its first line after Keras' heading, and its last one where a call stack is in between.
    """
    text = str(error).partition("Original stack trace")[0]
    lines = [NOISE.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Exception encountered when")]
    if not lines:
        return type(error).__name__
    return lines[-1 if lines[0].startswith(HEADINGS) else 0][:300]

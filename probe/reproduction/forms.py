"""Holds the bug forms of the libraries' projects: their headings, and what goes under each.

As the projects' repositories have them in November 2026 (``.github/ISSUE_TEMPLATE``). LiteRT's has
none, so its headings are those that TensorFlow Lite asked for.
"""

from __future__ import annotations

from typing import NamedTuple


class Form(NamedTuple):
    """``sections``: (heading, name of what goes under it, or a fixed text in brackets).

    Fields that would say nothing of a released library on a CPU are left out.
    """

    name: str
    tracker: str
    level: str
    sections: tuple[tuple[str, str], ...]


# By the names of backends, and ``onednn`` for those that carry it; ``other``: of all others.
FORMS = {
    "tensorflow": Form(
        "TensorFlow",
        "https://github.com/tensorflow/tensorflow/issues/new",
        "###",
        (
            ("Issue type", "[Bug]"),
            ("Have you reproduced the bug with TensorFlow Nightly?", "[No]"),
            ("Source", "[binary]"),
            ("TensorFlow version", "version"),
            ("Custom code", "[Yes]"),
            ("OS platform and distribution", "os"),
            ("Python version", "python"),
            ("CUDA/cuDNN version", "cuda"),
            ("GPU model and memory", "gpu"),
            ("Current behavior?", "description"),
            ("Standalone code to reproduce the issue", "script"),
            ("Relevant log output", "output"),
        ),
    ),
    "torch": Form(
        "PyTorch",
        "https://github.com/pytorch/pytorch/issues/new",
        "###",
        (
            ("🐛 Describe the bug", "description_with_script"),
            ("Versions", "versions"),
        ),
    ),
    "jax": Form(
        "JAX",
        "https://github.com/jax-ml/jax/issues/new",
        "###",
        (
            ("Description", "description_with_script"),
            ("What jax/jaxlib version are you using?", "version"),
            ("Which accelerator(s) are you using?", "accelerator"),
            ("Additional System Info", "versions"),
        ),
    ),
    "onnxruntime": Form(
        "ONNX Runtime",
        "https://github.com/microsoft/onnxruntime/issues/new",
        "###",
        (
            ("Describe the issue", "description"),
            ("To reproduce", "script_and_output"),
            ("Platform", "platform"),
            ("OS Version", "os"),
            ("ONNX Runtime Installation", "[Released Package]"),
            ("ONNX Runtime Version or Commit ID", "version"),
            ("ONNX Runtime API", "[Python]"),
            ("Architecture", "architecture"),
            ("Execution Provider", "[Default CPU]"),
        ),
    ),
    "onednn": Form(
        "oneDNN",
        "https://github.com/uxlfoundation/oneDNN/issues/new",
        "#",
        (
            ("Summary", "summary"),
            ("Version", "version_below"),
            ("Environment", "versions"),
            ("Steps to reproduce", "script_and_output"),
            ("Observed behavior", "actual_and_cause"),
            ("Expected behavior", "expected"),
        ),
    ),
    "litert": Form(
        "LiteRT",
        "https://github.com/google-ai-edge/LiteRT/issues/new",
        "###",
        (
            ("System information", "versions"),
            ("LiteRT version", "version"),
            ("Describe the problem", "description"),
            ("Standalone code to reproduce the issue", "script"),
            ("Any other info / logs", "output"),
        ),
    ),
    "opencv": Form(
        "OpenCV",
        "https://github.com/opencv/opencv/issues/new",
        "###",
        (
            ("System Information", "versions"),
            ("Detailed description", "description"),
            ("Steps to reproduce", "script_and_output"),
            ("Issue submission checklist", "[- [x] There is reproducer code]"),
        ),
    ),
    "numpy": Form(
        "NumPy",
        "https://github.com/numpy/numpy/issues/new",
        "###",
        (
            ("Describe the issue:", "description"),
            ("Reproduce the code example:", "script"),
            ("Error message:", "output"),
            ("Python and NumPy Versions:", "versions"),
            ("Runtime Environment:", "runtime"),
            ("Context for the issue:", "summary"),
        ),
    ),
}

FORMS["keras"] = FORMS["tensorflow"]._replace(
    name="Keras", tracker="https://github.com/keras-team/keras/issues/new"
)
FORMS["reference"] = Form(
    "probe",
    "the issue tracker of probe",
    "###",
    (("Description", "description_with_script"), ("Versions", "versions")),
)
FORMS["other"] = FORMS["reference"]._replace(name="", tracker="the library's issue tracker")

# What the documentation says of bits, in our words, and where.
PROMISES = {
    "torch": (
        "PyTorch's notes on numerical accuracy say that results which are equal in mathematics "
        "need not be so bit for bit; their section `Batched computations or slice computations` "
        "says that an operation on a slice need not give the slice of the whole operation's bits",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    ),
    "tensorflow": (
        "TensorFlow promises, with `tf.config.experimental.enable_op_determinism`, the same "
        "outputs where an operator is run again on the same inputs and hardware; inputs of "
        "another length or batch are other inputs, and nothing is said of those",
        "https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_op_determinism",
    ),
    "onednn": (
        "oneDNN documents the same bits from run to run for most primitives where hardware, "
        "software and variables are the same; another shape is another primitive, and nothing is "
        "said of those",
        "https://oneapi-src.github.io/oneDNN/dev_guide_attributes_deterministic.html",
    ),
}

PROMISES["keras"] = PROMISES["tensorflow"]

# The same for two targets: releases, switches, processors.
PROMISES_APART = {
    "torch": (
        "PyTorch's notes on reproducibility do not promise the same results in other releases, on "
        "other platforms, or on other devices",
        "https://docs.pytorch.org/docs/stable/notes/randomness.html",
    ),
    "onednn": (
        "oneDNN documents the same bits where hardware, software and variables are the same; of "
        "others nothing is said",
        PROMISES["onednn"][1],
    ),
}

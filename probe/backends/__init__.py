"""The libraries by name. A dotted text each, imported on demand and without its library."""

import importlib

BACKENDS = {
    "tensorflow": "probe.backends.tensorflow:TensorFlow",
    "keras": "probe.backends.keras:Keras",
    "torch": "probe.backends.torch:Torch",
    "jax": "probe.backends.jax:Jax",
    "onnxruntime": "probe.backends.onnxruntime:OnnxRuntime",
    "litert": "probe.backends.litert:LiteRT",
    "opencv": "probe.backends.opencv:OpenCV",
    "numpy": "probe.backends.arrays:Arrays",
    "reference": "probe.backends.reference:Reference",
}


def names():
    """The names that a target's text may start with, in the order in which they are listed."""
    return list(BACKENDS)


def get(name):
    """The Backend class of a name. Raises KeyError, with the known names, for another one."""
    if name not in BACKENDS:
        raise KeyError(f"{name} is none of: {', '.join(BACKENDS)}")
    module, _, attribute = BACKENDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)

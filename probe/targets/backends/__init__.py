"""Lists the libraries by name; each is a dotted text that is imported on demand.

A library of your own becomes a target by an entry point of the group ``probe.targets``; in the
``pyproject.toml`` of any installed package::

    [project.entry-points."probe.targets"]
    mylib = "mypackage.probe_backend:MyLib"

``MyLib`` is a ``probe.targets.backends.contract.Backend``: it says its name, distribution and
switches, imports the library in ``start``, and makes an ``Operator`` of a spec. ``probe targets``
lists it, and ``mylib`` and ``mylib,switch=1`` are targets like those below;
``probe.targets.backends.conformance`` checks what all backends must do. A name that probe has
already can't be taken. What can't be imported is listed with the reason.

Read ``contract``, then ``source``, by which a library is the lines that its users write, then a
library's file: each has its name, but NumPy, SciPy and OpenBLAS are in ``arrays``, OpenVINO in
``onnxruntime``. ``reference`` computes in NumPy, one rounding an operation; ``rewritten`` makes
several calls of one operation, for remedies.
"""

import importlib
import sys
from typing import Any, Dict, Tuple

GROUP = "probe.targets"

BACKENDS = {
    "tensorflow": "probe.targets.backends.tensorflow:TensorFlow",
    "keras": "probe.targets.backends.keras:Keras",
    "torch": "probe.targets.backends.torch:Torch",
    "jax": "probe.targets.backends.jax:Jax",
    "onnxruntime": "probe.targets.backends.onnxruntime:OnnxRuntime",
    "openvino": "probe.targets.backends.onnxruntime:OpenVino",
    "litert": "probe.targets.backends.litert:LiteRT",
    "opencv": "probe.targets.backends.opencv:OpenCV",
    "numpy": "probe.targets.backends.arrays:Arrays",
    "scipy": "probe.targets.backends.arrays:SciPy",
    "openblas": "probe.targets.backends.arrays:OpenBlas",
    "reference": "probe.targets.backends.reference:Reference",
}

_FOUND: Dict[Any, Any] = {}


def registered():
    """``{name: (dotted text, folder)}`` of the entry points of other packages."""
    # asked anew where the path has changed: a package's folder may have been added to it
    key = tuple(sys.path)
    if key not in _FOUND:
        from importlib import metadata  # the parent's Python has it

        entries: Dict[str, Tuple[str, str]] = {}
        for entry in metadata.entry_points(group=GROUP):
            folder = str(entry.dist.locate_file("")) if entry.dist else ""
            if entry.name not in BACKENDS:
                entries.setdefault(entry.name, (entry.value, folder))
        _FOUND.clear()
        _FOUND[key] = entries
    return _FOUND[key]


def known_backends():
    """Names that a target's text may start with, in the order in which they are listed."""
    return list(BACKENDS) + sorted(registered())


def entry_point_of(name):
    """Where the class of a name of another package is: (dotted text, folder); None for ours."""
    return None if name in BACKENDS else registered().get(name)


def get(name):
    """The Backend class of a name. Raises KeyError, with the known names, for another one.

    A class of another package that can't be imported is replaced by one that says so.
    """
    if name in BACKENDS:
        return loaded(BACKENDS[name])
    if name not in registered():
        raise KeyError(f"{name} is none of: {', '.join(known_backends())}")
    place = registered()[name]
    try:
        return loaded(*place)
    except Exception as error:  # another package's module raises what it likes
        from probe.targets.backends.contract import Backend

        said = " ".join(("%s: %s" % (type(error).__name__, error)).split())
        why = "its entry point %s can't be imported: %s" % (place[0], said)
        words = {"name": name, "broken": why, "doc": "of another package"}
        return type("Broken", (Backend,), words)


def loaded(dotted, folder=""):
    """The class at ``module:attribute``; ``folder`` is where its package lies, if not on the path.

    The child of a target starts with its interpreter's path alone.
    """
    if folder and folder not in sys.path:
        sys.path.append(folder)
    module, _, attribute = dotted.partition(":")
    return getattr(importlib.import_module(module), attribute)

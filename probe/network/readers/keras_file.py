"""What a Keras file would run, found out from its configuration without Keras.

Keras' safe mode refuses Lambda layers and the layers of other libraries; it imports no modules but
those of keras, keras_hub, keras_cv and keras_nlp. Its documentation promises that for ``.keras``
files only, and older releases have let more through. So every class that a file names is looked at
here first, in ``.keras`` and in ``.h5`` files, and safe mode is on as well.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from probe.errors import InputError
from probe.network.readers import missing

IN_PYTHON = "load it in Python, where its classes are registered, and give the object to probe"
FOREIGN = ("Lambda", "__lambda__", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
"""Keras' own classes that hold code, or another library's."""

OWN = {
    *("", "activations", "constraints", "dtype_policies", "initializers", "layers", "losses"),
    *("metrics", "models", "ops", "optimizers", "quantizers", "random", "regularizers"),
}
"""Modules of Keras whose classes and functions need no trust. Others may load files."""

WEIGHTS = "it holds weights alone, and they say no architecture"


class Named(NamedTuple):
    """A class that a file names: of which layer, from which module (empty in ``.h5`` files)."""

    layer: str
    name: str
    module: str
    registered: str

    @property
    def holds_code(self) -> bool:
        """Whether making it may run code that is no part of Keras."""
        custom = ">" in self.registered or ">" in self.name
        return self.name in FOREIGN or custom or not _is_own(self.module)


def _is_own(module: str) -> bool:
    """Whether a module is one of Keras' that need no trust; of ``builtins`` Keras takes names of
    its own functions alone."""
    package, _, rest = module.removeprefix("keras.src").partition(".")
    if module.startswith("keras.src"):
        return rest.partition(".")[0] in OWN and not package
    return module in ("", "builtins") or (package == "keras" and rest.partition(".")[0] in OWN)


def check(path: Path, trust: bool) -> list[Named]:
    """The classes of a file that are not Keras' own. InputError where there are and ``trust`` is
    not given, or where the file is none of Keras."""
    config = _config(path)
    found = [one for one in _classes(config, "") if one.holds_code]
    found += [] if path.suffix.lower() == ".keras" else _unknown(config)
    if found and not trust:
        one = found[0]
        kind = _printable(f"{one.module}.{one.name}" if one.module else one.name)
        what = f"layer {_printable(one.layer)}" if one.layer else "the model"
        why = f"{what} is a {kind}, which runs code that is no part of Keras"
        todo = "if you trust where the file comes from, give --trust (Python: trust=True)"
        raise InputError("network", path, why, todo)
    return found


def imported(named: list[Named]) -> dict[str, Any]:
    """Classes of a trusted file that can be imported, by the names that it has for them."""
    found: dict[str, Any] = {}
    for one in named:
        if not one.module or one.module.partition(".")[0] in ("keras", "builtins"):
            continue
        try:
            made = getattr(import_module(one.module), one.name, None)
        except ImportError:
            continue
        found |= {} if made is None else {one.name: made, one.registered or one.name: made}
    return found


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:100]


def _config(path: Path) -> Any:
    """The configuration in a file. InputError where there is none."""
    text = _zipped(path) if path.suffix.lower() == ".keras" else _of_hdf5(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"its configuration is no JSON ({str(error)[:80]})") from None


def _zipped(path: Path) -> str | bytes:
    if not zipfile.is_zipfile(path):
        raise _broken(path, "a .keras file is a zip archive, and this is none, or not all of it")
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read("config.json")
    except KeyError:
        raise _broken(path, "it has no config.json") from None
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise _broken(path, str(error)[:80]) from None


def _of_hdf5(path: Path) -> str | bytes:
    try:
        import h5py
    except ImportError:
        raise missing("h5py") from None
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get("model_config")
    except Exception as error:
        raise _broken(path, f"it is no HDF5 file, or not all of it ({str(error)[:80]})") from None
    if not isinstance(text, str | bytes):
        raise InputError("network", path, WEIGHTS, "save the whole model: model.save(path)")
    return text


def _broken(path: Path, why: str) -> InputError:
    return InputError("network", path, f"can't be read: {why}", "save the model again")


def _classes(config: Any, layer: str) -> Iterator[Named]:
    """Every class and function that a configuration names, but for training, which isn't read."""
    pending = [(config, layer)]
    while pending:
        now, layer = pending.pop()
        if isinstance(now, list):
            pending += [(one, layer) for one in now]
        if not isinstance(now, dict):
            continue
        if isinstance(now.get("class_name"), str):
            inner = now.get("config")
            own = inner.get("name") if isinstance(inner, dict) else None
            layer = own if isinstance(own, str) else layer
            words = (now.get(name) or "" for name in ("module", "registered_name"))
            yield Named(layer, now["class_name"], *(str(word) for word in words))
        pending += [(one, layer) for key, one in now.items() if key != "compile_config"]


def _unknown(config: Any) -> list[Named]:
    """Layers of an ``.h5`` file, which names no modules, that are not in ``keras.layers``."""
    try:
        import keras
    except ImportError:
        raise missing("keras") from None
    own = {*dir(keras.layers), "Functional", "Model", "Sequential"}
    layers = {
        (one.get("class_name"), str((one.get("config") or {}).get("name", "")))
        for one in _layers(config)
    }
    unknown = sorted((str(name), layer) for name, layer in layers if name not in own)
    return [Named(layer, name, "", "") for name, layer in unknown]


def _layers(config: Any) -> Iterator[dict[str, Any]]:
    """Every layer of a configuration, those of models inside it too."""
    inner = config.get("config") if isinstance(config, dict) else None
    layers = inner.get("layers") if isinstance(inner, dict) else inner
    for one in layers if isinstance(layers, list) else []:
        if isinstance(one, dict) and isinstance(one.get("config") or {}, dict):
            yield one
            yield from _layers(one)

"""Finds out what a model's file would run before its library reads it.

Keras' safe mode refuses Lambda layers and the layers of other libraries; it imports no modules but
those of keras, keras_hub, keras_cv and keras_nlp. Its documentation promises that for ``.keras``
files only, and older releases have let more through. So every class that a file names is looked at
here first, in ``.keras`` and in ``.h5`` files, and safe mode is on as well.

``torch.save`` writes a pickle, and a pickle is a program: reading it calls whatever functions it
names. So its instructions are listed here, by Python's ``pickletools``, and none is done. PyTorch
is not asked: its ``weights_only`` mode ran a file's code up to release 2.5 (CVE-2025-32434), and
probe is used with those.
"""

from __future__ import annotations

import io
import json
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from probe.case import memory
from probe.case.errors import Foreign, InputError, foreign, printable

EXPORTED = "programs of torch.export (.pt2) are not supported as chains that other targets run"
TO_ONNX = "export the model to ONNX"
IN_PYTHON = "load it in Python, where its classes are registered, and give the object to probe"
# Keras' own classes that hold code, or another library's.
FOREIGN = ("Lambda", "__lambda__", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")

# Modules of Keras whose classes and functions need no trust. Others may load files.
OWN = {
    *("", "activations", "constraints", "dtype_policies", "initializers", "layers", "losses"),
    *("metrics", "models", "ops", "optimizers", "quantizers", "random", "regularizers"),
}

WEIGHTS = "it holds weights alone, and they say no architecture"


def library_missing(library: str) -> InputError:
    """The error for a model whose library is not installed."""
    why = f"{library} is required to read this model and is not installed"
    return InputError("network", library, why, f"run pip install {library}")


class NamedClass(NamedTuple):
    """A class that a file names: of which layer, from which module (empty in ``.h5`` files)."""

    layer: str
    name: str
    module: str
    registered: str

    @property
    def holds_code(self) -> bool:
        """Whether making it may run code that is no part of Keras."""
        if self.name in FOREIGN or ">" in self.registered or ">" in self.name:
            return True
        package, _, rest = self.module.removeprefix("keras.src").partition(".")
        of_keras = rest.partition(".")[0] in OWN
        if self.module.startswith("keras.src"):
            return not of_keras or bool(package)
        # of ``builtins`` Keras takes names of its own functions alone
        return self.module not in ("", "builtins") and not (package == "keras" and of_keras)


def check_keras(path: Path, trust: bool) -> list[NamedClass]:
    """The classes of a file that are not Keras' own. InputError where there are and
    ``trust`` is not given, or where the file is none of Keras."""
    text = _zipped(path) if path.suffix.lower() == ".keras" else _of_hdf5(path)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _no_model_file(path, f"its configuration is not JSON ({str(error)[:80]})") from None
    _require_room(config)
    holding = [layer for layer in _named_classes(config, "") if layer.holds_code]
    holding += [] if path.suffix.lower() == ".keras" else _unknown_layers(config)
    if holding and not trust:
        layer = holding[0]
        kind = _printable(f"{layer.module}.{layer.name}" if layer.module else layer.name)
        what = f"layer {_printable(layer.layer)}" if layer.layer else "the model"
        why = f"{what} is a {kind}, which runs code that is not part of Keras"
        todo = "if you trust where the file comes from, give --trust"
        raise InputError("network", path, why, todo)
    return holding


# Arguments of layers that say how many elements a weight or an output has at least.
SIZES = {
    *("units", "filters", "input_dim", "output_dim", "n", "size", "padding", "height", "width"),
    *("batch_shape", "batch_input_shape", "target_shape"),
}


def _require_room(config: Any) -> None:
    """InputError where a layer asks for more elements than bytes are free: a file of a few bytes
    then takes all memory."""
    pending = [config]
    while pending:
        now = pending.pop()
        if isinstance(now, dict):
            for name in SIZES & now.keys():
                memory.require_room(_least_elements(now[name]), name, now[name])
            pending += now.values()
        elif isinstance(now, list):
            pending += now


def _least_elements(sizes: Any) -> int:
    """The product of numbers a spatial axis, of which each may be a pair that is added."""
    if isinstance(sizes, list):
        return prod(max(_added(size), 1) for size in sizes)
    return _added(sizes)


def _added(size: Any) -> int:
    if isinstance(size, list):
        return sum(map(_added, size))
    return size if isinstance(size, int) else 0


def imported(named: list[NamedClass]) -> dict[str, Any]:
    """Classes of a trusted file that can be imported, by the names that it has for them."""
    classes: dict[str, Any] = {}
    for layer in named:
        if not layer.module or layer.module.partition(".")[0] in ("keras", "builtins"):
            continue
        try:
            imported_class = getattr(import_module(layer.module), layer.name, None)
        except ImportError:
            continue
        classes |= (
            {}
            if imported_class is None
            else {layer.name: imported_class, layer.registered or layer.name: imported_class}
        )
    return classes


def _printable(text: str) -> str:
    return printable(text)[:100]


def _zipped(path: Path) -> str | bytes:
    if not zipfile.is_zipfile(path):
        raise _no_model_file(path, "it is not a complete zip archive, as .keras files are")
    try:
        with zipfile.ZipFile(path) as archive:
            _require_unpackable(path, archive)
            if "model.weights.h5" in archive.namelist():
                with archive.open("model.weights.h5") as weights:
                    _require_small_arrays(path, weights)
            return archive.read("config.json")
    except KeyError:
        raise _no_model_file(path, "it has no config.json") from None
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        raise _no_model_file(path, str(error)[:80]) from None


def _require_unpackable(path: Path, archive: zipfile.ZipFile) -> None:
    unpacked = sum(member.file_size for member in archive.infolist())
    memory.require_unpackable("network", path, unpacked)


def _require_small_arrays(path: Path, file: Any) -> None:
    """InputError where the arrays of an HDF5 file, which may be compressed, are far larger."""
    try:
        import h5py
    except ImportError:
        raise library_missing("h5py") from None
    sizes = list[int]()
    with h5py.File(file, "r") as opened:
        opened.visititems(lambda _, held: sizes.append(int(getattr(held, "nbytes", 0))))
    memory.require_unpackable("network", path, sum(sizes))


def _of_hdf5(path: Path) -> str | bytes:
    try:
        text = foreign(_model_config, path)
    except Foreign as error:
        why = f"it is not a complete HDF5 file ({str(error.__cause__)[:80]})"
        raise _no_model_file(path, why) from None
    if not isinstance(text, str | bytes):
        raise InputError("network", path, WEIGHTS, "save the whole model: model.save(path)")
    return text


def _model_config(path: Path) -> object:
    _require_small_arrays(path, path)
    import h5py

    with h5py.File(path, "r") as file:
        return file.attrs.get("model_config")


def _no_model_file(path: Path, why: str) -> InputError:
    return InputError("network", path, f"can't be read: {why}", "save the model again")


def _named_classes(config: Any, layer: str) -> Iterator[NamedClass]:
    """Every class and function that a configuration names, but for training, which isn't read."""
    pending = [(config, layer)]
    while pending:
        now, layer = pending.pop()
        if isinstance(now, list):
            pending += [(part, layer) for part in now]
        if not isinstance(now, dict):
            continue
        if isinstance(now.get("class_name"), str):
            inner = now.get("config")
            name = inner.get("name") if isinstance(inner, dict) else None
            layer = name if isinstance(name, str) else layer
            words = (now.get(name) or "" for name in ("module", "registered_name"))
            yield NamedClass(layer, now["class_name"], *(str(word) for word in words))
        pending += [(part, layer) for key, part in now.items() if key != "compile_config"]


def _unknown_layers(config: Any) -> list[NamedClass]:
    """Layers of an ``.h5`` file, which names no modules, that are not in ``keras.layers``."""
    try:
        import keras
    except ImportError:
        raise library_missing("keras") from None
    layers_of_keras = {*dir(keras.layers), "Functional", "Model", "Sequential"}
    layers = {
        (layer.get("class_name"), str((layer.get("config") or {}).get("name", "")))
        for layer in _layers(config)
    }
    unknown = sorted((str(name), layer) for name, layer in layers if name not in layers_of_keras)
    return [NamedClass(layer, name, "", "") for name, layer in unknown]


def _layers(config: Any) -> Iterator[dict[str, Any]]:
    """Every layer of a configuration, those of models inside it too."""
    inner = config.get("config") if isinstance(config, dict) else None
    layers = inner.get("layers") if isinstance(inner, dict) else inner
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and isinstance(layer.get("config") or {}, dict):
            yield layer
            yield from _layers(layer)


WHOLE_MODULE = f"save the module itself, torch.save(module, path), or {TO_ONNX}"
TENSORS = ("torch._utils._rebuild", "torch.storage.", "torch._tensor.", "torch.serialization.")
# Names, and beginnings of names, that a state dictionary of tensors has.
PLAIN = {
    *("collections.OrderedDict", "torch.Size", "torch.device", "torch.nn.parameter.Parameter"),
    *("__builtin__.set", "builtins.set"),
}

NO_PICKLE = "it is not a file of torch.save, or it is damaged"
# Pickles in a file before PyTorch 1.6: three about the format, then the object.
STREAMS = 4


def check_pickle(path: Path, trust: bool) -> None:
    """InputError where the file is no pickled module, or where it is and is not trusted."""
    try:
        named = _pickled_names(path)
    except (OSError, zipfile.BadZipFile, RuntimeError, EOFError, NotImplementedError) as error:
        raise _no_model_file(path, f"{NO_PICKLE} ({' '.join(str(error).split())[:80]})") from None
    if named is None:
        raise _no_model_file(path, NO_PICKLE)
    # ``FloatStorage``, and dtypes such as ``float32``: names of torch itself
    kinds = ("float", "bfloat", "int", "uint", "bool", "complex")
    refused = []
    for name in named:
        last, of_torch = name.rpartition(".")[2], name.startswith("torch.") and name.count(".") == 1
        storage = of_torch and (last.endswith("Storage") or last.startswith(kinds))
        if not (storage or name in PLAIN or name.startswith(TENSORS)):
            refused.append(name)
    if not refused:
        why = "it holds tensors alone, and weights alone do not define an architecture"
        raise InputError("network", path, why, WHOLE_MODULE)
    if not trust:
        outside = [name for name in refused if not name.startswith("torch.")]
        name = (outside or refused)[0]
        why = f"it is a pickle, and reading it runs code that it names: {_printable(name)}"
        todo = f"if you trust where it comes from, give --trust, or {TO_ONNX}"
        raise InputError("network", path, why, todo)


def _pickled_names(path: Path) -> list[str] | None:
    """Names that the file's pickle looks up, in order; None where there is no whole pickle.

    Raises InputError for TorchScript and for exported programs, whatever their ending.
    """
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            return _looked_up(file)
    with zipfile.ZipFile(path) as archive:
        _require_unpackable(path, archive)
        members = archive.namelist()
        last = {name.rpartition("/")[2] for name in members}
        if any("/code/" in f"/{name}" for name in members) and "constants.pkl" in last:
            why = "it holds TorchScript, which has no modules, so it is not loaded"
            todo = f"save the module that was scripted, or {TO_ONNX}"
            raise InputError("network", path, why, todo)
        if "archive_format" in last or "serialized_exported_program.json" in last:
            raise InputError("network", path, EXPORTED, TO_ONNX)
        inside = [name for name in members if name.rpartition("/")[2] == "data.pkl"]
        if not inside:
            return None
        return _looked_up(io.BytesIO(archive.read(inside[0])))


def _looked_up(file: BinaryIO) -> list[str] | None:
    """What the pickles of a file look up. Names found before a mistake in it count too."""
    names: list[str] = []
    for number in range(STREAMS):
        numbers: list[object] = []
        try:
            for name, argument in _instructions(file):
                names += [name] if name else []
                numbers += [argument] if isinstance(argument, int) else []
        # what junk makes of pickletools
        except (ValueError, LookupError, ArithmeticError, EOFError, struct.error):
            return names or None
        if number == 0 and MAGIC not in numbers:
            break
    return names


def _instructions(file: BinaryIO) -> Iterator[tuple[str, object]]:
    """The name that each instruction of one pickle looks up (empty: none), and its argument.

    Protocol 4 takes a name from the stack. What is known of it are texts that are put there by the
    two instructions before, perhaps out of the memo; any other name is ``COMPUTED``.
    """
    texts: list[str | None] = [None, None]
    memo: dict[int, str | None] = {}
    for code, argument, _ in pickletools.genops(file):
        name = ""
        if code.name in ("GLOBAL", "INST"):
            name = str(argument).replace(" ", ".", 1)
        elif code.name == "STACK_GLOBAL":
            name = COMPUTED if None in texts[-2:] else ".".join(map(str, texts[-2:]))
        elif code.name.startswith("EXT"):
            name = COMPUTED
        yield name, argument
        if code.name in ("PROTO", "FRAME"):
            continue
        if code.name == "MEMOIZE" or "PUT" in code.name:
            memo[len(memo) if argument is None else int(argument)] = texts[-1]
        elif "GET" in code.name:
            texts.append(memo.get(int(argument or 0)))
        else:
            texts.append(argument if "UNICODE" in code.name else None)


COMPUTED = "a name that the file computes"
# The first number in files before PyTorch 1.6.
MAGIC = 0x1950A86A20F9469CFC6C

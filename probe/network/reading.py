"""Shared by all readers of models: which file has which reader, and where a chain ends.

A reader walks the model from its input and writes every layer in our words. What it can't write
ends the chain there, with the reason: a layer whose window isn't finite or not known, a branch.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from probe.errors import InputError
from probe.network.chain import Layer, Network, Suffix
from probe.network.description import NAME, Writer, from_json, parse
from probe.trust import EXPORTED, OWN_LIBRARY, TO_ONNX

FILES = {
    ".keras": "keras_model",
    ".h5": "keras_model",
    ".hdf5": "keras_model",
    ".pt": "torch_module",
    ".pth": "torch_module",
    ".onnx": "onnx_model",
}
"""File endings and the reader of each."""

OBJECTS = {"keras": "keras_model", "torch": "torch_module", "onnx": "onnx_model"}
"""Packages of whose objects we know the reader."""

HOW = f"give a file ({', '.join(FILES)}, .json), a model of these libraries, or {NAME}"

WHOLE = "reads all positions, so its receptive field is the whole input"
STEPS = "carries a state from position to position, so its receptive field is unbounded"
PAIRS = "relates every position to all others, so its receptive field is the whole input"
UNKNOWN = "is not supported, so its receptive field is unknown"
JOINS = "joins several branches, and only linear chains of layers are supported here"
FORKS = "reads a second branch, and only linear chains of layers are supported here"
CUSTOM = "is a custom class, so what it computes is unknown"
OUTPUTS = "is a second output of the model; only the last layer's is examined"
HOOKED = "runs custom code around the layer (a hook)"

BRANCHED = "probe network follows every graph in its own library: leave out --target"
BEHIND = "probe network follows it in its own library: leave out --target"
"""What users can do about a model that branches, and about any other end of the chain."""


class Stop(Exception):
    """The chain ends at this layer: see :class:`probe.network.Suffix`."""

    def __init__(self, name: str, kind: str, why: str, todo: str = "") -> None:
        todo = todo or (BRANCHED if why in (JOINS, FORKS) else BEHIND)
        self.suffix = Suffix(name, kind, why, todo)
        super().__init__(self.suffix.text)


class Progress:
    """How far a reader came: the layers of the chain behind each of the model's own layers.

    ``total``: how many the model has, None where they can't be counted.
    """

    def __init__(self, total: int | None) -> None:
        self.total, self.ends = total, list[int]()

    def reached(self, writer: Writer, times: int = 1) -> None:
        """Notes that another ``times`` layers of the model are read, whole."""
        self.ends += [len(writer.layers)] * times

    def examined(self, layers: int) -> int:
        """Returns how many of them the first ``layers`` layers of the chain hold."""
        return sum(end <= layers for end in self.ends)


def read(source: Any, height: tuple[int, ...] | None, trust: bool = False) -> Network:
    """Reads a network: see ``Network.load``."""
    if isinstance(source, Network):
        return source
    if isinstance(source, Mapping):
        return from_json(source, height)
    if isinstance(source, str | Path):
        return _file(source, height, trust)
    for parent in type(source).__mro__:
        if reader := OBJECTS.get(parent.__module__.split(".")[0]):
            return _reader(reader).from_object(source, height)
    raise InputError("network", type(source).__name__, "this is not a model", HOW)


def _file(source: str | Path, height: tuple[int, ...] | None, trust: bool) -> Network:
    if str(source).partition(":")[0] == NAME:
        return parse(str(source))
    path = Path(source)
    ending = path.suffix.lower()
    if ending == ".pt2":
        raise InputError("network", source, EXPORTED, f"{OWN_LIBRARY}, or {TO_ONNX}")
    if ending not in (*FILES, ".json"):
        why = f"unsupported file type {ending}" if ending else "the file has no extension"
        raise InputError("network", source, why, HOW)
    if not path.is_file():
        raise InputError("network", source, "there is no such file", "check the name")
    try:
        if ending == ".json":
            return from_json(_text(path), height)
        found: Network = _reader(FILES[ending]).from_file(path, height, trust)
    except InputError as error:  # by what the user gave, not by a name inside
        if error.name != "network":
            raise
        raise InputError("network", source, error.why, error.todo) from None
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError("network", path, str(why), "give a JSON file") from None


def _reader(name: str) -> Any:
    return import_module(f"probe.network.{name}")


def chain(
    writer: Writer,
    shape: tuple[int | None, ...],
    height: tuple[int, ...] | None,
    name: str,
    suffix: Suffix | None,
    progress: Progress,
) -> Network:
    """Returns the network of the layers written.
    ``shape``: the model's spatial sizes, None where open."""
    layers = tuple(writer.layers)
    swapped = writer.rank == 2 and first_is_long(layers, shape)
    if swapped:
        shape = shape[::-1]
    own = height_of(shape[:-1], height)
    if swapped:
        layers = tuple(layer.swapped() for layer in layers)
        dense = [layer for layer in layers if layer.op == "dense"]
        if dense and own != (1,):
            why = "multiplies rows of two axes, of which the first one is long"
            suffix = Suffix(dense[0].name, "dense", why, BEHIND)
            layers = layers[: layers.index(dense[0])]
    given = (layers, writer.rank, own, writer.dtype, name, shape[-1], suffix, swapped)
    return Network(*given, progress.examined(len(layers)), progress.total)


def first_is_long(layers: tuple[Layer, ...], shape: tuple[int | None, ...]) -> bool:
    """Returns whether the length of a model of two axes is its first one.

    It is the one that the model leaves open, else the longer one, else the one that windows span.
    """
    first, last = shape
    if (first is None) != (last is None):
        return first is None
    if first is not None and last is not None and first != last:
        return first > last
    spans = [[layer.kernel[axis] for layer in layers if layer.kernel] for axis in (0, 1)]
    return max(spans[0], default=1) > 1 and max(spans[1], default=1) == 1


def unreadable(path: Path, error: Exception, advice: str = "save the model again") -> InputError:
    """Returns a file that its library refuses."""
    said = (
        textwrap.shorten(str(error), 200, placeholder=" ...").removesuffix(".")
        or type(error).__name__
    )
    return InputError("network", path, f"can't be read: {said or type(error).__name__}", advice)


def other_dtype(dtype: str, before: str) -> str:
    """Returns why a layer that computes in another dtype than those before it ends the chain."""
    return f"computes in {dtype}, and the layers before it in {before}"


def height_of(own: tuple[int | None, ...], given: tuple[int, ...] | None) -> tuple[int, ...]:
    """Returns the sizes before the length: the user's, else the model's own.
    InputError if left open."""
    if given is not None:
        if len(given) != len(own):
            why = f"the model has {len(own)} spatial axes before the length"
            raise InputError("height", "x".join(map(str, given)), why, "give one size for each")
        return given
    if any(size is None for size in own):
        raise InputError("height", None, "the model does not define it", "give --height N")
    return tuple(int(size) for size in own if size is not None)

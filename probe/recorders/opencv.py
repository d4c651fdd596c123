"""OpenCV's cv2.dnn, watched by asking for the results of layers: nets of any file that it reads.

OpenCV fuses layers, folds a BatchNorm into its convolution say, and a layer whose result is asked
for stays apart. Asked for are those that leave the net's outputs as they are; what stays hidden
belongs to the layers that read it, which are one operation with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import onnx

from probe.errors import InputError
from probe.recorders import opencv_net
from probe.recorders.caffe_text import declared
from probe.recorders.onnx_file import inputs_of
from probe.recorders.opencv_net import CONSTANT, Layer, Piece, plain, vector
from probe.recorders.opencv_table import TABLE
from probe.recording.contract import INPUT, WEIGHT, Event, Input, Seen, Visit
from probe.semantics import Meaning, Same, Step, Steps, Unknown
from probe.semantics.call import Call, Operand, meaning

ENDINGS = (".prototxt", ".caffemodel", ".onnx", ".tflite")
READERS = {".onnx": "readNetFromONNX", ".tflite": "readNetFromTFLite"}
PICTURE = 4
"""Axes of a batch of pictures."""

NARROW = {"int64": np.int32, "bool": np.uint8, "float64": np.float32}
"""What OpenCV has in the place of dtypes that it lacks."""

Group = tuple[list[Layer], list[str], list[str]]
"""Layers, values from outside, values that they give: one operation."""


class Told(NamedTuple):
    """What is said of an operation besides its arrays, which no run of the recorder changes.

    ``known``: whether it was found to give the same bits alone. What runs it alone is made anew for
    each run, since it holds a net.
    """

    group: Group
    op: str
    meaning: Meaning
    attributes: dict[str, Any]
    weights: list[Seen]
    known: bool


def opened(
    path: str | os.PathLike[str], trust: bool = False, switches: Mapping[str, str] | None = None
) -> Opened:
    """Opens an ``.onnx`` or ``.tflite`` file, or a Caffe model: its text and its weights, two files
    of one name, one of them given. InputError where OpenCV can't read it.

    ``switches``: of the target, ``winograd`` and ``threads``.
    """
    given, words = Path(path), dict(switches or {})
    if given.suffix.lower() in READERS:
        content = _content(given)
        return Opened(
            lambda: _read(given, content),
            _declared(given, content),
            words,
            content,
            turned=given.suffix.lower() == ".tflite",
        )
    return caffe(*_halves(given), words)


def caffe(text: str, weights: bytes = b"", switches: Mapping[str, str] | None = None) -> Opened:
    """Opens a Caffe model: ``text`` its prototxt, ``weights`` the bytes of its caffemodel."""
    inputs = tuple(
        Input(name, (None, *shape[1:]), "float32") for name, shape in declared(text).items()
    )

    def read() -> Any:
        given = [np.frombuffer(text.encode(), np.uint8)]
        given += [np.frombuffer(weights, np.uint8)] if weights else []
        return _said("prototxt", lambda: cv2.dnn.readNetFromCaffe(*given))

    return Opened(read, inputs, dict(switches or {}))


def of_net(net: Any) -> Opened:
    """Opens a net in memory, such as ``cv2.dnn.readNet`` returns. The shapes of its inputs are not
    known, so its recorders need arrays. The net itself runs unwatched alone, since asking one net
    for other results changes its bits; what is watched is a copy, made of its layers."""
    return Opened(lambda: net, (), {}, copied=True)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = f"can't be read: {error.strerror}"
        raise InputError("model", path.name, why, "give a file") from None


def _halves(given: Path) -> tuple[str, bytes]:
    text, weights = given.with_suffix(".prototxt"), given.with_suffix(".caffemodel")
    for one in (text, *([weights] if given.suffix == ".caffemodel" else [])):
        if not one.is_file():
            raise InputError(
                *("model", given.name, f"there is no {one.name} beside it"),
                "put a Caffe model's text and weights into one folder, under one name",
            )
    try:
        return text.read_text(), weights.read_bytes() if weights.is_file() else b""
    except UnicodeDecodeError:
        raise InputError(
            "model", given.name, "it is not a text file", "give a Caffe prototxt"
        ) from None


def _read(path: Path, content: bytes) -> Any:
    reader = getattr(cv2.dnn, READERS[path.suffix.lower()])
    return _said(path.name, lambda: reader(np.frombuffer(content, np.uint8)))


def _said(name: str, call: Callable[[], Any]) -> Any:
    """Calls OpenCV. What it refuses is one line, with the layer that it names."""
    try:
        with silent():
            return call()
    except cv2.error as error:
        why = " ".join(str(error.err or error).split())[:240]
        todo = "OpenCV does not read every model: run it with the library that its file is of"
        raise InputError("model", name, f"OpenCV refuses it: {why}", todo) from None


@contextmanager
def silent() -> Iterator[None]:
    """Lets OpenCV log nothing: what it can't do it raises."""
    logging = cv2.utils.logging
    before = logging.getLogLevel()
    logging.setLogLevel(logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        logging.setLogLevel(before)


def _declared(path: Path, content: bytes) -> tuple[Input, ...]:
    """Returns what the file says of its inputs."""
    if path.suffix.lower() == ".tflite":
        from probe.recorders import litert

        return litert.opened(path).inputs
    try:
        graph = onnx.load_from_string(content).graph
    except Exception as error:
        why = f"can't be read: {' '.join(str(error).split())[:160]}"
        raise InputError("model", path.name, why, "export or download it again") from None
    return inputs_of(graph)


class Opened:
    """A model that OpenCV reads. ``net``: gives it anew; ``content``: its file, if it is ONNX's.

    ``copied``: ``net`` gives one net again and again, which has to stay as it is. ``turned``: the
    file has the channels of pictures last, the net first.
    """

    def __init__(
        self,
        net: Callable[[], Any],
        inputs: tuple[Input, ...],
        switches: Mapping[str, str],
        content: bytes = b"",
        copied: bool = False,
        turned: bool = False,
    ) -> None:
        self.net, self.inputs, self.switches, self.content = net, inputs, dict(switches), content
        self.copied, self.turned = copied, turned

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of the model with these inputs."""
        names = [one.name for one in self.inputs] or [*arrays]
        for name in {*names} ^ {*arrays}:
            raise InputError("inputs", name, f"the model's are {', '.join(names)}", "name these")
        if not arrays:
            raise InputError("inputs", "(none)", "a net in memory has none", "give inputs=")
        narrow = {
            name: one.astype(NARROW.get(one.dtype.name, one.dtype)) for name, one in arrays.items()
        }
        if self.copied and len(narrow) == 1:  # the net's only input, whatever it is called
            narrow = dict(zip(("",), narrow.values(), strict=True))
        if self.turned:  # OpenCV's importer turns pictures of (batch, height, width, channels)
            narrow = {
                name: np.moveaxis(one, -1, 1) if one.ndim == PICTURE else one
                for name, one in narrow.items()
            }
        return Recorder(self, narrow, self.switches)


class Recorder:
    """A net with its inputs."""

    def __init__(
        self,
        opened: Opened,
        arrays: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        self.opened, self.inputs, self.switches = opened, dict(arrays), dict(switches or {})
        self.target = "opencv" + "".join(f",{key}={value}" for key, value in self.switches.items())
        self.visible: tuple[str, ...] | None = None
        self.told: list[Told] | None = None
        self.alike: set[str] = set()
        self.ready: tuple[tuple[str, ...], Any] = ((), None)
        self.copy: Piece | None = None
        self.read = self._known()
        if opened.copied:
            self._copy()

    @property
    def note(self) -> str:
        """Returns which layers are one operation with those that read them."""
        hidden = [one.path for one in self._layers() if not self._seen(one)]
        if self.visible is None or not hidden:
            return ""
        return f"fused with the layer behind: {', '.join(hidden)}; apart, the outputs would change"

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        places = [self.read.places[name] for name in self.read.outputs]
        return self._forward(self.opened.net() if self.opened.copied else self._fresh(), places)

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation."""
        if self.visible is None:
            self.visible = self._unchanged()
        every = tuple(dict.fromkeys((*self.visible, *self.read.outputs)))
        values = dict(zip(every, self._outputs(every), strict=True)) | self._given()
        if self.told is None:
            self.told = [self._told(group, values) for group in self._groups(values)]
        for told in self.told:
            visit(self._event(told, values))
        return [_of(name, values[name]) for name in self.read.outputs]

    def _fresh(self) -> Any:
        if self.copy is not None:
            with silent():
                return self.copy.net(self.inputs | self.read.constants, self.blobs)
        net = self.opened.net()
        if "threads" in self.switches:
            cv2.setNumThreads(int(self.switches["threads"]))
        if self.switches.get("winograd") == "0":
            net.enableWinograd(False)
        return net

    def _known(self) -> opencv_net.Net:
        net = self._fresh()
        self._called(lambda: opencv_net.feed(net, self.inputs))
        known = self.opened.content
        floats = opencv_net.floats_of(known) if known else opencv_net.FRACTIONS
        found: opencv_net.Net = self._called(lambda: opencv_net.read(net, floats))
        if [*self.inputs] == [""] and len(found.inputs) == 1:
            self.inputs = {found.inputs[0]: self.inputs[""]}
        if {*found.inputs} != {*self.inputs}:
            names = ", ".join(found.inputs)
            why = f"the net's are {names}"
            raise InputError("inputs", ", ".join(self.inputs), why, "name these")
        return found

    def _copy(self) -> None:
        """Makes a net of the same layers. InputError: it gives different bits."""
        layers, wanted = self._layers(), self.plain()
        self.blobs = [blob for one in layers for blob in one.blobs]
        outer = [*self._given()]
        for words in (self.switches, {**self.switches, "winograd": "0"}):
            self.copy, self.switches = Piece(layers, outer, self.read.outputs, words), words
            found = self._outputs(self.read.outputs, self._fresh())
            if [one.tobytes() for one in found] == [one.tobytes() for one in wanted]:
                return
        why = "a copy of its layers gives different bits, and a net in memory can't be recorded"
        raise InputError("model", "Net", why, "give the file that it was read from")

    def _called(self, call: Callable[[], Any]) -> Any:
        try:
            with silent():
                return call()
        except cv2.error as error:
            shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in self.inputs.items())
            why = f"OpenCV refuses them: {' '.join(str(error.err or error).split())[:200]}"
            raise InputError(
                "inputs", shapes, why, "give the model's own shapes, or use a different library"
            ) from None

    def _given(self) -> dict[str, np.ndarray]:
        """Returns values that no operation gives: inputs and constants."""
        return self.inputs | self.read.constants

    def _layers(self) -> list[Layer]:
        return [one for one in self.read.layers if one.kind != CONSTANT]

    def _seen(self, layer: Layer) -> bool:
        every = {*(self.visible or ()), *self.read.outputs}
        return all(name in every for name in layer.gives)

    def _outputs(self, values: Sequence[str], net: Any = None) -> list[np.ndarray]:
        """Returns the values of these names, in one pass."""
        if net is None and self.ready[0] != tuple(values):  # a net keeps what it fused for others
            self.ready = tuple(values), self._fresh()
        known = self.read.places if self.copy is None else self.copy.places()
        return self._forward(self.ready[1] if net is None else net, [known[n] for n in values])

    def _forward(self, net: Any, places: Sequence[tuple[str, int]]) -> list[np.ndarray]:
        given = self.inputs if self.copy is None or self.opened.net() is net else self._given()
        found: list[np.ndarray]
        found = self._called(lambda: opencv_net.forward(net, given, places))
        return found

    def _unchanged(self) -> tuple[str, ...]:
        """Returns the results that can be asked for together and leave the outputs as they are."""
        wanted = [one.tobytes() for one in self.plain()]
        outputs = self.read.outputs

        def keeps(names: Sequence[str]) -> bool:
            found = self._outputs((*names, *outputs))[len(names) :]
            return [one.tobytes() for one in found] == wanted

        chosen: list[str] = []

        def take(names: list[str]) -> None:
            if keeps([*chosen, *names]):
                chosen.extend(names)
            elif len(names) > 1:
                take(names[: len(names) // 2])
                take(names[len(names) // 2 :])

        every = [name for one in self._layers() for name in one.gives if name not in outputs]
        if every:
            take(every)
        return self._written([name for name in every if name in chosen])

    def _written(self, names: list[str]) -> tuple[str, ...]:
        """Returns those of the results that their layers, run alone, give too.

        OpenCV returns memory that was never written for a layer that it fused into one before it.
        Layers whose parameters the dump rounds are kept where they are wrong by themselves alone.
        """
        everything = tuple(dict.fromkeys((*names, *self.read.outputs)))
        values = dict(zip(everything, self._outputs(everything), strict=True)) | self._given()
        for name in everything:
            rest = {one: array for one, array in values.items() if one != name}
            (group,) = (one for one in self._groups(values) if name in one[2])
            if self._agrees(group, values):
                self.alike.add(name)
            elif name not in self.read.outputs:
                values = rest
        return tuple(name for name in names if name in values)

    def _agrees(self, group: Group, values: Mapping[str, np.ndarray]) -> bool:
        """Returns whether an operation alone gives what it gave in the net."""
        try:
            found = self._alone(group)(self._reads(group, values))
        except cv2.error:
            return False
        return all(
            one.tobytes() == values[name].tobytes()
            for name, one in zip(group[2], found, strict=True)
        )

    def _reads(self, group: Group, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns what a group of layers reads: values, then weights."""
        layers, outer, _ = group
        weights = [vector(blob) for one in layers for blob in one.blobs]
        return [*(values[name] for name in outer), *weights]

    def _groups(self, values: Mapping[str, np.ndarray]) -> list[Group]:
        """Returns every operation, where these values are known."""
        by = {name: layer for layer in self.read.layers for name in layer.gives}
        found = []
        for layer in self._layers():
            gives = [name for name in layer.gives if name in values]
            if not gives:
                continue
            inside, waiting = {layer.name: layer}, list(layer.reads)
            outer: dict[str, None] = {}
            while waiting:
                name = waiting.pop(0)
                if name in values:
                    outer[name] = None
                elif by[name].name not in inside:
                    inside[by[name].name] = by[name]
                    waiting += by[name].reads
            layers = [one for one in self.read.layers if one.name in inside]
            found.append((layers, list(outer), gives))
        return found

    def _told(self, group: Group, values: Mapping[str, np.ndarray]) -> Told:
        layers, _, gives = group
        words = {name: _plain(values) for name, values in layers[-1].words.items() if values}
        return Told(
            *(group, "+".join(one.kind for one in layers), self._meaning(group, values)),
            words if len(layers) == 1 else {},
            [_weight(one.path, n, vector(b)) for one in layers for n, b in enumerate(one.blobs)],
            all(name in self.alike for name in gives),
        )

    def _event(self, told: Told, values: Mapping[str, np.ndarray]) -> Event:
        layers, outer, gives = told.group
        constants = self.read.constants
        reads = [_of(name, values[name], WEIGHT if name in constants else INPUT) for name in outer]
        return Event(
            *(told.op, layers[-1].path),
            *([*reads, *told.weights], [_of(name, values[name]) for name in gives]),
            *(told.meaning, told.attributes),
            self._alone(told.group) if told.known else None,
            self._lines(told.group) if told.known else None,
            opencv_net.IMPORTS,
        )

    def _meaning(self, group: Group, values: Mapping[str, np.ndarray]) -> Meaning:
        layers, outer, gives = group
        shapes = {**self.read.shapes, **{name: tuple(a.shape) for name, a in values.items()}}
        one = layers[0]
        if len(layers) == 1 and list(one.reads) == outer and list(one.gives) == gives:
            return self._of_layer(one, shapes)
        numbers = {name: n for n, name in enumerate(outer)}
        count = len(outer) + sum(len(layer.blobs) for layer in layers)
        at, steps = len(outer), []
        for layer in layers:
            weights = tuple(range(at, at + len(layer.blobs)))
            at += len(layer.blobs)
            if len(layer.gives) > 1:
                return Unknown(f"{layer.kind} inside of a fused operation")
            means = self._of_layer(layer, shapes)
            reads = (*(numbers[name] for name in layer.reads), *weights)
            steps.append(Step(means, reads, shapes[layer.gives[0]]))
            numbers[layer.gives[0]] = count
            count += 1
        return Steps(tuple(steps), tuple(numbers[name] for name in gives))

    def _of_layer(self, layer: Layer, shapes: Mapping[str, tuple[int, ...]]) -> Meaning:
        if layer.kind == CONSTANT:
            return Same()
        constants = self.read.constants
        reads = []
        for at, name in enumerate(layer.reads):
            held = constants.get(name)
            content = None if held is None else partial(np.asarray, held)
            dtype = "float32" if held is None else held.dtype.name
            reads.append(Operand(at, shapes[name], dtype, content))
        for at, blob in enumerate(map(vector, layer.blobs), len(reads)):
            reads.append(Operand(at, blob.shape, blob.dtype.name, partial(np.asarray, blob)))
        words = {**layer.words, "blobs": len(layer.blobs)}
        alone = self._alone(([layer], list(layer.reads), list(layer.gives)))
        gives = [shapes[name] for name in layer.gives]
        # what isn't known to give the same alone isn't asked either
        run = alone if self.alike.issuperset(layer.gives) else None
        return meaning(TABLE, Call(layer.kind, words, reads, gives, run=run))

    def _alone(self, group: Group) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
        piece = Piece(*group, self.switches)

        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            with silent():
                return piece.run(arrays)

        return again

    def _lines(self, group: Group) -> Callable[[Sequence[str], str], list[str]]:
        piece = Piece(*group, self.switches)
        return piece.lines


def _plain(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _of(name: str, array: np.ndarray, role: str = INPUT) -> Seen:
    return Seen(name, array.shape, array.dtype.name, lambda: array, role, plain(name))


def _weight(layer: str, number: int, blob: np.ndarray) -> Seen:
    name = f"{layer}.blobs[{number}]"
    return Seen(("blob", name), blob.shape, blob.dtype.name, lambda: blob, WEIGHT, name)

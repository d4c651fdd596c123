"""OpenCV's cv2.dnn, watched by asking for the results of layers: Caffe models.

OpenCV fuses layers, folds a BatchNorm into its convolution say, and a layer whose result is asked
for stays apart. Asked for are those that leave the model's outputs as they are; what stays hidden
belongs to the layers that read it, which are one operation with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from probe.backends import caffe
from probe.errors import InputError
from probe.recorders import caffe_text
from probe.recorders.caffe_text import Layer
from probe.recorders.opencv_meanings import meaning
from probe.recording.contract import INPUT, WEIGHT, Event, Input, Seen, Visit
from probe.recording.meaning import Meaning, Step, Steps, Unknown

ENDINGS = (".prototxt", ".caffemodel")


def opened(path: str | os.PathLike[str], trust: bool = False) -> Opened:
    """Opens a Caffe model: its text and its weights, two files of one name, one of them given."""
    given = Path(path)
    texts = [given.with_suffix(".prototxt")]
    weights = given.with_suffix(".caffemodel")
    for one in (*texts, *([weights] if given.suffix == ".caffemodel" else [])):
        if not one.is_file():
            raise InputError(
                *("model", given.name, f"there is no {one.name} beside it"),
                "put a Caffe model's text and weights into one folder, under one name",
            )
    try:
        text = texts[0].read_text()
    except UnicodeDecodeError:
        raise InputError(
            "model", given.name, "it is not a text file", "give a Caffe prototxt"
        ) from None
    return Opened(text, weights.read_bytes() if weights.is_file() else b"")


class Opened:
    """A Caffe model: ``text`` its prototxt, ``weights`` the bytes of its caffemodel."""

    def __init__(self, text: str, weights: bytes = b"") -> None:
        self.text, self.weights = text, weights
        self.model = caffe_text.read(text)
        self.inputs = tuple(
            Input(name, (None, *shape[1:]), "float32") for name, shape in self.model.inputs.items()
        )

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of the model with these inputs."""
        names = [one.name for one in self.inputs]
        for name in {*names} ^ {*arrays}:
            raise InputError("inputs", name, f"the model's are {', '.join(names)}", "name these")
        return Recorder(self, {name: np.asarray(one, np.float32) for name, one in arrays.items()})


class Recorder:
    """A Caffe model with its inputs."""

    def __init__(
        self, opened: Opened, arrays: Mapping[str, np.ndarray], winograd: bool = True
    ) -> None:
        self.opened, self.inputs, self.winograd = opened, dict(arrays), winograd
        self.model = opened.model
        self.target = "opencv" + ("" if winograd else ",winograd=0")
        self.blobs = self._blobs()
        self.visible: tuple[str, ...] | None = None

    @property
    def note(self) -> str:
        """Which layers are one operation with those that read them."""
        hidden = [one.name for one in self.model.layers if not self._seen(one)]
        if self.visible is None or not hidden:
            return ""
        return f"fused with the layer behind: {', '.join(hidden)}; apart, the outputs would change"

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        return self._outputs(self.model.outputs)

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation."""
        if self.visible is None:
            self.visible = self._unchanged()
        names = (*self.visible, *self.model.outputs)
        values = dict(zip(names, self._outputs(names), strict=True)) | self.inputs
        groups = self._groups(values)
        for layers, outer, gives in groups:
            visit(self._event(layers, outer, gives, values))
        return [_of(name, values[name]) for name in self.model.outputs]

    def _seen(self, layer: Layer) -> bool:
        every = {*(self.visible or ()), *self.model.outputs}
        return all(name in every for name in layer.gives)

    def _net(self) -> Any:
        given = [np.frombuffer(self.opened.text.encode(), np.uint8)]
        if self.opened.weights:
            given.append(np.frombuffer(self.opened.weights, np.uint8))
        try:
            net = cv2.dnn.readNetFromCaffe(*given)
        except cv2.error as error:
            why = " ".join(str(error).split())[:200]
            raise InputError("model", "prototxt", why, "check it with OpenCV") from None
        if not self.winograd:
            net.enableWinograd(False)
        return net

    def _blobs(self) -> dict[str, list[np.ndarray]]:
        """The weights of every layer, before OpenCV packs them."""
        net = self._net()
        return {
            one.name: [
                _vector(blob, n or one.kind not in WEIGHED)
                for n, blob in enumerate(net.getLayer(one.name).blobs)
            ]
            for one in self.model.layers
        }

    def _outputs(self, values: Sequence[str]) -> list[np.ndarray]:
        """The values of these names, in one pass of a fresh net."""
        net, pins = self._net(), {}
        for name, array in self.inputs.items():
            net.setInput(array, name)
        for layer in self.model.layers:
            for k, name in enumerate(layer.gives):
                pins[name] = layer.name if len(layer.gives) == 1 else f"{layer.name}.{k}"
        return [np.array(one) for one in net.forward([pins[name] for name in values])]

    def _unchanged(self) -> tuple[str, ...]:
        """The results that can be asked for together and leave the outputs as they are."""
        wanted = [one.tobytes() for one in self.plain()]
        outputs = self.model.outputs

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

        every = [name for one in self.model.layers for name in one.gives if name not in outputs]
        if every:
            take(every)
        return self._written([name for name in every if name in chosen])

    def _written(self, names: list[str]) -> tuple[str, ...]:
        """Those of the results that their layers, run alone, give too.

        OpenCV returns memory that was never written for a layer that it fused into one before it.
        """
        everything = (*names, *self.model.outputs)
        values = dict(zip(everything, self._outputs(everything), strict=True)) | self.inputs
        for name in names:
            rest = {one: array for one, array in values.items() if one != name}
            (group,) = (one for one in self._groups(values) if name in one[2])
            reads = self._reads(*group[:2], rest)
            found = dict(zip(group[2], self._alone(*group)(reads), strict=True))
            if found[name].tobytes() != values[name].tobytes():
                values = rest
        return tuple(name for name in names if name in values)

    def _reads(
        self, layers: Sequence[Layer], outer: Sequence[str], values: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """What a group of layers reads: values, then weights."""
        return [values[name] for name in outer] + [
            blob for one in layers for blob in self.blobs[one.name]
        ]

    def _groups(
        self, values: Mapping[str, np.ndarray]
    ) -> list[tuple[list[Layer], list[str], list[str]]]:
        """(layers, values from outside, values that it gives) of every operation."""
        by = {name: layer for layer in self.model.layers for name in layer.gives}
        found = []
        for layer in self.model.layers:
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
            layers = [one for one in self.model.layers if one.name in inside]
            found.append((layers, list(outer), gives))
        return found

    def _event(
        self,
        layers: list[Layer],
        outer: list[str],
        gives: list[str],
        values: Mapping[str, np.ndarray],
    ) -> Event:
        last = layers[-1]
        reads = [_of(name, values[name]) for name in outer]
        for one in layers:
            for n, blob in enumerate(self.blobs[one.name]):
                reads.append(_weight(one.name, n, blob))
        only = len(layers) == 1
        kind = "+".join(one.kind for one in layers)
        return Event(
            *(kind, last.name, reads, [_of(name, values[name]) for name in gives]),
            self._meaning(layers, outer, gives, values),
            {} if not only else {"layer": caffe_text.written(last.fields)},
            self._alone(layers, outer, gives),
            self._lines(layers, outer, gives, values),
            ("import cv2", "import numpy as np"),
        )

    def _meaning(
        self,
        layers: list[Layer],
        outer: list[str],
        gives: list[str],
        values: Mapping[str, np.ndarray],
    ) -> Meaning:
        shapes = {name: tuple(array.shape) for name, array in values.items()}
        one = layers[0]
        if len(layers) == 1 and list(one.reads) == outer and list(one.gives) == gives:
            return meaning(one, len(self.blobs[one.name]), shapes[outer[0]])
        hidden = [name for layer in layers for name in layer.gives if name not in shapes]
        if hidden:
            found = self._outputs([name for layer in layers for name in layer.gives])
            names = [name for layer in layers for name in layer.gives]
            shapes |= {name: tuple(a.shape) for name, a in zip(names, found, strict=True)}
        numbers = {name: n for n, name in enumerate(outer)}
        count, weights = len(outer), {}
        for layer in layers:
            own = len(self.blobs[layer.name])
            weights[layer.name] = tuple(range(count, count + own))
            count += own
        steps = []
        for layer in layers:
            if len(layer.gives) > 1:
                return Unknown(f"{layer.kind} inside of a fused operation")
            reads = (*(numbers[name] for name in layer.reads), *weights[layer.name])
            means = meaning(layer, len(self.blobs[layer.name]), shapes[layer.reads[0]])
            steps.append(Step(means, reads, shapes[layer.gives[0]]))
            numbers[layer.gives[0]] = count
            count += 1
        return Steps(tuple(steps), tuple(numbers[name] for name in gives))

    def _alone(
        self, layers: list[Layer], outer: list[str], gives: list[str]
    ) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            given = dict(zip(outer, arrays, strict=False))
            text, model = self._apart(layers, {n: a.shape for n, a in given.items()}, arrays)
            net = cv2.dnn.readNetFromCaffe(*(np.frombuffer(one, np.uint8) for one in (text, model)))
            if not self.winograd:
                net.enableWinograd(False)
            for name, array in given.items():
                net.setInput(np.ascontiguousarray(array), _plain(name))
            last = layers[-1]
            pins = [
                last.name if len(last.gives) == 1 else f"{last.name}.{k}"
                for k, name in enumerate(last.gives)
                if name in gives
            ]
            return [np.array(one) for one in net.forward(pins)]

        return again

    def _apart(
        self,
        layers: list[Layer],
        shapes: Mapping[str, tuple[int, ...]],
        arrays: Sequence[np.ndarray],
    ) -> tuple[bytes, bytes]:
        """A model of these layers alone: text and weights."""
        text = "".join(caffe.head(_plain(name), shape) for name, shape in shapes.items())
        weights, at = b"", len(shapes)
        for one in layers:
            fields = {
                name: value
                for name, value in one.fields.items()
                if name not in ("bottom", "top", "blobs")
            }
            fields["bottom"] = [_plain(name) for name in one.reads]
            fields["top"] = [_plain(name) for name in one.gives]
            text += f"layer {{ {caffe_text.written(fields)} }}\n"
            own = len(self.blobs[one.name])
            if own:
                weights += caffe.caffemodel(one.name, one.kind, arrays[at : at + own])
            at += own
        return text.encode(), weights or caffe.caffemodel("none", "Split", ())

    def _lines(
        self,
        layers: list[Layer],
        outer: list[str],
        gives: list[str],
        values: Mapping[str, np.ndarray],
    ) -> Callable[[Sequence[str], str], list[str]] | None:
        """How a user runs the layers: where they have no weights, which only a file can hold."""
        if any(self.blobs[one.name] for one in layers) or len(gives) > 1:
            return None
        shapes = {name: tuple(values[name].shape) for name in outer}
        text, _ = self._apart(layers, shapes, ())

        def lines(names: Sequence[str], y: str) -> list[str]:
            found = ['prototxt = """', *text.decode().splitlines(), '"""']
            found.append(
                "net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8))"
            )
            found += [] if self.winograd else ["net.enableWinograd(False)"]
            for name, mine in zip(outer, names, strict=False):
                found.append(f'net.setInput({mine}, "{_plain(name)}")')
            return [*found, f"{y} = net.forward()"]

        return lines


WEIGHED = ("Convolution", "Deconvolution", "InnerProduct")
"""Layers whose first blob is a matrix or more; all others are vectors."""


def _vector(blob: np.ndarray, flat: object) -> np.ndarray:
    """A blob of a layer; OpenCV keeps a vector as a matrix of one row or column."""
    return np.array(blob).reshape(-1) if flat else np.array(blob)


def _plain(name: str) -> str:
    """A value's name without what tells it from one that was changed in place."""
    return name.replace("@", "_at_")


def _of(name: str, array: np.ndarray) -> Seen:
    return Seen(name, array.shape, array.dtype.name, lambda: array, INPUT, name)


def _weight(layer: str, number: int, blob: np.ndarray) -> Seen:
    name = f"{layer}.blobs[{number}]"
    return Seen(("blob", name), blob.shape, blob.dtype.name, lambda: blob, WEIGHT, name)

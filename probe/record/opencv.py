"""OpenCV's cv2.dnn, watched layer by layer: nets of any file that it reads.

A net is read from its own dump, which names every layer with its parameters, whatever file it came
from; the weights are in the layers. Values are those of one run of the whole net: no layer is run
alone, so that a difference is found and counted, but has no cause.

OpenCV fuses layers: it folds a BatchNorm into its convolution, say, unless what stands between them
is wanted. Where a run that keeps every value gives other outputs than the net, each product is one
operation with what is folded into it, or with all that is computed behind it; where these give
others too, the net is one operation.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
import onnx
from google.protobuf import text_format  # type: ignore[import-untyped]

from probe.case.errors import InputError
from probe.order.semantics import Unknown
from probe.record import graphs
from probe.record.contract import INPUT, WEIGHT, Input, OpenedFile, Operation, Seen, Visit
from probe.record.onnx_file import graph_inputs, words_in

# What OpenCV has in the place of dtypes that it lacks.
NARROW = {"int64": np.int32, "bool": np.uint8, "float64": np.float32}

R = TypeVar("R")

CONSTANT = "Const"
# Layers with which OpenCV runs what stands behind them; of these it folds some into the weights.
FOLDED = ("BatchNorm", "Scale")
FUSING = ("Convolution", "Deconvolution", "InnerProduct", "MatMul", "Gemm")
# Attributes of the dump that say where a layer runs.
NOT_ITS_OWN = ("Backend", "Target")


# Inputs of a Caffe model's text, and the layers that are inputs with what they give: Caffe has had
# both ways. Their shapes are left to the user.
TOP_INPUT = re.compile(r"""\binput\s*:\s*["']([^"']+)""")
INPUT_LAYER = re.compile(r"""layer\s*\{[^{}]*type\s*:\s*["']Input["'][^{}]*""")
TOP = re.compile(r"""top\s*:\s*["']([^"']+)""")


def input_names(text: str) -> list[str]:
    """The names of a prototxt's inputs, each once."""
    bare = re.sub(r"#.*", "", text)
    names = TOP_INPUT.findall(bare)
    names += [name for layer in INPUT_LAYER.findall(bare) for name in TOP.findall(layer)]
    return list(dict.fromkeys(names))


# a net as it is read


@dataclass(frozen=True, eq=False)
class OpenCVLayer:
    """A layer; ``reads`` and ``gives``: names of values; ``words``: its parameters.

    ``slots``: which of its results each of ``gives`` is. ``blobs``: its weights as OpenCV holds
    them, before the first pass packs them.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    slots: tuple[int, ...]
    words: Mapping[str, Any]
    blobs: tuple[Any, ...] = ()

    @property
    def weights(self) -> dict[tuple[str, int], np.ndarray]:
        """Its weights by key; OpenCV keeps a vector as a matrix of one row or column."""
        return {
            (self.name, n): blob.reshape(-1) if blob.ndim == 2 and 1 in blob.shape else blob
            for n, blob in enumerate(self.blobs)
        }


@dataclass(frozen=True)
class Net:
    """``outputs``: names of values; ``layers``: those that compute, in order; ``constants``: what
    other layers hold."""

    outputs: tuple[str, ...]
    layers: tuple[OpenCVLayer, ...]
    constants: Mapping[str, np.ndarray]


def read_net(net: Any) -> Net:
    """Reads a net whose inputs are set. Raises cv2.error where OpenCV can't say its shapes.

    The dump leaves the layers out that are outputs, which are copies where the file names them; so
    the net gets a copy behind any other layer that is one.
    """
    for name in map(str, net.getUnconnectedOutLayersNames()):
        number = net.getLayerId(name)
        if net.getLayer(number).type != "Identity":
            net.registerOutput(f"{name} (output)", number, 0)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder, "net.pbtxt")
        net.dumpToPbtxt(str(path))
        dumped = path.read_text()
    graph = text_format.Parse(dumped, onnx.ModelProto(), allow_unknown_field=True).graph
    outputs = tuple(output.name for output in graph.output)
    wanted = {*outputs, *(name for node in graph.node for name in node.input)}
    layers, constants = list[OpenCVLayer](), dict[str, np.ndarray]()
    for node in graph.node:
        words = {}
        for name, value in words_in(node).items():
            each = value if isinstance(value, list) else [value]
            if each and name not in NOT_ITS_OWN:
                words[name] = each[0] if len(each) == 1 else each
        slots = tuple(n for n, output in enumerate(node.output) if output in wanted or not n)
        ends = tuple(node.input), tuple(node.output[n] for n in slots), slots
        held = net.getLayer(net.getLayerId(node.name)).blobs
        blobs = tuple(np.array(blob) for blob in held if blob is not None)
        kind = node.op_type.rpartition("::")[2]
        if kind == CONSTANT and blobs:
            constants[node.output[0]] = blobs[0]
        else:
            layers.append(OpenCVLayer(node.name, kind, *ends, words, blobs))
    return Net(outputs, tuple(layers), constants)


def bare_name(value: str) -> str:
    """A value's or layer's name without what only OpenCV's importer adds."""
    name = value.removeprefix("onnx_node!").removeprefix("onnx_node_output_0!")
    return name.removesuffix("_output0")


def fused(layers: Sequence[OpenCVLayer], behind: Container[str]) -> list[list[OpenCVLayer]]:
    """Layers in groups, in an order in which they can run: each of ``FUSING`` with the
    layers of the types ``behind`` that alone read what is before them."""
    readers = [name for layer in layers for name in layer.reads]
    groups = dict[str, list[OpenCVLayer]]()
    for layer in layers:
        before = groups.get(layer.reads[0], []) if layer.kind in behind and layer.reads else []
        if before and before[0].kind in FUSING and readers.count(layer.reads[0]) == 1:
            del groups[layer.reads[0]]
            groups[layer.gives[0]] = [*before, layer]
        else:
            groups[layer.gives[0]] = [layer]
    return [*groups.values()]


# a run


class Layers:
    """A net's layers in groups, each of which is one operation."""

    def __init__(
        self,
        made: Callable[[], Any],
        net: Net,
        groups: Sequence[Sequence[OpenCVLayer]],
        inputs: Mapping[str, np.ndarray],
    ) -> None:
        self.made, self.net, self.groups, self.inputs = made, net, groups, inputs

    def run(self, visit: Visit) -> list[Seen]:
        """Runs the net once, and calls ``visit`` for each group. Returns the outputs."""
        kept = [key for layers in self.groups for key in self._gives(layers)]
        computed = forward(self.made(), self.net.layers, kept)
        arrays = {**self.inputs, **self.net.constants, **computed}

        def seen(key: str) -> Seen:
            held = key in self.net.constants
            return _seen(key, arrays[key], WEIGHT if held else INPUT, bare_name(key))

        for layers in self.groups:
            gives = self._gives(layers)
            inside = {key for layer in layers for key in layer.gives}
            reads = [seen(key) for layer in layers for key in layer.reads if key not in inside]
            for layer in layers:
                for (name, n), blob in layer.weights.items():
                    reads.append(_seen((name, n), blob, WEIGHT, f"{bare_name(name)}.blobs[{n}]"))
            op, path = "+".join(layer.kind for layer in layers), bare_name(layers[-1].name)
            words = layers[0].words if len(layers) == 1 else {}
            results = [seen(key) for key in gives]
            visit(Operation(op, path, reads, results, Unknown(ALONE), words))
        return [seen(key) for key in self.net.outputs]

    def _gives(self, layers: Sequence[OpenCVLayer]) -> list[str]:
        """What a group gives that is read outside of it, or an output."""
        others = [layer for layer in self.net.layers if layer not in layers]
        read = {*self.net.outputs, *(key for layer in others for key in layer.reads)}
        gives = [key for layer in layers for key in layer.gives if key in read]
        return gives or [*layers[-1].gives]


ALONE = "OpenCV's layers are not run alone"


def _seen(key: Any, array: np.ndarray, role: str, name: str) -> Seen:
    return Seen(key, array.shape, str(array.dtype), lambda: array, role, name)


def forward(
    net: Any, layers: Sequence[OpenCVLayer], wanted: Sequence[str]
) -> dict[str, np.ndarray]:
    """Runs a net of these layers, and returns the values that are wanted, as new arrays."""
    places = {
        value: (layer.name, slot)
        for layer in layers
        for value, slot in zip(layer.gives, layer.slots, strict=True)
    }
    results = net.forwardAndRetrieve([places[value][0] for value in wanted])
    return {
        value: np.array(given[places[value][1]])
        for value, given in zip(wanted, results, strict=True)
    }


# what is watched


class NetFile(NamedTuple):
    """A model that OpenCV reads, of a file of this name. ``read``: gives the net anew; ``inputs``:
    their names."""

    name: str
    read: Callable[[], Any]
    inputs: Sequence[str]


def opened(
    path: str | os.PathLike[str], trust: bool = False, switches: Mapping[str, str] | None = None
) -> OpenedFile:
    """Opens an ``.onnx`` file, or a Caffe model: its text and its weights, two files of one name,
    one of them given. InputError where OpenCV can't read it.

    ``switches``: of the target, ``winograd`` and ``threads``.
    """
    file = Path(path)
    if file.suffix.lower() == ".onnx":
        content = graphs.content(file)
        read = partial(cv2.dnn.readNetFromONNX, np.frombuffer(content, np.uint8))
        graph = graphs.read(file.name, lambda: onnx.load_from_string(content).graph)
        inputs = graph_inputs(graph)
    else:
        text, weights = _two_files(file)
        halves = [np.frombuffer(half, np.uint8) for half in (text.encode(), weights) if half]
        read = partial(cv2.dnn.readNetFromCaffe, *halves)
        inputs = tuple(Input(name, (), "") for name in input_names(text))
    model = NetFile(file.name, read, [each.name for each in inputs])
    return OpenedFile(inputs, lambda arrays: OpenCVRecorder(model, arrays, switches))


def _two_files(file: Path) -> tuple[str, bytes]:
    text, weights = file.with_suffix(".prototxt"), file.with_suffix(".caffemodel")
    for needed in (text, *([weights] if file.suffix == ".caffemodel" else [])):
        if not needed.is_file():
            why = f"there is no {needed.name} beside it"
            todo = "put a Caffe model's text and weights into one folder, under one name"
            raise InputError("model", file.name, why, todo)
    try:
        return text.read_text(), weights.read_bytes() if weights.is_file() else b""
    except UnicodeDecodeError:
        why, todo = "it is not a text file", "give a Caffe prototxt"
        raise InputError("model", file.name, why, todo) from None


class OpenCVRecorder(graphs.GraphRecorder):
    """A net with its inputs; ``note``: whether layers are fused. OpenCV logs nothing from then on:
    what it can't do it raises."""

    LIBRARY = "opencv"

    def __init__(
        self,
        model: NetFile,
        arrays: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(model, arrays, switches)
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        for name, array in self.inputs_named(model.inputs).items():
            self.inputs[name] = array.astype(NARROW.get(array.dtype.name, array.dtype))
        self.net = self.watched(lambda: read_net(self.made()))

    def made(self) -> Any:
        """Reads the net anew and gives it the inputs. What OpenCV refuses is one line, with the
        layer that it names."""
        todo = "OpenCV does not read every model: run it with the library that its file is of"
        net = graphs.read(self.model.name, self.model.read, todo)
        if "threads" in self.switches:
            cv2.setNumThreads(int(self.switches["threads"]))
        if self.switches.get("winograd") == "0":
            net.enableWinograd(False)
        for name, array in self.inputs.items():
            net.setInput(np.ascontiguousarray(array), name)
        return net

    def watched(self, call: Callable[[], R]) -> R:
        """InputError where OpenCV refuses the inputs."""
        try:
            return call()
        except cv2.error as error:
            todo = "give the model's own shapes, or use a different library"
            raise graphs.refused("OpenCV", self.inputs, error.err or error, todo) from None

    def plain(self) -> list[np.ndarray]:
        layers, wanted = self.net.layers, self.net.outputs
        results = self.watched(lambda: forward(self.made(), layers, wanted))
        return [results[name] for name in wanted]

    def cuts(self) -> Iterator[Layers]:
        layers = self.net.layers
        single = {layer.kind for layer in layers if len(layer.reads) == 1} - {*FUSING}
        for behind in ((), FOLDED, single):
            self.note = "layers that OpenCV fuses are one operation" if behind else ""
            yield Layers(self.made, self.net, fused(layers, behind), self.inputs)

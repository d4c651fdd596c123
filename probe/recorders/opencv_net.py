"""A net of OpenCV's, read from its own dump; and some of its layers as a net of their own.

The dump names every layer with its parameters, whatever file the net came from; the weights are in
the layers. A net of some layers is an ONNX model of custom operators, which OpenCV's importer makes
into layers of the same types, with the parameters as they stand and constant inputs as weights.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
from onnx import helper, numpy_helper

from probe.recorders.caffe_text import Fields, parsed

AS_TYPED = "OPENCV_DNN_CUSTOM_ONNX_TYPE_INCLUDE_DOMAIN_NAME"
"""With 0 a custom operator is the layer of its name alone; OpenCV reads this once a process."""

DOMAIN = "opencv"
CONSTANT = "Const"
FRACTIONS = [float(np.float32(n / d)) for d in range(3, 17) for n in range(1, d)]
"""Numbers that models have, of which six decimals are not enough."""

NOT_ITS_OWN = ("Backend", "Target")
"""Attributes of the dump that say where a layer runs."""


def vector(blob: np.ndarray) -> np.ndarray:
    """Returns a blob of a layer; OpenCV keeps a vector as a matrix of one row or column."""
    return blob.reshape(-1) if blob.ndim == 2 and 1 in blob.shape else blob


@dataclass(frozen=True)
class Layer:
    """A layer; ``reads`` and ``gives``: names of values; ``words``: its parameters, lists all.

    ``slots``: which of its results each of ``gives`` is. ``blobs``: its weights as OpenCV holds
    them, before the first pass packs them.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    slots: tuple[int, ...]
    words: Mapping[str, list[Any]]
    blobs: tuple[np.ndarray, ...] = ()

    @property
    def path(self) -> str:
        """Its name as the model's file has it."""
        return self.name.removeprefix("onnx_node!").removeprefix("onnx_node_output_0!")


@dataclass(frozen=True)
class Net:
    """``inputs``: names of values; ``layers``: in order; ``outputs``: the net's own."""

    inputs: tuple[str, ...]
    layers: tuple[Layer, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def places(self) -> dict[str, tuple[str, int]]:
        """Returns the layer that gives each value, and which of its results that is."""
        return {
            value: (one.name, slot)
            for one in self.layers
            for value, slot in zip(one.gives, one.slots, strict=True)
        }

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Returns values that layers hold: no operation gives them."""
        return {
            one.gives[0]: one.blobs[0] for one in self.layers if one.kind == CONSTANT and one.blobs
        }


def read(net: Any, floats: Sequence[float] = ()) -> Net:
    """Reads a net whose inputs are set. Raises cv2.error where OpenCV can't say its shapes.

    ``floats``: numbers that the model's file holds: the dump has six decimals. The dump leaves the
    layers out that are outputs, which are copies where the file names them; so the net gets a copy
    behind any other layer that is one.
    """
    for name in map(str, net.getUnconnectedOutLayersNames()):
        number = net.getLayerId(name)
        if net.getLayer(number).type != "Identity":
            net.registerOutput(f"{name} (output)", number, 0)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder, "net.pbtxt")
        net.dumpToPbtxt(str(path))
        graph = parsed(path.read_text())["graph"][0]
    nodes = graph.get("node", [])
    inputs = tuple(str(one["name"][0]) for one in graph.get("input", []))
    outputs = tuple(str(one["name"][0]) for one in graph.get("output", []))
    wanted = {str(name) for node in nodes for name in node.get("input", [])} | {*outputs}
    exact = _by_text(floats)
    layers = tuple(_layer(net, node, wanted, exact) for node in nodes)
    return Net(inputs, layers, outputs, _shapes(graph))


def _layer(net: Any, node: Fields, wanted: set[str], exact: Mapping[str, float]) -> Layer:
    name, kind = str(node["name"][0]), str(node["op_type"][0]).rpartition("::")[2]
    words = {
        str(one["name"][0]): _numbers(one, exact)
        for one in node.get("attribute", [])
        if one["name"][0] not in NOT_ITS_OWN
    }
    every = [str(one) for one in node.get("output", [])]
    slots = [n for n, one in enumerate(every) if one in wanted or not n]
    held = net.getLayer(net.getLayerId(name)).blobs
    blobs = tuple(np.array(one) for one in held if one is not None)
    reads = tuple(str(one) for one in node.get("input", []))
    gives = tuple(every[n] for n in slots)
    return Layer(name, kind, reads, gives, tuple(slots), words, blobs)


def _numbers(one: Fields, exact: Mapping[str, float]) -> list[Any]:
    if "f" in one or "floats" in one:
        every = one.get("floats", one.get("f", []))
        return [exact.get(f"{number:.6f}", float(number)) for number in every]
    for key in ("ints", "i", "strings", "s"):
        if key in one:
            return list(one[key])
    return []


def _by_text(floats: Sequence[float]) -> dict[str, float]:
    """Returns the one number for each text of six decimals that is not the number itself."""
    found: dict[str, set[float]] = {}
    for one in floats:
        found.setdefault(f"{one:.6f}", set()).add(float(one))
    return {text: next(iter(some)) for text, some in found.items() if len(some) == 1}


def _shapes(graph: Fields) -> dict[str, tuple[int, ...]]:
    found = {}
    for one in [*graph.get("input", []), *graph.get("value_info", [])]:
        shape = one["type"][0]["tensor_type"][0].get("shape", [{}])[0]
        dims = [dim.get("dim_value", [0])[0] for dim in shape.get("dim", [])]
        found[str(one["name"][0])] = tuple(int(n) for n in dims)
    return found


def plain(value: str) -> str:
    """Returns a value's name without what only OpenCV's importer adds."""
    name = value.removeprefix("onnx_node!").removeprefix("onnx_node_output_0!")
    return name.removesuffix("_output0")


def floats_of(content: bytes) -> list[float]:
    """Returns the numbers in the attributes of an ONNX file; none where it is no such file."""
    try:
        nodes = onnx.load_from_string(content).graph.node
    except Exception:  # another format
        return []
    every = [one for node in nodes for one in node.attribute]
    return [one.f for one in every if one.type == onnx.AttributeProto.FLOAT] + [
        number for one in every for number in one.floats
    ]


IMPORTS = (
    *("import os", "import cv2", "import numpy as np"),
    "from onnx import TensorProto, helper, numpy_helper",
)
"""What the lines of a piece need."""


class Piece:
    """Some layers as a net of their own.

    ``outer``: the values that they read from before, constants among them; ``gives``: those that
    are wanted, of any layers. ``switches``: of the target.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        outer: Sequence[str],
        gives: Sequence[str],
        switches: Mapping[str, str],
    ) -> None:
        self.layers, self.outer, self.gives, self.switches = layers, outer, gives, switches
        self.last: tuple[list[bytes], Any] | None = None

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Computes ``gives`` from arrays in the place of what the layers read, weights behind."""
        fed, weights = self._sorted(arrays)
        key = [one.tobytes() for one in weights]
        key += [repr([(name, one.shape) for name, one in fed.items()]).encode()]
        if self.last is None or self.last[0] != key:
            self.last = key, self.net(fed, weights)
        return forward(self.last[1], fed, self._places())

    def _sorted(
        self, arrays: Sequence[np.ndarray]
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Returns arrays by name, and the weights in OpenCV's own shapes."""
        given = dict(zip(self.outer, arrays, strict=False))
        shapes = [blob.shape for one in self.layers for blob in one.blobs]
        rest = arrays[len(self.outer) :]
        return given, [one.reshape(shape) for one, shape in zip(rest, shapes, strict=True)]

    def _places(self) -> list[tuple[str, int]]:
        """Returns the layers of ``gives``, and which of their results."""
        return [self.places()[name] for name in self.gives]

    def places(self) -> dict[str, tuple[str, int]]:
        """The layer of the piece's net that gives each value, and which of its results that is."""
        return {
            value: (f"onnx_node!L{n}", slot)
            for n, one in enumerate(self.layers)
            for value, slot in zip(one.gives, one.slots, strict=True)
        }

    def net(self, fed: Mapping[str, np.ndarray], weights: Sequence[np.ndarray]) -> Any:
        types = {name: helper.np_dtype_to_tensor_dtype(one.dtype) for name, one in fed.items()}
        inputs = [
            helper.make_tensor_value_info(name, types[name], one.shape) for name, one in fed.items()
        ]
        outputs = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, []) for name in self.gives
        ]
        nodes = [
            helper.make_node(kind, reads, gives, name=name, domain=DOMAIN, **words)
            for kind, reads, gives, name, words in self._nodes()
        ]
        held = [
            numpy_helper.from_array(np.ascontiguousarray(one), f"w{n}")
            for n, one in enumerate(weights)
        ]
        graph = helper.make_graph(nodes, "piece", inputs, outputs, held)
        domains = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        content = helper.make_model(graph, opset_imports=domains).SerializeToString()
        os.environ.setdefault(AS_TYPED, "0")
        net = cv2.dnn.readNetFromONNX(np.frombuffer(content, np.uint8))
        if self.switches.get("winograd") == "0":
            net.enableWinograd(False)
        return net

    def _nodes(self) -> list[tuple[str, list[str], list[str], str, dict[str, Any]]]:
        """(type, reads, gives, name, parameters) of every layer."""
        found: list[tuple[str, list[str], list[str], str, dict[str, Any]]] = []
        count = 0
        for n, one in enumerate(self.layers):
            weights = [f"w{count + k}" for k in range(len(one.blobs))]
            count += len(one.blobs)
            words = {name: _word(values) for name, values in one.words.items() if values}
            gives = _slotted(one)
            found.append((one.kind, [*one.reads, *weights], gives, f"L{n}", words))
        return found

    def lines(self, names: Sequence[str], y: str) -> list[str]:
        """Returns the lines of Python that a user writes to run the layers."""
        fed = dict(zip(self.outer, names, strict=False))
        short = {name: f"v{n}" for n, name in enumerate(self._values())}
        blobs = [blob.shape for one in self.layers for blob in one.blobs]
        weights = [
            f"{name}.reshape{tuple(shape)}"
            for name, shape in zip(names[len(self.outer) :], blobs, strict=True)
        ]
        found = [f'os.environ["{AS_TYPED}"] = "0"  # layers by their type alone', "nodes = ["]
        for kind, reads, gives, name, words in self._nodes():
            ins, outs = ([short.get(one, one) for one in some] for some in (reads, gives))
            said = "".join(f", {key}={word!r}" for key, word in words.items())
            found.append(
                f"    helper.make_node({kind!r}, {ins}, {outs}, {name!r}, domain={DOMAIN!r}{said}),"
            )
        found += ["]", "inputs = ["]
        for name, one in fed.items():
            kind = f"helper.np_dtype_to_tensor_dtype({one}.dtype)"
            found.append(
                f"    helper.make_tensor_value_info({short[name]!r}, {kind}, {one}.shape),"
            )
        outs = [short[name] for name in self.gives]
        found += [
            "]",
            f"outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, []) for n in {outs}]",
            f"held = [{', '.join(weights)}]",
            "held = [numpy_helper.from_array(np.ascontiguousarray(one), f'w{n}') "
            "for n, one in enumerate(held)]",
            'graph = helper.make_graph(nodes, "piece", inputs, outputs, held)',
            f'domains = [helper.make_opsetid("", 17), helper.make_opsetid({DOMAIN!r}, 1)]',
            "model = helper.make_model(graph, opset_imports=domains).SerializeToString()",
            "net = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))",
            *["net.enableWinograd(False)"] * (self.switches.get("winograd") == "0"),
        ]
        found += [f"net.setInput({one}, {short[name]!r})" for name, one in fed.items()]
        places = self._places()
        found.append(f"results = net.forwardAndRetrieve({[layer for layer, _ in places]})")
        return [
            *found,
            *(f"{y}{n or ''} = results[{n}][{slot}]" for n, (_, slot) in enumerate(places)),
        ]

    def _values(self) -> list[str]:
        every = [name for one in self.layers for name in (*one.reads, *_slotted(one))]
        return list(dict.fromkeys((*self.outer, *every)))


def _slotted(one: Layer) -> list[str]:
    """Returns names for all results of a layer up to the last that is read."""
    names = dict(zip(one.slots, one.gives, strict=True))
    return [names.get(n, f"{one.name}_unread{n}") for n in range(max(one.slots, default=0) + 1)]


def _word(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def feed(net: Any, given: Mapping[str, np.ndarray]) -> None:
    """Sets a net's inputs."""
    for name, array in given.items():
        net.setInput(np.ascontiguousarray(array), name)


def forward(
    net: Any, given: Mapping[str, np.ndarray], places: Sequence[tuple[str, int]]
) -> list[np.ndarray]:
    """Runs a net, and returns results: layer by name, and which of its results. OpenCV makes new
    arrays of them; a further copy of every layer's would be the largest part of the memory."""
    feed(net, given)
    found = net.forwardAndRetrieve([layer for layer, _ in places])
    return [np.asarray(some[n]) for some, (_, n) in zip(found, places, strict=True)]

"""OpenCV's cv2.dnn, watched by asking for the results of layers: nets of any file that it reads.

OpenCV fuses layers, folds a BatchNorm into its convolution say, and a layer whose result is asked
for stays apart. Asked for are those that leave the net's outputs as they are; what stays hidden
belongs to the layers that read it, which are one operation with it.

A net is read from its own dump, which names every layer with its parameters, whatever file it came
from; the weights are in the layers. Layers alone are an ONNX model of custom operators, which
OpenCV's importer makes into layers of the same types, with the parameters as they stand and
constant inputs as weights.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
from google.protobuf import text_format  # type: ignore[import-untyped]
from onnx import helper, numpy_helper

from probe.case.errors import InputError
from probe.order.semantics import Meaning, Same, Step, Steps, Unknown
from probe.order.semantics.contract import Call, by_table
from probe.record.contract import Input, Seen, Visit
from probe.record.recorders import graphs
from probe.record.recorders.graphs import Body, Fed, Graph, Held, Node, Runner
from probe.record.recorders.onnx_file import graph_inputs, model_lines, words_in
from probe.record.recorders.opencv_table import TABLE

# What OpenCV has in the place of dtypes that it lacks.
NARROW = {"int64": np.int32, "bool": np.uint8, "float64": np.float32}

# With 0 a custom operator is the layer of its name alone; OpenCV reads this once a process.
AS_TYPED = "OPENCV_DNN_CUSTOM_ONNX_TYPE_INCLUDE_DOMAIN_NAME"

DOMAIN = "opencv"
CONSTANT = "Const"
# Attributes of the dump that say where a layer runs.
NOT_ITS_OWN = ("Backend", "Target")


# Inputs of a Caffe model's text, and the layers that are inputs with what they give: Caffe has had
# both ways. Their shapes are left to the user.
INPUT = re.compile(r"""\binput\s*:\s*["']([^"']+)""")
INPUT_LAYER = re.compile(r"""layer\s*\{[^{}]*type\s*:\s*["']Input["'][^{}]*""")
TOP = re.compile(r"""top\s*:\s*["']([^"']+)""")


def declared(text: str) -> list[str]:
    """Returns the names of a prototxt's inputs, each once."""
    bare = re.sub(r"#.*", "", text)
    names = INPUT.findall(bare)
    names += [name for layer in INPUT_LAYER.findall(bare) for name in TOP.findall(layer)]
    return list(dict.fromkeys(names))


# a net as it is read


@dataclass(frozen=True)
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
        """Returns its weights by key; OpenCV keeps a vector as a matrix of one row or column."""
        return {
            (self.name, n): blob.reshape(-1) if blob.ndim == 2 and 1 in blob.shape else blob
            for n, blob in enumerate(self.blobs)
        }


@dataclass(frozen=True)
class Net:
    """``inputs``: names of values; ``layers``: in order; ``outputs``: the net's own."""

    inputs: tuple[str, ...]
    layers: tuple[OpenCVLayer, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Returns values that layers hold: no operation gives them."""
        held = (layer for layer in self.layers if layer.kind == CONSTANT and layer.blobs)
        return {layer.gives[0]: layer.blobs[0] for layer in held}

    @property
    def running(self) -> list[OpenCVLayer]:
        """Returns the layers that compute."""
        return [layer for layer in self.layers if layer.kind != CONSTANT]


def results_by_name(layers: Sequence[OpenCVLayer], own: bool = True) -> dict[str, tuple[str, int]]:
    """Returns the layer that gives each value, and which of its results that is; ``own``: by their
    own names, not those of ``built``."""
    return {
        value: (layer.name if own else f"onnx_node!L{n}", slot)
        for n, layer in enumerate(layers)
        for value, slot in zip(layer.gives, layer.slots, strict=True)
    }


def read_net(net: Any) -> Net:
    """Reads a net whose inputs are set. Raises cv2.error where OpenCV can't say its shapes.

    The dump leaves the layers out that are outputs, which are copies where the file names them; so
    the net gets a copy behind any other layer that is one. It has six decimals of a parameter: a
    layer that has more gives other bits alone, and so isn't run alone.
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
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info)
    }
    layers = list[OpenCVLayer]()
    for node in graph.node:
        words = {}
        for name, value in words_in(node).items():
            every = value if isinstance(value, list) else [value]
            if every and name not in NOT_ITS_OWN:
                words[name] = every[0] if len(every) == 1 else every
        slots = tuple(n for n, output in enumerate(node.output) if output in wanted or not n)
        ends = tuple(node.input), tuple(node.output[n] for n in slots), slots
        held = net.getLayer(net.getLayerId(node.name)).blobs
        blobs = tuple(np.array(blob) for blob in held if blob is not None)
        kind = node.op_type.rpartition("::")[2]
        layers.append(OpenCVLayer(node.name, kind, *ends, words, blobs))
    return Net(tuple(value.name for value in graph.input), tuple(layers), outputs, shapes)


def bare_name(value: str) -> str:
    """Returns a value's or layer's name without what only OpenCV's importer adds."""
    name = value.removeprefix("onnx_node!").removeprefix("onnx_node_output_0!")
    return name.removesuffix("_output0")


# layers as a net of their own


def _nodes(
    layers: Sequence[OpenCVLayer],
) -> list[tuple[str, list[str], list[str], str, Mapping[str, Any]]]:
    """(type, reads, gives, name, parameters) of every layer; all results up to the last one that is
    read have names."""
    nodes: list[tuple[str, list[str], list[str], str, Mapping[str, Any]]] = []
    count = 0
    for n, layer in enumerate(layers):
        weights = [f"w{count + k}" for k in range(len(layer.blobs))]
        count += len(layer.blobs)
        names = dict(zip(layer.slots, layer.gives, strict=True))
        slots = range(max(layer.slots, default=0) + 1)
        gives = [names.get(k, f"{layer.name}_unread{k}") for k in slots]
        nodes.append((layer.kind, [*layer.reads, *weights], gives, f"L{n}", layer.words))
    return nodes


def model(
    layers: Sequence[OpenCVLayer],
    fed: Fed,
    gives: Sequence[str],
    weights: Sequence[Any] = (),
    called: Mapping[Any, str] | None = None,
) -> Any:
    """Returns layers as a model of custom operators. ``fed``: values that they read from before;
    ``gives``: values that are wanted; ``weights``: of all layers, as OpenCV has them; ``called``:
    other names of values."""
    names = called or {}
    inputs = [
        helper.make_tensor_value_info(
            names.get(key, key), helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
        )
        for key, (shape, dtype) in fed.items()
    ]
    outputs = [
        helper.make_tensor_value_info(names.get(k, k), onnx.TensorProto.FLOAT, []) for k in gives
    ]
    nodes = [
        helper.make_node(
            *(kind, [names.get(k, k) for k in ins], [names.get(k, k) for k in outs]),
            name=name,
            domain=DOMAIN,
            **words,
        )
        for kind, ins, outs, name, words in _nodes(layers)
    ]
    held = [
        numpy_helper.from_array(np.ascontiguousarray(array), f"w{n}")
        for n, array in enumerate(weights)
    ]
    graph = helper.make_graph(nodes, "piece", inputs, outputs, held)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=domains)


def built(proto: Any, switches: Mapping[str, str]) -> Any:
    """Returns a model of layers as a net."""
    os.environ.setdefault(AS_TYPED, "0")
    net = cv2.dnn.readNetFromONNX(np.frombuffer(proto.SerializeToString(), np.uint8))
    if switches.get("winograd") == "0":
        net.enableWinograd(False)
    return net


def feed(net: Any, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        net.setInput(np.ascontiguousarray(array), name)


def forward(
    net: Any, arrays: Mapping[str, np.ndarray], wanted: Sequence[tuple[str, int]]
) -> list[np.ndarray]:
    """Runs a net, and returns results: layer by name, and which of its results. OpenCV makes new
    arrays of them; a further copy of every layer's would be the largest part of the memory."""
    feed(net, arrays)
    results = net.forwardAndRetrieve([layer for layer, _ in wanted])
    return [np.asarray(some[n]) for some, (_, n) in zip(results, wanted, strict=True)]


class Layers(Graph):
    """A net's layers, those in a group that run as one operation: ``own`` of a node are the layers.

    ``values``: names of what is known of a run; ``alike``: of those whose operations give the same
    bits alone; ``whole``: gives them, in one pass of the net.
    """

    IMPORTS = (
        *("import os", "import cv2", "import numpy as np"),
        "import onnx",
        "from onnx import numpy_helper, parser",
    )

    def __init__(
        self,
        net: Net,
        inputs: Mapping[str, np.ndarray],
        values: Sequence[str],
        switches: Mapping[str, str],
        alike: set[str],
        whole: Callable[[Sequence[str]], list[np.ndarray]],
    ) -> None:
        self.net, self.switches, self.alike = net, switches, alike
        self.asked, self.whole = values, whole
        constants: dict[Any, np.ndarray] = dict(net.constants)
        for layer in net.running:
            constants |= layer.weights
        nodes = self._grouped({*values, *inputs, *constants})
        super().__init__(Body(nodes, [*inputs], net.outputs, constants), inputs)
        self.known |= {name: (shape, "float32") for name, shape in net.shapes.items()}
        self.known |= {name: self.described(array) for name, array in inputs.items()}

    def _grouped(self, known: set[Any]) -> list[Node]:
        """Returns every operation: a layer whose results are known, with those in front of it whose
        results aren't."""
        by = {name: layer for layer in self.net.layers for name in layer.gives}
        nodes = []
        for layer in self.net.running:
            gives = [name for name in layer.gives if name in known]
            if not gives:
                continue
            inside, waiting = {layer.name: layer}, list(layer.reads)
            outer: list[str] = []
            while waiting:
                name = waiting.pop(0)
                if name in known:
                    outer.append(name)
                elif by[name].name not in inside:
                    inside[by[name].name] = by[name]
                    waiting += by[name].reads
            layers = [layer for layer in self.net.layers if layer.name in inside]
            reads = outer if len(layers) == 1 else [*dict.fromkeys(outer)]
            nodes.append(self._node(layers, reads, gives))
        return nodes

    def _node(
        self, layers: Sequence[OpenCVLayer], reads: Sequence[str], gives: Sequence[str]
    ) -> Node:
        """Returns layers as one operation, which reads values and then their weights."""
        slots = [*reads, *(key for layer in layers for key in layer.weights)]
        words = layers[0].words if len(layers) == 1 else {}
        op, able = "+".join(layer.kind for layer in layers), self.alike.issuperset(gives)
        path = bare_name(layers[-1].name)
        return Node(layers, op, slots, list(gives), words=words, path=path, able=able)

    def run(self, visit: Visit) -> list[Seen]:
        results = {**self.inputs, **dict(zip(self.asked, self.whole(self.asked), strict=True))}
        self.kept = [self.live(*both) for both in results.items()]
        for node in self.body.nodes:
            visit(self._event(node))
        return [self.seen(key) for key in self.body.outputs]

    def started(self, node: Node, fed: Fed, held: Held) -> Runner:
        numbers = {**self.constants, **held}
        inner = {key: numbers[key] for key in node.uses if key in self.net.constants}
        known = {**fed, **{key: self.described(array) for key, array in inner.items()}}
        weights = [
            numbers[layer.name, n].reshape(blob.shape)
            for layer in node.own
            for n, blob in enumerate(layer.blobs)
        ]
        wanted = results_by_name(node.own, own=False)

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            values = {**dict(zip(fed, arrays, strict=True)), **inner}
            with silent():
                return forward(net, values, [wanted[name] for name in node.gives])

        with silent():
            net = built(model(node.own, known, node.gives, weights), self.switches)
        return run

    def agrees(self, node: Node) -> bool:
        """Returns whether an operation alone gives what it gave in the net."""
        try:
            results = self.again(node, node.reads, [self.array(key) for key in node.reads])
        except cv2.error:
            return False
        both = zip(results, node.gives, strict=True)
        return all(result.tobytes() == self.array(key).tobytes() for result, key in both)

    def meaning(self, node: Node, call: Call) -> Meaning:
        if len(node.own) == 1:
            return self._of_layer(node, call)
        numbers = {key: n for n, key in enumerate(node.slots)}
        steps: list[Step] = []
        for layer in node.own:
            if len(layer.gives) > 1:
                return Unknown(f"{layer.kind} inside of a fused operation")
            part = self._node([layer], layer.reads, layer.gives)
            operands = [self.operand(key, at) for at, key in enumerate(part.slots)]
            shapes = [self.described_at(name)[0] for name in layer.gives]
            inner = replace(call, op=layer.kind, reads=operands, gives=shapes)
            reads = tuple(numbers[key] for key in part.slots)
            steps.append(Step(self._of_layer(part, inner), reads, shapes[0]))
            numbers[layer.gives[0]] = len(node.slots) + len(steps) - 1
        return Steps(tuple(steps), tuple(numbers[name] for name in node.gives))

    def _of_layer(self, node: Node, call: Call) -> Meaning:
        (layer,) = node.own
        if layer.kind == CONSTANT:
            return Same()
        if list(layer.gives) != list(node.gives):
            return Unknown("some of its results are not known")
        words = {**layer.words, "blobs": len(layer.blobs)}
        return by_table(TABLE, replace(call, attributes=words))

    def name(self, key: Any) -> str:
        return bare_name(key) if isinstance(key, str) else f"{bare_name(key[0])}.blobs[{key[1]}]"

    def lines(self, node: Node, own: Mapping[Any, str], out: str) -> list[str]:
        fed = {key: self.described_at(key) for key in own if isinstance(key, str)}
        inner = [k for _, ins, outs, _, _ in _nodes(node.own) for k in (*ins, *outs)]
        names = {key: f"v{n}" for n, key in enumerate(inner) if not re.fullmatch(r"w\d+", key)}
        blobs = [((each.name, n), blob) for each in node.own for n, blob in enumerate(each.blobs)]
        weights = [f"np.ascontiguousarray({own[k]}.reshape({blob.shape}))" for k, blob in blobs]
        proto = model(node.own, fed, node.gives, called=names)
        wanted = [results_by_name(node.own, own=False)[name] for name in node.gives]
        return [
            f'os.environ["{AS_TYPED}"] = "0"  # layers by their type alone',
            *model_lines(proto, [(f"w{n}", array) for n, array in enumerate(weights)]),
            "net = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))",
            *["net.enableWinograd(False)"] * (self.switches.get("winograd") == "0"),
            *(f"net.setInput({own[key]}, {names[key]!r})" for key in fed),
            f"results = net.forwardAndRetrieve({[layer for layer, _ in wanted]})",
            *(f"{out}{n or ''} = results[{n}][{slot}]" for n, (_, slot) in enumerate(wanted)),
        ]


# what is watched


def opened(
    path: str | os.PathLike[str], trust: bool = False, switches: Mapping[str, str] | None = None
) -> OpenedNet:
    """Opens an ``.onnx`` file, or a Caffe model: its text and its weights, two files of one name,
    one of them given. InputError where OpenCV can't read it.

    ``switches``: of the target, ``winograd`` and ``threads``.
    """
    file, words = Path(path), dict(switches or {})
    if file.suffix.lower() != ".onnx":
        return caffe(*_two_files(file), words)
    content = graphs.content(file)

    def net() -> Any:
        read = cv2.dnn.readNetFromONNX
        return _asking_cv2(file.name, lambda: read(np.frombuffer(content, np.uint8)))

    graph = graphs.read(file.name, lambda: onnx.load_from_string(content).graph)
    return OpenedNet(net, graph_inputs(graph), words)


def caffe(text: str, weights: bytes = b"", switches: Mapping[str, str] | None = None) -> OpenedNet:
    """Opens a Caffe model: ``text`` its prototxt, ``weights`` the bytes of its caffemodel."""
    inputs = tuple(Input(name, (), "") for name in declared(text))
    halves = [np.frombuffer(half, np.uint8) for half in (text.encode(), weights) if half]
    read = partial(_asking_cv2, "prototxt", lambda: cv2.dnn.readNetFromCaffe(*halves))
    return OpenedNet(read, inputs, dict(switches or {}))


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


def _asking_cv2(name: str, call: Callable[[], Any]) -> Any:
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


@dataclass(frozen=True)
class OpenedNet:
    """A model that OpenCV reads. ``net``: gives it anew."""

    net: Callable[[], Any]
    inputs: tuple[Input, ...]
    switches: Mapping[str, str]

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> OpenCVRecorder:
        names = [wanted.name for wanted in self.inputs]
        for name in {*names} ^ {*arrays}:
            raise InputError("inputs", name, f"the model's are {', '.join(names)}", "name these")
        narrow = {
            name: array.astype(NARROW.get(array.dtype.name, array.dtype))
            for name, array in arrays.items()
        }
        return OpenCVRecorder(self, narrow, self.switches)


class OpenCVRecorder(graphs.GraphRecorder):
    """A net with its inputs; ``note``: layers that are one operation with those that read them."""

    LIBRARY = "opencv"
    graph: Layers | None

    def __init__(
        self,
        opened: OpenedNet,
        arrays: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(opened, arrays, switches)
        self.opened = opened
        self.alike: set[str] = set()
        self.ready: tuple[tuple[str, ...], Any] = ((), None)
        self.read = self._known()

    def plain(self) -> list[np.ndarray]:
        wanted = results_by_name(self.read.layers)
        names = [wanted[name] for name in self.read.outputs]
        return self._forward(self._fresh(), self.inputs, names)

    def record(self, visit: Visit) -> list[Seen]:
        if self.graph is None:
            self.graph = self.cut()
            shown = {id(node.own[-1]) for node in self.graph.body.nodes}
            hidden = [layer for layer in self.read.running if id(layer) not in shown]
            if hidden:
                names = ", ".join(bare_name(layer.name) for layer in hidden)
                self.note = f"fused with the layer behind: {names}; apart, the outputs would change"
        return self.graph.run(visit)

    def cut(self) -> Layers:
        """Returns the layers whose results can be asked for."""
        return self._layers(tuple(dict.fromkeys((*self._unchanged(), *self.read.outputs))))

    def _layers(self, values: Sequence[str]) -> Layers:
        return Layers(self.read, self.inputs, values, self.switches, self.alike, self._outputs)

    def _fresh(self) -> Any:
        net = self.opened.net()
        if "threads" in self.switches:
            cv2.setNumThreads(int(self.switches["threads"]))
        if self.switches.get("winograd") == "0":
            net.enableWinograd(False)
        return net

    def _known(self) -> Net:
        net = self._fresh()
        self._called(lambda: feed(net, self.inputs))
        read: Net = self._called(lambda: read_net(net))
        if {*read.inputs} != {*self.inputs}:
            why = f"the net's are {', '.join(read.inputs)}"
            raise InputError("inputs", ", ".join(self.inputs), why, "name these")
        return read

    def _called(self, call: Callable[[], Any]) -> Any:
        try:
            with silent():
                return call()
        except cv2.error as error:
            todo = "give the model's own shapes, or use a different library"
            raise graphs.refused("OpenCV", self.inputs, error.err or error, todo) from None

    def _outputs(self, values: Sequence[str]) -> list[np.ndarray]:
        """Returns the values of these names, in one pass."""
        if self.ready[0] != tuple(values):  # a net keeps what it fused for others
            self.ready = tuple(values), self._fresh()
        wanted = results_by_name(self.read.layers)
        return self._forward(self.ready[1], self.inputs, [wanted[name] for name in values])

    def _forward(
        self, net: Any, arrays: Mapping[str, np.ndarray], wanted: Sequence[tuple[str, int]]
    ) -> list[np.ndarray]:
        return self._called(lambda: forward(net, arrays, wanted))  # type: ignore[no-any-return]

    def _unchanged(self) -> list[str]:
        """Returns the results that can be asked for together and leave the outputs as they are."""
        wanted = [output.tobytes() for output in self.plain()]
        outputs, chosen = self.read.outputs, list[str]()

        def take(names: list[str]) -> None:
            together = (*chosen, *names)
            results = self._outputs((*together, *outputs))[len(together) :]
            if [output.tobytes() for output in results] == wanted:
                chosen.extend(names)
            elif len(names) > 1:
                take(names[: len(names) // 2])
                take(names[len(names) // 2 :])

        every = [name for layer in self.read.running for name in layer.gives if name not in outputs]
        if every:
            take(every)
        return self._written([name for name in every if name in chosen])

    def _written(self, names: list[str]) -> list[str]:
        """Returns those of the results that their layers, run alone, give too.

        OpenCV returns memory that was never written for a layer that it fused into one before it.
        Layers whose parameters the dump rounds are kept where they are wrong by themselves alone.
        """
        every = list(dict.fromkeys((*names, *self.read.outputs)))
        values, graph = dict(zip(every, self._outputs(every), strict=True)), None
        for name in every:
            if graph is None:  # where a result is left out, operations are others
                graph = self._layers([*values])
                graph.kept = [graph.live(*both) for both in (self.inputs | values).items()]
                by = {key: node for node in graph.body.nodes for key in node.gives}
            if graph.agrees(by[name]):
                self.alike.add(name)
            elif name not in self.read.outputs:
                del values[name]
                graph = None
        return [name for name in names if name in values]

"""OpenCV's cv2.dnn, watched layer by layer: nets of any file that it reads.

A net is read from its own dump, which names every layer with its parameters, whatever file it came
from; the weights are in the layers. Layers alone are an ONNX model of custom operators, which
OpenCV's importer makes into layers of the same types, with the parameters as they stand and
constant inputs as weights.

OpenCV fuses layers: it folds a BatchNorm into its convolution, say. Where layers that run one by
one give other outputs than the net, each product runs with what is folded into it, or with all
that is computed behind it; where these do too, the net is one operation. So is one with a
parameter of more than the six decimals that the dump has.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
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
from probe.order import semantics as s
from probe.order.semantics import Meaning, Unknown
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call
from probe.record.contract import Input
from probe.record.recorders import graphs
from probe.record.recorders.graphs import Body, Fed, Graph, Held, Node, Runner
from probe.record.recorders.onnx_file import graph_inputs, model_lines, words_in

# What layers compute that are sums of products, (batch, channels, *spatial). The types are OpenCV's
# own, whatever file a net came from, the names of parameters those of its dump. A parameter
# ``blobs`` counts a layer's own weights.
TABLE = s.OperationTable()

# What OpenCV has in the place of dtypes that it lacks.
NARROW = {"int64": np.int32, "bool": np.uint8, "float64": np.float32}

# With 0 a custom operator is the layer of its name alone; OpenCV reads this once a process.
AS_TYPED = "OPENCV_DNN_CUSTOM_ONNX_TYPE_INCLUDE_DOMAIN_NAME"

DOMAIN = "opencv"
CONSTANT = "Const"
# Layers with which OpenCV runs what stands behind them; of these it folds some into the weights.
FOLDED = ("BatchNorm", "Scale")
FUSING = ("Convolution", "Deconvolution", "InnerProduct", "MatMul", "Gemm")
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
    """Returns a value's or layer's name without what only OpenCV's importer adds."""
    name = value.removeprefix("onnx_node!").removeprefix("onnx_node_output_0!")
    return name.removesuffix("_output0")


def fused(layers: Sequence[OpenCVLayer], behind: Container[str]) -> list[list[OpenCVLayer]]:
    """Returns layers in groups, in an order in which they can run: each of ``FUSING`` with the
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


# layers as a net of their own


def model(
    layers: Sequence[OpenCVLayer],
    fed: Fed,
    gives: Sequence[str],
    weights: Sequence[Any] = (),
    called: Mapping[Any, str] | None = None,
) -> Any:
    """Returns layers, named L0, L1 and so on, as a model of custom operators. ``fed``: values that
    they read from before; ``gives``: values that are wanted; ``weights``: of all layers, as OpenCV
    has them, named w0, w1 and so on; ``called``: other names of values."""
    called = called or {}

    def named(key: str) -> str:
        return called.get(key, key)

    nodes, count = [], 0
    for n, layer in enumerate(layers):
        reads = [*map(named, layer.reads), *(f"w{count + k}" for k in range(len(layer.blobs)))]
        count += len(layer.blobs)
        # all results up to the last one that is read have names
        results = dict(zip(layer.slots, map(named, layer.gives), strict=True))
        slots = range(max(layer.slots, default=0) + 1)
        ends = reads, [results.get(k, f"L{n}_unread{k}") for k in slots]
        own = {"name": f"L{n}", "domain": DOMAIN, **layer.words}
        nodes.append(helper.make_node(layer.kind, *ends, **own))
    info = helper.make_tensor_value_info
    inputs = [
        info(named(key), helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for key, (shape, dtype) in fed.items()
    ]
    outputs = [info(named(key), onnx.TensorProto.FLOAT, []) for key in gives]
    plain = map(np.ascontiguousarray, weights)
    held = [numpy_helper.from_array(array, f"w{n}") for n, array in enumerate(plain)]
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


def results_of(
    layers: Sequence[OpenCVLayer], gives: Sequence[str], alone: bool = True
) -> list[tuple[str, int]]:
    """Returns the layer that gives each of these values, and which of its results that is;
    ``alone``: by the names of ``model``."""
    each = {
        value: (f"onnx_node!L{n}" if alone else layer.name, slot)
        for n, layer in enumerate(layers)
        for value, slot in zip(layer.gives, layer.slots, strict=True)
    }
    return [each[value] for value in gives]


def forward(
    net: Any, arrays: Mapping[str, np.ndarray], wanted: Sequence[tuple[str, int]]
) -> list[np.ndarray]:
    """Runs a net, and returns results, as of ``results_of``: new arrays."""
    for name, array in arrays.items():
        net.setInput(np.ascontiguousarray(array), name)
    results = net.forwardAndRetrieve([layer for layer, _ in wanted])
    return [np.asarray(some[n]) for some, (_, n) in zip(results, wanted, strict=True)]


class Layers(Graph):
    """A net's layers in groups, each of which runs as one operation: ``own`` of a node."""

    IMPORTS = (
        *("import os", "import cv2", "import numpy as np"),
        "import onnx",
        "from onnx import numpy_helper, parser",
    )

    def __init__(
        self,
        net: Net,
        groups: Sequence[Sequence[OpenCVLayer]],
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str],
    ) -> None:
        self.net, self.switches = net, switches
        constants: dict[Any, np.ndarray] = dict(net.constants)
        for layer in net.layers:
            constants |= layer.weights
        nodes = [self._node(layers) for layers in groups]
        super().__init__(Body(nodes, [*inputs], net.outputs, constants), inputs)

    def _node(self, layers: Sequence[OpenCVLayer]) -> Node:
        """Returns layers as one operation, which reads values and then their weights."""
        inside = {name for layer in layers for name in layer.gives}
        others = [layer for layer in self.net.layers if layer not in layers]
        read = {*self.net.outputs, *(name for layer in others for name in layer.reads)}
        gives = [name for layer in layers for name in layer.gives if name in read]
        reads = [name for layer in layers for name in layer.reads if name not in inside]
        slots = [*reads, *(key for layer in layers for key in layer.weights)]
        words = layers[0].words if len(layers) == 1 else {}
        op, path = "+".join(layer.kind for layer in layers), bare_name(layers[-1].name)
        return Node(layers, op, slots, gives or [*layers[-1].gives], words=words, path=path)

    def started(self, node: Node, fed: Fed, held: Held) -> Runner:
        numbers = {**self.constants, **held}
        inner = {key: numbers[key] for key in node.uses if key in self.net.constants}
        known = {**fed, **{key: self.described(array) for key, array in inner.items()}}
        weights = [
            numbers[layer.name, n].reshape(blob.shape)
            for layer in node.own
            for n, blob in enumerate(layer.blobs)
        ]
        wanted = results_of(node.own, node.gives)

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            with silent():
                return forward(net, dict(zip(fed, arrays, strict=True)) | inner, wanted)

        with silent():
            net = built(model(node.own, known, node.gives, weights), self.switches)
        return run

    def meaning(self, node: Node, call: Call) -> Meaning:
        if len(node.own) > 1:
            return Unknown("OpenCV fuses its layers")
        words = {**call.attributes, "blobs": len(node.own[0].blobs)}
        return s.by_table(TABLE, replace(call, attributes=words))

    def name(self, key: Any) -> str:
        return bare_name(key) if isinstance(key, str) else f"{bare_name(key[0])}.blobs[{key[1]}]"

    def lines(self, node: Node, own: Mapping[Any, str], out: str) -> list[str]:
        fed = {key: self.described_at(key) for key in own if isinstance(key, str)}
        inner = [name for layer in node.own for name in (*layer.reads, *layer.gives)]
        names = {key: f"v{n}" for n, key in enumerate(inner)}
        blobs = [((each.name, n), blob) for each in node.own for n, blob in enumerate(each.blobs)]
        weights = [f"np.ascontiguousarray({own[k]}.reshape({blob.shape}))" for k, blob in blobs]
        proto = model(node.own, fed, node.gives, called=names)
        wanted = results_of(node.own, node.gives)
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
    read = partial(cv2.dnn.readNetFromONNX, np.frombuffer(content, np.uint8))
    graph = graphs.read(file.name, lambda: onnx.load_from_string(content).graph)
    return OpenedNet(file.name, read, graph_inputs(graph), words)


def caffe(text: str, weights: bytes = b"", switches: Mapping[str, str] | None = None) -> OpenedNet:
    """Opens a Caffe model: ``text`` its prototxt, ``weights`` the bytes of its caffemodel."""
    inputs = tuple(Input(name, (), "") for name in declared(text))
    halves = [np.frombuffer(half, np.uint8) for half in (text.encode(), weights) if half]
    read = partial(cv2.dnn.readNetFromCaffe, *halves)
    return OpenedNet("prototxt", read, inputs, dict(switches or {}))


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
    """A model that OpenCV reads, of a file of this name. ``read``: gives the net anew."""

    name: str
    read: Callable[[], Any]
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

    def net(self, switches: Mapping[str, str]) -> Any:
        """Reads the net. What OpenCV refuses is one line, with the layer that it names."""
        try:
            with silent():
                net = self.read()
        except cv2.error as error:
            why = " ".join(str(error.err or error).split())[:240]
            todo = "OpenCV does not read every model: run it with the library that its file is of"
            raise InputError("model", self.name, f"OpenCV refuses it: {why}", todo) from None
        if "threads" in switches:
            cv2.setNumThreads(int(switches["threads"]))
        if switches.get("winograd") == "0":
            net.enableWinograd(False)
        return net


class OpenCVRecorder(graphs.GraphRecorder):
    """A net with its inputs; ``note``: whether layers are fused."""

    LIBRARY = "opencv"

    def __init__(
        self,
        opened: OpenedNet,
        arrays: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(opened, arrays, switches)
        net = opened.net(self.switches)
        with self._refusing():
            for name, array in self.inputs.items():
                net.setInput(np.ascontiguousarray(array), name)
            self.net = read_net(net)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """InputError where OpenCV refuses the inputs."""
        try:
            with silent():
                yield
        except cv2.error as error:
            todo = "give the model's own shapes, or use a different library"
            raise graphs.refused("OpenCV", self.inputs, error.err or error, todo) from None

    def plain(self) -> list[np.ndarray]:
        net = self.model.net(self.switches)
        with self._refusing():
            return forward(net, self.inputs, results_of(self.net.layers, self.net.outputs, False))

    def cuts(self) -> Iterator[Layers]:
        layers = self.net.layers
        single = {layer.kind for layer in layers if len(layer.reads) == 1} - {*FUSING}
        for behind in ((), FOLDED, single):
            self.note = "layers that OpenCV fuses are one operation" if behind else ""
            yield Layers(self.net, fused(layers, behind), self.inputs, self.switches)


# what layers compute


def _window(c: Call) -> s.Frame:
    """A window as one list of numbers each, as ONNX files have it, or a name an axis, as Caffe's.
    ValueError: another way of padding."""
    axes, rank = "dhw"[5 - c.rank() :], c.rank() - 2

    def sizes(name: str, listed: str, otherwise: int) -> tuple[int, ...]:
        numbers = np.ravel(c.get(listed, [])).astype(int).tolist()
        numbers = numbers or [int(c.get(f"{name}_{axis}", otherwise)) for axis in axes]
        return tuple(numbers * rank if len(numbers) == 1 else numbers)

    kernel, stride = sizes("kernel", "kernel_size", 1), sizes("stride", "stride", 1)
    dilation, mode, pads = (
        sizes("dilation", "dilation", 1),
        c.get("pad_mode"),
        sizes("pad", "pad", 0),
    )
    if mode == "SAME":
        padding = o.same_padding(c.shape()[2:], c.gives[0][2:], kernel, stride, dilation)
    elif mode or c.get("pad_t"):
        raise ValueError(mode)
    else:
        padding = tuple(zip(pads[:rank], pads[-rank:], strict=True))
    return s.Frame(kernel, stride, dilation, padding)


@TABLE.row("Convolution")
def _dnn_conv(c: Call) -> s.Meaning:
    axes, frame = tuple(range(2, c.rank())), _window(c)
    if frame.kernel != c.shape(1)[2:]:
        return Unknown("a convolution whose weights have other axes than its input")
    groups = int(c.get("group", 1))
    return o.convolution(frame, (*axes, 1, 0), groups, reads=range(min(c.count, 3)))


@TABLE.row("Pooling")
def _dnn_pool(c: Call) -> s.Meaning:
    kind = {"MAX": "max", "AVE": "average"}.get(str(c.get("pool", "MAX")).upper())
    if kind is None or len(c.gives) > 1:
        return Unknown("pooling of another kind, or with indices")
    if c.get("global_pooling"):
        return o.reduced("mean" if kind == "average" else "max", range(2, c.rank()))
    return o.pool(kind, _window(c), counts_padding=bool(c.get("ave_pool_padded_area", True)))


@TABLE.row("InnerProduct MatMul Gemm")
def _dnn_product(c: Call) -> s.Meaning:
    """The last axis times weights (filters, inputs), or a product of matrices."""
    if c.op == "InnerProduct" and c["blobs"] and not c.get("transA"):
        last = int(c.get("axis", 1)) % c.rank() == c.rank() - 1 and not c.get("transpose")
        bias = 2 if c.count > 2 else None
        return o.dense(bias=bias) if last else Unknown("the product of several axes")
    if c.op == "Gemm" and c.get("flatten_a") and c.rank() != 2:
        return Unknown("its first input is flattened")
    first, second = (bool(c.get(f"trans{x}") or c.get(f"trans_{x.lower()}")) for x in "AB")
    product = o.matmul((c.rank(0), c.rank(1)), (first, second), (c.at(0), c.at(1)))
    return o.gemm(c, product, 2, float(c.get("alpha", 1.0)), float(c.get("beta", 1.0)))


@TABLE.row("NaryEltwise Eltwise")
def _eltwise(c: Call) -> s.Meaning:
    """Sums and the like; of several sizes in Caffe's way, which doesn't broadcast as NumPy does,
    nothing is said."""
    word = str(c.get("operation", "SUM")).lower()
    means = s.by_name({"sum": "add", "prod": "multiply"}.get(word, word))
    alike = len({c.shape(n) for n in range(c.count)}) == 1 and not c.get("coeff")
    if not isinstance(means, s.Each) or not (alike or c.op == "NaryEltwise"):
        return Unknown(f"{c.op} of {word}, or of several sizes")
    return o.several(means.word, c.count)


TABLE |= {
    "ReLU": lambda c: o.function("leaky_relu" if c.get("negative_slope") else "relu"),
    **s.rows_for("PReLU ChannelsPReLU", lambda c: s.Each("prelu", along=1)),
    **s.rows_for("Reshape Flatten", lambda c: s.Reshapes()),
    **s.rows_for("Identity Dropout", lambda c: s.Same()),
    "Arg": lambda c: s.Moves(),
    "Permute": lambda c: o.transpose(c["order"]),
}

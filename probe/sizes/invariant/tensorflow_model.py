"""Runs every operation of a Keras model, on TensorFlow, in its class of sizes.

Each operation is in its class, known to be exact, or left.

They are checked and run by the same calls. Tensors begin at whole multiples of 64 bytes (TensorFlow
copies what doesn't), so that the place in memory is no question here.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache, reduce
from itertools import compress
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import Foreign, InputError, ProbeError, foreign
from probe.record.graphs import Body, Interpreter
from probe.record.tensorflow_values import (
    BRANCHES,
    CALLS,
    HANDED_ON,
    LOOPS,
    READS,
    SHAPES,
    FunctionNode,
    RanOperation,
    array,
    by_xla,
    is_unread,
    run_flow,
    run_op,
    structure,
    tensor_of,
    traced_graph,
)
from probe.sizes.invariant import operations
from probe.sizes.invariant.classes import InvariantOptions, Plan, Table, conditions
from probe.sizes.invariant.keeper import LEFT, Keeper, ReadyOperation, Report
from probe.sizes.invariant.operations import (
    NOT_ROUNDED_ONCE,
    ROWS,
    AskedCall,
    IndependentRows,
    OperationKind,
    Tensors,
    cancelling_products,
    convolved_operands,
    operation_kind,
    samples_apart,
    spread_numbers,
)
from probe.sizes.invariant.samples import Company, EndedCall, Value
from probe.targets.unchanged import unchanged

FORMATS = {
    tf.float32: "float32",
    tf.float64: "float64",
    tf.float16: "float16",
    tf.bfloat16: "bfloat16",
}


def threads() -> int:
    """As ``keeper.Library.threads``: they are fixed where TensorFlow runs its first operation."""
    return tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))


def switches() -> dict[str, Any]:
    """As of ``keeper.Library``."""
    return {
        "library": "tensorflow",
        "version": str(tf.__version__),
        "keras": str(keras.__version__),
        "deterministic": bool(config.is_op_determinism_enabled()),
    }


def settings() -> tuple[Any, ...]:
    """As ``keeper.Library.settings``: the others are read where TensorFlow starts."""
    return (config.is_op_determinism_enabled(),)


def changed(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    return "" if before == now else f"deterministic={now[0]}"


def container(y: Any) -> tuple[np.ndarray, str]:
    """A tensor's bits as a container array, and the name of its format."""
    return array(y), FORMATS[y.dtype]


def tensor(values: np.ndarray, dtype: Any) -> Any:
    """float64 values rounded to a tensor's format."""
    return tensor_of(floats.round_to(np.asarray(values, np.float64), FORMATS[dtype]), dtype)


_constant_shape = lru_cache(1024)(lambda shape: tf.constant(shape, tf.int32))


def reshaped(x: Any, shape: Iterable[int]) -> Any:
    """The same numbers in a shape; quicker than ``tf.reshape``."""
    given, shape = tuple(x.shape), tuple(shape)
    if given == shape:
        return x
    words = ("T", x.dtype, "Tshape", tf.int32)
    return run_op("Reshape", (x, _constant_shape(shape)), words, 1)[0]


def repeated(sample: Tensors, size: int) -> Tensors:
    return tuple(tf.broadcast_to(x, (size, *x.shape)) for x in sample)


TOOLS = operations.Tools(
    FORMATS, tensor, repeated, lambda x, at: tf.gather(x, at.astype(np.int32)), container
)


class TensorFlowTestedRows(operations.TestedRows):
    tools = TOOLS


class TensorFlowSamples(operations.IndependentSamples, TensorFlowTestedRows):
    """TensorFlow's operations whose samples are computed each by itself."""


class MatrixProduct(TensorFlowTestedRows):
    """Rows times a matrix: w (channels, filters), or (filters, channels) if it is ``turned``."""

    def __init__(self, channels: int, filters: int, dtype: Any, turned: bool) -> None:
        super().__init__(f"matmul {channels} -> {filters}{' turned' * turned} {FORMATS[dtype]}")
        self.channels, self.filters, self.dtype, self.turned = channels, filters, dtype, turned
        self._words = ("transpose_a", False, "transpose_b", turned, "T", dtype)

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        x, w, _ = cancelling_products(
            number, self.channels, self.filters, FORMATS[self.dtype], number == 1
        )
        return (tensor(x, self.dtype),), (tensor(w.T if self.turned else w, self.dtype),)

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        return run_op("MatMul", (samples[0], parameters[0]), self._words, 1)[0]

    def case(self) -> Case | None:
        if self.turned:
            return None
        dtype = FORMATS[self.dtype]
        return Case("dense", in_channels=self.channels, filters=self.filters, dtype=dtype)


class TensorFlowConvolution(TensorFlowTestedRows):
    """A convolution of one spatial size, channels last: samples are those of the batch.

    ``op``: TensorFlow's name of it; ``words``: its attributes. ``sizes``: of one transposed sample.
    """

    pieces = (64, 32, 128, 16)

    def __init__(
        self,
        op: str,
        shape: tuple[int, ...],
        weights: tuple[int, ...],
        dtype: Any,
        attributes: Sequence[Any],
        sizes: tuple[int, ...] = (),
    ) -> None:
        words: Mapping[str, Any] = dict(zip(attributes[::2], attributes[1::2], strict=True))
        said = " ".join(f"{name}={plainly(words[name])}" for name in NAMED if words.get(name))
        text = "x".join(map(str, shape)), "x".join(map(str, weights))
        to = f" to {'x'.join(map(str, sizes))}" * bool(sizes)
        super().__init__(f"{op} of {text[0]} by {text[1]}{to} {said} {FORMATS[dtype]}")
        self.op, self.shape, self.weights, self.dtype = op, shape, weights, dtype
        self.attributes, self.words, self.sizes = attributes, words, sizes

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        *kernel, channels, filters = self.weights
        if self.sizes:  # a transposed one has them the other way round
            channels, filters = filters, channels
        elif "Depthwise" in self.op:
            channels, filters = 1, channels * filters
        leaves = math.prod(kernel) * channels
        x, w, _ = convolved_operands(number, self.shape, leaves, filters, FORMATS[self.dtype])
        if self.sizes:
            w = w.reshape(*kernel, channels, filters).swapaxes(-1, -2)
        return (tensor(x, self.dtype),), (tensor(w.reshape(self.weights), self.dtype),)

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        (x,), (w,) = samples, parameters
        # of a transposed one TensorFlow is told the sizes of what comes out, the batch too
        given = (tf.constant((len(x), *self.sizes)), w, x) if self.sizes else (x, w)
        return run_op(self.op, given, self.attributes, 1)[0]

    def case(self) -> Case | None:
        """As ``IndependentRows.case``: of those that keep to the words of ``Case``."""
        rank, padding = len(self.shape) - 1, plainly(self.words.get("padding"))
        if self.op != "Conv2D" or padding not in ("SAME", "VALID"):
            return None
        return Case(
            f"conv{rank}d",
            "x".join(map(str, self.weights[:rank])),
            self.shape[-1],
            self.weights[-1],
            stride=tuple(self.words["strides"][1:-1]),
            dilation=tuple(self.words.get("dilations", (1,) * (rank + 2))[1:-1]),
            groups=self.shape[-1] // self.weights[-2],
            padding=padding.lower(),
            height=self.shape[0],
            length=self.shape[1],
            dtype=FORMATS[self.dtype],
        )


# The attributes that are part of a convolution's name.
NAMED = ("strides", "dilations", "padding", "explicit_paddings")


class TensorFlowByPlace(operations.ByPlace):
    tools, tried = TOOLS, 1_531
    pieces = (1 << 24,)


class Softmax(TensorFlowSamples):
    """A softmax of rows, whose exponentials are computed in vectors and tails too.

    The numbers of a row are those whose exponentials show the difference, below the largest; there
    are many, since the division hides some of it.
    """

    sets = 24

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        (width,) = self.shapes[0]
        values = _exponents(self.dtype)
        row = np.resize(np.roll(values, 7 * number), width)
        # the largest, which a softmax subtracts from all
        row[number % width] = 0
        return (tensor(row, self.dtype),), ()


@cache
def _exponents(dtype: Any) -> np.ndarray:
    """Negative numbers, those first whose exponential one element alone sees differently."""
    (values,) = TensorFlowByPlace("Exp", dtype, tf.exp).values()
    below = values[values < -0.01]
    return -np.arange(1, 20) / 7 if len(below) < 2 else below


def plainly(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def runner(operation: Any, plan: Plan, samples: Tensors, parameters: Tensors) -> Any:
    """As ``keeper.Library.runner``."""
    if len(plan) == 1 and plan[0].places == plan[0].size:
        return operation.call(samples, parameters)
    answers = []
    for start, count, size in plan:
        part = tuple(
            # no sample is odd: copies of the first stand behind the others
            tf.gather(x, _padded_places(start, count, size))
            if count < size
            else _samples_from(x, start, count)
            for x in samples
        )
        y = operation.call(part, parameters)
        answers.append(y if count == size else _samples_from(y, 0, count))
    return answers[0] if len(plan) == 1 else tf.concat(answers, 0)


@lru_cache(4096)
def _padded_places(start: int, count: int, size: int) -> Any:
    return tf.constant([*range(start, start + count), *[start] * (size - count)], tf.int32)


def _samples_from(x: Any, start: int, count: int) -> Any:
    return tf.strided_slice(x, [start], [start + count], [1])


INSIDE = "the batch is not along its first axis: its shape, and so its class, depends on the batch"


Handler = Callable[[list[Any]], list[Any]]


@dataclass(eq=False)
class PlannedNode(FunctionNode):
    """A node, and what runs it."""

    handler: Handler | None = None


class TensorFlowOperations(Interpreter):
    """One model's operations, by the nodes that call them: runs functions eagerly, node by node.

    Inside a graph Grappler and oneDNN's rewrites fuse operations, and sizes are unknown where it is
    made. Run one by one, each operation is the library's own, at sizes that are known.
    ``follows``: for each input of a node, whether it depends on the inputs of the model.
    """

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.operations: dict[Any, ReadyOperation] = {}
        self.samples = 1
        self._first: dict[int, tuple[Any, ...]] = {}
        self._graphs: dict[str, Body] = {}
        self._plans: dict[tuple[str, tuple[bool, ...]], Body] = {}
        self.handlers: dict[str, Callable[[FunctionNode, tuple[bool, ...]], Handler | None]] = {
            "MatMul": self._matmul,
            **dict.fromkeys((*CONVOLUTIONS, *TRANSPOSED), self._convolution),
            **dict.fromkeys(NORMALISED, self._normalised),
            **dict.fromkeys(CALLS, lambda node, follows: None),  # what XLA compiles is one program
            **dict.fromkeys(SOFTMAX, self._softmax),
        }

    def handler(self, node: FunctionNode, follows: tuple[bool, ...]) -> Handler:
        """What runs a node."""
        handed_on = node.op in (*HANDED_ON, *READS, *SHAPES) or node.op.startswith("TensorList")
        if handed_on or not len(node.gives) or not any(follows):
            return once(node)
        if node.op in self.handlers:
            run, as_it_is = self.handlers[node.op](node, follows), once(node)
            if run is None:
                return self._plain(node)
            return lambda read: as_it_is(read) if _nothing_in(read) else run(read)
        # by what the node computes, when it first has samples: of none the labels say nothing
        chosen: list[Handler] = []

        def handler(read: list[Any]) -> list[Any]:
            if not chosen and _nothing_in(compress(read, follows)):
                return once(node)(read)
            if not chosen:
                chosen.append(self._chosen(node, follows, read))
            return chosen[0](read)

        return handler

    def _chosen(self, node: FunctionNode, follows: tuple[bool, ...], read: list[Any]) -> Handler:
        outputs = once(node)(read)
        which = _node_kind(node, read, outputs)
        left = self._plain(node)
        of_samples = [x.dtype for x, along in zip(read, follows, strict=True) if along]
        # what is computed of integers is exact; to 16 bits a cast rounds twice, each time by IEEE
        if node.op == CONVERTED or not all(dtype in FORMATS for dtype in of_samples):
            exact = node.op == CONVERTED or which in (OperationKind.EXACT, OperationKind.EITHER)
            return once(node) if exact else left
        if which is OperationKind.EITHER and node.op in (*EITHER_ZERO, *SUBNORMAL):
            return self._element(node, follows)
        if which in (OperationKind.EXACT, OperationKind.EITHER):
            return once(node)
        if len(outputs) != 1 or outputs[0].dtype not in FORMATS:
            return left
        if which is OperationKind.PLACE:
            return left if follows.count(True) > 1 else self._element(node, follows)
        return self._along(node, follows) if self._apart(node, follows, read) else left

    def _apart(self, node: FunctionNode, follows: tuple[bool, ...], read: list[Any]) -> bool:
        """Whether a node works on each sample by itself."""
        both = list(zip(read, follows, strict=True))
        if any(along and not x.shape.rank for x, along in both):
            return False
        two = [tf.concat([x[:1]] * 2, 0) if along else x for x, along in both]
        try:
            outputs = once(node)(two)
            call = _asked_node(node, two, outputs)
            carries = [follows[n] for n in _arrays_read(node, two)]
            return call is not None and samples_apart(call, carries)
        except tf.errors.OpError:  # sizes among its attributes or operands are those of the batch
            return False

    def _plain(self, node: FunctionNode) -> Handler:
        """Runs a node as it is, and reports it if there are floating-point numbers in it."""
        as_it_is = once(node)

        def handler(read: list[Any]) -> list[Any]:
            outputs = as_it_is(read)
            floating = any(x.dtype.is_floating or x.dtype.is_complex for x in (*read, *outputs))
            # of no samples there are no bits to keep
            if floating and not all(0 in y.shape for y in outputs):
                shapes = ", ".join("x".join(map(str, x.shape)) for x in read)
                self.keeper.leave(f"{node.op} of {shapes}", LEFT, f"{node.op} {node.path}")
            return outputs

        return handler

    def __call__(self, name: str, inputs: Sequence[Any], follows: tuple[bool, ...]) -> list[Any]:
        """Runs a function by its name; the first of ``inputs`` has a sample a row."""
        self.samples = max(1, int(inputs[0].shape[0]))
        return self.walk(self._planned(name, follows), inputs)

    def run_node(self, node: PlannedNode, read: list[Any], inside: Any) -> list[Any]:
        assert node.handler is not None
        return node.handler(read)

    def _planned(self, name: str, follows: tuple[bool, ...]) -> Body:
        """The nodes of a function, each with what runs it."""
        if (name, follows) in self._plans:
            return self._plans[name, follows]
        graph = traced_graph(name, self._graphs)
        depends = {path for (path, _), along in zip(graph.inputs, follows, strict=True) if along}
        nodes = []
        for node in graph.nodes:
            flags = tuple(path in depends for path, _ in node.slots)
            if any(flags):
                depends.add(node.path)
            handler = self._handler(node, flags)
            own = {field.name: getattr(node, field.name) for field in fields(node)}
            nodes.append(PlannedNode(**own, handler=handler))
        self._plans[name, follows] = plan = replace(graph, nodes=nodes)
        return plan

    def _handler(self, node: FunctionNode, flags: tuple[bool, ...]) -> Handler:
        if node.op in CALLS and by_xla(node.function):
            return self.handler(node, flags)
        if node.op in LOOPS:
            # what its body gives back as it is, such as weights, depends on no samples
            body, unchanged = traced_graph(node.words["body"], self._graphs), set[int]()
            by_name = {inner.path: inner for inner in body.nodes}
            for at, (name, place) in enumerate(body.outputs):
                while name in by_name and by_name[name].op == "Identity":
                    name = by_name[name].slots[0][0]
                if place == 0 and at < len(body.inputs) and name == body.inputs[at][0]:
                    unchanged.add(at)
            flags = tuple(at not in unchanged for at in range(len(flags)))
        elif node.op in BRANCHES:
            flags = flags[1:]
        elif node.op not in CALLS:
            return self.handler(node, flags)
        return lambda read: (
            run_flow(self, node, read, lambda name: self._planned(name, flags)) or []
        )

    def _ready(
        self,
        node: FunctionNode,
        key: tuple[Any, ...],
        make: Callable[[], IndependentRows],
        count: int = 0,
        axis: str = "batch",
    ) -> ReadyOperation:
        """An operation by what it is called with; ``count``: its places now, along ``axis``.

        The batch alone is open, so what a node is called with may not change.
        """
        # one node, another shape but for the first axis: the batch stands elsewhere in it
        if self._first.setdefault(id(node), key) != key:
            self.keeper.leave(f"{node.op} {node.path}", INSIDE)
        if key not in self.operations:
            each = max(1, count // self.samples)
            self.operations[key] = self.keeper.first([make()], axis, each)
        return self.operations[key]

    # sums of products

    def _matmul(self, node: FunctionNode, follows: tuple[bool, ...]) -> Handler | None:
        words = node.words
        if follows[1] or words.get("transpose_a") or words.get("T") not in FORMATS:
            return None
        turned = bool(words.get("transpose_b"))

        def handler(read: list[Any]) -> list[Any]:
            x, w = read
            channels, filters = tuple(w.shape)[::-1] if turned else tuple(w.shape)
            ready = self._ready(
                node,
                ("matmul", channels, filters, x.dtype, turned),
                lambda: MatrixProduct(channels, filters, x.dtype, turned),
                len(x),
                "rows",
            )
            return [ready((x,), (w,))]

        return handler

    def _convolution(self, node: FunctionNode, follows: tuple[bool, ...]) -> Handler | None:
        words, back = node.words, node.op in TRANSPOSED
        where = 2 if back else 0
        if (
            follows[1]
            or not follows[where]
            or words.get("T") not in FORMATS
            or not channels_last(words)
        ):
            return None

        def handler(read: list[Any]) -> list[Any]:
            x, w = read[where], read[1]
            sizes = tuple(array(read[0]).tolist()[1:]) if back else ()
            shapes = tuple(x.shape)[1:], tuple(w.shape)
            ready = self._ready(
                node,
                (node.op, *shapes, x.dtype, sizes, *map(str, node.native)),
                lambda: TensorFlowConvolution(node.op, *shapes, x.dtype, node.native, sizes),
                len(x),
            )
            self.keeper.limit_lengths(ready)
            return [ready((x,), (w,))]

        return handler

    # samples

    def _normalised(self, node: FunctionNode, follows: tuple[bool, ...]) -> Handler | None:
        words = node.words
        if any(follows[1:]) or words.get("is_training") or not channels_last(words):
            return None
        return self._along(node, follows)

    def _along(self, node: FunctionNode, follows: tuple[bool, ...]) -> Handler:
        """One operation along the first axis of its first output; parameters are spread numbers."""
        name = " ".join([node.op, *map(plainly, extra_of(node))])
        left = self._plain(node)

        def handler(read: list[Any]) -> list[Any]:
            xs = list(compress(read, follows))
            rest = [x for x, along in zip(read, follows, strict=True) if not along]
            fits = all(x.dtype in FORMATS and len(x.shape) > 1 for x in xs)
            if not fits or len({(x.shape[0], x.dtype) for x in xs}) > 1 or 0 in xs[0].shape:
                return left(read)
            shapes = [tuple(x.shape)[1:] for x in xs]
            more: list[Any] = []

            def function(*operands: Any) -> Any:
                samples, held = iter(operands[: len(xs)]), iter(operands[len(xs) :])
                first, *others = run_op(
                    node.op,
                    [next(samples if along else held) for along in follows],
                    tuple(node.native),
                    len(node.gives),
                )
                more[:] = others
                return first

            sizes = tuple(map(size_of, rest))

            def make() -> TensorFlowSamples:
                positive = node.op in NORMALISED
                held = tuple(spread_parameter(x, at, positive) for at, x in enumerate(rest))
                said = " ".join([name, *(f"({size})" for size in sizes)])
                return TensorFlowSamples(
                    said, shapes, xs[0].dtype, function, held, positive=positive
                )

            # what else it gives belongs to the node
            key = node.path * (len(node.gives) > 1), name, follows, *shapes, xs[0].dtype, *sizes
            ready = self._ready(node, key, make, len(xs[0]))
            self.keeper.limit_lengths(ready)
            return [ready(tuple(xs), tuple(rest)), *more]

        return handler

    def _softmax(self, node: FunctionNode, follows: tuple[bool, ...]) -> Handler | None:
        if node.words.get("T") not in FORMATS:
            return None
        as_it_is = once(node)

        def handler(read: list[Any]) -> list[Any]:
            (x,) = read
            size = x.shape[-1]
            ready = self._ready(
                node,
                (node.op, size, x.dtype),
                lambda: Softmax(node.op, [(size,)], x.dtype, lambda y: as_it_is([y])[0], (), ROWS),
                math.prod(tuple(x.shape)[:-1]),
                "rows",
            )
            return [reshaped(ready((reshaped(x, (-1, size)),)), x.shape)]

        return handler

    # functions by place

    def _element(self, node: FunctionNode, follows: tuple[bool, ...]) -> Handler:
        """A function by place of one operand or two, of which one may be a single number."""
        as_it_is, left = once(node), self._plain(node)
        name, places = node.op, [at for at, along in enumerate(follows) if along]

        def handler(read: list[Any]) -> list[Any]:
            if _nothing_in(read):
                return as_it_is(read)
            fixed = [x for x, along in zip(read, follows, strict=True) if not along]
            if any(x.shape.num_elements() != 1 for x in fixed):
                return left(read)
            xs = [read[at] for at in places]
            shape = reduce(tf.broadcast_static_shape, (x.shape for x in xs))
            said = " ".join([name, *(f"{places} {number.numpy()}" for number in fixed)])

            def function(*flat: Any) -> Any:
                samples, rest = iter(flat), iter(fixed)
                return as_it_is([next(samples if along else rest) for along in follows])[0]

            ready = self._ready(
                node,
                (said, xs[0].dtype, len(xs)),
                lambda: TensorFlowByPlace(said, xs[0].dtype, function, len(xs)),
                axis="place",
            )
            flat = [x if x.shape == shape else tf.broadcast_to(x, shape) for x in xs]
            return [reshaped(ready(tuple(reshaped(x, (-1,)) for x in flat)), shape)]

        return handler


def _nothing_in(read: Iterable[Any]) -> bool:
    return any(0 in x.shape for x in read)


def _arrays_read(node: FunctionNode, read: Sequence[Any]) -> list[int]:
    """The numbers of the inputs that are arrays."""
    says = structure(node.op, len(read))
    return [n for n, x in enumerate(read) if n not in says and not is_unread(x)]


def _asked_node(node: FunctionNode, read: list[Any], gave: list[Any]) -> AskedCall | None:
    """A node that has run as it can be asked about; None: it can't be run alone."""
    gives = [n for n, y in enumerate(gave) if not is_unread(y)]
    reads = _arrays_read(node, read)
    ran = RanOperation(node.op, read, node.native, gave, reads, gives)
    again = ran.again()
    if again is None:
        return None
    plain = (None, 0, 1)
    return AskedCall(
        "Add" if node.op == "AddN" and len(reads) == 2 else node.op,
        again,
        [np.array(array(read[n])) for n in reads],
        [read[n].dtype.name for n in reads],
        [gave[n].dtype.name for n in gives],
        frozenset(name for name, value in ran.words().items() if value not in plain),
        node.op in NOT_ROUNDED_ONCE or node.op in SUBNORMAL,
    )


def _node_kind(node: FunctionNode, read: list[Any], gave: list[Any]) -> OperationKind:
    try:
        call = _asked_node(node, read, gave)
        return OperationKind.SOME if call is None else operation_kind(call)
    except tf.errors.OpError:  # it doesn't take other numbers
        return OperationKind.SOME


# Nodes: what has classes of its own here, and what attributes say


# To 16 bits it goes by way of float32: it is rounded twice, each time as IEEE 754 asks.
CONVERTED = "Cast"

SOFTMAX = ("LogSoftmax", "Softmax")
# Choices by place between zeros of unlike signs.
EITHER_ZERO = ("Maximum", "Minimum", "ClipByValue")
# Choices that read subnormal numbers as zeros in some places of a vector.
SUBNORMAL = ("Relu", "Relu6", "Sign")
CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")
TRANSPOSED = ("Conv2DBackpropInput", "Conv3DBackpropInputV2")
NORMALISED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def channels_last(words: Mapping[str, Any]) -> bool:
    """Whether channels are last, so that samples and places are where they are looked for."""
    return words.get("data_format", b"NHWC") in (b"NHWC", b"NDHWC", "NHWC", "NDHWC")


TYPES = ("T", "Ta", "Tb", "Tout", "Tin", "U", "N", "Tidx", "f", "config", "config_proto")


def extra_of(node: FunctionNode) -> list[Any]:
    """Attributes that decide what is computed, besides types."""
    words = node.words
    return [value for name, value in words.items() if name not in TYPES and value not in ([], b"")]


def size_of(parameter: Any) -> str:
    """What of a parameter decides an operation: of whole numbers their values."""
    if parameter.dtype in FORMATS:
        return "x".join(map(str, parameter.shape))
    return " ".join(map(str, array(parameter).reshape(-1).tolist()))


def spread_parameter(parameter: Any, at: int, positive: bool) -> Any:
    """Spread numbers in place of weights."""
    if parameter.dtype not in FORMATS:
        return parameter
    values = spread_numbers(7 + at, "w", tuple(parameter.shape), 2)
    return tensor(np.abs(values) if positive else values, parameter.dtype)


def once(node: FunctionNode) -> Handler:
    """Runs a node as it is; one that gives back its input needs no call."""
    if node.op in HANDED_ON:
        return lambda read: read
    return lambda read: run_op(node.op, read, node.native, len(node.gives))


# The model, in Keras.


class Traced(NamedTuple):
    """The model's function for inputs of one kind. ``packed``: its outputs, to be filled in."""

    function: Any
    captured: Sequence[Any]
    packed: Any


class InvariantKeras(keras.Model):
    """A model with the layers and weights of another, run operation by operation.

    Called eagerly, or in ``predict``, it gives the same bits for a sample at every batch. In a
    ``tf.function`` it is a call of Python, with the same bits; XLA and saved models can't have it.
    """

    def __init__(self, inner: Any, keeper: Keeper) -> None:
        super().__init__(name=inner.name, dtype=inner.dtype_policy)
        self.inner = inner
        self._keeper, self._company = keeper, Company(keeper, how=FIRST)
        self._operators, self._traced = TensorFlowOperations(keeper), dict[Any, Traced]()
        self._done: set[Any] = set()
        # predict() would else trace the call, where sizes are not known and XLA may fuse
        self.run_eagerly, self.jit_compile, self.built = True, False, True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model's own. What is refused is said in one line, without Keras' own words."""
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:  # raised on, or one of ours inside of it
            own: BaseException | None = error  # Keras raises one of its own around a layer's
            while own is not None and not isinstance(own, ProbeError):
                own = own.__context__
            if own is not None:
                raise own from None
            raise

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """InputError: it is for inference."""
        refuse_training()

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """As the model's own call. InputError in training."""
        if training:
            refuse_training()
        flat = [tf.convert_to_tensor(each) for each in tf.nest.flatten(inputs)]
        kinds = tuple((x.dtype, tuple(x.shape.as_list()[1:])) for x in flat)
        key = str(tf.nest.map_structure(lambda _: 0, inputs)), kinds
        if key not in self._traced:
            with tf.init_scope():
                self._traced[key] = _traced(self.inner, inputs, kinds)
        traced = self._traced[key]
        run = self._run if tf.executing_eagerly() else self._inside
        return tf.nest.pack_sequence_as(traced.packed, run(traced, flat))

    def _run(self, traced: Traced, flat: Sequence[Any]) -> list[Any]:
        self._keeper.require_settings(self.name)
        name = traced.function.name.decode()
        follows = (True,) * len(flat) + (False,) * len(traced.captured)

        def call(tensors: Sequence[Any]) -> list[Any]:
            return self._operators(name, [*tensors, *traced.captured], follows)

        shapes = [tuple(x.shape) for x in flat]
        met = (name, *shapes)
        if met in self._done:
            return call(flat)
        self._company.begin(name, shapes)
        outputs = call(flat)
        self._keeper.calls.end()

        def run(values: Sequence[Value]) -> list[Value]:
            changed = [
                (tensor_of if x.dtype in FORMATS else tf.constant)(value, x.dtype)
                for (value, _), x in zip(values, flat, strict=True)
            ]
            return [*map(_bits_and_format, call(changed))]

        inputs, answer = ([*map(_bits_and_format, side)] for side in (flat, outputs))
        with unchanged(self.inner):
            self._company.ask(name, EndedCall(inputs, answer, run))
        self._done.add(met)
        return outputs

    def _inside(self, traced: Traced, flat: Sequence[Any]) -> Any:
        """In a graph: a call of Python, where the sizes are known when it runs."""
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

        if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
            why = "XLA would compile it into a different program, with different bits"
            raise InputError("model", self.name, why, "call it without jit_compile")
        kinds = [symbolic.dtype for symbolic in traced.function.outputs]
        outputs = tf.py_function(lambda *flat: self._run(traced, flat), flat, kinds)
        for output, symbolic in zip(outputs, traced.function.outputs, strict=True):
            output.set_shape(symbolic.shape)
        return outputs


FIRST = "samples of a Keras model are taken to lie along the first axis of its inputs"


def _bits_and_format(x: Any) -> Value:
    return container(x) if x.dtype in FORMATS else (x.numpy(), x.dtype.name)


def _traced(model: Any, inputs: Any, kinds: Sequence[tuple[Any, tuple[int | None, ...]]]) -> Traced:
    """The model's function: its graph has an open batch."""
    open_ = [tf.TensorSpec((None, *shape), dtype) for dtype, shape in kinds]
    packed: list[Any] = []

    def function(*flat: Any) -> Any:
        outputs = model(tf.nest.pack_sequence_as(inputs, flat), training=False)
        packed[:] = [tf.nest.map_structure(lambda _: 0, outputs)]
        return tf.nest.flatten(outputs)

    trace = tf.function(function, autograph=False).get_concrete_function
    try:
        concrete = foreign(trace, *open_)
    except Foreign as refused:  # a loop or branch of Python's on numbers, or on an open batch
        error = refused.__cause__
        said = " ".join(str(getattr(error, "message", error)).split())[:160]
        why = f"it cannot be traced with an open batch ({type(error).__name__}: {said})"
        todo = "write loops and branches on tensors with keras.ops or tf.while_loop, tf.cond"
        raise InputError("model", model.name, why, todo) from error
    return Traced(concrete, [outer for outer, _ in concrete.graph.captures], packed[0])


def invariant_keras(model: Any, options: InvariantOptions, batched: Any) -> tuple[Any, Report]:
    """As ``probe.sizes.invariant.invariant``."""
    sizes, like, strict, example, table = options
    if batched is not None:
        why = "samples of a Keras model lie along the first axis of all its inputs"
        raise InputError("batched", batched, why, "leave it out")
    if tf.config.list_logical_devices("GPU"):
        why = "TensorFlow sees a GPU, and only processors are covered"
        raise InputError("model", type(model).__name__, why, "hide it: CUDA_VISIBLE_DEVICES=-1")
    if not isinstance(model, keras.Model):
        why = "a single layer is not a model"
        raise InputError("model", type(model).__name__, why, "give keras.Sequential([layer])")
    arguments = example if isinstance(example, tuple) else (example,)
    if len(arguments) > 1:
        why = "a Keras model takes one argument, which may be a list or a dict"
        raise InputError("example", len(arguments), why)
    environment = conditions(switches())
    classes = Table.opened(table, like, sizes, threads(), environment)
    keeper = Keeper(classes, strict, sys.modules[__name__])
    if not model.built:
        if example is None:
            why = "it has no weights yet, since it has never been called"
            raise InputError("model", model.name, why, "call it once, or give an example")
        model(arguments[0], training=False)
    invariant = InvariantKeras(model, keeper)
    if example is not None:
        invariant(arguments[0])
    return invariant, keeper.report


def refuse_training() -> None:
    why = "training is not covered: it has dropout, and statistics of the batch"
    raise InputError("training", True, why, "call it for inference: model(x), model.predict(x)")

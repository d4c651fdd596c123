"""What becomes of each of TensorFlow's operations: run in its class, known to be exact, or left."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from probe.invariant.keeper import Keeper, Known
from probe.invariant.telling import spread
from probe.invariant.tensorflow_calls import (
    FORMATS,
    ByPlace,
    Contraction,
    Convolution,
    Product,
    Rows,
    Samples,
    Tensors,
    tensor,
)
from probe.invariant.tensorflow_program import Handler, Program, once
from probe.recorders.tensorflow_graphs import CALLS, Node
from probe.recorders.tensorflow_values import array, run

EXACT = frozenset(
    "Abs Add AddV2 All Any ArgMax ArgMin BatchToSpace BatchToSpaceND BiasAdd BroadcastTo Cast Ceil "
    "CheckNumerics ClipByValue ConcatV2 DepthToSpace Diag DivNoNan DynamicStitch Equal EnsureShape "
    "ExpandDims Fill Floor Gather GatherNd GatherV2 Greater GreaterEqual Identity IdentityN "
    "InvertPermutation IsFinite IsInf IsNan LeakyRelu Less LessEqual LogicalAnd LogicalNot "
    "LogicalOr MatrixBandPart MatrixDiagV3 Max MaxPool MaxPool3D MaxPoolV2 Maximum Min Minimum "
    "MirrorPad Mul MulNoNan Neg NotEqual OneHot OnesLike Pack Pad PadV2 PreventGradient Range "
    "Rank ReadVariableOp RealDiv Relu Relu6 Reshape ResizeNearestNeighbor ResourceGather Reverse "
    "ReverseV2 Rint Roll Round Select SelectV2 Shape ShapeN Sign Size Slice Snapshot SpaceToBatch "
    "SpaceToBatchND SpaceToDepth Split SplitV Square SquaredDifference Squeeze StopGradient "
    "StridedSlice Sub TensorListConcatV2 TensorListElementShape TensorListFromTensor "
    "TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve "
    "TensorListResize TensorListSetItem TensorListStack TensorScatterUpdate Tile TopKV2 Transpose "
    "Unpack VariableShape Where ZerosLike NoOp Assert VarIsInitializedOp".split()
)
"""Operations that move elements or round each result once, or twice in an order that there is no
choice in (a difference and its square): IEEE 754 leaves no choice, at any place."""

BY_PLACE = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Elu Erf Erfc Erfinv Exp Expm1 Inv Log Log1p "
    "Reciprocal Rsqrt Selu Sigmoid Sin Sinh Softplus Softsign Sqrt Tan Tanh".split()
)
"""Functions of one element with a vector body and a tail."""

OF_SAMPLES = frozenset(
    "AvgPool AvgPool3D LRN ResizeArea ResizeBicubic ResizeBilinear ScaleAndTranslate".split()
)
"""Functions of a sample of the batch, which is axis 0."""

REDUCTIONS = frozenset("EuclideanNorm Mean Prod Sum".split())
SOFTMAX = frozenset(("LogSoftmax", "Softmax"))
CONVOLUTIONS = frozenset(("Conv2D", "Conv3D", "DepthwiseConv2dNative"))
TRANSPOSED = frozenset(("Conv2DBackpropInput", "Conv3DBackpropInputV2"))
NORMALISED = frozenset(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"))
MATRICES = frozenset(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"))

ROWS = (1 << 14, 1 << 12)
"""Pieces of what is computed row by row, in one pass over memory."""

UNKNOWN = "it is not known whether its bits depend on batch, length or place"
BATCH = "both of its operands depend on the batch, and neither along its first axis alone"
FIXED = "lengths are part of an operation's shape: along the batch alone"


class Operators:
    """One model's operations, by the nodes that call them."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.kept: dict[Any, Known] = {}
        self.samples = 1
        self.program = Program(self.handler)
        self.own: dict[str, Callable[[Node, tuple[bool, ...]], Handler | None]] = {
            "MatMul": self._matmul,
            "Einsum": self._einsum,
            "Pow": self._power,
            **dict.fromkeys(MATRICES, self._matrices),
            **dict.fromkeys(CONVOLUTIONS | TRANSPOSED, self._convolution),
            **dict.fromkeys(OF_SAMPLES | NORMALISED, self._of_samples),
            **dict.fromkeys(CALLS, self._compiled),
            **dict.fromkeys(REDUCTIONS, self._reduction),
            **dict.fromkeys(SOFTMAX, self._softmax),
            **dict.fromkeys(BY_PLACE, self._by_place),
        }

    def handler(self, node: Node, follows: tuple[bool, ...]) -> Handler:
        """What runs a node. ``follows``: which of its inputs depend on the model's inputs."""
        if node.op in EXACT or not any(follows):
            return once(node)
        make = self.own.get(node.op)
        found = make(node, follows) if make else None
        return self._plain(node, UNKNOWN) if found is None else found

    def _plain(self, node: Node, why: str) -> Handler:
        """Runs a node as it is, and reports it if there are floating-point numbers in it."""
        as_it_is = once(node)

        def handler(read: list[Any]) -> list[Any]:
            found = as_it_is(read)
            if any(one.dtype.is_floating or one.dtype.is_complex for one in (*read, *found)):
                shapes = ", ".join("x".join(map(str, one.shape)) for one in read)
                self.keeper.leave(f"{node.op} of {shapes}", why)
            return found

        return handler

    def __call__(self, name: str, given: Sequence[Any], follows: tuple[bool, ...]) -> list[Any]:
        """Runs a function by its name; the first of ``given`` has a sample a row."""
        self.samples = max(1, int(given[0].shape[0]))
        return self.program(name, given, follows)

    def _known(self, key: tuple[Any, ...], make: Callable[[], Rows], rows: int = 0) -> Known:
        """An operation by what it is called with; ``rows``: how many there are, if any are."""
        found = self.kept.get(key)
        if found is None:
            axis, each = "rows" if rows else "batch", max(1, rows // self.samples)
            found = self.kept[key] = self.keeper.known(make(), axis, each)
        return found

    def _limit(self, known: Known) -> None:
        """Notes an operation whose lengths are part of its shape, where lengths were wanted."""
        key, keeper = known.run.operation.key, self.keeper
        if "length" in keeper.table.sizes and key not in keeper.report.limited:
            if keeper.strict:
                keeper.leave(key, FIXED)
            keeper.report.limited[key] = FIXED

    # sums of products

    def _matmul(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        words = _words(node)
        if follows[1] or words.get("transpose_a") or not _told(words):
            return None
        turned, as_it_is = bool(words.get("transpose_b")), once(node)

        def handler(read: list[Any]) -> list[Any]:
            x, w = read
            if 0 in (*x.shape, *w.shape):
                return as_it_is(read)
            channels, filters = tuple(w.shape)[::-1] if turned else tuple(w.shape)
            known = self._known(
                ("matmul", channels, filters, x.dtype, turned),
                lambda: Product(channels, filters, x.dtype, turned),
                len(x),
            )
            return [known((x,), (w,))]

        return handler

    def _matrices(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        words = _words(node)
        if not _told({"T": words.get("T", words.get("Ta"))}):
            return None
        ends = ("km" if words.get("adj_x") else "mk", "nk" if words.get("adj_y") else "kn")

        def labels(first: int, second: int) -> tuple[str, str, str] | None:
            outer = "zyxwv"[: first - 2]
            if first < 3 or second not in (2, first):
                return None
            return outer + ends[0], outer[: second - 2] + ends[1], outer + "mn"

        return self._contraction(node, follows, labels)

    def _einsum(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        words = _words(node)
        equation = words["equation"]
        text = (equation.decode() if isinstance(equation, bytes) else equation).replace(" ", "")
        ins, _, out = text.partition("->")
        one, comma, two = ins.partition(",")
        if "." in text or not comma or any(len({*part}) < len(part) for part in (one, two, out)):
            return None
        alone = [n for n in {*one, *two} if n not in out and (n not in one or n not in two)]
        if "," in two or alone or not _told(words):
            return None
        return self._contraction(node, follows, lambda *_: (one, two, out))

    def _contraction(
        self,
        node: Node,
        follows: tuple[bool, ...],
        labels: Callable[[int, int], tuple[str, str, str] | None],
    ) -> Handler:
        """A product of two operands, along the first axis of one or of both."""
        as_it_is, left = once(node), self._plain(node, BATCH)
        name = " ".join([node.op, *map(_plainly, _extra(node))])

        def straight(x: Any, w: Any) -> Any:
            return as_it_is([x, w])[0]

        def swapped(x: Any, w: Any) -> Any:
            return as_it_is([w, x])[0]

        def handler(read: list[Any]) -> list[Any]:
            told = labels(*(len(one.shape) for one in read))
            if any(0 in one.shape for one in read):
                return as_it_is(read)
            paired, kind = all(follows), read[0].dtype
            if told is None or not _along_first(told, follows):
                return left(read)
            turned = follows[1] and not paired
            shapes = tuple(
                tuple(one.shape)[1:] if along else tuple(one.shape)
                for one, along in zip(read, follows, strict=True)
            )
            if paired and not _fit(told, read):
                return left(read)
            one, two = told[0][follows[0] :], told[1][follows[1] :]

            def make() -> Contraction:
                if turned:
                    both = (two, one, told[2][1:]), (shapes[1], shapes[0])
                    return Contraction(f"{name} second", *both, kind, False, swapped)
                pair = shapes[0], shapes[1]
                return Contraction(name, (one, two, told[2][1:]), pair, kind, paired, straight)

            known = self._known((name, told, shapes, kind, follows), make)
            self._limit(known)
            if paired:
                return [known(tuple(read))]
            return [known((read[1],), (read[0],)) if turned else known((read[0],), (read[1],))]

        return handler

    def _convolution(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        words, back = _words(node), node.op in TRANSPOSED
        where = 2 if back else 0
        if follows[1] or not follows[where] or not _told(words) or not _last(words):
            return None
        as_it_is = once(node)

        def handler(read: list[Any]) -> list[Any]:
            x, w = read[where], read[1]
            if 0 in (*x.shape, *w.shape):
                return as_it_is(read)
            sizes = tuple(array(read[0]).tolist()[1:]) if back else ()
            shapes = tuple(x.shape)[1:], tuple(w.shape)
            known = self._known(
                (node.op, *shapes, x.dtype, sizes, *map(str, node.attributes)),
                lambda: Convolution(node.op, *shapes, x.dtype, node.attributes, sizes),
            )
            self._limit(known)
            return [known((x,), (w,))]

        return handler

    # samples

    def _of_samples(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        words = _words(node)
        if any(follows[1:]) or words.get("is_training") or not _last(words):
            return None
        return self._along(node, follows)

    def _compiled(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        """A function that XLA compiles, such as Keras' grouped convolutions: one operation."""
        return self._along(node, follows) if node.count == 1 else None

    def _along(self, node: Node, follows: tuple[bool, ...]) -> Handler:
        """One operation along the first axis of its first output; parameters are spread numbers."""
        extra = (_digest(_words(node)["f"]),) if node.op in CALLS else map(_plainly, _extra(node))
        name = " ".join(["compiled function" if node.op in CALLS else node.op, *extra])
        left = self._plain(node, UNKNOWN)

        def handler(read: list[Any]) -> list[Any]:
            xs = [one for one, along in zip(read, follows, strict=True) if along]
            fits = all(x.dtype in FORMATS and len(x.shape) > 1 for x in xs)
            if not fits or len({(x.shape[0], x.dtype) for x in xs}) > 1 or 0 in xs[0].shape:
                return left(read)
            rest = [one for one, along in zip(read, follows, strict=True) if not along]
            shapes = [tuple(x.shape)[1:] for x in xs]
            more: list[Any] = []

            def function(*given: Any) -> Any:
                samples, held = iter(given[: len(xs)]), iter(given[len(xs) :])
                found = run(
                    _called(node),
                    [next(samples if along else held) for along in follows],
                    _attributes(node),
                    node.count,
                )
                more[:] = found[1:]
                return found[0]

            sizes = tuple(map(_size, rest))

            def make() -> Samples:
                positive = node.op in NORMALISED
                held = [_parameter(one, at, positive) for at, one in enumerate(rest)]
                said = " ".join([name, *(f"({size})" for size in sizes)])
                made = Samples(said, shapes, xs[0].dtype, function, tuple(one for one, _ in held))
                made.variables = [variable for _, variable in held]
                return made

            known = self._known((node.name, name, *shapes, xs[0].dtype, *sizes), make)
            self._limit(known)
            return [known(tuple(xs), tuple(rest)), *more]

        return handler

    def _reduction(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        words = _words(node)
        if not _told(words):
            return None
        name, attributes = node.op, tuple(node.attributes)
        as_it_is, left = once(node), self._plain(node, "it adds over the batch")

        def handler(read: list[Any]) -> list[Any]:
            x, rank = read[0], len(read[0].shape)
            axes = sorted({int(axis) % max(rank, 1) for axis in array(read[1]).reshape(-1)})
            if not axes or 0 in x.shape:
                return as_it_is(read)
            if 0 in axes:
                return left(read)
            trailing = axes == list(range(axes[0], rank))
            shape = tuple(x.shape)[axes[0] if trailing else 1 :]
            inner = tf.constant([axis - (axes[0] - 1 if trailing else 0) for axis in axes])

            def function(part: Any) -> Any:
                return run(name, [part, inner], attributes, 1)[0]

            which = "" if trailing else f" {axes}"
            known = self._known(
                (name, shape, which, x.dtype, words.get("keep_dims")),
                lambda: Samples(f"{name}{which}", [shape], x.dtype, function, (), ROWS),
                math.prod(tuple(x.shape)[: axes[0]]) if trailing else 0,
            )
            if not trailing or axes[0] == 1:
                self._limit(known)
            y = known((tf.reshape(x, (-1, *shape)) if trailing else x,))
            return [_given_back(y, x, axes, bool(words.get("keep_dims")))]

        return handler

    def _softmax(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        if not _told(_words(node)):
            return None
        as_it_is = once(node)

        def handler(read: list[Any]) -> list[Any]:
            (x,) = read
            if 0 in x.shape:
                return as_it_is(read)
            size = x.shape[-1]
            known = self._known(
                (node.op, size, x.dtype),
                lambda: Samples(node.op, [(size,)], x.dtype, lambda y: as_it_is([y])[0], (), ROWS),
                math.prod(tuple(x.shape)[:-1]),
            )
            return [tf.reshape(known((tf.reshape(x, (-1, size)),)), x.shape)]

        return handler

    # functions by place

    def _by_place(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        return self._element(node, node.op, lambda read: ()) if _told(_words(node)) else None

    def _power(self, node: Node, follows: tuple[bool, ...]) -> Handler | None:
        """A power whose exponent is one number."""
        if follows[1] or not _told(_words(node)):
            return None
        return self._element(node, node.op, lambda read: (read[1],))

    def _element(self, node: Node, name: str, rest: Callable[[list[Any]], Tensors]) -> Handler:
        as_it_is, left = once(node), self._plain(node, UNKNOWN)

        def handler(read: list[Any]) -> list[Any]:
            x, more = read[0], rest(read)
            if 0 in x.shape:
                return as_it_is(read)
            if any(one.shape.rank for one in more):
                return left(read)
            told = name + "".join(f" {one.numpy()}" for one in more)
            known = self._known(
                (told, x.dtype),
                lambda: ByPlace(told, x.dtype, lambda flat: as_it_is([flat, *more])[0]),
            )
            return [tf.reshape(known((tf.reshape(x, (-1,)),)), x.shape)]

        return handler


def _words(node: Node) -> dict[str, Any]:
    return dict(zip(node.attributes[::2], node.attributes[1::2], strict=True))


def _told(words: dict[str, Any]) -> bool:
    """Whether it computes in a floating-point format that is known."""
    return words.get("T") in FORMATS


def _last(words: dict[str, Any]) -> bool:
    """Whether channels are last, so that samples and places are where they are looked for."""
    return words.get("data_format", b"NHWC") in (b"NHWC", b"NDHWC", "NHWC", "NDHWC")


TYPES = ("T", "Ta", "Tb", "Tout", "Tin", "U", "N", "Tidx", "f", "config", "config_proto")


def _extra(node: Node) -> list[Any]:
    """Attributes that decide what is computed, besides types."""
    words = _words(node)
    return [value for name, value in words.items() if name not in TYPES and value not in ([], b"")]


def _plainly(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _along_first(labels: tuple[str, str, str], follows: Sequence[bool]) -> bool:
    """Whether the first axis of what depends on the batch is the first one that comes out."""
    first = labels[2][:1]
    each = zip(labels[:2], follows, strict=True)
    return all(part[:1] == first if along else first not in part for part, along in each)


def _called(node: Node) -> str:
    return str(_words(node)["f"]) if node.op in CALLS else node.op


def _attributes(node: Node) -> tuple[Any, ...]:
    if node.op not in CALLS:
        return tuple(node.attributes)
    pairs = context.context().function_call_options.as_attrs().items()
    return tuple(one for pair in pairs for one in pair)


def _fit(labels: tuple[str, str, str], read: list[Any]) -> bool:
    """Whether each letter has one size, so that nothing is repeated."""
    sizes: dict[str, int] = {}
    for part, one in zip(labels, read, strict=False):
        for letter, size in zip(part, one.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return False
    return True


def _digest(name: str) -> str:
    """What a function does, without the names that TensorFlow gave."""
    made = hashlib.sha256()
    for node in context.context().get_function_def(name).node_def:
        kept = sorted((word, value) for word, value in node.attr.items() if word[0] != "_")
        made.update(f"{node.op} {len(node.input)}".encode())
        for word, value in kept:
            made.update(word.encode() + (b"" if value.func.name else value.SerializeToString()))
    return made.hexdigest()[:8]


def _size(one: Any) -> str:
    """What of a parameter decides an operation: of whole numbers their values."""
    if one.dtype == tf.resource:
        held = one._handle_data.shape_and_type[0]
        return "x".join(str(axis.size) for axis in held.shape.dim)
    if one.dtype in FORMATS:
        return "x".join(map(str, one.shape))
    return " ".join(map(str, array(one).reshape(-1).tolist()))


def _parameter(one: Any, at: int, positive: bool) -> tuple[Any, Any]:
    """Spread numbers in place of weights, and the variable that holds them, if one does."""
    handle = one.dtype == tf.resource
    held = one._handle_data.shape_and_type[0] if handle else None
    dtype = one.dtype if held is None else tf.as_dtype(held.dtype)
    if dtype not in FORMATS:
        return one, None
    shape = tuple(one.shape) if held is None else tuple(axis.size for axis in held.shape.dim)
    values = spread(7 + at, "w", shape, 2)
    made = tensor(np.abs(values) if positive else values, dtype)
    variable = tf.Variable(made, trainable=False) if handle else None
    return (made if variable is None else variable.handle), variable


def _given_back(y: Any, x: Any, axes: list[int], keep: bool) -> Any:
    """The shape of what was reduced."""
    sizes = [1 if at in axes else size for at, size in enumerate(x.shape)]
    kept = [size for at, size in enumerate(sizes) if keep or at not in axes]
    return tf.reshape(y, kept)

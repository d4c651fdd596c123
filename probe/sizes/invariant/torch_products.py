"""Sums of products in PyTorch, in their classes: linear layers, products, convolutions.

A model calls the same shapes again and again. So a shape at which the library's own call is in the
class is kept with the strides that were checked, and such a call is made at once: what it takes
beside the library's own call is the search in a table.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional

from probe.sizes.invariant.classes import Plan, Sizes, seconds_of
from probe.sizes.invariant.keeper import Keeper, ReadyOperation
from probe.sizes.invariant.torch_calls import (
    ALIGNED,
    CONVOLUTIONS,
    FORMATS,
    TOOLS,
    TRANSPOSED,
    AlignedLinear,
    AlignedPairs,
    PositionalCall,
    Tensors,
    TorchConvolution,
    TorchLinear,
    TorchSamples,
    WatchedCalls,
    aligned_contiguous,
    default_strides,
    for_each_axis,
    in_pieces,
    vector_offset,
    whole_call,
)

PAIRS = "products of pairs of matrices: along the pairs alone, sizes are fixed"


# What the functions of convolutions take, with PyTorch's defaults.
CONVOLVED: dict[str, Any] = {"input": None, "weight": None, "bias": None, "stride": 1, "padding": 0}
CONVOLVED_BACK = CONVOLVED | {"output_padding": 0, "groups": 1, "dilation": 1}
CONVOLVED |= {"dilation": 1, "groups": 1}
RANKS = {function: rank for kinds in (CONVOLUTIONS, TRANSPOSED) for rank, function in kinds.items()}


class MetOperations:
    """The operations of one model that were met so far."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.operations: dict[Any, ReadyOperation] = {}

    def ready(
        self, key: tuple[Any, ...], *makes: Callable[[], Any], axis: str = "batch"
    ) -> ReadyOperation:
        """An operation by what it is called with and the number of threads.

        ``makes``: the ways in which it may be called; the first that has a class is taken.
        """
        key = (*key, torch.get_num_threads())
        ready = self.operations.get(key)
        if ready is None:
            ready = self.operations[key] = self.keeper.first([make() for make in makes], axis)
        return ready


class Products:
    """The sums of products of one model."""

    def __init__(self, met: MetOperations, watched: WatchedCalls) -> None:
        self.met, self.watched, self.copies = met, watched, Copies()
        self.ways: dict[Any, Ways] = {}
        self.ready: dict[Any, tuple[Any, Ways | None]] = {}
        """The strides of both operands and the way, by all else that decides a call's bits.

        None is the library's own call of operands with these strides, the first where a vector
        begins.
        """
        self.handlers: dict[str, Callable[..., Any]] = {
            "addmm": lambda func, *args, **words: self.addmm(*args, **words),
            "mm": lambda func, *args: self.matmul(*args),
            "bmm": lambda func, *args: self.bmm(*args),
            "convolution": self.convolution,
            "_convolution": self.convolution,
        }
        self.quick: dict[Any, Callable[..., Any]] = {
            functional.linear: self.linear,
            **dict.fromkeys((torch.addmm, torch.Tensor.addmm), self.addmm),
            **dict.fromkeys((torch.bmm, torch.Tensor.bmm), self.bmm),
            **dict.fromkeys((torch.mm, torch.Tensor.mm), self.matmul),
            **dict.fromkeys((torch.matmul, torch.Tensor.matmul), self.matmul),
            torch.Tensor.__matmul__: self.matmul,
            **{
                function: PositionalCall(partial(self._called, function), usual)
                for kinds, usual in ((CONVOLUTIONS, CONVOLVED), (TRANSPOSED, CONVOLVED_BACK))
                for function in kinds.values()
            },
        }

    # products of rows

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        """``functional.linear``."""
        w, b = weight, bias
        at = w.data_ptr() % ALIGNED
        key = x.shape, w.shape, x.dtype, w.dtype, b is None, at, torch.get_num_threads()
        ready = None if x.data_ptr() % ALIGNED else self.ready.get(key)
        if ready is not None and ready[0] == (x.stride(), w.stride()):
            way, flat = ready[1], x if x.dim() == 2 else x.view(-1, x.shape[-1])
            y = functional.linear(flat, w, b) if way is None else way(flat, w, b)
            return y if flat is x else y.view(*x.shape[:-1], len(w))
        if x.dtype not in FORMATS or w.dtype is not x.dtype or w.dim() != 2 or not x.numel():
            return NotImplemented
        return self.rows(x, w, b, False, key)

    def matmul(self, a: Any, b: Any, *, out: Any = None) -> Any:
        """``a @ b``: the rows of a have nothing to do with each other."""
        if out is not None or not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return NotImplemented
        at = b.data_ptr() % ALIGNED
        key = a.shape, b.shape, a.dtype, b.dtype, at, torch.get_num_threads()
        ready = None if a.data_ptr() % ALIGNED else self.ready.get(key)
        if ready is not None and ready[0] == (a.stride(), b.stride()):
            way, flat = ready[1], a if a.dim() == 2 else a.view(-1, a.shape[-1])
            y = torch.mm(flat, b) if way is None else way(flat, b, None)
            return y if flat is a else y.view(*a.shape[:-1], b.shape[1])
        if a.dtype not in FORMATS or b.dtype is not a.dtype or not a.numel() or not b.numel():
            return NotImplemented
        if b.dim() == 2 and (a.dim() == 2 or (a.dim() > 2 and a.is_contiguous())):
            return self.rows(a, b, None, True, key)
        if a.dim() == b.dim() > 2 and a.shape[:-2] == b.shape[:-2]:
            y = self.bmm(*(pairs.reshape(-1, *pairs.shape[-2:]) for pairs in (a, b)))
            return y.view(*a.shape[:-1], b.shape[-1])
        return NotImplemented

    def addmm(
        self, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None
    ) -> Any:
        """``c + a @ b`` where c is a bias."""
        if out is not None or beta != 1 or alpha != 1 or a.dtype not in FORMATS:
            return NotImplemented
        if c.dim() != 1 or len(c) != b.shape[1] or not a.numel():
            return NotImplemented
        return self.rows(a, b, c.contiguous(), True, None)

    def rows(self, x: Any, w: Any, b: Any, turned: bool, key: Any) -> Any:
        """``x @ w.T``, or ``x @ w`` if it is ``turned``, of all rows.

        ``key``: in ``ready``; None: it is not kept there.
        """
        strides, begins = (x.stride(), w.stride()), w.data_ptr()
        if w.stride() != (w.shape[1], 1):
            if w.t().is_contiguous() and 1 not in w.shape:
                w, turned, key = w.t(), not turned, None
            w = default_strides(w)
        channels, filters = w.shape if turned else w.shape[::-1]
        flat = x if x.dim() == 2 else x.reshape(-1, channels)
        rows = aligned_contiguous(flat)
        parts = channels, filters, x.dtype, b is not None, turned, vector_offset(w)
        way = ("linear", *parts, torch.get_num_threads())
        layer = self.ways.get(way)
        if layer is None:
            makes = partial(TorchLinear, *parts), partial(AlignedLinear, *parts)
            ready = self.met.ready(("linear", *parts), *makes, axis="rows")
            layer = Ways(ready) if turned else LinearLayer(ready, self.copies)
            self.ways[way] = layer
        y = layer(rows, w, b)
        same = rows is flat and rows.data_ptr() == x.data_ptr()
        self.watched.native_now = same and w.data_ptr() == begins and layer.native(len(rows))
        if key is not None and same and strides[1] == w.stride():
            self.ready[key] = strides, None if layer.native(len(rows)) else layer
        return y if x.dim() == 2 else y.view(*x.shape[:-1], filters)

    # pairs of matrices

    def bmm(self, a: Any, b: Any, *, out: Any = None) -> Any:
        """Products of pairs of matrices: each pair is a sample."""
        if out is not None or a.dtype not in FORMATS or b.dtype is not a.dtype:
            return NotImplemented
        if a.dim() != 3 or b.dim() != 3 or not a.numel() or not b.numel():
            return NotImplemented
        shapes, dtype = [tuple(x.shape[1:]) for x in (a, b)], a.dtype
        ways = ("bmm", TorchSamples), ("bmm rows apart", AlignedPairs)
        makes = (partial(kind, name, shapes, dtype, torch.bmm) for name, kind in ways)
        ready = self.met.ready(("bmm", *shapes, dtype), *makes)
        self.met.keeper.limit_lengths(ready, PAIRS)
        return ready((aligned_contiguous(a), aligned_contiguous(b)))

    # convolutions

    def _called(self, function: Callable[..., Any], x: Any, w: Any, b: Any, *options: Any) -> Any:
        """A call of a function of convolutions, which takes all of these in this order."""
        kinds = x.dtype, w.dtype, b is None, torch.get_num_threads()
        key = function, x.shape, w.shape, options, kinds, w.data_ptr() % ALIGNED
        try:
            ready = self.ready.get(key)
        except TypeError:  # a list among the options
            return NotImplemented
        ready = None if x.data_ptr() % ALIGNED else ready
        if ready is not None and ready[0] == (x.stride(), w.stride()):
            way = ready[1]
            return function(x, w, b, *options) if way is None else way(x, w, b)
        rank = RANKS[function]
        if x.dim() != rank + 2 or any(isinstance(option, str) for option in options):
            return NotImplemented
        if x.dtype not in FORMATS or w.dtype is not x.dtype or not x.numel():
            return NotImplemented
        # one number may be a tuple too
        per_axis = (for_each_axis(option, rank) for option in options)
        stride, padding, third, _, *last = (n * rank if len(n) == 1 else n for n in per_axis)
        dilation, more = (last[0], third) if last else (third, (0,) * rank)
        x, w = aligned_contiguous(x), default_strides(w)
        words = ConvolutionOptions(stride, padding, dilation, bool(last), more, options[3])
        way = self._way(x, w, b, words)
        y = way(x, w, b)
        self.ready[key] = (x.stride(), w.stride()), None if way.native(len(x)) else way
        return y

    def convolution(self, func: Any, x: Any, w: Any, b: Any, *options: Any) -> Any:
        """Convolutions of one to three axes, along the batch."""
        if x.dtype not in FORMATS or w.dtype is not x.dtype or not x.numel():
            return NotImplemented
        x, w = aligned_contiguous(x), default_strides(w)
        return self._way(x, w, b, ConvolutionOptions(*options[:6]))(x, w, b)

    def _way(self, x: Any, w: Any, b: Any, options: ConvolutionOptions) -> Ways:
        words: dict[str, Any] = {
            name: tuple(getattr(options, name)) for name in ("stride", "padding", "dilation")
        }
        if options.transposed:
            words["output_padding"] = tuple(options.output_padding)
        words["groups"] = options.groups
        parts = tuple(x.shape[1:]), tuple(w.shape), x.dtype, b is not None
        at = vector_offset(w)
        key = ("convolution", *parts, tuple(words.items()), at)
        way = (*key, torch.get_num_threads())
        if way not in self.ways:
            ready = self.met.ready(key, lambda: TorchConvolution(*parts, words, at))
            self.met.keeper.limit_lengths(ready)
            self.ways[way] = (Ways if options.transposed else Convolved)(ready)
        return self.ways[way]


class ConvolutionOptions(NamedTuple):
    """What ``aten::convolution`` takes behind a bias, in its order; a number an axis."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int


# Few rows or samples: other ways to the bits that many get, where a library has one.
#
# With few rows of a linear layer a library leaves out packing, and then adds in another order.
# Given the weights turned, as (channels, filters), it often adds as with many rows, from two rows
# on. Where it adds many channels block by block, so do the products of such blocks, added up one
# after the other. A single row is added so by an embedding, whose weighted rows are added in turn.
# Few samples of a convolution are left to PyTorch's own kernels, many to oneDNN: asked for, oneDNN
# computes one sample as well. Which of these gives the bits of the chosen class is found by marks,
# as for every size; which of those is run is a matter of time.


# Channels that are added at a time: the first of them that gives the bits is taken.
BLOCKS = (384, 256, 192, 320, 336, 448, 512, 128, 768, 96, 64)

TRIED = (2, 4, 8, 16, 1)  # rows at which a way is looked for
MEMORY = 1 << 28  # bytes of all copies of one model
SAMPLES = 7  # numbers of the weights that are compared before each call


class Turned(TorchLinear):
    """As a ``TorchLinear``, of turned weights; that many channels at a time."""

    native = False
    pieces: Sequence[int] = ()

    def __init__(self, like: TorchLinear, block: int) -> None:
        self.like = like
        super().__init__(like.channels, like.filters, like.dtype, like.bias, turned=True)
        whole = block >= like.channels
        self.key = f"{like.key} few rows" + ("" if whole else f" in blocks of {block} channels")
        self.blocks = [slice(at, at + block) for at in range(0, like.channels, block)]

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        sample, (w, b) = self.like.telling(number)
        return sample, (w if self.like.turned else aligned_contiguous(w.t()), b)

    def forget(self) -> None:
        super().forget()
        self.like.forget()

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        (x,), (w, b) = samples, parameters
        self.refuse_different_channels(x, w)
        if len(self.blocks) == 1:
            return super().call(samples, parameters)
        first, *others = self.blocks
        y = super().call((x[:, first],), (w[first], b))
        for block in others:
            y.addmm_(x[:, block], w[block])
        return y

    def refuse_different_channels(self, x: Any, w: Any) -> None:
        """As the plain model does, in PyTorch's words: blocks would leave channels out."""
        if x.shape[1] != self.channels:
            torch.mm(x, w)


class WeightedSums(Turned):
    """As a ``Turned``, row by row: an embedding's rows are the turned weights, which are added one
    after the other, each times a number of the row.

    A product of one row is a call of a kernel that adds in another order (gemv); such a sum takes
    about its time, where a product of four rows takes twice as long.
    """

    def __init__(self, like: TorchLinear, block: int) -> None:
        super().__init__(like, block)
        self.key = self.key.replace("few rows", "few rows one by one")
        self.places: dict[int, Tensors] = {}

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        (x,), (w, b) = samples, parameters
        self.refuse_different_channels(x, w)
        count = x.shape[0]
        if count not in self.places:
            begins = torch.tensor([block.start for block in self.blocks])
            rows = torch.arange(count)[:, None] * self.channels
            self.places[count] = torch.arange(self.channels).repeat(count), (rows + begins).view(-1)
        places, begins = self.places[count]
        y = torch.embedding_bag(w, places, begins, False, 0, False, x.reshape(-1))[0]
        if len(self.blocks) == 1:
            return y if b is None else y.add_(b)
        first, *others = y.unbind() if count == 1 else y.view(count, -1, self.filters).unbind(1)
        if b is not None:
            first.add_(b)
        for part in others:
            first.add_(part)
        return first.view(1, -1) if count == 1 else first.contiguous()


class OneDNN(TorchConvolution):
    """As a ``TorchConvolution``, whatever the number of samples by oneDNN."""

    pieces: Sequence[int] = ()

    def __init__(self, like: TorchConvolution) -> None:
        super().__init__(like.shape, like.weights, like.dtype, like.bias, like.words, at=like.at)
        self.key, self.like = f"{like.key} by oneDNN", like
        self.flat = len(like.shape) == 2  # one axis, to which another of size 1 is added
        named = (("padding", 0), ("stride", 1), ("dilation", 1))
        rank = len(like.shape) - 1
        options = [for_each_axis(like.words.get(name, usual), rank) for name, usual in named]
        if self.flat:
            options = [(usual, *axes) for axes, (_, usual) in zip(options, named, strict=True)]
        self.options = (*options, like.words.get("groups", 1))

    def telling(self, number: int) -> tuple[Tensors, Tensors]:
        return self.like.telling(number)

    def forget(self) -> None:
        self.like.forget()

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        (x,), (w, b) = samples, parameters
        # of others mkldnn_convolution reads wrong numbers
        b = b if b is None else b.contiguous()
        if not self.flat:
            return torch.mkldnn_convolution(x, w, b, *self.options)
        return torch.mkldnn_convolution(x[:, :, None], w[:, :, None], b, *self.options).squeeze(2)

    def mark(self, size: int) -> str:
        """As ``TestedRows.mark``; empty too where oneDNN has no kernel of this format."""
        try:
            return super().mark(size)
        except RuntimeError:
            return ""


class Copy(NamedTuple):
    """A transposed copy of weights, and what shows whether these have changed since.

    ``weights``: a weak reference. ``state``: PyTorch's count of changes in place, with address,
    shape and dtype. ``samples``: a few elements of the weights, in their memory;
    ``copied_samples``: as they were when the copy was made. ``transposed``: the copy.
    """

    weights: Any
    state: tuple[Any, ...]
    samples: Any
    copied_samples: Any
    transposed: Any


class Copies:
    """Transposed copies of one model's weights: made when first needed, and again after a change.

    Weights that changed in place are noticed by PyTorch's count of changes; that count misses what
    is done through ``.data`` or NumPy, so a few elements are compared as well.
    """

    def __init__(self) -> None:
        self._copies: dict[int, Copy] = {}

    def get(self, w: Any) -> Any:
        """The copy of a parameter, (channels, filters); None: there is none."""
        if type(w) is not torch.nn.Parameter or w.is_inference():
            return None
        state = w._version, w.data_ptr(), w.shape, w.dtype
        copy = self._copies.get(id(w))
        same_state = copy is not None and copy.weights() is w and copy.state == state
        if copy is not None and same_state and torch.equal(copy.samples, copy.copied_samples):
            return copy.transposed
        self._copies = {
            key: copy
            for key, copy in self._copies.items()
            if copy.weights() is not None and key != id(w)
        }
        copied_bytes = sum(copy.transposed.nbytes for copy in self._copies.values())
        if copied_bytes + w.nbytes > MEMORY or not w.is_contiguous():
            return None
        with torch.no_grad():
            samples = w.detach().as_strided((SAMPLES,), (w.numel() // SAMPLES,))
            copy = Copy(weakref.ref(w), state, samples, samples.clone(), aligned_contiguous(w.t()))
        self._copies[id(w)] = copy
        return copy.transposed


class Ways:
    """An operation on samples and weights whose class is known, in the ways that give its bits."""

    def __init__(self, ready: ReadyOperation) -> None:
        self.ready = ready
        self.steps: dict[int, tuple[Plan, Plan, Any]] = {}
        """By the number of samples: pieces of the operation as it is, further ones, and whose."""
        self._others: list[Any] | None = None

    def other_ways(self) -> Iterable[Sizes]:
        """Other operations that give the bits at some number of samples."""
        return ()

    def held(self, w: Any) -> Any:
        """The weights as other operations take them; None: they can't be had."""
        return w

    def native(self, count: int) -> bool:
        """Whether that many samples, which were computed before, are one call of the library's."""
        if count not in self.steps or not getattr(self.ready.operation, "native", True):
            return False
        whole, remainder, operation = self.steps[count]
        alone = not whole and len(remainder) == 1 and remainder[0].size == count
        return alone and operation is self.ready.operation

    def __call__(self, x: Any, w: Any, b: Any) -> Any:
        """The operation of x (samples, ...), contiguous, with weights and a bias or None."""
        count, like = x.shape[0], self.ready.operation
        steps = self.steps.get(count)
        if steps is None:
            steps = self.steps[count] = self._steps(count)
        whole, remainder, operation = steps
        weights = w if operation is like else self.held(w)
        if weights is None or not remainder:
            return self.ready((x,), (w, b))
        if not whole and len(remainder) == 1:
            return whole_call(remainder[0], operation.call, (x,), (weights, b))
        steps_of_call = [(piece, like.call, (w, b)) for piece in whole]
        steps_of_call += [(piece, operation.call, (weights, b)) for piece in remainder]
        return in_pieces(steps_of_call, (x,))

    def _steps(self, count: int) -> tuple[Plan, Plan, Any]:
        """Splits samples: pieces of the operation as it is, the remainder (which would be padded),
        and the operation that computes the remainder in the least time."""
        ready, operation = self.ready, self.ready.operation
        plan = ready.plan(count) or ()
        large = plan[0].size if plan and count > operation.pieces[0] else 0
        start = count // large * large if large else 0  # before that stand pieces of one size
        whole = tuple(piece for piece in plan if piece.start < start)
        remainder = plan[len(whole) :]
        alone = len(remainder) == 1 and remainder[0].places == remainder[0].size
        if plan and (alone or not remainder):
            return (), plan, operation
        with ready.keeper.lock:
            least = _seconds(ready.operation, remainder)
            if self._others is None:
                self._others = list(self.other_ways())
            for other in self._others:
                few = other.plan(count - start) or ()
                if (seconds := _seconds(other.operation, few)) < least:
                    remainder = tuple(piece._replace(start=piece.start + start) for piece in few)
                    least, operation = seconds, other.operation
                ready.keeper.remember(other.operation)
        return whole, remainder, operation


class LinearLayer(Ways):
    """A linear layer: few rows take turned copies of its weights."""

    def __init__(self, ready: ReadyOperation, copies: Copies) -> None:
        super().__init__(ready)
        self.copies = copies

    def held(self, w: Any) -> Any:
        return self.copies.get(w)

    def other_ways(self) -> Iterable[Sizes]:
        """As of ``Ways``: on turned weights, perhaps block by block; and row by row."""
        ready = self.ready
        like: TorchLinear = ready.operation
        # of a narrow format the sum of each block would be rounded
        narrow = torch.empty((), dtype=like.dtype).element_size() < 4
        blocks = [] if narrow else [block for block in BLOCKS if block < like.channels]
        half = -(-like.channels // 2)  # MKL cuts up to two blocks of channels in halves
        for block in [like.channels, *blocks]:
            operation = Turned(like, block)
            sizes = ready.keeper.other_sizes(operation, ready.sizes.entry, TRIED)
            if sizes is not None:
                yield sizes
                if block < like.channels:
                    break
        for block in [like.channels, half, *blocks] if like.dtype is torch.float32 else ():
            operation = WeightedSums(like, block)
            sizes = ready.keeper.other_sizes(operation, ready.sizes.entry, (1,))
            if sizes is not None:
                yield sizes
                return


class Convolved(Ways):
    """A convolution: few samples are given to oneDNN."""

    def other_ways(self) -> Iterable[Sizes]:
        ready = self.ready
        if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:
            sizes = ready.keeper.other_sizes(OneDNN(ready.operation), ready.sizes.entry, TRIED)
            if sizes is not None:
                yield sizes


def _seconds(operation: TorchLinear | TorchConvolution, plan: Plan) -> float:
    """Of all pieces, as they are run: of few rows, filling them up takes as long as the product.
    Infinite where there is none."""
    if not plan:
        return math.inf
    sample, parameters = operation.telling(0)
    samples = TOOLS.repeated(sample, sum(piece.places for piece in plan))
    first = plan[0].start
    pieces = [piece._replace(start=piece.start - first) for piece in plan]
    if len(pieces) == 1:
        return seconds_of(partial(whole_call, pieces[0], operation.call, samples, parameters))
    steps = [(piece, operation.call, parameters) for piece in pieces]
    return seconds_of(partial(in_pieces, steps, samples))

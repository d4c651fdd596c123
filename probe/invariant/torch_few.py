"""Few rows or samples: other ways to the bits that many get, where a library has one.

With few rows of a linear layer a library leaves out packing, and then adds in another order. Given
the weights turned, as (channels, filters), it often adds as with many rows, from two rows on. Where
it adds many channels block by block, so do the products of such blocks, added up one after the
other. Few samples of a convolution are left to PyTorch's own kernels, many to oneDNN: asked for,
oneDNN computes one sample as well. Which of these gives the bits of the chosen class is found by
marks, as for every size; which of those is run is a matter of time.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch

from probe.invariant.classes import Piece, Sizes
from probe.invariant.keeper import Known
from probe.invariant.torch_calls import (
    Convolution,
    Linear,
    Rows,
    Tensors,
    aligned,
    each,
    laid,
    padded,
    room,
)

BLOCKS = (384, 256, 192, 320, 336, 448, 512, 128, 768, 96, 64)
"""Channels that are added at a time: the first of them that gives the bits is taken."""

TRIED = (2, 4, 8, 16, 1)  # rows at which a way is looked for
MEMORY = 1 << 28  # bytes of all copies of one model
SAMPLES = 61  # numbers of the weights that are compared before each call


class Turned(Linear):
    """As a ``Linear``, of turned weights; that many channels at a time."""

    own = False
    pieces: Sequence[int] = ()

    def __init__(self, like: Linear, block: int) -> None:
        self.like = like
        super().__init__(like.channels, like.filters, like.dtype, like.bias, turned=True)
        whole = block >= like.channels
        self.key = f"{like.key} few rows" + ("" if whole else f" in blocks of {block} channels")
        self.blocks = [slice(at, at + block) for at in range(0, like.channels, block)]

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        """As ``Asked.drawn``."""
        sample, (w, b) = self.like.telling(number)
        return sample, (w if self.like.turned else laid(w.t()), b)

    def forget(self) -> None:
        """As ``Rows.forget``."""
        super().forget()
        self.like.forget()

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        """As ``Rows.call``."""
        (x,), (w, b) = samples, parameters
        if len(self.blocks) == 1:
            return super().call(samples, parameters, out)
        first, *others = self.blocks
        y = super().call((x[:, first],), (w[first], b), out)
        for block in others:
            y.addmm_(x[:, block], w[block])
        return y


class OneDNN(Convolution):
    """As a ``Convolution``, whatever the number of samples by oneDNN."""

    pieces: Sequence[int] = ()

    def __init__(self, like: Convolution) -> None:
        super().__init__(like.shape, like.weights, like.dtype, like.bias, like.words, at=like.at)
        self.key, self.like = f"{like.key} by oneDNN", like
        self.flat = len(like.shape) == 2  # one axis, to which another of size 1 is added
        named = (("padding", 0), ("stride", 1), ("dilation", 1))
        rank = len(like.shape) - 1
        options = [each(like.words.get(name, usual), rank) for name, usual in named]
        if self.flat:
            options = [(usual, *one) for one, (_, usual) in zip(options, named, strict=True)]
        self.options = (*options, like.words.get("groups", 1))

    def telling(self, number: int) -> tuple[Tensors, Tensors]:
        """As ``Asked.telling``."""
        return self.like.telling(number)

    def forget(self) -> None:
        """As ``Rows.forget``."""
        self.like.forget()

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        """As ``Rows.call``."""
        (x,), (w, b) = samples, parameters
        b = b if b is None else b.contiguous()  # of others mkldnn_convolution reads wrong numbers
        if not self.flat:
            return torch.mkldnn_convolution(x, w, b, *self.options)
        return torch.mkldnn_convolution(x[:, :, None], w[:, :, None], b, *self.options).squeeze(2)

    def mark(self, size: int) -> str:
        """As ``Rows.mark``; empty too where oneDNN has no kernel of this format."""
        try:
            return super().mark(size)
        except RuntimeError:
            return ""


class Copy(NamedTuple):
    """A turned copy. ``there``: some numbers of the weights, in their memory; ``some``: as copied.

    ``weights``: a weak reference. ``state``: what PyTorch counts and names of them.
    """

    weights: Any
    state: tuple[Any, ...]
    there: Any
    some: Any
    turned: Any


class Copies:
    """Turned copies of the weights of one model: made when first asked for, and made anew.

    Weights that changed in place are noticed by PyTorch's count of changes; that count misses what
    is done through ``.data`` or NumPy, so some of the numbers are compared as well.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Copy] = {}

    def get(self, w: Any) -> Any:
        """Returns the copy of a parameter, (channels, filters); None: there is none."""
        if type(w) is not torch.nn.Parameter or w.is_inference():
            return None
        state = w._version, w.data_ptr(), w.shape, w.dtype
        kept = self._kept.get(id(w))
        there = kept is not None and kept.weights() is w and kept.state == state
        if kept is not None and there and torch.equal(kept.there, kept.some):
            return kept.turned
        with torch.no_grad():
            return self._made(w, state)

    def _made(self, w: Any, state: tuple[Any, ...]) -> Any:
        gone = [key for key, one in self._kept.items() if one.weights() is None or key == id(w)]
        for key in gone:
            del self._kept[key]
        held = sum(one.turned.nbytes for one in self._kept.values())
        if held + w.nbytes > MEMORY or not w.is_contiguous():
            return None
        there = w.detach().as_strided((SAMPLES,), (w.numel() // SAMPLES,))
        kept = Copy(weakref.ref(w), state, there, there.clone(), laid(w.t()))
        self._kept[id(w)] = kept
        return kept.turned


class Step(NamedTuple):
    """A piece of a call, and the operation for it; ``other``: not the one as it is."""

    piece: Piece
    operation: Rows
    other: bool


class Ways:
    """An operation on samples and weights whose class is known, in the ways that give its bits."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.steps: dict[int, tuple[Step, ...]] = {}
        self._others: list[Sizes] | None = None

    def found(self) -> Iterable[Sizes]:
        """Other operations that give the bits at some number of samples."""
        return ()

    def held(self, w: Any) -> Any:
        """Returns the weights as other operations take them; None: they can't be had."""
        return w

    def native(self, count: int) -> bool:
        """Whether that many samples, which were computed before, are one call of the library's."""
        steps = self.steps.get(count, ())
        if not getattr(self.known.run.operation, "own", True):
            return False
        return len(steps) == 1 and steps[0].piece.size == count and not steps[0].other

    def __call__(self, x: Any, w: Any, b: Any) -> Any:
        """The operation of x (samples, ...), contiguous, with weights and a bias or None."""
        count = x.shape[0]
        steps = self.steps.get(count)
        if steps is None:
            steps = self.steps[count] = self._steps(count)
        if not steps:
            return self.known((x,), (w, b))
        weights = w
        if steps[-1].other:  # the rest, which stands last, is what is few
            weights = self.held(w)
            if weights is None:
                return self.known((x,), (w, b))
        if len(steps) == 1:
            (((_, _, size), operation, _),) = steps
            if count == size:
                return operation.call((x,), (weights, b))
            return operation.call((padded(x, size),), (weights, b))[:count]
        y = self.known.run.operation.empty((x,))
        for (start, places, size), operation, other in steps:
            part, parameters = x[start : start + places], (weights if other else w, b)
            if places < size:
                one = operation.call((padded(part, size),), parameters)[:places]
            else:
                out = room(None if y is None else y[start : start + places])
                one = operation.call((aligned(part),), parameters, out)
                if out is not None and one.data_ptr() == out.data_ptr():
                    continue
            if y is None:
                y = one.new_empty((count, *one.shape[1:]))
            y[start : start + places] = one
        return y

    def _steps(self, count: int) -> tuple[Step, ...]:
        """By the plan of the operation as it is; what that pads in the cheapest way there is."""
        operation = self.known.run.operation
        there = tuple(Step(piece, operation, False) for piece in self.known.plan(count) or ())
        large = there[0].piece.size if there and count > operation.pieces[0] else 0
        start = count // large * large if large else 0  # before that stand pieces of one size
        whole = tuple(step for step in there if step.piece.start < start)
        rest = there[len(whole) :]
        alone = len(rest) == 1 and rest[0].piece.places == rest[0].piece.size
        if there and (alone or not rest):
            return there
        with self.known.keeper.lock:
            return whole + self._cheapest(rest, start, count - start)

    def _cheapest(self, there: tuple[Step, ...], start: int, count: int) -> tuple[Step, ...]:
        """Returns the steps of ``count`` samples from ``start`` on; ``there``: those as it is."""
        sizes = self.known.sizes
        best, least = there, _seconds(sizes, [step.piece for step in there])
        if self._others is None:
            self._others = list(self.found())
        for other in self._others:
            plan = other.plan(count) or ()
            seconds, operation = _seconds(other, plan), cast("Rows", other.operation)
            if seconds < least:
                moved = (piece._replace(start=piece.start + start) for piece in plan)
                best, least = tuple(Step(piece, operation, True) for piece in moved), seconds
            self.known.keeper.remember(operation)
        return best


class Layer(Ways):
    """A linear layer: few rows take turned copies of its weights."""

    def __init__(self, known: Known, copies: Copies) -> None:
        super().__init__(known)
        self.copies = copies

    def held(self, w: Any) -> Any:
        """As ``Ways.held``."""
        return self.copies.get(w)

    def found(self) -> Iterable[Sizes]:
        """As ``Ways.found``: on turned weights, perhaps block by block."""
        known = self.known
        like = cast("Linear", known.run.operation)
        narrow = torch.empty((), dtype=like.dtype).element_size() < 4  # rounds after each block
        blocks = [] if narrow else [block for block in BLOCKS if block < like.channels]
        for block in [like.channels, *blocks]:
            operation = Turned(like, block)
            sizes = known.keeper.beside(operation, known.sizes.entry, TRIED)
            if sizes is not None:
                yield sizes
                if block < like.channels:
                    return


class Convolved(Ways):
    """A convolution: few samples are given to oneDNN."""

    def found(self) -> Iterable[Sizes]:
        """As ``Ways.found``."""
        known = self.known
        like = cast("Convolution", known.run.operation)
        if torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:
            sizes = known.keeper.beside(OneDNN(like), known.sizes.entry, TRIED)
            if sizes is not None:
                yield sizes


def _seconds(sizes: Sizes, plan: Sequence[Piece]) -> float:
    """Of all pieces; infinite where there is none."""
    return sum(sizes.seconds(piece.size) for piece in plan) if plan else float("inf")

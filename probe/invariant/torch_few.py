"""Few rows of a linear layer: the bits that many rows get, from a kept, turned copy of the weights.

With few rows a library leaves out packing, and then adds in another order. Given the weights
turned, as (channels, filters), it often adds as with many rows, from two rows on. Where it adds
many channels block by block, so do the products of such blocks, added up one after the other. Which
of these gives the bits of the chosen class is found by marks, as for every size; which of those is
run is a matter of time.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch

from probe.invariant.classes import Piece, Sizes
from probe.invariant.keeper import Known
from probe.invariant.torch_calls import Linear, Tensors, laid, padded

BLOCKS = (384, 256, 192, 320, 336, 448, 512, 128, 768, 96, 64)
"""Channels that are added at a time: the first of them that gives the bits is taken."""

TRIED = (2, 4, 8, 16, 1)  # rows at which a way is looked for
MEMORY = 1 << 28  # bytes of all copies of one model
SAMPLES = 61  # numbers of the weights that are compared before each call


class Turned(Linear):
    """As a ``Linear``, of turned weights; so many channels at a time."""

    pieces: Sequence[int] = ()

    def __init__(self, like: Linear, block: int) -> None:
        super().__init__(like.channels, like.filters, like.dtype, like.bias, turned=True)
        whole = block >= like.channels
        self.key = f"{like.key} few rows" + ("" if whole else f" in blocks of {block} channels")
        self.blocks = [slice(at, at + block) for at in range(0, like.channels, block)]

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


class Copies:
    """Turned copies of the weights of one model: made when first asked for, and made anew.

    Weights that changed in place are noticed by PyTorch's count of changes; that count misses what
    is done through ``.data`` or NumPy, so some of the numbers are compared as well.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, tuple[Any, ...], Any, Any]] = {}

    def get(self, w: Any) -> Any:
        """The copy of a parameter, (channels, filters); None: there is none."""
        if type(w) is not torch.nn.Parameter or w.is_inference():
            return None
        some = w.as_strided((SAMPLES,), (w.numel() // SAMPLES,))
        state = w._version, w.data_ptr(), w.shape, w.dtype
        kept = self._kept.get(id(w))
        if kept is not None and kept[0]() is w and kept[1] == state and torch.equal(some, kept[2]):
            return kept[3]
        with torch.no_grad():
            return self._made(w, state, some)

    def _made(self, w: Any, state: tuple[Any, ...], some: Any) -> Any:
        gone = [key for key, kept in self._kept.items() if kept[0]() is None or key == id(w)]
        for key in gone:
            del self._kept[key]
        held = sum(kept[3].nbytes for kept in self._kept.values())
        if held + w.nbytes > MEMORY or not w.is_contiguous():
            return None
        copied = laid(w.t())
        self._kept[id(w)] = weakref.ref(w), state, some.clone(), copied
        return copied


class Step(NamedTuple):
    """A piece of a call, and the operation that computes it."""

    piece: Piece
    operation: Linear
    turned: bool


class Layer:
    """A linear layer whose class is known, in the ways that give its bits."""

    def __init__(self, known: Known, copies: Copies) -> None:
        self.known, self.copies = known, copies
        self.native: set[int] = set()  # numbers of rows at which the library's own call is made
        self.steps: dict[int, tuple[Step, ...]] = {}
        self._others: list[Sizes] | None = None

    def __call__(self, x: Any, w: Any, b: Any) -> Any:
        """``x @ w.T + b``: x (rows, channels), contiguous."""
        count = x.shape[0]
        steps = self.steps.get(count)
        if steps is None:
            steps = self.steps[count] = self._steps(count)
            if len(steps) == 1 and steps[0].piece.size == count and not steps[0].turned:
                self.native.add(count)
        if not steps:
            return self.known((x,), (w, b))
        turned = None
        if steps[-1].turned:  # the rest, which stands last, is what is few
            turned = self.copies.get(w)
            if turned is None:
                return self.known((x,), (w, b))
        if len(steps) == 1:
            (((_, _, size), operation, _),) = steps
            given = (x if count == size else padded(x, size),)
            y = operation.call(given, (w if turned is None else turned, b))
            return y if count == size else y[:count]
        y = x.new_empty((count, w.shape[0]))
        for (start, places, size), operation, other in steps:
            part, out = x[start : start + places], y[start : start + places]
            held = turned if other else w
            if places < size:
                out.copy_(operation.call((padded(part, size),), (held, b))[:places])
            else:
                operation.call((part,), (held, b), out)
        return y

    def _steps(self, count: int) -> tuple[Step, ...]:
        """By the plan of the layer as it is; what that pads in the cheapest way there is."""
        operation = cast("Linear", self.known.run.operation)
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
        """The steps of ``count`` rows from ``start`` on; ``there``: those without a copy."""
        sizes = self.known.sizes
        best, least = there, _seconds(sizes, [step.piece for step in there])
        for other in self._ways():
            plan = other.plan(count) or ()
            seconds, operation = _seconds(other, plan), cast("Turned", other.operation)
            if seconds < least:
                moved = (piece._replace(start=piece.start + start) for piece in plan)
                best, least = tuple(Step(piece, operation, True) for piece in moved), seconds
            self.known.keeper.remember(operation)
        return best

    def _ways(self) -> list[Sizes]:
        """Operations on turned weights that give the bits at some number of rows."""
        if self._others is None:
            self._others = list(self._found())
        return self._others

    def _found(self) -> Iterable[Sizes]:
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


def _seconds(sizes: Sizes, plan: Sequence[Piece]) -> float:
    """Of all pieces; infinite where there is none."""
    return sum(sizes.seconds(piece.size) for piece in plan) if plan else float("inf")

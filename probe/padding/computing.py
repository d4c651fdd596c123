"""Whether an operation computes at a shorter size as it does in the full run.

The operation alone is asked, on the first positions of its recorded operands, whatever size the
model would have to have for that: no recording of the model is needed, and an answer serves every
size of the model at which the operation's operands have these sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.layout import CONTIGUOUS
from probe.operands import normal
from probe.padding.positions import At, Linked, Positions
from probe.recording.alone import Known, unequal_bits
from probe.recording.difference import Region
from probe.recording.judging import Judged, has_no_choice, judge_operation
from probe.recording.matching import Pair
from probe.recording.ported import Ports
from probe.recording.recording import Operation, Run
from probe.recording.replayed import There
from probe.recording.store import ProcessStore
from probe.semantics import Meaning, Steps
from probe.semantics.labels import Selection

WHOLE = Selection((), None, None, ((), ()))

# Sets of operands on which bits are compared before anything is asked, and the first seed: an order
# that is different rounds differently on one of so many for nearly all outputs.
GLANCES, GLANCE_SEED = 4, 33_000

# Bytes of operands and results at the full size that are kept for that.
MOST_HELD = 1 << 28


@dataclass(frozen=True)
class SizedOperation:
    """An operation at some size. ``apart``: of each of its outputs that is wanted, by number, which
    of the first positions it computes differently; ``found``: how that is known."""

    linked: Linked
    name: str
    found: Judged
    apart: dict[int, np.ndarray]


class Computing:
    """The operations of a model at other sizes. ``known``: what was revealed of some, as of
    ``judge_operation``; ``record``: gives a run of another size, as the full one was run."""

    def __init__(self, positions: Positions, known: Known, record: Callable[[int], Run]) -> None:
        self.positions, self.full, self.known = positions, positions.full, known
        self.record = record
        self.asked: dict[tuple[int, tuple[int, ...]], SizedOperation] = {}
        self.glanced: dict[tuple[int, tuple[int, ...]], dict[int, np.ndarray]] = {}
        self.turned: set[tuple[int, tuple[int, ...]]] = set()
        """What has different bits in the memory format of images alone."""
        self.wholes: dict[tuple[int, int, str], tuple[list[np.ndarray], list[np.ndarray]]] = {}
        self.held = 0
        operations = self.full.operations
        self.deciding = [
            link for link in positions.linked if not has_no_choice(operations[link.number].meaning)
        ]

    def at(self, link: Linked, at: At, size: int | None) -> SizedOperation | None:
        """Returns what an operation computes in a run of ``size``; None where that is the very call
        of the full run. ``size`` None: no run of the model has these sizes, it is asked by
        itself."""
        sizes = tuple(at.sizes[n] for n in link.operands)
        if sizes == tuple(map(self.positions.length, link.operands)):
            return None
        key = link.number, sizes
        if key not in self.asked:
            sized = self._ask(link, at, size)
            if size is None and not sized.found.how:
                return sized
            self.asked[key] = sized
        return self.asked[key]

    def glance(self, link: Linked, at: At) -> dict[int, np.ndarray]:
        """Returns which first positions of an operation's outputs have different bits from the full
        run's, on a few sets of operands: as of ``SizedOperation.apart``, of which it costs some
        calls, where asking about every addition takes hundreds. There may be more."""
        sizes = {n: at.sizes[n] for n in (*link.operands, *link.gives)}
        key = link.number, tuple(at.sizes[n] for n in link.operands)
        if key not in self.glanced:
            try:
                self.glanced[key] = self._glanced(link, sizes)
            except Exception:  # a library refuses a shape as it likes
                self.glanced[key] = {}
        return self.glanced[key]

    def _glanced(self, link: Linked, sizes: dict[int, int]) -> dict[int, np.ndarray]:
        if min(sizes.values()) < 1 or not self.positions.steady(link.number):
            return {}
        _, operation = self.resized(link, sizes)
        # operands are the full run's first entries here, and don't end in zeros
        leading = self.positions.leading(link, sizes, zeros=False)
        apart = dict[int, np.ndarray]()
        again: Any = operation.again
        # PyTorch takes other kernels of a channels-last tensor, with an order of their own: a size
        # of 2,566 that serves the nine layers in contiguous memory changes bits there
        for word, seed in product(layouts_of(operation), range(GLANCES)):
            if apart:
                break
            reads, whole = self._whole(link, seed, word)
            axes = self.positions.axes
            short = [
                np.take(a, range(sizes[n]), axes[n]) if n in link.operands else a
                for n, a in zip(operation.reads, reads, strict=True)
            ]
            with np.errstate(all="ignore"):
                gives = in_layout(again, word)([np.array(a, order="C") for a in short])
            for n, mine, other in zip(operation.gives, gives, whole, strict=False):
                axis, count = self.positions.axis(n), leading.get(n, 0)
                if axis is None or not count:
                    continue
                one_, two = (
                    np.moveaxis(np.asarray(a), axis, 0)[:count].reshape(count, -1)
                    for a in (mine, other)
                )
                bad = (
                    unequal_bits(one_, two, self.full.values[n].dtype)
                    .reshape(count, -1)
                    .any(axis=1)
                )
                if bad.any():
                    apart[n] = apart.get(n, np.zeros(count, bool)) | bad
                    if word != CONTIGUOUS:
                        self.turned.add((link.number, tuple(sizes[n] for n in link.operands)))
        return apart

    def _whole(
        self, link: Linked, seed: int, word: str
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns operands at the full size, those of a seed, and what the operation gives of
        them. The last operations' are kept: they are asked first, at one size after the other."""
        key = link.number, seed, word
        if key not in self.wholes:
            operation, reads = self.full.operations[link.number], []
            assert operation.again is not None
            for n in operation.reads:
                array, dtype = self.full.array(n), self.full.values[n].dtype
                if array is None:
                    raise ValueError("what it reads was left out")
                if seed and n in link.operands and dtype in floats.FORMATS:
                    factor = 1 + np.clip(
                        normal(GLANCE_SEED + seed, "x", array.shape) / 6, -0.5, 0.5
                    )
                    array = floats.round_to(floats.widen(array, dtype) * factor, dtype)
                reads.append(np.array(array, order="C"))
            with np.errstate(all="ignore"):
                gives = [np.asarray(each) for each in in_layout(operation.again, word)(reads)]
            self.held += sum(each.nbytes for each in (*reads, *gives))
            if self.held > MOST_HELD:
                self.wholes.clear()
                self.held = 0
            self.wholes[key] = reads, gives
        return self.wholes[key]

    def _ask(self, link: Linked, at: At, size: int | None) -> SizedOperation:
        operation = self.full.operations[link.number]
        sizes = {n: at.sizes[n] for n in (*link.operands, *link.gives)}
        if not sizes or min(sizes.values()) < 1:
            return SizedOperation(link, operation.name, Judged("exact"), {})
        if (why := (self.full.alone or {}).get(link.number)) is not None:
            why = f"it ran in the model's own library, not on the target: {why}"
            return SizedOperation(link, operation.name, Judged("", why), {})
        short = None
        if self.positions.steady(link.number):
            try:
                short = self._alone(link, sizes)
            except Exception:  # a library refuses a shape as it likes
                short = None
        try:
            if short is None and size is None:
                raise InputError("operation", operation.name, "it does not run alone at it", "")
            short = short or self.record(size or 0)
        except InputError as error:
            return SizedOperation(
                link, operation.name, Judged("", f"it could not be tested: {error.why}"), {}
            )
        aligned, leading = self._aligned(link, sizes)
        judged = judge_operation(aligned, short, self.full, self.known)
        apart: dict[int, np.ndarray] = {}
        for pair, some in zip(aligned.gives, judged.apart, strict=False):
            if some is not None and some.any():
                count = leading[pair.left]
                apart[pair.left] = np.asarray(some.reshape(count, -1).any(axis=1))
        return SizedOperation(link, operation.name, judged, apart)

    def resized(self, link: Linked, sizes: Mapping[int, int]) -> tuple[Run, Operation]:
        """Returns the full run with an operation whose operands and results have these sizes, and
        that operation, which can be run by itself. ValueError: it can't."""
        run, positions = self.full, self.positions
        operation = run.operations[link.number]
        if operation.again is None:
            raise ValueError("it can't be run alone")
        values, shapes = list(run.values), {}
        for n in (*operation.reads, *operation.gives):
            shape, axis = run.values[n].shape, positions.axes.get(n)
            if axis is not None:  # positions that are numbered, too, go with what is read there
                count = sizes.get(n, sizes[link.operands[0]])
                shapes[shape] = (*shape[:axis], count, *shape[axis + 1 :])
                values[n] = replace(
                    values[n], shape=shapes[shape], content=None, zeros=None, address=None
                )
        meaning = resized_meaning(operation.meaning, shapes)
        operations = list(run.operations)
        short = replace(run, values=values, operations=operations, store=ProcessStore(run.store))
        again: Any = operation.again
        if isinstance(again, There):  # the target is told of the other sizes
            again = replace(
                again, ports=Ports(short), operation=replace(operation, meaning=meaning)
            )
        operations[link.number] = replace(operation, meaning=meaning, again=again)
        return short, operations[link.number]

    def _alone(self, link: Linked, sizes: dict[int, int]) -> Run:
        """Returns the full run with one operation's operands cut to size, and what it gives."""
        short, operation = self.resized(link, sizes)
        axes, values, reads, store = self.positions.axes, list(short.values), [], short.store
        for n in operation.reads:
            array = self.full.array(n)
            if array is None:
                raise ValueError("what it reads was left out")
            if n in axes:
                array = np.take(array, range(values[n].shape[axes[n]]), axes[n])
                values[n] = replace(values[n], digest=store.put(np.ascontiguousarray(array)))
            reads.append(np.array(array, order="C"))
        assert operation.again is not None
        with np.errstate(all="ignore"):
            gives = [np.asarray(each) for each in operation.again(reads)]
        for n, array in zip(operation.gives, gives, strict=False):
            if n in link.gives and array.shape != values[n].shape:
                raise ValueError("it gives another shape alone")
            values[n] = replace(
                values[n], shape=array.shape, digest=store.put(np.ascontiguousarray(array))
            )
        return replace(short, values=values)

    def _aligned(self, link: Linked, sizes: dict[int, int]) -> tuple[Region, dict[int, int]]:
        """Returns the operation in both runs, with its first positions that must agree."""
        operation = self.full.operations[link.number]
        region = Region(
            *(operation.name, operation.op, operation.path, link.number, link.number),
            inside=((link.number,), (link.number,)),
        )
        for n in operation.reads:
            region.reads.append(self._pair(n, sizes.get(n) if n in link.operands else None, sizes))
        leading = self.positions.leading(link, sizes)
        for n in operation.gives:
            count = leading.get(n, 0)
            region.gives.append(self._pair(n, count, sizes))
        return region, leading

    def _pair(self, number: int, count: int | None, sizes: dict[int, int]) -> Pair:
        """``count``: of positions that must agree; None: all elements."""
        shape = self.full.values[number].shape
        axis = self.positions.axis(number)
        if count is None or (axis is None and count):
            return Pair(number, number, WHOLE, True, prod(shape))
        if axis is None or number not in sizes:
            none = np.zeros(0, np.int64)
            return Pair(number, number, Selection((), none, none, ((), ()), True), True, 0)
        index = np.arange(count)
        lengths = (sizes[number],), (shape[axis],)
        rest = prod(n for a, n in enumerate(shape) if a != axis)
        chosen = Selection((axis,), index, index, lengths)
        return Pair(number, number, chosen, True, count * rest)


def layouts_of(operation: Operation) -> tuple[str, ...]:
    """Returns the layouts in which users of a target have an operation's input: see ``There``."""
    return operation.again.words if isinstance(operation.again, There) else (CONTIGUOUS,)


def in_layout(again: Any, word: str) -> Any:
    return again if word == CONTIGUOUS else replace(again, word=word)


def resized_meaning(meaning: Meaning, shapes: Mapping[tuple[int, ...], tuple[int, ...]]) -> Meaning:
    """Returns a meaning whose steps have other shapes, where they give one that is known."""
    if not isinstance(meaning, Steps):
        return meaning
    steps = tuple(
        replace(
            step,
            meaning=resized_meaning(step.meaning, shapes),
            shape=shapes.get(step.shape, step.shape),
            more=tuple(shapes.get(shape, shape) for shape in step.more),
        )
        for step in meaning.steps
    )
    return replace(meaning, steps=steps)

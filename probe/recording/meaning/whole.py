"""What reads whole axes, or all steps up to its own: unknown mixtures, cumulative sums, cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recording import mixing
from probe.recording.labels import Labels, Name, extended, joined, tag
from probe.recording.meaning.contract import Meaning, Shapes
from probe.recording.meaning.sums import numbered


@dataclass(frozen=True)
class Whole(Meaning):
    """Every output reads all of some axes of its inputs, and nothing is known of its own place
    there.

    ``kept``: pairs (input axis, output axis) along which an output reads its own index alone: the
    batch, as a rule. The first input alone has these axes; others are read whole, but for
    ``rows``, of which the first of these axes is the first axis too: a mask with a row for each of
    the batch.
    """

    kept: tuple[tuple[int, int], ...] = ()
    word: str = ""
    numbers: tuple[Any, ...] = ()
    rows: tuple[int, ...] = ()

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        rest = [other for n, other in enumerate(reads) if n and n not in self.rows]
        ins = [axis for axis, _ in self.kept]
        inner = [axis for axis in range(len(one.shape)) if axis not in ins]
        full = mixing.visible(one.full(ins)).transpose(*ins, *inner)
        lead = full.shape[: len(ins)]
        lines = full.reshape(*lead, -1)
        index = np.arange(1, lines.shape[-1] + 1, dtype=np.uint64)
        found = mixing.summed(joined(lines, index), (len(lead),))
        words = [
            (one.shape[a], mixing.hashed(one.name(a)) if one.implicit(a) else 0) for a in inner
        ]
        found = joined(found, mixing.whole(rest, what), tag(*words, self.numbers))
        for n in self.rows:
            row = mixing.in_rows(reads[n]).reshape(-1, *(1,) * (len(lead) - 1))
            found = joined(found, row)
        order = np.argsort([axis for _, axis in self.kept]) if self.kept else ()
        result = []
        for number, shape in enumerate(shapes):
            lengths = [min(n, 1) for n in shape]
            for place, (_, axis) in enumerate(self.kept):
                lengths[axis] = lead[place]
            labels = joined(found, tag(number)).transpose(*order).reshape(lengths)
            result.append(Labels(shape, labels, mixing.known(reads)))
        return result


@dataclass(frozen=True)
class Scans(Meaning):
    """Output t along ``axis`` reads inputs up to t (from the end if ``reverse``): cumulative sums.

    ``mixes``: axes that every output reads whole besides: the features of a recurrent cell. What is
    read besides (weights) is read whole; ``states``: which of ``reads`` are first states, with the
    batch along the axis ``batch`` of the first input and along their own axis before the last.
    Outputs of another shape than the first are the last step's.
    """

    axis: int
    word: str = ""
    reverse: bool = False
    mixes: tuple[int, ...] = ()
    numbers: tuple[Any, ...] = ()
    states: tuple[int, ...] = ()
    batch: int | None = None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one = reads[0]
        rank = len(one.shape)
        axis, mixes = self.axis % rank, tuple(a % rank for a in self.mixes)
        array = mixing.reduced(one, mixes, False) if mixes else mixing.visible(one.array)
        sizes = tuple(1 if a in mixes else n for a, n in enumerate(one.shape))
        names = tuple(map(one.name, range(rank)))
        full = Labels(sizes, array, one.known, names)
        lines = full.full([axis] if self.batch is None else [axis, self.batch])
        lines = np.flip(lines, axis) if self.reverse else lines
        found = np.empty_like(lines)
        state = self._first(reads, extended(what, self.numbers), rank)
        for step in range(lines.shape[axis]):
            at = (slice(None),) * axis + (slice(step, step + 1),)
            state = joined(state, lines[at])
            found[at] = state
        found = np.flip(found, axis) if self.reverse else found
        fresh = tuple(("mixed", a) if a in mixes else name for a, name in enumerate(names))
        known = mixing.known(reads)
        return [self._given(found, state, fresh, to, n, known) for n, to in enumerate(shapes)]

    def _first(self, reads: Sequence[Labels], what: np.uint64, rank: int) -> np.ndarray:
        """What a step reads besides: weights, and its own row of the first states."""
        rest = [one for n, one in enumerate(reads[1:], 1) if n not in self.states]
        first = mixing.whole(rest, what)
        for n in self.states:
            one = reads[n]
            batch = len(one.shape) - 2
            others = tuple(a for a in range(len(one.shape)) if a != batch)
            one = one._replace(array=numbered(one._replace(array=one.full()), others))
            row = mixing.reduced(one, others, True).reshape(-1)
            first = joined(first, row.reshape([-1 if a == self.batch else 1 for a in range(rank)]))
        return np.asarray(first)

    def _given(
        self,
        found: np.ndarray,
        last: np.ndarray,
        names: tuple[Name, ...],
        to: tuple[int, ...],
        number: int,
        known: bool,
    ) -> Labels:
        mixes = tuple(a % len(names) for a in self.mixes)
        if (
            len(to) == found.ndim
            and all(
                a in mixes or n in (m, found.shape[a])
                for a, (n, m) in enumerate(zip(to, found.shape, strict=True))
            )
            and (not mixes or to[self.axis] == found.shape[self.axis])
            and (number == 0 or not self.states)
        ):
            return Labels(to, joined(found, tag(number)), known, names)
        if self.batch is None or len(to) < 2 or to[-2] != last.shape[self.batch]:
            return mixing.of_one(mixing.whole([Labels(last.shape, last)], tag(number)), to, known)
        rows = joined(last, tag(number)).reshape(
            [-1 if a == len(to) - 2 else 1 for a in range(len(to))]
        )
        return Labels(to, rows, known)

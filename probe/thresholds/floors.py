"""Finds classes of sizes in which every row adds alike, and the floor to fill calls up to.

A row is a place of what is varied: a row of a dense layer, a sample of a batch, an output position
along the length. Sizes at which some rows add differently than others are in no class. Between
sizes that were run a class goes on where both of its ends, with the same remainder by the period of
tails, are in it: what ``search`` assumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from probe.order import notation
from probe.order.summation import Summation
from probe.printing import ranges
from probe.thresholds.recognition import UNKNOWN, Pattern
from probe.thresholds.switches import Thresholds

MIXED, NOT_RUN = -1, -2
NOUNS = {"dense": "rows"}
WRITTEN = 48  # characters of an order that has no name


class Span(NamedTuple):
    """Sizes from ``first`` to ``last``, every ``step``-th."""

    first: int
    last: int
    step: int = 1

    @property
    def text(self) -> str:
        if self.first == self.last:
            return f"{self.first:,}"
        by = f" by {self.step}" * (self.step > 1)
        return f"{self.first:,}..{self.last:,}{by}"


@dataclass(frozen=True)
class SizeClass:
    """Sizes at which every row adds as ``kind`` says.

    ``spans``: all of them; ``run``: how many were run, and ``certified`` at which of these every
    output was tested for every addition and every fusion.
    """

    kind: int
    spans: tuple[Span, ...]
    run: int
    certified: tuple[int, ...]

    @property
    def floor(self) -> int:
        """Returns the smallest of them."""
        return min(span.first for span in self.spans)

    @property
    def count(self) -> int:
        """Returns how many sizes there are."""
        return sum((span.last - span.first) // span.step + 1 for span in self.spans)

    @property
    def text(self) -> str:
        """``{2..15}``; a few of many spans."""
        parts = [span.text for span in self.spans[:6]]
        return f"{{{', '.join(parts)}{', ...' * (len(self.spans) > 6)}}}"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "sizes": [list(span) for span in self.spans],
            "count": self.count,
            "run": self.run,
            "certified": list(self.certified),
        }


@dataclass(frozen=True)
class Floor:
    """From ``size`` on, in multiples of ``step``, every row adds as at the largest size.

    ``size`` None: no such size was found. ``pieces``: a smaller floor with the largest size of
    pieces that calls are then cut into. ``certified``: every output of all sizes was tested for
    every addition and every fusion; ``sides``: those of the two sizes on either side of the floor
    were. ``text``: the answer in one line, with how rows add below and above.
    """

    size: int | None
    step: int
    kind: int
    pieces: Span | None
    certified: bool
    sides: bool
    text: str

    def to_json(self) -> dict[str, Any]:
        pieces = None if self.pieces is None else list(self.pieces[:2])
        return {**vars(self), "pieces": pieces}


def assigned(found: Thresholds) -> np.ndarray:
    """Returns the kind of every size from the shortest to the largest; ``MIXED`` or ``NOT_RUN``."""
    kinds = np.full(found.upto - found.shortest + 1, NOT_RUN)
    step = found.period or 1
    by_rest: dict[int, list[int]] = {}
    for size in sorted(found.patterns):
        by_rest.setdefault(size % step, []).append(size)
        kinds[size - found.shortest] = _kind(found.patterns[size])
    for sizes in by_rest.values() if found.period else ():
        for low, high in pairwise(sizes):
            one, other = kinds[low - found.shortest], kinds[high - found.shortest]
            if one == other:
                kinds[low - found.shortest : high - found.shortest : step] = one
    return kinds


def _kind(seen: Pattern) -> int:
    whole = seen.whole and seen.steady
    return MIXED if seen.tail or seen.elsewhere or seen.unknown or not whole else seen.interior


def classes(found: Thresholds) -> list[SizeClass]:
    """Returns the classes, that of the smallest size first."""
    kinds, told = assigned(found), []
    for kind in sorted(set(kinds[kinds >= 0].tolist())):
        sizes = found.shortest + np.flatnonzero(kinds == kind)
        run = [size for size in sizes.tolist() if size in found.patterns]
        sure = tuple(size for size in run if size in set(found.certified))
        told.append(SizeClass(kind, _spans(sizes, found.period or 1), len(run), sure))
    return sorted(told, key=lambda one: one.floor)


def _spans(sizes: np.ndarray, period: int) -> tuple[Span, ...]:
    """Returns sizes as spans: neighbours, or by their remainders, whichever are fewer."""
    near = list(_runs(sizes, 1))
    far = [one for rest in range(period) for one in _runs(sizes[sizes % period == rest], period)]
    return tuple(near if len(near) <= len(far) else sorted(far))


def _runs(sizes: np.ndarray, step: int) -> Iterator[Span]:
    if len(sizes):
        for part in np.split(sizes, np.flatnonzero(np.diff(sizes) != step) + 1):
            yield Span(int(part[0]), int(part[-1]), step if len(part) > 1 else 1)


def floor(found: Thresholds) -> Floor:
    """Returns which floor keeps every row's sum as at the largest size, and why."""
    kinds, sure = assigned(found), set(found.certified)
    top = _top(found, kinds)
    if top is None:
        largest = max(found.patterns)
        text = f"no floor: at {_sized(found, largest)} {_mixed(found, largest)}"
        return Floor(None, 1, found.patterns[largest].interior, None, False, False, text)
    size, step, kind = top
    below = next((n for n in range(size - 1, found.shortest - 1, -1) if n in found.patterns), None)
    sides = size in sure and (below is None or below in sure)
    certified = not found.uncertified
    pieces = _pieces(classes(found), kind, size)
    text = _text(found, kinds, top, below, pieces)
    return Floor(size, step, kind, pieces, certified, sides, text + _sure(certified, sides))


def _top(found: Thresholds, kinds: np.ndarray) -> tuple[int, int, int] | None:
    """(size, step, kind) of the floor; the smallest step for which one is far from the end.

    The kind is what most rows of the largest size have.
    """
    sizes = np.arange(found.shortest, found.upto + 1)
    known, kind = kinds != NOT_RUN, found.patterns[max(found.patterns)].interior
    ways = []
    for step in range(1, min(64, found.upto) + 1):
        mine = known & (sizes % step == 0)
        if not mine.any() or kinds[mine][-1] != kind:
            continue
        other = sizes[mine][kinds[mine] != kind]
        after = sizes[mine & (sizes > (other[-1] if len(other) else 0))]
        ways.append((int(after[0]), step, kind))
    far = [way for way in ways if 2 * way[0] <= found.upto]
    return min(far or ways, key=lambda way: way[1], default=None)


def _pieces(every: list[SizeClass], kind: int, size: int) -> Span | None:
    """Returns a smaller floor, with which calls of any size are made of pieces of one other class.

    Of several the one with the largest pieces. Pieces of first..last make up all sizes from
    ``first`` on where last is 2 * first - 1 or more.
    """
    spans = [span for one in every if one.kind != kind for span in one.spans]
    fit = [s for s in spans if s.step == 1 and s.first < size and s.last >= max(2, 2 * s.first - 1)]
    return max(fit, key=lambda span: span.last, default=None)


def _text(
    found: Thresholds,
    kinds: np.ndarray,
    top: tuple[int, int, int],
    below: int | None,
    pieces: Span | None,
) -> str:
    """Returns the floor in one line."""
    size, step, kind = top
    noun = NOUNS.get(found.case.op, "samples") if found.vary == "batch" else "outputs"
    by = f", in multiples of {step}," * (step > 1)
    if below is None:
        every = f"from {size:,} to {found.upto:,}{by} all {noun}"
        return f"no floor is needed: {every} are added {named(found, kind)}"
    first = f"floor: {_sized(found, size)}{by.rstrip(',')}; below, at "
    if kinds[below - found.shortest] == MIXED:
        text = f"{first}{below:,}, {_mixed(found, below)}"
        text += f", from {size:,} on all {named(found, kind)}"
    else:
        one, two, share = _pair(found, other := int(kinds[below - found.shortest]), kind)
        among = f" ({share:.0%} of the outputs)" * (share < 1)
        text = f"{first}{_below(found, kinds, below)}, {noun} are added {_order(found, one, two)}"
        text += f"{among}, from {size:,} on {_order(found, two, one)}"
        text += f" ({'+'.join(found.recogniser.causes(other, kind))})"
    if pieces is not None:
        less = f"{_sized(found, pieces.first)} will do" if pieces.first > 1 else "none is needed"
        text += f"; cut into pieces of at most {pieces.last:,}, {less}"
    return text


def _sure(certified: bool, sides: bool) -> str:
    if certified:
        return "; certified"
    return "; certified at the floor, recognised elsewhere" if sides else "; not certified"


def _sized(found: Thresholds, size: int) -> str:
    """Returns a size with what it is of."""
    if found.case.op == "dense":
        return f"{size:,} row{'s' * (size > 1)}"
    return f"{found.vary} {size:,}"


def _below(found: Thresholds, kinds: np.ndarray, last: int) -> str:
    """Returns the sizes up to ``last`` that are of one kind."""
    at = last - found.shortest
    other = np.flatnonzero(kinds[: at + 1] != kinds[at])
    first = found.shortest + (int(other[-1]) + 1 if len(other) else 0)
    return Span(first, last).text


def _mixed(found: Thresholds, size: int) -> str:
    """Returns how rows of one call add differently."""
    seen = found.patterns[size]
    if not seen.steady:
        return "the same call again gives different bits"
    if seen.unknown:
        return f"{seen.unknown:,} outputs have no known order"
    if not seen.whole:
        return "not every output was looked at"
    rows = sum(count for _, count in seen.tail)
    if not rows:
        return f"{seen.elsewhere:,} of {len(seen.kinds):,} are added differently"
    one, two, _ = _pair(found, seen.tail[0][0], seen.interior)
    last = "the last one is" if rows == 1 else f"the last {rows:,} are"
    return f"{last} added {_order(found, one, two)}"


def _pair(found: Thresholds, one: int, other: int) -> tuple[int, int, float]:
    """Returns summations that most outputs have that two kinds add differently, and their share."""
    kinds = found.recogniser.kinds
    pairs = Counter(p for p in zip(kinds[one], kinds[other], strict=True) if p[0] != p[1])
    known = [p for p in pairs if min(p) > UNKNOWN]
    pair = max(known or list(pairs), key=lambda each: pairs[each])
    return *pair, pairs[pair] / len(kinds[one])


def _most(found: Thresholds, kind: int) -> int:
    return Counter(found.recogniser.kinds[kind]).most_common(1)[0][0]


def _order(found: Thresholds, number: int, beside: int = UNKNOWN) -> str:
    """Returns how a summation adds, in words; so that it can be told from the one ``beside`` it."""
    if number < 0:
        return "in an order that is not known"
    sums = found.recogniser.summations
    one, other = sums[number], sums[beside] if beside >= 0 else None
    if other is not None and one.tree == other.tree:
        told = [each.text(found.case.dtype, _some) for each in (one, other)]
        apart = [phrase for phrase in told[0] if phrase not in told[1]]
        return ", ".join([_named(one), *apart]) if told[0] != told[1] else _named(one)
    if other is not None and notation.named(one.tree) == notation.named(other.tree):
        words = [f"as {notation.short(one.tree, most)}" for most in (WRITTEN, 2 * WRITTEN, 300)]
        others = [f"as {notation.short(other.tree, most)}" for most in (WRITTEN, 2 * WRITTEN, 300)]
        return next((a for a, b in zip(words, others, strict=True) if a != b), words[-1])
    return _named(one)


def _named(one: Summation) -> str:
    """Returns the order's name; without one, in how many running sums products are added."""
    if name := notation.named(one.tree):
        return name
    running = 1 + sum(all(child < 0 for child in node) for node in one.tree.nodes)
    return f"in {running:,} running sums, as {notation.short(one.tree, WRITTEN)}"


def named(found: Thresholds, kind: int) -> str:
    """Returns how most outputs of a kind add, in words."""
    return _order(found, _most(found, kind))


def _some(leaves: Sequence[int]) -> str:
    return ranges(leaves, 4)

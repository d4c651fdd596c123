"""Finds classes of sizes in which every row adds alike, and the floor to fill calls up to.

A row is a place of what is varied: a row of a dense layer, a sample of a batch, an output position
along the length. Sizes at which some rows add differently than others are in no class. A class
holds the sizes that were run, and no other: nothing proves a period of a library beyond the sizes
that show it. Sizes between two that were run, with the same remainder by that period, are listed
apart, as expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from probe.printing import ranges
from probe.summation.summation import Summation
from probe.summation.tree import order_name, short_formula
from probe.switch_points.recognition import UNKNOWN, Pattern
from probe.switch_points.search import Thresholds

# In the place of a size's kind, which is 0 or more.
MIXED, NOT_RUN = -1, -2
NOUNS = {"dense": "rows"}
# Characters of an order that has no name.
WRITTEN = 48


class SizeRange(NamedTuple):
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

    @property
    def drawn(self) -> list[tuple[int, int]]:
        """Returns stretches of neighbours, (first, last)."""
        if self.step == 1:
            return [(self.first, self.last)]
        return [(size, size) for size in range(self.first, self.last + 1, self.step)]


@dataclass(frozen=True)
class SizeClass:
    """Sizes at which every row adds as ``kind`` says.

    ``spans``: those that were run; ``certified``: at which of these every output was tested for
    every addition and every fusion. ``expected``: sizes that were not run, and that the period of
    what was run gives to the class: no promise; ``whole``: with them those that were run.
    """

    kind: int
    spans: tuple[SizeRange, ...]
    certified: tuple[int, ...]
    expected: tuple[SizeRange, ...] = ()
    whole: tuple[SizeRange, ...] = ()

    @property
    def floor(self) -> int:
        """Returns the smallest size that was run."""
        return min(span.first for span in self.spans)

    @property
    def count(self) -> int:
        return _count_sizes(self.spans)

    @property
    def text(self) -> str:
        """``{2..15}``, the sizes that were run; behind them what is expected with others."""
        expected = f" (expected: {_first_spans(self.whole)})" if self.expected else ""
        return f"{{{_first_spans(self.spans)}}}{expected}"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "sizes": [list(span) for span in self.spans],
            "count": self.count,
            "expected": [list(span) for span in self.expected],
            "expected_count": _count_sizes(self.expected),
            "certified": list(self.certified),
        }


def _count_sizes(spans: Sequence[SizeRange]) -> int:
    return sum((span.last - span.first) // span.step + 1 for span in spans)


def _first_spans(spans: Sequence[SizeRange]) -> str:
    return ", ".join(span.text for span in spans[:6]) + ", ..." * (len(spans) > 6)


@dataclass(frozen=True)
class Floor:
    """From ``size`` on, in multiples of ``step``, every row adds as at the largest of them.

    That was seen at ``run`` of these ``count`` multiples, at all up to ``run_to``; the others are
    expected to add so. ``size`` None: no such size was found. ``pieces``: a smaller floor with the
    largest size of pieces that calls are then cut into, all of which were run. ``certified``: every
    output of all sizes was tested for every addition and every fusion; ``sides``: those of the
    floor and of the size below it that is named were. ``text``: the answer in one line, with how
    rows add below and above.
    """

    size: int | None
    step: int
    kind: int
    pieces: SizeRange | None
    certified: bool
    sides: bool
    text: str
    run: int = 0
    count: int = 0
    run_to: int | None = None

    def to_json(self) -> dict[str, Any]:
        pieces = None if self.pieces is None else list(self.pieces[:2])
        return {**vars(self), "pieces": pieces}


def kinds_run(points: Thresholds) -> np.ndarray:
    """Returns the kind of every size that was run, ``MIXED`` for several; ``NOT_RUN`` elsewhere."""
    kinds = np.full(points.upto - points.shortest + 1, NOT_RUN)
    for size, pattern in points.patterns.items():
        kinds[size - points.shortest] = _kind_of_pattern(points, pattern)
    return kinds


def kinds_expected(points: Thresholds) -> np.ndarray:
    """Returns the same, with the kinds that the period gives to sizes that were not run.

    A size gets one where the nearest sizes of its remainder that were run, on both sides, have it.
    Remainders of which one interior is mixed at some sizes and not at others have no period.
    """
    kinds = kinds_run(points)
    if not (step := points.period):
        return kinds
    by_rest: dict[int, list[int]] = {}
    for size in sorted(points.patterns):
        by_rest.setdefault(size % step, []).append(size)
    for sizes in by_rest.values():
        # the period was seen in the upper half of the sizes that were all run: those below it may
        # be mixed for a reason of their own
        above = [size for size in sizes if size >= points.settled]
        interiors = {(points.patterns[n].interior, int(kinds[n - points.shortest])) for n in above}
        refuted = {interior for interior, kind in interiors if kind == MIXED}
        for low, high in pairwise(above):
            kind_low, kind_high = kinds[low - points.shortest], kinds[high - points.shortest]
            if kind_low == kind_high and kind_low not in refuted:
                kinds[low - points.shortest : high - points.shortest : step] = kind_low
    return kinds


def _kind_of_pattern(points: Thresholds, pattern: Pattern) -> int:
    several = (
        pattern.tail
        or pattern.elsewhere
        or pattern.unknown
        or not (pattern.whole and pattern.steady)
    )
    return MIXED if several or points.doubted(pattern) else pattern.interior


def classes(points: Thresholds) -> list[SizeClass]:
    """Returns the classes, that of the smallest size first."""
    run, filled = kinds_run(points), kinds_expected(points)
    filled[run != NOT_RUN] = NOT_RUN
    sized_classes, certified = [], set(points.certified)
    for kind in sorted(set(run[run >= 0].tolist())):
        sizes, more = (points.shortest + np.flatnonzero(kinds == kind) for kinds in (run, filled))
        sure = tuple(size for size in sizes.tolist() if size in certified)
        every = sizes, more, np.union1d(sizes, more)
        spans = [_spans_of(part, points.period or 1) for part in every]
        sized_classes.append(SizeClass(kind, spans[0], sure, *spans[1:]))
    return sorted(sized_classes, key=lambda size_class: size_class.floor)


def _spans_of(sizes: np.ndarray, period: int) -> tuple[SizeRange, ...]:
    """Returns sizes as spans: from the smallest on the longest of neighbours, or by the period."""
    if not len(sizes):
        return ()
    # behind the last size every span has ended
    gone = np.ones(int(sizes[-1]) + period + 1, bool)
    gone[sizes] = False
    spans = []
    for size in sizes.tolist():
        if gone[size]:
            continue
        lengths = {step: int(gone[size::step].argmax()) for step in (period, 1)}
        step = max((1, period), key=lengths.__getitem__)
        last = size + (lengths[step] - 1) * step
        gone[size : last + 1 : step] = True
        spans.append(SizeRange(size, last, step if last > size else 1))
    return tuple(spans)


def floor(points: Thresholds) -> Floor:
    """Returns which floor keeps every row's sum as at the largest size, and why."""
    kinds, sure, largest = kinds_expected(points), set(points.certified), max(points.patterns)
    top = _top(points, kinds)
    if top is None:
        kind = points.patterns[largest].interior
        text = f"no floor: at {_size_text(points, largest)}, {_mixed(points, largest)}"
        alike = [size_class.spans for size_class in classes(points) if size_class.kind == kind]
        text += f", alike at {max(alike[0], key=lambda span: span.last).text}" if alike else ""
        return Floor(None, 1, kind, None, False, False, text)
    size, step, kind = top
    # the largest size below that was run and adds differently, a multiple if there is one
    patterns = points.patterns.items()
    unlike = [
        n for n, pattern in patterns if n < size and _kind_of_pattern(points, pattern) != kind
    ]
    below = max([n for n in unlike if n % step == 0] or unlike, default=None)
    sides = size in sure and (below is None or below in sure)
    certified = not points.uncertified
    multiples = range(size, points.upto + 1, step)
    missing = next((n for n in multiples if n not in points.patterns), None)
    run = sum(n in points.patterns for n in multiples)
    pieces = _pieces(classes(points), kind, size)
    to = multiples[-1] if missing is None else missing - step
    text = _floor_text(points, top, below, pieces)
    if run < len(multiples):
        text += f"; {run:,} of these {len(multiples):,} sizes were run, all up to {to:,}"
        text += ", the others are expected"
    only = "certified on both sides of the floor only" if sides else "not certified"
    text += f"; {'certified' if certified else only}"
    return Floor(*(size, step, kind, pieces, certified, sides, text), run, len(multiples), to)


def _top(points: Thresholds, kinds: np.ndarray) -> tuple[int, int, int] | None:
    """(size, step, kind) of the floor; the smallest step for which one is far from the end.

    The kind is what most rows of the largest size have. A size that was not run fits only where it
    is expected to be of this kind, and the floor itself was run.
    """
    sizes = np.arange(points.shortest, points.upto + 1)
    run, kind = kinds_run(points) != NOT_RUN, points.patterns[max(points.patterns)].interior
    ways = []
    # steps whose multiples may add alike: any where no period is known, otherwise 1 and those that
    # divide the period, or that it divides
    steps, period = range(1, min(64, points.upto) + 1), points.period
    for step in steps:
        if step > 1 and period is not None and (period < 2 or (period % step and step % period)):
            continue
        mine = sizes % step == 0
        other = sizes[mine & (kinds != kind)]
        after = mine & (sizes > (other[-1] if len(other) else 0))
        if not (after & run).any():
            continue
        first = int(sizes[after & run][0])
        # multiples of a step that no period shows may be alike by chance: there have to be a few
        least = 1 if step == 1 else 2 if points.period else 4
        if (after & (sizes >= first)).sum() >= least:
            ways.append((first, step, kind))
    far = [way for way in ways if 2 * way[0] <= points.upto]
    return min(far or ways, key=lambda way: way[1], default=None)


def _pieces(sized: list[SizeClass], kind: int, size: int) -> SizeRange | None:
    """Returns a smaller floor, with which calls of any size are made of pieces of one other class.

    Of several the one with the largest pieces. Pieces of first..last make up all sizes from
    ``first`` on where last is 2 * first - 1 or more.
    """
    spans = [span for other in sized if other.kind != kind for span in other.spans]
    fit = [s for s in spans if s.step == 1 and s.first < size and s.last >= max(2, 2 * s.first - 1)]
    return max(fit, key=lambda span: span.last, default=None)


def _floor_text(
    points: Thresholds, top: tuple[int, int, int], below: int | None, pieces: SizeRange | None
) -> str:
    """Returns the floor in one line."""
    (size, step, kind), kinds = top, kinds_run(points)
    noun = NOUNS.get(points.case.op, "samples") if points.vary == "batch" else "outputs"
    by = f", in multiples of {step}" * (step > 1)
    if below is None:
        what = f"no floor, but multiples of {step} are" if step > 1 else "no floor is"
        every = f"from {size:,} to {points.upto:,}{', at these,' * (step > 1)} all {noun}"
        return f"{what} needed: {every} are added {kind_words(points, kind)}"
    first = f"floor: {_size_text(points, size)}{by}; below, at "
    if kinds[below - points.shortest] == MIXED:
        text = f"{first}{below:,}, {_mixed(points, below)}"
        text += f", from {size:,} on all {kind_words(points, kind)}"
    else:
        below_sum, above_sum, share = _most_frequent_pair(
            points, other := int(kinds[below - points.shortest]), kind
        )
        among = f" ({share:.0%} of the outputs)" * (share < 1)
        unlike = np.flatnonzero(kinds[: below - points.shortest + 1] != other)
        first_alike = points.shortest + (int(unlike[-1]) + 1 if len(unlike) else 0)
        sizes = SizeRange(first_alike, below).text
        text = f"{first}{sizes}, {noun} are added {_order_text(points, below_sum, above_sum)}"
        text += f"{among}, from {size:,} on {_order_text(points, above_sum, below_sum)}"
        text += f" ({'+'.join(points.recogniser.causes(other, kind))})"
    if pieces is not None:
        less = (
            f"{_size_text(points, pieces.first)} will do" if pieces.first > 1 else "none is needed"
        )
        text += f"; cut into pieces of at most {pieces.last:,}, {less}"
    return text


def _size_text(points: Thresholds, size: int) -> str:
    """Returns a size with what it is of."""
    if points.case.op == "dense":
        return f"{size:,} row{'s' * (size > 1)}"
    return f"{points.vary} {size:,}"


def _mixed(points: Thresholds, size: int) -> str:
    """Returns how rows of one call add differently."""
    pattern = points.patterns[size]
    if not pattern.steady:
        return "the same call again gives different bits"
    if pattern.unknown:
        return f"{pattern.unknown:,} outputs have no known order"
    if not pattern.whole:
        return "not every output was looked at"
    if points.doubted(pattern):
        return "the order that was recognised does not hold at a size that was tested"
    rows = sum(count for _, count in pattern.tail)
    if not rows:
        return f"{pattern.elsewhere:,} of {len(pattern.kinds):,} are added differently"
    tail_sum, own_sum, _ = _most_frequent_pair(points, pattern.tail[0][0], pattern.interior)
    last = "the last one is" if rows == 1 else f"the last {rows:,} are"
    return f"{last} added {_order_text(points, tail_sum, own_sum)}"


def _most_frequent_pair(points: Thresholds, kind: int, other: int) -> tuple[int, int, float]:
    """Returns summations that most outputs have that two kinds add differently, and their share."""
    kinds = points.recogniser.kinds
    pairs = Counter(p for p in zip(kinds[kind], kinds[other], strict=True) if p[0] != p[1])
    known = [p for p in pairs if min(p) > UNKNOWN]
    pair = max(known or list(pairs), key=lambda each: pairs[each])
    return *pair, pairs[pair] / len(kinds[kind])


def _order_text(points: Thresholds, number: int, beside: int = UNKNOWN) -> str:
    """Returns how a summation adds, in words; so that it can be told from the one ``beside`` it."""
    if number < 0:
        return "in an order that is not known"
    sums = points.recogniser.summations
    summation, other = sums[number], sums[beside] if beside >= 0 else None
    if other is not None and summation.tree == other.tree:
        phrases = [
            added.text(points.case.dtype, lambda leaves: ranges(leaves, 4))
            for added in (summation, other)
        ]
        apart = [phrase for phrase in phrases[0] if phrase not in phrases[1]]
        return (
            ", ".join([_order_name(summation), *apart])
            if phrases[0] != phrases[1]
            else _order_name(summation)
        )
    if other is not None and order_name(summation.tree) == order_name(other.tree):
        words = [
            f"as {short_formula(summation.tree, most)}" for most in (WRITTEN, 2 * WRITTEN, 300)
        ]
        others = [f"as {short_formula(other.tree, most)}" for most in (WRITTEN, 2 * WRITTEN, 300)]
        return next((a for a, b in zip(words, others, strict=True) if a != b), words[-1])
    return _order_name(summation)


def _order_name(summation: Summation) -> str:
    """Returns the order's name; without one, in how many running sums products are added."""
    if name := order_name(summation.tree):
        return name
    running = 1 + sum(all(child < 0 for child in node) for node in summation.tree.nodes)
    return f"in {running:,} running sums, as {short_formula(summation.tree, WRITTEN)}"


def kind_words(points: Thresholds, kind: int) -> str:
    """Returns how most outputs of a kind add, in words."""
    most = Counter(points.recogniser.kinds[kind]).most_common(1)[0][0]
    return _order_text(points, most)

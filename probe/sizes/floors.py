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

from probe.order.summation import Summation
from probe.order.tree import order_name, short_formula
from probe.sizes.recognition import UNKNOWN, Pattern
from probe.sizes.thresholds import PERIODS, Thresholds
from probe.sweep.printing import ranges

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

    ``spans``: those that were run. ``expected``: sizes that were not run, and that the period of
    what was run gives to the class: no promise; ``whole``: with them those that were run.
    """

    kind: int
    spans: tuple[SizeRange, ...]
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
        }


def _count_sizes(spans: Sequence[SizeRange]) -> int:
    return sum((span.last - span.first) // span.step + 1 for span in spans)


def _first_spans(spans: Sequence[SizeRange]) -> str:
    return ", ".join(span.text for span in spans[:6]) + ", ..." * (len(spans) > 6)


@dataclass(frozen=True)
class Floor:
    """From ``size`` to ``run_to`` every row adds as at the largest size, at multiples of ``step``.

    All sizes up to ``run_to`` were run, in three periods or more: of sizes beyond it nothing is
    said. ``size`` None: no such size was found. ``modulo``, ``remainders``, ``since``: sizes from
    ``since`` on that have one of these remainders add so, the others don't; None without a period.
    ``pieces``: a smaller floor with the largest size of pieces that calls are then cut into, all of
    which were run. ``text``: the answer in one line, with how rows add below and above.
    """

    size: int | None
    step: int
    kind: int
    text: str
    run_to: int
    pieces: SizeRange | None = None
    modulo: int | None = None
    remainders: tuple[int, ...] = ()
    since: int | None = None

    def to_json(self) -> dict[str, Any]:
        pieces = None if self.pieces is None else list(self.pieces[:2])
        return {**vars(self), "pieces": pieces, "remainders": list(self.remainders)}


def kinds_run(points: Thresholds) -> np.ndarray:
    """Returns the kind of every size that was run, ``MIXED`` for several; ``NOT_RUN`` elsewhere."""
    kinds = np.full(points.upto - points.shortest + 1, NOT_RUN)
    for size, pattern in points.patterns.items():
        kinds[size - points.shortest] = _kind_of_pattern(pattern)
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


def _kind_of_pattern(pattern: Pattern) -> int:
    several = (
        pattern.tail
        or pattern.elsewhere
        or pattern.unknown
        or not (pattern.whole and pattern.steady)
    )
    return MIXED if several else pattern.interior


def classes(points: Thresholds) -> list[SizeClass]:
    """Returns the classes, that of the smallest size first."""
    run, filled = kinds_run(points), kinds_expected(points)
    filled[run != NOT_RUN] = NOT_RUN
    sized_classes = []
    for kind in sorted(set(run[run >= 0].tolist())):
        sizes, more = (points.shortest + np.flatnonzero(kinds == kind) for kinds in (run, filled))
        every = sizes, more, np.union1d(sizes, more)
        spans = [_spans_of(part, points.period or 1) for part in every]
        sized_classes.append(SizeClass(kind, *spans))
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
    """Returns which floor keeps every row's sum as at the largest size, and why.

    Where 2, 3 and 4 of six sizes are alike, a search that ends at 40 ends behind three alike ones.
    So a period, 1 for a floor, has to show three times in the upper half of all sizes, all run.
    """
    kind = points.patterns[max(points.patterns)].interior
    first = last = max((switch.at for switch in points.switches), default=points.shortest)
    while first - 1 in points.patterns:
        first -= 1
    while last + 1 in points.patterns:
        last += 1
    sizes, kinds = np.arange(first, last + 1), kinds_run(points)
    alike = kinds[sizes - points.shortest] == kind
    middle = (points.shortest + last) // 2
    half = alike[max(middle - first, 0) :] if first <= middle else alike[:0]
    whole = first == points.shortest and alike.all()
    periods = [1] if whole else range(1, len(half) // PERIODS + 1)
    modulo = next((n for n in periods if (half[n:] == half[:-n]).all()), 0)
    remainders = tuple(sorted((sizes[-modulo:][alike[-modulo:]] % (modulo or 1)).tolist()))
    if not modulo or not remainders:
        return Floor(None, 1, kind, _no_floor_text(points, kind, sizes, alike), last)
    broken = np.flatnonzero(alike[modulo:] != alike[:-modulo])
    since = int(sizes[alike & (sizes > first + broken[-1:].sum() - (not len(broken)))][0])
    period = f"{points.sizes} {', '.join(map(str, remainders))} modulo {modulo} are added alike"
    period = f"; {period}, from {since:,} on" if modulo > 1 else ""
    step = next((n for n in range(1, modulo + 1) if {*range(0, modulo, n)} <= {*remainders}), None)
    if step is None or modulo % step:
        text = _no_floor_text(points, kind, sizes, alike, period)
        return Floor(None, 1, kind, text, last, None, modulo, remainders, since)
    multiples = sizes % step == 0
    unlike = sizes[multiples & ~alike].tolist()
    size = int(sizes[multiples & (sizes > max(unlike, default=0))][0])
    # the largest size below that was run and adds differently, a multiple if there is one
    below = max(unlike or sizes[~alike & (sizes < size)].tolist(), default=None)
    pieces = _pieces(classes(points), kind, size)
    text = _floor_text(points, (size, step, kind), below, last, pieces) + period
    text += f"; run up to {last:,}"
    return Floor(size, step, kind, text, last, pieces, modulo, remainders, since)


def _no_floor_text(
    points: Thresholds, kind: int, sizes: np.ndarray, alike: np.ndarray, period: str = ""
) -> str:
    """Returns what stands against a floor in one line."""
    at, last = int(sizes[~alike][-1]), int(sizes[-1])
    found = points.patterns[at]
    how = _mixed(points, at)
    if _kind_of_pattern(found) != MIXED:
        how = f"outputs are added {kind_words(points, found.interior)}"
    text = f"no floor: at {_size_text(points, at)}, {how}{period}"
    if at < last and not period:
        text += f"; alike at {SizeRange(at + 1, last).text}, too few to tell a floor"
    return f"{text}; run up to {last:,}"


def _pieces(sized: list[SizeClass], kind: int, size: int) -> SizeRange | None:
    """Returns a smaller floor, with which calls of any size are made of pieces of one other class.

    Of several the one with the largest pieces. Pieces of first..last make up all sizes from
    ``first`` on where last is 2 * first - 1 or more.
    """
    spans = [span for other in sized if other.kind != kind for span in other.spans]
    fit = [s for s in spans if s.step == 1 and s.first < size and s.last >= max(2, 2 * s.first - 1)]
    return max(fit, key=lambda span: span.last, default=None)


def _floor_text(
    points: Thresholds,
    top: tuple[int, int, int],
    below: int | None,
    last: int,
    pieces: SizeRange | None,
) -> str:
    """Returns the floor in one line."""
    (size, step, kind), kinds = top, kinds_run(points)
    noun = NOUNS.get(points.case.op, "samples") if points.vary == "batch" else "outputs"
    by = f", in multiples of {step}" * (step > 1)
    if below is None:
        what = f"no floor, but multiples of {step} are" if step > 1 else "no floor is"
        every = f"from {size:,} to {last:,}{', at these,' * (step > 1)} all {noun}"
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

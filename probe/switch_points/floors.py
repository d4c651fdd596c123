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

MIXED, NOT_RUN = -1, -2
NOUNS = {"dense": "rows"}
WRITTEN = 48  # characters of an order that has no name


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
        """Returns how many sizes were run."""
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


def kinds_run(found: Thresholds) -> np.ndarray:
    """Returns the kind of every size that was run, ``MIXED`` for several; ``NOT_RUN`` elsewhere."""
    kinds = np.full(found.upto - found.shortest + 1, NOT_RUN)
    for size, seen in found.patterns.items():
        kinds[size - found.shortest] = _kind_of_pattern(found, seen)
    return kinds


def kinds_expected(found: Thresholds) -> np.ndarray:
    """Returns the same, with the kinds that the period gives to sizes that were not run.

    A size gets one where the nearest sizes of its remainder that were run, on both sides, have it.
    Remainders of which one interior is mixed at some sizes and not at others have no period.
    """
    kinds = kinds_run(found)
    if not (step := found.period):
        return kinds
    by_rest: dict[int, list[int]] = {}
    for size in sorted(found.patterns):
        by_rest.setdefault(size % step, []).append(size)
    for sizes in by_rest.values():
        # the period was seen in the upper half of the sizes that were all run: those below it may
        # be mixed for a reason of their own
        kept = [size for size in sizes if size >= found.settled]
        told = {(found.patterns[n].interior, int(kinds[n - found.shortest])) for n in kept}
        refuted = {interior for interior, kind in told if kind == MIXED}
        for low, high in pairwise(kept):
            one, other = kinds[low - found.shortest], kinds[high - found.shortest]
            if one == other and one not in refuted:
                kinds[low - found.shortest : high - found.shortest : step] = one
    return kinds


def _kind_of_pattern(found: Thresholds, seen: Pattern) -> int:
    several = seen.tail or seen.elsewhere or seen.unknown or not (seen.whole and seen.steady)
    return MIXED if several or found.doubted(seen) else seen.interior


def classes(found: Thresholds) -> list[SizeClass]:
    """Returns the classes, that of the smallest size first."""
    run, filled = kinds_run(found), kinds_expected(found)
    filled[run != NOT_RUN] = NOT_RUN
    told, certified = [], set(found.certified)
    for kind in sorted(set(run[run >= 0].tolist())):
        sizes, more = (found.shortest + np.flatnonzero(one == kind) for one in (run, filled))
        sure = tuple(size for size in sizes.tolist() if size in certified)
        every = sizes, more, np.union1d(sizes, more)
        spans = [_spans_of(one, found.period or 1) for one in every]
        told.append(SizeClass(kind, spans[0], sure, *spans[1:]))
    return sorted(told, key=lambda one: one.floor)


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


def floor(found: Thresholds) -> Floor:
    """Returns which floor keeps every row's sum as at the largest size, and why."""
    kinds, sure, largest = kinds_expected(found), set(found.certified), max(found.patterns)
    top = _top(found, kinds)
    if top is None:
        kind = found.patterns[largest].interior
        text = f"no floor: at {_size_text(found, largest)}, {_mixed(found, largest)}"
        alike = [one.spans for one in classes(found) if one.kind == kind]
        text += f", alike at {max(alike[0], key=lambda span: span.last).text}" if alike else ""
        return Floor(None, 1, kind, None, False, False, text)
    size, step, kind = top
    # the largest size below that was run and adds differently, a multiple if there is one
    patterns = found.patterns.items()
    other = [n for n, seen in patterns if n < size and _kind_of_pattern(found, seen) != kind]
    below = max([n for n in other if n % step == 0] or other, default=None)
    sides = size in sure and (below is None or below in sure)
    certified = not found.uncertified
    multiples = range(size, found.upto + 1, step)
    missing = next((n for n in multiples if n not in found.patterns), None)
    run = sum(n in found.patterns for n in multiples)
    pieces = _pieces(classes(found), kind, size)
    to = multiples[-1] if missing is None else missing - step
    text = _floor_text(found, top, below, pieces)
    if run < len(multiples):
        text += f"; {run:,} of these {len(multiples):,} sizes were run, all up to {to:,}"
        text += ", the others are expected"
    only = "certified on both sides of the floor only" if sides else "not certified"
    text += f"; {'certified' if certified else only}"
    return Floor(*(size, step, kind, pieces, certified, sides, text), run, len(multiples), to)


def _top(found: Thresholds, kinds: np.ndarray) -> tuple[int, int, int] | None:
    """(size, step, kind) of the floor; the smallest step for which one is far from the end.

    The kind is what most rows of the largest size have. A size that was not run fits only where it
    is expected to be of this kind, and the floor itself was run.
    """
    sizes = np.arange(found.shortest, found.upto + 1)
    run, kind = kinds_run(found) != NOT_RUN, found.patterns[max(found.patterns)].interior
    ways = []
    # steps whose multiples may add alike: any where no period is known, otherwise 1 and those that
    # divide the period, or that it divides
    steps, period = range(1, min(64, found.upto) + 1), found.period
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
        least = 1 if step == 1 else 2 if found.period else 4
        if (after & (sizes >= first)).sum() >= least:
            ways.append((first, step, kind))
    far = [way for way in ways if 2 * way[0] <= found.upto]
    return min(far or ways, key=lambda way: way[1], default=None)


def _pieces(every: list[SizeClass], kind: int, size: int) -> SizeRange | None:
    """Returns a smaller floor, with which calls of any size are made of pieces of one other class.

    Of several the one with the largest pieces. Pieces of first..last make up all sizes from
    ``first`` on where last is 2 * first - 1 or more.
    """
    spans = [span for one in every if one.kind != kind for span in one.spans]
    fit = [s for s in spans if s.step == 1 and s.first < size and s.last >= max(2, 2 * s.first - 1)]
    return max(fit, key=lambda span: span.last, default=None)


def _floor_text(
    found: Thresholds,
    top: tuple[int, int, int],
    below: int | None,
    pieces: SizeRange | None,
) -> str:
    """Returns the floor in one line."""
    (size, step, kind), kinds = top, kinds_run(found)
    noun = NOUNS.get(found.case.op, "samples") if found.vary == "batch" else "outputs"
    by = f", in multiples of {step}" * (step > 1)
    if below is None:
        what = f"no floor, but multiples of {step} are" if step > 1 else "no floor is"
        every = f"from {size:,} to {found.upto:,}{', at these,' * (step > 1)} all {noun}"
        return f"{what} needed: {every} are added {kind_words(found, kind)}"
    first = f"floor: {_size_text(found, size)}{by}; below, at "
    if kinds[below - found.shortest] == MIXED:
        text = f"{first}{below:,}, {_mixed(found, below)}"
        text += f", from {size:,} on all {kind_words(found, kind)}"
    else:
        one, two, share = _most_frequent_pair(
            found, other := int(kinds[below - found.shortest]), kind
        )
        among = f" ({share:.0%} of the outputs)" * (share < 1)
        unlike = np.flatnonzero(kinds[: below - found.shortest + 1] != other)
        first_alike = found.shortest + (int(unlike[-1]) + 1 if len(unlike) else 0)
        sizes = SizeRange(first_alike, below).text
        text = f"{first}{sizes}, {noun} are added {_order_text(found, one, two)}"
        text += f"{among}, from {size:,} on {_order_text(found, two, one)}"
        text += f" ({'+'.join(found.recogniser.causes(other, kind))})"
    if pieces is not None:
        less = (
            f"{_size_text(found, pieces.first)} will do" if pieces.first > 1 else "none is needed"
        )
        text += f"; cut into pieces of at most {pieces.last:,}, {less}"
    return text


def _size_text(found: Thresholds, size: int) -> str:
    """Returns a size with what it is of."""
    if found.case.op == "dense":
        return f"{size:,} row{'s' * (size > 1)}"
    return f"{found.vary} {size:,}"


def _mixed(found: Thresholds, size: int) -> str:
    """Returns how rows of one call add differently."""
    seen = found.patterns[size]
    if not seen.steady:
        return "the same call again gives different bits"
    if seen.unknown:
        return f"{seen.unknown:,} outputs have no known order"
    if not seen.whole:
        return "not every output was looked at"
    if found.doubted(seen):
        return "the order that was recognised does not hold at a size that was tested"
    rows = sum(count for _, count in seen.tail)
    if not rows:
        return f"{seen.elsewhere:,} of {len(seen.kinds):,} are added differently"
    one, two, _ = _most_frequent_pair(found, seen.tail[0][0], seen.interior)
    last = "the last one is" if rows == 1 else f"the last {rows:,} are"
    return f"{last} added {_order_text(found, one, two)}"


def _most_frequent_pair(found: Thresholds, one: int, other: int) -> tuple[int, int, float]:
    """Returns summations that most outputs have that two kinds add differently, and their share."""
    kinds = found.recogniser.kinds
    pairs = Counter(p for p in zip(kinds[one], kinds[other], strict=True) if p[0] != p[1])
    known = [p for p in pairs if min(p) > UNKNOWN]
    pair = max(known or list(pairs), key=lambda each: pairs[each])
    return *pair, pairs[pair] / len(kinds[one])


def _order_text(found: Thresholds, number: int, beside: int = UNKNOWN) -> str:
    """Returns how a summation adds, in words; so that it can be told from the one ``beside`` it."""
    if number < 0:
        return "in an order that is not known"
    sums = found.recogniser.summations
    one, other = sums[number], sums[beside] if beside >= 0 else None
    if other is not None and one.tree == other.tree:
        told = [
            each.text(found.case.dtype, lambda leaves: ranges(leaves, 4)) for each in (one, other)
        ]
        apart = [phrase for phrase in told[0] if phrase not in told[1]]
        return ", ".join([_order_name(one), *apart]) if told[0] != told[1] else _order_name(one)
    if other is not None and order_name(one.tree) == order_name(other.tree):
        words = [f"as {short_formula(one.tree, most)}" for most in (WRITTEN, 2 * WRITTEN, 300)]
        others = [f"as {short_formula(other.tree, most)}" for most in (WRITTEN, 2 * WRITTEN, 300)]
        return next((a for a, b in zip(words, others, strict=True) if a != b), words[-1])
    return _order_name(one)


def _order_name(one: Summation) -> str:
    """Returns the order's name; without one, in how many running sums products are added."""
    if name := order_name(one.tree):
        return name
    running = 1 + sum(all(child < 0 for child in node) for node in one.tree.nodes)
    return f"in {running:,} running sums, as {short_formula(one.tree, WRITTEN)}"


def kind_words(found: Thresholds, kind: int) -> str:
    """Returns how most outputs of a kind add, in words."""
    most = Counter(found.recogniser.kinds[kind]).most_common(1)[0][0]
    return _order_text(found, most)

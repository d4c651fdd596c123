"""Says whether a difference is rounding or a bug, from the exact values of the outputs.

Each side is held against the exact sum of what *its own case* says that it reads, so a side that
reads other inputs than its padding says is as wrong as one that loses a product; two conventions
are both right. The verdict rests on all that rounding can do (``enclosure``); one output is carried
along as exact fractions, which anybody can compute again in three lines of Python.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.case import Case
from probe.explain.comparison import Comparison
from probe.explain.enclosure import BEYOND, WITHIN, RoundingVerdict, of_operands
from probe.explain.runs import CaseRun
from probe.order.window import Geometry, ported_windows

# Verdicts: no bit differs; both sides are right; a side is wrong; both are right about different
# inputs; nothing of these is proved.
EQUAL, ROUNDING, BUG, CONVENTION, NOT_KNOWN = "equal", "rounding", "bug", "convention", "not known"

# Products of differing outputs that are held against the exact sums; evenly taken of more.
JUDGED = 1 << 23
# Outputs of pools that are: their exact values are fractions.
POOLED = 64

WITHIN_ROUNDING = "both sides are correctly within rounding"
INTENDED = "; the documentation does not promise more; expect this to be closed as intended"

# Digits of the formats to which libraries shorten operands: TF32, bfloat16.
SHORTER = (11, 8)


@dataclass(frozen=True)
class ExactSum:
    """One output of one side, and the terms whose sum it should be.

    ``y``: what the library gave. ``dtype``: the format that everything is rounded to, ``steps``
    times on the way of a term to the output. ``flushed``: what subnormal numbers that become zero
    may add; ``slack``: the same where that is the cause. ``shorter``: binary digits to which a side
    shortens its operands, 0 where none does. ``source``: the terms as an expression of the arrays
    x, w and b; ``place``: where the output stands in its array. ``factors``: what is multiplied, as
    numbers, where it is no slice of those arrays.
    """

    y: float
    terms: tuple[Fraction, ...]
    dtype: str
    steps: int
    source: str = ""
    place: tuple[int, ...] = ()
    flushed: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    shorter: int = 0
    factors: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def digits(self) -> int:
        return floats.format_of(self.dtype).precision

    @property
    def least(self) -> Fraction:
        return Fraction(2) ** (floats.format_of(self.dtype).emin - self.digits + 1)

    @cached_property
    def exact(self) -> Fraction:
        return sum(self.terms, Fraction(0))

    @cached_property
    def bound(self) -> Fraction:
        """The most that rounding can be off, in any order: see ``enclosure``."""
        names: dict[str, Any] = {"Fraction": Fraction, "terms": self.terms, "exact": self.exact}
        exec("\n".join(self.bound_lines), names)
        return Fraction(names["bound"])

    @cached_property
    def bound_lines(self) -> list[str]:
        """The same as lines of a script that knows Fraction, ``terms`` and ``exact``."""
        if not self.steps:  # a maximum is one of the numbers
            return ["bound = 0"]
        digits, more = self.shorter or self.digits, self.steps - len(self.terms)
        # half a unit in the last place of 1, and a little for a sum that was kept wider
        lines = [f"u, k = Fraction(1025, 2**{digits + 10}), len(terms) + {more}"]
        rest = f" + k * Fraction(1, 2**{self.least.denominator.bit_length() - 1})"
        if self.slack:
            rest += f" + Fraction({self.slack.numerator}, {self.slack.denominator})"
        if self.steps * Fraction(1025, 2 ** (digits + 10)) >= Fraction(1, 2):
            lines.append(f"bound = ((1 + u) ** (k + 1) - 1) * sum(map(abs, terms)){rest}")
            return lines
        lines.append("most = max(sum(t for t in terms if t > 0), -sum(t for t in terms if t < 0))")
        lines.append(f"bound = u * (sum(map(abs, terms)) + k * most) / (1 - k * u){rest}")
        return lines

    @property
    def within(self) -> bool:
        return math.isfinite(self.y) and abs(Fraction(self.y) - self.exact) <= self.bound

    @property
    def ulp(self) -> Fraction:
        """The unit in the last place of the exact value."""
        size, digits = abs(self.exact), self.digits
        if size == 0:
            return self.least
        power = size.numerator.bit_length() - size.denominator.bit_length()
        power -= Fraction(2) ** power > size
        return max(Fraction(2) ** (power - digits + 1), self.least)

    @property
    def ulps(self) -> float:
        """How far the output is from the exact value, in units in the last place of that."""
        far = abs(Fraction(self.y) - self.exact) if math.isfinite(self.y) else None
        return math.inf if far is None else float(far / self.ulp)

    @property
    def most(self) -> float:
        """How far rounding can take it, in the same unit."""
        return float(self.bound / self.ulp)

    def to_json(self) -> dict[str, Any]:
        finite = math.isfinite(self.y)
        return {
            "value": self.y if finite else str(self.y),
            "ulps": self.ulps if finite else None,
            "within": self.within,
        }


@dataclass(frozen=True)
class Verdict:
    """``what``: a word of the five above; ``says``: the same for whoever reads the report.

    ``classes``: compared outputs that are equal, whose difference is explained (replayed on both
    sides), and the others. ``sides``: one differing output of the left and of the right; None where
    no exact value is known.
    """

    what: str
    says: str
    classes: dict[str, int]
    numbers: str = ""
    sides: tuple[ExactSum, ExactSum] | None = None
    pair: int = 0
    threads: str = ""
    port: str = ""

    @property
    def fails(self) -> bool:
        """Whether the assertion of a script fails: a side is wrong, or nothing is known."""
        return self.what in (BUG, NOT_KNOWN) or (self.sides is None and self.what != ROUNDING)

    @property
    def counts(self) -> str:
        return ", ".join(f"{count:,} {name}" for name, count in self.classes.items())

    def to_json(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"verdict": self.what, "says": self.says, "classes": self.classes}
        answer |= {"numbers": self.numbers, "threads": self.threads or None}
        answer |= {"port": self.port or None}
        if self.sides is None:
            return answer | {"exact": None}
        left, right = self.sides
        names = {"left": left.to_json(), "right": right.to_json()}
        exact = {"value": float(left.exact), "fraction": str(left.exact), "bound_ulps": left.most}
        return answer | {"exact": exact | {"output": list(left.place)} | names}


def three_classes(compared: int, differing: int, explained: int) -> dict[str, int]:
    counts = compared - differing, explained, differing - explained
    return dict(zip(("equal", "explained rounding", "not explained"), counts, strict=True))


def wrong_in_words(left: bool, right: bool) -> str:
    who = "both sides lie" if left and right else f"the {'left' if left else 'right'} side lies"
    return f"{who} outside anything that rounding of these operands can give: a bug"


def verdict_of_counts(rounding: RoundingVerdict, compared: int, differing: int) -> Verdict:
    """Judges outputs of which only these counts are known: of functions and of composites."""
    counts = three_classes(compared, differing, min(rounding.explained, differing))
    if not compared:
        return Verdict(NOT_KNOWN, f"{NOT_KNOWN}: no output is on both sides", counts)
    if not differing:
        return Verdict(EQUAL, "no bit differs", counts)
    if rounding.beyond:
        return Verdict(BUG, wrong_in_words(rounding.left > 0, rounding.right > 0), counts)
    if rounding.unknown or not rounding.total:
        return Verdict(NOT_KNOWN, f"{NOT_KNOWN}: what rounding can do here is not bounded", counts)
    return Verdict(ROUNDING, WITHIN_ROUNDING + INTENDED, counts)


def exact_output(side: CaseRun, place: Iterable[int]) -> ExactSum | None:
    """One output (position, filter) of a side; None where no exact value is known: something is
    computed behind the sum, or an operand is not finite."""
    (position, filter_), case, operands = map(int, place), side.case, side.operands
    if operands.behind is not None:
        return None
    y = float(floats.widen(operands.y[position, filter_], case.dtype))
    source, at, boxes = "", tuple[int, ...]((position, filter_)), None
    group = filter_ // (case.filters // case.groups)
    x = floats.widen(operands.columns[group][:, position], case.dtype)
    if isinstance(case, Case):
        boxes, at = window_slices(case, position, filter_)
    if case.pool:
        return None if boxes is None else exact_pool(case, x, boxes, y, at)
    w = floats.widen(operands.met(np.array([position]), np.array([filter_]))[:, 0], case.dtype)
    bias = None if operands.b is None else float(floats.widen(operands.b, case.dtype)[filter_])
    if not np.isfinite([*x, *w, 0.0 if bias is None else bias]).all():
        return None
    terms = [Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), w.tolist(), strict=True)]
    if boxes is not None:
        taken = f"x[{', '.join(boxes[0])}].ravel()"
        source = f"[Fraction(p) for p in {taken}.tolist()]"
        if case.weighted:
            weights = f"w[{', '.join([*boxes[1], ':', str(filter_)])}].ravel()"
            source = f"[Fraction(p) * Fraction(q) for p, q in np.c_[{taken}, {weights}].tolist()]"
    if bias is not None:
        terms.append(Fraction(bias))
        source += f" + [Fraction(float(b[{filter_}]))]" * bool(source)
    tiny = floats.flushed_below(case.dtype)
    small = (np.abs(x) < tiny) | (np.abs(w) < tiny)
    flushed = sum((abs(terms[n]) for n in np.flatnonzero(small).tolist()), Fraction(0))
    flushed += 2 * (len(terms) + 1) * Fraction(tiny)
    factors = None if source else (np.append(x, 1.0), np.append(w, bias)) if bias else (x, w)
    return ExactSum(
        *(y, tuple(terms), case.dtype, len(terms) + 1, source, at, flushed), factors=factors
    )


def window_slices(
    case: Case, position: int, filter_: int
) -> tuple[tuple[list[str], list[str]], tuple[int, ...]]:
    """The slices of x and of w (but for its last two axes) that an output multiplies, without what
    is padding; and where the output stands."""
    geometry = Geometry.of(case)
    entry, *at = map(int, np.unravel_index(position, case.output_shape()[:-1]))
    boxes: tuple[list[str], list[str]] = ([str(entry)], [])
    for axis, place in enumerate(at):
        reads = geometry.axis_reads(axis)[place]
        inside = np.flatnonzero((reads >= 0) & (reads < geometry.sizes[axis]))
        taps = inside[:: -1 if len(inside) > 1 and reads[inside[0]] > reads[inside[1]] else 1]
        boxes[0].append(slice_of(reads[taps].tolist()))
        boxes[1].append(slice_of(taps.tolist()))
    channels = geometry.channels(filter_).tolist()
    boxes[0].append(f"{channels[0]}:{channels[-1] + 1}")
    return boxes, (entry, *at, filter_)


def slice_of(numbers: list[int]) -> str:
    """The slice of numbers as far apart as the first two: ``0:5:2``, ``4::-2``."""
    if not numbers:
        return "0:0"
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    end = numbers[-1] + (1 if step > 0 else -1)
    return f"{numbers[0]}:{end if end >= 0 else ''}" + f":{step}" * (step != 1)


def exact_pool(
    case: Case, x: np.ndarray, boxes: tuple[list[str], list[str]], y: float, at: tuple[int, ...]
) -> ExactSum | None:
    """A maximum or an average, of what is no padding or of that too."""
    geometry = Geometry.of(case)
    flat = int(np.ravel_multi_index(at[1:-1], case.output_spatial()))
    inside = (geometry.reads(np.array([flat]))[0] >= 0).repeat(geometry.group_channels)
    zeros, read = case.pad_with == "zeros", x[inside]
    if not np.isfinite(read).all() or not len(read):
        return None
    window = f"x[{', '.join(boxes[0])}].ravel().tolist()"
    values = [Fraction(value) for value in read.tolist()]
    if case.pool == "max":
        largest = max([*values, Fraction(0)]) if zeros and not inside.all() else max(values)
        more = " + [0.0]" * (zeros and not inside.all())
        return ExactSum(y, (largest,), case.dtype, 0, f"[Fraction(max({window}{more}))]", at)
    count = len(x) if zeros else len(values)
    terms = tuple(value / count for value in values)
    source = f"[Fraction(p) / {count} for p in {window}]"
    # divided once, or multiplied by a rounded reciprocal
    return ExactSum(y, terms, case.dtype, len(terms) + 3, source, at)


def bug_or_rounding(comparison: Comparison) -> Verdict:
    """Judges a comparison whose sides were revealed."""
    verdict = judged_pairs(comparison)
    case, other = comparison.left.case, comparison.right.case
    words = ("length", "batch", "filters", "layout")
    apart = [word for word in words if getattr(case, word) != getattr(other, word)]
    causes = {part for cause in comparison.causes for part in cause.split("+")}
    library = comparison.left.target.name
    question = case.op, case.dtype, next(iter(apart), None)
    threads = threads_alike(library, verdict.what, causes, *question)
    same = None
    if "window" in causes and isinstance(case, Case):
        same = ported_windows(case, comparison.right.target.name)
    code = "" if same is None else f"{same.code}  # {same.note}"
    return replace(verdict, threads=threads, port=code)


# Threads that an answer names.
NAMED = 2


@cache
def public_threads() -> list[dict[str, Any]]:
    """Public threads and what became of them: facts, looked up by hand, with no wording of
    theirs."""
    text = Path(__file__).with_name("threads.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["thread"])


def threads_alike(
    library: str, verdict: str, causes: Collection[str], op: str, dtype: str, vary: str | None
) -> str:
    """Threads of the same library, cause and verdict: ``as in pytorch#134715: closed as expected
    behaviour``; empty where there is none.

    ``causes``: single words. ``vary``: the axis along which the sides differ, None for none
    (`""` in the file).
    """
    question = (("ops", op), ("dtypes", dtype), ("vary", vary or ""))
    threads = [
        thread
        for thread in public_threads()
        if thread["library"] in (library, "*")
        and thread["verdict"] == verdict
        and ("any" in thread["causes"] or set(causes) & set(thread["causes"]))
        and all(value in thread.get(name, [value]) for name, value in question)
    ]
    # those that say most of what they are about come first
    threads.sort(key=lambda thread: -len(set(thread) & {"ops", "dtypes", "vary"}))
    named = "; ".join(f"{thread['name']}: {thread['said']}" for thread in threads[:NAMED])
    return f"as in {named}" if named else ""


def judged_pairs(comparison: Comparison) -> Verdict:
    differing = len(comparison.differing)
    counts = three_classes(comparison.compared, differing, comparison.rounded)
    if not comparison.compared:
        return Verdict(NOT_KNOWN, f"{NOT_KNOWN}: no output is on both sides", counts)
    if not differing:
        return Verdict(EQUAL, "no bit differs", counts)
    held = against_exact_values(comparison)
    if held is None:
        why = "no exact value is known of what is computed here"
        return Verdict(NOT_KNOWN, f"{NOT_KNOWN}: {why}", counts)
    number, wrong, open_, judged, sure = held
    counts = three_classes(comparison.compared, differing, comparison.rounded - sure)
    pair = int(comparison.differing[number])
    sides = exact_pair(comparison, pair, wrong)
    if sides is not None and not wrong.any() and not all(side.within for side in sides):
        open_ = True  # the fractions have the last word
    left, right = (bool(side) for side in wrong)
    numbers = ""
    if sides is not None:
        far = [floats.rounded_text(side.ulps) for side in sides]
        numbers = (
            f"the left side is {far[0]} ulp from its exact value, the right one {far[1]}; rounding "
            f"can make it {floats.rounded_text(max(side.most for side in sides))} at the most"
        )
    if judged < differing:
        numbers += f"; {judged:,} of {differing:,} were held against their exact values"
    if left or right:
        what = wrong_in_words(left, right)
        if "not-a-sum" in comparison.causes:
            what += " (or a different formula, such as Winograd's: no order of additions was found)"
        return Verdict(BUG, what, counts, numbers, sides, pair)
    if open_:
        what = f"{NOT_KNOWN}: a side is not within rounding of its exact value, which numbers that "
        what += "are not finite, or subnormal ones that became zero, could explain"
        return Verdict(NOT_KNOWN, what, counts, numbers, sides, pair)
    if "window" in comparison.causes:
        what = (
            "the two sides read different inputs, and each is within rounding of its own exact "
            "value: a different convention (padding, stride, groups), not rounding; no tolerance "
            "makes them agree"
        )
        return Verdict(CONVENTION, what, counts, numbers, sides, pair)
    what = WITHIN_ROUNDING
    if sides is not None and sides[0].shorter:
        what += f" to {sides[0].shorter} binary digits, to which a side shortens its operands"
    if "nondeterministic" in comparison.causes:
        what += ", though a side does not repeat its own bits"
    what += INTENDED
    return Verdict(ROUNDING, what, counts, numbers, sides, pair)


def against_exact_values(comparison: Comparison) -> tuple[int, np.ndarray, bool, int, int] | None:
    """Which differing output to show, whether each side is wrong somewhere, whether something is
    open, how many were judged, and how many of those that replay are wrong all the same; None where
    nothing is known.

    Shortened operands and flushed numbers lie outside by what they are: those are no bugs.
    """
    summands = max(1, comparison.left.case.summands)
    pool = bool(comparison.left.case.pool)
    count = len(comparison.differing)
    most = POOLED if pool else max(1, JUDGED // summands)
    chosen = np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))
    causes = np.array(comparison.cause, object)[chosen]
    excused = np.array([bool({"precision", "flush"} & set(c.split("+"))) for c in causes])
    verdicts, far = [], np.zeros(len(chosen))
    for side, places in comparison.sides(comparison.differing[chosen]):
        if pool:
            sums = [exact_output(side, place) for place in places.tolist()]
            if None in sums:
                return None
            verdicts.append(np.array([WITHIN if s and s.within else BEYOND for s in sums]))
            continue
        if (enclosure := of_operands(side.operands, *places.T)) is None:
            return None
        values = side.operands.y[tuple(places.T)]
        verdicts.append(enclosure.judged(values)[0])
        far = np.maximum(far, np.nan_to_num(enclosure.distance(values), nan=0.0))
    wrong = np.stack([(side == BEYOND) & ~excused for side in verdicts])
    open_ = bool((np.stack(verdicts) != WITHIN)[:, ~excused].any())
    seen = wrong.any(axis=0)
    worst = int(np.argmax(np.where(seen, far + 1, far) if not seen.any() else seen * (far + 1)))
    same = comparison.pairs.same_window[comparison.differing[chosen]]
    sure = seen & same & comparison.proved(comparison.differing[chosen]) & (causes != "unexplained")
    sides_wrong = np.asarray(wrong.any(axis=1))
    return int(chosen[worst]), sides_wrong, open_, len(chosen), int(sure.sum())


def exact_pair(
    comparison: Comparison, pair: int, wrong: np.ndarray
) -> tuple[ExactSum, ExactSum] | None:
    """Both sides of a pair, with the digits and the slack that their cause allows."""
    left, right = (exact_output(side, places[pair]) for side, places in comparison.sides())
    if left is None or right is None:
        return None
    number = int(np.flatnonzero(comparison.differing == pair)[0])
    cause = set(comparison.cause[number].split("+")) if not wrong.any() else set()
    if "flush" in cause:
        left, right = (replace(side, slack=side.flushed) for side in (left, right))
    if "precision" in cause:
        steps = len(left.terms) + 3
        for digits in (0, *SHORTER):
            left, right = (replace(s, shorter=digits, steps=steps) for s in (left, right))
            if left.within and right.within:
                break
    return left, right

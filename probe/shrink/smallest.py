"""Finds the smallest finding that single steps lead to: shapes first, then operands.

Operands get simpler: fewer that are not 0, fewer significant bits, friendlier decimals. A product
with a 0 leaves every sum as it is, so an operand that the failure does not need can go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from probe import floats
from probe.comparison import Finding
from probe.shrink import shapes
from probe.shrink.search import Passed, Search, ShrinkStep, Spent

# Calls of the predicate; from 256 channels to a minimal case takes some 100.
BUDGET = 300

# Seeds of generated operands that are tried where the start's own don't show the failure.
TRIES = 8


@dataclass
class Shrunk:
    """What ``smallest_finding`` found.

    ``finding`` is the smallest that fails, ``start`` what it was given.

    ``shown``: whether its operands show the difference; always, unless the shapes' predicate needs
    no operands and none were found. ``near``: the candidate nearest to it that does not fail, and
    the step that leads there; None if none was seen. ``calls`` of the predicates. ``ended``:
    ``minimal`` (no step is left that keeps the failure), ``budget`` or ``interrupted``.
    """

    start: Finding
    finding: Finding
    shown: bool
    near: Passed[Finding] | None
    calls: int
    ended: str


def smallest_finding(
    start: Finding,
    fails: Callable[[Finding], bool],
    *,
    shows: Callable[[Finding], bool] | None = None,
    kinds: tuple[str, ...] = ("cancel",),
    most: int = BUDGET,
    tell: Callable[[int, Finding], None] | None = None,
) -> Shrunk | None:
    """Returns the smallest finding that steps lead to from ``start``; None if ``start`` does not
    fail.

    ``fails``: the predicate for shapes. ``shows``: the one for operands, where it is another: a
    changed order is there for all finite operands, and then some are looked for that show it.
    ``kinds``: operands that shapes are asked with, the first that fail at the start; where none
    does, the start's own are cut. ``most``: calls of the predicates, those that ask about ``start``
    included. Ctrl-C ends it with the smallest so far; what the predicate raises is passed on.
    """
    search = Search(start, fails, most, tell)
    found = Shrunk(start, start, False, None, 0, "minimal")
    try:
        drawn = next((kind for kind in kinds if search.ask(start.drawn_as(kind))), None)
        if drawn is None and not search.ask(start):
            return None
        if drawn is not None:
            search.best = start.drawn_as(drawn)
        steps = shapes.shape_steps(lambda one: one.drawn_as(drawn) if drawn else one)
        search.exhaust(steps)
        # the same shapes at another size say most: there the library takes another way
        found.near = max(
            search.near(steps),
            key=lambda one: (one.step == "pair", one.value.x.size + one.value.w.size),
            default=None,
        )
        found.shown = _report_step(search, start, shows, drawn)
        if found.shown:
            search.exhaust(number_steps(search.best.case.weighted))
    except Spent:
        found.ended = "budget"
    except KeyboardInterrupt:
        found.ended = "interrupted"
    found.finding, found.calls = search.best, search.calls
    found.shown = found.shown or (shows is None and search.best is not start)
    return found


def _report_step(
    search: Search[Finding],
    start: Finding,
    shows: Callable[[Finding], bool] | None,
    drawn: str | None,
) -> bool:
    """Gives the smallest shape operands that show the failure: the start's own ones if they do."""
    smallest = search.best
    if drawn is None and shows is None:
        return True
    search.fails = shows or search.fails
    known = shows is None
    own = start.reshaped(**smallest.case.arguments(), at=smallest.at, against=smallest.against)
    options = [own, *(own.drawn_as(drawn or "cancel", seed) for seed in range(TRIES))]
    for one in options:
        if (known and one.key == smallest.key) or search.ask(one):
            search.best = one
            return True
    return False


Tensors = dict[str, np.ndarray]

# Significant bits that a decimal digit counts for: log2 10, rounded up.
DIGIT = 4

# What a power of two away from 1 counts for, in significant bits.
FAR = 0.125


def number_steps(weighted: bool) -> list[ShrinkStep[Finding]]:
    """Returns all steps of operands; an operator without weights of its own keeps its 1s."""
    names = ("w", "x", "b") if weighted else ("x",)
    kinds = {"zeros in": _more_zeros, "plainer": _simpler, "one of": _simpler_number}
    return [
        ShrinkStep(f"{kind} {name}", partial(candidates, name=name))
        for kind, candidates in kinds.items()
        for name in names
    ]


def _operands_by_name(finding: Finding) -> Tensors:
    found = {"x": finding.x, "w": finding.w}
    return found if finding.b is None else found | {"b": finding.b}


def _with(finding: Finding, name: str, values: np.ndarray) -> Finding:
    tensors = _operands_by_name(finding) | {name: values}
    return finding.with_operands(tensors["x"], tensors["w"], tensors.get("b"))


def _more_zeros(finding: Finding, name: str) -> Iterator[Finding]:
    """Zeros in place of a part: all but a part, halves, quarters, ... single ones (ddmin)."""
    values = _operands_by_name(finding).get(name)
    if values is None:
        return
    kept = np.flatnonzero(_as_float64(finding, values))
    parts = 2
    while len(kept):
        parts = min(parts, len(kept))
        chunks = np.array_split(kept, parts)
        if 2 < parts < len(kept) or parts == 2 < len(kept):
            yield from (
                _with(finding, name, _cleared(values, np.setdiff1d(kept, c))) for c in chunks
            )
        yield from (_with(finding, name, _cleared(values, chunk)) for chunk in chunks)
        if parts == len(kept):
            return
        parts *= 2


def _cleared(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    cleared = values.copy()
    cleared.reshape(-1)[places] = 0
    return cleared


def _simpler(finding: Finding, name: str) -> Iterator[Finding]:
    """Yields all numbers of a tensor with as few bits or digits, from the fewest up."""
    values = _operands_by_name(finding).get(name)
    if values is None:
        return
    wide = _as_float64(finding, values)
    dtype = finding.case.dtype
    now = sum(complexity(v, dtype) for v in wide.reshape(-1).tolist())
    if wide.size > 4096:  # speed alone: each number is written out in Python, eight times over
        return
    for bits in (1, 2, DIGIT, 6, 2 * DIGIT, 3 * DIGIT, 4 * DIGIT, 5 * DIGIT):
        for form in _forms(bits):
            plain = np.array([form(v) for v in wide.reshape(-1).tolist()]).reshape(wide.shape)
            rounded = floats.round_to(plain, dtype)
            if sum(complexity(v, dtype) for v in _as_float64(finding, rounded).reshape(-1)) < now:
                yield _with(finding, name, rounded)


def _simpler_number(finding: Finding, name: str) -> Iterator[Finding]:
    """Simplifies one number: 1, fewer bits, fewer digits."""
    values = _operands_by_name(finding).get(name)
    if values is None:
        return
    dtype = finding.case.dtype
    wide = _as_float64(finding, values).reshape(-1)
    for place in np.flatnonzero(wide).tolist():
        value = float(wide[place])
        for plain in _plain_values(value, dtype):
            changed = values.copy()
            changed.reshape(-1)[place] = floats.round_to(np.array([plain]), dtype)[0]
            yield _with(finding, name, changed)


def _plain_values(value: float, dtype: str) -> list[float]:
    """Simpler numbers near ``value`` (and 1 of its sign), the simplest first."""
    found = {math.copysign(1.0, value)}
    for bits in (1, 2, 3, DIGIT, 6, 2 * DIGIT, 3 * DIGIT, 4 * DIGIT, 5 * DIGIT):
        found |= {form(value) for form in _forms(bits)}
    rounded = floats.widen(floats.round_to(np.array(sorted(found)), dtype), dtype).tolist()
    now = complexity(value, dtype)
    known = {v: complexity(v, dtype) for v in rounded if v and math.isfinite(v)}
    return sorted((v for v in known if known[v] < now), key=lambda v: (known[v], abs(v - value)))


def _forms(bits: int) -> list[Callable[[float], float]]:
    """Functions that round a number to that many significant bits, or to digits worth as many."""
    forms = [lambda v: _to_bits(v, bits)]
    if bits % DIGIT == 0:
        forms.append(lambda v: float(f"{v:.{bits // DIGIT}g}"))
    return forms


def _to_bits(value: float, bits: int) -> float:
    if value == 0 or not math.isfinite(value):
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


def complexity(value: float, dtype: str) -> float:
    """Returns how hard a number of ``dtype`` is to read, in bits: 0 for 0, 1 for 1, 4 for 0.3.

    Its significant bits or those of its shortest decimal, whichever are fewer, and a little for
    every power of two away from 1.
    """
    if value == 0 or not math.isfinite(value):
        return 0.0
    exact = Fraction(value)
    numerator, power = abs(exact.numerator), exact.denominator.bit_length() - 1
    tail = (numerator & -numerator).bit_length() - 1
    form = np.float16 if dtype == "float16" else np.float32
    shortest = repr(value)
    if dtype != "float64":
        shortest = np.format_float_scientific(form(value), unique=True)
    digits = len(shortest.partition("e")[0].replace(".", "").strip("0-")) or 1
    far = abs(numerator.bit_length() - 1 - power)
    return min(numerator.bit_length() - tail, DIGIT * digits) + FAR * far


def _as_float64(finding: Finding, values: np.ndarray) -> np.ndarray:
    return np.asarray(floats.widen(values, finding.case.dtype))

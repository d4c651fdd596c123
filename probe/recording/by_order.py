"""Whether two runs add alike, operation by operation, for all finite inputs: no luck of the data.

Bits that agree on one input prove nothing about the next. So every sum of both runs is revealed, as
the operation itself answers, and compared output by output. Operations that move elements or round
once have the same bits wherever they stand. An operation of any other kind is in the way: of it,
and so of the model, it is not known.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from probe.comparison import Revealer
from probe.errors import ProbeError
from probe.order.certificate import BUDGET
from probe.recording.alone import Alone
from probe.recording.difference import Aligned, Difference
from probe.recording.meaning import Contracts, Each, Exact, Meaning, Reduces, Windows
from probe.recording.recording import Side
from probe.recording.source import Known, compared_cases, first_meaning

SECONDS = 120.0

ONCE = (
    *("add", "subtract", "multiply", "divide", "negative", "absolute", "sqrt"),
    *("maximum", "minimum", "relu", "relu6", "clip", "clamp", "where", "sign", "floor", "ceil"),
)
"""Functions that round at most once: IEEE 754 leaves no choice, at whatever place."""


@dataclass
class ByOrder:
    """What was found. ``verdict``: ``same``, ``differs`` or ``unknown``.

    ``name`` and ``why``: the operation that adds otherwise, or the first that is in the way.
    ``outputs``: of sums that were compared; ``certified``: all were asked about every addition.
    """

    verdict: str
    name: str = ""
    why: str = ""
    outputs: int = 0
    certified: bool = False


def compare(
    difference: Difference, left: Side, right: Side, known: Known, seconds: float = SECONDS
) -> ByOrder:
    """Reveals the sums of two runs that were compared, and says whether all outputs add alike.

    ``known``: what was revealed of operations like these; it is added to. ``seconds``: after which
    the next operation is in the way. Stops at the first operation that adds otherwise.
    """
    begun, found = time.monotonic(), ByOrder("same", certified=True)
    for one in difference.operations:
        why = _in_the_way(difference, one)
        told = None
        if not why and _sums(difference, one):
            if time.monotonic() - begun > seconds:
                why = f"{seconds:.0f} seconds were over"
            else:
                told = _asked(one, left, right, known)
                why = told.why
        if told is not None and told.verdict == "differs":
            return told
        if told is not None:
            found.outputs += told.outputs
            found.certified &= told.certified
        if why and found.verdict == "same":
            found.verdict, found.name, found.why = "unknown", one.name, why
    found.certified &= found.verdict == "same" and found.outputs > 0
    return found


def _meaning(difference: Difference, one: Aligned) -> Meaning:
    side = difference.left if one.left is not None else difference.right
    number = one.left if one.left is not None else one.right
    assert number is not None
    return side.operations[number].meaning


def _sums(difference: Difference, one: Aligned) -> bool:
    first = first_meaning(_meaning(difference, one))
    if isinstance(first, Windows):
        return first.kind != "max"
    return isinstance(first, Contracts | Reduces)


def _in_the_way(difference: Difference, one: Aligned) -> str:
    """Why nothing can be said of an operation; empty if something can."""
    meaning = _meaning(difference, one)
    if isinstance(meaning, Exact):
        return "" if meaning.exact else "it isn't known what it computes"
    if one.left is None or one.right is None:
        return "it runs on one side alone"
    if one.groups is not None:
        return "it is one of several operations that compute the same together"
    if not one.compared:
        return "" if all(pair.known for pair in one.gives) else "it isn't known what must agree"
    if _sums(difference, one) or isinstance(meaning, Windows):
        return ""
    if isinstance(meaning, Each) and meaning.word in ONCE:
        return ""
    return "its result may depend on the place, and there is no word for how"


def _asked(one: Aligned, left: Side, right: Side, known: Known) -> ByOrder:
    """One operation's sums on both sides."""
    found = ByOrder("same", one.name, certified=True)
    assert one.left is not None and one.right is not None
    first = first_meaning(left.recording.operations[one.left].meaning)
    weighted = isinstance(first, Contracts) or (isinstance(first, Windows) and not first.pool)
    budget = BUDGET if weighted else 0  # a mean's division is nothing that certificates ask about
    for output, pair in enumerate(one.gives):
        if not pair.compared:
            continue
        numbers = enumerate(((left, one.left), (right, one.right)))
        try:
            sides = [Alone.of(side, number, output, pair, at) for at, (side, number) in numbers]
            if any(side.again is None for side in sides):
                return ByOrder("unknown", one.name, "it can't be run alone")
            for told in compared_cases(sides, known, lambda: Revealer(kept=None, budget=budget)):
                found.outputs += len(told.pairs)
                found.certified &= bool(told.certified().all())
                if told.by_order:
                    why = f"{told.by_order} of {len(told.pairs)} outputs are added differently"
                    return ByOrder("differs", one.name, why, found.outputs)
                if told.unknown:
                    why = f"of {told.unknown} of {len(told.pairs)} outputs it isn't known how"
                    return ByOrder("unknown", one.name, why, found.outputs)
        except (ProbeError, ValueError, IndexError, KeyError) as error:
            return ByOrder("unknown", one.name, str(getattr(error, "why", error)))
    return found

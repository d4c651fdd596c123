"""Whether two runs add alike, operation by operation, for all finite inputs: no luck of the data.

Bits that agree on one input prove nothing about the next. So every sum of both runs is revealed, as
the operation itself answers, and compared output by output. Operations that move elements or round
once have the same bits wherever they stand. An operation of any other kind is in the way: of it,
and so of the model, it is not known.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from probe.recording.difference import Aligned, Difference
from probe.recording.judging import adds, judged_sums, settled
from probe.recording.meaning import Exact, Meaning, Unknown
from probe.recording.recording import Side
from probe.recording.source import Known

SECONDS = 120.0


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
        if not why and adds(_meaning(difference, one)) and one.compared:
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


def _in_the_way(difference: Difference, one: Aligned) -> str:
    """Why nothing can be said of an operation; empty if something can."""
    meaning = _meaning(difference, one)
    if isinstance(meaning, Unknown):
        return "it is unknown what it computes"
    if isinstance(meaning, Exact):
        return ""
    if one.left is None or one.right is None:
        return "it exists in one run only"
    if one.groups is not None:
        return "it is one of several operations that together match several others"
    if not one.compared:
        return "" if all(pair.known for pair in one.gives) else "it is unknown what must agree"
    if adds(meaning) or settled(meaning):
        return ""
    return "its result may depend on the position in an unknown manner"


def _asked(one: Aligned, left: Side, right: Side, known: Known) -> ByOrder:
    """One operation's sums on both sides."""
    told = judged_sums(one, left, right, known)
    if not told.how:
        return ByOrder("unknown", one.name, told.why)
    if told.differing:
        why = f"{told.differing} of {told.outputs} outputs are added differently"
        return ByOrder("differs", one.name, why, told.outputs)
    return ByOrder("same", one.name, outputs=told.outputs, certified=told.certified)

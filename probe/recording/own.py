"""Which operations differ by themselves, also where what they read differs already.

Behind the first source everything is carried, and would hide a second source. So an operation of
the right run is run again alone, on the right's operands with the left's bits wherever both must
agree: what differs from the left's outputs then is its own doing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from probe import ulp
from probe.recording.difference import Aligned, Difference, Pair, batches, itemsize, measure
from probe.recording.recording import Side

SECONDS = 60.0


def find(found: Difference, left: Side, right: Side, seconds: float = SECONDS) -> tuple[int, int]:
    """Fills in ``own`` of carried operations; how many were asked, and how many could be.

    Costs two watched runs for as many operands as may be held at once, and a call of each
    operation. None stays where an operation can't be run alone, reads what only one side has, or
    time is over.
    """
    carried = [
        one for one in found.operations if one.verdict == "carried" and one.right is not None
    ]
    paired = [one for one in carried if _paired(found, one)]
    numbers = {one.right for one in paired if one.right is not None}
    begun, asked = time.monotonic(), 0
    for some in batches(paired, [_bytes(found, one) for one in paired]):
        if asked and time.monotonic() - begun > seconds:
            break
        pairs = list({id(pair): pair for one in some for pair in (*one.reads, *one.gives)}.values())
        given = left.parts([(pair.left, pair.selection) for pair in pairs], 0)
        mine = dict(zip(map(id, pairs), given, strict=True))
        right.hold({pair.right for pair in pairs}, numbers)
        other = right.arrays({pair.right for pair in pairs})
        agains = right.agains(numbers)
        for one in some:
            again = agains[one.right or 0]
            if again is not None:
                one.own = _own(found, one, again, mine, other)
                asked += 1
    able = right.agains(numbers) if asked else {}
    return asked, sum(one is not None for one in able.values())


class Healed:
    """A side on which one operation read what the other side's did, wherever both must agree."""

    def __init__(self, side: Side, arrays: dict[int, np.ndarray]) -> None:
        self.side, self.own, self.recording = side, arrays, side.recording

    def arrays(self, wanted: set[int]) -> dict[int, np.ndarray]:
        """Returns values; of this operation what it read and gave then."""
        rest = wanted - set(self.own)
        found = self.side.arrays(rest) if rest else {}
        return found | {number: self.own[number] for number in wanted & set(self.own)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.side, name)


def alone(one: Aligned, left: Side, right: Side) -> tuple[Healed, Aligned]:
    """Returns a carried operation as a source: the right side healed, and what differs then."""
    assert one.right is not None
    again = right.agains({one.right})[one.right]
    assert again is not None
    pairs = [*one.reads, *one.gives]
    mine = left.arrays({pair.left for pair in pairs})
    other = right.arrays({pair.right for pair in pairs})
    arrays = {
        pair.right: _healed(pair, pair.selection.taken(mine[pair.left], 0), other[pair.right])
        for pair in one.reads
    }
    outputs = again([arrays[pair.right] for pair in one.reads])
    gives = []
    for pair, output in zip(one.gives, outputs, strict=False):
        arrays[pair.right] = np.asarray(output)
        fresh = replace(pair, equal=True, differing=0, signed_zero=0, max_ulp=0)
        if pair.compared:
            dtype = left.recording.values[pair.left].dtype
            measure(fresh, mine[pair.left], arrays[pair.right], dtype)
        gives.append(fresh)
    reads = [replace(pair, equal=True, differing=0) for pair in one.reads]
    return Healed(right, arrays), replace(one, reads=reads, gives=gives, verdict="source")


def _paired(found: Difference, one: Aligned) -> bool:
    """Whether everything that both sides' operation reads and gives has a counterpart."""
    if one.groups is not None:
        return False
    ours, theirs = found.left.operations[one.left or 0], found.right.operations[one.right or 0]
    return len(one.reads) == len(ours.reads) == len(theirs.reads)


def _bytes(found: Difference, one: Aligned) -> int:
    """Bytes of the right side's values of an operation, and of what must agree with the left's."""
    held = 0
    for pair in (*one.reads, *one.gives):
        value = found.right.values[pair.right]
        held += itemsize(value) * (int(np.prod(value.shape, dtype=int)) + pair.compared)
    return held


def _own(
    found: Difference,
    one: Aligned,
    again: Callable[[list[np.ndarray]], list[np.ndarray]],
    mine: Mapping[int, np.ndarray | None],
    other: Mapping[int, np.ndarray],
) -> int | None:
    """Outputs that differ where the inputs are made to agree; None where it can't be run.

    ``mine``: what must agree of the left's values, by the pairs' ids; ``other``: the right's.
    """
    try:
        outputs = again([_healed(pair, mine[id(pair)], other[pair.right]) for pair in one.reads])
    except Exception:  # left out of a recording, or whatever a library raises at other operands
        return None
    if len(outputs) < len(one.gives):
        return None
    count = 0
    for pair, output in zip(one.gives, outputs, strict=False):
        dtype = found.left.values[pair.left].dtype
        if not pair.compared or "float" not in dtype:
            continue
        ours = mine[id(pair)]
        if ours is None:
            return None
        count += int(ulp.apart(ours, pair.selection.taken(output, 1), dtype).sum())
    return count


def _healed(pair: Pair, mine: np.ndarray | None, other: np.ndarray) -> np.ndarray:
    """The right side's operand with the left's bits, ``mine``, wherever both must agree."""
    if pair.selection.empty or pair.equal:
        return other
    if mine is None:
        raise LookupError(pair.left)
    return pair.selection.put(other, mine, 1)

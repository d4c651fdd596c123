"""Why the outputs of one operation differ between two runs, though what it reads agrees.

It is a region: an operation of either run, or several that together compute the same. It is run by
itself, as it was recorded. Sums of products are asked for the order and the rounding of the outputs
that differ, which are revealed on both sides and replayed on the recorded operands. Functions are
asked whether places differ. Where the two sides are written differently, each operation of either
is replayed behind the other. What none of these explains has no class: it is said, and nothing is
guessed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from probe.comparison import Comparison
from probe.errors import ProbeError, TimeOver
from probe.layout import BOUNDARY
from probe.recording import adding, composed, place
from probe.recording.adding import Adds, Known
from probe.recording.alone import Alone, as_source, same, unequal
from probe.recording.difference import Aligned, Pair, near
from probe.recording.enclosed import rounding
from probe.recording.reasons import Cause
from probe.recording.recording import Run, name_of
from probe.recording.steps import of_formulas, of_terms
from probe.recording.sums import first_of
from probe.semantics import (
    Contracts,
    Convolution,
    Each,
    Normalises,
    Reduces,
    Unknown,
    Windows,
)

ALL = 2048
"""Differing outputs that are revealed; of more, that many evenly among them."""

NO_SOURCE = ": this is not a source"


@dataclass
class Region:
    """Both sides of a difference as they are run by themselves: an operation each, or several as
    one. ``reads``: what both read, and where it must agree."""

    left: Alone
    right: Alone
    reads: list[Pair]

    @classmethod
    def of(cls, left: Run, right: Run, one: Aligned) -> Region | None:
        """Returns a region, of its first output that differs; None where that is not on both sides.
        What only passes on what differs before is run on what agrees, and differs by itself then.
        KeyError: a recording has left out its operands."""
        if one.own:
            right, one = as_source(one, left, right)
        output = next((n for n, pair in enumerate(one.gives) if not pair.equal), None)
        if one.left is None or one.right is None or output is None:
            return None
        pair = one.gives[output]
        if one.joint:
            left, right, one = composed.of(left, right, one)
            output = 0
        assert one.left is not None and one.right is not None
        ends = (left, one.left), (right, one.right)
        first, second = (Alone.of(*end, output, pair, at) for at, end in enumerate(ends))
        return cls(first, second, one.reads)

    @property
    def sides(self) -> tuple[Alone, Alone]:
        """Returns both."""
        return self.left, self.right

    @property
    def able(self) -> bool:
        """Returns whether both can be run by themselves."""
        return all(one.again is not None for one in self.sides)

    @cached_property
    def differ(self) -> np.ndarray:
        """Returns which of the outputs that must agree don't: bool."""
        return unequal(self.left.outputs, self.right.outputs, self.left.value.dtype)

    @property
    def apart(self) -> np.ndarray:
        """Returns their numbers."""
        return np.flatnonzero(self.differ)

    def other_operands(self) -> str:
        """Returns what is wrong with the claim that both sides read the same; empty if nothing is.

        Equal parts put into the right side's operands must leave every bit as it is.
        """
        ours, theirs = (
            dict(zip(one.operation.reads, one.reads, strict=True)) for one in self.sides
        )
        signed, right = dict(theirs), self.right  # the right's, with the left's zeros
        for one in self.reads:
            if one.selection.empty:
                continue
            other = theirs[one.right]
            mixed = one.selection.put(other, one.selection.taken(ours[one.left], 0), 1)
            signed[one.right] = mixed.reshape(other.shape)
            if not same(other, signed[one.right], right.side.values[one.right].dtype):
                return f"the operands were assumed to agree, but differ{NO_SOURCE}"
        if all(signed[n].tobytes() == theirs[n].tobytes() for n in theirs):
            return ""
        # +0 and -0 count as agreeing, and most operations make nothing else of them; atan2 does
        given = right.chosen(right.call([signed[n] for n in right.operation.reads]))
        if same(given, right.outputs, right.value.dtype):
            return ""
        return f"its operands have zeros of different signs, which change what it gives{NO_SOURCE}"

    def reads_more(self) -> str:
        """Returns which side reads more than was said; empty if none does, as far as is known."""
        for one in self.sides:
            if one.reads_more(self.reads):
                why = "its outputs depend on operands that it was not expected to read"
                return f"on the {('left', 'right')[one.place]}, {why}{NO_SOURCE}"
        return ""

    @property
    def as_one(self) -> bool:
        """Returns whether two calls differ in their arguments at most, as far as that is known."""
        left, right = (
            (
                one.side.target,
                [array.shape for array in one.reads],
                getattr(one.again, "lies", None),
            )
            for one in self.sides
        )
        return left == right

    @cached_property
    def exchanged(self) -> tuple[list[int | None], list[int | None], str]:
        """Returns either side's operands at the other side's addresses, and which begin elsewhere,
        in words; empty if none is known to."""
        ours, theirs = (list(one.addresses) for one in self.sides)
        pairs = {pair.left: pair.right for pair in self.reads}
        right = {n: at for at, n in enumerate(self.right.operation.reads)}
        said = []
        for at, number in enumerate(self.left.operation.reads):
            other = right.get(pairs.get(number, -1))
            if other is None or None in (ours[at], theirs[other]) or ours[at] == theirs[other]:
                continue
            name = name_of(self.left.side, number) or f"operand {at + 1}"
            said.append(f"{name} at {ours[at]} on the left and {theirs[other]} on the right")
            ours[at], theirs[other] = theirs[other], ours[at]
        head = f"operands begin at different addresses, in bytes behind a multiple of {BOUNDARY}"
        return ours, theirs, f"{head}: {', '.join(said)}" if said else ""


def explain(
    left: Run, right: Run, aligned: Aligned, most: int = ALL, known: Known | None = None
) -> Cause:
    """Explains a source. ``most``: differing outputs that are revealed, evenly among all.

    ``known``: what was revealed of operations like it, which is tried first and added to.

    Costs calls of its operations. What one run alone has, or does not differ, has no cause.
    """
    pair = next((one for one in aligned.gives if not one.equal), None)
    region, why = None, "there are no outputs on both sides that differ"
    try:
        region = Region.of(left, right, aligned)
    except KeyError:
        why = "its operands were left out of the recording"
    if region is None:
        made = Cause(why=why)
    else:
        pair = region.left.pair
        made = _explained(region, aligned, most, {} if known is None else known)
    if pair is not None:
        made.compared, made.differing = pair.compared, pair.differing
    if region is not None and not made.refuted:
        told = made.comparison
        proved = np.zeros(len(region.differ), bool) if told is None else told.proved()
        counted = made.replayed if made.kind and told is None else 0
        made.rounding = rounding(region.sides, proved, counted)
    return made


def _explained(region: Region, aligned: Aligned, most: int, known: Known) -> Cause:
    if aligned.arguments:
        return _argued(region, aligned)
    if region.able:
        why = region.other_operands()
    else:  # of a recording that isn't trusted nothing was tried
        tried = (one.side.untried for one in region.sides)
        why = next(filter(None, tried), "the operation can't be run alone")
    if why:
        also = f"; {region.exchanged[2]}" if region.exchanged[2] else ""
        return Cause(why=why + also, refuted=region.able)
    try:  # is a side alone not what was recorded, or does it read more than was said?
        kind, why = next(filter(any, (one.unsteady() for one in region.sides)), ("", ""))
        why = why or region.reads_more()
    except TimeOver:
        raise
    except Exception as error:  # a library raises what it likes
        kind, why = "", f"alone, the operation raises {type(error).__name__}"
    if why:
        kind = "" if kind == "other" else kind
        causes = {kind: region.left.pair.differing} if kind else {}
        return Cause(kind, why, causes=causes, refuted=why.endswith(NO_SOURCE))
    if aligned.assumed and aligned.joint:
        made = _of_formulas(region, most, known) or Cause(why=CLOSE)
        made.alone = True
        return made
    made = _classed(region, most, known)
    if not made.kind and aligned.joint:
        made = _of_formulas(region, most, known) or made
    made.alone = True
    return _of_addresses(made, region)


CLOSE = "not explained yet: different formulas whose results are close"


def _of_formulas(region: Region, most: int, known: Known) -> Cause | None:
    """Returns what sets the steps of both sides apart; None where one of them isn't known."""
    try:
        found = of_terms(*region.sides, region.reads, region.apart)
        return found or of_formulas(*region.sides, region.apart, known, most)
    except TimeOver:
        raise
    except Exception:  # left out of a recording, or a library raises what it likes
        return None


def _of_addresses(made: Cause, region: Region) -> Cause:
    """Names the addresses of operands as the cause where each side, run alone on its own operands
    at the other's addresses, gives the other's bits. Orders that were revealed stay the proof of
    what each side adds; what else differs between the sides then changes nothing."""
    ours, theirs, text = region.exchanged
    if not text:
        return made
    (left, right), dtype = region.sides, region.left.value.dtype
    moved = left.moved(ours), right.moved(theirs)
    if moved[0] is None or moved[1] is None:
        made.why += f"; {text}"
        return made
    gone = region.differ & ~unequal(moved[0], right.outputs, dtype)
    gone &= ~unequal(moved[1], left.outputs, dtype)
    count, every = int(gone.sum()), int(region.differ.sum())
    if count < every:  # none: where they begin changes nothing, and is not mentioned
        made.why += f"; {text}, which explains {count} of {every}" * bool(count)
        return made
    if not made.kind:  # nothing replays what each side does, but exchanged addresses exchange bits
        made.why, made.examined, made.replayed = "", every, every
    exchanged = f"{text}; with the addresses exchanged, each side gives the other's bits"
    made.kind, made.causes = "alignment", {"alignment": every}
    made.why = f"{exchanged}; {made.why}" if made.why else exchanged
    return made


def _argued(region: Region, aligned: Aligned) -> Cause:
    """Returns the class of operations whose arguments differ, though their operands agree.

    It is the arguments that decide where nothing else can: operands of one size that lie alike in
    memory, on one target. Else the difference has to be larger than any rounding.
    """
    count, dtype = region.left.pair.differing, region.left.value.dtype
    alone, elsewhere = False, False  # whether something around a call decides, such as a switch
    try:
        for one in region.sides if region.able else ():
            kind, why = one.unsteady()
            if kind in ("nondeterministic", "uninitialised"):
                return Cause(kind, why, causes={kind: count}, alone=alone)
            alone, elsewhere = not why, bool(why)
            if why:
                break
    except Exception as error:  # a library raises what it likes
        return Cause(why=f"alone, the operation raises {type(error).__name__}", alone=alone)
    if (elsewhere or not region.as_one) and near(region.left.pair, dtype):
        why = (
            f"its arguments differ ({aligned.arguments}), and so does the size of its operands, "
            "how they lie in memory or a switch: it is unknown which of these changes the bits"
        )
        return Cause(why=why, alone=alone)
    # the same operands on the same target, so nothing but the arguments can decide
    both = [one.operation.meaning for one in region.sides]
    windows = all(isinstance(one, Windows | Convolution) for one in both) and both[0] != both[1]
    kind, came = "window+argument" if windows else "argument", count if alone else 0
    return Cause(kind, aligned.arguments, came, came, {kind: count}, alone)


def refuted(left: Run, right: Run, aligned: Aligned) -> str:
    """Returns why an operation is no source, though its inputs were taken to agree; empty if
    nothing was found against it. It is run alone once a side; what can't be is not refuted."""
    try:
        region = Region.of(left, right, aligned)
        if region is None or not region.able:
            return ""
        return region.other_operands() or region.reads_more()
    except TimeOver:
        raise
    except Exception:  # left out of a recording, or a library raises what it likes
        return ""


def _classed(region: Region, most: int, known: Known) -> Cause:
    """Returns the class of an operation that gives its recorded bits alone."""
    meaning = region.left.operation.meaning
    first = first_of(meaning)
    if isinstance(first, Contracts | Windows | Convolution | Reduces):
        return _of_sums(region, most, known)
    if isinstance(first, Each):
        added = of_terms(*region.sides, region.reads, region.apart)
        return added or place.of_function(*region.sides, region.apart, first.along)
    if isinstance(meaning, Normalises):
        return place.of_rows(*region.sides, meaning, region.apart)
    why = meaning.why if isinstance(meaning, Unknown) else "there is no test for it yet"
    return Cause(why=f"not explained yet: {why}")


def _of_sums(region: Region, most: int, known: Known) -> Cause:
    """Returns how both sides add, revealed and replayed."""
    made = Cause()
    try:
        adds = [Adds(one) for one in region.sides]
        told = adding.both(adds)
        if len(told.differing):
            examined = adding.revealed(adds, told.differing, known, most)
            told.left, told.right = (one.run for one in adds)
            _told(made, told, examined)
    except TimeOver:
        raise
    except (ProbeError, ValueError, IndexError) as error:
        made.why = made.why or f"not explained yet: {getattr(error, 'why', error)}"
    return made


def _told(made: Cause, told: Comparison, examined: np.ndarray) -> None:
    """Fills in the class of two sums, and what was counted."""
    where = np.isin(told.differing, examined)
    counted = Counter(name for name, here in zip(told.cause, where, strict=True) if here)
    made.examined, made.replayed = len(examined), int(told.proved(examined).sum())
    made.causes, made.comparison = dict(counted.most_common()), told
    refused = [side.refusal for side in (told.left, told.right)]
    evidence = told.left.evidence or told.right.evidence
    explained = [name for name in made.causes if name not in ("unexplained", "not-a-sum")]
    if "nondeterministic" in refused:
        made.kind, made.why = "nondeterministic", evidence
    elif refused.count("not-a-sum") == 1:
        made.kind, made.causes = "algorithm", {"algorithm": made.examined}
        side = ("left", "right")[refused.index("not-a-sum")]
        made.why = (
            f"the {side} side does not add the products (Winograd or FFT, for example), the other "
            f"side does: {evidence}"
        )
    elif refused.count("not-a-sum") == 2:
        made.why = f"neither side adds the products (Winograd or FFT, for example): {evidence}"
    elif not explained:
        made.why = "no revealed summation gives the bits of both sides"
        made.why += f": {evidence}" if evidence else ""
    else:
        made.kind, summands = explained[0], told.left.case.summands
        of = f"{made.replayed} of {made.examined} examined outputs replay on both sides"
        made.why = f"{SAID.get(made.kind, made.kind)} in sums of {summands}; {of}"


SAID = {
    "order": "the products are added in different orders",
    "rounding": "the order is the same, but different products are fused into their additions",
    "order+rounding": "the products are added in different orders and fused differently",
    "precision": "operands or partial sums are kept in different formats",
    "flush": "one side flushes subnormal numbers to zero",
    "reach": "one side reads inputs outside of the window",
}
"""What a class says of two sums."""

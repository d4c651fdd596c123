"""Why the outputs of one operation differ between two runs, though what it reads agrees.

The operation is run alone, as it was recorded. Sums of products are put to the engine as a case
whose target is the operation itself: order and rounding of the differing outputs are revealed on
both sides and replayed on the recorded operands. Functions are asked whether places differ. What
neither explains has no class: it is said, and nothing is guessed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe.comparison import Comparison
from probe.enclosure import Rounding
from probe.errors import ProbeError, TimeOver
from probe.layout import BOUNDARY
from probe.recording import adding, composed, place
from probe.recording.adding import Adds, Known
from probe.recording.alone import Alone, same, unequal
from probe.recording.close import near
from probe.recording.difference import Aligned, Pair
from probe.recording.enclosed import rounding
from probe.recording.recording import Side, name_of
from probe.recording.steps import of_formulas, of_terms
from probe.semantics import (
    Contracts,
    Convolution,
    Each,
    Meaning,
    Normalises,
    Reduces,
    Unknown,
    Windows,
)

ALL = 2048
"""Differing outputs that are revealed; of more, that many evenly among them."""

KINDS = (
    *("window", "reach", "order", "rounding", "precision", "flush"),
    *("place", "argument", "algorithm", "alignment", "nondeterministic", "uninitialised"),
)
"""Classes of causes; those of sums may be joined by ``+``."""


NO_SOURCE = ": this is not a source"


@dataclass
class Cause:
    """Why an operation's outputs differ.

    ``kind``: one of ``KINDS`` (or some joined by ``+``), empty where there is no word for it yet;
    ``why``: a sentence. ``compared`` and ``differing``: of the first output that differs.
    ``examined``: differing outputs that were asked about, ``replayed``: those that came out again
    on both sides. ``causes``: examined outputs by cause. ``alone``: whether the operation alone
    gave its recorded bits on both sides. ``comparison``: of sums, with both sides' summations.
    ``refuted``: what it reads does not agree, or it reads more than was said: it is no source.
    ``rounding``: the differing outputs by whether rounding can be why.
    """

    kind: str
    why: str
    compared: int = 0
    differing: int = 0
    examined: int = 0
    replayed: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    alone: bool = False
    output: int = 0
    comparison: Comparison | None = None
    refuted: bool = False
    rounding: Rounding = field(default_factory=Rounding)

    @property
    def explained(self) -> bool:
        """Returns whether it has a class, and every output that was asked about came out again."""
        return bool(self.kind) and self.replayed == self.examined

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts; the comparison's summations as ``probe explain`` has them."""
        found: dict[str, Any] = {"class": self.kind or None, "why": self.why}
        names = ("compared", "differing", "examined", "replayed", "causes", "alone")
        found |= {name: getattr(self, name) for name in names}
        found["rounding"] = self.rounding.to_json()
        if self.comparison is not None:
            told = self.comparison
            found["left_orders"] = told.orders(told.left)
            found["right_orders"] = told.orders(told.right)
        return found


def explain(
    left: Side, right: Side, aligned: Aligned, most: int = ALL, known: Known | None = None
) -> Cause:
    """Explains a source. ``most``: differing outputs that are revealed, evenly among all.

    ``known``: what was revealed of operations like it, which is tried first and added to.

    Costs two watched runs a side for its operands, and then calls of the one operation. An
    operation that one run alone has, or that does not differ, has no cause.
    """
    output = next((n for n, one in enumerate(aligned.gives) if not one.equal), None)
    if aligned.left is None or aligned.right is None or output is None:
        return Cause("", "there are no outputs on both sides that differ")
    pair = aligned.gives[output]
    made = Cause("", "", pair.compared, pair.differing, output=output)
    known = {} if known is None else known
    if aligned.joint:
        left, right, aligned = composed.of(left, right, aligned)
        output = 0
    assert aligned.left is not None and aligned.right is not None
    numbers = enumerate(((left, aligned.left), (right, aligned.right)))
    try:
        sides = [Alone.of(side, number, output, pair, at) for at, (side, number) in numbers]
    except KeyError:
        made.why = "its operands were left out of the recording"
        return made
    made = _explained(made, sides, aligned, most, known)
    if not made.refuted:
        told = made.comparison
        proved = np.zeros(len(sides[0].outputs), bool) if told is None else told.proved()
        counted = made.replayed if made.kind and told is None else 0
        made.rounding = rounding(sides, proved, counted)
    return made


def _explained(made: Cause, sides: list[Alone], aligned: Aligned, most: int, known: Known) -> Cause:
    if aligned.arguments:
        return _argued(made, sides, aligned)
    if any(one.again is None for one in sides):
        # of a recording that isn't trusted nothing was tried
        tried = (getattr(one.side, "untried", "") for one in sides)
        made.why = next(filter(None, tried), "the operation can't be run alone")
    else:
        made.why = _other_operands(sides, aligned.reads)
        made.refuted = bool(made.why)
    if made.why:
        made.why += f"; {text}" if (text := _addresses(sides, aligned.reads).text) else ""
        return made
    try:
        made.kind, made.why = _unlike(sides, aligned.reads)
        made.refuted = made.why.endswith(NO_SOURCE)
    except TimeOver:
        raise
    except Exception as error:  # a library raises what it likes
        made.why = f"alone, the operation raises {type(error).__name__}"
    if made.why:
        made.causes = {made.kind: made.differing} if made.kind else {}
        return made
    made.alone = True
    if aligned.assumed and aligned.joint:
        apart = np.flatnonzero(unequal(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))
        found = of_terms(sides[0], sides[1], aligned.reads, apart)
        if found := found or of_formulas(sides[0], sides[1], apart, known, most):
            return _placed(made, found)
        made.why = "not explained yet: different formulas whose results are close"
        return made
    made = _classed(made, sides, aligned.reads, most, known)
    if not made.kind and aligned.joint:
        apart = np.flatnonzero(unequal(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))
        if found := of_formulas(sides[0], sides[1], apart, known, most):
            made = _placed(made, found)
    return _of_addresses(made, sides, aligned.reads)


@dataclass
class _Addresses:
    """Where operands begin. ``text``: those that begin elsewhere on the other side, empty if none
    is known to; ``left`` and ``right``: a side's operands at the other side's addresses."""

    text: str
    left: list[int | None]
    right: list[int | None]


def _addresses(sides: list[Alone], reads: list[Pair]) -> _Addresses:
    ours, theirs = (one.addresses for one in sides)
    found, said = _Addresses("", list(ours), list(theirs)), []
    pairs = {pair.left: pair.right for pair in reads}
    right = {n: at for at, n in enumerate(sides[1].operation.reads)}
    for at, number in enumerate(sides[0].operation.reads):
        other = right.get(pairs.get(number, -1))
        if other is None or None in (ours[at], theirs[other]) or ours[at] == theirs[other]:
            continue
        found.left[at], found.right[other] = theirs[other], ours[at]
        name = name_of(sides[0].side.recording, number) or f"operand {at + 1}"
        said.append(f"{name} at {ours[at]} on the left and {theirs[other]} on the right")
    if said:
        head = f"operands begin at different addresses, in bytes behind a multiple of {BOUNDARY}"
        found.text = f"{head}: {', '.join(said)}"
    return found


def _of_addresses(made: Cause, sides: list[Alone], reads: list[Pair]) -> Cause:
    """Names the addresses of operands as the cause where each side, run alone on its own operands
    at the other's addresses, gives the other's bits. Orders that were revealed stay the proof of
    what each side adds; what else differs between the sides then changes nothing."""
    if not (apart := _addresses(sides, reads)).text:
        return made
    moved = sides[0].moved(apart.left), sides[1].moved(apart.right)
    if moved[0] is None or moved[1] is None:
        made.why += f"; {apart.text}"
        return made
    ours, theirs, dtype = sides[0].outputs, sides[1].outputs, sides[0].value.dtype
    differ = unequal(ours, theirs, dtype)
    gone = differ & ~unequal(moved[0], theirs, dtype) & ~unequal(moved[1], ours, dtype)
    count, every = int(gone.sum()), int(differ.sum())
    if count < every:  # none: where they begin changes nothing, and is not mentioned
        made.why += f"; {apart.text}, which explains {count} of {every}" * bool(count)
        return made
    if not made.kind:  # nothing replays what each side does, but exchanged addresses exchange bits
        made.why, made.examined, made.replayed = "", every, every
    exchanged = f"{apart.text}; with the addresses exchanged, each side gives the other's bits"
    made.kind, made.causes = "alignment", {"alignment": every}
    made.why = f"{exchanged}; {made.why}" if made.why else exchanged
    return made


def _argued(made: Cause, sides: list[Alone], aligned: Aligned) -> Cause:
    """Fills in the class of operations whose arguments differ, though their operands agree.

    It is the arguments that decide where nothing else can: operands of one size that lie alike in
    memory, on one target. Else the difference has to be larger than any rounding.
    """
    elsewhere = False  # whether something around a call decides its bits, such as a switch
    try:
        for one in sides if all(one.again is not None for one in sides) else ():
            kind, why = one.unsteady()
            if kind in ("nondeterministic", "uninitialised"):
                made.kind, made.why = kind, why
                made.causes = {kind: made.differing}
                return made
            made.alone, elsewhere = not why, bool(why)
            if why:
                break
    except Exception as error:  # a library raises what it likes
        made.why = f"alone, the operation raises {type(error).__name__}"
        return made
    dtype = sides[0].value.dtype
    if (elsewhere or not _as_one(sides)) and near(aligned.gives[made.output], dtype):
        made.why = (
            f"its arguments differ ({aligned.arguments}), and so does the size of its operands, "
            "how they lie in memory or a switch: it is unknown which of these changes the bits"
        )
        return made
    # the same operands on the same target, so nothing but the arguments can decide
    made.kind, made.why = "argument", aligned.arguments
    both = [one.operation.meaning for one in sides]
    if all(isinstance(one, Windows | Convolution) for one in both) and both[0] != both[1]:
        made.kind = "window+argument"
    made.causes = {made.kind: made.differing}
    made.examined = made.replayed = made.differing if made.alone else 0
    return made


def _as_one(sides: list[Alone]) -> bool:
    """Returns whether two calls differ in their arguments at most, as far as that is known."""
    left, right = (
        (
            one.side.recording.target,
            [array.shape for array in one.reads],
            getattr(one.again, "lies", None),
        )
        for one in sides
    )
    return left == right


def _unlike(sides: list[Alone], reads: list[Pair]) -> tuple[str, str]:
    """(class, why) where a side alone is not what was recorded, or reads more than was said."""
    for one in sides:
        kind, why = one.unsteady()
        if why:
            return ("" if kind == "other" else kind), why
    return "", _reads_more(sides, reads)


def _other_operands(sides: list[Alone], reads: list[Pair]) -> str:
    """Returns what is wrong with the claim that both sides read the same; empty if nothing is.

    Equal parts put into the right side's operands must leave every bit as it is.
    """
    ours = dict(zip(sides[0].operation.reads, sides[0].reads, strict=True))
    theirs = dict(zip(sides[1].operation.reads, sides[1].reads, strict=True))
    signed = dict(theirs)  # the right's, with the left's zeros
    for one in reads:
        mine, other = ours[one.left], theirs[one.right]
        if one.selection.empty:
            continue
        mixed = one.selection.put(other, one.selection.taken(mine, 0), 1)
        dtype = sides[1].side.recording.values[one.right].dtype
        if not same(other, mixed.reshape(other.shape), dtype):
            return f"the operands were assumed to agree, but differ{NO_SOURCE}"
        signed[one.right] = mixed.reshape(other.shape)
    if all(signed[n].tobytes() == theirs[n].tobytes() for n in theirs):
        return ""
    # +0 and -0 count as agreeing, and most operations make nothing else of them; atan2 does
    given = sides[1].chosen(sides[1].call([signed[n] for n in sides[1].operation.reads]))
    if not same(given, sides[1].outputs, sides[1].value.dtype):
        return f"its operands have zeros of different signs, which change what it gives{NO_SOURCE}"
    return ""


def refuted(left: Side, right: Side, aligned: Aligned) -> str:
    """Returns why an operation is no source, though its inputs were taken to agree; empty if
    nothing was found against it. It is run alone once a side; what can't be is not refuted."""
    output = next((n for n, one in enumerate(aligned.gives) if not one.equal), None)
    if aligned.left is None or aligned.right is None or output is None:
        return ""
    pair = aligned.gives[output]
    try:
        if aligned.joint:
            left, right, aligned = composed.of(left, right, aligned)
            output = 0
        assert aligned.left is not None and aligned.right is not None
        numbers = enumerate(((left, aligned.left), (right, aligned.right)))
        sides = [Alone.of(side, number, output, pair, at) for at, (side, number) in numbers]
        if any(one.again is None for one in sides):
            return ""
        return _other_operands(sides, aligned.reads) or _reads_more(sides, aligned.reads)
    except TimeOver:
        raise
    except Exception:  # left out of a recording, or a library raises what it likes
        return ""


def _reads_more(sides: list[Alone], reads: list[Pair]) -> str:
    for one in sides:
        if one.reads_more(reads):
            why = "its outputs depend on operands that it was not expected to read"
            return f"on the {('left', 'right')[one.place]}, {why}{NO_SOURCE}"
    return ""


def _classed(made: Cause, sides: list[Alone], reads: list[Pair], most: int, known: Known) -> Cause:
    """Fills in the class of an operation that gives its recorded bits alone."""
    meaning = sides[0].operation.meaning
    apart = np.flatnonzero(unequal(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))
    first = first_meaning(meaning)
    if isinstance(first, Contracts | Windows | Convolution | Reduces):
        return _of_sums(made, sides, most, known)
    if isinstance(first, Each):
        along = getattr(first, "along", getattr(meaning, "axis", None))
        added = of_terms(sides[0], sides[1], reads, apart)
        found = added or place.of_function(sides[0], sides[1], apart, along)
    elif isinstance(meaning, Normalises):
        found = place.of_rows(sides[0], sides[1], meaning, apart)
    else:
        why = meaning.why if isinstance(meaning, Unknown) else "there is no test for it yet"
        found = place.Placed("", f"not explained yet: {why}")
    return _placed(made, found)


def _placed(made: Cause, found: place.Placed) -> Cause:
    made.kind, made.why = found.word, found.why
    made.examined, made.replayed = found.examined, found.replayed
    made.causes = {found.word: found.replayed} if found.word else {}
    return made


def first_meaning(meaning: Meaning) -> Meaning:
    """What an operation that is several in one starts with; a function along one axis as itself."""
    steps = getattr(meaning, "steps", ())
    found: Meaning = steps[0].meaning if steps else getattr(meaning, "first", meaning)
    each: Meaning = getattr(found, "each", found)
    return each


def _of_sums(made: Cause, sides: list[Alone], most: int, known: Known) -> Cause:
    """Fills in how both sides add, revealed and replayed."""
    try:
        adds = [Adds(one) for one in sides]
        told = adding.both(adds)
        if len(told.differing):
            _told(made, told, adding.revealed(adds, told.differing, known, most))
    except TimeOver:
        raise
    except (ProbeError, ValueError, IndexError) as error:
        made.why = made.why or f"not explained yet: {getattr(error, 'why', error)}"
    return made


def _told(made: Cause, told: Comparison, examined: np.ndarray) -> None:
    """Adds a case's classes and counts; the first case is kept."""
    where = np.isin(told.differing, examined)
    names = [name for name, here in zip(told.cause, where, strict=True) if here]
    made.examined += len(examined)
    made.replayed += int(told.proved(examined).sum())
    counted = Counter(made.causes) + Counter(names)
    made.causes = dict(counted.most_common())
    made.comparison = made.comparison or told
    refused = [side.refusal for side in (told.left, told.right)]
    evidence = told.left.evidence or told.right.evidence
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
    else:
        _of_orders(made, told, counted)


def _of_orders(made: Cause, told: Comparison, counted: Counter[str]) -> None:
    explained = [name for name in counted if name not in ("unexplained", "not-a-sum")]
    if not explained:
        evidence = told.left.evidence or told.right.evidence
        made.why = "no revealed summation gives the bits of both sides"
        made.why += f": {evidence}" if evidence else ""
        return
    made.kind = max(explained, key=lambda name: counted[name])
    summands = told.left.case.summands
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

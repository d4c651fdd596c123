"""Why the outputs of one operation differ between two runs, though what it reads agrees.

The operation is run alone, as it was recorded. Sums of products are put to the engine as a case
whose target is the operation itself: order and rounding of the differing outputs are revealed on
both sides and replayed on the recorded operands. Functions are asked whether places differ. What
neither explains has no class: it is said, and nothing is guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from probe import comparison
from probe.comparison import Comparison, Pairs, Revealer
from probe.errors import ProbeError, TimeOver
from probe.layout import BOUNDARY
from probe.order.reveal import SHORT
from probe.order.summation import Summation
from probe.order.tree import BIAS
from probe.recording import composed, place
from probe.recording.alone import Alone, same, unequal
from probe.recording.close import near
from probe.recording.difference import Aligned, Pair
from probe.recording.recording import Side, name_of
from probe.recording.sums import Session, Sum
from probe.recording.terms import of_terms
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

FEW = 64
"""Differing outputs of a long sum that are revealed before these are replayed on the others."""

PRODUCTS = 1 << 27
"""Products that are replayed for the differing outputs that were not revealed."""

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

    @property
    def explained(self) -> bool:
        """Returns whether it has a class, and every output that was asked about came out again."""
        return bool(self.kind) and self.replayed == self.examined

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts; the comparison's summations as ``probe explain`` has them."""
        found: dict[str, Any] = {"class": self.kind or None, "why": self.why}
        names = ("compared", "differing", "examined", "replayed", "causes", "alone")
        found |= {name: getattr(self, name) for name in names}
        if self.comparison is not None:
            told = self.comparison
            found["left_orders"] = told.orders(told.left)
            found["right_orders"] = told.orders(told.right)
        return found


class Recorded(Comparison):
    """Outputs of two recorded operations, whose operands were compared before."""

    def __post_init__(self) -> None:
        """Nothing is left to be checked."""

    @cached_property
    def _classes(self) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """A sum that is longer on one side adds zeros there: the leaves are the shorter one's."""
        left, right = self.left.case, self.right.case
        if left.summands == right.summands:
            return super()._classes
        bias = () if left.bias is None else (BIAS,)
        leaves = (*range(min(left.summands, right.summands)), *bias)
        return np.zeros(len(self.left.replays), np.int64), [leaves]


Known = dict[Hashable, Revealer]
"""What was revealed of operations, by name and shapes."""


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
    if aligned.arguments:
        return _argued(made, sides, aligned)
    if any(one.again is None for one in sides):
        # of a recording that isn't trusted nothing was tried
        tried = (getattr(side, "untried", "") for side in (left, right))
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
        if added := of_terms(sides[0], sides[1], aligned.reads, apart):
            return _placed(made, added)
        made.why = "not explained yet: different formulas whose results are close"
        return made
    made = _classed(made, sides, aligned.reads, most, {} if known is None else known)
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
        asked = [one.asked for one in sides]
        told = _compared(sides, asked)
        if len(told.differing):
            shapes = tuple(str(one.to_json()) for one in asked)
            key = sides[0].operation.op, shapes, *map(_begins, sides)
            revealer = known.setdefault(key, Revealer(kept=None, small=0))
            _told(made, told, _revealed(sides, asked, told, most, revealer))
    except TimeOver:
        raise
    except (ProbeError, ValueError, IndexError) as error:
        made.why = made.why or f"not explained yet: {getattr(error, 'why', error)}"
    return made


def _revealed(
    sides: list[Alone], asked: Sequence[Sum], told: Recorded, most: int, known: Revealer
) -> np.ndarray:
    """Reveals differing outputs; which pairs were examined.

    Operations of one shape add alike, and so do most outputs of one operation: what is known of the
    shape is replayed first, then what a few outputs told, and only what that does not give to the
    bit is asked. Of short sums, whose orders round alike by luck, all that may be are asked.
    """
    each = _each(sides, asked, told)
    long = min(one.summands for one in asked) > SHORT
    chosen = np.zeros(0, int)
    if long and all(known.recall(side, session) for session, side, _ in each):
        examined = _settled(told, chosen)
        if told.proved(told.differing).all():
            return examined
    for count in sorted({min(FEW, most), most}) if long else [most]:
        rest = told.differing[~told.proved(told.differing)] if len(chosen) else told.differing
        chosen = np.union1d(chosen, _evenly(rest, count))
        for session, side, places in each:
            known.reveal(side, session, side.mask(places[chosen]))
        examined = _settled(told, chosen)
        if told.left.refusal or told.right.refusal or told.proved(told.differing).all():
            break
    return examined


def _evenly(some: np.ndarray, most: int) -> np.ndarray:
    """Returns at most so many of these, evenly among them."""
    if len(some) <= most:
        return some
    return some[np.unique(np.linspace(0, len(some) - 1, most).astype(int))]


def begins(address: int | None) -> int | None:
    """Returns what orders go with of an address: modulo 16 bytes, as MKL's and Eigen's do. NumPy
    allocates at any multiple of 16, so that more of it would tell the same call from itself."""
    return None if address is None else address % 16


def _begins(one: Alone) -> Hashable:
    """Returns what its orders go with besides its shapes: where its operands begin."""
    return tuple(map(begins, one.addresses))


def compared_sums(sides: list[Alone], known: Known, made: Callable[[], Revealer]) -> Recorded:
    """Returns an operation's sums on both sides, all pairs revealed.

    ``made``: gives the revealer of a kind of operation that ``known`` does not have.
    """
    asked = [one.asked for one in sides]
    told = _compared(sides, asked)
    for number, (session, side, places) in enumerate(_each(sides, asked, told)):
        shapes = str(asked[number].to_json())
        key = sides[0].operation.op, shapes, _begins(sides[number])
        known.setdefault(key, made()).reveal(side, session, side.mask(places))
    return told


def _session(one: Alone, asked: Sum) -> Session:
    assert one.again is not None
    return Session(one.side.recording.target, asked, one.reads, one.again)


def _compared(sides: list[Alone], asked: Sequence[Sum]) -> Recorded:
    runs: list[Any] = []
    for one, own in zip(sides, asked, strict=True):
        runs.append(comparison.run(_session(one, own), own, own.of(one.reads)))  # type: ignore[arg-type]
    places = [own.places(one.index) for one, own in zip(sides, asked, strict=True)]
    pairs = Pairs(places[0], places[1], np.ones(len(places[0]), bool))
    return Recorded(asked[0], runs[0], runs[1], pairs)  # type: ignore[arg-type]


def _each(sides: list[Alone], asked: Sequence[Sum], told: Comparison) -> list[tuple[Any, ...]]:
    """Session, run and places of both sides."""
    runs, places = (told.left, told.right), (told.pairs.left, told.pairs.right)
    sessions = map(_session, sides, asked)
    return list(zip(sessions, runs, places, strict=True))


def _settled(told: Comparison, chosen: np.ndarray) -> np.ndarray:
    """Replays what was revealed on the differing outputs that were not; which were examined.

    An output of the same call that a summation gives to the bit on both sides is explained by it.
    """
    if len(chosen) == len(told.differing) or told.left.refusal or told.right.refusal:
        return chosen
    rest = np.setdiff1d(told.differing, chosen)
    cost = told.left.case.summands + told.right.case.summands
    rest = rest[: max(0, PRODUCTS // max(cost, 1))]
    for side, places in ((told.left, told.pairs.left), (told.right, told.pairs.right)):
        _extended(side, places[rest])
    return np.sort(np.concatenate([chosen, rest]))


def _extended(side: comparison.Run, places: np.ndarray) -> None:
    """Gives outputs the first summation, the most frequent first, that replays to their bits."""
    if side.orders is None or not len(places):
        return
    positions, filters = places.T
    left = np.arange(len(places))
    for number in np.argsort(-side.orders.counts(), kind="stable"):
        summation: Summation = side.orders.summations[number]
        agreed = side.operands.agrees(summation, positions[left], filters[left])
        done = left[agreed]
        side.orders.index[positions[done], filters[done]] = number
        side.orders.replayed[positions[done], filters[done]] = True
        side.replays[positions[done], filters[done]] = True
        left = left[~agreed]
        if not len(left):
            return


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

"""A function whose bits depend on where an element is: a vector loop and its remainder.

The operation itself is asked, at its own shapes: all places get the same number. Where places then
differ in their bits, they are computed by different code, and each differing output has to come out
again on both sides at its own place. That some number has such a border is no proof: two formulas
may both have one. The place is the cause only if each differing output that is asked about comes
out with the other side's bits too, from the same number at another place, perhaps of a longer call.
Where one doesn't, the sides compute by different formulas.

Random numbers show the border between such places by luck alone: a part of all numbers is rounded
differently on either side of it. So telling ones are looked for first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe.case import floats
from probe.diff.alone import NOT_ALONE, Alone, Cause, Sides, equal_bits, evenly

# Differing outputs that are asked about, of small arrays and of large ones: a call a side each.
MOST, LEAST = 128, 8

# Elements that these calls may compute together.
ELEMENTS = 1 << 27

# Further elements along the last axis, one by one, that are looked through for a remainder.
SEAM = 33

# Numbers among which telling ones are looked for, and what they are drawn from.
POOL, SEED = 2048, 31_000

# Numbers that every place of a function is given: any, and those to which places answer
# differently.
PLAIN, TELLING = 8, 16


def affordable(size: int) -> int:
    """Returns how many outputs are asked about where each costs a call of so many elements."""
    return min(max(ELEMENTS // max(size, 1), LEAST), MOST)


@dataclass
class PlacedFunction:
    """An operation at its own shapes, to which numbers of our choice are given: one number at all
    of its places.

    ``call``: container arrays like ``reads`` to the output, of which ``recorded`` is that of
    ``reads``. ``dtypes``: of ``reads``, and last of the output. ``index``: flat indices of the
    outputs that must agree. ``held``: which of ``reads`` keep what they hold, such as weights.
    ``along``: the axis along which inputs with one axis lie, the first aside. Its outputs can't be
    asked about one by one where there is a ``why``. ``by_place``: whether an answer so far had
    different bits at different places.
    """

    call: Callable[[list[np.ndarray]], np.ndarray]
    reads: list[np.ndarray]
    dtypes: Sequence[str]
    recorded: np.ndarray
    index: np.ndarray
    held: Sequence[int] = ()
    along: int | None = None
    why: str = field(default="", init=False)
    by_place: bool = field(default=False, init=False)

    @classmethod
    def of(cls, alone: Alone, held: Sequence[int] = (), along: int | None = None) -> PlacedFunction:
        recorded, again = alone.gives[alone.output], alone.rerun_output
        return cls(again, alone.reads, alone.dtypes, recorded, alone.index, held, along)

    def __post_init__(self) -> None:
        """Lays what is put to it at the places of the outputs."""
        self.dtype, self.recorded = self.dtypes[-1], np.ascontiguousarray(self.recorded)
        self.shape = self.recorded.shape
        # each output is asked twice in a row: does it come again, and who else gets the other
        # side's bits
        self.last: tuple[bytes, np.ndarray | None] = b"", None
        self.wide: list[np.ndarray] = []
        for array in self.reads:
            lying, rank = array, len(self.shape)
            if self.along is not None and array.ndim == 1 and self.wide:
                lying = array.reshape(-1, *(1,) * (rank - self.along % rank - 1))
            try:
                self.wide.append(np.broadcast_to(lying, self.shape))
            except ValueError:
                self.why = "its inputs are not at the positions of its outputs"

    def filled(self, number: float | np.ndarray) -> np.ndarray:
        """Returns the output with one number at every place, or one row along the last axis."""
        operands = list(self.reads)
        for n in set(range(len(operands))).difference(self.held):
            rounded = floats.round_to(np.asarray(number), self.dtypes[n])
            operands[n] = np.broadcast_to(rounded, operands[n].shape).copy()
        return self.call(operands)

    def laid(self, pool: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
        """Runs it with the numbers of a pool one after the other at its places, from number
        ``shift`` on, and over again behind the last. Returns which number stood at each place of
        the output (its index in the pool), and what came out there (float64), both flat."""
        size, operands = self.recorded.size, []
        index = (np.arange(size) + shift) % len(pool)
        for array, dtype in zip(self.reads, self.dtypes, strict=False):
            own = index if array.size == size else np.arange(array.size) % len(pool)
            operands.append(floats.round_to(pool[own], dtype).reshape(array.shape))
        return index, floats.widen(self.call(operands), self.dtypes[-1]).reshape(-1)

    def bits(self, output: np.ndarray) -> np.ndarray:
        """Returns bits of floating-point numbers, different values as they are."""
        plain = np.ascontiguousarray(output)
        return floats.to_bits(plain, self.dtype) if self.dtype in floats.FORMATS else plain

    def recorded_bits(self, number: int) -> bytes:
        return self.bits(self.recorded).reshape(-1)[self.index[number]].tobytes()

    def _put(self, place: int) -> list[np.ndarray]:
        """The numbers that are put everywhere to ask about an output."""
        at = np.unravel_index(place, self.shape)
        return [np.asarray(array[at]) for array in self.wide]

    def came(self, place: int) -> bool | None:
        """Returns whether an output comes out again at its place; None where it can't be asked."""
        bits, recorded = self.answers(place), self.recorded.reshape(-1)[place : place + 1]
        if bits is None:
            return None
        return equal_bits(recorded, bits[place : place + 1].view(recorded.dtype), self.dtype)

    def answers(self, place: int) -> np.ndarray | None:
        """Returns the bits of the output; None where it can't be run so. The last is kept."""
        key = b"".join(row.tobytes() for row in self._put(place))
        if key != self.last[0]:
            self.last = key, self._answers(place)
        return self.last[1]

    def _answers(self, place: int) -> np.ndarray | None:
        both = zip(self.reads, self._put(place), strict=True)
        try:
            output = self.call([np.full(a.shape, value, a.dtype) for a, value in both])
        except NOT_ALONE:  # a library says no in many ways, and then this isn't known
            return None
        if output.shape != self.shape:
            return None
        bits = self.bits(output).reshape(-1)
        self.by_place |= bool((bits != bits[:1]).any())
        return bits

    def longer(self, place: int, more: int) -> set[bytes] | None:
        """Returns the results of an output's number at all places of a longer call; None where it
        has one size, or can't be run so for another reason."""
        width = self.shape[-1] if self.shape else 0
        if not width:
            return None
        operands = []
        for array, value in zip(self.reads, self._put(place), strict=True):
            grown = array.ndim > 0 and array.shape[-1] == width
            shape = (*array.shape[:-1], width + more) if grown else array.shape
            operands.append(np.full(shape, value, array.dtype))
        try:
            output = self.call(operands)
        except NOT_ALONE:
            return None
        if output.size <= self.recorded.size:
            return None
        return {bits.tobytes() for bits in np.unique(self.bits(output))}


def telling_numbers(laid: Iterable[tuple[np.ndarray, np.ndarray]], count: int) -> np.ndarray:
    """Returns which of ``count`` numbers gave different finite results at some places: bool.

    ``laid``: as ``PlacedFunction.laid`` gives it, of any functions and shifts.
    """
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    for index, results in laid:
        with np.errstate(invalid="ignore"):  # of numbers that it has no result for
            np.minimum.at(least, index, results)
            np.maximum.at(most, index, results)
    return np.asarray((least != most) & np.isfinite(least) & np.isfinite(most))


OTHER = "different formulas: the same number gives the other side's result at no place"
APART = "each side gives one result at all places, and the sides' results are different"


def function_cause(sides: Sides, apart: np.ndarray, along: int | None) -> Cause:
    """Returns why a function of each element differs. ``apart``: which of the compared outputs do.

    ``along``: the axis along which inputs with one axis lie, the first aside; None: the last.
    """
    placed = [PlacedFunction.of(side, along=along) for side in sides]
    cause, elsewhere = _ask_outputs(placed, apart)
    if elsewhere is None:
        return cause
    cause.kind, more = "place", 0
    cause.why = (
        "with a few more elements in one call the same number gives both results, by place: a "
        "vector loop and its remainder"
    )
    for done, number in enumerate(elsewhere):
        more = _grown(placed, number, more)
        if more == 0:
            cause.kind = "algorithm"
            cause.why = OTHER
            if not done and not any(side.by_place for side in placed):
                cause.why = APART
        elif more < 0:
            cause.kind = ""
            cause.why = "it can't be run at other sizes, so it is unknown whether places differ"
        if more <= 0:
            break
    return Cause(cause.kind, cause.why, cause.examined, cause.replayed, in_numpy=False)


def _grown(sides: Sequence[PlacedFunction], number: int, more: int) -> int:
    """Returns how many more elements along the last axis a call of either side needs to give both
    sides' results of an output; 0 if none was found, -1 if neither runs at other sizes.

    ``more``: what another output needed, which is tried first.
    """
    bits = [side.recorded_bits(number) for side in sides]
    sizes = [more, *range(1, SEAM)] if more > 0 else range(1, SEAM)
    able = False
    for side in sides:
        for size in sizes:
            seen = side.longer(int(side.index[number]), size)
            if seen is None:
                break
            able = True
            if seen.issuperset(bits):
                return size
    return 0 if able else -1


def _ask_outputs(
    sides: Sequence[PlacedFunction], apart: np.ndarray
) -> tuple[Cause, list[int] | None]:
    """Asks about some differing outputs, evenly among all.

    ``replayed`` are those that came out on both sides from their own number and their place alone.
    The list has those of the examined ones that no place of either side's call gave the other
    side's bits; None where nothing more can be asked.
    """
    if why := sides[0].why or sides[1].why:
        return Cause(why=why), None
    largest = max(side.recorded.size for side in sides)
    # evenly among all: the first ones may all lie in one vector
    chosen = evenly(apart, affordable(largest))
    replayed, elsewhere = 0, list[int]()
    for number in chosen.tolist():
        came, met = [side.came(int(side.index[number])) for side in sides], False
        if None in came:
            return Cause(why="it can't be run on other operands of its shape"), None
        for side, theirs in zip(sides, reversed(sides), strict=True):
            place = int(side.index[number])
            answers = side.answers(place)
            assert answers is not None
            other = np.frombuffer(theirs.recorded_bits(number), answers.dtype)
            met |= bool((answers == other).any())
        replayed += all(came)
        elsewhere += [] if met else [number]
    kind, why = "", ""
    if replayed < len(chosen):
        why = "its outputs depend on more than their own input and position"
    elif any(side.by_place for side in sides) and not elsewhere:
        kind = "place"
        why = "the same number gives different bits at different places"
    settled = bool(kind) or replayed < len(chosen)
    cause = Cause(kind, why, len(chosen), replayed, in_numpy=False)
    return cause, None if settled else elsewhere

"""Runs an operation alone: does it give its recorded bits again, and does it differ by itself?

An operation whose outputs differ between two runs can be explained only if it gives them again by
itself. Where it doesn't, it may not be deterministic, it may read memory that was not written, or
it may depend on what is around it; each is told apart by running it again. A recording may have the
lines of Python that compute an operation, which ``run_lines`` runs where they are trusted.

Behind the first source everything is carried, and would hide a second source. So
``find_own_differences`` runs an operation of the right run again alone, on the right's operands
with the left's bits wherever both must agree: what differs from the left's outputs then is its own
doing.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.errors import Foreign, ProbeError, foreign
from probe.diff.difference import NAMES, Difference, Pair, Region, measure_pair
from probe.diff.repeated import is_mask
from probe.diff.sums import OperationSum, SumSession, sum_of
from probe.explain import comparison
from probe.explain.comparison import Comparison, OutputPairs
from probe.explain.enclosure import RoundingVerdict
from probe.explain.runs import Revealer
from probe.order.reveal import SHORT
from probe.order.semantics import Passes, Reshapes, Same, Turns
from probe.order.summation import Summation
from probe.order.tree import BIAS
from probe.record.contract import Isolated
from probe.record.recording import (
    LeftOut,
    Operation,
    Run,
    Value,
    as_one_operation,
    operations_between,
)
from probe.targets import budget

# What running an operation alone may end in: whatever its library raises, a target's failure, and
# arrays that a recording has not.
NOT_ALONE = (Foreign, ProbeError, LeftOut, MemoryError)

# Bytes that freed memory is filled with: NaN in every format, and in each a number of a usual size
# (0.75 in float32 and bfloat16, 1.8 in float16, 0.0005 in float64).
FILLS = (0xFF, 0x3F)

# Further runs where any run gave different bits.
AGAIN = 3

# Bytes of freed memory that are filled at most for an array.
MOST_BYTES = 1 << 26


@dataclass
class Alone:
    """One side's operation. ``output``: which of what it gives is looked at, ``pair`` says where.

    ``reads``, ``gives``: container arrays as they were recorded. ``pairs``: what both sides read.
    """

    side: Run
    operation: Operation
    output: int
    pair: Pair
    place: int
    reads: list[np.ndarray]
    gives: list[np.ndarray]
    again: Isolated | None
    pairs: Sequence[Pair] = ()

    @property
    def addresses(self) -> list[int | None]:
        """How many bytes behind a multiple of 64 each operand begins, None where that isn't known:
        where it is run alone, which a run of the whole that allocates anew may not repeat."""
        known: list[int | None] | None = getattr(self.again, "addresses", None)
        values = self.side.values
        return [values[n].address for n in self.operation.reads] if known is None else known

    def moved(self, addresses: Sequence[int | None]) -> np.ndarray | None:
        """Returns the outputs that must agree, as it gives them with its own operands at other
        addresses; None where it can't be run so."""
        moved = getattr(self.again, "moved", None)
        again = None if moved is None else moved(addresses)
        return None if again is None else replace(self, again=again).rerun()

    @classmethod
    def of(cls, side: Run, number: int, output: int, pair: Pair, place: int) -> Alone:
        """Fetches the operands and what runs it. ``place``: 0 for the left side, else 1.

        LeftOut: a recording on disk hasn't them.
        """
        op = side.operations[number]
        arrays = side.arrays((*op.reads, *op.gives))
        reads, gives = ([arrays[n] for n in some] for some in (op.reads, op.gives))
        return cls(side, op, output, pair, place, reads, gives, op.again)

    @property
    def value(self) -> Value:
        return self.side.values[self.operation.gives[self.output]]

    @property
    def dtypes(self) -> list[str]:
        """Of what it reads, and last of the output."""
        numbers = [*self.operation.reads, self.operation.gives[self.output]]
        return [self.side.values[n].dtype for n in numbers]

    @property
    def outputs(self) -> np.ndarray:
        """The output's elements that must agree, as they were recorded, in the pairs' order."""
        return self.taken(self.gives[self.output])

    @property
    def index(self) -> np.ndarray:
        """Their flat indices in the output."""
        shape = self.value.shape
        every = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
        return np.asarray(self.pair.selection.taken(every, self.place)).reshape(-1)

    @property
    def summed(self) -> OperationSum:
        """Returns the sum that it is. InputError: it is none."""
        values, op = self.side.values, self.operation
        shapes = [values[n].shape for n in op.reads]
        return sum_of(op.meaning, shapes, self.value.shape, self.dtypes)

    def taken(self, output: np.ndarray) -> np.ndarray:
        """Returns the elements of one such output that must agree, flat."""
        taken = self.pair.selection.taken(output, self.place)
        return np.ascontiguousarray(taken).reshape(-1)

    def call(self, reads: list[np.ndarray] | None = None) -> list[np.ndarray]:
        """Runs it alone on copies; on its own operands if there are no others."""
        assert self.again is not None
        budget.require_time()
        operands = self.reads if reads is None else reads
        with np.errstate(all="ignore"):
            results = foreign(self.again, [np.array(array, order="C") for array in operands])
        return [np.asarray(array) for array in results]

    def rerun_output(self, reads: list[np.ndarray] | None = None) -> np.ndarray:
        """Runs it alone; returns the output that is looked at."""
        return self.call(reads)[self.output]

    def rerun(self, reads: list[np.ndarray] | None = None) -> np.ndarray:
        """Runs it alone; returns the elements of that output that must agree, flat."""
        return self.taken(self.rerun_output(reads))

    def reads_more(self, other: Alone) -> bool:
        """Returns whether outputs that must agree follow what need not agree of its operands: then
        it computes something else than was said, or reads more. Two runs.

        All such numbers are made larger by a quarter, but zeros, which add nothing; and they are
        the ``other`` side's, or zeros, which shows what saturates with either. A mask stays: zeros
        in the place of -inf would show what it hides.
        """
        larger, exchanged, changed = list(self.reads), list(self.reads), False
        at = {number: place for place, number in enumerate(other.operation.reads)}
        known = {(pair.left, pair.right)[self.place]: pair for pair in self.pairs}
        for number, array in enumerate(self.reads):
            pair = known.get(self.operation.reads[number])
            if pair is None:
                continue  # an input or a weight, whose label says what it holds
            dtype = self.dtypes[number]
            rest = ~pair.selection.mask(array.shape, self.place)
            if dtype in floats.FORMATS and rest.any():
                more = floats.round_to(floats.widen(array, dtype) * 1.25, dtype)
                larger[number] = np.where(rest, more, array)
                there = other.reads[at[(pair.left, pair.right)[other.place]]]
                alike = (there.shape, there.dtype) == (array.shape, array.dtype)
                if not is_mask(array):
                    other_side = there if alike else 0
                    exchanged[number] = np.where(rest, other_side, array).astype(array.dtype)
                changed = True
        results = (self.rerun(operands) for operands in (larger, exchanged) if changed)
        return any(not equal_bits(outputs, self.outputs, self.value.dtype) for outputs in results)

    def unsteady(self) -> tuple[str, str]:
        """(class, why) where it does not give its recorded bits again; two empty texts if it does.

        Four runs where all is well. Filled memory shows what is never written only where the
        library takes its memory from the process' heap; that none is found proves nothing.
        """
        dtype, where = self.value.dtype, NAMES[self.place]
        runs = [self.rerun(), self.rerun(), *(self._filled(byte) for byte in FILLS)]
        if all(equal_bits(outputs, self.outputs, dtype) for outputs in runs):
            return "", ""
        runs += [self.rerun() for _ in range(AGAIN)]
        if not all(equal_bits(runs[0], other, dtype) for other in runs):
            why = "alone, on the same operands, it gives different bits from run to run"
            return "nondeterministic", f"on the {where}, {why}, or with what freed memory holds"
        if dtype in floats.FORMATS:  # as where a caller has set the processor's mode around it
            wide = floats.widen(runs[0], dtype)
            kept = np.where(np.abs(wide) < floats.flushed_below(dtype), 0.0, wide)
            if equal_bits(floats.round_to(kept, dtype), self.outputs, dtype):
                why = f"the {where} one gave zero for subnormal numbers, which it keeps alone"
                return "flush", f"{why}: a mode of the processor around it"
        return "other", f"alone, on its recorded operands, the {where} one gives different bits"

    def _filled(self, byte: int) -> np.ndarray:
        """Returns the outputs where memory that has just been freed holds this byte."""
        # workspaces are often as large as operands
        fill_freed_memory({array.nbytes for array in (*self.reads, *self.gives)}, byte)
        return self.rerun()


def fill_freed_memory(sizes: Iterable[int], byte: int) -> None:
    """Fills memory that the allocator is likely to hand out next for arrays of so many bytes: what
    is read without having been written then goes with the byte."""
    # allocators hand out what was freed last of a size, so several blocks of each are filled
    for size in sorted(set(sizes)):
        some = (min(max(size, 64) + more, MOST_BYTES) for more in (0, 64, 0, 64))
        held = [np.full(length, byte, np.uint8) for length in some]
        del held


# Both sides of a region, each run by itself.
Sides = tuple[Alone, Alone]


def isolated_sides(
    left: Run, right: Run, region: Region, output: int | None = None
) -> Sides | None:
    """Returns both sides of a region as they are run by themselves: several operations as one.

    ``output``: which of its results is looked at; the first that differs if not given, and None
    comes back where that is not on both sides. What only passes on what differs before is run on
    what agrees, and differs by itself then. LeftOut: a recording hasn't its operands.
    """
    if region.own and output is None:
        right, region = as_source(region, left, right)
    apart = (n for n, pair in enumerate(region.gives) if not pair.equal)
    output = next(apart, None) if output is None else output
    if region.left is None or region.right is None or output is None:
        return None
    pair, pairs = region.gives[output], region.reads
    runs, numbers = [left, right], [region.left, region.right]
    if region.joint:
        # of what is given one value is looked at, with the operations that it comes from
        for at, value in enumerate((pair.left, pair.right)):
            values, inside = runs[at].values, region.inside[at]
            outside = {n for n, value in enumerate(values) if value.given not in inside}
            group = operations_between(runs[at], [value], outside)[0]
            runs[at] = as_one_operation(runs[at], group, [value])
            numbers[at] = len(runs[at].operations) - 1
        reads, output = [run.operations[-1].reads for run in runs], 0
        pairs = [pair for pair in pairs if pair.left in reads[0] and pair.right in reads[1]]
    sides = (Alone.of(runs[n], numbers[n], output, pair, n) for n in (0, 1))
    first, second = (replace(side, pairs=pairs) for side in sides)
    return first, second


def differing_outputs(sides: Sides) -> np.ndarray:
    """Returns which of the outputs that must agree don't, by their numbers."""
    return np.flatnonzero(unequal_bits(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))


def equal_bits(left: np.ndarray, right: np.ndarray, dtype: str) -> bool:
    """Returns whether two arrays have the same bits; of integers the same values."""
    if "float" not in dtype:
        return bool(np.array_equal(left, right))
    return left.shape == right.shape and bool(ulp.equal(left, right, dtype))


def unequal_bits(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Returns which elements of two arrays of one shape have different bits, of integers different
    values: bool, of that shape."""
    if dtype in floats.FORMATS:
        return np.asarray(ulp.bits_apart(left, right, dtype))
    return np.asarray(left != right)


# How arrays become a library's own values, by the module that an operation's lines import; the
# second of arrays that hold the bits of bfloat16.
WAYS = {
    "torch": ("torch.tensor({0})", "torch.tensor({0}).view(torch.bfloat16)"),
    "tensorflow": ("tf.constant({0})", "tf.bitcast({0}, tf.bfloat16)"),
    "jax": ("jnp.asarray({0})", "jax.lax.bitcast_convert_type(jnp.asarray({0}), jnp.bfloat16)"),
}

IMPORTS = {"torch": "import torch", "tensorflow": "import tensorflow as tf", "jax": "import jax"}


def run_lines(
    imports: Sequence[str],
    lines: Sequence[str],
    arrays: Sequence[np.ndarray],
    dtypes: Sequence[str],
    names: Mapping[str, Any] | None = None,
) -> list[np.ndarray]:
    """Runs the lines of an operation, which a user trusts, on container arrays.

    ``names``: what the lines may use besides. They take the library's own values, or where that
    fails, NumPy's.
    """
    library = next((name for name in WAYS if any(name in line for line in imports)), "")
    space, code = _definitions(library, tuple(imports), tuple(lines))
    space.update({"np": np, **(names or {})})
    space.update({f"a{n}": np.array(array) for n, array in enumerate(arrays)})
    for ways in dict.fromkeys((WAYS.get(library, PLAIN), PLAIN)):
        entering = [
            f"x{n} = {ways[dtype == 'bfloat16'].format(f'a{n}')}" for n, dtype in enumerate(dtypes)
        ]
        try:
            exec("\n".join(entering), space)
            exec(code, space)
            break
        except (TypeError, ValueError, AttributeError, RuntimeError):
            if ways == PLAIN:
                raise
    y, values = space.pop("y"), []
    for value in y if isinstance(y, list | tuple) else [y]:
        if "bfloat16" not in str(getattr(value, "dtype", "")):
            plain = value.detach().cpu() if hasattr(value, "detach") else value
        elif type(value).__module__.partition(".")[0] == "torch":  # which gives NumPy no bfloat16
            plain = value.contiguous().view(sys.modules["torch"].uint16).detach().cpu()
        else:
            plain = np.asarray(value).view(np.uint16)
        values.append(np.asarray(plain))
    return values


@lru_cache(8)
def _definitions(
    library: str, imports: tuple[str, ...], lines: tuple[str, ...]
) -> tuple[dict[str, Any], CodeType]:
    """Returns a space with the functions that the lines begin with, and the code of the others."""
    space: dict[str, Any] = {}
    more = [IMPORTS[library]] if library else []
    more += ["import jax.numpy as jnp"] if library == "jax" else []
    # a jitted function that is defined anew is compiled anew: 768 numbers are asked thousands of
    # questions, at a tenth of a second each
    tree = ast.parse("\n".join([*more, *imports, *lines]))
    lasting = ast.Import, ast.ImportFrom, ast.FunctionDef
    count = next((n for n, node in enumerate(tree.body) if not isinstance(node, lasting)), 0)
    first, rest = (ast.Module(some, []) for some in (tree.body[:count], tree.body[count:]))
    exec(compile(first, "<definitions>", "exec"), space)
    return space, compile(rest, "<operation>", "exec")


PLAIN = ("{0}", "{0}")


SECONDS = 60.0


def find_own_differences(difference: Difference, seconds: float = SECONDS) -> tuple[int, int]:
    """Fills in ``own`` of carried operations; how many were asked, and how many could be.

    Costs a call of each operation. None stays where an operation can't be run alone, reads what
    only one side has, or time is over.
    """
    able, left, right = list[Region](), difference.left, difference.right
    for region in difference.operations:
        if region.verdict == "carried" and region.right is not None and not region.joint:
            ours, theirs = left.operations[region.left or 0], right.operations[region.right]
            paired = len(region.reads) == len(ours.reads) == len(theirs.reads)
            if not paired or theirs.again is None:
                continue
            if isinstance(theirs.meaning, Passes | Reshapes | Same | Turns):
                region.own = (
                    0  # it hands on the numbers that it reads; of its parts these are asked
                )
            else:
                able.append(region)
    begun, tried = time.monotonic(), 0
    for region in able:
        if budget.spent() or (tried and time.monotonic() - begun > seconds):
            break
        tried += 1
        try:
            _, gives = healed(region, left, right)
        except NOT_ALONE:
            continue
        floating = (pair for pair in gives if left.values[pair.left].floating)
        region.own = sum(pair.differing for pair in floating)
    return tried, len(able) if tried else 0


def healed(region: Region, left: Run, right: Run) -> tuple[dict[int, np.ndarray], list[Pair]]:
    """Runs the right operation on what it read there, with the left's bits wherever both must
    agree. Returns the arrays of what it reads and gives then, and what differs of the latter.
    LeftOut: it is not in the recording."""
    again = right.operations[region.right or 0].again
    assert again is not None
    mine = left.arrays(pair.left for pair in (*region.reads, *region.gives))
    arrays, gives = right.arrays(pair.right for pair in region.reads), list[Pair]()
    for pair in region.reads:
        if not (pair.selection.empty or pair.equal):
            taken = pair.selection.taken(mine[pair.left], 0)
            arrays[pair.right] = pair.selection.put(arrays[pair.right], taken, 1)
    outputs = foreign(again, [arrays[pair.right] for pair in region.reads])
    if len(outputs) < len(region.gives):
        raise LeftOut(len(outputs))
    for pair, output in zip(region.gives, outputs, strict=False):
        arrays[pair.right] = np.asarray(output)
        value = left.values[pair.left]
        compared = pair.selection.count(value.shape)
        measured = Pair(pair.left, pair.right, pair.selection, pair.known, compared)
        if compared:
            measure_pair(measured, mine[pair.left], arrays[pair.right], value.dtype)
        gives.append(measured)
    return arrays, gives


def as_source(region: Region, left: Run, right: Run) -> tuple[Run, Region]:
    """Returns a carried operation as a source: the right side healed, and what differs then."""
    arrays, gives = healed(region, left, right)
    reads = [replace(pair, equal=True, differing=0) for pair in region.reads]
    return right.with_arrays(arrays), replace(region, reads=reads, gives=gives)


# How an operation adds: orders and roundings of its sums, revealed, and replayed on what it reads.


# Differing outputs of a long sum that are revealed before these are replayed on the others.
FEW = 256

# Products that are replayed for the differing outputs that were not revealed.
PRODUCTS = 1 << 27

# What was revealed of operations, by name and shapes.
Known = dict[Hashable, Revealer]


class RecordedSums(Comparison):
    """Outputs of two recorded operations, whose operands were compared before."""

    @cached_property
    def _classes(self) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """A sum that is longer on one side adds zeros there: the leaves are the shorter one's."""
        left, right = self.left.case, self.right.case
        if left.summands == right.summands:
            return super()._classes
        bias = () if left.bias is None else (BIAS,)
        leaves = (*range(min(left.summands, right.summands)), *bias)
        return np.zeros(len(self.left.replays), np.int64), [leaves]


class Adds:
    """One side's operation as a sum, which is run. ``places``: (position, filter) of its outputs
    that must agree. InputError: it is no sum."""

    def __init__(self, side: Alone) -> None:
        assert side.again is not None
        self.sum, operands = side.summed, side.reads
        self.session = SumSession(side.side.target, self.sum, operands, side.again)
        self.run = comparison.run_case(self.session, self.sum, self.sum.of(operands))  # type: ignore[arg-type]
        self.places = self.sum.places(side.index)
        self.kind = side.operation.op, tuple(map(address_in_16, side.addresses))
        self.key: Hashable = (*self.kind, str(self.sum.to_json()))

    def reveal(self, which: np.ndarray, known: Revealer) -> None:
        self.run = known.reveal(self.run, self.session, self.run.mask(self.places[which]))

    def extend(self, which: np.ndarray) -> None:
        """Gives outputs the first summation that replays to their bits, the most frequent first."""
        orders, places = self.run.orders, self.places[which]
        if orders is None or not len(places):
            return
        replays = self.run.replays.copy()
        for number in np.argsort(-orders.counts(), kind="stable"):
            summation: Summation = orders.summations[number]
            agreed = self.run.operands.agrees(summation, *places.T)
            done = tuple(places[agreed].T)
            # in place: revealers keep these orders for later operations of this shape
            orders.index[done] = number
            orders.replayed[done] = replays[done] = True
            places = places[~agreed]
            if not len(places):
                break
        self.run = replace(self.run, replays=replays)


def address_in_16(address: int | None) -> int | None:
    """Returns what orders go with of an address: modulo 16 bytes, as MKL's and Eigen's do. NumPy
    allocates at any multiple of 16, so that more of it would tell the same call from itself."""
    return None if address is None else address % 16


def as_comparison(sides: Sequence[Adds]) -> RecordedSums:
    """Returns two sides compared; nothing is revealed."""
    left, right = sides
    pairs = OutputPairs(left.places, right.places, np.ones(len(left.places), bool))
    return RecordedSums(left.sum, left.run, right.run, pairs)  # type: ignore[arg-type]


def reveal_sums(sides: Sequence[Adds], wanted: np.ndarray, known: Known, most: int) -> np.ndarray:
    """Reveals outputs, by their numbers, on both sides; which of them were examined.

    Operations of one shape add alike, and so do most outputs of one operation: of long sums a few
    are asked, and an output of the same call that what they told gives to the bit is explained by
    it. Of short sums, whose orders round alike by luck, all that may be are asked.
    """
    revealer = known.setdefault(tuple(one.key for one in sides), Revealer(kept=None))
    summands = [side.sum.summands for side in sides]
    chosen = evenly(wanted, min(FEW, most) if min(summands) > SHORT else most)
    for side in sides:
        side.reveal(chosen, revealer)
    if len(chosen) == len(wanted) or any(side.run.refusal for side in sides):
        return chosen
    rest = np.setdiff1d(wanted, chosen)[: PRODUCTS // max(sum(summands), 1)]
    for side in sides:
        side.extend(rest)
    return np.sort(np.concatenate([chosen, rest]))


def evenly(some: np.ndarray, most: int) -> np.ndarray:
    """Returns at most so many of these, evenly among them."""
    if len(some) <= most:
        return some
    return some[np.unique(np.linspace(0, len(some) - 1, most).astype(int))]


@dataclass
class Cause:
    """Why an operation's outputs differ.

    ``kind``: ``window``, ``reach``, ``order``, ``rounding``, ``precision``, ``flush`` (of sums,
    several joined by ``+``), ``saturation`` (of integers), ``place``, ``argument``, ``algorithm``,
    ``alignment``, ``nondeterministic``; empty where none of these explains it.
    ``why``: a sentence. ``examined``: differing outputs that were asked about, ``replayed``: those
    that came out again on both sides. ``causes``: examined outputs by cause; if not given those
    replayed. ``alone``: whether the operation alone gave its recorded bits on both sides.
    ``comparison``: of sums, with both sides' summations. ``refuted``: what it reads does not agree,
    or it reads more than was said: it is no source. ``compared`` and ``differing``: of the first
    output that differs; ``rounding``: those that differ by whether rounding can be why.
    ``in_numpy``: whether what came out again was replayed in NumPy; else the library itself gave
    it, which says why the sides differ and not that both are right.
    """

    kind: str = ""
    why: str = ""
    examined: int = 0
    replayed: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    alone: bool = False
    comparison: Comparison | None = None
    refuted: bool = False
    compared: int = 0
    differing: int = 0
    rounding: RoundingVerdict = field(default_factory=RoundingVerdict)
    in_numpy: bool = True

    def __post_init__(self) -> None:
        """Counts what was replayed under its kind."""
        self.causes = self.causes or ({self.kind: self.replayed} if self.kind else {})

    @property
    def explained(self) -> bool:
        """Returns whether it has a class, and every output that was asked about came out again."""
        return bool(self.kind) and self.replayed == self.examined

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts; the comparison's summations as ``probe explain`` has them."""
        entry: dict[str, Any] = {"class": self.kind or None, "why": self.why}
        names = ("compared", "differing", "examined", "replayed", "causes", "alone")
        entry |= {name: getattr(self, name) for name in names}
        entry["rounding"] = self.rounding.to_json()
        if (sums := self.comparison) is not None:
            entry |= {f"{name}_orders": sums.orders(getattr(sums, name)) for name in NAMES}
        return entry

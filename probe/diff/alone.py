"""A recorded operation alone: does it give its recorded bits again, does it differ by itself, how
does it add, and which layer is it to its library's users?

An operation whose outputs differ between two runs can be explained only if it gives them again by
itself. Where it doesn't, it may not be deterministic, it may read memory that was not written, or
it may depend on what is around it; each is told apart by running it again. A recording may have the
lines of Python that compute an operation, which ``run_lines`` runs where they are trusted. A
product of weights and a convolution are a case too, known by their sizes (``case_of``): so an
operation is called as people know it, ``nn.Linear(1536, 384)``, and its report can be a case's.

Behind the first source everything is carried, and would hide a second source. So
``find_own_differences`` runs an operation of the right run again alone, on the right's operands
with the left's bits wherever both must agree: what differs from the left's outputs then is its own
doing.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.case import Case
from probe.case.errors import Foreign, InputError, ProbeError, foreign
from probe.case.geometry import TransposedSizes, WindowSizes
from probe.case.operation import OPERATIONS
from probe.diff.difference import NAMES, Difference, Region, ValuePair, measure_pair
from probe.diff.repeated import is_mask
from probe.diff.sums import OperationSum, ProductLetters, SumSession, behind_of, sum_of
from probe.explain import comparison
from probe.explain.comparison import Comparison, OutputPairs
from probe.explain.runs import Revealer
from probe.order.reveal import SHORT
from probe.order.semantics import Contracts, Passes, Reshapes, Same, Turns, Windows
from probe.order.summation import Summation
from probe.order.tree import BIAS
from probe.order.window import equivalent
from probe.record.contract import CONSTANT, WEIGHT, Isolated
from probe.record.recording import (
    LeftOut,
    Operation,
    Run,
    Value,
    as_one_operation,
    operations_between,
)
from probe.targets import budget
from probe.targets.backends.source import one_or_all
from probe.targets.target import Target

# What running an operation alone may end in: whatever its library raises, a target's failure, and
# arrays that a recording has not.
NOT_ALONE = (Foreign, ProbeError, LeftOut, MemoryError)

# Bytes that freed memory is filled with: NaN in every format, and in each a number of a usual size
# (0.75 in float32 and bfloat16, 1.8 in float16, 0.0005 in float64).
FILLS = (0xFF, 0x3F)

# Further runs where any run gave different bits.
FURTHER_RUNS = 3

# Bytes of freed memory that are filled at most for an array.
MOST_BYTES = 1 << 26


@dataclass
class Alone:
    """One side's operation, with container arrays as they were recorded."""

    run: Run
    operation: Operation
    output: int
    """Which of its results is compared."""
    pair: ValuePair
    """What of that must agree."""
    left_or_right: int
    """0 of the left side, 1 of the right."""
    reads: list[np.ndarray]
    gives: list[np.ndarray]
    again: Isolated | None
    pairs: Sequence[ValuePair] = ()
    """What both sides read."""

    @property
    def addresses(self) -> list[int | None]:
        """How many bytes behind a multiple of 64 each operand begins, None where that isn't known:
        where it is run alone, which a run of the whole that allocates anew may not repeat."""
        laid: list[int | None] | None = getattr(self.again, "addresses", None)
        values = self.run.values
        return [values[n].address for n in self.operation.reads] if laid is None else laid

    def moved(self, addresses: Sequence[int | None]) -> np.ndarray | None:
        """The outputs that must agree, computed from its operands at different addresses; None
        where it can't be run so."""
        moved = getattr(self.again, "moved", None)
        again = None if moved is None else moved(addresses)
        return None if again is None else replace(self, again=again).rerun()

    @classmethod
    def of(cls, run: Run, number: int, output: int, pair: ValuePair, left_or_right: int) -> Alone:
        """Operation ``number`` of a run. LeftOut: a recording on disk hasn't its operands."""
        op = run.operations[number]
        arrays = run.arrays((*op.reads, *op.gives))
        reads, gives = ([arrays[n] for n in numbers] for numbers in (op.reads, op.gives))
        return cls(run, op, output, pair, left_or_right, reads, gives, op.again)

    @property
    def value(self) -> Value:
        return self.run.values[self.operation.gives[self.output]]

    @property
    def dtypes(self) -> list[str]:
        """Of what it reads, and last of the output."""
        numbers = [*self.operation.reads, self.operation.gives[self.output]]
        return [self.run.values[n].dtype for n in numbers]

    @property
    def outputs(self) -> np.ndarray:
        """The output's elements that must agree, as they were recorded, in the pairs' order."""
        return self.taken(self.gives[self.output])

    @property
    def index(self) -> np.ndarray:
        """Their flat indices in the output."""
        shape = self.value.shape
        return self.taken(np.arange(int(np.prod(shape, dtype=int))).reshape(shape))

    @property
    def summed(self) -> OperationSum:
        """The sum that it is. InputError: it is none."""
        values, op = self.run.values, self.operation
        shapes = [values[n].shape for n in op.reads]
        return sum_of(op.meaning, shapes, self.value.shape, self.dtypes)

    def taken(self, output: np.ndarray) -> np.ndarray:
        """The elements of such an output that must agree, flat."""
        taken = self.pair.selection.elements(output, self.left_or_right)
        return np.ascontiguousarray(taken).reshape(-1)

    def rerun_output(self, reads: list[np.ndarray] | None = None) -> np.ndarray:
        """The output that is compared, of a call on copies of its operands, or of ``reads``."""
        assert self.again is not None
        budget.require_time()
        operands = self.reads if reads is None else reads
        with np.errstate(all="ignore"):
            results = foreign(self.again, [np.array(array, order="C") for array in operands])
        return np.asarray(results[self.output])

    def rerun(self, reads: list[np.ndarray] | None = None) -> np.ndarray:
        """Its elements that must agree, flat."""
        return self.taken(self.rerun_output(reads))

    def reads_more(self, opposite: Alone) -> bool:
        """Whether outputs that must agree follow what need not agree of its operands: then it
        computes something else than was assumed, or reads more. Two runs.

        All such numbers are made larger by a quarter, but zeros, which add nothing; and they are
        the ``opposite`` side's, or zeros, which shows what saturates with either. A mask stays:
        zeros in the place of -inf would show what it hides.
        """
        larger, exchanged, changed = list(self.reads), list(self.reads), False
        at = {number: place for place, number in enumerate(opposite.operation.reads)}
        pairs = {(pair.left, pair.right)[self.left_or_right]: pair for pair in self.pairs}
        for number, array in enumerate(self.reads):
            pair = pairs.get(self.operation.reads[number])
            if pair is None:
                continue  # an input or a weight, whose label says what it holds
            dtype = self.dtypes[number]
            free = ~pair.selection.mask(array.shape, self.left_or_right)
            if dtype in floats.FORMATS and free.any():
                more = floats.round_to(floats.widen(array, dtype) * 1.25, dtype)
                larger[number] = np.where(free, more, array)
                content = opposite.reads[at[(pair.left, pair.right)[opposite.left_or_right]]]
                same_kind = (content.shape, content.dtype) == (array.shape, array.dtype)
                if not is_mask(array):
                    replaced = np.where(free, content if same_kind else 0, array)
                    exchanged[number] = replaced.astype(array.dtype)
                changed = True
        results = (self.rerun(operands) for operands in (larger, exchanged) if changed)
        return any(not equal_bits(outputs, self.outputs, self.value.dtype) for outputs in results)

    def unsteady(self) -> tuple[str, str]:
        """(class, why) where it does not give its recorded bits again; two empty texts if it does.

        Four runs where all is well. Filled memory shows what is never written only where the
        library takes its memory from the process' heap; that none is found proves nothing.
        """
        dtype, where = self.value.dtype, NAMES[self.left_or_right]
        runs = [self.rerun(), self.rerun(), *(self._filled(byte) for byte in FILLS)]
        if all(equal_bits(outputs, self.outputs, dtype) for outputs in runs):
            return "", ""
        runs += [self.rerun() for _ in range(FURTHER_RUNS)]
        if not all(equal_bits(runs[0], outputs, dtype) for outputs in runs):
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
        """The outputs where memory that has just been freed holds this byte."""
        # workspaces are often as large as operands
        fill_freed_memory({array.nbytes for array in (*self.reads, *self.gives)}, byte)
        return self.rerun()


def fill_freed_memory(sizes: Iterable[int], byte: int) -> None:
    """Fills memory that the allocator is likely to hand out next for arrays of so many bytes: what
    is read without having been written then goes with the byte."""
    # allocators hand out what was freed last of a size, so several blocks of each are filled
    for size in sorted(set(sizes)):
        lengths = (min(max(size, 64) + more, MOST_BYTES) for more in (0, 64, 0, 64))
        blocks = [np.full(length, byte, np.uint8) for length in lengths]
        del blocks


# Both sides of a region, each run by itself.
Sides = tuple[Alone, Alone]


def isolated_sides(
    left: Run, right: Run, region: Region, output: int | None = None
) -> Sides | None:
    """Both sides of a region as they are run by themselves: several operations as one.

    ``output``: which of its results is compared; the first that differs if not given, and None
    comes back where that is not on both sides. What only passes on what differs before is run on
    what agrees, and differs by itself then. LeftOut: a recording hasn't its operands.
    """
    if region.differing_alone and output is None:
        right, region = as_source(region, left, right)
    differing = (n for n, pair in enumerate(region.gives) if not pair.equal)
    output = next(differing, None) if output is None else output
    if region.left is None or region.right is None or output is None:
        return None
    pair, pairs = region.gives[output], region.reads
    runs, numbers = [left, right], [region.left, region.right]
    if region.grouped:
        # of what is given one value is looked at, with the operations that it comes from
        for at, value in enumerate((pair.left, pair.right)):
            values, inside = runs[at].values, region.members[at]
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
    """Indices of the outputs that must agree and don't."""
    return np.flatnonzero(unequal_bits(sides[0].outputs, sides[1].outputs, sides[0].value.dtype))


def equal_bits(left: np.ndarray, right: np.ndarray, dtype: str) -> bool:
    """Whether two arrays have the same bits; of integers the same values."""
    if "float" not in dtype:
        return bool(np.array_equal(left, right))
    return left.shape == right.shape and bool(ulp.equal(left, right, dtype))


def unequal_bits(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Which elements of two arrays of one shape have different bits, of integers different values:
    bool, of that shape."""
    if dtype in floats.FORMATS:
        return np.asarray(ulp.bits_apart(left, right, dtype))
    return np.asarray(left != right)


# How arrays become a library's values, by the module that an operation's lines import; the
# second of arrays that hold the bits of bfloat16.
CONVERSIONS = {
    "torch": ("torch.tensor({0})", "torch.tensor({0}).view(torch.bfloat16)"),
    "tensorflow": ("tf.constant({0})", "tf.bitcast({0}, tf.bfloat16)"),
    "jax": ("jnp.asarray({0})", "jax.lax.bitcast_convert_type(jnp.asarray({0}), jnp.bfloat16)"),
}

PLAIN = ("{0}", "{0}")

IMPORTS = {"torch": "import torch", "tensorflow": "import tensorflow as tf", "jax": "import jax"}


def run_lines(
    imports: Sequence[str],
    lines: Sequence[str],
    arrays: Sequence[np.ndarray],
    dtypes: Sequence[str],
    names: Mapping[str, Any] | None = None,
) -> list[np.ndarray]:
    """Runs the lines of an operation, which a user trusts, on container arrays.

    ``names``: what the lines may use besides. They take the library's values, or where that fails,
    NumPy's.
    """
    library = next((name for name in CONVERSIONS if any(name in line for line in imports)), "")
    space, code = _definitions(library, tuple(imports), tuple(lines))
    space.update({"np": np, **(names or {})})
    space.update({f"a{n}": np.array(array) for n, array in enumerate(arrays)})
    for conversion in dict.fromkeys((CONVERSIONS.get(library, PLAIN), PLAIN)):
        entering = [
            f"x{n} = {conversion[dtype == 'bfloat16'].format(f'a{n}')}"
            for n, dtype in enumerate(dtypes)
        ]
        try:
            exec("\n".join(entering), space)
            exec(code, space)
            break
        except (TypeError, ValueError, AttributeError, RuntimeError):
            if conversion == PLAIN:
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
    """A name space with the functions that the lines begin with, and the code of the others."""
    space: dict[str, Any] = {}
    more = [IMPORTS[library]] if library else []
    more += ["import jax.numpy as jnp"] if library == "jax" else []
    # a jitted function that is defined anew is compiled anew: 768 numbers are asked thousands of
    # questions, at a tenth of a second each
    tree = ast.parse("\n".join([*more, *imports, *lines]))
    lasting = ast.Import, ast.ImportFrom, ast.FunctionDef
    count = next((n for n, node in enumerate(tree.body) if not isinstance(node, lasting)), 0)
    first, last = (ast.Module(lines, []) for lines in (tree.body[:count], tree.body[count:]))
    exec(compile(first, "<definitions>", "exec"), space)
    return space, compile(last, "<operation>", "exec")


# Carried operations that differ by themselves

# What they may take together.
SECONDS = 60.0


def find_own_differences(difference: Difference, seconds: float = SECONDS) -> tuple[int, int]:
    """Fills in ``own`` of carried operations; how many were run, and how many could be.

    Costs a call of each operation. None stays where an operation can't be run alone, reads what
    only one side has, or time is over.
    """
    runnable, left, right = list[Region](), difference.left, difference.right
    for region in difference.operations:
        if region.verdict == "carried" and region.right is not None and not region.grouped:
            first, second = left.operations[region.left or 0], right.operations[region.right]
            paired = len(region.reads) == len(first.reads) == len(second.reads)
            if not paired or second.again is None:
                continue
            if isinstance(second.meaning, Passes | Reshapes | Same | Turns):
                region.differing_alone = 0  # it hands on the numbers that it reads
            else:
                runnable.append(region)
    begun, tried = time.monotonic(), 0
    for region in runnable:
        if budget.spent() or (tried and time.monotonic() - begun > seconds):
            break
        tried += 1
        try:
            _, gives = healed(region, left, right)
        except NOT_ALONE:
            continue
        floating = (pair for pair in gives if left.values[pair.left].floating)
        region.differing_alone = sum(pair.differing for pair in floating)
    return tried, len(runnable) if tried else 0


def healed(region: Region, left: Run, right: Run) -> tuple[dict[int, np.ndarray], list[ValuePair]]:
    """Runs the right operation on what it read there, with the left's bits wherever both must
    agree. Gives the arrays of what it reads and gives then, by number, and what differs of its
    results. LeftOut: it is not in the recording."""
    again = right.operations[region.right or 0].again
    assert again is not None
    left_arrays = left.arrays(pair.left for pair in (*region.reads, *region.gives))
    arrays, gives = right.arrays(pair.right for pair in region.reads), list[ValuePair]()
    for pair in region.reads:
        if not (pair.selection.empty or pair.equal):
            taken = pair.selection.elements(left_arrays[pair.left], 0)
            arrays[pair.right] = pair.selection.with_elements(arrays[pair.right], taken, 1)
    outputs = foreign(again, [arrays[pair.right] for pair in region.reads])
    if len(outputs) < len(region.gives):
        raise LeftOut(len(outputs))
    for pair, output in zip(region.gives, outputs, strict=False):
        arrays[pair.right] = np.asarray(output)
        value = left.values[pair.left]
        compared = pair.selection.count(value.shape)
        measured = ValuePair(pair.left, pair.right, pair.selection, pair.unselected, compared)
        if compared:
            measure_pair(measured, left_arrays[pair.left], arrays[pair.right], value.dtype)
        gives.append(measured)
    return arrays, gives


def as_source(region: Region, left: Run, right: Run) -> tuple[Run, Region]:
    """A carried operation as a source: the right side healed, and what differs then."""
    arrays, gives = healed(region, left, right)
    reads = [replace(pair, equal=True, differing=0) for pair in region.reads]
    return right.with_arrays(arrays), replace(region, reads=reads, gives=gives)


# How an operation adds: orders and roundings of its sums, revealed, and replayed on what it reads

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
    that must agree; ``kind`` and ``key``: what summations go with, so that they are tried first.
    InputError: it is no sum."""

    def __init__(self, side: Alone) -> None:
        assert side.again is not None
        self.sum, operands = side.summed, side.reads
        self.session = SumSession(side.run.target, self.sum, operands, side.again)
        self.run = comparison.run_case(self.session, self.sum, self.sum.of(operands))  # type: ignore[arg-type]
        self.places = self.sum.places(side.index)
        self.kind = side.operation.op, tuple(map(address_in_16, side.addresses))
        self.key: Hashable = (*self.kind, str(self.sum.to_json()))

    def reveal(self, which: np.ndarray, known: Revealer) -> None:
        self.run = known.reveal(self.run, self.session, self.run.mask(self.places[which]))

    def extend(self, which: np.ndarray) -> None:
        """Gives outputs ``which`` the first summation that replays to their bits, the most frequent
        first."""
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
    """What orders go with of an address: modulo 16 bytes, as MKL's and Eigen's do. NumPy allocates
    at any multiple of 16, so that more of it would tell the same call from itself."""
    return None if address is None else address % 16


def as_comparison(sides: Sequence[Adds]) -> RecordedSums:
    """Two sides compared; nothing is revealed."""
    left, right = sides
    pairs = OutputPairs(left.places, right.places, np.ones(len(left.places), bool))
    return RecordedSums(left.sum, left.run, right.run, pairs)  # type: ignore[arg-type]


def reveal_sums(sides: Sequence[Adds], wanted: np.ndarray, known: Known, most: int) -> np.ndarray:
    """Reveals the summations of outputs ``wanted``, by index, on both sides; which were examined.

    Operations of one shape add alike, and so do most outputs of one operation: of long sums a few
    are revealed, and an output of the same call that their summations give to the bit is explained
    by them. Of short sums, whose orders round alike by luck, up to ``most`` are revealed.
    """
    revealer = known.setdefault(tuple(side.key for side in sides), Revealer(kept=None))
    summands = [side.sum.summands for side in sides]
    chosen = evenly(wanted, min(FEW, most) if min(summands) > SHORT else most)
    for side in sides:
        side.reveal(chosen, revealer)
    if len(chosen) == len(wanted) or any(side.run.refusal for side in sides):
        return chosen
    replayed = np.setdiff1d(wanted, chosen)[: PRODUCTS // max(sum(summands), 1)]
    for side in sides:
        side.extend(replayed)
    return np.sort(np.concatenate([chosen, replayed]))


def evenly(numbers: np.ndarray, most: int) -> np.ndarray:
    """Up to ``most`` of these numbers, evenly among them."""
    if len(numbers) <= most:
        return numbers
    return numbers[np.unique(np.linspace(0, len(numbers) - 1, most).astype(int))]


# What an operation is called in the words of its library's users


def no_case(why: str) -> InputError:
    return InputError("operation", "(of the model)", why, "its own script is written")


def case_of(alone: Alone) -> Case:
    """The case of an operation's sizes. InputError: it is none."""
    summed = alone.summed
    # what is behind the sum, whether the library fused it or not, is no part of a case
    if summed.w is None or summed.functions or summed.scale != 1 or summed.divides:
        raise no_case("it is not one product of weights or one convolution")
    shapes = [array.shape for array in alone.reads]
    meaning, _ = behind_of(alone.operation.meaning, shapes)
    options: dict[str, Any] = {"in_channels": summed.in_channels, "filters": summed.filters}
    options |= {"dtype": summed.dtype, "batch": summed.batch}
    options |= {"bias": None if summed.b is None else "normal"}
    if isinstance(meaning, Windows):
        return _convolution_case(meaning, summed, options)
    assert isinstance(meaning, Contracts)
    if summed.groups != 1:
        raise no_case("it is several products")
    if summed.b is None:  # the sum takes the larger operand for the input: the weights are asked
        axes = ProductLetters.of(meaning, shapes)
        fixed = [_is_fixed(alone.run, alone.operation.reads[n]) for n in meaning.reads]
        rows = 1 if fixed == [True, False] else 0
        filters = [x for x in axes.out if x in axes.full[1 - rows] and x not in axes.full[rows]]
        lines = [x for x in axes.out if x not in filters]
        if any(x in axes.full[1 - rows] and axes.sizes[x] > 1 for x in lines):
            raise no_case("it is several products")
        options |= {"batch": axes.count(lines), "filters": axes.count(filters)}
        options["in_channels"] = axes.count(axes.summed(rows))
    return Case("dense", **options)


def _is_fixed(run: Run, number: int) -> bool:
    """Whether a value comes from weights alone."""
    value = run.values[number]
    if value.given < 0:
        return value.role in (WEIGHT, CONSTANT)
    return all(_is_fixed(run, n) for n in run.operations[value.given].reads)


def _convolution_case(inner: Windows, summed: OperationSum, options: dict[str, Any]) -> Case:
    if inner.kind not in ("convolution", "transposed") or inner.flipped:
        raise no_case("it is a transposed convolution whose taps are in the opposite order")
    rank, transposed, pads = len(inner.kernel), inner.kind == "transposed", inner.padding
    op = f"conv{rank}d{'_transpose' * transposed}"
    if op not in OPERATIONS:
        raise no_case("it has more spatial axes than a case's")
    sizes = inner.kernel, inner.stride, inner.dilation
    if transposed:  # the padding is how many outputs of the whole are cropped at each end
        plain = TransposedSizes(*sizes, ((0, 0),) * rank).outputs(summed.sizes)
        axes = zip(plain, pads, summed.index, strict=True)
        pads = tuple(
            (before, size - before - len(positions)) for size, (before, _), positions in axes
        )
    elif min(min(pair) for pair in pads) < 0:
        raise no_case("its padding crops")
    padding: Any = pads if any(map(any, pads)) else "valid"
    windows = TransposedSizes if transposed else WindowSizes
    if padding != "valid" and pads == windows(*sizes, "same").pads(summed.sizes):
        # users of TensorFlow, Keras and JAX write SAME: explicit zeros are another call there
        padding = "same"
    depthwise = op == "conv2d" and 1 < inner.groups == summed.in_channels
    op = "depthwise_conv2d" if depthwise else op
    case = Case(
        *(op, inner.kernel),
        length=summed.sizes[-1],
        height=summed.sizes[:-1] or None,
        stride=inner.stride,
        dilation=inner.dilation,
        padding=padding,
        **options | ({} if depthwise else {"groups": inner.groups}),
    )
    if case.output_spatial() != tuple(map(len, summed.index)):
        raise no_case("its last windows reach beyond the input as no case's do")
    return case


def layer_of(difference: Difference, region: Region) -> str:
    """What a source is called in its library; empty where it is no case, or not kept."""
    try:
        sides = isolated_sides(difference.left, difference.right, region)
    except (KeyError, InputError):
        return ""
    return "" if sides is None else layer_text(sides[0], region.path)


def layer_text(alone: Alone, path: str = "") -> str:
    """What an operation is called in its library; empty where it is no case.

    ``path``: where it stands in the model: a layer of Keras's, where there is one.
    """
    with suppress(ProbeError, KeyError, IndexError):
        library = Target.parse(alone.run.target).name
        return as_users_write(case_of(alone), library, bool(path))
    return ""


def windows_apart(left: Run, right: Run) -> str:
    """At which convolution, counted along two programs, the windows differ, and what reads the
    left one's in the right one's library; empty where none does. No value behind it is close to one
    of the other program, so no operation is matched by value that would show it."""
    for (first, first_name), (second, second_name) in zip(
        _cases_along(left), _cases_along(right), strict=False
    ):
        both = [(c.op, c.kernel, c.in_channels, c.filters) for c in (first, second)]
        if both[0] != both[1]:
            return ""
        if not first.spatial_rank or first.spatial() != second.spatial():
            continue  # a layer of its own may have padded before
        names = ["padding"] if first.pads() != second.pads() else []
        options = ("stride", "dilation", "groups")
        names += [name for name in options if getattr(first, name) != getattr(second, name)]
        if names:
            text = f"window: {first_name} and {second_name} read different inputs: "
            text += " and ".join(names)
            with suppress(InputError):
                code = equivalent(first, Target.parse(right.target).name).code
                lines = "; ".join(line for line in code.splitlines() if line.strip())
                text += f"; on the right this reads what the left one reads: {lines}"
            return text
    return ""


def _cases_along(run: Run) -> Iterator[tuple[Case, str]]:
    """The convolutions and products of a run in order, each with what it is called and where."""
    for number, op in enumerate(run.operations):
        with suppress(ProbeError, KeyError, IndexError):
            pair = ValuePair.of_all(op.gives[0], op.gives[0], 1)
            case = case_of(Alone.of(run, number, 0, pair, 0))
            words = as_users_write(case, Target.parse(run.target).name, bool(op.path))
            yield case, f"{words} at {op.path}" if op.path else words


def as_users_write(case: Case, library: str, named: bool = True) -> str:
    """A case as its library's users write it: ``nn.Linear(1536, 384)``. ``named``: it is a layer of
    a model, and no bare product."""
    rank, depthwise = case.spatial_rank, case.op[0] == "d"  # a dense layer has no rank
    kernel = case.kernel[0] if rank == 1 else case.kernel
    plain = Case(case.op, case.kernel, case.in_channels, filters=case.filters, groups=case.groups)
    options = [
        f"{name}={one_or_all(getattr(case, name))}"
        for name in ("stride", "dilation")
        if getattr(case, name) != getattr(plain, name)
    ]
    if rank and case.padding != "valid":
        pads = case.windows.pads(case.spatial())
        even = all(before == after for before, after in pads)
        befores = one_or_all(tuple(before for before, _ in pads))
        numbers = befores if even else repr(pads)
        longer = tuple(before - after for before, after in pads)
        if library == "torch" and case.operation.transposed and min(longer) >= 0:
            numbers = befores
            if any(longer):
                numbers += f", output_padding={one_or_all(longer)}"
        text = numbers if library == "torch" else repr(case.padding_text)
        options.append(f"padding={text}")
    if library == "torch":
        if not rank:
            return f"nn.Linear({case.in_channels}, {case.filters})"
        groups = case.in_channels if depthwise else case.groups
        options += [f"groups={groups}"] * (depthwise or groups > 1)
        sizes = f"{case.in_channels}, {case.filters}, {kernel}"
        name = f"nn.Conv{'Transpose' * case.operation.transposed}{rank}d"
        return f"{name}({', '.join([sizes, *options])})"
    if library in ("tensorflow", "keras"):
        if not rank:
            dense = f"Dense({case.filters}) of {case.in_channels} numbers"
            return dense if named else f"tf.matmul with {case.in_channels}x{case.filters} weights"
        if depthwise:
            return f"DepthwiseConv{rank}D({', '.join([str(kernel), *options])})"
        sizes = f"{case.filters}, {kernel}"
        name = f"Conv{rank}D{'Transpose' * case.operation.transposed}"
        return f"{name}({', '.join([sizes, *options])}) of {case.in_channels} channels"
    names = {"onnxruntime": ("Gemm", "Conv"), "litert": ("FULLY_CONNECTED", "CONV_2D")}
    product, convolution = names.get(library, ("a product", "a convolution"))
    sizes = f"{case.in_channels} to {case.filters}"
    return f"{convolution} of {sizes}, kernel {kernel}" if rank else f"{product} of {sizes}"

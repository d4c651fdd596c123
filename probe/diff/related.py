"""What two runs have in common, and what they ask for differently: a model with its weights, which
may stand in another order on the two sides, inputs, and the arguments of operations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations, permutations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import floats
from probe.case.errors import InputError
from probe.diff.repeated import aligned
from probe.explain.outputs import output_difference
from probe.order.semantics import Each, Moves, Unknown
from probe.record.contract import INPUT, WEIGHT
from probe.record.recording import Run, Value

if TYPE_CHECKING:
    from probe.diff.difference import Difference, Region

SAME_MODEL = "give two runs of the same model, with the same weights"


def require_as_many_outputs(left: Run, right: Run) -> None:
    """InputError: the two runs return different numbers of outputs."""
    if len(left.outputs) != len(right.outputs):
        counts = f"{len(left.outputs)} and {len(right.outputs)}"
        raise InputError("outputs", counts, "the two sides do not return as many", SAME_MODEL)


def takes_same_inputs(left: Run, right: Run) -> bool:
    """Whether two runs of a model take all of the same inputs, rather than one a part of the
    other's."""
    inputs = [[run.values[n] for n in input_values(run)] for run in (left, right)]
    digests = [Counter(v.digest for v in values if prod(v.shape) > 1) for values in inputs]
    if digests[0] == digests[1]:
        return bool(digests[0]) or len(inputs[0]) == len(inputs[1])
    if not all(digests):
        return False
    # a compiled function keeps arrays as constants that its Python reads each time
    constants = (
        {v.digest for v in run.values if v.given < 0 and v.role != INPUT} for run in (right, left)
    )
    of_one_side = (digests[0] - digests[1]).keys(), (digests[1] - digests[0]).keys()
    return all(more <= held for more, held in zip(of_one_side, constants, strict=True))


def different_weights(left: Run, right: Run) -> str:
    """The first operation that reads a weight which the other run has nowhere, in words: ``block.0
    has different weights on the two sides``. It explains outputs, and never refuses to compare
    them."""
    held = weight_digests(left), weight_digests(right)
    if held[0] <= held[1] or held[1] <= held[0]:
        return ""
    readers: dict[tuple[int, int], str] = {}
    for first, second in aligned(left.operations, right.operations):
        op = left.operations[first]
        for n, m in zip(op.reads, right.operations[second].reads, strict=False):
            if left.values[n].role == right.values[m].role == WEIGHT and left.values[n].shape:
                readers.setdefault((n, m), op.name)
    # Weights of one shape that are read on both sides, each by one side. What the other side reads
    # elsewhere is one of branches that ran in another order; a single number without axes, as
    # bounds and factors in files are, is an argument.
    right_kinds = {
        (right.values[m].shape, right.values[m].dtype)
        for _, m in readers
        if right.values[m].digest not in held[0]
    }
    for (n, _), where in readers.items():
        value = left.values[n]
        if value.digest not in held[1] and (value.shape, value.dtype) in right_kinds:
            name = f" ({value.name})" if value.name and value.name != where else ""
            return f"{where} has different weights on the two sides{name}"
    return ""


def permuted(left: Run, right: Run) -> list[PermutedWeight]:
    """Weights whose numbers the two sides have in another order, by name: those that have their
    very bits on the other side, in one shape, are left out."""
    keys = [{v.key for v in run.values if v.given < 0} for run in (left, right)]
    held: list[dict[str, np.ndarray]] = [{}, {}]
    for side, run in enumerate((left, right)):
        for op in run.operations:
            for place, n in enumerate(op.reads):
                value = run.values[n]
                of_one_side = value.given < 0 and value.floating and value.key not in keys[1 - side]
                few = 1 < prod(value.shape) <= MOST
                if of_one_side and few and (array := run.array(n)) is not None:
                    held[side].setdefault(value.name or f"operand {place + 1} of {op.name}", array)
    return list(permuted_weights(*held)) if all(held) else []


def shares_weights(left: Run, right: Run) -> bool:
    """Whether both have a weight in common, or one has none: else, as no weight is the same,
    nothing says that it is one model."""
    held = weight_digests(left), weight_digests(right)
    return not all(held) or bool(held[0] & held[1])


def input_values(run: Run) -> list[int]:
    """The numbers of what a run is given besides weights and constants."""
    return [n for n, v in enumerate(run.values) if v.given < 0 and v.role == INPUT]


def weight_digests(run: Run) -> set[str]:
    return {v.digest for v in run.values if v.role == WEIGHT and v.given < 0}


def different_constants(difference: Difference) -> str:
    """The first operation that is given other numbers on the two sides, which neither has
    elsewhere, and how many they are; empty if none is."""
    left, right = difference.left, difference.right
    keys = [{value.key for value in run.values if value.given < 0} for run in (left, right)]
    for region in difference.operations:
        for place, pair in enumerate(() if region.grouped else region.reads):
            a, b = left.values[pair.left], right.values[pair.right]
            given = max(a.given, b.given) < 0 and WEIGHT not in (a.role, b.role)
            elsewhere = a.key in keys[1] or b.key in keys[0]
            if not given or elsewhere or (a.shape, a.dtype) != (b.shape, b.dtype):
                continue
            arrays = left.array(pair.left), right.array(pair.right)
            if arrays[0] is None or arrays[1] is None:
                continue
            numbers = arrays[0].reshape(-1), arrays[1].reshape(-1)
            output = output_difference(*numbers, (a.dtype, b.dtype))
            if output.differing:
                name = a.name if a.name == b.name else ""
                where = f"{region.op} at {region.path}" if region.path else region.op
                count = f"{output.differing:,} of {output.elements:,} differ"
                return f"{where} is given other numbers, {name or f'operand {place + 1}'}: {count}"
    return ""


def regions_of_different_weights(difference: Difference) -> list[Region]:
    """The regions that read weights on either side which the other lacks, and run the same
    operations on both or aren't matched by value: folded ones stand in other operations."""
    runs = difference.left, difference.right
    held = [weight_digests(run) for run in runs]
    if held[0] <= held[1] or held[1] <= held[0]:
        return []
    regions = []
    for region in difference.operations:
        names = region.member_names(*runs)
        if names[0] != names[1] and region.by_value:
            continue
        # without elements, or bytes of another sign that stand for the same numbers
        absent = [pair for pair in region.reads if pair.absent]
        same = [pair.left for pair in absent], [pair.right for pair in absent]
        weights = [
            run.values[n].digest
            for run, members, alike in zip(runs, region.members, same, strict=True)
            for number in members
            for n in run.operations[number].reads
            if run.values[n].role == WEIGHT
            and n not in alike
            # a single number, as a factor in a file is, has been named as an argument
            and (run.values[n].shape or not region.arguments)
        ]
        if any(w not in held[0] for w in weights) and any(w not in held[1] for w in weights):
            regions.append(region)
    return regions


def folded_weights(difference: Difference) -> bool:
    """Whether weights that one side alone has may be those of the other, folded into other
    operations: all outputs are close then."""
    values = difference.left.values
    return all(
        values[pair.left].dtype in floats.FORMATS
        and pair.compared == prod(values[pair.left].shape)
        and pair.is_near(values[pair.left].dtype)
        for pair in difference.outputs
    )


# weights in another order


MOST = 1 << 22
"""Elements of a weight up to which it is looked at: sorting 4 million takes 0.4 s."""

# Rows whose order is written out.
LISTED = 16

BLOCKS = 2, 3, 4
"""Parts that layers join in one weight: gates of a GRU and an LSTM, projections of attention."""


@dataclass(frozen=True)
class PermutedWeight:
    """A weight of the left side, by name, whose numbers the right side has in another order.

    ``axes``: the permutation of axes, () where they stand alike or nothing simpler is known;
    ``how``: what else sets them apart, in words; empty where the axes are all. ``code``: the line
    that makes the left one's array ``w`` the right one's; empty where none does.
    """

    left: str
    right: str
    axes: tuple[int, ...]
    how: str
    code: str = ""

    @property
    def convention(self) -> bool:
        """Whether axes alone differ, and shapes with them: how another library keeps a kernel."""
        return bool(self.axes) and not self.how

    def __str__(self) -> str:
        names = self.left if self.left == self.right else f"{self.left} and {self.right}"
        parts = [f"axes {self.axes}"] * bool(self.axes) + [self.how] * bool(self.how)
        text = f"weights permuted: {names}: {', '.join(parts)}"
        return f"{text}: {self.code}" if self.code else text

    def to_json(self) -> dict[str, Any]:
        return {"finding": "weights permuted", **asdict(self)}


def permuted_weights(
    left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]
) -> Iterator[PermutedWeight]:
    """Yields weights that one side has in another order; container arrays by name."""
    by_numbers: dict[bytes, list[str]] = {}
    for name, array in right.items():
        by_numbers.setdefault(_numbers(array), []).append(name)
    for name, array in left.items():
        others = by_numbers.get(_numbers(array))
        if others:
            other = others.pop(others.index(name) if name in others else 0)
            yield PermutedWeight(name, other, *_order(array, right[other]))


def _numbers(array: np.ndarray) -> bytes:
    return array.dtype.str.encode() + np.sort(_bits(array).reshape(-1)).tobytes()


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _order(left: np.ndarray, right: np.ndarray) -> tuple[tuple[int, ...], str, str]:
    """Axes, words and a line that make the left array the right one: the simplest that do."""
    a, b = _bits(left), _bits(right)
    turned = [
        (axes, a.transpose(axes))
        for axes in permutations(range(a.ndim))
        if a.transpose(axes).shape == b.shape
    ]
    same = tuple(range(a.ndim))
    code = {axes: "w" if axes == same else f"w.transpose{axes}" for axes, _ in turned}
    several = (combinations(range(a.ndim), count) for count in range(a.ndim + 1))
    for flipped in chain.from_iterable(several):  # none first
        for axes, view in turned:
            if np.array_equal(np.flip(view, flipped), b):
                if not flipped:
                    return axes, "", f"w = {code[axes]}"
                turn = f"w = np.flip({code[axes]}, {flipped})"
                return (() if axes == same else axes), f"flipped along axes {flipped}", turn
    for axes, view in turned:
        for axis in range(a.ndim):
            if (order := _rows(np.moveaxis(view, axis, 0), np.moveaxis(b, axis, 0))) is not None:
                how = _row_words(order, axis)
                rows = f"{order.tolist()}" if len(order) <= LISTED else ""
                line = f"w = np.take({code[axes]}, {rows}, axis={axis})" * bool(rows)
                if gates := re.search(r"in the order \((.*?)\)", how):
                    split = f"np.split({code[axes]}, {gates[1].count(',') + 1}, axis={axis})"
                    line = f"w = np.concatenate([{split}[n] for n in ({gates[1]})], axis={axis})"
                return (() if axes == same else axes), how, line
    return (), "in another order", ""


def _rows(left: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Which row of ``left`` each row of ``right`` is; None where they are no such rows."""
    places = {row.tobytes(): n for n, row in enumerate(np.ascontiguousarray(left))}
    order = [places.get(row.tobytes(), -1) for row in np.ascontiguousarray(right)]
    return np.array(order) if sorted(order) == list(range(len(left))) else None


def _row_words(order: np.ndarray, axis: int) -> str:
    for count in BLOCKS:
        if len(order) % count == 0:
            blocks = order.reshape(count, -1)
            size = blocks.shape[1]
            if (blocks == blocks[:, :1] + np.arange(size)).all() and (
                blocks[:, 0] % size == 0
            ).all():
                gates = tuple((blocks[:, 0] // size).tolist())
                return f"blocks of {size} along axis {axis} in the order {gates}, as gates are"
    return f"rows along axis {axis} in another order"


# arguments of operations


# Characters of a value that are printed.
TOLD = 40

# Arguments that change no number: what something is called, and where it is kept.
NAMES_ALONE = {
    *("name", "shared_name", "container", "inline", "keep_unused", "device", "out_sharding"),
    *("sharding", "ctx_mesh", "layout", "memory_format", "pin_memory", "non_blocking"),
    *("_class", "_output_shapes", "debug_info", "donated_invars"),
}


# Functions whose two operands may change places.
COMMUTES = frozenset(
    "add multiply maximum minimum fmax fmin equal not_equal and or xor squared_difference".split()
)


@dataclass(frozen=True)
class ArgumentDifference:
    """How two calls of one operation differ."""

    text: str
    """In words: ``eps 1e-05 against 1e-06``."""
    scalars: frozenset[int]
    """Places among the operands of single numbers that differ: {1} of ``x * 0.5`` and ``x * 0.4``,
    where the factor is an array."""


def differing_arguments(
    left: Run, right: Run, left_number: int, right_number: int
) -> ArgumentDifference | None:
    """How the arguments of two operations differ; None where nothing can be said of it."""
    first, second = left.operations[left_number], right.operations[right_number]
    meaning = first.meaning
    # of a batch norm in training nothing is known, and its argument says that it trains
    kinds = {type(op.meaning) for op in (first, second)} - {Unknown}
    if first.op != second.op or len(kinds) > 1:
        return None
    sides = (left, first), (right, second)
    operands = [[run.values[n] for n in op.reads] for run, op in sides]
    gives = [[run.values[n] for n in op.gives] for run, op in sides]
    if len(operands[0]) != len(operands[1]) or not any(map(_is_array, gives[0])):
        return None
    scalars = _differing_scalars(left, right, first.reads, second.reads)
    if not scalars and len(operands[0]) == 2 and meaning.word in COMMUTES:
        # of a sum or a product of two, either way round
        scalars = _differing_scalars(left, right, first.reads[::-1], second.reads)
        operands[0] = operands[0][::-1] if scalars else operands[0]
    same_reads = [v.shape for v in operands[0]] == [v.shape for v in operands[1]]
    alike = same_reads and [v.shape for v in gives[0]] == [v.shape for v in gives[1]]
    # the same elements may be asked for in another way
    same_gives = [v.key for v in gives[0]] == [v.key for v in gives[1]]
    # of inputs of the same sizes nothing follows from a size
    sized = not alike and _given_shapes(left) != _given_shapes(right)
    if isinstance(meaning, Moves) and (same_gives or sized or not same_reads):
        return None
    if not same_reads and not isinstance(meaning, Each):
        # they may differ in numbers alone
        fields = {name: getattr(meaning, name) for name in ("numbers",) if hasattr(meaning, name)}
        try:
            if replace(second.meaning, **fields) != meaning:  # type: ignore[type-var]
                return None
        except (TypeError, ValueError):  # no dataclass, or of arrays
            return None
    arguments: list[tuple[Any, ...]] = []
    for name in dict.fromkeys((*first.attributes, *second.attributes)):
        values = [op.attributes.get(name, NOT_GIVEN) for op in (first, second)]
        texts = [repr(value) for value in values]
        address = any(" at 0x" in text for text in texts)  # which differs from run to run
        if texts[0] != texts[1] and name not in NAMES_ALONE and not address:
            number = name.removeprefix("argument")  # of those without a name, from 1 on
            unnamed = number != name and number.isdigit()
            arguments.append((f"operand {int(number) + 1}" if unnamed else name, *values))
    for place, both in scalars.items():
        names = {run.values[n].name for (run, _), n in zip(sides, both, strict=True)}
        numbers = [_single_number(run, n) for (run, _), n in zip(sides, both, strict=True)]
        if None in numbers:
            return None
        name = names.pop() if len(names) == 1 else ""
        arguments.append((name or f"operand {place + 1}", *numbers))
    if sized:
        sizes = left.axis_sizes, right.axis_sizes
        arguments = [each for each in arguments if not follows_from_sizes(each[1:], sizes)]
    numbers_alone = operands[0] and not any(
        _is_array(value) and place not in scalars for place, value in enumerate(operands[0])
    )
    if not arguments or numbers_alone:
        return None
    text = ", ".join(f"{name} {_two_texts(*both)}" for name, *both in arguments)
    return ArgumentDifference(text, frozenset(scalars))


def _single_number(run: Run, number: int) -> Any:
    """The one number of a value; None: a recording has left it out."""
    array, dtype = run.array(number), run.values[number].dtype
    if array is None:
        return None
    scalar = array.reshape(-1)[:1]
    if scalar.dtype.kind == "f":  # with the digits of its format: 0.1, not 0.100000001
        return float(str(scalar[0]))
    # bfloat16's bits, or integers
    return (floats.widen(scalar, dtype) if dtype in floats.FORMATS else scalar).item()


def _given_shapes(run: Run) -> set[tuple[int, ...]]:
    return {value.shape for value in run.values if value.given < 0}


def call_difference(
    left: Run,
    right: Run,
    left_number: int,
    right_number: int,
    read_by: Sequence[Mapping[int, list[str]]],
) -> ArgumentDifference | None:
    """How the arguments of two operations differ that stand for each other: a module of one name
    calls them, or the same operations read what they give, as ``read_by`` has it. x * 0.5 is no
    x * 0.25 * 2 with another factor."""
    found = differing_arguments(left, right, left_number, right_number)
    if found is None:
        return None
    ops = left.operations[left_number], right.operations[right_number]
    ends = [
        sorted(reader for n in op.gives for reader in by_value[n])
        for op, by_value in zip(ops, read_by, strict=True)
    ]
    same_place = ops[0].path and ops[0].path == ops[1].path
    return found if same_place or ends[0] == ends[1] else None


def readers(run: Run) -> dict[int, list[str]]:
    """By value: which operations read it, and which outputs of the run it is."""
    names: dict[int, list[str]] = defaultdict(list)
    for op in run.operations:
        for n in op.reads:
            names[n].append(op.op)
    for place, n in enumerate(run.outputs):
        names[n].append(f"output {place}")
    return names


def _differing_scalars(
    left: Run, right: Run, left_reads: Sequence[int], right_reads: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Single numbers that differ, by their place."""
    return {
        place: (n, m)
        for place, (n, m) in enumerate(zip(left_reads, right_reads, strict=True))
        if _is_known_scalar(left, n) and _is_known_scalar(right, m)
        if left.values[n].digest != right.values[m].digest
    }


def _is_array(value: Value) -> bool:
    """Whether it is more than a size or an index: floats, or several whole numbers."""
    return value.floating or prod(value.shape) > 1


def _is_known_scalar(run: Run, number: int) -> bool:
    """Whether a value is a number that is known, rather than computed from arrays, and no weight:
    a bias of one filter has an axis."""
    value = run.values[number]
    known = value.given < 0 or number in run.integral
    return known and prod(value.shape) == 1 and (value.role != WEIGHT or value.shape == ())


# Stands for an argument that one side leaves out.
NOT_GIVEN = "not given"


def _two_texts(a: Any, b: Any) -> str:
    """Two values that differ, in texts that differ too."""
    texts = _value_text(a, short=True), _value_text(b, short=True)
    if texts[0] == texts[1]:  # apart in digits that float32 lacks
        texts = _value_text(a), _value_text(b)
    pairs = enumerate(zip(*texts, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(map(len, texts)))
    start *= max(map(len, texts)) > TOLD
    first = max(0, start - TOLD // 2)  # long ones are cut where they begin to differ
    cut = [text[first : first + TOLD] + "..." * (len(text) > first + TOLD) for text in texts]
    return " against ".join("..." * (first > 0) + text for text in cut)


def _value_text(value: Any, short: bool = False) -> str:
    # not np.float32(value) == value: NumPy would round both sides of it to float32
    with np.errstate(over="ignore"):
        if short and isinstance(value, float) and float(np.float32(value)) == value:
            value = float(str(np.float32(value)))  # 1e-05, as it was written
    text = value if isinstance(value, str) else repr(value)
    return re.sub(r"^np\.\w+\((.*)\)$", r"\1", text)  # as NumPy prints its numbers


def follows_from_sizes(values: Sequence[Any], sizes: Sequence[set[int]]) -> bool:
    """Whether an argument is whole numbers on both sides, or follows from a size: a mean's divisor,
    the root of a length."""
    if all(map(_are_whole_numbers, values)):
        return True
    for value, known in zip(values, sizes, strict=True):
        try:
            number = abs(float(value))
        except (TypeError, ValueError):
            return False
        ways = (number, number**2, 1 / number, number**-2) if number else ()
        if not any(abs(way - round(way)) < 1e-5 * way and round(way) in known for way in ways):
            return False
    return True


def _are_whole_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_are_whole_numbers, value))
    if isinstance(value, str):  # as NumPy's recorder has them
        digits = value.strip("()[]").replace(",", "").replace(" ", "").lstrip("-")
        return value is NOT_GIVEN or digits.isdigit()
    return isinstance(value, int) and not isinstance(value, bool)

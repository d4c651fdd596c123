"""Arguments of two calls that differ: both runs call one operation, and ask for other things."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from math import prod
from typing import Any

import numpy as np

from probe import floats
from probe.recording.contract import WEIGHT
from probe.recording.recording import Run, Value
from probe.semantics import Each, Moves

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
class Otherwise:
    """How two calls of one operation differ. ``text``: in words: ``eps 1e-05 against 1e-06``;
    ``scalars``: places among what is read of single numbers that differ.
    """

    text: str
    scalars: frozenset[int]


# By the numbers of the left and the right run's operation.
Argued = Mapping[tuple[int, int], Otherwise]


def differing_arguments(left: Run, right: Run, mine: int, other: int) -> Otherwise | None:
    """Returns how the arguments of two operations differ; None where nothing can be said of it."""
    first, second = left.operations[mine], right.operations[other]
    meaning = first.meaning
    if first.op != second.op or type(meaning) is not type(second.meaning):
        return None
    both_ops = ((left, first), (right, second))
    ours, theirs = ([run.values[n] for n in op.reads] for run, op in both_ops)
    gives = [[run.values[n] for n in op.gives] for run, op in both_ops]
    if len(ours) != len(theirs) or not any(map(_is_array, gives[0])):
        return None
    reads = [*first.reads], [*second.reads]
    scalars = _differing_scalars(left, right, *reads)
    if not scalars and len(ours) == 2 and meaning.word in COMMUTES:
        # of a sum or a product of two, either way round
        scalars = _differing_scalars(left, right, reads[0][::-1], reads[1])
        ours = ours[::-1] if scalars else ours
    alike = [v.shape for v in ours] == [v.shape for v in theirs]
    alike &= [v.shape for v in gives[0]] == [v.shape for v in gives[1]]
    moves = isinstance(meaning, Moves)
    if moves and alike and [v.key for v in gives[0]] == [v.key for v in gives[1]]:
        return None  # the same elements, asked for in another way
    if moves and not alike:
        return None
    if not alike and not isinstance(meaning, Each):
        # they may differ in numbers alone
        fields = {name: getattr(meaning, name) for name in ("numbers",) if hasattr(meaning, name)}
        try:
            if replace(second.meaning, **fields) != meaning:  # type: ignore[type-var]
                return None
        except (TypeError, ValueError):  # no dataclass, or of arrays
            return None
    arguments: list[tuple[Any, ...]] = []
    for name in dict.fromkeys((*first.attributes, *second.attributes)):
        values = [side.attributes.get(name, NOT_GIVEN) for side in (first, second)]
        texts = [repr(value) for value in values]
        where = any(" at 0x" in text for text in texts)  # which differs from run to run
        if texts[0] != texts[1] and name not in NAMES_ALONE and not where:
            number = name.removeprefix("argument")  # of those without a name, from 1 on
            plain = number != name and number.isdigit()
            arguments.append((f"operand {int(number) + 1}" if plain else name, *values))
    for place, both in scalars.items():
        names = {run.values[n].name for (run, _), n in zip(both_ops, both, strict=True)}
        name = names.pop() if len(names) == 1 else ""
        numbers = []
        for (run, _), n in zip(both_ops, both, strict=True):
            array, dtype = run.array(n), run.values[n].dtype
            if array is None:
                return None
            scalar = array.reshape(-1)[:1]
            if scalar.dtype.kind == "f":  # with the digits of its format: 0.1, not 0.100000001
                numbers.append(float(str(scalar[0])))
            else:  # bfloat16's bits, or integers
                wide = floats.widen(scalar, dtype) if dtype in floats.FORMATS else scalar
                numbers.append(wide.item())
        arguments.append((name or f"operand {place + 1}", *numbers))
    if not alike:
        sizes = left.axis_sizes, right.axis_sizes
        arguments = [each for each in arguments if not _follows_from_sizes(each[1:], sizes)]
    numbers_alone = ours and not any(_is_array(v) and n not in scalars for n, v in enumerate(ours))
    if not arguments or numbers_alone:
        return None
    text = ", ".join(f"{name} {_two_texts(*both)}" for name, *both in arguments)
    return Otherwise(text, frozenset(scalars))


def all_differing_arguments(
    left: Run, right: Run, aligned: Sequence[tuple[int | None, int | None]]
) -> dict[tuple[int, int], Otherwise]:
    """Returns the operations of both runs whose arguments differ. ``aligned``: as they
    are paired; of the rest those of the same kind are taken in their order, as layers of Keras have
    names of their own in each model."""
    pairs = [(a, b) for a, b in aligned if a is not None and b is not None]
    free = (
        sorted(a for a, b in aligned if a is not None and b is None),
        sorted(b for a, b in aligned if a is None and b is not None),
    )
    kinds = [
        [run.operations[n].op for n in some] for run, some in zip((left, right), free, strict=True)
    ]
    # layers of one kind are no junk
    matched = SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_matching_blocks()
    for start, begin, count in matched:
        pairs += [(free[0][start + n], free[1][begin + n]) for n in range(count)]
    every = {both: differing_arguments(left, right, *both) for both in pairs}
    differing = {both: otherwise for both, otherwise in every.items() if otherwise is not None}
    if not differing:
        return {}
    # Two operations stand for each other where a module of one name calls them, or the same
    # operations read what they give: x * 0.5 is no x * 0.25 * 2 with another factor.
    read_by = _read_by(left), _read_by(right)
    settled = {}
    for both, otherwise in differing.items():
        ops = left.operations[both[0]], right.operations[both[1]]
        ends = [
            sorted(r for n in op.gives for r in some[n])
            for op, some in zip(ops, read_by, strict=True)
        ]
        if (ops[0].path and ops[0].path == ops[1].path) or ends[0] == ends[1]:
            settled[both] = otherwise
    return settled


def _read_by(run: Run) -> Mapping[int, list[str]]:
    """Returns by value which operations read it, and which outputs of the run it is."""
    readers: dict[int, list[str]] = defaultdict(list)
    for op in run.operations:
        for n in op.reads:
            readers[n].append(op.op)
    for place, n in enumerate(run.outputs):
        readers[n].append(f"output {place}")
    return readers


def _differing_scalars(
    left: Run, right: Run, ours: Sequence[int], theirs: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Returns single numbers that differ, by their place."""
    both = enumerate(zip(ours, theirs, strict=True))
    return {
        place: (n, m)
        for place, (n, m) in both
        if _is_known_scalar(left, n) and _is_known_scalar(right, m)
        if left.values[n].digest != right.values[m].digest
    }


def _is_array(value: Value) -> bool:
    """Whether it is more than a size or an index: floats, or several whole numbers."""
    return value.floating or prod(value.shape) > 1


def _is_known_scalar(run: Run, number: int) -> bool:
    """Returns whether a value is a number that is known, rather than computed from arrays, and no
    weight: a bias of one filter has an axis."""
    value = run.values[number]
    known = value.given < 0 or number in run.integral
    return known and prod(value.shape) == 1 and (value.role != WEIGHT or value.shape == ())


class _NotGiven:
    """Stands for an argument that one side leaves out."""

    def __repr__(self) -> str:
        return "not given"


NOT_GIVEN = _NotGiven()


def _two_texts(a: Any, b: Any) -> str:
    """Returns two values that differ, so that their texts do too."""
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


def _follows_from_sizes(values: Sequence[Any], sizes: Sequence[set[int]]) -> bool:
    """Returns whether an argument is whole numbers on both sides, or follows from a size: a mean's
    divisor, the root of a length."""
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
        return value.strip("()[]").replace(",", "").replace(" ", "").lstrip("-").isdigit()
    return value is NOT_GIVEN or (isinstance(value, int) and not isinstance(value, bool))

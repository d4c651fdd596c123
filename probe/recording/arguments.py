"""Arguments that differ: both runs call the same operation, and ask it for different things.

An epsilon, a slope, a factor, the approximation of a GELU: labels tell such operations apart, as
they are different formulas, and so nothing behind them would have a match. The right run's
operation gets the labels that it would have with the left run's arguments instead: then it is
compared, what follows is compared too, and the arguments are named as the cause.

Arguments that follow from sizes differ wherever the batch or the length does, and ask for nothing
different: where operands have different shapes, whole numbers and what is computed from a size are
left aside.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from probe.recording.contract import WEIGHT
from probe.recording.recording import Operation, Run, Value
from probe.semantics import (
    Compiled,
    Each,
    Exact,
    Made,
    Meaning,
    Pads,
    Unknown,
    functions,
)
from probe.semantics.labels import Labels, of_content

TOLD = 40
"""Characters of a value that are printed."""

NAMES_ALONE = {
    *("name", "shared_name", "container", "inline", "keep_unused", "device", "out_sharding"),
    *("sharding", "ctx_mesh", "layout", "memory_format", "pin_memory", "non_blocking"),
    *("_class", "_output_shapes", "debug_info", "donated_invars"),
}
"""Arguments that change no number: what something is called, and where it is kept."""


@dataclass(frozen=True)
class Otherwise:
    """What labels take an operation of the right run for. ``text``: the arguments that differ.

    ``like``: the left run's operation, ``scalars``: by their place among what is read, the labels
    of the left run's single numbers.
    """

    text: str
    like: Operation
    scalars: Mapping[int, Labels]


Argued = Mapping[tuple[int, int], Otherwise]
"""By the numbers of the left and the right run's operation."""


def between(left: Run, right: Run, mine: int, other: int) -> Otherwise | None:
    """Returns how the arguments of two operations differ; None where nothing can be said of it."""
    one, two = left.operations[mine], right.operations[other]
    meaning = one.meaning
    if one.op != two.op or type(meaning) is not type(two.meaning):
        return None
    moves = isinstance(meaning, Exact) and not isinstance(meaning, Unknown)
    if isinstance(meaning, Compiled | Made) or (
        moves and not (isinstance(meaning, Pads) or hasattr(meaning, "value"))
    ):
        return None
    ours, theirs = ([run.values[n] for n in op.reads] for run, op in ((left, one), (right, two)))
    gives = [[run.values[n] for n in op.gives] for run, op in ((left, one), (right, two))]
    if len(ours) != len(theirs) or not any(value.floating for value in gives[0]):
        return None
    scalars = _apart(ours, theirs)
    commutes = len(ours) == 2 and functions.row_of(getattr(meaning, "word", "")).commutes
    if not scalars and commutes and (turned := _apart(ours[::-1], theirs)):
        scalars, ours = turned, ours[::-1]  # of a sum or a product of two, either way round
    alike = [v.shape for v in ours] == [v.shape for v in theirs]
    alike &= [v.shape for v in gives[0]] == [v.shape for v in gives[1]]
    if not alike and not _same_but_for_numbers(meaning, two.meaning):
        return None
    inside = getattr(meaning, "differing", None)  # of programs, which have a body besides
    body = _attributes(one, two) if inside is None else inside(two.meaning)
    if body is None:
        return None
    told = list(body)
    for n, both in scalars.items():
        name = both[0].name if both[0].name == both[1].name else ""
        numbers = (_number(v.content.reshape(-1)[0].item(), v.dtype) for v in both)  # type: ignore[union-attr]
        told.append((name or f"operand {n + 1}", *numbers))
    if not alike:
        sizes = _sizes(left), _sizes(right)
        told = [each for each in told if not _of_sizes(each[1:], sizes)]
    if not told or not any(v.floating and n not in scalars for n, v in enumerate(ours)):
        return None
    if moves:  # elements, to places that whole numbers say
        told = [each for each in told if any(isinstance(one, float) for one in each[1:])]
        if not told:
            return None
    text = ", ".join(f"{name} {_both(a, b)}" for name, a, b in told)
    labels = {n: of_content(a.content) for n, (a, _) in scalars.items() if a.content is not None}
    return Otherwise(text, one, labels)


def every(
    left: Run, right: Run, aligned: Sequence[tuple[int | None, int | None]]
) -> dict[tuple[int, int], Otherwise]:
    """Returns the operations of both runs whose arguments differ. ``aligned``: as names and labels
    pair them; of the rest those of the same kind are taken in their order, as layers of Keras have
    names of their own in each model."""
    pairs = [(a, b) for a, b in aligned if a is not None and b is not None]
    free = (
        sorted(a for a, b in aligned if a is not None and b is None),
        sorted(b for a, b in aligned if a is None and b is not None),
    )
    kinds = [
        [run.operations[n].op for n in some] for run, some in zip((left, right), free, strict=True)
    ]
    matched = SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_matching_blocks()
    for start, begin, count in matched:
        pairs += [(free[0][start + n], free[1][begin + n]) for n in range(count)]
    found = {both: one for both in pairs if (one := between(left, right, *both)) is not None}
    if not found:
        return {}
    # Two operations stand for each other where a module of one name calls them, or the same
    # operations read what they give: x * 0.5 is no x * 0.25 * 2 with another factor.
    read_by = _read_by(left), _read_by(right)
    kept = {}
    for both, one in found.items():
        ops = left.operations[both[0]], right.operations[both[1]]
        ends = [
            sorted(r for n in op.gives for r in some[n])
            for op, some in zip(ops, read_by, strict=True)
        ]
        if (ops[0].path and ops[0].path == ops[1].path) or ends[0] == ends[1]:
            kept[both] = one
    return kept


def _read_by(run: Run) -> Mapping[int, list[str]]:
    """Returns by value which operations read it, and which outputs of the run it is."""
    found: dict[int, list[str]] = defaultdict(list)
    for one in run.operations:
        for n in one.reads:
            found[n].append(one.op)
    for place, n in enumerate(run.outputs):
        found[n].append(f"output {place}")
    return found


def _apart(ours: list[Value], theirs: list[Value]) -> dict[int, tuple[Value, Value]]:
    """Returns single numbers that differ, by their place."""
    both = enumerate(zip(ours, theirs, strict=True))
    return {n: (a, b) for n, (a, b) in both if _single(a) and _single(b) and a.digest != b.digest}


def _single(value: Value) -> bool:
    """Returns whether a value is a number that is known, rather than computed from arrays, and no
    weight: a bias of one filter has an axis."""
    known = value.content is not None and (value.given < 0 or value.plain)
    known &= value.role != WEIGHT or value.shape == ()
    return known and value.content is not None and value.content.size == 1


def _attributes(one: Operation, two: Operation) -> Iterator[tuple[str, Any, Any]]:
    """Yields the arguments of two operations that differ; those without a name have their number,
    from 1 on."""
    for name in dict.fromkeys((*one.attributes, *two.attributes)):
        values = [side.attributes.get(name, NOT_GIVEN) for side in (one, two)]
        texts = [repr(value) for value in values]
        where = any(" at 0x" in text for text in texts)  # which differs from run to run
        if texts[0] != texts[1] and name not in NAMES_ALONE and not where:
            number = name.removeprefix("argument")
            plain = number != name and number.isdigit()
            yield (f"operand {int(number) + 1}" if plain else name), *values


class _NotGiven:
    """Stands for an argument that one side leaves out."""

    def __repr__(self) -> str:
        return "not given"


NOT_GIVEN = _NotGiven()


def _number(value: Any, dtype: str) -> Any:
    """Returns a number with the digits of its format: float32 has 0.1 rather than
    0.10000000149011612."""
    if dtype == "bfloat16":
        return float(np.array(value << 16, np.uint32).view(np.float32))
    return float(str(np.dtype(dtype).type(value))) if "float" in dtype else value


def _both(a: Any, b: Any) -> str:
    """Returns two values that differ, so that their texts do too."""
    texts = _text(a, short=True), _text(b, short=True)
    if texts[0] == texts[1]:  # apart in digits that float32 lacks
        texts = _text(a), _text(b)
    pairs = enumerate(zip(*texts, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(map(len, texts)))
    start *= max(map(len, texts)) > TOLD
    first = max(0, start - TOLD // 2)  # long ones are cut where they begin to differ
    cut = [text[first : first + TOLD] + "..." * (len(text) > first + TOLD) for text in texts]
    return " against ".join("..." * (first > 0) + text for text in cut)


def _text(value: Any, short: bool = False) -> str:
    # not np.float32(value) == value: NumPy would round both sides of it to float32
    with np.errstate(over="ignore"):
        if short and isinstance(value, float) and float(np.float32(value)) == value:
            value = float(str(np.float32(value)))  # 1e-05, as it was written
    text = value if isinstance(value, str) else repr(value)
    return re.sub(r"^np\.\w+\((.*)\)$", r"\1", text)  # as NumPy prints its numbers


def _same_but_for_numbers(one: Meaning, two: Meaning) -> bool:
    """Returns whether one meaning may be taken at the other's shapes: they differ in numbers."""
    if isinstance(one, Each):
        return True
    fields = {name: getattr(one, name) for name in ("numbers",) if hasattr(one, name)}
    try:
        return bool(replace(two, **fields) == one)  # type: ignore[type-var]
    except (TypeError, ValueError):  # no dataclass, or of arrays
        return False


def _sizes(run: Run) -> set[int]:
    """Returns the sizes that values of a run have along axes, and their numbers of elements."""
    found = set[int]()
    for shape in {value.shape for value in run.values}:
        for start in range(len(shape)):
            found.update(np.cumprod(shape[start:], dtype=np.int64).tolist())
    return found


def _of_sizes(values: Sequence[Any], sizes: Sequence[set[int]]) -> bool:
    """Returns whether an argument is whole numbers on both sides, or follows from a size: a mean's
    divisor, the root of a length."""
    if all(map(_whole, values)):
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


def _whole(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_whole, value))
    if isinstance(value, str):  # as NumPy's recorder has them
        return value.strip("()[]").replace(",", "").replace(" ", "").lstrip("-").isdigit()
    return value is NOT_GIVEN or (isinstance(value, int) and not isinstance(value, bool))

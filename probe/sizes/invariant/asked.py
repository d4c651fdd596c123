"""What an operation is, asked by running it: does it round, does it work place by place, does a
sample read another.

No table says what an operation computes. It is run on a few irregular numbers. Where each result
is one of them (or a constant), nothing is rounded: the operation moves or chooses elements. A move
takes its elements from the same places whatever stands there, so it gives the same under any
renaming of the numbers; a choice (the largest, a sorted order) does not, and which zero it chooses
of two with unlike signs may depend on the place. Where other numbers in some places change results
in these places alone, it is a function of the elements there. Only which functions IEEE 754 defines
can't be asked: a few names say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from probe.case import floats
from probe.order.semantics.contract import COMPLEX_OPEN, COMPLEX_SETTLED, MORE, canonical, row_of

Arrays = Sequence[np.ndarray]


class OperationKind(Enum):
    """``EITHER``: exact but for the sign of zeros. ``PLACE``: a function of the elements at one
    place, whose bits may depend on it. ``SOME``: none of these is known."""

    EXACT, EITHER, PLACE, SOME = range(4)


@dataclass(frozen=True)
class AskedCall:
    """One call of an operation that can be run again.

    ``name``: the library's, such as ``add`` or ``BiasAdd``; ``reads``: container arrays; ``dtypes``
    and ``gives``: formats of these and of its results; ``run``: results for operands; ``options``:
    names of arguments that aren't arrays nor as by default; ``approximate``: it isn't rounded as
    IEEE 754 asks, though the function is one that it defines.
    """

    name: str
    run: Callable[[Arrays], list[np.ndarray]]
    reads: Arrays
    dtypes: Sequence[str]
    gives: Sequence[str]
    options: frozenset[str] = frozenset()
    approximate: bool = False

    @property
    def complex(self) -> bool:
        return any("complex" in dtype for dtype in (*self.dtypes, *self.gives))

    def floating(self) -> list[int]:
        """The operands that hold floating-point or complex numbers."""
        return [n for n, dtype in enumerate(self.dtypes) if is_floating(dtype)]


def is_floating(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype


# Numbers of either sign with all digits in use, from 2**-6 to 2**6: so few that a computed result
# is hardly ever one of them, also in a format of eight digits.
COUNT = 61

# How often the places of the numbers are drawn anew.
DRAWS = 3


def operation_kind(call: AskedCall) -> OperationKind:
    """What a call of an operation is. It is run some ten times; what the library raises passes."""
    named = named_kind(call)
    if named is not None:
        return named
    if not any(map(is_floating, (*call.dtypes, *call.gives))):
        return OperationKind.EXACT  # of integers and truth values alone
    chosen = _chosen_elements(call)
    if chosen is not None:
        return chosen
    return OperationKind.PLACE if _place_by_place(call) else OperationKind.SOME


def named_kind(call: AskedCall) -> OperationKind | None:
    """What IEEE 754 defines, or orders, by its name; None: it is no such function."""
    word = canonical(spelled(call.name))
    known = row_of(word)
    further = call.options & MORE and not known.sloped
    if known.rounds is None or call.approximate or further:
        return None
    if call.complex and word not in COMPLEX_SETTLED and (known.rounds or word in COMPLEX_OPEN):
        return None
    return OperationKind.EITHER if known.either else OperationKind.EXACT


def spelled(name: str) -> str:
    """A library's name as the table of functions spells it: ``AddV2`` as ``add``."""
    plain = re.sub(r"V\d$", "", name)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower()
    return {"bias_add": "add", "select": "where", "_to_copy": "cast"}.get(words, words)


def _numbers(dtype: str) -> np.ndarray:
    """The irregular numbers of a format, as a container array."""
    drawn = np.random.default_rng(COUNT)
    # also in eight digits no two are the same
    digits = 1 + (np.arange(COUNT) * 37 % 127 + drawn.uniform(0, 0.4, COUNT)) / 128
    values = digits * np.exp2(np.arange(COUNT) % 12 - 6)
    values *= np.where(np.arange(COUNT) % 2, 1, -1)
    if "complex" in dtype:
        return (values + 1j * drawn.permutation(values)).astype(dtype)
    return floats.to_container(floats.round_to(values, dtype), dtype)


def _chosen_elements(call: AskedCall) -> OperationKind | None:
    """``EXACT``: it moves elements; ``EITHER``: it chooses among them; None: it computes."""
    drawn, floating = np.random.default_rng(0), call.floating()
    if not floating:
        return _made_numbers(call)
    if len({call.dtypes[n] for n in floating}) > 1:
        return None
    numbers = _numbers(call.dtypes[floating[0]])
    places = [drawn.integers(0, COUNT, call.reads[n].shape) for n in floating]
    moves, first = True, None
    for turn in range(DRAWS + 1):
        # the first run again under another naming, each time
        naming = drawn.permutation(COUNT) if turn else np.arange(COUNT)
        results = call.run(_with(call.reads, floating, [numbers[naming[at]] for at in places]))
        found = []
        for result, dtype in zip(results, call.gives, strict=True):
            if is_floating(dtype) and dtype != call.dtypes[floating[0]]:
                return None
            found.append(_numbers_in(result, numbers, naming))
        if first is None:
            first = list(zip(found, results, strict=True))
            continue
        for (was, constant), index, result in zip(first, found, results, strict=True):
            if result.shape != constant.shape:  # how many there are follows from the numbers
                return None
            if was is None or index is None:  # integers, as of a largest one's place
                moves &= np.array_equal(constant, result)
                continue
            # also a zero may be chosen, as by a rectifier
            known = (index >= 0) | (result == constant) | _is_zero(result)
            if not (known & ((was >= 0) | (constant == result) | _is_zero(constant))).all():
                return None
            if not (index >= 0).any():  # the same whatever is read, as a softmax of one element
                return None
            moves &= bool((index == was).all())
    return OperationKind.EXACT if moves else OperationKind.EITHER


def _numbers_in(result: np.ndarray, numbers: np.ndarray, naming: np.ndarray) -> np.ndarray | None:
    """Of each element, which of the numbers it is, by its number before the naming; -1: none.
    None: the result has other numbers, such as places."""
    if result.dtype != numbers.dtype:
        return None
    order = np.argsort(numbers, kind="stable")
    at = np.clip(np.searchsorted(numbers, result, sorter=order), 0, COUNT - 1)
    index = order[at]
    back = np.argsort(naming)
    return np.where(numbers[index] == result, back[index], -1)


def _is_zero(result: np.ndarray) -> np.ndarray:
    """Which elements of a container array are zeros of either sign: bool."""
    return (result << 1 == 0) if result.dtype == np.uint16 else result == 0


def _made_numbers(call: AskedCall) -> OperationKind | None:
    """Of an operation that reads no floating-point numbers and gives some: whether these are whole
    or all the same, so that nothing was rounded."""
    if any(array.size for array in call.reads):
        return None
    for result, dtype in zip(call.run(call.reads), call.gives, strict=True):
        if is_floating(dtype) and result.size and "complex" not in dtype:
            values = floats.widen(result, dtype)
            same = (values == values.flat[0]).all()
            if not (same or (np.isfinite(values).all() and (values == np.rint(values)).all())):
                return None
    return OperationKind.EXACT


def _place_by_place(call: AskedCall) -> bool:
    """Whether every result depends on the elements at its own place alone; operands broadcast."""
    floating = call.floating()
    varied = floating or list(range(len(call.reads)))
    if len(call.gives) != 1 or not varied:
        return False
    drawn = np.random.default_rng(1)
    before = _with(call.reads, varied, [_other(call, n, drawn) for n in varied])
    (plain,) = call.run(before)
    try:
        if np.broadcast_shapes(*(call.reads[n].shape for n in varied)) != plain.shape:
            return False
    except ValueError:
        return False
    for share in (0.5, 0.5, 0.1, 0.1):
        masks = [drawn.random(call.reads[n].shape) < share for n in varied]
        mixed = [
            np.where(mask, _other(call, n, drawn), before[n])
            for mask, n in zip(masks, varied, strict=True)
        ]
        (result,) = call.run(_with(call.reads, varied, mixed))
        touched = np.zeros(plain.shape, bool)
        for mask in masks:
            touched |= mask
        if (unlike(plain, result) & ~touched).any():
            return False
    return True


def samples_apart(call: AskedCall, carries: Sequence[bool]) -> bool:
    """Whether no sample's results read another sample.

    Samples lie along the first axis of every result, and of the operands that ``carry`` them. The
    others' contents are exchanged, and each sample has to keep its bits.
    """
    count = next(len(x) for x, along in zip(call.reads, carries, strict=True) if along)
    varied = [n for n, along in enumerate(carries) if along]
    drawn = np.random.default_rng(2)
    plain = call.run(call.reads)
    if any(result.shape[:1] != (count,) for result in plain):
        return False
    for sample in range(count):
        kept = np.arange(count) == sample
        for _ in range(DRAWS):
            exchanged = []
            for n in varied:
                mask = kept.reshape(-1, *(1,) * (call.reads[n].ndim - 1))
                exchanged.append(np.where(mask, call.reads[n], _other(call, n, drawn)))
            results = call.run(_with(call.reads, varied, exchanged))
            for before, after in zip(plain, results, strict=True):
                if after.shape != before.shape or unlike(before[sample], after[sample]).any():
                    return False
    return True


def _other(call: AskedCall, number: int, drawn: np.random.Generator) -> np.ndarray:
    """Other content for an operand: the irregular numbers; of integers those that it has."""
    array, dtype = call.reads[number], call.dtypes[number]
    if not array.size:
        return array
    numbers = _numbers(dtype) if is_floating(dtype) else np.unique(array)
    return drawn.choice(numbers, array.shape)


def _with(reads: Arrays, varied: Sequence[int], contents: Arrays) -> list[np.ndarray]:
    changed = list(reads)
    for n, content in zip(varied, contents, strict=True):
        changed[n] = np.ascontiguousarray(content, reads[n].dtype).reshape(reads[n].shape)
    return changed


def unlike(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Which elements of two arrays differ (bool); two NaN are equal, and so are zeros."""
    return (before != after) & ~((before != before) & (after != after))


# Functions that IEEE 754 defines and PyTorch (a sixth of roots one ulp off), TensorFlow (Eigen's
# packets) or LiteRT compute by a way of their own.
NOT_ROUNDED_ONCE = frozenset(("sqrt", "Sqrt", "SQRT", "Reciprocal", "Inv"))


def exact_throughout(function: Callable[[], object]) -> bool:
    """Whether all operations of a function of no arguments are exact.

    But for the sign of zeros, and for subnormal numbers where a library does not give a choice
    among them to all places alike (TensorFlow's ReLU).

    It is run, a few times, and watched. InputError, and what the function itself raises.
    """
    from probe.record.subject import function_recorder  # libraries, where there are some

    exact: list[bool] = []

    def visit(operation: object) -> None:
        exact.append(_is_exact(operation))

    function_recorder(function).record(visit)
    return all(exact)


def _is_exact(operation: object) -> bool:
    """Whether a recorded operation is exact; False where it can't be run alone."""
    reads, gives = operation.reads, operation.gives  # type: ignore[attr-defined]
    if operation.again is None:  # type: ignore[attr-defined]
        return False
    usual = (None, 0, 1)
    attributes = operation.attributes.items()  # type: ignore[attr-defined]
    name = operation.op.rpartition(".")[2]  # type: ignore[attr-defined]
    call = AskedCall(
        name,
        operation.again,  # type: ignore[attr-defined]
        [np.array(seen.array()) for seen in reads],
        [seen.dtype for seen in reads],
        [seen.dtype for seen in gives],
        frozenset(word for word, value in attributes if value not in usual),
        name in NOT_ROUNDED_ONCE,
    )
    return operation_kind(call) in (OperationKind.EXACT, OperationKind.EITHER)

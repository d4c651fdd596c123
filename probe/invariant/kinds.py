"""What is done with an operation, derived from what it computes.

A library's table (``probe.recorders``) says what an operation computes, in the words of
:mod:`probe.semantics`; nothing here knows an operation by its name. What rounds at most once in one
way is exact wherever it stands. A function of the elements at one place may depend on the place in
a vector. Of all else the labels of the results say whether a sample reads another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from probe.semantics import Each, Meaning, Unknown
from probe.semantics.contract import Shapes
from probe.semantics.elementwise import row_of
from probe.semantics.labels import Labels, joint, tag


class OperationKind(Enum):
    """``EITHER``: exact but for the sign of zeros. ``SOME``: neither of the others says enough."""

    EXACT, EITHER, PLACE, SOME = range(4)


def operation_kind(meaning: Meaning) -> OperationKind:
    """Returns what an operation is, by what it computes."""
    if isinstance(meaning, Unknown):
        return OperationKind.SOME
    if meaning.rounds is not None:
        parts = meaning.parts() or (meaning,)
        either = any(row_of(one.word).either for one in parts)
        return OperationKind.EITHER if either else OperationKind.EXACT
    return OperationKind.PLACE if isinstance(meaning, Each) else OperationKind.SOME


def exact_throughout(function: Callable[[], Any]) -> bool:
    """Whether all operations of a function of no arguments are exact.

    But for the sign of zeros, and for subnormal numbers where a library does not give a choice
    among them to all places alike (TensorFlow's ReLU).

    It is run, a few times, and watched. InputError, and what the function itself raises.
    """
    from probe.recording.subject import function_recorder  # libraries, where there are some

    found: list[Any] = []
    function_recorder(function).record(found.append)
    return all(
        operation_kind(one.meaning) in (OperationKind.EXACT, OperationKind.EITHER)
        or (isinstance(one.meaning, Each) and one.meaning.exact_but_subnormal)
        for one in found
    )


def samples_apart(meaning: Meaning, reads: Shapes, gives: Shapes, carries: Sequence[bool]) -> bool:
    """Whether no sample's results read another sample, of a call with two samples.

    They lie along the first axis of every result, and of the operands that ``carry`` them. One
    after the other is labelled as another sample: the results of its neighbour may not notice.
    """
    if isinstance(meaning, Unknown) or any(shape[:1] != (2,) for shape in gives):
        return False

    def answered(changed: int | None) -> list[Labels]:
        given = []
        for number, (shape, along) in enumerate(zip(reads, carries, strict=True)):
            index = np.arange(1, prod(shape) + 1, dtype=np.uint64).reshape(shape)
            labels = joint(tag("operand", number), index)
            if along and changed is not None:
                labels[changed] = joint(labels[changed], tag("another sample"))
            given.append(Labels(tuple(shape), labels))
        return meaning.labels(given, gives, tag("operation"))

    plain = answered(None)
    for changed in range(2):
        for before, after in zip(plain, answered(changed), strict=True):
            beside = before.full([0])[1 - changed], after.full([0])[1 - changed]
            if not (before.known and after.known and np.array_equal(*beside)):
                return False
    return True

"""A recorded run: operations that read and give values; and what a library's recorder has to do.

A recorder runs something and calls ``visit`` with an :class:`Operation` right behind each, in the
order in which they ran. It knows its library alone: which values are the same object, what the
operation is called, and what it computes in the words of :mod:`probe.order.semantics`. It compares
nothing and keeps nothing. To add a library: a file here with a ``Recorder``, and its line in
``RECORDERS`` of ``probe/record/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from probe.case import layout
from probe.order.semantics import Meaning

INPUT, WEIGHT, CONSTANT = "input", "weight", "constant"

# Runs one operation alone.
Isolated = Callable[[Sequence[np.ndarray]], list[np.ndarray]]

# Writes an operation as lines of Python, by the names of what it reads and of its result.
Lines = Callable[[Sequence[str], str], list[str]]


@dataclass(slots=True)
class Seen:
    """A value of a run that is being recorded. It must not be changed; it isn't a frozen dataclass
    because that would triple the time to make one, which matters for small models.

    ``key``: the same for the same value, for as long as the run lasts; a value that was changed in
    place has another key. ``dtype``: NumPy's name, or ``bfloat16``. ``array``: gives its bits as a
    container array (:mod:`probe.case.floats`: bfloat16 as uint16), a copy or a view that is valid
    until the next operation. ``role`` and ``name``: of values that no operation of the run gave.
    ``address``: how many bytes behind a multiple of 64 its memory begins, by which libraries choose
    kernels; None where the recorder can't say.
    """

    key: Hashable
    shape: tuple[int, ...]
    dtype: str
    array: Callable[[], np.ndarray]
    role: str = INPUT
    name: str = ""
    address: int | None = None


# The operation of a value whose memory was written through another one: nothing is computed.
THROUGH_A_VIEW = "changed through a view"


@dataclass(slots=True)
class Operation:
    """An operation of a run. It must not be changed, for a recorder may return the same meaning,
    attributes and functions again in its next run. A ``Call`` of :mod:`probe.order.semantics` is
    the question that a library's table answers, of shapes and known numbers alone; this is what
    ran, with the answer and the values.

    ``op``: the library's word for it (``aten.addmm``, ``Conv2D``, ``dot_general``). ``path``: where
    it is in the model (``encoder.layers.0.linear1``), empty if that isn't known. ``reads``: its
    arrays, in the order in which ``again`` takes them; ``gives``: its results: what a recorder sees
    of them, and in a recording their numbers. ``attributes``: all other arguments, plain enough for
    JSON. ``again``: runs this one operation alone, as it was called, on container arrays in the
    place of what it reads, laid at the recorded addresses, and returns what it gives; None where it
    can't be run alone. Where it has ``moved(addresses)``, that gives the same with operands at
    others. ``lines``: how a user writes it: ``lines(["x", "w"], "y")`` gives lines of Python that
    compute y, a sequence where it gives several; None where there is no such text. ``imports``:
    what they need. ``name``, ``number``: its own in a recording, which gives them.
    """

    op: str
    path: str
    reads: Sequence[Any]
    gives: Sequence[Any]
    meaning: Meaning
    attributes: Mapping[str, Any] = field(default_factory=dict)
    again: Isolated | None = None
    lines: Lines | None = None
    imports: Sequence[str] = ()
    name: str = ""
    number: int = -1


@dataclass(frozen=True)
class AlignedCall:
    """Runs an operation of NumPy's arrays alone: ``run`` on copies that begin at ``addresses``, as
    of ``Seen``."""

    run: Callable[[Sequence[np.ndarray]], list[np.ndarray]]
    addresses: Sequence[int | None]

    def moved(self, addresses: Sequence[int | None]) -> AlignedCall:
        """The same with operands at other addresses."""
        return replace(self, addresses=addresses)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        operands = zip(arrays, self.addresses, strict=True)
        return self.run([layout.copied(np.asarray(array), at or 0) for array, at in operands])


def address_lines(names: Sequence[str], addresses: Sequence[int | None]) -> list[str]:
    """Lines that copy NumPy's arrays to addresses that NumPy itself doesn't choose."""
    return [
        line
        for name, at in zip(names, addresses, strict=True)
        if (at or 0) % 16  # NumPy itself allocates at any multiple of 16
        for line in layout.offset_copy_lines(name, f"{layout.OFFSET}{at}")
    ]


Visit = Callable[[Operation], None]


class Recorder(Protocol):
    """Something that can be run again and again: a function, or a model file with its inputs.

    ``target``: the text of the target on which ``probe`` runs single operations of it, such as
    ``torch,threads=2``. ``note``: how it is watched, where that has to be known, such as "compiled
    functions are one operation"; empty if not.

    It may have ``plain_digests``: of its outputs in an unwatched run, where there was one for
    another purpose, so that none more is needed; and ``take_over(before)``, which takes what an
    earlier recorder of the same model, at the same shapes, has found out.
    """

    target: str
    note: str

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched. Returns its outputs as container arrays."""

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation. Returns its outputs, to be read."""


@dataclass(frozen=True)
class Input:
    """An input of a model file. ``shape``: None for a size that the model leaves open."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


class Opened(Protocol):
    """A model file, or anything else that is run on arrays: its inputs, and recorders of it. A
    library's file has a function ``opened(path, trust)`` that returns one, of a path of an ending
    of ``probe.record.subject.FILES``."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it is run on, in the order of its signature."""

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Recorder:
        """A recorder of the model with these inputs (container arrays, by name)."""


@dataclass(frozen=True)
class OpenedFile:
    """An ``Opened`` whose recorder is made of nothing but arrays."""

    inputs: tuple[Input, ...]
    recorder: Callable[[Mapping[str, np.ndarray]], Any]

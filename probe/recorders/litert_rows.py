"""Operators of LiteRT in a row, run as one model all of whose values are outputs.

To make a model of each operator costs a small network more than to run it. Models wait on disk,
where they take no memory, and an interpreter lives only while its operators run; small ones stay.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe.recorders.litert_file import File

KEPT = 1 << 22
"""Bytes of inputs, outputs and constants of the operators whose interpreters stay for the next
run."""

LEAST = 1 << 20
"""Bytes of values up to which operators stay together, however little is alive at once."""


@dataclass
class Row:
    """Operators in a row: the numbers of what they read from before, and of all that they give.

    ``path``: the file of their model; ``made``: its interpreter, if that stays; ``size``: bytes of
    all that they work on.
    """

    fed: list[int]
    gives: list[int]
    path: Path
    size: int
    made: Any = None


class Rows:
    """The operators of a model with its inputs, row by row.

    ``alone``: the numbers of operators that no row has; ``shapes``: of all values; ``most``: bytes
    of values that are alive at once; ``start``: makes an interpreter of a file.
    """

    def __init__(
        self,
        file: File,
        operators: Sequence[Any],
        alone: set[int],
        shapes: Mapping[int, tuple[int, ...]],
        most: int,
        start: Callable[[Path], Any],
    ) -> None:
        self.file, self.operators, self.shapes, self.start = file, operators, dict(shapes), start
        self.folder = Path(tempfile.mkdtemp(prefix="probe"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.members = {numbers[0]: numbers for numbers in self._cut(alone, most)}
        self.inside = {n for numbers in self.members.values() for n in numbers}
        self.rows: dict[int, Row] = {}
        self.size = 0

    def _cut(self, alone: set[int], most: int) -> list[list[int]]:
        """The operators of each row: together they give a quarter of what is alive at once."""
        found: list[list[int]] = []
        size, last = 0, -2
        for number, operator in enumerate(self.operators):
            if number in alone:
                continue
            given = sum(self._bytes(n) for n in self.file.gives(operator))
            if last != number - 1 or size + given > max(LEAST, most // 4):
                found.append([])
                size = 0
            found[-1].append(number)
            size, last = size + given, number
        return found

    def _bytes(self, number: int) -> int:
        return (
            int(np.prod(self.shapes[number], dtype=int))
            * np.dtype(self.file.dtype(number)).itemsize
        )

    def computed(self, number: int, values: dict[int, np.ndarray]) -> bool:
        """Whether an operator is in a row; the first of each runs them all, and adds to values."""
        if number in self.members:
            row = self.rows.get(number)
            if row is None:
                row = self.rows[number] = self._made(number, values)
            made = self.start(row.path) if row.made is None else row.made
            if row.made is None and self.size + row.size <= KEPT:
                row.made = made
                self.size += row.size
            found = invoked(made, [values[n] for n in row.fed], row.made is not None)
            values.update(zip(row.gives, found, strict=True))
        return number in self.inside

    def _made(self, number: int, values: Mapping[int, np.ndarray]) -> Row:
        some = [self.operators[n] for n in self.members[number]]
        gives = [n for one in some for n in self.file.gives(one)]
        reads = dict.fromkeys(n for one in some for n in self.file.reads(one))
        held = [self.file.constants[n].nbytes for n in reads if n in self.file.constants]
        fed = [n for n in reads if n not in gives and n not in self.file.constants]
        shapes = {n: self.shapes[n] for n in gives}
        path = self.folder / f"{number}.tflite"
        piece = self.file.piece(some, {n: values[n].shape for n in fed}, shapes)
        path.write_bytes(piece.content())
        size = sum(held) + sum(values[n].nbytes for n in fed) + sum(map(self._bytes, gives))
        return Row(fed, gives, path, size)


def invoked(made: Any, arrays: Sequence[np.ndarray], again: bool = True) -> list[np.ndarray]:
    """Returns what an interpreter gives of these inputs. ``again``: it will run again; if not, they
    are its own memory, which lives as long as they do."""
    for one, array in zip(made.get_input_details(), arrays, strict=True):
        made.set_tensor(one["index"], array)
    made.invoke()
    gives = [one["index"] for one in made.get_output_details()]
    return [made.get_tensor(n) if again else made.tensor(n)() for n in gives]

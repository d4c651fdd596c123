"""Which elements of its inputs a program does not read, found by running it with others there.

Lines are asked along each axis: from the first one on, from the last one back, each by bisection;
``inside`` asks some between, and all of them where one is found. What is read whole costs two runs
an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from probe.diff.repeated import SEED, Arrays, other_content
from probe.targets import budget

# Runs a program unwatched: what its results are told apart by, None where it raises.
Run = Callable[[Arrays], object]

# Kinds of content of :func:`other_content` that are tried before elements count as not read: random
# numbers, and large ones; what has few numbers may be given its own at random.
FLOATS, OTHERS = (2, 0), (2, 0, 1)

# Lines up to which each is asked where one between the first and the last is not read.
MOST_LINES = 64


class Reader:
    """A program and what it gives on ``arrays``. ``dtypes``: the formats of their numbers."""

    def __init__(self, run: Run, arrays: Arrays, dtypes: Mapping[str, str]) -> None:
        self.run, self.arrays, self.dtypes = run, arrays, dtypes
        self.result = run(arrays)

    def reads(self, name: str, where: np.ndarray) -> bool:
        """Whether other content in these places of an array changes what the program gives."""
        array, dtype = self.arrays[name], self.dtypes[name]
        for number in FLOATS if "float" in dtype else OTHERS:
            if budget.spent():
                return True
            other = other_content(array, dtype, number, SEED + 7 + number)
            changed = np.where(where, other, array).astype(array.dtype)
            if changed.tobytes() == array.tobytes():
                continue
            if self.run({**self.arrays, name: changed}) != self.result:
                return True
        return False

    def unread(self, name: str, inside: bool = False) -> np.ndarray:
        """Returns where an array is not read. ``inside``: also between the first and last line."""
        shape = self.arrays[name].shape
        where = np.zeros(shape, bool)
        for axis, size in enumerate(shape):
            if size < 2:
                continue
            lines = np.zeros(size, bool)

            def read(start: int, stop: int, axis: int = axis) -> bool:
                some = np.zeros(shape, bool)
                some[(slice(None),) * axis + (slice(start, stop),)] = True
                return self.reads(name, some & ~where)

            before = _longest(lambda count: not read(0, count), size)
            after = 0
            if before < size:
                after = _longest(lambda count: not read(size - count, size), size - before)  # noqa: B023
            lines[:before], lines[size - after :] = True, True
            between = range(before, size - after)
            if inside and not (before or after) and size > 3:
                some = {1, size // 2, size - 2}
                if not all(read(n, n + 1) for n in some) and size <= MOST_LINES:
                    lines[[n for n in between if not read(n, n + 1)]] = True
            where[(slice(None),) * axis + (lines,)] = True
            if where.all():
                break
        return where


def rows_read(
    function: Callable[..., object], arrays: Arrays, output: int, element: int
) -> dict[str, np.ndarray]:
    """Returns which rows of each array (the first axis) one element of what a function returns
    depends on, by running it: bool, by name.

    ``output``: which array of those that ``function(*arrays)`` returns, ``element``: flat.
    """

    def run(changed: Arrays) -> object:
        results: Any = function(*changed.values())
        return np.asarray(results[output]).reshape(-1)[element].tobytes()

    reader = Reader(run, arrays, {name: array.dtype.name for name, array in arrays.items()})
    rows = dict[str, np.ndarray]()
    for name, array in arrays.items():
        if not array.ndim:
            rows[name] = np.array(reader.reads(name, np.ones((), bool)))
            continue
        unread = reader.unread(name, inside=True).reshape(len(array), -1)
        rows[name] = ~np.asarray(unread.all(axis=1))
    return rows


def _longest(holds: Callable[[int], bool], size: int) -> int:
    """Returns the largest count up to ``size`` of which something holds, as of all smaller ones."""
    if not holds(1):
        return 0
    least, most = 1, size + 1  # it holds of the first, and not of the second
    step = size
    while most - least > 1:
        if holds(step):
            least = step
        else:
            most = step
        step = (least + most) // 2
    return least

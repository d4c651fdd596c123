"""Two functions: what each reads that the other does not, found by running them, for ``walk``.

Both are run with different numbers in the arrays that they hold (:class:`Captured`). What one side
lacks is what it does not read of an array that both hold, and what surrounds its piece of a longer
array. A step behind a cache reads the end of what the other side reads whole, and holds what stands
before in arrays that only it has.

What a program reads (:class:`Reader`) is found line by line along each axis: from the first one on,
from the last one back, each by bisection; with ``inside`` some between, and all of them where one
is not read. What is read whole costs two runs an axis.

Arrays stand in a function's closure, its defaults, the arguments of ``functools.partial`` and the
globals that it names; in lists, tuples and dictionaries there; in attributes of objects of the
user's own classes; and in functions that stand there, ``jax.jit`` and ``tf.function`` of them too.
No object of a library is looked into: a model keeps its weights. Nothing of the user's is changed,
as functions are built anew around the same code.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from importlib import import_module
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from probe.case import floats, layout
from probe.case.errors import Foreign, ProbeError, foreign
from probe.diff.match import Repetitions, RunningMatch, agreeing_elements
from probe.diff.pairing import near_share
from probe.diff.repeated import (
    SEED,
    Arrays,
    Marks,
    Where,
    aligned,
    independent,
    other_content,
    places_of_piece,
    unheard,
)
from probe.diff.running import InProcess, cached_values, marks_of, record_both
from probe.record.contract import Recorder
from probe.record.recording import Operation, Run
from probe.record.store import array_digest
from probe.record.subject import PACKAGES
from probe.targets import budget

# Largest number of arrays that are searched for the elements a function reads.
MOST_SEARCHED = 16


@dataclass
class FunctionSide:
    """A function with the arrays that it holds."""

    captured: Captured
    recorder: Callable[[Any], Recorder]
    """From the function, built anew by :class:`Captured`, to what watches it."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """Of its arrays, by the names that both sides have for them."""
    pieces: dict[str, dict[str, tuple[slice, ...]]] = field(default_factory=dict)
    """Where its arrays stand in a larger one of the other side, by its and their names: the rows
    of a batch that it runs one by one."""
    shared: Arrays = field(default_factory=dict)
    """The arrays that both sides hold, by common name."""
    results: dict[Any, list[str] | None] = field(default_factory=dict)
    """Digests of what it gave, by those of its arrays."""

    def with_arrays(self, arrays: Arrays) -> Recorder:
        """Watches it with different arrays, by common names."""
        return self.recorder(self.captured.replaced(self._replacements(arrays)))

    def digests(self, arrays: Arrays) -> list[str] | None:
        """What its results are told apart by, run unwatched; None where it raises."""
        key = tuple(array_digest(array) for array in self._replacements(arrays).values())
        if key not in self.results:
            try:
                with unheard():
                    plain = foreign(lambda: self.with_arrays(arrays).plain())
                self.results[key] = [array_digest(array) for array in plain]
            except (Foreign, ProbeError):  # a function may raise what it likes at other numbers
                self.results[key] = None
        return self.results[key]

    def _replacements(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """The side's arrays with the elements replaced in which ``arrays`` differ."""
        replaced = dict[str, np.ndarray]()
        for name, held_names in self.names.items():
            changed, places = arrays[name] != self.shared[name], self.pieces.get(name, {})
            for held_name in held_names:
                bits, at = self.captured.arrays[held_name].bits, places.get(held_name, ())
                replaced[held_name] = np.where(changed[at], arrays[name][at], bits).astype(
                    bits.dtype
                )
        return replaced


def by_reading(left: FunctionSide, right: FunctionSide) -> Callable[[Run, Run], RunningMatch]:
    """What finds which elements of two functions' runs must agree."""
    return lambda left_run, right_run: _TwoFunctions((left, right), (left_run, right_run)).match()


class _TwoFunctions:
    """Two functions and their runs. ``arrays``, ``dtypes``: what both hold, or the larger of a
    piece and a whole; ``unequal``: those in which the sides hold different numbers."""

    def __init__(self, sides: tuple[FunctionSide, FunctionSide], runs: tuple[Run, Run]) -> None:
        self.sides, self.runs = sides, runs
        self.arrays, self.dtypes = _shared(*sides)
        self.unequal = set[str]()
        for side in sides:
            side.shared = self.arrays

    def match(self) -> RunningMatch:
        if not self.arrays:
            return RunningMatch.of(*self.runs)
        nothing = RunningMatch(self.runs, Repetitions(record_others=self.again))
        searched = self._searched()
        unequal = {name: self._unequal(name) for name in self.arrays}
        self.unequal = {name for name, where in unequal.items() if where.any()}
        if not (searched or self.unequal) or self._hidden_by_nan():
            return nothing
        readers = [Reader(side.digests, self.arrays, self.dtypes) for side in self.sides]
        for reader, run in zip(readers, self.runs, strict=True):
            if reader.result != list(run.plain):  # the rebuilt function is not the user's
                return nothing
        for inside in (False, True):
            unread = dict(unequal), dict(unequal)
            for name in searched:
                for where, reader in zip(unread, readers, strict=True):
                    where[name] = where[name] | reader.unread(name, inside)
            if any(where.any() for side in unread for where in side.values()):
                return self._matched(unread[0], unread[1])
        return nothing

    def _unequal(self, name: str) -> np.ndarray:
        """Where the two sides hold different numbers in an array of one shape: bool."""
        if any(name in side.pieces for side in self.sides):
            return np.zeros(self.arrays[name].shape, bool)
        left, right = (s.captured.arrays[s.names[name][0]].bits for s in self.sides)
        return np.asarray((left != right) & ~((left != left) & (right != right)))

    def _hidden_by_nan(self) -> bool:
        """Whether one side gives NaN for the other's numbers: no content changes a NaN, so that it
        is not seen what is read."""
        results = zip(*(run.plain_results for run in self.runs), strict=False)
        outputs = zip(*(run.outputs for run in self.runs), strict=False)
        for (left, right), numbers in zip(results, outputs, strict=False):
            dtypes = [run.values[n].dtype for run, n in zip(self.runs, numbers, strict=True)]
            if left is None or right is None or left.shape != right.shape:
                continue
            if any(dtype not in floats.FORMATS for dtype in dtypes):
                continue
            wide = (floats.widen(a, d) for a, d in zip((left, right), dtypes, strict=True))
            nan = [np.isnan(array) for array in wide]
            if (nan[0] != nan[1]).any():
                return True
        return False

    def _searched(self) -> list[str]:
        """The arrays of which it is searched what is read: not those that both sides read in the
        same operations alone, as weights are."""
        left, right = self.runs
        partners = dict(aligned(left.operations, right.operations))
        read_alike, elsewhere = set[Any](), set[Any]()  # keys of values
        for number, op in enumerate(left.operations):
            partner = right.operations[partners[number]] if number in partners else None
            same_call = partner is not None and _is_same_call(left, op, right, partner)
            for place, n in enumerate(op.reads):
                key, same = left.values[n].key, same_call
                if partner is not None and same:
                    same = right.values[partner.reads[place]].key == key
                (read_alike if same else elsewhere).add(key)
        keys = {
            name: (array.shape, self.dtypes[name], array_digest(array))
            for name, array in self.arrays.items()
        }
        searched = [name for name, key in keys.items() if key not in read_alike or key in elsewhere]
        return sorted(searched, key=lambda name: -self.arrays[name].size)[:MOST_SEARCHED]

    def _matched(self, left: Where, right: Where) -> RunningMatch:
        """``left``, ``right``: what each side doesn't read."""
        marks = self._marks(0, right), self._marks(1, left)
        before = _before(right), _before(left)
        match = RunningMatch(self.runs, Repetitions(marks, before, record_others=self.again))
        for side, where in ((0, left), (1, right)):
            behind = self._behind(side, where, match, before)
            if behind is not None:
                return behind
        return match

    def _behind(
        self, side: int, unread: Where, match: RunningMatch, before: tuple[Fraction, Fraction]
    ) -> RunningMatch | None:
        """What must agree if a side has what stands before its part, though it doesn't read it: it
        got it in another way, as from a cache. None: nothing says so.

        ``match``: what must agree if it lacks that.
        """
        first = _first_lines(unread)
        if not any(where.any() for where in first.values()) or _all_paired(match, side):
            return None
        opposite = 1 - side
        later = {name: unread[name] & ~first[name] for name in unread}
        part = {name: ~unread[name] & where.any() for name, where in first.items()}
        sides = Repetitions(match.repetitions.lacking, before, record_others=self.again)
        for name, where in (("lacking", later), ("of_step", part), ("of_history", first)):
            both = list(getattr(sides, name))
            both[opposite] = self._marks(opposite, where)
            setattr(sides, name, (both[0], both[1]))
        cached, unlike = cached_values(self.runs, side)
        sides.unlike_cache = match.repetitions.unlike_cache = unlike
        sides.cached = (cached, ()) if opposite == 0 else ((), cached)
        behind = RunningMatch(self.runs, sides)
        if cached or _all_paired(behind, side, near=True):
            return behind
        return None

    def _marks(self, side: int, where: Where) -> Marks | None:
        """Repeats a side's run with other content in these places; None: there are none."""
        repeater = InProcess(self.sides[side].with_arrays, self.dtypes, self.unequal)
        return marks_of(repeater, self.runs[side], self.arrays, where)

    def again(self) -> tuple[Run, Run] | None:
        """Records both on independent inputs."""
        inputs = independent(self.arrays, self.dtypes)
        return record_both((InProcess(side.with_arrays) for side in self.sides), (inputs, inputs))


def _is_same_call(left: Run, op: Operation, right: Run, partner: Operation) -> bool:
    """Whether two operations have the same arguments; and of the same operands the same results, as
    some recorders don't see by what an array is indexed."""
    ends = (op.reads, partner.reads), (op.gives, partner.gives)
    if repr(op.attributes) != repr(partner.attributes) or any(len(a) != len(b) for a, b in ends):
        return False
    reads, gives = (
        all(left.values[n].key == right.values[m].key for n, m in zip(*both, strict=True))
        for both in ends
    )
    return gives or not reads


def _shared(left: FunctionSide, right: FunctionSide) -> tuple[Arrays, dict[str, str]]:
    """The arrays that both sides hold, or one of them a piece of the other's, and their formats;
    fills in ``names`` and ``pieces`` of both sides."""
    captured = [side.captured.arrays for side in (left, right)]
    keys = [
        {name: (a.bits.shape, a.dtype, array_digest(a.bits)) for name, a in arrays_of_side.items()}
        for arrays_of_side in captured
    ]
    arrays, dtypes = dict[str, np.ndarray](), dict[str, str]()
    for name, key in keys[0].items():
        partners = [partner for partner, its_key in keys[1].items() if its_key == key]
        if partners and not any(name in names for names in left.names.values()):
            left.names[name] = [n for n, its_key in keys[0].items() if its_key == key]
            right.names[name] = partners
            arrays[name], dtypes[name] = captured[0][name].bits, key[1]
    # arrays that begin alike, as a piece and a whole, or that have some numbers in common
    only = [[n for n in keys[s] if keys[s][n] not in keys[1 - s].values()] for s in (0, 1)]
    pieces = list[tuple[str, str, tuple[int, int, int], list[int]]]()
    for name in only[0]:
        pieces_of_name = list[str]()
        for partner in sorted(only[1], key=name.__ne__):
            first, second = captured[0][name], captured[1][partner]
            axes = _differing_axes(first.bits.shape, second.bits.shape)
            if first.dtype != second.dtype or len(axes) > 1 or first.bits.ndim != second.bits.ndim:
                continue
            if not axes and (first.bits == second.bits).any():
                left.names[name], right.names[name] = [name], [partner]
                arrays[name], dtypes[name] = first.bits, first.dtype
                only[1].remove(partner)
                break
            if not axes:
                continue
            if at := [start for (start,) in places_of_piece(first.bits, second.bits, axes[:1])]:
                sizes = axes[0], first.bits.shape[axes[0]], second.bits.shape[axes[0]]
                pieces.append((name, partner, sizes, at))
                if sizes[1] < sizes[2]:  # further arrays may be pieces of the same one
                    break
                pieces_of_name.append(partner)
        only[1] = [partner for partner in only[1] if partner not in pieces_of_name]
    for name, partner, (axis, n, m), at in pieces:
        # a mask may stand in many places: what it belongs to says where
        common = set(at).intersection(
            *(set(places) for *_, sizes, places in pieces if sizes[1:] == (n, m))
        )
        begin = min(common or at)
        piece_on_left = n < m
        small, large = (left, right) if piece_on_left else (right, left)
        piece, whole = (name, partner) if piece_on_left else (partner, name)
        # all pieces of an array have its name
        common_name = next((key for key, held in large.names.items() if held == [whole]), name)
        large.names[common_name] = [whole]
        small.names.setdefault(common_name, []).append(piece)
        where = (slice(None),) * axis + (slice(begin, begin + min(n, m)),)
        small.pieces.setdefault(common_name, {})[piece] = where
        arrays[common_name] = large.captured.arrays[whole].bits
        dtypes[common_name] = captured[0][name].dtype
    return arrays, dtypes


def _differing_axes(left: tuple[int, ...], right: tuple[int, ...]) -> list[int]:
    """The axes along which two shapes differ; none of different numbers of axes."""
    if len(left) != len(right):
        return []
    return [axis for axis, (n, m) in enumerate(zip(left, right, strict=True)) if n != m]


def _first_lines(unread: Where) -> Where:
    """The lines at the beginnings of arrays that are not read, and all of an array of which nothing
    is: a step behind a cache does not read the first state of all."""
    first = {}
    for name, where in unread.items():
        first[name] = np.full(where.shape, where.all())
        for axis, size in enumerate(where.shape):
            count = _leading_lines(where, axis)
            if count < size:
                first[name][(slice(None),) * axis + (slice(count),)] = True
    return first


def _leading_lines(where: np.ndarray, axis: int) -> int:
    """How many lines at the beginning of an axis are all marked."""
    lines = where.all(axis=tuple(k for k in range(where.ndim) if k != axis))
    return where.shape[axis] if lines.all() else int(np.argmin(lines))


def _before(unread: Where) -> Fraction:
    """The largest share of an axis that precedes the first line that is read."""
    shares = [
        Fraction(count, size)
        for where in unread.values()
        for axis, size in enumerate(where.shape)
        if (count := _leading_lines(where, axis)) < size
    ]
    return max(shares, default=Fraction(0))


def _all_paired(match: RunningMatch, side: int, near: bool = False) -> bool:
    """Whether all that a side gives is paired, and ``near`` what it is paired with."""
    values = match.runs[side].values
    for outputs in zip(*(run.outputs for run in match.runs), strict=False):
        pair = match.pair(*outputs)
        if pair.compared != np.prod(values[(pair.left, pair.right)[side]].shape):
            return False
        both = agreeing_elements(pair, match.runs) if near else None
        if near and (both is None or near_share(*both) != 1):
            return False
    return True


# Which elements of its inputs a program does not read

# Runs a program unwatched: what its results are told apart by, None where it raises.
PlainRun = Callable[[Arrays], object]

# Kinds of content of :func:`other_content` that are tried before elements count as not read: random
# numbers, and large ones of either sign, one of which a function that saturates shows; what has few
# numbers may be given its own at random.
CONTENTS = 2, 0, 1

# Lines up to which each is tried where one between the first and the last is not read.
MOST_LINES = 64


class Reader:
    """A program and what it gives on ``arrays``. ``dtypes``: the formats of their numbers."""

    def __init__(self, run: PlainRun, arrays: Arrays, dtypes: Mapping[str, str]) -> None:
        self.run, self.arrays, self.dtypes = run, arrays, dtypes
        self.result = run(arrays)

    def reads(self, name: str, where: np.ndarray) -> bool:
        """Whether different content in these places of an array changes what the program gives."""
        array, dtype = self.arrays[name], self.dtypes[name]
        for number in CONTENTS:
            if budget.spent():
                return True
            content = other_content(array, dtype, number, SEED + 7 + number)
            changed = np.where(where, content, array).astype(array.dtype)
            if changed.tobytes() == array.tobytes():
                continue
            if self.run({**self.arrays, name: changed}) != self.result:
                return True
        return False

    def unread(self, name: str, inside: bool = False) -> np.ndarray:
        """Where an array is not read: bool. ``inside``: also between the first and last line."""
        shape = self.arrays[name].shape
        where = np.zeros(shape, bool)
        for axis, size in enumerate(shape):
            if size < 2:
                continue
            lines = np.zeros(size, bool)

            def read(start: int, stop: int, axis: int = axis) -> bool:
                block = np.zeros(shape, bool)
                block[(slice(None),) * axis + (slice(start, stop),)] = True
                return self.reads(name, block & ~where)

            before = _longest(lambda count: not read(0, count), size)
            after = 0
            if before < size:
                after = _longest(lambda count: not read(size - count, size), size - before)  # noqa: B023
            lines[:before], lines[size - after :] = True, True
            between = range(before, size - after)
            if inside and not (before or after) and size > 3:
                sample = {1, size // 2, size - 2}
                if not all(read(n, n + 1) for n in sample) and size <= MOST_LINES:
                    lines[[n for n in between if not read(n, n + 1)]] = True
            where[(slice(None),) * axis + (lines,)] = True
            if where.all():
                break
        return where


def rows_read(
    function: Callable[..., object], arrays: Arrays, output: int, element: int
) -> dict[str, np.ndarray]:
    """Which rows of each array (the first axis) one element of what a function returns depends on,
    by running it: bool, by name.

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
    """The largest count up to ``size`` of which something holds, as of all smaller ones."""
    if not holds(1):
        return 0
    if holds(size):
        return size
    return 1 + bisect_left(range(2, size), True, key=lambda count: not holds(count))


# The arrays that a function holds, and the same function with different numbers in them

# How many arrays of a function are replaced, and how deep they may stand.
MOST_ARRAYS, DEEPEST = 512, 12

# Code below these folders is a library's, whose globals are no arrays of the user's.
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class CapturedArray:
    """An array of any library."""

    bits: np.ndarray
    """A container array (:mod:`probe.case.floats`)."""
    dtype: str
    """The format of its numbers."""
    like: Callable[[np.ndarray], Any]
    """From bits to an array of the same library and memory layout."""


def captured_array(value: Any) -> CapturedArray | None:
    """None: it is no array, or one whose bits can't be replaced."""
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray or value.dtype.kind not in "biuf":
            return None
        return CapturedArray(value, str(value.dtype), partial(_numpy_like, value))
    packages = (kind.__module__.partition(".")[0] for kind in type(value).__mro__)
    library = next((PACKAGES[package] for package in packages if package in PACKAGES), "")
    if library == "torch":
        torch = sys.modules["torch"]
        plain = type(value) is torch.Tensor and value.layout is torch.strided
        if not plain or value.is_quantized or value.is_meta or value.dtype.is_complex:
            return None
        values = import_module("probe.record.torch_calls")
        like = partial(_torch_like, value)
        return CapturedArray(np.array(values.array(value)), values.dtype(value.dtype), like)
    if library == "tensorflow" and type(value).__name__ == "EagerTensor":
        values = import_module("probe.record.tensorflow_values")
        if value.dtype.is_integer or value.dtype.is_floating or value.dtype.is_bool:
            like = partial(_tensorflow_like, value)
            return CapturedArray(np.array(values.array(value)), value.dtype.name, like)
    if library == "jax":
        jax, programs = sys.modules["jax"], import_module("probe.record.jax_programs")
        if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
            return None
        if programs.is_key(value.dtype) or value.dtype.kind == "c":
            return None
        bits = np.array(programs.bits_in(value))
        return CapturedArray(bits, str(value.dtype), partial(_jax_like, value))
    return None


def _numpy_like(value: np.ndarray, bits: np.ndarray) -> np.ndarray:
    if value.flags.c_contiguous:
        return layout.copied(np.asarray(bits), layout.bytes_behind_boundary(value))
    array = np.empty_like(value)
    array[...] = bits
    return array


def _torch_like(value: Any, bits: np.ndarray) -> Any:
    values = import_module("probe.record.torch_calls")
    tensor = values.lay_like(bits, values.slot_of(value))
    return tensor.requires_grad_() if value.requires_grad else tensor


def _tensorflow_like(value: Any, bits: np.ndarray) -> Any:
    return import_module("probe.record.tensorflow_values").tensor_of(bits, value.dtype)


def _jax_like(value: Any, bits: np.ndarray) -> Any:
    plain = np.ascontiguousarray(bits).reshape(bits.shape).view(value.dtype)
    return sys.modules["jax"].device_put(plain, value.sharding)


class Captured:
    """The arrays that a function, or anything else, holds. ``arrays``: by where they stand."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.arrays = dict[str, CapturedArray]()
        self._names = dict[int, str]()
        for name, part in _leaves(value, "", set()):
            if len(self.arrays) == MOST_ARRAYS:
                break
            if (array := captured_array(part)) is not None and array.bits.size:
                name = name if name not in self.arrays else f"{name}#{len(self.arrays)}"
                self.arrays[name] = array
                self._names[id(part)] = name

    def replaced(self, bits: dict[str, np.ndarray]) -> Any:
        """A copy of the value in which the named arrays hold the given bits."""
        memo = dict[int, Any]()
        for number, name in self._names.items():
            if name in bits:
                memo[number] = self.arrays[name].like(bits[name])
        return _rebuilt(self.value, memo)


def _leaves(value: Any, name: str, met: set[int], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields what stands in a value and holds nothing else that is looked into, each once."""
    if id(value) in met or depth > DEEPEST:
        return
    met.add(id(value))
    children = _children(value)
    if children is None:
        yield name, value
        return
    for key, child in children:
        inner = key if not name or isinstance(value, FunctionType) else f"{name}[{key}]"
        yield from _leaves(child, inner, met, depth + 1)


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """What a value holds, by name; None: it is not looked into."""
    if isinstance(value, FunctionType):
        return [
            *_cells(value),
            *((name, value.__globals__[name]) for name in _globals(value)),
            *((f"default {n}", each) for n, each in enumerate(value.__defaults__ or ())),
            *(value.__kwdefaults__ or {}).items(),
        ]
    if isinstance(value, partial):
        return [("", value.func), *_numbered(value.args), *value.keywords.items()]
    if isinstance(value, MethodType):
        return [("", value.__func__), ("", value.__self__)]
    if isinstance(value, dict):
        return [(str(key), each) for key, each in value.items()]
    if (compiled := _compiled(value)) is not None:
        return [("", compiled[0])]
    if _is_users(value):
        return [*vars(value).items()]
    if isinstance(value, list | tuple):
        return _numbered(value)
    return None


def _compiled(value: Any) -> tuple[Any, Callable[[Any], Any]] | None:
    """The function that a library compiles when it is called, and what compiles another one alike;
    None of all else."""
    kind = type(value)
    if kind.__name__ == "PjitFunction":  # with the options that it has by itself
        return value.__wrapped__, sys.modules["jax"].jit
    if kind.__module__.startswith("tensorflow.") and hasattr(value, "python_function"):
        return value.python_function, value._clone
    return None


def _is_users(value: Any) -> bool:
    """Whether it is an object of a user's own class, which has nothing of a library."""
    kinds = [kind for kind in type(value).__mro__ if kind is not object]
    modules = [sys.modules.get(kind.__module__) for kind in kinds]
    files = [getattr(module, "__file__", None) or "" for module in modules]
    names = {kind.__module__ for kind in kinds}
    installed = any(file.startswith(INSTALLED) for file in files)
    return hasattr(value, "__dict__") and not (installed or names & sys.stdlib_module_names)


def _numbered(values: Any) -> list[tuple[str, Any]]:
    return [(str(n), each) for n, each in enumerate(values)]


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is filled later
            continue


def _globals(function: FunctionType) -> list[str]:
    """The globals that a function names, of those that it has; of a library's none."""
    if function.__code__.co_filename.startswith(INSTALLED):
        return []
    return [
        name for name in dict.fromkeys(_named(function.__code__)) if name in function.__globals__
    ]


def _named(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # functions inside it
            yield from _named(constant)


def _rebuilt(value: Any, memo: dict[int, Any]) -> Any:
    """A value with some parts replaced, by their ids; itself where it holds none of them.

    ``memo``: grows by what is built, so that what stands in two places stays one."""
    if id(value) in memo:
        return memo[id(value)]
    if _children(value) is None or not any(
        id(part) in memo for _, part in _leaves(value, "", set())
    ):
        return value
    if isinstance(value, FunctionType):
        return _function(value, memo)
    if isinstance(value, partial):
        arguments = [_rebuilt(part, memo) for part in value.args]
        keywords = {name: _rebuilt(part, memo) for name, part in value.keywords.items()}
        built: Any = partial(_rebuilt(value.func, memo), *arguments, **keywords)
    elif isinstance(value, MethodType):
        built = MethodType(_rebuilt(value.__func__, memo), _rebuilt(value.__self__, memo))
    elif isinstance(value, dict):
        built = copy(value)
        built |= {name: _rebuilt(part, memo) for name, part in value.items()}
    elif (compiled := _compiled(value)) is not None:
        built = compiled[1](_rebuilt(compiled[0], memo))
    elif _is_users(value):
        built = memo[id(value)] = object.__new__(type(value))  # first, as it may hold itself
        built.__dict__.update((name, _rebuilt(part, memo)) for name, part in vars(value).items())
    else:
        parts = [_rebuilt(part, memo) for part in value]
        if type(value) in (list, tuple):
            built = type(value)(parts)
        else:  # a named tuple
            built = type(value)._make(parts) if hasattr(value, "_make") else value
    memo[id(value)] = built
    return built


def _function(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    cells = [CellType() for _ in function.__closure__ or ()]
    namespace = dict(function.__globals__)
    built = FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, tuple(cells)
    )
    memo[id(function)] = built  # first, as it may call itself
    for name in _globals(function):
        namespace[name] = _rebuilt(namespace[name], memo)
    for cell, before in zip(cells, function.__closure__ or (), strict=True):
        try:
            cell.cell_contents = _rebuilt(before.cell_contents, memo)
        except ValueError:  # it is filled later
            continue
    if function.__defaults__ is not None:
        built.__defaults__ = tuple(_rebuilt(part, memo) for part in function.__defaults__)
    if function.__kwdefaults__ is not None:
        keywords = function.__kwdefaults__.items()
        built.__kwdefaults__ = {name: _rebuilt(part, memo) for name, part in keywords}
    built.__dict__.update(function.__dict__)
    built.__qualname__, built.__module__ = function.__qualname__, function.__module__
    return built

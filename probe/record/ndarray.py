"""Plain NumPy functions, watched by NumPy's protocol: arrays report what is done with them.

The function takes its arrays as arguments. It also stands in for any library where none is
installed: :func:`operation` makes one operation of any Python function, with a meaning. A row of
the table takes a call, and its arguments as NumPy's function does: arrays among them are operands,
a row's own signature is the schema, and what it doesn't take is not described.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from probe.case import layout
from probe.case.errors import Foreign, foreign
from probe.order import semantics as s
from probe.order.semantics import Call, Meaning, Operand
from probe.record.contract import (
    CONSTANT,
    INPUT,
    WEIGHT,
    AlignedCall,
    Operation,
    Seen,
    Visit,
    address_lines,
)
from probe.record.inputs import arrays_restored
from probe.record.subject import Beside, Text, Unseen, nested_leaves

# What NumPy's functions compute, by name; ``getitem`` and ``setitem`` are ``a[...]``.
TABLE = s.OperationTable()


class ArrayRecorder:
    """A function of arrays: ``inputs`` as they are given, ``weights`` by name."""

    target, note = "numpy", ""
    plain_digests: list[str] | None = None
    beside: Beside | None = None

    def __init__(self, function: Callable[..., Any], *inputs: Any, **weights: Any) -> None:
        self.function = function
        self.inputs = [np.asarray(array) for array in inputs]
        self.weights = {name: np.asarray(array) for name, array in weights.items()}

    def plain(self) -> list[np.ndarray]:
        with arrays_restored([*self.inputs, *self.weights.values()]):
            outputs = _several(self.function(*self.inputs, **self.weights))
            return [np.array(_native(output)) for output in outputs]

    def take_over(self, before: ArrayRecorder) -> None:
        """The function returns the same beside its arrays as in an earlier recorder."""
        self.beside = before.beside

    def record(self, visit: Visit) -> list[Seen]:
        """As of ``Recorder``. Unseen: outputs do not come from NumPy's calls."""
        run = _ArrayRun(visit)
        inputs = [run.watched(array, INPUT, f"x{n}") for n, array in enumerate(self.inputs)]
        weights = {name: run.watched(array, WEIGHT, name) for name, array in self.weights.items()}
        outputs = list[Seen]()
        arrays = [*self.inputs, *self.weights.values()]
        with arrays_restored(arrays), suppress(Foreign):  # another library takes no watched arrays
            result = foreign(partial(self.function, *inputs, **weights))
            outputs = [run.kept(output) for output in _several(result)]
        # an input may be an output as it is, beside what is computed
        watched = run.gave.union(array.key for array in (*inputs, *weights.values()))
        keys = {output.key for output in outputs}
        if keys & run.gave and keys <= watched:
            return outputs
        why = "it returns NumPy arrays that no recorded call of NumPy on its inputs gave"
        todo = (
            "compute from these arrays all the way: np.asarray(), .tolist(), .view(), .sort() and "
            "what is done with arrays of np.empty() or np.zeros() are not seen (use np.sort(x), "
            "np.empty_like(x)); of another library return its own arrays (without .numpy())"
        )
        raise Unseen("function", "ndarray", why, todo)


def _several(result: Any) -> list[Any]:
    return [leaf for leaf in nested_leaves(result) if not isinstance(leaf, Text)]


def _native(value: Any) -> np.ndarray:
    """The same numbers in this processor's order of bytes, which bits are compared in."""
    array = np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def operation(
    name: str, meaning: Callable[..., Meaning] | Meaning
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes one operation of a function of arrays; ``meaning``: itself, or from the arguments."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **words: Any) -> Any:
            run = _run_of((args, words))
            if run is None:
                return function(*args, **words)
            means = meaning(*args, **words) if callable(meaning) else meaning
            return run.operate(name, function, args, words, means)

        return called

    return decorate


# arguments


class _ArgumentHole(int):
    """The place of an array among arguments."""

    def __repr__(self) -> str:
        return f"array {int(self)}"


def _replaced(value: Any, to: Callable[[Any], Any], kind: type = np.ndarray) -> Any:
    """Arguments with what is of a kind replaced."""
    if isinstance(value, kind):
        return to(value)
    if isinstance(value, tuple | list):
        return type(value)(_replaced(item, to, kind) for item in value)
    if isinstance(value, Mapping):
        return {name: _replaced(item, to, kind) for name, item in value.items()}
    return value


def _fill_in(value: Any, arrays: Sequence[Any]) -> Any:
    return _replaced(value, arrays.__getitem__, _ArgumentHole)


def _of_kind(value: Any, kind: type) -> list[Any]:
    """What is of a kind among arguments."""
    leaves: list[Any] = []
    _replaced(value, leaves.append, kind)
    return leaves


def _run_of(value: Any) -> _ArrayRun | None:
    return next((array.run for array in _of_kind(value, WatchedArray)), None)


def _np_lines(
    name: str, function: Any, held: Any, addresses: Sequence[int | None]
) -> Callable[[Sequence[str], str], list[str]] | None:
    # some functions of ``np.linalg`` have the names of others, and ``np.fft`` is a module
    module = str(getattr(function, "__module__", ""))
    room = {"numpy.linalg": np.linalg, "numpy.fft": np.fft}.get(module, np)
    if not callable(getattr(room, name, None)):
        return None
    called = f"{room.__name__.replace('numpy', 'np')}.{name}"

    def written(value: Any, names: Sequence[str]) -> str:
        if isinstance(value, _ArgumentHole):
            return names[value]
        if isinstance(value, tuple | list) and _of_kind(value, _ArgumentHole):
            return f"[{', '.join(written(item, names) for item in value)}]"
        return f"np.{value.__name__}" if isinstance(value, type) else repr(value)

    def lines(names: Sequence[str], y: str) -> list[str]:
        arguments = [written(value, names) for value in held[0]]
        arguments += [f"{word}={written(value, names)}" for word, value in held[1].items()]
        return [*address_lines(names, addresses), f"{y} = {called}({', '.join(arguments)})"]

    return lines


# a run


class _ArrayRun:
    """One recorded run: numbers values, and reports operations."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.count, self.gave = visit, 0, set[Any]()

    def kept(self, value: Any) -> Seen:
        """An output as it is now; later its memory may hold something else."""
        output, bits = self.seen(value), np.array(value)
        output.array = lambda: bits
        return output

    def watched(self, array: np.ndarray, role: str = INPUT, name: str = "") -> WatchedArray:
        """An array that reports what is done with it."""
        self.count += 1
        watched = np.asarray(array).view(WatchedArray)
        watched.run, watched.key, watched.role, watched.name = self, self.count, role, name
        return watched

    def seen(self, value: Any) -> Seen:
        """A value as the contract has it; numbers by their content."""
        plain = _native(value)
        key = getattr(value, "key", None)
        if key is None:
            key = ("content", plain.dtype.str, plain.shape, plain.tobytes())
        role, name = getattr(value, "role", INPUT), getattr(value, "name", "")
        begins = layout.bytes_behind_boundary(value) if isinstance(value, np.ndarray) else None
        return Seen(key, plain.shape, plain.dtype.name, lambda: plain, role, name, begins)

    def operate(
        self, name: str, function: Any, args: Any, words: Any, means: Meaning | None = None
    ) -> Any:
        """Runs an operation on plain arrays and reports it. ``means``: None, what the table says of
        it by its name."""
        reads = _of_kind((args, words), np.ndarray)
        numbers = iter(range(len(reads)))
        held = _replaced((args, words), lambda _: _ArgumentHole(next(numbers)))
        seen = [self.seen(array) for array in reads]

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            filled = _fill_in(held, arrays)
            return [np.asarray(result) for result in _several(function(*filled[0], **filled[1]))]

        addresses = [value.address for value in seen]
        plain = _fill_in(held, [np.asarray(array) for array in reads])
        result = function(*plain[0], **plain[1])
        gives = [self.watched(array) for array in _several(result)]
        again, results = AlignedCall(run, addresses), [self.seen(array) for array in gives]
        self.gave.update(value.key for value in results)
        if means is None:
            operands = [
                Operand(at, value.shape, value.dtype, value.array) for at, value in enumerate(seen)
            ]
            shapes, dtypes = [value.shape for value in results], [value.dtype for value in results]
            call = Call(name, {}, operands, shapes, dtypes)
            means = meaning(call, *_fill_in(held, operands))
        # where an array stands among arguments is told by the others, but not of one with a name
        numbered = {n: a for n, a in enumerate(held[0]) if not _of_kind(a, _ArgumentHole)}
        attributes = {f"argument{n}": repr(a) for n, a in numbered.items()}
        attributes |= {word: repr(a) for word, a in held[1].items()}
        ends = name, "", seen, results
        lines = _np_lines(name, function, held, addresses)
        self.visit(Operation(*ends, means, attributes, again, lines, ("import numpy as np",)))
        return gives if isinstance(result, tuple | list) else gives[0]

    def write_into(
        self, target: Any, name: str, function: Any, args: Any, words: Any
    ) -> WatchedArray:
        """Runs an operation whose result is written into an array, which is returned: as of
        ``x += y`` and ``out=x``."""
        if not isinstance(target, WatchedArray):
            _refuse_change()
        new = self.operate(name, function, args, words)
        np.asarray(target)[...] = np.asarray(new)
        target.run, target.key, target.role, target.name = self, new.key, INPUT, ""
        return target


# Functions that ask an array for its shape and format alone.
MADE = ("empty_like", "zeros_like", "ones_like", "full_like")

# Functions that ask about arrays and compute none.
QUERIES = "ndim shape size result_type can_cast array_equal array_repr array_str".split()


class WatchedArray(np.ndarray):
    """An array of a recorded run."""

    run: _ArrayRun
    key: Any
    role: str
    name: str

    def __array_finalize__(self, parent: Any) -> None:
        """A view that NumPy makes by itself is a value of its own, by content."""

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **words: Any) -> Any:
        run = _run_of((args, words))
        assert run is not None
        out = words.pop("out", (None,))
        if len(out) > 1 or method == "at":
            _refuse_change()
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        if out[0] is None:
            return run.operate(name, function, args, words)
        return run.write_into(out[0], name, _writing(function, out[0]), args, words)

    def __array_function__(self, func: Any, types: Any, args: Any, words: Any) -> Any:
        run, name = _run_of((args, words)), func.__name__
        assert run is not None
        if name in QUERIES or name in MADE:
            result = func(*_replaced(args, np.asarray), **_replaced(words, np.asarray))
            if name == "empty_like":  # whatever memory holds is no number of the function's
                result.fill(0)
            return run.watched(result, CONSTANT) if name in MADE else result
        out = words.pop("out", None)
        if out is None:
            return run.operate(name, func, args, words)
        return run.write_into(out, name, _writing(func, out), args, words)

    def __getitem__(self, key: Any) -> Any:
        if not hasattr(self, "run"):
            return np.asarray(self)[key]
        return self.run.operate(
            "getitem", lambda array, index: np.array(array[index]), (self, key), {}
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        values = value if isinstance(value, np.ndarray) else np.asarray(value, self.dtype)
        self.run.write_into(self, "setitem", partial(_set, key=key), (self, values), {})

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        means = s.cast(np.dtype(self.dtype).name, np.dtype(dtype).name)
        return self.run.operate("cast", lambda array: array.astype(dtype), (self,), {}, means)


def _set(array: np.ndarray, values: np.ndarray, key: Any) -> np.ndarray:
    changed = np.array(array)
    changed[key] = values
    return changed


class NotRecorded(Exception):
    """An array is changed in a way that isn't recorded: its function is compared as a whole."""


def _refuse_change(*_: Any, **__: Any) -> Any:
    raise NotRecorded("sort, fill and the like, and results written into plain arrays")


def _writing(function: Any, out: np.ndarray) -> Callable[..., np.ndarray]:
    """What writes into ``out`` as a function that returns its result: in an array that
    lies like it, as a library may add differently where its result lies otherwise."""
    like = np.asarray(out)
    shape, dtype, order = like.shape, like.dtype, "F" if like.flags.fnc else "C"

    def written(*args: Any, **words: Any) -> np.ndarray:
        result = np.empty(shape, dtype, order)  # type: ignore[call-overload]
        function(*args, out=result, **words)
        return result  # type: ignore[no-any-return]

    return written


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def called(self: WatchedArray, *args: Any, **words: Any) -> Any:
        if not hasattr(self, "run"):
            return getattr(np.asarray(self), name)(*args, **words)
        if name in ("reshape", "transpose") and len(args) > 1:
            args = (args,)
        if name == "copy" and not args:  # the method turns a transposed array, the function doesn't
            words = {"order": "C", **words}
        return function(self, *args, **words)

    return called


for _name in {*dir(np.ndarray)} & {*dir(np)} - {*vars(WatchedArray)}:
    if _name[0] != "_" and callable(getattr(np.ndarray, _name)):
        setattr(WatchedArray, _name, _method(_name))
for _name in ("sort", "partition", "fill", "put"):  # methods that change their array
    setattr(WatchedArray, _name, _refuse_change)
# NumPy has no function of this name, and its own attribute T reports nothing
WatchedArray.flatten = _method("ravel")  # type: ignore[method-assign]
WatchedArray.T = property(lambda self: np.transpose(self))  # type: ignore[assignment, method-assign]


# what NumPy's functions compute

# NumPy's functions of elements, whose names the table of all functions mostly knows.
UFUNCS = {
    ufunc.__name__: s.canonical(ufunc.__name__)
    for ufunc in vars(np).values()
    if isinstance(ufunc, np.ufunc) and ufunc.nout == 1 and ufunc.signature is None
}

REDUCTIONS = s.word_list("sum mean var:variance std:deviation prod")


@TABLE.row([*UFUNCS])
def _np_function(c: Call, *args: Any, **_: Any) -> Meaning:
    """A function of elements, with the numbers that stand beside its arrays."""
    each = s.function(UFUNCS[c.op])
    numbers = [(n, arg) for n, arg in enumerate(args) if not isinstance(arg, Operand)]
    if not numbers or any(isinstance(number, tuple | list) for _, number in numbers):
        return each
    return replace(each, numbers=tuple((n, repr(value)) for n, value in numbers))


@TABLE.row([*REDUCTIONS])
def _np_reduce(
    c: Call, a: Operand, axis: Any = None, *, keepdims: bool = False, **words: Any
) -> Meaning:
    rank, word = len(a.shape), REDUCTIONS[c.op]
    if set(words) - {"dtype", "ddof", "correction"}:
        return s.Unknown(f"{word} with {', '.join(words)}")
    axes = range(rank) if axis is None else (axis if isinstance(axis, tuple | list) else (axis,))
    return s.reduced(word, (k % rank for k in axes))


@TABLE.row("dot")
def _dot(c: Call, a: Any, b: Any) -> Meaning:
    if 0 in (ranks := (c.rank(0), c.rank(1))):
        return s.function("multiply")
    return s.matmul(ranks) if ranks[1] <= 2 else s.Unknown("dot of more than two axes")


@TABLE.row(["transpose", "swapaxes", "moveaxis", "rollaxis"])
def _np_turn(c: Call, a: Operand, *args: Any, **words: Any) -> Meaning:
    # of an array whose sizes count axes NumPy itself says the order
    counted = np.broadcast_to(np.int8(0), range(2, len(a.shape) + 2))
    return s.transpose([size - 2 for size in getattr(np, c.op)(counted, *args, **words).shape])


@TABLE.row("pad")
def _np_pad(c: Call, array: Any, pad_width: Any, mode: Any = "constant", **words: Any) -> Meaning:
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap") or "reflect_type" in words:
        return s.Unknown(f"a pad that computes, {mode}")
    return s.Moves()


Row = Callable[..., Meaning]

TABLE |= {
    "matmul": lambda c, x1, x2, **_: s.matmul((c.rank(0), c.rank(1))),
    "einsum": lambda c, equation, *_, **__: s.einsum(equation),
    "copy": lambda c, *_, **__: s.Same(),
    "clip": lambda c, *_, **__: s.function("clip"),
    **dict.fromkeys("reshape squeeze expand_dims ravel".split(), lambda c, *_, **__: s.Reshapes()),
    **dict.fromkeys("max amax min amin".split(), lambda c, *_, **__: s.Moves()),
}


def meaning(c: Call, args: Sequence[Any], words: dict[str, Any]) -> Meaning:
    """What a call computes; unknown where its row takes no such arguments."""
    row = TABLE.get(c.op)
    if row is None:
        return s.moved(c.op) or s.Unknown(f"{c.op} is not described in probe")
    try:
        return row(c, *args, **words)
    except (TypeError, ValueError, IndexError) as error:
        return s.Unknown(f"it is called in a way that is not described in probe ({error})")

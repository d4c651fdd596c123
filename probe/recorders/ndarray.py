"""Plain NumPy functions, watched by NumPy's protocol: arrays report what is done with them.

The function takes its arrays as arguments. It also stands in for any library where none is
installed: :func:`operation` makes one operation of any Python function, with a meaning.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from probe import layout
from probe.errors import InputError
from probe.recorders.ndarray_table import meaning
from probe.recording.contract import CONSTANT, INPUT, WEIGHT, Event, Laid, Seen, Visit, laid
from probe.recording.inputs import restored
from probe.semantics import Meaning, operations
from probe.semantics.call import Call, Operand


class Recorder:
    """A function of arrays: ``inputs`` as they are given, ``weights`` by name."""

    target, note = "numpy", ""

    def __init__(self, function: Callable[..., Any], *inputs: Any, **weights: Any) -> None:
        self.function = function
        self.inputs = [np.asarray(one) for one in inputs]
        self.weights = {name: np.asarray(one) for name, one in weights.items()}

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        with restored([*self.inputs, *self.weights.values()]):
            found = _several(self.function(*self.inputs, **self.weights))
            return [np.array(one) for one in found]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation."""
        run = _Run(visit)
        inputs = [run.watched(one, INPUT, f"x{n}") for n, one in enumerate(self.inputs)]
        weights = {name: run.watched(one, WEIGHT, name) for name, one in self.weights.items()}
        with restored([*self.inputs, *self.weights.values()]):
            found = self.function(*inputs, **weights)
            return [run.kept(one) for one in _several(found)]


def _several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


_local = threading.local()


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Names a part of the function: the path of its operations."""
    before = getattr(_local, "path", "")
    _local.path = f"{before}.{name}" if before else name
    try:
        yield
    finally:
        _local.path = before


def operation(
    name: str, meaning: Callable[..., Meaning] | Meaning
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes one operation of a function of arrays; ``meaning``: itself, or from the arguments."""

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **words: Any) -> Any:
            run = _run_of((args, words))
            if run is None:
                return function(*args, **words)
            means = meaning(*args, **words) if callable(meaning) else meaning
            return run.done(name, function, args, words, means)

        return called

    return made


class _Run:
    """One recorded run: numbers values, and reports operations."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.count = visit, 0
        self.written: dict[int, tuple[np.ndarray, Any]] = {}
        """Arrays of the user's own that an operation wrote into, by id, with the value's key."""

    def kept(self, value: Any) -> Seen:
        """Returns an output as it is now; later its memory may hold something else."""
        found, bits = self.seen(value), np.array(value)
        found.array = lambda: bits
        return found

    def watched(self, array: np.ndarray, role: str = INPUT, name: str = "") -> Watched:
        """Returns an array that reports what is done with it."""
        self.count += 1
        found = np.asarray(array).view(Watched)
        found.run, found.key, found.role, found.name = self, self.count, role, name
        return found

    def seen(self, value: Any) -> Seen:
        """Returns a value as the contract has it; numbers by their content."""
        plain = np.asarray(value)
        key = getattr(value, "key", None)
        if key is None and (known := self.written.get(id(value))) is not None:
            key = known[1]
        if key is None:
            key = ("content", plain.dtype.str, plain.shape, plain.tobytes())
        return Seen(
            *(key, plain.shape, plain.dtype.name, lambda: plain),
            *(getattr(value, "role", INPUT), getattr(value, "name", "")),
            layout.behind(value) if isinstance(value, np.ndarray) else None,
        )

    def done(
        self, name: str, function: Any, args: Any, words: Any, means: Meaning | None = None
    ) -> Any:
        """Runs an operation on plain arrays and reports it. ``means``: None, what the table says of
        it by its name."""
        reads: list[Any] = []

        def put(one: Any) -> _Hole:
            reads.append(one)
            return _Hole(len(reads) - 1)

        held = _replaced((args, words), put)
        seen = [self.seen(one) for one in reads]

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            filled = _filled(held, arrays)
            return [np.asarray(one) for one in _several(function(*filled[0], **filled[1]))]

        addresses = [one.address for one in seen]
        plain = _filled(held, [np.asarray(one) for one in reads])
        found = function(*plain[0], **plain[1])
        gives = [self.watched(one) for one in _several(found)]
        again, results = Laid(run, addresses), [self.seen(one) for one in gives]
        if means is None:
            operands = [_operand(at, one) for at, one in enumerate(seen)]
            shapes, dtypes = [one.shape for one in results], [one.dtype for one in results]
            call = Call(name, {}, operands, shapes, dtypes, run=again)
            means = meaning(call, *_filled(held, operands))
        self.visit(
            Event(
                *(name, getattr(_local, "path", ""), seen, results),
                *(means, _attributes(held), again, _lines(name, held, addresses)),
                ("import numpy as np",),
            )
        )
        return gives if isinstance(found, tuple | list) else gives[0]

    def into(
        self, target: np.ndarray, name: str, function: Any, args: Any, words: Any
    ) -> np.ndarray:
        """Runs an operation whose result is written into an array, which is returned: as of
        ``x += y`` and ``out=x``."""
        new = self.done(name, function, args, words)
        np.asarray(target)[...] = np.asarray(new)
        if isinstance(target, Watched):
            target.run, target.key, target.role, target.name = self, new.key, INPUT, ""
        else:  # what is done with this array alone is not seen, but it is known where it is read
            self.written[id(target)] = target, new.key
        return target


class _Hole:
    """The place of an array among arguments."""

    def __init__(self, number: int) -> None:
        self.number = number


def _replaced(value: Any, put: Callable[[Any], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return put(value)
    if isinstance(value, tuple | list):
        return type(value)(_replaced(one, put) for one in value)
    if isinstance(value, Mapping):
        return {name: _replaced(one, put) for name, one in value.items()}
    return value


def _filled(value: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(value, _Hole):
        return arrays[value.number]
    if isinstance(value, tuple | list):
        return type(value)(_filled(one, arrays) for one in value)
    if isinstance(value, Mapping):
        return {name: _filled(one, arrays) for name, one in value.items()}
    return value


def _operand(at: int, one: Seen) -> Operand:
    settled = "float" not in one.dtype and "complex" not in one.dtype
    return Operand(at, one.shape, one.dtype, one.array if settled else None)


def _attributes(held: Any) -> dict[str, Any]:
    args, words = held
    found = {f"argument{n}": repr(one) for n, one in enumerate(args) if not _holes(one)}
    return found | {name: repr(one) for name, one in words.items() if not _holes(one)}


def _holes(value: Any) -> bool:
    return isinstance(value, _Hole) or (isinstance(value, tuple | list) and any(map(_holes, value)))


def _lines(
    name: str, held: Any, addresses: Sequence[int | None]
) -> Callable[[Sequence[str], str], list[str]] | None:
    if not hasattr(np, name):
        return None

    def written(value: Any, names: Sequence[str]) -> str:
        if isinstance(value, _Hole):
            return names[value.number]
        if isinstance(value, tuple | list) and _holes(value):
            return f"[{', '.join(written(one, names) for one in value)}]"
        return f"np.{value.__name__}" if isinstance(value, type) else repr(value)

    def lines(names: Sequence[str], y: str) -> list[str]:
        given = [written(one, names) for one in held[0]]
        given += [f"{word}={written(one, names)}" for word, one in held[1].items()]
        return [*laid(names, addresses), f"{y} = np.{name}({', '.join(given)})"]

    return lines


def _run_of(value: Any) -> _Run | None:
    if isinstance(value, Watched):
        return value.run
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return next((run for run in map(_run_of, value) if run is not None), None)
    return None


class Watched(np.ndarray):
    """An array of a recorded run."""

    run: _Run
    key: Any
    role: str
    name: str

    def __array_finalize__(self, parent: Any) -> None:
        """A view that NumPy makes by itself is a value of its own, by content."""

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **words: Any) -> Any:
        run = _run_of((args, words))
        assert run is not None
        out = words.pop("out", (None,))
        if len(out) > 1:
            why = "several results that are written into existing arrays are not recorded"
            raise InputError("out", ufunc.__name__, why, "leave out out=")
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        if method == "at":  # adds in place: the first array is read and written
            run.into(args[0], name, _changing(function), args, words)
            return None
        if out[0] is None:
            return run.done(name, function, args, words)
        return run.into(out[0], name, _written(function, out[0]), args, words)

    def __array_function__(self, func: Any, types: Any, args: Any, words: Any) -> Any:
        run, name = _run_of((args, words)), func.__name__
        assert run is not None
        if name in QUERIES:
            return func(*_replaced(args, np.asarray), **_replaced(words, np.asarray))
        if name in MADE:
            made = func(*_replaced(args, np.asarray), **_replaced(words, np.asarray))
            if name == "empty_like":  # whatever memory holds is no number of the function's
                made.fill(0)
            return run.watched(made, CONSTANT)
        args, out = _arrays(name, args), words.get("out")
        words = {word: one for word, one in words.items() if word != "out"}
        if out is None:
            return run.done(name, func, args, words)
        return run.into(out, name, _written(func, out), args, words)

    def __getitem__(self, key: Any) -> Any:
        if not hasattr(self, "run"):
            return np.asarray(self)[key]

        def taken(array: np.ndarray) -> np.ndarray:
            return np.array(array[key])

        if _run_of((key,) if not isinstance(key, tuple) else key) is not None:
            key = _replaced(key, np.asarray)
        return self.run.done("getitem", taken, (self,), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        def put(array: np.ndarray, given: Any) -> np.ndarray:
            found = np.array(array)
            found[key] = given
            return found

        given = value if isinstance(value, np.ndarray) else np.asarray(value, self.dtype)
        self.run.into(self, "setitem", put, (self, given), {})


def _changing(function: Any) -> Callable[..., np.ndarray]:
    """Returns what changes its first argument as a function that returns a changed copy."""

    def changed(array: np.ndarray, *rest: Any, **words: Any) -> np.ndarray:
        found = np.array(array)
        function(found, *rest, **words)
        return found

    return changed


def _written(function: Any, out: np.ndarray) -> Callable[..., np.ndarray]:
    """Returns what writes into ``out`` as a function that returns its result: in an array that
    lies like it, as a library may add differently where its result lies otherwise."""
    like = np.asarray(out)
    shape, dtype, order = like.shape, like.dtype, "F" if like.flags.fnc else "C"

    def written(*args: Any, **words: Any) -> np.ndarray:
        found = np.empty(shape, dtype, order)  # type: ignore[call-overload]
        function(*args, out=found, **words)
        return found  # type: ignore[no-any-return]

    return written


def _arrays(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns arguments in which numbers and lists that stand for arrays are arrays: then they are
    operands like others, with the type that NumPy would give them."""
    if name == "where" and len(args) == 3:
        dtype = np.result_type(*(one if np.isscalar(one) else np.asarray(one) for one in args[1:]))
        yes, no = (one if _is(one) else np.asarray(one, dtype) for one in args[1:])
        return (args[0] if _is(args[0]) else np.asarray(args[0]), yes, no)
    if name in ("concatenate", "stack") and isinstance(args[0], tuple | list):
        return ([one if _is(one) else np.asarray(one) for one in args[0]], *args[1:])
    return args


def _is(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def called(self: Watched, *args: Any, **words: Any) -> Any:
        if not hasattr(self, "run"):
            return getattr(np.asarray(self), name)(*args, **words)
        if name in ("reshape", "transpose") and len(args) > 1:
            args = (args,)
        return function(self, *args, **words)

    return called


def _in_place(name: str) -> Callable[..., None]:
    def called(self: Watched, *args: Any, **words: Any) -> None:
        changed = _changing(getattr(np.ndarray, name))
        self.run.into(self, name, changed, (self, *args), words)

    return called


for _name in (
    "reshape transpose sum mean max min prod var std argmax argmin cumsum cumprod squeeze swapaxes "
    "dot copy clip round ravel take repeat argsort searchsorted diagonal trace nonzero any all "
    "compress choose conj"
).split():
    setattr(Watched, _name, _method(_name))
for _name in "sort partition fill put".split():
    setattr(Watched, _name, _in_place(_name))
Watched.flatten = _method("ravel")  # type: ignore[method-assign]
Watched.T = property(lambda self: np.transpose(self))  # type: ignore[assignment, method-assign]


def _cast(self: Watched, dtype: Any, **_: Any) -> Any:
    def cast(array: np.ndarray) -> np.ndarray:
        return array.astype(dtype)

    means = operations.cast(np.dtype(self.dtype).name, np.dtype(dtype).name)
    return self.run.done("cast", cast, (self,), {}, means)


Watched.astype = _cast  # type: ignore[method-assign, assignment]


MADE = ("empty_like", "zeros_like", "ones_like", "full_like")
"""Functions that ask an array for its shape and format alone."""

QUERIES = (
    "ndim",
    "shape",
    "size",
    "result_type",
    "can_cast",
    "array_equal",
    "array_repr",
    "array_str",
)
"""Functions that ask about arrays and compute none."""


@operation("relu", operations.function("relu"))
def relu(array: np.ndarray) -> np.ndarray:
    """Returns the larger of 0 and each element, as one operation."""
    return np.maximum(array, array.dtype.type(0))


def softmax_meaning(array: Any, axis: int = -1) -> Meaning:
    """What a softmax along an axis computes; what underflows to zero is left out of its sum."""
    return operations.softmax((axis % np.ndim(array),))


@operation("softmax", softmax_meaning)
def softmax(array: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the softmax along an axis, as one operation."""
    with np.errstate(invalid="ignore"):
        raised = np.exp(array - array.max(axis, keepdims=True))
    found: np.ndarray = raised / raised.sum(axis, keepdims=True)
    return found

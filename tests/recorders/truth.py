"""The truth about labels: elements that have the same label must be the same number.

Both sides run in float64, so that no order of additions moves a number by more than ``NEAR``; what
is computed differently moves by far more. All values of both runs share one table from labels to
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from probe.recording.difference import measure_pairs
from probe.recording.recording import Run, record_run
from probe.semantics import Passes, Unknown, Windows
from probe.semantics.labels import ZERO, Labels, tag
from tests.recorders import exact
from tests.recorders.labelled import agreeing, labelled_pair, labels_of, result_labels

NEAR = 1e-9
"""Relative to the larger number, or to 1: a thousand times what float64 sums of this size lose."""


Sides = list[tuple[Run, Any, list[Labels]]]
"""(run, numbers, labels) of either side."""


def drawn(seed: int) -> tuple[np.random.Generator, Callable[..., np.ndarray]]:
    """Returns a generator, and what draws normal numbers of a shape from it, in float32."""
    rng = np.random.default_rng(seed)
    return rng, lambda *shape: rng.standard_normal(shape).astype(np.float32)


def watched(recorder: Any) -> tuple[Run, list[np.ndarray]]:
    """Returns a run and the numbers of all its values."""
    live = record_run(recorder)
    found = live.arrays(set(range(len(live.values))))
    return live, [found[n] for n in range(len(found))]


def both(left: Callable[[], Any], right: Callable[[], Any], near: float = NEAR) -> Sides:
    """Returns both sides of two functions of PyTorch, after checking that labels tell the truth."""
    from probe.recorders.torch import TorchRecorder

    return told(TorchRecorder(left), TorchRecorder(right), near)


class Proof(NamedTuple):
    """What a comparison of two recorders came to, by the library's name of each operation.

    ``known``: those that are described and were run; ``refuted``: whose labels say what isn't so,
    or which are said to be exact and aren't, with an example.
    """

    known: set[str]
    refuted: dict[str, str]


PROOFS: list[Proof] = []
"""Of every call of ``told``: what ``python -m tests.recorders.rows`` counts."""


def told(left: Any, right: Any, near: float = NEAR) -> Sides:
    """Returns both sides of two recorders, after checking that labels tell the truth, and that what
    is said to be exact is."""
    runs = [watched(left), watched(right)]
    labels = labels_of(runs[0][0], runs[1][0])
    sides = [(live, numbers, own) for (live, numbers), own in zip(runs, labels, strict=True)]
    for live, numbers, own in sides:
        for value, array, label in zip(live.values, numbers, own, strict=True):
            assert label.shape == value.shape == array.shape
            assert label.array.ndim == array.ndim
    words, numbers, origin = _table(sides)
    order = np.argsort(words, kind="stable")
    words, numbers, origin = words[order], numbers[order], origin[order]
    same = words[1:] == words[:-1]
    one, two = numbers[1:][same], numbers[:-1][same]
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - two) > near * np.maximum(1, np.maximum(abs(one), abs(two)))
        apart |= np.isnan(one) != np.isnan(two)
    places = (origin[1:][same][apart].tolist(), origin[:-1][same][apart].tolist())
    wrong = sorted({*zip(*places, strict=True)})
    known, refuted = set[str](), dict[str, str]()
    for live, values, own in sides:
        for op in live.operations:
            if all(own[n].known for n in op.gives) and not isinstance(op.meaning, Unknown):
                known.add(op.op)
            if op.gives and exact.wrong(
                op.meaning, [values[n] for n in op.reads], values[op.gives[0]]
            ):
                refuted[op.op] = f"{op.meaning} gives other numbers than NumPy"
            if why := read_after_all(live, op, values, own):
                refuted[op.op] = why
    for a, b in wrong:
        refuted[_op(sides, b)] = f"{_said(sides, a)} / {_said(sides, b)}"
    PROOFS.append(Proof(known, refuted))
    assert not refuted, refuted
    assert not np.abs(numbers[words == ZERO]).any()
    return sides


CONVOLUTION = 1e-4
"""By how much a convolution may change where it reads nothing that is changed: Winograd's computes
a tile of outputs from sums over a tile of inputs."""


# Memory that was never written may hold a signalling NaN: rounding that warns.
@np.errstate(invalid="ignore")
def read_after_all(run: Run, op: Any, values: Sequence[np.ndarray], labels: list[Labels]) -> str:
    """Returns which operand's element an operation reads that it is said not to read: one element
    of each is changed, and the outputs whose labels don't say so must keep their bits."""
    if op.again is None or isinstance(op.meaning, Unknown | Passes) or op.meaning.notices:
        return ""  # of a function whose operations are recorded, its result is passed on
    if op.op.startswith("aten._fft"):
        return ""  # frames of a short Fourier transform share memory
    given = [np.array(values[n]) for n in op.reads]
    full = {n: Labels(labels[n].shape, labels[n].full(), labels[n].known) for n in op.reads}
    before: list[np.ndarray] = []
    for at, number in enumerate(op.reads):
        array = given[at]
        if array.dtype.kind != "f" or array.size < 2 or op.reads.count(number) > 1:
            continue
        if (array == np.rint(array)).all():  # sizes and indices, which the meaning holds
            continue
        place = np.unravel_index(array.size * 2 // 3, array.shape)
        marked = full[number].array.copy()
        marked[place] = tag("changed")
        told = full | {number: full[number]._replace(array=marked)}
        both = [result_labels(run, op, each) for each in (full, told)]
        stays = [one.full() == two.full() for one, two in zip(*both, strict=True)]
        if not any(one.any() for one in stays):
            continue
        other = array.copy()
        other[place] += 1
        try:
            before = before or [np.array(one) for one in op.again([one.copy() for one in given])]
            after = op.again([other if n == at else one.copy() for n, one in enumerate(given)])
        except Exception:  # a library's own: of an operation that doesn't run on such copies
            return ""
        for one, two, same in zip(before, after, stays, strict=True):
            two = np.asarray(two)
            if one.shape != two.shape:  # factors of a size, of which the meaning holds the result
                continue
            if one.dtype.kind == "f" and isinstance(op.meaning, Windows):
                close = np.abs(one - two) <= CONVOLUTION * np.maximum(1, np.abs(one))
            else:
                close = (one == two) | ((one != one) & (two != two))
            if not close[same.reshape(close.shape)].all():
                return f"operand {at}: an element of {array.shape} is read that isn't said to be"
    return ""


def _table(sides: Sides) -> tuple[np.ndarray, ...]:
    words, values, origin = [], [], []
    for n, (_, numbers, own) in enumerate(sides):
        for k, (array, label) in enumerate(zip(numbers, own, strict=True)):
            if array.dtype.kind not in "fiubc" or not array.size:
                continue
            words.append(label.full().reshape(-1))
            values.append(array.reshape(-1).astype(np.complex128))
            origin.append(np.full(array.size, 10000 * n + k))
    return np.concatenate(words), np.concatenate(values), np.concatenate(origin)


def _op(sides: Sides, place: int) -> str:
    side, number = divmod(place, 10000)
    recording = sides[side][0]
    value = recording.values[number]
    return recording.operations[value.given].op if value.given >= 0 else value.role


def _said(sides: Sides, place: int) -> str:
    side, number = divmod(place, 10000)
    recording = sides[side][0]
    value = recording.values[number]
    op = _op(sides, place)
    return f"{'left right'.split()[side]} value {number} of {op} {value.shape}"


def shares(sides: Sides) -> list[tuple[Any, float, bool]]:
    """Returns of each operation of two runs of the same program: the left's, the share of its
    results that must agree with some of the right's, and whether all of it is understood."""
    found = []
    one, two = (live for live, _, _ in sides)
    for left, right in zip(one.operations, two.operations, strict=True):
        assert left.op == right.op
        agree, count, known = 0.0, 0, True
        for n, m in zip(left.gives, right.gives, strict=True):
            chosen = agreeing(sides[0][2][n], sides[1][2][m])
            agree += chosen.mask(one.values[n].shape, 0).sum()
            count += int(np.prod(one.values[n].shape, dtype=int))
            known &= sides[0][2][n].known and sides[1][2][m].known
        found.append((left, agree / max(count, 1), known))
    return found


def best_shares(
    left: Any, right: Any, near: float, unknown: Iterable[str] = ()
) -> dict[str, float]:
    """Returns the largest of these shares for each name of an operation. All of them have to be
    understood, but for ``unknown`` ones."""
    best: dict[str, float] = {}
    for op, share, known in shares(told(left, right, near)):
        assert known or op.op in unknown, (op.op, op.attributes, op.meaning)
        best[op.op] = max(best.get(op.op, 0), share)
    return best


def reached(recorders: Iterable[Any]) -> set[str]:
    """Returns the names of all operations that run."""
    met = set[str]()
    for recorder in recorders:
        recorder.record(lambda event: met.add(event.op))
    return met


def agreed(sides: Sides, output: int = 0) -> float:
    """Returns the share of the left side's output that must agree with some of the right's."""
    one, two = (live.outputs[output] for live, _, _ in sides)
    chosen = agreeing(sides[0][2][one], sides[1][2][two])
    shape = sides[0][0].values[one].shape
    return float(chosen.mask(shape, 0).mean())


def changed(array: np.ndarray, rows: list[int]) -> np.ndarray:
    """These rows alone, and one element of the first of them changed."""
    other = array[rows].copy()
    place = np.unravel_index(other[0].size // 2, other[0].shape)
    other[0][place] = ~other[0][place] if array.dtype == bool else other[0][place] + 1
    return other


def inputs(
    arrays: Mapping[str, np.ndarray], tensor: Callable[[np.ndarray], Any], rows: Any = None
) -> dict[str, Any]:
    """Returns a library's arrays by name; with ``rows`` they are ``changed``."""
    return {k: tensor(a if rows is None else changed(a, rows)) for k, a in arrays.items()}


def said(run: Run) -> list[Any]:
    """Returns all that a recording says, in plain words."""
    return [
        [(one.shape, one.dtype, one.digest, one.role, one.name) for one in run.values],
        [(o.name, o.op, o.reads, o.gives, repr(o.attributes)) for o in run.operations],
    ]


# each operation alone


Event = tuple[Any, list[np.ndarray], list[np.ndarray]]


def events(recorder: Any) -> list[Event]:
    """Returns every operation of a recorder with the bits that it read and gave."""
    arrays, found = dict[Any, np.ndarray](), list[Event]()

    def noted(one: Any) -> None:
        fresh = [seen for seen in one.reads if seen.key not in arrays]
        arrays.update({seen.key: np.array(seen.array(), order="C") for seen in fresh})
        reads = [arrays[seen.key] for seen in one.reads]
        arrays.update({seen.key: np.array(seen.array(), order="C") for seen in one.gives})
        found.append((one, reads, [arrays[seen.key] for seen in one.gives]))

    recorder.record(noted)
    return found


def bits(arrays: Sequence[Any]) -> list[bytes]:
    return [np.ascontiguousarray(one).tobytes() for one in arrays]


def keeps_what_it_does_not_read(recorder: Callable[..., Any], arrays: dict[str, Any]) -> None:
    """Checks, to the bit, that what is said to agree does where the first or the last element of an
    input is changed. ``recorder``: of a library, of these inputs."""
    first, compared = record_run(recorder(arrays)), 0
    assert not first.note
    for name, array in arrays.items():
        for place in {0, array.size - 1}:
            other = array.copy()
            other.reshape(-1)[place] += np.float32(1.5)
            second = record_run(recorder({**arrays, name: other}))
            labels = labels_of(first, second)
            for one, two in zip(first.operations, second.operations, strict=True):
                for both in zip(one.gives, two.gives, strict=True):
                    pair = labelled_pair((first, second), labels, *both)
                    measure_pairs(first, second, [pair])
                    assert pair.known and pair.equal, (one.op, name, place)
            compared += pair.compared
    assert compared, "no output is ever said to agree"


def recorded_twice(recorder: Any) -> tuple[list[Any], list[np.ndarray]]:
    """Returns operations and outputs of a graph's second recording, where nodes in a row run
    together. Both recordings must give the bits of an unwatched run, without a note."""
    for _ in range(2):
        seen: list[Any] = []
        outputs = [np.array(output.array()) for output in recorder.record(seen.append)]
        assert bits(outputs) == bits(recorder.plain())
    assert not recorder.note
    return seen, outputs


def alone(
    recorder: Any,
    operand: Callable[[np.ndarray, str], Any] = lambda array, dtype: array,
    container: Callable[[Any], Any] = np.asarray,
) -> tuple[list[str], list[str]]:
    """Runs each operation of a recorder alone, and the lines that a user writes: both must give its
    bits. Returns the operations, and those that have lines.

    ``operand``: what lines work on, made of a container array and its dtype; ``container``: the
    array of what they give.
    """
    ran, written = list[str](), list[str]()
    for event, reads, gives in events(recorder):
        assert event.again is not None and bits(event.again(reads)) == bits(gives), event.op
        ran.append(event.op)
        if event.lines is None:
            continue
        names, kinds = [f"v{n}" for n in range(len(reads))], [one.dtype for one in event.reads]
        space = {"np": np, **dict(zip(names, map(operand, reads, kinds), strict=True))}
        lines = event.lines(names, "y")
        exec("\n".join([*event.imports, *lines]), space)
        more = [space[f"y{n}"] for n in range(1, len(gives)) if f"y{n}" in space]
        made = [*space["y"]] if isinstance(space["y"], list | tuple) else [space["y"], *more]
        assert bits([container(one) for one in made]) == bits(gives), lines
        written.append(event.op)
    return ran, written

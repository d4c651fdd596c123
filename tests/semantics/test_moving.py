"""Movement as NumPy has it: said, asked of an operation, and put at places that indices name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from probe import floats
from probe.semantics import Asked, Blends, Map, Mapped, Meaning, Picks, Unknown, Whole, moving
from probe.semantics.contract import Call, NotSettled, Operand
from probe.semantics.labels import Labels, of_content, of_digest
from probe.semantics.moving import asked_move, blended, maps_of
from tests.semantics.formulas import POOL, drawn, one_to_one, result


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_points_are_where_numpy_writes_from_both_ends(depth):
    """Indices of 0, of the last place, and both counted from the end."""
    shape = (3, 4, 2)
    rows = [[0] * depth, [n - 1 for n in shape[:depth]], [-1] * depth, [-n for n in shape[:depth]]]
    for row in rows:
        marked = np.zeros(shape, int)
        marked[tuple(row)] = 1
        found = moving.points(np.array([row], int).reshape(1, 1, depth), shape)
        assert found.shape == (1, 1, *shape[depth:])
        assert found.reshape(-1).tolist() == np.flatnonzero(marked).tolist(), row
    with pytest.raises(ValueError, match="invalid entry"):
        moving.points(np.array([[3]]), (3, 2))


@pytest.mark.parametrize("axis", [0, 1])
def test_along_an_axis_only_its_own_place_is_another(axis):
    index = np.array([[0, -1, 1], [2, -3, 0]])
    shape = (3, 3) if axis == 0 else (2, 3)
    marked, wrapped = np.full(shape, -1), np.where(index < 0, index + 3, index)
    np.put_along_axis(marked, wrapped, moving.flat_places((2, 3)), axis)
    found = moving.places_along(index, axis, shape)
    last = {int(place): int(number) for place, number in zip(found.flat, range(6), strict=True)}
    assert {place: int(marked.flat[place]) for place in last} == last


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("index", [[0], [3], [0, 1], [0, 1, 2], [1, 3], [3, 2], [2, 2], 2])
def test_picked_rows_have_the_labels_that_they_had(axis, index):
    one = of_digest((4, 4), "w")
    shape = np.take(np.empty((4, 4)), index, axis).shape
    found = result(moving.Picks(axis=axis, index=np.array(index)), one, to=shape)
    assert found.shape == shape
    assert np.array_equal(found.full(), one.full().take(index, axis))


def test_rows_in_a_row_are_told_by_where_they_begin():
    """They stay unnamed, so that other sizes can be compared: but not with the first ones."""
    picks = [moving.Picks(index=np.arange(start, start + 2)) for start in (0, 1, 2, 2)]
    found = [result(pick, of_digest((4, 4), "w"), to=(2, 4)).full() for pick in picks]
    assert np.array_equal(found[2], found[3])
    for one_, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.isin(found[one_], found[other]).any()


def test_what_was_never_written_is_like_nothing_and_all_else_keeps_its_labels():
    one, index = of_digest((4,), "w"), np.array([[2, -1], [0, -1]])
    move = moving.Written(lambda array: array[index], index=index)
    first, again = (result(move, one, to=(2, 2)).full().reshape(-1) for _ in range(2))
    assert first[[0, 2]].tolist() == again[[0, 2]].tolist() == one.full()[[2, 0]].tolist()
    assert len({*first[[1, 3]].tolist(), *again[[1, 3]].tolist(), *one.full().tolist()}) == 8


MOVEMENTS: list[tuple[Meaning, Callable[..., Any]]] = [
    (moving.Joins(1), lambda a, b: np.concatenate([a, b], 1)),
    (moving.Joins(-1), lambda a, b: np.concatenate([a, b], -1)),
    (moving.Joins(0, True), lambda a, b: np.stack([a, b])),
    (moving.Joins(-1, True), lambda a, b: np.stack([a, b], -1)),
    (moving.Splits(1, (2, 1)), lambda a, _: np.split(a, [2], 1)),
    (moving.Splits(-1, (1, 3)), lambda a, _: np.split(a, [1], -1)),
    (moving.Splits(1, (1, 1, 1), True), lambda a, _: [a[:, 0], a[:, 1], a[:, 2]]),
    (moving.Pads(((1, 0), (1, 2), (0, 1))), lambda a, _: np.pad(a, [(1, 0), (1, 2), (0, 1)])),
    (moving.Pads(((0, 1), (-1, -1), (2, -3))),
     lambda a, _: np.pad(a, [(0, 1), (0, 0), (2, 0)])[:, 1:-1, :-3]),
    (moving.Pads(((0, -1), (0, 0), (-2, 1))),
     lambda a, _: np.pad(a, [(0, 0), (0, 0), (0, 1)])[:-1, :, 2:]),
    (moving.Turns((2, 0, 1)), lambda a, _: a.transpose(2, 0, 1)),
    (moving.Turns((-2, -1, 0)), lambda a, _: a.transpose(1, 2, 0)),
    (moving.Broadcasts((0, 2, 3)), lambda a, _: np.broadcast_to(a[:, None], (2, 5, 3, 4))),
    (moving.Broadcasts((1, 2, 3)), lambda a, _: np.broadcast_to(a, (3, 2, 3, 4))),
    (moving.Moves(lambda a, b: (np.flip(a), b[:, ::2])), lambda a, b: [np.flip(a), b[:, ::2]]),
    (moving.Moves(lambda a, b: np.pad(b, 1)), lambda _, b: np.pad(b, 1)),
    (moving.Reshapes(), lambda a, _: a.reshape(2, 12)),
    (moving.Reshapes(), lambda a, _: a.reshape(1, 2, 3, 2, 2)),
    (moving.Same(), lambda a, _: a),
    (moving.Passes((1, 0, 1)), lambda a, b: [b, a, b]),
    *((moving.Picks(axis=axis, index=np.array(index)), lambda a, _, x=axis, i=index: a.take(i, x))
      for axis in (0, 1, -1) for index in (1, [0], [1], [0, 1], [1, 0], [[1, 0], [1, 1]])),
]  # fmt: skip


def test_what_is_moved_has_the_labels_of_what_numpy_moves() -> None:
    """By content; and labels that are left out move as those that are written."""
    rng = np.random.default_rng(31)
    given = [drawn(rng, 2, 3, 4) for _ in range(2)]
    numbered = moving.Pads, moving.Turns, moving.Broadcasts, moving.Moves
    for meaning, function in MOVEMENTS:
        for digests in ("", "ab") if type(meaning) in numbered else ("",):
            reads = [of_digest((2, 3, 4), name) for name in digests] or [*map(of_content, given)]
            made = function(*([one.full() for one in reads] if digests else given))
            every = made if isinstance(made, list) else [made]
            found = meaning.labels(reads, [one.shape for one in every], np.uint64(1))
            assert meaning.exact and meaning.rounds == 0
            for one, wanted in zip(found, every, strict=True):
                assert one.shape == wanted.shape and one.known
                array = wanted if digests else of_content(wanted).array
                assert np.array_equal(one.full(), array), meaning
    x, widths = given[0], ((0, 0), (1, 0), (0, 0))
    wanted = of_content(np.pad(x, widths, constant_values=1.5))
    padded = result(moving.Pads(widths, 1.5), x, to=(2, 4, 4))
    assert np.array_equal(padded.full(), wanted.array)


def test_what_is_joined_along_left_out_axes_reads_all_pieces_at_its_place() -> None:
    one, row = (of_digest((n, 3), "one") for n in (2, 1))
    other, longer = (of_digest((2, n), "other") for n in (3, 4))

    def joined(axis: int, *reads: Labels, stacked: bool = False) -> Labels:
        function = np.stack if stacked else np.concatenate
        shape = function([np.empty(one.shape) for one in reads], axis).shape
        return result(moving.Joins(axis, stacked), *reads, to=shape)

    ways = [joined(1, *reads) for reads in ((one, other), (other, one), (one, longer), (one, one))]
    ways += [joined(0, one, other), joined(-1, one._replace(names=(0, 5)), other)]
    every = np.concatenate([way.full().reshape(-1) for way in ways])
    assert len(np.unique(every)) == every.size and all(way.array.size == 1 for way in ways)
    for axis, implicit, reads in (
        *((0, 1, (row, row)), (0, 1, (row, other)), (1, 0, (one, of_digest((2, 1), "other")))),
        (0, 1, (of_digest((0, 3), "x"), row)),
    ):
        way = joined(axis, *reads)
        assert way.implicit(implicit) and not way.implicit(axis)
        assert np.array_equal(way.full(), np.concatenate([one.full() for one in reads], axis))
    pair = joined(2, one, other, stacked=True)
    assert pair.implicit(0) and pair.implicit(1)
    assert np.array_equal(pair.full(), np.stack([one.full(), other.full()], 2))
    unlike = joined(0, row, row._replace(names=(0, 5)))
    assert not unlike.implicit(1) and len(np.unique(unlike.full())) == 6
    assert not joined(0, one, other._replace(known=False)).known


@pytest.mark.parametrize("into", [True, False])
def test_updates_are_put_and_added_where_numpy_does_it(into: bool) -> None:
    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(33)
        for _ in range(30):
            base, updates = drawn(rng, 2, 3), drawn(rng, 2)
            reads = [Operand(int(into), (2,), "float32")]
            reads = [Operand(0, (2, 3), "float32"), *reads] if into else reads
            call = Call("scatter", {}, reads, [(2, 3)], ["float32"] * int(rng.integers(2)))
            slots, given = (int(into), 0 if into else None), [of_content(base), of_content(updates)]
            places = rng.permutation(6)[: rng.integers(4) * 2].reshape(-1, 2)
            wanted = (base if into else base * 0).reshape(-1).copy()
            wanted[places] = np.broadcast_to(updates, places.shape)
            put = result(moving.put_at(call, places, *slots), *given[not into :], to=(2, 3))
            assert np.array_equal(put.full().reshape(-1), of_content(wanted).array)
            twice = moving.put_at(call, np.concatenate([places, places, [[0, 0]]]), *slots)
            assert isinstance(twice, Unknown) and twice.why == moving.SEVERAL
            places = rng.integers(0, 6, (int(rng.integers(1, 4)), 2))
            sums = np.empty(6, object)
            for at, number in enumerate(base.reshape(-1).tolist()):
                terms = np.broadcast_to(updates, places.shape)[places == at].tolist()
                here = sorted(one for one in (*terms, number * into) if one)
                sums[at] = (any(terms), *here) if here else None
            added = moving.put_at(call, places, *slots, adds=True)
            yield result(added, *given[not into :], to=(2, 3)), sums.reshape(2, 3)

    one_to_one(found())


@pytest.mark.parametrize("wraps", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot_has_one_number_at_the_index_and_another_elsewhere(axis: int, wraps: bool) -> None:
    index = np.array([0, 3, -1, -4, 4, -5])
    at = np.where((index < 0) & (index >= -4), index + 4, index) if wraps else index
    hot = np.expand_dims(at, axis) == np.expand_dims(np.arange(4), 1 - axis % 2)
    off, on = (of_content(one) for one in POOL[1:3])
    both = of_content(POOL[1:3])
    for reads, shape, slots in (([off, on], (), (1, 0)), ([both], (2,), (0, None))):
        given = [Operand(n, shape, "float32") for n in range(len(reads))]
        call = Call("one_hot", {}, given, [hot.shape])
        found = result(moving.one_hot(call, index, axis, *slots, wraps), *reads, to=hot.shape)
        assert np.array_equal(found.full(), np.where(hot, on.array, off.array))


SHAPE = (3, 4, 5)

MOVES: dict[str, Callable[[np.ndarray], Any]] = {
    "slice": lambda a: a[:, 1:3, ::-2],
    "flip": lambda a: np.flip(a, 1),
    "roll": lambda a: np.roll(a, 2, 2),
    "pad": lambda a: np.pad(a, ((0, 0), (1, 2), (0, 1))),
    "edge": lambda a: np.pad(a, ((0, 0), (1, 2), (0, 1)), "edge"),
    "take": lambda a: a[:, [3, 0, 3]],
    "diagonal": lambda a: np.diagonal(a, 1, 1, 2),
    "triu": np.triu,
    "transpose": lambda a: a.transpose(2, 0, 1),
    "several": lambda a: np.split(a, [1, 3], 1),
    "nothing": lambda a: a[:, :0],
}

COMPUTES: dict[str, Callable[[np.ndarray], Any]] = {
    "relu": lambda a: np.maximum(a, a.dtype.type(0)),
    "abs": np.abs,
    "clip": lambda a: np.clip(a, a.dtype.type(-2), a.dtype.type(2)),
    "sum": lambda a: a.sum(1),
    "max": lambda a: a.max(1),
    "sort": lambda a: np.sort(a, 1),
    "double": lambda a: a + a,
    "negative": lambda a: -a,
    "compare": lambda a: (a > 0).astype(a.dtype),
}


def several(found: Any) -> list[np.ndarray]:
    return list(found) if isinstance(found, list) else [found]


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "bool", "complex64"]
)
@pytest.mark.parametrize("name", MOVES)
def test_a_movement_is_found_whatever_the_format(name: str, dtype: str) -> None:
    found = maps_of(lambda reads: several(MOVES[name](reads[0])), [None], [SHAPE], [dtype])
    assert found is not None
    place = np.arange(1, 61).reshape(SHAPE)
    for one, wanted in zip(found, several(MOVES[name](place)), strict=True):
        assert np.array_equal(one.source, wanted - 1)
        assert not one.constants.any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("name", COMPUTES)
def test_what_computes_is_refused(name: str, dtype: str) -> None:
    def run(reads: Any) -> list[np.ndarray]:
        return several(COMPUTES[name](reads[0]))

    assert maps_of(run, [None], [SHAPE], [dtype]) is None
    answer = Asked(run, (None,), (SHAPE,), (dtype,)).answer
    assert isinstance(answer, Unknown) and "it computes" in answer.why


@pytest.mark.parametrize("value", [1.5, 3.0, -3.0, np.inf, np.nan, 2.0**70, 0.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_numbers_that_are_put_in_are_told_from_positions(value: float, dtype: str) -> None:
    held = floats.round_to(np.array(value), dtype)
    made = [np.pad(np.zeros((2, 3), held.dtype), 1, constant_values=held[()])]

    def run(reads: Any) -> list[np.ndarray]:
        return [np.pad(reads[0], 1, constant_values=held[()])]

    (found,) = maps_of(run, [None], [(2, 3)], [dtype]) or [None]
    assert found is not None
    assert np.array_equal(found.source[1:-1, 1:-1].reshape(-1), np.arange(6))
    outside = found.source < 0
    assert outside.sum() == 14
    assert np.array_equal(found.constants[outside].tobytes(), made[0][outside].tobytes())


def moved(run: Callable[[np.ndarray], Any], shape: tuple[int, ...]) -> Mapped:
    answer = Asked(lambda reads: several(run(reads[0])), (None,), (shape,), ("float32",)).answer
    assert isinstance(answer, Mapped)
    return answer


def still(run: Callable[[np.ndarray], Any], shape: tuple[int, ...]) -> list[Any]:
    return [axes for _, _, axes in moved(run, shape).own]


def test_a_result_that_has_elements_of_one_operand_alone_knows_its_axes() -> None:
    """What is written into one part of a value leaves the others as they were."""
    both = np.arange(12).reshape(2, 6), np.arange(12, 18).reshape(2, 3)
    maps = tuple(
        Map(source, np.zeros(source.shape, np.float32))
        for source in (both[0][:, 3:], both[1], np.hstack([both[0][:, :1], both[1]]))
    )
    own = Mapped((0, 1), ((2, 6), (2, 3)), maps).own
    assert [used for used, _, _ in own] == [[0], [1], [0, 1]]
    assert [axes for _, _, axes in own] == [
        [(0, 0, 0), (1, 1, 3)],
        [(0, 0, 0), (1, 1, 0)],
        [(0, 0, 0)],
    ]
    assert np.array_equal(own[1][1].source, np.arange(6).reshape(2, 3))


def test_axes_along_which_nothing_moves_are_found() -> None:
    assert still(lambda a: np.flip(a, 1), (3, 4, 5)) == [[(0, 0, 0), (2, 2, 0)]]
    turned = [(2, 0, 0), (0, 1, 0), (1, 2, 0)]
    assert still(lambda a: a.transpose(2, 0, 1), (3, 4, 5)) == [turned]
    assert still(lambda a: a[:, 2], (3, 4, 5)) == [[(0, 0, 0), (2, 1, 0)]]
    assert still(lambda a: a[:2, :, 2:], (3, 4, 5)) == [[(0, 0, 0), (1, 1, 0), (2, 2, 2)]]
    assert still(lambda a: a[:, ::2], (3, 4, 5)) == [[(0, 0, 0), (2, 2, 0)]]
    assert still(lambda a: np.roll(a, 1), (3, 4)) == [[]]
    assert still(lambda a: a[1:], (4,)) == [[(0, 0, 1)]]
    assert still(lambda a: [a, a[2:3], a[::2]], (4,)) == [[(0, 0, 0)], [], []]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("start", [0, 1])
def test_a_part_of_an_axis_has_the_labels_that_picking_it_has(axis: int, start: int) -> None:
    weights = of_digest((3, 4, 5), "weights")
    part = [slice(None)] * 3
    part[axis] = slice(start, start + 2)
    shape = tuple(2 if n == axis else size for n, size in enumerate((3, 4, 5)))
    kept = tuple(n for n in range(3) if n != axis)
    wanted = result(Picks(axis=axis, index=np.arange(start, start + 2)), weights, to=shape)
    cut = itemgetter(tuple(part))
    for way in (moved(cut, (3, 4, 5)), moving.Moves(cut), moving.Moves(cut, kept)):
        assert np.array_equal(result(way, weights, to=shape).full(), wanted.full())
    lengths = start, 2, axis + 1 - start
    sizes = [(*shape[:axis], n, *shape[axis + 1 :]) for n in lengths]
    split = moving.Splits(axis, lengths).labels([weights], sizes, np.uint64(7))[1]
    assert np.array_equal(split.full(), wanted.full()) and split.array.shape == wanted.array.shape


def test_labels_that_are_left_out_stay_so_along_these_and_are_the_same_written_out() -> None:
    short = of_digest((3, 4, 5), "weights")
    assert short.implicit(2)
    full = Labels(short.shape, short.full())
    meaning = moved(lambda a: np.pad(np.flip(a, 1), ((0, 0), (1, 0), (0, 0))), (3, 4, 5))
    one, other = (result(meaning, each, to=(3, 5, 5)) for each in (short, full))
    assert one.implicit(2) and not other.implicit(2)
    assert np.array_equal(one.full(), other.full())
    assert not one.full()[:, 0].any()


def test_elements_of_several_operands_are_told_apart() -> None:
    def run(reads: Any) -> list[np.ndarray]:
        return [np.concatenate([reads[2], reads[0]], 1) * reads[1]]

    answer = Asked(run, (None, np.float32(1), None), ((2, 3), (), (2, 1)), ("float32",) * 3).answer
    arrays = [np.arange(6.0).reshape(2, 3), np.zeros(()), np.full((2, 1), 9.0)]
    wanted = of_content(np.concatenate([arrays[2], arrays[0]], 1))
    assert np.array_equal(result(answer, *arrays, to=(2, 4)).full(), wanted.full())


def _blend(axes: dict[int, np.ndarray]) -> tuple[tuple[int, ...], Callable[[np.ndarray], Any]]:
    """The sizes and the function of a resize by a matrix (outputs, inputs) for each axis."""
    sizes = [2, 3, 4, 5]
    for axis, matrix in axes.items():
        sizes[axis] = matrix.shape[1]

    def run(array: np.ndarray) -> np.ndarray:
        for axis, matrix in axes.items():
            last = np.moveaxis(array, axis, -1) @ matrix.T.astype(array.dtype)
            array = np.moveaxis(last, -1, axis)
        return array

    return tuple(sizes), run


HALVES = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0], [0, 0.25, 0.75]])

LONG = np.eye(7, 20) * 0.75 + np.eye(7, 20, 13) * 0.25

ONE = np.array([[0.25, 2.0**-18, 0.75 - 2.0**-18]])


@pytest.mark.parametrize(
    "axes", [{1: HALVES}, {2: HALVES, 3: LONG}, {0: LONG}, {3: HALVES}, {1: HALVES, 2: ONE}]
)
def test_a_resize_tells_its_weights_along_each_axis(axes: dict[int, np.ndarray]) -> None:
    sizes, run = _blend(axes)
    given = np.random.default_rng(2).normal(size=sizes).astype(np.float32)
    to = run(given).shape
    operand = Operand(0, sizes, "float32")
    call = Call("resize", {}, [operand], [to], ["float32"], run=lambda reads: [run(reads[0])])
    found = blended(call, tuple(axes))
    assert [axis for axis, _, _ in found.taps] == list(axes)
    for (axis, index, weights), wanted in zip(found.taps, axes.values(), strict=True):
        matrix = np.zeros(wanted.shape)
        np.add.at(matrix, (np.arange(len(index))[:, None], index), weights)
        assert np.array_equal(matrix, wanted), axis
        assert index.shape[1] == int((wanted != 0).sum(1).max())
    doubled = Call("resize", {}, [operand], [to], run=lambda reads: [2 * run(reads[0])])
    with pytest.raises(NotSettled, match="its weights do not add up to 1"):
        blended(doubled, tuple(axes))


def _asked_call(size: int, **how: Any) -> Call:
    """A call that moves rows of its first operand by the indices of its third."""
    rows = {"content": lambda: np.array([1, 0, 1])} | how
    reads = [Operand(1, (2, size), "float32"), None, Operand(0, (3,), "int64", rows["content"])]
    run = rows.get("run", lambda reads: [reads[1][reads[0]]])
    return Call("take", {}, [*reads, Operand(-1, (), "int64")], [(3, size)], run=run)


def test_an_operation_is_asked_with_what_its_other_operands_hold(monkeypatch) -> None:
    x = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    for slots in ((), (0,)):
        meaning = asked_move(_asked_call(4), *slots)
        found = result(meaning, np.array([1, 0, 1]), x, to=(3, 4))
        assert np.array_equal(found.full(), of_content(x[[1, 0, 1]]).array)
        assert isinstance(meaning.written([], []), Mapped)
    monkeypatch.setattr(moving, "MOST", 12)
    assert asked_move(_asked_call(4))
    for call, why in (
        (_asked_call(5), "15 elements"),
        (_asked_call(4, content=None), "floating-point numbers decide"),
        (_asked_call(4, run=None), "can't be run alone"),
    ):
        with pytest.raises(NotSettled, match=why):
            asked_move(call)
    broken = asked_move(_asked_call(4, run=lambda _: 1 / 0)).answer  # type: ignore[attr-defined]
    assert isinstance(broken, Unknown) and "ZeroDivisionError" in broken.why


def test_a_resize_that_cannot_be_asked_reads_its_plane() -> None:
    sizes, run = _blend({1: HALVES})
    to = run(np.zeros(sizes)).shape

    def call(dtype: str = "float32", gives: tuple[int, ...] = to) -> Call:
        read = [Operand(0, sizes, dtype)]
        return Call("resize", {}, read, [gives], run=lambda reads: [run(reads[0])])

    assert isinstance(moving.asked_resize(call(), (1,), ()), Blends)
    assert isinstance(moving.asked_resize(call("bfloat16"), (1,), ()), Blends | Whole)
    plane = Whole(((0, 0), (2, 2), (3, 3)), "resize", (1,))
    for one in (call("int32"), call(gives=(to[0] + 1, *to[1:]))):
        assert moving.asked_resize(one, (1,), (1,)) == plane

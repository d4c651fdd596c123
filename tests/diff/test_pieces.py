"""What a piece must have in common with the whole is found by running, without a library."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from probe.case.errors import InputError, Nondeterministic
from probe.diff.pieces import ComparedPiece, Context, InPieces, Layout, Schedule, placed_pieces

X = np.random.default_rng(3).standard_normal((1, 2, 48)).astype(np.float32)


def averaged(x: np.ndarray, before: int, after: int) -> np.ndarray:
    """A window of so many positions before and behind, with zeros around the input."""
    wide = np.pad(x, ((0, 0), (0, 0), (before, after)))
    shifted = (wide[..., n : n + x.shape[-1]] for n in range(before + after + 1))
    return np.sum([part * np.float32(n + 1) for n, part in enumerate(shifted)], axis=0)


def pooled(x: np.ndarray, size: int = 4) -> np.ndarray:
    whole = x[..., : x.shape[-1] // size * size]
    return whole.reshape(*x.shape[:-1], -1, size).max(-1).repeat(size, axis=-1)


def running(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x, axis=-1, dtype=np.float32)


def in_pieces(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray = X) -> InPieces:
    def run(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [function(arrays["x"])]

    return InPieces(run, {"x": x}, [{"x": x.ndim - 1}])


def compared(both: InPieces, text: str) -> tuple[list[ComparedPiece], Context]:
    pieces = Schedule.parse(text).pieces(both.sizes)
    outputs = both.computed(pieces)
    (context,) = both.context(pieces)
    return [both.compared(*each) for each in zip(pieces, outputs, strict=True)], context


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("prefix:8", ["0:8"]),
        ("chunks:20+overlap:3", ["0:20", "20:40", "40:48"]),
        ("stream:24", ["0:24", "24:48"]),
        ("cached:40+2*3", ["0:40", "40:42", "42:44", "44:46"]),
        ("draft:5", ["0:43", "43:48"]),
    ],
)
def test_a_schedule_covers_what_it_says(text: str, kept: list[str]) -> None:
    assert [piece.text for piece in Schedule.parse(text).pieces([48])] == kept


def test_tiles_overlap_along_both_axes_but_not_beyond_the_picture() -> None:
    pieces = Schedule.parse("tiles:8x16+overlap:3").pieces([16, 32])
    assert [piece.text for piece in pieces] == [
        "0:8, 0:16",
        "0:8, 16:32",
        "8:16, 0:16",
        "8:16, 16:32",
    ]
    assert pieces[3].inputs == ((5, 16), (13, 32))


@pytest.mark.parametrize(
    "text", ["", "chunks", "chunks:0", "tiles:8", "cached:50+1*9", "chunks:99"]
)
def test_what_is_no_schedule_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="^at="):
        Schedule.parse(text).pieces([48])


@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (1, 3)])
def test_the_smallest_overlap_on_either_side_is_the_window(before: int, after: int) -> None:
    both = in_pieces(lambda x: averaged(x, before, after))
    enough = max(before, after)
    found, context = compared(both, f"chunks:12+overlap:{enough}")
    assert context == Context(before, after, 1)
    assert not any(piece.window or piece.differing_inside for piece in found)
    if enough:
        found, _ = compared(both, f"chunks:12+overlap:{enough - 1}")
        assert [piece.window for piece in found] and not any(
            piece.differing_inside for piece in found
        )
        assert all(piece.window for piece in found[1:-1])


def test_pieces_begin_on_the_grid_of_a_pool() -> None:
    both = in_pieces(pooled)
    found, context = compared(both, "chunks:12")
    assert context == Context(0, 0, 4) and not any(
        p.window or p.differing_inside or p.lost for p in found
    )
    found, context = compared(both, "chunks:10")
    assert context.grid == 4 and any(piece.window or piece.far for piece in found)


def test_all_that_stands_before_is_no_overlap() -> None:
    found, context = compared(in_pieces(running), "chunks:12+overlap:6")
    assert (context.before, context.after) == (None, 0)
    # what a sum reads is read by all behind it
    assert [piece.window for piece in found] == [0, 24, 24, 24]


def test_what_a_piece_loses_or_gives_twice_is_counted() -> None:
    valid = in_pieces(lambda x: x[..., 2:] + x[..., :-2])
    found, _ = compared(valid, "chunks:12")
    assert [piece.lost for piece in found] == [4, 4, 4, 0]
    longer = in_pieces(lambda x: np.pad(x, ((0, 0), (0, 0), (0, 3))))
    found, _ = compared(longer, "chunks:12")
    assert [piece.doubled for piece in found] == [6, 6, 6, 0]


@pytest.mark.parametrize("step", [Fraction(4), Fraction(1, 3)])
def test_outputs_lie_at_their_own_step(step: Fraction) -> None:
    down, up = step.numerator, step.denominator
    both = in_pieces(lambda x: x[..., ::down].repeat(up, axis=-1))
    assert both.layouts == [[Layout(2, step)]]
    found, _ = compared(both, "chunks:12")
    assert not any(piece.differing_inside or piece.lost or piece.doubled for piece in found)


def test_a_piece_that_begins_between_two_outputs_is_laid_beside_nothing() -> None:
    found, _ = compared(in_pieces(lambda x: x[..., ::4]), "chunks:10")
    assert [piece.between for piece in found] == [False, True, False, True, False]


def test_a_state_that_is_dropped_reads_other_inputs_than_the_whole() -> None:
    for keeps in (True, False):

        def step(
            arrays: Mapping[str, np.ndarray], state: Any, keeps: bool = keeps
        ) -> tuple[list[np.ndarray], Any]:
            start = state if keeps and state is not None else np.float32(0)
            total = running(arrays["x"]) + start
            return [total], total[..., -1:]

        both = InPieces(lambda arrays: step(arrays, None)[0], {"x": X}, [{"x": 2}], step)
        pieces = Schedule.parse("stream:16").pieces(both.sizes)
        outputs = [*both.computed(pieces)]
        apart = both.differing_reads(pieces)
        assert apart is not None
        found = [both.compared(*each) for each in zip(pieces, outputs, apart, strict=True)]
        assert [piece.window for piece in found] == ([0, 0, 0] if keeps else [0, 32, 32])


def test_what_does_not_repeat_or_has_no_such_axis_is_refused() -> None:
    draw = np.random.default_rng(0)
    with pytest.raises(Nondeterministic):
        in_pieces(lambda x: x + np.float32(draw.random()))
    with pytest.raises(InputError, match="no output has more entries"):
        in_pieces(lambda x: x.mean(-1))


def test_outputs_of_functions_lie_where_their_numbers_are() -> None:
    parts = [X[..., :16], X[..., 16:]]
    for given in (parts, parts[::-1]):
        placed = placed_pieces(given, X, "float32")
        assert sorted(p.piece.text for p in placed.pieces) == ["0:16", "16:48"]
        assert not placed.uncovered and not any(p.doubled or p.lost for p in placed.pieces)
    found = placed_pieces([X[..., :18], X[..., 16:40], X[..., 42:]], X, "float32")
    assert [piece.piece.text for piece in found.pieces] == ["0:18", "16:40", "42:48"]
    assert [piece.lost for piece in found.pieces] == [0, 0, 4]
    assert [piece.doubled for piece in found.pieces] == [0, 4, 0]
    assert (found.gaps, found.uncovered) == ([(40, 42)], 4)
    with pytest.raises(InputError):
        placed_pieces([X[0]], X, "float32")


@pytest.mark.parametrize("holes", [(0, 5), (9, 30), (40, 48)])
@pytest.mark.parametrize("form", ["float32", "int32", "nan"])
def test_what_is_in_no_piece_is_counted(holes: tuple[int, int], form: str) -> None:
    whole = (X * 100).astype("int32") if form == "int32" else X.copy()
    whole[0, 0, 3:6] = np.nan if form == "nan" else 0
    start, stop = holes
    parts = [part for part in (whole[..., :start], whole[..., stop:]) if part.size]
    placed = placed_pieces(parts, whole, str(whole.dtype))
    assert (placed.gaps, placed.uncovered) == ([holes], 2 * (stop - start))
    assert not any(each.differences[0].differing or each.far for each in placed.pieces)


def test_a_piece_that_is_longer_than_the_whole_gives_too_much() -> None:
    longer = np.concatenate([X, X[..., :2]], axis=-1)
    assert [piece.doubled for piece in placed_pieces([longer], X, "float32").pieces] == [4]

"""Outputs of one shape that stand at other indices, or read other inputs, are no equal outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe.answers.first_difference import ComparisonQuestion, Walked
from probe.recording import walk
from probe.recording.related import _has_no_gaps
from tests.recording.taped import Taped, normal

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import probe  # noqa: E402

F = torch.nn.functional
DRAW = torch.Generator().manual_seed(11)
PICTURE, ROWS, SQUARE, SMALL = (
    torch.randn(*shape, generator=DRAW) for shape in ((2, 4, 8, 8), (6, 16), (9, 9), (1, 2, 3, 3))
)
KERNEL, DENSE, BACK = (
    torch.randn(*shape, generator=DRAW) for shape in ((4, 4, 3, 3), (24, 16), (16, 24))
)
ORDER = [3, 5, 0, 1, 4, 2]
COLUMNS = [1, 0, *range(2, 9)]


def picture(x: Any) -> Any:
    return F.conv2d(x, KERNEL, padding=1)


def layers(x: Any) -> Any:
    return F.linear(torch.tanh(F.linear(x, DENSE)), BACK)


def around(x: Any, mode: str = "constant") -> Any:
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode=mode), KERNEL)


Pair = tuple[Callable[[], Any], Callable[[], Any]]

MOVED: dict[str, Pair] = {
    "rolled": (lambda: picture(PICTURE).roll(1, -1), lambda: picture(PICTURE).roll(-1, -1)),
    "shuffled channels": (
        lambda: F.channel_shuffle(picture(PICTURE), 2),
        lambda: F.channel_shuffle(picture(PICTURE), 4),
    ),
    "pixels": (
        lambda: F.pixel_shuffle(PICTURE, 2),
        lambda: PICTURE.reshape(2, 2, 2, 1, 8, 8).permute(0, 3, 4, 2, 5, 1).reshape(2, 1, 16, 16),
    ),
    "columns": (lambda: SQUARE @ SQUARE.T, lambda: (SQUARE @ SQUARE.T)[:, COLUMNS]),
    "rows of outputs": (lambda: layers(ROWS)[ORDER], lambda: layers(ROWS)),
    "rows, but otherwise than given": (lambda: layers(ROWS[ORDER])[ORDER], lambda: layers(ROWS)),
    "features of the inputs": (lambda: torch.sin(ROWS.flip(1)), lambda: torch.sin(ROWS)),
    "transposed": (lambda: SQUARE @ SQUARE, lambda: (SQUARE @ SQUARE).T),
}
OTHERWISE: dict[str, Pair] = {
    "average with and without padding": (
        lambda: F.avg_pool2d(PICTURE, 3, 1, 1),
        lambda: F.avg_pool2d(PICTURE, 3, 1, 1, count_include_pad=False),
    ),
    "dilation": (
        lambda: picture(PICTURE),
        lambda: F.conv2d(PICTURE, KERNEL, padding=2, dilation=2),
    ),
}
WINDOW: dict[str, Pair] = {
    "padding": (lambda: around(PICTURE), lambda: around(PICTURE, "reflect")),
    "a mean of more": (lambda: ROWS.mean(1), lambda: F.pad(ROWS, (0, 4)).mean(1)),
    "nearest": (
        lambda: F.interpolate(SMALL, size=2, mode="nearest"),
        lambda: F.interpolate(SMALL, size=2, mode="nearest-exact"),
    ),
}
BOTH: dict[str, Pair] = {
    "crops": (lambda: picture(PICTURE[..., :6]), lambda: picture(PICTURE[..., 2:])),
}
VARIED: dict[str, Pair] = {
    "one row": (lambda: layers(ROWS[:1]), lambda: layers(ROWS)),
    "rows of a batch in another order": (lambda: layers(ROWS[ORDER]), lambda: layers(ROWS)),
    "rows turned round": (lambda: layers(ROWS.flip(0)), lambda: layers(ROWS)),
    "copies": (lambda: layers(ROWS[:1].repeat(6, 1)), lambda: layers(ROWS)),
    "other rows": (lambda: layers(ROWS[:4]), lambda: layers(ROWS[2:])),
    "classes of rows": (lambda: layers(ROWS[ORDER]).argmax(1), lambda: layers(ROWS).argmax(1)),
    "a padded length": (lambda: picture(F.pad(PICTURE[..., :5], (0, 3))), lambda: picture(PICTURE)),
    "two padded lengths": (
        lambda: picture(F.pad(PICTURE[..., :3], (0, 5))),
        lambda: picture(F.pad(PICTURE[..., :6], (0, 2))),
    ),
    "a crop": (lambda: picture(PICTURE[..., :5]), lambda: picture(PICTURE)),
    "moved and back": (
        lambda: layers(ROWS[ORDER])[torch.argsort(torch.tensor(ORDER))],
        lambda: layers(ROWS),
    ),
    "a symmetric product": (lambda: SQUARE @ SQUARE.T, lambda: (SQUARE @ SQUARE.T).T),
}


def compared(pair: Pair, explain: bool = False) -> Any:
    found = probe.first_difference(*pair, explain=explain)
    verdicts = [one.verdict for one in found.found.operations]
    if "carried" in verdicts:
        assert "source" in verdicts[: verdicts.index("carried")], verdicts
    return found


def elsewhere(pair: Pair) -> int:
    """Outputs whose bits differ by index, asked of the library."""
    one, two = (side() for side in pair)
    return int((one != two).sum())


@pytest.mark.parametrize("name", MOVED)
def test_outputs_that_agree_only_at_other_indices_are_moved(name: str) -> None:
    found = compared(MOVED[name])
    told = found.to_json()
    (output,) = told["outputs"]
    assert (found.verdict, found.finding) == ("differs", True)
    assert told["moved"] == output["moved"] > 0 and not told["window"]
    assert output["by_index"]["differing"] == elsewhere(MOVED[name]) > 0
    assert output["by_index"]["compared"] == found.left.results[0].size == output["compared"]
    assert "moved" in repr(found) and "equal" not in repr(found)


def test_a_permutation_that_one_side_is_given_moves_what_is_twice_too() -> None:
    columns = torch.tensor(COLUMNS)
    found = compared((lambda: SQUARE @ SQUARE.T, lambda: (SQUARE @ SQUARE.T)[:, columns]))
    stay = sum(n == column for n, column in enumerate(COLUMNS))
    assert found.moved == SQUARE.shape[0] * (len(COLUMNS) - stay)


@pytest.mark.parametrize("name", WINDOW)
def test_outputs_that_read_other_inputs_have_another_window(name: str) -> None:
    found = compared(WINDOW[name])
    told = found.to_json()
    (output,) = told["outputs"]
    assert (found.verdict, found.finding, told["moved"]) == ("differs", True, 0)
    assert output["by_index"]["differing"] == elsewhere(WINDOW[name]) <= told["window"]
    assert "window" in repr(found) and "assumed" not in repr(found)
    assert not output["differing"] or told["first"]


@pytest.mark.parametrize("name", OTHERWISE)
def test_an_operation_that_picks_other_elements_of_the_same_is_named(name: str) -> None:
    found = compared(OTHERWISE[name], explain=True)
    (one,) = found.to_json()["operations"]
    assert found.verdict == "differs" and "window" in one["cause"]
    assert "window" in repr(found) and one["op"] in repr(found)


@pytest.mark.parametrize("name", BOTH)
def test_shifted_crops_are_moved_and_read_other_inputs(name: str) -> None:
    found = compared(BOTH[name])
    told = found.to_json()
    assert found.verdict == "differs" and told["moved"] and told["window"]
    assert told["outputs"][0]["by_index"]["differing"] == elsewhere(BOTH[name])
    assert "moved" in repr(found) and "window" in repr(found)


@pytest.mark.parametrize("name", VARIED)
def test_a_varied_batch_or_length_is_compared_where_it_stands(name: str) -> None:
    found = compared(VARIED[name])
    told = found.to_json()
    (output,) = told["outputs"]
    assert not told["moved"] and not told["window"] and output["by_index"] is None
    assert output["compared"] and output["scaled"] < 64  # rounding, where these bits differ
    assert found.verdict == ("differs" if output["differing"] else "equal")


def test_rows_that_are_compared_elsewhere_are_noted() -> None:
    found = compared(VARIED["rows turned round"])
    assert "another order" in " ".join(found.found.notes)


def test_copies_of_a_row_are_noted() -> None:
    copies = lambda: layers(torch.cat([ROWS[:1]] * len(ROWS)))  # noqa: E731
    found = probe.first_difference(copies, lambda: layers(ROWS), explain=False)
    assert any("another order" in note for note in found.found.notes)


def test_another_divisor_reads_no_other_inputs() -> None:
    """Numbers of its own change what is computed too, and no window."""
    left = lambda: F.avg_pool2d(PICTURE, 3, 1, 1)  # noqa: E731
    right = lambda: F.avg_pool2d(PICTURE, 3, 1, 1, divisor_override=8)  # noqa: E731
    found = probe.first_difference(left, right, explain=False)
    assert found.verdict == "differs" and not found.words


def test_what_is_not_close_is_not_assumed_to_mean_the_same() -> None:
    found = compared((lambda: F.relu(layers(ROWS)), lambda: F.gelu(layers(ROWS))))
    assert found.verdict == "differs" and not found.moved and not found.window
    notes = " ".join(found.found.notes)
    assert "may not mean the same" in notes and "assumed to mean" not in notes


@pytest.mark.parametrize("explain", [True, False], ids=["explained", "not explained"])
@pytest.mark.parametrize("layer", [0, 3])
def test_weights_that_differ_are_named_behind_a_harmless_operation(
    layer: int, explain: bool
) -> None:
    torch.manual_seed(2)
    sides = []
    for _ in range(2):
        one = torch.nn.Sequential(
            *(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.ReLU()),
            torch.nn.Linear(32, 16),
        )
        sides.append(one.eval())
    sides[1].load_state_dict(sides[0].state_dict())
    with torch.no_grad():
        sides[1][layer].weight[3, 4] *= 1.001
    with pytest.raises(probe.errors.InputError, match=f"{layer} has different weights"):
        probe.first_difference(
            lambda: sides[0](ROWS), lambda: sides[1](ROWS) * 1.0, explain=explain
        )


def test_moved_numpy_arrays_are_found_on_two_recordings(tmp_path: Any) -> None:
    x, w = normal(6, 32), normal(32, 6, seed=1)
    sides = [
        Taped(lambda tape, turn=turn: tape.turn(tape.dense(x, tape.weight(w)), *turn))
        for turn in ((0, 1), (1, 0))
    ]
    live = Walked(walk.walk(*sides, explain=False), ComparisonQuestion())
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, side in zip(folders, sides, strict=True):
        probe.record(side, out=folder)
    stored = probe.diff(*folders)
    assert live.moved == stored.moved == 30
    assert live.to_json()["outputs"][0]["by_index"] == stored.to_json()["outputs"][0]["by_index"]


@pytest.mark.parametrize(
    ("places", "shape", "box"),
    [
        ([0, 1, 2], (6,), True),
        ([0, 2], (6,), False),
        ([0, 1, 4, 5], (2, 4), True),
        ([0, 2, 4, 6], (2, 4), False),
        ([0, 1, 8, 9], (3, 4), True),  # rows of a batch
        ([0, 5], (2, 4), False),
    ],
)
def test_a_part_without_gaps_is_told_from_a_sample(
    places: list[int], shape: tuple[int, ...], box: bool
) -> None:
    mask = np.zeros(shape, bool)
    mask.reshape(-1)[places] = True
    assert _has_no_gaps(mask) is box


def test_an_input_that_one_side_has_alone_makes_no_outputs_equal():
    """A mask hides half of the scores: what is equal elsewhere says nothing of the outputs."""
    b = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(7))
    mask = torch.rand(2, 12, 12, generator=torch.Generator().manual_seed(8)) > 0.5

    def hidden() -> torch.Tensor:
        return torch.softmax((b @ b.transpose(1, 2)).masked_fill(mask, -1e9), -1)

    found = probe.first_difference(lambda: torch.softmax(b @ b.transpose(1, 2), -1), hidden)
    direct = int((torch.softmax(b @ b.transpose(1, 2), -1) != hidden()).sum())
    (one,) = found.outputs
    assert found.verdict == "differs" and one.by_index is not None
    assert one.by_index.differing == direct


def test_zeros_of_different_signs_are_said() -> None:
    x = torch.arange(1.0, 7.0)
    found = probe.first_difference(lambda: x * 0, lambda: -(x * 0))
    assert found.verdict == "equal"
    assert "6 of them are zeros of different signs" in found.outcome()
    assert (
        "zeros of different signs"
        not in probe.first_difference(lambda: x * 0, lambda: x * 0).outcome()
    )

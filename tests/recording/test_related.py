"""Outputs of one shape that stand at other indices, or read other inputs, are no equal outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probe
from probe.recording import related
from probe.recording.difference import Difference, compare_runs
from probe.recording.recording import record_run
from probe.recording.related import _has_no_gaps, pair_close_values
from probe.semantics import Joins, Unknown
from tests.recording.doubles import Doubles, Step

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


F = torch.nn.functional
DRAW = torch.Generator().manual_seed(11)
PICTURE, ROWS, SQUARE, SMALL = (
    torch.randn(*shape, generator=DRAW) for shape in ((2, 4, 8, 8), (6, 16), (9, 9), (1, 2, 3, 3))
)
KERNEL, DENSE, BACK = (
    torch.randn(*shape, generator=DRAW) for shape in ((4, 4, 3, 3), (24, 16), (16, 24))
)
ORDER = [3, 5, 0, 1, 4, 2]
COARSE = (ROWS * 4).round()
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
    "crops": (lambda: picture(PICTURE[..., :6]), lambda: picture(PICTURE[..., 2:]))
}
VARIED: dict[str, Pair] = {
    "one row": (lambda: layers(ROWS[:1]), lambda: layers(ROWS)),
    "rows of a batch in another order": (lambda: layers(ROWS[ORDER]), lambda: layers(ROWS)),
    "rows of equal numbers in another order": (
        lambda: COARSE[ORDER].exp(),
        lambda: COARSE.exp(),
    ),
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


def unexplained(left: Callable[[], Any], right: Callable[[], Any]) -> Any:
    return probe.first_difference(left, right, explain=False)


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
    assert not output["must_agree"]["differing"] or told["first"]


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


def test_rows_that_are_compared_elsewhere_and_copies_of_one_are_noted() -> None:
    copies = lambda: layers(torch.cat([ROWS[:1]] * len(ROWS)))  # noqa: E731
    for pair in (VARIED["rows turned round"], (copies, lambda: layers(ROWS))):
        assert any("another order" in note for note in compared(pair).found.notes)


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
    pair = lambda: sides[0](ROWS), lambda: sides[1](ROWS) * 1.0
    found = probe.first_difference(*pair, explain=explain)
    assert found.verdict == "differs" and found.found.other_weights.startswith(str(layer))
    assert "has different weights" in found.lines()[1]
    # what reads other weights is no source, and nothing is said to read other inputs
    assert found.first is None and found.to_json()["window"] == 0


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
    alike = probe.first_difference(lambda: x * 0, lambda: x * 0)
    assert "zeros of different signs" not in alike.outcome()


# Values of different formulas that are close: compared as a group, and never by chance.


RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((8, 16)).astype(np.float32)
UP = np.float32(1 + 2**-20)


def paired(left: list[Step], right: list[Step]) -> Difference:
    """Two runs of doubles on one input, with what is close."""
    sides = [record_run(Doubles({"x": X}, steps)) for steps in (left, right)]
    return pair_close_values(compare_runs(sides[0], sides[1]))


def step(op: str, function: Any, *reads: str | int) -> Step:
    """A step that nothing is known of but its name."""
    return Step(op, Unknown(op), function, reads or ("x",))


def taken(found: Difference) -> list[tuple[str, str]]:
    """(left operation, right operation) of what is taken for the same."""
    sides = found.left.operations, found.right.operations
    return [
        (sides[0][one.left].op, sides[1][one.right].op)
        for one in found.operations
        if one.assumed and one.left is not None and one.right is not None
    ]


def test_what_is_close_is_a_source_and_what_follows_is_carried() -> None:
    after = step("tanh", np.tanh, 0)
    found = paired(
        [step("cube", lambda x: x**3), after], [step("product", lambda x: x * x * x * UP), after]
    )
    assert taken(found) == [("cube", "product")]
    assert [one.verdict for one in found.operations] == ["source", "carried"]
    first, last = found.operations
    assert first.op == "cube against product" and "as the results are close" in first.note
    assert last.compared == X.size and found.outputs[0].compared == X.size


def test_several_operations_are_one_group_with_what_they_read() -> None:
    found = paired(
        [step("cube", lambda x: x**3)],
        [step("square", lambda x: x * x), step("times", lambda y, x: x * y * UP, 0, "x")],
    )
    one = found.first
    assert one is not None and one.differing and one.joint and one.inside == ((0,), (0, 1))


FAR = {
    "other digits": (lambda x: x * 2, lambda x: x * 2.01),
    "almost constant": (lambda x: 3 + x * 1e-6, lambda x: 3 + np.sin(x) * 1e-6),
    "equal but in one element": (lambda x: x * 2, lambda x: x * 2 + (x == X[0, 0])),
    "not finite in other places": (lambda x: x * 2, lambda x: np.where(x == X[0, 0], np.nan, x)),
    "whole numbers": (lambda x: (x > 0).astype(np.int32), lambda x: (x >= 0).astype(np.int32)),
}


@pytest.mark.parametrize("name", FAR)
def test_what_only_looks_alike_is_left_alone(name: str) -> None:
    one, two = FAR[name]
    typed = [
        lambda x, of=of: y.astype(np.float32) if (y := of(x)).dtype == np.float64 else y
        for of in (one, two)
    ]
    found = paired([step("one", typed[0])], [step("two", typed[1])])
    assert not taken(found) and {one.verdict for one in found.operations} == {"left", "right"}


def test_values_that_are_not_finite_on_both_sides_alike_are_left_out() -> None:
    """A masked score is infinite on both sides, and says nothing of the others."""
    masked = [
        lambda x, by=by: np.where(x == X[0, 0], -np.inf, x * by).astype(np.float32)
        for by in (2, 2 * UP, 3)
    ]
    one, two, other = (step(name, of) for name, of in zip("abc", masked, strict=True))
    assert taken(paired([one], [two])) == [("a", "b")] and not taken(paired([one], [other]))


def test_of_several_the_closest_to_each_other_belong_together() -> None:
    """A sum with little added to it is close to what it was added to; both are on both sides."""
    small = np.float32(2**-14)
    left = [step("cube", lambda x: x**3), step("added", lambda y, x: y + small * x, 0, "x")]
    right = [
        step("product", lambda x: x * x * x),
        step("scaled", lambda x: small * x),
        step("joined", lambda y, z: z + y, 0, 1),
    ]
    found = paired(left, right)
    assert taken(found) == [("cube", "product"), ("added", "joined")]


def test_of_values_with_the_same_bits_the_last_ones_belong_together() -> None:
    """A scale of ones leaves a value as it is: what follows reads the scaled one."""
    scaled = step("scaled", lambda y: y * np.float32(1), 0)
    cube, product = step("cube", lambda x: x**3), step("product", lambda x: x * x * x * UP)
    assert taken(paired([cube], [product, scaled])) == [("cube", "scaled")]
    found = paired([cube, scaled], [product, scaled])
    assert taken(found) == [("cube", "product")] and found.operations[1].verdict == "carried"


def test_values_that_come_in_another_order_are_taken_too() -> None:
    """On the right what is later on the left comes first, and what is earlier is made of it."""
    branches = paired(
        [step("cube", lambda x: x**3), step("twice", lambda x: x * 2), step("add", np.add, 0, 1)],
        [
            step("sum", lambda x: (x + x) * UP),
            step("product", lambda x: x * x * x * UP),
            step("add", np.add, 1, 0),
        ],
    )
    assert taken(branches)[:2] == [("cube", "product"), ("twice", "sum")]
    back = paired(
        [step("twice", lambda x: x * 2), step("again", lambda y: y * 2, 0)],
        [step("four times", lambda x: x * 4 * UP), step("half", lambda y: y / 2, 0)],
    )
    assert taken(back) == [("twice", "half"), ("again", "four times")]


def test_two_runs_are_compared_once_more_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        related, "compare_runs", lambda *given: calls.append(given) or compare_runs(*given)
    )
    step_by_step = [step("cube", lambda x: x**3), step("tanh", np.tanh, 0)]
    paired(step_by_step, [step("product", lambda x: x * x * x * UP), step("tanh", np.tanh, 0)])
    assert len(calls) == 1
    paired(step_by_step, step_by_step)
    assert len(calls) == 1


def test_what_joins_close_values_is_compared_by_another_name_too() -> None:
    """Labels say that it is the same: nothing is assumed of it."""
    sides = []
    for name, of in (("cube", lambda x: x**3), ("product", lambda x: x * x * x * UP)):
        join = Step(f"join {name}", Joins(1), lambda y, x: np.concatenate([y, x], 1), (0, "x"))
        sides.append([step(name, of), join, step("tanh", np.tanh, 1)])
    found = paired(*sides)
    assert [one.verdict for one in found.operations] == ["source", "carried", "carried"]
    assert [one.assumed for one in found.operations] == [True, False, False]


def test_what_only_has_the_same_name_is_compared_with_what_comes_before_it() -> None:
    """The sums stand at the same place, and what they read has no counterpart."""
    left = [step("cube", lambda x: x**3), step("sum", lambda y, x: x + y / 4096, 0, "x")]
    right = [step("far", lambda x: x**3 + 1), step("sum", lambda y, x: x + y / 4096, 0, "x")]
    (one,) = (one for one in paired(left, right).operations if one.assumed)
    assert one.inside == ((0, 1), (0, 1)) and one.op == "cube + sum against far + sum"


CLOSE = torch.Generator().manual_seed(5)
IMAGE = torch.randn(2, 4, 9, 9, generator=CLOSE)
HEADS = [torch.randn(2, 4, 9, 16, generator=CLOSE) for _ in range(3)]


def normalised() -> tuple[torch.nn.Module, torch.nn.Module]:
    """Two convolutions with their normalisations, and the same folded into the convolutions."""
    torch.manual_seed(1)
    plain, folded = [], []
    for channels, filters in ((4, 8), (8, 6)):
        convolution = torch.nn.Conv2d(channels, filters, 3).eval()
        norm = torch.nn.BatchNorm2d(filters).eval()
        with torch.no_grad():
            norm.running_var.copy_(torch.linspace(0.5, 2, filters))
        plain += [convolution, norm, torch.nn.ReLU()]
        folded += [torch.nn.utils.fuse_conv_bn_eval(convolution, norm), torch.nn.ReLU()]
    return torch.nn.Sequential(*plain), torch.nn.Sequential(*folded)


def test_a_normalisation_that_is_folded_into_weights_is_the_source() -> None:
    model, folded = normalised()
    found = probe.first_difference(lambda: model(IMAGE), lambda: folded(IMAGE))
    notes = " ".join(found.found.notes)
    assert "folded differently" in notes and "are assumed to mean the same, in 2 places" in notes
    assert found.found.outputs[0].compared == model(IMAGE).numel()
    first = found.found.first
    assert first is not None and first.op.endswith("against aten.convolution")
    assert {one.verdict for one in found.found.operations if one.assumed} <= {
        *("source", "carried", "equal", "healed")
    }
    cause = next(iter(found.found.causes.values()))
    # where the convolution adds its products (Winograd's doesn't), both formulas replay in steps
    assert cause.alone and "formulas" in cause.why
    assert (cause.kind == "algorithm" and cause.explained) or not cause.kind


def attention() -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(*HEADS)


def products() -> torch.Tensor:
    query, key, value = HEADS
    return (query @ key.mT / 4).softmax(-1) @ value


def test_what_only_moves_close_values_is_no_place_of_its_own() -> None:
    """After the heads are merged, the two sides move them by operations of other names."""
    last = torch.nn.Linear(64, 5)
    merged = lambda heads: heads.transpose(1, 2).reshape(2, 9, 64)  # noqa: E731
    found = unexplained(lambda: last(merged(attention())), lambda: last(merged(products())))
    assert "in 1 place" in found.found.notes[0]
    assert found.found.operations[-1].verdict == "carried"


@pytest.mark.parametrize("right", [True, False], ids=["right", "one row wrong"])
def test_a_mask_that_one_side_alone_reads_is_taken_for_the_same_if_outputs_are_close(right) -> None:
    mask = torch.ones(9, 9).tril().bool()
    mask[3, 4] = not right

    def masked() -> torch.Tensor:
        query, key, value = HEADS
        return (query @ key.mT / 4).masked_fill(~mask, -torch.inf).softmax(-1) @ value

    found = probe.first_difference(
        lambda: torch.nn.functional.scaled_dot_product_attention(*HEADS, is_causal=True), masked
    )
    said = " ".join(found.found.notes)
    assert ("such as a mask" in said) is right
    assert found.verdict in (("differs", "equal") if right else ("differs",))


@pytest.mark.slow
def test_the_report_of_two_formulas_has_both(tmp_path: Path) -> None:
    found = probe.first_difference(attention, products)
    assert found.found.first is not None and found.found.first.assumed
    written = found.reproduce(tmp_path / "report")
    assert "outputs differ" in repr(written) and "import" not in repr(written)
    (script,) = (tmp_path / "report").glob("*.py")
    assert "softmax" in script.read_text() and "attention" in script.read_text()


def test_one_operation_with_other_numbers_is_the_source() -> None:
    """Both sides run the same operations, in the same order."""
    last = torch.nn.Linear(16, 3)
    found = probe.first_difference(
        lambda: last(torch.nn.functional.gelu(HEADS[0])),
        lambda: last(torch.nn.functional.gelu(HEADS[0], approximate="tanh")),
    )
    one = found.found.first
    assert one is not None and one.op == "aten.gelu" and not one.assumed
    assert one.why == "argument: approximate none against tanh" and found.verdict == "differs"
    assert found.found.operations[-1].verdict == "carried"


def test_what_one_side_has_besides_need_not_have_a_counterpart() -> None:
    """Two products were merged into a weight: the right side runs nothing that the left doesn't."""
    torch.manual_seed(2)
    sizes = (16, 16), (16, 2), (2, 16), (16, 3)
    base, down, up, last = (torch.nn.Linear(*of, bias=False) for of in sizes)
    merged = torch.nn.Linear(16, 16, bias=False)
    merged.weight.data = base.weight.data + up.weight.data @ down.weight.data
    x = HEADS[0]
    found = unexplained(lambda: last(base(x) + up(down(x))), lambda: last(merged(x)))
    assert found.found.first is not None and found.found.first.assumed
    assert "carried" in {one.verdict for one in found.found.operations}


def test_what_an_operation_gives_besides_and_nothing_reads_is_left_alone() -> None:
    """A norm gives the mean of its rows too, as the first step by hand does."""
    rows = torch.randn(40, 16, generator=CLOSE) + 1

    def by_hand() -> torch.Tensor:
        mean = rows.mean(-1, keepdim=True)
        spread = (rows * rows).mean(-1, keepdim=True) - mean * mean  # a formula of its own
        return (rows - mean) / torch.sqrt(spread + 1e-5)

    found = unexplained(lambda: torch.nn.functional.layer_norm(rows, (16,)), by_hand)
    (one,) = (one for one in found.found.operations if one.assumed)
    assert one.verdict == "source" and one.compared == rows.numel() and not one.reads
    assert "assumed to mean the same" in repr(found)


def test_one_side_may_take_parts_of_an_input_where_all_outputs_are_close() -> None:
    """Attention in pieces takes rows of what it is given; other rows are not taken for the same."""
    query, key, value = HEADS

    def pieces() -> torch.Tensor:
        some = [(query[:, :, n : n + 3] @ key.mT / 4).softmax(-1) @ value for n in (0, 3, 6)]
        return torch.cat(some, 2)

    found = unexplained(attention, pieces).found
    assert found.first is not None and found.first.assumed and not found.first.reads
    alike = torch.cat([query[:1], query[:1] + 1e-6])
    rows = probe.first_difference(lambda: alike[:1].tanh(), lambda: alike[1:].tanh())
    assert not any(one.assumed for one in rows.found.operations)


def test_what_reads_a_part_of_the_same_is_compared_with_what_comes_before_it() -> None:
    """One side changes a row a little before the last operation: that is no difference of its."""
    convolution = torch.nn.Conv2d(4, 8, 3)

    def by_hand() -> torch.Tensor:
        columns = torch.nn.functional.unfold(IMAGE, 3)
        made = convolution.weight.view(8, -1) @ columns + convolution.bias[:, None]
        made = made.view(2, 8, 7, 7)
        return torch.cat([made[:, :, :6], made[:, :, 6:] * 1.0001], 2).relu()

    found = probe.first_difference(lambda: convolution(IMAGE).relu(), by_hand).found
    assert [one.verdict for one in found.operations if one.assumed] == ["source", "carried"]
    last = [one for one in found.operations if one.assumed][-1]
    assert last.joint and not last.own


def test_other_numbers_of_elements_that_content_chooses_are_never_equal() -> None:
    x = np.array([0.05, 1, 2, 3], np.float32)

    def above(limit: float) -> Any:
        return lambda a: a[a > limit]

    def tensors(limit: float) -> Any:
        return lambda a: torch.from_numpy(a)[torch.from_numpy(a) > limit]

    for functions in (above, tensors):
        pair = functions(0), functions(0.1)
        assert probe.first_difference(*pair, inputs=(x,), explain=False).verdict == "unknown"
    difference = probe.first_difference(lambda a: a[:2] * 2, lambda a: a * 2, inputs=(x,))
    assert difference.verdict == "equal"  # a piece that no content chooses

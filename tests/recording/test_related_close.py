"""Values of different formulas that are close: compared as a group, and never by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probe.recording import related
from probe.recording.difference import Difference, compare_runs
from probe.recording.recording import record_run
from probe.recording.related import pair_close_values
from probe.semantics import Joins, Unknown
from tests.recording.doubles import Doubles, Step

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((8, 16)).astype(np.float32)
UP = np.float32(1 + 2**-20)


def compared(left: list[Step], right: list[Step]) -> Difference:
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
    found = compared(
        [step("cube", lambda x: x**3), after], [step("product", lambda x: x * x * x * UP), after]
    )
    assert taken(found) == [("cube", "product")]
    assert [one.verdict for one in found.operations] == ["source", "carried"]
    first, last = found.operations
    assert first.op == "cube against product" and "as the results are close" in first.note
    assert last.compared == X.size and found.outputs[0].compared == X.size


def test_several_operations_are_one_group_with_what_they_read() -> None:
    found = compared(
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
    found = compared([step("one", typed[0])], [step("two", typed[1])])
    assert not taken(found) and {one.verdict for one in found.operations} == {"left", "right"}


def test_values_that_are_not_finite_on_both_sides_alike_are_left_out() -> None:
    """A masked score is infinite on both sides, and says nothing of the others."""
    masked = [
        lambda x, by=by: np.where(x == X[0, 0], -np.inf, x * by).astype(np.float32)
        for by in (2, 2 * UP, 3)
    ]
    one, two, other = (step(name, of) for name, of in zip("abc", masked, strict=True))
    assert taken(compared([one], [two])) == [("a", "b")] and not taken(compared([one], [other]))


def test_of_several_the_closest_to_each_other_belong_together() -> None:
    """A sum with little added to it is close to what it was added to; both are on both sides."""
    small = np.float32(2**-14)
    left = [step("cube", lambda x: x**3), step("added", lambda y, x: y + small * x, 0, "x")]
    right = [
        step("product", lambda x: x * x * x),
        step("scaled", lambda x: small * x),
        step("joined", lambda y, z: z + y, 0, 1),
    ]
    found = compared(left, right)
    assert taken(found) == [("cube", "product"), ("added", "joined")]


def test_of_values_with_the_same_bits_the_last_ones_belong_together() -> None:
    """A scale of ones leaves a value as it is: what follows reads the scaled one."""
    scaled = step("scaled", lambda y: y * np.float32(1), 0)
    cube, product = step("cube", lambda x: x**3), step("product", lambda x: x * x * x * UP)
    assert taken(compared([cube], [product, scaled])) == [("cube", "scaled")]
    found = compared([cube, scaled], [product, scaled])
    assert taken(found) == [("cube", "product")] and found.operations[1].verdict == "carried"


def test_values_that_come_in_another_order_are_taken_too() -> None:
    """On the right what is later on the left comes first, and what is earlier is made of it."""
    branches = compared(
        [step("cube", lambda x: x**3), step("twice", lambda x: x * 2), step("add", np.add, 0, 1)],
        [
            step("sum", lambda x: (x + x) * UP),
            step("product", lambda x: x * x * x * UP),
            step("add", np.add, 1, 0),
        ],
    )
    assert taken(branches)[:2] == [("cube", "product"), ("twice", "sum")]
    back = compared(
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
    compared(step_by_step, [step("product", lambda x: x * x * x * UP), step("tanh", np.tanh, 0)])
    assert len(calls) == 1
    compared(step_by_step, step_by_step)
    assert len(calls) == 1


def test_what_joins_close_values_is_compared_by_another_name_too() -> None:
    """Labels say that it is the same: nothing is assumed of it."""
    sides = []
    for name, of in (("cube", lambda x: x**3), ("product", lambda x: x * x * x * UP)):
        join = Step(f"join {name}", Joins(1), lambda y, x: np.concatenate([y, x], 1), (0, "x"))
        sides.append([step(name, of), join, step("tanh", np.tanh, 1)])
    found = compared(*sides)
    assert [one.verdict for one in found.operations] == ["source", "carried", "carried"]
    assert [one.assumed for one in found.operations] == [True, False, False]


def test_what_only_has_the_same_name_is_compared_with_what_comes_before_it() -> None:
    """The sums stand at the same place, and what they read has no counterpart."""
    left = [step("cube", lambda x: x**3), step("sum", lambda y, x: x + y / 4096, 0, "x")]
    right = [step("far", lambda x: x**3 + 1), step("sum", lambda y, x: x + y / 4096, 0, "x")]
    (one,) = (one for one in compared(left, right).operations if one.assumed)
    assert one.inside == ((0, 1), (0, 1)) and one.op == "cube + sum against far + sum"


torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import probe  # noqa: E402

DRAW = torch.Generator().manual_seed(5)
PICTURE = torch.randn(2, 4, 9, 9, generator=DRAW)
HEADS = [torch.randn(2, 4, 9, 16, generator=DRAW) for _ in range(3)]


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
    found = probe.first_difference(lambda: model(PICTURE), lambda: folded(PICTURE))
    notes = " ".join(found.found.notes)
    assert "folded differently" in notes and "are assumed to mean the same, in 2 places" in notes
    assert found.found.outputs[0].compared == model(PICTURE).numel()
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
    found = probe.first_difference(
        lambda: last(merged(attention())), lambda: last(merged(products())), explain=False
    )
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
    found = probe.first_difference(
        lambda: last(base(x) + up(down(x))), lambda: last(merged(x)), explain=False
    )
    assert found.found.first is not None and found.found.first.assumed
    assert "carried" in {one.verdict for one in found.found.operations}


def test_what_an_operation_gives_besides_and_nothing_reads_is_left_alone() -> None:
    """A norm gives the mean of its rows too, as the first step by hand does."""
    rows = torch.randn(40, 16, generator=DRAW) + 1

    def by_hand() -> torch.Tensor:
        mean = rows.mean(-1, keepdim=True)
        spread = (rows * rows).mean(-1, keepdim=True) - mean * mean  # a formula of its own
        return (rows - mean) / torch.sqrt(spread + 1e-5)

    found = probe.first_difference(
        lambda: torch.nn.functional.layer_norm(rows, (16,)), by_hand, explain=False
    )
    (one,) = (one for one in found.found.operations if one.assumed)
    assert one.verdict == "source" and one.compared == rows.numel() and not one.reads
    assert "assumed to mean the same" in repr(found)


def test_one_side_may_take_parts_of_an_input_where_all_outputs_are_close() -> None:
    """Attention in pieces takes rows of what it is given; other rows are not taken for the same."""
    query, key, value = HEADS

    def pieces() -> torch.Tensor:
        some = [(query[:, :, n : n + 3] @ key.mT / 4).softmax(-1) @ value for n in (0, 3, 6)]
        return torch.cat(some, 2)

    found = probe.first_difference(attention, pieces, explain=False).found
    assert found.first is not None and found.first.assumed and not found.first.reads
    alike = torch.cat([query[:1], query[:1] + 1e-6])
    rows = probe.first_difference(lambda: alike[:1].tanh(), lambda: alike[1:].tanh())
    assert not any(one.assumed for one in rows.found.operations)


def test_what_reads_a_part_of_the_same_is_compared_with_what_comes_before_it() -> None:
    """One side changes a row a little before the last operation: that is no difference of its."""
    convolution = torch.nn.Conv2d(4, 8, 3)

    def by_hand() -> torch.Tensor:
        columns = torch.nn.functional.unfold(PICTURE, 3)
        made = convolution.weight.view(8, -1) @ columns + convolution.bias[:, None]
        made = made.view(2, 8, 7, 7)
        return torch.cat([made[:, :, :6], made[:, :, 6:] * 1.0001], 2).relu()

    found = probe.first_difference(lambda: convolution(PICTURE).relu(), by_hand).found
    assert [one.verdict for one in found.operations if one.assumed] == ["source", "carried"]
    last = [one for one in found.operations if one.assumed][-1]
    assert last.joint and not last.own

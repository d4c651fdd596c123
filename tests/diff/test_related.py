"""Two models of the same weights, of others, or with weights that were folded differently."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe.diff.match import RunningMatch
from probe.diff.related import input_values, shares_weights
from probe.diff.walk import compare_and_explain
from probe.order.semantics import Each
from probe.record.recording import record_run
from tests.record.doubles import Doubles, Step

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

DRAW = torch.Generator().manual_seed(5)
ROWS = torch.randn(6, 16, generator=DRAW)
IMAGE = torch.randn(2, 4, 9, 9, generator=DRAW)


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
    assert found.verdict == "differs" and found.found.different_weights.startswith(str(layer))
    assert "has different weights" in found.lines()[1]
    # what reads other weights is no source, and nothing is said to read other inputs
    assert found.first is None and found.to_json()["window"] == 0


def test_zeros_of_different_signs_are_said() -> None:
    x = torch.arange(1.0, 7.0)
    found = probe.first_difference(lambda: x * 0, lambda: -(x * 0))
    assert found.verdict == "equal"
    assert "6 are zeros of different signs" in found.counts_text()
    alike = probe.first_difference(lambda: x * 0, lambda: x * 0)
    assert "zeros of different signs" not in alike.counts_text()


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
    assert "folded differently" in notes and found.found.matched.startswith("by value")
    assert found.found.outputs[0].compared == model(IMAGE).numel()
    first = found.found.first
    assert first is not None and first.op.endswith("against aten.convolution")
    assert {one.verdict for one in found.found.operations if one.by_value} <= {
        *("source", "carried", "equal", "healed")
    }
    cause = next(iter(found.found.causes.values()))
    # where the convolution adds its products (Winograd's doesn't), both formulas replay in steps
    assert cause.alone and "formulas" in cause.why
    assert (cause.kind == "algorithm" and cause.explained) or not cause.kind


def test_one_operation_with_other_numbers_is_the_source() -> None:
    """Both sides run the same operations, in the same order."""
    last = torch.nn.Linear(16, 3)
    found = probe.first_difference(
        lambda: last(torch.nn.functional.gelu(ROWS)),
        lambda: last(torch.nn.functional.gelu(ROWS, approximate="tanh")),
    )
    one = found.found.first
    assert one is not None and one.op == "aten.gelu" and not one.by_value
    assert (
        one.cause_text == "argument: approximate none against tanh" and found.verdict == "differs"
    )
    assert found.found.operations[-1].verdict == "carried"


def test_what_one_side_has_besides_need_not_have_a_counterpart() -> None:
    """Two products were merged into a weight: the right side runs nothing that the left doesn't."""
    torch.manual_seed(2)
    sizes = (16, 16), (16, 2), (2, 16), (16, 3)
    base, down, up, last = (torch.nn.Linear(*of, bias=False) for of in sizes)
    merged = torch.nn.Linear(16, 16, bias=False)
    merged.weight.data = base.weight.data + up.weight.data @ down.weight.data
    x = ROWS
    found = probe.first_difference(
        lambda: last(base(x) + up(down(x))), lambda: last(merged(x)), explain=False
    )
    assert found.found.first is not None and found.found.first.by_value
    assert "carried" in {one.verdict for one in found.found.operations}


def test_two_models_have_inputs_and_perhaps_weights_in_common() -> None:
    layers = [torch.nn.Linear(16, 4) for _ in range(2)]
    found = probe.first_difference(lambda: layers[0](ROWS), lambda: layers[1](ROWS)).found
    assert not shares_weights(found.left, found.right) and shares_weights(found.left, found.left)
    (number,) = input_values(found.left)
    assert found.left.values[number].shape == tuple(ROWS.shape)


def test_a_factor_that_a_file_holds_is_an_argument_of_a_source() -> None:
    x = np.linspace(1, 2, 60, dtype=np.float32)
    runs = []
    for factor in (0.5, 0.50001):
        steps = [Step("exp", Each("exp"), np.exp, ["x"])]
        steps += [Step("multiply", Each("multiply"), np.multiply, [0, "s"])]
        steps += [Step("tanh", Each("tanh"), np.tanh, [1])]
        given = {"x": x, "s": np.array(factor, np.float32)}
        runs.append(record_run(Doubles(given, steps, weights=["s"])))
    found = compare_and_explain(RunningMatch.of(*runs), explain=False)
    assert found.first is not None and found.first.op == "multiply"
    assert found.first.arguments == "s 0.5 against 0.50001"

"""Small models of PyTorch as users write them: what of two runs is compared, and explained."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional as F  # noqa: E402, N812

import probe  # noqa: E402
from probe.errors import InputError  # noqa: E402
from probe.recording.sums import sum_of  # noqa: E402
from probe.semantics import Contracts, Each, Reshapes, Step, Steps  # noqa: E402

DRAW = torch.Generator().manual_seed(5)
X = torch.randn(3, 7, 12, generator=DRAW)
LATENTS, W = torch.randn(5, 12, generator=DRAW), torch.randn(12, 12, generator=DRAW)
VOTES = torch.randn(1, 4, 7, 3, 12, generator=DRAW)
PICTURE, FILTERS = (torch.randn(n, 4, k, k, generator=DRAW) for n, k in ((2, 9), (6, 3)))


def latents(x: torch.Tensor) -> torch.Tensor:
    """Repeats weights for each row of the batch, and puts the batch behind the first axis."""
    repeated = LATENTS.expand(len(x), -1, -1).transpose(0, 1)
    queries = (repeated.reshape(-1, 12) @ W).reshape(5, -1, 12).transpose(0, 1)
    return (queries @ x.mT).softmax(-1) @ x


def capsules(x: torch.Tensor) -> torch.Tensor:
    """Multiplies weights that matmul itself repeats for each row of the batch."""
    return (VOTES @ x[:, None, :, :, None]).squeeze(-1)


@pytest.mark.parametrize("model", [latents, capsules], ids=["latents", "capsules"])
def test_weights_repeated_for_each_row_leave_all_outputs_to_compare(model) -> None:
    found = probe.first_difference(lambda: model(X[:1]), lambda: model(X), explain=False)
    (pair,) = found.found.outputs
    assert pair.known and pair.compared == model(X[:1]).numel()


def unfolded(x: torch.Tensor) -> torch.Tensor:
    columns = F.unfold(x, 3)
    return (FILTERS.view(6, -1) @ columns).view(2, 6, 7, 7)


def test_two_formulas_of_the_same_inputs_are_compared_whole() -> None:
    def plain() -> torch.Tensor:
        return F.conv2d(PICTURE, FILTERS)

    found = probe.first_difference(plain, lambda: unfolded(PICTURE), explain=False)
    assert found.found.outputs[0].compared == plain().numel()
    assert any("are close" in note for note in found.found.notes)
    same = np.array_equal(plain().numpy(), unfolded(PICTURE).numpy())
    assert found.verdict == ("equal" if same else "differs")


def test_what_each_side_runs_alone_is_named() -> None:
    """Where nothing that is close says what one operation of a side is on the other."""
    found = probe.first_difference(lambda: X.sin() @ W, lambda: X.cos().neg().neg() @ W)
    assert found.verdict == "differs"
    assert "only left: aten.sin" in found.lines()[1]
    assert "only right: aten.cos" in found.lines()[1] and "and 2 more" in found.lines()[1]


def normalised() -> tuple[torch.nn.Module, torch.nn.Module]:
    """A convolution with its normalisation, and the same folded into one convolution."""
    norm = torch.nn.BatchNorm2d(6).eval()
    convolution = torch.nn.Conv2d(4, 6, 3).eval()
    with torch.no_grad():
        norm.running_var.copy_(torch.linspace(0.5, 2, 6))
        convolution.weight.copy_(FILTERS)
    folded = torch.nn.utils.fuse_conv_bn_eval(convolution, norm)
    return torch.nn.Sequential(convolution, norm), torch.nn.Sequential(folded)


@pytest.mark.parametrize("change", [lambda y: y + 0.1, lambda y: y.argmax(1)], ids=["far", "whole"])
def test_other_weights_behind_other_operations_are_refused(change) -> None:
    """Where outputs are not close, or whole numbers alone, which can agree by chance."""
    model, folded = normalised()
    with pytest.raises(InputError, match="different weights on the two sides"):
        probe.first_difference(
            lambda: change(model(PICTURE)), lambda: change(folded(PICTURE) - 0.1)
        )


def test_other_rows_of_one_input_are_not_taken_for_the_same() -> None:
    found = probe.first_difference(
        lambda: torch.stack([row @ W for row in X[:2]]), lambda: X[1:] @ W, explain=False
    )
    assert found.found.outputs[0].compared == 7 * 12


def test_a_product_its_shape_and_its_bias_are_one_case() -> None:
    product = Contracts("mk,kn->mn")
    steps = (
        Step(product, (0, 1), (6, 4)),
        Step(Reshapes(), (3,), (2, 3, 4)),
        Step(Each("add", "adds"), (4, 2), (2, 3, 4)),
    )
    shapes = [(6, 5), (5, 4), (4,)]
    one = sum_of(Steps(steps), shapes, (2, 3, 4), ["float32"] * 4)
    assert (one.summands, one.filters, one.batch, one.output_shape()) == (5, 4, 6, (6, 4))
    assert one.b is not None and one.b.number == 2 and not one.functions
    values = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(one.y.taken(values).reshape(6, 4), values.reshape(6, 4))

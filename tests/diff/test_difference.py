"""What of two runs is compared, in models as users write them; verdicts, and why there is none."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe.diff.difference import Difference
from probe.diff.match import SIZED
from probe.diff.pairing import Unselected
from tests.record.onnx_files import onnx_model

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional as F  # noqa: E402, N812

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
    module = torch.nn.Module()
    module.forward = model
    found = probe.network(module, vary="batch", at=1, inputs={"x": X.numpy()}, explain=False)
    (pair,) = found.found.outputs
    assert pair.unselected is Unselected.FREE and pair.compared == model(X[:1]).numel()


def unfolded(x: torch.Tensor) -> torch.Tensor:
    columns = F.unfold(x, 3)
    return (FILTERS.view(6, -1) @ columns).view(2, 6, 7, 7)


def test_two_formulas_of_the_same_inputs_are_compared_whole() -> None:
    def plain() -> torch.Tensor:
        return F.conv2d(PICTURE, FILTERS)

    found = probe.first_difference(plain, lambda: unfolded(PICTURE), explain=False)
    assert found.found.outputs[0].compared == plain().numel()
    assert found.found.matched.startswith("by value")
    same = np.array_equal(plain().numpy(), unfolded(PICTURE).numpy())
    assert found.verdict == ("equal" if same else "differs")


def test_what_each_side_runs_alone_is_named() -> None:
    """Where nothing that is close says what one operation of a side is on the other."""
    found = probe.first_difference(lambda: X.sin() @ W, lambda: X @ W)
    assert found.verdict == "differs" and "only left: aten.sin" in found.lines()[1]
    found = probe.first_difference(lambda: X @ W, lambda: X.cos().neg().neg() @ W)
    assert "only right: aten.cos and 2 more" in found.lines()[1]


def test_what_stands_in_one_place_is_the_source_though_nothing_says_that_it_is_close() -> None:
    found = probe.first_difference(lambda: X.sin() @ W, lambda: X.cos().neg().neg() @ W)
    first = found.found.first
    assert first is not None and first.cause == "algorithm"
    assert first.op == "aten.sin against aten.cos + aten.neg + aten.neg"


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
def test_other_weights_behind_other_operations_are_named(change) -> None:
    """Where outputs are not close, or whole numbers alone, which can agree by chance."""
    model, folded = normalised()
    sides = lambda: change(model(PICTURE)), lambda: change(folded(PICTURE) - 0.1)
    found = probe.first_difference(*sides).found
    assert "(0.weight), so these are different models" in str(found.notes)


def test_other_rows_of_one_input_differ() -> None:
    found = probe.first_difference(
        lambda: torch.stack([row @ W for row in X[:2]]), lambda: X[1:] @ W, explain=False
    )
    assert not found.found.sources and not found.found.outputs[0].differing


def test_a_size_that_differs_is_no_source(tmp_path):
    node = pytest.importorskip("onnx", reason="models are made with onnx").helper.make_node
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    nodes = [node("Shape", ["x"], ["n"], start=0, end=1), node("Tanh", ["x"], ["y"])]
    path = tmp_path / "sizes.onnx"
    path.write_bytes(onnx_model(nodes, {"x": ["N", 4]}, {"y": ["N", 4], "n": None}))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    found = probe.network(path, vary="batch", at=1, against=3, inputs={"x": x})
    difference: Difference = found.found
    (shape,) = (one for one in difference.operations if one.op == "Shape")
    assert shape.verdict == "unknown" and shape.reason == SIZED


def test_an_array_without_elements_leaves_no_verdict_open():
    x = torch.randn(3, 5)
    found = probe.first_difference(lambda: (x * 2, x[:0] * 2), lambda: (x * 2, x[:0] * 2))
    assert found.verdict == "equal" and found.lines()[2] == "all 15 outputs that must agree do"
    assert found.lines()[1].startswith("equal: ")
    empty = probe.first_difference(lambda: x[:0] * 2, lambda: x[:0] * 2)
    assert empty.verdict == "equal" and empty.lines()[2] == "the outputs have no elements"

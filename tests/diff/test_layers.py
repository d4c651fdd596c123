"""A model's operation is called what its users call it, and reported as the case that it is."""

from dataclasses import replace

import numpy as np
import pytest

import probe
from probe.case.errors import NotReproduced
from probe.diff.alone import Alone, as_users_write, case_of, layer_of, layer_text
from probe.diff.source import find_cause
from probe.diff.walk import walk
from probe.explain.runs import outputs_of_call
from probe.record.recording import record_run
from probe.record.subject import function_recorder
from probe.report import recorded
from probe.targets.launch import open_session
from probe.targets.target import Target

torch = pytest.importorskip("torch")

SPELLED = {
    "nn.Linear(12, 5)": probe.Case("dense", in_channels=12, filters=5),
    "nn.Conv1d(4, 6, 3, stride=2, padding=1)": probe.Case(
        "conv1d", 3, 4, 6, 9, stride=2, padding=1
    ),
    "nn.Conv1d(4, 6, 5, padding=2)": probe.Case("conv1d", 5, 4, 6, 9, padding="same"),
    "nn.Conv2d(4, 4, (3, 3), groups=4)": probe.Case("depthwise_conv2d", 3, 4, length=9),
}


@pytest.mark.parametrize("text", SPELLED)
def test_a_case_in_the_words_of_pytorch(text):
    assert as_users_write(SPELLED[text], "torch") == text


def test_in_the_words_of_keras():
    case = probe.Case("conv1d", kernel=3, in_channels=4, filters=6, padding="same", length=9)
    assert as_users_write(case, "tensorflow") == "Conv1D(6, 3, padding='same') of 4 channels"
    dense = probe.Case("dense", in_channels=12, filters=5)
    assert as_users_write(dense, "keras") == "Dense(5) of 12 numbers"
    assert as_users_write(dense, "tensorflow", False) == "tf.matmul with 12x5 weights"


LAYERS = {
    "nn.Linear(12, 5)": (lambda: torch.nn.Linear(12, 5), (40, 12)),
    "nn.Linear(12, 3)": (lambda: torch.nn.Linear(12, 3, bias=False), (2, 20, 12)),
    "nn.Conv1d(4, 6, 3, stride=2)": (lambda: torch.nn.Conv1d(4, 6, 3, stride=2), (2, 4, 9)),
    "nn.Conv2d(4, 6, (3, 3), padding=1, groups=2)": (
        lambda: torch.nn.Conv2d(4, 6, 3, padding=1, groups=2),
        (2, 4, 7, 9),
    ),
    "nn.ConvTranspose2d(4, 6, (3, 3), stride=2, padding=1, output_padding=1, groups=2)": (
        lambda: torch.nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2),
        (2, 4, 3, 5),
    ),
    "nn.Conv2d(4, 8, (3, 2), groups=4)": (
        lambda: torch.nn.Conv2d(4, 8, (3, 2), groups=4),
        (2, 4, 7, 9),
    ),
}


@pytest.mark.parametrize("text", LAYERS)
def test_a_case_has_the_operands_of_the_operation_and_its_outputs(text):
    """What the case multiplies and adds in float64 is what the layer gave."""
    made, shape = LAYERS[text]
    torch.manual_seed(2)
    layer, x = made().eval(), torch.randn(*shape)
    with torch.no_grad():
        run = record_run(function_recorder(lambda: layer(x)))
    sums = (n for n, op in enumerate(run.operations) if op.meaning.sums)
    alone = Alone.of(run, next(sums), 0, None, 0)
    assert layer_text(alone) == text
    case, summed = case_of(alone), alone.summed
    if case.op == "dense" and summed.b is None:  # a sum may have its operands the other way round
        assert (case.batch, case.in_channels, case.filters) == (40, 12, 3)
        return
    x, w, b = summed.of(alone.reads)
    x, w = x.reshape(case.input_shape()), w.reshape(case.weight_shape)
    given = summed.y.taken(alone.gives[0]).reshape(case.output_shape())
    with open_session(Target("reference")) as session:
        outputs = outputs_of_call(session, case, (x, w, b))
    assert outputs.shape == given.shape and np.abs(outputs - given).max() < 1e-5


def compared():
    """Two runs of a layer, of whose first rows some differ on this processor."""
    torch.manual_seed(1)
    for width in (96, 384, 768):
        layer, x = torch.nn.Linear(width, 64).eval(), torch.randn(40, width)
        for count in (1, 2, 3, 5, 7, 9, 11, 13):
            if (layer(x[:count]) != layer(x)[:count]).any():
                walked = probe.first_difference(
                    lambda layer=layer, x=x[:count]: layer(x), lambda layer=layer, x=x: layer(x)
                )
                if walked.first is not None and walked.first.verdict == "source":
                    return walked.found, walked.first
    pytest.skip("this processor adds all rows of these layers alike")


@pytest.mark.slow
def test_the_report_of_a_layer_is_that_of_a_small_case_with_its_cause(tmp_path, monkeypatch):
    found, first = compared()
    cause = find_cause(found.left, found.right, first)
    made = recorded.write_case(tmp_path / "out", (found.left, found.right), first, cause)
    assert made.finding.vary == "batch" and made.before.cause == cause.kind
    assert made.finding.case.in_channels < found.left.values[0].shape[-1]
    monkeypatch.setattr(recorded.folder, "reproduce", lambda *_, **more: made)
    other = replace(cause, kind="precision")
    with pytest.raises(NotReproduced, match="its cause is .*, not precision"):
        recorded.write_case(tmp_path / "two", (found.left, found.right), first, other)
    assert not (tmp_path / "two").exists()


def test_what_is_no_product_or_convolution_is_no_case():
    x = torch.randn(40, 33)

    def run(rows):
        with torch.no_grad():
            return torch.softmax(x[:rows] * 3, -1)

    found = walk(function_recorder(lambda: run(3)), function_recorder(lambda: run(40)), False)
    assert all(layer_of(found, one) == "" for one in found.operations if one.differing)

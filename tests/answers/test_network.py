"""A model padded on targets, and models that no target can run."""

import json

import pytest
from click.testing import CliRunner

from lib import nine_layers
from probe.answers import network as answers
from probe.cli.models import network as command
from probe.errors import InputError, ProbeError
from tests.recording.taped import network, normal


def test_models_in_memory_have_no_targets():
    with pytest.raises(InputError, match="a target's switches need a process of their own"):
        answers.network(network(normal(6, 32)), against_target="reference")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        answers.network(network(normal(6, 32)), colour=3)


def switching(tmp_path, **words):
    """Nine layers in small as an ONNX file, and a target that adds short rows otherwise."""
    pytest.importorskip("onnxruntime")
    path = nine_layers.onnx_model(tmp_path / "small.onnx", width=3, blocks=2, **words)
    shape = {"x": (1, 1, 1, 80)}
    return str(path), "reference,algorithm=pairwise,length_switch=9", {"shapes": shape, "fixed": 80}


@pytest.mark.slow
def test_a_graph_is_padded_on_a_target_that_is_not_its_own(tmp_path):
    path, target, words = switching(tmp_path)
    found = answers.network(path, target, lengths=[1, 20, 40], plan=tmp_path / "plan", **words)
    told = found.to_json()
    assert (told["verdict"], told["first"], told["target"]) == ("differs", "conv3", target)
    for one in told["contents"]:  # conv3 adds as at the full length where it gives 9 positions
        assert one["least"] <= one["safe"] and one["sets"]
        assert one["at_safe"]["by_order"] == "same"
    assert found.plan.failed == [] and found.plan.sets
    assert [one["safe"] for one in told["contents"]] == [64, 64, 68]
    assert any("ran there" in one for one in told["notes"])


def test_a_target_that_fails_does_not_hide_the_others(tmp_path):
    path, target, words = switching(tmp_path)
    options = ["--fixed", "80", "--lengths", "1", "--shape", "x=1x1x1x80"]
    options += ["--target", "tensorflow==0.1", "--target", target]
    options += ["--plan", str(tmp_path / "plans")]
    shown = CliRunner().invoke(command, [path, *options, "--json"], standalone_mode=False)
    told = json.loads(shown.stdout)
    assert shown.return_value == 3 and list(told["targets"]) == [target]
    assert [one["target"] for one in told["failures"]] == ["tensorflow==0.1"]
    assert len(list((tmp_path / "plans").glob("*/plan.json"))) == 1
    with pytest.raises(ProbeError):
        answers.network(path, "tensorflow==0.1", lengths=[1], **words)

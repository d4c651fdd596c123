"""A model padded on targets, and models that no target can run."""

import pytest

from lib import nine_layers
from probe.case.errors import InputError, ProbeError
from probe.ui.answers import network as answers
from tests.record.taped import network, normal


def test_models_in_memory_have_no_targets():
    with pytest.raises(InputError, match="a target's switches need a process of their own"):
        answers.network(network(normal(6, 32)), against_target="reference")
    with pytest.raises(InputError, match="colour=3: probe.network takes no such argument"):
        answers.network(network(normal(6, 32)), colour=3)


def small(tmp_path, **words):
    """Nine layers in small as an ONNX file, and how it is padded."""
    pytest.importorskip("onnxruntime")
    path = nine_layers.onnx_model(tmp_path / "small.onnx", width=3, blocks=2, **words)
    return str(path), {"shapes": {"x": (1, 1, 1, 80)}, "fixed": 80}


@pytest.mark.slow
def test_a_file_is_run_whole_on_a_target_that_is_not_its_own(tmp_path):
    pytest.importorskip("openvino")
    path, words = small(tmp_path)
    found = answers.network(path, "openvino", lengths=[1, 20], plan=tmp_path / "plan", **words)
    told = found.to_json()
    assert told["target"] == "openvino" and told["operations_total"] == 0
    for one in told["contents"]:
        assert (one["least"] <= one["safe"] and one["at_safe"]["by_order"] == "unknown") or (
            one["safe"] == 80
        )
    assert found.plan.failed == []
    assert any("the whole file is run there" in one for one in told["notes"])


def test_a_target_that_runs_no_files_says_so(tmp_path):
    path, words = small(tmp_path)
    with pytest.raises(ProbeError, match="runs no whole files"):
        answers.network(path, "reference", lengths=[1], **words)

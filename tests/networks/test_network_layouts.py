"""Safe lengths for inputs that lie otherwise in memory: turned ones, as programs have them."""

from __future__ import annotations

import numpy as np
import pytest

from lib.chains import safe
from lib.chains.checks import differing
from lib.chains.description import from_json
from lib.chains.running import content
from lib.chains.safe import SafeLengths
from probe import Target
from probe.launch import InlineSession

NETWORK = from_json(
    {
        "in_channels": 2,
        "layers": [
            {"op": "conv1d", "kernel": 4, "filters": 3, "bias": True},
            {"op": "activation", "activation": "relu"},
            {"op": "conv1d", "kernel": 3, "filters": 2},
        ],
    }
)
CONTENTS = (3, 9, 20)


class TwoKernels:
    """A double of a library that has another kernel for turned inputs.

    ``lying``: f(size of the input) -> the layouts that its layers read where the input is turned.
    """

    def __init__(self, plain, turned, lying):
        self.plain, self.turned, self.lying = plain, turned, lying

    def __getattr__(self, name):
        return getattr(self.plain, name)

    def request(self, header, arrays=None):
        if header["do"] == "network":
            self.turned.request(header, arrays)
        session, sent = self._to(header)
        answer, found = session.request(sent, arrays)
        if header.get("layout") == "transposed":
            answer = {**answer, "layouts": self.lying(arrays["x"].shape[-2])}
        return answer, found

    def stream(self, header, arrays=None):
        session, sent = self._to(header)
        return session.stream(sent, arrays)

    def _to(self, header):
        word = header.get("layout", header.get("spec", {}).get("layout"))
        if word != "transposed":
            return self.plain, header
        sent = {**header, "layout": "contiguous"} if "layout" in header else dict(header)
        if "spec" in sent:
            sent["spec"] = {k: v for k, v in sent["spec"].items() if k != "layout"}
        return self.turned, sent


@pytest.fixture
def lengths(monkeypatch):
    """f(lying): safe lengths on two kernels, of which that for turned inputs switches at 9."""
    with (
        InlineSession(Target.parse("reference,algorithm=pairwise")) as plain,
        InlineSession(Target.parse("reference,algorithm=pairwise,length_switch=9")) as turned,
    ):
        monkeypatch.setattr(safe, "examined", lambda target: ("contiguous", "transposed"))

        def made(lying):
            return SafeLengths(TwoKernels(plain, turned, lying), NETWORK.geometry(40))

        yield made


def planned(lengths):
    """The padded lengths of the contents, and what finds them."""
    table = lengths.table(CONTENTS)
    assert not any(differing(lengths, one, to, 1) for one, to in table.items())
    return [table[one] for one in CONTENTS], lengths


def test_a_length_is_safe_only_if_it_is_for_turned_inputs_too(lengths, monkeypatch):
    every, made = planned(lengths(lambda size: ["transposed"] * 3))
    assert every == [14, 14, 25]  # from 14 positions on the last layer gives 9 outputs
    assert made.layouts == ("contiguous", "transposed")
    monkeypatch.setattr(safe, "examined", lambda target: ("contiguous",))
    plain, made = planned(lengths(lambda size: pytest.fail("asked in vain")))
    assert plain == [8, 14, 25] and made.layouts == ("contiguous",)


def test_lengths_at_which_layers_hand_on_other_layouts_are_not_safe(lengths):
    found, _ = planned(lengths(lambda size: ["transposed", *["other" if size < 30 else "x"] * 2]))
    assert found == [30, 30, 30]


def test_pytorch_keeps_a_turned_inputs_bits_at_safe_lengths(started):
    # 5 positions were called safe for content of 4: a turned (1, 5, 1) takes another kernel
    torch = pytest.importorskip("torch")
    layers = [{"op": "conv1d", "kernel": 2, "filters": 8, "bias": True}]
    network = from_json({"layers": layers})
    made = SafeLengths(started("torch"), network.geometry(200))
    assert made.layouts == ("contiguous", "transposed")
    w, b = (torch.tensor(network.layers[0].arrays[name]) for name in ("weights", "bias"))
    w = w.movedim((-1, -2), (0, 1)).contiguous()
    for seed in range(12):
        x = content(network, 200, seed)
        whole = torch.conv1d(torch.tensor(x).transpose(1, 2), w, b)
        for one in (2, 4):
            given = torch.tensor(x[:, : made.safe(one)].copy())
            short = torch.conv1d(given.transpose(1, 2), w, b)
            assert torch.equal(short[..., :one], whole[..., :one]), (one, seed)


def test_pytorch_says_in_which_layouts_layers_read(started):
    pytest.importorskip("torch")
    runner = SafeLengths(started("torch"), NETWORK.geometry(40)).runner
    x = content(NETWORK, 40)
    assert runner.lying(x, "contiguous") == ["contiguous"] * 3
    told = runner.lying(x, "transposed")
    assert told[0] == "transposed" and set(told) <= {"contiguous", "transposed", "other"}
    turned, _ = runner.end_to_end(x, word="transposed")
    assert np.allclose(turned, runner.output(x), atol=1e-5)

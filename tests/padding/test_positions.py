"""What shorter runs share with the full one is derived from which positions operations read."""

from types import SimpleNamespace

import numpy as np
import pytest

import probe
from probe.padding.positions import box_index
from probe.padding.search import PaddedModel
from probe.recording.subject import open_model
from tests.padding.graphs import CHANNELS, FIXED, ONE, X, conv, graph


def test_windows_that_lie_in_the_padding_read_nothing():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Conv1d(CHANNELS, 2, 1, padding=1, bias=False)
    x = {"x": np.moveaxis(X, 1, 2)}
    found = probe.network(model, vary="x:2", fixed=FIXED, lengths=[5], inputs=x).to_json()
    assert found["verdict"] == "equal" and found["contents"][0]["safe"] <= 6


def test_content_that_gets_in_unseen_is_not_taken_for_a_constant():
    """Sizes of such a function are not derived: its outputs read more than operations show."""
    first = conv("first")

    def model(x):
        aside = np.array([[np.asarray(x).max()]], np.float32)  # what no recorded operation gives
        return first(x, ONE) + aside

    one = graph(model)
    assert one.positions is None
    assert one.sized(5).safe == 5 and one.own_places  # every output reads content


GRAPHS = {
    "strided": lambda nn, x: nn.b(nn.a(x).relu()),
    "residual": lambda nn, x: x + nn.c(nn.c(x).tanh()),
    "upsampled": lambda nn, x: nn.c(nn.d(nn.a(x).relu())),
    "dilated and causal": lambda nn, x: nn.e(nn.pad(x)),
    "concatenated": lambda nn, x: nn.c(nn.torch.cat([nn.c(x)[:, :2], x[:, 2:]], 1)),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.slow_at("upsampled")
def test_safe_sizes_hold_on_random_and_on_cancelling_data(name):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    parts = SimpleNamespace(
        torch=torch,
        a=torch.nn.Conv1d(4, 4, 3, 2, 1),
        b=torch.nn.Conv1d(4, 4, 4, 2, 1),
        c=torch.nn.Conv1d(4, 4, 3, padding=1),
        d=torch.nn.ConvTranspose1d(4, 4, 4, 2, 1),
        e=torch.nn.Conv1d(4, 4, 3, dilation=2),
        pad=torch.nn.ConstantPad1d((4, 0), 0.0),
    )

    @torch.no_grad()
    def model(x):
        return GRAPHS[name](parts, x if isinstance(x, torch.Tensor) else torch.from_numpy(x))

    whole = np.random.default_rng(0).standard_normal((1, 4, 64)).astype(np.float32)
    one = PaddedModel(open_model(model), {"x": whole}, {"x": 2}, 64)
    assert one.positions is not None  # no size is recorded for itself
    for content in (1, 6, 21):
        found = one.sized(content)
        (box,) = found.at_safe.boxes
        for seed in range(8):
            x = np.random.default_rng(seed).standard_normal(whole.shape).astype(np.float32)
            if seed % 2:  # neighbours cancel but for their last bits
                x[..., 1::2] = -x[..., ::2] * np.float32(1 + 2**-11)
            x[..., content:] = 0
            full, short = model(x).numpy(), model(x[..., : found.safe].copy()).numpy()
            mine, other = short[box_index(box, True, 3)], full[box_index(box, False, 3)]
            assert mine.tobytes() == other.tobytes(), (content, seed)

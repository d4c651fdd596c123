"""Calls of PyTorch's functions: layers by themselves, inference mode, autocast, odd tensors."""

import warnings

import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from tests.sizes.invariant.models import dependent, differing, module, of


@pytest.mark.slow
def test_layers_one_after_the_other_have_the_bits_that_they_have_within_a_module(torch):
    nn = torch.nn
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(24, 24))
    plain = nn.Sequential(
        *(nn.Conv1d(3, 6, 2), nn.BatchNorm1d(6), nn.ReLU(), nn.Flatten(), nn.Dropout()),
        *(nn.Linear(24, 24), nn.Sequential(nn.LayerNorm(24), nn.GELU(), nn.SiLU()), weighted),
        *(nn.AdaptiveAvgPool1d(7), nn.Linear(7, 4)),
    ).eval()
    hooked = []
    plain[5].register_forward_hook(lambda *given: hooked.append(len(given[1][0])))

    within = of(torch, lambda x: within.inner(x))
    within.inner = plain
    (one, report), (other, _) = (stable.invariant(part, (1, 16)) for part in (plain, within))
    x = torch.randn(16, 3, 5)
    for count in (16, 1, 5, 16, 1, 5):
        assert differing(torch, one(x[:count]), other(x[:count])) == 0
    assert hooked[-6:] == [16, 16, 1, 1, 5, 5] and report.complete
    plain[5] = nn.Linear(24, 24, bias=False).eval()
    assert differing(torch, one(x[:5]), other(x[:5])) == 0


@pytest.mark.parametrize("where", ["around", "within"])
def test_inference_mode_runs_the_operations_that_are_run_outside(torch, where):
    """In it operations arrive whole, and PyTorch's own parts of them are different ones there."""

    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = torch.nn.GRU(19, 32, batch_first=True, bidirectional=True)
            self.w = torch.nn.Parameter(torch.randn(9, 8))

        def forward(self, x):
            with torch.inference_mode(where == "within" and inside):
                y = torch.nn.functional.interpolate(x[:, None], scale_factor=1.7, mode="bilinear")
                steps = y[:, 0, :, :18].unflatten(2, (2, 9)) @ self.w
                return torch.cat([self.gru(x.clone())[0].flatten(1), steps.flatten(1)], 1)

    inside = False
    model, report = stable.invariant(Parts().eval(), range(1, 17))
    x = torch.randn(16, 11, 19)
    whole = model(x)
    assert not dependent(model, x)
    rows, inside = {row.operation for row in report.rows}, True
    with torch.inference_mode(where == "around"):
        again = model(x.clone())
        assert differing(torch, again, whole) == 0 and not dependent(model, x.clone())
    assert {row.operation for row in report.rows} == rows and report.complete


def test_what_is_changed_in_place_in_inference_mode_is_changed(torch):
    model, _ = stable.invariant(torch.nn.ReLU(inplace=True).eval())
    with torch.inference_mode():
        x = torch.randn(3, 5)
        model(x)
        assert (x >= 0).all()
        counted = torch.nn.BatchNorm1d(5).eval()
        counted.register_buffer("calls", torch.zeros(1))
    counted.forward = lambda x: x + counted.calls.add_(1)
    model, _ = stable.invariant(counted)
    with pytest.raises(InputError, match="make the model outside of torch.inference_mode"):
        model(torch.randn(3, 5))


def test_autocast_within_a_part_keeps_its_bits(torch):
    class Cast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = torch.nn.Linear(96, 80), torch.nn.Linear(80, 40)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = torch.nn.functional.layer_norm(torch.nn.functional.gelu(self.one(x)), (80,))
                mixed = y[:, None] @ y[:, :, None]
            return self.other(y.float()) + mixed[:, 0].float()

    plain, x = Cast().eval(), torch.randn(16, 96)
    model, report = stable.invariant(plain, range(1, 17), strict=True)
    with torch.no_grad():
        assert torch.allclose(model(x), plain(x), rtol=0.1, atol=0.1)
    assert not dependent(model, x) and report.complete
    assert any("bfloat16" in row.operation for row in report.rows)


def test_sparse_inputs_are_run_and_reported(torch):
    from probe.sizes.invariant.torch_functions import unusual

    model, report = stable.invariant(torch.nn.Linear(9, 4).eval(), (1, 3))
    x = torch.randn(3, 9)
    for _ in range(2):
        assert torch.allclose(model(x), model(x.to_sparse()), atol=1e-5)
    assert unusual([x.to_sparse()]) and not unusual([x]) and not report.complete


def test_a_batch_without_samples_is_empty_and_hides_nothing(torch):
    nn = torch.nn

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            parts = nn.LayerNorm(16), nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 16)
            self.expert, self.norm = nn.Sequential(*parts), nn.GroupNorm(2, 16)

        def forward(self, x):
            none = x[x[:, 0] > 1e9]
            return self.expert(x) + self.norm(x) + (self.expert(none) + self.norm(none)).sum(0)

    model, report = stable.invariant(Experts().eval(), (1, 8), strict=True)
    x = torch.randn(8, 16)
    assert not dependent(model, x) and model(x[:0]).shape == (0, 16) and report.complete
    for layer in (
        nn.GRU(5, 4, batch_first=True),
        nn.TransformerEncoderLayer(5, 1, 8, batch_first=True),
    ):
        model, report = stable.invariant(layer.eval(), (1, 8), strict=True)
        y = model(torch.randn(0, 3, 5))
        assert len(y[0] if isinstance(y, tuple) else y) == 0 and report.complete


def test_a_nested_tensor_inside_is_reported(torch):
    def nested(layer, x):
        rows = torch.nested.nested_tensor([one[None] for one in x])
        return torch.nested.to_padded_tensor(layer(rows), 0.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of nested tensors
        model, report = stable.invariant(module(torch, nested), (1, 8))
        model(torch.randn(3, 12))
    assert not report.complete

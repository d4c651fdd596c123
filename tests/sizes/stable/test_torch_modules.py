"""PyTorch modules made stable keep their state, and depend on their own window or row alone."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long


def torch_network(torch):
    parts = [torch.nn.Conv1d(3, 6, 5), torch.nn.BatchNorm1d(6), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts, torch.nn.Conv1d(6, 4, 3, groups=2)).eval()
    with torch.no_grad():
        for one in (model[1].running_mean, model[1].weight, model[1].bias):
            one.copy_(torch.randn(6))
        model[1].running_var.uniform_(0.5, 2)
    return model


@pytest.mark.parametrize("accumulate", [None, "float64"])
def test_torch_normalisation_depends_on_its_element_alone(accumulate):
    torch = pytest.importorskip("torch")
    from probe.sizes.stable import torch_modules

    model = torch_network(torch)
    made = torch_modules.stabilized(model, accumulate)
    assert made.state_dict().keys() == model.state_dict().keys()
    x = torch.randn(17, 3, 60)
    with torch.no_grad():
        whole = made(x)
        torch.testing.assert_close(whole, model(x), rtol=1e-4, atol=1e-4)
        for rows in (1, 2, 9):
            for length in (7, 8, 13, 60):
                assert torch.equal(made(x[:rows, :, :length]), whole[:rows, :, : length - 6])
    made.train()
    assert not torch.equal(made(x), whole)  # means over the batch, as in any training

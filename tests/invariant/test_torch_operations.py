"""What each of PyTorch's operations is in the invariant mode, by its arguments."""

import pytest

from probe import stable

FUNCTIONS = {
    "pow": lambda torch, x: 2.0**x,
    "remainder": lambda torch, x: torch.remainder(2.0, x),
    "xlogy": lambda torch, x: torch.xlogy(2.0, x),
    "xlog1py": lambda torch, x: torch.special.xlog1py(2.0, x),
    "zeta": lambda torch, x: torch.special.zeta(2.5, x + 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_number_and_elements_is_that_function(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Function(torch.nn.Module):
        def forward(self, x):
            return FUNCTIONS[name](torch, x)

    x = torch.rand(8, 37, generator=torch.Generator().manual_seed(5)) + 0.1
    model, report = stable.invariant(Function().eval(), [1, 8])
    whole = model(x)
    assert report.complete, report
    torch.testing.assert_close(whole, FUNCTIONS[name](torch, x), rtol=1e-6, atol=1e-6)
    assert torch.equal(model(x[3:4]), whole[3:4])

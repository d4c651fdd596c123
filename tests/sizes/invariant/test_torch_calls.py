"""PyTorch's calls: where operands lie in memory, and which settings choose kernels."""

import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from tests.sizes.invariant.models import dependent, differing, module, of


@pytest.mark.parametrize(("channels", "filters"), [(32, 10), (33, 10), (28, 2), (64, 48)])
@pytest.mark.parametrize("kind", ["linear", "matmul", "bmm"])
def test_where_operands_begin_in_memory_does_not_matter(torch, kind, channels, filters):
    """Rows of odd lengths begin at any place in a vector, and so do weights that are mapped."""
    size = channels * filters
    weight = torch.nn.Parameter(torch.randn(size + 1)[1:].view(filters, channels))

    def product(x):
        if kind == "bmm":
            return torch.bmm(x[:, None], weight.t().expand(len(x), channels, filters))
        return torch.nn.functional.linear(x, weight) if kind == "linear" else x @ weight.t()

    model, report = stable.invariant(of(torch, product), [1, 64])
    parts = (0, 1), (1, 1), (3, 2), (1, 9), (5, 16), (2, 33), (1, 63)
    assert not dependent(model, torch.randn(64, channels), parts=parts)
    assert report.complete, report


def test_strides_of_axes_of_one_do_not_matter(torch):
    model, _ = stable.invariant(torch.nn.Linear(1, 77).eval(), [64])
    x, odd = torch.randn(64, 1), torch.empty(1, 64).t()
    odd.copy_(x)
    assert differing(torch, model(odd), model(x)) == 0
    assert not dependent(model, x, parts=[(row, 1) for row in range(8)])


@pytest.fixture
def settings(torch):
    """Sets them back."""
    flags, precision = torch.backends.mkldnn.set_flags(), torch.get_float32_matmul_precision()
    yield
    torch.backends.mkldnn.set_flags(flags[0])
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("name", ["precision", "mkldnn"])
def test_settings_that_change_are_one_line(torch, settings, name):
    plain, x = torch.nn.Linear(64, 48).eval(), torch.randn(16, 64)
    model, report = stable.invariant(plain, (1, 16), example=x)
    before = model(x)
    if name == "precision":
        torch.set_float32_matmul_precision("medium")
    else:
        torch.backends.mkldnn.set_flags(False)
    with pytest.raises(InputError, match=f"{name}.*call stable.invariant again"):
        model(x)
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.set_flags(True)
    assert torch.equal(model(x), before) and report.complete


def test_a_setting_that_a_model_changes_inside_is_reported(torch, settings):
    def function(layer, x):
        y = layer(x)
        before = torch.backends.mkldnn.set_flags(False)
        y = y * layer(x)
        torch.backends.mkldnn.set_flags(before[0])
        return y

    _, report = stable.invariant(module(torch, function), (1, 8), example=torch.randn(8, 12))
    assert any("linear with mkldnn=False" in name for name in report.left)


def test_few_samples_are_given_to_onednn_where_that_has_the_bits(torch):
    from probe.sizes.invariant.torch_calls import TorchConvolution
    from probe.sizes.invariant.torch_products import OneDNN

    for shape, kernel in (((4, 20), (6, 4, 3)), ((4, 9, 7), (6, 4, 3, 1))):
        words = {"stride": (1,) * (len(shape) - 1), "padding": (1,) * (len(shape) - 1)}
        like = TorchConvolution(shape, kernel, torch.float32, True, words)
        x, w = (torch.randint(-9, 9, one).float() for one in ((3, *shape), kernel))
        for bias in (w.flatten()[:6], w.flatten()[: 6 * 4 : 4]):  # also one with gaps in memory
            y = OneDNN(like).call((x,), (w, bias))
            assert torch.equal(y, like.call((x,), (w, bias)))

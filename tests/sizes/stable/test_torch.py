"""The prefix-stable convolution in PyTorch."""

import pytest

from probe import Case
from tests.sizes.stable.test_convolution import Library, words

pytestmark = pytest.mark.long


def test_gradients_of_gradients():
    torch = pytest.importorskip("torch")
    from probe.sizes.stable.torch import conv

    library = Library("torch")
    case = Case("conv1d", 3, 4, 2, 9, stride=2, groups=2, padding="same", dtype="float64")
    x, w, _ = (one if one is None else one.requires_grad_() for one in library.operands(case))
    assert torch.autograd.gradgradcheck(lambda x, w: conv(x, w, None, **words(case)), (x, w))

"""What tests of the invariant mode are given."""

import pytest


@pytest.fixture
def torch():
    """PyTorch, with its threads set back."""
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    before = found.get_num_threads()
    found.manual_seed(0)
    yield found
    found.set_num_threads(before)

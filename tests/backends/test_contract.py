"""What every backend says of itself, and what an exception says of a refusal."""

from __future__ import annotations

import pytest

from probe import backends
from probe.backends.contract import Backend, Key


@pytest.mark.parametrize("name", backends.known_backends())
def test_a_backend_describes_itself_without_its_library(name):
    backend = backends.get(name)
    assert issubclass(backend, Backend) and backend.name == name
    assert backend.distributions and backend.module and backend.doc and "cpu" in backend.devices
    for key in backend.keys.values():
        assert isinstance(key, Key) and key.doc and key.default and key.describe()


def test_an_unknown_backend_is_an_error_that_lists_the_known():
    with pytest.raises(KeyError, match="theano is none of: tensorflow"):
        backends.get("theano")

"""The store of a quick run, which the tests of an experiment share."""

import pytest

from tests.experiments.notebooks import ran


@pytest.fixture(scope="module")
def quick(request, tmp_path_factory):
    """The store of a quick run of the experiment that the module names."""
    store = tmp_path_factory.mktemp(request.module.EXPERIMENT)
    ran(request.module.EXPERIMENT, store)
    return store

"""The store of a quick run, which all tests of an experiment share."""

import contextlib
import io

import pytest

from tests.experiments.notebooks import ran


@pytest.fixture(scope="session")
def first(tmp_path_factory):
    """first(name): the store of an experiment's quick run, and what it printed."""
    done = {}

    def run(name):
        if name not in done:
            store = tmp_path_factory.mktemp(name)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                ran(name, store)
            done[name] = store, printed.getvalue()
        return done[name]

    return run


@pytest.fixture
def quick(request, first):
    """The store of a quick run of the experiment that the module names."""
    return first(request.module.EXPERIMENT)[0]

"""Where the tests of commands run."""

import pytest

from tests.ui.cli.commands import in_this_process


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of its own, and the reference in this process."""
    monkeypatch.chdir(tmp_path)
    with in_this_process(monkeypatch):
        yield

"""Where the tests of a store put one."""

import pytest


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "experiment" / "machine-a"

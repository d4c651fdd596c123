"""A project that tests of the lock write and run."""

import pytest

from tests.ui.lock.projects import Project


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)

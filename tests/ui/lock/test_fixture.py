"""The fixture ``bits`` in a project of its own."""

from types import SimpleNamespace

import pytest

from probe.ui.lock import fixture

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_names_that_occur_twice_and_values_without_bits_are_one_line(project):
    project.write(
        "test_it.py",
        """
        import numpy as np

        def test_twice(bits):
            bits.check(1, "x")
            bits.check(2, "x")

        def test_parts(bits):
            bits.check({"x": 1})
            bits.check(2, "x")

        def test_objects(bits):
            bits.check(np.array([None]))
        """,
    )
    wrong = (
        "name=x: this test has checked something of this name already",
        "two checks of this test have one name",
        "an array of objects has no bits",
    )
    assert "Traceback" not in project.says(1, wrong, "--bits-update")


def test_a_check_is_run_again_below_folders_of_any_name(tmp_path):
    """pytest takes brackets in a path for parameters: checks below such a folder had no cause."""
    root = tmp_path / "a [copy]"
    plugins = SimpleNamespace(hasplugin=lambda name: False, list_plugin_distinfo=list)
    config = SimpleNamespace(rootpath=root, inipath=None, pluginmanager=plugins)
    for folder, path in ((root, "./test_a.py::test[x]"), (root / "tests", "../test_a.py::test[x]")):
        config.invocation_params = SimpleNamespace(dir=folder)
        command = fixture._pytest_command(config, "test_a.py::test[x]")
        assert command.words[-1] == path and command.folder == folder

"""pytest's part, as somebody uses it: in projects of their own, in processes of their own."""

import json
from types import SimpleNamespace

import pytest

from probe.ui.lock import checks as locks
from probe.ui.lock import plugin

pytestmark = pytest.mark.long

TEST = """
    import numpy as np
    import pytest

    VALUE = 1.0

    def test_array(bits):
        bits.check(np.arange(6, dtype=np.float32) * VALUE)

    @pytest.mark.parametrize("n", [1, 2])
    def test_cases(bits, n):
        bits.check({"a": np.full(n, VALUE), "b": [1, n]}, "out")
        bits.check(np.zeros(n))
        bits.check(np.ones(n))
"""


@pytest.fixture
def project(project):
    project.write("test_it.py", TEST)
    return project


def test_from_new_to_green_to_changed_to_blessed(project):
    project.says(1, "run pytest --bits-update")
    project.says(0, "", "--bits-update")
    names = [*locks.read_lock(project.lock).checks]
    assert len(names) == 9
    assert {"test_it.py::test_cases[1]::#2", "test_it.py::test_cases[2]::out::a"} < set(names)
    project.says(0, "9 of 9 checks have the same bits")

    project.write("test_it.py", TEST.replace("VALUE = 1.0", "VALUE = 1.5"))
    # how many differ is known as the accepted array is in pytest's cache
    changed = "test_it.py::test_array: the bits changed", "5 of 6 differ"
    project.says(1, changed, "--bits-why=no")
    before = project.lock.read_text()
    project.says(1, "", "--bits-update", "--bits-why=no")  # it adds, it does not replace
    assert project.lock.read_text() == before
    project.says(4, "a reason is required", "--bits-bless", " ")
    project.says(0, "", "--bits-bless", "values are larger")
    assert project.lock.read_text().count('reason = "values are larger"') == 3
    project.says(0, "")


@pytest.mark.slow
def test_an_update_runs_each_body_once_and_what_tests_share_stays_as_it_was(project):
    test = """
        def test_{}(bits):
            CALLS.append(1)
            bits.check(np.tanh, "one", inputs=RNG.normal(size=4))
            bits.check(np.tanh, "two", inputs=[RNG.normal(size=4)])
    """
    head = """
        import numpy as np

        RNG, CALLS = np.random.default_rng(0), []
    """
    last = """
        def test_calls():
            assert len(CALLS) == 2
    """
    project.write("test_it.py", "".join([head, test.format("a"), test.format("b"), last]))
    project.says(0, "", "--bits-update")
    project.says(0, "4 of 4 checks have the same bits")
    # an array is one argument, not a sequence of its rows
    assert all(one.bits.shape == (4,) for one in accepted(project))


def accepted(project):
    return [one for each in locks.read_lock(project.lock).checks.values() for one in each.values()]


@pytest.mark.slow
def test_models_with_a_state_are_green_after_their_update(project):
    pytest.importorskip("torch")
    project.write(
        "test_it.py",
        """
        import pytest
        import torch

        torch.manual_seed(1)
        X = torch.arange(20.0).reshape(5, 4)
        MODEL = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
        )

        @pytest.fixture(scope="session")
        def numbers():
            return iter(range(100))

        def test_dropout_and_statistics(bits):
            bits.check(MODEL.train()(X))

        def test_statistics_of_the_test_before(bits):
            bits.check(MODEL.eval()(X))

        @pytest.mark.parametrize("n", [1, 2])
        def test_a_session_fixture(bits, numbers, n):
            bits.check(torch.exp(X * next(numbers)))

        def test_plain(bits):
            bits.check(torch.softmax(X, 1))
        """,
    )
    project.says(0, "", "--bits-update")
    project.says(0, "", "--bits-why=no")


@pytest.mark.slow
def test_unused_entries_are_told_and_removed(project):
    project.pytest("--bits-update")
    project.write("test_it.py", TEST.replace("test_array", "test_renamed").replace("[1, 2]", "[1]"))
    _, told = project.pytest("--bits-why=no")
    assert "5 checks that no test uses any more" in told
    _, told = project.pytest("-k", "renamed", "--bits-why=no")
    assert "no test uses" not in told  # what was left out says nothing
    project.says(0, "", "--bits-update")
    assert len(locks.read_lock(project.lock).checks) == 5


def test_an_update_accepts_no_bits_that_differ_from_run_to_run(project):
    """Accepted once, it would be red in every run that follows."""
    source = "import os\n\ndef test_random(bits):\n    bits.check(os.urandom(8))\n"
    project.write("test_random.py", source)
    _, told = project.pytest("--bits-update")
    assert "check=test_random.py::test_random: its bits differ from run to run" in told
    project.says(1, "run pytest --bits-update")
    assert "test_random.py::test_random" not in locks.read_lock(project.lock).checks
    assert len(locks.read_lock(project.lock).checks) == 9  # the others are kept


@pytest.mark.slow
def test_a_skipped_or_failed_test_keeps_its_entries(project):
    project.pytest("--bits-update")
    project.write(
        "test_it.py",
        TEST.replace("bits.check(np.arange", "pytest.skip(); bits.check(np.arange").replace(
            "bits.check({", "assert n == 1; bits.check({"
        ),
    )
    project.says(1, "", "--bits-update", "--bits-why=no")
    assert len(locks.read_lock(project.lock).checks) == 9


@pytest.mark.slow
def test_processes_of_xdist_are_one_run(project):
    pytest.importorskip("xdist")
    project.says(0, "", "-n", "2", "--bits-update", apart=True)
    assert len(locks.read_lock(project.lock).checks) == 9
    said, flags = "9 of 9 checks have the same bits", ("-n", "2", "--bits-report=json")
    project.says(0, said, *flags, apart=True)
    found = json.loads((project.folder / "bits-report.json").read_text())
    assert found["same"] == 9
    assert found["unused"] == []
    project.write("test_it.py", TEST.replace("[1, 2]", "[1]"))
    _, told = project.pytest("-n", "2", apart=True)
    assert "4 checks that no test uses any more" in told


@pytest.mark.slow
def test_a_lock_that_cannot_be_read_fails_each_test_in_one_line(project):
    project.pytest("--bits-update")
    text = project.lock.read_text().replace("format = 1", "format = 9")
    project.lock.write_text(text)
    reports = (f"--bits-report={name}" for name in plugin.FORMATS)
    project.says(1, "it has format 9", "--bits-update", *reports)
    for ending in ("json", "md", "txt"):  # what reads them in CI has to see it
        assert "it has format 9" in (project.folder / f"bits-report.{ending}").read_text()
    assert project.lock.read_text() == text
    # the tests passed, and nothing was kept
    why, flags = "No such file or directory", ("--bits-update", "--bits-lock", "nowhere/bits.lock")
    told = project.says(1, why, *flags)
    assert "written" not in told and "Traceback" not in told


def test_a_group_of_xdist_is_no_part_of_a_tests_name():
    mark = SimpleNamespace(args=("large",), kwargs={})
    item = SimpleNamespace(nodeid="t.py::test@large", iter_markers=lambda _: [mark])
    assert plugin.name_of_test(item) == "t.py::test"


@pytest.mark.slow
def test_a_project_that_does_not_use_it_sees_nothing(project):
    project.write(
        "test_it.py",
        """
        import sys

        def test_nothing_is_imported():
            assert not {"numpy", "probe.ui.lock.checks", "probe.targets.machine"} & set(sys.modules)
        """,
    )
    assert "bits" not in project.says(0, "", apart=True)


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
        command = plugin._pytest_command(config, "test_a.py::test[x]")
        assert command.words[-1] == path and command.folder == folder

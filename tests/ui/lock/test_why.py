"""Why bits changed: conditions that bring them back, found by running the check again.

The bits of these projects depend on what the test reads, so that every machine shows the same.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from probe.record.store import bits_of
from probe.ui.lock import checks, conditions, why
from probe.ui.lock.checks import CHANGED, Accepted, BitsSession, Checked, summarised
from probe.ui.lock.conditions import CORES_OF, limiting_variables
from probe.ui.lock.why import Command, Rerun, with_companions

pytestmark = pytest.mark.long

FLAG = """
    import os
    import numpy as np

    def test_flag(bits):
        bits.check(np.float32([1, 2, 3]) * (1 + len(os.environ.get("MKL_CBWR", ""))))
"""


def found(project):
    (one,) = json.loads((project.folder / "bits-report.json").read_text())["checks"]
    return one


@pytest.mark.slow
def test_a_flag_that_brings_the_bits_back_is_the_cause(project):
    project.write("test_it.py", FLAG)
    project.says(0, "", "--bits-update")
    # the conditions have no entry: unknown is no failure
    flags, own = ("--bits-why=all", "--bits-report=json"), {"MKL_CBWR": "COMPATIBLE"}
    project.says(0, "pytest --bits-update", *flags, **own)
    one = found(project)
    assert one["verdict"] == "unknown" and one["why"]["cause"] == "flag MKL_CBWR"
    assert one["why"]["decisions"]["changed"] == 0


@pytest.mark.slow
def test_threads_that_bring_the_bits_back_are_the_cause_beside_an_idle_flag(project):
    text = FLAG.replace('len(os.environ.get("MKL_CBWR", ""))', "len(os.sched_getaffinity(0))")
    project.write("test_it.py", text)
    project.says(0, "", "--bits-update")
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("this process may use one processor alone")
    arguments = "--bits-why=all", "--bits-report=json"
    project.pytest(*arguments, cores=own[:1], MKL_CBWR="COMPATIBLE")
    one = found(project)
    assert set(one["apart"]) == {"threads", "flag MKL_CBWR"}
    assert one["why"]["cause"] == "threads"
    assert one["why"]["brings_back"] == [["threads"]]


@pytest.mark.slow
def test_where_nothing_brings_the_bits_back_it_is_the_code(project):
    project.write("test_it.py", FLAG)
    project.pytest("--bits-update")
    project.write("test_it.py", FLAG.replace("[1, 2, 3]", "[1, -2, 3]"))
    project.says(1, "cause: your code", "--bits-report=json")
    one = found(project)
    assert (one["verdict"], one["why"]["cause"]) == ("changed", "your code")
    assert one["why"]["kind"] == "answers"  # a sign, and the largest number's place, changed
    # unknown conditions too: all of the entry's are brought back, and the bits stay away
    project.pytest("--bits-report=json", "--bits-why=all", MKL_CBWR="AVX2")
    one = found(project)
    assert (one["verdict"], one["why"]["cause"]) == ("changed", "your code")


@pytest.mark.slow
def test_bits_that_do_not_repeat_have_no_cause(project):
    text = """
        import os
        import numpy as np

        def test_random(bits):
            bits.check(np.frombuffer(os.urandom(8), np.uint8))
    """
    # bits that do not repeat are not accepted to begin with
    project.write("test_it.py", text.replace("os.urandom(8)", "bytes(8)"))
    project.pytest("--bits-update")
    project.write("test_it.py", text)
    project.says(1, "", "--bits-report=json")
    assert found(project)["why"]["cause"] == "nondeterministic"


@pytest.mark.slow
def test_a_change_by_another_test_is_no_change_of_the_code(project):
    text = """
        import numpy as np
        STATE = []

        def test_first():
            STATE.append(1)

        def test_second(bits):
            bits.check(np.ones(3) * len(STATE))
    """
    project.write("test_it.py", text.replace("STATE.append(1)", "pass"))
    project.pytest("--bits-update")
    project.write("test_it.py", text)
    project.pytest("--bits-report=json")
    assert found(project)["why"]["cause"] == "process"


def test_companions_are_one_release():
    apart = {
        "release jaxlib": {"library.jaxlib": ("1", "2")},
        "release jax": {"library.jax": ("1", "2")},
        "release keras": {"library.keras": ("3.1", "3.2")},
    }
    assert {group: set(facts) for group, facts in with_companions(apart).items()} == {
        "release jax": {"library.jax", "library.jaxlib"},
        "release keras": {"library.keras"},
    }


@pytest.mark.slow
def test_a_processor_whose_instructions_bring_the_bits_back_is_the_cause(project):
    """The lock of a machine with SSE alone: its bits are made here, limited to these."""
    project.write(
        "test_it.py",
        """
        import numpy as np

        def test_exp(bits):
            bits.check(np.exp(np.linspace(-8, 8, 5000, dtype=np.float32)))
        """,
    )
    project.says(0, "", "--bits-update", **limiting_variables("sse41"))
    with checks.changing(project.lock) as lock:
        ((check, entries),) = lock.checks.items()
        ((old, accepted),) = entries.items()
        facts = {k: v for k, v in lock.conditions[old].items() if not k.startswith("flag.")}
        lock.drop(check)
        lock.accept(check, facts | {"processor": "another", "isa": "sse41"}, accepted.bits)
    # unknown: no entry is of this processor
    project.says(0, "", "--bits-why=all", "--bits-report=json")
    one = found(project)
    if one["verdict"] == "same":
        pytest.skip("this NumPy has one exponential for all instructions")
    assert one["why"]["cause"] == "processor" and one["why"]["brings_back"] == [["processor"]]


@pytest.mark.parametrize("alone", [True, False])
def test_what_was_not_seen_alone_is_no_change_of_the_code(alone, tmp_path, monkeypatch):
    """Either the check needs what other tests did before it, or its run under the entry's
    conditions fails: that nothing brings the bits back proves nothing then."""
    old, new, other = map(bits_of, (0.0, 1.0, 2.0))
    facts = {"cores": 1}
    session = BitsSession(tmp_path / checks.NAME)
    named = session.lock.accept("c", facts, old)
    apart = {} if alone else {"threads": {"cores": (1, 2)}}
    one = Checked("c", "c", new, {"cores": 2}, CHANGED, named, Accepted(old), apart)

    def ran(search, command, said, record=False):
        if said != why.AGAIN:
            return Rerun(tmp_path, why="it crashed")
        return Rerun(tmp_path, {"c": other if alone else new}, {"cores": 2})

    monkeypatch.setattr(why.CauseSearch, "run_under", ran)
    search = why.CauseSearch(one, Command([], tmp_path), ExitStack())
    found = why._searched_cause(search, session)
    assert found["cause"] is None
    wanted = "what runs before it counts" if alone else "this machine can't have all conditions"
    assert wanted in found["notes"][0]


def test_a_stream_that_another_release_draws_differently_is_a_cause_of_its_own(
    tmp_path, monkeypatch
):
    """New numbers of a generator are nobody's rounding, and no mistake of the code."""
    old, new = map(bits_of, (0.0, 1.0))
    apart = {"release torch": {"library.torch": ("2.11.0", "2.12.0")}}
    session = BitsSession(tmp_path / checks.NAME)
    named = session.lock.accept("c", {"library.torch": "2.11.0"}, old)
    one = Checked("c", "c", new, {"library.torch": "2.12.0"}, CHANGED, named, Accepted(old), apart)
    (tmp_path / "recording").mkdir()

    def ran(search, command, said, record=False):
        return Rerun(tmp_path, {"c": new if said == why.AGAIN else old})

    walked = {"class": "generator", "operation": "aten.randn", "rounding": {}, "kind": None}
    monkeypatch.setattr(why.CauseSearch, "run_under", ran)
    monkeypatch.setattr(why, "overlay", lambda releases, install, tell: tmp_path)
    monkeypatch.setattr(why, "_walked_operations", lambda *given: walked)
    search = why.CauseSearch(one, Command([], tmp_path), ExitStack())
    one.why = why._searched_cause(search, session)
    assert one.why["cause"] == "generator" and one.why["kind"] == "answers"
    assert one.why["brings_back"] == [["release torch"]]
    said = "a random stream that is drawn differently: release 2.11.0 -> 2.12.0 of torch"
    assert f"generator, {said}, aten.randn (answers)" in summarised([one])


def test_a_release_that_is_not_here_is_not_installed_unasked(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path))
    told = why.overlay({"numpy": "1.0"}, False, print)
    assert told == "numpy==1.0 is not installed (--bits-why=install installs it)"


def test_a_commands_own_variables_and_releases_come_first():
    own = why.Command(["x"], Path("."), {"A": "own"}, [Path("pinned")])
    found = own.under({"A": "entry", "B": "", CORES_OF: 1}, [Path("old")])
    assert found.variables == {"A": "own", "B": "", CORES_OF: 1}
    variables = found.environment()
    assert variables["A"] == "own"
    assert not {"B", CORES_OF} & set(variables)
    assert variables["PYTHONPATH"].split(":")[:2] == ["pinned", "old"]


def test_a_release_of_a_lock_names_no_folder_elsewhere(tmp_path, monkeypatch):
    """Releases in a cache are folders of modules that are imported: ``1/../../theirs`` would run a
    stranger's."""
    asked = []
    monkeypatch.setattr(why.packages, "in_front", lambda *words: asked.append(words))
    for release in ("1/../../../theirs", "../theirs", "2.0 --target x", "2.0\n"):
        assert "is not a release" in why.overlay({"numpy": release}, False, print)
    assert not asked


def test_a_flag_of_a_lock_names_no_files():
    """XLA's flags write dumps, and name the folder of the compiler that is run."""
    for flag in ("--xla_dump_to=theirs", "--xla_gpu_cuda_data_dir=theirs"):
        assert conditions.restoring("flag XLA_FLAGS", {"flag.XLA_FLAGS": (flag, None)}) == {}
    kept = "--xla_cpu_enable_fast_math=true"
    both = {"flag.XLA_FLAGS": (kept, None)}
    assert conditions.restoring("flag XLA_FLAGS", both) == {"XLA_FLAGS": kept}

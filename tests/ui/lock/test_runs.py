"""``probe check lock`` and ``probe check``: models and cases without pytest; the project's own
lock; and why bits changed: conditions that bring them back, found by running the check again.

The bits of the projects here depend on what the test reads, so that every machine shows the same.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.record.store import bits_of
from probe.ui.cli import housekeeping as commands
from probe.ui.cli.shell import run
from probe.ui.lock import checks, conditions, runs
from probe.ui.lock.checks import CHANGED, Accepted, BitsSession, Checked, summarised
from probe.ui.lock.conditions import CORES_OF, limiting_variables
from probe.ui.lock.runs import Command, Rerun, with_companions
from tests.ui.lock.projects import runs_in_this_process

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
CASE = "--op dense --in-channels 33 --filters 4 --batch 3 --target reference".split()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runs_in_this_process():
        yield tmp_path


def test_a_case_is_locked_checked_changed_and_blessed(here, capfd):
    path = here / "bits.lock"
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 0
    assert run(["check"]) == 0
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 0
    assert commands.SAID["same"] in capfd.readouterr().out
    assert run(["check", "--report", "json=none/x.json"]) == 2
    assert "report=json=none/x.json: there is no such folder" in capfd.readouterr().err
    assert run(["check", "--report", "json=/proc/x", "--report", "markdown=x.md"]) == 0
    told = capfd.readouterr().err
    assert "json: x can't be written" in told and "markdown report: x.md" in told
    with checks.changing(path) as lock:  # as if another release had given them
        (named,) = lock.checks["rows"]
        lock.accept("rows", lock.conditions[named], bits_of(np.zeros(3)), "planted")
    assert run(["check", "--why", "no", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert found["changed"] == 1
    assert found["checks"][0]["reason"] == "planted"
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 2
    assert "--bless REASON" in capfd.readouterr().err
    assert run(["check", "lock", *CASE, "--name", "rows", "--bless", "because"]) == 0
    assert run(["check"]) == 0
    assert 'reason = "because"' in path.read_text()


def test_the_case_of_its_help_is_locked(here, capsys):
    assert run(["check", "lock", "--help"]) == 0
    (line,) = (one for one in capsys.readouterr().out.splitlines() if " lock --op" in one)
    assert run(line.split()[1:]) == 0


@pytest.mark.slow
def test_the_projects_own_lock_has_the_same_bits_or_does_not_know_this_machine():
    """The reference rounds as IEEE says: a processor without an entry has its bits too."""
    found = runs.check_runs(ROOT / checks.NAME, far="no")
    assert len(found) == 3
    assert runs.exit_status(found) in (0, 3), [one.message for one in found]


def test_an_output_that_is_gone_has_changed_until_it_is_blessed(here, capfd):
    """Of a run with several outputs, the lock has a check for each."""
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 0
    with checks.changing(here / "bits.lock") as lock:
        (named,) = lock.checks["rows"]
        lock.accept("rows::1", lock.conditions[named], bits_of(np.zeros(3)))
    assert run(["check"]) == 1
    assert "there is no such output any more" in capfd.readouterr().out
    assert run(["check", "lock", *CASE, "--name", "rows"]) == 2
    assert run(["check", "lock", *CASE, "--name", "rows", "--bless", "one is enough"]) == 0
    assert list(checks.read_lock(here / "bits.lock").checks) == ["rows"]
    assert run(["check"]) == 0


def test_formats_that_numpy_lacks_are_called_by_their_names(here, capfd):
    assert run(["check", "lock", *CASE, "--dtype", "bfloat16", "--name", "case"]) == 0
    assert "case: bfloat16 3x4" in capfd.readouterr().out
    pytest.importorskip("torch")
    (here / "halves.py").write_text(
        "import torch\n\ndef both():\n    x = torch.arange(3.0)\n"
        "    return x.bfloat16(), x.to(torch.uint8)\n"
    )
    assert run(["check", "lock", "halves:both", "--name", "model"]) == 0
    told = capfd.readouterr().out
    assert "model::0: bfloat16 3" in told
    assert "model::1: uint8 3" in told


def test_a_model_on_another_release_runs_with_that_release_before_everything(tmp_path, monkeypatch):
    asked = []

    def overlay(releases, install, tell):
        asked.append((dict(releases), install))
        return tmp_path / "old" if install else "it is not installed"

    monkeypatch.setattr(runs, "overlay", overlay)
    spec = {"model": "a:b", "target": "jax==0.4.30,threads=1"}
    found = runs._command(spec, "name", tmp_path, True)
    assert asked == [({"jax": "0.4.30", "jaxlib": "0.4.30"}, True)]
    assert found.before == [tmp_path / "old"]
    assert json.loads(found.words[-1])["target"] == "jax,threads=1"
    with pytest.raises(InputError, match=r"target=jax==0.4.30,threads=1: it is not installed"):
        runs._command(spec, "name", tmp_path, False)


def test_a_lock_runs_no_code_that_the_user_does_not_trust(here, capfd):
    """A lock comes with a repository: it would import any module, and say itself that it may."""
    (here / "theirs.py").write_text("import os\nos.mkdir('made')\n\ndef f():\n    return 1\n")
    pickle = 'model = "theirs.pt"'
    (here / "theirs.pt").write_bytes(b"cposix\nmkdir\n(S'made'\ntR.")
    for how in ('model = "theirs:f"', pickle):
        lines = ["format = 1", "[run.r]", how, 'trust = "1"', checks.END]
        (here / "bits.lock").write_text("\n".join(lines) + "\n")
        assert "trust" not in checks.read_lock(here / "bits.lock").runs["r"]
        assert run(["check"]) == 3
        told = capfd.readouterr().out
        assert "--trust" in told and "check=r: it was not run, so its bits are unknown" in told
        assert not (here / "made").exists()
        assert run(["check", "--trust"]) == 3  # it gives no array; but now its code has run
        assert (here / "made").exists()
        (here / "made").rmdir()


def test_what_the_user_locks_needs_no_trust_but_a_pickles(here):
    (here / "own.py").write_text(
        "import jax.numpy as jnp\n\ndef f():\n    return jnp.arange(3.0)\n"
    )
    assert run(["check", "lock", "own:f", "--name", "own"]) == 0
    assert run(["check", "--trust"]) == 0
    assert "trust" not in (here / "bits.lock").read_text()


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
        if said != runs.AGAIN:
            return Rerun(tmp_path, why="it crashed")
        return Rerun(tmp_path, {"c": other if alone else new}, {"cores": 2})

    monkeypatch.setattr(runs.CauseSearch, "run_under", ran)
    search = runs.CauseSearch(one, Command([], tmp_path), ExitStack())
    found = runs._searched_cause(search, session)
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
        return Rerun(tmp_path, {"c": new if said == runs.AGAIN else old})

    walked = {"class": "generator", "operation": "aten.randn", "rounding": {}, "kind": None}
    monkeypatch.setattr(runs.CauseSearch, "run_under", ran)
    monkeypatch.setattr(runs, "overlay", lambda releases, install, tell: tmp_path)
    monkeypatch.setattr(runs, "_walked_operations", lambda *given: walked)
    search = runs.CauseSearch(one, Command([], tmp_path), ExitStack())
    one.why = runs._searched_cause(search, session)
    assert one.why["cause"] == "generator" and one.why["kind"] == "answers"
    assert one.why["brings_back"] == [["release torch"]]
    said = "a random stream that is drawn differently: release 2.11.0 -> 2.12.0 of torch"
    assert f"generator, {said}, aten.randn (answers)" in summarised([one])


def test_a_release_that_is_not_here_is_not_installed_unasked(tmp_path, monkeypatch):
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path))
    told = runs.overlay({"numpy": "1.0"}, False, print)
    assert told == "numpy==1.0 is not installed (--bits-why=install installs it)"


def test_a_commands_own_variables_and_releases_come_first():
    own = runs.Command(["x"], Path("."), {"A": "own"}, [Path("pinned")])
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
    monkeypatch.setattr(runs.installation, "in_front", lambda *words: asked.append(words))
    for release in ("1/../../../theirs", "../theirs", "2.0 --target x", "2.0\n"):
        assert "is not a release" in runs.overlay({"numpy": release}, False, print)
    assert not asked


def test_a_flag_of_a_lock_names_no_files():
    """XLA's flags write dumps, and name the folder of the compiler that is run."""
    for flag in ("--xla_dump_to=theirs", "--xla_gpu_cuda_data_dir=theirs"):
        assert conditions.restoring("flag XLA_FLAGS", {"flag.XLA_FLAGS": (flag, None)}) == {}
    kept = "--xla_cpu_enable_fast_math=true"
    both = {"flag.XLA_FLAGS": (kept, None)}
    assert conditions.restoring("flag XLA_FLAGS", both) == {"XLA_FLAGS": kept}

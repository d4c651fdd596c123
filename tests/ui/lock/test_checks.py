"""Verdicts: what is the same, changed, unknown or new, under which conditions; what is said; and
``bits.lock`` on disk: sorted lines, nothing lost, nothing overwritten that can't be read."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.record.store import bits_of
from probe.ui.lock import checks
from probe.ui.lock.checks import (
    CHANGED,
    NEW,
    SAME,
    UNKNOWN,
    Accepted,
    BitsSession,
    Checked,
    judged_check,
)
from probe.ui.lock.conditions import conditions_key, facts_apart
from tests.ui.lock.projects import HERE

OLD, NEW_BITS = bits_of(np.zeros(3)), bits_of(np.ones(3))


def lock_of(*entries):
    lock = checks.LockFile()
    for facts, bits in entries:
        lock.accept("t.py::test", facts, bits)
    return lock


def verdict(lock, bits, facts=HERE):
    return judged_check(lock, "t.py::test", "t.py::test", bits, facts)


def test_an_entry_whose_conditions_hold_decides():
    lock = lock_of((HERE, OLD), (HERE | {"processor": "intel"}, NEW_BITS))
    assert verdict(lock, OLD).verdict == SAME
    changed = verdict(lock, NEW_BITS)  # though another processor has these bits
    assert changed.verdict == CHANGED
    assert changed.apart == {}


def test_without_an_entry_a_check_is_new():
    assert verdict(checks.LockFile(), OLD).verdict == NEW


@pytest.mark.parametrize(
    ("more", "group"),
    [
        ({"cores": 4}, "threads"),
        ({"threads.numpy": 1}, "threads"),
        ({"threads.POLARS_MAX_THREADS": "1"}, "threads"),
        ({"processor": "intel"}, "processor"),
        ({"isa": "avx2"}, "processor"),
        ({"blas.numpy": "Haswell"}, "processor"),
        ({"flag.ONEDNN_MAX_CPU_ISA": "AVX2"}, "flag ONEDNN_MAX_CPU_ISA"),
    ],
)
def test_other_conditions_are_unknown_and_accepted_bits_are_the_same(more, group):
    lock = lock_of((HERE, OLD))
    unknown = verdict(lock, NEW_BITS, HERE | more)
    assert unknown.verdict == UNKNOWN
    assert list(unknown.apart) == [group]
    assert "--bits-update" in unknown.message
    assert verdict(lock, OLD, HERE | more).verdict == SAME


def test_a_release_that_moves_bits_has_changed_them():
    found = verdict(lock_of((HERE, OLD)), NEW_BITS, HERE | {"library.jax": "0.10.2"})
    assert found.verdict == CHANGED
    assert "jax 0.10.1 -> 0.10.2" in found.message
    both = HERE | {"library.jax": "0.10.2", "cores": 1}
    assert verdict(lock_of((HERE, OLD)), NEW_BITS, both).verdict == UNKNOWN


def test_a_library_that_was_not_loaded_then_does_not_count():
    assert verdict(lock_of((HERE, OLD)), NEW_BITS, HERE | {"library.torch": "2"}).verdict == CHANGED
    more = HERE | {"library.torch": "2.13", "flag.torch.mkldnn": 0}
    less = {name: one for name, one in HERE.items() if name != "library.jax"}
    assert facts_apart(HERE, less) == {}
    # a switch of a library that isn't loaded can't be seen; one that is loaded has it or not
    assert facts_apart(more, HERE) == {}
    assert list(facts_apart(more, HERE | {"library.torch": "2.13"})) == ["flag torch.mkldnn"]


def test_a_core_that_follows_from_a_flag_or_a_release_is_none_of_its_own():
    flagged = HERE | {"blas.numpy": "Haswell", "flag.OPENBLAS_CORETYPE": "Haswell"}
    assert list(facts_apart(HERE, flagged)) == ["flag OPENBLAS_CORETYPE"]
    newer = HERE | {"blas.numpy": "Zen", "library.numpy": "2.5"}
    assert list(facts_apart(HERE, newer)) == ["release numpy"]


def test_results_travel_between_processes():
    found = verdict(lock_of((HERE, OLD)), NEW_BITS, HERE | {"cores": 1, "library.jax": "1"})
    found.place = ("t.py", 3)
    assert pickle.loads(pickle.dumps(found)) == found
    assert json.loads(json.dumps(found.to_json()))["line"] == 3


def test_a_lock_elsewhere_and_a_model_with_several_outputs_lose_nothing(tmp_path):
    path = tmp_path / "locks" / checks.NAME
    path.parent.mkdir()
    (tmp_path / "left_out.py").touch()
    with checks.changing(path) as lock:
        for name in ("left_out.py::test", "gone.py::test", "model::0", "model::1"):
            lock.accept(name, HERE, OLD)
        lock.runs["model"] = {"model": "package:function"}
    assert BitsSession(path, root=tmp_path).unused(["t.py::test"]) == ["gone.py::test"]


def test_of_two_processes_that_add_one_check_the_second_replaces_nothing(tmp_path):
    path = tmp_path / checks.NAME
    both = [BitsSession(path, update=True) for _ in range(2)]
    for number, session in enumerate(both):
        session.checked("t.py::test", "t.py::test", np.full(3, float(number)), ("t.py", 1))
    for session in both:
        session.finish()
    (one,) = checks.read_lock(path).checks["t.py::test"].values()
    assert one.bits == OLD


def checked(verdict, name="tests/test_a.py::test_x"):
    one, other = bits_of(1.0), bits_of(2.0)
    found = Checked(name, name, one, {"cores": 2}, verdict, "ab", Accepted(other, "why | so"))
    found.apart = {"release numpy": {"library.numpy": ("2.4.6", "2.5.0")}}
    found.place = ("tests/test_a.py", 7)
    found.why = {
        "cause": "release 2.4.6 -> 2.5.0 of numpy",
        "operation": "sum of 768 numbers",
        "class": "order",
        "kind": "rounding",
        "decisions": {"total": 3, "changed": 0},
    }
    return found


def test_reports_say_what_changed_from_what_and_where():
    results = [checked(CHANGED), *[checked(SAME, f"t::{n}") for n in range(40)]]
    told = checks.summarised(results)
    assert told == (
        "1 of 41 checks changed: order, release 2.4.6 -> 2.5.0 of numpy, sum of 768 numbers; "
        "0 decisions (rounding)"
    )
    lines = checks.markdown_report(results, ["gone"], "").splitlines()
    assert lines[0] == f"### Bits: {told}"
    row = "tests/test_a.py::test_x | changed | release 2.4.6 -> 2.5.0 of numpy"
    assert lines[2:] == [
        "| check | verdict | cause | operation | kind |",
        "| --- | --- | --- | --- | --- |",
        f"| {row} | sum of 768 numbers | rounding |",
        "",
        "Unused entries: `gone`",
    ]
    assert "| a\\|b c |" in checks.markdown_report([checked(CHANGED, "a|b\nc")], (), "")
    assert checks.json_report(results)["changed"] == 1


@pytest.mark.parametrize(
    ("verdicts", "told"),
    [
        ([UNKNOWN], "0 of 1 check has the same bits (1 unknown)"),
        ([UNKNOWN, UNKNOWN], "0 of 2 checks have the same bits (2 unknown)"),
        ([SAME, UNKNOWN], "1 of 2 checks has the same bits (1 unknown)"),
        ([SAME, SAME], "2 of 2 checks have the same bits"),
    ],
)
def test_the_first_line_is_a_sentence(verdicts, told):
    assert checks.summarised([checked(one) for one in verdicts]) == told


def test_github_annotates_the_line_of_each_check_that_is_not_the_same():
    results = [checked(CHANGED), checked(UNKNOWN), checked(SAME), checked(NEW, "a%b")]
    results[3].place = ("tests/a,b:c.py", 0)
    lines = checks.github_report(results, "bits.lock: 50% of\nit").splitlines()
    assert lines[0] == "::error::bits.lock: 50%25 of%0Ait"
    assert lines[1].startswith("::error file=tests/test_a.py,line=7::check=tests/test_a.py::test_x")
    assert "%0Acause: release 2.4.6 -> 2.5.0 of numpy%0A" in lines[1]
    assert lines[2].startswith("::notice file=tests/test_a.py,line=7::check=")
    assert lines[3].startswith("::warning file=tests/a%2Cb%3Ac.py,line=1::check=a%25b: ")
    assert len(lines) == 4


FACTS = {"cores": 2, "isa": "avx2", "library.numpy": "2.4.6", "flag.torch.mkldnn": 0}


def filled(path, count=3):
    with checks.changing(path) as lock:
        for number in range(count):
            name = f'tests/test_a.py::test_x[{number}-"quoted" \\ é]'
            lock.accept(name, FACTS, bits_of(np.arange(number)), "because\nof it" * (number == 1))
        lock.runs["model"] = {"model": "a:b", "seed": "0"}
    return path


def test_what_is_written_is_read(tmp_path):
    path = filled(tmp_path / "bits.lock")
    lock = checks.read_lock(path)
    assert lock.text() == path.read_text()
    assert lock.conditions == {conditions_key(FACTS): FACTS}
    accepted = lock.checks['tests/test_a.py::test_x[1-"quoted" \\ é]'][conditions_key(FACTS)]
    assert accepted.reason == "because\nof it"
    assert accepted.bits == bits_of(np.arange(1))
    assert lock.runs == {"model": {"model": "a:b", "seed": "0"}}


def test_lines_are_sorted_and_one_change_is_one_line(tmp_path):
    path = filled(tmp_path / "bits.lock")
    before = path.read_text().splitlines()
    with checks.changing(path) as lock:
        name = min(lock.checks)
        lock.accept(name, FACTS, bits_of(np.ones(9)), "a new release")
    after = path.read_text().splitlines()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_conditions_without_a_check_go(tmp_path):
    path = filled(tmp_path / "bits.lock")
    with checks.changing(path) as lock:
        for name in [*lock.checks]:
            lock.drop(name)
    assert "conditions" not in path.read_text().partition("format")[2]
    assert checks.read_lock(path).checks == {}


BROKEN = {
    "conflict": (
        "format = 1",
        "<<<<<<< ours\nformat = 1\n=======\n>>>>>>> theirs",
        "merge conflict",
    ),
    "newer": ("format = 1", "format = 2", "it has format 2"),
    "cut": ("# end\n", "", "it was cut"),
    "none": ("format = 1", "", "does not begin with its format"),
    "damaged": ("hash = ", "hash ", "Expected"),
    "facts": ('isa = "avx2"', 'isa = "avx512"', "changed by hand"),
    "table": ("[run.model]", "[other.model]", "it has a table 'other'"),
    "shape": ("shape = [0]", 'shape = ["x"]', "not as it should be"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_be_read_is_one_line_and_stays(tmp_path, what):
    old, new, why = BROKEN[what]
    path = filled(tmp_path / "bits.lock")
    text = path.read_text().replace(old, new)
    path.write_text(text)
    with pytest.raises(InputError, match=why) as error:
        checks.read_lock(path)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError), checks.changing(path) as lock:
        lock.drop("model")
    assert path.read_text() == text


def test_two_entries_of_one_condition_are_refused(tmp_path):
    path = filled(tmp_path / "bits.lock")
    lines = path.read_text().splitlines(keepends=True)
    twice = next(n for n, line in enumerate(lines) if "{dtype" in line)
    path.write_text("".join([*lines[: twice + 1], *lines[twice:]]))
    with pytest.raises(InputError, match="two entries are for one condition"):
        checks.read_lock(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "bits.lock"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        checks.read_lock(path)


ADD = """
import sys
import numpy as np
from pathlib import Path
from probe.ui.lock import checks
from probe.record.store import bits_of
for number in range(20):
    with checks.changing(Path("bits.lock")) as lock:
        lock.accept(f"{sys.argv[1]}.py::test_{number}", {"cores": 1}, bits_of(np.arange(number)))
"""


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(tmp_path):
    command = [sys.executable, "-c", ADD]
    running = [subprocess.Popen([*command, name], cwd=tmp_path) for name in "abcd"]
    assert [one.wait() for one in running] == [0] * 4
    assert len(checks.read_lock(tmp_path / "bits.lock").checks) == 80
    assert [one.name for one in tmp_path.iterdir()] == ["bits.lock"]


def test_a_failure_while_it_is_changed_writes_nothing(tmp_path):
    path = filled(tmp_path / "bits.lock")
    text = path.read_text()

    def fail():
        with checks.changing(path) as lock:
            lock.drop(next(iter(lock.checks)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == text

"""``bits.lock`` on disk: sorted lines, nothing lost, nothing overwritten that can't be read."""

import subprocess
import sys

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.record.store import bits_of
from probe.ui.lock import checks
from probe.ui.lock.conditions import conditions_key

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

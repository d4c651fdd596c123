"""Runs that need more memory than is free are refused before anything is allocated."""

from __future__ import annotations

import subprocess
import sys

import pytest

from probe.case import memory, operands
from probe.case.case import Case
from probe.case.errors import InputError
from probe.ui.cli import shell

SMALL = 1 << 20  # so that nothing is lost where a refusal fails to come
CASE = "--op conv1d --kernel 3 --in-channels 16 --filters 16 --target reference"


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda: SMALL)


def system(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 64000 kB\nMemAvailable:   8000 kB\n"}


def test_free_is_what_the_system_says_is_available(tmp_path):
    assert memory.free(system(tmp_path, MEMINFO)) == 8000 << 10


def test_free_is_unknown_where_the_system_does_not_say(tmp_path, monkeypatch):
    assert memory.free(tmp_path) is None
    monkeypatch.setattr(memory, "free", lambda: None)
    memory.require(Case("conv1d", 3, length=10**12))


@pytest.mark.parametrize("below", ["", "box/", "box/inner/"])
def test_a_cgroup_of_version_2_limits_it(tmp_path, below):
    """The limit may be set on any group above, or on the only one that a container sees."""
    files = MEMINFO | {
        "proc/self/cgroup": "0::/box/inner\n",
        f"sys/fs/cgroup/{below}memory.max": "3000000\n",
        f"sys/fs/cgroup/{below}memory.current": "2500000\n",
        f"sys/fs/cgroup/{below}memory.stat": "anon 1\ninactive_file 400000\n",
    }
    assert memory.free(system(tmp_path, files)) == 900000


def test_a_cgroup_of_version_1_limits_it_and_no_limit_is_none(tmp_path):
    files = MEMINFO | {
        "proc/self/cgroup": "4:memory:/box\n1:cpu:/\n0::/\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "3000000\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "2500000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "2500000\n",
    }
    assert memory.free(system(tmp_path, files)) == 500000
    unlimited = MEMINFO | {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/memory.current": "5\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "max\n",
    }
    assert memory.free(system(tmp_path, unlimited)) == 8000 << 10


@pytest.mark.parametrize(
    ("case", "blamed"),
    [
        (Case("conv1d", 3, 4, 4, length=10**6), "length=1000000: it needs "),
        (Case("conv1d", 3, 4, 4, length=9, batch=10**6), "batch=1000000: it needs "),
        (Case("conv1d", 3, 10**6, 4, length=9), "in_channels=1000000: it needs "),
        (Case("conv2d", 3, 4, 4, length=9, height=10**6), "height=1000000: it needs "),
        (Case("conv1d", 10**6, 4, 9, length=10**6), "kernel=1000000: it needs "),
    ],
)
def test_the_largest_contributor_is_named(little, case, blamed):
    with pytest.raises(InputError, match=blamed):
        operands.generate(case)
    with pytest.raises(InputError, match="are free; use a smaller one"):
        case.operands()


@pytest.mark.parametrize(
    "command",
    [
        f"sweep {CASE} --lengths 5,1000000",
        f"explain {CASE} --at 5 --against 1000000",
        f"order {CASE} --length 1000000",
        f"fix sizes {CASE} --upto 70 --batch 1000000",
        f"report {CASE} --at 5 --against 1000000 --out folder",
        f"fix {CASE} --lengths 5,1000000",
        "fix padding numpy:tanh --shape x=1x1000000 --fixed 1000000 --lengths 5",
    ],
)
def test_every_command_says_it_in_one_line(little, capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert shell.run(command.split()) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "=1000000: it needs " in said and "1.0 MiB are free; use a smaller one" in said
    assert not list(tmp_path.glob("*.py"))


def test_what_asks_for_far_more_than_is_free_is_one_line_and_not_a_killed_process():
    """The invariant mode asked for 38.7 GB, and the process ended by a signal without a word."""
    code = """
import sys
from probe.ui import cli
from probe.ui.cli import shell
def asks(_):
    import numpy as np
    from probe.case import memory
    np.ones(4 * memory.free() // 8)
shell.run = asks
try:
    cli._run()
except MemoryError as error:
    print(shell._described(error, False)[:2])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if memory.free() is None:
        pytest.skip("the system doesn't say how much is free")
    assert done.returncode == 0 and "more than is free" in done.stdout and "2)" in done.stdout

"""What nodes say, and nodes in processes of their own, on two loopback hosts: killed.

The slow tests start Dask's own commands, as people do; they take minutes together.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import probe
from probe.sweep.cluster import nodes
from probe.ui.cli import shell
from tests.sweep.cluster.test_shards import CASE, SWITCHING, rows, same

pytest.importorskip("distributed", reason="Dask's distributed is not installed")
pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
LAST = 1500
WORDS = (
    "sweep --op conv1d --kernel 5 --in-channels 3 --filters 2 --operands cancel --keep 3 --json "
    f"--lengths 5..{LAST} --target {SWITCHING}"
).split()
LIMIT = 600


class Processes:
    """A scheduler and nodes, each started by Dask's own command."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.started = {}
        self.schedule()

    def start(self, name, *words):
        command = [sys.executable, "-m", *words, "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.started[name] = subprocess.Popen(command, env=self.environment, **quiet)

    def schedule(self):
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        self.start("scheduler", "distributed.cli.dask_scheduler", *where)

    def node(self, name, host, *more):
        where = (self.address, "--host", host, "--name", name, "--nthreads", "1", "--no-nanny")
        self.start(name, "distributed.cli.dask_worker", *where, *more)

    def joined(self, count):
        """Waits until so many nodes have joined."""
        code = "import sys; from distributed import Client\n"
        code += "Client(sys.argv[1]).wait_for_workers(int(sys.argv[2]), timeout=300)"
        command = [sys.executable, "-c", code, self.address, str(count)]
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)

    def kill(self, name):
        process = self.started.pop(name)
        process.kill()
        process.wait()

    def sweep(self, store, *words):
        command = [sys.executable, "-m", "probe", *WORDS, "--store", str(store)]
        where = [] if "--no-cluster" in words else ["--cluster", self.address]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*command, *where], env=self.environment, cwd=ROOT, **pipes)

    def close(self):
        for name in list(self.started):
            self.kill(name)


@pytest.fixture
def processes():
    found = Processes()
    yield found
    found.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    probe.sweep(CASE, range(5, LAST + 1), [SWITCHING], store=folder, keep=3)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["parent", "node", "scheduler"])
def test_what_is_killed_at_any_moment_leaves_the_rows_of_one_run(
    victim, processes, plain, tmp_path
):
    processes.node("a", "127.0.0.1")
    processes.node("b", "127.0.0.2")
    seed = time.time_ns()
    moment = random.Random(seed).uniform(2, 15)
    first = processes.sweep(tmp_path)
    time.sleep(moment)
    if victim == "parent":
        first.kill()
    elif victim == "node":
        processes.kill("b")
    else:
        processes.kill("scheduler")
    out, told = first.communicate(timeout=LIMIT)
    assert first.returncode in (0, 2, 3, -signal.SIGKILL), (seed, told)
    assert "Traceback" not in told
    if victim == "scheduler":
        processes.kill("a")
        processes.kill("b")
        processes.schedule()
        processes.node("a", "127.0.0.1")
        processes.node("b", "127.0.0.2")
    again = processes.sweep(tmp_path)
    out, told = again.communicate(timeout=LIMIT)
    assert again.returncode == 0, (seed, moment, told)
    assert json.loads(out)["comparisons"] == LAST - 5
    same(tmp_path, plain)


LISTENING = """
import psutil, sys
from probe.sweep.cluster.nodes import connected_nodes
if __name__ == "__main__":
    with connected_nodes("local:2", ["reference"], print) as (client, nodes):
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            for one in process.net_connections("inet"):
                if one.status == psutil.CONN_LISTEN:
                    print("listens", one.laddr.ip)
        print("nodes", len(nodes))
"""


@pytest.mark.slow
def test_a_local_cluster_listens_on_loopback_alone_and_leaves_nothing(tmp_path):
    script = tmp_path / "listening.py"
    script.write_text(LISTENING)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    told = done.stdout.split("\n")
    assert done.returncode == 0 and "nodes 2" in told, done.stderr
    assert {line for line in told if line.startswith("listens")} == {"listens 127.0.0.1"}


@pytest.mark.slow
def test_no_scheduler_is_one_line():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    words = [sys.executable, "-m", "probe", *WORDS, "--no-store", "--cluster", address]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s",
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no scheduler answers there" in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith('{"progress"')]
    assert len(said) == 1


@pytest.mark.slow
def test_an_experiments_shards_come_from_nodes(processes, tmp_path):
    processes.node("a", "127.0.0.1")
    script = [sys.executable, str(ROOT / "experiments" / "prefix_stability.py"), "--quick"]
    run = {"env": processes.environment, "check": True, "capture_output": True}
    subprocess.run([*script, "--store", tmp_path / "one"], **run)
    words = [*script, "--store", tmp_path / "many", "--cluster", processes.address]
    subprocess.run(words, **run)
    for table in ("runs", "comparisons", "causes", "cases"):
        assert rows(tmp_path / "many", table) == rows(tmp_path / "one", table), table


SLURM = """
from dask_jobqueue import SLURMCluster
if __name__ == "__main__":
    with SLURMCluster(
        queue="long", cores=16, processes=4, memory="64GB", walltime="04:00:00", interface="lo",
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
    ) as nodes:
        print(nodes.job_script())
"""


@pytest.mark.slow
def test_the_script_for_slurm_gives_a_job_that_starts_nodes(tmp_path):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    script = tmp_path / "slurm.py"
    script.write_text(SLURM)
    command = [sys.executable, str(script)]
    job = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "#SBATCH -p long" in job and "#SBATCH --cpus-per-task=16" in job
    assert "#SBATCH -t 04:00:00" in job and "--nworkers 4" in job and "--nthreads 4" in job
    assert "distributed.cli.dask_worker tcp://" in job


def test_a_process_that_ends_while_it_starts_is_one_line(monkeypatch, capsys):
    def dies(processes):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(nodes, "_local", dies)
    words = "sweep --op conv1d --kernel 3 --lengths 5..9 --target reference --no-store"
    assert shell.run([*words.split(), "--cluster", "local:2"]) == 3
    err = capsys.readouterr().err
    assert "a process ended while it started (Nanny failed" in err
    assert err.count("\n") == 1


def test_an_error_of_a_node_travels_as_one_line():
    with pytest.raises(RuntimeError, match=r"\AInputError: target=reference==x[^\n]*\Z"):
        nodes.answer_sweep('{"target": "reference==x"}')
    with pytest.raises(RuntimeError, match="KeyError"):
        nodes.answer_script("{}")

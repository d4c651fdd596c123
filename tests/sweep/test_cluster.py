"""Shards of a sweep on Dask's own workers: the store of one process, whatever a node does.

The slow tests kill a command with nodes of its own, and take minutes together.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import probe
from probe import Case, load
from probe.case.errors import InputError
from probe.sweep import cluster
from probe.sweep.cluster import DaskNode, Wanted
from probe.sweep.plan import Plans, SweepRequest
from probe.targets import machine
from probe.ui.cli import shell
from tests.sweep.test_plan import rows

distributed = pytest.importorskip("distributed", reason="Dask's distributed is not installed")
pytestmark = pytest.mark.long

SWITCHING = "reference,algorithm=pairwise,length_switch=9"
CASE = Case("conv1d", 5, 3, 2, operands="cancel")
SAME = ("runs", "cases", "comparisons", "differences")
LENGTHS = range(5, 18)
REQUEST = SweepRequest(Plans([CASE], "length", *[[*LENGTHS[:-1]], 17]))


def same(folder, plain):
    assert rows(folder, *SAME) == rows(plain, *SAME)


@pytest.fixture(scope="module")
def address():
    """A scheduler with two workers, threads of this process."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as dask:
        yield dask.scheduler_address
        # their threads are this process's: what they keep is not ended with a process of theirs
        with distributed.Client(dask, set_as_default=False) as client:
            for worker in client.nthreads():
                client.submit(close_kept, workers=[worker], pure=False).result()


def close_kept():
    if hasattr(cluster._KEPT, "sessions"):
        cluster._KEPT.sessions.close()


@pytest.fixture
def swept(address, monkeypatch, tmp_path):
    """swept(targets=..., folder=...): the answer, and the values that nodes were asked."""
    monkeypatch.setattr(cluster, "LEAST", 1)
    asked = []
    to_json = SweepRequest.to_json

    def recorded(self, values):
        asked.append(list(values))
        return to_json(self, values)

    monkeypatch.setattr(SweepRequest, "to_json", recorded)

    def run(targets=(SWITCHING,), folder=tmp_path / "store", **options):
        del asked[:]
        found = probe.sweep(CASE, LENGTHS, targets, store=folder, cluster=address, **options)
        return found.to_json(), list(asked)

    return run


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The store of the same sweep without a cluster, and its report."""
    folder = tmp_path_factory.mktemp("plain")
    return folder, probe.sweep(CASE, LENGTHS, [SWITCHING], store=folder).to_json()


@pytest.mark.slow
def test_the_store_and_the_report_are_those_of_one_process(swept, plain, tmp_path):
    told, asked = swept()
    for name in ("compared", "differing", "max_ulp", "lengths", "comparisons", "failures"):
        assert told[name] == plain[1][name], name
    assert told["differing"] > 0 and told["store"].endswith(machine.label())
    same(tmp_path / "store", plain[0])
    assert len(asked) == 8, "two nodes, four shards for each"
    assert sorted(value for values in asked for value in values) == [*LENGTHS[:-1]]


@pytest.mark.slow
def test_what_is_stored_is_not_asked_again_with_or_without_a_cluster(swept, plain, tmp_path):
    first = probe.sweep(CASE, [*range(5, 10), 17], [SWITCHING], store=tmp_path / "store").to_json()
    told, asked = swept()
    assert told["stored_before"] == first["comparisons"] == 5
    assert sorted(value for values in asked for value in values) == [*range(10, 17)]
    same(tmp_path / "store", plain[0])
    again, asked = swept()
    assert again["stored_before"] == 12 and not asked


def broken(monkeypatch, changes):
    """From now on the tables of shards with these values are changed before a node sends them."""
    packed = cluster.packed_tables

    def changed(folder):
        tables = packed(folder)
        with pa.ipc.open_stream(tables["comparisons"]) as stream:
            at = stream.read_all()["at"].to_pylist()
        for value, change in changes.items():
            tables = change(tables) if value in at else tables
        return tables

    monkeypatch.setattr(cluster, "packed_tables", changed)


def rewritten(name, column, value):
    """A change of one column of a table."""

    def change(tables):
        with pa.ipc.open_stream(tables[name]) as stream:
            table = stream.read_all()
        place, field = table.column_names.index(column), table.schema.field(column)
        table = table.set_column(place, field, pa.array([value] * len(table), field.type))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return tables | {name: bytes(sink.getvalue())}

    return change


def raises(tables):
    raise MemoryError("the node is full")


def test_what_nodes_could_not_run_or_not_send_is_lost_and_run_the_next_time(
    swept, plain, tmp_path, monkeypatch
):
    changes = {
        6: (raises, "MemoryError: the node is full"),
        8: (rewritten("runs", "run_id", "0" * 16), "the node has changed: its machine, library"),
        10: (lambda tables: tables | {"comparisons": b"\x00" * 64}, "not run: "),
        12: (lambda tables: tables | {"../up": tables["runs"]}, "its ../up have different columns"),
    }
    with monkeypatch.context() as patched:
        broken(patched, {value: change for value, (change, _) in changes.items()})
        # the first run that is stored decides which one the others must be
        probe.sweep(CASE, [5, 17], [SWITCHING], store=tmp_path / "store")
        told, asked = swept()
    lost = {value: values for value in changes for values in asked if value in values}
    messages = {failure["at"]: failure["message"] for failure in told["failures"]}
    assert {failure["kind"] for failure in told["failures"]} == {"lost"}
    for value, values in lost.items():
        assert all(changes[value][1] in messages.pop(at) for at in values)
    assert not messages
    gone = {at for values in lost.values() for at in values}
    assert told["comparisons"] == 12 - len(gone)
    stored = load(tmp_path / "store")
    assert not set(stored.comparisons["at"]) & gone and set(stored.failures["at"]) >= gone
    assert swept()[0]["failures"] == []
    same(tmp_path / "store", plain[0])


def test_ctrl_c_leaves_what_is_there(swept, tmp_path):
    def press(done, total, what):
        if done:
            raise KeyboardInterrupt

    told, _ = swept(progress=press)
    assert told["interrupted"] and 0 < told["comparisons"] < 12
    assert len(load(tmp_path / "store").comparisons) == told["comparisons"]


OTHER = "amd-epyc-fam99-model1-avx2"


def node(label, run_id, why=None, threads=1, host="127.0.0.1"):
    return DaskNode(host, threads, label, {"reference": {"why": why, "run_id": run_id}})


def chosen(there, wanted="reference", stores=None):
    """The label, hosts and number of shards of 12 values, and what was noted."""
    notes = []
    sweep = cluster._TargetSweep(REQUEST, Wanted.parse(wanted), there, stores or {}, notes.append)
    return (
        sweep.label,
        {host for task in sweep.tasks for host in task.hosts},
        len(sweep.tasks),
        notes,
    )


def test_machines_and_versions_are_never_mixed(tmp_path):
    here, there = node("m", "a", threads=2), node(OTHER, "b", host="127.0.0.2")
    label, hosts, count, (note,) = chosen([here, there])
    assert (label, hosts, count) == ("m", {"127.0.0.1"}, 3)
    assert note.startswith("reference: asked on m; not on 1 more nodes: machine=LABEL")
    label, hosts, count, notes = chosen([here, there], f"reference,machine={OTHER}")
    assert (label, hosts, notes) == (OTHER, {"127.0.0.2"}, [])
    upgraded = node("m", "c", threads=1, host="127.0.0.3")
    assert chosen([upgraded, here])[:2] == ("m", {"127.0.0.1"})
    # who has it goes before who has more processes; rows that are stored before both that lack it
    lacking = node("m", "a", "not installed", threads=8, host="127.0.0.4")
    assert chosen([lacking, there])[:2] == (OTHER, {"127.0.0.2"})
    assert chosen([lacking, here])[1] == {"127.0.0.1"}
    assert chosen([lacking])[2] == 1, "one says why it can't run"


def test_nodes_of_another_checkout_are_left_out_and_none_is_an_input_error(
    address, monkeypatch, swept
):
    def elsewhere(text):
        return {**machine.facts(), "schema_version": 0, "targets": {}}

    monkeypatch.setattr(cluster, "node_facts", elsewhere)
    notes = []
    with distributed.Client(address, set_as_default=False) as client:
        assert cluster.nodes_there(client, ["reference"], notes.append) == []
    assert len(notes) == 2 and "its schema_version is 0" in notes[0]
    with pytest.raises(InputError, match="no usable node"):
        swept()


def test_what_is_no_machine_or_no_place_for_one_is_refused():
    assert Wanted.parse("reference , machine=a ,algorithm=pairwise").text.endswith(",machine=a")
    assert Wanted.parse("reference").label is None
    for text in ("reference,machine=a,machine=b", "reference,machine="):
        with pytest.raises(InputError, match="machine=LABEL once"):
            Wanted.parse(text)
    with pytest.raises(InputError, match="cluster"):
        probe.Target.parse("reference,machine=a")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--cluster nowhere", "cluster=nowhere"),
        ("--cluster local:0", "cluster=local:0"),
        ("--cluster tcp://host", "cluster=tcp://host"),
        ("--cluster ucx://host:1", "cluster=ucx://host:1"),
        ("--cluster local:2 --by order", "cluster=local:2: a sweep by order has no such choice"),
        ("--cluster local:2 --workers 2", "workers=2"),
    ],
)
def test_what_a_cluster_can_not_do_is_said_in_one_line(words, why, capsys, tmp_path):
    line = "sweep --op sum --in-channels 4 --lengths 1..9 --target numpy --store"
    assert shell.run([*line.split(), str(tmp_path), *words.split()]) == 2
    told = capsys.readouterr().err
    assert why in told and len(told.strip().splitlines()) == 1


ROOT = Path(__file__).parents[2]
LAST = 1500
WORDS = (
    "sweep --op conv1d --kernel 5 --in-channels 3 --filters 2 --operands cancel --keep 3 --json "
    f"--lengths 5..{LAST} --target {SWITCHING}"
).split()
LIMIT = 600


@pytest.fixture(scope="module")
def long_sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    probe.sweep(CASE, range(5, LAST + 1), [SWITCHING], store=folder, keep=3)
    return folder


@pytest.mark.slow
def test_what_is_killed_at_any_moment_leaves_the_rows_of_one_run(long_sweep, tmp_path):
    command = [sys.executable, "-m", "probe", *WORDS, "--store", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def sweep():
        where = ["--cluster", "local:2"]
        return subprocess.Popen([*command, *where], env=environment, cwd=ROOT, **pipes)

    seed, first = time.time_ns(), sweep()
    time.sleep(random.Random(seed).uniform(2, 15))
    first.kill()
    first.communicate(timeout=LIMIT)
    again = sweep()
    out, told = again.communicate(timeout=LIMIT)
    assert again.returncode == 0, (seed, told)
    assert json.loads(out)["comparisons"] == LAST - 5
    same(tmp_path, long_sweep)


LISTENING = """
import psutil, sys
from probe.sweep.cluster import connected_nodes
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

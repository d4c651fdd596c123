"""Keeps the nodes behind a Dask scheduler: what runs there, and which node can run what.

The first part runs on a node: it says which targets it can run, and answers shards. A shard comes
as JSON text; what goes back are tables of the store as bytes of Arrow's stream format. Nothing of a
shard is executed but the options of a sweep, and an experiment of this checkout by its name.

The rest runs here: it connects, and asks every node that is there once. Dask places the shards,
moves them where a node is lost, and repeats what raises.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from probe.case import schema
from probe.case.errors import ClusterError, Foreign, InputError, ProbeError, foreign
from probe.sweep.bits import answer_request
from probe.sweep.campaign import Sessions, run_row
from probe.sweep.plan import SweepRequest
from probe.sweep.store import Store, parquet
from probe.targets import backends, machine
from probe.targets.launch import open_session
from probe.targets.target import Target, installed_version, why_unavailable

if TYPE_CHECKING:
    from distributed import Client

# Processes of targets that a node keeps for its next shard, for each of its threads.
_KEPT = threading.local()


def one_line(error: BaseException) -> str:
    """An error's first line that says something, without what may not be published."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    # a RuntimeError is one line already: ``raises_text``
    name = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
    return machine.publishable(f"{name}{lines[0]}")[:300]


def raises_text(function: Callable[[str], Any]) -> Callable[[str], Any]:
    """What a function raises becomes a RuntimeError of one line: our own errors, and those of
    libraries that are not installed here, could not be unpickled where they arrive."""

    @functools.wraps(function)
    def answered(text: str) -> Any:
        try:
            return function(text)
        except Exception as error:
            raise RuntimeError(one_line(error)) from None

    return answered


@raises_text
def node_facts(text: str) -> dict[str, Any]:
    """``machine.facts``, and ``targets``: by target ``why`` it can't run here (None: it can), and
    the ``run_id`` that it would have. ``text``: a JSON list of targets, or of ``*`` for a script.
    """
    return {**machine.facts(), "targets": {name: _target(name) for name in json.loads(text)}}


def _target(text: str) -> dict[str, Any]:
    if text == "*":  # all that decides what an experiment measures, in the place of a target's run
        libraries = {
            name: installed_version(backends.get(name)) for name in backends.known_backends()
        }
        about = [machine.label(), sys.version.split()[0], machine.cores(), libraries]
        return {"why": None, "run_id": hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}
    try:
        where = Target.parse(text)
        why = why_unavailable(where)
    except ProbeError as error:
        return {"why": str(error), "run_id": ""}
    session = open_session(where)
    row = run_row(where, session.expected_facts(), session.variables)
    session.close()
    return {"why": why, "run_id": row["run_id"]}


@raises_text
def answer_sweep(text: str) -> dict[str, bytes]:
    """The tables of one target's shard of a sweep, as one process would store them.

    ``text``: ``target``, and a ``SweepRequest`` as JSON. The target's process stays for its next
    shard.
    """
    question = json.loads(text)
    where = Target.parse(question["target"])
    if not hasattr(_KEPT, "sessions"):
        _KEPT.sessions = Sessions()
    _KEPT.sessions.close(where)
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        request = SweepRequest.from_json(question)
        answer_request(request, [where], Store(folder), 1, opens=_KEPT.sessions.get, close=False)
        return packed_tables(Path(folder))


def packed_tables(folder: Path) -> dict[str, bytes]:
    """The rows of a store that count, by table."""
    packed = {}
    for name in (name for name in schema.TABLES if parquet.files(folder, name)):
        rows, sink = parquet.read_table(folder, name), pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
        packed[name] = bytes(sink.getvalue())
    return packed


@raises_text
def answer_script(text: str) -> dict[str, Any]:
    """Runs one shard of an experiment in a process of its own: ``tables``, and how it ended.

    ``text``: ``name``, ``digest`` (of the script's text: the node must have the same one),
    ``quick``, ``shard`` (``2/8``). ``status`` and ``stderr`` are those of the process.
    """
    question = json.loads(text)
    name, status, stderr = question["name"], 2, "this node's checkout does not have the same script"
    path = Path(__file__).resolve().parents[3] / "experiments" / f"{name}.py"
    tables: dict[str, bytes] = {}
    # a name with a folder in it would lead out of the experiments
    if Path(name).name == name and path.is_file() and file_digest(path) == question["digest"]:
        with tempfile.TemporaryDirectory(prefix="probe-") as folder:
            command = [sys.executable, str(path), "--store", folder, "--shard", question["shard"]]
            if question["quick"]:
                command.append("--quick")
            if dies := shutil.which("setpriv"):  # a node that is killed leaves no script behind
                command = [dies, "--pdeathsig", "TERM", *command]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
            done = subprocess.run(command, text=True, check=False, env=environment, **quiet)
            status, stderr = done.returncode, machine.publishable(done.stderr[-2000:])
            stores = [place for place in Path(folder).rglob(machine.label()) if place.is_dir()]
            tables = packed_tables(stores[0]) if len(stores) == 1 else {}
    return {"status": status, "stderr": stderr, "tables": tables}


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


HOW = "use local:2 (two processes here) or the address that `dask scheduler` prints, tcp://..."

# Seconds within which a first node must have joined.
JOIN = 60.0

# Run in local nodes: a terminal sends Ctrl-C to them too, but this process ends them.
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@dataclass(frozen=True)
class DaskNode:
    """One worker of Dask, on which ``threads`` shards run at a time. ``label``: its machine's
    folder. ``host``: shards may run on all nodes of it, also on one that was started again."""

    host: str
    threads: int
    label: str
    targets: dict[str, dict[str, Any]]

    def has(self, target: str) -> bool:
        return self.targets[target]["why"] is None


def host_of(address: str) -> str:
    """``10.0.0.7`` of ``tcp://10.0.0.7:40123``."""
    return address.rpartition("://")[2].rpartition(":")[0].strip("[]")


def nodes_there(
    client: Client, targets: Sequence[str], note: Callable[[str], None]
) -> list[DaskNode]:
    """The nodes whose rows can be stored beside ours, as the scheduler lists them."""
    nodes, facts = [], machine.facts()
    answers = client.run(node_facts, json.dumps(list(targets)), on_error="return")
    for address, threads in client.nthreads().items():
        said = answers.get(address, "it has just joined")
        if not isinstance(said, dict):
            why = said if isinstance(said, str) else one_line(said)
        else:
            names = ("schema_version", "probe_version", "git_commit")
            pairs = [(name, said.get(name), facts[name]) for name in names]
            apart = [pair for pair in pairs if pair[1] != pair[2] and None not in pair]
            if not apart:
                nodes.append(DaskNode(host_of(address), threads, said["machine"], said["targets"]))
                continue
            why = "its {} is {}, and {} here".format(*apart[0])
        note(f"a node is left out: {why}")
    return nodes


def scheduler_gone() -> ClusterError:
    return ClusterError(
        "cluster: the scheduler is gone; start it and its nodes, then run the same command again: "
        "what was measured is stored"
    )


def _local(processes: int) -> AbstractContextManager[Any]:
    """A cluster of processes of this machine, which end with it."""
    from distributed import LocalCluster

    cluster: AbstractContextManager[Any] = LocalCluster(
        n_workers=processes,
        threads_per_worker=1,
        processes=True,
        # on loopback alone, the dashboard at any free port
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        preload=[DEAF],
    )
    return cluster


@contextmanager
def connected_nodes(
    address: str, targets: Sequence[str], note: Callable[[str], None]
) -> Iterator[tuple[Client, list[DaskNode]]]:
    """Connects to ``tcp://host:port`` or ``tls://...``, or starts ``local:N`` for the time being.

    InputError: no such address, no scheduler that answers, no node, Dask is not installed.
    """
    local = re.fullmatch(r"local:([1-9][0-9]{0,2})", address)
    if not local and not re.fullmatch(r"(tcp|tls)://[^\s/]+:[0-9]{1,5}", address):
        raise InputError("cluster", address, "it is not an address", HOW)
    try:
        from distributed import Client
    except ImportError:
        why = "Dask's distributed is not installed"
        raise InputError("cluster", address, why, "pip install distributed") from None
    for name in logging.root.manager.loggerDict:
        if name.startswith("distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with ExitStack() as stack:
        where: Any = address
        if local:
            try:
                where = stack.enter_context(foreign(_local, int(local[1])))
            except Foreign as error:  # Dask passes on whatever ended a process that starts
                said = one_line(error.__cause__ or error)
                raise ClusterError(
                    f"cluster={address}: a process ended while it started "
                    f"({said}); run the same command again, or without --cluster"
                ) from None
        try:
            # a client that a user has stays the one that Dask takes
            client = stack.enter_context(Client(where, set_as_default=False, name="probe"))
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            why = f"no scheduler answers there ({type(error).__name__})"
            raise InputError("cluster", address, why, "start one: `dask scheduler`") from None
        nodes: list[DaskNode] = []
        try:
            client.wait_for_workers(1, timeout=JOIN)
            nodes = nodes_there(client, targets, note)
        except TimeoutError:
            pass
        except OSError as error:  # Dask's CommClosedError
            raise scheduler_gone() from error
        if not nodes:
            why = f"no usable node within {JOIN:g} seconds"
            raise InputError("cluster", address, why, "start a node: `dask worker ADDRESS`")
        yield client, nodes

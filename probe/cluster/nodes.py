"""Keeps the nodes behind a Dask scheduler: what runs there, their facts, and what is sent.

The first part runs on a node: it reports the node's facts, and answers shards. A shard comes as
JSON text; what goes back are tables of the store as bytes of Arrow's stream format, and the facts
of the node, taken again. Nothing of a shard is executed but the options of a sweep, and an
experiment of this checkout by its name.

The rest runs here. Dask connects, places each shard on one of the nodes that may have it, moves it
where a node is lost, and repeats what raises. What is added is belief: a node's first word about
itself is kept, and a node that says something else later is refused.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from probe import machine, schema
from probe.campaign import Sessions, run_row
from probe.errors import ClusterError, InputError, ProbeError
from probe.launch import open_session
from probe.store import Store, parquet
from probe.sweeps import SweepRequest, answer_request
from probe.target import Target, installed_version, why_unavailable

if TYPE_CHECKING:
    from distributed import Client, Future, as_completed


# What a node says of itself: ``name``, ``machine`` (``machine.facts``), and by target ``why`` it
# can't run (None) and the ``run`` that it expects, a row of ``runs`` without its time.
Said = dict[str, Any]

_OWN = threading.local()


def one_line(error: BaseException) -> str:
    """Returns an error's first line that says something, without what may not be published."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return machine.publishable(f"{type(error).__name__}: {lines[0]}")[:300]


def raises_text(function: Callable[[str], Said]) -> Callable[[str], Said]:
    """What a function raises becomes a RuntimeError of one line: our own errors, and those of
    libraries that are not installed here, could not be unpickled where they arrive."""

    @functools.wraps(function)
    def answered(text: str) -> Said:
        try:
            return function(text)
        except Exception as error:
            raise RuntimeError(one_line(error)) from None

    return answered


@raises_text
def node_facts(text: str) -> Said:
    """Says what this node is. ``text``: a JSON list of target texts, or of ``*`` for a script."""
    worker = _worker()
    return {
        "name": str(worker.name),
        "address": worker.address,
        "machine": machine.afresh(),
        "targets": {target: _target(target) for target in json.loads(text)},
    }


def _worker() -> Any:  # tests put another one in its place
    from distributed import get_worker

    return get_worker()


def _target(text: str) -> dict[str, Any]:
    if text == "*":  # all that decides what an experiment measures, in the place of a target's run
        from probe import backends

        names = backends.known_backends()
        libraries = {name: installed_version(backends.get(name)) for name in names}
        row = {"python_version": sys.version.split()[0], "cores": machine.cores(), **libraries}
        identity = json.dumps([machine.label(), row], sort_keys=True)
        run_id = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return {"why": None, "run": {"run_id": run_id, **row}}
    try:
        where = Target.parse(text)
        why = why_unavailable(where)
    except ProbeError as error:
        return {"why": str(error), "run": {}}
    session = open_session(where)
    row = run_row(where, session.expected_facts(), session.variables)
    session.close()
    del row["started"]
    return {"why": why, "run": row}


@raises_text
def answer_sweep(text: str) -> dict[str, Any]:
    """Answers one target's shard of a sweep, as one process would: ``said`` and ``tables``.

    ``text``: ``target``, and a ``SweepRequest`` as JSON. The target's process stays for its next
    shard.
    """
    question = json.loads(text)
    where = Target.parse(question["target"])
    if not hasattr(_OWN, "sessions"):
        _OWN.sessions = Sessions()
    _OWN.sessions.close(where)
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        request = SweepRequest.from_json(question)
        answer_request(request, [where], Store(folder), 1, opens=_OWN.sessions.get, close=False)
        tables = _packed_tables(Path(folder))
    return {"said": node_facts(json.dumps([question["target"]])), "tables": tables}


def _packed_tables(folder: Path) -> dict[str, bytes]:
    """Returns the rows of a store that count, by table."""
    there = [name for name in schema.TABLES if parquet.files(folder, name)]
    return {name: pack_table(parquet.read_table(folder, name)) for name in there}


def pack_table(rows: pa.Table) -> bytes:
    """Returns rows as bytes of Arrow's stream format, compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


@raises_text
def answer_script(text: str) -> dict[str, Any]:
    """Runs one shard of an experiment in a process of its own, and answers alike.

    ``text``: ``name``, ``digest`` (of the script's text: the node must have the same one),
    ``quick``, ``shard`` (``2/8``). ``status`` and ``stderr`` say how it ended.
    """
    question = json.loads(text)
    name, status, stderr = question["name"], 2, "this node's checkout does not have the same script"
    path = Path(__file__).resolve().parents[2] / "experiments" / f"{name}.py"
    tables: dict[str, bytes] = {}
    # a name with a folder in it would lead out of the experiments
    if Path(name).name == name and path.is_file() and file_digest(path) == question["digest"]:
        with tempfile.TemporaryDirectory(prefix="probe-") as folder:
            command = [sys.executable, str(path), "--store", folder, "--shard", question["shard"]]
            command += ["--quick"] * bool(question["quick"])
            if dies := shutil.which("setpriv"):  # a node that is killed leaves no script behind
                command = [dies, "--pdeathsig", "TERM", *command]
            own = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
            done = subprocess.run(command, text=True, check=False, env=own, **quiet)
            status, stderr = done.returncode, machine.publishable(done.stderr[-2000:])
            stores = [place for place in Path(folder).rglob(machine.label()) if place.is_dir()]
            tables = _packed_tables(stores[0]) if len(stores) == 1 else {}
    said = node_facts(json.dumps(["*"]))
    return {"said": said, "status": status, "stderr": stderr, "tables": tables}


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


HOW = "use local:2 (two processes here) or the address that `dask scheduler` prints, tcp://..."

# Seconds within which a first node must have joined and said what it is.
JOIN = 60.0

# Seconds for which nothing is waited for longer, so that Ctrl-C is heard.
HEARD = 0.05

# How often Dask repeats what raised on a node.
REPEATS = 2

# Run in local nodes: a terminal sends Ctrl-C to them too, but this process ends them.
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"

Kinds: TypeAlias = "type | tuple[type, ...]"

# What a node says of itself, and of which type each is.
SAID: dict[str, Kinds] = {"name": str, "address": str, "machine": dict, "targets": dict}

# What every answer of a node has: see ``answer_sweep``.
ANSWER: dict[str, Kinds] = {"said": dict, "tables": dict}


@dataclass
class DaskNode:
    """One worker of Dask. ``said``: what it said first. ``refused``: why it is not asked again,
    and ``recorded``: that this is among the failures.
    """

    number: int
    address: str
    threads: int
    said: Said
    refused: str = ""
    recorded: bool = False

    @property
    def label(self) -> str:
        """Its machine's folder."""
        return str(self.said["machine"]["machine"])

    def __str__(self) -> str:
        return f"node {self.number}"

    def has(self, text: str) -> bool:
        return self.said["targets"][text]["why"] is None

    def run(self, text: str) -> dict[str, Any]:
        """Returns the run that it expects of a target: a row of ``runs`` without its time."""
        return dict(self.said["targets"][text]["run"])


# Takes the ``answer`` of a ``node``. Both None: all nodes that might have had the shard are gone;
# ``answer`` None beside a node: that one is refused, and another may be asked. A reason instead:
# no other try will help.
Taker: TypeAlias = "Callable[[DaskNode | None, Said | None, str], None]"


class UnderWay(NamedTuple):
    """What is under way, and the addresses of the nodes of which Dask chooses one.

    ``take``: gets the answer; None: a node that has joined says what it is.
    """

    future: Future[Any]
    addresses: list[str]
    take: Taker | None


class Cluster:
    """The nodes that answer; ``connected_nodes`` gives one.

    ``targets``: the texts that every node is asked about. ``note``: takes a line for the user.
    """

    def __init__(
        self,
        client: Client,
        done: as_completed,
        targets: Sequence[str],
        note: Callable[[str], None],
    ) -> None:
        self.client, self.targets, self.note = client, list(targets), note
        self.nodes: dict[str, DaskNode] = {}
        self._first: dict[str, Said] = {}
        self._threads: dict[str, int] = {}  # of all that the scheduler has, believed or not
        self._under_way: dict[Any, UnderWay] = {}
        self._done, self._count = done, 0

    def good(self) -> list[DaskNode]:
        return [node for node in self.nodes.values() if not node.refused]

    def gather(self) -> None:
        """Waits until every node that is there has said what it is. InputError: there is none."""
        ends = time.monotonic() + JOIN
        while time.monotonic() < ends and (self._under_way or not self.good()):
            self.replies()
        if not self.good():
            address = self.client.scheduler.address if self.client.scheduler else "(closed)"
            why = f"no usable node within {JOIN:g} seconds"
            raise InputError("cluster", address, why, "start a node: `dask worker ADDRESS`")

    def ask(
        self,
        answer: Callable[[str], Said],
        question: object,
        addresses: list[str],
        take: Taker | None,
        priority: int = 0,
    ) -> None:
        """Has one of the nodes answer, by a function of ``probe.cluster.nodes``."""
        # the function travels by its name, the question as JSON: no object is pickled
        # Dask gives calls with equal arguments one key, and one answer, where they are pure
        how = {"retries": REPEATS, "pure": False, "priority": priority}
        future = self.client.submit(answer, json.dumps(question), workers=addresses, **how)
        self._under_way[future.key] = UnderWay(future, addresses, take)
        self._done.add(future)

    def replies(self) -> None:
        """Passes on what came since the last call; waits a moment where there is nothing new.

        ClusterError: the scheduler is gone.
        """
        self._look()
        done = self._done.next_batch(block=False)
        if not done:
            time.sleep(HEARD)
        for future, result in done:
            job = self._under_way.pop(future.key, None)
            if job is None:  # given up
                continue
            if future.status == "cancelled":
                raise _scheduler_gone()  # a client that reconnects lost all that was under way
            why = ""
            if future.status == "error":
                error = result[1] if isinstance(result, tuple) else result
                if type(error).__name__ == "KilledWorker":
                    why = f"{len(self.nodes)} nodes are left; every node that had it was lost"
                else:  # a RuntimeError is one line already: ``raises_text``
                    why = str(error) if type(error) is RuntimeError else one_line(error)
            if job.take is None:
                self._join(job.addresses[0], why, result)
            elif why:
                job.take(None, None, why)
            else:
                node = self._author(future, result)
                job.take(node, None if node is None or node.refused else result, "")

    def _look(self) -> None:
        """Notices nodes that came or went, and what went with all nodes that might have it."""
        before = self._threads
        try:
            if self.client.status != "running":
                raise ConnectionError
            self._threads = dict(self.client.nthreads())
        except Exception as error:
            raise _scheduler_gone() from error
        for address in set(self.nodes) - set(self._threads):
            del self.nodes[address]
        # as the scheduler lists them: in a set's order their numbers, and which node's bits are the
        # first, would change from run to run
        for address in [address for address in self._threads if address not in before]:
            # before the shards that wait there: it is asked none until it has said this
            self.ask(node_facts, self.targets, [address], None, priority=9)
        gone = [
            key
            for key, job in self._under_way.items()
            if not job.future.done() and self._threads.keys().isdisjoint(job.addresses)
        ]
        lost = [self._under_way.pop(key) for key in gone]
        with suppress(Exception):
            self.client.cancel([job.future for job in lost], force=True)
        for job in lost:
            if job.take is not None:
                job.take(None, None, "")

    def _join(self, address: str, why: str, said: Any) -> None:
        """Takes what a node says of itself when it is first seen."""
        if address not in self._threads:
            return
        wrong = not why and (misshapen(said, SAID) or _lacking(said, self.targets))
        if why := f"what it said of itself can't be read: {wrong}" if wrong else why:
            self.note(f"a node is left out: {why}")
            return
        self._count += 1
        node = DaskNode(self._count, address, self._threads[address], said)
        own, its = machine.facts(), said["machine"]
        for fact in ("schema_version", "probe_version", "git_commit"):
            # else its rows could not be stored beside ours
            if its.get(fact) != own[fact] and None not in (its.get(fact), own[fact]):
                node.refused = f"its {fact} is {its.get(fact)}, and {own[fact]} here"
                break
        node.refused = node.refused or machine.contradiction(its)
        change = contradiction_of(self._first.setdefault(said["name"], said), said)
        if not node.refused and change:
            node.refused = f"it came back, and {change}"
        self.nodes[address] = node
        if node.refused:
            self.note(f"{node} is left out: {node.refused}")

    def _author(self, future: Future[Any], answer: Any) -> DaskNode | None:
        """Returns whose an answer is: the scheduler knows. Refused, if it isn't what it said."""
        try:
            holders = self.client.who_has([future])[future.key]
        except Exception:  # whatever Dask raises where the scheduler is gone: a look will say it
            holders = ()
        # None: it left in the meantime, so these rows can't be attributed
        node = next((self.nodes[holder] for holder in holders if holder in self.nodes), None)
        if node is not None and not node.refused:
            if why := misshapen(answer, ANSWER) or misshapen(answer["said"], SAID):
                self.refuse(node, f"its answer can't be read: {why}")
            elif change := contradiction_of(node.said, answer["said"]):
                self.refuse(node, change)
        return node

    def refuse(self, node: DaskNode, why: str) -> None:
        node.refused = why
        self.note(f"{node} is refused, and its rows are kept out: {why}")


def _scheduler_gone() -> ClusterError:
    return ClusterError(
        "cluster: the scheduler is gone; start it and its nodes, then run the same command again: "
        "what was measured is stored"
    )


def misshapen(value: object, wanted: Mapping[str, Kinds]) -> str:
    """Returns why an object that a node sent is not of this form; empty where it is.

    A node runs its own checkout: what it sends may be any object, and only what has been looked at
    may be relied upon.
    """
    if not isinstance(value, dict):
        return f"it is not a dict but {type(value).__name__}"
    for name, kind in wanted.items():
        if not isinstance(value.get(name), kind):
            return f"its {name} is {type(value.get(name)).__name__}"
    return ""


def _lacking(said: Said, texts: Sequence[str]) -> str:
    """Returns why what a node said of itself is of no use, though its form is right."""
    label = said["machine"].get("machine")
    if not isinstance(label, str) or not re.fullmatch(r"\w[\w.-]*", label):
        return f"machine={label!r} is no name of a folder"  # rows are stored in one of this name
    for text in texts:
        if why := misshapen(said["targets"].get(text), {"run": dict, "why": (str, type(None))}):
            return f"{text}: {why}"
    return ""


# The same code in another checkout gives the same bits; a run's id and time are no facts of it.
_UNSAID = ("git_commit", "git_dirty", "run_id", "started")


def contradiction_of(first: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What a node says otherwise than at first, of all that it said both times; empty: nothing."""
    there = now.get("machine", {})
    if difference := changed_fact(
        first["machine"], {name: there.get(name) for name in first["machine"]}
    ):
        return difference
    for text, target in now.get("targets", {}).items():
        if misshapen(target, {"run": dict}):
            return f"{text}: what it says of it can't be read"
        before = first["targets"].get(text, target)
        if difference := changed_fact(before["run"], target["run"]):
            return f"{text}: {difference}"
        if before.get("why") != target.get("why"):
            return f"{text} can no longer run there: {target.get('why')}"
    return ""


def changed_fact(first: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns the first fact in which two runs differ, in words; empty where none does."""
    for name in dict.fromkeys([*first, *now]):
        if name not in _UNSAID and first.get(name) != now.get(name):
            return f"its {name} was {first.get(name)}, and is {now.get(name)} now"
    return ""


def _local(processes: int) -> AbstractContextManager[Any]:
    """Returns a cluster of processes of this machine, which end with it."""
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
) -> Iterator[Cluster]:
    """Connects to ``tcp://host:port`` or ``tls://...``, or starts ``local:N`` for the time being.

    InputError: no such address, no scheduler that answers, no node, Dask is not installed.
    """
    local = re.fullmatch(r"local:([1-9][0-9]{0,2})", address)
    if not local and not re.fullmatch(r"(tcp|tls)://[^\s/]+:[0-9]{1,5}", address):
        raise InputError("cluster", address, "it is not an address", HOW)
    try:
        from distributed import Client, as_completed
    except ImportError:
        why = "Dask's distributed is not installed"
        raise InputError("cluster", address, why, "pip install distributed") from None
    for name in [
        name for name in logging.root.manager.loggerDict if name.startswith("distributed")
    ]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with ExitStack() as stack:
        where: Any = address
        if local:
            try:
                where = stack.enter_context(_local(int(local[1])))
            except Exception as error:  # Dask passes on whatever ended a process that starts
                raise ClusterError(
                    f"cluster={address}: a process ended while it started "
                    f"({one_line(error)}); run the same command again, or without --cluster"
                ) from None
        try:
            # a client that a user has stays the one that Dask takes
            client = stack.enter_context(Client(where, set_as_default=False, name="probe"))
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            why = f"no scheduler answers there ({type(error).__name__})"
            raise InputError("cluster", address, why, "start one: `dask scheduler`") from None
        done = as_completed(loop=client.loop, with_results=True)
        cluster = Cluster(client, done, targets, note)
        cluster.gather()
        yield cluster

"""Runs shards of a sweep on other machines: Dask places, moves and repeats them.

The first part runs on a node: it says which targets it can run, and answers shards. A shard comes
as JSON text; what goes back are tables of the store as bytes of Arrow's stream format. Nothing of a
shard is executed but the options of a sweep.

The rest runs here: it connects, asks every node that is there once, divides a sweep into Dask's
tasks and stores what comes back. A shard is a part of the values, as ``--shard`` makes them. All
shards of a target go to nodes of one kind, alike in machine, library, versions and switches: the
rows are of one run.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import re
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from probe.case import schema
from probe.case.errors import (
    ClusterError,
    Foreign,
    InputError,
    ProbeError,
    TargetError,
    foreign,
    one_of,
)
from probe.sweep import files, stored
from probe.sweep.bits import Summary, TargetSummary, answer_request
from probe.sweep.campaign import Failure, failure_row, run_row
from probe.sweep.plan import Shard, SweepRequest
from probe.sweep.store import Store
from probe.targets import machine
from probe.targets.launch import Sessions, open_session
from probe.targets.progress import Tell
from probe.targets.target import Target, why_unavailable

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
        except Exception as error:  # any: it is told elsewhere
            raise RuntimeError(one_line(error)) from None

    return answered


@raises_text
def node_facts(text: str) -> dict[str, Any]:
    """``machine.facts``, and ``targets``: by target ``why`` it can't run here (None: it can), and
    the ``run_id`` that it would have. ``text``: a JSON list of targets."""
    targets: dict[str, dict[str, Any]] = {}
    for name in json.loads(text):
        try:
            where = Target.parse(name)
            why, session = why_unavailable(where), open_session(where)
        except ProbeError as error:
            targets[name] = {"why": str(error), "run_id": ""}
            continue
        row = run_row(where, session.expected_facts(), session.variables)
        session.close()
        targets[name] = {"why": why, "run_id": row["run_id"]}
    return {**machine.facts(), "targets": targets}


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
    packed = {}
    for name in (name for name in schema.TABLES if files.table_files(folder, name)):
        rows, sink = stored.read_table(folder, name), pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
        packed[name] = bytes(sink.getvalue())
    return packed


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
            nodes = []  # refused in one line, below
        except OSError as error:  # Dask's CommClosedError
            raise scheduler_gone() from error
        if not nodes:
            why = f"no usable node within {JOIN:g} seconds"
            raise InputError("cluster", address, why, "start a node: `dask worker ADDRESS`")
        yield client, nodes


# Shards for every process of a kind of node, so that all end at about the same time.
EACH = 4

# Values of a shard: each costs operands and a run of the longest value; and a node that is lost
# takes those along.
LEAST, MOST = 4, 256

# How often Dask repeats what raised on a node.
REPEATS = 2

# Seconds without a node before what is left is recorded as not run.
PATIENCE = 30.0

# Seconds for which nothing is waited for longer, so that Ctrl-C is heard.
HEARD = 0.05


class Task(NamedTuple):
    """A shard as a task of Dask: what a node of these ``hosts`` answers, who takes the answer, or
    why there is none. ``size``: how much it counts for in the progress, which says ``name``.

    ``take`` raises ValueError for an answer that can't be stored.
    """

    name: str
    size: int
    hosts: list[str]
    question: dict[str, Any]
    take: Callable[[Any], None]
    fail: Callable[[str], None]


def deal(client: Client, tasks: Sequence[Task], progress: Tell) -> None:
    """Has Dask run all tasks, and takes answers as they come. ClusterError: no scheduler."""
    from distributed import as_completed

    done = as_completed(loop=client.loop, with_results=True)
    under_way = {}
    for task in tasks:
        # The function travels by its name, the question as JSON: no object is pickled. Dask gives
        # calls with equal arguments one key, and one answer, where they are pure.
        how = {"workers": task.hosts, "retries": REPEATS, "pure": False}
        future = client.submit(answer_sweep, json.dumps(task.question), **how)
        under_way[future.key] = future, task
        done.add(future)
    total, counted, seen = sum(task.size for task in tasks), 0, time.monotonic()
    while under_way:
        batch = done.next_batch(block=False)
        for future, result in batch:
            _, task = under_way.pop(future.key)
            if future.status == "cancelled":
                raise scheduler_gone()  # a client that reconnects lost all that was under way
            try:
                if future.status == "error":  # also where each node that had it was lost
                    raise ValueError(one_line(result[1] if isinstance(result, tuple) else result))
                task.take(result)
            except ValueError as error:
                task.fail(str(error))
            counted += task.size
            progress(counted, total, task.name)
        if batch:
            continue
        time.sleep(HEARD)
        if client.status != "running":
            raise scheduler_gone()
        try:
            addresses = foreign(client.nthreads)
        except Foreign as error:
            raise scheduler_gone() from error
        hosts = {host_of(address) for address in addresses}
        if any(not hosts.isdisjoint(task.hosts) for _, task in under_way.values()):
            seen = time.monotonic()
        elif time.monotonic() - seen > PATIENCE:
            client.cancel([future for future, _ in under_way.values()], force=True)
            for _, task in under_way.values():
                task.fail(f"no node with it for {PATIENCE:g} seconds")
            break


def total_threads(nodes: Iterable[DaskNode]) -> int:
    """How many shards nodes run at a time."""
    return sum(node.threads for node in nodes)


def unpacked_tables(packed: Mapping[str, bytes]) -> dict[str, pa.Table]:
    """The tables of an answer. ValueError: a node of another version sent other ones."""
    tables = {}
    for name, data in packed.items():
        with pa.ipc.open_stream(data) as stream:  # ArrowInvalid is a ValueError
            rows = stream.read_all()
        wanted = schema.arrow_schema(name).remove_metadata() if name in schema.TABLES else None
        if rows.schema.remove_metadata() != wanted:
            raise ValueError(f"its {name} have different columns from this probe's")
        tables[name] = rows
    return tables


class Wanted(NamedTuple):
    """A target, and the label of the machines that it is asked on; None: of the most nodes."""

    target: Target
    label: str | None = None

    @classmethod
    def parse(cls, text: str | Target | Wanted) -> Wanted:
        """Reads a target's text, which may have ``machine=LABEL`` beside its switches."""
        if not isinstance(text, str):
            return text if isinstance(text, Wanted) else cls(text)
        target_parts, labels = list[str](), list[str]()
        for part in map(str.strip, text.split(",")):
            key, _, value = map(str.strip, part.partition("="))
            if key == "machine" and target_parts:  # the name stands first
                labels.append(value)
            else:
                target_parts.append(part)
        if len(labels) > 1 or labels == [""]:
            todo = "write machine=LABEL once; `probe targets machine` prints a machine's label"
            raise InputError("target", text, "it names no machine, or several", todo)
        return cls(Target.parse(",".join(target_parts)), labels[0] if labels else None)

    @property
    def text(self) -> str:
        """The target's text, with the machine where one was asked for."""
        return self.target.text + (f",machine={self.label}" if self.label else "")


def sweep_on_nodes(
    address: str,
    request: SweepRequest,
    targets: Sequence[Wanted],
    folder: Path | None,
    progress: Tell,
    note: Callable[[str], None],
) -> Summary:
    """Sweeps one case on the nodes of a cluster, into ``folder``/<machine> (None keeps nothing).

    Ctrl-C ends it with what there is, stored, and ``interrupted``. Errors: InputError before
    anything runs, ClusterError where the scheduler goes: what was measured is stored.
    """
    start, interrupted = time.monotonic(), False
    texts = [wanted.target.text for wanted in targets]
    with connected_nodes(address, texts, note) as (client, nodes), ExitStack() as stack:
        labels = sorted({node.label for node in nodes})
        for wanted in targets:
            if wanted.label is not None and wanted.label not in labels:
                why = f"no node of the cluster is machine={wanted.label}"
                raise InputError("target", wanted.text, why, one_of(wanted.label, labels))
        stores = {}
        if folder is not None:
            stores = {label: stack.enter_context(Store(folder / label)) for label in labels}
        sweeps = [_TargetSweep(request, wanted, nodes, stores, note) for wanted in targets]
        try:
            deal(client, [task for sweep in sweeps for task in sweep.tasks], progress)
        except KeyboardInterrupt:
            interrupted = True
    place = None if folder is None else str(folder)
    if folder is not None and len(used := {sweep.label for sweep in sweeps}) == 1:
        place = str(folder / used.pop())
    seconds = time.monotonic() - start
    summaries = {sweep.wanted.text: sweep.summary for sweep in sweeps}
    plans = request.plans
    return Summary(plans.vary, plans.against, 1, place, seconds, interrupted, summaries)


class _TargetSweep:
    """One target's values in shards, on one kind of node: one with the target, with rows that are
    stored already, of most processes. ``stores``: by label; none where nothing is kept."""

    def __init__(
        self,
        request: SweepRequest,
        wanted: Wanted,
        nodes: Sequence[DaskNode],
        stores: Mapping[str, Store],
        note: Callable[[str], None],
    ) -> None:
        self.request, self.plan, self.wanted = request, request.plans[0], wanted
        text, values = wanted.target.text, list(request.values)
        self.summary = TargetSummary(text)
        # by the label of their machine, and the run that they would give
        kinds: dict[tuple[str, str], list[DaskNode]] = defaultdict(list)
        for node in nodes:
            if wanted.label in (None, node.label):
                kinds[node.label, node.targets[text]["run_id"]].append(node)

        def recalled_from(label: str, run_id: str) -> tuple[set[int], list[Mapping[str, Any]]]:
            if label not in stores:
                return set(), []
            place = (run_id, text, self.plan.vary, self.plan.against)
            controlled = request.control == "every"
            recalled = stores[label].recall(*place, controlled=controlled)
            return recalled.case(self.plan.id, sorted(values))

        def worth(kind: tuple[str, str]) -> tuple[bool, int, int, str]:
            has = any(node.has(text) for node in kinds[kind])
            return has, len(recalled_from(*kind)[0]), total_threads(kinds[kind]), kind[0]

        self.label, run_id = best = max(kinds, key=worth)
        self.store = stores.get(self.label)
        if others := sum(map(len, kinds.values())) - len(kinds[best]):
            note(
                f"{text}: asked on {self.label}; not on {others} more nodes: machine=LABEL in the "
                "target selects a different type"
            )
        done, rows = recalled_from(*best)
        for row in rows:
            self.summary.add(row, before=True)
        # some libraries say their version only once they have started: then nothing was recalled,
        # and the first answer says which run this is
        self.summary.run_id = run_id if done else None
        left = [value for value in values if value not in done]
        candidates = [node for node in kinds[best] if node.has(text)]
        # shards take every n-th value, so short and long ones cost all of them the same
        count = max(
            min(EACH * total_threads(candidates), len(left) // LEAST), math.ceil(len(left) / MOST)
        )
        count = max(count, 1) if candidates else 1  # where no node has it, one says why
        hosts = sorted({node.host for node in candidates or kinds[best]})
        parts = (tuple(Shard(number, count).part(left)) for number in range(1, count + 1))
        self.tasks = [
            Task(
                text,
                len(part),
                hosts,
                {"target": text, **request.to_json(part)},
                partial(self.take, part),
                partial(self.fail, part),
            )
            for part in parts
            if part
        ]

    def take(self, part: Sequence[int], answer: Mapping[str, bytes]) -> None:
        tables = unpacked_tables(answer)
        rows = {name: some.to_pylist() for name, some in tables.items() if name != "differences"}
        run_ids = [row["run_id"] for row in rows.get("runs", [])]
        self.summary.run_id = self.summary.run_id or next(iter(run_ids), None)
        if run_ids != [self.summary.run_id]:
            raise ValueError("the node has changed: its machine, library or switches are different")
        failed = []  # what ends every shard alike is one failure
        for row in rows.get("failures", []):
            failure = Failure(row["kind"], row["message"], row["case_id"], row["at"])
            if failure not in self.summary.failures:
                self.summary.failures.append(failure)
                failed.append(row)
        tables.pop("failures", None)
        if self.store is not None:
            # comparisons last: what they say is done has its other rows on the disk already
            for name in sorted(tables, key="comparisons".__eq__):
                if len(table := tables[name]):
                    self.store.extend(
                        name, {column: table[column] for column in table.column_names}
                    )
            for row in failed:
                self.store.append("failures", row)
        for row in rows.get("comparisons", []):
            self.summary.add(row)

    def fail(self, part: Sequence[int], why: str) -> None:
        error = TargetError(self.summary.target, "lost", machine.publishable(f"not run: {why}"))
        for at in part:
            place = {"case_id": self.plan.id, "vary": self.plan.vary, "at": at}
            run_id = self.summary.run_id or "unknown"
            row = failure_row(run_id, self.wanted.target, error, place)
            self.summary.failures.append(Failure("lost", row["message"], self.plan.id, at))
            if self.store is not None:
                self.store.append("failures", row)

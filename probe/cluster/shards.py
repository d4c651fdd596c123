"""Deals shards of sweeps and experiments to nodes until each is answered and stored here.

A shard is a part of the values of a sweep, or of the questions of an experiment, as ``--shard``
makes them. All shards of a queue go to nodes of one kind: alike in machine, library, versions and
switches, so that all rows are of one run. Bytes of an answer are data: tables of the schema's
columns and types, or the answer is refused.

Every shard of a sweep begins with a value whose digest is known: who gives different bits for the
same question is not of that kind of node, whatever it says.

Every kind of machine runs an experiment whole: results are told apart by machine, so half of them
from one and half from another would be neither's. What a node runs is ``experiments/NAME.py`` of
its own checkout, if that is the very same script.
"""

from __future__ import annotations

import json
import math
import re
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from probe import machine, schema
from probe.campaign import Failure, failure_row
from probe.cluster.nodes import (
    Cluster,
    DaskNode,
    Kinds,
    Said,
    answer_script,
    answer_sweep,
    changed_fact,
    connected_nodes,
    file_digest,
    misshapen,
)
from probe.errors import ClusterError, InputError, TargetError, one_of
from probe.progress import Tell
from probe.shard import Shard
from probe.store import Store, parquet
from probe.sweeps import Plan, Summary, SweepRequest, TargetSummary
from probe.target import Target

Shards = TypeVar("Shards")
Row = dict[str, Any]

# Shards for every process of a kind of node, so that all end at about the same time.
EACH = 4

# Shards under way for every process: the next one waits there, so that none is idle. Not all of
# them, as nodes that join later may have the rest, and those that are refused may not.
DEEP = 2

# Seconds without a node before what is left is recorded as not run.
PATIENCE = 30.0

# How often a shard may be lost with all nodes that might have had it, or come back in parts.
LOST = 3


class Queue(ABC, Generic[Shards]):
    """The shards for one kind of node. A subclass says what is asked and where answers go.

    ``name``: what progress says. ``text``: the target, or ``*`` for an experiment. ``label`` and
    ``run_id``: the kind's machine, and the run that its nodes expect. ``todo``: not under way;
    ``open``: without an answer yet. ``total``: what its shards count for together.
    """

    total: int

    def __init__(
        self, cluster: Cluster, name: str, text: str, label: str = "", run_id: str = ""
    ) -> None:
        self.cluster, self.name, self.text = cluster, name, text
        self.label, self.run_id = label, run_id
        self.todo: deque[Shards] = deque()
        self.open: set[Shards] = set()
        self.losses: dict[Shards, int] = defaultdict(int)
        self._alone: float | None = None

    @abstractmethod
    def question(self, shard: Shards) -> tuple[Callable[[str], Said], Row]:
        """Returns the function of ``nodes`` that answers, and what it is asked, as JSON has it."""

    @abstractmethod
    def take(self, shard: Shards, node: DaskNode, answer: Said) -> Iterable[Shards]:
        """Judges and stores an answer; what is to be asked again. ValueError: not believed."""

    @abstractmethod
    def give_up(self, shard: Shards, why: str) -> None:
        """Records that a shard was not run."""

    def size(self, shard: Shards) -> int:
        """Returns how much a shard counts for in the progress."""
        return 1

    def bind(self) -> None:
        """Chooses the kind of a queue that has none yet."""

    def refused(self, node: DaskNode) -> None:
        """Records that a node is refused: at a shard of this queue, or when it joined."""

    def fill(self, shards: Iterable[Shards]) -> None:
        """Adds shards that are to be asked."""
        for shard in shards:
            self.todo.append(shard)
            self.open.add(shard)

    def empty(self) -> None:
        """Leaves out all that is open."""
        self.todo.clear()
        self.open.clear()

    def submit(self) -> None:
        """Gives the nodes of the kind something to go on with."""
        if not self.label:
            self.bind()
        nodes = [
            node
            for node in self.cluster.good()
            if node.label == self.label and node.run(self.text).get("run_id") == self.run_id
        ]
        nodes = [node for node in nodes if node.has(self.text)] or nodes
        if not nodes and self.open:
            self._alone = self._alone or time.monotonic()
            if time.monotonic() - self._alone > PATIENCE:
                for shard in list(self.open):
                    self._drop(shard, f"no node with it for {PATIENCE:g} seconds")
            return
        self._alone = None
        addresses = [node.address for node in nodes]
        while self.todo and len(self.open) - len(self.todo) < DEEP * total_threads(nodes):
            shard = self.todo.popleft()
            self.cluster.ask(*self.question(shard), addresses, partial(self.answered, shard))

    def answered(self, shard: Shards, node: DaskNode | None, answer: Said | None, why: str) -> None:
        """Stores an answer, or has the shard asked again, elsewhere or later: see ``Taker``."""
        if node is not None and answer is not None:
            try:
                rest = self.take(shard, node, answer)
                self.open.discard(shard)  # after it is stored: Ctrl-C between the two repeats it
                self.fill(rest)
                return
            except ValueError as error:
                self.cluster.refuse(node, str(error))
        if node is not None and not node.recorded:
            node.recorded = True
            self.refused(node)
        if shard not in self.open:  # given up meanwhile
            return
        self.losses[shard] += node is None
        if why or self.losses[shard] > LOST:
            self._drop(shard, why or f"lost {self.losses[shard]} times")
        else:
            self.todo.append(shard)

    def _drop(self, shard: Shards, why: str) -> None:
        self.open.discard(shard)
        if shard in self.todo:
            self.todo.remove(shard)
        self.give_up(shard, why)


def deal(cluster: Cluster, queues: Sequence[Queue[Any]], progress: Tell) -> None:
    """Asks until nothing is open."""
    total, before = sum(queue.total for queue in queues), -1
    while True:
        left = sum(queue.size(shard) for queue in queues for shard in queue.open)
        if total - left != before:
            before = total - left
            progress(before, total, next((q.name for q in queues if q.open), queues[-1].name))
        if not left:
            return
        for queue in queues:
            queue.submit()
        cluster.replies()
        for node in cluster.nodes.values():
            if node.refused and not node.recorded:  # when it joined: no target is to blame
                node.recorded = True
                for queue in queues:
                    queue.refused(node)


def total_threads(nodes: Iterable[DaskNode]) -> int:
    """Returns how many shards nodes run at a time."""
    return sum(node.threads for node in nodes)


Tables = dict[str, pa.Table]

# What some interpreters say only once the library has started.
LIBRARY = ("library_version", "python_version", "numpy_version")

# Stored before all others: what comparisons say is done has its other rows on the disk already.
ORDER = ("runs", "cases", "differences", "outputs")


def unpack_tables(packed: Mapping[str, bytes]) -> Tables:
    """Returns the tables of an answer. ValueError says what they are not."""
    tables = {}
    for name, data in packed.items():
        if name not in schema.TABLES:
            raise ValueError(f"it sent a table {name!r}, which there isn't")
        try:
            with pa.ipc.open_stream(data) as stream:
                rows = stream.read_all()
            rows.validate(full=True)
        except (pa.ArrowException, OSError, TypeError) as error:
            raise ValueError(f"its {name} can't be read ({type(error).__name__})") from None
        wanted = schema.arrow_schema(name).remove_metadata()
        if not rows.schema.remove_metadata().equals(wanted):
            raise ValueError(f"its {name} have different columns from this probe's")
        tables[name] = rows
    return tables


def table_rows(tables: Tables, name: str) -> list[Row]:
    """Returns a table's rows; none where there is no such table."""
    return list(tables[name].to_pylist()) if name in tables else []


def judged_run(tables: Tables, target: str, expected: Mapping[str, Any]) -> str:
    """The id of the run that an answer's rows belong to. ValueError where it is not the expected.

    ``expected``: the row of ``runs`` that the node said at first; a library's versions that it
    could not say before the library had started are taken from the answer.
    """
    runs = table_rows(tables, "runs")
    if len(runs) != 1 or runs[0]["target"] != target:
        raise ValueError(f"the question was about {target}, and the answer has different runs")
    (row,) = runs
    texts = ("switches", "environment")
    plain = {name: json.loads(value) if name in texts else value for name, value in row.items()}
    known = [name for name in schema.RUN_IDENTITY if name != "environment"]
    if expected.get("library_version") is None or row["library_version"] is None:
        known = [name for name in known if name not in LIBRARY]
    elif row["run_id"] != expected["run_id"]:
        known.append("environment")
    first = {name: expected.get(name) for name in known}
    if difference := changed_fact(first, {name: plain.get(name) for name in known}):
        raise ValueError(f"{target}: {difference}")
    own = {row["run_id"]}
    for name, rows in tables.items():
        if "run_id" in rows.column_names and set(rows["run_id"].unique().to_pylist()) - own:
            raise ValueError(f"its {name} belong to a different run")
    return str(row["run_id"])


def judged_rows(tables: Tables, question: Mapping[str, Any], plan: Plan) -> None:
    """ValueError where comparisons are not of the case, target and values that were asked."""
    if "comparisons" not in tables:
        return
    same = {"case_id": plan.id, **{name: question[name] for name in ("target", "vary", "against")}}
    for name, value in same.items():
        if set(tables["comparisons"][name].to_pylist()) - {value}:
            raise ValueError(f"it answered about a different {name}")
    if set(tables["comparisons"]["at"].to_pylist()) - set(question["values"]):
        vary = question["vary"]
        raise ValueError(f"it answered about different values of {vary} than the question")


def judged_counts(tables: Tables, plan: Plan, keep: int) -> None:
    """ValueError where a comparison's counts can't be true.

    How many outputs are compared follows from the case; the rows of ``differences``, and digests,
    say whether any differ and how many. ``keep``: the rows kept of each comparison.
    """
    # by value of the axis: differences, their first index, the largest ulp (or None)
    listed: dict[int, tuple[int, int, int | None]] = {}
    if "differences" in tables:
        sized = tables["differences"].append_column("size", pc.abs(tables["differences"]["ulp"]))
        wanted = [("index", "count"), ("index", "min"), ("size", "max"), ("size", "count")]
        for row in sized.group_by("at").aggregate(wanted).to_pylist():
            # distances that are no numbers, or too long for the column, are null
            largest = row["size_max"] if row["size_count"] == row["index_count"] else None
            listed[row["at"]] = row["index_count"], row["index_min"], largest
    # bits of NaN may differ where no number does
    numbers = plan.base.kind not in ("infinite", "nan") and plan.base.put is None
    for row in table_rows(tables, "comparisons"):
        at, differing, stored = row["at"], row["differing"], row["kept"]
        outputs, left_out = math.prod(plan.shapes[at]), plan.not_compared[at]
        if (row["compared"], row["not_compared"]) != (outputs - left_out, left_out):
            raise ValueError(f"it compared {row['compared']} of {outputs} outputs at {at}")
        count, first, largest = listed.get(at, (0, None, 0))
        zeros, ulp = row["signed_zero"] or 0, row["max_ulp"]
        same_bits = row["digest_at"] == row["digest_against"]
        if (
            not 0 <= differing + zeros <= row["compared"]
            or min(differing, zeros, stored) < 0
            or stored != count
            or stored > differing
            or stored < min(keep, differing)
            or (same_bits and differing + zeros > 0)
            or (numbers and not same_bits and differing + zeros == 0)
            or (differing and keep != 0 and row["first"] != first)
            or (differing and largest is not None and ulp != largest)
        ):
            raise ValueError(
                f"its counts at {at} contradict each other: {differing} differ, {count} are listed"
            )


def rows_of_values(tables: Tables, values: Collection[int]) -> Tables:
    """Returns the rows of these values of the axis alone, and those that are of none."""
    wanted, cut = pa.array(list(values), pa.int64()), dict(tables)
    for name, rows in tables.items():
        if "at" in rows.column_names:
            here = pc.or_(pc.is_in(rows["at"], value_set=wanted), pc.is_null(rows["at"]))
            cut[name] = rows.filter(here)
    return cut


def append_tables(store: Store, tables: Tables) -> None:
    for name in sorted(tables, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        if len(rows := tables[name]):
            store.extend(name, {column: rows[column] for column in rows.column_names})


# Values of a shard: each costs operands, a run of the longest value and of one that is known; and a
# node that is lost takes those along.
LEAST, MOST = 4, 256


class Wanted(NamedTuple):
    """A target, and the label of the machines that it is asked on; None: of the most nodes."""

    target: Target
    label: str | None = None

    @classmethod
    def parse(cls, text: str | Target | Wanted) -> Wanted:
        """Reads a target's text, which may have ``machine=LABEL`` beside its switches."""
        if not isinstance(text, str):
            return text if isinstance(text, Wanted) else cls(text)
        rest, labels = list[str](), list[str]()
        for part in map(str.strip, text.split(",")):
            key, _, value = map(str.strip, part.partition("="))
            if key == "machine" and rest:  # the name stands first
                labels.append(value)
            else:
                rest.append(part)
        if len(labels) > 1 or labels == [""]:
            todo = "write machine=LABEL once; `probe machine` prints a machine's label"
            raise InputError("target", text, "it names no machine, or several", todo)
        return cls(Target.parse(",".join(rest)), labels[0] if labels else None)

    @property
    def text(self) -> str:
        """Returns the target's text, with the machine where one was asked for."""
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
    with (
        connected_nodes(address, [wanted.target.text for wanted in targets], note) as cluster,
        ExitStack() as stack,
    ):
        there = sorted({node.label for node in cluster.good()})
        for wanted in targets:
            if wanted.label is not None and wanted.label not in there:
                why = f"no node of the cluster is machine={wanted.label}"
                raise InputError("target", wanted.text, why, one_of(wanted.label, there))
        stores: dict[str, Store] = {}

        def store(label: str) -> Store | None:
            if folder is not None and label and label not in stores:
                stores[label] = stack.enter_context(Store(folder / label))
            return stores.get(label)

        queues = [_SweepQueue(cluster, request, wanted, folder, store) for wanted in targets]
        try:
            for queue in queues:
                queue.bind()
            deal(cluster, queues, progress)
        except KeyboardInterrupt:
            interrupted = True
    place = None if folder is None else str(folder)
    if folder is not None and len(stores) == 1:
        place = str(folder / next(iter(stores)))
    seconds = time.monotonic() - start
    summaries = {queue.wanted.text: queue.summary for queue in queues}
    plans = request.plans
    return Summary(plans.vary, plans.against, 1, place, seconds, interrupted, summaries)


Values = tuple[int, ...]


class _SweepQueue(Queue[Values]):
    """One target's values, in shards.

    ``folder`` holds a store for each machine, and ``store`` opens that of a label. ``control``: the
    value that every shard begins with, and ``digests`` those of its outputs, as the store or the
    first node had them.
    """

    def __init__(
        self,
        cluster: Cluster,
        request: SweepRequest,
        wanted: Wanted,
        folder: Path | None,
        store: Callable[[str], Store | None],
    ) -> None:
        super().__init__(cluster, wanted.text, wanted.target.text)
        self.request, self.plan, self.wanted = request, request.plans[0], wanted
        self.folder, self.store, self.summary = folder, store, TargetSummary(self.text)
        self.expected: Row = {}  # the row of ``runs`` that its nodes said at first
        self.control, self.total = 0, len(request.values)
        self.digests: tuple[str, str] | None = None
        self.fill([tuple(request.values)])  # divided when its kind of node is known

    def size(self, shard: Values) -> int:
        return len(shard)

    def stored(self, label: str, run_id: str) -> dict[int, Row]:
        """Returns the rows of comparisons that need not be measured again, by value."""
        if self.folder is None or not (self.folder / label).is_dir():
            return {}
        rows = parquet.read_table(self.folder / label, "comparisons")
        plan = self.plan
        same = {"run_id": run_id, "target": self.text, "vary": plan.vary, "against": plan.against}
        for name, value in {**same, "case_id": plan.id}.items():
            rows = rows.filter(pc.equal(rows[name], value))
        if self.request.control == "every":
            rows = rows.filter(pc.is_valid(rows["control"]))
        return {row["at"]: row for row in rows.to_pylist()}

    def bind(self) -> None:
        """Chooses the kind of node: one with the target, with rows already, of most processes."""
        kinds: dict[tuple[str, str], list[DaskNode]] = defaultdict(list)
        for node in self.cluster.good():
            if self.wanted.label in (None, node.label):
                kinds[node.label, node.run(self.text).get("run_id", "")].append(node)
        if not kinds:
            return

        def worth(kind: tuple[str, str]) -> tuple[bool, int, int, str]:
            nodes, stored = kinds[kind], len(self.stored(*kind))
            return any(n.has(self.text) for n in nodes), stored, total_threads(nodes), kind[0]

        self.label, self.run_id = max(kinds, key=worth)
        mine = kinds.pop((self.label, self.run_id))
        self.expected, self.summary.run_id = mine[0].run(self.text), self.run_id
        if others := [str(node) for nodes in kinds.values() for node in nodes]:
            todo = "machine=LABEL in the target selects a different type"
            self.cluster.note(
                f"{self.text}: asked on {self.label}; not on {', '.join(others)}: {todo}"
            )
        known, values = self.stored(self.label, self.run_id), self.request.values
        before = [value for value in values if value in known]
        for value in before:
            self.summary.add(known[value], before=True)
        self.control = (before or values)[0]
        if before:
            self._same_bits(known[self.control])
        left = [value for value in values if value not in known]
        # shards take every n-th value, so short and long ones cost all of them the same
        count = min(EACH * total_threads(mine), len(left) // LEAST)
        count = max(count, math.ceil(len(left) / MOST), 1)
        self.empty()
        parts = (tuple(Shard(number, count).part(left)) for number in range(1, count + 1))
        self.fill(filter(None, parts))

    def question(self, shard: Values) -> tuple[Callable[[str], Said], Row]:
        """Returns the sweep of a shard's values, and of the one that is known."""
        # a node whose bits differ at the control is of another kind, whatever it says of itself
        values = list(dict.fromkeys([self.control, *shard]))
        return answer_sweep, {"target": self.text, **self.request.to_json(values)}

    def take(self, shard: Values, node: DaskNode, answer: Said) -> Iterable[Values]:
        """Judges a shard's tables, and stores the rows that were asked for."""
        tables = unpack_tables(answer["tables"])
        run_id = judged_run(tables, self.text, self.expected)
        judged_rows(tables, self.question(shard)[1], self.plan)
        for row in table_rows(tables, "comparisons"):
            if row["at"] == self.control and not self._same_bits(row):
                raise ValueError(
                    f"{self.text}: its bits differ from what is stored or the nodes before "
                    "it gave, though it says that it is the same machine and library"
                )
        judged_counts(tables, self.plan, self.request.most)
        self.summary.run_id = run_id
        if shard not in self.open:  # the target does not start: that was said already
            return []
        tables = rows_of_values(tables, shard)
        if store := self.store(self.label):
            append_tables(store, tables)
        rows, failed = table_rows(tables, "comparisons"), table_rows(tables, "failures")
        for row in rows:
            self.summary.add(row)
        for row in failed:
            self._add(Failure(row["kind"], row["message"], row["case_id"], row["at"]))
        if failed and not rows and any(row["at"] is None for row in failed):
            self.empty()  # it does not start, or not this case: as without a cluster
            return []
        done = {row["at"] for row in (*rows, *failed)}
        left = tuple(value for value in shard if value not in done)
        self.losses[left] = self.losses[shard] + 1
        if left and self.losses[left] > LOST:
            self.give_up(left, f"left out {self.losses[left]} times")
            return []
        return [left] if left else []

    def _same_bits(self, row: Row) -> bool:
        """Returns whether a row at the control has the bits known; the first one says them."""
        if row["control"] != "equal":
            return True
        digests = row["digest_at"], row["digest_against"]
        self.digests = self.digests or digests
        return self.digests == digests

    def give_up(self, shard: Values, why: str) -> None:
        for value in shard:
            self._record("lost", f"not run: {why}", value)

    def refused(self, node: DaskNode) -> None:
        if self.label:
            self._record("refused", f"{node} is refused: {node.refused}", None)

    def _record(self, kind: str, why: str, at: int | None) -> None:
        error = TargetError(self.text, kind, machine.publishable(why))
        place = {"case_id": self.plan.id, "vary": self.plan.vary, "at": at}
        row = failure_row(self.summary.run_id or "unknown", self.wanted.target, error, place)
        self._add(Failure(kind, row["message"], self.plan.id, at))
        if store := self.store(self.label):
            store.append("failures", row)

    def _add(self, failure: Failure) -> None:
        if failure not in self.summary.failures:
            self.summary.failures.append(failure)


# Beside a shard's tables: of which script and which versions they are, written after them.
DONE = "done.json"

# What a script's answer has beside ``ANSWER``.
ENDED: dict[str, Kinds] = {"status": int, "stderr": str}


def run_on_nodes(
    address: str, script: Path, folder: Path, quick: bool, progress: Tell, note: Callable[..., None]
) -> bool:
    """Runs an experiment's shards on the nodes; whether Ctrl-C ended it.

    ``folder``: gets ``shard-i-of-n/<machine>``, as ``--shard i/n`` would; shards that are there
    already, by the same script and versions, are not run again. Errors: InputError before anything
    runs; ClusterError: the scheduler is gone, or parts could not be run.
    """
    about = {"name": script.stem, "digest": file_digest(script), "quick": quick}
    with connected_nodes(address, ["*"], note) as cluster:
        labels = sorted({node.label for node in cluster.good()})
        queues = [_ScriptQueue(cluster, label, folder, about) for label in labels]
        try:
            deal(cluster, queues, progress)
        except KeyboardInterrupt:
            return True
    if failed := [why for queue in queues for why in queue.failed]:
        why = f"{len(failed)} parts were not run: {failed[0]}"
        raise ClusterError(f"cluster={address}: {why}")
    return False


class _ScriptQueue(Queue[int]):
    """The shards of an experiment, by number from 1 to ``total``, for one kind of machine."""

    def __init__(self, cluster: Cluster, label: str, folder: Path, about: Row) -> None:
        kinds: dict[str, list[DaskNode]] = defaultdict(list)
        for node in cluster.good():
            if node.label == label:
                kinds[node.run("*")["run_id"]].append(node)
        run_id = max(kinds, key=lambda kind: (total_threads(kinds[kind]), kind))
        super().__init__(cluster, about["name"], "*", label, run_id)
        for other, nodes in kinds.items():
            if other != run_id:
                why = f"left out, since its versions differ from most nodes of {label} have"
                cluster.note(f"{', '.join(map(str, nodes))}: {why}")
        self.folder, self.about, self.failed = folder, about, list[str]()
        self.said = {"script": about["digest"], "versions": run_id, "quick": about["quick"]}
        # as this machine's results were divided before, if they were
        there = [path.parent.parent.name for path in folder.glob(f"shard-*-of-*/{label}/{DONE}")]
        totals = [int(match[1]) for name in there if (match := re.search(r"-of-(\d+)\Z", name))]
        self.total = max(totals, default=max(2, EACH * total_threads(kinds[run_id])))
        self.fill(n for n in range(1, self.total + 1) if not self._done(n))

    def _place(self, number: int) -> Path:
        return self.folder / Shard(number, self.total).folder / self.label

    def _done(self, number: int) -> bool:
        try:
            return bool(json.loads((self._place(number) / DONE).read_text()) == self.said)
        except (OSError, ValueError):
            return False

    def question(self, shard: int) -> tuple[Callable[[str], Said], Row]:
        return answer_script, self.about | {"shard": Shard(shard, self.total).text}

    def take(self, shard: int, node: DaskNode, answer: Said) -> Iterable[int]:
        """Stores a shard's tables where ``--shard`` would."""
        if why := misshapen(answer, ENDED):
            raise ValueError(f"its answer can't be read: {why}")
        if answer["status"]:
            lines = [line for line in answer["stderr"].splitlines() if line.strip()]
            self.give_up(shard, lines[-1] if lines else "it gave no message")
            return []
        tables = unpack_tables(answer["tables"])
        for row in table_rows(tables, "runs"):
            for name in ("machine", "cores", "os"):
                if row[name] != node.said["machine"][name]:
                    raise ValueError(f"its runs are of {name}={row[name]}")
        place = self._place(shard)
        with Store(place) as store:
            append_tables(store, tables)
        partial_file = place / f".{DONE}.tmp"
        partial_file.write_text(json.dumps(self.said) + "\n")
        partial_file.replace(place / DONE)
        return []

    def give_up(self, shard: int, why: str) -> None:
        self.failed.append(why)

"""Runs a case's sweep on a cluster: values go out in batches, and rows are stored here.

A target's values are asked on nodes of one kind: alike in machine, library, versions and switches,
so that all rows are of one run. A node begins with a value whose digest is known: who gives
different bits for the same question is not of that kind, whatever it says.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from probe import machine
from probe.campaign import Failure, failure_row
from probe.case import Case
from probe.cluster import answers
from probe.cluster import node as remote
from probe.cluster.nodes import Cluster, DaskNode, Reply, misshapen, opened
from probe.errors import ClusterError, InputError, TargetError, one_of
from probe.progress import Tell
from probe.store import Store, parquet
from probe.sweeps import Plan, Summary, TargetSummary
from probe.target import Target

SECONDS = 1.0
"""What a batch of values should cost: much more than to move it, little to lose."""

FIRST = 4
"""Values of a target's first batches, before it is known what a value costs."""

GROWTH = 16
"""A batch is at most that many times as large as the one before."""

SHARE = 20
"""A batch costs at least that many times what it costs beside its values."""

GOLDEN = (math.sqrt(5) - 1) / 2

PATIENCE = 30.0
"""Seconds without a node before a target's values are recorded as not run."""

LOST = 3
"""How often a value may be lost with its node, or stay unanswered."""


class Wanted(NamedTuple):
    """A target, and the label of the machines that it is asked on; None: of the most nodes."""

    target: Target
    label: str | None = None

    @classmethod
    def parse(cls, text: str | Target | Wanted) -> Wanted:
        """Reads a target's text, which may have ``machine=LABEL`` beside its switches."""
        if not isinstance(text, str):
            return text if isinstance(text, Wanted) else cls(text)
        parts = [part.strip() for part in text.split(",")]
        labels = [part.partition("=")[2].strip() for part in parts[1:] if _is_machine(part)]
        rest = ",".join([parts[0], *(part for part in parts[1:] if not _is_machine(part))])
        if len(labels) > 1 or labels == [""]:
            todo = "write machine=LABEL once; `probe machine` prints a machine's label"
            raise InputError("target", text, "it names no machine, or several", todo)
        return cls(Target.parse(rest), labels[0] if labels else None)

    @property
    def text(self) -> str:
        """Returns the target's text, with the machine where one was asked for."""
        return self.target.text + (f",machine={self.label}" if self.label else "")


def _is_machine(part: str) -> bool:
    return part.partition("=")[0].strip() == "machine"


@dataclass(frozen=True)
class Asking:
    """What is asked of every target: a case, and how ``probe.sweeps.sweep`` is to run it."""

    case: Case
    vary: str
    values: Sequence[int]
    against: int
    control: str = "every"
    keep: int | None = None
    zeros: str = "equal"

    def question(self, target: Target, values: Sequence[int]) -> dict[str, Any]:
        """Returns a question set as JSON has it."""
        return {
            "case": self.case.to_json(),
            "target": target.text,
            "vary": self.vary,
            "values": list(values),
            "against": self.against,
            "control": self.control,
            "keep": self.keep,
            "zeros": self.zeros,
        }


def sweep(
    address: str,
    asking: Asking,
    targets: Sequence[Wanted],
    folder: Path | None,
    progress: Tell,
    note: Callable[[str], None],
) -> Summary:
    """Sweeps one case on the nodes of a cluster, into ``folder``/<machine> (None keeps nothing).

    Ctrl-C ends it with what there is, stored, and ``interrupted``. Errors: InputError before
    anything runs, ClusterError where the scheduler goes: what was measured is stored.
    """
    start = time.monotonic()
    with opened(address, [one.target.text for one in targets], note) as cluster:
        _require_labels(cluster, targets)
        with ExitStack() as stores:
            job = _ClusterSweep(cluster, asking, folder, progress, stores)
            interrupted = job.run(targets)
    kept = None if folder is None else str(folder)
    if folder is not None and len(job.stores) == 1:
        kept = str(folder / next(iter(job.stores)))
    seconds = time.monotonic() - start
    found = {part.wanted.text: part.found for part in job.parts}
    return Summary(asking.vary, asking.against, 1, kept, seconds, interrupted, found)


def _require_labels(cluster: Cluster, targets: Sequence[Wanted]) -> None:
    there = sorted({one.label for one in cluster.good()})
    for one in targets:
        if one.label is not None and one.label not in there:
            why = f"no node of the cluster is machine={one.label}"
            raise InputError("target", one.text, why, one_of(one.label, there))


@dataclass
class _TargetValues:
    """One target's values. ``todo``: not under way; ``open``: without a row or a failure yet.

    ``run_id`` and ``label`` are of the kind of node that it is asked on. ``control``: the value
    that a node begins with, and the digests of its outputs, as the first node gave them.
    """

    wanted: Wanted
    found: TargetSummary
    run_id: str = ""
    label: str = ""
    expected: dict[str, Any] = field(default_factory=dict)
    actual: str = ""
    todo: deque[int] = field(default_factory=deque)
    open: set[int] = field(default_factory=set)
    entered: dict[str, int] = field(default_factory=dict)
    control: int = 0
    digests: tuple[str, str] | None = None
    size: int = field(default_factory=lambda: FIRST)
    costs: list[tuple[int, float]] = field(default_factory=list)
    losses: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    alone: float | None = None

    def resize(self, count: int, seconds: float) -> None:
        """Sets the size of the next batches by what the last ones cost.

        A batch has a cost of its own: operands are made, and the longest value is run for each.
        """
        self.costs = [*self.costs[-7:], (count, max(seconds, 1e-4))]
        counts = [n for n, _ in self.costs]
        each, fixed = seconds / count, 0.0
        if max(counts) > min(counts):
            few = min(s for n, s in self.costs if n == min(counts))
            many = min(s for n, s in self.costs if n == max(counts))
            each = max((many - few) / (max(counts) - min(counts)), 1e-6)
            fixed = max(few - min(counts) * each, 0.0)
        wanted = max(SECONDS - fixed, SHARE * fixed, each) / each
        self.size = max(1, min(int(wanted), count * GROWTH))

    @property
    def deep(self) -> int:
        """Batches that a thread has at a time: a second one waits once their cost is known."""
        return 2 if len({count for count, _ in self.costs}) > 1 else 1

    def batch(self, threads: int) -> list[int]:
        """Takes the next values: fewer towards the end, so that all nodes end together."""
        share = math.ceil(len(self.todo) / (2 * max(threads, 1)))
        count = min(self.size, max(share, math.ceil(self.size / 4)), len(self.todo))
        return [self.todo.popleft() for _ in range(count)]


def _spread(values: Sequence[int]) -> list[int]:
    """The values in an order in which every part of them costs about the same: long and short."""
    places = range(len(values))
    return [values[place] for place in sorted(places, key=lambda n: n * GOLDEN % 1)]


class _ClusterSweep:
    def __init__(
        self,
        cluster: Cluster,
        asking: Asking,
        folder: Path | None,
        progress: Tell,
        stores: ExitStack,
    ) -> None:
        self.cluster, self.asking, self.folder = cluster, asking, folder
        self.tell, self._stack = progress, stores
        self.plan = Plan(asking.case, asking.vary, asking.values, asking.against)
        self.case_id = self.plan.id
        self.stores: dict[str, Store] = {}
        self.parts: list[_TargetValues] = []
        self.refused: set[int] = set()
        self.done = self.total = 0

    def run(self, targets: Sequence[Wanted]) -> bool:
        """Asks all; whether Ctrl-C ended it."""
        for wanted in targets:
            part = _TargetValues(wanted, TargetSummary(wanted.target.text))
            self.parts.append(part)
            part.open, part.todo = set(self.asking.values), deque(self.asking.values)
            self.total += len(part.open)
        try:
            for part in self.parts:
                self._bind(part)
            while any(part.open for part in self.parts):
                self._submit()
                for reply in self.cluster.replies():
                    self._take(reply)
                self._notice()
        except KeyboardInterrupt:
            return True
        except ClusterError:
            for store in self.stores.values():
                store.flush()
            raise
        return False

    def _bind(self, part: _TargetValues) -> None:
        """Chooses the kind of node: one with the target, with rows already, of most processes."""
        text = part.wanted.target.text
        nodes = [n for n in self.cluster.good() if part.wanted.label in (None, n.label)]
        kinds: dict[tuple[str, str], list[DaskNode]] = defaultdict(list)
        for one in nodes:
            kinds[one.label, one.run(text).get("run_id", "")].append(one)
        if not kinds:
            return

        def worth(kind: tuple[str, str]) -> tuple[bool, int, int, str]:
            some = kinds[kind]
            stored = len(self._stored(*kind, text))
            return any(n.has(text) for n in some), stored, sum(n.threads for n in some), kind[0]

        part.label, part.run_id = max(kinds, key=worth)
        part.expected = kinds[part.label, part.run_id][0].run(text)
        part.found.run_id = part.run_id
        others = [n for kind, some in kinds.items() if kind[1] != part.run_id for n in some]
        if others:
            which = ", ".join(map(str, others))
            todo = "machine=LABEL in the target selects a different type"
            self.cluster.note(f"{text}: asked on {part.label}; not on {which}: {todo}")
        self._recall(part)

    def _stored(self, label: str, run_id: str, text: str) -> list[dict[str, Any]]:
        """Returns the rows of comparisons that need not be measured again."""
        if self.folder is None or not (self.folder / label).is_dir():
            return []
        rows = parquet.table(self.folder / label, "comparisons")
        asked = self.asking
        same = {"run_id": run_id, "target": text, "vary": asked.vary, "against": asked.against}
        for name, value in {**same, "case_id": self.case_id}.items():
            rows = rows.filter(pc.equal(rows[name], value))
        if asked.control == "every":
            rows = rows.filter(pc.is_valid(rows["control"]))
        return list(rows.to_pylist())

    def _recall(self, part: _TargetValues) -> None:
        known = {r["at"]: r for r in self._stored(part.label, part.run_id, part.found.target)}
        before = [value for value in self.asking.values if value in known]
        for value in before:
            part.found.add(known[value], before=True)
        part.open -= set(before)
        part.todo = deque(_spread([value for value in self.asking.values if value in part.open]))
        part.control = before[0] if before else self.asking.values[0]
        if before:
            self._fix_digests(part, known[before[0]])
        self._tell(part, len(before))

    def _fix_digests(self, part: _TargetValues, row: Mapping[str, Any]) -> None:
        if row["control"] == "equal" and part.digests is None:
            part.digests = (row["digest_at"], row["digest_against"])

    def _nodes(self, part: _TargetValues) -> list[DaskNode]:
        text = part.wanted.target.text
        alike = [
            n
            for n in self.cluster.good()
            if n.label == part.label and n.run(text).get("run_id") == part.run_id
        ]
        return [n for n in alike if n.has(text)] or alike

    def _submit(self) -> None:
        """Sends out batches, so that each node has one to go on with: in the order of targets."""
        for part in self.parts:
            if not part.label:
                self._bind(part)
            nodes = self._nodes(part)
            threads = sum(one.threads for one in nodes)
            for one in nodes:
                free = self.cluster.load([one]) < part.deep * one.threads
                if part.todo and free and one.address not in part.entered:
                    part.entered[one.address] = 0
                    values = dict.fromkeys([part.control, *part.batch(threads)])
                    self._ask(part, list(values), [one])
            known = [n for n in nodes if part.entered.get(n.address)]
            threads = sum(one.threads for one in known)
            while part.todo and known and self.cluster.load(known) < part.deep * threads:
                self._ask(part, part.batch(threads), known)

    def _ask(self, part: _TargetValues, values: list[int], nodes: list[DaskNode]) -> None:
        question = self.asking.question(part.wanted.target, values)
        self.cluster.ask(remote.sweep, question, nodes, part)

    def _take(self, reply: Reply) -> None:
        part: _TargetValues = reply.asked.about
        if reply.answer is None:
            for one in reply.asked.nodes:
                if not part.entered.get(one.address):
                    part.entered.pop(one.address, None)
            self._again(part, reply.asked.question["values"], reply.why, reply.error)
            return
        node = self.cluster.answered(reply)
        if node is None:  # each of them begins anew, alone, so that it is known who answers so
            for one in reply.asked.nodes:
                part.entered.pop(one.address, None)
        if node is None or self._believe(part, node, reply):
            self._again(part, reply.asked.question["values"], "", "no answer could be read")

    def _believe(self, part: _TargetValues, node: DaskNode, reply: Reply) -> str:
        """Stores an answer; why it is not believed, else empty."""
        answer, asked = reply.answer, reply.asked.question
        assert answer is not None
        if not node.refused:
            try:
                if why := misshapen(answer, {"fresh": bool, "seconds": (int, float)}):
                    raise ValueError(f"its answer can't be read: {why}")
                tables = answers.unpacked(answer["tables"])
                run_id = answers.judged_run(tables, asked["target"], part.expected)
                answers.judged_rows(tables, asked, self.case_id)
                answers.judged_counts(tables, self.plan, self.asking.keep)
                self._compare_digests(part, tables)
            except ValueError as error:
                self.cluster.refuse(node, str(error))
        if node.refused:
            self._record_refusal(part, node)
            return node.refused
        part.entered[node.address] = part.entered.get(node.address, 0) + 1
        part.found.run_id = run_id
        values = asked["values"]
        if not answer["fresh"] and len(values) > 1:
            part.resize(len(values), answer["seconds"])
        self._keep(part, tables, [value for value in values if value in part.open])
        return ""

    def _compare_digests(self, part: _TargetValues, tables: answers.Tables) -> None:
        rows = tables["comparisons"].to_pylist() if "comparisons" in tables else []
        for row in rows:
            if row["at"] != part.control or row["control"] != "equal":
                continue
            self._fix_digests(part, row)
            if part.digests and part.digests != (row["digest_at"], row["digest_against"]):
                raise ValueError(
                    f"{part.found.target}: its bits differ from what is stored or the nodes "
                    "before it gave, though it says that it is the same machine and library"
                )

    def _keep(self, part: _TargetValues, tables: answers.Tables, values: list[int]) -> None:
        tables = answers.cut(tables, values)
        if store := self._store(part.label):
            answers.stored(store, tables)
        rows = tables["comparisons"].to_pylist() if "comparisons" in tables else []
        failed = tables["failures"].to_pylist() if "failures" in tables else []
        for row in rows:
            part.found.add(row)
        for row in failed:
            self._failed(part, Failure(row["kind"], row["message"], row["case_id"], row["at"]))
        done = {row["at"] for row in (*rows, *failed)} & set(values)
        if failed and not rows and any(row["at"] is None for row in failed):
            done = set(part.open)  # it does not start, or not this case: as without a cluster
            part.todo.clear()
        part.open -= done
        self._tell(part, len(done))
        self._again(part, [value for value in values if value in part.open], "")

    def _again(self, part: _TargetValues, values: Sequence[int], why: str, error: str = "") -> None:
        """Asks values once more, elsewhere or later; records those lost too often as not run."""
        for value in values:
            if value not in part.open or value in part.todo:
                continue
            part.losses[value] += 1
            if why or part.losses[value] > LOST:
                self._not_run(part, [value], why or error or f"lost {part.losses[value]} times")
            else:
                part.todo.append(value)

    def _not_run(self, part: _TargetValues, values: Sequence[int], why: str) -> None:
        for value in values:
            self._record(part, "lost", f"not run: {why}", value)
        part.open -= set(values)
        self._tell(part, len(values))

    def _record_refusal(self, part: _TargetValues, node: DaskNode) -> None:
        if node.number not in self.refused:
            self.refused.add(node.number)
            self._record(part, "refused", f"{node} is refused: {node.refused}", None)

    def _record(self, part: _TargetValues, kind: str, why: str, at: int | None) -> None:
        error = TargetError(part.found.target, kind, machine.publishable(why))
        place = {"case_id": self.case_id, "vary": self.asking.vary, "at": at}
        row = failure_row(part.found.run_id or "unknown", part.wanted.target, error, place)
        self._failed(part, Failure(kind, row["message"], self.case_id, at))
        if store := self._store(part.label):
            store.append("failures", row)

    def _failed(self, part: _TargetValues, failure: Failure) -> None:
        if failure not in part.found.failures:
            part.found.failures.append(failure)

    def _notice(self) -> None:
        """Records what no node is left for."""
        for one in self.cluster.nodes.values():
            if one.refused:
                self._refused_before(one)
        for part in self.parts:
            if not part.open or self._nodes(part):
                part.alone = None
                continue
            part.alone = part.alone or time.monotonic()
            if time.monotonic() - part.alone > PATIENCE:
                part.todo.clear()
                why = f"no node with it for {PATIENCE:g} seconds"
                self._not_run(part, sorted(part.open), why)

    def _refused_before(self, node: DaskNode) -> None:
        """Records a node that was refused when it joined, with each target that it was asked."""
        if node.number in self.refused:
            return
        self.refused.add(node.number)
        for part in self.parts:
            if part.label:
                self._record(part, "refused", f"{node} is refused: {node.refused}", None)

    def _store(self, label: str) -> Store | None:
        if self.folder is None or not label:
            return None
        if label not in self.stores:
            self.stores[label] = self._stack.enter_context(Store(self.folder / label))
        return self.stores[label]

    def _tell(self, part: _TargetValues, count: int) -> None:
        self.done += count
        self.tell(self.done, self.total, part.wanted.text)

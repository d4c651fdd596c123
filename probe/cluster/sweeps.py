"""Runs a case's sweep on a cluster: shards of its values go out, and rows are stored here.

Every shard begins with a value whose digest is known: who gives different bits for the same
question is not of that kind of node, whatever it says.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from probe import machine
from probe.campaign import Failure, failure_row
from probe.cluster import answers
from probe.cluster import node as remote
from probe.cluster.dealing import EACH, Dealer, Queue
from probe.cluster.nodes import Cluster, DaskNode, connected_nodes
from probe.errors import ClusterError, InputError, TargetError, one_of
from probe.progress import Tell
from probe.shard import Shard
from probe.store import Store, parquet
from probe.sweeps import Summary, SweepRequest, TargetSummary
from probe.target import Target

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
        name, *pairs = (part.strip() for part in text.split(","))
        words = [(part, *(word.strip() for word in part.partition("=")[::2])) for part in pairs]
        labels = [value for _, key, value in words if key == "machine"]
        rest = ",".join([name, *(part for part, key, _ in words if key != "machine")])
        if len(labels) > 1 or labels == [""]:
            todo = "write machine=LABEL once; `probe machine` prints a machine's label"
            raise InputError("target", text, "it names no machine, or several", todo)
        return cls(Target.parse(rest), labels[0] if labels else None)

    @property
    def text(self) -> str:
        """Returns the target's text, with the machine where one was asked for."""
        return self.target.text + (f",machine={self.label}" if self.label else "")


def sweep_on_nodes(
    address: str,
    asked: SweepRequest,
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
    with connected_nodes(address, [one.target.text for one in targets], note) as cluster:
        there = sorted({one.label for one in cluster.good()})
        for one in targets:
            if one.label is not None and one.label not in there:
                why = f"no node of the cluster is machine={one.label}"
                raise InputError("target", one.text, why, one_of(one.label, there))
        with ExitStack() as stores:
            job = _ClusterSweep(cluster, asked, folder, progress, stores)
            interrupted = job.run(targets)
    kept = None if folder is None else str(folder)
    if folder is not None and len(job.stores) == 1:
        kept = str(folder / next(iter(job.stores)))
    seconds = time.monotonic() - start
    found = {queue.wanted.text: queue.found for queue in job.queues}
    return Summary(asked.plans.vary, asked.plans.against, 1, kept, seconds, interrupted, found)


Values = tuple[int, ...]


@dataclass
class SweepQueue(Queue[Values]):
    """One target's values, in shards.

    ``expected``: the row of ``runs`` that its nodes said at first. ``control``: the value that
    every shard begins with, and the digests of its outputs, as the store or the first node had
    them.
    """

    wanted: Wanted = field(kw_only=True)
    found: TargetSummary = field(kw_only=True)
    expected: dict[str, Any] = field(default_factory=dict)
    control: int = 0
    digests: tuple[str, str] | None = None


class _ClusterSweep(Dealer[SweepQueue]):
    def __init__(
        self,
        cluster: Cluster,
        asked: SweepRequest,
        folder: Path | None,
        progress: Tell,
        stores: ExitStack,
    ) -> None:
        super().__init__(cluster, remote.answer_sweep, {"fresh": bool, "seconds": (int, float)})
        self.asked, self.folder = asked, folder
        self.progress, self._stack = progress, stores
        self.plan = self.asked.plans[0]
        self.stores: dict[str, Store] = {}
        self.recorded: set[int] = set()
        self.done = self.total = 0

    def run(self, targets: Sequence[Wanted]) -> bool:
        """Asks all; whether Ctrl-C ended it."""
        for wanted in targets:
            text = wanted.target.text
            queue = SweepQueue(text, wanted=wanted, found=TargetSummary(text))
            queue.fill([tuple(self.asked.values)])  # divided when its kind of node is known
            self.queues.append(queue)
        self.total = len(targets) * len(self.asked.values)
        try:
            for queue in self.queues:
                self.bind(queue)
            for _ in self.steps():
                pass  # each step stores what a node answered
        except KeyboardInterrupt:
            return True
        except ClusterError:
            for store in self.stores.values():
                store.flush()
            raise
        return False

    def bind(self, queue: SweepQueue) -> None:
        """Chooses the kind of node: one with the target, with rows already, of most processes."""
        kinds: dict[tuple[str, str], list[DaskNode]] = defaultdict(list)
        for one in self.cluster.good():
            if queue.wanted.label in (None, one.label):
                kinds[one.label, one.run(queue.text).get("run_id", "")].append(one)
        if not kinds:
            return

        def worth(kind: tuple[str, str]) -> tuple[bool, int, int, str]:
            some = kinds[kind]
            stored = len(self._stored(*kind, queue.text))
            return any(n.has(queue.text) for n in some), stored, _threads_of(some), kind[0]

        queue.label, queue.run_id = max(kinds, key=worth)
        mine = kinds.pop((queue.label, queue.run_id))
        queue.expected, queue.found.run_id = mine[0].run(queue.text), queue.run_id
        if others := [one for some in kinds.values() for one in some]:
            todo = "machine=LABEL in the target selects a different type"
            which = ", ".join(map(str, others))
            self.cluster.note(f"{queue.text}: asked on {queue.label}; not on {which}: {todo}")
        known = {row["at"]: row for row in self._stored(queue.label, queue.run_id, queue.text)}
        before = [value for value in self.asked.values if value in known]
        for value in before:
            queue.found.add(known[value], before=True)
        queue.control = (before or self.asked.values)[0]
        if before:
            _fix_digests(queue, known[before[0]])
        left = [value for value in self.asked.values if value not in known]
        # shards take every n-th value, so short and long ones cost all of them the same
        count = max(
            min(EACH * _threads_of(mine), len(left) // LEAST), math.ceil(len(left) / MOST), 1
        )
        parts = [tuple(Shard(number, count).part(left)) for number in range(1, count + 1)]
        queue.todo.clear()
        queue.open.clear()
        queue.fill(part for part in parts if part)
        self._tell(queue, len(before))

    def _stored(self, label: str, run_id: str, text: str) -> list[dict[str, Any]]:
        """Returns the rows of comparisons that need not be measured again."""
        if self.folder is None or not (self.folder / label).is_dir():
            return []
        rows = parquet.read_table(self.folder / label, "comparisons")
        plan = self.plan
        same = {"run_id": run_id, "target": text, "vary": plan.vary, "against": plan.against}
        for name, value in {**same, "case_id": plan.id}.items():
            rows = rows.filter(pc.equal(rows[name], value))
        if self.asked.control == "every":
            rows = rows.filter(pc.is_valid(rows["control"]))
        return list(rows.to_pylist())

    def question(self, queue: SweepQueue, shard: Values) -> dict[str, Any]:
        """Returns the sweep of a shard's values, and of the one that is known."""
        # a node whose bits differ at the control is of another kind, whatever it says of itself
        values = list(dict.fromkeys([queue.control, *shard]))
        return {"target": queue.text, **self.asked.to_json(values)}

    def take(
        self, queue: SweepQueue, shard: Values, node: DaskNode, answer: dict[str, Any]
    ) -> None:
        """Judges a shard's tables, and stores the rows that were asked for."""
        tables, asked = answers.unpack_tables(answer["tables"]), self.question(queue, shard)
        run_id = answers.judged_run(tables, queue.text, queue.expected)
        answers.judged_rows(tables, asked, self.plan.id)
        for row in tables["comparisons"].to_pylist() if "comparisons" in tables else []:
            if row["at"] == queue.control and row["control"] == "equal":
                _fix_digests(queue, row)
                if queue.digests != (row["digest_at"], row["digest_against"]):
                    raise ValueError(
                        f"{queue.text}: its bits differ from what is stored or the nodes before "
                        "it gave, though it says that it is the same machine and library"
                    )
        answers.judged_counts(tables, self.plan, self.asked.keep)
        queue.found.run_id = run_id
        if shard not in queue.open:  # the target does not start: that was said already
            return
        tables = answers.rows_of_values(tables, shard)
        if store := self._store(queue.label):
            answers.append_tables(store, tables)
        rows = tables["comparisons"].to_pylist() if "comparisons" in tables else []
        failed = tables["failures"].to_pylist() if "failures" in tables else []
        for row in rows:
            queue.found.add(row)
        for row in failed:
            _add_failure(queue, Failure(row["kind"], row["message"], row["case_id"], row["at"]))
        left = tuple(value for value in shard if value not in {r["at"] for r in (*rows, *failed)})
        if failed and not rows and any(row["at"] is None for row in failed):
            # it does not start, or not this case: as without a cluster
            self._tell(queue, sum(map(len, queue.open)))
            queue.todo.clear()
            queue.open.clear()
            return
        self._tell(queue, len(shard) - len(left))
        if left:
            queue.losses[left] = queue.losses[shard] + 1
            queue.fill([left])

    def give_up(self, queue: SweepQueue, shard: Values, why: str) -> None:
        """Records values as not run."""
        for value in shard:
            self._record(queue, "lost", f"not run: {why}", value)
        self._tell(queue, len(shard))

    def refused(self, node: DaskNode, queue: SweepQueue | None) -> None:
        """Records a refused node once: with the target at which it was, or with all of them."""
        if node.number not in self.recorded:
            self.recorded.add(node.number)
            for one in self.queues if queue is None else [queue]:
                if one.label:
                    self._record(one, "refused", f"{node} is refused: {node.refused}", None)

    def _record(self, queue: SweepQueue, kind: str, why: str, at: int | None) -> None:
        error = TargetError(queue.text, kind, machine.publishable(why))
        place = {"case_id": self.plan.id, "vary": self.plan.vary, "at": at}
        row = failure_row(queue.found.run_id or "unknown", queue.wanted.target, error, place)
        _add_failure(queue, Failure(kind, row["message"], self.plan.id, at))
        if store := self._store(queue.label):
            store.append("failures", row)

    def _store(self, label: str) -> Store | None:
        if self.folder is None or not label:
            return None
        if label not in self.stores:
            self.stores[label] = self._stack.enter_context(Store(self.folder / label))
        return self.stores[label]

    def _tell(self, queue: SweepQueue, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total, queue.wanted.text)


def _threads_of(nodes: Sequence[DaskNode]) -> int:
    return sum(one.threads for one in nodes)


def _fix_digests(queue: SweepQueue, row: Mapping[str, Any]) -> None:
    if row["control"] == "equal" and queue.digests is None:
        queue.digests = (row["digest_at"], row["digest_against"])


def _add_failure(queue: SweepQueue, failure: Failure) -> None:
    if failure not in queue.found.failures:
        queue.found.failures.append(failure)

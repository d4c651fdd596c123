"""Runs a case's sweep on a cluster: shards of its values go out, and rows are stored here.

Every shard begins with a value whose digest is known: who gives different bits for the same
question is not of that kind of node, whatever it says.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from probe import machine
from probe.campaign import Failure, failure_row
from probe.cluster import answers
from probe.cluster import node as remote
from probe.cluster.dealing import EACH, LOST, Queue, deal, total_threads
from probe.cluster.nodes import Cluster, DaskNode, Said, connected_nodes
from probe.errors import InputError, TargetError, one_of
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
    start, interrupted = time.monotonic(), False
    with (
        connected_nodes(address, [one.target.text for one in targets], note) as cluster,
        ExitStack() as stack,
    ):
        there = sorted({one.label for one in cluster.good()})
        for one in targets:
            if one.label is not None and one.label not in there:
                why = f"no node of the cluster is machine={one.label}"
                raise InputError("target", one.text, why, one_of(one.label, there))
        sweep = _Sweep(asked, folder, progress, stack, len(targets) * len(asked.values))
        queues = [_SweepQueue(cluster, sweep, one) for one in targets]
        try:
            for queue in queues:
                queue.bind()
            deal(cluster, queues)
        except KeyboardInterrupt:
            interrupted = True
    kept = None if folder is None else str(folder)
    if folder is not None and len(sweep.stores) == 1:
        kept = str(folder / next(iter(sweep.stores)))
    seconds = time.monotonic() - start
    found = {queue.wanted.text: queue.found for queue in queues}
    return Summary(asked.plans.vary, asked.plans.against, 1, kept, seconds, interrupted, found)


class _Sweep:
    """What all targets share: what is asked, and where it is kept, by machine."""

    def __init__(
        self, asked: SweepRequest, folder: Path | None, progress: Tell, stack: ExitStack, total: int
    ) -> None:
        self.asked, self.plan, self.folder = asked, asked.plans[0], folder
        self.stores: dict[str, Store] = {}
        self.progress, self.done, self.total, self._stack = progress, 0, total, stack

    def store(self, label: str) -> Store | None:
        if self.folder is None or not label:
            return None
        if label not in self.stores:
            self.stores[label] = self._stack.enter_context(Store(self.folder / label))
        return self.stores[label]

    def stored(self, label: str, run_id: str, text: str) -> dict[int, dict[str, Any]]:
        """Returns the rows of comparisons that need not be measured again, by value."""
        if self.folder is None or not (self.folder / label).is_dir():
            return {}
        rows = parquet.read_table(self.folder / label, "comparisons")
        plan = self.plan
        same = {"run_id": run_id, "target": text, "vary": plan.vary, "against": plan.against}
        for name, value in {**same, "case_id": plan.id}.items():
            rows = rows.filter(pc.equal(rows[name], value))
        if self.asked.control == "every":
            rows = rows.filter(pc.is_valid(rows["control"]))
        return {row["at"]: row for row in rows.to_pylist()}


Values = tuple[int, ...]


class _SweepQueue(Queue[Values]):
    """One target's values, in shards.

    ``control``: the value that every shard begins with, and ``digests`` those of its outputs, as
    the store or the first node had them.
    """

    def __init__(self, cluster: Cluster, sweep: _Sweep, wanted: Wanted) -> None:
        super().__init__(cluster, wanted.target.text)
        self.sweep, self.wanted, self.found = sweep, wanted, TargetSummary(self.text)
        self.expected: dict[str, Any] = {}  # the row of ``runs`` that its nodes said at first
        self.control = 0
        self.digests: tuple[str, str] | None = None
        self.fill([tuple(sweep.asked.values)])  # divided when its kind of node is known

    def bind(self) -> None:
        """Chooses the kind of node: one with the target, with rows already, of most processes."""
        kinds: dict[tuple[str, str], list[DaskNode]] = defaultdict(list)
        for one in self.cluster.good():
            if self.wanted.label in (None, one.label):
                kinds[one.label, one.run(self.text).get("run_id", "")].append(one)
        if not kinds:
            return

        def worth(kind: tuple[str, str]) -> tuple[bool, int, int, str]:
            some, stored = kinds[kind], len(self.sweep.stored(*kind, self.text))
            return any(n.has(self.text) for n in some), stored, total_threads(some), kind[0]

        self.label, self.run_id = max(kinds, key=worth)
        mine = kinds.pop((self.label, self.run_id))
        self.expected, self.found.run_id = mine[0].run(self.text), self.run_id
        if others := [one for some in kinds.values() for one in some]:
            todo = "machine=LABEL in the target selects a different type"
            which = ", ".join(map(str, others))
            self.cluster.note(f"{self.text}: asked on {self.label}; not on {which}: {todo}")
        known, values = (
            self.sweep.stored(self.label, self.run_id, self.text),
            self.sweep.asked.values,
        )
        before = [value for value in values if value in known]
        for value in before:
            self.found.add(known[value], before=True)
        self.control = (before or values)[0]
        if before:
            self._same_bits(known[self.control])
        left = [value for value in values if value not in known]
        # shards take every n-th value, so short and long ones cost all of them the same
        count = min(EACH * total_threads(mine), len(left) // LEAST)
        count = max(count, math.ceil(len(left) / MOST), 1)
        self.empty()
        parts = (tuple(Shard(number, count).part(left)) for number in range(1, count + 1))
        self.fill(part for part in parts if part)
        self._tell(len(before))

    def question(self, shard: Values) -> tuple[Callable[[str], Said], dict[str, Any]]:
        """Returns the sweep of a shard's values, and of the one that is known."""
        # a node whose bits differ at the control is of another kind, whatever it says of itself
        values = list(dict.fromkeys([self.control, *shard]))
        return remote.answer_sweep, {"target": self.text, **self.sweep.asked.to_json(values)}

    def take(self, shard: Values, node: DaskNode, answer: Said) -> None:
        """Judges a shard's tables, and stores the rows that were asked for."""
        tables, plan = answers.unpack_tables(answer["tables"]), self.sweep.plan
        run_id = answers.judged_run(tables, self.text, self.expected)
        answers.judged_rows(tables, self.question(shard)[1], plan.id)
        for row in tables["comparisons"].to_pylist() if "comparisons" in tables else []:
            if row["at"] == self.control and not self._same_bits(row):
                raise ValueError(
                    f"{self.text}: its bits differ from what is stored or the nodes before "
                    "it gave, though it says that it is the same machine and library"
                )
        answers.judged_counts(tables, plan, self.sweep.asked.keep)
        self.found.run_id = run_id
        if shard not in self.open:  # the target does not start: that was said already
            return
        tables = answers.rows_of_values(tables, shard)
        if store := self.sweep.store(self.label):
            answers.append_tables(store, tables)
        rows = tables["comparisons"].to_pylist() if "comparisons" in tables else []
        failed = tables["failures"].to_pylist() if "failures" in tables else []
        for row in rows:
            self.found.add(row)
        for row in failed:
            self._add(Failure(row["kind"], row["message"], row["case_id"], row["at"]))
        if failed and not rows and any(row["at"] is None for row in failed):
            # it does not start, or not this case: as without a cluster
            self._tell(sum(map(len, self.open)))
            self.empty()
            return
        left = tuple(value for value in shard if value not in {r["at"] for r in (*rows, *failed)})
        self._tell(len(shard) - len(left))
        self.losses[left] = self.losses[shard] + 1
        if left and self.losses[left] > LOST:
            self.give_up(left, f"left out {self.losses[left]} times")
        elif left:
            self.fill([left])

    def _same_bits(self, row: dict[str, Any]) -> bool:
        """Returns whether a row at the control has the bits known; the first one says them."""
        found = row["digest_at"], row["digest_against"]
        if row["control"] != "equal":
            return True
        self.digests = self.digests or found
        return self.digests == found

    def give_up(self, shard: Values, why: str) -> None:
        """Records values as not run."""
        for value in shard:
            self._record("lost", f"not run: {why}", value)
        self._tell(len(shard))

    def refused(self, node: DaskNode) -> None:
        """Records that a node is refused."""
        if self.label:
            self._record("refused", f"{node} is refused: {node.refused}", None)

    def _record(self, kind: str, why: str, at: int | None) -> None:
        error, plan = TargetError(self.text, kind, machine.publishable(why)), self.sweep.plan
        place = {"case_id": plan.id, "vary": plan.vary, "at": at}
        row = failure_row(self.found.run_id or "unknown", self.wanted.target, error, place)
        self._add(Failure(kind, row["message"], plan.id, at))
        if store := self.sweep.store(self.label):
            store.append("failures", row)

    def _add(self, failure: Failure) -> None:
        if failure not in self.found.failures:
            self.found.failures.append(failure)

    def _tell(self, count: int) -> None:
        self.sweep.done += count
        self.sweep.progress(self.sweep.done, self.sweep.total, self.wanted.text)

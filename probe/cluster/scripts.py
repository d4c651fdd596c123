"""Runs an experiment on a cluster: nodes run its shards, which are stored here.

Every kind of machine runs the whole experiment: results are told apart by machine, so half of them
from one and half from another would be neither's. What a node runs is ``experiments/NAME.py`` of
its own checkout, if that is the very same script.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe.cluster import answers
from probe.cluster import node as remote
from probe.cluster.nodes import Cluster, DaskNode, Reply, misshapen, opened
from probe.cluster.sweeps import LOST, PATIENCE
from probe.errors import ClusterError
from probe.progress import Tell
from probe.shard import Shard
from probe.store import Store

EACH = 4
"""Parts for every process of a kind of machine, so that all end at about the same time."""

DONE = "done.json"
"""Beside a shard's tables: of which script and which versions they are, written after them."""


def run(
    address: str, script: Path, folder: Path, quick: bool, progress: Tell, note: Callable[..., None]
) -> bool:
    """Runs an experiment's shards on the nodes; whether Ctrl-C ended it.

    ``folder``: gets ``shard-i-of-n/<machine>``, as ``--shard i/n`` would; shards that are there
    already, by the same script and versions, are not run again. Errors: InputError before anything
    runs; ClusterError: the scheduler is gone, or parts could not be run.
    """
    with opened(address, ["*"], note) as cluster:
        job = _Script(cluster, script, folder, quick, progress, note)
        try:
            job.run()
        except KeyboardInterrupt:
            return True
    if job.failed:
        first = next(iter(job.failed.values()))
        raise ClusterError(f"cluster={address}: {len(job.failed)} parts were not run: {first}")
    return False


@dataclass
class _Kind:
    """Nodes that are alike in machine and versions, and the parts that they have to run."""

    label: str
    run_id: str
    total: int
    todo: deque[int] = field(default_factory=deque)
    open: set[int] = field(default_factory=set)
    losses: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    alone: float | None = None


class _Script:
    def __init__(
        self,
        cluster: Cluster,
        script: Path,
        folder: Path,
        quick: bool,
        progress: Tell,
        note: Callable[..., None],
    ) -> None:
        self.cluster, self.folder, self.quick = cluster, folder, quick
        self.tell, self.note = progress, note
        self.name, self.digest = script.stem, remote.digest(script)
        self.failed: dict[tuple[str, int], str] = {}
        self.kinds = [self._kind(label) for label in sorted({n.label for n in cluster.good()})]
        self.total = sum(kind.total for kind in self.kinds)

    def run(self) -> None:
        """Asks every part of every kind of machine."""
        while any(kind.open for kind in self.kinds):
            for kind in self.kinds:
                self._submit(kind)
            for reply in self.cluster.replies():
                self._take(reply)
            left = sum(len(kind.open) for kind in self.kinds)
            self.tell(self.total - left, self.total, self.name)

    def _kind(self, label: str) -> _Kind:
        kinds: dict[str, list[DaskNode]] = defaultdict(list)
        for node in self.cluster.good():
            if node.label == label:
                kinds[node.run("*")["run_id"]].append(node)
        run_id = max(kinds, key=lambda one: (sum(n.threads for n in kinds[one]), one))
        for other, nodes in kinds.items():
            if other != run_id:
                which = ", ".join(map(str, nodes))
                self.note(
                    f"{which}: left out, since its versions differ from most nodes of {label} have"
                )
        threads = sum(node.threads for node in kinds[run_id])
        kind = _Kind(label, run_id, self._parts(label) or max(2, EACH * threads))
        kind.open = {n for n in range(1, kind.total + 1) if not self._done(kind, n)}
        kind.todo = deque(sorted(kind.open))
        return kind

    def _parts(self, label: str) -> int:
        """Into how many parts this machine's results were divided before; 0: they were not."""
        found = self.folder.glob(f"shard-*-of-*/{label}/{DONE}")
        totals = [re.fullmatch(r"shard-\d+-of-(\d+)", one.parent.parent.name) for one in found]
        return max((int(one[1]) for one in totals if one), default=0)

    def _place(self, kind: _Kind, number: int) -> Path:
        return self.folder / Shard(number, kind.total).folder / kind.label

    def _done(self, kind: _Kind, number: int) -> bool:
        try:
            said = json.loads((self._place(kind, number) / DONE).read_text())
        except (OSError, ValueError):
            return False
        return bool(said == self._said(kind))

    def _said(self, kind: _Kind) -> dict[str, Any]:
        return {"script": self.digest, "versions": kind.run_id, "quick": self.quick}

    def _nodes(self, kind: _Kind) -> list[DaskNode]:
        return [
            node
            for node in self.cluster.good()
            if node.label == kind.label and node.run("*")["run_id"] == kind.run_id
        ]

    def _submit(self, kind: _Kind) -> None:
        nodes = self._nodes(kind)
        if kind.open and not nodes:
            kind.alone = kind.alone or time.monotonic()
            if time.monotonic() - kind.alone > PATIENCE:
                for number in list(kind.open):
                    self._fail(kind, number, f"no node of {kind.label} is left")
            return
        kind.alone = None
        while kind.todo and self.cluster.load(nodes) < 2 * sum(one.threads for one in nodes):
            number = kind.todo.popleft()
            question = {
                "name": self.name,
                "digest": self.digest,
                "quick": self.quick,
                "shard": Shard(number, kind.total).text,
            }
            self.cluster.ask(remote.script, question, nodes, (kind, number))

    def _take(self, reply: Reply) -> None:
        kind, number = reply.asked.about
        answer, node = reply.answer, self.cluster.answered(reply) if reply.answer else None
        if answer is None or node is None or node.refused:
            self._again(kind, number, reply.why, reply.error)
        elif why := misshapen(answer, {"status": int, "stderr": str}):
            self.cluster.refuse(node, f"its answer can't be read: {why}")
            self._again(kind, number, "")
        elif answer["status"]:
            self._fail(kind, number, _last(answer["stderr"]))
        else:
            try:
                tables = answers.unpacked(answer["tables"])
                _judge(tables, node)
            except ValueError as error:
                self.cluster.refuse(node, str(error))
                self._again(kind, number, "")
                return
            self._keep(kind, number, tables)

    def _keep(self, kind: _Kind, number: int, tables: answers.Tables) -> None:
        place = self._place(kind, number)
        with Store(place) as store:
            answers.stored(store, tables)
        partial = place / f".{DONE}.tmp"
        partial.write_text(json.dumps(self._said(kind)) + "\n")
        partial.replace(place / DONE)
        kind.open.discard(number)

    def _again(self, kind: _Kind, number: int, why: str, error: str = "") -> None:
        kind.losses[number] += 1
        if why or kind.losses[number] > LOST:
            self._fail(kind, number, why or error or f"lost {kind.losses[number]} times")
        else:
            kind.todo.append(number)

    def _fail(self, kind: _Kind, number: int, why: str) -> None:
        self.failed[kind.label, number] = why
        kind.open.discard(number)
        if number in kind.todo:
            kind.todo.remove(number)


def _judge(tables: answers.Tables, node: DaskNode) -> None:
    """ValueError where rows are of another machine than the node said."""
    for row in tables["runs"].to_pylist() if "runs" in tables else []:
        for name in ("machine", "cores", "os"):
            if row[name] != node.said["machine"][name]:
                raise ValueError(f"its runs are of {name}={row[name]}")


def _last(text: str) -> str:
    return next(
        (line for line in reversed(text.splitlines()) if line.strip()), "it gave no message"
    )

"""Runs an experiment on a cluster: nodes run its shards, which are stored here.

Every kind of machine runs the whole experiment: results are told apart by machine, so half of them
from one and half from another would be neither's. What a node runs is ``experiments/NAME.py`` of
its own checkout, if that is the very same script.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.cluster import answers
from probe.cluster import node as remote
from probe.cluster.dealing import EACH, Dealer, Queue
from probe.cluster.nodes import Cluster, DaskNode, connected_nodes
from probe.errors import ClusterError
from probe.progress import Tell
from probe.shard import Shard
from probe.store import Store

# Beside a shard's tables: of which script and which versions they are, written after them.
DONE = "done.json"


def run_on_nodes(
    address: str, script: Path, folder: Path, quick: bool, progress: Tell, note: Callable[..., None]
) -> bool:
    """Runs an experiment's shards on the nodes; whether Ctrl-C ended it.

    ``folder``: gets ``shard-i-of-n/<machine>``, as ``--shard i/n`` would; shards that are there
    already, by the same script and versions, are not run again. Errors: InputError before anything
    runs; ClusterError: the scheduler is gone, or parts could not be run.
    """
    with connected_nodes(address, ["*"], note) as cluster:
        job = _Scripts(cluster, script, folder, quick)
        try:
            total = sum(queue.total for queue in job.queues)
            for _ in job.steps():
                progress(total - sum(len(queue.open) for queue in job.queues), total, script.stem)
        except KeyboardInterrupt:
            return True
    if job.failed:
        why = f"{len(job.failed)} parts were not run: {job.failed[0]}"
        raise ClusterError(f"cluster={address}: {why}")
    return False


@dataclass
class ScriptQueue(Queue[int]):
    """The shards of an experiment, by number from 1 to ``total``, for one kind of machine."""

    total: int = 0


class _Scripts(Dealer[ScriptQueue]):
    def __init__(self, cluster: Cluster, script: Path, folder: Path, quick: bool) -> None:
        super().__init__(cluster, remote.answer_script, {"status": int, "stderr": str})
        self.folder, self.quick = folder, quick
        self.name, self.digest = script.stem, remote.file_digest(script)
        self.failed: list[str] = []
        self.queues = [self._queue(label) for label in sorted({n.label for n in cluster.good()})]

    def _queue(self, label: str) -> ScriptQueue:
        kinds: dict[str, list[DaskNode]] = defaultdict(list)
        for node in self.cluster.good():
            if node.label == label:
                kinds[node.run("*")["run_id"]].append(node)
        run_id = max(kinds, key=lambda one: (sum(n.threads for n in kinds[one]), one))
        for other, nodes in kinds.items():
            if other != run_id:
                why = f"left out, since its versions differ from most nodes of {label} have"
                self.cluster.note(f"{', '.join(map(str, nodes))}: {why}")
        threads = sum(node.threads for node in kinds[run_id])
        queue = ScriptQueue("*", label, run_id)
        queue.total = self._parts(label) or max(2, EACH * threads)
        queue.fill(n for n in range(1, queue.total + 1) if not self._done(queue, n))
        return queue

    def _parts(self, label: str) -> int:
        """Into how many parts this machine's results were divided before; 0: they were not."""
        found = self.folder.glob(f"shard-*-of-*/{label}/{DONE}")
        totals = [re.fullmatch(r"shard-\d+-of-(\d+)", one.parent.parent.name) for one in found]
        return max((int(one[1]) for one in totals if one), default=0)

    def _place(self, queue: ScriptQueue, number: int) -> Path:
        return self.folder / Shard(number, queue.total).folder / queue.label

    def _done(self, queue: ScriptQueue, number: int) -> bool:
        try:
            said = json.loads((self._place(queue, number) / DONE).read_text())
        except (OSError, ValueError):
            return False
        return bool(said == self._said(queue))

    def _said(self, queue: ScriptQueue) -> dict[str, Any]:
        return {"script": self.digest, "versions": queue.run_id, "quick": self.quick}

    def question(self, queue: ScriptQueue, shard: int) -> dict[str, Any]:
        """Returns which script is run, and which part of it."""
        part = Shard(shard, queue.total).text
        return {"name": self.name, "digest": self.digest, "quick": self.quick, "shard": part}

    def take(self, queue: ScriptQueue, shard: int, node: DaskNode, answer: dict[str, Any]) -> None:
        """Stores a shard's tables where ``--shard`` would."""
        if answer["status"]:
            lines = [line for line in answer["stderr"].splitlines() if line.strip()]
            self.give_up(queue, shard, lines[-1] if lines else "it gave no message")
            return
        tables = answers.unpack_tables(answer["tables"])
        for row in tables["runs"].to_pylist() if "runs" in tables else []:
            for name in ("machine", "cores", "os"):
                if row[name] != node.said["machine"][name]:
                    raise ValueError(f"its runs are of {name}={row[name]}")
        place = self._place(queue, shard)
        with Store(place) as store:
            answers.append_tables(store, tables)
        partial = place / f".{DONE}.tmp"
        partial.write_text(json.dumps(self._said(queue)) + "\n")
        partial.replace(place / DONE)

    def give_up(self, queue: ScriptQueue, shard: int, why: str) -> None:
        """Keeps why a part was not run."""
        self.failed.append(why)

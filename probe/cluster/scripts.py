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
from pathlib import Path
from typing import Any

from probe.cluster import answers
from probe.cluster import node as remote
from probe.cluster.dealing import EACH, Queue, deal, total_threads
from probe.cluster.nodes import Cluster, DaskNode, Kinds, Said, connected_nodes, misshapen
from probe.errors import ClusterError
from probe.progress import Tell
from probe.shard import Shard
from probe.store import Store

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
    asked = {"name": script.stem, "digest": remote.file_digest(script), "quick": quick}
    with connected_nodes(address, ["*"], note) as cluster:
        labels = sorted({node.label for node in cluster.good()})
        queues = [_ScriptQueue(cluster, label, folder, asked) for label in labels]
        try:
            total = sum(queue.total for queue in queues)

            def looked() -> None:
                progress(total - sum(len(queue.open) for queue in queues), total, script.stem)

            deal(cluster, queues, looked)
        except KeyboardInterrupt:
            return True
    if failed := [why for queue in queues for why in queue.failed]:
        why = f"{len(failed)} parts were not run: {failed[0]}"
        raise ClusterError(f"cluster={address}: {why}")
    return False


class _ScriptQueue(Queue[int]):
    """The shards of an experiment, by number from 1 to ``total``, for one kind of machine."""

    def __init__(self, cluster: Cluster, label: str, folder: Path, asked: dict[str, Any]) -> None:
        kinds: dict[str, list[DaskNode]] = defaultdict(list)
        for node in cluster.good():
            if node.label == label:
                kinds[node.run("*")["run_id"]].append(node)
        run_id = max(kinds, key=lambda one: (total_threads(kinds[one]), one))
        super().__init__(cluster, "*", label, run_id)
        for other, nodes in kinds.items():
            if other != run_id:
                why = f"left out, since its versions differ from most nodes of {label} have"
                cluster.note(f"{', '.join(map(str, nodes))}: {why}")
        self.folder, self.asked, self.failed = folder, asked, list[str]()
        self.said = {"script": asked["digest"], "versions": run_id, "quick": asked["quick"]}
        # as this machine's results were divided before, if they were
        there = [one.parent.parent.name for one in folder.glob(f"shard-*-of-*/{label}/{DONE}")]
        totals = [int(one[1]) for name in there if (one := re.fullmatch(r".*-of-(\d+)", name))]
        self.total = max(totals, default=max(2, EACH * total_threads(kinds[run_id])))
        self.fill(n for n in range(1, self.total + 1) if not self._done(n))

    def _place(self, number: int) -> Path:
        return self.folder / Shard(number, self.total).folder / self.label

    def _done(self, number: int) -> bool:
        try:
            return bool(json.loads((self._place(number) / DONE).read_text()) == self.said)
        except (OSError, ValueError):
            return False

    def question(self, shard: int) -> tuple[Callable[[str], Said], dict[str, Any]]:
        """Returns which script is run, and which part of it."""
        return remote.answer_script, self.asked | {"shard": Shard(shard, self.total).text}

    def take(self, shard: int, node: DaskNode, answer: Said) -> None:
        """Stores a shard's tables where ``--shard`` would."""
        if why := misshapen(answer, ENDED):
            raise ValueError(f"its answer can't be read: {why}")
        if answer["status"]:
            lines = [line for line in answer["stderr"].splitlines() if line.strip()]
            self.give_up(shard, lines[-1] if lines else "it gave no message")
            return
        tables = answers.unpack_tables(answer["tables"])
        for row in tables["runs"].to_pylist() if "runs" in tables else []:
            for name in ("machine", "cores", "os"):
                if row[name] != node.said["machine"][name]:
                    raise ValueError(f"its runs are of {name}={row[name]}")
        place = self._place(shard)
        with Store(place) as store:
            answers.append_tables(store, tables)
        partial = place / f".{DONE}.tmp"
        partial.write_text(json.dumps(self.said) + "\n")
        partial.replace(place / DONE)

    def give_up(self, shard: int, why: str) -> None:
        """Keeps why a part was not run."""
        self.failed.append(why)

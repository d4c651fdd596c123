"""Deals shards to nodes until each is answered and stored here, or given up.

A shard is a part of the values of a sweep, or of the questions of an experiment, as ``--shard``
makes them. All shards of a queue go to nodes of one kind: alike in machine, library, versions and
switches, so that all rows are of one run.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from probe.cluster.nodes import Cluster, DaskNode, Reply, Said

Shards = TypeVar("Shards")

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

    ``text``: the target, or ``*`` for an experiment. ``label`` and ``run_id``: the kind's machine,
    and the run that its nodes expect. ``todo``: not under way; ``open``: without an answer yet.
    """

    def __init__(self, cluster: Cluster, text: str, label: str = "", run_id: str = "") -> None:
        self.cluster, self.text, self.label, self.run_id = cluster, text, label, run_id
        self.todo: deque[Shards] = deque()
        self.open: set[Shards] = set()
        self.losses: dict[Shards, int] = defaultdict(int)
        self._alone: float | None = None

    @abstractmethod
    def question(self, shard: Shards) -> tuple[Callable[[str], Said], dict[str, Any]]:
        """Returns the function of ``node`` that answers, and what it is asked, as JSON has it."""

    @abstractmethod
    def take(self, shard: Shards, node: DaskNode, answer: Said) -> None:
        """Judges an answer and stores it. ValueError: why it is not believed."""

    @abstractmethod
    def give_up(self, shard: Shards, why: str) -> None:
        """Records that a shard was not run."""

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
        most = DEEP * total_threads(nodes)
        while self.todo and len(self.open) - len(self.todo) < most:
            shard = self.todo.popleft()
            addresses = [node.address for node in nodes]
            self.cluster.ask(*self.question(shard), addresses, (self, shard))

    def answered(self, shard: Shards, reply: Reply) -> None:
        """Stores an answer, or has the shard asked again, elsewhere or later."""
        node, why = reply.node, reply.why
        if node is not None and reply.answer is not None:
            try:
                self.take(shard, node, reply.answer)
                self.open.discard(shard)  # after it is stored: Ctrl-C between the two repeats it
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


def deal(
    cluster: Cluster, queues: Sequence[Queue[Any]], looked: Callable[[], None] = lambda: None
) -> None:
    """Asks until nothing is open; calls ``looked`` after every look at what came back."""
    while any(queue.open for queue in queues):
        for queue in queues:
            queue.submit()
        for reply in cluster.replies():
            queue, shard = reply.about
            queue.answered(shard, reply)
        for node in cluster.nodes.values():
            if node.refused and not node.recorded:  # when it joined: no target is to blame
                node.recorded = True
                for queue in queues:
                    queue.refused(node)
        looked()


def total_threads(nodes: Iterable[DaskNode]) -> int:
    """Returns how many shards nodes run at a time."""
    return sum(node.threads for node in nodes)

"""Deals shards to nodes: each is asked of one node, again where that is lost, and stored here.

A shard is a part of the values of a sweep, or of the questions of an experiment, as ``--shard``
makes them. All shards of a queue go to nodes of one kind: alike in machine, library, versions and
switches, so that all rows are of one run.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from probe.cluster.nodes import Cluster, DaskNode, Kinds, Reply, misshapen

Shards = TypeVar("Shards")
Lot = TypeVar("Lot", bound="Queue[Any]")

# Shards for every process of a kind of node, so that all end at about the same time.
EACH = 4

# Shards that a process has at a time: the next one waits there, so that none is idle.
DEEP = 2

# Seconds without a node before what is left is recorded as not run.
PATIENCE = 30.0

# How often a shard may be lost with its node, or stay unanswered.
LOST = 3


@dataclass
class Queue(Generic[Shards]):
    """The shards for one kind of node. ``text``: the target, or ``*`` for an experiment.

    ``label`` and ``run_id``: the kind's machine, and the run that its nodes expect. ``todo``: not
    under way; ``open``: without an answer yet.
    """

    text: str
    label: str = ""
    run_id: str = ""
    todo: deque[Shards] = field(default_factory=deque)
    open: set[Shards] = field(default_factory=set)
    losses: dict[Shards, int] = field(default_factory=lambda: defaultdict(int))
    alone: float | None = None

    def fill(self, shards: Iterable[Shards]) -> None:
        """Adds shards that are to be asked."""
        for shard in shards:
            self.todo.append(shard)
            self.open.add(shard)


class Dealer(ABC, Generic[Lot]):
    """Asks all shards of all queues. A subclass says what is asked and where answers go.

    ``answer``: the function of ``node`` that answers; ``form``: what it says beside ``ANSWER``.
    """

    def __init__(
        self, cluster: Cluster, answer: Callable[[str], Any], form: Mapping[str, Kinds]
    ) -> None:
        self.cluster, self.answer, self.form = cluster, answer, form
        self.queues: list[Lot] = []

    @abstractmethod
    def question(self, queue: Lot, shard: Any) -> dict[str, Any]:
        """Returns what is asked of a node, as JSON has it."""

    @abstractmethod
    def take(self, queue: Lot, shard: Any, node: DaskNode, answer: dict[str, Any]) -> None:
        """Judges an answer and stores it. ValueError: why it is not believed."""

    @abstractmethod
    def give_up(self, queue: Lot, shard: Any, why: str) -> None:
        """Records that a shard was not run."""

    def bind(self, queue: Lot) -> None:
        """Chooses the kind of a queue that has none yet."""

    def refused(self, node: DaskNode, queue: Lot | None) -> None:
        """Records that a node is refused: at a shard of a queue, or when it joined."""

    def steps(self) -> Iterator[None]:
        """Asks until nothing is open; yields after every look at what came back."""
        while any(queue.open for queue in self.queues):
            for queue in self.queues:
                self._submit(queue)
            for reply in self.cluster.replies():
                self._answered(reply)
            for node in list(self.cluster.nodes.values()):
                if node.refused:
                    self.refused(node, None)
            yield

    def nodes(self, queue: Lot) -> list[DaskNode]:
        """Returns the nodes of a queue's kind; those with its target, if there are any."""
        alike = [
            node
            for node in self.cluster.good()
            if node.label == queue.label and node.run(queue.text).get("run_id") == queue.run_id
        ]
        return [node for node in alike if node.has(queue.text)] or alike

    def _submit(self, queue: Lot) -> None:
        """Gives each node something to go on with: in the order of the queues."""
        if not queue.label:
            self.bind(queue)
        nodes = self.nodes(queue)
        if not nodes and queue.open:
            queue.alone = queue.alone or time.monotonic()
            if time.monotonic() - queue.alone > PATIENCE:
                for shard in list(queue.open):
                    self._drop(queue, shard, f"no node with it for {PATIENCE:g} seconds")
            return
        queue.alone = None
        # all nodes have a shard before any has a second one, else the first would take all
        for depth in range(1, DEEP + 1):
            for node in nodes:
                while queue.todo and self.cluster.load(node) < depth * node.threads:
                    shard = queue.todo.popleft()
                    # the function travels by its name, the question as JSON: no object is pickled
                    asked = self.question(queue, shard)
                    self.cluster.ask(self.answer, asked, node, (queue, shard))

    def _answered(self, reply: Reply) -> None:
        queue, shard = reply.about
        if reply.answer is None:
            self._again(queue, shard, reply.why, reply.error)
            return
        node = self.cluster.answered(reply)
        if not node.refused:
            try:
                if why := misshapen(reply.answer, self.form):
                    raise ValueError(f"its answer can't be read: {why}")
                self.take(queue, shard, node, reply.answer)
                queue.open.discard(shard)  # after it is stored: Ctrl-C between the two repeats it
                return
            except ValueError as error:
                self.cluster.refuse(node, str(error))
        self.refused(node, queue)
        self._again(queue, shard, "", "no answer could be read")

    def _again(self, queue: Lot, shard: Any, why: str, error: str = "") -> None:
        """Asks a shard once more, elsewhere or later; gives up what was lost too often."""
        if shard not in queue.open:  # given up meanwhile, or answered by another node
            return
        queue.losses[shard] += 1
        if why or queue.losses[shard] > LOST:
            self._drop(queue, shard, why or error or f"lost {queue.losses[shard]} times")
        else:
            queue.todo.append(shard)

    def _drop(self, queue: Lot, shard: Any, why: str) -> None:
        queue.open.discard(shard)
        if shard in queue.todo:
            queue.todo.remove(shard)
        self.give_up(queue, shard, why)

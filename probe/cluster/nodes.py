"""Keeps the nodes behind a Dask scheduler: their facts, and the question sets sent to them.

Dask connects, schedules, restarts and repeats; what is added here is belief. A node's first word
about itself is kept, and a node that says something else later is refused.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from probe import machine
from probe.cluster import node as remote
from probe.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client, Future

HOW = "use local:2 (two processes here) or the address that `dask scheduler` prints, tcp://..."
# Seconds within which a first node must have joined, and a node must have said what it is.
JOIN = 60.0

# Seconds after which the scheduler is asked again which nodes there are.
LOOK = 1.0

# Seconds for which nothing is waited for longer, so that Ctrl-C is heard.
HEARD = 0.05

# How often Dask repeats a question set that raised on a node.
REPEATS = 2

# Run in local nodes: a terminal sends Ctrl-C to them too, but this process ends them.
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"

Said = dict[str, Any]
Kinds: TypeAlias = "type | tuple[type, ...]"


@dataclass
class DaskNode:
    """One worker of Dask. ``said``: what it said first. ``refused``: why it is not asked again."""

    number: int
    address: str
    threads: int
    said: Said
    refused: str = ""

    @property
    def label(self) -> str:
        """Its machine's folder."""
        return str(self.said["machine"]["machine"])

    def __str__(self) -> str:
        return f"node {self.number}"

    def has(self, text: str) -> bool:
        """Returns whether it can run a target."""
        return self.said["targets"][text]["why"] is None

    def run(self, text: str) -> dict[str, Any]:
        """Returns the run that it expects of a target: a row of ``runs`` without its time."""
        return dict(self.said["targets"][text]["run"])


@dataclass
class Reply:
    """A question set, of which ``node`` is asked, and what became of it.

    ``answer``: None under way, and where there is none; then ``why``, or ``error``: what the node
    raised, where another try may help.
    """

    node: DaskNode
    about: Any
    answer: dict[str, Any] | None = None
    why: str = ""
    error: str = ""
    future: Future[Any] | None = field(default=None, repr=False)


class Cluster:
    """The nodes that answer; ``connected_nodes`` gives one.

    ``targets``: the texts that every node is asked about. ``note``: takes a line for the user.
    """

    def __init__(self, client: Client, targets: Sequence[str], note: Callable[[str], None]) -> None:
        from distributed import as_completed

        self.client, self.targets, self.note = client, list(targets), note
        self.nodes: dict[str, DaskNode] = {}
        self.first: dict[str, Said] = {}
        self._count = 0
        self._asked: dict[Any, Reply] = {}
        self._joining: dict[str, tuple[Future[Any], float]] = {}
        self._left_out: set[str] = set()
        self._given_up: set[Any] = set()
        self._done = as_completed(loop=client.loop, with_results=True)
        self._looked = 0.0

    def good(self) -> list[DaskNode]:
        """Returns the nodes that are there and believed."""
        return [one for one in self.nodes.values() if not one.refused]

    def gather(self) -> None:
        """Waits until every node that is there has said what it is. InputError: there is none."""
        start = time.monotonic()
        while time.monotonic() - start < JOIN:
            self._looked = 0.0
            self.look()
            if self.good() and not self._joining:
                return
            time.sleep(HEARD)
        if not self.good():
            address = self.client.scheduler.address if self.client.scheduler else "(closed)"
            why = f"no usable node within {JOIN:g} seconds"
            raise InputError("cluster", address, why, "start a node: `dask worker ADDRESS`")

    def look(self) -> None:
        """Notices nodes that came or went; once a second. ClusterError: no scheduler."""
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        if self.client.status != "running":
            raise _scheduler_gone()
        try:
            there = dict(self.client.nthreads())
        except Exception as error:
            raise _scheduler_gone() from error
        for known in (self.nodes, self._joining):
            for address in set(known) - set(there):
                del known[address]
        for address, threads in there.items():
            if address in self.nodes or address in self._left_out:
                continue
            if address not in self._joining:
                # before the questions that wait there: it is asked none until it has said this
                texts, first = json.dumps(self.targets), {"pure": False, "priority": 9}
                future = self.client.submit(remote.node_facts, texts, workers=[address], **first)
                self._joining[address] = future, time.monotonic()
            self._join(address, threads)
        # others may take the question sets of nodes that are not there any more
        for asked in list(self._asked.values()):
            if asked.node.address not in self.nodes and asked.future is not None:
                self._given_up.add(asked.future.key)
                with suppress(Exception):
                    self.client.cancel([asked.future], force=True)

    def _join(self, address: str, threads: int) -> None:
        future, since = self._joining[address]
        if not future.done():
            if time.monotonic() - since > JOIN:
                self._leave_out(address, f"it did not say within {JOIN:g} seconds what it is")
            return
        try:
            said = future.result()
        except Exception as error:
            self._leave_out(address, one_line(error))
            return
        if isinstance(said, dict) and "error" in said:
            self._leave_out(address, one_line(str(said["error"])))
            return
        if why := misshapen(said, SAID) or _lacking(said, self.targets):
            self._leave_out(address, f"what it said of itself can't be read: {why}")
            return
        del self._joining[address]
        self._count += 1
        found = DaskNode(self._count, address, threads, said)
        before = self.first.setdefault(said["name"], said)
        own, its = machine.facts(), said["machine"]
        for fact in ("schema_version", "probe_version", "git_commit"):
            # else its rows could not be stored beside ours
            if its.get(fact) != own[fact] and None not in (its.get(fact), own[fact]):
                found.refused = f"its {fact} is {its.get(fact)}, and {own[fact]} here"
                break
        found.refused = found.refused or machine.contradiction(its)
        if not found.refused and (change := contradiction_of(before, said)):
            found.refused = f"it came back, and {change}"
        self.nodes[address] = found
        if found.refused:
            self.note(f"{found} is left out: {found.refused}")

    def _leave_out(self, address: str, why: str) -> None:
        del self._joining[address]
        self._left_out.add(address)
        self.note(f"a node is left out: {why}")

    def ask(
        self, answer: Callable[[str], Any], question: dict[str, Any], node: DaskNode, about: Any
    ) -> None:
        """Moves a question set to a node, to be answered by a function of the module ``node``."""
        future = self.client.submit(
            *(answer, json.dumps(question)),
            workers=[node.address],
            allow_other_workers=False,
            retries=REPEATS,
            pure=False,
        )
        self._asked[future.key] = Reply(node, about, future=future)
        self._done.add(future)

    def load(self, node: DaskNode) -> int:
        """Returns how many question sets of a node are under way."""
        return sum(one.node.address == node.address for one in self._asked.values())

    def replies(self) -> list[Reply]:
        """What has been answered or given up since; waits a moment where there is nothing."""
        self.look()
        done = self._done.next_batch(block=False)
        if not done:
            time.sleep(HEARD)
            return []
        found = []
        for future, result in done:
            asked = self._asked.pop(future.key)
            if future.status == "cancelled" and future.key not in self._given_up:
                raise _scheduler_gone()  # a client that reconnects has lost all that was under way
            if future.status == "finished" and isinstance(result, dict) and "error" in result:
                asked.error = one_line(str(result["error"]))
            elif future.status == "finished":
                asked.answer = result
            elif future.status == "error":  # else it was given up, and may be asked again
                error = result[1] if isinstance(result, tuple) else result
                lost = f"{len(self.nodes)} nodes are left; every node that had it was lost"
                killed = type(error).__name__ == "KilledWorker"
                asked.why = lost if killed else one_line(error)
            found.append(asked)
        return found

    def refuse(self, node: DaskNode, why: str) -> None:
        """Asks a node nothing more."""
        if not node.refused:
            node.refused = why
            self.note(f"{node} is refused, and its rows are kept out: {why}")

    def answered(self, reply: Reply) -> DaskNode:
        """Returns the node that was asked, refused if its answer isn't what it said."""
        node, answer = self.nodes.get(reply.node.address, reply.node), reply.answer
        assert answer is not None
        if why := misshapen(answer, ANSWER) or misshapen(answer["said"], SAID):
            self.refuse(node, f"its answer can't be read: {why}")
        elif change := contradiction_of(node.said, answer["said"]):
            self.refuse(node, change)
        return node

    def drop(self) -> None:
        """Gives up what is under way."""
        with suppress(Exception):
            if self.client.status == "running":
                self.client.cancel([one.future for one in self._asked.values()], force=True)


def _scheduler_gone() -> ClusterError:
    return ClusterError(
        "cluster: the scheduler is gone; start it and its nodes, then run the same command again: "
        "what was measured is stored"
    )


def one_line(error: object) -> str:
    """Returns an error's first line that says something, without what may not be published."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
    return machine.publishable(kind + (lines[0] if lines else "no message"))[:300]


# What a node says of itself, and of which type each is.
SAID: dict[str, Kinds] = {"name": str, "address": str, "machine": dict, "targets": dict}

# What every answer of a node has: see ``probe.cluster.node``.
ANSWER: dict[str, Kinds] = {"said": dict, "tables": dict}


def misshapen(given: object, wanted: Mapping[str, Kinds]) -> str:
    """Returns why an object that a node sent is not of this form; empty where it is.

    A node runs its own checkout: what it sends may be any object, and only what has been looked at
    may be relied upon.
    """
    if not isinstance(given, dict):
        return f"it is not a dict but {type(given).__name__}"
    for name, kind in wanted.items():
        if not isinstance(given.get(name), kind):
            return f"its {name} is {type(given.get(name)).__name__}"
    return ""


def _lacking(said: Said, texts: Sequence[str]) -> str:
    """Returns why what a node said of itself is of no use, though its form is right."""
    label = said["machine"].get("machine")
    if not isinstance(label, str) or not re.fullmatch(r"\w[\w.-]*", label):
        return f"machine={label!r} is no name of a folder"  # rows are stored in one of this name
    for text in texts:
        if why := misshapen(said["targets"].get(text), {"run": dict, "why": (str, type(None))}):
            return f"{text}: {why}"
    return ""


_UNSAID = ("git_commit", "git_dirty")


def contradiction_of(first: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What a node says otherwise than at first, of all that it said both times; empty: nothing."""
    there = now.get("machine", {})
    for name, value in first["machine"].items():
        if name not in _UNSAID and there.get(name) != value:
            return f"its {name} was {value}, and is {there.get(name)} now"
    for text, target in now.get("targets", {}).items():
        if misshapen(target, {"run": dict}):
            return f"{text}: what it says of it can't be read"
        before = first["targets"].get(text, target)
        if difference := changed_fact(before["run"], target["run"]):
            return f"{text}: {difference}"
        if before.get("why") != target.get("why"):
            return f"{text} can no longer run there: {target.get('why')}"
    return ""


def changed_fact(first: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns the first fact in which two runs differ, in words; empty where none does."""
    for name in dict.fromkeys([*first, *now]):
        if name not in (*_UNSAID, "run_id", "started") and first.get(name) != now.get(name):
            return f"its {name} was {first.get(name)}, and is {now.get(name)} now"
    return ""


def _local(processes: int) -> AbstractContextManager[Any]:
    """Returns a cluster of processes of this machine, which end with it."""
    from distributed import LocalCluster

    cluster: AbstractContextManager[Any] = LocalCluster(
        n_workers=processes,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        preload=[DEAF],
    )
    return cluster


@contextmanager
def connected_nodes(
    address: str, targets: Sequence[str], note: Callable[[str], None]
) -> Iterator[Cluster]:
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
    for name in [one for one in logging.root.manager.loggerDict if one.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with ExitStack() as stack:
        where: Any = address
        if local:
            try:
                where = stack.enter_context(_local(int(local[1])))
            except Exception as error:  # Dask passes on whatever ended a process that starts
                raise ClusterError(
                    f"cluster={address}: a process ended while it started ({one_line(error)}); "
                    "run the same command again, or without --cluster"
                ) from None
        try:
            client = stack.enter_context(Client(where, set_as_default=False, name="probe"))
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            why = f"no scheduler answers there ({type(error).__name__})"
            raise InputError("cluster", address, why, "start one: `dask scheduler`") from None
        cluster = Cluster(client, targets, note)
        stack.callback(cluster.drop)
        cluster.gather()
        yield cluster

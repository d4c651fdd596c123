"""Graphs of all libraries, and the one interpreter that runs them.

A library reads its graphs as :class:`Body` s of :class:`Node` s: the nodes of an ONNX or LiteRT
file, of a TensorFlow function, the equations of a jaxpr; a body closes over nothing, so what it
reads from outside is among its inputs. :class:`Interpreter` walks them: it knows the order, how
long values live, and how a body is repeated. A library says how one node runs, and on what: on
arrays, on keys of what is being recorded, on numbers of values, on text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from probe.semantics.contract import left_out

# Of a value: what a library tells values apart by, names or numbers.
Key = Any


@dataclass(eq=False)
class Node:
    """An operation of a graph. ``own``: as the library has it.

    ``slots``: keys of its operands in the order of the library's schema, None where one is left
    out; ``gives``: of its results; ``captured``: of what the bodies in it read besides; ``words``:
    its attributes; ``path``: where it stands in the model; ``domain``: the set of operations that
    it is of; ``able``: whether it alone gives what it gave in the run.
    """

    own: Any
    op: str
    slots: Sequence[Key]
    gives: Sequence[Key]
    captured: Sequence[Key] = ()
    words: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    domain: str = ""
    able: bool = True
    size: int = 0
    """Bytes of what it gives, once it has run."""

    @cached_property
    def reads(self) -> list[Key]:
        """Keys of what it reads, one that stands twice twice."""
        own = [key for key in self.slots if key is not None]
        return own + [key for key in self.captured if key not in own]

    @cached_property
    def uses(self) -> list[Key]:
        """Keys of what it reads, each once."""
        return list(dict.fromkeys(self.reads))

    @property
    def said(self) -> dict[str, Any]:
        """Its attributes, plain enough for JSON; and which slots are empty ahead of others."""
        every = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in self.words.items()}
        found = {k: v for k, v in every.items() if isinstance(v, PLAIN)}
        found |= {"domain": self.domain} if self.domain else {}
        return found | ({"left_out": gone} if (gone := left_out(self.slots)) else {})


PLAIN = bool | int | float | str | list | None
N = TypeVar("N", bound=Node)
K = TypeVar("K")


@dataclass(eq=False)
class Body:
    """A graph, or a function that nodes run: a branch, what a loop repeats.

    ``nodes``: in an order in which they can run; ``inputs``, ``outputs``: keys; ``constants``: what
    it holds, by key.
    """

    nodes: Sequence[Any]
    inputs: Sequence[Key]
    outputs: Sequence[Key]
    constants: Mapping[Key, Any] = field(default_factory=dict)

    @cached_property
    def last(self) -> list[list[Key]]:
        """Keys of what nothing reads behind each node: read for the last time, or given in vain."""
        met, found = {*self.outputs}, list[list[Key]]()
        for node in reversed(self.nodes):
            every = dict.fromkeys((*node.uses, *node.gives))
            found.append([key for key in every if key not in met])
            met.update(every)
        return found[::-1]


class Interpreter(ABC):
    """Runs bodies, node by node. Values are whatever ``run_node`` takes and returns."""

    @abstractmethod
    def run_node(self, node: Any, read: list[Any], inside: Any) -> Sequence[Any]:
        """Returns what a node gives. ``read``: of each slot and of what is captured, None of a slot
        that is left out; ``inside``: as of ``walk``. Of a node with bodies: what walking one of
        them gives, once or ``repeated``."""

    def constants_of(self, body: Body, inside: Any) -> dict[Key, Any]:
        """Returns what a body holds, as values."""
        return dict(body.constants)

    def walk(self, body: Body, given: Iterable[Any], inside: Any = None) -> list[Any]:
        """Runs a body's nodes on its inputs. Returns what it gives.

        ``inside``: where that is, in the library's own terms; None of the outermost.
        """
        values = self.constants_of(body, inside)
        values.update(zip(body.inputs, given, strict=True))
        del given  # which would hold them
        values[None] = None
        for node, last in zip(body.nodes, body.last, strict=True):
            read = [values[key] for key in (*node.slots, *node.captured)]
            values.update(zip(node.gives, self.run_node(node, read, inside), strict=True))
            for key in last:
                del values[key]
        return [values[key] for key in body.outputs]


def repeated(
    turn: Callable[[int, Iterable[Any]], list[Any]],
    state: Sequence[Any],
    given: Callable[[int, Sequence[Any]], Iterable[Any] | None],
) -> tuple[list[Any], list[list[Any]]]:
    """Runs a body again and again: a loop of any library. Returns the last state, and what each
    turn gave behind it.

    ``turn(number, read)``: runs the body; ``given(number, state)``: all that it reads in a turn;
    None: there is no further one.
    """
    state, rows = list(state), list[list[Any]]()
    while (read := given(len(rows), state)) is not None:
        found = turn(len(rows), read)
        rows.append(found[len(state) :])
        state = found[: len(state)]
    return state, rows


class SaidOnce(dict[Hashable, Any]):
    """What is said of calls, by what tells those that are alike from others."""

    def of(self, same: Callable[[], Hashable], make: Callable[[list[int]], K]) -> K:
        """Returns what is said of a call; ``make`` says it once for all that are alike, but anew of
        each where it notes in its list that it looked into what is read, or where there is no
        telling. It keeps neither arrays nor the run."""
        try:
            name = same()
            known = self.get(name)
        except TypeError:  # an attribute without a hash
            name = known = None
        if known is not None:
            return known  # type: ignore[no-any-return]
        looked: list[int] = []
        found = make(looked)
        if name is not None and not looked:
            self[name] = found
        return found


def behind_needs(first: Iterable[K], needs: Callable[[K], Iterable[K]]) -> list[K]:
    """Returns keys in this order, but each behind all that it needs, among them or not."""
    done: dict[K, None] = {}
    pending = [*first][::-1]
    while pending:
        one = pending[-1]
        missing = [] if one in done else [key for key in needs(one) if key not in done]
        pending += missing[::-1]
        if not missing:
            done.setdefault(pending.pop())
    return list(done)


def in_graph_order(nodes: Sequence[N], outputs: Iterable[Key]) -> list[N]:
    """Returns nodes in an order that the graph alone decides: each behind what it reads, first what
    the first output needs. ONNX Runtime saves parallel branches in another order every time."""
    maker = {key: n for n, node in enumerate(nodes) for key in node.gives}
    first = [maker[key] for key in outputs if key in maker]

    def before(n: int) -> list[int]:
        return [maker[key] for key in nodes[n].uses if key in maker]

    return [nodes[n] for n in behind_needs([*first, *range(len(nodes))], before)]

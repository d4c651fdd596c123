"""Runs a traced TensorFlow function eagerly, operation by operation.

Inside a graph Grappler and oneDNN's rewrites fuse operations, and sizes are unknown where it is
made. Run one by one, each operation is the library's own, at sizes that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorflow.python.eager import context
from tensorflow.python.framework import op_def_registry

from probe.recorders.tensorflow_graphs import BRANCHES, CALLS, LOOPS, Graph, Node, traced
from probe.recorders.tensorflow_values import array, run

Handler = Callable[[list[Any]], list[Any]]

FORWARD = ("Identity", "StopGradient", "PreventGradient", "Snapshot")
SHAPES = ("Shape", "ShapeN", "Size", "Rank")
KEPT, SMALL = 64, 1 << 16
"""Shapes of which a node's value is kept, if it has few numbers: else that of one."""


class Step(NamedTuple):
    """One node. ``reads``: of which nodes which outputs; ``last``: nodes not read any more."""

    name: str
    reads: tuple[tuple[str, int], ...]
    handler: Handler
    last: tuple[str, ...]


class Program:
    """Runs functions by name. ``choose(node, follows)`` says what runs a node.

    ``follows``: for each input of the node, whether it depends on the inputs of the model.
    """

    def __init__(self, choose: Callable[[Node, tuple[bool, ...]], Handler]) -> None:
        self.choose = choose
        self._graphs: dict[str, Graph] = {}
        self._steps: dict[tuple[str, tuple[bool, ...]], list[Step]] = {}
        self._constants: dict[str, dict[str, list[Any]]] = {}

    def graph(self, name: str) -> Graph:
        """Returns the nodes of a function as it was traced."""
        return traced(name, self._graphs)

    def __call__(self, name: str, given: Sequence[Any], follows: tuple[bool, ...]) -> list[Any]:
        """Runs the function; returns its outputs' tensors."""
        graph = self.graph(name)
        steps = self._steps.get((name, follows))
        if steps is None:
            steps = self._steps[name, follows] = self._planned(graph, follows)
            self._constants[name] = {
                node.name: [node.constant] for node in graph.nodes if node.constant is not None
            }
        made = {graph.fed[at]: [one] for at, one in enumerate(given) if at in graph.fed}
        made |= self._constants[name]
        for step in steps:
            made[step.name] = step.handler([made[node][at] for node, at in step.reads])
            for node in step.last:
                made.pop(node, None)
        return [made[node][at] for node, at in graph.given]

    def _planned(self, graph: Graph, follows: tuple[bool, ...]) -> list[Step]:
        depends = {name for at, name in graph.fed.items() if follows[at]}
        by_shape = _by_shape(graph)
        wanted = _needed(graph)
        steps = []
        for place, node in enumerate(graph.nodes):
            if node.constant is not None or node.name not in wanted:
                continue
            flags = tuple(name in depends for name, _ in node.inputs)
            if any(flags):
                depends.add(node.name)
            last = tuple(graph.last.get(place, ()))
            handler = self._handler(node, flags)
            if node.name in by_shape:
                handler = _kept(handler, _shapes if node.op in SHAPES else _same)
            steps.append(Step(node.name, node.inputs, handler, last))
        return steps

    def _handler(self, node: Node, flags: tuple[bool, ...]) -> Handler:
        words = dict(zip(node.attributes[::2], node.attributes[1::2], strict=True))
        if node.op in CALLS and not _compiled(words["f"]):
            return lambda read: self(words["f"], read, flags)
        if node.op in LOOPS:
            return self._loop(words)
        if node.op in BRANCHES:
            many = "Case" in node.op
            names = words["branches"] if many else [words["else_branch"], words["then_branch"]]

            def branch(read: list[Any]) -> list[Any]:
                which = int(array(read[0]))
                return self(names[min(max(which, 0), len(names) - 1)], read[1:], flags[1:])

            return branch
        return self.choose(node, flags)

    def _loop(self, words: dict[str, Any]) -> Handler:
        def loop(read: list[Any]) -> list[Any]:
            kept = _unchanged(self.graph(words["body"]))
            flags = tuple(at not in kept for at in range(len(read)))
            while bool(array(self(words["cond"], read, flags)[0])):
                read = self(words["body"], read, flags)
            return read

        return loop


def once(node: Node) -> Handler:
    """Runs a node as it is; one that gives back its input needs no call."""
    if node.op in FORWARD:
        return lambda read: read[:1]
    op, attributes, count = node.op, tuple(node.attributes), node.count
    return lambda read: run(op, read, attributes, count)


def _by_shape(graph: Graph) -> set[str]:
    """Returns the nodes whose values are decided by the shapes of others, or by constants.

    A Dense layer of Keras has some fifteen, which compute the shape of its outcome.
    """
    constant = {node.name for node in graph.nodes if node.constant is not None}
    found: set[str] = set()
    for node in graph.nodes:
        known = all(name in constant or name in found for name, _ in node.inputs)
        flows = node.op in (*CALLS, *LOOPS, *BRANCHES, *FORWARD)
        if node.constant is None and node.inputs and not flows and (known or node.op in SHAPES):
            described = op_def_registry.get(node.op)
            if described is not None and not described.is_stateful:
                found.add(node.name)
    return found


def _shapes(read: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(one.shape) for one in read)


def _same(read: list[Any]) -> tuple[Any, ...]:
    return tuple(map(id, read))


def _kept(handler: Handler, key: Callable[[list[Any]], tuple[Any, ...]]) -> Handler:
    """Returns a handler that runs once for each key; what it read is kept too, so that no other
    tensor gets the place in memory by which it is known."""
    kept: dict[tuple[Any, ...], tuple[list[Any], list[Any]]] = {}

    def run_once(read: list[Any]) -> list[Any]:
        name = key(read)
        if (there := kept.get(name)) is not None:
            return there[1]
        found = handler(read)
        if all(one.dtype.is_integer or one.dtype.is_floating for one in found):
            if len(kept) >= KEPT or any(one.shape.num_elements() > SMALL for one in found):
                kept.clear()
            kept[name] = ([] if key is _shapes else read), found
        return found

    return run_once


def _unchanged(graph: Graph) -> set[int]:
    """Returns the inputs of a loop's body that it gives back as they are, such as weights."""
    return {
        at
        for at, (name, place) in enumerate(graph.given)
        if place == 0 and _source(graph, name) == graph.fed.get(at)
    }


def _source(graph: Graph, name: str) -> str:
    """Through nodes that give back their input."""
    by_name = {node.name: node for node in graph.nodes}
    while name in by_name and by_name[name].op == "Identity":
        name = by_name[name].inputs[0][0]
    return name


def _needed(graph: Graph) -> set[str]:
    """Returns the nodes that outputs or changes of a state need."""
    by_name = {node.name: node for node in graph.nodes}
    pending = [name for name, _ in graph.given]
    pending += [node.name for node in graph.nodes if node.op.startswith("Assign")]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [one for one, _ in by_name[name].inputs] if name in by_name else []
            pending += by_name[name].after if name in by_name else ()
    return found


def _compiled(name: str) -> bool:
    attributes = context.context().get_function_def(name).attr
    return "_XlaMustCompile" in attributes and bool(attributes["_XlaMustCompile"].b)

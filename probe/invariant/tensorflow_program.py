"""Runs a traced TensorFlow function eagerly, operation by operation.

Inside a graph Grappler and oneDNN's rewrites fuse operations, and sizes are unknown where it is
made. Run one by one, each operation is the library's own, at sizes that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tensorflow.python.eager import context

from probe.recorders.tensorflow_graphs import BRANCHES, CALLS, LOOPS, Graph, Node, traced
from probe.recorders.tensorflow_values import array, run

Handler = Callable[[list[Any]], list[Any]]


class Names:
    """What ``traced`` wants of a watched run: names of no one's concern here."""

    def __init__(self) -> None:
        self.names, self.functions = self, dict[Any, Any]()

    def path(self, scope: str, graph: bool = False) -> str:
        """No path."""
        return ""


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
        self._names = Names()
        self._steps: dict[tuple[str, tuple[bool, ...]], list[Step]] = {}
        self._constants: dict[str, dict[str, list[Any]]] = {}

    def graph(self, name: str) -> Graph:
        """Returns the nodes of a function as it was traced."""
        return traced(self._names, name)  # type: ignore[arg-type]

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
        wanted = _needed(graph)
        steps = []
        for place, node in enumerate(graph.nodes):
            if node.constant is not None or node.name not in wanted:
                continue
            flags = tuple(name in depends for name, _ in node.inputs)
            if any(flags):
                depends.add(node.name)
            last = tuple(graph.last.get(place, ()))
            steps.append(Step(node.name, node.inputs, self._handler(node, flags), last))
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
    """Runs a node as it is."""
    op, attributes, count = node.op, tuple(node.attributes), node.count
    return lambda read: run(op, read, attributes, count)


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

"""Graphs of all libraries: the interpreter that runs them; and model files, recorded node by node.

A library reads its graphs as :class:`Body` s of :class:`Node` s: the nodes of an ONNX or LiteRT
file, of a TensorFlow function, the equations of a jaxpr; a body closes over nothing, so what it
reads from outside is among its inputs. :class:`Interpreter` walks them: it knows the order, how
long values live, and how a body is repeated. A library says how one node runs, and on what: on
arrays, on keys of what is being recorded, on numbers of values, on text.

Of a model file it also says how one node runs as a model of its own, and what it computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count, repeat
from math import prod
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from probe.case.errors import Foreign, InputError, ProbeError, foreign
from probe.order.semantics import Call, Meaning, Operand, Unknown, left_out
from probe.record.contract import (
    INPUT,
    WEIGHT,
    Operation,
    Seen,
    Visit,
)
from probe.record.store import array_digest

# Of a value: what a library tells values apart by, names or numbers.
Key = Any


@dataclass(eq=False)
class Node:
    """An operation of a graph. ``native``: as the library has it.

    ``slots``: keys of its operands in the order of the library's schema, None where one is left
    out; ``gives``: of its results; ``captured``: of what the bodies in it read besides; ``words``:
    its attributes; ``path``: where it stands in the model; ``domain``: the set of operations that
    it is of.
    """

    native: Any
    op: str
    slots: Sequence[Key]
    gives: Sequence[Key]
    captured: Sequence[Key] = ()
    words: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    domain: str = ""

    @cached_property
    def reads(self) -> list[Key]:
        """Keys of what it reads, one that stands twice twice."""
        operands = [key for key in self.slots if key is not None]
        return operands + [key for key in self.captured if key not in operands]

    @cached_property
    def uses(self) -> list[Key]:
        """Keys of what it reads, each once."""
        return list(dict.fromkeys(self.reads))

    @property
    def attributes(self) -> dict[str, Any]:
        """What is plain enough for JSON of its attributes; and which slots are empty ahead of
        others."""
        words = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in self.words.items()}
        plain = bool | int | float | str | list | None
        attributes = {name: value for name, value in words.items() if isinstance(value, plain)}
        if self.domain:
            attributes["domain"] = self.domain
        if empty := left_out(self.slots):
            attributes["left_out"] = empty
        return attributes


N = TypeVar("N", bound=Node)
K = TypeVar("K")
R = TypeVar("R")


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
        met, last = {*self.outputs}, list[list[Key]]()
        for node in reversed(self.nodes):
            keys = dict.fromkeys((*node.uses, *node.gives))
            last.append([key for key in keys if key not in met])
            met.update(keys)
        return last[::-1]


class Interpreter(ABC):
    """Runs bodies, node by node. Values are whatever ``run_node`` takes and returns."""

    @abstractmethod
    def run_node(self, node: Any, read: list[Any], inside: Any) -> Sequence[Any]:
        """The values that a node gives. ``read``: the value of each slot, None of one that is left
        out, then those of what is captured; ``inside``: as of ``walk``. A node with bodies walks
        one of them, once or ``repeated``."""

    def constants_of(self, body: Body, inside: Any) -> dict[Key, Any]:
        """What a body holds, as values."""
        return dict(body.constants)

    def walk(self, body: Body, arguments: Iterable[Any], inside: Any = None) -> list[Any]:
        """Runs a body's nodes on its inputs, and returns its outputs.

        ``inside``: what the library's ``run_node`` has to know of the node that the body belongs
        to; None of the outermost body.
        """
        values = self.constants_of(body, inside)
        values.update(zip(body.inputs, arguments, strict=True))
        del arguments  # which would hold them
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
    reads_in: Callable[[int, Sequence[Any]], Iterable[Any] | None],
) -> tuple[list[Any], list[list[Any]]]:
    """A loop of any library: the last state, and what each turn gave behind it.

    ``turn(number, read)``: runs the body; ``reads_in(number, state)``: all that it reads in a turn;
    None: there is no further turn.
    """
    state, rows = list(state), list[list[Any]]()
    while (read := reads_in(len(rows), state)) is not None:
        results = turn(len(rows), read)
        rows.append(results[len(state) :])
        state = results[: len(state)]
    return state, rows


def ordered_by_needs(first: Iterable[K], needs: Callable[[K], Iterable[K]]) -> list[K]:
    """Keys in this order, but each behind all keys that it needs, which are added where missing."""
    done: dict[K, None] = {}
    pending = [*first][::-1]
    while pending:
        top = pending[-1]
        missing = [] if top in done else [key for key in needs(top) if key not in done]
        pending += missing[::-1]
        if not missing:
            done.setdefault(pending.pop())
    return list(done)


def in_graph_order(nodes: Sequence[N], outputs: Iterable[Key]) -> list[N]:
    """Nodes in an order that the graph alone decides: each behind what it reads, first what the
    first output needs. ONNX Runtime saves parallel branches in another order every time."""
    maker = {key: n for n, node in enumerate(nodes) for key in node.gives}
    first = [maker[key] for key in outputs if key in maker]

    def before(n: int) -> list[int]:
        return [maker[key] for key in nodes[n].uses if key in maker]

    return [nodes[n] for n in ordered_by_needs([*first, *range(len(nodes))], before)]


# model files

# A value's shape and dtype.
Kind = tuple[tuple[int, ...], str]

# Shapes and dtypes of the values that a node is started for, in the order in which it gets them.
Fed = Mapping[Any, Kind]
# Arrays that replace constants of the file, by key.
Replaced = Mapping[Any, np.ndarray]

# A node as it was started: the library's values to all values that it gives.
Runner = Callable[[Sequence[Any]], Sequence[Any]]

# A model is run again, and the nodes of a region many times, so nodes stay started: up to so many
# bytes of them. A started node takes some 256 KiB beside its arrays.
MOST_STARTED_BYTES, STARTED_NODE_BYTES = 1 << 29, 1 << 18


class Graph(ABC):
    """A graph with its inputs, and its values while it runs.

    ``body``: its nodes, and what the file holds; ``inputs``: the library's values of the inputs, by
    key.
    """

    BY_SHAPE: ClassVar[frozenset[str]] = frozenset()
    """Operations that read no number of their operands."""
    opset = 0

    def __init__(self, body: Body, inputs: Mapping[Any, Any]) -> None:
        self._begin(body, inputs)

    def _begin(self, body: Body, inputs: Mapping[Any, Any]) -> None:
        self.body, self.inputs = body, inputs
        self.constants: dict[Any, Any] = dict(body.constants)
        self.values: dict[Key, Any] = {}
        self.kinds: dict[Any, Kind] = {key: self.described(value) for key, value in inputs.items()}
        self.ready: OrderedDict[Any, tuple[int, Runner]] = OrderedDict()

    # what a library adds

    @abstractmethod
    def started(self, node: Any, fed: Fed, replaced: Replaced) -> Runner:
        """Makes a model of a node and starts it. ``replaced``: arrays in the place of constants."""

    @abstractmethod
    def meaning(self, node: Any, call: Call) -> Meaning:
        """What a node computes."""

    def described(self, value: Any) -> Kind:
        """Shape and dtype of a value or constant."""
        return value.shape, str(value.dtype)

    def container(self, key: Any, value: Any) -> np.ndarray:
        """The container array of a value or constant."""
        return value  # type: ignore[no-any-return]

    def value(self, key: Any, array: np.ndarray) -> Any:
        """A container array as the library's value."""
        return array

    def name(self, key: Any) -> str:
        """The name in the file of an input or constant."""
        return str(key)

    def address(self, key: Any) -> int | None:
        """Where a value begins, as of ``Seen``."""
        return None

    # a run

    def run(self, visit: Visit) -> list[Seen]:
        """Runs all nodes, and returns the outputs."""
        self.visit, self.values = visit, dict(self.inputs)
        self.run_body(self.body)
        return [self.seen(key) for key in self.body.outputs]

    def run_body(self, body: Body, depth: int = 0) -> None:
        """Runs its nodes; a value is kept as long as a node is still to read it. ``depth``: in how
        many nodes the body stands."""
        for node, last in zip(body.nodes, body.last, strict=True):
            self.run_node(node, depth)
            for key in last:
                if key not in body.inputs:
                    self.values.pop(key, None)

    def run_node(self, node: Any, depth: int) -> None:
        fed = {key: self.kinds[key] for key in node.uses if key not in self.constants}
        run = foreign(self.runner, node, fed, {})
        results = foreign(run, [self.values[key] for key in fed])
        self.values.update(zip(node.gives, results, strict=True))
        self.visit(self.event(node))

    def runner(self, node: Any, fed: Fed, replaced: Replaced) -> Runner:
        """A node as it was started before: that takes longer than to run it."""
        key = node, *fed.items(), *map(array_digest, replaced.values())
        if key not in self.ready:
            shapes = [fed[n][0] if n in fed else self.described_at(n)[0] for n in node.uses]
            size = STARTED_NODE_BYTES + 8 * sum(map(prod, shapes))
            started_bytes = lambda: sum(each for each, _ in self.ready.values())  # noqa: E731
            while self.ready and size + started_bytes() > MOST_STARTED_BYTES:
                self.ready.popitem(last=False)
            self.ready[key] = size, self.started(node, fed, replaced)
        self.ready.move_to_end(key)
        return self.ready[key][1]

    # what is said of a node

    def described_at(self, key: Any) -> Kind:
        """Shape and dtype of a value of the run, alive or not, or of a constant."""
        if key not in self.kinds:
            self.kinds[key] = self.described(self.constants[key])
        return self.kinds[key]

    def array(self, key: Any) -> np.ndarray:
        """A value's bits as a container array."""
        held = key not in self.values
        return self.container(key, self.constants[key] if held else self.values[key])

    def seen(self, key: Any) -> Seen:
        shape, dtype = self.described_at(key)
        held = key not in self.values
        name = self.name(key) if held or key in self.inputs else ""
        role, address = (WEIGHT, None) if held else (INPUT, self.address(key))
        return Seen(key, shape, dtype, partial(self.array, key), role, name, address)

    def event(self, node: Any) -> Operation:
        """A node that has just run as an operation."""
        for key in node.gives:
            self.kinds[key] = self.described(self.values[key])
        unread = node.op in self.BY_SHAPE
        reads = [] if unread else node.reads
        places: Iterator[int] = repeat(-1) if unread else count()
        operands = [
            None
            if key is None
            else Operand(next(places), *self.described_at(key), partial(self.array, key))
            for key in node.slots
        ]
        seen, gives = ([self.seen(key) for key in keys] for keys in (reads, node.gives))
        shapes, dtypes = [value.shape for value in gives], [value.dtype for value in gives]
        call = Call(node.op, node.words, operands, shapes, dtypes, node.domain, self.opset)
        means, again = self.meaning(node, call), partial(self.again, node, reads)
        return Operation(node.op, node.path, seen, gives, means, node.attributes, again)

    def again(
        self, node: Any, reads: Sequence[Any], arrays: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Runs a node alone on container arrays in the place of what it reads."""
        operands = dict(zip(reads, arrays, strict=True))
        for key in node.uses:  # of what it reads by its shape alone
            if key not in operands:
                shape, dtype = self.described_at(key)
                operands[key] = np.zeros(shape, "uint16" if dtype == "bfloat16" else dtype)
        replaced = {key: array for key, array in operands.items() if key in self.constants}
        fed = {key: array for key, array in operands.items() if key not in replaced}
        kinds = {key: (array.shape, self.described_at(key)[1]) for key, array in fed.items()}
        run = self.runner(node, kinds, replaced)
        results = run([self.value(key, array) for key, array in fed.items()])
        return [self.container(key, array) for key, array in zip(node.gives, results, strict=True)]


class GraphRecorder(ABC):
    """A model file with its inputs, whose nodes run one by one; or as one operation, where that
    changes bits or can't be.

    ``model``: the file, or its bytes; ``inputs``: container arrays by name; ``note``: empty, or why
    it is one operation.
    """

    LIBRARY: ClassVar[str]

    def __init__(
        self,
        model: Any,
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.inputs, self.switches = model, dict(inputs), dict(switches or {})
        words = [f",{key}={value}" for key, value in self.switches.items() if key != "optimisation"]
        self.target = self.LIBRARY + "".join(words)
        self.note = ""
        # digests of the outputs of an unwatched run, where there was one
        self.plain_digests: list[str] | None = None
        self.graph: Any = None

    @abstractmethod
    def plain(self) -> list[np.ndarray]:
        """Runs the model unwatched."""

    @abstractmethod
    def cuts(self) -> Iterator[Any]:
        """Ways to cut the model into nodes, the finest first: each has ``run(visit)``, as a
        ``Graph``. The first whose outputs have the unwatched model's bits is recorded."""

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it node by node, and calls ``visit`` behind each; as one operation where no nodes
        give the bits that it gives unwatched, which is tried before the first recording."""
        if self.graph is None and not self.note:
            self._choose()
        outputs: list[Seen] = self._as_one(visit) if self.graph is None else self.graph.run(visit)
        return outputs

    def take_over(self, before: Any) -> None:
        """Records as a recorder did before at the same shapes, whose nodes are known by then."""
        if hasattr(before.graph, "with_inputs"):
            self.graph, self.note = before.graph.with_inputs(self.inputs), before.note

    def _choose(self) -> None:
        why = "run one by one give different bits"
        self.plain_digests = [array_digest(output) for output in self.plain()]

        def read(event: Operation) -> None:
            for value in event.gives:
                foreign(value.array)

        try:
            for graph in self.cuts():
                outputs = graph.run(read)
                if [
                    array_digest(foreign(output.array)) for output in outputs
                ] == self.plain_digests:
                    self.graph = graph
                    return
        # a node that can't run alone, a type without arrays, or a model that can't be saved
        except (Foreign, ProbeError, ValueError) as failed:
            error = failed.__cause__ or failed
            said = " ".join(str(error).split())[:120] or type(error).__name__
            why = f"can't be run one by one ({said})"
        self.note = f"the model is one operation: its nodes {why}"

    def _as_one(self, visit: Visit) -> list[Seen]:
        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            inputs = dict(zip(self.inputs, arrays, strict=True))
            return type(self)(self.model, inputs, self.switches).plain()

        outputs = self.plain()
        reads = [_of_array(name, array) for name, array in self.inputs.items()]
        gives = [_of_array(f"output {n}", array) for n, array in enumerate(outputs)]
        visit(Operation("model", "", reads, gives, Unknown(self.note), {}, again))
        return gives

    def inputs_named(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """The inputs of these names. InputError: one is missing."""
        arrays = {}
        for name in names:
            if name not in self.inputs:
                raise InputError("inputs", ", ".join(self.inputs), f"{name} is missing", "give it")
            arrays[name] = self.inputs[name]
        return arrays


def _of_array(name: str, array: np.ndarray) -> Seen:
    return Seen(name, array.shape, str(array.dtype), lambda: array, INPUT, name)


def content(path: Path) -> bytes:
    """A file's bytes. InputError where it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        why = f"can't be read: {error.strerror}"
        raise InputError("network", path.name, why, "give a file") from None


def refused(
    library: str,
    arrays: Mapping[str, np.ndarray],
    error: Any,
    todo: str = "give the model's own shapes and types",
) -> InputError:
    """The error for inputs that a library refuses."""
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
    why = f"{library} refuses them: {' '.join(str(error).split())[:200]}"
    return InputError("inputs", shapes, why, todo)


def read(name: str, call: Callable[[], R], todo: str = "export or download it again") -> R:
    """Calls a library that reads a file. InputError, one line, for whatever it says of one that it
    can't read."""
    try:
        return foreign(call)
    except Foreign as damaged:
        error = damaged.__cause__
        said = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
        raise InputError("network", name, f"can't be read: {said}", todo) from None

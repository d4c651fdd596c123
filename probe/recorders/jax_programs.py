"""Compiled programs of JAX, functions under ``jax.jit``, and loops: what they compute in all.

The labels of a program's outputs are those of its equations, one by one, whether the program can be
looked into or not: a compiled function and the same function run eagerly must agree.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend import core

from probe.recorders.jax_meanings import Equation, Unknown, meaning
from probe.recording.labelling import exact
from probe.recording.recording import SMALL
from probe.semantics import Holds, Joins, Meaning, Shapes, Step, Steps, mixing
from probe.semantics.labels import Labels, of_content, tag

INNER = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that run a jaxpr once, and the parameter that has it."""

STILL = {
    *("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "copy"),
    *("convert_element_type", "stop_gradient", "rev", "concatenate", "pad", "iota"),
}
"""Primitives that move elements; beside one other a program is that one."""

MOST_STEPS = 512
"""Steps up to which a loop is labelled, and looked into, step by step."""


def inner(primitive: Any, params: Mapping[str, Any]) -> Any:
    """Returns the closed jaxpr that a primitive runs once; None where it doesn't."""
    name = INNER.get(primitive.name)
    found = params.get(name) if name else None
    if found is None or hasattr(found, "consts"):
        return found
    return core.ClosedJaxpr(found, ())


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations that a jaxpr runs once, those of functions that it calls in their place."""
    for one in jaxpr.eqns:
        within = inner(one.primitive, one.params)
        if within is None:
            yield one
        else:
            yield from equations(within.jaxpr)


def only(jaxpr: Any) -> Any:
    """The one equation of a jaxpr that computes; the last, where all move; None for several."""
    every = list(equations(jaxpr))
    found = [one for one in every if one.primitive.name not in STILL]
    if len(found) > 1 or any(loops(one.primitive) for one in found):
        return None
    return found[0] if found else every[-1] if every else None


def loops(primitive: Any) -> bool:
    """Returns whether a primitive runs jaxprs as often as its inputs say."""
    return primitive.name in ("scan", "while", "cond")


def direct(jaxpr: Any) -> bool:
    """Returns whether a jaxpr is one equation on its own inputs, in order."""
    if len(jaxpr.eqns) != 1 or jaxpr.constvars:
        return False
    one = jaxpr.eqns[0]
    if inner(one.primitive, one.params) is not None or loops(one.primitive):
        return False
    return list(one.invars) == list(jaxpr.invars) and list(one.outvars) == list(jaxpr.outvars)


named = functools.cache(str)
"""The name of a dtype, which NumPy puts together anew each time that it is asked."""


def described(aval: Any) -> tuple[tuple[int, ...], str]:
    """(shape, dtype's name) of an abstract value."""
    return tuple(getattr(aval, "shape", ())), named(getattr(aval, "dtype", "token"))


def equation(one: Any, values: Callable[[int], np.ndarray | None]) -> Equation:
    """Returns an equation of a jaxpr for the table of meanings."""
    return Equation(
        *(one.primitive, one.params),
        [described(atom.aval) for atom in one.invars],
        [described(atom.aval) for atom in one.outvars],
        values,
    )


@dataclass
class Known:
    """What is known of a value inside a program: labels, and its content if from integers alone."""

    labels: Labels
    content: np.ndarray | None = None


def of_number(atom: Any) -> Known:
    """Returns a literal of a jaxpr."""
    content = container(np.asarray(atom.val, dtype=atom.aval.dtype))
    return Known(of_content(content), content)


def container(array: np.ndarray) -> np.ndarray:
    """An array's bits as a container array; formats that NumPy hasn't as unsigned integers."""
    if array.dtype.kind in "biufc":
        return array
    return array.view(f"u{array.dtype.itemsize}")


Path = tuple[int, ...]


def constants(jaxpr: Any) -> list[Any]:
    """Returns all arrays that functions inside a jaxpr closed over, each once."""
    found: dict[int, Any] = {}
    for closed in _closed(jaxpr):
        found.update((id(value), value) for value in closed.consts)
    return list(found.values())


def _closed(jaxpr: Any) -> Iterator[Any]:
    for one in jaxpr.eqns:
        for value in one.params.values():
            for closed in value if isinstance(value, tuple | list) else (value,):
                if hasattr(closed, "jaxpr") and hasattr(closed, "consts"):
                    yield closed
                    yield from _closed(closed.jaxpr)
                elif hasattr(closed, "eqns"):
                    yield from _closed(closed)


@dataclass
class Program(Meaning):
    """A program or a loop, as its equations say: what it reads is its inputs, then ``consts``.

    ``contents``: of inputs that come from integers alone, by number. ``inside``: what the meanings
    of its equations noticed, by their place.
    """

    primitive: Any
    params: Mapping[str, Any]
    consts: Sequence[Any] = ()
    contents: Mapping[int, np.ndarray] = field(default_factory=dict)
    inside: Mapping[Path, np.ndarray] = field(default_factory=dict)
    word: str = ""

    def parts(self) -> list[Meaning] | None:
        """What its equations mean, one by one; None where some are programs or loops again."""
        within = inner(self.primitive, self.params)
        every = [] if within is None else within.jaxpr.eqns
        if not every or any(inner(e.primitive, e.params) or loops(e.primitive) for e in every):
            return None
        return [meaning(equation(one, lambda n: None)) for one in every]

    def differing(self, other: Any) -> list[tuple[str, Any, Any]] | None:
        """Returns numbers and parameters in which two programs of the same equations differ: a name
        and both values each. None where their equations are others."""
        within = inner(self.primitive, self.params), inner(other.primitive, other.params)
        if None in within:
            alike = str(self.params) == str(other.params)
            return [] if alike and self.primitive is other.primitive else None
        try:
            return list(_numbers(*within))
        except Unlike:
            return None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        given = [Known(one, self.contents.get(n)) for n, one in enumerate(reads)]
        count = len(given) - len(self.consts)
        behind = {id(one): known for one, known in zip(self.consts, given[count:], strict=True)}
        walk, within = Walk(behind, self.inside), inner(self.primitive, self.params)
        found: list[Known] | None
        if within is not None:
            found = walk.closed(within, given[:count], ())
        else:
            found = walk.loop(self.primitive.name, self.params, given[:count])
        if found is None:
            return Unknown("a loop whose steps are unknown").labels(reads, shapes, what)
        return [one.labels for one in found]

    def written(self, reads: Shapes, gives: Shapes) -> Meaning:
        """Its equations as steps, for a folder; itself where it loops."""
        within = inner(self.primitive, self.params)
        count = len(reads) - len(self.consts)
        if within is None:
            return self
        made = _Written(
            len(reads), self.inside, {id(c): count + n for n, c in enumerate(self.consts)}
        )
        given = [(n, self.contents.get(n)) for n in range(count)]
        try:
            found = made.closed(within, given, ())
        except Unwritten:
            return self
        return Steps(tuple(made.steps), tuple(number for number, _ in found))


class Unlike(Exception):
    """Two programs whose equations are others."""


def _numbers(one: Any, two: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields the numbers and parameters in which two closed jaxprs differ. Raises Unlike."""
    ours, theirs = one.jaxpr.eqns, two.jaxpr.eqns
    seen: tuple[dict[Any, int], dict[Any, int]] = ({}, {})

    def place(atom: Any, side: int) -> tuple[int, str]:
        return seen[side].setdefault(atom, len(seen[side])), str(atom.aval)

    def read(mine: Any, other: Any) -> bool:
        """Whether both read a number; raises Unlike where they read other values."""
        kinds = [hasattr(atom, "val") for atom in (mine, other)]
        if kinds[0] != kinds[1] or (not kinds[0] and place(mine, 0) != place(other, 1)):
            raise Unlike
        return kinds[0]

    heads = [(*x.jaxpr.constvars, *x.jaxpr.invars, *x.jaxpr.outvars) for x in (one, two)]
    if len(ours) != len(theirs) or len(heads[0]) != len(heads[1]):
        raise Unlike
    for a, b in zip(one.consts, two.consts, strict=True):
        if np.shape(a) != np.shape(b) or np.asarray(a).tobytes() != np.asarray(b).tobytes():
            raise Unlike
    for a, b in zip(ours, theirs, strict=True):
        if a.primitive.name != b.primitive.name or len(a.invars) != len(b.invars):
            raise Unlike
        for number, atoms in enumerate(zip(a.invars, b.invars, strict=True)):
            if read(*atoms) and str(atoms[0].val) != str(atoms[1].val):
                name = f"operand {number + 1} of {a.primitive.name}"
                yield name, float(np.asarray(atoms[0].val)), float(np.asarray(atoms[1].val))
        insides = inner(a.primitive, a.params), inner(b.primitive, b.params)
        if None not in insides:
            yield from _numbers(*insides)
        elif loops(a.primitive):
            if str(a.params) != str(b.params):
                raise Unlike
        else:
            known = attributes(a.params), attributes(b.params)
            for name in known[0]:
                if " at 0x" not in str(known[0][name]) and known[0][name] != known[1].get(name):
                    yield f"{name} of {a.primitive.name}", known[0][name], known[1].get(name)
        for atoms in zip(a.outvars, b.outvars, strict=True):
            read(*atoms)
    for atoms in zip(*heads, strict=True):
        read(*atoms)


class Unwritten(Exception):
    """A program that can't be said as steps, each once: it loops."""


Numbered = tuple[int, np.ndarray | None]
"""A value's number among a program's inputs and steps, and its content where that is known."""


class _Written:
    """Steps of a jaxpr, as :class:`Walk` labels them. ``behind``: inputs closed over, by id."""

    def __init__(
        self, count: int, noticed: Mapping[Path, np.ndarray], behind: Mapping[int, int]
    ) -> None:
        self.given, self.noticed, self.behind = count, noticed, behind
        self.steps: list[Step] = []

    def held(self, known: Known) -> Numbered:
        """Enters what is known by its content."""
        content = known.content
        if content is None:
            raise Unwritten
        (number,) = self._enter(Step(Holds(content), (), content.shape))
        return number, content

    def _enter(self, step: Step) -> list[int]:
        self.steps.append(step)
        first, self.given = self.given, self.given + 1 + len(step.more)
        return list(range(first, self.given))

    def _constant(self, value: Any) -> Numbered:
        if id(value) in self.behind:
            return self.behind[id(value)], None
        known = of_constant(value)
        number, _ = self.held(Known(known.labels, container(np.asarray(value))))
        return number, known.content

    def closed(self, closed: Any, given: Sequence[Numbered], path: Path) -> list[Numbered]:
        """As of ``Walk``. Raises Unwritten where it loops."""
        jaxpr = closed.jaxpr
        consts = [self._constant(one) for one in closed.consts]
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

        def read(atom: Any) -> Numbered:
            return self.held(of_number(atom)) if hasattr(atom, "val") else known[atom]

        for number, one in enumerate(jaxpr.eqns):
            reads = [read(atom) for atom in one.invars]
            known |= dict(zip(one.outvars, self.step(one, reads, (*path, number)), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def step(self, one: Any, reads: Sequence[Numbered], path: Path) -> list[Numbered]:
        """As of ``Walk``."""
        within = inner(one.primitive, one.params)
        if within is not None:
            return self.closed(within, reads, path)
        if loops(one.primitive):
            raise Unwritten
        nothing = Labels((), np.zeros((), np.uint64))
        contents = Walk.contents(one, [Known(nothing, content) for _, content in reads])
        shapes = [described(atom.aval) for atom in one.outvars]
        means = meaning(equation(one, lambda n: reads[n][1]))
        if not means.exact and any("float" in dtype for _, dtype in shapes):
            contents = None
        if contents is not None and all(
            exact(content, dtype) for content, (_, dtype) in zip(contents, shapes, strict=True)
        ):
            return [self.held(Known(nothing, content)) for content in contents]
        first, *more = (shape for shape, _ in shapes)
        name, unknown = one.primitive.name, isinstance(means, Unknown)
        op = (name, repr(attributes(one.params))) if unknown else (name,)
        zeros = self.noticed.get(path) if means.notices else None
        made = Step(means, tuple(n for n, _ in reads), first, tuple(more), op, zeros)
        kept = contents or itertools.repeat(None)
        return list(zip(self._enter(made), kept, strict=False))


class Walk:
    """Labels through the equations of a jaxpr; ``behind``: of arrays closed over, by id."""

    def __init__(self, behind: Mapping[int, Known], noticed: Mapping[Path, np.ndarray]) -> None:
        self.behind, self.noticed = behind, noticed

    def closed(self, closed: Any, given: Sequence[Known], path: Path | None) -> list[Known]:
        """What is known of a closed jaxpr's outputs; ``path``: its place, None inside a loop."""
        jaxpr = closed.jaxpr
        consts = [self.behind.get(id(one)) or of_constant(one) for one in closed.consts]
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

        def read(atom: Any) -> Known:
            return of_number(atom) if hasattr(atom, "val") else known[atom]

        for number, one in enumerate(jaxpr.eqns):
            reads = [read(atom) for atom in one.invars]
            place = None if path is None else (*path, number)
            known |= dict(zip(one.outvars, self.step(one, reads, place), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def step(self, one: Any, reads: Sequence[Known], path: Path | None) -> list[Known]:
        """Returns what is known of an equation's results."""
        within = inner(one.primitive, one.params)
        if within is not None:
            return self.closed(within, reads, path)
        if loops(one.primitive):
            found = self.loop(one.primitive.name, one.params, reads)
            if found is not None:
                return found
        contents = self.contents(one, reads)
        shapes = [described(atom.aval) for atom in one.outvars]
        means = meaning(equation(one, lambda n: reads[n].content))
        if not means.exact and any("float" in dtype for _, dtype in shapes):
            contents = None  # as a run keeps them
        if contents is not None and all(
            exact(content, dtype) for content, (_, dtype) in zip(contents, shapes, strict=True)
        ):
            return [Known(of_content(content), content) for content in contents]
        noticed = [self.noticed.get(path)] if path is not None and means.notices else []
        labels = means.labels(
            [known.labels for known in reads],
            [shape for shape, _ in shapes],
            word(means, one.primitive.name, one.params),
            *noticed,
        )
        kept = contents or itertools.repeat(None)
        return [Known(*both) for both in zip(labels, kept, strict=False)]

    @staticmethod
    def contents(one: Any, reads: Sequence[Known]) -> list[np.ndarray] | None:
        """Results computed from integers alone; None where that isn't so, or they are large."""
        avals = [atom.aval for atom in (*one.invars, *one.outvars)]
        shapes = [described(aval) for aval in avals]
        if any(np.prod(shape, dtype=int) > SMALL or "key" in dtype for shape, dtype in shapes):
            return None
        if any(known.content is None for known in reads):
            return None
        given = [
            jax.numpy.asarray(known.content.view(aval.dtype))  # type: ignore[union-attr]
            for known, aval in zip(reads, avals, strict=False)
        ]
        return [container(np.asarray(value)) for value in bound(one, given)]

    def loop(
        self, name: str, params: Mapping[str, Any], reads: Sequence[Known]
    ) -> list[Known] | None:
        """Returns what is known of a loop's results; None where its steps aren't."""
        if name == "cond":
            index = reads[0].content
            if index is None:
                return None
            return self.closed(params["branches"][int(index)], reads[1:], None)
        if name != "scan" or params["length"] > MOST_STEPS:
            return None
        consts, carry = params["num_consts"], params["num_carry"]
        fixed, states = reads[:consts], list(reads[consts : consts + carry])
        lines = [_lines(known) for known in reads[consts + carry :]]
        steps, results = range(params["length"]), []
        for step in reversed(steps) if params["reverse"] else steps:
            given = [*fixed, *states, *(line(step) for line in lines)]
            found = self.closed(params["jaxpr"], given, None)
            states = found[:carry]
            results.append([known.labels for known in found[carry:]])
        if params["reverse"]:
            results.reverse()
        return states + [Known(_stacked(column)) for column in zip(*results, strict=True)]


def word(means: Meaning, name: str, params: Mapping[str, Any]) -> np.uint64:
    """Returns the label of an operation, as ``labelling.given_labels`` has it."""
    if isinstance(means, Unknown):
        return tag(name, repr(attributes(params)))
    return tag(means.word or name)


def attributes(params: Mapping[str, Any]) -> dict[str, Any]:
    """A primitive's parameters, plain enough for JSON; what is not a number or name as text."""
    plain = (str, int, float, bool, type(None))
    return {
        name: value if isinstance(value, plain) else str(value)
        for name, value in params.items()
        if "jaxpr" not in name and name != "branches"
    }


def bound(one: Any, given: Sequence[Any]) -> list[Any]:
    """Returns what an equation gives of arrays."""
    found = one.primitive.bind(*given, **one.primitive.get_bind_params(one.params))
    return list(found) if one.primitive.multiple_results else [found]


def noticed(closed: Any, given: Sequence[Any]) -> dict[Path, np.ndarray]:
    """Runs a program equation by equation for what the meanings of its equations notice.

    It is not the compiled program, whose values can't be seen, but what underflows there does here.
    """
    found: dict[Path, np.ndarray] = {}
    if any(one.primitive.name in NOTICED for one in equations(closed.jaxpr)):
        _noticed(closed, given, (), found)
    return found


NOTICED = ("exp", "reduce_max")


def _noticed(closed: Any, given: Sequence[Any], path: Path, found: dict[Path, Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *given), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else values[atom]

    for number, one in enumerate(jaxpr.eqns):
        reads = [read(atom) for atom in one.invars]
        within = inner(one.primitive, one.params)
        if within is not None:
            gives = _noticed(within, reads, (*path, number), found)
        else:
            gives = bound(one, reads)
            means = meaning(equation(one, lambda _: None))
            saw = means.noticed(_wide(reads), _wide(gives)) if means.notices else None
            if saw is not None:
                found[(*path, number)] = saw
        values |= dict(zip(one.outvars, gives, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _wide(arrays: Sequence[Any]) -> list[Callable[[], np.ndarray]]:
    return [lambda one=one: np.asarray(one).astype(np.float64) for one in arrays]  # type: ignore[misc]


def of_constant(value: Any) -> Known:
    """Returns an array that a function closed over, inside another one: by its content."""
    content = container(np.asarray(value))
    plain = content.size <= SMALL and (content.dtype.kind in "biu" or content.ndim == 0)
    return Known(of_content(content), content if plain else None)


def _lines(known: Known) -> Callable[[int], Known]:
    """Returns the steps of an input that a loop goes along."""
    one = known.labels
    full, names = one.full([0]), tuple(map(one.name, range(1, len(one.shape))))

    def line(step: int) -> Known:
        content = None if known.content is None else known.content[step]
        return Known(Labels(one.shape[1:], full[step], one.known, names), content)

    return line


def _stacked(column: Sequence[Labels]) -> Labels:
    """Returns the results of all steps, one behind the other."""
    to = (1, *column[0].shape)
    lines = [mixing.reshaped(one, to) for one in column]
    shape = (len(column), *column[0].shape)
    return Joins(0).labels(lines, [shape], tag("stacked"))[0]

"""A compiled program that also returns every value inside: the values of a fused program, seen.

XLA compiles the same equations with more results. Where the program's own results keep their bits,
what it returns besides is what it computed inside. Run equation by equation (``unrolled``), loops
say what looking inside one means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax._src import core

from probe.recorders.jax_programs import MOST_STEPS, bound, inner


def unrolled(primitive: Any, params: Mapping[str, Any], args: Sequence[Any]) -> list[Any] | None:
    """Returns the results of a program's equations, run one by one; None where that can't be."""
    within = inner(primitive, params)
    if within is not None:
        return _run(within, args)
    if primitive.name == "cond":
        return _run(params["branches"][int(args[0])], args[1:])
    if primitive.name == "scan" and params["length"] <= MOST_STEPS:
        return _scanned(params, args)
    if primitive.name == "while":
        return _repeated(params, args)
    return None


def _run(closed: Any, args: Sequence[Any]) -> list[Any]:
    return list(core.eval_jaxpr(closed.jaxpr, closed.consts, *args))


def _scanned(params: Mapping[str, Any], args: Sequence[Any]) -> list[Any]:
    consts, carry, length = params["num_consts"], params["num_carry"], params["length"]
    fixed, states, lines = (
        args[:consts],
        list(args[consts : consts + carry]),
        args[consts + carry :],
    )
    results = []
    for step in reversed(range(length)) if params["reverse"] else range(length):
        each = [lax.index_in_dim(line, step, 0, keepdims=False) for line in lines]
        found = _run(params["jaxpr"], [*fixed, *states, *each])
        states = found[:carry]
        results.append([lax.expand_dims(one, (0,)) for one in found[carry:]])
    if params["reverse"]:
        results.reverse()
    return states + [lax.concatenate(column, 0) for column in zip(*results, strict=True)]


def _repeated(params: Mapping[str, Any], args: Sequence[Any]) -> list[Any] | None:
    ahead, behind = params["cond_nconsts"], params["body_nconsts"]
    states = list(args[ahead + behind :])
    for _ in range(MOST_STEPS):
        (going,) = _run(params["cond_jaxpr"], [*args[:ahead], *states])
        if not bool(jax.device_get(going)):
            return states
        states = _run(params["body_jaxpr"], [*args[ahead : ahead + behind], *states])
    return None


@dataclass(frozen=True)
class Step:
    """An equation of a program with those of the functions that it calls in their place.

    ``reads``: numbers of values, or literals (atoms with ``val``); ``gives``: numbers of values.
    """

    one: Any
    reads: tuple[Any, ...]
    gives: tuple[int, ...]
    path: str


class Opened:
    """A program whose values are numbered: its inputs, the arrays closed over, then results."""

    def __init__(self, closed: Any) -> None:
        self.steps: list[Step] = []
        self.consts: list[Any] = []
        self.count = len(closed.jaxpr.invars)
        self.numbers: dict[int, int] = {}
        self._constants(closed)
        self.outputs = self._flat(closed, list(range(len(closed.jaxpr.invars))), "")
        self.run = jax.jit(self._values)

    def _constants(self, closed: Any) -> None:
        for value in closed.consts:
            if id(value) not in self.numbers:
                self.numbers[id(value)] = self.count
                self.consts.append(value)
                self.count += 1
        for one in closed.jaxpr.eqns:
            within = inner(one.primitive, one.params)
            if within is not None:
                self._constants(within)

    def _flat(self, closed: Any, given: Sequence[Any], path: str) -> list[Any]:
        jaxpr = closed.jaxpr
        consts = [self.numbers[id(value)] for value in closed.consts]
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

        def read(atom: Any) -> Any:
            return atom if hasattr(atom, "val") else known[atom]

        for one in jaxpr.eqns:
            reads = [read(atom) for atom in one.invars]
            at = "/".join(filter(None, (path, str(one.source_info.name_stack))))
            within = inner(one.primitive, one.params)
            if within is not None:
                gives = self._flat(within, reads, at)
            else:
                gives = list(range(self.count, self.count + len(one.outvars)))
                self.count += len(gives)
                self.steps.append(Step(one, tuple(reads), tuple(gives), at))
            known |= dict(zip(one.outvars, gives, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _values(self, args: Sequence[Any], consts: Sequence[Any]) -> list[Any]:
        values = [*args, *consts]
        for step in self.steps:
            given = [one.val if hasattr(one, "val") else values[one] for one in step.reads]
            values += bound(step.one, given)
        return values[len(args) + len(consts) :]

    def values(self, args: Sequence[Any]) -> list[Any]:
        """Returns all values of a run, by number."""
        return [*args, *self.consts, *self.run(list(args), self.consts)]

    def results(self, values: Sequence[Any]) -> list[Any]:
        """Returns the program's own results among its values."""
        return [one.val if hasattr(one, "val") else values[one] for one in self.outputs]

"""JAX's linear solvers: every result reads all of its own matrix and of its own right sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from probe.semantics import Meaning, Unknown, operations


def triangular(one: Any) -> Meaning:
    """Returns what ``triangular_solve`` computes: a stack of matrices, each with right sides."""
    shapes = [shape for shape, _ in one.reads]
    p, to = one.params, one.gives[0][0]
    return operations.triangular_solve(
        *(2, (0, 1), shapes, to, p["left_side"], p["lower"], p["transpose_a"]),
        unit=p["unit_diagonal"],
        conjugate=p["conjugate_a"],
    )


def linear(one: Any) -> Meaning:
    """Returns what ``custom_linear_solve`` computes, from what its ``solve`` reads.

    A solver with a triangular one inside works on a stack of matrices, if all that it reads is
    such a stack; every other one takes all that it reads as one system.
    """
    lengths = one.params["const_lengths"]
    begin = lengths.matvec + lengths.vecmat
    behind = sum(lengths)
    numbers = [*range(begin, begin + lengths.solve), *range(behind, len(one.reads))]
    within = list(_equations(one.params["jaxprs"].solve.jaxpr))
    solves = [each for each in within if each.primitive.name == "triangular_solve"]
    shapes, to = [shape for shape, _ in one.reads], [shape for shape, _ in one.gives]
    axes = min((len(each.invars[0].aval.shape) - 2 for each in solves), default=0)
    lead = to[0][:axes]
    if any(shape[:axes] != lead for shape in (*(shapes[n] for n in numbers), *to)):
        return Unknown("a solver whose operands are stacked differently")
    said = tuple(
        (each.primitive.name, repr(sorted(each.params.items()))) for each in solves
    ) or tuple(sorted({each.primitive.name for each in within}))
    given = [shapes[n] for n in numbers]
    own = [len(shape) - axes for shape in given]
    word, count = "linear_solve", len(shapes)
    return operations.solved(word, count, numbers, given, own, lead, to, said)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yields all equations of a jaxpr, those of the functions inside among them."""
    for one in jaxpr.eqns:
        yield one
        for value in one.params.values():
            if hasattr(value, "jaxpr"):
                yield from _equations(value.jaxpr)
            elif hasattr(value, "eqns"):
                yield from _equations(value)


SOLVERS: dict[str, Callable[[Any], Meaning]] = {
    "triangular_solve": triangular,
    "custom_linear_solve": linear,
}
"""Rows of the table of meanings; each takes an ``Equation``."""

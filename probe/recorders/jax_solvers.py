"""JAX's linear solvers: every result reads all of its own matrix and of its own right sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from probe.semantics import Joins, Meaning, Reshapes, Step, Steps, Unknown, Whole


def stacked(
    numbers: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
    to: Sequence[tuple[int, ...]],
    axes: int,
    word: str,
    said: tuple[Any, ...] = (),
) -> Meaning:
    """What every result of a stack reads: all of the operands' parts that are its own.

    ``numbers``: of the operands, ``shapes``: of all that the operation reads, ``to``: of its
    results; the first ``axes`` axes of all of them count the stack. ``said``: what else decides.
    """
    count = prod(to[0][:axes])
    sizes = [prod(shapes[n][axes:]) for n in numbers]
    first = len(shapes)
    steps = [Step(Reshapes(), (n,), (count, size)) for n, size in zip(numbers, sizes, strict=True)]
    joined = first + len(steps)
    steps.append(Step(Joins(1), tuple(range(first, joined)), (count, sum(sizes))))
    gives = []
    for place, shape in enumerate(to):
        own = tuple(shapes[n][axes:] for n in numbers)
        whole = Whole(((0, 0),), f"{word} {place}", (own, said))
        steps.append(Step(whole, (joined,), (count, prod(shape[axes:]))))
        steps.append(Step(Reshapes(), (first + len(steps) - 1,), shape))
        gives.append(first + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def triangular(one: Any) -> Meaning:
    """Returns what ``triangular_solve`` computes: a stack of matrices, each with right sides."""
    shapes = [shape for shape, _ in one.reads]
    said = tuple(sorted((name, bool(value)) for name, value in one.params.items()))
    return stacked((0, 1), shapes, [one.gives[0][0]], len(shapes[0]) - 2, "triangular_solve", said)


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
    return stacked(numbers, shapes, to, axes, "linear_solve", said)


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

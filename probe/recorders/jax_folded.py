"""Programs of JAX that are one sum and renamed axes: what they mean as that sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from probe.recorders.jax_meanings import meaning
from probe.recorders.jax_programs import STILL, equation, inner
from probe.semantics import Contracts, Meaning, Reduces


def folded(jaxpr: Any) -> Meaning | None:
    """What a jaxpr means that is one product with transposed axes, or one sum that keeps its axes.

    ``jax.numpy.einsum`` is the first, ``sum(keepdims=True)`` the second: the sum is the program's,
    whose moves only rename axes. None where it is neither.
    """
    found = [one for one in jaxpr.eqns if one.primitive.name not in STILL]
    if len(found) != 1 or jaxpr.constvars or len(jaxpr.outvars) != 1:
        return None
    (one,) = found
    if inner(one.primitive, one.params) is not None or len(one.outvars) != 1:
        return None
    means = meaning(equation(one, lambda n: None))
    if isinstance(means, Contracts) and means.bias is None and "." not in means.equation:
        return _transposed(jaxpr, one, means)
    if isinstance(means, Reduces) and list(one.invars) == list(jaxpr.invars):
        return _keeping(jaxpr, one, means)
    return None


def _transposed(jaxpr: Any, one: Any, means: Contracts) -> Meaning | None:
    """Returns a product whose operands and outputs are transposed by the equations around it."""
    places: dict[Any, tuple[int, tuple[int, ...]]] = {
        name: (n, tuple(range(len(name.aval.shape)))) for n, name in enumerate(jaxpr.invars)
    }
    texts, out = means.equation.split("->")
    for other in jaxpr.eqns:
        if other is one:
            places[one.outvars[0]] = -1, tuple(range(len(out)))
        elif other.primitive.name != "transpose" or other.invars[0] not in places:
            return None
        else:
            number, axes = places[other.invars[0]]
            moved = tuple(axes[axis] for axis in other.params["permutation"])
            places[other.outvars[0]] = number, moved
    if any(atom not in places or places[atom][0] < 0 for atom in one.invars):
        return None
    number, axes = places.get(jaxpr.outvars[0], (0, ()))
    if number != -1:
        return None
    letters, reads = [], []
    for text, read in zip(texts.split(","), means.reads, strict=True):
        source, order = places[one.invars[read]]
        letters.append("".join(text[order.index(axis)] for axis in range(len(text))))
        reads.append(source)
    spelled = f"{letters[0]},{letters[1]}->{''.join(out[axis] for axis in axes)}"
    return replace(means, equation=spelled, reads=(reads[0], reads[1]))


def _keeping(jaxpr: Any, one: Any, means: Reduces) -> Meaning | None:
    """Returns a sum behind which its axes are put back with size 1."""
    after = [other for other in jaxpr.eqns if other is not one]
    if len(after) != 1 or list(after[0].outvars) != list(jaxpr.outvars) or means.keep:
        return None
    (other,) = after
    shape = one.invars[0].aval.shape
    axes = {axis % len(shape) for axis in means.axes}
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    known = other.primitive.name in ("broadcast_in_dim", "reshape", "expand_dims")
    if not known or other.invars[0] is not one.outvars[0] or other.outvars[0].aval.shape != kept:
        return None
    return replace(means, keep=True)

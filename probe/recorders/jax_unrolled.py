"""Programs and loops of JAX, run equation by equation: what looking inside one means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import lax
from jax._src import core

from probe.recorders.jax_programs import MOST_STEPS, inner


def unrolled(primitive: Any, params: Mapping[str, Any], args: Sequence[Any]) -> list[Any] | None:
    """The results of a program's equations, run one by one; None where that can't be."""
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

"""How a user writes JAX's primitives: ``jax.lax`` in lines of Python, programs as ``@jax.jit``.

The same functions, with the same numbers, are the same primitives and so the same compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import lax

from probe.recorders.jax_programs import described, inner

Text = Callable[[Mapping[str, Any], Sequence[str]], str]
Lines = Callable[[Sequence[str], str], list[str]]


def lines(primitive: Any, params: Mapping[str, Any], count: int) -> Lines | None:
    """Lines that compute what a primitive gives of ``count`` arrays; None: there is no text."""
    within = inner(primitive, params)
    if within is not None:
        return _program(within, count)
    row = TEXTS.get(primitive.name)
    if row is None or primitive.multiple_results:
        return None
    return lambda names, y: [f"{y} = {row(params, list(names)[:count])}"]


def _program(within: Any, count: int) -> Lines | None:
    """Returns a compiled function of one result, whose equations all have a text."""
    if within.consts or len(within.jaxpr.outvars) != 1 or len(within.jaxpr.invars) != count:
        return None
    given = {var: f"a{n}" for n, var in enumerate(within.jaxpr.invars)}
    body = _body(within.jaxpr, given, [])
    if body is None:
        return None
    result = _atom(within.jaxpr.outvars[0], given)
    head = f"def program({', '.join(given[var] for var in within.jaxpr.invars)}):"
    every = ["@jax.jit", head, *(f"    {line}" for line in body), f"    return {result}", ""]

    def written(names: Sequence[str], y: str) -> list[str]:
        return [*every, f"{y} = program({', '.join(list(names)[:count])})"]

    return written


def _body(jaxpr: Any, names: dict[Any, str], found: list[str]) -> list[str] | None:
    """Returns lines of a jaxpr's equations; ``names`` gets those of its values."""
    for one in jaxpr.eqns:
        reads = [_atom(atom, names) for atom in one.invars]
        within = inner(one.primitive, one.params)
        if within is not None:
            if within.consts:
                return None
            names.update(zip(within.jaxpr.invars, reads, strict=True))
            if _body(within.jaxpr, names, found) is None:
                return None
            gives = [_atom(atom, names) for atom in within.jaxpr.outvars]
            names.update(zip(one.outvars, gives, strict=True))
            continue
        row = TEXTS.get(one.primitive.name)
        if row is None or one.primitive.multiple_results:
            return None
        names[one.outvars[0]] = name = f"v{len(found)}"
        found.append(f"{name} = {row(one.params, reads)}")
    return found


def _atom(atom: Any, names: Mapping[Any, str]) -> str:
    if not hasattr(atom, "val"):
        return names[atom]
    value = np.asarray(atom.val, atom.aval.dtype)
    _, dtype = described(atom.aval)
    number = repr(float(value)) if "float" in dtype else repr(value.item())
    number = number.replace("inf", "jnp.inf").replace("nan", "jnp.nan")
    if dtype == "bool":
        return f"jnp.bool_({number})"
    return f"jnp.{dtype}({number})"


def _called(name: str, *words: str) -> Text:
    """``lax.name(x, ..., word=value)``."""

    def text(params: Mapping[str, Any], reads: Sequence[str]) -> str:
        given = [*reads, *(f"{word}={plain(params[word])}" for word in words)]
        return f"lax.{name}({', '.join(given)})"

    return text


def plain(value: Any) -> str:
    """Returns a parameter as it is written."""
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        name = np.dtype(value).name
        return "jnp.bool_" if name == "bool" else f"jnp.{name}"
    if isinstance(value, lax.ConvDimensionNumbers):
        return f"lax.ConvDimensionNumbers({', '.join(plain(one) for one in value)})"
    if isinstance(value, tuple | list):
        inside = ", ".join(map(plain, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, lax.Precision):
        return f"lax.Precision.{value.name}"
    if isinstance(value, np.integer):
        return str(int(value))
    return repr(value)


def _window(start: str, function: str) -> Text:
    def text(params: Mapping[str, Any], reads: Sequence[str]) -> str:
        names = "window_dimensions window_strides padding base_dilation window_dilation".split()
        words = ", ".join(f"{name}={plain(params[name])}" for name in names)
        return f"lax.reduce_window({reads[0]}, {start}, lax.{function}, {words})"

    return text


def _iota(params: Mapping[str, Any], reads: Sequence[str]) -> str:
    shape, dimension = plain(params["shape"]), params["dimension"]
    return f"lax.broadcasted_iota({plain(params['dtype'])}, {shape}, {dimension})"


def _concatenate(params: Mapping[str, Any], reads: Sequence[str]) -> str:
    return f"lax.concatenate([{', '.join(reads)}], {params['dimension']})"


def _cast(params: Mapping[str, Any], reads: Sequence[str]) -> str:
    return f"lax.convert_element_type({reads[0]}, {plain(params['new_dtype'])})"


PLAIN = """neg abs sign tan asin atan sinh asinh atanh expm1 log1p sqrt cbrt square erf erf_inv
 floor ceil real imag conj exp2 cos acos acosh cosh rem atan2 erfc lgamma digamma is_finite
 eq ne lt le gt ge shift_left shift_right_logical shift_right_arithmetic nextafter clamp
 population_count clz add sub mul div pow max min exp log sin tanh logistic rsqrt select_n
 stop_gradient""".split()

TEXTS: dict[str, Text] = {
    **{name: _called(name) for name in PLAIN},
    **{name: _called(f"bitwise_{name}") for name in ("and", "or", "xor", "not")},
    **{
        name: _called(name, "axes")
        for name in "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or".split()
    },
    **{
        name: _called(name, "axis", "reverse")
        for name in "cumsum cumprod cummax cummin cumlogsumexp".split()
    },
    "add_any": _called("add"),
    "integer_pow": _called("integer_pow", "y"),
    "reduce_precision": _called("reduce_precision", "exponent_bits", "mantissa_bits"),
    "argmax": lambda params, reads: (
        f"lax.argmax({reads[0]}, {params['axes'][0]}, {plain(params['index_dtype'])})"
    ),
    "dot_general": _called(
        "dot_general", "dimension_numbers", "precision", "preferred_element_type"
    ),
    "conv_general_dilated": _called(
        *("conv_general_dilated", "window_strides", "padding", "lhs_dilation", "rhs_dilation"),
        *("dimension_numbers", "feature_group_count", "batch_group_count", "precision"),
        "preferred_element_type",
    ),
    "broadcast_in_dim": _called("broadcast_in_dim", "shape", "broadcast_dimensions"),
    "reshape": lambda params, reads: f"lax.reshape({reads[0]}, {plain(params['new_sizes'])})",
    "squeeze": _called("squeeze", "dimensions"),
    "expand_dims": _called("expand_dims", "dimensions"),
    "transpose": _called("transpose", "permutation"),
    "slice": _called("slice", "start_indices", "limit_indices", "strides"),
    "rev": _called("rev", "dimensions"),
    "pad": _called("pad", "padding_config"),
    "concatenate": _concatenate,
    "convert_element_type": _cast,
    "iota": _iota,
    "reduce_window_sum": _window("0.0", "add"),
    "reduce_window_max": _window("-jnp.inf", "max"),
}
"""The text of each primitive: of its parameters and of what it reads."""

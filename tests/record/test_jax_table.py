"""Every row of JAX's table: what it says of a primitive is what JAX gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.record.recorded import drawn, held_to_account, inputs
from tests.record.test_jax import quickly  # noqa: F401

jax = pytest.importorskip("jax", reason="JAX is not installed")

from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402
from jax.extend.random import threefry2x32_p  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

from probe.record.jax import TABLE, JaxRecorder  # noqa: E402

pytestmark = pytest.mark.slow  # each primitive is compiled on its own

RNG, normal = drawn(14)
INPUTS = {
    "a": normal(4, 6), "b": normal(4, 6), "t": normal(4, 5, 8), "p": normal(4, 6, 7, 4),
    "i": RNG.integers(0, 20, (4, 6)).astype(np.int32), "u": RNG.random((4, 6), np.float32) / 2,
    "j": RNG.integers(1, 9, (4, 6)).astype(np.int32), "k": RNG.random((4, 6)) < 0.5,
    "c": (normal(4, 6) + 1j * normal(4, 6)).astype(np.complex64),
}  # fmt: skip
ROW = normal(600)
Given = dict[str, Any]


def row(*shape: int) -> Any:
    return jnp.asarray(np.resize(ROW, shape))


UNARY = "sign asinh sqrt square erf floor lgamma is_finite neg abs tanh logistic rsqrt exp".split()
PAIRS = "rem atan2 eq lt nextafter add sub mul div pow max min".split()
MULTIPLIED = inspect.signature(lax.mul).parameters
"""What this takes in this release."""


def seldom(x: Given) -> list[Any]:
    """What keys, gradients, orders of sorts and several devices have."""
    a, b, mesh = x["a"], x["b"], jax.make_mesh((1,), ("x",))
    explicit = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Explicit,))
    varying = lambda x: lax.pcast(x, ("x",), to="varying")  # noqa: E731
    rows = {"in_specs": PartitionSpec(), "out_specs": PartitionSpec("x")}
    wrapped = jax.random.wrap_key_data(jax.random.key_data(jax.random.clone(jax.random.key(1))))
    return [
        *threefry2x32_p.bind(*(jnp.arange(n, n + 3, dtype=jnp.uint32) for n in range(4))), wrapped,
        *jax.vjp(lambda x: jnp.sin(x) * x, a)[1](b), checkpoint_name(a, "a"),
        *(getattr(lax, f"{name}_to_p").bind(a, b) for name in ("eq", "le", "lt")),
        lax.with_sharding_constraint(a, NamedSharding(mesh, PartitionSpec())),
        jax.sharding.reshard(a, NamedSharding(explicit, PartitionSpec())),
        jax.jit(jax.shard_map(varying, mesh=mesh, **rows))(a),
    ]  # fmt: skip


def elements(x: Given) -> list[Any]:
    a, b, i, j, u, k, c = (x[name] for name in "abijukc")
    words = {"out_dtype": jnp.float32} if "out_dtype" in MULTIPLIED else {}
    return [
        *(getattr(lax, op)(a) for op in UNARY), *(getattr(lax, op)(a, b) for op in PAIRS),
        lax.bitwise_xor(i, j), lax.shift_left(i, j), lax.mul(a, b, **words),
        lax.shift_right_logical(i, j), lax.population_count(i), lax.clz(i), lax.rem(i - 9, j),
        lax.div(i, j), lax.clamp(-0.5, a, 0.5), lax.max(a, 0.0), lax.complex(a, b), lax.conj(c),
        lax.igamma(u, a * a), lax.betainc(u + 0.1, u + 0.2, u),
        *(lax.integer_pow(a, n) for n in (1, 2, 3, -1)), lax.round(a, 0),
        lax.reduce_precision(a, 8, 7),
        lax.mulhi(i, j), lax.bitcast_convert_type(a, jnp.int32),
        *(lax.convert_element_type(a, to) for to in (jnp.float16, jnp.int32, jnp.bfloat16)),
        lax.select_n(k, a, b), lax.select_n(jnp.minimum(i, 2), a, b, a + b), lax.stop_gradient(a),
        jnp.copy(a), lax.optimization_barrier(a), jnp.logical_not(k), k & (a > 0), c * c, c + c,
        abs(c),
    ]  # fmt: skip


def layers(x: Given) -> list[Any]:
    a, t, p = (x[name] for name in "atp")
    found = [op(t, axis) for op in (jnp.sum, jnp.max, jnp.min, jnp.prod) for axis in (1, (1, 2))]
    found += [op(x["k"], 1) for op in (jnp.all, jnp.any)]
    found += [lax.argmax(t, 1, jnp.int32), lax.argmin(t, 2, jnp.int32), lax.sort(t, dimension=1)]
    found += [
        *lax.top_k(t, 2), a @ row(6, 3), jnp.einsum("bij,jk->kbi", t, row(8, 2)),
        jnp.einsum("bij,bkj->bik", t, t), lax.dot(a, row(6, 3), preferred_element_type=jnp.float32),
        lax.dot_general(t, t, (((1,), (1,)), ((0,), (0,)))), jnp.einsum("bij->jbi", t),
        lax.dot(a.astype(jnp.bfloat16), row(6, 3).astype(jnp.bfloat16),
          preferred_element_type=jnp.float32),
    ]  # fmt: skip
    numbers = ("NHWC", "HWIO", "NHWC")
    for words in ({}, {"lhs_dilation": (2, 1)}, {"rhs_dilation": (1, 2)},
      {"window_strides": (2, 1)},
                  {"feature_group_count": 2},
                  {"padding": [(-1, 2), (0, 1)]},
                  {"lhs_dilation": (2, 1), "rhs_dilation": (2, 1)}):  # fmt: skip
        w = row(3, 2, 4 // words.get("feature_group_count", 1), 6)
        words = {
            "window_strides": (1, 1),
            "padding": [(1, 1), (0, 1)],
            "dimension_numbers": numbers,
            **words,
        }
        found += [lax.conv_general_dilated(p, w, **words)]
    window = {"window_dimensions": (1, 2, 3, 1), "window_strides": (1, 2, 1, 1)}
    for start, pick in ((0.0, lax.add), (-np.inf, lax.max), (np.inf, lax.min)):
        found += [lax.reduce_window(p, start, pick, padding=n, **window) for n in ("SAME", "VALID")]
    wide = {**window, "window_dilation": (1, 2, 1, 1)}
    return [*found, lax.reduce_window(p, 0.0, lax.add, padding="VALID", **wide)]


def moves(x: Given) -> list[Any]:
    a, b, t = (x[name] for name in "abt")
    return [
        lax.reshape(t, (40, 4)), lax.squeeze(t[:, :1], (1,)), t.transpose(2, 0, 1),
        lax.slice(t, (0, 1, 2), (4, 5, 8), (1, 2, 3)), lax.rev(t, (1,)),
        lax.concatenate([t, t * 2], 1),
        *lax.split(t, (3, 5), 2), jnp.stack([t, t * 2], 2), *jnp.unstack(t, axis=2),
        *(lax.pad(a, 1.5, ((0, 0, 0), pads)) for pads in ((1, 2, 0), (-1, 0, 0), (1, -1, 2))),
        lax.broadcast_in_dim(a, (3, 4, 6), (1, 2)), lax.broadcasted_iota(jnp.int32, (3, 4), 0),
        lax.dynamic_slice(a, (0, 5), (1, 3)), lax.dynamic_update_slice(a, row(1, 2), (1, 9)),
        a[jnp.asarray([1, 0, 1])], jnp.take(a, jnp.asarray([0, 9]), axis=1, mode="clip"),
        a.at[:, 2].set(b[:, 1]), jnp.tile(a, (1, 2)), jax.device_put(a),
    ]  # fmt: skip


GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    function.__name__: function for function in (elements, layers, moves, seldom)
}


def recorder(name: str) -> JaxRecorder:
    operands = inputs(INPUTS, jnp.asarray)
    return JaxRecorder(lambda: GROUPS[name](operands))


def test_every_row_says_what_jax_gives() -> None:
    # in programs that compute several things in one
    inside = {"random_seed", "sub", "add", "mul", "min", "gt", "lt", "gather"}
    names = held_to_account(map(recorder, GROUPS), 1e-4, inside)
    missing = {*TABLE} - names
    assert not missing, missing

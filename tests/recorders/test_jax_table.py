"""Every meaning of JAX's table against JAX: what is labelled alike is the same number, as of ONNX's
in test_onnx_table.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.recorders.truth import best_shares, drawn, inputs, reached

jax = pytest.importorskip("jax", reason="JAX is not installed")

from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402
from jax.extend.random import threefry2x32_p  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

from probe.recorders.jax import JaxRecorder  # noqa: E402
from probe.recorders.jax_table import TABLE  # noqa: E402

pytestmark = pytest.mark.slow  # each primitive is compiled on its own

NEAR = 1e-3
"""Of float32, relative to the larger number or to 1: what labels confuse is apart by far more."""

RNG, normal = drawn(14)


INPUTS = {
    "a": normal(4, 6), "b": normal(4, 6), "t": normal(4, 5, 8), "p": normal(4, 6, 7, 4),
    "m": normal(4, 3, 3), "i": RNG.integers(0, 20, (4, 6)).astype(np.int32),
    "j": RNG.integers(1, 9, (4, 6)).astype(np.int32), "u": RNG.random((4, 6), np.float32) / 2,
    "k": RNG.random((4, 6)) < 0.5, "c": (normal(4, 6) + 1j * normal(4, 6)).astype(np.complex64),
}  # fmt: skip
"""Arrays with the rows of the batch first."""

ROW = normal(600)
Given = dict[str, Any]


def row(*shape: int) -> Any:
    """The same weights on both sides."""
    return jnp.asarray(np.resize(ROW, shape))


UNARY = """sign tan asin atan sinh asinh expm1 sqrt cbrt square erf floor ceil cos cosh erfc lgamma
 digamma is_finite neg abs log sin tanh logistic rsqrt exp exp2 bessel_i0e bessel_i1e""".split()
SMALL = "atanh erf_inv acos log1p acosh".split()
PAIRS = "rem atan2 eq ne lt le gt ge nextafter add sub mul div pow max min".split()


MULTIPLIED, LARGEST = (inspect.signature(one).parameters for one in (lax.mul, lax.top_k))
"""What these take in this release."""


def together(x: Any, y: Any) -> Any:
    """A reduction that is none of JAX's own."""
    return x * x + y


def random(x: Given) -> list[Any]:
    """Keys are integers, and so are the numbers of theirs."""
    key = jax.random.key(1)
    keys = jax.random.split(jax.random.fold_in(jax.random.clone(key), 2), 3)
    found = [jax.random.bits(key, (3, 2)), jax.vmap(jax.random.normal)(keys), keys]
    found += [*lax.rng_bit_generator(jnp.arange(4, dtype=jnp.uint32), (3,))]
    wrapped = jax.random.wrap_key_data(jax.random.key_data(key))
    gamma = jax.jit(lambda key: jax.random.gamma(key, 2.0, (3,)))
    words = threefry2x32_p.bind(*(jnp.arange(n, n + 3, dtype=jnp.uint32) for n in range(4)))
    return [*found, *words, gamma(wrapped) + x["a"][:, :3]]


def seldom(x: Given) -> list[Any]:
    """What gradients, orders of sorts and several devices have."""
    a, b, one = x["a"], x["b"], jax.make_mesh((1,), ("x",))
    spread = NamedSharding(one, PartitionSpec())
    explicit = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Explicit,))
    varying = lambda x: lax.pcast(x, ("x",), to="varying")  # noqa: E731
    rows = {"in_specs": PartitionSpec(), "out_specs": PartitionSpec("x")}
    return [
        *jax.vjp(lambda x: jnp.sin(x) * x, a)[1](b),
        *(getattr(lax, f"{name}_to_p").bind(a, b) for name in ("eq", "le", "lt")),
        checkpoint_name(a, "a"),
        lax.with_sharding_constraint(a, spread),
        jax.sharding.reshard(a, NamedSharding(explicit, PartitionSpec())),
        jax.jit(jax.shard_map(varying, mesh=one, **rows))(a),
        jax.jit(jax.shard_map(lambda x: jnp.tanh(varying(x)) * 2, mesh=one, **rows))(a),
    ]


def elements(x: Given) -> list[Any]:
    a, b, i, j, u, k, c = (x[name] for name in "abijukc")
    found = [
        *(getattr(lax, op)(a) for op in UNARY), *(getattr(lax, op)(u) for op in SMALL),
        *(getattr(lax, op)(a, b) for op in PAIRS), lax.bitwise_and(i, j), lax.bitwise_or(i, j),
        lax.bitwise_xor(i, j), lax.bitwise_not(i), lax.shift_left(i, j),
        lax.shift_right_logical(i, j), lax.shift_right_arithmetic(i, j), lax.population_count(i),
        lax.clz(i), lax.rem(i - 9, j), lax.div(i, j), *(lax.clamp(-0.5, a, n) for n in (0.5, 0.9)),
        lax.max(a, 0.0), lax.max(0.0, a), lax.complex(a, b), lax.real(c), lax.imag(c), lax.conj(c),
        lax.igamma(u, a * a), lax.igammac(u, a * a), lax.betainc(u + 0.1, u + 0.2, u),
        lax.polygamma(u * 0 + 1.0, u), *(lax.integer_pow(a, n) for n in (2, 3, -1)),
        *(lax.round(a, n) for n in (0, 1)),
        *(lax.reduce_precision(a, n, m) for n, m in ((5, 10), (8, 7))),
        lax.igamma_grad_a(u + 0.1, a * a), lax.zeta(u + 1.5, u + 0.5), lax.mulhi(i, j),
    ]  # fmt: skip
    found += [lax.mul(a, b, out_dtype=jnp.float32)] if "out_dtype" in MULTIPLIED else []
    found += [lax.convert_element_type(a, to) for to in (jnp.float16, jnp.int32, jnp.bfloat16)]
    found += [lax.select(k, a, b), lax.select_n(k, a, b), lax.bitcast_convert_type(a, jnp.int32)]
    found += [lax.select_n(jnp.minimum(i, 2), a, b, a + b), lax.stop_gradient(a), jnp.copy(a)]
    return [*found, lax.optimization_barrier(a), lax.exp(lax.neg(a))]


def layers(x: Given) -> list[Any]:
    a, t, p, m = (x[name] for name in "atpm")
    u = x["u"][:, :3]
    found = [op(t, axis) for op in (jnp.sum, jnp.max, jnp.min, jnp.prod) for axis in (1, (1, 2))]
    found += [op(x["k"], 1) for op in (jnp.all, jnp.any)]
    found += [lax.argmax(t, axis, jnp.int32) for axis in (1, 2)] + [lax.argmin(t, 1, jnp.int32)]
    found += [op(t, axis, reverse=back) for op in (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin,
              lax.cumlogsumexp) for axis in (1, 2) for back in (False, True)]  # fmt: skip
    found += [
        a @ row(6, 3), jnp.einsum("bij,jk->kbi", t, row(8, 2)), jnp.einsum("bij,bkj->bik", t, t),
        lax.dot(a, row(6, 3), preferred_element_type=jnp.float32),
    ]  # fmt: skip
    numbers = ("NHWC", "HWIO", "NHWC")
    for words in ({}, {"lhs_dilation": (2, 1)}, {"rhs_dilation": (1, 2)},
                  {"window_strides": (2, 1)}, {"feature_group_count": 2}):  # fmt: skip
        w = row(3, 2, 4 // words.get("feature_group_count", 1), 6)
        words = {"window_strides": (1, 1), "padding": [(1, 1), (0, 1)], **words}
        found += [lax.conv_general_dilated(p, w, dimension_numbers=numbers, **words)]
    window = {"window_dimensions": (1, 2, 3, 1), "window_strides": (1, 2, 1, 1)}
    for padding in ("SAME", "VALID"):
        found += [lax.reduce_window(p, 0.0, lax.add, padding=padding, **window)]
        found += [lax.reduce_window(p, -np.inf, lax.max, padding=padding, **window)]
        found += [lax.reduce_window(p, np.inf, lax.min, padding=padding, **window)]
        found += [lax.reduce_window(p, np.float32(0), together, padding=padding, **window)]
    found += [lax.reduce(t, np.float32(0), together, axes) for axes in ((1,), (1, 2))]
    found += [lax.reduce_xor(x["i"], axes=(1,)), *lax.approx_max_k(a, 2)]
    pooled = lambda p: lax.reduce_window(p, -np.inf, lax.max, padding="VALID", **window)  # noqa: E731
    found += [jax.grad(lambda p: pooled(p).sum())(p), jax.jvp(pooled, (p,), (p * p,))[1]]
    found += [lax.ragged_dot(t[0], row(2, 8, 3), jnp.asarray([2, 3]))]
    found += [lax.top_k(t, 2, axis=1)[0]] if "axis" in LARGEST else []
    found += [lax.sort(t, dimension=n) for n in (1, 2)] + [*lax.top_k(t, 2), *lax.top_k(t, 3)]
    spread = jnp.einsum("bij,bkj->bik", m, m) + 2 * jnp.eye(3)
    found += [lax.linalg.cholesky(spread), *lax.linalg.lu(m), *lax.linalg.qr(m), *lax.linalg.svd(m)]
    found += [*lax.linalg.eigh(spread), *lax.linalg.eig(m)[:1], *lax.linalg.schur(m)[:1]]
    found += [lax.linalg.hessenberg(m)[0]]
    found += [lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(m)[1], 3)]
    below = jnp.linalg.cholesky(spread)
    found += [lax.linalg.tridiagonal_solve(m[:, 0], spread[:, 1], m[:, 2], m)]
    found += [lax.linalg.householder_product(m, u), lax.linalg.ormqr(m, u, m)]
    found += [*lax.linalg.tridiagonal(spread), lax.linalg.symmetric_product(m, spread)]
    found += [lax.linalg.cholesky_update(row(3, 3) + 2 * jnp.eye(3), line) for line in m[:2, 0]]
    found += [jax.scipy.linalg.cho_solve((below, True), m)]
    found += [jnp.linalg.solve(spread[0], m[0, 0])]
    found += [jnp.linalg.solve(spread, m), jax.scipy.linalg.solve_triangular(spread, m)]
    found += [lax.fft(x["c"], kind, (6,)) for kind in ("FFT", "IFFT")]
    found += [lax.fft(lax.complex(t, t), "FFT", (5, 8)), lax.fft(t, "RFFT", (8,))]
    return [*found, *(lax.fft(x["c"], "IRFFT", (n,)) for n in (10, 11))]


def moves(x: Given) -> list[Any]:
    a, b, t = (x[name] for name in "abt")
    rows = a.shape[0]
    found = [
        lax.reshape(t, (rows * 10, 4)), lax.squeeze(t[:, :1], (1,)), lax.expand_dims(t, (1,)),
        t.transpose(2, 0, 1), lax.slice(t, (0, 1, 2), (rows, 5, 8), (1, 2, 3)), lax.rev(t, (1,)),
        lax.rev(t, (0, 2)), *(lax.concatenate([t, t * 2], n) for n in (1, 2)),
        *lax.split(t, (3, 5), 2), *(jnp.stack([t, t * 2], n) for n in (0, 2)),
        *jnp.unstack(t, axis=2),
    ]  # fmt: skip
    for low, high, inside in ((1, 2, 0), (-1, 0, 0), (1, -1, 2), (0, 3, 1)):
        found += [lax.pad(a, n, ((0, 0, 0), (low, high, inside))) for n in (0.0, 1.5)]
    found += [
        lax.broadcast_in_dim(a, (3, rows, 6), (1, 2)), lax.broadcast_in_dim(row(6), (2, 6), (1,)),
        lax.iota(jnp.int32, 5), lax.broadcasted_iota(jnp.int32, (3, 4), 0),
        lax.broadcasted_iota(jnp.int32, (3, 4), 1),
        *(lax.dynamic_slice(a, (0, start), (1, 3)) for start in (2, 5)),
        *(lax.dynamic_update_slice(a, row(1, 2), (1, start)) for start in (2, 9)),
        a[jnp.asarray([1, 0, 1])], t[:, jnp.asarray([[2, 0], [4, 4]])],
        jnp.take_along_axis(a, jnp.asarray([[1, 0]] * rows), 1),
        jnp.take(a, jnp.asarray([0, 9]), axis=1, mode="fill"),
        jnp.take(a, jnp.asarray([0, 9]), axis=1, mode="clip"), a.at[:, 2].set(b[:, 1]),
        a.at[jnp.asarray([0, 1]), jnp.asarray([3, 2])].set(row(2)),
    ]  # fmt: skip
    at = jnp.asarray([0, 9, 0, 2])  # one beyond its axis
    ways = "add", "subtract", "mul", "min", "max"
    found += [getattr(a.at[:, at], name)(b[:, :4]) for name in ways]
    found += [jnp.zeros(7).at[at].add(row(4)), jnp.zeros((4, 9, 8)).at[0, at[::2]].add(t[0, :2])]
    found += [jax.vmap(lambda one: jax.ops.segment_sum(one, at[:4] % 3, 3))(t[:, :4])]
    found += [jnp.argsort(a, 1), *lax.sort([t, t + 1], dimension=1, num_keys=1)]
    return [*found, jnp.repeat(a, 2, axis=1), jnp.tile(a, (1, 2)), jax.device_put(a)]


GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    function.__name__: function for function in (elements, layers, moves, random, seldom)
}


def recorder(name: str, rows: list[int] | None = None) -> JaxRecorder:
    program, operands = GROUPS[name], inputs(INPUTS, jnp.asarray, rows)
    return JaxRecorder(lambda: program(operands))


@pytest.mark.parametrize("rows", [[2, 0], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_what_is_labelled_alike_is_the_same_number(name: str, rows: list[int]) -> None:
    best = best_shares(recorder(name), recorder(name, rows), NEAR)
    assert len(rows) < 4 or all(best.values()), best


def test_every_row_of_the_table_is_reached() -> None:
    assert not {*TABLE} - reached(map(recorder, GROUPS))

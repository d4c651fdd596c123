"""JAX runs, recorded: the same bits, the same operations, and what must agree in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from probe.diff.difference import Difference, compare_runs
from probe.diff.match import RunningMatch
from probe.diff.pairing import Unselected
from probe.order.semantics import Reduces
from probe.record.recording import Run, record_run

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
lax = jax.lax

from jax.ad_checkpoint import checkpoint_name  # noqa: E402
from jax.extend.random import threefry2x32_p  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

from probe.record.jax import TABLE, JaxRecorder  # noqa: E402
from tests.record.recorded import drawn, held_to_account, inputs  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(autouse=True, scope="module")
def quickly() -> Iterator[None]:
    """Programs are compiled without most optimisations: in a third of the time."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


RANDOM = np.random.default_rng(0)


def of(*shape: int) -> Any:
    """Normal numbers in float32."""
    return jnp.asarray(RANDOM.normal(size=shape).astype(np.float32))


def watched(function: Callable[[], Any]) -> Run:
    """A function recorded, with the bits of the unrecorded one."""
    recorder = JaxRecorder(function)
    live, plain = record_run(recorder), recorder.plain()
    assert [one.tobytes() for one in live.results] == [one.tobytes() for one in plain]
    return live


def compared(left: Callable[[], Any], right: Callable[[], Any]) -> Difference:
    """Two functions, recorded and compared."""
    return compare_runs(RunningMatch.of(watched(left), watched(right)))


def kinds(live: Run) -> list[str]:
    """The operations of a run."""
    return [one.op for one in live.operations]


PARAMETERS = {"w": of(6, 8), "b": of(8), "v": of(8, 3)}


def perceptron(parameters: dict[str, Any], x: Any) -> Any:
    """Two dense layers and a softmax."""
    y = jax.nn.relu(x @ parameters["w"] + parameters["b"])
    return jax.nn.softmax(y @ parameters["v"])


def test_eager_operations_are_seen_by_name_with_concrete_values() -> None:
    """Code that depends on values runs too, which tracing couldn't do."""
    x = of(2, 6)

    def run() -> Any:
        y = x @ PARAMETERS["w"]
        return jnp.tanh(y) if float(y.sum()) < 1e9 else y

    live = watched(run)
    assert kinds(live) == ["dot_general", "reduce_sum", "tanh"]
    assert live.target.startswith("jax")


def test_weights_in_a_dictionary_are_named() -> None:
    """And bare arrays are inputs; the name is that of the variable."""
    x = of(2, 6)
    values = watched(lambda: perceptron(PARAMETERS, x)).values
    named = {value.name: value.role for value in values if value.name}
    assert named["x"] == "input"
    assert named["PARAMETERS['w']"] == "weight"


def test_a_compiled_function_is_one_operation_at_least_and_agrees_with_its_equations() -> None:
    """Compiled against eager: the outputs are compared, whatever can be seen inside."""
    x = of(4, 6)
    compiled = jax.jit(perceptron)
    live = watched(lambda: compiled(PARAMETERS, x))
    assert "jit perceptron" in kinds(live)
    assert len(kinds(live)) > 1 or "jit perceptron" in live.note
    found = compared(lambda: perceptron(PARAMETERS, x), lambda: compiled(PARAMETERS, x))
    assert found.outputs[0].compared == 12
    assert found.outputs[0].unselected is Unselected.FREE


def test_a_program_that_cannot_be_looked_into_is_one_operation_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = import_module("probe.record.jax")  # probe.record is a function, too
    monkeypatch.setattr(module, "_gives_bits", lambda *_: False)
    x = of(4, 6)
    compiled = jax.jit(perceptron)
    live = watched(lambda: compiled(PARAMETERS, x))
    assert kinds(live) == ["jit perceptron"]
    assert "jit perceptron" in live.note


def test_a_sum_that_keeps_its_axes_is_that_sum() -> None:
    x = of(3, 4, 5)
    total = lambda x: jnp.sum(x, axis=1, keepdims=True)  # noqa: E731
    live = watched(lambda: total(x))
    (means,) = [one.meaning for one in live.operations if one.op == "reduce_sum"]
    assert isinstance(means, Reduces) and means.axes == (1,)
    found = compared(lambda: total(x), lambda: jax.jit(total)(x))
    assert [one.compared for one in found.outputs] == [15]


def test_what_prints_gives_nothing() -> None:
    """In a program that can't be looked into, too."""

    def run(x: Any) -> Any:
        jax.debug.callback(lambda one: None, x)
        return jnp.tanh(x) * 2

    x = of(3, 4)
    for function in (run, jax.jit(run)):
        assert len(watched(lambda f=function: f(x)).operations[-1].gives) == 1


def test_loops_and_branches_in_each_other_give_their_bits_step_by_step() -> None:
    """With a function called in several places, closed over arrays, and carries of several: of
    small whole numbers, so that no way to compile it gives different bits."""
    x, w, lines = (jnp.round(one) for one in (of(3, 4), of(4, 4), of(5, 3, 4)))
    inner = jax.jit(lambda a: jnp.minimum(jnp.maximum(a @ w, -9), 9))

    def turn(state: Any) -> Any:
        return state[0] + 1, lax.cond(state[0] > 1, lambda r: r * 2, inner, state[1])

    def branch(a: Any) -> Any:
        return lax.while_loop(lambda state: state[0] < 3, turn, (0, inner(a)))[1]

    def cell(carry: Any, line: Any) -> Any:
        state, count, kept = carry
        state = lax.cond(line[0, 0] > -9, branch, lambda a: a, state + line)
        return (state, count + 1, kept), (state * 2, count)

    def run() -> Any:
        return lax.scan(cell, (x, 0, w), lines, reverse=True)

    live = watched(run)
    assert kinds(live).count("dot_general") == 5 * 3 and kinds(live).count("concatenate") == 2


def test_double_precision_is_a_format_with_numbers() -> None:
    """float64 was once taken for bits that have no numbers, as float6 is, and all found equal."""
    rng = np.random.default_rng(8)
    with jax.enable_x64(True):
        x, w = (jax.numpy.asarray(rng.normal(size=shape)) for shape in ((7, 1001), (1001, 33)))
        found = compared(lambda: x @ w, lambda: x[:, ::-1] @ w[::-1])
        (output,) = found.outputs
        plain = int((np.asarray(x @ w) != np.asarray(x[:, ::-1] @ w[::-1])).sum())
    assert {value.dtype for value in found.left.values} == {"float64"}
    assert output.compared == 7 * 33 and output.differing == plain


def test_a_sum_of_products_inside_of_a_program_is_not_said_to_be_rounded_as_by_itself() -> None:
    """XLA may fuse both; the numbers are such that both ways have the same bits."""
    x = jnp.arange(8, dtype=jnp.float32)
    apart = record_run(JaxRecorder(lambda: x * x + x)).operations
    assert [one.meaning.exact for one in apart] == [True, True]
    inside = record_run(JaxRecorder(lambda: jax.jit(lambda x: -(x * 3) + x)(x))).operations
    found = {one.op: one.meaning.exact for one in inside}
    assert found["mul"] and found["neg"] and not found["add"]
    other = record_run(JaxRecorder(lambda: jax.jit(lambda x: (x + 3) * (x - 1))(x))).operations
    assert {one.op: one.meaning.exact for one in other}["add"]


def test_a_complex_product_in_a_program_is_no_single_rounding() -> None:
    z = jnp.arange(8) + 1j * jnp.arange(8)
    for function in (lambda z: z * z[::-1], jax.jit(lambda z: z * z)):
        last = record_run(JaxRecorder(lambda f=function: f(z))).operations[-1]
        assert not last.meaning.exact


# every row of JAX's table: what it says of a primitive is what JAX gives

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

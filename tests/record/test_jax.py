"""JAX runs, recorded: the same bits, the same operations, and what must agree in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from probe.diff.difference import Difference, compare_runs
from probe.diff.match import RunningMatch
from probe.order.semantics import Reduces
from probe.record.recording import Run, record_run

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
lax = jax.lax

from probe.record.jax import JaxRecorder  # noqa: E402

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
    assert found.outputs[0].known


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

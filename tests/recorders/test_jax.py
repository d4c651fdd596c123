"""JAX runs, recorded: the same bits, the same operations, and what must agree in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probe.agreement import RunningMatch
from probe.recording import folder, walk
from probe.recording.difference import Difference, compare_runs
from probe.recording.recording import Run, record_run
from probe.recording.related import related
from probe.semantics import Contracts, Reduces

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
lax = jax.lax

from probe.recorders.jax import JaxRecorder  # noqa: E402

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


def test_a_recording_on_disk_says_what_a_loop_computes(tmp_path: Path) -> None:
    """Step by step, as the run itself does."""
    x, w = of(3, 5, 4), of(4, 4)

    def run(x: Any) -> Any:
        def step(state: Any, line: Any) -> Any:
            state = jnp.tanh(state @ w + line)
            return state, state

        return lax.scan(step, jnp.zeros((x.shape[0], 4)), x.transpose(1, 0, 2))[1] * 2

    function, sides = jax.jit(run), []
    for rows in (1, 3):
        out = tmp_path / str(rows)
        folder.check_new_folder(out)
        live, notes = walk.watched(JaxRecorder(lambda y=x[:rows]: function(y)), "the run")
        folder.write_recording(live, out, "", folder.MOST, notes)
        sides.append(folder.read_recording(out))
    assert compare_runs(RunningMatch.of(*sides)).outputs[0].compared == 5 * 4


@pytest.mark.parametrize("rows", [2, 5])
def test_a_batch_is_compared_row_by_row(rows: int) -> None:
    """All that both runs have must agree, whatever the batch and though the slice is inside."""
    x = of(rows, 6)
    found = compared(lambda: perceptron(PARAMETERS, x[:1]), lambda: perceptron(PARAMETERS, x))
    assert not [one.op for one in found.operations if one.verdict == "unknown"]
    (output,) = found.outputs
    assert output.compared == 3 and output.known


def test_weights_in_a_dictionary_are_named() -> None:
    """And bare arrays are inputs; the name is that of the variable."""
    x = of(2, 6)
    values = watched(lambda: perceptron(PARAMETERS, x)).values
    named = {value.name: value.role for value in values if value.name}
    assert named["x"] == "input"
    assert named["PARAMETERS['w']"] == "weight"


def test_another_input_that_is_taken_for_a_weight_is_compared_all_the_same() -> None:
    """A role is a guess: inputs in a dictionary, one row against three."""
    x = of(3, 6)
    one, all_ = {"x": x[:1]}, {"x": x}
    found = compared(lambda: jnp.tanh(one["x"]) * 2, lambda: jnp.tanh(all_["x"]) * 2)
    assert found.outputs[0].compared == 6


def test_a_shuffled_batch_behind_vmap_is_no_other_weight() -> None:
    """There the weight comes first, and the input second."""
    w, x = of(5, 5), of(6, 5)
    function = jax.vmap(lambda row: jnp.tanh(w @ row))
    left, right = (watched(lambda y=y: function(y + 0)) for y in (x[::-1], x))
    assert not related(left, right)[0]
    direct = [watched(lambda y=y: function(np.asarray(y))) for y in (x[::-1], x)]
    assert not related(*(one for one in direct))[0]
    assert compare_runs(RunningMatch.of(*direct)).outputs[0].compared == 30


def attention(x: Any, mask: Any) -> Any:
    """Attention of two heads behind a mask."""
    heads = (x @ SQUARE).reshape(*x.shape[:2], 2, 2).transpose(0, 2, 1, 3)
    scores = heads @ heads.transpose(0, 1, 3, 2) / 2.0
    weights = jax.nn.softmax(jnp.where(mask[:, None, None, :], scores, -1e9))
    return (weights @ heads).transpose(0, 2, 1, 3).reshape(x.shape)


SQUARE = of(4, 4)


@pytest.mark.parametrize("jitted", [False, True])
def test_padding_behind_a_mask_must_not_matter(jitted: bool) -> None:
    """A sequence alone, and in a padded batch: its own positions are compared, all of them."""
    x, lengths = of(3, 6, 4), np.array([6, 4, 2])
    mask = jnp.asarray(np.arange(6) < lengths[:, None])
    function = jax.jit(attention) if jitted else attention
    alone, ones = x[1:2, :4], jnp.ones((1, 4), bool)
    found = compared(lambda: function(alone, ones), lambda: function(x, mask))
    assert found.outputs[0].compared == 4 * 4
    assert found.outputs[0].known


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
    """Its labels are those of its equations all the same."""
    import probe.recorders.jax as module

    monkeypatch.setattr(module, "_gives_bits", lambda *_: False)
    x = of(4, 6)
    compiled = jax.jit(perceptron)
    live = watched(lambda: compiled(PARAMETERS, x))
    assert kinds(live) == ["jit perceptron"]
    assert "jit perceptron" in live.note
    found = compared(lambda: compiled(PARAMETERS, x[:2]), lambda: compiled(PARAMETERS, x))
    assert found.outputs[0].compared == 6
    found = compared(lambda: perceptron(PARAMETERS, x), lambda: compiled(PARAMETERS, x))
    assert found.outputs[0].compared == 12


EINSUMS = (
    (lambda x, y: jnp.einsum("bhqk,bkhd->bqhd", x, y), (2, 3, 4, 5), (2, 5, 3, 6), (2, 4, 3, 6)),
    (lambda x, y: jnp.einsum("ij,kj->ki", x, y), (4, 5), (3, 5), (3, 4)),
    (lambda x, y: jnp.einsum("abc,cd->bda", x, y), (2, 3, 4), (4, 5), (3, 5, 2)),
)


@pytest.mark.parametrize("case", EINSUMS)
def test_an_einsum_is_one_product_whose_axes_were_renamed(case: Any) -> None:
    function, *shapes, gives = case
    given = [RANDOM.integers(-8, 8, shape).astype(np.float32) for shape in shapes]
    x, y = map(jnp.asarray, given)
    live = watched(lambda: function(x, y))
    means = [one.meaning for one in live.operations if one.op == "dot_general"]
    assert len(means) == 1 and isinstance(means[0], Contracts)
    first, second = (given[n] for n in means[0].reads)
    assert live.results[0].shape == gives
    assert (np.einsum(means[0].equation, first, second) == live.results[0]).all()
    found = compared(lambda: function(x, y), lambda: jax.jit(function)(x, y))
    assert [one.compared for one in found.outputs] == [np.prod(gives)]


def test_a_sum_that_keeps_its_axes_is_that_sum() -> None:
    x = of(3, 4, 5)
    total = lambda x: jnp.sum(x, axis=1, keepdims=True)  # noqa: E731
    live = watched(lambda: total(x))
    (means,) = [one.meaning for one in live.operations if one.op == "reduce_sum"]
    assert isinstance(means, Reduces) and means.keep and means.axes == (1,)
    found = compared(lambda: total(x), lambda: jax.jit(total)(x))
    assert [one.compared for one in found.outputs] == [15]


def test_loops_are_labelled_step_by_step() -> None:
    """The first steps of a scan do not depend on how many follow; the last state does."""
    x, w = of(2, 7, 4), of(4, 4)

    def run(x: Any) -> Any:
        def step(state: Any, line: Any) -> Any:
            state = jnp.tanh(state @ w + line)
            return state, state

        return lax.scan(step, jnp.zeros((x.shape[0], 4)), x.transpose(1, 0, 2))

    found = compared(lambda: run(x), lambda: run(x[:, :5]))
    last, lines = found.outputs
    assert (last.compared, lines.compared) == (0, 5 * 2 * 4)


def test_what_prints_gives_nothing() -> None:
    """In a program that can't be looked into, too."""

    def run(x: Any) -> Any:
        jax.debug.callback(lambda one: None, x)
        return jnp.tanh(x) * 2

    x = of(3, 4)
    for function in (run, jax.jit(run)):
        found = compared(lambda f=function: f(x[:1]), lambda f=function: f(x))
        assert found.outputs[0].compared == 4


def test_loops_that_count_are_followed() -> None:
    """A ``while`` whose condition is of integers alone, and one that numbers decide."""
    x = of(2, 7)

    def run(x: Any, count: int) -> Any:
        return lax.while_loop(
            lambda s: s[0] < count, lambda s: (s[0] + 1, jnp.tanh(s[1]) * 2), (0, x)
        )[1]

    found = compared(lambda: run(x, 4), lambda: run(x[:, :5], 4))
    assert found.outputs[0].compared == 2 * 5
    one = lambda: jnp.tanh(jnp.tanh(x) * 2) * 2  # noqa: E731
    assert compared(one, lambda: run(x, 2)).outputs[0].compared == 2 * 7
    assert not compared(one, lambda: run(x, 3)).outputs[0].compared


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


def test_a_loop_whose_end_floating_point_numbers_decide_is_followed_too() -> None:
    """As often as it ran, step by step: the same as the loop in Python."""
    x = of(2, 7)
    inside = jax.jit(
        lambda x: lax.while_loop(lambda s: jnp.abs(s).sum() < 99, lambda s: s * 1.1 + 0.3, x)
    )

    def by_hand() -> Any:
        state = x
        while jnp.abs(state).sum() < 99:
            state = state * 1.1 + 0.3
        return state

    found = compared(lambda: inside(x), by_hand)
    assert found.outputs[0].known and found.outputs[0].compared == 2 * 7


SOLVES = {
    "solve": lambda m, b: jnp.linalg.solve(m, b),
    "vmap": lambda m, b: jax.vmap(jnp.linalg.solve)(m, b[..., 0]),
    "triangular": lambda m, b: lax.linalg.triangular_solve(m, b, left_side=True, lower=True),
    "cholesky": lambda m, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(m), True), b),
    "tridiagonal": lambda m, b: lax.linalg.tridiagonal_solve(m[:, 0], m[:, 1], m[:, 2], b),
    "lu": lambda m, b: lax.linalg.lu(m)[0] + b[..., :1],
    "inverse": lambda m, b: jnp.linalg.inv(m) @ b,
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", SOLVES)
def test_a_stack_of_systems_is_compared_system_by_system(name: str, jitted: bool) -> None:
    """One system, and the last of a stack with others, of which all results are compared."""
    right, stack = of(4, 3, 2), of(4, 3, 3)
    stack = stack @ stack.transpose(0, 2, 1) + 3 * jnp.eye(3)
    function = jax.jit(SOLVES[name]) if jitted else SOLVES[name]
    found = compared(lambda: function(stack[2:3], right[2:3]), lambda: function(stack, right))
    (output,) = found.outputs
    assert output.known and output.compared == function(stack[:1], right[:1]).size
    assert not [one.op for one in found.operations if one.verdict == "unknown"]
    one, two = (lambda m=m: function(m, right) for m in (stack, stack.at[0].multiply(2)))
    assert compared(one, two).outputs[0].compared == 3 * output.compared


def test_a_solver_of_the_users_takes_its_stack_as_one_system() -> None:
    """Its steps go on until the last of the stack is solved."""
    right, stack = of(4, 3), of(4, 3, 3)
    stack = stack @ stack.transpose(0, 2, 1) + 3 * jnp.eye(3)
    solve = jax.vmap(lambda m, b: jax.scipy.sparse.linalg.cg(lambda x: m @ x, b)[0])
    assert compared(lambda: solve(stack, right), lambda: solve(stack, right)).outputs[0].known
    changed = compared(lambda: solve(stack, right), lambda: solve(stack, right.at[0].add(1)))
    assert not changed.outputs[0].compared


def test_values_that_are_only_moved_agree_where_they_went() -> None:
    """Gathers, dynamic slices, updates, padding, reversal: elements keep their labels."""
    x = of(5, 4)
    at = jnp.asarray([3, 1, 3])

    def run(x: Any) -> Any:
        y = x[at].at[0].set(7.0)
        y = lax.dynamic_update_slice(y, y[:1] * 2, (1, 0))
        y = jnp.pad(lax.rev(y, (1,)), ((0, 1), (2, 0)))
        return lax.dynamic_slice(y, (0, 1), (3, 5))

    longer = jnp.concatenate([x, of(2, 4)])
    found = compared(lambda: run(x), lambda: run(longer))
    assert found.agreement == "equal"
    assert found.outputs[0].compared == 15


@pytest.mark.parametrize(
    "words",
    [
        {"lhs_dilation": (2, 1)},
        {"lhs_dilation": (2, 2), "window_strides": (2, 1)},
        {"feature_group_count": 2},
        {"batch_group_count": 2},
        {"rhs_dilation": (2, 1)},
        {"dimension_numbers": ("NHWC", "OIHW", "NCHW")},
    ],
)
def test_every_convolution_has_the_windows_that_numbers_show(words: dict[str, Any]) -> None:
    """One input is changed: outputs whose labels stay must stay, and those that move must move."""
    given: dict[str, Any] = {
        "window_strides": (1, 1),
        "padding": [(1, 1), (0, 2)],
        "dimension_numbers": ("NHWC", "OIHW", "NHWC"),
        **words,
    }
    inside = 2 if words.get("feature_group_count") == 2 else 4
    x, w = jnp.abs(of(2, 6, 5, 4)) + 0.5, jnp.abs(of(4, inside, 3, 2)) + 0.5
    other = x.at[1, 2, 3, 1].add(1)
    convolved = partial(lax.conv_general_dilated, rhs=w, **given)
    found = compared(lambda: convolved(x), lambda: convolved(other))
    same = np.asarray(convolved(x) == convolved(other))
    assert not found.sources
    selection = found.outputs[0].selection
    agree = selection.mask(same.shape, 0)
    assert (agree == same).mean() > 0.5 and not (agree & ~same).any()
    assert agree.sum() >= 0.9 * same.sum()


def test_double_precision_is_a_format_with_numbers() -> None:
    """float64 was once taken for bits that have no numbers, as float6 is, and all found equal."""
    rng = np.random.default_rng(8)
    with jax.enable_x64(True):
        x, w = (jax.numpy.asarray(rng.normal(size=shape)) for shape in ((7, 1001), (1001, 33)))
        found = compare_runs(
            RunningMatch.of(
                record_run(JaxRecorder(lambda: x[:1] @ w)), record_run(JaxRecorder(lambda: x @ w))
            )
        )
        (output,) = found.outputs
        plain = int((np.asarray(x[:1] @ w) != np.asarray(x @ w)[:1]).sum())
    assert {value.dtype for value in found.left.values} == {"float64"}
    assert output.compared == 33 and output.differing == plain


def test_a_second_recording_says_what_a_first_one_would() -> None:
    state = {"index": jnp.asarray([0, 2]), "factor": 2.0, "x": of(4, 3)}

    def run() -> Any:
        return (jnp.tanh(state["x"])[state["index"]] * state["factor"]).reshape(-1)

    kept = JaxRecorder(run)
    record_run(kept)
    state |= {"index": jnp.asarray([3, 3]), "factor": -0.5, "x": of(4, 3)}
    again, fresh = record_run(kept), record_run(JaxRecorder(run))
    assert [one.digest for one in again.values] == [one.digest for one in fresh.values]
    for one, other in zip(again.operations, fresh.operations, strict=True):
        assert (one.name, one.op, one.reads, one.gives) == (
            *(other.name, other.op, other.reads, other.gives),
        )
        assert one.attributes.keys() == other.attributes.keys()
        assert type(one.meaning) is type(other.meaning)
    assert kept.said  # something was said once for both


def test_a_sum_of_products_inside_of_a_program_is_not_said_to_be_rounded_as_by_itself() -> None:
    """XLA may fuse both; the numbers are such that both ways have the same bits."""
    x = jnp.arange(8, dtype=jnp.float32)
    apart = record_run(JaxRecorder(lambda: x * x + x)).operations
    assert [one.meaning.rounds for one in apart] == [1, 1]
    inside = record_run(JaxRecorder(lambda: jax.jit(lambda x: -(x * 3) + x)(x))).operations
    found = {one.op: one.meaning.rounds for one in inside}
    assert found["mul"] == 1 and found["neg"] == 0 and found["add"] is None
    other = record_run(JaxRecorder(lambda: jax.jit(lambda x: (x + 3) * (x - 1))(x))).operations
    assert {one.op: one.meaning.rounds for one in other}["add"] == 1


def test_a_complex_product_in_a_program_is_no_single_rounding() -> None:
    z = jnp.arange(8) + 1j * jnp.arange(8)
    for function in (lambda z: z * z[::-1], jax.jit(lambda z: z * z)):
        last = record_run(JaxRecorder(lambda f=function: f(z))).operations[-1]
        assert last.meaning.rounds is None

"""Programs of JAX: equations alone and written, formats, and what is unlike in two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy
lax = jax.lax

from probe.record.jax import JaxRecorder  # noqa: E402
from probe.record.jax_programs import bits_in, constants  # noqa: E402
from tests.record.recorded import alone  # noqa: E402
from tests.record.test_jax import compared, of, quickly, watched  # noqa: E402, F401

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_every_operation_alone_gives_what_was_recorded_and_so_do_its_lines() -> None:
    """``again``, and the text that a user would write."""
    x, k = of(2, 9, 9, 3), of(3, 3, 3, 4)

    def run() -> Any:
        y = lax.conv_general_dilated(
            x, k, (2, 1), [(1, 1), (0, 2)], dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = jax.nn.relu(y - y.mean((1, 2), keepdims=True))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        y = jnp.concatenate([y, y[..., ::-1] ** 3], -1).reshape(2, -1)
        return jnp.cumsum(jnp.where(y > 0, y, 0.5), axis=1).astype(jnp.bfloat16)

    assert len(proved(run)) > 8


def proved(run: Callable[[], Any]) -> set[str]:
    """The operations of a function whose lines, and the operations alone, give what it gave."""

    def operand(array: np.ndarray, dtype: str) -> Any:
        return jnp.asarray(array.view(jnp.bfloat16) if dtype == "bfloat16" else array)

    return {*alone(JaxRecorder(run), operand, bits_in)[1]}


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_arrays_that_a_compiled_function_closed_over_are_constants_of_any_kind(kind: Any) -> None:
    """NumPy's have a ``val``, as literals do, and were taken for these: then nothing was known."""
    w, x = kind(of(4, 4)), of(6, 4)
    program = jax.jit(lambda x: lax.scan(lambda h, line: (jnp.tanh(h @ w + line),) * 2, x[0], x)[1])
    (held,) = constants(jax.make_jaxpr(program)(x).eqns[0].params)
    assert np.array_equal(held, w)
    assert watched(lambda: program(x)).operations


def test_what_a_function_of_its_name_gives_is_written_with_its_own_parameters() -> None:
    """Without a row for any of these: several results, indices, systems, windows, numbers."""
    x, m, w, key = of(4, 6), of(4, 3, 3), of(2, 3, 5), jax.random.key(0)
    numbers = lax.ConvDimensionNumbers((0, 2, 1), (2, 1, 0), (0, 2, 1))

    def run() -> Any:
        spread = m @ m.transpose(0, 2, 1) + 3 * jnp.eye(3)
        y = lax.conv_general_dilated(m, w, (1,), "SAME", dimension_numbers=numbers)
        return [
            *lax.sort([x, x + 1], dimension=1), *lax.top_k(x, 2), *lax.split(x, (2, 4), 1), y,
            x[jnp.asarray([1, 0])], x.at[:, 1].set(2.0), x.at[:, jnp.asarray([1, 1])].add(1.0),
            *lax.linalg.lu(m), *lax.linalg.qr(m), lax.clamp(-0.5, x, 0.5), jnp.fft.fft(x),
            lax.linalg.triangular_solve(spread, m, left_side=True), lax.rsqrt(x * x + 1),
            lax.reduce_window(x, jnp.inf, lax.min, (1, 2), (1, 2), "SAME"), jnp.argmax(x, 1),
            lax.dynamic_slice(x, (1, 2), (2, 2)), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
            jax.random.bits(key, (3,)),
        ]  # fmt: skip

    wanted = "sort top_k split gather scatter scatter-add lu qr clamp fft triangular_solve rsqrt "
    wanted += "reduce_window_min argmax dynamic_slice round conv_general_dilated"
    assert {*wanted.split()} <= proved(run)


def test_shared_arrays_and_formats_travel_as_containers() -> None:
    """bfloat16 as uint16, random keys as their data."""
    x = of(3, 3).astype(jnp.bfloat16)
    live = watched(lambda: (x @ x, jax.random.key(0)))
    assert live.results[0].dtype == np.uint16
    (first, *_) = live.operations
    assert live.values[first.gives[0]].dtype == "bfloat16"


def test_parameters_of_one_operation_that_differ_are_arguments() -> None:
    x = of(6, 20)
    (first,) = compared(lambda: jnp.cumsum(x, 0), lambda: jnp.cumsum(x, 1)).sources
    assert first.arguments == "axis 0 against 1"
    assert not compared(lambda: jax.jit(jnp.exp)(x), lambda: jax.jit(jnp.exp)(x)).sources

"""Functions that libraries also compute in steps: the steps give the function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe import floats
from probe.semantics.elementwise import COMPOSITES, of_number
from probe.semantics.labels import of_content

X = np.linspace(0.05, 4, 40)
"""Above zero, where all of them are defined; below it as well where they are."""
POSITIVE = {"rsqrt"}

STEPS: dict[str, Callable[..., Any]] = {
    "multiply": np.multiply,
    "add": np.add,
    "divide": np.divide,
    "negative": np.negative,
    "absolute": np.abs,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "power": np.power,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erfc": np.vectorize(math.erfc),
    "relu6": lambda x: np.clip(x, 0, 6),
}

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "square": np.square,
    "rsqrt": lambda x: x**-0.5,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}


def computed(word: str, numbers: Any, *given: Any) -> Any:
    """What a step gives, which may be made of steps itself; a float is a number."""
    if (word, numbers) not in COMPOSITES:
        assert not numbers
        return STEPS[word](*given)
    values = list(given)
    for inner, more, reads in COMPOSITES[word, numbers]:
        values.append(computed(inner, more, *(values[n] if type(n) is int else n for n in reads)))
    return values[-1]


@pytest.mark.parametrize("key", COMPOSITES, ids=lambda key: key[0])
def test_the_steps_of_a_function_give_it(key: tuple[str, Any]) -> None:
    x = X if key[0] in POSITIVE else np.concatenate([-X[::-1], X])
    assert np.allclose(computed(*key, x), FUNCTIONS[key[0]](x), rtol=1e-12, atol=1e-14)


def test_every_function_is_tried() -> None:
    assert {word for word, _ in COMPOSITES} == set(FUNCTIONS)


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("value", [1.5, -2.0, 0.0, 0.15625])
def test_a_number_has_the_label_of_the_array_that_holds_it(value: float, dtype: str) -> None:
    held = floats.round_to(np.array([value]), dtype)
    assert of_number(value, dtype) == of_content(held).array[0]
    assert of_number(value, dtype) != of_number(value + 1, dtype)

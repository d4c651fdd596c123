"""Functions that libraries also compute in steps: the steps give the function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe import floats
from probe.semantics import elementwise
from probe.semantics import operations as o
from probe.semantics.elementwise import (
    COMPOSITES,
    Chooses,
    Holds,
    Made,
    Vanishes,
    applied,
    canonical,
    fitted,
    of_complex,
    of_number,
    row_of,
)
from probe.semantics.labels import of_content, of_digest, tag
from tests.semantics.formulas import POOL, one_to_one, result

X = np.linspace(0.05, 4, 40)
"""Above zero, where all of them are defined; below it as well where they are."""
POSITIVE = {"rsqrt", "log2"}
SPECIAL = np.array([np.inf, -np.inf, np.nan])

STEPS: dict[str, Callable[..., Any]] = {
    "multiply": np.multiply,
    "add": np.add,
    **{name: getattr(np, name) for name in ("divide", "subtract", "equal", "not_equal")},
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
    **{name: getattr(np, name) for name in ("square", "log2", "isnan", "isinf", "isfinite")},
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
    more = SPECIAL if key[0].startswith("is") else -X[::-1]
    x = X if key[0] in POSITIVE else np.concatenate([more, X])
    with np.errstate(invalid="ignore"):
        steps = computed(*key, x)
    assert np.allclose(steps, FUNCTIONS[key[0]](x), rtol=1e-12, atol=1e-14)


def test_every_function_is_tried() -> None:
    assert {word for word, _ in COMPOSITES} == set(FUNCTIONS)


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("value", [1.5, -2.0, 0.0, 0.15625])
def test_a_number_has_the_label_of_the_array_that_holds_it(value: float, dtype: str) -> None:
    held = floats.round_to(np.array([value]), dtype)
    assert of_number(value, dtype) == of_content(held).array[0]
    assert of_number(value, dtype) != of_number(value + 1, dtype)


def test_what_is_said_of_functions_is_so_of_numpys() -> None:
    """In float16: what rounds nothing is exact there, and what rounds once is float64's rounded."""
    rng, tried = np.random.default_rng(8), []
    halves = (rng.normal(size=(2, 300)) * 9).astype(np.float16)
    for name, row in elementwise.FUNCTIONS.items():
        ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc) or ufunc.nin > 2 or name == "nextafter":
            continue
        given = halves.astype(int) if "bitwise" in name or "shift" in name else halves
        given = np.abs(given) if "shift" in name else given
        with np.errstate(all="ignore"):
            one, wide = (
                ufunc(*some[: ufunc.nin])
                for some in (given, given.astype("f8" if given.dtype.kind == "f" else int))
            )
            exact = np.array_equal(one, wide, equal_nan=True)
            assert row.rounds != 0 or exact, name
            assert row.rounds != 1 or (
                not exact and np.array_equal(one, wide.astype(np.float16), True)
            ), name
            if ufunc.nin == 2:
                assert row.commutes == np.array_equal(one, ufunc(*given[::-1]), True), name
                assert row.zero != "adds" or np.array_equal(ufunc(given[0], given[0] * 0), given[0])
                assert row.zero != "clears" or not ufunc(given[0] * 0, given[1]).any()
            elif one.dtype != bool:
                assert row.keeps_zero == (ufunc(given.dtype.type(0)) == 0), name
        tried.append(row)
    assert {0, 1, None} <= {row.rounds for row in tried} and len(tried) > 40
    one, two = halves
    twice, once = np.square(one - two), np.square(one.astype(float) - two).astype(np.float16)
    assert row_of("squared_difference").rounds == 2 and (twice != once).any()
    every = elementwise.FUNCTIONS.items()
    zeros = {"clamp", "max", "min", "maximum", "minimum", "fmax", "fmin"}
    assert {name for name, row in every if row.either} == zeros
    assert {name for name, row in every if row.sloped} == {"leaky_relu"}
    assert row_of("nonsense") == (False, None, False, "", False, False)
    assert canonical("abs") == "absolute"


ONE: dict[Any, Callable[..., Any]] = {
    **{o.function(word): STEPS[word] for word in ("sigmoid", "tanh", "erfc", "negative", "sqrt")},
    **{o.function(word): FUNCTIONS[word] for word in ("square", "rsqrt", "gelu", "gelu_tanh")},
    **{o.function(word): FUNCTIONS[word] for word in ("silu", "softplus", "softsign", "mish")},
    o.function("exp"): np.exp,
    o.hard_sigmoid(): FUNCTIONS["hard_sigmoid"],
    o.leaky_relu(0.25): lambda a: np.where(a > 0, a, a / 4),
    o.beside("multiply", 0, 2.5, "float32"): lambda a: 2.5 * a,
    o.beside("subtract", 0, 2.5, "float32"): lambda a: 2.5 - a,
    o.beside("subtract", 1, 2.5, "float32"): lambda a: a - 2.5,
    o.beside("divide", 0, 2.5, "float32"): lambda a: 2.5 / a,
    o.beside("divide", 1, 2.5, "float32"): lambda a: a / 2.5,
    o.beside("power", 1, 3.0, "float32"): lambda a: a**3,
}
TWO: dict[Any, Callable[..., Any]] = {
    **{o.function(word): STEPS[word] for word in ("add", "multiply", "divide", "power")},
    **{o.function(word): getattr(np, word) for word in ("subtract", "hypot", "arctan2")},
    o.function("squared_difference"): lambda a, b: (a - b) ** 2,
    o.function("add", reads=(1, 0)): lambda a, b: b + a,
    o.function("subtract", reads=(1, 0)): lambda a, b: b - a,
    o.function("subtract", reads=(1,), along=0): lambda _, b: b,
}


@np.errstate(divide="ignore")
def test_a_function_is_said_to_keep_zero_where_it_does() -> None:
    for meaning, function in ONE.items():
        keeps = function(np.zeros(1))[0] == 0 and meaning.word != "power"  # whose zero depends
        assert (meaning.zero != "") == keeps, meaning


def test_functions_of_elements_have_equal_labels_where_they_are_equal() -> None:
    """Also of operands that broadcast; the first may be zero."""
    rng = np.random.default_rng(9)
    shapes = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((3,), ()), ((), (2, 2))]
    for count, every in ((1, ONE), (2, TWO)):
        for meaning, function in every.items():
            pairs = []
            for first, second in shapes * 3:
                a = rng.choice(np.abs(POOL)[meaning.zero == "" :], first)
                given = [a, rng.choice(np.float32([0.717, 0.31, 0.577]), second)][:count]
                wanted = function(*(one.astype(float) for one in given))
                pairs.append((result(meaning, *given, to=wanted.shape), wanted))
            one_to_one(pairs, meaning.word != "squared_difference")


def test_a_step_has_the_labels_of_the_function_that_a_table_has() -> None:
    """Of every function there is, whichever operand is zero."""
    both = [of_content(np.float32(one)) for one in ([1.5, 0, 2], [0.5, 3, 0])]
    for word, row in elementwise.FUNCTIONS.items():
        reads = both[: 1 if row.keeps_zero or (word, ()) in COMPOSITES else 2]
        wanted = result(o.function(word), *reads)
        assert np.array_equal(applied(word, *reads).array, wanted.array), word


def test_operands_lie_along_the_axis_that_is_said() -> None:
    x, line = (of_content(np.random.default_rng(1).normal(size=n)) for n in ((2, 3, 3), 3))
    for along, shape in ((1, (3, 1)), (2, (3,)), (-1, (3,)), (-2, (3, 1)), (None, (3,))):
        found = result(o.function("subtract", along=along), x, line)
        laid = line._replace(shape=shape, array=line.array.reshape(shape))
        assert np.array_equal(found.array, result(o.function("subtract"), x, laid).array)


def test_a_squared_difference_from_a_mean_is_the_square_of_what_is_left() -> None:
    x, mean = X.reshape(8, 5), X[:8, None]
    wanted = result(o.function("square"), result(o.function("subtract"), x, mean))
    for both in ((x, mean), (mean, x)):
        found = result(o.function("squared_difference"), *both, to=(8, 5))
        assert np.array_equal(found.array, wanted.array)


def test_choices_and_numbers_have_the_labels_of_what_they_give() -> None:
    mask, yes, no = np.array([True, False, True]), *np.float32([[1, 2, 0], [3, 0, 4]])
    reads = [*map(of_content, (mask, yes, no))]
    operands = mask, yes, no, np.float32(7)
    for which in ((0, 1, 2), (0, 2, 1), (0, -1, 2), (0, 1, -1)):
        found = result(Chooses(which, 7.0), *reads)
        wanted = np.where(*(operands[n] for n in which))
        assert np.array_equal(found.array, of_content(wanted).array) and found.known
    unknown = result(Chooses(), np.int8([2, 3, 2]), *reads[1:])
    assert len(np.unique([*unknown.array, *reads[1].array, *reads[2].array])) == 8
    half = result(Made(1.5), to=(2, 2)).full()
    assert np.array_equal(half, of_content(np.full((2, 2), np.float32(1.5))).array)
    sizes = [(value, to) for value in (0, 1) for to in ((3,), (4,))]
    places = [result(Made(value, places=True), to=to).full() for value, to in sizes]
    assert len(np.unique(np.concatenate(places))) == 14
    assert all(one.known for one in Made(0, places=True).labels([], [(3,), (4,)], tag("m")))
    assert np.array_equal(result(Holds(yes), to=(3,)).array, reads[1].array)


def test_how_often_a_function_rounds_depends_on_its_numbers_and_the_library() -> None:
    every = o.function("add"), o.function("add", alpha=2), o.leaky_relu(0.1), o.approximate("sqrt")
    assert [one.rounds for one in every] == [1, None, 1, None]
    assert [one.exact for one in every] == [True, False, True, False]
    words = (o.approximate("relu"), o.function("relu"), o.approximate("sqrt"))
    assert [one.exact_but_subnormal for one in words] == [True, False, False]
    names = "add", "multiply", "absolute", "negative", "exp"
    made = [of_complex(o.function(word)) for word in names]
    called = ["add", "complex multiply", "complex absolute", "negative", "exp"]
    assert [one.word for one in made] == called
    assert made[1].zero == "" and of_complex(Holds(X)) is not None


def test_what_a_function_gives_is_fitted_to_the_shapes_of_its_results() -> None:
    """Broadcast, reshaped, each further one with labels of its own; else as one for all."""
    x = of_content(np.float32([[1, 0, 3]]))
    shapes = (1, 3), (2, 2, 3), (3,), (0, 3), (2, 5)
    same, wide, flat, none, other = (fitted(x, to, 0) for to in shapes)
    assert same is x and np.array_equal(wide.full(), np.broadcast_to(x.array, (2, 2, 3)))
    assert flat.full().tolist() == x.array[0].tolist() and none.array.shape == (0, 3)
    assert len(np.unique(other.full())) == 10
    first, second = (fitted(x, (1, 3), n).array for n in (1, 2))
    assert first[0, 1] == 0 == second[0, 1] and len(np.unique([first, second, x.array])) == 7
    left_out = fitted(of_digest((3,), "w"), (2, 3), 0)
    assert left_out.implicit(1) and np.array_equal(left_out.full()[1], of_digest((3,), "w").full())
    hidden = Vanishes("exp").labels([x], [(1, 3)], tag("exp"), np.array([[True, False, False]]))[0]
    plain = Vanishes("exp").labels([x], [(1, 3)], tag("exp"))[0]
    assert hidden.array.tolist() == [[0, *plain.array[0, 1:].tolist()]] and plain.array.all()
    vanished = Vanishes("exp").noticed([], [lambda: np.array([0.0, 1])])
    assert vanished is not None and vanished.tolist() == [True, False]
    assert Vanishes("exp").noticed([], [lambda: np.ones(2)]) is None

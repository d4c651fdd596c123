"""Draws pairs of functions whose difference is known by how they are made, and asks for the cause.

Of NumPy functions the kernels are ours: sums in a given order with a given rounding, functions with
a vector loop and a remainder, two formulas. Of libraries the arguments are ours: an epsilon, a
slope, a factor, or none that matters. What ``first_difference`` answers is held against what was
planted. It is right, unknown, or false; and a direct call of both functions says whether any
difference was missed or invented.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from lib.answering import Answer, InProcesses, answer_each
from probe.case import ulp
from probe.order.replay import replay
from probe.order.summation import EVERY, Rounding, Summation
from probe.order.tree import Tree
from probe.sweep.campaign import CampaignPart, Row
from probe.targets import machine

NOTHING = "nothing"
"""What is planted where both sides give the same bits."""

AT_ONCE = 40
"""Pairs that one process is asked about."""


@dataclass(frozen=True)
class Double:
    """A pair of functions. ``planted``: causes, joined by ``+``, that are right together;
    ``title``: what was done, in words; ``inputs``: arrays that both take, None: they take none.
    """

    title: str
    planted: str
    left: Callable[..., Any]
    right: Callable[..., Any]
    inputs: Sequence[np.ndarray] | None = None

    def plain(self) -> tuple[np.ndarray, np.ndarray]:
        """What both give when they are called directly."""
        given = () if self.inputs is None else tuple(self.inputs)
        left, right = (np.asarray(one(*given)) for one in (self.left, self.right))
        return left, right


Draw = Callable[[random.Random], Double]
PLANTED: dict[str, list[Draw]] = {}
"""By target: what draws a pair."""


def plants(target: str) -> Callable[[Draw], Draw]:
    """Enters a function that draws pairs for a target."""

    def enter(draw: Draw) -> Draw:
        PLANTED.setdefault(target, []).append(draw)
        return draw

    return enter


def drawn(target: str, number: int, seed: int) -> Double:
    """One pair: the same for a seed; kinds take turns."""
    some = PLANTED[target]
    return some[number % len(some)](random.Random(f"{seed} {target} {number}"))


def _array(rng: random.Random, *shape: int) -> np.ndarray:
    made = np.random.default_rng(rng.randrange(1 << 30))
    return made.standard_normal(shape).astype(np.float32)


# ---- NumPy: kernels of our own ----


def _product(summation: Summation) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A matrix product, (rows, k) by (k, filters), whose sums are all this one."""

    def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        rows, filters = len(x), w.shape[1]
        every = np.repeat(x.T, filters, axis=1), np.tile(w, (1, rows))
        return replay(summation, *every, "float32").reshape(rows, filters)

    return product


def _operation(name: str, meaning: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    found = import_module("probe.record.ndarray").operation(name, meaning)(function)
    assert callable(found)
    return found


def _sums(planted: str) -> Draw:
    """Products whose kernel changes with the number of rows, in one way."""

    def draw(rng: random.Random) -> Double:
        from probe.order.semantics import Contracts

        n, scale = rng.randint(9, 40), np.float32(1)
        trees = [Tree.sequential(n), Tree.pairwise(n), Tree.lanes(n, 4), Tree.lanes(n, 8)]
        tree, unlike = rng.sample(trees[: 3 if planted == "order" else 4], 2)
        plain = Rounding(accumulator_format="float32")
        short = rng.choice(("bfloat16", "tf32"))
        changed = {
            "order": Summation(unlike, plain),
            "rounding": Summation(tree, Rounding.fused_everywhere(tree, "float32")),
            "precision": Summation(tree, replace(plain, operand_format=short)),
            "flush": Summation(tree, replace(plain, flushed_inputs=frozenset({EVERY}))),
        }[planted]
        sides: tuple[Summation, ...] = (Summation(tree, plain), changed)
        if planted == "flush":  # rows of tiny inputs, some of them subnormal
            scale = np.float32(2e-38)
        elif planted != "order":
            sides = tuple(rng.sample(sides, 2))
        x, w = _array(rng, rng.randint(5, 12), n) * scale, _array(rng, n, rng.randint(2, 6))
        rows = rng.randint(1, 3)

        def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            return _product(sides[0 if len(x) <= rows else 1])(x, w)

        called = _operation("product", Contracts("mk,kn->mn"), product)
        title = f"sums of {n}: another {planted} on a side"
        return Double(title, planted, lambda x, w: called(x[:rows], w), called, (x, w))

    return draw


for _kind in ("order", "rounding", "precision", "flush"):
    plants("numpy")(_sums(_kind))


FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def _seam(name: str, width: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function in vectors of a width, whose remainder is rounded differently: where the last bits
    of its input say so, as where a polynomial of another degree rounds."""

    def function(x: np.ndarray) -> np.ndarray:
        y = FORMULAS[name](np.asarray(x, np.float64)).astype(np.float32)
        flat, given = y.reshape(-1), np.ascontiguousarray(x).reshape(-1).view(np.uint32)
        start = flat.size // width * width
        tail = flat[start:]
        above = np.nextafter(tail, np.float32(np.inf))
        flat[start:] = np.where(given[start:] % 3 != 0, above, tail)
        return y

    return function


def _function(
    rng: random.Random, title: str, planted: str, left: Any, right: Any, rows: bool
) -> Double:
    """Two functions, of a few rows and of all, or of the same."""
    from probe.order.semantics import Each

    x = _array(rng, rng.randint(4, 8), rng.randint(9, 40))
    few = rng.randint(1, 3) if rows else len(x)
    one, two = (_operation("function", Each("function"), each) for each in (left, right))
    return Double(title, planted, lambda x: one(x[:few]), lambda x: two(x), (x,))


@plants("numpy")
def _place(rng: random.Random) -> Double:
    name, width = rng.choice(list(FORMULAS)), rng.choice((4, 8, 16))
    function = _seam(name, width)
    return _function(rng, f"{name} in vectors of {width}", "place", function, function, True)


@plants("numpy")
def _formula(rng: random.Random) -> Double:
    """Another formula, though both have a remainder that rounds differently."""
    name, width = rng.choice(list(FORMULAS)), rng.choice((4, 8, 16))
    factor = np.float32(1 + rng.choice((1e-6, 1e-5, 3e-5)))
    one, two = _seam(name, width), _seam(name, width)
    both = [one, lambda x: two(x) * factor]
    rng.shuffle(both)
    title = f"{name} in vectors of {width}, of two formulas"
    return _function(rng, title, "algorithm", both[0], both[1], rng.random() < 0.5)


@plants("numpy")
def _few_of_formula(rng: random.Random) -> Double:
    """A seam explains most differing outputs, and another formula the rest."""
    name, width = rng.choice(list(FORMULAS)), rng.choice((4, 8))
    one = _seam(name, width)

    def two(x: np.ndarray) -> np.ndarray:
        y = one(x)
        third = np.ascontiguousarray(x).view(np.uint32) % 4 == 0
        return np.where(third, y * np.float32(1 + 2e-6), y)

    title = f"{name} in vectors of {width}, of another formula for a quarter of the numbers"
    return _function(rng, title, "algorithm", one, two, True)


NUMPY_ARGUMENTS: list[tuple[str, Callable[[float], Callable[[Any], Any]]]] = [
    ("a factor", lambda a: lambda x: x * a),
    ("a float32 factor", lambda a: lambda x: x * np.float32(a)),
    ("a bound", lambda a: lambda x: np.clip(x, -a, a)),
    ("an epsilon", lambda a: lambda x: x / np.sqrt(x.var(1, keepdims=True) + a)),
]


@plants("numpy")
def _numpy_argument(rng: random.Random) -> Double:
    what, made = rng.choice(NUMPY_ARGUMENTS)
    a, b = _two(rng)
    x = _array(rng, rng.randint(2, 9), rng.randint(5, 50))
    return Double(f"{what}: {a} against {b}", "argument", made(a), made(b), (x,))


@plants("numpy")
def _numpy_harmless(rng: random.Random) -> Double:
    a, b = rng.sample([50.0, 60.0, 90.0], 2)
    x = _array(rng, rng.randint(2, 9), rng.randint(5, 50))
    clipped = lambda a: lambda x: np.tanh(np.clip(x, -a, a))  # noqa: E731
    return Double(
        f"bounds that nothing reaches: {a} and {b}", NOTHING, clipped(a), clipped(b), (x,)
    )


def _two(rng: random.Random) -> tuple[float, float]:
    a, b = rng.sample([0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9, 1e-5, 1e-3, 1e-2], 2)
    return a, b


# ---- libraries: arguments of ours ----


def _torch() -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Functions of a number, pairs of spellings, and what makes arrays."""
    import torch
    from torch.nn import functional as f

    of_number = {
        "leaky_relu, slope": lambda a: lambda x: f.leaky_relu(x, a),
        "softplus, beta": lambda a: lambda x: f.softplus(x, 1 + a),
        "layer_norm, eps": lambda a: lambda x: f.layer_norm(x, x.shape[-1:], eps=a),
        "a factor": lambda a: lambda x: torch.tanh(x) * a,
        "a summand": lambda a: lambda x: torch.sigmoid(x + a),
        "pow, exponent": lambda a: lambda x: x.abs() ** (1 + a),
        "add, alpha": lambda a: lambda x: torch.add(x, x.abs(), alpha=a),
        "masked_fill, value": lambda a: lambda x: x.masked_fill(x > 0, a),
    }
    twos = {
        "gelu, approximate": (f.gelu, lambda x: f.gelu(x, approximate="tanh")),
        "softmax, dim": (lambda x: f.softmax(x, 0), lambda x: f.softmax(x, 1)),
        "var, correction": (lambda x: x.var(1, correction=0), lambda x: x.var(1, correction=1)),
    }
    return of_number, twos, torch.from_numpy


def _jax() -> tuple[dict[str, Any], dict[str, Any], Any]:
    import jax
    import jax.numpy as jnp

    of_number = {
        "leaky_relu, slope": lambda a: lambda x: jax.nn.leaky_relu(x, a),
        "a factor": lambda a: lambda x: jnp.tanh(x) * a,
        "standardize, epsilon": lambda a: lambda x: jax.nn.standardize(x, epsilon=a),
        "a factor under jit": lambda a: jax.jit(lambda x: jnp.tanh(x) * a + x),
    }
    twos = {
        "cumsum, axis": (lambda x: jnp.cumsum(x, 0), lambda x: jnp.cumsum(x, 1)),
    }
    return of_number, twos, jnp.asarray


def _tensorflow() -> tuple[dict[str, Any], dict[str, Any], Any]:
    import keras
    import tensorflow as tf

    def normed(epsilon: float) -> Any:
        layer = keras.layers.LayerNormalization(epsilon=epsilon)
        layer.build((None, 24))  # at its first call, which is not recorded
        return layer

    of_number = {
        "leaky_relu, alpha": lambda a: lambda x: tf.nn.leaky_relu(x, a),
        "a factor": lambda a: lambda x: tf.tanh(x) * a,
        "a summand": lambda a: lambda x: tf.exp(x + a),
        "LayerNormalization, epsilon": normed,
        "leaky_relu in a graph": lambda a: tf.function(
            lambda x: tf.nn.leaky_relu(x, a), autograph=False
        ),
    }
    twos = {
        "cumsum, axis": (lambda x: tf.cumsum(x, 0), lambda x: tf.cumsum(x, 1)),
    }
    return of_number, twos, tf.constant


LIBRARIES = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}


def _of_number(target: str) -> Draw:
    def draw(rng: random.Random) -> Double:
        of_number, twos, array = LIBRARIES[target]()
        name = rng.choice([*of_number, *twos])
        x = array(_array(rng, rng.randint(2, 9), 24))
        if name in twos:
            one, two = twos[name]
            return Double(name, "argument", lambda: one(x), lambda: two(x))
        a, b = _two(rng)
        one, two = of_number[name](a), of_number[name](b)
        return Double(f"{name}: {a} against {b}", "argument", lambda: one(x), lambda: two(x))

    return draw


def _same(target: str) -> Draw:
    """The same argument: rows of a batch may differ, by their order or place."""

    def draw(rng: random.Random) -> Double:
        of_number, _, array = LIBRARIES[target]()
        name, (a, _) = rng.choice(list(of_number)), _two(rng)
        x, rows = array(_array(rng, rng.randint(4, 9), 24)), rng.randint(1, 3)
        one = of_number[name](a)
        title = f"{name}: {a} on both sides, of {rows} rows and of all"
        return Double(title, "order+rounding+place", lambda: one(x[:rows]), lambda: one(x))

    return draw


for _target in LIBRARIES:
    for _draw in (_of_number(_target), _of_number(_target), _same(_target)):
        plants(_target)(_draw)


@plants("torch")
def _harmless_beside_a_place(rng: random.Random) -> Double:
    """An argument that changes nothing, and operands that lie differently in memory."""
    import torch
    from torch.nn import functional as f

    x = torch.from_numpy(_array(rng, rng.randint(20, 60), rng.randint(3, 9)))
    a, b = rng.sample([20.0, 30.0, 40.0], 2)
    title = f"softplus with thresholds {a} and {b} that nothing reaches, in two layouts"
    return Double(
        *(title, "place"),
        lambda: f.softplus(x.t(), threshold=a),
        lambda: f.softplus(x.t().contiguous(), threshold=b),
    )


def judged(double: Double) -> Row:
    """Columns of ``planted``: what was planted, what is answered, and what direct calls give.

    Only words that were planted are right. The same bits and no cause are right where nothing
    was; a cause that was not planted, or a difference that no direct call shows, is false.
    """
    from probe.ui.answers.first_difference import first_difference

    left, right = double.plain()
    right = right[: len(left)] if right.shape != left.shape else right
    direct = int(ulp.bits_apart(left, right, "float32").sum())
    inputs = None if double.inputs is None else list(double.inputs)
    found = first_difference(double.left, double.right, inputs=inputs)
    first = found.found.first
    cause = first.cause if first is not None else ""
    outputs = found.found.outputs
    differing = sum(one.differing for one in outputs)
    known = found.found.agreement != "unknown"
    told = found.found.causes.get(found.found.operations.index(first)) if first else None
    return {
        "title": double.title,
        "planted": double.planted if direct else NOTHING,
        "verdict": found.verdict,
        "cause": cause or None,
        "arguments": (first.arguments or None) if first is not None else None,
        "direct": direct,
        "differing": differing if known else None,
        "answer": _answer(double.planted, cause, direct, differing if known else None),
        "why": machine.publishable(told.why) if told is not None else None,
    }


def _answer(planted: str, cause: str, direct: int, differing: int | None) -> str:
    """Returns ``right``, ``unknown`` or ``false``."""
    if differing is None:
        return "unknown" if not cause or set(cause.split("+")) <= {*planted.split("+")} else "false"
    if differing != direct:
        return "false"
    if not direct:
        return "false" if cause and planted == NOTHING else "right"
    if not cause:
        return "unknown"
    return "right" if set(cause.split("+")) <= set(planted.split("+")) else "false"


class Planting(InProcesses):
    """Draws pairs by their numbers and asks for their causes."""

    table, key = "planted", ("number",)
    seed: int

    def columns(self, question: int) -> Row:
        return {"number": question}

    def function(self, part: CampaignPart[Any]) -> Any:
        return partial(answer_each, partial(_judged_number, part.target.text, self.seed))


def _judged_number(text: str, seed: int, number: int) -> Answer:
    return {"planted": judged(drawn(text, number, seed))}


def numbers(count: int) -> list[range]:
    """Those of this many pairs, as one process each is asked about them."""
    return [range(n, min(n + AT_ONCE, count)) for n in range(0, count, AT_ONCE)]

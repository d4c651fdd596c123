"""Which differences can rounding explain, and which are bugs?

Mistakes are planted into sums of products, in four formats and five sizes: a product left out, the
last products added twice, what was summed before not cleared, a window one place off, saturating
8-bit products. Each result is held against all that any order of additions, any fusing and any
wider accumulator can give. As a control sums in random orders and roundings: none of these may be
called a bug. (Libraries' runs and models are held against the same by `fuzz` and `real_models`.)
Public threads are rebuilt as small inputs, half of them bugs, and judged against exact values. Ten
minutes on two processors.

Writes results/bug_or_rounding/<machine>/*.parquet; notebooks/bug_or_rounding.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from lib import frame
from lib.threads import THREADS, Thread
from probe.case import floats
from probe.explain.enclosure import WITHIN, RoundingVerdict, of_sums
from probe.order.replay import replay
from probe.order.summation import Rounding as Rounded
from probe.order.summation import Summation
from probe.order.tree import Tree

DTYPES = ("float32", "float64", "float16", "bfloat16")
SUMMANDS = (5, 40, 320, 2560, 20_480)
OUTPUTS = 256
"""Outputs of each planted mistake."""


@frame.script
def main(experiment: frame.Experiment) -> None:
    # threads are of libraries that are no targets, too
    experiment.answer("verdicts", questions(experiment.quick), lambda key: "reference")


Key = tuple[str, str, str, str, int]


def questions(quick: bool) -> Iterator[tuple[Key, Callable[[], dict[str, Any]]]]:
    """What is asked, by the columns that name it, and what answers it."""
    for dtype in DTYPES[:1] if quick else DTYPES:
        for count in SUMMANDS[:2] if quick else SUMMANDS:
            for bug in BUGS:
                if bug != "8-bit products" or dtype == "float32":
                    key = ("planted", bug, "reference", dtype, count)
                    yield key, partial(planted, bug, dtype, count)
            key = ("control", "random orders and roundings", "reference", dtype, count)
            yield key, partial(control, dtype, count)
    for thread in THREADS:
        if not quick or thread.rebuilt:
            yield ("threads", thread.name, thread.library, thread.dtype, 0), partial(asked, thread)


# planted mistakes


def drawn(dtype: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands (count, outputs) in containers."""
    rng = np.random.default_rng((seed, count))
    x, w = rng.normal(size=(2, count, OUTPUTS))
    return floats.round_to(x, dtype), floats.round_to(w / np.sqrt(count), dtype)


def summed(x: np.ndarray, w: np.ndarray, dtype: str, before: Any = 0.0) -> np.ndarray:
    """Sums of products, correct but for one rounding (container)."""
    terms = floats.widen(x, dtype) * floats.widen(w, dtype)
    return floats.round_to(terms.sum(axis=0) + before, dtype)


def twice(x: np.ndarray, w: np.ndarray, dtype: str) -> np.ndarray:
    tail = max(1, len(x) % 16)
    return summed(np.concatenate([x, x[-tail:]]), np.concatenate([w, w[-tail:]]), dtype)


def not_cleared(x: np.ndarray, w: np.ndarray, dtype: str) -> np.ndarray:
    before = floats.widen(x, dtype) * floats.widen(w, dtype)
    return summed(x, w, dtype, np.roll(before.sum(axis=0), 1))


BUGS: dict[str, Callable[..., np.ndarray] | None] = {
    "a product left out": lambda x, w, dtype: summed(x[1:], w[1:], dtype),
    "the last products twice": twice,
    "the sum before not cleared": not_cleared,
    "a window one place off": lambda x, w, dtype: summed(np.roll(x, 1, axis=0), w, dtype),
    "8-bit products": None,
}


def planted(bug: str, dtype: str, count: int) -> dict[str, Any]:
    """The verdicts on a mistake; ``effect``: of those that are within, how many times as
    large the median one would have to be to be seen."""
    x, w = saturating(count) if bug == "8-bit products" else drawn(dtype, count, 0)
    found, wrong = of_sums(x, w, dtype), BUGS[bug]
    y = saturated(x, w) if wrong is None else wrong(x, w, dtype)
    values = floats.widen(y, dtype)
    changed = values != floats.widen(summed(x, w, dtype), dtype)
    verdict, flush = found.judged(y)
    nothing = np.zeros(changed.sum(), bool)
    right = np.full(changed.sum(), WITHIN)
    told = RoundingVerdict.of(nothing, right, verdict[changed], flush[changed])
    unseen = changed & (verdict == WITHIN)
    times = found.radius[unseen] / np.abs(values - found.exact)[unseen]
    return counted(told) | {"effect": float(np.median(times)) if len(times) else None}


def saturating(count: int) -> tuple[np.ndarray, np.ndarray]:
    """8-bit integers, as float32, unsigned times signed."""
    rng = np.random.default_rng(count)
    x, w = rng.integers(0, 256, (count, OUTPUTS)), rng.integers(-128, 128, (count, OUTPUTS))
    return x.astype(np.float32), w.astype(np.float32)


def saturated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Adds neighbouring products in 16 bits that saturate, as VPMADDUBSW does."""
    terms = np.concatenate([x * w, np.zeros((len(x) % 2, x.shape[1]))])
    both = np.clip(terms[::2] + terms[1::2], -(2**15), 2**15 - 1)
    return np.asarray(both.sum(axis=0), np.float32)


def control(dtype: str, count: int) -> dict[str, Any]:
    """Sums in a random order, fused or not, some in wider accumulators: nothing may be beyond."""
    x, w = drawn(dtype, count, 2)
    found, rng, told = of_sums(x, w, dtype), np.random.default_rng(count), RoundingVerdict()
    for number in range(4):
        order, nodes = rng.permutation(count).tolist(), list[tuple[int, int]]()
        while len(order) > 1:
            at = int(rng.integers(0, len(order) - 1)) if number % 2 else 0
            nodes.append((order[at], order[at + 1]))
            order[at : at + 2] = [-len(nodes)]
        fused = frozenset(range(count)) if number > 1 and number % 2 == 0 else frozenset()
        y = replay(Summation(Tree.from_nodes(nodes), Rounded(fused=fused)), x, w, dtype)
        verdict, flush = found.judged(y)
        nothing, right = np.zeros(len(y), bool), np.full(len(y), WITHIN)
        told += RoundingVerdict.of(nothing, right, verdict, flush)
    return counted(told)


def counted(told: RoundingVerdict) -> dict[str, Any]:
    kinds = ("explained", "within", "beyond", "unknown")
    return {"outputs": told.total, **{name: getattr(told, name) for name in kinds}}


# public threads


def asked(thread: Thread) -> dict[str, Any]:
    """Judges a thread; ``effect``: from how many ulps on an error of its outputs is seen."""
    found = thread.judge()
    right = "as told" if found.verdict == thread.told else f"told as {thread.told}"
    how = "rebuilt" if thread.rebuilt else "run"
    what = " ".join(thread.text.split())
    cause = (
        f"{found.verdict}; {right}; {how}; {found.summands} summands; {found.ulps:.3g} ulp: {what}"
    )
    told = RoundingVerdict(within=found.outputs - found.beyond, beyond=found.beyond)
    return counted(told) | {"effect": found.seen, "pairs": 1, "cause": cause}


if __name__ == "__main__":
    main()

"""Which differences can rounding explain, and which are bugs?

Mistakes are planted into sums of products, in four formats and five sizes: a product left out, the
last products added twice, what was summed before not cleared, a window one place off, saturating
8-bit products. Each result is held against all that any
order of additions, any fusing and any wider accumulator can give. As a control sums in random
orders and roundings, random pairs of every library's runs, and whole models: none of these may be
called a bug. Public threads are rebuilt as small inputs, half of them bugs, and judged against
exact values. Half an hour on two processors.

Writes results/bug_or_rounding/<machine>/*.parquet; notebooks/bug_or_rounding.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib import frame
from lib.fuzzing import OPERATIONS, Drawing, in_process
from lib.models import every, provide
from lib.threads import THREADS, Thread
from lib.walking import recorders
from probe import Store, Target, first_difference
from probe.case import floats
from probe.case.errors import ProbeError
from probe.explain.comparison import (
    Comparison,
    Finding,
    Revealer,
    compare_shapes,
)
from probe.explain.enclosure import (
    UNKNOWN,
    WITHIN,
    Enclosure,
    RoundingVerdict,
    of_operands,
    of_sums,
)
from probe.explain.verdict import BUG, ROUNDING
from probe.order.replay import replay
from probe.order.summation import Rounding as Rounded
from probe.order.summation import Summation
from probe.order.tree import Tree
from probe.sweep.printing import Output
from probe.targets.launch import open_session

NAME = "bug_or_rounding"

DTYPES = ("float32", "float64", "float16", "bfloat16")
SUMMANDS = (5, 40, 320, 2560, 20_480)
OUTPUTS = 256
"""Outputs of each planted mistake."""

TRIALS = 60
"""Random pairs of runs of each library."""

WIDE = {"float32": 4, "float64": 1}
KINDS = {"normal": 3, "cancel": 2, "tiny": 1, "infinite": 1}
PAIRS = ("tensorflow", "tensorflow,onednn=0", "torch", "jax", "onnxruntime", "numpy")

MODELS = ("residual", "encoder", "lstm", "gpt", "blocks", "both ways", "residual without norms")
"""Models of real_models with weights by seed."""


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures and stores; whether Ctrl-C ended it."""
    with Store.here(store) as kept, Output().progress("bug or rounding") as tell:
        try:
            runs = dict[str, str]()
            known = {row[1:6] for row in kept.done_keys("verdicts")}
            names = ("part", "name", "target", "dtype", "summands")
            for number, (key, measure) in enumerate(questions(quick)):
                tell(number, 0, " ".join(map(str, key)))
                if key in known:
                    continue
                begun = time.monotonic()
                try:
                    row = measure()
                except ProbeError as error:
                    Output().results.print(f"{key[0]}, {key[1]}, {key[2]}: not asked, {error}")
                    continue
                # threads are of libraries that are no targets, too
                target = "reference" if key[0] == "threads" else key[2]
                if target not in runs:
                    runs[target] = frame.stored_run(target, kept, NAME)
                row = {"run_id": runs[target]} | row | dict(zip(names, key, strict=True))
                kept.append("verdicts", row | {"seconds": time.monotonic() - begun})
        except KeyboardInterrupt:
            return True
    return False


Key = tuple[str, str, str, str, int]


def questions(quick: bool) -> Iterator[tuple[Key, Callable[[], dict[str, Any]]]]:
    """Yields what is asked, by the columns that name it, and what answers it."""
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
    if quick:
        return
    for target in PAIRS:
        yield ("pairs", "random pairs of runs", target, "", 0), partial(pairs, target)
    for model in every():
        if model.name in MODELS and model.weights == "seeded":
            key = ("models", model.name, model.target, "", 0)
            yield key, partial(of_model, model.name, model.target)


# planted mistakes


def drawn(dtype: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns operands (count, outputs) in containers."""
    rng = np.random.default_rng((seed, count))
    x, w = rng.normal(size=(2, count, OUTPUTS))
    return floats.round_to(x, dtype), floats.round_to(w / np.sqrt(count), dtype)


def summed(x: np.ndarray, w: np.ndarray, dtype: str, before: Any = 0.0) -> np.ndarray:
    """Returns sums of products, correct but for one rounding (container)."""
    terms = floats.widen(x, dtype) * floats.widen(w, dtype)
    return floats.round_to(terms.sum(axis=0) + before, dtype)


def left_out(x: np.ndarray, w: np.ndarray, dtype: str) -> np.ndarray:
    return summed(x[1:], w[1:], dtype)


def twice(x: np.ndarray, w: np.ndarray, dtype: str) -> np.ndarray:
    tail = max(1, len(x) % 16)
    return summed(np.concatenate([x, x[-tail:]]), np.concatenate([w, w[-tail:]]), dtype)


def not_cleared(x: np.ndarray, w: np.ndarray, dtype: str) -> np.ndarray:
    before = floats.widen(x, dtype) * floats.widen(w, dtype)
    return summed(x, w, dtype, np.roll(before.sum(axis=0), 1))


def off_by_one(x: np.ndarray, w: np.ndarray, dtype: str) -> np.ndarray:
    return summed(np.roll(x, 1, axis=0), w, dtype)


BUGS: dict[str, Callable[..., np.ndarray] | None] = {
    "a product left out": left_out,
    "the last products twice": twice,
    "the sum before not cleared": not_cleared,
    "a window one place off": off_by_one,
    "8-bit products": None,
}


def planted(bug: str, dtype: str, count: int) -> dict[str, Any]:
    """Returns the verdicts on a mistake; ``effect``: of those that are within, how many times as
    large the median one would have to be to be seen."""
    x, w = saturating(count) if bug == "8-bit products" else drawn(dtype, count, 0)
    found, wrong = of_sums(x, w, dtype), BUGS[bug]
    y = saturated(x, w) if wrong is None else wrong(x, w, dtype)
    changed = ~_same(y, summed(x, w, dtype), dtype)
    verdict, flush = found.judged(y)
    nothing = np.zeros(changed.sum(), bool)
    right = np.full(changed.sum(), WITHIN)
    told = RoundingVerdict.of(nothing, right, verdict[changed], flush[changed])
    return counted(told) | {"effect": _effect(found, y, changed & (verdict == WITHIN), dtype)}


def _same(one: np.ndarray, two: np.ndarray, dtype: str) -> np.ndarray:
    return np.asarray(floats.widen(one, dtype) == floats.widen(two, dtype))


def _effect(found: Enclosure, y: np.ndarray, some: np.ndarray, dtype: str) -> float | None:
    far = np.abs(floats.widen(y, dtype) - found.exact)[some]
    return float(np.median(found.radius[some] / far)) if len(far) else None


def saturating(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns 8-bit integers, as float32, unsigned times signed."""
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


KINDS_OF_VERDICT = ("explained", "within", "beyond", "unknown")


def counted(told: RoundingVerdict) -> dict[str, Any]:
    return {"outputs": told.total, **{name: getattr(told, name) for name in KINDS_OF_VERDICT}}


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
    fine = 0 if found.verdict not in (ROUNDING, BUG) else found.outputs - found.beyond
    rest = found.outputs - found.beyond - fine
    told = RoundingVerdict(within=fine, beyond=found.beyond, unknown=rest)
    return counted(told) | {"effect": found.seen, "pairs": 1, "cause": cause}


# what libraries give


def pairs(target: str) -> dict[str, Any]:
    """Random pairs of a library's runs: all outputs that must agree, equal or not, which have no
    right to lie outside."""
    told, made = RoundingVerdict(), 0
    with open_session(Target.parse(target), time_limit=600.0) as session:
        for trial in Drawing(WIDE, KINDS, OPERATIONS).trials(target, TRIALS, 7):
            try:
                finding = Finding.drawn_from(trial.shapes)
                found = compare_shapes(trial.shapes, session, session, finding.operands)
                found.reveal(session, session, Revealer(tried=None))
            except ProbeError:  # it refuses the operation
                continue
            told, made = told + _held(found), made + 1
    return counted(told) | {"pairs": made}


def _held(found: Comparison) -> RoundingVerdict:
    sides = (found.left, found.pairs.left), (found.right, found.pairs.right)
    verdicts, near = [], np.zeros(len(found.pairs), bool)
    for side, places in sides:
        enclosure = of_operands(side.operands, *places.T) if len(places) else None
        if enclosure is None:
            return RoundingVerdict()
        verdict, flush = enclosure.judged(side.operands.y[tuple(places.T)])
        verdict[side.reached[tuple(places.T)]] = UNKNOWN  # by what it reads without a weight
        verdicts.append(verdict)
        near |= flush
    return RoundingVerdict.of(np.zeros(len(near), bool), verdicts[0], verdicts[1], near)


def of_model(name: str, target: str) -> dict[str, Any]:
    """All variations of a model, in a process of its own."""
    (found,) = in_process(_differences_of_model, [(name, target)], _lost)
    told = RoundingVerdict()
    for one in found:
        told += RoundingVerdict(*(one["rounding"][name] for name in KINDS_OF_VERDICT))
    decisions = {
        column: sum(one["decisions"][name] for one in found)
        for column, name in (("decisions", "total"), ("changed", "changed"))
    }
    return counted(told) | {"pairs": len(found)} | decisions


def _differences_of_model(some: list[tuple[str, str]]) -> list[list[dict[str, Any]]]:
    (chosen,) = some
    model = next(one for one in every() if (one.name, one.target) == chosen)
    with tempfile.TemporaryDirectory() as folder:
        sides = model.sides(provide(Path(folder)))
        return [
            [
                first_difference(*recorders(sides(one), model.target)).to_json()
                for one in model.variations
            ]
        ]


def _lost(chosen: tuple[str, str]) -> list[dict[str, Any]]:
    raise ProbeError(f"model={chosen[0]}: its process on {chosen[1]} died")


if __name__ == "__main__":
    main()

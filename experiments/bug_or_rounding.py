"""Which differences can rounding explain, and which are bugs?

Mistakes are planted into sums of products, in four formats and five sizes: a product left out, the
last products added twice, what was summed before not cleared, a window one place off, saturating
8-bit products. Each result is held against all that any
order of additions, any fusing and any wider accumulator can give. As a control sums in random
orders and roundings, random pairs of every library's runs, and whole models: none of these may be
called a bug. Public threads are rebuilt as small inputs, half of them bugs, and judged against
exact values. And known ones: jax#39103, pytorch#143566, onnxruntime#16105 and #26324; the releases
of OpenBLAS#6021 and of JAX, installed beside each other; and the conditions that bring bits back.
Half an hour on two processors.

Writes results/bug_or_rounding/<machine>/*.parquet; notebooks/bug_or_rounding.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib import frame
from lib.fuzzing import OPERATIONS, Drawing
from lib.models import every
from lib.threads import THREADS, Thread
from probe import Case, Store, Target
from probe.case import floats
from probe.case.errors import ProbeError
from probe.explain.comparison import (
    CaseRun,
    ComparedShapes,
    Comparison,
    Finding,
    Revealer,
    compare_shapes,
    run_and_reveal,
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
from probe.sweep.campaign import Sessions, run_row
from probe.sweep.printing import Output
from probe.targets import installation, machine
from probe.targets.backends.onnxruntime import session_entries
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
PAIRS = {
    **dict.fromkeys(("tensorflow", "tensorflow,onednn=0", "torch", "jax", "onnxruntime"), WIDE),
    **dict.fromkeys(("numpy",), WIDE),
}

MODELS = ("residual", "encoder", "lstm", "gpt", "blocks", "both ways", "residual without norms")
"""Models of real_models with weights by seed."""

TURNS = 9
COSTS = (
    Case("conv1d", 5, 1, 8, 4000),
    Case("matmul", 1, 20, 1536, 64),
    Case("conv1d", 5, 64, 64, 516),
    Case("matmul", 1, 384, 1536, 64),
    Case("conv1d", 3, 512, 64, 110),
    Case("conv1d", 5, 64, 64, 110, dtype="bfloat16"),
    Case("conv1d", 5, 64, 64, 110, dtype="float64"),
)
"""Whose outputs are replayed and enclosed, to compare what it costs."""

BEFORE, SINCE, AFTER = "0.3.31.188.0", "0.3.34.0.0", "0.3.34.481.3"
"""Builds of OpenBLAS: before OpenBLAS#6021, with it, and with it taken back."""

INNER = (64, 128, 256, 320, 384, 512, 640, 768, 1024, 1536, 2048)
"""Products of each output of float32 matrices 64 x K and K x 64."""

RELEASES = tuple(
    (f"openblas=={left},core={core},threads=1", f"openblas=={right},core={core},threads=1")
    for core in ("Haswell", "SkylakeX")
    for left, right in ((BEFORE, SINCE), (BEFORE, AFTER))
)

CONDITIONS = (
    ("jax_product", "jax==0.10.1", "jax"),
    ("total", "jax==0.10.1", "jax"),
    ("total", "jax==0.10.1", "jax,ynn=0"),
    ("total", "jax==0.10.1,ynn=0", "jax,ynn=0"),
    ("softmax", "jax==0.10.1", "jax"),
    ("softmax", "jax==0.10.1,ynn=0", "jax,ynn=0"),
    ("exp", "numpy,cpu=x86_v2,threads=1", "numpy"),
    ("product", "numpy,core=Haswell,cpu=x86_v2,threads=1", "numpy"),
    ("total", "jax,ynn=0,threads=1", "jax"),
    ("product", "torch,mkldnn=0,threads=1", "torch"),
)
"""A function of ``FUNCTIONS``, and two targets."""

FUNCTIONS = """
import numpy as np

X = np.random.default_rng(0).standard_normal((64, 5000)).astype(np.float32)


def exp(x=X):
    return np.exp(x)


def product(x=X):
    w = np.random.default_rng(1).standard_normal((5000, 8)).astype(np.float32)
    if type(x).__module__.startswith("torch"):
        import torch

        return x @ torch.from_numpy(w)
    return np.asarray(x) @ w


def total(x=X):
    import jax

    return jax.jit(jax.numpy.sum, static_argnums=1)(x, 1)


def softmax(x=X):
    import jax

    return jax.nn.softmax(x)  # by its steps, of which the sums run on the other release


def jax_product(x=X):
    import jax

    w = np.random.default_rng(1).standard_normal((5000, 8)).astype(np.float32)
    return jax.jit(jax.numpy.matmul)(x, w)
"""

JAX = """
import jax
jax.config.update("jax_enable_x64", True)
import json
import jax.numpy as jnp
import probe

i = jnp.arange(16_385.0)
x = jnp.stack((i, 0 * i, 0 * i), axis=1)
M = jnp.eye(3)


def eager():
    return jax.vmap(lambda row: jnp.sum((M @ row) ** 2))(x)


def compiled():
    return jax.jit(lambda x: jax.vmap(lambda row: jnp.sum((M @ row) ** 2))(x))(x)


print(json.dumps(probe.first_difference(eager, compiled).to_json()))
"""
"""jax#39103: one element of 16,385 is wrong under jit in jaxlib 0.10.2."""

SHIFT = """
import json
import torch

x, by = torch.tensor([1, 3, -7, 1 << 40]), torch.tensor([64, 70, 64, 100])
shift = torch.bitwise_left_shift
print(json.dumps([f(x, by).tolist() for f in (shift, torch.compile(shift))]))
"""
"""pytorch#143566: shifts by as many bits as a number has, or more, compiled and not."""

PAIRS_OF_8_BITS = np.array([[210, 198, 234]], np.uint8), np.array([[-81], [-80], [127]], np.int8)
"""onnxruntime#16105: 210 * -81 + 198 * -80 leaves 16 bits, in which kernels without VNNI add
pairs."""


MODEL = """
import json
import tempfile
from pathlib import Path

import probe
from lib.models import every, provide
from lib.walking import recorders

model = next(one for one in every() if (one.name, one.target) == CHOSEN)
sides, found = model.sides(provide(Path(tempfile.mkdtemp()))), []
for one in model.variations:
    told = probe.first_difference(*recorders(sides(one), model.target)).to_json()
    found.append({name: told[name] for name in ("rounding", "decisions")})
print(json.dumps(found))
"""


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures and stores; whether Ctrl-C ended it."""
    with Store.here(store) as kept, SESSIONS, Output().progress("bug or rounding") as tell:
        try:
            run, runs = _run(kept, "reference"), dict[str, str]()
            known = {row[1:6] for row in kept.done_keys("verdicts")}
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
                names = ("part", "name", "target", "dtype", "summands")
                if key[0] == "threads":  # of libraries that are no targets, too
                    row = {"run_id": run} | row
                elif key[2] not in runs:
                    runs[key[2]] = run if key[2] == "reference" else _run(kept, key[2])
                row = {"run_id": runs.get(key[2], run)} | row | dict(zip(names, key, strict=True))
                kept.append("verdicts", row | {"seconds": time.monotonic() - begun})
            if not quick:
                cost(kept, run)
        except KeyboardInterrupt:
            return True
    return False


Key = tuple[str, str, str, str, int]

SESSIONS = Sessions()
"""Of the releases that are compared: one product takes less time than a start."""


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
    for target, dtypes in PAIRS.items():
        key = ("pairs", "random pairs of runs", target, "", 0)
        yield key, partial(pairs, target, dtypes)
    for left, right in RELEASES:
        for count in INNER:
            key = ("releases", f"OpenBLAS#6021: {left}", right, "float32", count)
            yield key, partial(releases, left, right, count)
    yield ("reports", "pytorch#143566", "torch", "int64", 0), shifted
    yield ("reports", "onnxruntime#26324", "onnxruntime", "", 0), convolved
    for target in ("onnxruntime", "onnxruntime,x64quantprecision=1"):
        key = ("reports", "onnxruntime#16105", target, "", 3)
        yield key, partial(in_8_bits, target)
    for target in ("jax", "jax,ynn=0"):
        yield ("reports", "jax#39103", target, "float64", 3), partial(reported, target)
    for model in every():
        if model.name in MODELS and model.weights == "seeded":
            key = ("models", model.name, model.target, "", 0)
            yield key, partial(of_model, model)
    for function, left, right in CONDITIONS:
        key = ("conditions", f"{function}: {left}", right, "float32", 0)
        yield key, partial(conditions, function, left, right)


def cost(kept: Store, run: str) -> None:
    """Stores how long the enclosure of all outputs takes beside their replay, in turns."""
    stored = {key[1:4] for key in kept.done_keys("measurements")}
    with open_session(Target.parse("reference,algorithm=pairwise"), inline=True) as session:
        for case in COSTS:
            work = case.summands * math.prod(case.output_shape())
            if (case.label, "replay", work) in stored:
                continue
            ways = _ways(run_and_reveal(session, case))
            for repeat in range(TURNS):
                for variant, way in ways.items():
                    begun = time.perf_counter()
                    way()
                    row = {"run_id": run, "subject": case.label, "variant": variant, "size": work}
                    row |= {"repeat": repeat, "value": time.perf_counter() - begun, "unit": "s"}
                    kept.append("measurements", row)


def _ways(side: CaseRun) -> dict[str, Callable[[], object]]:
    assert side.orders is not None
    (summation,) = side.orders.summations
    places, given = np.argwhere(side.orders.index == 0).T, side.operands

    def enclose() -> object:
        found = of_operands(given, *places)
        return found and found.judged(given.y[tuple(places)])

    return {"replay": lambda: given.agrees(summation, *places), "enclosure": enclose}


def _run(kept: Store, target: str) -> str:
    with open_session(Target.parse(target), inline=target == "reference").start() as session:
        row = run_row(session.target, session.facts, session.variables, NAME)
    kept.append("runs", row)
    return str(row["run_id"])


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
        order = rng.permutation(count).tolist()
        while len(order) > 1:
            at = int(rng.integers(0, len(order) - 1)) if number % 2 else 0
            order[at : at + 2] = [(order[at], order[at + 1])]
        fused = frozenset(range(count)) if number > 1 and number % 2 == 0 else frozenset()
        y = replay(Summation(_tree(order[0]), Rounded(fused=fused)), x, w, dtype)
        verdict, flush = found.judged(y)
        nothing, right = np.zeros(len(y), bool), np.full(len(y), WITHIN)
        told += RoundingVerdict.of(nothing, right, verdict, flush)
    return counted(told)


def _tree(pairs: Any) -> Tree:
    """Returns nested pairs of leaves as a tree; without recursion, as they may be deep."""
    nodes: list[tuple[int, ...]] = []
    made: list[Any] = []
    todo: list[tuple[Any, bool]] = [(pairs, False)]
    while todo:
        one, ready = todo.pop()
        if isinstance(one, int):
            made.append(one)
        elif ready:
            right, left = made.pop(), made.pop()
            nodes.append((left, right))
            made.append(-len(nodes))
        else:
            todo += [(one, True), (one[1], False), (one[0], False)]
    return Tree.from_nodes(nodes)


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


def pairs(target: str, dtypes: dict[str, int]) -> dict[str, Any]:
    """Random pairs of a library's runs: all outputs that must agree, equal or not, which have no
    right to lie outside."""
    told, made = RoundingVerdict(), 0
    with open_session(Target.parse(target), time_limit=600.0) as session:
        for trial in Drawing(dtypes, KINDS, OPERATIONS).trials(target, TRIALS, 7):
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


def reported(target: str) -> dict[str, Any]:
    """jax#39103 on a target: in a process of its own, with its variables."""
    from probe.targets import backends

    where = Target.parse(target)
    variables = backends.get("jax").environment(dict(where.switches), where.device)
    return _counts([json.loads(_child(JAX, variables))])


def releases(left: str, right: str, count: int) -> dict[str, Any]:
    """The same product on two releases: which outputs differ, and how their sums are cut."""
    case = Case("matmul", in_channels=count, filters=64, length=64)
    targets = [Target.parse(text) for text in (left, right)]
    SESSIONS.close(*targets)
    for where in targets:
        installation.install_target(where)
    first, second = map(SESSIONS.of, targets)
    found = compare_shapes(ComparedShapes.named(case, None, None, None, None), first, second)
    if not len(found.differing):
        return counted(RoundingVerdict()) | {"pairs": 1}
    found.reveal(first, second, Revealer(), found.differing)
    sides = [_blocks(found.orders(side)[0]["tree"]) for side in (found.left, found.right)]
    words = "; ".join(f"{cause}: {number}" for cause, number in found.causes.items())
    blocks = " and ".join("+".join(map(str, side)) for side in sides)
    return counted(found.rounding) | {"pairs": 1, "cause": f"{words}; blocks of K: {blocks}"}


def _blocks(text: str) -> list[int]:
    """Returns how many products each block has: parts of a tree whose products all stand before
    those of the next one."""
    nodes = Tree.parse(text).nodes
    spans: list[tuple[int, int, list[int]]] = []  # first and last product, and the blocks
    for children in nodes:
        parts = [(n, n, [1]) if n >= 0 else spans[~n] for n in children]
        first, last = min(p[0] for p in parts), max(p[1] for p in parts)
        sizes = [sum(p[2]) for p in parts]
        apart = all(a[1] < b[0] for a, b in itertools.pairwise(parts)) and min(sizes) > 1
        blocks = [size for p in parts for size in p[2]] if apart else [sum(sizes)]
        spans.append((first, last, blocks))
    return spans[-1][2]


def shifted() -> dict[str, Any]:
    """pytorch#143566: numbers without rounding, so that a difference is beyond it on a side."""
    eager, compiled = json.loads(_child(SHIFT, {}).splitlines()[-1])
    apart = sum(one != two for one, two in zip(eager, compiled, strict=True))
    cause = f"eager gives {eager}, compiled {compiled}"
    cause = cause if apart else f"not shown by this release: both give {eager}"
    return counted(RoundingVerdict(beyond=apart)) | {"pairs": 1, "cause": cause}


def in_8_bits(target: str) -> dict[str, Any]:
    """onnxruntime#16105 on a target: an integer product, held against the exact one."""
    import onnx
    import onnxruntime

    x, w = PAIRS_OF_8_BITS
    helper, kinds = onnx.helper, onnx.TensorProto
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    given = [helper.make_tensor_value_info("x", kinds.UINT8, x.shape)]
    made = [helper.make_tensor_value_info("y", kinds.INT32, (1, 1))]
    graph = helper.make_graph([node], "g", given, made, [onnx.numpy_helper.from_array(w, "w")])
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    options = onnxruntime.SessionOptions()
    for name, value in session_entries(dict(Target.parse(target).switches)):
        options.add_session_config_entry(name, value)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    y = session.run(None, {"x": x})[0].astype(np.float64).reshape(-1)
    found = of_sums(x.T.astype(np.float64), w.astype(np.float64), "float64")
    verdict, _ = found.judged(y)
    apart = int((y != found.exact).sum())
    kinds_here = _flags() & {"avx512_vnni", "avx_vnni"}
    cause = f"not shown here: {' and '.join(sorted(kinds_here))} adds pairs in 32 bits"
    told = RoundingVerdict(
        within=int((verdict == WITHIN).sum()), beyond=int((verdict != WITHIN).sum())
    )
    return counted(told if apart else RoundingVerdict()) | {
        "pairs": 1,
        "cause": cause if kinds_here and not apart else None,
    }


def convolved() -> dict[str, Any]:
    """onnxruntime#26324, of an 8-bit model on processors with AMX: said where it can't be shown."""
    why = "the model of the report is not in a package"
    if "amx_int8" not in _flags():
        why = f"not shown here: this processor has no AMX, and {why}"
    return counted(RoundingVerdict()) | {"pairs": 0, "cause": why}


def _flags() -> set[str]:
    """Returns what the processor says that it has; nothing where the system doesn't tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.split())
    return set()


def of_model(model: Any) -> dict[str, Any]:
    """All variations of a model, in a process of its own."""
    code = MODEL.replace("CHOSEN", repr((model.name, model.target)))
    return _counts(json.loads(_child(code, {}).splitlines()[-1]))


def _counts(found: list[dict[str, Any]]) -> dict[str, Any]:
    told = RoundingVerdict()
    for one in found:
        told += RoundingVerdict(*(one["rounding"][name] for name in KINDS_OF_VERDICT))
    row = counted(told) | {"pairs": len(found)}
    for column, name in (("decisions", "total"), ("changed", "changed")):
        row[column] = sum(one["decisions"][name] for one in found)
    return row


def _child(code: str, variables: dict[str, str]) -> str:
    # -c has no script's folder on its path, in which the experiments' library lies
    paths = filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
    ran = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    if ran.returncode:
        why = (ran.stderr.strip().splitlines() or [f"it ended with {ran.returncode}"])[-1]
        raise ProbeError(machine.publishable(why))
    return ran.stdout


def conditions(function: str, left: str, right: str) -> dict[str, Any]:
    """The smallest sets of conditions that bring a function's bits back."""
    from probe.ui.answers.two_runs import GivenModel, bisect

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "probe_functions.py").write_text(FUNCTIONS)
        sys.path.insert(0, folder)
        try:
            given = GivenModel(f"probe_functions:{function}", shapes={"x": (64, 5000)})
            found = bisect(given, Target.parse(left), Target.parse(right))
        finally:
            sys.path.remove(folder)
    told = "; ".join(f"{one.version}: {one.says}" for one in found.steps if one.says)
    sets = None if found.sets is None else "; ".join(" and ".join(one) for one in found.sets)
    answer = "both give the same" if sets is None else sets or "none does"
    return {"conditions": answer, "cause": told or None}


if __name__ == "__main__":
    main()

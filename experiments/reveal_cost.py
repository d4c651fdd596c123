"""Measures what it costs to reveal the order of every output of a convolution, on one core.

Calls of the operator and seconds against the number of summands, of filters and of outputs, beside
the calls that FPRev's algorithm needs for one output of the same call. Every reveal starts from
nothing; of a few repetitions the fastest is kept. At the end of a run the seconds of a few reveals
are printed over those of FPRev's one output, called directly in this process on the same core.

Writes results/reveal_cost/<machine>/*.parquet; notebooks/reveal_cost.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lib import frame
from probe import Case, Store, Target
from probe.order.fprev import fprev, fprev_calls
from probe.order.orders import Orders, reveal
from probe.order.tree import Tree
from probe.sweep import plan
from probe.sweep.campaign import case_row, run_row
from probe.sweep.printing import Output
from probe.targets.launch import AnySession, open_session

NAME = "reveal_cost"

WINDOWS = (
    *((1, 8), (3, 8), (5, 8), (3, 32), (5, 32), (5, 64), (3, 192), (9, 64)),
    *((3, 256), (5, 256), (3, 512), (9, 256), (9, 512)),
)
"""Kernel and channels: 8 to 4,608 summands."""
FILTERS = (1, 8, 64)
LENGTH = 40

LENGTHS = (6, 12, 40, 132, 516, 2052)
"""At 320 summands and 64 filters: 128 to 131,072 outputs."""

LARGE = Case("conv1d", 3, 512, 64, 110)
"""1,536 summands, 6,912 outputs."""

DTYPES = ("float64", "float16", "bfloat16")

TARGETS = """
    tensorflow
    tensorflow,onednn=0
    tensorflow,onednn=0,contraction=0
    tensorflow,isa=avx2
    tensorflow,isa=sse41
    tensorflow,xla=1
""".split()

LONG = (
    *(Case("sum", 1, n, 1, 1) for n in (64, 256, 1024, 4096, 16384, 100_000)),
    *(
        Case("sum", 1, n, 1, 1, dtype=dtype)
        for dtype in ("float16", "bfloat16")
        for n in (4096, 8192)
    ),
    *(Case("dot", 1, n, 1, 1) for n in (64, 256, 1024, 4096)),
    *(Case("matmul", 1, n, 1, n) for n in (64, 256, 1024)),
    *(Case("matmul", 1, n, n, n) for n in (64, 256)),
    *(Case("matmul", 1, 4096, filters, 1, dtype="bfloat16") for filters in (1, 8)),
    Case("conv2d", (3, 5), 256, 1, 5, height=3, dtype="bfloat16"),
)
"""Long sums of one output, and FPRev's own cases: sum, dot, GEMV (many rows) and GEMM."""

LONG_TARGETS = "torch tensorflow tensorflow,xla=1 jax".split()

QUICK = "reference reference,algorithm=pairwise".split()

BESIDE = tuple(
    Case("conv1d", *sizes) for sizes in ((5, 8, 8, 40), (5, 64, 64, 40), (9, 64, 64, 40))
)
"""40, 320 and 576 summands; ``LARGE`` has 1,536. Of these the seconds are compared with FPRev's."""

REPEATS, ENOUGH = 5, 3.0
"""Repetitions of a reveal, and seconds after which no more are begun."""


def cases(target: str) -> Iterator[Case]:
    """Yields what is measured on a target."""
    if target in LONG_TARGETS:
        yield from LONG
    if target not in TARGETS + QUICK:
        return
    for kernel, channels in WINDOWS:
        for filters in FILTERS:
            yield Case("conv1d", kernel, channels, filters, LENGTH)
    yield LARGE
    for length in LENGTHS:
        yield Case("conv1d", 5, 64, 64, length)
    if target == TARGETS[0]:
        for dtype in DTYPES:
            for channels in (8, 32, 128):
                yield Case("conv1d", 5, channels, 8, LENGTH, dtype=dtype)


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures and stores; whether Ctrl-C ended it."""
    on_one_core()
    targets = QUICK if quick else list(dict.fromkeys(TARGETS + LONG_TARGETS))
    with Store.here(store) as kept, Output().progress("reveal cost") as tell:
        try:
            for number, text in enumerate(targets):
                todo = plan.current_shard().part(list(cases(text))[: 4 if quick else None])
                with open_session(Target.parse(text)).start() as session:
                    run = run_row(session.target, session.facts, session.variables, NAME)
                    kept.append("runs", run)
                    for done, case in enumerate(todo, 1):
                        measure(kept, session, case, run["run_id"])
                        tell(number * len(todo) + done, len(targets) * len(todo), text)
        except KeyboardInterrupt:
            return True
    if not quick:
        beside_fprev()
    return False


def on_one_core() -> None:
    """Binds this process, and with it every child, to one processor, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def measure(store: Store, session: AnySession, case: Case, run_id: str) -> None:
    """Stores one case, unless it is stored."""
    names = {"run_id": run_id, "case_id": case.id, "target": session.target.text}
    place = names | {"vary": "length", "at": case.length}
    stored = {key[:5] for key in store.done_keys("reveals")}
    if tuple(place.values()) in stored:
        return
    found = fastest(session, case)
    store.append("cases", case_row(case))
    store.append("reveals", found.rows(place))
    for each in found.summations:
        store.append("orders", each.order_row() | {"fprev": cost_of_one(each.tree)})
        store.append("roundings", each.rounding_row())


def fastest(session: AnySession, case: Case) -> Orders:
    """Returns the reveal that took the least time."""
    best = reveal(session, case)
    end = time.monotonic() + ENOUGH
    for _ in range(REPEATS - 1):
        if time.monotonic() + best.seconds > end:
            break
        best = min(best, reveal(session, case), key=lambda found: found.seconds)
    return best


def beside_fprev() -> None:
    """Prints seconds of all outputs over those of FPRev's one, each the fastest of ``REPEATS``."""
    with open_session(Target.parse(TARGETS[0])).start() as session:
        for case in (*BESIDE, LARGE):
            ours = fastest(session, case)
            theirs = min(seconds_of_one(case, ours.summations[0].tree) for _ in range(REPEATS))
            ratio, n = ours.seconds / theirs, case.summands
            print(
                f"{n:,} summands: all outputs {ours.seconds:.3f} s, {ratio:.2f} times FPRev's one"
            )


def seconds_of_one(case: Case, tree: Tree) -> float:
    """Returns the seconds that the published algorithm takes for the first output of TensorFlow's
    conv1d, as its user calls it. RuntimeError: it finds another tree than ``tree``."""
    import tensorflow as tf

    x = tf.ones(case.input_shape())

    def survivors(i: int, j: int) -> float:
        weights = np.ones(case.weight_shape, np.float32)
        weights.reshape(case.summands, -1)[[i, j]] = [[2.0**100], [-(2.0**100)]]
        return float(tf.nn.conv1d(x, weights, 1, "VALID").numpy()[0, 0, 0])

    started = time.perf_counter()
    found = fprev(survivors, case.summands)
    seconds = time.perf_counter() - started
    if found != tree:
        raise RuntimeError(
            f"{case.label}: FPRev finds {found.formula}, and the reveal {tree.formula}"
        )
    return seconds


_COSTS: dict[Tree, int] = {}


def cost_of_one(tree: Tree) -> int:
    """Calls that FPRev needs for one output that is added like this."""
    if tree not in _COSTS:
        _COSTS[tree] = fprev_calls(tree)
    return _COSTS[tree]


if __name__ == "__main__":
    main()

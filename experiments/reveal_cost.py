"""Measures what it costs to reveal the order of every output of a convolution, on one core.

Calls of the operator and seconds against the number of summands, of filters and of outputs, beside
the calls that FPRev's algorithm needs for one output of the same call. Every reveal starts from
nothing; of a few repetitions the fastest is kept.

Writes results/reveal_cost/<machine>/*.parquet; notebooks/reveal_cost.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache
from itertools import islice

from lib import frame
from lib.answering import Answer, Answering, place, revealed
from probe import Case
from probe.order.fprev import fprev_calls
from probe.order.orders import Orders, reveal
from probe.sweep.campaign import CampaignPart, Row, case_row
from probe.targets.launch import AnySession

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

REPEATS, ENOUGH = 5, 3.0
"""Repetitions of a reveal, and seconds after which no more are begun."""


def cases(target: str) -> Iterator[Case]:
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
def main(experiment: frame.Experiment) -> None:
    if hasattr(os, "sched_setaffinity"):  # one core for this process, and with it for every child
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    targets, most = (
        (QUICK, 4) if experiment.quick else (dict.fromkeys(TARGETS + LONG_TARGETS), None)
    )
    asked = [(text, case) for text in targets for case in islice(cases(text), most)]
    experiment.ask(Timing, asked)


class Timing(Answering[Case]):
    """Each case, revealed from nothing."""

    table, key = "reveals", ("case_id", "vary", "at")

    def columns(self, question: Case) -> Row:
        return place(question)

    def answer(self, part: CampaignPart[Case], question: Case) -> Answer:
        orders = fastest(part.session, question)
        rows = revealed(orders)
        for row, each in zip(rows["orders"], orders.summations, strict=True):
            row["fprev"] = calls_of_one(each.tree)
        return {"cases": case_row(question)} | rows


def fastest(session: AnySession, case: Case) -> Orders:
    best = reveal(session, case)
    end = time.monotonic() + ENOUGH
    for _ in range(REPEATS - 1):
        if time.monotonic() + best.seconds > end:
            break
        best = min(best, reveal(session, case), key=lambda found: found.seconds)
    return best


calls_of_one = cache(fprev_calls)


if __name__ == "__main__":
    main()

"""What keeps the bits at every length, and what each remedy costs.

The report's convolution, three others, and the nine-layer network at several widths: every remedy
is judged by order, timed in turns with all the others in one run, and compared with exact sums.
Half an hour on two processors.

Writes results/remedies/<machine>/*.parquet; notebooks/remedies.ipynb draws them. Change what you
like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from probe import Case, Store, Target, experiment, schema
from probe.cli.output import Output
from probe.cli.show.facts import table
from probe.network import Network
from probe.network.builder import nine_layers
from probe.remedies import Measured, advise, measure, measure_network
from probe.remedies.rows import rows

NAME = "remedies"

REPORT = Case("conv2d", "1x5", weights=[-0.7313, -1.1043, 1.8492, 1.3007, -0.1033], bias=0.0401)
CASES = (
    REPORT,
    Case("conv1d", 5, 16, 16),
    Case("conv1d", 5, 64, 64),
    Case("depthwise_conv2d", "1x5", 64),
)
LENGTHS = (5, 6, 7, 9, 12, 16, 17, 31, 53, 512)
"""The last one is what the others are compared with; costs are told at 53."""
CHUNKS = (64,)

TARGETS = """
    tensorflow,onednn=0,contraction=0
    torch
    tensorflow,onednn=0
    tensorflow,isa=avx2
    onnxruntime
""".split()

CONTENTS = (1, 20, 100, 256, 700)
"""Beside a tenth of the fixed length, at which costs are told."""


class Whole(NamedTuple):
    """One measurement of the nine-layer network. ``only``: these remedies; None: all."""

    target: str
    width: int
    fixed: int
    only: tuple[str, ...] | None = None


FAST = (
    *("pad", "layerwise", "chunks=256", "float64", "threads=1", "deterministic=1"),
    *("onednn=1", "mkldnn=0", "isa=avx2", "xla=1", "stable,float64,xla=1"),
)
"""All but what takes hours at these sizes: ``stable``, one operation after the other."""

NETWORKS = (
    Whole("tensorflow,onednn=0,mode=graph", 16, 4096, FAST),
    Whole("tensorflow,onednn=0,mode=graph", 64, 4096, FAST),
    Whole("torch", 64, 4096, FAST),
    Whole("tensorflow,onednn=0,mode=graph", 64, 16384, ("pad", "layerwise", "threads=1")),
)

QUICK = "reference,algorithm=pairwise,length_switch=9"

Measure = Callable[[], Measured]


class Item(NamedTuple):
    """One subject on one target: how it is stored, and how it is measured."""

    key: tuple[str, str, int]
    measure: Measure


def of_case(
    case: Case,
    target: str,
    lengths: tuple[int, ...] = LENGTHS,
    only: tuple[str, ...] | None = None,
) -> Item:
    """Remedies of one case; all of them, or those of ``only``."""
    where = Target.parse(target)
    return Item(
        (where.text, case.id, max(lengths)),
        lambda: measure(case, where, lengths, chunks=CHUNKS, only=only),
    )


def of_network(network: Network, one: Whole, contents: tuple[int, ...] = CONTENTS) -> Item:
    """Remedies of one network."""
    where = Target.parse(one.target)
    return Item(
        (where.text, network.id, one.fixed),
        lambda: measure_network(network, where, contents, one.fixed, chunks=(256,), only=one.only),
    )


def items(quick: bool) -> Iterator[Item]:
    """What is measured, in turn."""
    if quick:
        yield of_case(CASES[0], QUICK, (5, 6, 7, 12, 16, 40), ("pad", "chunks=64"))
        small = Whole(QUICK, 2, 200, ("pad", "layerwise"))
        yield of_network(nine_layers(width=2, blocks=2, fixed=200), small, (1, 5))
        return
    for one in NETWORKS:
        yield of_network(nine_layers(width=one.width, fixed=one.fixed), one)
    for target in TARGETS:
        for case in CASES:
            yield of_case(case, target)


@experiment.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    found: list[Measured] = []
    with Store.here(store) as kept, Output().progress("remedies") as tell:
        try:
            todo = list(items(quick))
            for number, item in enumerate(todo):
                tell(number, len(todo), item.key[0])
                if item.key not in stored(kept):
                    found.append(item.measure())
                    for name, some in rows(found[-1], NAME).items():
                        kept.append(name, some)
                    kept.flush()
        except KeyboardInterrupt:
            return True
    show(found)
    return False


def stored(store: Store) -> set[tuple[str, str, int]]:
    """Targets, subjects and fixed lengths that have their remedies already."""
    found = set()
    for key in store.done_keys("remedies"):
        named = dict(zip(schema.keys("remedies"), key, strict=True))
        subject = named["case_id"] or named["network_id"]
        found.add((named["target"], subject, named["fixed"]))
    return found


def show(found: list[Measured]) -> None:
    """A row a subject and target: what to do."""
    told = table("target", "what", "advice")
    for one in found:
        advice = advise(one)
        colour = "green" if advice.name else "red"
        told.add_row(one.target.text, f"{one.label}, {one.fixed}", Text(advice.text, colour))
    Output().results.print(told)


if __name__ == "__main__":
    main()

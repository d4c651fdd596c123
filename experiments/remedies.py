"""Measures what keeps the bits at every length, and what each remedy costs.

The report's convolution, three others, and the nine-layer network at two widths: every remedy
is judged by order, timed in turns with all the others in one run, and compared with exact sums.
Then layers alone and in a batch, where the invariant mode of ``probe.stable`` is one of them.
Half an hour on two processors.

Writes results/remedies/<machine>/*.parquet; notebooks/remedies.ipynb draws them. Change what you
like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib import frame, nine_layers
from lib.nine_layers import NineLayers
from probe import Case, Store, Target
from probe.case import schema
from probe.case.operands import normal
from probe.diff.apart import Apart
from probe.sizes.fixes import Measured, RemedySessions, measured_remedies, remedy_rows
from probe.sizes.model_fixes import ModelQuestion
from probe.sizes.search import PaddedModel
from probe.sweep import plan as shard
from probe.sweep.printing import Output

NAME = "remedies"

CASES = (
    frame.REPORT.with_(operands="normal"),
    Case("conv1d", 5, 16, 16),
    Case("depthwise_conv2d", "1x5", 64),
    Case("conv1d", 5, 64, 64),
)
LENGTHS = (5, 6, 7, 9, 12, 16, 17, 31, 53, 256)
"""The last one is what the others are compared with; costs are reported at 31."""
CHUNKS = (64,)

BATCHED = (
    Case("dense", in_channels=128, filters=96, bias="normal"),
    Case("dense", in_channels=384, filters=48),
    Case("conv2d", "3x3", 8, 16, 7, height=7, padding="same"),
)
"""Alone and in a batch: two layers as those of a small transformer, and a convolution."""
BATCHES = (1, 2, 3, 8, 16, 17, 32)
"""The last one is what the others are compared with; costs are reported at 16."""

EAGER = "tensorflow,onednn=0"
"""The report's path today, operation by operation."""
OLD = "tensorflow,onednn=0,contraction=0"
"""The report's own kernels, alive."""

REMEDIES = (
    *("pad", "chunks=64", "float64", "threads=1", "deterministic=1", "onednn=1", "mkldnn=0"),
    *("isa=avx2", "xla=1", "stable", "stable,float64,xla=1"),
)
"""Of single convolutions."""

OF_BATCHES = (
    *("pad", "chunks=64", "float64", "threads=1", "deterministic=1", "mkldnn=0", "invariant"),
)
"""Of layers along the batch."""

CONTENTS = (1, 20, 100, 256, 700)
"""Of networks, beside a tenth of the full length, at which costs are reported."""

FAST = ("pad",)
"""Of networks."""

SECONDS = 3600.0
"""Seconds for finding the safe sizes of all contents of a network."""


class Whole(NamedTuple):
    """The nine-layer network: its width, the size it is padded to, the remedies."""

    width: int
    fixed: int
    only: tuple[str, ...] = FAST
    blocks: int = 8

    @property
    def network(self) -> NineLayers:
        """Returns what is run."""
        return NineLayers(self.width, blocks=self.blocks, fixed=self.fixed)


class Batched(NamedTuple):
    """A case along its batch."""

    case: Case


Plan = list[tuple[str, list[Case | Whole | Batched]]]

PLAN: Plan = [
    (EAGER, [*CASES]),
    (OLD, [*CASES]),
    ("tensorflow,isa=avx2", [*CASES]),
    ("tensorflow", [*CASES]),
    ("torch", [*CASES]),
    ("onnxruntime", [*CASES, Whole(64, 4096), Whole(16, 4096)]),
    ("torch", [*map(Batched, BATCHED)]),
    (EAGER, [*map(Batched, BATCHED)]),
]
"""What is measured on each target. One target's processes serve all that follows it."""

TINY = Batched(Case("dense", in_channels=7, filters=2))
QUICK = "reference,algorithm=pairwise,length_switch=9"
QUICK_PLAN: Plan = [(QUICK, [CASES[0], TINY]), ("onnxruntime", [Whole(2, 160, ("pad",), 3)])]


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    plan = QUICK_PLAN if quick else PLAN
    with Store.here(store) as kept, Output().progress("remedies") as tell:
        try:
            for number, (target, subjects) in enumerate(shard.questions_of_part(plan)):
                tell(number, len(plan), target)
                measured_on(target, subjects, kept)
        except KeyboardInterrupt:
            return True
    frame.summed_up(store)
    return False


def measured_on(target: str, subjects: list[Case | Whole | Batched], store: Store) -> None:
    """Stores what isn't stored, each as soon as it is known."""
    where, done = Target.parse(target), stored(store)
    with RemedySessions() as sessions:
        for one in subjects:
            if (where.text, *key_of(one)) in done:
                continue
            for name, rows in remedy_rows(measured(one, where, sessions), NAME).items():
                store.append(name, rows)
            store.flush()


def key_of(one: Case | Whole | Batched) -> tuple[str, int]:
    """Returns the id of a subject and its full size."""
    if isinstance(one, Case):
        return one.id, max(LENGTHS)
    if isinstance(one, Batched):
        return one.case.id, max(BATCHES)
    return one.network.id, one.fixed


def measured(one: Case | Whole | Batched, where: Target, sessions: RemedySessions) -> Measured:
    """Returns every remedy of a subject that is asked for."""
    if isinstance(one, Case):
        return measured_remedies(
            one, where, LENGTHS, chunks=CHUNKS, only=REMEDIES, sessions=sessions
        )
    if isinstance(one, Batched):
        return measured_remedies(
            *(one.case, where, BATCHES),
            vary="batch",
            content=16,
            chunks=CHUNKS,
            only=OF_BATCHES,
            sessions=sessions,
        )
    return of_network(one.network, where, one.only, sessions)


def of_network(
    network: NineLayers, where: Target, only: tuple[str, ...], sessions: RemedySessions
) -> Measured:
    """Returns what keeps the bits of a network on ONNX Runtime."""
    own, fixed, at = sessions.of(where), network.fixed, max(network.fixed // 10, 1)
    contents = sorted({*(one for one in CONTENTS if one < fixed), at})
    with (
        tempfile.TemporaryDirectory(prefix="probe-") as folder,
        process_of(network, Path(folder), where) as process,
    ):
        graph = padded(network, process)
        sizes = [graph.sized(content) for content in contents]
        found = ModelQuestion(graph, sizes, at, wanted=only).measured(network, "length")
    return replace(found, target=where, facts=own.facts, variables=own.variables)


def process_of(network: NineLayers, folder: Path, where: Target) -> Apart:
    """Returns what runs the network's file on a target; ``folder``: for the file and recordings."""
    words = {name: getattr(network, name) for name in ("width", "seed", "blocks", "padding")}
    path = nine_layers.onnx_model(folder / f"{network.id}.onnx", **words)
    return Apart(str(path), where, folder=Path(tempfile.mkdtemp(dir=folder)))


def padded(network: NineLayers, process: Apart) -> PaddedModel:
    """Returns the network, its input (1, 1, 1, positions) padded."""
    x = normal(0, "x", (1, 1, 1, network.fixed)).astype(np.float32)
    return PaddedModel(process, {"x": x}, {"x": 3}, network.fixed, seconds=SECONDS)


def stored(store: Store) -> set[tuple[str, str, int]]:
    """Targets, subjects and full lengths that have their remedies already."""
    found = set()
    for key in store.done_keys("remedies"):
        named = dict(zip(schema.key_columns("remedies"), key, strict=True))
        subject = named["case_id"] or named["network_id"]
        found.add((named["target"], subject, named["fixed"]))
    return found


if __name__ == "__main__":
    main()

"""Compares all libraries: which keep their bits when the input grows, and which agree.

The grid of `length_sweep.py` (240 one-dimensional convolutions) on every CPU target, each length
compared with 600, the operands made to show a changed order (`cancel`); then the cause of every
difference, revealed and replayed. And four shapes at one length, with the numbers that users have
(`normal`): all outputs of every target, and the order of additions of each. Two hours on two
processors.

Writes results/frameworks/<machine>/*.parquet; notebooks/frameworks.ipynb draws them. Change what
you like below and run it again: what is stored already is not measured or explained twice.
"""

from __future__ import annotations

from pathlib import Path

from length_sweep import grid
from lib import frame
from lib.frame import patient
from probe import Case, Store, Target
from probe.explain.runs import run_and_reveal
from probe.sweep import stored
from probe.sweep.campaign import Campaign, CampaignPart, case_row
from probe.sweep.plan import output_columns
from probe.targets.target import why_unavailable

NAME = "frameworks"

TARGETS = """
    tensorflow
    tensorflow,onednn=0
    keras
    keras,backend=torch
    keras,backend=jax
    torch
    torch,mkldnn=0
    jax
    onnxruntime
    onnxruntime,weights=argument
    litert
    litert,xnnpack=0
    opencv
    reference
""".split()

TOGETHER = [
    Case(op="conv1d", kernel=kernel, in_channels=channels, filters=filters, length=31)
    for kernel, channels, filters in ((5, 1, 1), (5, 64, 1), (5, 64, 8), (3, 16, 64))
]
"""What all targets compute at the same length, to be compared with each other."""

KEEP = 2
"""Differing outputs stored of each comparison; how many there are is counted without limit."""

QUICK = "reference reference,algorithm=pairwise,length_switch=9".split()


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, explains, stores and prints; whether Ctrl-C ended it."""
    texts = QUICK if quick else TARGETS
    parts = [(shapes, lengths, "length") for shapes, lengths in grid(quick)]
    if frame.swept(store, NAME, parts, texts, keep=KEEP):
        return True
    cases = TOGETHER[: 1 if quick else None]
    asked = [(target, cases) for target in map(Target.parse, texts) if not why_unavailable(target)]
    with Store.here(store) as kept, frame.bar(f"{NAME}: all targets at one length") as tell:
        if Together(kept, NAME, tell, patient).run(asked).interrupted:
            return True
    return frame.explained(store, NAME)


class Together(Campaign[Case]):
    """Stores all outputs of a case, and how each was added; what is there is not asked again."""

    def begin(self, part: CampaignPart[Case]) -> None:
        """Reads what the store has."""
        assert self.store is not None
        rows = stored.read_table(self.store.path, "outputs").select(["run_id", "case_id"])
        self.stored = {tuple(row.values()) for row in rows.to_pylist()}

    def ask(self, part: CampaignPart[Case], question: Case) -> None:
        """Stores one case."""
        place = {"run_id": part.run_id, "case_id": question.id}
        if tuple(place.values()) in self.stored:
            return
        place |= {"target": part.target.text, "vary": "length"}
        side = run_and_reveal(part.session, question)
        self.keep("cases", case_row(question))
        y = side.operands.y.reshape(question.output_shape())
        columns = output_columns(place, question.length or 0, y, question.dtype)
        self.keep_columns("outputs", columns)
        if side.orders is not None:
            self.keep("reveals", side.orders.rows(place | {"at": question.length}))
            self.keep("orders", [one.order_row() for one in side.orders.summations])
            self.keep("roundings", [one.rounding_row() for one in side.orders.summations])


if __name__ == "__main__":
    main()

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

from itertools import product

from length_sweep import grid
from lib import frame
from lib.answering import Answer, Answering, place, revealed
from lib.frame import patient
from probe import Case, Target
from probe.explain.runs import run_and_reveal
from probe.sweep.campaign import CampaignPart, Row, case_row
from probe.sweep.plan import output_columns
from probe.targets.target import why_unavailable

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


@frame.script
def main(experiment: frame.Experiment) -> None:
    targets = frame.QUICK if experiment.quick else TARGETS
    experiment.sweep(grid(experiment.quick), targets, keep=frame.FEW)
    cases = TOGETHER[: 1 if experiment.quick else None]
    here = [text for text in targets if not why_unavailable(Target.parse(text))]
    experiment.ask(Together, product(here, cases), opens=patient)
    experiment.explain()


class Together(Answering[Case]):
    """All outputs of a case, and how each was added."""

    table, key = "outputs", ("case_id", "vary", "at")

    def columns(self, question: Case) -> Row:
        return place(question)

    def answer(self, part: CampaignPart[Case], question: Case) -> Answer:
        side = run_and_reveal(part.session, question)
        names = {"run_id": part.run_id, "target": part.target.text, "case_id": question.id}
        y = side.operands.y.reshape(question.output_shape())
        values = output_columns(names | {"vary": "length"}, question.length or 0, y, question.dtype)
        self.keep_columns("outputs", values)
        orders = {} if side.orders is None else revealed(side.orders)
        return {"cases": case_row(question)} | orders


if __name__ == "__main__":
    main()

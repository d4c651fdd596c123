"""Reveals, replays and names the order and rounding with which TensorFlow adds every output.

The report's five products on every target; shapes whose order depends on the length; products that
are fused and products that are not; sums of 16-bit numbers; and the causes of every difference of a
grid in four formats. (A far larger grid of float32 is that of `length_sweep`.)

Writes results/accumulation_orders/<machine>/*.parquet; notebooks/accumulation_orders.ipynb draws
them. Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from lib import frame
from lib.answering import Answer, Answering
from lib.frame import REPORT
from probe import Case
from probe.case.errors import TargetError
from probe.explain.runs import run_case
from probe.sizes.orders import sweep_by_order
from probe.sweep.campaign import CampaignPart, Row, case_row
from probe.sweep.plan import output_columns


class Study(NamedTuple):
    """A case whose every output is revealed at some lengths on some targets.

    ``whole``: all outputs are stored too.
    """

    case: Case
    lengths: Sequence[int]
    targets: Sequence[str]
    whole: bool = False


ORDINARY = """
    tensorflow
    tensorflow,onednn=0
    tensorflow,onednn=0,contraction=0
    tensorflow,isa=sse41
    tensorflow,isa=avx2
    tensorflow,xla=1
""".split()

DTYPES = ("float64", "float16", "bfloat16")
UPTO_64 = range(5, 65)
FEW = (5, 6, 7, 8, 9, 20, 33)

STUDIES = [
    Study(REPORT, range(5, 25), ORDINARY, whole=True),
    Study(
        Case("conv1d", 5, 64, 1),
        UPTO_64,
        [*ORDINARY[1:3], "tensorflow,onednn=0,threads=2", "tensorflow,xla=1"],
    ),
    Study(Case("conv1d", 5, 1, 8), UPTO_64, ["tensorflow,isa=avx2"]),
    Study(Case("conv1d", 3, 16, 64), UPTO_64, ["tensorflow,isa=avx2"]),
    Study(Case("conv1d", 5, 3, 6), UPTO_64, ["tensorflow,onednn=0,contraction=0"]),
    Study(Case("conv1d", 9, 3, 1), range(9, 25), ["tensorflow,onednn=0"]),
    *(
        Study(case.with_(dtype=dtype, bias="normal"), FEW, ORDINARY)
        for dtype in DTYPES
        for case in (
            Case("conv1d", 5),
            Case("conv1d", 5, 3, 3),
            Case("depthwise_conv2d", "1x5", 3),
            Case("conv3d", "1x1x5", 3, 3),
            Case("matmul", in_channels=5),
        )
    ),
]

GRID = [
    *(
        Case("conv1d", 5, inputs, outputs, padding=padding, dtype=dtype, operands="cancel")
        for dtype, inputs, outputs, padding in product(
            ("float32", *DTYPES), (1, 16, 64), (1, 8), ("valid", "same")
        )
    ),
    *(
        Case(op, kernel, 16, dtype=dtype, operands="cancel", filters=filters)
        for dtype in ("float32", *DTYPES)
        for op, kernel, filters in (("conv3d", "1x1x5", 8), ("depthwise_conv2d", "1x5", 16))
    ),
]
GRID_LENGTHS = (5, 6, 8, 9, 13, 16, 21, 33, 53, 64)


@frame.script
def main(experiment: frame.Experiment) -> None:
    quick = experiment.quick
    parts = [(GRID[:1] if quick else GRID, GRID_LENGTHS, "length")]
    experiment.sweep(parts, frame.QUICK if quick else ORDINARY, control="differing", keep=16)
    experiment.explain()
    studies = [STUDIES[0]._replace(targets=frame.QUICK)] if quick else STUDIES
    experiment.ask(Studying, [(text, study) for study in studies for text in study.targets])


class Studying(Answering[Study]):
    """Reveals each study's case at all its lengths."""

    table, key = "reveals", ("case_id", "vary")

    def columns(self, question: Study) -> Row:
        return {"case_id": question.case.id, "vary": "length"}

    place = columns

    def answer(self, part: CampaignPart[Study], question: Study) -> Answer:
        case, text = question.case, part.target.text
        swept = sweep_by_order(part.session, case, question.lengths)
        names = {"run_id": part.run_id, "target": text, **self.columns(question)}
        for at in question.lengths if question.whole else ():
            y = run_case(part.session, case.with_(length=at)).operands.y
            y = y.reshape(case.output_shape(length=at))
            self.keep_columns("outputs", output_columns(names, at, y, case.dtype))
        if refused := [one.refusal for one in swept.all_values if one.refusal]:
            why = TargetError(text, "error", f"{refused[0]}: no order to draw")
            part.fail(why, self.place(question))
        return {"cases": case_row(case)} | swept.rows(part.run_id)


if __name__ == "__main__":
    main()

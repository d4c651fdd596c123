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
from pathlib import Path
from typing import Any, NamedTuple

from lib import frame
from lib.frame import REPORT
from probe import Case, Store, Target
from probe.case.errors import TargetError
from probe.explain.runs import run_case
from probe.sizes.orders import sweep_by_order
from probe.sweep import stored
from probe.sweep.campaign import Campaign, CampaignPart, Row, case_row
from probe.sweep.plan import output_columns

NAME = "accumulation_orders"


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

QUICK = "reference reference,algorithm=pairwise,length_switch=9".split()


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures and stores; whether Ctrl-C ended it."""
    parts = [(GRID[:1] if quick else GRID, GRID_LENGTHS, "length")]
    options: dict[str, Any] = {"control": "differing", "keep": 16}
    if frame.swept(store, NAME, parts, QUICK if quick else ORDINARY, **options):
        return True
    if frame.explained(store, NAME):
        return True
    studies = [STUDIES[0]._replace(targets=QUICK)] if quick else STUDIES
    asked = [
        (Target.parse(text), [study for study in studies if text in study.targets])
        for text in dict.fromkeys(text for study in studies for text in study.targets)
    ]
    with Store.here(store) as kept, frame.bar(NAME) as tell:
        return Studying(kept, NAME, tell).run(asked).interrupted


class Studying(Campaign[Study]):
    """Reveals each study's case at all its lengths; a study that is stored is not asked again."""

    def place(self, question: Study) -> Row:
        """Returns where a study failed."""
        return {"case_id": question.case.id, "vary": "length"}

    def ask(self, part: CampaignPart[Study], question: Study) -> None:
        """Reveals one study. TargetError: it is no sum, or the target is lost again and again."""
        case, text = question.case, part.target.text
        place = {"run_id": part.run_id, "target": text, **self.place(question)}
        if not self.stored("reveals", place):
            self.keep("cases", case_row(case))
            found = sweep_by_order(part.session, case, question.lengths)
            for table, rows in found.rows(part.run_id).items():
                self.keep(table, rows)
            for at in question.lengths if question.whole else ():
                y = run_case(part.session, case.with_(length=at)).operands.y
                y = y.reshape(case.output_shape(length=at))
                self.keep_columns("outputs", output_columns(place, at, y, case.dtype))
            if refused := [one.refusal for one in found.every if one.refusal]:
                raise TargetError(text, "error", f"{refused[0]}: no order to draw")

    def stored(self, table: str, place: Row) -> list[Row]:
        """Returns the stored rows of a table at a place."""
        assert self.store is not None
        self.store.flush()
        rows = stored.read_table(self.store.path, table).to_pylist()
        return [row for row in rows if all(row[name] == value for name, value in place.items())]


if __name__ == "__main__":
    main()

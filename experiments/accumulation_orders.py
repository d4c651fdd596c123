"""Reveals, replays and names the order and rounding with which TensorFlow adds every output.

The report's five products on every target; shapes whose order depends on the length, with the
kernels that the library itself names; products that are fused and products that are not; sums of
16-bit numbers; and the causes of every difference of a grid in four formats. (A far larger grid
of float32 is that of `length_sweep`.)

Writes results/accumulation_orders/<machine>/*.parquet; notebooks/accumulation_orders.ipynb draws
them. Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from lib import frame
from lib.frame import REPORT
from probe import Case, Store, Target
from probe.case.errors import TargetError
from probe.explain import kernels
from probe.explain.causes import explain_store
from probe.explain.comparison import MOST_KNOWN, run_and_reveal
from probe.order import window
from probe.order.summation import Summation
from probe.sweep import plan
from probe.sweep.bits import sweep_cases
from probe.sweep.campaign import case_row, run_row
from probe.sweep.plan import output_columns
from probe.sweep.printing import Output
from probe.sweep.store import parquet
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import Tell

NAME = "accumulation_orders"


class Study(NamedTuple):
    """A case whose every output is revealed at some lengths on some targets.

    ``whole``: all outputs are stored too. ``asked``: the library is asked for its kernels, at the
    first length at which it adds in a new way.
    """

    case: Case
    lengths: Sequence[int]
    targets: Sequence[str]
    whole: bool = False
    asked: bool = False


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
        asked=True,
    ),
    Study(Case("conv1d", 5, 1, 8), UPTO_64, ["tensorflow,isa=avx2"], asked=True),
    Study(Case("conv1d", 3, 16, 64), UPTO_64, ["tensorflow,isa=avx2"], asked=True),
    Study(Case("conv1d", 5, 3, 6), UPTO_64, ["tensorflow,onednn=0,contraction=0"], asked=True),
    Study(Case("conv1d", 9, 3, 1), range(9, 25), ["tensorflow,onednn=0"], asked=True),
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
    with Store.here(store) as kept, frame.bar("differences") as progress:
        found = sweep_cases(
            GRID[:1] if quick else GRID,
            [Target.parse(text) for text in (QUICK if quick else ORDINARY)],
            GRID_LENGTHS,
            store=kept,
            experiment=NAME,
            control="differing",
            keep=16,
            progress=progress,
        )
    if found.interrupted:
        return True
    with Output().progress("causes") as tell:
        if explain_store(store, progress=tell).interrupted:
            return True
    studies = [STUDIES[0]._replace(targets=QUICK, asked=False)] if quick else STUDIES
    studies = plan.current_shard().part(studies)
    with Store.here(store) as kept, Output().progress("orders") as tell:
        try:
            Studies(kept, studies, tell).run()
        except KeyboardInterrupt:
            return True
    return False


class Studies:
    """The studies, target by target, without what the store has."""

    def __init__(self, store: Store, studies: Sequence[Study], tell: Tell) -> None:
        self.store, self.studies, self.tell = store, studies, tell
        self.total = sum(len(study.lengths) * len(study.targets) for study in studies)
        self.done = 0

    def run(self) -> None:
        """All of them; what a target fails to do becomes a row of ``failures``."""
        for text in dict.fromkeys(text for study in self.studies for text in study.targets):
            mine = [study for study in self.studies if text in study.targets]
            target = Target.parse(text)
            session = open_session(target)
            try:
                session.start()
                self._target(session, mine)
            except TargetError as error:
                run = run_row(target, session.facts, session.variables, NAME)
                self._failed(error, {"run_id": run["run_id"], "case_id": None})
            finally:
                session.close()

    def _target(self, session: AnySession, studies: Sequence[Study]) -> None:
        run = run_row(session.target, session.facts, session.variables, NAME)
        self.store.append("runs", run)
        for study in studies:
            self.store.append("cases", case_row(study.case))
            names = {"run_id": run["run_id"], "case_id": study.case.id}
            place = names | {"target": session.target.text, "vary": "length"}
            self._study(session, study, place)
            if study.asked:
                self._ask(session.target, study, place)

    def _stored(self, table: str, place: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the stored rows of a table at a place."""
        self.store.flush()
        rows = parquet.read_table(self.store.path, table).to_pylist()
        return [row for row in rows if all(row[name] == value for name, value in place.items())]

    def _study(self, session: AnySession, study: Study, place: dict[str, Any]) -> None:
        """Reveals every length, unless it is stored whole."""
        outputs = Counter[int]()
        for row in self._stored("reveals", place):
            outputs[row["at"]] += row["outputs"]
        known: list[Summation] = []
        for at in study.lengths:
            self.done += 1
            self.tell(self.done, self.total, session.target.text)
            case = window.case_at(study.case, "length", at)
            if outputs[at] == math.prod(case.output_shape()):
                continue
            try:
                found = self._reveal(session, study, case, place | {"at": at}, known)
            except TargetError as error:
                self._failed(error, place | {"at": at})
                return
            known = list(dict.fromkeys([*found, *known]))[:MOST_KNOWN]

    def _ask(self, target: Target, study: Study, place: dict[str, Any]) -> None:
        """What the library says it ran, at the first length of every new set of summations."""
        sets: dict[int, set[tuple[str, str]]] = {}
        for row in self._stored("reveals", place):
            sets.setdefault(row["at"], set()).add((row["order_id"], row["rounding_id"]))
        first = {frozenset(sets[at]): at for at in sorted(sets, reverse=True)}
        answered = {row["at"] for row in self._stored("kernels", place) if row["kernel"]}
        for at in sorted(set(first.values()) - answered):
            found = kernels.observe(target, study.case, at)
            self.store.append("kernels", kernels.kernel_rows(place | {"at": at}, found))

    def _reveal(
        self,
        session: AnySession,
        study: Study,
        case: Case,
        place: dict[str, Any],
        known: list[Summation],
    ) -> list[Summation]:
        """Stores one length; the summations of its outputs."""
        side = run_and_reveal(session, case, known)
        if side.orders is None:
            raise TargetError(session.target.text, "error", f"{side.refusal}: no order to draw")
        self.store.append("reveals", side.orders.rows(place))
        self.store.append("orders", [one.order_row() for one in side.orders.summations])
        self.store.append("roundings", [one.rounding_row() for one in side.orders.summations])
        if study.whole:
            output = side.operands.y.reshape(case.output_shape())
            columns = output_columns(place, case.length or 0, output, case.dtype)
            self.store.extend("outputs", columns)
        return side.orders.summations

    def _failed(self, error: TargetError, place: dict[str, Any]) -> None:
        row = {"target": error.target, "kind": error.kind, "message": error.why}
        self.store.append("failures", place | row | {"stderr": error.stderr or None})


if __name__ == "__main__":
    main()

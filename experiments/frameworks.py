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
from probe import Case, Store, Target, load
from probe.case.errors import TargetError
from probe.explain.comparison import run_and_reveal
from probe.sweep import plan
from probe.sweep.campaign import case_row
from probe.sweep.plan import output_columns
from probe.sweep.printing import Output
from probe.targets.launch import AnySession
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
    targets = [Target.parse(text) for text in (QUICK if quick else TARGETS)]
    options = {"experiment": NAME, "keep": KEEP, "opens": patient}
    parts = [(shapes, lengths, "length") for shapes, lengths in grid(quick)]
    if frame.swept(store, f"{NAME}: the grid", parts, targets, **options):
        return True
    with Store.here(store) as kept, Output().progress(f"{NAME}: all targets at one length"):
        together(kept, targets, plan.current_shard().part(TOGETHER[: 1 if quick else None]))
    return frame.explained(store, NAME)


def together(kept: Store, targets: list[Target], shapes: list[Case]) -> None:
    """Stores all outputs of every target, and how each was added; what is there is not repeated."""
    there = load(kept.path)
    newest = there.runs.sort_values("started").drop_duplicates("target", keep="last")
    runs = dict(zip(newest.target, newest.run_id, strict=True))  # the sweep's
    done = set(zip(there.outputs.run_id, there.outputs.case_id, strict=True))
    for target in (one for one in targets if not why_unavailable(one)):  # the sweep has stored why
        run_id, session = runs[target.text], patient(target)
        todo = [case for case in shapes if (run_id, case.id) not in done]
        try:
            for case in todo:
                session = session.revive()
                keep_outputs(kept, session, case, run_id)
        except TargetError as error:
            where = {"run_id": run_id, "target": target.text, "kind": error.kind}
            kept.append("failures", where | {"message": error.why, "stderr": error.stderr or None})
        finally:
            session.close()


def keep_outputs(kept: Store, session: AnySession, case: Case, run_id: str) -> None:
    """Stores all outputs of one case, with the order and the rounding of each."""
    side = run_and_reveal(session, case)
    place = {"run_id": run_id, "case_id": case.id, "target": session.target.text, "vary": "length"}
    kept.append("cases", case_row(case))
    y = side.operands.y.reshape(case.output_shape())
    kept.extend("outputs", output_columns(place, case.length or 0, y, case.dtype))
    if side.orders is None:
        return
    kept.append("reveals", side.orders.rows(place | {"at": case.length}))
    kept.append("orders", [one.order_row() for one in side.orders.summations])
    kept.append("roundings", [one.rounding_row() for one in side.orders.summations])


if __name__ == "__main__":
    main()

"""Measures what keeps the bits at every length, and what each remedy costs.

The report's convolution and three others: every remedy is judged by order, timed in turns with all
the others in one run, and compared with exact sums. Then layers
alone and in a batch, where the invariant mode of ``probe.stable`` is one of them. A quarter of an
hour on two processors.

Writes results/remedies/<machine>/*.parquet; notebooks/remedies.ipynb draws them. Change what you
like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from lib import frame
from probe import Case, Store, Target
from probe.case import schema
from probe.sizes.fixes import (
    Measured,
    RemedySessions,
    advise,
    measured_remedies,
    remedy_to_json,
)
from probe.sweep import plan as shard
from probe.sweep.campaign import Row, case_row, run_row

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


WAYS: dict[str, tuple[tuple[int, ...], tuple[str, ...], int | None]] = {
    "length": (LENGTHS, REMEDIES, None),
    "batch": (BATCHES, OF_BATCHES, 16),
}
"""By what is varied: its values, the remedies, and where costs are reported; None: at a tenth."""

Plan = list[tuple[str, str, tuple[Case, ...]]]

PLAN: Plan = [
    *(
        (target, "length", CASES)
        for target in (EAGER, OLD, "tensorflow,isa=avx2", "tensorflow", "torch", "onnxruntime")
    ),
    *((target, "batch", BATCHED) for target in ("torch", EAGER)),
]
"""What is measured on each target. One target's processes serve all that follows it."""

TINY = Case("dense", in_channels=7, filters=2)
QUICK = "reference,algorithm=pairwise,length_switch=9"
QUICK_PLAN: Plan = [(QUICK, "length", CASES[:1]), (QUICK, "batch", (TINY,))]


@frame.script
def main(experiment: frame.Experiment) -> None:
    plan = QUICK_PLAN if experiment.quick else PLAN
    with experiment.store() as (kept, tell):
        for number, (target, vary, cases) in enumerate(shard.questions_of_part(plan)):
            tell(number, len(plan), target)
            measured_on(target, vary, cases, kept)
    experiment.sum_up()


# Columns of ``remedies`` that are called so in JSON too.
SAME = (
    *("about", "verdict", "compared", "differing", "unknown", "refusal", "seconds"),
    *("seconds_fixed", "ratio", "of_fixed", "ratio_fixed", "error_rms", "error_max"),
)


def remedy_rows(measured: Measured) -> dict[str, list[Row]]:
    """Rows of ``runs``, ``cases``, ``remedies`` and every turn in ``measurements``."""
    run = run_row(measured.target, measured.facts, measured.variables, "remedies")
    case, best, rows = measured.subject, advise(measured).name, []
    place = {"run_id": run["run_id"], "case_id": case.id, "network_id": None}
    place |= {"target": measured.target.text, "vary": measured.vary, "fixed": measured.fixed}
    place |= {"content": measured.content, "lengths": len(measured.lengths)}
    for result in measured.found:
        row = remedy_to_json(measured, result)
        rows.append(
            {**place, **{name: row[name] for name in SAME}, "compared": result.compared or 0}
            | {"remedy": row["name"], "place": row["target"], "keeps": row["keeps_bits"]}
            | {"recommended": result.remedy.name == best}
        )
    turns = [
        {
            "run_id": run["run_id"],
            "subject": f"{measured.label}, fixed at {measured.fixed}",
            "variant": result.remedy.name,
            "size": length,
            "repeat": number,
            "value": value,
            "unit": "s",
        }
        for result in measured.found
        for length, medians in result.seconds.items()
        for number, value in enumerate(medians.tolist())
    ]
    return {"runs": [run], "cases": [case_row(case)], "remedies": rows, "measurements": turns}


def measured_on(target: str, vary: str, cases: tuple[Case, ...], store: Store) -> None:
    """Stores what isn't stored, each as soon as it is known."""
    names, where = schema.key_columns("remedies"), Target.parse(target)
    keys = [dict(zip(names, key, strict=True)) for key in store.done_keys("remedies")]
    done = {(row["target"], row["case_id"], row["fixed"]) for row in keys}
    sizes, only, content = WAYS[vary]
    with RemedySessions() as sessions:
        for case in cases:
            if (where.text, case.id, max(sizes)) in done:
                continue
            found = measured_remedies(
                *(case, where, sizes),
                vary=vary,
                content=content,
                chunks=CHUNKS,
                only=only,
                sessions=sessions,
            )
            for name, rows in remedy_rows(found).items():
                store.append(name, rows)
            store.flush()


if __name__ == "__main__":
    main()

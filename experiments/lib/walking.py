"""Compares two runs of models under variations, and stores the operations as rows.

Each model has a process of its own, which builds it once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from lib.answering import Answer, InProcesses, Timed, answer_each, in_one_line
from lib.frame import Experiment
from lib.fuzzing import proved
from lib.models import Arrays, Given, Model, Variation, every
from probe.diff.running import by_running
from probe.order.semantics import Contracts, Each, Normalises, Reduces, Unknown, Windows
from probe.record import RECORDERS
from probe.sweep.campaign import CampaignPart, Row, Tally
from probe.targets import machine
from probe.targets.target import Target

PATIENCE = 90.0
"""Seconds for the causes of one pair of runs."""

KINDS = (
    *((Contracts, "product"), (Reduces, "reduction"), (Normalises, "norm"), (Each, "function")),
    (Unknown, "unknown"),
)
"""Classes of meanings, and what the table ``sources`` calls them; convolutions and pools aside."""


class Walk(NamedTuple):
    """Two runs of a model of ``lib.models``, of which its process gets the name alone."""

    model: str
    target: str
    weights: str
    variation: Variation


def walk_all(experiment: Experiment, models: Iterable[Model], folder: Path) -> Tally:
    """Walks every model under its variations. ``folder``: with the packages."""
    asked = [
        (one.target, [Walk(one.name, one.target, one.weights, each) for each in one.variations])
        for one in sorted(models, key=lambda model: model.target)
    ]
    return experiment.ask(_Walking, asked, "pairs of runs compared", folder=folder)


class _Walking(InProcesses):
    """``folder``: of the packages."""

    table, key = "walks", ("model", "vary", "at", "against")
    folder: Path

    def columns(self, question: Walk) -> Row:
        return {"model": question.model, "weights": question.weights} | asdict(question.variation)

    def function(self, part: CampaignPart[Any]) -> Any:
        return partial(_walks, folder=self.folder)

    def take(self, part: CampaignPart[Any], question: Walk, answer: Any, seconds: float) -> None:
        super().take(part, question, answer, seconds)
        if isinstance(answer, str):
            where = f"{question.model} on {question.target}"
            self.tally.failures.setdefault(where, []).append(answer)


def _walks(questions: Sequence[Walk], folder: Path) -> list[Timed]:
    """Walks variations of one model, which is built once."""
    name, target = questions[0][:2]
    (model,) = (one for one in every() if (one.name, one.target) == (name, target))
    if backend := dict(Target.parse(target).switches).get("backend"):
        os.environ["KERAS_BACKEND"] = backend
    try:
        sides = model.sides(folder)
    except Exception as error:  # a package or a library that isn't here, or a file that isn't
        return [(in_one_line(error), 0.0)] * len(questions)

    def answer(question: Walk) -> Answer:
        return walked(sides(question.variation), target)

    return answer_each(answer, questions)


def makers(sides: tuple[Given, Given], target: str) -> tuple[Any, Any]:
    """What makes a recorder of other inputs, of both sides: functions are watched by their
    library's."""
    library = Target.parse(target).name
    if library == "keras":
        library = dict(Target.parse(target).switches).get("backend", "tensorflow")

    def recorder(side: Given, arrays: Arrays) -> Any:
        run = side.make(arrays)
        return run if hasattr(run, "record") else import_module(RECORDERS[library]).RECORDER(run)

    left, right = (partial(recorder, side) for side in sides)
    return left, right


def walked(sides: tuple[Given, Given], target: str) -> Answer:
    """Walks two runs: rows of ``walks`` and of ``sources``."""
    from probe.diff.walk import walk

    made, (left, right) = makers(sides, target), sides
    match = by_running(made, (left.arrays, right.arrays))
    found = walk(made[0](left.arrays), made[1](right.arrays), seconds=PATIENCE, match=match)
    verdicts = [each.verdict for each in found.operations]
    first = found.first
    row = {
        "verdict": found.verdict,
        "operations": len(verdicts),
        "examined": found.examined,
        "sources": verdicts.count("source"),
        "carried": verdicts.count("carried"),
        "own": sum(bool(each.differing_alone) for each in found.operations),
        "healed": verdicts.count("healed"),
        "one_side": verdicts.count("left") + verdicts.count("right"),
        "first": first and first.name,
        "first_op": first and first.op,
        "first_cause": (first and first.cause) or None,
        "notes": machine.publishable("; ".join(found.notes)) or None,
        **proved(found.rounding),
    }
    return {"walks": row | _outputs(found), "sources": _sources(found)}


def _outputs(found: Any) -> Row:
    """What the difference comes to at the outputs."""
    pairs = found.outputs
    ulps = [pair.max_ulp for pair in pairs]
    rows, crossed = 0, 0
    for pair in pairs:
        if pair.compared:
            some = _decisions(found, pair)
            rows, crossed = rows + some[0], crossed + some[1]
    return {
        "compared": sum(pair.compared for pair in pairs),
        "differing": sum(pair.differing for pair in pairs),
        "max_ulp": None if None in ulps else max(ulps, default=0),
        "scaled": max((pair.distance_in_eps for pair in pairs), default=0.0),
        "rows": rows,
        "crossed": crossed,
    }


def _decisions(found: Any, pair: Any) -> tuple[int, int]:
    """Rows of an output that must agree whole, and those whose largest number is another one."""
    mine = found.left.arrays({pair.left})[pair.left]
    other = found.right.arrays({pair.right})[pair.right]
    masks = [
        pair.selection.mask(array.shape, side).reshape(-1, array.shape[-1]).all(-1)
        for side, array in enumerate((mine, other))
    ]
    tops = [
        array.reshape(-1, array.shape[-1])[mask].argmax(-1)
        for array, mask in zip((mine, other), masks, strict=True)
    ]
    if len(tops[0]) != len(tops[1]) or mine.dtype.kind != "f":
        return 0, 0
    return len(tops[0]), int((tops[0] != tops[1]).sum())


def _sources(found: Any) -> list[Row]:
    rows = []
    for number, one in enumerate(found.operations):
        if one.verdict != "source" and not one.differing_alone:
            continue
        cause = found.causes.get(number)
        row: Row = {"number": number, "name": one.name, "op": one.op, "kind": kind(found, one)}
        row |= {"verdict": one.verdict, "compared": one.compared, "max_ulp": one.max_ulp}
        row["differing"] = one.differing_alone or one.differing
        if cause is not None:
            row |= {"cause": cause.kind or None, "examined": cause.examined}
            row |= {"replayed": cause.replayed, "alone": int(cause.alone)}
            row["why"] = machine.publishable(cause.why)
        rows.append(row)
    return rows


def kind(found: Any, one: Any) -> str:
    """What sort of operation an aligned one is, by its meaning."""
    meaning = found.left.operations[one.left].meaning
    if isinstance(meaning, Windows):
        return "pool" if meaning.pool else "convolution"
    return next((name for type_, name in KINDS if isinstance(meaning, type_)), "other")

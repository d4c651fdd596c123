"""Compares two runs of models under variations, and stores the operations as rows.

Each model has a process of its own, which builds it once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from lib.fuzzing import in_process, proved
from lib.models import Arrays, Given, Model, Variation, every
from probe.case.errors import ProbeError
from probe.diff.running import by_running
from probe.order.semantics import Contracts, Each, Normalises, Reduces, Unknown, Windows
from probe.record import RECORDERS
from probe.sweep import stored
from probe.sweep.campaign import Campaign, CampaignPart, Row, Tally
from probe.sweep.store import Store
from probe.targets import machine
from probe.targets.progress import Tell, silent
from probe.targets.target import Target

PATIENCE = 90.0
"""Seconds for the causes of one pair of runs."""

WORDS = ("vary", "at", "against")

KINDS = (
    *((Contracts, "product"), (Reduces, "reduction"), (Normalises, "norm"), (Each, "function")),
    (Unknown, "unknown"),
)
"""Classes of meanings, and what the table ``sources`` calls them; convolutions and pools aside."""


def walk_all(models: Iterable[Model], store: Store, folder: Path, tell: Tell = silent) -> Tally:
    """Walks every model under its variations; what the store has is not walked again.

    ``folder``: with the packages. ``found``: pairs of runs that were compared. What fails is a row
    with the reason.
    """
    job = _Walking(store, "real_models", tell)
    job.folder = folder
    rows = stored.read_table(store.path, "walks").to_pylist()
    job.known_rows = {tuple(row[name] for name in ("run_id", "model", *WORDS)) for row in rows}
    asked = sorted(models, key=lambda model: model.target)
    groups = groupby(asked, key=lambda model: model.target)
    return job.run((Target.parse(text), list(some)) for text, some in groups)


class _Walking(Campaign[Model]):
    """``known_rows``: runs, models and variations that are stored; ``folder``: of the packages."""

    folder: Path
    known_rows: set[tuple[Any, ...]]

    def size(self, question: Model) -> int:
        return len(question.variations)

    def ask(self, part: CampaignPart[Model], question: Model) -> None:
        """Walks what the store does not have of a model."""
        place: Row = {"run_id": part.run_id, "model": question.name, "target": question.target}
        key = part.run_id, question.name
        todo = [one for one in question.variations if (*key, *astuple(one)) not in self.known_rows]
        self.tally.before += len(question.variations) - len(todo)
        walks = partial(_walks, question.name, question.target, folder=self.folder)
        for walk, sources in in_process(walks, todo, _died) if todo else ():
            self.keep("walks", place | {"weights": question.weights} | walk)
            named = place | {word: walk[word] for word in WORDS}
            self.keep("sources", [named | source for source in sources])
            self.tally.found += walk["reason"] is None
            if walk["reason"]:
                where = f"{question.name} on {question.target}"
                self.tally.failures.setdefault(where, []).append(walk["reason"])


def _walks(
    name: str, target: str, todo: Sequence[Variation], folder: Path
) -> list[tuple[Row, list[Row]]]:
    (model,) = (one for one in every() if (one.name, one.target) == (name, target))
    if backend := dict(Target.parse(target).switches).get("backend"):
        os.environ["KERAS_BACKEND"] = backend
    try:
        sides = model.sides(folder)
    except Exception as error:  # a package or a library that isn't here, or a file that isn't
        return [(_refused(one, _said(error)), []) for one in todo]
    found = []
    for one in todo:
        try:
            found.append(walked(sides(one), one, model.target))
        except Exception as error:  # recorded as refused, so that the others run
            found.append((_refused(one, _said(error)), []))
    return found


def _said(error: Exception) -> str:
    text = str(error) if isinstance(error, ProbeError) else f"{type(error).__name__}: {error}"
    return machine.publishable((text.splitlines() or [type(error).__name__])[0])


def _died(one: Variation) -> tuple[Row, list[Row]]:
    return _refused(one, "the process died"), []


def _refused(one: Variation, reason: str) -> Row:
    return asdict(one) | {"seconds": 0.0, "reason": reason}


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


def walked(sides: tuple[Given, Given], one: Variation, target: str) -> tuple[Row, list[Row]]:
    """Walks two runs; columns of ``walks`` and of ``sources``."""
    from probe.diff.walk import walk

    begun = time.monotonic()
    made, (left, right) = makers(sides, target), sides
    match = by_running(made, (left.arrays, right.arrays))
    found = walk(made[0](left.arrays), made[1](right.arrays), seconds=PATIENCE, match=match)
    verdicts = [each.verdict for each in found.operations]
    first = found.first
    row = asdict(one) | {
        "reason": None,
        "verdict": found.verdict,
        "operations": len(verdicts),
        "examined": found.examined,
        "sources": verdicts.count("source"),
        "carried": verdicts.count("carried"),
        "own": sum(bool(each.own) for each in found.operations),
        "healed": verdicts.count("healed"),
        "one_side": verdicts.count("left") + verdicts.count("right"),
        "first": first and first.name,
        "first_op": first and first.op,
        "first_cause": (first and first.cause) or None,
        "notes": machine.publishable("; ".join(found.notes)) or None,
        "seconds": time.monotonic() - begun,
        **proved(found.rounding),
    }
    return row | _outputs(found), _sources(found)


def _outputs(found: Any) -> Row:
    """Returns what the difference comes to at the outputs."""
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
        "scaled": max((pair.scaled for pair in pairs), default=0.0),
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
    """Returns rows of ``sources``."""
    rows = []
    for number, one in enumerate(found.operations):
        if one.verdict != "source" and not one.own:
            continue
        cause = found.causes.get(number)
        row: Row = {"number": number, "name": one.name, "op": one.op, "kind": kind(found, one)}
        row |= {"verdict": one.verdict, "compared": one.compared, "max_ulp": one.max_ulp}
        row["differing"] = one.own or one.differing
        if cause is not None:
            row |= {"cause": cause.kind or None, "examined": cause.examined}
            row |= {"replayed": cause.replayed, "alone": int(cause.alone)}
            row["why"] = machine.publishable(cause.why)
        rows.append(row)
    return rows


def kind(found: Any, one: Any) -> str:
    """Returns what sort of operation an aligned one is, by its meaning."""
    meaning = found.left.operations[one.left].meaning
    if isinstance(meaning, Windows):
        return "pool" if meaning.pool else "convolution"
    return next((name for type_, name in KINDS if isinstance(meaning, type_)), "other")

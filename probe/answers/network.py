"""What a model does on padded inputs or in two runs, and what keeps the bits at what cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.answers.answer import (
    DEFAULT_TARGET,
    Answer,
    checked_target,
    checked_targets,
    length_values,
)
from probe.arguments import whole_number
from probe.budget import within
from probe.case import Case
from probe.errors import InputError
from probe.floats import rounded_text
from probe.invariant.mitigations import (
    Measured,
    RemedyResult,
    advise,
    measured_remedies,
    remedies_report,
    remedy_rows,
)
from probe.progress import Tell, silent
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probe.answers.first_difference import Walked
    from probe.answers.padded import OnTargets, Padded


def network(
    model: Any,
    target: str | Target | Iterable[str | Target] = DEFAULT_TARGET,
    *,
    lengths: Iterable[int] | None = None,
    fixed: int | None = None,
    padded: int | None = None,
    value: float = 0.0,
    seed: int = 0,
    safe: bool = True,
    plan: str | Path | None = None,
    trust: bool = False,
    **two: Any,
) -> Padded | OnTargets | Walked:
    """Runs a model at short padded lengths and at its full one, and compares all; or compares two
    runs of it, operation by operation.

    Two runs: where ``at``, ``against`` or ``against_target`` is given, any model is run twice and a
    ``Walked`` comes back, as of ``probe.first_difference``: ``vary`` (``batch``, ``length`` or
    ``NAME:AXIS``), ``at`` and ``against``: the sizes of the two sides' inputs; ``inputs``: arrays
    by name, or a .npz file; ``shapes``: of generated inputs, by name; ``against_target``: another
    target for the right side; ``sizes``: more sizes to compare with ``against``, ``by`` bits or
    ``order`` (all finite inputs); ``explain=False``: find no causes; ``time``: stop after
    this long, such as ``5m``. ``target`` and
    ``against_target`` run in processes of their own, so the model is a file or
    ``"module:function"`` then.

    Otherwise inputs are padded, along what ``vary`` says, which may be the batch: a ``Padded``
    comes back, or ``OnTargets`` of several. On a target that is not the model's own library, or of
    another release or processor, a recording is replayed.

    ``model``: a file as ``probe network --help`` lists them, a Keras model, a PyTorch module, or a
    function, by itself or as ``"module:function"``. ``lengths``: valid lengths; 1, a tenth and a
    quarter of the full one if not given. ``fixed``: the length to which users pad the content, with
    which short runs are compared; that of ``inputs`` if not given. ``padded``: pad to this length
    instead of each content's least. ``value``: what padding holds. ``safe``: find safe lengths.
    ``plan``: a folder for plan.json and padded.py; of several targets with a folder each.
    ``trust``: read a file that runs code of its own. Errors: InputError; TargetError where the only
    target fails.
    """
    for name in two:
        if name not in TWO:  # as Python says it of its own
            raise TypeError(f"network() got an unexpected keyword argument {name!r}")
    two = {name: one for name, one in two.items() if not _not_given(one)}
    own = target == DEFAULT_TARGET
    from probe.answers.record import GivenModel
    from probe.answers.two_runs import TwoSides, of_two, refuse_padding, two_runs

    two_sided = of_two(two, (fixed, lengths, plan))
    given = GivenModel(model, two.pop("inputs", None), two.pop("shapes", None), trust, seed)
    how = {name: two.pop(name) for name in ("explain", "time", "progress") if name in two}
    if two_sided:
        pads = {"fixed": fixed, "lengths": lengths, "padded": padded, "plan": plan}
        refuse_padding({name: one for name, one in pads.items() if one is not None})
        chosen = [] if own else checked_targets(target)
        if len(chosen) > 1:
            texts = ", ".join(one.text for one in chosen)
            todo = "give one target, and the second one as against_target"
            raise InputError("target", texts, "each of two runs has one target", todo)
        one = chosen[0] if chosen else None
        return two_runs(given, TwoSides(**two), one, **how)
    if (limit := how.pop("time", None)) is not None:
        why = "padding takes no limit of time, two runs do"
        raise InputError("time", limit, why, "leave it out, or give at and against")
    if (by := two.get("by", "bits")) != "bits":
        why = "padding compares orders wherever it can"
        raise InputError("by", by, why, "leave it out, or give at, against and sizes")
    from probe.answers import padded as answers

    vary = two.get("vary", "length")
    asked = answers.PaddingQuestion(vary, fixed, lengths, padded, value, safe, plan)
    if own:
        return answers.padded(given, asked, **how)
    return answers.on_targets(given, asked, checked_targets(target), **how)


def _not_given(given: Any) -> bool:
    return given is None or (isinstance(given, tuple | dict) and not given)


# What ``network`` takes for two runs of any model.
TWO = (
    *("vary", "at", "against", "inputs", "shapes", "against_target", "sizes", "by"),
    *("explain", "time", "progress"),
)


@dataclass(repr=False)
class Remedied(Answer):
    """Holds every remedy of a case or a network on one target, tested, timed and compared."""

    found: Measured

    def report(self) -> dict[str, Any]:
        return remedies_report(self.found)

    def lines(self) -> tuple[str, str, str]:
        found = self.found
        told = [f"{one.remedy.name} {one.verdict}{self._cost(one)}" for one in found.found]
        asked = f"{found.label}: {len(found.lengths):,} {found.sizes} against {found.fixed:,}"
        return f"{asked} on {found.target.text}", advise(found).text, "; ".join(told)

    def _cost(self, one: Any) -> str:
        cost = rounded_text(self.found.of_fixed(one))
        return f" ({cost} of the full size's time)" if cost else ""

    def drawn(self) -> Figure | None:
        """Draws a bar for each remedy: its cost, coloured by whether it is exact."""
        from probe.plots import views

        return views.draw_mitigated(self.found)


# Why a case does not take what a model does, and what to do.
OF_MODEL = {
    "fixed": ("a case is compared with its largest length", "add it to --lengths"),
    "inputs": ("a case generates its own", "leave it out"),
    "shapes": ("a case says its own sizes", "leave it out"),
    "table": ("it is of a model in the invariant mode", "give a model, or leave it out"),
    "trust": ("a case reads no model file", "leave it out"),
}


def remedies(
    subject: Case | Any,
    lengths: Iterable[int],
    target: str | Target = DEFAULT_TARGET,
    *,
    fixed: int | None = None,
    content: int | None = None,
    chunks: Iterable[int] | None = None,
    only: Iterable[str] | None = None,
    store: str | Path | None = None,
    trust: bool = False,
    progress: Tell | None = None,
    each: Callable[[RemedyResult], None] = silent,
    time: str | None = None,
    vary: str | None = None,
    inputs: Mapping[str, np.ndarray] | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    table: str | Path | None = None,
) -> Remedied | Padded:
    """Tests every remedy of a case, times it and compares it with exact sums.

    Of a model the answer is a ``Padded`` with ``remedies``: how far to pad, and
    ``probe.stable.invariant``.

    ``vary``: of a case ``length`` (the default) or ``batch`` (the rows of a dense layer); of a
    model also ``NAME:AXIS``. ``inputs``, ``shapes``: of a model, as of ``probe.network``.
    ``table``: a file with the classes of the invariant mode, which is read and checked where it is
    there, and written.

    ``subject``: a case, or a model as ``probe.network`` takes it. ``lengths``: of a case two or
    more, each compared with the largest; of a model valid lengths. ``fixed``: of a model, the full
    size that content is padded to. ``content``: the length at which costs are reported; about a
    tenth of the largest if not given. ``chunks``: outputs of the chunks that are tried. ``only``:
    names of remedies; of a model switches, chunks, float64 and constants between its operations are
    tried only where they are named. ``store``: of a case, a folder for the results. ``trust``: read
    a model file that runs code of its own. ``time``: begin nothing new after this long, such as
    ``5m``; what is left is "not known", as after Ctrl-C. ``each``: of a case, called with a remedy
    as soon as it is judged. Errors: InputError; TargetError where the default can't run.
    """
    where = checked_target(target)
    sizes = list(chunks or ())
    tried = [*(only or ()), *(f"chunks={size}" for size in sizes)]
    more: dict[str, Any] = {"only": None if only is None else tried, "progress": progress}
    if only is not None:
        sizes = [whole_number("chunks", one[7:]) for one in tried if one.startswith("chunks=")]
    if sizes:
        more["chunks"] = sizes
    values = length_values(lengths)
    of_model: dict[str, Any] = {"inputs": inputs, "shapes": shapes, "table": table}
    of_model = {name: one for name, one in of_model.items() if not _not_given(one)}
    if isinstance(subject, Case):
        of_model |= {"trust": True} if trust else {}
        of_model |= {} if fixed is None else {"fixed": fixed}
        for name, one in of_model.items():
            raise InputError(name, one, *OF_MODEL[name])
        with within(time):
            found = measured_remedies(
                subject, where, values, vary=vary, content=content, each=each, **more
            )
        if store is not None:
            from probe.store import Store  # what keeps nothing needs no pyarrow

            with Store.here(Path(store)) as kept:
                for name, found_rows in remedy_rows(found).items():
                    kept.append(name, found_rows)
        return Remedied(found)
    from probe.answers.padded import PaddingQuestion, remedied
    from probe.answers.record import GivenModel

    if store is not None:
        why = "only a case's remedies are stored"
        raise InputError("store", store, why, "leave it out: this is a model")
    given = GivenModel(subject, inputs, shapes, trust)
    asked = PaddingQuestion(vary or "length", fixed, values)
    tell = None if progress is None else (lambda text: progress(0, 0, text))
    words = {} if target == DEFAULT_TARGET else {"target": where}
    with within(time):
        return remedied(
            given, asked, content=content, table=table, only=tried, progress=tell, **words
        )

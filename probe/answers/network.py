"""What a model does on padded inputs or in two runs, and what keeps the bits at what cost: at which
sizes its outputs keep the full run's bits, and what to do."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe import budget, memory
from probe.answers.answer import (
    DEFAULT_TARGET,
    Answer,
    checked_target,
    checked_targets,
    length_values,
)
from probe.answers.first_difference import ComparisonQuestion, Walked
from probe.answers.record import GivenModel
from probe.answers.two_runs import TwoSides, of_two, refuse_padding, two_runs
from probe.arguments import whole_number
from probe.budget import within
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.floats import rounded_text
from probe.invariant import mitigated_models
from probe.invariant.mitigated_models import InvariantResult
from probe.invariant.mitigations import (
    INVARIANT,
    Measured,
    RemedyResult,
    advise,
    measured_remedies,
    remedies_report,
    remedy_rows,
)
from probe.launch import AnySession, open_session
from probe.padding import plan as graph_plan
from probe.padding.plan import OF_CONTIGUOUS, GraphPlan
from probe.padding.search import BY_BITS, PaddedModel, SafeSize, Serves
from probe.progress import Say, Tell, silent
from probe.recording.apart import Apart, is_own_library
from probe.recording.inputs import varied_axes
from probe.recording.replayed import OnTarget, Replayed
from probe.recording.walk import CHANGED, compare_and_explain, watched
from probe.semantics import Unknown
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    vary = two.get("vary", "length")
    asked = PaddingQuestion(vary, fixed, lengths, padded, value, safe, plan)
    if own:
        return pad_model(given, asked, **how)
    return on_targets(given, asked, checked_targets(target), **how)


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
        from probe.plots import pictures

        return pictures.draw_mitigated(self.found)


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


FIXED = (
    "give --fixed N, the full size to which inputs are usually padded; or compare two runs: "
    "probe network MODEL --vary batch --at 1 --against 8"
)


CERTIFIED = "certified: all additions of every sum whose size changes were tested"


@dataclass(repr=False)
class Padded(Answer):
    """Holds the results of a padded graph: ``found`` has a ``SafeSize`` for each valid size.

    ``walked``: the run at the least size that differs, against the full one, operation by
    operation; None where none does. ``plan``: what to pad to, if a plan was asked for.
    ``remedies``: ways of padding, and the invariant mode, with verdicts and costs, as of
    ``invariant.mitigated_models``, where they were asked for. ``invariant``: that mode's runs.
    """

    found: list[SafeSize]
    model: str
    graph: PaddedModel
    vary: str
    walked: Walked | None = None
    plan: GraphPlan | None = None
    written: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remedies: list[dict[str, Any]] = field(default_factory=list)
    invariant: InvariantResult | None = None

    @property
    def verdict(self) -> str:
        """Of the least sizes: ``differs`` if one changes bits, ``equal`` if none does; ``unknown``
        where no shorter size has the outputs, or nothing could be said."""
        every = [one.at_least for one in self.found]
        if any(not one.serves and not one.lacking for one in every):
            return "differs" if any(one.by_order == "differs" for one in every) else "unknown"
        return "unknown" if any(one.lacking for one in every) else "equal"

    @property
    def target(self) -> str:
        """Returns the target that computed it."""
        return self.graph.whole(self.found[0].content).target

    @property
    def finding(self) -> bool:
        """Returns whether a least size changes bits, or whether that is unknown."""
        return self.verdict != "equal"

    @property
    def first(self) -> str | None:
        """Returns the operation that changes bits at a least size, for the shortest content."""
        told = [one.at_least for one in self.found if one.at_least.by_order == "differs"]
        return told[0].name if told else None

    @property
    def given(self) -> str:
        """Returns for which values alone the safe sizes are; empty: for all."""
        return next((one.at_safe.given for one in self.found if one.at_safe.given), "")

    @property
    def in_the_way(self) -> Serves | None:
        """Returns what stands against a proof, or against every shorter size."""
        every = [told for one in self.found for told in (one.at_safe, one.at_least)]
        return next((one for one in every if one.name and one.by_order == "unknown"), None)

    def report(self) -> dict[str, Any]:
        operations = self.graph.whole(self.found[0].content).operations
        known = sum(not isinstance(one.meaning, Unknown) for one in operations)
        stands = self.in_the_way
        report: dict[str, Any] = {
            "verdict": self.verdict,
            "examined": known,
            "operations_total": len(operations),
            "part": None,
            "first": self.first,
            "in_the_way": stands.name if stands else None,
            "why": stands.why if stands else None,
            "certified": all(one.at_safe.certified for one in self.found),
            "certified_for": self.given or None,
            "model": self.model,
            "target": self.target,
            "vary": self.vary,
            "along": self.graph.along,
            "fixed": self.graph.fixed,
            "contents": [
                {
                    "content": one.content,
                    "least": one.least,
                    "safe": one.safe,
                    "at_least": _serves_to_json(one.at_least),
                    "at_safe": _serves_to_json(one.at_safe),
                    "certified": one.at_safe.certified,
                    "over": one.over or None,
                }
                for one in self.found
            ],
            "walked": None if self.walked is None else self.walked.report(),
            "plan": None if self.plan is None else self.plan.to_json(),
            "notes": self.notes,
            "written": self.written,
        }
        if self.remedies:
            report["remedies"] = self.remedies
            report["recommended"] = mitigated_models.recommended_way(self.remedies)
            report["invariant"] = None if self.invariant is None else self.invariant.to_json()
        return report

    def lines(self) -> tuple[str, str, str]:
        what = f"{self.model}: {self.vary} padded, against {self.graph.fixed:,}"
        said = []
        for one in self.found[:6]:
            words = f"to {one.safe:,}" + " or less" * bool(one.over)
            words += f" (not {one.least:,})" * (one.safe > one.least)
            alone = one.at_least.lacking and one.safe == one.least
            said.append(f"{one.content:,}: " + (f"to {one.safe:,} alone" if alone else words))
        safe = "; ".join(said)
        if not self.remedies:
            return what, f"{self.verdict}; pad {safe}", self.advice()
        costs = {one["name"]: rounded_text(one["of_fixed"]) or "-" for one in self.remedies}
        told = [f"{one['name']} {one['verdict']} ({costs[one['name']]})" for one in self.remedies]
        best = f"recommended: {mitigated_models.recommended_way(self.remedies)}; pad {safe}"
        return what, f"{'; '.join(told)} of the full size's time", best

    def advice(self) -> str:
        """Returns what the result means, in a sentence."""
        stands = self.in_the_way
        parts = []
        if self.first:
            one = next(one.at_least for one in self.found if one.at_least.name == self.first)
            parts.append(f"changes bits first: {one.name} ({one.why})")
        if stands is not None:
            parts.append(f"prevented by {stands.name}: {stands.why}")
        elif any(one.safe < self.graph.fixed for one in self.found):
            safe = [one.at_safe for one in self.found]
            every = all(one.certified for one in safe)
            parts.append(
                CERTIFIED + f", for {self.given}" * bool(self.given)
                if every
                else "the sums are added in the same order; "
                + next((o.why for o in safe if o.why == BY_BITS), "not every addition was tested")
            )
        return "; ".join(parts) or "every input is padded to the full size"

    def reproduce(self, folder: str | Path) -> Any:
        """Writes the report of what changes bits at the least size. InputError: nothing does."""
        if self.walked is None:
            why = "no least padded size changes bits, so there is nothing to report"
            raise InputError("source", "(none)", why, "compare two runs that differ")
        return self.walked.reproduce(folder)

    def drawn(self) -> Figure | None:
        """Draws the operations of the run that differs; where none does, how far to pad."""
        if self.walked is not None:
            return self.walked.drawn()
        from probe import plots

        figure, (axes,) = plots.panels(1, 1, 5.0, 3.2)
        contents = [one.content for one in self.found]
        for name in ("least", "safe"):
            axes.plot(contents, [getattr(one, name) for one in self.found], "o-", label=name)
        axes.set(xlabel=f"valid {self.vary}", ylabel="padded to", title=self.model)
        axes.legend()
        return figure


@dataclass(repr=False)
class OnTargets(Answer):
    """Holds a model padded on several targets. ``failures``: of the others, target and message."""

    found: list[Padded]
    failures: list[dict[str, str]]

    @property
    def verdict(self) -> str:
        """Returns ``differs`` if it does on one, ``equal`` if on all it is, else ``unknown``."""
        told = {one.verdict for one in self.found} | ({"unknown"} if self.failures else set())
        return next((word for word in ("differs", "unknown") if word in told), "equal")

    @property
    def finding(self) -> bool:
        """Returns whether a least size changes bits on some target, or whether that is unknown."""
        return any(one.finding for one in self.found)

    def report(self) -> dict[str, Any]:
        one = self.found[0].report() if self.found else {}
        return {
            "verdict": self.verdict,
            **{name: one.get(name) for name in ("examined", "operations_total", "part")},
            **{name: one.get(name) for name in ("model", "vary", "fixed")},
            "targets": {each.target: each.report() for each in self.found},
            "failures": self.failures,
            "written": [path for each in self.found for path in each.written],
        }

    def lines(self) -> tuple[str, str, str]:
        what = self.found[0].lines()[0] if self.found else ""
        told = [f"{one.target}: {one.lines()[1]}" for one in self.found]
        told += [f"{one['target']}: failed: {one['message']}" for one in self.failures]
        advised = "; ".join(f"{one.target}: {one.advice()}" for one in self.found)
        return what, "; ".join(told), advised

    def drawn(self) -> Figure | None:
        """Draws the first target's run that differs; None where none does."""
        return next((drawn for one in self.found if (drawn := one.drawn())), None)


@dataclass(frozen=True)
class PaddingQuestion:
    """How a model's inputs are padded, and what is wanted.

    ``vary``: ``length``, ``batch`` or ``NAME:AXIS``. ``fixed``: the size that is the reference;
    None: that of the inputs. ``lengths``: of content; None: 1, a tenth and a quarter of the full
    size. ``to``: pad to this size instead of each content's least. ``value``: what padding holds.
    ``safe``: find safe sizes. ``plan``: a folder for plan.json and padded.py.
    """

    vary: str = "length"
    fixed: int | None = None
    lengths: Iterable[int] | None = None
    to: int | None = None
    value: float = 0.0
    safe: bool = True
    plan: str | Path | None = None


def on_targets(
    given: GivenModel, asked: PaddingQuestion, targets: Sequence[Target], **words: Any
) -> Padded | OnTargets:
    """Does as ``pad_model`` on each target; one that fails is a failure, unless it is alone."""
    if len(targets) == 1:
        return pad_model(given, asked, targets[0], **words)
    found, failures, plan = [], list[dict[str, str]](), asked.plan
    for one in targets:
        if plan is not None:
            name = "".join(c if c.isalnum() or c in "._=-" else "-" for c in one.text)
            asked = replace(asked, plan=Path(plan) / name)
        try:
            found.append(pad_model(given, asked, one, **words))
        except TargetError as error:
            failures.append({"target": one.text, "kind": error.kind, "message": error.why})
    return OnTargets(found, failures)


def _serves_to_json(one: Serves) -> dict[str, Any]:
    return {
        "serves": one.serves,
        "by_order": one.by_order,
        "lacking": one.lacking,
        "operation": one.name or None,
        "why": one.why or None,
        "certified": one.certified,
        "certified_for": one.given or None,
        "kept": [None if box is None else [vars(part) for part in box] for box in one.boxes],
    }


def remedied(
    given: GivenModel,
    asked: PaddingQuestion,
    *,
    content: int | None = None,
    table: str | Path | None = None,
    only: Sequence[str] = (),
    **words: Any,
) -> Padded:
    """Does as ``pad_model``, with the ways of padding and the invariant mode judged and timed at
    ``content``; the middle one of the lengths if it is not given. ``table``: of the classes of the
    invariant mode: it is read and checked where it is there, and written. ``only``: no others than
    these and the default; also the target's: see ``mitigated_models.tried_mitigations``."""
    if table is not None and Path(table).is_dir():
        raise InputError("table", table, "it is a folder", "give a file, such as classes.json")
    if table is not None and not Path(table).absolute().parent.is_dir():
        raise InputError("table", table, "there is no such folder", "make it first")
    every = sorted({*(asked.lengths or ()), *([] if content is None else [content])})
    found = pad_model(given, replace(asked, lengths=every), **words)
    known = [one.content for one in found.found]
    at = content if content in known else known[len(known) // 2]
    if not only or INVARIANT in only:
        (words.get("progress") or silent)("the invariant mode")
        try:
            why = budget.spent()
            found.invariant = (
                InvariantResult(f"not tried: {why}")
                if why
                else mitigated_models.of_graph(found.graph, found.found, given.model, table)
            )
        except KeyboardInterrupt:  # what padding came to stays, and is timed
            found.invariant = InvariantResult("not tried to the end: interrupted")
        if table is not None and found.invariant.report is not None:
            found.written.append(str(table))
        found.notes += [f"invariant: {one}" for one in found.invariant.notes]
    every_way = mitigated_models.judged_ways(found.graph, found.found, at, found.invariant)
    found.remedies = [one for one in every_way if not only or one["name"] in ("default", *only)]
    others = [name for name in only if name not in {one["name"] for one in every_way}]
    if others and not budget.spent():
        (words.get("progress") or silent)(f"trying {', '.join(others)}")
        found.remedies += mitigated_models.tried_mitigations(found.graph, found.found, at, others)
    return found


def pad_model(
    given: GivenModel,
    asked: PaddingQuestion,
    target: str | Target | None = None,
    explain: bool = True,
    progress: Say | None = None,
) -> Padded:
    """Pads a model's inputs along an axis, and finds the sizes that keep the full-size run's bits.

    ``target``: run it there; a file or ``"module:function"`` in a process of its own with the
    target's switches, where that is its own library. On another library, release or processor a
    recording is replayed, operation by operation. Errors: InputError; TargetError;
    Nondeterministic.
    """
    tell = progress or silent
    tell("opening the model")
    graph = _padded_model(given, asked)
    fixed, lengths = graph.fixed, asked.lengths
    some = {1, max(fixed // 10, 1), max(fixed // 4, 1)}
    contents = sorted(
        some if lengths is None else {whole_number("lengths", one) for one in lengths}
    )
    running = ExitStack()
    try:
        notes = _watch_full_run(graph, given, contents[0], target, running)
        sizes, why = list[SafeSize](), ""
        for content in contents:
            if sizes and (why := budget.spent()):
                left = f"valid sizes from {content:,} on were not looked at: {why}"
                notes = [*notes, left]
                break
            graph.checked(content)
            tell(f"{asked.vary} {content:,} of {fixed:,}")
            alone = asked.to is not None or not asked.safe
            sizes.append(_one_size(graph, content, asked.to) if alone else graph.sized(content))
        answer = Padded(sizes, given.name, graph, asked.vary, notes=notes)
        first = next((one for one in sizes if one.at_least.by_order == "differs"), None)
        if first is not None:  # explained where the bits of its content show it
            ends = graph.side(first.content, first.least), graph.whole(first.content)
            left, todo = f"{first.content:,} padded to {first.least:,}", f"pad to {first.safe:,}"
            question = ComparisonQuestion(given.name, left, f"padded to {fixed:,}", todo)
            answer.walked = Walked(compare_and_explain(*ends, explain, tell), question)
        if asked.plan is not None or (asked.safe and not budget.spent()):
            tell("checking the plan")
            every = contents if asked.plan is None else range(1, contents[-1] + 1)
            answer.plan = graph_plan.make(graph, every, given.name, tell)
            for one in sizes:  # shorter sizes, where padding inputs alone takes longer ones
                if not one.at_least.lacking and one.safe != one.content:
                    tell(f"padding between operations: {one.content:,}")
                    told = graph_plan.sought_between(graph, one.content, one.safe)
                    answer.plan.between += [] if told is None else [told]
            if any(one.contiguous for one in answer.plan.between):
                answer.plan.assumed.append(OF_CONTIGUOUS)
        if asked.plan is not None and answer.plan is not None:
            answer.written = [str(path) for path in answer.plan.save(Path(asked.plan))]
    except BaseException:
        running.close()
        raise
    weakref.finalize(answer, running.close)
    return answer


def _watch_full_run(
    graph: PaddedModel, given: GivenModel, content: int, target: Any, running: ExitStack
) -> list[str]:
    """Watches the full run, in this process or on a target's; what is to be said of it."""
    graph.check(content)
    if target is None:
        recorder = graph.opened.recorder(graph.inputs(content, graph.fixed))
        graph.sides[content, graph.fixed], notes = watched(recorder, "the model")
        graph.doubt = next((one for one in notes if CHANGED in one), "")
        return notes
    where = checked_target(target)
    if isinstance(given.model, str | Path) and is_own_library(where, str(given.model)):
        folder = Path(tempfile.mkdtemp(prefix="probe-"))
        running.callback(shutil.rmtree, folder, ignore_errors=True)
        process = Apart(given.text("target"), where, given.trust, folder)
        graph.opened = running.enter_context(process)
    else:  # another library, release or processor: what is recorded here is replayed there
        session: AnySession = open_session(where)
        running.enter_context(session)
        graph.opened = OnTarget(graph.opened, session)
    whole = graph.whole(content)
    found = [] if whole.made is None else whole.made.notes
    graph.doubt = next((one for one in found if CHANGED in one), "")
    return [whole.said] if isinstance(whole, Replayed) else []


def _padded_model(given: GivenModel, asked: PaddingQuestion) -> PaddedModel:
    """Opens the model with inputs of the full size. InputError: it, or its size, is not known."""
    subject, shapes = given.opened(), given.shapes or {}
    vary, fixed = asked.vary, asked.fixed
    if fixed is None and given.inputs is None and not shapes:
        raise InputError("fixed", "(none)", "the size to compare with is not given", FIXED)
    given.require_inputs(subject.inputs, ", of full size")
    if fixed is not None and shapes:
        memory.require_room(
            memory.need(shapes.values(), shapes.values(), "float32"), "fixed", fixed
        )
    arrays = given.arrays(subject.inputs, vary, fixed or 0)
    if not arrays:
        why = f"without inputs there is no {vary} to pad"
        raise InputError("inputs", "(none)", why, "give --inputs FILE.npz")
    along = varied_axes(vary, arrays, subject.inputs)
    have = {name: arrays[name].shape[axis] for name, axis in along.items()}
    if len(set(have.values())) > 1:
        said = ", ".join(f"{name} has {size}" for name, size in have.items())
        todo = "name one of these axes: {}:{}".format(*next(iter(along.items())))
        raise InputError("vary", vary, f"{said} entries, and inputs are padded to one size", todo)
    fixed = fixed or have.popitem()[1]
    for name, axis in along.items():
        if (there := arrays[name].shape[axis]) < fixed:
            why = f"{name} has {there} entries along axis {axis}"
            raise InputError("fixed", fixed, why, f"use {there} or less, or longer inputs")
        arrays[name] = np.take(arrays[name], range(fixed), axis)
    return PaddedModel(subject, arrays, along, fixed, asked.value)


def _one_size(graph: PaddedModel, content: int, to: int | None) -> SafeSize:
    """Returns what is known of one size: the one that was asked for, or else the least."""
    if to is not None:
        if not content <= to <= graph.fixed:
            why = f"the content has {content} entries, and the fixed size is {graph.fixed}"
            raise InputError("padded", to, why, f"use {content} to {graph.fixed}")
        told = graph.serves(content, to)
        return _unsought(graph, content, to, told)
    if (hopeless := graph.hopeless(content)) is not None:
        return SafeSize(content, graph.fixed, graph.fixed, hopeless, hopeless)
    for size in range(content, graph.fixed + 1):
        told = graph.serves(content, size)
        if not told.lacking:
            break
    return _unsought(graph, content, size, told)


def _unsought(graph: PaddedModel, content: int, size: int, told: Serves) -> SafeSize:
    """Returns where one size alone was judged: if it does not serve, a shorter one than the fixed
    may."""
    if told.serves:
        return SafeSize(content, size, size, told, told)
    return SafeSize(content, size, graph.fixed, told, graph.own(content), "not looked for")

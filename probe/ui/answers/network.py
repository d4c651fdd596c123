"""What a model does on padded inputs or in two runs, and what keeps the bits at what cost: at which
sizes its outputs keep the full run's bits, and what to do."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import memory
from probe.case.arguments import choice, typed, whole_number
from probe.case.case import Case
from probe.case.errors import InputError, refuse
from probe.case.floats import rounded_text
from probe.diff.apart import WholeFile
from probe.diff.running import CHANGED, watch
from probe.record.inputs import first_entries, varied_axes
from probe.sizes.fixes import (
    NAMES,
    Measured,
    advise,
    measured_remedies,
    remedies_of,
    remedies_report,
    remedy_to_json,
)
from probe.sizes.model_fixes import GraphPlan, InvariantResult, ModelQuestion, padding_plan
from probe.sizes.search import PaddedModel, SafeSize, Serves
from probe.targets import budget
from probe.targets.budget import within
from probe.targets.progress import VOICE, Say, Tell, silent
from probe.targets.target import Target
from probe.ui.answers import views
from probe.ui.answers.answer import (
    DEFAULT_TARGET,
    Answer,
    checked_target,
    length_values,
)
from probe.ui.answers.two_runs import (
    GivenModel,
    TwoSides,
    two_runs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probe.ui.answers.first_difference import Walked
    from probe.ui.answers.schedule import Scheduled


@typed
def network(
    model: Any,
    target: str | Target = DEFAULT_TARGET,
    *,
    vary: str | None = None,
    at: int | str | None = None,
    against: int | str | None = None,
    against_target: str | Target | None = None,
    sizes: Iterable[int] | None = None,
    inputs: Any = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    lengths: Iterable[int] | None = None,
    fixed: int | None = None,
    value: float = 0.0,
    seed: int = 0,
    plan: str | Path | None = None,
    trust: bool = False,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Padded | Walked | Scheduled:
    """Runs a model at short padded lengths and at its full one, and compares all; or compares two
    runs of it, operation by operation.

    Two runs: where ``at``, ``against`` or ``against_target`` is given, any model is run twice and a
    ``Walked`` comes back, as of ``probe.first_difference``: ``vary`` (``batch``, ``length`` or
    ``NAME:AXIS``), ``at`` and ``against``: the sizes of the two sides' inputs; ``inputs``: arrays
    by name, or a .npz file; ``shapes``: of generated inputs, by name; ``against_target``: another
    target for the right side; ``explain=False``: find no causes; ``time``: stop after this long,
    such as ``5m``. ``target`` and ``against_target`` run in processes of their own, so the model is
    a file or ``"module:function"`` then.

    In pieces: ``vary="schedule"`` (``"schedule:NAME:AXIS"`` names the axis) with ``at`` as
    ``chunks:16+overlap:4``, ``tiles:64x64+overlap:8``, ``prefix:8``, or with a state that each
    piece hands on ``stream:16``, ``cached:8+1*4``, ``draft:4``; ``sizes``: further sizes of pieces,
    which of them have the bits of the whole. A ``Scheduled`` comes back.

    Otherwise inputs are padded, along what ``vary`` says, which may be the batch: a ``Padded``
    comes back. On a target that is not the model's own library, or of another release or
    processor, the whole file is run there.

    ``model``: a file as ``probe diff --help`` lists them, a Keras model, a PyTorch module, or a
    function, by itself or as ``"module:function"``. ``lengths``: valid lengths; 1, a tenth and a
    quarter of the full one if not given. ``fixed``: the length to which users pad the content, with
    which short runs are compared; that of ``inputs`` if not given. ``value``: what padding holds.
    ``plan``: a folder for plan.json and padded.py. ``trust``: read a file that runs code of its
    own. Errors: InputError; TargetError.
    """
    two: dict[str, Any] = {"vary": vary, "at": at, "against": against}
    two |= {"against_target": against_target, "sizes": sizes}
    user_model = GivenModel(model, inputs, shapes, trust, seed)
    # the default is "the model's own library", in this process; what is typed is a target
    where = None if target == DEFAULT_TARGET else checked_target(target)
    only_padding = {"fixed": fixed, "lengths": lengths, "plan": plan}
    sided = any(value is not None for name, value in two.items() if name != "vary")
    plain = inputs is None and fixed is None and lengths is None and plan is None
    if sided or (vary is not None and (plain or vary.partition(":")[0] == "schedule")):
        why = "it compares padded lengths, and cannot be combined with two runs of a model"
        refuse(only_padding, why, "leave it out, or --vary, --at, --against")
        return compared_runs(user_model, where, two, explain=explain, time=time, progress=progress)
    about = (vary or "length", fixed, lengths, value, plan)
    with within(time):
        return pad_model(user_model, *about, where, progress)


def compared_runs(
    model: GivenModel, target: str | Target | None, two: Mapping[str, Any], **how: Any
) -> Walked | Scheduled:
    """Does as ``network`` of two runs, or in pieces; ``two``: what sets the sides apart."""
    if (two["vary"] or "").partition(":")[0] != "schedule":
        why = "it is for a model in pieces"
        refuse({"sizes": two["sizes"]}, why, "give --vary schedule; for batches ask fix padding")
        sides = TwoSides(**{name: value for name, value in two.items() if name != "sizes"})
        return two_runs(model, sides, target, **how)
    from probe.ui.answers.schedule import in_pieces

    return in_pieces(model, target, two, **how)


@dataclass(repr=False)
class Remedied(Answer):
    """Holds every remedy of a case or a network on one target, tested, timed and compared."""

    found: Measured

    def report(self) -> dict[str, Any]:
        return remedies_report(self.found)

    def lines(self) -> tuple[str, str, str]:
        measured, verdicts = self.found, []
        for result in measured.found:
            cost = rounded_text(measured.of_fixed(result))
            share = f" ({cost} of the full size's time)" if cost else ""
            verdicts.append(f"{result.remedy.name} {result.verdict}{share}")
        sizes = f"{len(measured.lengths):,} {measured.sizes} against {measured.fixed:,}"
        question = f"{measured.label}: {sizes} on {measured.target.text}"
        return question, advise(measured).text, "; ".join(verdicts)

    shown = views.remedies
    figure = "plots", "draw_remedy_costs", "found"


@typed
def remedies(
    subject: Case | Any,
    lengths: Iterable[int],
    target: str | Target = DEFAULT_TARGET,
    *,
    fixed: int | None = None,
    content: int | None = None,
    only: Iterable[str] | None = None,
    trust: bool = False,
    progress: Tell | None = None,
    time: str | None = None,
    vary: str | None = None,
    inputs: Mapping[str, np.ndarray] | Sequence[Any] | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Remedied | Padded:
    """Tests every remedy of a case, times it and compares it with exact sums.

    Of a model the answer is a ``Padded`` with ``remedies``: how far to pad, and
    ``probe.stable.invariant``.

    ``vary``: of a case ``length`` (the default) or ``batch`` (the rows of a dense layer); of a
    model also ``NAME:AXIS``. ``inputs``, ``shapes``: of a model, as of ``probe.network``.

    ``subject``: a case, or a model as ``probe.network`` takes it. ``lengths``: of a case two or
    more, each compared with the largest; of a model valid lengths. ``fixed``: of a model, the full
    size that content is padded to. ``content``: the length at which costs are reported; about a
    tenth of the largest if not given. ``only``: names of remedies, ``chunks=64`` for chunks of so
    many outputs; with a model a switch is a part of the target, such as ``torch,threads=1``.
    ``trust``: read a model file that runs code of its own. ``time``: begin nothing new after this
    long, such as ``5m``; what is left is "not known", as after Ctrl-C. Errors: InputError;
    TargetError where the default can't run.
    """
    where = checked_target(target)
    tried = [only] if isinstance(only, str) else [*(only or ())]
    sizes = [whole_number("chunks", name[7:]) for name in tried if name.startswith("chunks=")]
    values = length_values(lengths)
    if isinstance(subject, Case):
        of_model = {"inputs": inputs, "shapes": shapes, "trust": trust, "fixed": fixed}
        refuse(of_model, "it is for a model: a case has its own sizes and operands")
        known = [*(remedy.name for remedy in remedies_of(where)), *NAMES]
        for name in tried:  # of a model its own target says what there is
            if not name.startswith("chunks="):
                choice("only", name, known)
        how: dict[str, Any] = {"only": None if only is None else tried, "progress": progress}
        how |= {"chunks": sizes} if sizes else {}
        with within(time):
            measured = measured_remedies(subject, where, values, vary=vary, content=content, **how)
        return Remedied(measured)
    tell = progress or silent
    model, on = (
        GivenModel(subject, inputs, shapes, trust),
        None if target == DEFAULT_TARGET else where,
    )
    sizes_run = {*values, *([] if content is None else [content])}
    with within(time):
        padded = pad_model(
            model, vary or "length", fixed, sizes_run, target=on, progress=partial(tell, 0, 0)
        )
        contents = [size.content for size in padded.found]
        at = content if content in contents else contents[len(contents) // 2]
        question = ModelQuestion(padded.graph, padded.found, at, subject, tried)
        trying = lambda done, total, name: tell(0, 0, f"trying {name}")  # noqa: E731
        padded.remedies = question.measured(padded.model, padded.vary, trying)
    if (mode := question.invariant) is not None:
        padded.invariant = mode
        padded.notes += [f"invariant: {note}" for note in mode.notes]
    return padded


FIXED = (
    "give --fixed N, the full size to which inputs are usually padded; or compare two runs: "
    "probe diff MODEL --vary batch --at 1 --against 8"
)


@dataclass(repr=False)
class Padded(Answer):
    """Holds the results of a padded graph: ``found`` has a ``SafeSize`` for each valid size.

    ``plan``: what to pad to, if a plan was asked for. ``remedies``: ways of padding, the invariant
    mode and switches, with verdicts and costs, where they were asked for. ``invariant``: that
    mode's runs.
    """

    found: list[SafeSize]
    model: str
    graph: PaddedModel
    vary: str
    plan: GraphPlan | None = None
    written: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remedies: Measured | None = None
    invariant: InvariantResult | None = None

    @property
    def verdict(self) -> str:
        """Of the least sizes: ``differs`` if one changes bits, ``equal`` if none does; ``unknown``
        where no shorter size has the outputs, or nothing could be said."""
        smallest = [size.at_least for size in self.found]
        if any(not least.serves and not least.lacking for least in smallest):
            return "differs" if any(size.by_order == "differs" for size in smallest) else "unknown"
        return "unknown" if any(least.lacking for least in smallest) else "equal"

    @property
    def target(self) -> str:
        return self.graph.text

    @property
    def first(self) -> str | None:
        """The operation that changes bits at a least size, for the shortest content."""
        differing = [size.at_least for size in self.found if size.at_least.by_order == "differs"]
        return differing[0].name if differing else None

    @property
    def sets(self) -> int:
        """On how many fresh sets of operands each order was replayed; 0: none had to be."""
        return min((size.at_safe.sets for size in self.found if size.at_safe.sets), default=0)

    @property
    def in_the_way(self) -> Serves | None:
        """What stands against a proof, or against every shorter size."""
        verdicts = [serves for size in self.found for serves in (size.at_safe, size.at_least)]
        return next((each for each in verdicts if each.name and each.by_order == "unknown"), None)

    def report(self) -> dict[str, Any]:
        graph, stands = self.graph, self.in_the_way
        operations = len(graph.whole(self.found[0].content).operations) if graph.recorded else 0
        report: dict[str, Any] = {
            "verdict": self.verdict,
            "examined": operations,
            "operations_total": operations,
            "part": None,
            "first": self.first,
            "in_the_way": stands.name if stands else None,
            "why": stands.why if stands else None,
            "sets": self.sets,
            "model": self.model,
            "target": self.target,
            "vary": self.vary,
            "along": self.graph.along,
            "fixed": self.graph.fixed,
            "contents": [
                {
                    "content": size.content,
                    "least": size.least,
                    "safe": size.safe,
                    "at_least": _serves_to_json(size.at_least),
                    "at_safe": _serves_to_json(size.at_safe),
                    "sets": size.at_safe.sets,
                    "over": size.over or None,
                }
                for size in self.found
            ],
            "plan": None if self.plan is None else self.plan.to_json(),
            "notes": self.notes,
            "written": self.written,
        }
        if self.remedies is not None:
            report["remedies"] = [remedy_to_json(self.remedies, r) for r in self.remedies.found]
            report["recommended"] = advise(self.remedies).name
            report["invariant"] = None if self.invariant is None else self.invariant.to_json()
        return report

    def lines(self) -> tuple[str, str, str]:
        what = f"{self.model}: {self.vary} padded, against {self.graph.fixed:,}"
        said = []
        for size in self.found[:6]:
            words = f"to {size.safe:,}" + " or less" * bool(size.over)
            words += f" (not {size.least:,})" * (size.safe > size.least)
            alone = size.at_least.lacking and size.safe == size.least
            said.append(f"{size.content:,}: " + (f"to {size.safe:,} alone" if alone else words))
        safe = "; ".join(said)
        if self.remedies is None:
            return what, f"{self.verdict}; pad {safe}", self.advice()
        ways = [
            f"{way.remedy.name} {way.verdict} ({rounded_text(self.remedies.of_fixed(way)) or '-'})"
            for way in self.remedies.found
        ]
        best = f"recommended: {advise(self.remedies).name}; pad {safe}"
        return what, f"{'; '.join(ways)} of the full size's time", best

    def advice(self) -> str:
        """What the result means, in a sentence."""
        stands = self.in_the_way
        parts = []
        if self.first:
            least = next(size.at_least for size in self.found if size.at_least.name == self.first)
            parts.append(f"changes bits first: {least.name} ({least.why})")
        if stands is not None:
            parts.append(f"prevented by {stands.name}: {stands.why}")
        elif any(size.safe < self.graph.fixed for size in self.found):
            same = "all sums whose size changes are added in the same order"
            same += f", replayed on {self.sets} sets of operands" * bool(self.sets)
            parts.append(same)
        return "; ".join(parts) or "every input is padded to the full size"

    shown = views.padded_model

    def drawn(self) -> Figure | None:
        """Draws what each fix costs, else how far to pad."""
        from probe.report import plots

        if self.remedies is not None:
            return plots.draw_remedy_costs(self.remedies)
        figure, (axes,) = plots.panels(1, 1, 5.0, 3.2)
        contents = [size.content for size in self.found]
        for name in ("least", "safe"):
            axes.plot(contents, [getattr(size, name) for size in self.found], "o-", label=name)
        axes.set(xlabel=f"valid {self.vary}", ylabel="padded to", title=self.model)
        axes.legend()
        return figure


def _serves_to_json(serves: Serves) -> dict[str, Any]:
    return {
        "serves": serves.serves,
        "by_order": serves.by_order,
        "lacking": serves.lacking,
        "operation": serves.name or None,
        "why": serves.why or None,
        "sets": serves.sets,
        "kept": [None if box is None else [vars(part) for part in box] for box in serves.boxes],
    }


def pad_model(
    user_model: GivenModel,
    vary: str,
    fixed: int | None,
    lengths: Iterable[int] | None,
    value: float = 0.0,
    plan: str | Path | None = None,
    target: str | Target | None = None,
    progress: Say | None = None,
) -> Padded:
    """Pads a model's inputs along an axis, and finds the sizes that keep the full-size run's bits.

    The words are those of ``network``. On another library, release or processor than the model's
    own the whole file is run, and no operation of it is asked. Errors: InputError; TargetError;
    Nondeterministic.
    """
    tell = progress or silent
    tell("opening the model")
    subject, shapes = user_model.opened(), user_model.shapes or {}
    if fixed is None and user_model.inputs is None and not shapes:
        raise InputError("fixed", "(none)", "the size to compare with is not given", FIXED)
    user_model.require_inputs(subject.inputs, ", of full size")
    if fixed is not None and shapes:
        needed = memory.need(shapes.values(), shapes.values(), "float32")
        memory.require_room(needed, "fixed", fixed)
    arrays = user_model.arrays(subject.inputs, vary, fixed or 0)
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
    arrays = first_entries(arrays, along, fixed, "fixed")
    graph = PaddedModel(subject, arrays, along, fixed, value)
    defaults = {max(part, 1) for part in (1, fixed // 10, fixed // 4)}
    contents = sorted(
        defaults if lengths is None else {whole_number("lengths", n) for n in lengths}
    )
    with ExitStack() as running:
        content = contents[0]
        graph.check(content)
        if target is None:
            recorder = graph.opened.recorder(graph.inputs(content, fixed))
            graph.sides[content, fixed], notes = watch(recorder, "the model")
            graph.doubt = next((note for note in notes if CHANGED in note), "")
        else:
            where, notes = checked_target(target), list[str]()
            graph.opened = running.enter_context(user_model.opened_on(where))
            if isinstance(graph.opened, WholeFile):
                graph.outputs(graph.inputs(content, fixed))  # refused before a search begins
                notes.append(f"{where.text}: the whole file is run there, and {WholeFile.untold}")
            elif (provenance := graph.whole(content).made) is not None:
                graph.doubt = next((note for note in provenance.notes if CHANGED in note), "")
        sizes = list[SafeSize]()
        for content in VOICE.counting(contents, "valid sizes"):
            if sizes and budget.spent():
                break
            graph.checked(content)
            tell(f"{vary} {content:,} of {fixed:,}")
            with budget.Ending(sizes):
                sizes.append(graph.sized(content))
        notes = [*user_model.notes, *notes]
        answer = Padded(sizes, user_model.name, graph, vary, notes=notes)
        planned: GraphPlan | None = None
        if not budget.spent():
            with budget.Ending():
                tell("checking the plan")
                planned_contents = contents if plan is None else range(1, contents[-1] + 1)
                planned = padding_plan(graph, planned_contents, user_model.name, tell)
        if why := budget.spent():
            later = next((content for content in contents if content > sizes[-1].content), None)
            looked = "" if later is None else f"valid sizes from {later:,} on were not looked at: "
            answer.notes = [*notes, f"{looked}{why}"]
        else:
            answer.plan = planned
        if plan is not None and answer.plan is not None:
            answer.written = [str(path) for path in answer.plan.save(Path(plan))]
        # remedies run the model again: its process stays as long as the answer does
        weakref.finalize(answer, running.pop_all().close)
    return answer

"""Finds where a network changes with its padding, and what keeps the bits at what cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.answers.answer import DEFAULT_TARGET, Answer, target_of, targets_of
from probe.arguments import count, sizes
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.floats import rounded_text
from probe.launch import open_session
from probe.network import Network
from probe.network.plan import refused
from probe.network.report import Report, described, examine, verdict
from probe.progress import Tell, silent
from probe.recording.subject import of_no_chain, opened
from probe.remedies import Measured, advise, measure, measure_network, rows
from probe.remedies import report as remedies_report
from probe.store import Store
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probe.answers.first_difference import Walked
    from probe.answers.padded import Padded

Bars = Callable[[str], AbstractContextManager[Tell]]


@dataclass(repr=False)
class Examined(Answer):
    """Holds a network's results: ``found`` has a report for each target that did not fail."""

    found: Sequence[Report]
    model: Network
    fixed: int
    failures: Sequence[dict[str, str]]
    written: Sequence[str]

    def report(self) -> dict[str, Any]:
        told = self.described
        return {
            "verdict": self.verdict,
            **{name: told[name] for name in ("examined", "operations_total", "part")},
            "network": told,
            "targets": {one.target: one.to_json() for one in self.found},
            "failures": list(self.failures),
            "written": list(self.written),
        }

    @property
    def described(self) -> dict[str, Any]:
        """Returns the network: its layers with their receptive windows, and what is not part of
        it."""
        return described(self.model, self.fixed)

    @property
    def verdict(self) -> str:
        """Returns ``equal``, ``differs`` or ``unknown``, of the model over all targets."""
        return verdict(self.found, bool(self.failures))

    @property
    def finding(self) -> bool:
        """Returns whether outputs of the valid part differ or are missing, or this is unknown."""
        return any(report.finding for report in self.found)

    def lines(self) -> tuple[str, str, str]:
        told = self.described
        layers = told["part"] or f"{len(told['layers']):,} layers"
        verdicts = [f"{one.target}: {_verdicts(one)}" for one in self.found]
        verdicts += [f"{one['target']}: failed: {one['message']}" for one in self.failures]
        firsts = [
            f"{one.target}: {first.name} at valid length {each.need.content:,}"
            for one in self.found
            for each in one.comparisons[:1]
            if (first := each.first) is not None
        ]
        shown = "; ".join(firsts) or "none"
        return (
            f"{told['name']}, {layers}, against full length {self.fixed:,}",
            "; ".join(verdicts),
            "; ".join(filter(None, [f"first layer that differs: {shown}", self.model.note])),
        )

    def drawn(self) -> Figure | None:
        """Draws |ulp| by layer and content, a panel a target; a dot: differs by itself."""
        import pandas

        from probe import plots

        shown = [one for one in self.found if one.comparisons]
        if not shown:
            return None
        names = [layer.name for layer in shown[0].comparisons[0].layers]
        figure, every = plots.panels(len(shown), 2, 6.0, 1.6 + 0.22 * len(names))
        ulps = []
        for axes, report in zip(every, shown, strict=True):
            contents = [one.need.content for one in report.comparisons]
            tables = [[_ulp(at) for at in one.layers] for one in report.comparisons]
            own = [[at.own for at in one.layers] for one in report.comparisons]
            frames = [pandas.DataFrame(np.array(t).T, names, contents) for t in (tables, own)]
            plots.layer_map(axes, frames[0], frames[1])
            axes.set(xlabel="positions", title=report.target)
            ulps.append(frames[0].to_numpy())
        plots.ulp_legend(figure, *ulps)
        return figure


def _ulp(at: Any) -> float:
    if not at.compared:
        return np.nan
    return np.inf if at.max_ulp is None else float(at.max_ulp)


def _verdicts(report: Report) -> str:
    counted: dict[str, int] = {}
    for one in report.comparisons:
        counted[one.verdict] = counted.get(one.verdict, 0) + 1
    total = len(report.comparisons)
    told = ", ".join(f"{name} at {n:,} of {total:,} lengths" for name, n in counted.items())
    return f"{report.verdict}; in the part: {told}" if report.part else told


def network(
    model: Any,
    target: str | Target | Iterable[str | Target] = DEFAULT_TARGET,
    *,
    lengths: Iterable[int] | None = None,
    fixed: int | None = None,
    padded: int | None = None,
    value: float = 0.0,
    height: int | str | Iterable[int] | None = None,
    seed: int = 0,
    safe: bool = True,
    plan: str | Path | None = None,
    trust: bool = False,
    bars: Bars | None = None,
    **two: Any,
) -> Examined | Padded | Walked:
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

    Otherwise inputs are padded. A chain of layers gives an ``Examined``, on any target; every other
    graph, and every model where ``vary``, ``inputs`` or ``shapes`` is given, a ``Padded``, run by
    its own library: ``vary`` says what is padded, which may be the batch.

    ``model``: a file as ``probe network --help`` lists them, a Keras model, a PyTorch module, or a
    ``probe.network.Network``. ``lengths``: valid lengths; 1, a tenth and a quarter of the full one
    if not given. ``fixed``: the length to which users pad the content, with which short runs are
    compared; the model's own if it says one. ``padded``: pad to this length instead of each
    content's least. ``value``: what padding holds. ``height``: the axes before the length.
    ``safe``: find safe lengths. ``plan``: a folder for plan.json and padded.py; refused for a model
    of which only a part is read. ``trust``: read a file that runs code of its own. ``bars``: gives
    a progress bar for a target. Errors: InputError; TargetError where the only target fails.
    """
    two = {name: one for name, one in _known(two).items() if not _left_out(one)}
    own = target == DEFAULT_TARGET
    if of_two(two, (fixed, lengths, plan)):
        from probe.answers.two_runs import two_runs

        chosen = None if own else _only(targets_of(target))
        return two_runs(model, chosen, trust=trust, seed=seed, **two)
    if (limit := two.pop("time", None)) is not None:
        why = "padding takes no limit of time, two runs do"
        raise InputError("time", limit, why, "leave it out, or give at and against")
    words: dict[str, Any] = {
        "fixed": fixed,
        "lengths": lengths,
        "to": padded,
        "value": value,
        "seed": seed,
    }
    words |= {"safe": safe, "plan": plan, "trust": trust} | two
    words.pop("by", None)
    words |= {} if own else {"target": target}
    loaded = chain_or_graph(model, height, trust, own, words)
    if not isinstance(loaded, Network):
        return loaded
    where = targets_of(target)
    if plan is not None and loaded.part:
        raise refused("plan", plan, loaded.part)
    length = fixed or loaded.fixed
    if length is None:
        raise InputError("fixed", None, "the model does not define a length", FIXED)
    geometry = loaded.geometry(length)
    some = {1, max(length // 10, 1), max(length // 4, 1)}
    contents = sorted(some if lengths is None else set(lengths))
    for one in contents:
        geometry.check(one)
    given = (geometry, contents, padded, value, count("seed", seed, least=0))
    every = contents if plan is None else range(1, contents[-1] + 1)
    reports: list[Report] = []
    failures: list[dict[str, str]] = []
    for each in where:
        try:
            with (bars or _no_bar)(each.text) as tell, open_session(each) as session:
                sought = every if safe or plan is not None else ()
                reports.append(examine(session, *given, safe=sought, progress=tell))
        except TargetError as error:
            if len(where) == 1:
                raise
            failures.append({"target": each.text, "kind": error.kind, "message": error.why})
    saved = _saved(None if plan is None else Path(plan), reports, len(where) > 1)
    return Examined(reports, loaded, length, failures, saved)


def _left_out(given: Any) -> bool:
    return given is None or (isinstance(given, tuple | dict) and not given)


def of_two(two: dict[str, Any], padding: tuple[Any, ...]) -> bool:
    """Returns whether two runs are asked for, rather than padding; ``padding``: what only that
    takes."""
    if any(name in two for name in ("at", "against", "against_target", "sizes")):
        return True
    return "vary" in two and "inputs" not in two and all(one is None for one in padding)


def chain_or_graph(
    model: Any,
    height: int | str | Iterable[int] | None,
    trust: bool,
    own: bool,
    words: dict[str, Any],
) -> Network | Padded:
    """Returns the chain of a model, to be put on targets; or, of any other graph, the answer.

    ``own``: no target was asked for, so that its own library may run it. ``words``: as of
    ``answers.padded.padded``. What is read as a chain in part is padded as a graph, if its inputs
    can be; else a note says why not. Errors: InputError.
    """
    from probe.answers.padded import padded as graph

    if isinstance(model, Network):
        return model
    watched = isinstance(model, str | Path) and of_no_chain(str(model))
    if watched or any(name in words for name in ("vary", "inputs", "shapes")):
        return graph(model, **words)
    try:
        loaded = read(model, height, words["fixed"], trust)
    except InputError as error:
        if not own or error.name == "height":
            raise
        try:
            return graph(model, **words)
        except InputError as other:
            raise (error if other.name == "model" else other) from None
    if not loaded.part or not own:
        return loaded
    try:
        return graph(model, **words | {"fixed": words["fixed"] or loaded.fixed})
    except InputError as error:
        note = f"not padded as a graph: {error}"
        return loaded.with_(note="; ".join(filter(None, [loaded.note, note])))


def read(
    model: Any, height: int | str | Iterable[int] | None, fixed: int | None, trust: bool = False
) -> Network:
    """Returns the chain of a model.
    InputError: it can't be read, or leaves a size open: then both."""
    shape = None
    if height is not None:
        text = str(height) if isinstance(height, int | str) else "x".join(map(str, height))
        shape = sizes("height", text, text.count("x") + 1)
    try:
        return Network.load(model, shape, trust)
    except InputError as error:
        if error.name != "height" or height is not None or fixed is not None:
            raise
        todo = f"{error.todo}, and, unless the model defines its length, --fixed N: {MEANING}"
        raise InputError("height", None, error.why, todo) from None


TWO = (
    *("vary", "at", "against", "inputs", "shapes", "against_target", "sizes", "by"),
    *("explain", "time", "progress"),
)
"""What ``network`` takes for two runs of any model."""


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """Raises TypeError, as Python does, for an argument that there isn't."""
    for name in given:
        if name not in TWO:
            raise TypeError(f"network() got an unexpected keyword argument {name!r}")
    return given


def _only(targets: Sequence[Target]) -> Target:
    if len(targets) > 1:
        texts = ", ".join(one.text for one in targets)
        todo = "give one target, and the second one as against_target"
        raise InputError("target", texts, "each of two runs has one target", todo)
    return targets[0]


MEANING = "the full length, to which inputs are usually padded"
FIXED = f"give --fixed N: {MEANING}"
"""What to do where neither the user nor the model says a full length."""


def _no_bar(_: str) -> AbstractContextManager[Tell]:
    return nullcontext(silent)


def _saved(folder: Path | None, reports: list[Report], several: bool) -> list[str]:
    """Writes the plans, in a folder a target where there are ``several``; the files' names."""
    if folder is None:
        return []
    found: list[str] = []
    for report in reports:
        assert report.plan is not None
        name = "".join(c if c.isalnum() or c in "._=-" else "-" for c in report.target)
        into = folder / name if several else folder
        found += map(str, report.plan.save(into))
    return found


def _chain(subject: Any, trust: bool, own: bool) -> Network | None:
    """Returns the chain of a model; None where its own library may run it, and it is none, or in
    part."""
    if isinstance(subject, Network):
        return subject
    if own and isinstance(subject, str | Path) and of_no_chain(str(subject)):
        return None
    try:
        loaded = Network.load(subject, trust=trust)
    except InputError as error:
        if not own or error.name == "height" or not _opens(subject, trust):
            raise
        return None
    return loaded if not own or not loaded.part or not _opens(subject, trust) else None


def _opens(subject: Any, trust: bool) -> bool:
    """Returns whether a model can be padded as a graph: it leaves a length open."""
    try:
        inputs = opened(subject, trust).inputs
    except InputError:
        return False
    return any(None in one.shape[1:] for one in inputs)


@dataclass(repr=False)
class Remedied(Answer):
    """Holds every remedy of a case or a network on one target, tested, timed and compared."""

    found: Measured

    def report(self) -> dict[str, Any]:
        return remedies_report(self.found)

    def lines(self) -> tuple[str, str, str]:
        found = self.found
        told = [f"{one.remedy.name} {found.verdict(one)}{self._cost(one)}" for one in found.found]
        what = f"{found.label}, {found.part}" if found.part else found.label
        asked = f"{what}: {len(found.lengths):,} {found.sizes} against {found.fixed:,}"
        return f"{asked} on {found.target.text}", "; ".join(told), advise(found).text

    def _cost(self, one: Any) -> str:
        cost = rounded_text(self.found.of_fixed(one))
        return f" ({cost} of the full size's time)" if cost else ""

    def drawn(self) -> Figure | None:
        """Draws a bar for each remedy: its cost, coloured by whether it is exact."""
        import pandas

        from probe import plots

        told = pandas.DataFrame(rows(self.found)["remedies"])
        costs = told.of_fixed.dropna()
        if costs.empty:
            return None
        figure, (axes,) = plots.panels(1, 1, 7.5, 1.4 + 0.28 * len(costs))
        plots.cost_bars(axes, told, (min(costs.min(), 1) / 1.3, max(costs.max(), 1) * 1.6))
        axes.set_xlabel(
            f"time at {self.found.content:,} over the default's at {self.found.fixed:,}"
        )
        plots.verdict_legend(figure)
        return figure


OF_MODEL = {
    "fixed": ("a case is compared with its largest length", "add it to --lengths"),
    "inputs": ("a case generates its own", "leave it out"),
    "shapes": ("a case says its own sizes", "leave it out"),
    "table": ("it is of a model in the invariant mode", "give a model, or leave it out"),
}
"""Why a case does not take what a model does, and what to do."""


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
    vary: str | None = None,
    inputs: Mapping[str, np.ndarray] | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    table: str | Path | None = None,
) -> Remedied | Padded:
    """Tests every remedy of a case or a network, times it and compares it with exact sums.

    A model that is not a chain of layers is run by its own library (``target`` not given), and so
    is every model where ``vary``, ``inputs``, ``shapes`` or ``table`` is given: then the answer is
    a ``Padded`` with ``remedies``: how far to pad, and ``probe.stable.invariant``.

    ``vary``: of a case ``length`` (the default) or ``batch`` (the rows of a dense layer); of a
    model also ``NAME:AXIS``. ``inputs``, ``shapes``: of a model, as of ``probe.network``.
    ``table``: a file with the classes of the invariant mode, which is read and checked where it is
    there, and written.

    ``subject``: a case, or a model as ``probe.network`` takes it. ``lengths``: of a case two or
    more, each compared with the largest; of a model valid lengths. ``fixed``: of a model, the full
    size that content is padded to. ``content``: the length at which costs are reported; about a
    tenth of the largest if not given. ``chunks``: outputs of the chunks that are tried. ``only``:
    names of remedies. ``store``: a folder for the results. ``trust``: read a model file that runs
    code of its own. Errors: InputError; TargetError where the default can't run.
    """
    where = target_of(target)
    more: dict[str, Any] = {"only": None if only is None else list(only), "progress": progress}
    if chunks:
        more["chunks"] = list(chunks)
    values = sorted(set(lengths))
    of_model: dict[str, Any] = {"inputs": inputs, "shapes": shapes, "table": table}
    of_model = {name: one for name, one in of_model.items() if not _left_out(one)}
    if isinstance(subject, Case):
        of_model |= {} if fixed is None else {"fixed": fixed}
        for name, one in of_model.items():
            raise InputError(name, one, *OF_MODEL[name])
        found = measure(subject, where, values, vary=vary, content=content, **more)
    else:
        of_model |= {} if vary is None else {"vary": vary}
        model = None if of_model else _chain(subject, trust, target == DEFAULT_TARGET)
        if model is None:
            from probe.answers.padded import remedied

            why = "this is only for a chain of layers"
            for name, given in (("chunks", chunks), ("only", only), ("store", store)):
                if given is not None:
                    raise InputError(name, given, why, "leave it out: the model is a graph")
            tell = None if progress is None else (lambda text: progress(0, 0, text))
            words: dict[str, Any] = {"content": content, "fixed": fixed, "trust": trust} | of_model
            words |= {} if target == DEFAULT_TARGET else {"target": where}
            return remedied(subject, values, progress=tell, **words)
        found = measure_network(model, where, values, fixed, at=content, **more)
    if store is not None:
        with Store.here(Path(store)) as kept:
            for table, found_rows in rows(found).items():
                kept.append(table, found_rows)
    return Remedied(found)

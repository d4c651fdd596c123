"""Lists the remedies of a target, tries and times them on a case, and says what to do.

The targets that remedies run on are all up at once; what they have in turns is timed fairly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from probe.case import floats, ulp
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.case.floats import rounded_text
from probe.case.layout import CONTIGUOUS
from probe.order.window import axis_of, case_at
from probe.sizes import by_order
from probe.sizes.by_order import ByOrder
from probe.sizes.thresholds import threads_of
from probe.sweep import campaign
from probe.sweep.campaign import Row, case_row, run_row
from probe.targets import backends, budget
from probe.targets.launch import Answer, AnySession, Arrays, InlineSession, open_session
from probe.targets.progress import Tell, silent
from probe.targets.target import Target, why_unavailable

# Outputs a call that chunks are tried with.
CHUNKS = (64, 256)

# Switches that people try, with what they mean.
SWITCHES = (
    ("threads", "1", "one thread"),
    ("deterministic", "1", "run-to-run determinism, which makes no promise about lengths"),
    ("onednn", "0", "without oneDNN"),
    ("onednn", "1", "with oneDNN"),
    ("mkldnn", "0", "without oneDNN"),
    ("isa", "sse41", "no instructions beyond SSE 4.1"),
    ("isa", "avx2", "no instructions beyond AVX2"),
    ("isa", "avx512_core", "no instructions beyond AVX-512"),
    ("xnnpack", "0", "without XNNPACK"),
    ("xla", "1", "compiled by XLA"),
)

INVARIANT, DOC = "invariant", "probe.stable.invariant: each call stays in sizes that add alike"
# Remedies that are added when orders are known; ``invariant`` of cases along their batch.
NAMES = ("pad", INVARIANT)

# Libraries that ``probe.stable`` computes with, and whose operations the invariant mode runs
# one by
# one as targets call them.
STABLE, IN_MODE = ("tensorflow", "torch"), ("torch",)


@dataclass(frozen=True)
class Remedy:
    """One thing to do. ``spec``: what ``backends.rewritten`` puts in the operator's place, or None.

    ``where``: the target that it runs on; ``doc``: what it is, in a few words.
    """

    name: str
    where: Target
    doc: str
    spec: dict[str, Any] | None = field(default=None, hash=False)


def remedies_of(where: Target, chunks: Sequence[int] = CHUNKS) -> list[Remedy]:
    """Remedies for a target, the target as it is first, named ``default``.

    Those of ``NAMES`` are not among them: they are made when orders are known.
    """
    remedies = [Remedy("default", where, "the operator as it is")]
    for size in sorted(set(chunks)):
        doc, spec = f"calls of {size} outputs each", {"kind": "chunks", "outputs": size}
        remedies.append(Remedy(f"chunks={size}", where, doc, spec))
    remedies.append(Remedy("float64", where, "the operator in float64", {"kind": "float64"}))
    keys = backends.get(where.name).keys
    for key, value, doc in SWITCHES:
        if key in keys and dict(where.switches).get(key) != value:
            with suppress(InputError):  # a switch that contradicts the target's own
                remedies.append(Remedy(f"{key}={value}", where.with_(**{key: value}), doc))
    wide = {"kind": "stable", "accumulate": "float64"}
    if where.name in STABLE:
        remedies.append(Remedy("stable", where, "probe.stable", wide | {"accumulate": None}))
        remedies.append(Remedy("stable,float64", where, "probe.stable, added in float64", wide))
    if where.name == "tensorflow" and "xla" not in dict(where.switches):
        with suppress(InputError):  # as above
            doc = "the same, compiled by XLA"
            remedies.append(Remedy("stable,float64,xla=1", where.with_(xla=1), doc, wide))
    return remedies


@dataclass
class RemedyResult:
    """One remedy. ``refusal``: why it can't be used here, or why its orders aren't known.

    ``compared``: outputs that must agree (of a network: content lengths); of these ``differing``
    are added in a different order than at the full length, ``unknown`` in a way that isn't known;
    None where nothing was compared. ``causes`` counts the differing ones by cause. ``seconds``: by
    length the medians of each turn's calls. ``error_rms``, ``error_max``: distance from the exact
    outputs at the full length, over eps * sum|x*w| (of a network eps * the largest output).
    ``keeps``: whether the full length has the default's bits. ``sizes``: what ``pad`` fills up to:
    numbers of outputs, or of a network the padded length of each content length. ``sets``: of
    fresh operands that each order was replayed on.
    """

    remedy: Remedy
    refusal: str = ""
    compared: int | None = None
    differing: int = 0
    unknown: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    seconds: dict[int, np.ndarray] = field(default_factory=dict)
    error_rms: float | None = None
    error_max: float | None = None
    keeps: bool | None = None
    sets: int = 0
    sizes: tuple[int, ...] = ()

    @property
    def verdict(self) -> str:
        """``exact`` for all finite operands, ``differs``, or ``not known``."""
        if self.differing:
            return "differs"
        return "not known" if self.refusal or self.unknown or self.compared is None else "exact"


@dataclass
class Measured:
    """All remedies of a case or a network on a target, the default first.

    ``subject``: a network has ``name``, ``id`` and ``row()``, of ``networks``.
    ``lengths``: those whose orders were compared with ``fixed``, the size that stands for padding
    everything. ``content``: the length at which costs are reported, beside ``fixed``. ``vary``:
    ``length``, or ``batch``, whose sizes all of these are then.
    """

    subject: Any
    target: Target
    lengths: tuple[int, ...]
    fixed: int
    content: int
    found: list[RemedyResult]
    facts: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    vary: str = "length"

    @property
    def sizes(self) -> str:
        return "batches" if self.vary == "batch" else "lengths"

    @property
    def label(self) -> str:
        """What was measured, in words."""
        return self.subject.label if isinstance(self.subject, Case) else self.subject.name

    @property
    def layouts(self) -> list[str]:
        """How the input lies in memory where the verdicts hold, words of
        :mod:`probe.case.layout`."""
        return [self.subject.layout if isinstance(self.subject, Case) else CONTIGUOUS]

    @property
    def threads(self) -> int | None:
        """For how many threads the verdicts hold; None where the library doesn't say."""
        return threads_of(self.facts, self.target)

    @property
    def default(self) -> RemedyResult:
        return self.found[0]

    def seconds(self, result: RemedyResult, length: int) -> float | None:
        """Returns the median of the turns; None where it was not timed."""
        return float(np.median(result.seconds[length])) if length in result.seconds else None

    def ratio(self, result: RemedyResult, length: int, against: int | None = None) -> float | None:
        """Returns the time of a remedy at a length over the default's, at ``against`` if given.

        The median of the turns' ratios. None where one of them was not timed.
        """
        mine, theirs = result.seconds.get(length), self.default.seconds.get(against or length)
        return None if mine is None or theirs is None else float(np.median(mine / theirs))

    def of_fixed(self, result: RemedyResult) -> float | None:
        """Returns the time of a remedy for the content over the default's at the full length."""
        return self.ratio(result, self.content, self.fixed)


@dataclass(frozen=True)
class Advice:
    """``name``: the remedy to use, ``none`` where lengths agree already, None where none is exact.

    None too where the model was read in part: nothing is recommended then.

    ``ratio``: its time at the content's length over the default's there; ``of_fixed``: over the
    default's time at the full length. ``keeping``: the cheapest exact one that also gives the
    default's bits at the full length, for users who have results to match; None if there is none.
    """

    name: str | None
    text: str
    ratio: float | None = None
    of_fixed: float | None = None
    keeping: str | None = None


def advise(measured: Measured) -> Advice:
    """Returns what to do, in one sentence."""

    def cheapest(results: Iterable[RemedyResult]) -> RemedyResult | None:
        return min(results, key=lambda result: measured.of_fixed(result) or 0, default=None)

    exact = [result for result in measured.found if result.verdict == "exact" and result.seconds]
    keeping = cheapest(result for result in exact if result.keeps)
    keeping_name = None if keeping is None else keeping.remedy.name
    if measured.default.verdict == "exact":
        text = (
            f"no remedy is needed: every output is added in the same order at all of these "
            f"{measured.sizes}"
        )
        return Advice("none", text, 1.0, measured.of_fixed(measured.default), "default")
    best = cheapest(exact)
    if best is None:
        open_ = [result.remedy.name for result in measured.found if result.verdict == "not known"]
        untimed = [result.remedy.name for result in measured.found if result.verdict == "exact"]
        text = f"exact and not timed: {', '.join(untimed)}" if untimed else "no remedy is exact"
        text += f"; not known of {', '.join(open_)}" if open_ else " on this target" * (not untimed)
        return Advice(None, text)
    ratio, of_fixed = measured.ratio(best, measured.content), measured.of_fixed(best)
    text = (
        f"{best.remedy.name}: {best.remedy.doc}; exact, {rounded_text(ratio)} times the default at "
        f"{measured.vary} {measured.content}, {rounded_text(of_fixed)} times padding everything to "
        f"{measured.fixed}"
    )
    if keeping_name != best.remedy.name and keeping_name is not None:
        text += f"; to keep the default's bits at {measured.fixed}: {keeping_name}"
    return Advice(best.remedy.name, text, ratio, of_fixed, keeping_name)


def remedy_rows(measured: Measured, experiment: str | None = None) -> dict[str, list[Row]]:
    """Returns rows of ``runs``, ``cases`` or ``networks``, ``remedies`` and every turn in
    ``measurements``."""
    run = run_row(measured.target, measured.facts, measured.variables, experiment)
    case = measured.subject if isinstance(measured.subject, Case) else None
    place = {
        "run_id": run["run_id"],
        "case_id": None if case is None else case.id,
        "network_id": None if case is not None else measured.subject.id,
        "target": measured.target.text,
        "content": measured.content,
        "fixed": measured.fixed,
        "lengths": len(measured.lengths),
        "vary": measured.vary,
    }
    best, rows = advise(measured).name, []
    for result in measured.found:
        row = remedy_to_json(measured, result)
        rows.append(
            {**place, **{name: row[name] for name in _SAME}, "compared": result.compared or 0}
            | {"remedy": row["name"], "place": row["target"], "keeps": row["keeps_bits"]}
            | {"recommended": result.remedy.name == best}
        )
    return {
        "runs": [run],
        "cases": [] if case is None else [case_row(case)],
        "networks": [measured.subject.row()] if case is None else [],
        "remedies": rows,
        "measurements": [
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
        ],
    }


# Columns of ``remedies`` that are called so in JSON too.
_SAME = (
    *("about", "verdict", "compared", "differing", "unknown", "refusal", "seconds"),
    *("seconds_fixed", "ratio", "of_fixed", "ratio_fixed", "error_rms", "error_max"),
)


def remedy_to_json(measured: Measured, result: RemedyResult) -> Row:
    """Returns one remedy as ``probe fix --json`` prints it."""
    return {
        "name": result.remedy.name,
        "about": result.remedy.doc,
        "target": result.remedy.where.text,
        "verdict": result.verdict,
        "compared": result.compared,
        "differing": result.differing,
        "unknown": result.unknown,
        "causes": dict(sorted(result.causes.items())),
        "refusal": result.refusal or None,
        "seconds": measured.seconds(result, measured.content),
        "seconds_fixed": measured.seconds(result, measured.fixed),
        "ratio": measured.ratio(result, measured.content),
        "of_fixed": measured.of_fixed(result),
        "ratio_fixed": measured.ratio(result, measured.fixed),
        "error_rms": result.error_rms,
        "error_max": result.error_max,
        "keeps_bits": result.keeps,
        "sets": result.sets,
        "sizes": list(result.sizes),
    }


def remedies_report(measured: Measured) -> Row:
    """Returns the object that ``probe fix --json`` prints, ``store`` aside.

    ``verdict``: of the default at these lengths, ``equal``, ``differs`` or ``unknown``.
    """
    subject, advice = measured.subject, advise(measured)
    words = {"exact": "equal", "differs": "differs", "not known": "unknown"}
    is_case = isinstance(subject, Case)
    what = {"case": subject.to_json()} if is_case else {"network": subject.name, "part": None}
    return {
        "verdict": words[measured.default.verdict],
        **what,
        "target": measured.target.text,
        "layouts": measured.layouts,
        "threads": measured.threads,
        "vary": measured.vary,
        "lengths": list(measured.lengths),
        "fixed": measured.fixed,
        "content": measured.content,
        "remedies": [remedy_to_json(measured, result) for result in measured.found],
        "recommended": advice.name,
        "ratio": advice.ratio,
        "of_fixed": advice.of_fixed,
        "keeping": advice.keeping,
        "advice": advice.text,
    }


# Turns in which all remedies are timed, one after the other.
ROUNDS = 9
# Calls of one remedy at one length, in one turn.
SECONDS = 0.04

Name = TypeVar("Name")


class RemediedSession:
    """``session`` with ``remedy``, see ``probe.targets.backends.rewritten``, in every spec that it
    is sent.

    Everything else is the session's own; both may be used in turns.
    """

    def __init__(self, session: AnySession, remedy: Mapping[str, Any]) -> None:
        self.session, self.remedy = session, dict(remedy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def request(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Answer:
        return self.session.request(self._remedied(header), arrays)

    def stream(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Iterator[Answer]:
        return self.session.stream(self._remedied(header), arrays)

    def _remedied(self, header: Mapping[str, Any]) -> dict[str, Any]:
        changed = dict(header)
        if "spec" in header:
            changed["spec"] = {**header["spec"], "remedy": self.remedy}
        return changed


class RemedySessions(campaign.Sessions):
    """Running targets, one process each, for one measurement or several; leaving ends them."""

    def __init__(self, inline: bool = False) -> None:
        super().__init__(lambda where: open_session(where, inline))

    def with_remedy(self, remedy: Remedy) -> AnySession:
        """Returns the target's session with the remedy in every spec; see ``RemediedSession``."""
        session = self.of(remedy.where)
        if remedy.spec is None:
            return session
        return cast(AnySession, RemediedSession(session, remedy.spec))


def in_turns(
    calls: Mapping[Name, Callable[[float], Sequence[float]]], rounds: int = ROUNDS
) -> dict[Name, np.ndarray]:
    """Medians of each turn, float64 (rounds,), of things that are called one after the other.

    A call takes the seconds that it may last and gives those of every repetition. A first turn,
    in which libraries build, compile and pack, is not counted.
    """
    turns = [
        [float(np.median(call(SECONDS if turn else 0.0))) for call in calls.values()]
        for turn in range(rounds + 1)
    ]
    return {name: np.array(medians[1:]) for name, *medians in zip(calls, *turns, strict=True)}


Timers = Mapping[tuple[int, int], Callable[[float], Sequence[float]]]


def measured_remedies(
    case: Case,
    where: Target,
    lengths: Sequence[int],
    *,
    vary: str | None = None,
    content: int | None = None,
    chunks: Sequence[int] = CHUNKS,
    only: Iterable[str] | None = None,
    progress: Tell | None = None,
    each: Callable[[RemedyResult], None] = silent,
    sessions: RemedySessions | None = None,
) -> Measured:
    """Judges, times and checks every remedy for ``case`` on ``where``.

    ``vary``: ``length``, or ``batch``, whose sizes the lengths are then; None: the length, of a
    dense layer the batch. ``lengths``: two or more; every one is compared by order with the
    largest. ``content``: the length whose cost is reported; the first of the lengths that is a
    tenth of the largest if not given. ``only``: names of remedies, the default always being one.
    ``each``: called with a remedy as soon as it is judged, before it is timed.
    ``sessions``: processes that are used and left running; new ones if not given. What can't run
    says why; TargetError only where the default can't. InputError: a case without remedies.
    """
    vary = axis_of(case, vary)
    if case.pool or case.split is not None:
        why = "remedies are for single convolutions and products"
        raise InputError("op", case.op, why, "leave out split, or take a convolution")
    if vary not in ("length", "batch"):
        raise InputError("vary", vary, "remedies are not measured along it", "use length or batch")
    if vary == "batch" and case.spatial_rank and case.length is None:
        why = "the length is fixed while the batch is varied"
        raise InputError("length", None, why, "give --length N")
    if len(set(lengths)) < 2:
        text, why = ",".join(map(str, lengths)), "a single length has nothing to differ from"
        raise InputError("lengths", text, why, "give two or more")
    lengths = tuple(sorted(set(lengths)))
    fixed = lengths[-1]
    content = content or next(length for length in lengths if 10 * length >= fixed)
    if content > fixed:
        why = f"the largest size is {fixed}, and costs are measured up to it"
        raise InputError("content", content, why, "take a smaller one, or add it to --lengths")
    case_at(case, vary, content)  # refuses one that is shorter than the kernel
    case = case.with_(**{vary: 1 if vary == "batch" else None})
    with nullcontext(sessions) if sessions else RemedySessions() as running:
        work = CaseRemedies(case, vary, lengths, content, where, running, only)
        results, own = work.measured(chunks, progress, each), running.of(where)
        known = results, own.facts, own.variables, vary
        return Measured(case, where, lengths[:-1], fixed, content, *known)


class CaseRemedies:
    """What is done with each remedy of one case on one target."""

    def __init__(
        self,
        case: Case,
        vary: str,
        lengths: tuple[int, ...],
        content: int,
        where: Target,
        sessions: RemedySessions,
        only: Iterable[str] | None,
    ) -> None:
        self.case, self.vary, self.lengths, self.content = case, vary, lengths, content
        self.where, self.sessions = where, sessions
        self.wanted = None if only is None else {"default", *only}
        self.longest = case_at(case, vary, lengths[-1])
        self.own_orders: ByOrder | None = None

    def wants(self, name: str) -> bool:
        return self.wanted is None or name in self.wanted

    def candidates(self, chunks: Sequence[int]) -> list[Remedy]:
        """Returns what is tried, the default first. Of a batch, chunks are of samples, and the
        invariant mode is among them."""
        remedies = remedies_of(self.where, chunks)
        if self.vary != "batch":
            return remedies
        for number, remedy in enumerate(remedies):
            if (spec := remedy.spec) is not None and spec["kind"] == "chunks":
                doc = f"calls of {spec['outputs']} samples each"
                remedies[number] = replace(remedy, doc=doc, spec=spec | {"axis": "batch"})
        if self.where.name in IN_MODE:
            spec = {"kind": "invariant", "sizes": list(self.lengths)}
            remedies.append(Remedy(INVARIANT, self.where, DOC, spec))
        return remedies

    def measured(
        self,
        chunks: Sequence[int],
        progress: Tell | None,
        each: Callable[[RemedyResult], None] = silent,
    ) -> list[RemedyResult]:
        """Judges and times every remedy that is asked for, and compares it with exact outputs.

        ``each``: called with a remedy as soon as it is judged. Where time is over or somebody
        interrupts after the default was judged, the rest has that as its refusal, and nothing is
        timed.
        """
        tell, results = progress or silent, list[RemedyResult]()
        todo = [remedy for remedy in self.candidates(chunks) if self.wants(remedy.name)]
        if budget.current_budget() is not None:
            # what starts no further process first, as time may end
            todo.sort(key=lambda remedy: remedy.where != self.where)
        for number, remedy in enumerate(todo):
            judged: list[RemedyResult] = []
            # without the default nothing is known
            with budget.Ending(results or judged):
                budget.require_time()
                tell(number, len(todo) + 1, remedy.name)
                judged.append(self.judged(remedy))
                judged += self.more(judged[0])
            for result in judged:
                each(result)
            why = f"not tried: {budget.spent()}"
            results += judged or [RemedyResult(remedy, refusal=why)]
        with budget.Ending():
            budget.require_time()
            tell(len(todo), len(todo) + 1, "cost")
            self._check(results)
            ready = [result for result in results if result.keeps is not None]
            for (number, length), medians in in_turns(self.timers(ready)).items():
                ready[number].seconds[length] = medians
        return results

    def judged(self, remedy: Remedy, **known: Any) -> RemedyResult:
        """Sweeps the case by order with a remedy; or says why that can't be used.
        TargetError where the default is not available: what it refuses is reported."""
        result = RemedyResult(remedy, **known)
        if remedy.name != "default" and (why := why_unavailable(remedy.where)):
            result.refusal = why
            return result
        try:
            session = self.sessions.with_remedy(remedy)
            orders = by_order.sweep_by_order(session, self.case, self.lengths, self.vary)
        except TargetError as error:
            if remedy.name == "default" and error.kind == "unavailable":
                raise
            result.refusal = f"{error.kind}: {error.why}"
            return result
        if remedy.name == "default":
            self.own_orders = orders
        result.compared, result.differing = orders.compared, orders.differing
        result.unknown = sum(value.unknown for value in orders.values)
        result.sets = orders.sets
        result.causes = sum((value.causes for value in orders.values), Counter())
        refused = [value for value in [orders.base, *orders.values] if value.refusal]
        if refused:
            result.refusal = f"{self.vary} {refused[0].at}: {refused[0].refusal}"
        return result

    def more(self, result: RemedyResult) -> Iterator[RemedyResult]:
        """Yields padding to lengths whose outputs are all added as the longest one's are."""
        if result.remedy.name == "default" and self.wants("pad"):
            if self.vary == "batch":
                sizes = self._alike(self.own_orders, self.lengths[-1])
                doc, axis = f"filled up to {few_in_words(sizes)} samples", {"axis": "batch"}
            else:
                sizes = self._safe_outputs()
                doc, axis = f"zeros up to {few_in_words(sizes)} outputs", {}
            spec = {"kind": "pad", "outputs": list(sizes)} | axis
            yield self.judged(Remedy("pad", self.where, doc, spec), sizes=sizes)

    @staticmethod
    def _alike(
        orders: ByOrder | None, largest: int, counts: Mapping[int, int] | None = None
    ) -> tuple[int, ...]:
        """Values all of whose outputs are added as those of the ``largest``, which is among them;
        ``counts``: what they are called, of those that count."""
        safe = {
            value.at if counts is None else counts[value.at]
            for value in (orders.values if orders else ())
            if not (value.outputs or value.unknown or value.refusal)
            and (counts is None or value.at in counts)
        }
        return tuple(sorted({*safe, largest}))

    def _safe_outputs(self) -> tuple[int, ...]:
        """Numbers of outputs, the longest length's among them, without zeros on the last axis."""
        case = self.case
        axis = case.spatial_rank - 1
        counts = {case.output_spatial(length)[axis]: length for length in self.lengths}
        extent, step = case.effective_kernel[axis], case.stride[axis]
        lengths = {(count - 1) * step + extent: count for count in counts}
        plain = case.with_(padding="valid")
        if case.padding != "valid" and case.spatial_rank > 1:  # no zeros on the last axis alone
            plain = case.with_(padding=[*case.windows.pads(case.other_axes), (0, 0)])
        orders = self.own_orders
        if plain != case or set(lengths) != set(self.lengths):
            session = self.sessions.of(self.where)
            several = tuple(lengths) if len(lengths) > 1 else ()
            orders = by_order.sweep_by_order(session, plain, several) if several else None
        return self._alike(orders, max(counts), lengths)

    def _check(self, results: Sequence[RemedyResult]) -> None:
        """Each remedy's distance from the exact outputs at the full length, and whose bits."""
        exact, scale = exact_sums(self.longest)
        dtype = self.case.dtype
        own: np.ndarray | None = None
        for result in results:
            if result.compared is None:
                continue
            try:
                y = self.output(result.remedy)
            except TargetError as error:
                result.refusal = result.refusal or f"{error.kind}: {error.why}"
                continue
            own = y if own is None else own
            result.keeps = bool(ulp.equal(y, own, dtype))
            with np.errstate(all="ignore"):
                errors = np.abs(floats.widen(y, dtype) - exact) / (floats.eps(dtype) * scale)
            errors = errors[np.isfinite(errors)]
            if errors.size:
                result.error_rms = float(np.sqrt(np.mean(errors**2)))
                result.error_max = float(errors.max())

    def output(self, remedy: Remedy) -> np.ndarray:
        """A remedy's outputs at the full length. TargetError."""
        session = self.sessions.with_remedy(remedy)
        request = {"do": "run", "spec": self.longest.spec()}
        y: np.ndarray = session.request(request, _named_operands(self.longest))[1]["y"]
        return y

    def timers(self, ready: Sequence[RemedyResult]) -> Timers:
        """What times a call at both lengths whose costs are reported, by number and length: see
        ``in_turns``."""
        for result in ready:
            header = {"do": "load", "key": result.remedy.name, "spec": self.longest.spec()}
            session = self.sessions.with_remedy(result.remedy)
            session.request(header, _named_operands(self.longest))

        def timed(remedy: Remedy, length: int, limit: float) -> Sequence[float]:
            header = {"do": "time", "key": remedy.name, "at": {self.vary: length}, "limit": limit}
            return list(self.sessions.of(remedy.where).request(header)[1]["seconds"])

        return {
            (number, length): partial(timed, result.remedy, length)
            for number, result in enumerate(ready)
            for length in dict.fromkeys((self.content, self.lengths[-1]))
        }


def _named_operands(case: Case) -> Arrays:
    named = zip("xwb", case.operands(), strict=True)
    return {name: array for name, array in named if array is not None}


def few_in_words(sizes: Sequence[int]) -> str:
    """Returns numbers in words, the middle left out where there are many."""
    if len(sizes) <= 4:
        return ", ".join(map(str, sizes))
    return f"{sizes[0]}, {sizes[1]}, ..., {sizes[-1]}"


def exact_sums(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Returns every output in float64, and sum|x*w| with |bias|: (batch, *outputs, filters) each.

    The float64 sums of the formats' own operands are nearer to the exact ones than any float32
    result by nine digits; of float64 cases they are the reference's.
    """
    wide = case.with_(layout=CONTIGUOUS).spec() | {"dtype": "float64"}
    operands = {
        name: floats.widen(array, case.dtype) for name, array in _named_operands(case).items()
    }
    sizes = {name: np.abs(array) for name, array in operands.items()}
    with InlineSession(Target.parse("reference")) as session:
        exact, scale = (
            session.request({"do": "run", "spec": wide}, arrays)[1]["y"]
            for arrays in (operands, sizes)
        )
    return exact, scale

"""What keeps the bits of a case or a model at every size: what is exact, and what it costs.

A question (``CaseQuestion`` here, ``model_fixes.ModelQuestion``) has remedies to try; each is
judged, then all that ran are timed in turns, and the cheapest exact one is recommended. Of cases
exact means that every output is added alike at all sizes, by order; of models that what is kept of
the outputs has the bits of the full run: on several sets of operands, and by order.
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
from probe.case.case import Case, require_places
from probe.case.errors import InputError, TargetError
from probe.case.floats import rounded_text
from probe.case.layout import CONTIGUOUS
from probe.explain.runs import outputs_of_call
from probe.order.window import axis_of, case_at
from probe.sizes.orders import ByOrder, sweep_by_order
from probe.sizes.thresholds import threads_of
from probe.sweep.campaign import Row
from probe.sweep.printing import ranges
from probe.targets import backends, budget
from probe.targets.launch import (
    Answer,
    AnySession,
    Arrays,
    InlineSession,
    Sessions,
    open_session,
)
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

# Libraries that ``probe.stable`` computes with, and whose operations the invariant mode runs one by
# one as targets call them.
STABLE, IN_MODE = ("tensorflow", "torch"), ("torch",)


@dataclass(frozen=True)
class Remedy:
    """One thing to do. ``spec``: what ``backends.rewritten`` puts in the operator's place, or None.

    ``where``: the target that it runs on; ``doc``: what it is, in a few words; ``pads``: whether it
    fills up what is run, and changes nothing else.
    """

    name: str
    where: Target
    doc: str
    spec: dict[str, Any] | None = field(default=None, hash=False)
    pads: bool = False


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
    """One remedy. ``refusal``: why it can't be used here, or what is in the way of a verdict.

    ``compared``: outputs that must agree (of a model: contents); of these ``differing`` are added
    in a different order than at the full length, ``unknown`` in a way that isn't known; None where
    nothing was compared. ``causes`` counts the differing ones by cause. ``seconds``: by length the
    medians of each turn's calls. ``error_rms``, ``error_max``: distance from the exact outputs at
    the full length, over eps * sum|x*w| (of a model unknown). ``keeps``: whether the full length
    has the default's bits. ``sizes``: what ``pad`` fills up to: numbers of outputs, or of a model
    the padded length of each content. ``sets``: of fresh operands that each order was replayed on.
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
    """All remedies of a case or a model on a target, the default first.

    ``subject``: a case, or a model's name.
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
        return self.subject.label if isinstance(self.subject, Case) else str(self.subject)

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
        """The median of the turns; None where it was not timed."""
        return float(np.median(result.seconds[length])) if length in result.seconds else None

    def ratio(self, result: RemedyResult, length: int, against: int | None = None) -> float | None:
        """The time of a remedy at a length over the default's, at ``against`` if given.

        The median of the turns' ratios. None where one of them was not timed.
        """
        seconds, default = result.seconds.get(length), self.default.seconds.get(against or length)
        return None if seconds is None or default is None else float(np.median(seconds / default))

    def of_fixed(self, result: RemedyResult) -> float | None:
        """The time of a remedy for the content over the default's at the full length."""
        return self.ratio(result, self.content, self.fixed)


@dataclass(frozen=True)
class Advice:
    """``name``: the remedy to use; of a case ``none`` where lengths agree already, None where no
    remedy is exact; of a model ``one size`` there.

    ``ratio``: its time at the content's length over the default's there; ``of_fixed``: over the
    default's time at the full length. ``keeping``: the cheapest exact one that also gives the
    default's bits at the full length, for users who have results to match; None if there is none.
    """

    name: str | None
    text: str
    ratio: float | None = None
    of_fixed: float | None = None
    keeping: str | None = None


def _cheapest(measured: Measured, exact: Iterable[RemedyResult]) -> RemedyResult | None:
    """The padding to the smallest sizes, or another remedy that took less time than it.

    Time would choose by chance between paddings to one size.
    """
    candidates = list(exact)
    best = min((r for r in candidates if r.remedy.pads), key=lambda r: sum(r.sizes), default=None)
    if best is not None and not best.seconds:
        return best
    timed = [r for r in candidates if r.seconds and (r is best or not r.remedy.pads)]
    return min(timed, key=lambda r: measured.of_fixed(r) or 0.0, default=None)


def advise(measured: Measured) -> Advice:
    """What to do, in one sentence."""
    exact = [result for result in measured.found if result.verdict == "exact"]
    keeping = _cheapest(measured, (result for result in exact if result.keeps))
    keeping_name = None if keeping is None else keeping.remedy.name
    is_case = isinstance(measured.subject, Case)
    if measured.default.verdict == "exact":
        what = "every output is added in the same order" if is_case else "no bit changes"
        text = f"no remedy is needed: {what} at all of these {measured.sizes}"
        of_fixed = measured.of_fixed(measured.default)
        return Advice("none" if is_case else "default", text, 1.0, of_fixed, "default")
    best, one_size = (
        _cheapest(measured, exact),
        f"one size: each call filled up to {measured.fixed}",
    )
    if best is None:
        open_ = [result.remedy.name for result in measured.found if result.verdict == "not known"]
        text = "no remedy that was tried is exact on this target"
        if exact:
            text = f"exact and not timed: {', '.join(result.remedy.name for result in exact)}"
        text += f"; not known of {', '.join(open_)}" if open_ else ""
        return Advice(None if is_case else "one size", f"{text}; what is left is {one_size}")
    ratio, of_fixed = measured.ratio(best, measured.content), measured.of_fixed(best)
    text = f"{best.remedy.name}: {best.remedy.doc}; exact"
    if ratio is not None:
        text += (
            f", {rounded_text(ratio)} times the default at {measured.vary} {measured.content}, "
            f"{rounded_text(of_fixed)} times padding everything to {measured.fixed}"
        )
    if keeping_name != best.remedy.name and keeping_name is not None:
        text += f"; to keep the default's bits at {measured.fixed}: {keeping_name}"
    for result in measured.found:  # which part of the model stands against it
        if result.remedy.name == INVARIANT and result.verdict != "exact" and result.refusal:
            text += f"; {INVARIANT} is {result.verdict}: {result.refusal}"
    return Advice(best.remedy.name, text, ratio, of_fixed, keeping_name)


def remedy_to_json(measured: Measured, result: RemedyResult) -> Row:
    """One remedy as ``probe fix --json`` prints it."""
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
    """The object that ``probe fix --json`` prints of a case, ``store`` aside.

    ``verdict``: of the default at these lengths, ``equal``, ``differs`` or ``unknown``.
    """
    advice = advise(measured)
    words = {"exact": "equal", "differs": "differs", "not known": "unknown"}
    return {
        "verdict": words[measured.default.verdict],
        "case": measured.subject.to_json(),
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


class RemedySessions(Sessions):
    """Running targets, one process each, for one measurement or several; leaving ends them."""

    def __init__(self, inline: bool = False) -> None:
        super().__init__(lambda where: open_session(where, inline))

    def with_remedy(self, remedy: Remedy) -> AnySession:
        session = self.of(remedy.where)
        if remedy.spec is None:
            return session
        return cast(AnySession, RemediedSession(session, remedy.spec))


Timers = Mapping[tuple[int, int], Callable[[float], Sequence[float]]]


def in_turns(
    calls: Mapping[Name, Callable[[float], Sequence[float]]],
) -> dict[Name, np.ndarray]:
    """Medians of each turn, float64 (rounds,), of things that are called one after the other.

    A call takes the seconds that it may last and gives those of every repetition. What several
    names stand for is called once. A first turn, in which libraries build, compile and pack, is not
    counted.
    """
    distinct = dict.fromkeys(calls.values())
    turns = [
        [float(np.median(call(SECONDS if turn else 0.0))) for call in distinct]
        for turn in range(ROUNDS + 1)
    ]
    took = {
        call: np.array(each[1:])
        for call, each in zip(distinct, zip(*turns, strict=True), strict=True)
    }
    return {name: took[call] for name, call in calls.items()}


def judged_and_timed(question: Any, progress: Tell | None) -> list[RemedyResult]:
    """Judges every remedy of a case or a model, then times all that ran.

    ``question``: on a target ``where``; its ``candidates()`` are tried, the default first;
    ``judged(remedy)`` yields that and what is known of others by it (TargetError: the default
    can't run); ``timers(results)``: what times a call at both sizes whose costs are reported, by
    number and size. Where time is over or somebody interrupts after the default was judged, the
    rest has that as its refusal, and nothing is timed.
    """
    tell, results, todo = progress or silent, list[RemedyResult](), question.candidates()
    if budget.current_budget() is not None:
        # what starts no further process first, as time may end
        todo.sort(key=lambda remedy: remedy.where != question.where)
    for number, remedy in enumerate(todo):
        judged: list[RemedyResult] = []
        # without the default nothing is known
        with budget.Ending(results or judged):
            budget.require_time()
            tell(number, len(todo) + 1, remedy.name)
            judged.extend(question.judged(remedy))
        results += judged or [RemedyResult(remedy, refusal=f"not tried: {budget.spent()}")]
    with budget.Ending():
        budget.require_time()
        tell(len(todo), len(todo) + 1, "cost")
        for (number, size), medians in in_turns(question.timers(results)).items():
            results[number].seconds[size] = medians
    return results


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
    sessions: RemedySessions | None = None,
) -> Measured:
    """Judges, times and checks every remedy for ``case`` on ``where``.

    ``vary``: ``length``, or ``batch``, whose sizes the lengths are then; None: the length, of a
    dense layer the batch. ``lengths``: two or more; every one is compared by order with the
    largest. ``content``: the length whose cost is reported; the first of the lengths that is a
    tenth of the largest if not given. ``only``: names of remedies, the default always being one.
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
    require_places(case_at(case, vary, fixed))
    case = case.with_(**{vary: 1 if vary == "batch" else None})
    with nullcontext(sessions) if sessions else RemedySessions() as running:
        wanted = None if only is None else {"default", *only}
        question = CaseQuestion(case, vary, lengths, content, where, running, wanted, chunks)
        results, library = judged_and_timed(question, progress), running.of(where)
        context = results, library.facts, library.variables, vary
        return Measured(case, where, lengths[:-1], fixed, content, *context)


@dataclass
class CaseQuestion:
    """One case on one target. ``wanted``: names of remedies; None: all."""

    case: Case
    vary: str
    lengths: tuple[int, ...]
    content: int
    where: Target
    sessions: RemedySessions
    wanted: set[str] | None = None
    chunks: Sequence[int] = CHUNKS

    def __post_init__(self) -> None:
        self.longest = case_at(self.case, self.vary, self.lengths[-1])

    def wants(self, name: str) -> bool:
        return self.wanted is None or name in self.wanted

    def candidates(self) -> list[Remedy]:
        """Of a batch, chunks are of samples, and the invariant mode is tried."""
        remedies = remedies_of(self.where, self.chunks)
        if self.vary == "batch":
            for number, remedy in enumerate(remedies):
                if (spec := remedy.spec) is not None and spec["kind"] == "chunks":
                    doc = f"calls of {spec['outputs']} samples each"
                    remedies[number] = replace(remedy, doc=doc, spec=spec | {"axis": "batch"})
            if self.where.name in IN_MODE:
                spec = {"kind": "invariant", "sizes": list(self.lengths)}
                remedies.append(Remedy(INVARIANT, self.where, DOC, spec))
        return [remedy for remedy in remedies if self.wants(remedy.name)]

    def judged(self, remedy: Remedy) -> Iterator[RemedyResult]:
        """By order. With the default comes padding to lengths whose outputs are
        all added as the longest one's are."""
        result, orders = self._by_order(remedy)
        yield result
        if remedy.name != "default" or not self.wants("pad"):
            return
        if self.vary == "batch":
            sizes = _alike_lengths(orders, self.lengths[-1])
            doc, axis = f"filled up to {ranges(sizes, 3)} samples", {"axis": "batch"}
        else:
            sizes = self._safe_outputs(orders)
            doc, axis = f"zeros up to {ranges(sizes, 3)} outputs", {}
        spec = {"kind": "pad", "outputs": list(sizes)} | axis
        result, _ = self._by_order(Remedy("pad", self.where, doc, spec, pads=True))
        result.sizes = sizes
        yield result

    def _by_order(self, remedy: Remedy) -> tuple[RemedyResult, ByOrder | None]:
        """Sweeps the case by order with a remedy; or says why that can't be used."""
        result = RemedyResult(remedy)
        if remedy.name != "default" and (why := why_unavailable(remedy.where)):
            result.refusal = why
            return result, None
        try:
            session = self.sessions.with_remedy(remedy)
            orders = sweep_by_order(session, self.case, self.lengths, self.vary)
        except TargetError as error:
            if remedy.name == "default" and error.kind == "unavailable":
                raise
            result.refusal = f"{error.kind}: {error.why}"
            return result, None
        result.compared, result.differing = orders.compared, orders.differing
        result.unknown = sum(value.unknown for value in orders.values)
        result.sets = orders.sets
        result.causes = sum((value.causes for value in orders.values), Counter())
        refused = [value for value in [orders.base, *orders.values] if value.refusal]
        if refused:
            result.refusal = f"{self.vary} {refused[0].at}: {refused[0].refusal}"
        return result, orders

    def _safe_outputs(self, orders: ByOrder | None) -> tuple[int, ...]:
        """Numbers of outputs, the longest length's among them, without zeros on the last axis."""
        case = self.case
        axis = case.spatial_rank - 1
        counts = {case.output_spatial(length)[axis]: length for length in self.lengths}
        extent, step = case.effective_kernel[axis], case.stride[axis]
        lengths = {(count - 1) * step + extent: count for count in counts}
        plain = case.with_(padding="valid")
        if case.padding != "valid" and case.spatial_rank > 1:  # no zeros on the last axis alone
            plain = case.with_(padding=[*case.windows.pads(case.other_axes), (0, 0)])
        if plain != case or set(lengths) != set(self.lengths):
            session = self.sessions.of(self.where)
            several = tuple(lengths) if len(lengths) > 1 else ()
            orders = sweep_by_order(session, plain, several) if several else None
        return _alike_lengths(orders, max(counts), lengths)

    def _check(self, results: Sequence[RemedyResult]) -> None:
        """Each remedy's distance from the exact outputs at the full length, and whose bits."""
        exact, scale = exact_sums(self.longest)
        dtype = self.case.dtype
        default_outputs: np.ndarray | None = None
        for result in results:
            if result.compared is None:
                continue
            try:
                session = self.sessions.with_remedy(result.remedy)
                y = outputs_of_call(session, self.longest)
            except TargetError as error:
                result.refusal = result.refusal or f"{error.kind}: {error.why}"
                continue
            default_outputs = y if default_outputs is None else default_outputs
            result.keeps = bool(ulp.equal(y, default_outputs, dtype))
            with np.errstate(all="ignore"):
                errors = np.abs(floats.widen(y, dtype) - exact) / (floats.eps(dtype) * scale)
            errors = errors[np.isfinite(errors)]
            if errors.size:
                result.error_rms = float(np.sqrt(np.mean(errors**2)))
                result.error_max = float(errors.max())

    def timers(self, results: Sequence[RemedyResult]) -> Timers:
        """Of what gave outputs at the full length, which are checked first."""
        self._check(results)
        ready = {n: result for n, result in enumerate(results) if result.keeps is not None}
        for result in ready.values():
            header = {"do": "load", "key": result.remedy.name, "spec": self.longest.spec()}
            session = self.sessions.with_remedy(result.remedy)
            session.request(header, _named_operands(self.longest))

        def timed(remedy: Remedy, length: int, limit: float) -> Sequence[float]:
            header = {"do": "time", "key": remedy.name, "at": {self.vary: length}, "limit": limit}
            return list(self.sessions.of(remedy.where).request(header)[1]["seconds"])

        return {
            (number, length): partial(timed, result.remedy, length)
            for number, result in ready.items()
            for length in dict.fromkeys((self.content, self.lengths[-1]))
        }


def _alike_lengths(
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


def _named_operands(case: Case) -> Arrays:
    named = zip("xwb", case.operands(), strict=True)
    return {name: array for name, array in named if array is not None}


def exact_sums(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Every output in float64, and sum|x*w| with |bias|: (batch, *outputs, filters) each.

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

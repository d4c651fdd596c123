"""Lists the remedies of a target, and holds what was found of each, with the advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from probe import backends
from probe.campaign import Row, case_row, run_row
from probe.case import Case
from probe.errors import InputError
from probe.floats import rounded_text
from probe.layout import CONTIGUOUS
from probe.switch_points.search import threads_of
from probe.target import Target

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
# Remedies that are added when orders are known; ``layerwise`` of networks alone, ``invariant`` of
# cases along their batch.
NAMES = ("pad", "layerwise", "layerwise,xla=1", INVARIANT)

STABLE = ("tensorflow", "torch")


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
    found = [Remedy("default", where, "the operator as it is")]
    found += [
        Remedy(
            f"chunks={size}",
            where,
            f"calls of {size} outputs each",
            {"kind": "chunks", "outputs": size},
        )
        for size in sorted(set(chunks))
    ]
    found.append(Remedy("float64", where, "the operator in float64", {"kind": "float64"}))
    keys = backends.get(where.name).keys
    for key, value, doc in SWITCHES:
        if key in keys and dict(where.switches).get(key) != value:
            try:
                found.append(Remedy(f"{key}={value}", where.with_(**{key: value}), doc))
            except InputError:  # a switch that contradicts the target's own
                continue
    if where.name in STABLE:
        found += _stable(where)
    return found


def _stable(where: Target) -> Iterator[Remedy]:
    """probe.stable as the target runs it, in float64, and compiled where there is a compiler."""
    plain = {"kind": "stable", "accumulate": None}
    wide = {"kind": "stable", "accumulate": "float64"}
    yield Remedy("stable", where, "probe.stable", plain)
    yield Remedy("stable,float64", where, "probe.stable, added in float64", wide)
    if where.name == "tensorflow" and "xla" not in dict(where.switches):
        try:
            compiled = where.with_(xla=1)
        except InputError:
            return
        yield Remedy("stable,float64,xla=1", compiled, "the same, compiled by XLA", wide)


@dataclass
class RemedyResult:
    """One remedy. ``refusal``: why it can't be used here, or why its orders aren't known.

    ``compared``: outputs that must agree (of a network: content lengths); of these ``differing``
    are added in a different order than at the full length, ``unknown`` in a way that isn't known;
    None where nothing was compared. ``causes`` counts the differing ones by cause. ``seconds``: by
    length the medians of each turn's calls. ``error_rms``, ``error_max``: distance from the exact
    outputs at the full length, over eps * sum|x*w| (of a network eps * the largest output).
    ``keeps``: whether the full length has the default's bits. ``sizes``: what ``pad`` fills up to:
    numbers of outputs, or of a network the padded length of each content length. ``certified``:
    whether every output was tested for every addition and every fusion.
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
    certified: bool = False
    sizes: tuple[int, ...] = ()

    @property
    def verdict(self) -> str:
        """``exact`` for all finite operands, ``differs``, or ``not known``."""
        if self.differing:
            return "differs"
        return "not known" if self.refusal or self.unknown or self.compared is None else "exact"


class Described(Protocol):
    """What an experiment measures that is no case: a network. ``row``: of ``networks``."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    def row(self) -> dict[str, Any]: ...


@dataclass
class Measured:
    """All remedies of a case or a network on a target, the default first.

    ``lengths``: those whose orders were compared with ``fixed``, the size that stands for padding
    everything. ``content``: the length at which costs are reported, beside ``fixed``. ``vary``:
    ``length``, or ``batch``, whose sizes all of these are then.
    """

    subject: Case | Described
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
        """Returns what is varied, in the plural."""
        return "batches" if self.vary == "batch" else "lengths"

    @property
    def label(self) -> str:
        """Returns what was measured, in words."""
        return self.subject.label if isinstance(self.subject, Case) else self.subject.name

    @property
    def layouts(self) -> list[str]:
        """How the input lies in memory where the verdicts hold, words of :mod:`probe.layout`."""
        if isinstance(self.subject, Case):
            return [self.subject.layout]
        return [CONTIGUOUS]

    @property
    def threads(self) -> int | None:
        """Returns for how many threads the verdicts hold; None where the library doesn't say."""
        return threads_of(self.facts, self.target)

    @property
    def default(self) -> RemedyResult:
        """Returns the target as it is."""
        return self.found[0]

    def seconds(self, one: RemedyResult, length: int) -> float | None:
        """Returns the median of the turns; None where it was not timed."""
        return float(np.median(one.seconds[length])) if length in one.seconds else None

    def ratio(self, one: RemedyResult, length: int, against: int | None = None) -> float | None:
        """Returns the time of a remedy at a length over the default's, at ``against`` if given.

        The median of the turns' ratios. None where one of them was not timed.
        """
        mine, theirs = one.seconds.get(length), self.default.seconds.get(against or length)
        return None if mine is None or theirs is None else float(np.median(mine / theirs))

    def of_fixed(self, one: RemedyResult) -> float | None:
        """Returns the time of a remedy for the content over the default's at the full length."""
        return self.ratio(one, self.content, self.fixed)


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
    exact = [one for one in measured.found if one.verdict == "exact" and one.seconds]
    keeping = _cheapest(measured, [one for one in exact if one.keeps])
    kept = None if keeping is None else keeping.remedy.name
    if measured.default.verdict == "exact":
        text = (
            f"no remedy is needed: every output is added in the same order at all of these "
            f"{measured.sizes}"
        )
        return Advice("none", text, 1.0, measured.of_fixed(measured.default), "default")
    best = _cheapest(measured, exact)
    if best is None:
        return Advice(None, "no remedy is exact on this target")
    ratio, of_fixed = measured.ratio(best, measured.content), measured.of_fixed(best)
    text = (
        f"{best.remedy.name}: {best.remedy.doc}; exact, {rounded_text(ratio)} times the default at "
        f"{measured.vary} {measured.content}, {rounded_text(of_fixed)} times padding everything to "
        f"{measured.fixed}"
    )
    if kept != best.remedy.name and kept is not None:
        text += f"; to keep the default's bits at {measured.fixed}: {kept}"
    return Advice(best.remedy.name, text, ratio, of_fixed, kept)


def _cheapest(measured: Measured, found: list[RemedyResult]) -> RemedyResult | None:
    return min(found, key=lambda one: measured.of_fixed(one) or 0, default=None)


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
    best, subject = advise(measured).name, measured.subject
    told = []
    for one in measured.found:
        row = remedy_to_json(measured, one)
        told.append(
            {**place, **{name: row[name] for name in _SAME}, "compared": one.compared or 0}
            | {"remedy": row["name"], "place": row["target"], "keeps": row["keeps_bits"]}
            | {"recommended": one.remedy.name == best}
        )
    return {
        "runs": [run],
        "cases": [] if case is None else [case_row(case)],
        "networks": [] if isinstance(subject, Case) else [subject.row()],
        "remedies": told,
        "measurements": [
            {
                "run_id": run["run_id"],
                "subject": f"{measured.label}, fixed at {measured.fixed}",
                "variant": one.remedy.name,
                "size": length,
                "repeat": number,
                "value": value,
                "unit": "s",
            }
            for one in measured.found
            for length, medians in one.seconds.items()
            for number, value in enumerate(medians.tolist())
        ],
    }


# Columns of ``remedies`` that are called so in JSON too.
_SAME = (
    *("about", "verdict", "compared", "differing", "unknown", "refusal", "seconds"),
    *("seconds_fixed", "ratio", "of_fixed", "ratio_fixed", "error_rms", "error_max"),
)


def remedy_to_json(measured: Measured, one: RemedyResult) -> Row:
    """Returns one remedy as ``probe remedies --json`` prints it."""
    return {
        "name": one.remedy.name,
        "about": one.remedy.doc,
        "target": one.remedy.where.text,
        "verdict": one.verdict,
        "compared": one.compared,
        "differing": one.differing,
        "unknown": one.unknown,
        "causes": dict(sorted(one.causes.items())),
        "refusal": one.refusal or None,
        "seconds": measured.seconds(one, measured.content),
        "seconds_fixed": measured.seconds(one, measured.fixed),
        "ratio": measured.ratio(one, measured.content),
        "of_fixed": measured.of_fixed(one),
        "ratio_fixed": measured.ratio(one, measured.fixed),
        "error_rms": one.error_rms,
        "error_max": one.error_max,
        "keeps_bits": one.keeps,
        "certified": one.certified and one.verdict != "not known",
        "sizes": list(one.sizes),
    }


def remedies_report(measured: Measured) -> Row:
    """Returns the object that ``probe remedies --json`` prints, ``store`` aside.

    ``verdict``: of the default at these lengths, ``equal``, ``differs`` or ``unknown``.
    """
    subject, advice = measured.subject, advise(measured)
    words = {"exact": "equal", "differs": "differs", "not known": "unknown"}
    told: Row = {"verdict": words[measured.default.verdict]}
    if isinstance(subject, Case):
        told["case"] = subject.to_json()
    else:
        told |= {"network": subject.name, "part": None}
    return told | {
        "target": measured.target.text,
        "layouts": measured.layouts,
        "threads": measured.threads,
        "vary": measured.vary,
        "lengths": list(measured.lengths),
        "fixed": measured.fixed,
        "content": measured.content,
        "remedies": [remedy_to_json(measured, one) for one in measured.found],
        "recommended": advice.name,
        "ratio": advice.ratio,
        "of_fixed": advice.of_fixed,
        "keeping": advice.keeping,
        "advice": advice.text,
    }

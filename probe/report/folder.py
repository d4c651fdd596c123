"""Reduces a finding with its cause kept, explains and proves it, and writes the folder for a bug
report.

One process of each target answers for all candidates of a shrink (``Failing``). What a target
refuses does not fail; a process that is lost is started again. Bits that still differ are not
enough: two products that only one side fuses are a different bug from a changed order of three
hundred. The cause is read off both sides' revealed sums (``KeepsCause``), never off which
outputs happen to differ. A switch avoids a finding where the smallest case adds every compared
output alike on both sides, replayed bit for bit, and the case as it was found agrees in bits too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.arguments import choice
from probe.case.case import Case
from probe.case.errors import InputError, Misaligned, Nondeterministic, ProbeError, TargetError
from probe.explain.comparison import (
    Comparison,
    classes_of,
    compare_shapes,
)
from probe.explain.evidence import Evidence, differing_example, without_zeros
from probe.explain.runs import Finding, Revealer, outputs_of_call
from probe.explain.verdict import BUG, bug_or_rounding
from probe.order.tree import BIAS
from probe.report import program, proof, report
from probe.report.program import shortest_script
from probe.report.report import (
    Effect,
    Reported,
    Reproduction,
    facts_of,
    form_of,
    library_environment,
)
from probe.report.shrink import BUDGET, Shrunk, smallest_finding
from probe.sizes.bisection import ReleaseStep, first_change, releases_between
from probe.sweep.printing import plain
from probe.targets import backends, budget, installation, target
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import VOICE, Say, silent
from probe.targets.target import Target

BY = ("bits", "order")

# Outputs up to which all are revealed, though some are asked about.
SMALL = 256

Predicate = Callable[[Finding], bool]


@contextmanager
def failing(left: Target, right: Target | None = None, inline: bool = False) -> Iterator[Failing]:
    """A ``Failing`` with its processes started; they end with the context. TargetError."""
    with ExitStack() as stack:
        sessions = [open_session(left, inline)]
        if right is not None and right != left:
            sessions.append(open_session(right, inline))
        for session in sessions:
            stack.callback(session.close)
            session.start()
        yield Failing(sessions[0], sessions[-1])


class Failing:
    """Predicates over findings, on one or two started sessions. ``runs``: calls of operators."""

    def __init__(self, first: AnySession, second: AnySession) -> None:
        self.first, self.second, self.runs = first, second, 0
        self._known = Revealer(tried=0, kept=4, small=SMALL)

    @property
    def targets(self) -> tuple[Target, Target]:
        return self.first.target, self.second.target

    def conventions(self, finding: Finding) -> bool:
        """Whether outputs of the same place are compared, rather than those of equal windows."""
        return self.first is not self.second or finding.padding is not None

    def by_bits(self, finding: Finding) -> bool:
        """Whether outputs that must agree differ, and each side agrees with itself."""
        return self.survives(self._differs, finding)

    def _differs(self, finding: Finding) -> bool:
        left = self._run(self.first, finding, finding.left)
        right = self._run(self.second, finding, finding.right)
        dtype, blocks = finding.case.dtype, finding.blocks(self.conventions(finding))
        if all(ulp.equal(left[block], right[block], dtype) for block in blocks):
            return False
        # a side that does not agree with itself differs without any cause
        again = self._run(self.first, finding, finding.left)
        return bool(ulp.equal(left, again, dtype))

    def by_order(self, finding: Finding) -> bool:
        """Whether outputs that must agree are added in other ways, for all finite operands."""
        return self.by_bits(finding) or self.survives(
            lambda small: bool(self.explained(small).by_order), finding
        )

    def predicate(self, by: str) -> Predicate:
        """``by_bits`` or ``by_order``. InputError for another word."""
        return self.by_bits if choice("by", by, BY) == "bits" else self.by_order

    def survives(self, predicate: Predicate, finding: Finding) -> bool:
        """What a predicate says of a finding; False where the target does not compute it."""
        try:
            return predicate(finding)
        except TargetError as error:
            self._again(error)
            return False

    def explained(self, finding: Finding) -> Comparison:
        """Both sides with their orders, and the cause of every difference. TargetError."""
        self.revive()
        return self._compared(finding).reveal(self.first, self.second, Revealer(tried=0))

    def judged(self, finding: Finding) -> Comparison | None:
        """``explained`` of the differing outputs alone; None where none differs. TargetError."""
        comparison = self._compared(finding)
        if not len(comparison.differing):
            return None
        return comparison.reveal(self.first, self.second, self._known, comparison.differing)

    def _compared(self, finding: Finding) -> Comparison:
        return compare_shapes(finding, self.first, self.second, finding.operands)

    def revive(self) -> None:
        """Starts again what was lost, by Ctrl-C for example."""
        for session in (self.first, self.second):
            session.revive()

    def _run(self, session: AnySession, finding: Finding, case: Case) -> np.ndarray:
        self.runs += 1
        return outputs_of_call(session, case, finding.operands(case))

    def _again(self, error: TargetError) -> None:
        """Starts what was lost; raises the error where that is not why it failed."""
        if error.kind == "unavailable":
            raise error
        self.revive()


# Causes that the sums themselves show.
KINDS = ("order", "rounding", "precision", "flush")

# Differing outputs whose zeros are looked at.
MOST = 64


def effect(comparison: Comparison, label: str) -> Effect:
    values = [
        np.asarray(floats.widen(y, comparison.case.dtype), np.float64)
        for y in comparison.values(comparison.differing)
    ]
    far, larger = np.abs(values[0] - values[1]), np.maximum(*map(np.abs, values))
    finite = np.isfinite(far) & (larger > 0)
    many = bool(finite.any())
    return Effect(
        *(label, comparison.compared, len(comparison.differing), comparison.max_ulp),
        max_difference=float(far[finite].max()) if many else None,
        max_relative=float((far[finite] / larger[finite]).max()) if many else None,
        causes=comparison.causes or {name: len(which) for name, which in comparison.apart.items()},
    )


class KeepsCause:
    """Whether smaller findings keep the cause of ``start``.

    A cause is kept where outputs still differ by the most frequent one of the start's and none by a
    cause that the start does not have; where a bug stays a bug; and where the products that are not
    0 alone show that cause.
    ``before`` costs one reveal of the start, when it is first asked for. Errors: TargetError.
    """

    def __init__(self, failed: Failing, start: Finding) -> None:
        self.failed, self.start = failed, start

    @cached_property
    def before(self) -> Effect:
        return effect(self._explained, self.start.label)

    @cached_property
    def _explained(self) -> Comparison:
        return self.failed.explained(self.start)

    @cached_property
    def _wrong(self) -> bool:
        """Whether a side of the start is no rounding of its exact value."""
        return bug_or_rounding(self._explained).what == BUG

    @cached_property
    def _bare(self) -> bool:
        """Whether the start shows its cause by the products that are not 0 alone."""
        return self._shown_by_products(self._explained)

    def keeps(self, finding: Finding) -> bool:
        """Whether a finding that fails does so by the same cause; costs a reveal of both sides."""
        comparison = self.failed.judged(finding) or self.failed.explained(finding)
        after = effect(comparison, finding.label)
        if not same_cause(self.before, after):
            return False
        # a bug's smallest case is a bug, or its report would call it rounding
        if self._wrong and bug_or_rounding(comparison).what != BUG:
            return False
        if "reach" in after.causes and _numeric(self._explained) and not _numeric(comparison):
            return False
        bare = self._bare and after.differing > 0
        return not bare or self._shown_by_products(comparison)

    def told(self, after: Effect) -> dict[str, bool | None]:
        """Whether the cause was kept; kernels are asked of the smallest case alone."""
        return {"cause": same_cause(self.before, after), "kernels": None}

    def _shown_by_products(self, comparison: Comparison) -> bool:
        """Whether an output's products that are not 0 alone show the start's main cause."""
        main = self.before.cause
        if main is None or not set(main.split("+")) <= set(KINDS):
            return True
        return shown_by_products(comparison, main, first=True) is not None


def _numeric(comparison: Comparison) -> bool:
    """Whether an output that is NaN on one side is a number other than 0 on the other."""
    values = np.stack(comparison.values(comparison.differing))
    wide = floats.widen(values, comparison.case.dtype)
    return bool((np.isfinite(wide) & (wide != 0)).any())


def same_cause(before: Effect, after: Effect) -> bool:
    return before.cause in after.causes and set(after.causes) <= set(before.causes)


def shown_by_products(comparison: Comparison, cause: str, first: bool = False) -> int | None:
    """The number, among the differing outputs, of the output that shows a cause by the fewest
    products that are not 0, or of the ``first`` that shows it; None where none of ``MOST`` does.
    """
    numbers = [n for n, name in enumerate(comparison.cause) if name == cause][:MOST]
    operands, case = comparison.left.operands, comparison.left.case
    classes, leaves = classes_of(case)
    best: tuple[int, int] | None = None
    for number in numbers:
        pair = int(comparison.differing[number])
        position, filter_ = (int(n) for n in comparison.pairs.left[pair])
        # products of 0 change no sum, wherever they are added; nor does a bias of 0
        group = filter_ // (case.filters // case.groups)
        x = floats.widen(operands.columns[group][:, position], case.dtype)
        w = floats.widen(operands.weights[:, filter_], case.dtype)
        counting = [
            leaf for leaf in leaves[classes[position]].tolist() if x[leaf] != 0 and w[leaf] != 0
        ]
        if operands.b is not None and floats.widen(operands.b[filter_], case.dtype) != 0:
            counting.append(BIAS)
        left = comparison.left.summation(comparison.pairs.left[pair])
        right = comparison.right.summation(comparison.pairs.right[pair])
        if left is None or right is None or len(counting) < 2:
            continue
        apart = left.restricted(counting).causes(right.restricted(counting))
        if "+".join(apart) == cause and (best is None or len(counting) < best[0]):
            best = (len(counting), number)
            if first:
                return number
    return None if best is None else best[1]


# Settings that are tried: each costs a start of the library.
SWITCHES = 4

# Values of the axis that are tried, beyond the two of the smallest case.
VALUES = 8


def by_values(failed: Failing, finding: Finding) -> list[str]:
    """In words, which values of the axis next to the smallest case's agree with its right side."""
    if not finding.paired or finding.vary not in ("length", "batch"):
        return []
    assert finding.at is not None and finding.against is not None
    high = max(finding.at, finding.against)
    for value in range(high + 1, high + 1 + VALUES):
        try:
            beside = finding.reshaped(at=value, against=high).drawn_as("cancel")
        except InputError:
            return []
        if not failed.survives(lambda finding: same_sums(failed, finding), beside):
            return []
    word, words = {"length": ("length", "lengths"), "batch": ("batch", "batches of")}[finding.vary]
    return [
        f"{word} {high} or more, as far as it was tried with the smallest case: {words} "
        f"{high + 1} to {high + VALUES} add every compared output as {word} {high} does"
    ]


def by_switches(
    finding: Finding, start: Finding, where: Target, tell: Callable[[str], None]
) -> list[str]:
    """In words, which settings of the target give both sides of both cases the same sums: of
    the first ``SWITCHES`` that the backend suggests and that can run here."""
    avoiding, tried, suggested = list[str](), 0, backends.get(where.name).suggestions
    for text in sorted(suggested, key=lambda text: "isa" in text):
        if budget.spent() or tried == SWITCHES:
            break
        # settings of switches alone: no devices, no backends that are different libraries
        if not text.startswith(",") or "backend=" in text:
            continue
        changed = dict(part.split("=", 1) for part in text.strip(",").split(","))
        try:
            switched = replace(where, switches=tuple((dict(where.switches) | changed).items()))
        except InputError:
            continue
        if switched == where or target.why_unavailable(switched):
            continue
        tried += 1
        tell(f"trying {switched.text}")
        try:
            with failing(switched) as failed:
                if not same_sums(failed, finding) or failed.by_bits(start):
                    continue
        except ProbeError:
            continue
        variables = ", ".join(f"`{k}={v}`" for k, v in proof.switch_variables(switched).items())
        setting = f"`{switched.text}`{f' ({variables})' if variables else ''}"
        avoiding.append(
            f"{setting}: the smallest case adds every compared output alike, and the case as it "
            "was found agrees, bit for bit"
        )
    return avoiding


def same_sums(failed: Failing, finding: Finding) -> bool:
    """Whether every compared output is added alike on both sides, for all finite operands."""
    comparison = failed.explained(finding)
    all_replayed = comparison.replayed == comparison.compared
    return all_replayed and not comparison.by_order and not len(comparison.differing)


def refuse_since(since: Target, left: Target) -> None:
    """InputError: no release to search from, or one of another target than ``left``."""
    if since.version is None:
        why, todo = "it does not name a release", f"write {since.name}==1.2.3"
        raise InputError("since", since.text, why, todo)
    if since.with_(version=None) != left.with_(version=None):
        same = left.with_(version=since.version)
        todo = f"write {same.text}" if since.name == left.name else f"name one of {left.name}"
        raise InputError("since", since.text, f"it is no release of {left.text}", todo)


def first_affected(finding: Finding, left: Target, version: str, since: Target, tell: Say) -> str:
    """The first release from ``since`` on that shows a finding, in words; missing releases
    are installed, and a single change is assumed, as ``probe bisect`` does. InputError."""
    between = releases_between(since, left.with_(version=version))

    def ask(release: str) -> ReleaseStep:
        where = left.with_(version=release)
        tell(f"running {where.text}")
        try:
            installation.install_target(where)
            with failing(where) as failed:
                return ReleaseStep(release, "differs" if failed.by_bits(finding) else "agrees")
        except TargetError as error:
            return ReleaseStep(release, None, why=error.why)

    change = first_change(between, ask)
    first = between[0]
    if change.steps[0].seen == "differs":
        return f"{first} or an earlier one: it differs there too"
    if change.first is None:  # though the release that is here was measured to differ
        return f"not known: {version} agrees where it is installed anew"
    text = f"{change.first}; {change.last} agrees"
    if change.skipped:
        text += f"; {', '.join(change.skipped)} could not be run"
    return text if change.holds else f"{text}; not every release between is of one kind"


# Of ``machine.json``.
FORMAT = 1

# Summands up to which a report shows those that are 0 too.
WRITTEN = 4


@dataclass(frozen=True)
class ReportOptions:
    """How a finding is reduced, proved and looked at before it is written.

    ``by``, ``most``: see ``probe.report.shrink``. ``keep``: no shrinking. ``times``: fresh
    processes that must say the same. ``avoid``: what avoids it is looked for too, at a start of the
    library for each switch. ``since``: the release of the target from which on the first affected
    one is searched.
    """

    by: str = "bits"
    most: int = BUDGET
    keep: bool = False
    times: int = 3
    avoid: bool = True
    since: Target | None = None


def reproduce(
    finding: Finding,
    left: Target,
    right: Target | None = None,
    *,
    tell: Say | None = None,
    **options: Any,
) -> Reproduction:
    """Shrinks a finding, explains it, writes its script, and proves the script.

    ``right``: another target for the right side. ``options``: those of ``ReportOptions``. Errors:
    those of ``proved_reproduction``; TargetError.
    """
    tell, choices = tell or silent, ReportOptions(**options)
    if choices.since is not None and (right or left) != left:
        why = "both sides have to be one target, whose releases are searched"
        raise InputError("since", choices.since.text, why, "leave it out")
    if choices.since is not None:
        refuse_since(choices.since, left)  # before minutes of work, which it would lose
    avoid = choices.avoid and left == (right or left)
    searches_releases = choices.since is not None
    with VOICE.steps(5 - choices.keep + avoid + searches_releases, tell) as step:
        with failing(left, right) as failed:
            repro = proved_reproduction(failed, finding, choices, step)
            if avoid and "reach" not in repro.explanation.causes:
                repro.avoids = by_values(failed, repro.finding)
        with budget.Ending():
            if avoid:
                step("trying what avoids it")
                repro.avoids += by_switches(repro.finding, finding, left, tell)
            if choices.since is not None:
                step(f"searching releases from {choices.since.text} on")
                release_question = repro.finding, left, repro.versions[0], choices.since, tell
                repro.first_release = first_affected(*release_question)
            step("writing its shortest script")
            repro.short = shortest_script(
                *(repro.finding, repro.targets, repro.versions, repro.evidence, repro.verdict)
            )
            step("asking for versions")
            repro.environment = library_environment(left)
    return repro


def proved_reproduction(
    failed: Failing, finding: Finding, choices: ReportOptions, tell: Say | None = None
) -> Reproduction:
    """``reproduce`` on targets that are started, for many findings in turn.

    InputError: both sides agree, or no script is written for it. Nondeterministic. NotReproduced:
    the script does not say what was measured.
    """
    tell = tell or silent
    shrunk, smallest = None, finding
    condition = KeepsCause(failed, finding)
    if not choices.keep:
        tell("shrinking")
        shrunk = shrunken(failed, finding, choices.by, choices.most, kept=condition)
        smallest = shrunk.finding
    tell(f"explaining {smallest.label}")
    comparison = failed.explained(smallest)
    after = effect(comparison, smallest.label)
    refusals = {comparison.left.refusal, comparison.right.refusal}
    if "nondeterministic" in refusals:
        raise Nondeterministic(f"{smallest.label}: the same run again gives different bits")
    if "alignment" in refusals:
        why = "the same run again gives different bits if its operands have a different address"
        raise Misaligned(f"{smallest.label}: {why}")
    if not len(comparison.differing):
        why = "the operands do not show the difference"
        raise InputError("case", smallest.label, why, "leave out --keep, or try --operands cancel")
    targets = failed.targets
    facts = (failed.first.facts, failed.second.facts)
    versions = (str(facts[0]["library_version"]), str(facts[1]["library_version"]))
    verdict = bug_or_rounding(comparison)
    same_place = failed.conventions(smallest)
    script = str(program.script_of_finding(smallest, targets, versions, same_place, verdict))
    tell(f"proving {smallest.label} in {choices.times} fresh processes")
    began = time.perf_counter()
    bits, fails = expected_bits(comparison), verdict.fails
    ran = proof.prove(script, targets, bits, choices.times, fails)
    evidence = evidence_of(comparison, condition.before.cause)
    repro = Reproduction(
        finding=smallest,
        targets=targets,
        versions=versions,
        explanation=comparison,
        evidence=evidence,
        script=script,
        ran=ran,
        verdict=verdict,
        times=choices.times,
        facts=facts_of(targets, facts, proof.runtime_of(targets[0]).emulated),
        shrunk=shrunk,
        runs=failed.runs,
        seconds=time.perf_counter() - began,
        before=condition.before,
        after=after,
        kept=None if choices.keep else condition.told(after),
    )
    repro.emulated, repro.not_emulated, repro.shown = proof.replayed_script(comparison, ran.bits)
    repro.further = {"emulated.py": repro.emulated} if repro.emulated else {}
    return repro


def shrunken(
    failed: Failing,
    finding: Finding,
    by: str = "bits",
    most: int = BUDGET,
    tell: Callable[[int, Finding], None] | None = None,
    kept: KeepsCause | None = None,
) -> Shrunk:
    """The smallest case of a finding on started targets. InputError: it does not fail.

    ``kept``: what it has to keep beside the difference; None: nothing.
    """
    fails = failed.predicate(by)
    if kept is not None and fails(finding):
        kept.before  # noqa: B018 (what the target refuses of the start is an error, not an answer)

    def also(predicate: Predicate) -> Predicate:
        return lambda small: (
            predicate(small) and (kept is None or failed.survives(kept.keeps, small))
        )

    smallest = smallest_finding(
        finding,
        also(fails),
        shows=None if by == "bits" else also(failed.by_bits),
        kinds=("integers", "cancel") if failed.conventions(finding) else ("cancel",),
        most=most,
        tell=tell,
    )
    failed.revive()
    if smallest is None:
        why = "the outputs that must agree do agree, bit for bit"
        todo = "give other lengths, --operands cancel, or --by order; `probe sweep` finds some"
        raise InputError("case", finding.label, why, todo)
    return smallest


def expected_bits(comparison: Comparison) -> list[tuple[str, str]]:
    """Bit patterns of the differing outputs in the order of the script's, hexadecimal."""
    dtype = comparison.case.dtype
    width = floats.format_of(dtype).bits // 4
    sides = (floats.to_bits(y, dtype) for y in comparison.values(comparison.differing))
    return [(f"{a:0{width}x}", f"{b:0{width}x}") for a, b in zip(*sides, strict=True)]


def evidence_of(comparison: Comparison, cause: str | None = None) -> Evidence | None:
    """One differing output in full; without products that are 0 where those only take room.

    ``cause``: the output that shows it in the fewest products is taken.
    """
    number = None if cause is None else shown_by_products(comparison, cause)
    shown = differing_example(comparison, number)
    if shown is None or "window" in comparison.causes:
        return shown
    return without_zeros(shown, WRITTEN)


def write_folder(repro: Reported, out: Path, form: str | None = None) -> None:
    """Writes ``reproduce.py``, ``report.md``, ``machine.json``, and of sums the picture.

    ``form``: a name or a file, as ``forms.form_of`` takes it. InputError: no such form, or the
    folder can't be made.
    """
    chosen = form_of(repro.targets[0], form)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or "it can't be made"
        raise InputError("out", out, why, "give a folder that can be made") from None
    drawn, evidence = repro.drawn, repro.evidence
    repro.files = ["reproduce.py", "report.md", "machine.json", *["order.png"] * drawn]
    repro.files += [*repro.further, *[report.OPERANDS] * bool(repro.arrays)]
    about = {  # the machine, and what ``probe report verify`` needs
        "format": FORMAT,
        "targets": [target.text for target in repro.targets],
        "library_versions": list(repro.versions),
        **repro.about(),
        "verdict": repro.verdict.to_json(),
        "bits": repro.ran.bits,
        "machine": repro.facts,
    } | ({"model": repro.model} if repro.model else {})
    texts = {
        "reproduce.py": repro.script,
        "report.md": report.report_text(repro, chosen),
        "machine.json": json.dumps(about, indent=2, default=plain) + "\n",
    } | repro.further
    for name, text in texts.items():
        proof.write_text(text, out / name)
    if repro.arrays:
        np.savez_compressed(out / report.OPERANDS, **repro.arrays)  # type: ignore[arg-type]
    if drawn and evidence is not None:
        from probe.report import trees

        picture = trees.draw_two_trees(evidence, repro.sides_in_words())
        picture.savefig(out / "order.png", metadata={"Software": None})
    repro.sizes = {name: len(text) for name, text in texts.items()}

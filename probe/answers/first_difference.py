"""Finds the first operation of two runs whose bits differ although its inputs agree."""

from __future__ import annotations

import weakref
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from html import escape
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe import floats
from probe.answers.answer import Answer
from probe.budget import within
from probe.comparison import decisions as deciding
from probe.enclosure.operations import Interval
from probe.errors import InputError, ProbeError
from probe.printing import counted, differ, ranges
from probe.progress import Say, heard, silent
from probe.recording import enclosed
from probe.recording.apart import switch_lines
from probe.recording.difference import Difference, Region, grouped_reasons, of_outputs
from probe.recording.folder import read_recording
from probe.recording.inputs import listed_inputs
from probe.recording.matching import Pair
from probe.recording.recording import Provenance, Run
from probe.recording.related import ASSUMED
from probe.recording.replayed import RunnableRecording
from probe.recording.subject import function_recorder, is_net, net_recorder
from probe.recording.walk import compare_and_explain, walk
from probe.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probe.answers.record import Recorded


@dataclass(repr=False)
class Walked(Answer):
    """Compares two runs of a model: ``found`` has both runs, operation by operation.

    ``asked``: the model and both sides, in words. ``script``: what a report's scripts need besides:
    ``before``, lines that set each side's switches; ``whole``, lines that repeat the comparison.
    ``sizes``: of other sizes that were compared with the right side: ``at``, ``verdict``,
    ``first``, ``differing``; where sums were tested ``by_order`` (``same``, ``differs``,
    ``unknown``), ``in_the_way``, ``why`` and ``certified``. Without these they are of these inputs.
    """

    found: Difference
    asked: ComparisonQuestion
    script: Mapping[str, Any] = field(default_factory=dict)
    sizes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Returns ``equal``, ``differs`` or ``unknown``: of the outputs that must agree."""
        return self.found.verdict

    @property
    def finding(self) -> bool:
        """Returns whether outputs differ, or whether that is unknown."""
        return self.verdict != "equal"

    @property
    def moved(self) -> int:
        """Returns how many outputs compute what one at another index of the right run computes."""
        return sum(one.moved for one in self.found.outputs)

    @property
    def window(self) -> int:
        """Returns how many outputs read other inputs than the right run's at the same index."""
        return sum(one.window for one in self.found.outputs)

    @property
    def words(self) -> list[str]:
        """Returns why outputs differ by index though no operation need differ: ``moved``,
        ``window``, both or none."""
        return ["moved"] * bool(self.moved) + ["window"] * bool(self.window)

    def counts(self) -> dict[str, int]:
        """Returns how many operations have each verdict."""
        told = Counter(one.verdict for one in self.found.operations)
        return {name: told[name] for name in VERDICTS if told[name]}

    def report(self) -> dict[str, Any]:
        found, first = self.found, self.found.first
        ours = found.operations
        total = len(ours)
        operations = []
        for number, one in enumerate(ours):
            told, cause = one.to_json(), found.causes.get(number)
            told["rounding"] = None
            if cause is not None:
                told["explanation"] = cause.to_json()
                told["rounding"] = told["explanation"].pop("rounding")
            operations.append(told)
        return {
            "verdict": self.verdict,
            "examined": found.examined,
            "operations_total": total,
            "first": None if first is None else first.name,
            **asdict(self.asked),
            "same_inputs": found.same_inputs,
            "moved": self.moved,
            "window": self.window,
            "shares": {name: count / total for name, count in self.counts().items()},
            "differ_by_themselves": sum(one.verdict == "source" or bool(one.own) for one in ours),
            "rounding": found.rounding.to_json(),
            "decisions": self.decided(),
            "unknown": [
                {"operations": len(some), "first": some[0].name, **asdict(why)}
                for why, some in grouped_reasons(found)
            ],
            "operations": operations,
            "outputs": [self.report_output(one) for one in found.outputs],
            "notes": found.notes,
            "sizes": self.sizes,
            "certified": bool(self.sizes) and all(one.get("certified") for one in self.sizes),
        }

    def same_bits(self) -> str:
        """Returns which sizes have the right run's bits, in words; empty if none was tested."""
        if not self.sizes:
            return ""
        if "by_order" in self.sizes[0]:  # for all finite inputs
            same = [one for one in self.sizes if one["by_order"] == "same"]
            told = [f"{one['at']}{'' if one['certified'] else ' (not certified)'}" for one in same]
            text = f"sizes that add as {self.asked.right} does: {', '.join(told) or 'none'}"
            for word, why in (("differs", "added differently"), ("unknown", "not known")):
                some = [one for one in self.sizes if one["by_order"] == word]
                each = [f"{one['at']} ({one['in_the_way']}: {one['why']})" for one in some]
                text += f"; {why}: {', '.join(each)}" if each else ""
            return text
        equal, other, unknown = (
            ranges(one["at"] for one in self.sizes if one["verdict"] == verdict)
            for verdict in ("equal", "differs", "unknown")
        )
        told = [f"the bits of {self.asked.right}: {equal or 'none'}"]
        told += [f"different bits: {other}"] * bool(other)
        told += [f"not known: {unknown}"] * bool(unknown)
        return f"sizes with {'; '.join(told)} (on these inputs; not certified)"

    def report_output(self, one: Pair) -> dict[str, Any]:
        """Returns an entry of ``outputs``. ``growth``: how the difference over the largest value
        compares with the first source's."""
        first, index = self.found.first, one.by_index
        start = max((pair.scaled for pair in first.gives), default=0.0) if first else 0.0
        growth = one.scaled / start if start and one.compared else None
        by_index = index and {
            "compared": index.compared,
            "differing": None if index.first is None else index.differing,  # digests alone are kept
            "max_ulp": index.max_ulp,
        }
        shapes = [
            list(side.values[number].shape)
            for side, number in ((self.found.left, one.left), (self.found.right, one.right))
        ]
        return {
            "left_shape": shapes[0],
            "right_shape": shapes[1],
            "compared": one.compared,
            "differing": one.differing,
            "max_ulp": one.max_ulp,
            "scaled": one.scaled,
            "moved": one.moved,
            "window": one.window,
            "by_index": by_index,
            "growth": growth,
            "decisions": [asdict(each) for each in self.decisions(one)],
        }

    def decisions(self, one: Pair) -> list[deciding.Decision]:
        """Returns what an output decides and where the runs decide differently; [] of integers."""
        dtype = self.found.left.values[one.left].dtype
        key = (one.left, one.right)
        known: dict[tuple[int, int], list[deciding.Decision]]
        known = self.__dict__.setdefault("_decided", {})
        if key not in known:
            known[key] = []
            if one.compared and dtype in floats.FORMATS:
                both = _decision_sides(self.found, one)
                if both is not None and both[0].size:
                    left, right = map(np.atleast_1d, both)
                    known[key] = list(deciding.decisions(left, right, dtype))
        return known[key]

    def decided(self) -> dict[str, int]:
        """Returns how many decisions there are, change, and cannot change: of those it is proved
        that any order of the additions in all operations of the left run takes them alike."""
        found = {"total": 0, "changed": 0, "proved": 0}
        outputs = [one for one in self.found.outputs if self.decisions(one)]
        known = enclosed.output_intervals(self.found.left) if outputs else {}
        for one in outputs:
            rows, both = known.get(one.left), _decision_sides(self.found, one)
            assert both is not None  # or there were no decisions
            if rows is not None:
                lines = (_decision_rows(end, one, 0).reshape(both[0].shape) for end in rows)
                rows = Interval(*lines)
            for each in self.decisions(one):
                found["total"] += each.taken
                found["changed"] += each.crossed
                if rows is not None:
                    count = deciding.TOP if each.decision.startswith("top") else 1
                    # one that no rounding can change, and that changed, is a bug's: not proved
                    dtype = self.found.left.values[one.left].dtype
                    kept = deciding.certain_decisions(rows, each.decision, count)
                    kept &= deciding.same_decisions(*both, dtype, each.decision, count)
                    found["proved"] += int(kept.sum())
        return found

    def crossed(self) -> list[str]:
        """Returns the decisions that differ between the two runs, in words."""
        found = []
        for number, one in enumerate(self.found.outputs):
            which = f" of output {number}" if len(self.found.outputs) > 1 else ""
            found += [
                f"{NAMED[each.decision]}{which} changes in {each.crossed:,} of {each.taken:,}"
                for each in self.decisions(one)
                if each.crossed
            ]
        return found

    def lines(self) -> tuple[str, str, str]:
        total = len(self.found.operations)
        asked = f"{self.asked.left} against {self.asked.right}: {counted(total, 'operation')}"
        name = f"{self.asked.model}, " if self.asked.model else ""
        first, last = self.ending()
        if any(ASSUMED in note for note in self.found.notes):  # ahead, as long lines are cut
            last = f"with what is {ASSUMED} (notes): {last}"
        return f"{name}{asked}, {self.found.examined:,} compared", first, last

    def ending(self) -> tuple[str, str]:
        """Returns the first source in words, and how far its difference spreads."""
        first = self.found.first
        if first is None:
            return self._elsewhere() or self._no_source(), self.outcome()
        causes = self.found.causes.values()
        sought = any(one.kind or NOT_SOUGHT not in one.why for one in causes)
        inside = "the outputs agree, the bits inside differ; " * (self.verdict == "equal")
        words = self.found.rounding.words
        told = (
            f"{words}{'; ' * bool(words)}{inside}{source_text(first, sought)}{self._placed(first)}"
        )
        return told, self.outcome()

    def _placed(self, first: Region) -> str:
        """Returns what a first source is in its library's words, and where it differs, in brackets;
        empty where it is no product or convolution of which that is known."""
        cause = self.found.causes.get(self.found.operations.index(first))
        if cause is None or cause.comparison is None or not cause.kind:
            return ""
        modelled = import_module("probe.reproduction.modelled")
        layer = modelled.layer_of(self.found, first)
        told = ": ".join(filter(None, (layer, modelled.where_it_differs(cause))))
        return f" ({told})" if told else ""

    def table(self) -> str:
        """Returns the operations that differ as a table of text, the first source first: name,
        operation, outputs that differ, the largest distance in ulp, verdict and cause."""
        rows = self._rows()
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)

    def _rows(self) -> list[tuple[str, ...]]:
        """Returns the cells of the table, its head first."""
        some = [one for one in self.found.operations if one.differing][:ROWS]
        rows: list[tuple[str, ...]] = [HEAD]
        for one in some:
            far = "" if one.max_ulp is None else f"{one.max_ulp:,}"
            differing = f"{one.differing:,} of {one.compared:,}"
            rows.append((one.name, one.op, differing, far, one.verdict, one.why or one.note))
        return rows

    def _repr_html_(self) -> str:
        """Returns the three lines, the table and the picture, for notebooks."""
        rows = self._rows()
        cells = [
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
            for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False)
        ]
        table = "".join(f"<tr>{one}</tr>" for one in cells)
        picture = b64encode(self._drawn_as("png")).decode()
        shown = f'<img src="data:image/png;base64,{picture}">' if picture else ""
        return f"<pre>{escape(repr(self))}</pre><table>{table}</table>{shown}"

    def _elsewhere(self) -> str:
        """Returns how outputs of one shape stand elsewhere or read other inputs; or nothing."""
        outputs = [one for one in self.found.outputs if one.by_index is not None]
        size = sum(one.by_index.compared for one in outputs if one.by_index is not None)
        what = f" of {counted(size, 'output')}"
        told = []
        if self.moved:
            verb = "stands" if self.moved == 1 else "stand"
            told.append(f"moved: {self.moved:,}{what} {verb} at another index")
        if self.window:
            verb = "reads" if self.window == 1 else "read"
            told.append(f"window: {self.window:,}{what * (not told)} {verb} different inputs")
        first = [one for one in self.found.operations if one.cause == "window"][:1]
        return "; ".join([*told, *(f"from {operation_text(one)} on" for one in first)])

    def _no_source(self) -> str:
        counts = self.counts()
        apart = [self._alone(side) for side in ("left", "right") if counts.get(side)]
        if self.verdict == "equal" and not self.found.examined:
            return "equal: the outputs agree; no operation could be compared"
        if self.verdict == "equal":
            zeros = " (zeros of different signs count as equal)" if self._zeros() else ""
            return f"equal: every compared operation whose inputs agree gives the same bits{zeros}"
        if self.verdict == "unknown" and (why := of_outputs(self.found)):
            return f"unknown: {why}"
        if apart:
            return f"{self.verdict}: {'; '.join(apart)}; no common operation is a source"
        return f"{self.verdict}: no operation was found whose inputs agree and whose outputs differ"

    def unknown(self) -> list[str]:
        """Returns why nothing is known of operations, in words: how many, from which one on."""
        told = []
        for why, some in grouped_reasons(self.found):
            start = (
                f", from {operation_text(some[0])} on"
                if len(some) > 1
                else f", {operation_text(some[0])}"
            )
            text = why.why if why.name == some[0].name and not why.side else str(why)
            told.append(f"unknown: {counted(len(some), 'operation')}{start}: {text}")
        return told

    def _alone(self, side: str) -> str:
        """Returns the first operation that one side has alone, and how many follow."""
        first, *others = (one for one in self.found.operations if one.verdict == side)
        more = f" and {len(others):,} more" if others else ""
        return f"only {side}: {operation_text(first)}{more}"

    def outcome(self, how: str = "") -> str:
        """Returns how the outputs differ, and what to do. ``how``: what writes a report."""
        outputs = self.found.outputs
        compared = sum(one.compared for one in outputs)
        differing = [one for one in outputs if one.differing]
        if self.words and not differing:
            return self._by_indices()
        if not compared:
            hollow = outputs and all(one.hollow for one in outputs)
            return "the outputs have no elements" if hollow else NOT_KNOWN
        if not differing:
            more = f"; {self.asked.todo}" if self.found.first and self.asked.todo else ""
            every = f"all {compared:,} outputs that must agree do"
            every = "the one output that must agree does" if compared == 1 else every
            return f"{every}{self._zeros()}{self._unjudged()}{self._others()}{more}"
        ulps = [one.max_ulp for one in differing if one.max_ulp is not None]
        most = max(ulps) if len(ulps) == len(differing) else None
        text = differ(sum(one.differing for one in differing), compared, most)
        text += self._unjudged()
        if self.words:
            text = f"{self._elsewhere()}; compared with what computes the same, {text}"
        decided = "; ".join(self.crossed()) or "no decision changes"
        how = how or "reproduce('folder')" * (not self.asked.todo)
        return "; ".join([text, decided, *filter(None, [self.asked.todo]), *self._offer(how)])

    def _unjudged(self) -> str:
        """Returns of how many of several outputs nothing could be compared."""
        outputs = self.found.outputs
        some = sum(not one.compared and not one.hollow for one in outputs)
        what = "it is not known what must agree"
        return f"; of {some:,} of the {len(outputs):,} returned arrays {what}" if some else ""

    def _offer(self, how: str) -> list[str]:
        """Returns what writes a report of the first source, where one can be written."""
        first = self.found.first
        if first is not None and first.arguments:  # the library did what it was asked
            return [DIFFERENT]
        if first is None or not how:
            return []
        cause = self.found.causes.get(self.found.operations.index(first))
        if cause is not None and not cause.alone:
            return []
        if any(not run.untried and op.lines is None for run, op in self.found.sides(first)):
            return []  # the recorder has no lines of it: reproduce() would refuse
        return [f"try {how} for a report"]  # it is written if a script repeats the difference

    def _by_indices(self) -> str:
        """Returns how many outputs differ by index, and how many agree where they are computed."""
        outputs = self.found.outputs
        some = [one.by_index for one in outputs if one.by_index is not None]
        told = "by index, outputs differ"
        if all(one.first is not None for one in some):
            differing = sum(one.differing for one in some)
            told = f"by index, {differ(differing, sum(one.compared for one in some), None)}"
        whole = sum(one.compared for one in outputs)
        verb = "agrees" if whole == 1 else "agree"
        same = f"compared with what computes the same, {counted(whole, 'output')} {verb}"
        return f"{told}; {same}" if whole else told

    def _zeros(self) -> str:
        """Returns how many outputs are zeros of different signs, which count as equal."""
        count = sum(one.signed_zero for one in self.found.outputs)
        return f" ({count:,} of them are zeros of different signs)" if count else ""

    def _others(self) -> str:
        """Returns how many outputs of the smaller run need not agree, as far as known."""
        rest = 0
        for one in self.found.outputs:
            sides = (self.found.left, one.left), (self.found.right, one.right)
            sizes = [prod(side.values[number].shape) for side, number in sides]
            rest += min(sizes) - one.compared
        return f"; {rest:,} others have different inputs or formulas" if rest > 0 else ""

    def drawn(self) -> Figure | None:
        """Draws the operations with their distances and verdicts, the first source marked."""
        from probe.plots import walks

        return walks.walked(self.found, self.lines())

    def reproduce(
        self,
        folder: str | Path,
        source: int | str | Region | None = None,
        *,
        case: bool = True,
        progress: Say | None = None,
    ) -> Any:
        """Writes a verified bug report of a source, the first one if none is named.

        ``source``: an operation that differs by itself, its name, or its number among
        ``operations``. A product of weights or a convolution that gives its recorded bits as a case
        gets the report of a case, reduced with its cause kept; everything else, and with
        ``case=False`` this too, a script of the operation as it was recorded (``no_case`` of what
        comes back says why). InputError: there is none, the two runs give it different arguments,
        or the folder exists.
        """
        import_module("probe.reproduction.folder").fresh(Path(folder))
        number = self._source(source)
        one = self.found.operations[number]
        if one.arguments:
            why = f"{DIFFERENT}: {one.arguments}"
            raise InputError("source", one.name, why, "give both runs the same arguments")
        cause = self.found.causes.get(number)
        sides = self.found.left, self.found.right
        why = "its sums were not compared" if case else "it was not asked for"
        if case and cause is not None and cause.comparison is not None and cause.kind:
            try:
                return self._as_case(Path(folder), one, cause, progress or silent)
            except ProbeError as error:
                why = getattr(error, "why", str(error))
            except (LookupError, ValueError) as error:  # the operation's own script needs no case
                why = f"a mistake of probe's own ({type(error).__name__}: {error})"
        recorded = import_module("probe.reproduction.recorded")
        script = recorded.ModelScript(**self.script)
        found = recorded.write_operation(Path(folder), sides, one, cause, script)
        found.no_case = why
        return found

    def _as_case(self, folder: Path, one: Region, cause: Any, tell: Say) -> Any:
        """Writes the report of a case. InputError: it is none; NotReproduced."""
        modelled = import_module("probe.reproduction.modelled")
        model = f"`{self.asked.model}`" if self.asked.model else "a model"
        place = f" at `{one.path}`" if one.path else ""
        layer = modelled.layer_of(self.found, one)
        place += f", `{layer}`" * bool(layer)
        said = f"In {model}{place}: {one.differing:,} of {one.compared:,} outputs differ"
        said += f"; {where}." if (where := modelled.where_it_differs(cause)) else "."
        said += " By itself, in a fresh process, the case gives the bits of both runs."
        sides = self.found.left, self.found.right
        made = modelled.write_case(folder, sides, one, cause, said, tell=tell)
        if whole := self.script.get("whole"):
            text = "\n".join(whole).rstrip() + "\n"
            (folder / "model.py").write_text(text, encoding="utf-8")
            made.files.append("model.py")
        kind = import_module("probe.reproduction.recorded").WrittenFolder
        return kind(folder, made.files, made.script, made.ran)

    def _source(self, given: int | str | Region | None) -> int:
        operations = self.found.operations
        sources = [n for n, one in enumerate(operations) if one.verdict == "source" or one.own]
        if not sources:
            why = "no operation differs while its inputs agree, so there is nothing to report"
            raise InputError("source", "(none)", why, "compare two runs that differ")
        if given is None:
            return sources[0]
        for number in sources:
            if given in (number, operations[number].name) or given is operations[number]:
                return number
        names = ", ".join(operations[n].name for n in sources[:8])
        raise InputError("source", given, "this operation is not a source", f"use one of {names}")


VERDICTS = ("source", "carried", "healed", "equal", "left", "right", "unknown")
HEAD = ("operation", "op", "differing", "max ulp", "verdict", "cause")
# Operations of a table, for notebooks and terminals; ``to_json`` has all.
ROWS = 20

NAMED = {"argmax": "the argmax", "top-5": "the set of the five largest", "threshold": "the sign"}


@dataclass(frozen=True)
class ComparisonQuestion:
    """What was compared: the model, the left and the right side, and what to do about it."""

    model: str = ""
    left: str = "left"
    right: str = "right"
    todo: str = ""


def source_text(one: Region, sought: bool = True) -> str:
    """Returns a source in words. ``sought``: whether its cause was searched for."""
    text = f"{one.differing:,} of {one.compared:,} differ"
    text += "" if one.max_ulp is None else f" by up to {one.max_ulp:,} ulp"
    if "argument" in one.cause:  # first, as lines are cut at their end
        return f"first: {operation_text(one)}: {one.why}; {text}"
    also = f"; the arguments differ: {one.arguments}" if one.arguments else ""
    why = one.cause or (NOT_YET if sought else NOT_SOUGHT)
    return f"first: {operation_text(one)}, {text}: {why}{also}"


def operation_text(one: Region) -> str:
    """Returns an operation and its place in the model: ``aten.addmm at encoder.0``."""
    return f"{one.op} at {one.path}" if one.path else one.op


DIFFERENT = "the two runs ask for different things"

NOT_KNOWN = "it is not known which outputs must agree"
NOT_YET, NOT_SOUGHT = "not explained yet", "no cause was looked for"


def _decision_sides(found: Difference, one: Pair) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the elements of an output that must agree, as rows of decisions; None: not kept."""
    mine = found.left.arrays({one.left}).get(one.left)
    other = found.right.arrays({one.right}).get(one.right)
    if mine is None or other is None:
        return None
    both = _decision_rows(mine, one, 0), _decision_rows(other, one, 1)
    if both[0].shape == both[1].shape:
        return both
    return both[0].reshape(-1, 1), both[1].reshape(-1, 1)  # a part of a line decides no largest


def _decision_rows(array: np.ndarray, one: Pair, side: int) -> np.ndarray:
    """Returns the elements of a side's output that must agree, as rows of decisions: as lines
    along the last axis, where whole ones are selected, so that a largest one is decided."""
    chosen, rank = one.selection, array.ndim
    taken = chosen.taken(array, side)
    if rank and (chosen.whole or (not chosen.flat and rank - 1 not in chosen.axes)):
        return taken
    size = array.shape[-1] if rank else 0
    named = chosen.flat or chosen.axes == tuple(range(rank))
    for index in (chosen.left, chosen.right):
        # flat indices that are whole lines of ``size`` elements, each in its order
        if index is None or not size or not len(index) or len(index) % size:
            named = False
        elif named:
            lines = index.reshape(-1, size)
            named = bool((lines == lines[:, :1] + np.arange(size)).all())
            named = named and not (lines[:, 0] % size).any()
    if named:
        return taken.reshape(-1, size)
    return np.atleast_1d(taken)[:, None]


def first_difference(
    left: Callable[..., Any],
    right: Callable[..., Any],
    *,
    inputs: Sequence[Any] | None = None,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Walked:
    """Runs two functions that should agree, and finds the first operation where they don't.

    ``left``, ``right``: functions without arguments, such as ``lambda: model(x[:1])`` and ``lambda:
    model(x)``; each is run three times, more often where watching changes bits. They return arrays
    of PyTorch, TensorFlow, Keras or JAX, alone or nested. ``inputs``: arrays that both are called
    with, for functions that take arguments, as those of plain NumPy have to, and for nets of OpenCV
    (``cv2.dnn.readNet``), which stand in the place of functions: by name, or one array.
    ``explain``: find the causes. ``time``: stop after this long (``30s``, ``5m``); what is
    found by then is returned, and a note names what is left. ``progress``: is called with what is
    done now; if not given, lines on stderr say it after three seconds. Which outputs must
    agree is found from the operations: the same rows of a batch, what padding doesn't reach, all of
    them if the inputs are the same. Errors: InputError where the sides have different weights or
    inputs; Nondeterministic where one does not repeat.

    >>> import probe
    >>> found = probe.first_difference(lambda: model(x[:1]), lambda: model(x))  # doctest: +SKIP
    >>> found.first, found.verdict  # doctest: +SKIP
    """
    given = listed_inputs(inputs)
    functions, names = [], []
    for one, side in ((left, "left"), (right, "right")):
        as_it_is = inputs is None or not callable(one)
        functions.append(one if as_it_is else lambda function=one: function(*given))
        # a recorder has a name of its own, the model's
        name = str(getattr(one, "__name__", getattr(one, "name", type(one).__name__)))
        names.append(side if name[:1] in ("", "<") else f"{side} ({name})")
    with within(time), heard("first_difference", progress) as tell:
        tell("running both sides once, unwatched")
        recorders = [
            net_recorder(raw, given) if is_net(raw) else function_recorder(one, bare=(raw, given))
            for one, raw in zip(functions, (left, right), strict=True)
        ]
        found = walk(recorders[0], recorders[1], explain, tell)
    return Walked(found, ComparisonQuestion("", *names))


def diff(
    left: str | Path | Recorded,
    right: str | Path | Recorded,
    *,
    trust: bool = False,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Walked:
    """Compares two recordings of ``probe.record`` or ``probe record``. Errors: InputError.

    ``left``, ``right``: their folders, or what ``probe.record`` returned. ``explain``: find causes.
    ``time``: stop looking for causes after this long, such as ``5m``.
    ``trust``: explain the sources too, by running the lines of Python that the recordings have for
    their operations, each on its target in a process of its own. Give it for recordings that you
    made, or whose origin you trust. Without it nothing of a recording is run.
    """
    folders = list[Path]()
    for one in (left, right):  # a path, or an answer that has one
        made = getattr(getattr(one, "found", None), "made", None)
        folders.append(made.folder if isinstance(made, Provenance) else Path(one))  # type: ignore[arg-type]
    with within(time), heard("diff", progress) as tell, ExitStack() as running:
        if trust:
            runs = [running.enter_context(RunnableRecording(one)) for one in folders]
        else:
            runs = [read_recording(one) for one in folders]
        found = of_stored(runs[0], runs[1], explain, tell)
        if not trust and found.found.first is not None and not found.found.first.cause:
            found.found.notes.append(UNTRUSTED)
        weakref.finalize(found, running.pop_all().close)
    return found


UNTRUSTED = (
    "no cause was looked for, because no code of a recording is run; --trust (Python: trust=True) "
    "runs its operations, for recordings whose origin you trust"
)


# Facts of a recording that decide no bits, or that others say better.
FACTS_BESIDE = ("libraries", "cores", "cpu_vendor", "machine", "probe_version")


def of_stored(
    left: Run,
    right: Run,
    explain: bool = True,
    progress: Say | None = None,
    asked: ComparisonQuestion | None = None,
) -> Walked:
    """Compares two recordings on disk. Errors: InputError, where one contradicts itself too."""
    assert left.made is not None
    assert right.made is not None
    ours, theirs = left.made, right.made
    notes = [*ours.notes, *(one for one in theirs.notes if one not in ours.notes)]
    for name, one in (("left", ours), ("right", theirs)):
        if one.left_out["values"]:
            notes.append(f"the {name} recording left out {one.left_out_text}")
    # where they were made differently, as far as it decides bits
    facts = [{**one.made, **one.made.get("libraries", {})} for one in (ours, theirs)]
    for name in dict.fromkeys((*facts[0], *facts[1])):
        own = [one.get(name) for one in facts]
        if own[0] != own[1] and name not in FACTS_BESIDE:
            # libraries that a run did not load have none
            said = ["not recorded" if one is None else str(one) for one in own]
            notes.append(f"{name}: {said[0]} on the left, {said[1]} on the right")
    try:
        found = compare_and_explain(left, right, explain, progress or silent, notes=notes)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        why = f"a recording contradicts itself ({type(error).__name__}: {str(error)[:120]})"
        both = f"{ours.folder} and {theirs.folder}"
        raise InputError("recording", both, why, "record again with probe record") from None
    if asked is None:
        subjects = dict.fromkeys((ours.subject, theirs.subject))
        names = (f"{run.made.folder.name} ({run.target})" for run in (left, right) if run.made)
        asked = ComparisonQuestion(" and ".join(filter(None, subjects)), *names)
    try:
        lines = switch_lines(Target.parse(left.target), Target.parse(right.target))
    except InputError:  # it was recorded on no target
        lines = (), ()
    return Walked(found, asked, {"before": lines})

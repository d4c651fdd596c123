"""Judges what differs between two runs, output by output, and why; replay is the proof.

Outputs that read the same inputs with the same weights must agree. Where they don't, the order or
the rounding of their sums differs: both are revealed on both sides, and count as the cause only if
replaying them gives both sides' bits. What does not replay is ``unexplained``. Infinities and NaN
may also get into an output from elsewhere, where a kernel multiplies more than the window by zeros
of its own: what reaches an output is tested on both sides where operands are not finite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from probe.case import ulp
from probe.case.case import Case
from probe.case.errors import InputError
from probe.case.layout import CONTIGUOUS, offset
from probe.explain.enclosure import BEYOND, UNKNOWN, RoundingVerdict, of_operands
from probe.explain.runs import (
    Arrays,
    Blocks,
    CaseRun,
    ComparedShapes,
    Revealer,
    common,
    run_case,
)
from probe.order import window
from probe.order.pools import Pooled
from probe.order.summation import Summation
from probe.order.tree import BIAS
from probe.targets.launch import AnySession
from probe.targets.progress import VOICE

CAUSES = (
    *("window", "reach", "order", "rounding", "precision", "flush"),
    *("algorithm", "alignment", "nondeterministic", "not-a-sum", "unexplained"),
)

# Causes that two replayed summations show.
OF_SUMS = {"order", "rounding", "precision", "flush"}


@dataclass
class OutputPairs:
    """Outputs to compare: (pairs, 2) places (position, filter) on the left and on the right.

    ``same_window``: whether both read the same inputs with the same weights.
    """

    left: np.ndarray
    right: np.ndarray
    same_window: np.ndarray

    def __len__(self) -> int:
        return len(self.left)

    def some(self, which: np.ndarray) -> OutputPairs:
        """Those of these numbers, or where a mask is True."""
        return OutputPairs(self.left[which], self.right[which], self.same_window[which])

    @staticmethod
    def of_blocks(left: Case, right: Case, blocks: Blocks) -> OutputPairs:
        """Outputs in blocks of both sides' outputs, row by row, which read the same."""
        none, sides = np.zeros(0, int), list[np.ndarray]()
        for case in (left, right):
            shape = case.output_shape()
            outputs = np.arange(np.prod(shape)).reshape(shape)
            flat = np.concatenate([none, *(outputs[block].reshape(-1) for block in blocks)])
            sides.append(np.stack(np.divmod(flat, case.filters), axis=1))
        return OutputPairs(sides[0], sides[1], np.ones(len(sides[0]), bool))

    @staticmethod
    def must_agree(shapes: ComparedShapes) -> OutputPairs:
        """Outputs of two shapes of one case that read the same inputs with the same weights."""
        return OutputPairs.of_blocks(shapes.left, shapes.right, shapes.blocks())

    @staticmethod
    def same_place(left: CaseRun, right: CaseRun) -> OutputPairs:
        """Outputs of the same index, with whether the windows that were read are the same."""
        pairs = OutputPairs.of_blocks(left.case, right.case, common(left.case, right.case))
        shape = np.maximum(left.case.input_shape(), right.case.input_shape())
        step = 65536  # speed alone: windows of so many outputs fit the memory
        for start in range(0, len(pairs), step):
            rows = slice(start, start + step)
            reads = []
            for run, at in ((left, pairs.left[rows]), (right, pairs.right[rows])):
                assert run.windows is not None
                group = at[:, 1] // (run.case.filters // run.case.groups)
                reads.append(_numbered_in(run.windows[group, at[:, 0]], run.case, shape))
            # a depthwise layer and the full one that it is written as read windows of other widths
            alike = reads[0].shape == reads[1].shape
            pairs.same_window[rows] = (reads[0] == reads[1]).all(axis=1) if alike else False
        return pairs


def _numbered_in(reads: np.ndarray, case: Case, shape: np.ndarray) -> np.ndarray:
    """The flat indices that a case's inputs have in a larger ``shape``; -1 stays.

    The same input of a longer row, or of a later sample of a longer input, has another flat index.
    """
    if case.input_shape() == tuple(shape):
        return reads
    places = np.unravel_index(np.maximum(reads, 0), case.input_shape())
    return np.where(reads < 0, -1, np.ravel_multi_index(places, tuple(shape)))


def classes_of(case: Case) -> tuple[np.ndarray, list[np.ndarray]]:
    """``window.read_classes`` with a class for every (batch entry, output position)."""
    classes, leaves = window.read_classes(case)
    return np.tile(classes, case.batch), leaves


@dataclass
class Comparison:
    """Two runs, the pairs of their outputs that are compared, what differs, and why.

    Orders are to be revealed before a cause is asked for. ``case``: what both are shapes of.
    ``kernels``: the kernels that both libraries report, if these were asked for.
    """

    case: Case
    left: CaseRun
    right: CaseRun
    pairs: OutputPairs
    kernels: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses operands of two formats: a difference then says nothing of the library."""
        left, right = self.left.case.dtype, self.right.case.dtype
        if left != right:
            why = f"the left side has {left}: the operands are rounded differently"
            raise InputError("dtype", right, why, "compare runs of one dtype")

    def reveal(
        self,
        first: AnySession,
        second: AnySession,
        revealer: Revealer,
        which: np.ndarray | None = None,
    ) -> Comparison:
        """Reveals both runs on their sessions: of the pairs ``which`` (indices), or all outputs."""
        for name, session in VOICE.counting((("left", first), ("right", second)), "sides"):
            side, places = getattr(self, name), getattr(self.pairs, name)
            wanted = None if which is None else side.mask(places[which])
            setattr(self, name, revealer.reveal(side, session, wanted))
        return self

    def sides(
        self, which: np.ndarray | slice = slice(None)
    ) -> tuple[tuple[CaseRun, np.ndarray], tuple[CaseRun, np.ndarray]]:
        """Each run, with the places of these pairs in it."""
        return (self.left, self.pairs.left[which]), (self.right, self.pairs.right[which])

    def values(self, which: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Both sides' outputs of these pairs, container."""
        left, right = (side.operands.y[tuple(at.T)] for side, at in self.sides(which))
        return left, right

    def proved(self, which: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Whether the replay gave both sides' bits: bool, one a pair."""
        left, right = (side.replays[tuple(at.T)] for side, at in self.sides(which))
        return left & right

    @property
    def sets(self) -> int:
        """On how many fresh sets of operands the orders of both sides were replayed."""
        return min(0 if side.orders is None else side.orders.sets for side, _ in self.sides())

    @cached_property
    def differences(self) -> ulp.Differences:
        return ulp.differences(*self.values(), self.left.case.dtype, self.zeros)

    @property
    def zeros(self) -> str:
        """``"equal"``, or ``"differ"``: zeros of different signs are differences too."""
        return self.left.operands.zeros

    @cached_property
    def signed_zero(self) -> int:
        return ulp.signed_zeros(*self.values(), self.left.case.dtype)

    @property
    def differing(self) -> np.ndarray:
        return self.differences.index

    @property
    def ulps(self) -> np.ndarray:
        return self.differences.ulps

    @property
    def compared(self) -> int:
        """Outputs that are compared: those that must agree, or of two targets or paddings all that
        both have."""
        return len(self.pairs)

    @property
    def replayed(self) -> int:
        """How many compared outputs the replay reproduced on both sides."""
        return int(self.proved().sum())

    @property
    def max_ulp(self) -> int | None:
        """The largest absolute distance; 0 where nothing differs, None where none is a number."""
        return ulp.largest_ulp(self.differences)

    @cached_property
    def cause(self) -> list[str]:
        which = self.differing
        refusals = {self.left.refusal, self.right.refusal} - {""}
        if "nondeterministic" in refusals:
            return ["nondeterministic"] * len(which)
        if "alignment" in refusals:
            return ["alignment"] * len(which)
        same = self.pairs.same_window[which].tolist()
        if self.left.pooled is not None and self.right.pooled is not None:
            pairs = self.pairs.some(which)
            names = self.left.pooled.causes(self.right.pooled, pairs.left, pairs.right)
            pooled = zip(names, same, strict=True)
            return [(name or "unexplained") if alike else "window" for name, alike in pooled]
        if refusals:
            name = "not-a-sum" if "not-a-sum" in refusals else "unexplained"
            return [name if alike else "window" for alike in same]
        causes = self._sum_causes(which)
        flushed = np.array(["flush" in name for name in causes], bool)
        for place in np.flatnonzero(flushed)[self._unflushed(which[flushed])]:
            without_flush = [part for part in causes[place].split("+") if part != "flush"]
            causes[place] = "+".join(without_flush) or causes[place]
        # a sum takes another order where its operands begin elsewhere: the address is the cause
        if self.by_address:  # what the sums show follows from it, and stays the proof
            causes[[bool(set(name.split("+")) & OF_SUMS) for name in causes]] = "alignment"
        return causes.tolist()  # type: ignore[no-any-return]

    @property
    def by_address(self) -> bool:
        """Whether both sides differ in nothing but where their operands begin in memory."""
        sides = self.left, self.right
        words = [side.case.layout for side in sides]
        if words[0] == words[1] or not all(w == CONTIGUOUS or offset(w) >= 0 for w in words):
            return False
        plain = [side.case.with_(layout=CONTIGUOUS) for side in sides]
        return plain[0] == plain[1] and self.left.target.text == self.right.target.text

    def _unflushed(self, which: np.ndarray) -> np.ndarray:
        """Pairs whose bits come out too if nothing is flushed: bool. There it is no cause.

        Summations say what is done to any operands, and of most operands nothing is subnormal.
        """
        alike = np.ones(len(which), bool)
        for side, places in self.sides(which):
            if not len(which) or side.orders is None:
                continue
            positions, filters = places.T
            numbers = side.orders.index[positions, filters]
            for number in np.unique(numbers):
                members = numbers == number
                summation = side.orders.summations[number].without_flushing()
                alike[members] &= side.operands.agrees(
                    summation, positions[members], filters[members]
                )
        return alike

    @property
    def causes(self) -> dict[str, int]:
        """The differing outputs by cause; causes that explain none are left out."""
        counted = Counter(self.cause)
        ranks = {name: CAUSES.index(name.split("+")[0]) for name in counted}
        return dict(sorted(counted.items(), key=lambda item: (ranks[item[0]], item[0])))

    @property
    def apart(self) -> dict[str, np.ndarray]:
        """What is added differently, whatever the finite operands are: pairs (indices) by cause.

        Only pairs with the same window count; summations are compared over the leaves that the
        outputs read: in the padding all add zeros.
        """
        return self._apart[0]

    @property
    def unknown(self) -> int:
        """Pairs with the same window that have no proved way of adding on a side."""
        return self._apart[1]

    @property
    def by_order(self) -> int:
        return sum(map(len, self.apart.values()))

    @cached_property
    def _apart(self) -> tuple[dict[str, np.ndarray], int]:
        if self.left.pooled is not None and self.right.pooled is not None:
            return self._pools_apart(self.left.pooled, self.right.pooled)
        if self.left.orders is None or self.right.orders is None:
            return {}, 0
        same = np.flatnonzero(self.pairs.same_window)
        orders = self.left.orders, self.right.orders
        both = zip(orders, self.sides(same), strict=True)
        replayed = [revealed.replayed[tuple(places.T)] for revealed, (_, places) in both]
        proved = same[replayed[0] & replayed[1]]
        verdicts = self._summations_apart(proved)
        names = sorted(filter(None, {*verdicts.tolist()}))
        return {name: proved[verdicts == name] for name in names}, len(same) - len(proved)

    def _pools_apart(self, left: Pooled, right: Pooled) -> tuple[dict[str, np.ndarray], int]:
        """As ``_apart``: pairs whose ways differ in more than what the operands let be flushed."""
        same = np.flatnonzero(self.pairs.same_window)
        both = zip((left, right), self.sides(same), strict=True)
        numbers = (pooled.index[tuple(places.T)] for pooled, (_, places) in both)
        by_cause: dict[str, list[int]] = {}
        unknown = 0
        for pair, left_way, right_way in np.stack([same, *numbers], axis=1).tolist():
            if left_way < 0 or right_way < 0:
                unknown += 1
            elif names := left.ways[left_way].apart(right.ways[right_way]):  # type: ignore[arg-type]
                by_cause.setdefault("+".join(names), []).append(pair)
        return {name: np.array(pairs) for name, pairs in by_cause.items()}, unknown

    @cached_property
    def _classes(self) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        classes, leaves = classes_of(self.left.case)
        bias = () if self.left.case.bias is None else (BIAS,)
        return classes, [(*map(int, read), *bias) for read in leaves]

    def _sum_causes(self, which: np.ndarray) -> np.ndarray:
        """Names the cause of pairs of sums: texts, one a pair. Later lines outdo earlier ones."""
        assert self.left.orders is not None and self.right.orders is not None
        left_at, right_at = tuple(self.pairs.left[which].T), tuple(self.pairs.right[which].T)
        replayed, apart = self.proved(which), self._summations_apart(which)
        causes = np.where(replayed & (apart != ""), apart, "unexplained").astype(object)
        causes[replayed & (self.left.reached[left_at] ^ self.right.reached[right_at])] = "reach"
        no_sum = self.left.orders.not_a_sum[left_at] | self.right.orders.not_a_sum[right_at]
        causes[no_sum] = "not-a-sum"
        causes[~self.pairs.same_window[which]] = "window"
        return causes

    def _summations_apart(self, which: np.ndarray) -> np.ndarray:
        """What sets the summations of pairs apart over the leaves that are read: texts, empty where
        nothing does, or one is not known."""
        assert self.left.orders is not None and self.right.orders is not None
        left, right = self.left.orders, self.right.orders
        left_at, right_at = tuple(self.pairs.left[which].T), tuple(self.pairs.right[which].T)
        classes = self._classes[0][left_at[0]]
        numbers = np.stack([left.index[left_at], right.index[right_at], classes], 1)
        kinds, number = np.unique(numbers, axis=0, return_inverse=True)
        texts = list[str]()
        for first, second, reads in kinds.tolist():
            words: Sequence[str] = ()
            if min(first, second) >= 0 and left.summations[first] != right.summations[second]:
                leaves = self._classes[1][reads]
                left_sum, right_sum = left.summations[first], right.summations[second]
                words = left_sum.restricted(leaves).causes(right_sum.restricted(leaves))
            texts.append("+".join(words))
        return np.array(texts, object)[number.reshape(-1)]

    @property
    def rounding(self) -> RoundingVerdict:
        """Whether rounding can be why the differing pairs differ, in counts.

        Those that replay on both sides are ``explained``, whatever their cause. Of the others that
        read the same, both sides are held against all results that rounding can give.
        """
        return RoundingVerdict.of(*self._held)

    @property
    def rounded(self) -> int:
        """How many differing pairs read the same and were replayed on both sides."""
        return int((self._held[0] & self.pairs.same_window[self.differing]).sum())

    @property
    def out_of_bounds(self) -> np.ndarray:
        """Which differing pairs have a side that no rounding can give: bool."""
        explained, left, right, _ = self._held
        return ~explained & ((left == BEYOND) | (right == BEYOND))

    @cached_property
    def _held(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What ``RoundingVerdict.of`` counts: a bool or a verdict for each differing pair."""
        which = self.differing
        explained = self.proved(which) & np.array([c != "unexplained" for c in self.cause], bool)
        open_ = ~explained & self.pairs.same_window[which]
        verdicts = np.full((len(self.sides()), len(which)), UNKNOWN)
        flush = np.zeros(len(which), bool)
        for number, (side, places) in enumerate(self.sides(which[open_])):
            if len(places) and (enclosure := of_operands(side.operands, *places.T)) is not None:
                values = side.operands.y[tuple(places.T)]
                verdicts[number, open_], near = enclosure.judged(values)
                flush[open_] |= near
        return explained, verdicts[0], verdicts[1], flush

    def _numbers(self, side: CaseRun, index: np.ndarray) -> np.ndarray:
        """What an array (positions, filters) of a side has at its compared outputs."""
        places = self.pairs.left if side is self.left else self.pairs.right
        return np.asarray(index[tuple(places.T)])

    def summations(self, side: CaseRun) -> list[tuple[Summation, int]]:
        """How the compared outputs of a side are added, and how many so: most outputs first."""
        if side.orders is None:
            return []
        numbers = self._numbers(side, side.orders.index)
        counts = np.bincount(numbers[numbers >= 0], minlength=len(side.orders.summations))
        added = zip(side.orders.summations, counts.tolist(), strict=True)
        return sorted(((s, n) for s, n in added if n), key=lambda pair: -pair[1])

    def orders(self, side: CaseRun) -> list[dict[str, Any]]:
        """The same as JSON has it; of a pool the ways of averaging."""
        if side.pooled is not None:
            return side.pooled.orders(self._numbers(side, side.pooled.index))
        dtype = side.case.dtype
        return [s.to_json(dtype) | {"outputs": count} for s, count in self.summations(side)]

    def to_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "case": self.case.to_json(),
            "left": self.left.named(),
            "right": self.right.named(),
            "compared": self.compared,
            "differing": len(self.differing),
            "max_ulp": self.max_ulp,
            "signed_zero": self.signed_zero,
            "causes": self.causes,
            "rounding": self.rounding.to_json(),
            "replayed": self.replayed,
            "by_order": self.by_order,
            "sets": self.sets,
            "left_orders": self.orders(self.left),
            "right_orders": self.orders(self.right),
            "windows_differ": int((~self.pairs.same_window).sum()),
            "controls": {"left": self.left.control, "right": self.right.control},
            "kernels": self.kernels,
        }
        # outputs of a side that are NaN by what they don't read
        sides = {"left": self.left, "right": self.right}
        reached = {name: int(side.reached.sum()) for name, side in sides.items()}
        return entry | ({"reached": reached} if any(reached.values()) else {})

    def lines(self) -> tuple[str, str, str]:
        """The comparison in three lines: the runs, what differs, why."""
        sides = " against ".join(self.words(side) for side in (self.left, self.right))
        far = "" if self.max_ulp is None else f", up to {self.max_ulp:,} ulp"
        differing = len(self.differing)
        # other windows are no reason to agree
        which = "that must agree " * bool(self.pairs.same_window.all())
        counts = f"{differing:,} of {self.compared:,} outputs {which}differ"
        why = ", ".join(f"{cause}: {count:,}" for cause, count in self.causes.items())
        if not differing:
            added = f"added in a different order or rounding: {self.by_order:,}"
            why = added if self.by_order else "nothing to explain"
            why += f"; the order of {self.unknown:,} outputs is not known" * bool(self.unknown)
        refusals = {self.left.refusal, self.right.refusal} - {""}
        why += "".join(f"; {refusal}" for refusal in sorted(refusals))
        why += f"; {self.rounding.words}" * bool(self.rounding.words)
        return (
            f"{self.shared.label}: {sides}",
            counts + far * bool(differing),
            f"{why}; replayed {self.replayed:,} of {self.compared:,}",
        )

    @property
    def shared(self) -> Case:
        """The case without what sets the sides apart."""
        alike = self.left.case.layout == self.right.case.layout
        case = self.case if alike else self.case.with_(layout=CONTIGUOUS)
        return case.with_(length=None)

    def words(self, side: CaseRun) -> str:
        """One side in words: its target, and what sets its shape apart."""
        case, other = side.case, (self.right if side is self.left else self.left).case
        apart = [
            f"{name} {getattr(case, name):,}"
            for name in ("length", "batch", "filters")
            if getattr(case, name) != getattr(other, name)
        ]
        apart += [f"layout {case.layout}"] * (case.layout != other.layout)
        if isinstance(case, Case) and isinstance(other, Case):
            apart += [f"channels {case.split or case.in_channels}"] * (case.split != other.split)
            apart += [f"padding {case.padding_text}"] * (case.padding != other.padding)
        if not apart and case.length is not None:
            apart = [f"length {case.length:,}"]
        return f"{', '.join(apart)} on {side.target.text}"

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def compare_shapes(
    shapes: ComparedShapes,
    first: AnySession,
    second: AnySession,
    operands: Callable[[Case], Arrays] | None = None,
    zeros: str = "equal",
) -> Comparison:
    """Runs both sides and pairs their outputs; nothing is revealed yet.

    On one session with one padding those are compared that must agree. Else the windows are read
    off both sides, and outputs of the same place are compared. ``operands``: gives a side's, the
    cases' own if None. ``zeros``: as ``ulp.differences`` has it. TargetError.
    """
    conventions = first is not second or shapes.padding is not None
    left, right = (
        run_case(session, case, None if operands is None else operands(case), conventions, zeros)
        for session, case in ((first, shapes.left), (second, shapes.right))
    )
    pairs = OutputPairs.same_place(left, right) if conventions else OutputPairs.must_agree(shapes)
    return Comparison(shapes.left, left, right, pairs)

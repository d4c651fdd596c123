"""Makes the operands with which one call of an operator answers for every output at once.

A question sets a handful of weights that differ from a template, while the input is one constant
everywhere. In the question about the *order*, leaf i is +M, leaf j is -M, and every other leaf is
one unit. Units that meet the partial sum while M is in it vanish, so what comes out counts the
units added after i and j have met: all but the leaves under their lowest common ancestor (FPRev,
USENIX ATC 2025). The questions about roundings stand in ``fusion`` and ``rounding``.

A leaf is a weight's flat index within its filter; the bias, where there is one, is leaf ``n``.

A whole order takes some hundred questions of a sum of a thousand numbers and thousands of one of a
hundred thousand, each as long as the sum, and is then replayed: minutes, and hours beyond. So a
long sum is asked at some pairs of its products. Two runs that answer differently at any pair add in
different orders; that is a proof, though nothing is replayed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from probe.case import floats, memory
from probe.case.case import Summed
from probe.case.errors import InputError
from probe.targets.launch import AnySession
from probe.targets.progress import VOICE, span

ANSWERS_AT_ONCE = 1 << 23  # speed alone: 32 MiB of float32


class MaskedOperator(Protocol):
    """An operator at one fixed shape, as the reveals see it. They learn no more of the library."""

    dtype: str
    summands: int  # weights of one filter; the bias is not counted
    bias: bool
    filters: int
    positions: int  # batch entries times spatial outputs

    def run(
        self, x: float, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Outputs as float64 or float32, shape (calls, positions, filters), exact.

        ``x`` is the value of every input element; ``template`` has shape (summands + bias,), the
        weights that every filter starts from; ``leaves`` (calls, filters, m) names the leaves
        that are set to ``values`` (m,) in that call and filter, -1 for none.
        """

    def each(self, weights: np.ndarray) -> np.ndarray:
        """The same for an input of ones; ``weights`` (calls, summands + bias): of every filter."""


@dataclass(frozen=True)
class Scale:
    """Mask sizes for one dtype: ``big`` swallows ``limit`` units, ``limit`` units count exactly."""

    unit: float
    big: float
    limit: int

    @classmethod
    def of(cls, dtype: str) -> Scale:
        """The dtype's own masks: units of 1, or the smallest subnormal where 1 is too near to
        ``big`` (see ``floats.FORMATS``)."""
        form = floats.FORMATS[dtype]
        unit = 1.0 if form.big > 2 * form.precision else 2.0**form.low
        return cls(unit, 2.0**form.big, 2 ** (form.precision - 1))


class Masks:
    """Puts questions to an operator and counts its calls.

    ``calls``: how often the operator was run; ``size``: leaves of a filter, the bias included;
    ``flushing`` and ``alike``: what ``flush`` found of all outputs, which is asked once, and
    ``zeros``: what ``rounding`` did of signs, which are asked if ``signed``.
    """

    def __init__(self, operator: MaskedOperator, signed: bool = False) -> None:
        if operator.dtype not in floats.FORMATS:
            known = ", ".join(floats.FORMATS)
            raise InputError("dtype", operator.dtype, "no masks are known for it", f"use {known}")
        self.operator = operator
        self.scale = Scale.of(operator.dtype)
        self.size = operator.summands + int(operator.bias)
        self.calls = 0
        self.flushing: np.ndarray | None = None
        self.signed = signed
        self.zeros: np.ndarray | None = None
        self.filter_answers: np.ndarray | None = None
        self._counts: np.ndarray | None = None

    def run(
        self,
        leaves: np.ndarray,
        values: Sequence[float] | np.ndarray,
        x: float = 1.0,
        template: np.ndarray | None = None,
    ) -> np.ndarray:
        """As ``MaskedOperator.run``; ``template`` None: weights that aren't set are 0."""
        self.calls += len(leaves)
        template = np.zeros(self.size) if template is None else template
        return self.operator.run(x, template, leaves, np.asarray(values, np.float64))

    def each(self, weights: np.ndarray) -> np.ndarray:
        """As ``MaskedOperator.each``: all filters get the same weights, (calls, size)."""
        self.calls += len(weights)
        return self.operator.each(weights)

    def plain(self, x: float, template: np.ndarray) -> np.ndarray:
        """The outputs, (positions, filters), of one call that sets no weight apart."""
        none = np.full((1, self.operator.filters, 1), -1)
        return self.run(none, [0.0], x, template)[0]

    def _of_units(self, leaves: np.ndarray, values: Sequence[float]) -> np.ndarray:
        """Counts the units that survive, a few of them in a call, so that the count is exact."""
        # more units than the dtype has whole numbers would be rounded: they are spread over calls
        parts = -(-self.size // self.scale.limit)
        total: np.ndarray | None = None
        for part in range(parts):
            template = np.zeros(self.size)
            template[part::parts] = self.scale.unit
            answer = self.run(leaves, values, template=template)
            total = answer if total is None else total + answer
        assert total is not None
        return total if self.scale.unit == 1 else total / self.scale.unit

    def summands(self) -> np.ndarray:
        """How many leaves every output adds: (positions, filters). Asked once."""
        if self._counts is None:
            self._counts = self._of_units(np.full((1, self.operator.filters, 1), -1), [0.0])[0]
        return self._counts

    def count_fewer(self) -> bool:
        """Counts no more units at once than bfloat16 counts exactly; False if it did so before."""
        limit = Scale.of("bfloat16").limit
        if self.scale.limit <= limit or self.size <= limit:
            return False
        self.scale, self._counts = replace(self.scale, limit=limit), None
        return True

    def mask_smaller(self) -> bool:
        """Takes masks that fit formats of fewer bits; False if there are none, or it did before."""
        name = {"float32": "float16", "float64": "bfloat16"}.get(self.operator.dtype)
        if name is None or self.scale.big == Scale.of(name).big:
            return False
        self.scale, self._counts = Scale.of(name), None
        return True

    def survivors(self, leaves: np.ndarray) -> np.ndarray:
        """The question about the order: units that survive, (calls, positions, filters).

        ``leaves`` (calls, filters, 2) are the pairs (i, j), -1 where a filter has nothing to ask.
        """
        return self._of_units(leaves, [self.scale.big, -self.scale.big])


# Answers (calls, positions, filters) about leaves (calls, filters, m) that are set in each call.
MaskQuestion = Callable[[Masks, np.ndarray], np.ndarray]


def classify(answer: np.ndarray, zero: float, one: float) -> np.ndarray:
    """int8: 0 and 1 where an answer is one of these two numbers, -1 where it is neither."""
    result = np.full(answer.shape, -1, np.int8)
    result[answer == zero] = 0
    result[answer == one] = 1
    return result


@dataclass(frozen=True)
class MaskPart:
    """Rows ``start`` to ``stop`` of one team's questions, and where their answers stand."""

    team: int
    start: int
    stop: int
    calls: np.ndarray
    filters: np.ndarray

    def table(self, answers: np.ndarray) -> np.ndarray:
        """The answers to these questions: (stop - start, positions)."""
        return answers[self.calls, :, self.filters]


def deal_questions(
    masks: Masks, teams: Sequence[np.ndarray], queues: Sequence[np.ndarray]
) -> Iterator[tuple[np.ndarray, list[MaskPart]]]:
    """Deals every team's questions (rows of leaves) to its filters, as few calls as possible.

    ``teams[t]`` are filter numbers that share their orders, ``queues[t]`` (questions, m) what they
    are to answer. Yields ``leaves`` (calls, filters, m) for ``Masks`` and where each team's answers
    will stand, in chunks whose answers fit in memory.
    """
    filters = masks.operator.filters
    width = max((queue.shape[1] for queue in queues), default=1)
    calls = max((-(-len(q) // len(t)) for q, t in zip(queues, teams, strict=True)), default=0)
    chunk = max(1, ANSWERS_AT_ONCE // (masks.operator.positions * filters))  # speed alone
    for first in VOICE.counting(range(0, calls, chunk), "groups of questions"):
        count = min(chunk, calls - first)
        ask = np.full((count, filters, width), -1)
        parts = []
        for number, (team, queue) in enumerate(zip(teams, queues, strict=True)):
            start, stop = first * len(team), min((first + count) * len(team), len(queue))
            if start < stop:  # speed alone
                rows, columns = np.divmod(np.arange(stop - start), len(team))
                ask[rows, team[columns]] = queue[start:stop]
                parts.append(MaskPart(number, start, stop, rows, team[columns]))
        yield ask, parts


@dataclass(frozen=True)
class MaskRows:
    """Questions for some outputs: ``filters`` add alike, so that each may answer for all of them.

    ``rows`` (questions, m) are leaves; ``positions`` (batch entries times outputs) are whose
    answers are wanted.
    """

    filters: np.ndarray
    positions: np.ndarray
    rows: np.ndarray


def ask(masks: Masks, question: MaskQuestion, wanted: Sequence[MaskRows]) -> list[np.ndarray]:
    """The answers to each of ``wanted``, int32 (questions, positions); equal ones share a call.

    ``question(masks, leaves)`` answers (calls, positions, filters) for leaves (calls, filters, m).
    """
    if not any(
        len(outputs.rows) for outputs in wanted
    ):  # speed alone: half of a short sum's questions
        return [np.zeros((0, len(outputs.positions)), np.int32) for outputs in wanted]
    alike: dict[bytes, list[int]] = {}
    for number, outputs in enumerate(wanted):
        alike.setdefault(outputs.filters.tobytes(), []).append(number)
    queues: list[np.ndarray] = []
    places: list[tuple[int, np.ndarray]] = []
    for members in alike.values():
        queue, where = _distinct_rows(np.concatenate([wanted[n].rows for n in members]))
        queues.append(queue)
        ends = np.cumsum([len(wanted[n].rows) for n in members])
        places += zip(members, np.split(where, ends[:-1]), strict=True)
    teams = [wanted[members[0]].filters for members in alike.values()]
    tables = [np.empty((len(queue), masks.operator.positions), np.int32) for queue in queues]
    for leaves, parts in deal_questions(masks, teams, queues):
        answers = question(masks, leaves)
        for part in parts:
            tables[part.team][part.start : part.stop] = part.table(answers)
    table_of = {n: table for table, team in zip(tables, alike.values(), strict=True) for n in team}
    answers_of = {n: table_of[n][np.ix_(where, wanted[n].positions)] for n, where in places}
    return [answers_of[n] for n in range(len(wanted))]


def _distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows, each once and in order, and where each of the given ones stands there."""
    if len(rows) < 2:
        return rows, np.zeros(len(rows), int)
    # np.unique(axis=0) makes a type of so many fields first, which takes longer than a short sum's
    # question; of wide rows it is the faster one
    if rows.shape[1] > 8:  # speed alone
        distinct, where = np.unique(rows, axis=0, return_inverse=True)
        return distinct, where.reshape(-1)
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    first = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
    where = np.empty(len(rows), int)
    where[order] = np.cumsum(first) - 1
    return ordered[first], where


def edit_offsets(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Where the edits of each call of a ``masks`` request start, and the last ones end."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


class SessionOperator:
    """``case`` (its length set) on ``session``: a ``MaskedOperator``.

    Every run is a call of the library at the case's own shape and with the case's own spec, so
    that it takes the kernel that the user's call takes. ``select``: flat indices of the outputs to
    fetch, all filters of some positions; None: all. A leaf is a weight's flat index within its
    filter (kernel position, then channel of its group); the bias is leaf ``summands``. Of a sum a
    leaf is an element of a row, and what the weight would make of it is put there, rounded: a sum
    is never told that a product was fused. InputError: it needs more memory than is free.
    """

    def __init__(self, session: AnySession, case: Summed, select: np.ndarray | None = None) -> None:
        memory.require(case)
        self.session, self.case = session, case
        # asked once: a reveal of a short sum makes some forty requests, and checks sizes each time
        self._spec, self._input_shape = case.spec(), case.input_shape()
        self.behind = getattr(session, "behind", None)  # what becomes of a sum: a recorded one
        self.dtype = case.dtype
        self.summands, self.filters = case.summands, case.filters
        self.bias = case.bias is not None
        self.shape = case.output_shape()
        self.select = {} if select is None else {"select": select}
        self.positions = math.prod(self.shape if select is None else select.shape) // self.filters

    def run(
        self, x: float | np.ndarray, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """As ``MaskedOperator.run``: float32 or else float64. ``x`` may be a whole input."""
        return self._answers(np.broadcast_to(x, self._input_shape), template, leaves, values)

    def each(self, weights: np.ndarray) -> np.ndarray:
        """As ``MaskedOperator.each``: float32 or else float64; what is 0 costs nothing."""
        calls, leaves = np.nonzero(weights)
        set_ = np.full((len(weights), self.filters, max(np.bincount(calls, minlength=1))), -1)
        slots = np.arange(len(calls)) - np.searchsorted(calls, calls)
        set_[calls, :, slots] = leaves[:, None]
        values = np.zeros(set_.shape)
        values[calls, :, slots] = weights[calls, leaves][:, None]
        return self._answers(np.ones(self._input_shape), np.zeros(weights.shape[1]), set_, values)

    def _answers(
        self, x: np.ndarray, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        # a library is never told the weights of a sum: what a weight makes of an element is put
        # there
        ask = self._in_weights if self.case.weighted else self._in_input
        mode, arrays = ask(x, template, leaves, values)
        header = {"do": "masks", "spec": self._spec, "mode": mode}
        blocks = [
            answer["outputs"] for _, answer in self.session.stream(header, arrays | self.select)
        ]
        outputs = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)  # speed alone
        if self.dtype != "float32":
            outputs = floats.widen(outputs, self.dtype)
        return outputs.reshape(len(leaves), self.positions, self.filters)

    def _in_weights(
        self, x: np.ndarray, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> tuple[str, dict[str, np.ndarray]]:
        """The arrays of a ``masks`` request that edits the weights, and the bias."""
        # in the weights of a case the filters of one leaf are neighbours
        weights = np.repeat(template[: self.summands], self.filters)
        arrays = {
            "x": self._container(x),
            "w": self._container(weights).reshape(self.case.weight_shape),
        }
        inner = (leaves >= 0) & (leaves < self.summands)
        arrays |= self._edits("", inner, values, leaves * self.filters)
        if self.bias:
            arrays["b"] = self._container(np.full(self.filters, template[self.summands]))
            arrays |= self._edits("b_", leaves == self.summands, values, np.zeros_like(leaves))
        return "weights", arrays

    def _edits(
        self, prefix: str, which: np.ndarray, values: np.ndarray, base: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The chosen leaves as edits of each call; ``base``: their places in filter 0.

        ``values``: one for each slot, or an array of the shape of ``which``.
        """
        _, filters, slots = np.nonzero(which)
        return {
            prefix + "offsets": edit_offsets(which.reshape(len(which), -1).sum(axis=1)),
            prefix + "flat": base[which] + filters,
            prefix + "values": self._container(values[which] if values.ndim > 1 else values[slots]),
        }

    def _in_input(
        self, x: np.ndarray, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> tuple[str, dict[str, np.ndarray]]:
        """The arrays of a ``masks`` request that edits the input: one filter, weights of 1.

        Every row of the input gets the same masks, since no two outputs of a sum share an element.
        """
        rows = np.asarray(x, np.float64).reshape(-1, self.summands)
        calls, _, slots = np.nonzero(leaves >= 0)
        elements = leaves[calls, 0, slots]
        counts = (leaves >= 0).reshape(len(leaves), -1).sum(axis=1) * len(rows)
        starts = np.arange(len(rows)) * self.summands
        set_to = values[calls, 0, slots] if values.ndim > 1 else values[slots]
        return "inputs", {
            "x": self._container(rows * template).reshape(self._input_shape),
            "w": self._container(np.ones(self.case.weight_shape)),
            "offsets": edit_offsets(counts),
            "flat": (elements[:, None] + starts).reshape(-1),
            "values": self._container(rows[:, elements].T * set_to[:, None]).reshape(-1),
        }

    def _container(self, values: np.ndarray) -> np.ndarray:
        return floats.round_to(np.asarray(values, np.float64), self.dtype)

    def apply(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
        """The library's outputs for container operands: container, (positions, filters).

        A sum's weights, where they aren't 1, are multiplied into its input and rounded.
        """
        if not self.case.weighted:
            line = floats.widen(w, self.dtype).reshape(-1)
            x = self._container(floats.widen(x, self.dtype) * line)
            w = self._container(np.ones(self.case.weight_shape))
        arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
        _, answer = self.session.request({"do": "run", "spec": self._spec}, arrays)
        return answer["y"].reshape(self.positions, self.filters)


# Products of a sum up to which its whole order is asked. Measured with PyTorch's sum: 1.5 s for
# 10,000, 32 s for 100,000, and so some 1.3 powers of ten for each power of ten.
LONGEST, SECONDS, POWER = 1 << 17, 32 / 100_000**1.3, 1.3


def why_not_whole(products: int) -> str:
    """Why the order of a sum of so many products is not asked; empty if it is."""
    if products <= LONGEST:
        return ""
    took = span(SECONDS * products**POWER)
    return f"sums of {products:,} are not asked beyond {LONGEST:,}: {took} or more"

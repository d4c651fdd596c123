"""What is put into the weights so that one call of an operator answers for every output at once.

Three kinds of question, each a handful of weights that differ from a template while the input is
one constant everywhere:

``order``      leaf i is +M, leaf j is -M, every other leaf is one unit. Units that meet the partial
               sum while M is in it vanish, so what comes out counts the units added after i and j
               have met: the leaves under their lowest common ancestor (FPRev, USENIX ATC 2025).
``fusion``     leaf k is 1 + 2^-b, a leaf that is added before it is -1, the rest 0 and the input
               1 + 2^-a: the product's last bit survives only if the product was not rounded.
``precision``  leaves p, q, r are 1, a little less than half an ulp, and -1: the little one survives
               only if the sum of p and q was kept in more bits than the operator's dtype has.

A leaf is a weight's flat index within its filter; the bias, where there is one, is leaf ``n``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from probe import floats
from probe.errors import InputError

ANSWERS_AT_ONCE = 1 << 23  # 32 MiB of float32


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


@dataclass(frozen=True)
class Scale:
    """Mask sizes for one dtype: ``big`` swallows ``limit`` units, ``limit`` units count exactly."""

    unit: float
    big: float
    limit: int
    x: float = 1.0


# float16 spans too few binades for a unit of 1, so its unit is the smallest subnormal: 2^15
# swallows 2^11 of those in a float32 accumulator as well as in a float16 one.
SCALES = {
    "float64": Scale(1.0, 2.0**600, 2**50),
    "float32": Scale(1.0, 2.0**100, 2**23),
    "float16": Scale(2.0**-24, 2.0**15, 2**10),
    "bfloat16": Scale(1.0, 2.0**100, 2**7),
}


@dataclass(frozen=True)
class Fusion:
    """Operands of the fusion question: ``x * w`` is ``x + 2^-b + 2^-p``, p the dtype's precision.

    The last term is half an ulp, a tie that goes down to even if the product is rounded alone. In
    a sum with ``-x`` what is left is ``2^-b``, and ``2^-p`` more if the product came in whole.
    ``most`` such sums stay exact when they are added up, and also beside a ``-x`` that still waits
    for its product: ``2^-b`` is no smaller than the bit of ``x``, so that these sums are below 1.
    """

    x: float
    w: float
    rounded: float
    extra: float
    most: int


def fusion_operands(dtype: str) -> Fusion:
    """Operands whose product needs one bit more than ``dtype`` holds."""
    p = floats.FORMATS[dtype].precision
    a, b = p - p // 2, p // 2
    return Fusion(1 + 2.0**-a, 1 + 2.0**-b, 2.0**-b, 2.0**-p, min(2 ** (a - 1), 2 ** (b - 2)))


def little(dtype: str) -> float:
    """A quarter of an ulp of 1: lost when added to 1 in ``dtype``, kept in any wider format."""
    return 2.0 ** -(floats.FORMATS[dtype].precision + 1)


class Masks:
    """Asks an operator the three questions, spreads them over its filters, and counts its calls.

    ``calls`` is the number of times that the operator was run.
    """

    def __init__(self, operator: MaskedOperator) -> None:
        if operator.dtype not in SCALES:
            raise InputError(
                "dtype", operator.dtype, "no masks are known for it", "use " + ", ".join(SCALES)
            )
        self.operator = operator
        self.scale = SCALES[operator.dtype]
        self.size = operator.summands + int(operator.bias)
        self.calls = 0

    def _run(
        self, x: float, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        self.calls += len(leaves)
        return self.operator.run(x, template, leaves, values)

    def _unit_templates(self) -> list[np.ndarray]:
        """Templates of units, few enough in each to be counted exactly."""
        parts = -(-self.size // self.scale.limit)
        templates = np.zeros((parts, self.size))
        templates[np.arange(self.size) % parts, np.arange(self.size)] = self.scale.unit
        return list(templates)

    def summands(self) -> np.ndarray:
        """How many leaves every output adds: (positions, filters), float64."""
        none = np.full((1, self.operator.filters, 1), -1)
        total = np.zeros((self.operator.positions, self.operator.filters))
        for template in self._unit_templates():
            total += self._run(self.scale.x, template, none, np.zeros(1))[0]
        return total / (self.scale.unit * self.scale.x)

    def survivors(self, leaves: np.ndarray) -> np.ndarray:
        """The ``order`` question: units that survive, (calls, positions, filters), per (i, j).

        ``leaves`` has shape (calls, filters, 2), -1 where a filter has nothing to ask.
        """
        big = self.scale.big / self.scale.x
        values = np.array([big, -big])
        total: np.ndarray | None = None
        for template in self._unit_templates():
            answer = self._run(self.scale.x, template, leaves, values)
            total = answer if total is None else total + answer
        assert total is not None
        unit = self.scale.unit * self.scale.x
        return total if unit == 1 else total / unit

    def fused(self, leaves: np.ndarray) -> np.ndarray:
        """The ``fusion`` question of several pairs at once: how many products came in whole.

        ``leaves`` (calls, filters, 2 m) are m leaves and, behind them, the m leaves that are added
        right before each, -1 in both where there are fewer than m. The answer is int32, -1 for
        none that fits.
        """
        operands = fusion_operands(self.operator.dtype)
        most = leaves.shape[2] // 2
        values = np.repeat([operands.w, -1.0], most)
        answer = self._run(operands.x, np.zeros(self.size), leaves, values)
        pairs = (leaves[:, :, :most] >= 0).sum(axis=2)[:, None, :]
        return self._count(answer, pairs, operands)

    def fused_behind_bias(self, leaves: np.ndarray) -> np.ndarray:
        """As ``fused`` for one pair whose partner is the bias, which no input multiplies."""
        operands = fusion_operands(self.operator.dtype)
        values = np.array([operands.w, -operands.x])
        answer = self._run(operands.x, np.zeros(self.size), leaves, values)
        return self._count(answer, (leaves[:, :, :1] >= 0).sum(axis=2)[:, None, :], operands)

    @staticmethod
    def _count(answer: np.ndarray, pairs: np.ndarray, operands: Fusion) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            whole = (answer.astype(np.float64) - pairs * operands.rounded) / operands.extra
            fits = (whole >= 0) & (whole <= pairs) & (whole == np.rint(whole))
            return np.where(fits, whole, -1).astype(np.int32)

    def precision(self, leaves: np.ndarray) -> np.ndarray:
        """The ``precision`` question per (p, q, r): 1 kept wider, 0 rounded, -1 anything else."""
        small = little(self.operator.dtype)
        answer = self._run(1.0, np.zeros(self.size), leaves, np.array([1.0, small, -1.0]))
        return self._classify(answer, 0.0, small)

    def cut(self, leaves: np.ndarray) -> np.ndarray:
        """Is the result cut off, not rounded to nearest? 1 yes, 0 no, -1 anything else.

        ``leaves`` (calls, filters, 2) names two whose sums meet at the root: three quarters of an
        ulp, added to 1. Where they stand for one leaf alone, its product has that much too many.
        """
        operands, eps = fusion_operands(self.operator.dtype), floats.eps(self.operator.dtype)
        alone = (leaves[:, :, 0] == leaves[:, :, 1]) & (leaves[:, :, 0] >= 0)
        answer = self._run(1.0, np.zeros(self.size), leaves, np.array([1.0, 0.75 * eps]))
        found = self._classify(answer, 1.0 + eps, 1.0)
        if alone.any():
            one = np.where(alone[:, :, None], leaves[:, :, :1], -1)
            w = operands.w + eps
            exact = np.array([operands.x * w])
            kept = [
                float(floats.widen(rounded(exact, self.operator.dtype), self.operator.dtype)[0])
                for rounded in (floats.round_to, floats.cut_to)
            ]
            product = self._run(operands.x, np.zeros(self.size), one, np.array([w]))
            found = np.where(alone[:, None, :], self._classify(product, *kept), found)
        return found

    def twice(self, leaves: np.ndarray) -> np.ndarray:
        """Is a fused sum rounded to a wider format before it is rounded to the dtype? 1 yes, 0 no.

        Per (k, partner), k being fused: a product halfway between two numbers and a little more
        goes up if the sum is rounded once; the wider format loses the little, and the tie that is
        left goes to even.
        """
        operands = fusion_operands(self.operator.dtype)
        short = self.operator.dtype == "float16"  # the least it has, beside a large product
        scale, little = (2.0**12, 2.0**-24) if short else (1.0, 2.0**-90)
        values = np.array([operands.w * scale, little])
        answer = self._run(operands.x, np.zeros(self.size), leaves, values)
        even = (operands.x + operands.rounded) * scale
        return self._classify(answer, even + 2 * operands.extra * scale, even)

    def kept(self, leaves: np.ndarray, bits: int) -> np.ndarray:
        """Per (k, partner): 1 where a weight of ``bits`` fraction bits meets the product whole."""
        values = np.array([1 + 2.0**-bits, -1.0])
        answer = self._run(1.0, np.zeros(self.size), leaves, values)
        return self._classify(answer, 0.0, 2.0**-bits)

    @staticmethod
    def _classify(answer: np.ndarray, zero: float, one: float) -> np.ndarray:
        result = np.full(answer.shape, -1, np.int8)
        result[answer == zero] = 0
        result[answer == one] = 1
        return result


@dataclass(frozen=True)
class Part:
    """Rows ``start`` to ``stop`` of one team's questions, and where their answers stand."""

    team: int
    start: int
    stop: int
    calls: np.ndarray
    filters: np.ndarray

    def table(self, answers: np.ndarray) -> np.ndarray:
        """The answers to these questions: (stop - start, positions)."""
        return answers[self.calls, :, self.filters]


def spread(
    masks: Masks, teams: Sequence[np.ndarray], queues: Sequence[np.ndarray]
) -> Iterator[tuple[np.ndarray, list[Part]]]:
    """Deals every team's questions (rows of leaves) to its filters, as few calls as possible.

    ``teams[t]`` are filter numbers that share their orders, ``queues[t]`` (questions, m) what they
    are to answer. Yields ``leaves`` (calls, filters, m) for ``Masks`` and where each team's answers
    will stand, in chunks whose answers fit in memory.
    """
    filters = masks.operator.filters
    width = max((queue.shape[1] for queue in queues), default=1)
    calls = max((-(-len(q) // len(t)) for q, t in zip(queues, teams, strict=True)), default=0)
    chunk = max(1, ANSWERS_AT_ONCE // (masks.operator.positions * filters))
    for first in range(0, calls, chunk):
        count = min(chunk, calls - first)
        ask = np.full((count, filters, width), -1)
        parts = []
        for number, (team, queue) in enumerate(zip(teams, queues, strict=True)):
            start, stop = first * len(team), min((first + count) * len(team), len(queue))
            if start < stop:
                rows, columns = np.divmod(np.arange(stop - start), len(team))
                ask[rows, team[columns]] = queue[start:stop]
                parts.append(Part(number, start, stop, rows, team[columns]))
        yield ask, parts

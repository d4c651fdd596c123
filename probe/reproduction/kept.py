"""What a finding does, and whether a smaller one still does it: its cause and its kernels.

Bits that still differ are not enough: two products that one side fuses and the other doesn't are
another bug than a changed order of three hundred. The cause is read off both sides' revealed sums,
never off which outputs happen to differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from probe import floats
from probe.comparison import Comparison, classes_of
from probe.kernels import computing
from probe.order.tree import BIAS
from probe.reproduction.failing import Failing
from probe.shrink import Finding

KINDS = ("order", "rounding", "precision")
"""Causes that the sums themselves show."""

MOST = 64
"""Differing outputs whose zeros are looked at."""

Kernels = dict[str, dict[str, list[str]]]


@dataclass(frozen=True)
class Effect:
    """What a finding does.

    ``causes``: differing outputs by cause; where none differs, compared outputs by what sets their
    sums apart. ``max_difference`` and ``max_relative`` (to the larger of the two): None where no
    difference is a number. ``kernels``: what the library says of itself, as ``probe explain`` has
    it; None where it was not asked.
    """

    label: str
    compared: int
    differing: int
    max_ulp: int | None
    max_difference: float | None
    max_relative: float | None
    causes: dict[str, int]
    kernels: Kernels | None = None

    @property
    def cause(self) -> str | None:
        """That of most outputs; None where nothing sets the two sides apart."""
        return max(self.causes, key=lambda name: self.causes[name], default=None)

    def to_json(self) -> dict[str, Any]:
        """The keys ``before`` and ``after`` of ``probe shrink --json``."""
        return asdict(self) | {"cause": self.cause}


def effect(found: Comparison, label: str, kernels: Kernels | None = None) -> Effect:
    """The effect that an explanation tells of."""
    values = [
        np.asarray(floats.widen(y, found.case.dtype), np.float64)
        for y in found.values(found.differing)
    ]
    far, larger = np.abs(values[0] - values[1]), np.maximum(*map(np.abs, values))
    known = np.isfinite(far) & (larger > 0)
    many = bool(known.any())
    return Effect(
        *(label, found.compared, len(found.differing), found.max_ulp),
        max_difference=float(far[known].max()) if many else None,
        max_relative=float((far[known] / larger[known]).max()) if many else None,
        causes=found.causes or {name: len(which) for name, which in found.apart.items()},
        kernels=kernels,
    )


class Kept:
    """Whether smaller findings keep the cause and the kernels of ``start``.

    A cause is kept where outputs still differ by the most frequent one of the start's and none by a
    cause that the start does not have; and where the products that are not 0 alone show that
    cause. Kernels are asked of the candidates that keep the cause, once a shape; they are a
    condition where the library names one on a side of the start. ``anything``: no conditions.
    ``before`` costs one reveal of the start, when it is first asked for. Errors: TargetError.
    """

    def __init__(self, failed: Failing, start: Finding, anything: bool = False) -> None:
        self.failed, self.start, self.anything = failed, start, anything

    @cached_property
    def before(self) -> Effect:
        """What the start does."""
        return effect(self._explained, self.start.label, self.failed.kernels(self.start))

    @cached_property
    def _explained(self) -> Comparison:
        return self.failed.explained(self.start)

    @cached_property
    def _bare(self) -> bool:
        """Whether the start shows its cause by the products that are not 0 alone."""
        return self._shown_by_products(self._explained)

    def keeps(self, finding: Finding) -> bool:
        """Whether a finding that fails does so by the same cause, in the same kernels."""
        if self.anything:
            return True
        found = self.failed.judged(finding) or self.failed.explained(finding)
        after = effect(found, finding.label)
        if not same_cause(self.before, after):
            return False
        if self._bare and after.differing and not self._shown_by_products(found):
            return False
        if not named(self.before.kernels):
            return True
        return alike(self.before.kernels, self.failed.kernels(finding))

    def after(self, found: Comparison, finding: Finding) -> Effect:
        """The effect of the smallest finding."""
        return effect(found, finding.label, self.failed.kernels(finding))

    def told(self, after: Effect) -> dict[str, bool | None]:
        """Whether the cause was kept and the kernels; None for kernels that no source names."""
        known = named(self.before.kernels)
        return {
            "cause": same_cause(self.before, after),
            "kernels": alike(self.before.kernels, after.kernels) if known else None,
        }

    def _shown_by_products(self, found: Comparison) -> bool:
        """Whether an output's products that are not 0 alone show the start's main cause."""
        main = self.before.cause
        if main is None or not set(main.split("+")) <= set(KINDS):
            return True
        return shown_by_products(found, main, first=True) is not None


def same_cause(before: Effect, after: Effect) -> bool:
    """Whether the main cause is still there and no other one has come."""
    return before.cause in after.causes and set(after.causes) <= set(before.causes)


def named(kernels: Kernels | None) -> bool:
    """Whether a library names a kernel on a side."""
    return any(_key(side) for side in (kernels or {}).values())


def alike(one: Kernels | None, other: Kernels | None) -> bool:
    """Whether the same kernels compute both sides; what only moves operands doesn't count."""
    sides = set(one or {}) | set(other or {})
    return all(_key((one or {}).get(s, {})) == _key((other or {}).get(s, {})) for s in sides)


def _key(side: dict[str, list[str]]) -> dict[str, frozenset[str]]:
    """Names by source, without the sources that name none."""
    found = {
        source: frozenset(computing([name for name in names if not name.startswith("(")]))
        for source, names in side.items()
    }
    return {source: names for source, names in found.items() if names}


def shown_by_products(found: Comparison, cause: str, first: bool = False) -> int | None:
    """Which differing output (a number among them) shows a cause by its products that aren't 0.

    The one with the fewest of those, or the ``first``; None where none of the first ``MOST`` does.
    """
    numbers = [n for n, name in enumerate(found.cause) if name == cause][:MOST]
    classes, leaves = classes_of(found.left.case)
    best: tuple[int, int] | None = None
    for number in numbers:
        pair = int(found.differing[number])
        position, filter_ = (int(n) for n in found.pairs.left[pair])
        read = leaves[classes[position]].tolist()
        kept = _not_zero(found, position, filter_, read)
        left = found.left.summation(found.pairs.left[pair])
        right = found.right.summation(found.pairs.right[pair])
        if left is None or right is None or len(kept) < 2:
            continue
        apart = left.restricted(kept).causes(right.restricted(kept))
        if "+".join(apart) == cause and (best is None or len(kept) < best[0]):
            best = (len(kept), number)
            if first:
                return number
    return None if best is None else best[1]


def _not_zero(found: Comparison, position: int, filter_: int, read: Sequence[int]) -> list[int]:
    """The leaves of an output whose products are not 0, and the bias where it isn't."""
    given, case = found.left.operands, found.left.case
    group = filter_ // (case.filters // case.groups)
    x = floats.widen(given.columns[group][:, position], case.dtype)
    w = floats.widen(given.weights[:, filter_], case.dtype)
    kept = [leaf for leaf in read if x[leaf] != 0 and w[leaf] != 0]
    if given.b is not None and float(floats.widen(given.b[filter_ : filter_ + 1], case.dtype)[0]):
        kept.append(BIAS)
    return kept

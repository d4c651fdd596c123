"""Names what sets two outputs apart, whose summations are known. Each pair of these is compared
once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from probe import window
from probe.case import Case
from probe.order.tree import BIAS

if TYPE_CHECKING:
    from probe.explain import Pairs, Side


def classes_of(case: Case) -> tuple[np.ndarray, list[np.ndarray]]:
    """``window.read_classes`` with a class for every (batch entry, output position)."""
    classes, leaves = window.read_classes(case)
    return np.tile(classes, case.batch), leaves


class Judge:
    """Names the causes of pairs of outputs of two runs."""

    def __init__(self, left: Side, right: Side, pairs: Pairs) -> None:
        self.left, self.right, self.pairs = left, right, pairs
        classes, leaves = classes_of(left.case)
        bias = () if left.case.bias is None else (BIAS,)
        self.classes, self.leaves = classes, [(*map(int, read), *bias) for read in leaves]

    def causes(self, which: np.ndarray) -> list[str]:
        """The cause of every pair in ``which`` (indices), taken to differ."""
        refusals = {self.left.refusal, self.right.refusal} - {""}
        if "nondeterministic" in refusals:
            return ["nondeterministic"] * len(which)
        if refusals:
            same = self.pairs.same_window[which].tolist()
            return ["not-a-sum" if alike else "window" for alike in same]
        kinds, number = np.unique(self._kinds(which), axis=0, return_inverse=True)
        names = [self._name(*kind) for kind in kinds.tolist()]
        return [names[n] for n in number.reshape(-1).tolist()]

    def _kinds(self, which: np.ndarray) -> np.ndarray:
        """All that decides a pair's cause, a row a pair."""
        one, two = self.pairs.left[which].T, self.pairs.right[which].T
        assert self.left.orders is not None and self.right.orders is not None
        sides = ((self.left, tuple(one)), (self.right, tuple(two)))
        numbers = [s.orders.index[at] for s, at in sides if s.orders]
        no_sum = [s.orders.not_a_sum[at] for s, at in sides if s.orders]
        replayed = [s.replays[at] for s, at in sides]
        read = self.classes[one[0]]
        same = self.pairs.same_window[which]
        return np.stack(
            [same, no_sum[0] | no_sum[1], replayed[0] & replayed[1], *numbers, read], axis=1
        ).astype(np.int64)

    def _name(self, same: int, no_sum: int, replayed: int, one: int, two: int, read: int) -> str:
        if not same:
            return "window"
        if no_sum:
            return "not-a-sum"
        return self._verdict(one, two, read) * replayed or "unexplained"

    def _verdict(self, one: int, two: int, read: int) -> str:
        """What sets two summations apart over the leaves that are read; empty if nothing does."""
        assert self.left.orders is not None and self.right.orders is not None
        if one < 0 or two < 0:
            return ""
        left, right = self.left.orders.summations[one], self.right.orders.summations[two]
        if left == right:
            return ""
        leaves = self.leaves[read]
        return "+".join(left.restricted(leaves).causes(right.restricted(leaves)))

    def apart(self) -> tuple[dict[str, np.ndarray], int]:
        """What is added otherwise, whatever the operands are: pairs (indices) by cause.

        And how many pairs have no proved summation on a side. Only pairs with the same window
        count; summations are compared over the leaves that the outputs read: in the padding all
        add zeros.
        """
        if self.left.orders is None or self.right.orders is None:
            return {}, 0
        same = np.flatnonzero(self.pairs.same_window)
        sides = ((self.left.orders, self.pairs.left), (self.right.orders, self.pairs.right))
        known = [orders.replayed[tuple(places[same].T)] for orders, places in sides]
        proved = same[known[0] & known[1]]
        kinds, number = np.unique(self._kinds(proved)[:, 3:], axis=0, return_inverse=True)
        names = [self._verdict(*kind) for kind in kinds.tolist()]
        found = np.array(names, object)[number.reshape(-1)]
        apart = {name: proved[found == name] for name in dict.fromkeys(names) if name}
        return apart, len(same) - len(proved)

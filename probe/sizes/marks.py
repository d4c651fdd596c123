"""The one search over sizes: each size has a mark, and sizes of equal marks are one class.

What a mark is, the search doesn't know. ``thresholds`` gives how the places of a call are added,
``plan`` how far content is padded, ``search`` whether outputs read behind a size, ``bisection``
what a release shows, whose size is its place in the list.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from probe.targets import budget

# Sizes that are asked between two whose marks differ, where they change again and again.
MOST_ASKED = 400


@dataclass
class SizeSearch:
    """Asks sizes for their marks, each once.

    ``ask``: the mark of a size; None: it has none, as where the library fails or time is over.
    ``alike``: whether two marks are of one class. ``marks``: of the sizes that have one;
    ``unmarked``: those that have none.
    """

    ask: Callable[[int], Any]
    alike: Callable[[Any, Any], bool] = operator.eq
    marks: dict[int, Any] = field(default_factory=dict)
    unmarked: set[int] = field(default_factory=set)

    def mark(self, size: int) -> Any:
        if size not in self.marks and size not in self.unmarked:
            mark = self.ask(size)
            if mark is None:
                self.unmarked.add(size)
            else:
                self.marks[size] = mark
        return self.marks.get(size)

    def changes(self, low: int, high: int, step: int = 1) -> list[tuple[int, int]]:
        """Neighbours among the sizes with marks, every ``step``-th from ``low`` on, that differ."""
        marked = sorted(n for n in self.marks if low <= n <= high and (n - low) % step == 0)
        return [
            (before, after)
            for before, after in pairwise(marked)
            if not self.alike(self.marks[before], self.marks[after])
        ]

    def bisect(
        self, low: int, high: int, step: int = 1, most: int = MOST_ASKED
    ) -> list[tuple[int, int]]:
        """Asks the middle of the widest gap between sizes that differ, until none is left between
        such two, ``most`` were asked or time is over. Returns where marks change.

        A size without a mark is replaced by the nearest one. Between two sizes of one class no
        change is looked for: more than one in the answer contradicts that there is one at most.
        """
        self.mark(low), self.mark(high)
        begun = len(self.marks) + len(self.unmarked)
        while len(self.marks) + len(self.unmarked) - begun < most and not budget.spent():
            gaps = sorted(self.changes(low, high, step), key=lambda gap: gap[0] - gap[1])
            middles = (self._middle(*gap, step) for gap in gaps)
            size = next((middle for middle in middles if middle is not None), None)
            if size is None:
                break
            self.mark(size)
        return self.changes(low, high, step)

    def _middle(self, before: int, after: int, step: int) -> int | None:
        """The size nearest to the middle that was not asked; None: all between were."""
        count = (after - before) // step
        for apart in range(count):
            for number in (count // 2 - apart, count // 2 + apart):
                size = before + number * step
                if before < size < after and size not in self.marks and size not in self.unmarked:
                    return size
        return None

    def first_change(self, low: int, high: int) -> int | None:
        """Doubles sizes from ``low`` on until one differs from it, then bisects: the first one that
        differs. None: none of those that were asked up to ``high`` does."""
        for before, after in pairwise(doubled(low, high)):
            if changes := self.bisect(before, after):
                return changes[0][1]
        return None


def doubled(first: int, upto: int, step: int = 1) -> Iterator[int]:
    """Sizes from ``first`` on, each about twice the one before, by multiples of ``step``."""
    size = first
    yield size
    while size + step <= upto:
        size += max(1, (min(2 * size, upto) - size) // step) * step
        yield size

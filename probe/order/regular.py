"""Long sums of few filters: a tree is guessed from a few answers, and proved, before all are asked.

Asking for every pair that matters takes the filters to share what must be asked: the longer a sum
and the fewer its filters, the more a guess saves.
"""

from __future__ import annotations

import numpy as np

from probe.order.guess import Asker, Lost, guess
from probe.order.masks import Masks, Proved
from probe.order.proof import proved
from probe.order.tree import Tree

LONG = 40  # leaves for every filter of a team, from which on a guess and its proof take fewer calls
GUESSES = 4  # trees guessed of positions that read the same leaves


def proved_trees(
    masks: Masks, filters: np.ndarray, positions: np.ndarray, read: np.ndarray, guesses: int
) -> tuple[list[tuple[Tree, np.ndarray]], np.ndarray]:
    """The trees that were proved with their positions, and the positions that are left.

    ``filters`` are taken to add alike, and a tree counts where it is proved of all of them; the
    ``positions`` read the leaves ``read``. A guess is that of one position; where others add
    otherwise, one of them is asked next, up to ``guesses`` times. What was proved of an output
    before is not asked again.
    """
    found: list[tuple[Tree, np.ndarray]] = []
    left = positions

    def settle(each: Proved) -> None:
        nonlocal left
        fits = each.fits[np.ix_(left, filters)].all(axis=1)
        if fits.any():
            found.append((each.tree, left[fits]))
            left = left[~fits]

    for each in masks.proved:
        if np.array_equal(each.read, read):
            settle(each)
    for _ in range(guesses if len(read) >= LONG * len(filters) else 0):
        tree = _guess(masks, filters, int(left[0]), read) if len(left) else None
        if tree is None:
            break
        place = np.ix_(left, filters)
        fits = proved(masks, tree, place)
        if not fits[place][0].all():
            fits |= proved(masks, tree, place, scales=False)
        masks.proved.append(Proved(tree, read, fits))
        before = len(left)
        settle(masks.proved[-1])
        if len(left) == before:
            break
    return found, left


def _guess(masks: Masks, filters: np.ndarray, position: int, read: np.ndarray) -> Tree | None:
    """What the tree of an output looks like; None: like no regular one.

    Counts that the dtype does not hold are first read in digits, which partial sums of 16 bits
    garble, then in parts.
    """
    most = len(read) * len(read).bit_length() // 2
    for digits in [True, False] if masks.size > masks.scale.limit else [False]:
        try:
            asker = Asker(masks, filters, position, read, most, digits)
            return guess(asker, masks.operator.summands)
        except Lost:
            continue
    return None

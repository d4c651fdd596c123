"""``torch.einsum`` of two operands, as rows times weights or as pairs of matrices.

PyTorch turns an einsum into a product of pairs of matrices below what a mode of functions sees, and
the rows are then a part of the shape of one pair. Which axis is which is known from the letters
alone, so it is decided here: a size of 1 changes nothing.

Without a letter that both operands and the answer have, one operand has the rows: the one that is
not a ``Parameter``, or else the one whose letter comes first in the answer. With such letters, each
stands for a pair of matrices, unless one operand is a ``Parameter``: then they are groups, and the
rows are those of the other operand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from string import ascii_letters
from typing import Any, NamedTuple

import torch

from probe.invariant.telling import cancelling_products
from probe.invariant.torch_calls import (
    FORMATS,
    AlignedLinear,
    Tensors,
    TorchLinear,
    TorchTestedRows,
    aligned_contiguous,
    is_weight,
    misplaced,
    moved_by,
    strided,
    tensor,
)
from probe.invariant.torch_products import Products


class OnePair(TorchLinear):
    """As a ``TorchLinear``, as the product of one pair of matrices: what an einsum calls."""

    own = False

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.key = "einsum" + self.key.removeprefix("linear")

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        (x,), (w, _) = samples, parameters
        columns = w if self.turned else w.t()
        where = None if out is None else out[None]
        return torch.bmm(x[None], columns[None], out=where)[0]


class Grouped(TorchTestedRows):
    """Rows (groups, channels) times weights (groups, channels, filters), group by group.

    ``at`` as of ``TorchLinear``.
    """

    def __init__(self, groups: int, channels: int, filters: int, dtype: Any, at: int) -> None:
        said = f" weights {at} bytes on" if at else ""
        sizes = f"{groups} groups of {channels} -> {filters}"
        super().__init__(f"einsum {sizes}{said} {FORMATS[dtype]}")
        self.groups, self.channels, self.filters = groups, channels, filters
        self.dtype, self.at = dtype, at

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        every = self.groups * self.filters
        x, w, _ = cancelling_products(number, self.channels, every, FORMATS[self.dtype], False)
        each = w.reshape(self.channels, self.groups, self.filters).swapaxes(0, 1)
        rows = tensor(x, self.dtype).expand(self.groups, self.channels)
        return (rows,), (moved_by(tensor(each, self.dtype), self.at),)

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        """As ``Rows.call``; gives (rows, groups, filters)."""
        (x,), (w,) = samples, parameters
        return torch.bmm(x.transpose(0, 1), w).transpose(0, 1)


class EinsumRoles(NamedTuple):
    """An einsum of two operands whose roles are known. Axes are given by their letters.

    ``first``: the operand that has the rows, or the left one of pairs. ``shared``: of both and the
    answer; ``summed``: of both alone; ``rows`` and ``columns``: of one operand and the answer.
    ``pairs``: the shared letters are pairs of matrices, not groups of weights.
    """

    first: int
    given: tuple[str, str]
    shared: str
    summed: str
    rows: str
    columns: str
    answer: str
    pairs: bool


@lru_cache(maxsize=1024)
def letters(
    equation: str, ranks: tuple[int, int], weights: tuple[bool, bool]
) -> EinsumRoles | None:
    """Returns the roles of an equation's letters; None: it is not a product of two matrices.

    ``ranks``: of the operands; ``weights``: which of them are parameters.
    """
    spelled = _spelled(equation.replace(" ", ""), ranks)
    if spelled is None:
        return None
    *given, answer = spelled
    if any(len(set(one)) < len(one) for one in spelled) or not answer:
        return None
    left, right, out = map(set, spelled)
    if (left ^ right) - out or out - (left | right):  # sums of one operand, or no such letter
        return None
    shared = "".join(one for one in answer if one in left & right)
    # PyTorch takes the letters that it sums over in this order
    summed = "".join(sorted((left & right) - out))
    if not summed:
        return None
    weighs = weights[0] != weights[1]
    pairs = bool(shared) and not weighs
    first = int(weights[0] if weighs else not pairs and answer[0] in right)
    free = [
        "".join(one for one in answer if one in side - both)
        for side, both in ((left, right), (right, left))
    ]
    return EinsumRoles(
        first, (given[0], given[1]), shared, summed, free[first], free[1 - first], answer, pairs
    )


def _spelled(equation: str, ranks: tuple[int, int]) -> tuple[str, str, str] | None:
    """Returns the letters of both operands and the answer, without dots; None: unreadable."""
    inputs, arrow, answer = equation.partition("->")
    given = inputs.split(",")
    if len(given) != 2:
        return None
    dots = [one.count("...") for one in (*given, answer)]
    wide = [rank - len(one.replace("...", "")) for one, rank in zip(given, ranks, strict=True)]
    if any(more < 0 or (more and not there) for more, there in zip(wide, dots, strict=False)):
        return None
    unused = "".join(one for one in ascii_letters if one not in equation)[: max(wide)]
    if not arrow:
        inside = inputs.replace("...", "").replace(",", "")
        answer = "..." + "".join(sorted(one for one in set(inside) if inside.count(one) == 1))
    ends = [
        one.replace("...", unused[len(unused) - more :], 1)
        for one, more in zip((*given, answer), (*wide, len(unused)), strict=True)
    ]
    if any(not set(one) <= set(ascii_letters) for one in ends):
        return None
    return ends[0], ends[1], ends[2]


class Einsum:
    """The einsums of one model."""

    def __init__(self, products: Products) -> None:
        self.products, self.met = products, products.met

    def __call__(self, equation: Any, *operands: Any) -> Any:
        if len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = tuple(operands[0])
        if len(operands) > 2 and isinstance(equation, str):
            return self._several(equation, operands)
        if len(operands) != 2 or not isinstance(equation, str):
            return NotImplemented
        a, b = operands
        if a.dtype not in FORMATS or b.dtype is not a.dtype or not a.numel() or not b.numel():
            return NotImplemented
        roles = letters(equation, (a.dim(), b.dim()), (is_weight(a), is_weight(b)))
        if roles is None:
            return NotImplemented
        sizes: dict[str, int] = {}
        for one, given in zip(roles.given, operands, strict=True):
            for letter, size in zip(one, given.shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    return NotImplemented  # one of them is 1: it is repeated
        if all(sizes[one] == 1 for one in roles.summed):
            return NotImplemented  # products that are rounded once: PyTorch's own are exact
        x, w = operands[roles.first], operands[1 - roles.first]
        there = roles.given[roles.first], roles.given[1 - roles.first]
        run = self._pairs if roles.pairs else self._groups if roles.shared else self._rows
        y, order = run(x, w, there, roles, sizes)
        if y is NotImplemented:
            return y
        y = y.view([sizes[one] for one in order])
        return _permuted(y, order, roles.answer)

    def _several(self, equation: str, operands: Sequence[Any]) -> Any:
        """Returns an einsum of more operands: two that add something, then that with the others.

        PyTorch takes them in an order that depends on their sizes, and so on the batch.
        """
        inputs, arrow, answer = equation.replace(" ", "").partition("->")
        given = inputs.split(",")
        if not arrow or "." in equation or len(given) != len(operands):
            return NotImplemented
        for at in combinations(range(len(given)), 2):
            both = "".join(given[n] for n in at)
            rest = [n for n in range(len(given)) if n not in at]
            wanted = {*answer, *"".join(given[n] for n in rest)}
            # the answer's letters first: samples stay along the first axis
            kept = "".join(n for n in dict.fromkeys(answer + both) if n in both and n in wanted)
            y = self(f"{','.join(given[n] for n in at)}->{kept}", *(operands[n] for n in at))
            if y is not NotImplemented:
                parts = ",".join((kept, *(given[n] for n in rest)))
                return self(f"{parts}->{answer}", y, *(operands[n] for n in rest))
        return NotImplemented

    def _rows(
        self, x: Any, w: Any, there: tuple[str, str], roles: EinsumRoles, sizes: Mapping[str, int]
    ) -> tuple[Any, str]:
        """Returns rows times weights, and the letters of its axes."""
        channels = _together(sizes, roles.summed)
        turned = there[1] != roles.columns + roles.summed
        order = roles.summed + roles.columns if turned else roles.columns + roles.summed
        rows = _permuted(x, there[0], roles.rows + roles.summed).reshape(-1, channels)
        weights = _permuted(w, there[1], order)
        weights = weights.reshape(channels, -1) if turned else weights.reshape(-1, channels)
        kinds = "einsum", OnePair, AlignedLinear
        y = self.products.rows(rows, weights, None, turned, None, kinds)
        return y, roles.rows + roles.columns

    def _groups(
        self, x: Any, w: Any, there: tuple[str, str], roles: EinsumRoles, sizes: Mapping[str, int]
    ) -> tuple[Any, str]:
        """Returns rows times weights of each group, and the letters of its axes."""
        wanted = roles.shared, roles.summed, roles.columns
        groups, channels, filters = (_together(sizes, one) for one in wanted)
        rows = _permuted(x, there[0], roles.rows + roles.shared + roles.summed)
        weights = _permuted(w, there[1], "".join(wanted))
        rows = aligned_contiguous(rows.reshape(-1, groups, channels))
        weights = strided(weights.reshape(groups, channels, filters))
        parts = groups, channels, filters, x.dtype, misplaced(weights)
        known = self.met.known(("einsum groups", *parts), lambda: Grouped(*parts), axis="rows")
        y = known((rows,), (weights,))
        return y.contiguous(), roles.rows + roles.shared + roles.columns

    def _pairs(
        self, x: Any, w: Any, there: tuple[str, str], roles: EinsumRoles, sizes: Mapping[str, int]
    ) -> tuple[Any, str]:
        """Returns the products of pairs of matrices, and the letters of its axes."""
        wanted = roles.shared, roles.rows, roles.summed, roles.columns
        count, rows, leaves, columns = (_together(sizes, one) for one in wanted)
        a = _permuted(x, there[0], roles.shared + roles.rows + roles.summed)
        b = _permuted(w, there[1], roles.shared + roles.summed + roles.columns)
        y = self.products.bmm(a.reshape(count, rows, leaves), b.reshape(count, leaves, columns))
        return y, roles.shared + roles.rows + roles.columns


def _together(sizes: Mapping[str, int], some: str) -> int:
    """Returns the size of several letters as one axis."""
    return math.prod(sizes[one] for one in some)


def _permuted(x: Any, order: str, wanted: str) -> Any:
    return x if order == wanted else x.permute([order.index(one) for one in wanted])

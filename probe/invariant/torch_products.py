"""Sums of products in PyTorch: linear layers, matrix products and convolutions, in their classes.

A model calls the same shapes again and again. So a shape at which the library's own call is in the
class is kept with the strides that were checked, and such a call is made at once: what it takes
beside the library's own call is the search in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as functional

from probe.invariant.keeper import Keeper, Known
from probe.invariant.torch_calls import (
    ALIGNED,
    CONVOLUTIONS,
    FORMATS,
    TRANSPOSED,
    Apart,
    Convolution,
    Linear,
    Pairs,
    PairsApart,
    each,
    laid,
    misplaced,
    strided,
)
from probe.invariant.torch_few import Convolved, Copies, Layer, Ways
from probe.invariant.torch_native import Watched

LINEAR = ("linear", Linear, Apart)
PAIRS = "products of pairs of matrices: along the pairs alone, sizes are fixed"


class Met:
    """The operations of one model that were met so far."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.kept: dict[Any, Known] = {}

    def known(self, key: tuple[Any, ...], *makes: Callable[[], Any], axis: str = "batch") -> Known:
        """Returns an operation by what it is called with and the number of threads.

        ``makes``: the ways in which it may be called; the first that has a class is taken.
        """
        key = (*key, torch.get_num_threads())
        found = self.kept.get(key)
        if found is None:
            found = self.kept[key] = self.keeper.first([make() for make in makes], axis)
        return found


class Products:
    """The sums of products of one model."""

    def __init__(self, met: Met, watched: Watched) -> None:
        self.met, self.watched, self.copies = met, watched, Copies()
        self.ways: dict[Any, Ways] = {}
        self.ready: dict[Any, tuple[Any, Ways | None]] = {}
        """The strides of both operands and the way, by all else that decides a call's bits.

        None is the library's own call of operands with these strides, the first where a vector
        begins.
        """
        self.own: dict[str, Callable[..., Any]] = {
            "addmm": lambda func, *given, **words: self.addmm(*given, **words),
            "mm": lambda func, *given: self.matmul(*given),
            "bmm": lambda func, *given: self.bmm(*given),
            "baddbmm": self.baddbmm,
            "convolution": self.convolution,
            "_convolution": self.convolution,
        }
        self.quick: dict[Any, Callable[..., Any]] = {
            functional.linear: self.linear,
            **dict.fromkeys((torch.addmm, torch.Tensor.addmm), self.addmm),
            **dict.fromkeys((torch.bmm, torch.Tensor.bmm), self.bmm),
            **dict.fromkeys((torch.mm, torch.Tensor.mm), self.matmul),
            **dict.fromkeys((torch.matmul, torch.Tensor.matmul), self.matmul),
            torch.Tensor.__matmul__: self.matmul,
            **{one: self._of_function(one, rank) for rank, one in CONVOLUTIONS.items()},
            **{one: self._of_transposed(one, rank) for rank, one in TRANSPOSED.items()},
        }

    # products of rows

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        """``functional.linear``."""
        w, b = weight, bias
        at = w.data_ptr() % ALIGNED
        key = x.shape, w.shape, x.dtype, w.dtype, b is None, at, torch.get_num_threads()
        ready = None if x.data_ptr() % ALIGNED else self.ready.get(key)
        if ready is not None and ready[0] == (x.stride(), w.stride()):
            way, flat = ready[1], x if x.dim() == 2 else x.view(-1, x.shape[-1])
            y = functional.linear(flat, w, b) if way is None else way(flat, w, b)
            return y if flat is x else y.view(*x.shape[:-1], len(w))
        if x.dtype not in FORMATS or w.dtype is not x.dtype or w.dim() != 2 or not x.numel():
            return NotImplemented
        return self.rows(x, w, b, False, key)

    def matmul(self, a: Any, b: Any, *, out: Any = None) -> Any:
        """``a @ b``: the rows of a have nothing to do with each other."""
        if out is not None or not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return NotImplemented
        at = b.data_ptr() % ALIGNED
        key = a.shape, b.shape, a.dtype, b.dtype, at, torch.get_num_threads()
        ready = None if a.data_ptr() % ALIGNED else self.ready.get(key)
        if ready is not None and ready[0] == (a.stride(), b.stride()):
            way, flat = ready[1], a if a.dim() == 2 else a.view(-1, a.shape[-1])
            y = torch.mm(flat, b) if way is None else way(flat, b, None)
            return y if flat is a else y.view(*a.shape[:-1], b.shape[1])
        if a.dtype not in FORMATS or b.dtype is not a.dtype or not a.numel() or not b.numel():
            return NotImplemented
        if b.dim() == 2 and (a.dim() == 2 or (a.dim() > 2 and a.is_contiguous())):
            return self.rows(a, b, None, True, key)
        if a.dim() == b.dim() > 2 and a.shape[:-2] == b.shape[:-2]:
            y = self.bmm(*(one.reshape(-1, *one.shape[-2:]) for one in (a, b)))
            return y.view(*a.shape[:-1], b.shape[-1])
        return NotImplemented

    def addmm(
        self, c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None
    ) -> Any:
        """``c + a @ b`` where c is a bias."""
        if out is not None or beta != 1 or alpha != 1 or a.dtype not in FORMATS:
            return NotImplemented
        if c.dim() != 1 or len(c) != b.shape[1] or not a.numel():
            return NotImplemented
        return self.rows(a, b, c.contiguous(), True, None)

    def rows(
        self, x: Any, w: Any, b: Any, turned: bool, key: Any, kinds: tuple[Any, ...] = LINEAR
    ) -> Any:
        """``x @ w.T``, or ``x @ w`` if it is ``turned``, of all rows.

        ``key``: in ``ready``; None: it is not kept there. ``kinds``: a name, and the operations
        that may be called, the first that has a class.
        """
        given, begins = (x.stride(), w.stride()), w.data_ptr()
        if w.stride() != (w.shape[1], 1):
            if w.t().is_contiguous() and 1 not in w.shape:
                w, turned, key = w.t(), not turned, None
            w = strided(w)
        channels, filters = w.shape if turned else w.shape[::-1]
        given_rows = x if x.dim() == 2 else x.reshape(-1, channels)
        rows = laid(given_rows)
        parts = channels, filters, x.dtype, b is not None, turned, misplaced(w)
        name, *calls = kinds
        way = (name, *parts, torch.get_num_threads())
        layer = self.ways.get(way)
        if layer is None:
            makes = [partial(call, *parts) for call in calls]
            known = self.met.known((name, *parts), *makes, axis="rows")
            layer = Ways(known) if turned else Layer(known, self.copies)
            self.ways[way] = layer
        y = layer(rows, w, b)
        same = rows is given_rows and rows.data_ptr() == x.data_ptr()
        self.watched.whole = same and w.data_ptr() == begins and layer.native(len(rows))
        if key is not None and same and given[1] == w.stride():
            self.ready[key] = given, None if layer.native(len(rows)) else layer
        return y if x.dim() == 2 else y.view(*x.shape[:-1], filters)

    # pairs of matrices

    def bmm(self, a: Any, b: Any, *, out: Any = None) -> Any:
        """Returns products of pairs of matrices: each pair is a sample."""
        if out is not None or a.dtype not in FORMATS or b.dtype is not a.dtype:
            return NotImplemented
        if a.dim() != 3 or b.dim() != 3 or not a.numel() or not b.numel():
            return NotImplemented
        shapes = tuple(a.shape[1:]), tuple(b.shape[1:])
        key = ("bmm", shapes, a.dtype)
        parts = "bmm", shapes, a.dtype, torch.bmm
        known = self.met.known(key, lambda: Pairs(*parts), lambda: PairsApart(*parts))
        self.met.keeper.limit_lengths(known, PAIRS)
        return known((laid(a), laid(b)))

    def baddbmm(self, func: Any, c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        """As ``bmm``, with a summand."""
        if not a.numel() or not b.numel():
            return NotImplemented
        shapes = tuple(a.shape[1:]), tuple(b.shape[1:]), (a.shape[1], b.shape[2])
        name = f"baddbmm beta={beta} alpha={alpha}"

        def function(a: Any, b: Any, c: Any, out: Any = None) -> Any:
            return torch.baddbmm(c, a, b, beta=beta, alpha=alpha, out=out)

        key = name, shapes, a.dtype
        parts = name, shapes, a.dtype, function
        known = self.met.known(key, lambda: Pairs(*parts), lambda: PairsApart(*parts))
        self.met.keeper.limit_lengths(known, PAIRS)
        full = laid(c.expand(len(a), a.shape[1], b.shape[2]))
        return known((laid(a), laid(b), full))

    # convolutions

    def _of_function(self, function: Callable[..., Any], rank: int) -> Callable[..., Any]:
        """Returns what runs ``functional.conv1d`` and the like."""

        def convolved(
            x: Any,
            weight: Any,
            bias: Any = None,
            stride: Any = 1,
            padding: Any = 0,
            dilation: Any = 1,
            groups: int = 1,
        ) -> Any:
            words = stride, padding, dilation
            return self._called(function, rank, x, weight, bias, words, (groups,))

        return convolved

    def _of_transposed(self, function: Callable[..., Any], rank: int) -> Callable[..., Any]:
        """Returns what runs ``functional.conv_transpose1d`` and the like."""

        def convolved(
            x: Any,
            weight: Any,
            bias: Any = None,
            stride: Any = 1,
            padding: Any = 0,
            output_padding: Any = 0,
            groups: int = 1,
            dilation: Any = 1,
        ) -> Any:
            words = stride, padding, output_padding
            return self._called(function, rank, x, weight, bias, words, (groups, dilation))

        return convolved

    def _called(
        self,
        function: Callable[..., Any],
        rank: int,
        x: Any,
        w: Any,
        b: Any,
        words: tuple[Any, Any, Any],
        rest: tuple[Any, ...],
    ) -> Any:
        """A call of a function of convolutions; ``rest``: groups, and of a transposed one dilation.

        The library's own function takes all of these in this order.
        """
        kinds = x.dtype, w.dtype, b is None, torch.get_num_threads()
        key = function, x.shape, w.shape, words, rest, kinds, w.data_ptr() % ALIGNED
        try:
            ready = self.ready.get(key)
        except TypeError:  # a list among the words
            return NotImplemented
        ready = None if x.data_ptr() % ALIGNED else ready
        if ready is not None and ready[0] == (x.stride(), w.stride()):
            way = ready[1]
            return function(x, w, b, *words, *rest) if way is None else way(x, w, b)
        if x.dim() != rank + 2 or any(isinstance(one, str) for one in words):
            return NotImplemented
        if x.dtype not in FORMATS or w.dtype is not x.dtype or not x.numel():
            return NotImplemented
        stride, padding, third = (_full(one, rank) for one in words)
        groups, *last = rest
        dilation, more = (_full(last[0], rank), third) if last else (third, (0,) * rank)
        x, w = laid(x), strided(w)
        way = self._way(x, w, b, stride, padding, dilation, bool(last), more, groups)
        y = way(x, w, b)
        self.ready[key] = (x.stride(), w.stride()), None if way.native(len(x)) else way
        return y

    def convolution(
        self,
        func: Any,
        x: Any,
        w: Any,
        b: Any,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
        *_: Any,
    ) -> Any:
        """Convolutions of one to three axes, along the batch."""
        if x.dtype not in FORMATS or w.dtype is not x.dtype or not x.numel():
            return NotImplemented
        x, w = laid(x), strided(w)
        way = self._way(x, w, b, stride, padding, dilation, transposed, output_padding, groups)
        return way(x, w, b)

    def _way(
        self,
        x: Any,
        w: Any,
        b: Any,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        output_padding: Sequence[int],
        groups: int,
    ) -> Ways:
        """Returns a convolution of these shapes and options."""
        words = {"stride": stride, "padding": padding, "dilation": dilation}
        words |= {"output_padding": output_padding} if transposed else {}
        given: dict[str, Any] = {name: tuple(value) for name, value in words.items()}
        given["groups"] = groups
        parts = tuple(x.shape[1:]), tuple(w.shape), x.dtype, b is not None
        at = misplaced(w)
        key = ("convolution", *parts, tuple(given.items()), transposed, at)
        way = (*key, torch.get_num_threads())
        found = self.ways.get(way)
        if found is None:
            known = self.met.known(key, lambda: Convolution(*parts, given, transposed, at))
            self.met.keeper.limit_lengths(known)
            found = self.ways[way] = (Ways if transposed else Convolved)(known)
        return found


def _full(value: Any, rank: int) -> tuple[int, ...]:
    """Returns an option of a convolution for each of its axes."""
    found = each(value, rank)
    return found * rank if len(found) == 1 else found

"""Calls of PyTorch's functions that are the library's own: found once, then made at once.

Most functions are run operation by operation, which costs more than small operations do. Where each
operation of a call was exact, or in its class at the very size and place in memory that it has, the
function's own call makes the same calls below. A call is known by all that decides this: shapes,
strides, formats and alignment of its tensors, its other arguments, and the number of threads.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from probe import ulp
from probe.invariant.keeper import Known
from probe.invariant.torch_calls import ALIGNED, FORMATS, container, strided

PLAIN = (int, float, bool, str, type(None), torch.dtype)


class Watched(threading.local):
    """What became of the operations of a function's call, in one thread.

    ``own``: all so far are the library's own calls; ``whole``: so is that which runs now.
    ``exact``: all so far were exact; ``plain``: all of the last call that was watched were.
    """

    own = whole = exact = plain = False


class Ready:
    """Operations on one tensor whose own call, of the library, is in the class as it is."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.strides: dict[Any, Any] = {}

    def __call__(self, met: Any, x: Any) -> bool:
        """Returns whether the library's own call of x is in the class: see ``note``."""
        return x.stride() == self.strides.get(met) and not x.data_ptr() % ALIGNED

    def note(self, met: Any, x: Any, known: Known, count: int) -> None:
        """Keeps the strides of x by all else that decides a call's bits, where it is one call.

        ``met``: None: only what watches this call is told.
        """
        if known.whole(count) and strided(x) is x:
            self.watched.whole = not x.data_ptr() % ALIGNED
            if met is not None:
                self.strides[met] = x.stride()


class Natives:
    """The calls that are known to be the library's own."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.known: dict[Any, bool] = {}

    def __call__(self, mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns ``func`` of its arguments, within a mode that sees its operations or alone."""
        key, watched = told(func, args, kwargs), self.watched
        watched.plain = False
        if key is not None and self.known.get(key):
            return func(*args, **kwargs)
        own, exact = watched.own, watched.exact
        watched.own = watched.exact = True
        counts = None if key is None or key in self.known else _changes(args, kwargs)
        try:
            with mode:
                found = func(*args, **kwargs)
            if counts is not None:
                same = watched.own and counts == _changes(args, kwargs)
                self.known[key] = same and _same(found, func(*args, **kwargs))
            watched.plain = watched.exact
        finally:
            watched.own, watched.exact = own and watched.own, exact and watched.exact
        return found


def told(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns a call's key; None: it has arguments of another kind."""
    parts = [func, torch.get_num_threads(), torch.is_inference_mode_enabled()]
    for one in args:
        if not _tell(one, parts):
            return None
    for name, one in kwargs.items():
        parts.append(name)
        if not _tell(one, parts):
            return None
    return tuple(parts)


def _tell(one: Any, parts: list[Any]) -> bool:
    """Adds an argument to a key. Numbers of other kinds may be equal, so the kind is told too."""
    kind = type(one)
    parts.append(kind)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if one.is_nested or one.layout is not torch.strided or one.is_conj() or one.is_neg():
            return False
        parts += one.shape, one.stride(), one.dtype, one.data_ptr() % ALIGNED
    elif kind in PLAIN:
        parts.append(one)
    elif kind in (tuple, list, torch.Size):
        parts.append(len(one))
        return all(_tell(each, parts) for each in one)
    else:
        return False
    return True


def _changes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int] | None:
    """Returns how often each tensor was changed in place; None where PyTorch does not count."""
    every = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    return None if any(one.is_inference() for one in every) else [one._version for one in every]


def _same(found: Any, again: Any) -> bool:
    """Returns whether two answers have the same tensors, bit for bit."""
    here, there = tree_leaves(found), tree_leaves(again)
    if len(here) != len(there) or not all(isinstance(one, torch.Tensor) for one in here):
        return False
    for one, other in zip(here, there, strict=True):
        if (one.shape, one.stride(), one.dtype) != (other.shape, other.stride(), other.dtype):
            return False
        if one.dtype not in FORMATS:
            if not torch.equal(one, other):
                return False
            continue
        (mine, name), (yours, _) = container(one), container(other)
        if not ulp.equal(mine, yours, name) or ulp.signed_zeros(mine, yours, name):
            return False
    return True

"""PyTorch, watched by dispatch: every ATen operation, with the path of the module that called it.

A run under a dispatch mode calls the same kernels as one without; compiled functions can't be
looked into. What an operation means stands in the table ``MEANINGS``; operations that PyTorch itself
marks as pointwise are ``Each`` without a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from probe import floats
from probe.recording.contract import INPUT, WEIGHT, Event, Seen, Visit
from probe.recording.meaning import Each, Meaning, Unknown


class Recorder:
    """A function of no arguments that computes with PyTorch."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.target = f"torch,threads={torch.get_num_threads()}"
        self.note = ""

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        with torch.no_grad():
            return [array(one) for one in tensors(self.function())]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation."""
        with torch.no_grad(), _Mode(visit):
            found = self.function()
        return [_seen(one) for one in tensors(found)]


def tensors(found: Any) -> list[torch.Tensor]:
    """The tensors in whatever a function returned, in order."""
    return [one for one in tree_flatten(found)[0] if isinstance(one, torch.Tensor)]


def array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's bits as a container array."""
    plain = tensor.detach().cpu()
    if plain.dtype == torch.bfloat16:
        return plain.contiguous().view(torch.uint16).numpy()
    return plain.resolve_conj().resolve_neg().numpy()


class _Mode(TorchDispatchMode):
    def __init__(self, visit: Visit) -> None:
        super().__init__()
        self.visit = visit
        self.kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        flat, _ = tree_flatten((args, kwargs or {}))
        reads = [one for one in flat if isinstance(one, torch.Tensor)]
        self.kept += tensors(given)
        self.visit(
            Event(
                str(func),
                "",
                [_seen(one) for one in reads],
                [_seen(one) for one in tensors(given)],
                meaning(func),
            )
        )
        return given


def _seen(tensor: torch.Tensor) -> Seen:
    role = WEIGHT if isinstance(tensor, torch.nn.Parameter) else INPUT
    return Seen(
        (id(tensor), tensor._version),
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        lambda: array(tensor),
        role,
    )


def meaning(func: Any) -> Meaning:
    if torch.Tag.pointwise in func.tags:
        return Each(word=func._schema.name)
    return Unknown("nobody said what it computes")

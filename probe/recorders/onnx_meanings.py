"""What ONNX's operators mean, and those that ONNX Runtime's optimiser makes of several.

A row a kind of operator in ``MEANINGS``, from one file a family. Sizes, axes
and indices that nodes read as inputs are known where they are constants or come from integers
alone; an operator that needs others is ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from probe.recorders.node import Call, Fact, NotSettled
from probe.recorders.onnx_functions import FUNCTIONS
from probe.recorders.onnx_layers import LAYERS
from probe.recorders.onnx_moves import MOVES
from probe.recorders.onnx_places import PLACES
from probe.recorders.onnx_products import PRODUCTS
from probe.recording.meaning import Meaning, Unknown

DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")
"""Domains in which an operator's name means what it does here."""

MEANINGS: dict[str, Callable[[Call], Meaning]] = {
    **FUNCTIONS,
    **PRODUCTS,
    **LAYERS,
    **MOVES,
    **PLACES,
}
"""Each operator's row."""


def meaning(
    op: str,
    domain: str,
    words: dict[str, Any],
    reads: Sequence[Fact | None],
    gives: Sequence[tuple[int, ...]],
    opset: int,
) -> Meaning:
    """Returns what a node computes. ``words``: its attributes; ``reads``: None where it has no such
    input; ``gives``: the shapes of its outputs; ``opset``: the version of ONNX's operators."""
    call = Call(op, domain, words, list(reads), list(gives), opset)
    row = MEANINGS.get(op)
    if row is None or domain not in DOMAINS:
        return Unknown(f"{op} is not described in probe")
    try:
        return row(call)
    except NotSettled as error:
        return Unknown(str(error))
    except (KeyError, IndexError, ValueError, TypeError):
        return Unknown(f"{op} has attributes that are not described in probe")


__all__ = ["Fact", "meaning"]

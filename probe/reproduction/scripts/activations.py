"""What stands between a network's windows as a library's user writes it: activations and scales.

Where every library has NumPy's bits, and for the reference, it is NumPy's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from probe import activations
from probe.activations import ACTIVATIONS
from probe.errors import InputError
from probe.reproduction.scripts import written
from probe.target import Target

EXACT = tuple(name for name, row in ACTIVATIONS.items() if row.roundings is not None)
"""Activations whose bits are the same in every library, as NumPy has them."""


def lines(
    target: Target, version: str, name: str, alpha: float, shape: tuple[int, ...]
) -> tuple[str, ...]:
    """The body of a function of the NumPy array ``x``, channels last, which returns another.

    ``shape``: that of x. Raises InputError where there is none.
    """
    known = [one for one in ACTIVATIONS if one not in EXACT]
    if name not in known:
        why = f"no script has it on {target.text}"
        raise InputError("activation", name, why, f"use one of {', '.join(known)}")
    if written.is_written(target):
        spec = {"op": "activation", "activation": name, "parameters": {"alpha": alpha}}
        layer = spec | {"dtype": "float32", "channels": shape[-1]}
        return written.of_layer(target, version, layer, shape, {}).body
    spelled = activations.lines(name, "numpy", alpha)
    number = ("number = x.dtype.type",) if "number(" in " ".join(spelled) else ()
    return (*number, *spelled[:-1], f"return np.asarray({spelled[-1]}, x.dtype)")


def normalisation(
    target: Target, version: str, shape: tuple[int, ...], operands: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """The same of ``x``, ``scale`` and ``shift``, a number a channel; empty: NumPy's will do.

    ``operands``: the two numbers' arrays, for libraries whose models hold them.
    """
    if not written.is_written(target):
        return ()
    layer = {"op": "normalisation", "dtype": "float32", "parameters": {}, "channels": shape[-1]}
    return written.of_layer(target, version, layer, shape, operands).body


def standard(lines: Sequence[str]) -> tuple[str, ...]:
    """Modules of Python's own that lines use."""
    return tuple(name for name in ("base64", "math") if f"{name}." in " ".join(lines))

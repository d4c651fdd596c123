"""What is said to be rounded at most once, computed so: IEEE 754 leaves no choice then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probe.semantics import Each
from probe.semantics.elementwise import row_of

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in "absolute negative sign floor ceil trunc real imag conj maximum minimum equal "
    "not_equal less less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor "
    "isnan isinf isfinite add subtract multiply divide sqrt square reciprocal".split()
} | {
    "round": np.rint,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "relu6": lambda x: np.clip(x, x.dtype.type(0), x.dtype.type(6)),
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "bitwise_not": np.invert,
}
"""NumPy's functions of correctly rounded results, by the names of ``semantics.elementwise``."""


def wrong(meaning: Any, reads: Sequence[np.ndarray], given: np.ndarray) -> bool | None:
    """Returns whether a function gives another number than the one that there is; None where it is
    not said to be exact, or has numbers of its own. Zeros of either sign are one."""
    plain = isinstance(meaning, Each) and meaning.along is None and not meaning.numbers
    if not plain or not meaning.exact or meaning.word not in FUNCTIONS:
        return None
    assert row_of(meaning.word).rounds in (0, 1)
    used = list(reads) if meaning.reads is None else [reads[n] for n in meaning.reads]
    for place, value, dtype in meaning.beside:
        if dtype == "bfloat16":
            return None
        used.insert(place, np.array(value, dtype))
    known = {one.dtype for one in used}
    # a third array would be the one that NumPy writes into
    if (
        len(used) != getattr(FUNCTIONS[meaning.word], "nin", 1)
        or len(known) > 1
        or any(one.dtype == np.uint16 for one in used)
    ):
        return None  # of two types, or of bfloat16
    with np.errstate(all="ignore"):
        try:
            wanted = np.asarray(FUNCTIONS[meaning.word](*used))
        except TypeError:  # a function of floating-point numbers, of integers
            return None
    if wanted.shape != given.shape or wanted.dtype != given.dtype:
        return None
    return not np.array_equal(wanted, given, equal_nan=wanted.dtype.kind in "fc")

"""Formulas that labels are compared with: what each element is computed of, spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from probe.semantics import Meaning
from probe.semantics.labels import Labels, of_content, of_digest, tag

POOL = np.array([0, 1.3753, -2.2591, 3.0117], np.float32)
"""Few numbers, so that different places hold the same; different sums of them are different."""


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice(POOL, shape)


def some_sizes(rng: np.random.Generator, low: int = 0, high: int = 4) -> tuple[int, ...]:
    """``low`` to ``high`` axes of one to three."""
    return tuple(rng.integers(1, 4, rng.integers(low, high + 1)).tolist())


def known(array: np.ndarray, digest: str = "") -> tuple[Labels, np.ndarray]:
    """Labels by content, or by a digest, and what they name: None of an exact zero."""
    made = np.empty(array.shape, object)
    for at in np.ndindex(*array.shape):
        long = tuple((axis, n) for axis, n in enumerate(at) if array.shape[axis] > 1)
        made[at] = (digest, long) if digest else float(array[at]) or None
    return of_digest(array.shape, digest) if digest else of_content(array), made


def result(meaning: Meaning, *reads: Any, to: tuple[int, ...] | None = None) -> Labels:
    """Labels of what is given first, of arrays by content; ``to``: its shape, if not an input's."""
    every = [each if isinstance(each, Labels) else of_content(each) for each in reads]
    return meaning.labels(every, [every[0].shape if to is None else to], tag(meaning.word))[0]


def one_to_one(found: Iterable[tuple[Labels, Any]], back: bool = True) -> None:
    """Labels are equal where formulas are equal alone, and, but for ``back``, wherever they are.
    Formulas are objects, or numbers that are equal but for rounding."""
    pairs = [(labels.full(), np.asarray(wanted)) for labels, wanted in found]
    assert all(labels.shape == wanted.shape for labels, wanted in pairs)
    every = np.concatenate([wanted.reshape(-1) for _, wanted in pairs])
    named: Sequence[Any] = every.tolist()
    if every.dtype != object:
        order = np.argsort(every)
        steps = np.diff(every[order], prepend=0) > 1e-8
        groups = np.cumsum(steps)[np.argsort(order)]
        named = [None if abs(x) < 1e-9 else n for x, n in zip(every, groups.tolist(), strict=True)]
    of_label: dict[int, Any] = {}
    of_formula: dict[Any, int] = {None: 0}
    labels = np.concatenate([labels.reshape(-1) for labels, _ in pairs]).tolist()
    for label, formula in zip(labels, named, strict=True):
        assert of_label.setdefault(label, formula) == formula, f"{formula} and {of_label[label]}"
        first = of_formula.setdefault(formula, label)
        assert first == label or not (back or formula is None), f"{formula} has two labels"
    assert len(of_formula) > 3, "hardly anything was compared"

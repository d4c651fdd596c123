"""Attention in one call, the same at every batch and at every length that is padded behind a mask.

It is not a sum of products, so nothing is certified: its bits are compared, row by row, with those
at the largest length, where the keys behind the shorter one are masked.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from probe import ulp
from probe.invariant.classes import digest
from probe.invariant.telling import spread
from probe.invariant.torch_calls import FORMATS, Tensors, container, repeated, tensor

STEP = 16  # lengths that are tried are whole multiples of it


class Lengths:
    """Self-attention of one sample and one head, by its length: an operation of ``classes``.

    The mark says that a row's bits are those at ``longest``, whatever is masked behind it.
    """

    pieces = ()

    def __init__(self, width: int, values: int, dtype: Any, words: dict[str, Any], longest: int):
        said = "".join(f" {name}={value}" for name, value in sorted(words.items()))
        self.key = f"attention of width {width}x{values} up to {longest}{said} {FORMATS[dtype]}"
        self.width, self.values, self.dtype = width, values, dtype
        self.words, self.longest = words, longest
        self._truth: dict[int, Any] = {}

    def forget(self) -> None:
        """Gives back the memory of the answers."""
        self._truth.clear()

    def telling(self, length: int) -> Tensors:
        """q, k and v of one head; those of a shorter length are the first rows of a longer one."""
        widths = self.width, self.width, self.values
        made = (spread(at, "x", (1, length, width), 4) for at, width in enumerate(widths))
        return tuple(tensor(one, self.dtype) for one in made)

    def answer(self, length: int, size: int, masked: bool = True) -> Any:
        """The rows of so many keys, computed at another size: (length, values)."""
        q, k, v = (widened(one[None, :, :length], size) for one in self.telling(length))
        masked = masked and not self.words.get("is_causal")
        mask = behind((q, k, v), length) if masked else None
        return attend(q, k, v, mask, self.words)[0, 0, :length]

    def mark(self, size: int) -> str:
        """As ``classes.Operation.mark``."""
        if size > self.longest:
            return ""
        with torch.no_grad():
            for length in sorted({1, size // 3, size // 2, size - 1, size} - {0}):
                if length not in self._truth:
                    self._truth[length] = self.answer(length, self.longest)
                for masked in (True, False)[: 1 + (length == size)]:
                    y = self.answer(length, size, masked)
                    there, wanted = container(y), container(self._truth[length])
                    if not ulp.equal(there[0], *wanted):
                        return ""
            return digest([container(self.answer(1, self.longest))])

    def run(self, size: int) -> Any:
        """One call, to be timed."""
        return self.answer(size, size)


class Heads:
    """Attention of one shape by how many heads of samples there are: (heads, rows, width)."""

    pieces = ()

    def __init__(self, shapes: tuple[tuple[int, ...], ...], dtype: Any, masked: bool, words: Any):
        said = "".join(f" {name}={value}" for name, value in sorted(words.items()))
        text = ", ".join("x".join(map(str, shape)) for shape in shapes)
        self.key = f"attention of {text}{' masked' * masked}{said} {FORMATS[dtype]}"
        self.shapes, self.dtype, self.masked, self.words = shapes, dtype, masked, words

    def forget(self) -> None:
        """There is nothing to give back."""

    def _given(self, size: int) -> Tensors:
        sample = tuple(
            tensor(spread(at, "x", shape, 4), self.dtype) for at, shape in enumerate(self.shapes)
        )
        return repeated(sample, size)

    def mark(self, size: int) -> str:
        """As ``classes.Operation.mark``; the size is samples times heads."""
        with torch.no_grad():
            return digest([container(self.run(size))])

    def run(self, size: int) -> Any:
        """One call."""
        q, k, v = (one[:, None] for one in self._given(size))
        mask = behind((q, k, v), max(1, k.shape[-2] - 3)) if self.masked else None
        return attend(q, k, v, mask, self.words)[:, 0]


def attend(q: Any, k: Any, v: Any, mask: Any, words: dict[str, Any]) -> Any:
    """The library's own call."""
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, **words)


def behind(given: Tensors, length: int) -> Any:
    """A mask (samples, 1, rows, keys) of what stands behind a length."""
    q, k, _ = given
    mask = q.new_zeros((len(q), 1, q.shape[-2], k.shape[-2]))
    mask[..., length:] = -math.inf
    return mask


def widened(x: Any, size: int) -> Any:
    """(samples, heads, size, width): zeros behind the rows there are; contiguous."""
    if x.shape[2] == size:
        return x.contiguous()
    made = x.new_zeros((*x.shape[:2], size, x.shape[3]))
    made[:, :, : x.shape[2]] = x
    return made


def masked_wide(mask: Any, q: Any, length: int, size: int) -> Any:
    """The caller's mask, additive, and -inf for the keys behind the length."""
    wide = q.new_full((len(q), 1 if mask is None else mask.shape[1], size, size), -math.inf)
    if mask is None:
        wide[..., :length] = 0
        return wide
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
    wide[:, :, :length, :length] = mask.to(q.dtype)
    wide[:, :, length:, 0] = 0  # unused rows: they attend to one place, so that no NaN arises
    return wide

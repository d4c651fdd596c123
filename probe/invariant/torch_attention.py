"""Attention in one call, the same at every batch and at every length that is padded behind a mask.

It is not a sum of products, so nothing is certified: its bits are compared, row by row, with those
at the largest length, where the keys behind the shorter one are masked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from probe import ulp
from probe.invariant.classes import mark_of_answers
from probe.invariant.telling import spread_numbers
from probe.invariant.torch_calls import (
    FORMATS,
    Tensors,
    aligned_contiguous,
    container,
    padded_samples,
    repeated,
    tensor,
)
from probe.invariant.torch_products import MetOperations

STEP = 8  # lengths that are tried are whole multiples of it
NUMBERS, SETS = 4096, 12  # in the answers of all sets of a shape's operands, and the most sets
MORE = 3  # samples that a call is padded by, where its own number has bits of its own
ROWS = 16
"""PyTorch keeps products of up to 32 rows in a buffer, one thread's behind the other's. Of so many
numbers, or a whole multiple, each begins where a vector does; MKL adds elsewhere in another order,
and a head's bits would be those of the thread that computes it."""


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

    @property
    def kept(self) -> int:
        """As ``keeper.CheckedOperation.kept``, of the answers."""
        return sum(one.numel() for one in self._truth.values())

    def forget(self) -> None:
        """Gives back the memory of the answers."""
        self._truth.clear()

    def telling(self, length: int) -> Tensors:
        """q, k and v of one head; those of a shorter length are the first rows of a longer one."""
        widths = self.width, self.width, self.values
        made = (spread_numbers(at, "x", (1, length, width), 4) for at, width in enumerate(widths))
        return tuple(tensor(one, self.dtype) for one in made)

    def answer(self, length: int, size: int, masked: bool = True) -> Any:
        """Returns the rows of that many keys, computed at another size: (length, values)."""
        q, k, v = (widened(one[None, :, :length], size) for one in self.telling(length))
        masked = masked and not self.words.get("is_causal")
        mask = mask_behind((q, k, v), length) if masked else None
        return attend(q, k, v, mask, self.words)[0, 0, :length]

    def mark(self, size: int) -> str:
        if size > self.longest:
            return ""
        with torch.no_grad():
            near = range(max(1, size - 2 * STEP), size + 1)
            for length in sorted({1, size // 3, size // 2, *near} - {0}):
                if length not in self._truth:
                    self._truth[length] = self.answer(length, self.longest)
                for masked in (True, False)[: 1 + (length == size)]:
                    y = self.answer(length, size, masked)
                    there, wanted = container(y), container(self._truth[length])
                    if not ulp.equal(there[0], *wanted):
                        return ""
            return mark_of_answers([container(self.answer(1, self.longest))])

    def ready(self, size: int) -> Callable[[], Any]:
        return lambda: self.answer(size, size)


class Heads:
    """Attention of one shape by how many heads of samples there are: (heads, rows, width).

    ``wide``: with so many rows more that they are a whole multiple of ``ROWS``.
    """

    pieces = ()

    def __init__(
        self,
        shapes: tuple[tuple[int, ...], ...],
        dtype: Any,
        masked: bool,
        words: Any,
        wide: bool = False,
    ) -> None:
        self.rows = -shapes[0][0] % ROWS if wide else 0
        said = "".join(f" {name}={value}" for name, value in sorted(words.items()))
        said += f" with {self.rows} rows more" if self.rows else ""
        text = ", ".join("x".join(map(str, shape)) for shape in shapes)
        self.key = f"attention of {text}{' masked' * masked}{said} {FORMATS[dtype]}"
        self.shapes, self.dtype, self.masked, self.words = shapes, dtype, masked, words

    kept = 0

    def forget(self) -> None:
        """There is nothing to give back."""

    def _given(self, size: int, number: int) -> Tensors:
        sample = tuple(
            tensor(spread_numbers(3 * number + at, "x", shape, 2 if number else 4), self.dtype)
            for at, shape in enumerate(self.shapes)
        )
        return repeated(sample, size)

    def mark(self, size: int) -> str:
        """As ``classes.Checkable.mark``; the size is samples times heads.

        A softmax hides most of a different order: one number of a hundred shows it. So small shapes
        are asked with several sets of operands.
        """
        numbers = self.shapes[0][0] * self.shapes[2][1]
        sets = min(SETS, max(2, math.ceil(NUMBERS / numbers)))
        with torch.no_grad():
            return mark_of_answers(container(self.ready(size, n)()[:, 0]) for n in range(sets))

    def ready(self, size: int, number: int = 0) -> Callable[[], Any]:
        q, k, v = (one[:, None] for one in self._given(size, number))
        mask = mask_behind((q, k, v), max(1, k.shape[-2] - 3)) if self.masked else None
        return lambda: attend(q, k, v, mask, self.words, self.rows)


class Attention:
    """The attention of one model."""

    def __init__(self, met: MetOperations) -> None:
        self.met = met
        self.ready: dict[Any, tuple[int, int, int]] = {}
        """The length that a call is padded to, 0 if it is not, and by how many samples and rows, by
        all that decides its bits."""

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> Any:
        """``functional.scaled_dot_product_attention``."""
        if enable_gqa and q.dim() == k.dim() == v.dim() == 4 and k.shape[1] and v.shape[1]:
            k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
            enable_gqa = False
        if attn_mask is not None and attn_mask.dim() < 4:
            attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
        shapes = q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype
        mask = None if attn_mask is None else (attn_mask.shape, attn_mask.dtype)
        met = *shapes, mask, dropout_p, is_causal, scale, enable_gqa, torch.get_num_threads()
        if met in self.ready:
            length, given = q.shape[2], {"is_causal": is_causal, "scale": scale}
            size, more, rows = self.ready[met]
            q, k, v, attn_mask = _operands_of_length(q, k, v, attn_mask, is_causal, size)
            y = padded_by(more, q, k, v, attn_mask, given, rows)
            return y if y.shape[2] == length else y[:, :, :length]
        four = all(one.dim() == 4 for one in (q, k, v)) and q.numel() and k.numel()
        same = q.shape[:2] == k.shape[:2] == v.shape[:2] and q.dtype is k.dtype is v.dtype
        if enable_gqa or dropout_p or not four or not same or q.dtype not in FORMATS:
            return NotImplemented
        if attn_mask is not None and (is_causal or attn_mask.dim() != 4):
            return NotImplemented
        words: dict[str, Any] = {"is_causal": True} if is_causal else {}
        words |= {} if scale is None else {"scale": float(scale)}
        length, size = q.shape[2], 0
        if length == k.shape[2] and length <= self.met.keeper.length:
            size = self._length(q, v, words)
        if not size and "length" in self.met.keeper.table.sizes:
            why = f"attention of {length} rows and {k.shape[2]} keys: along the batch alone"
            if self.met.keeper.strict:
                self.met.keeper.leave("attention", why)
            self.met.keeper.report.limited.setdefault(why.partition(":")[0], why)
        y, least, rows = self._heads(q, k, v, attn_mask, words, size)
        if least is not None:
            self.ready[met] = size, least, rows
        return y

    def _length(self, q: Any, v: Any, words: dict[str, Any]) -> int:
        """Returns the length that self-attention is padded to; 0: there is none."""
        longest = self.met.keeper.length
        key = ("lengths", q.shape[3], v.shape[3], q.dtype, tuple(words.items()))
        known = self.met.known(
            key,
            lambda: Lengths(q.shape[3], v.shape[3], q.dtype, words, longest),
            axis="length",
        )
        for size in (*range(-(-q.shape[2] // STEP) * STEP, longest, STEP), longest):
            if known.sizes.usable(size):
                return size
        return 0

    def _heads(
        self, q: Any, k: Any, v: Any, mask: Any, words: dict[str, Any], size: int
    ) -> tuple[Any, int | None, int]:
        """Returns the attention, by how many samples it is padded so that all heads have the same
        bits (None: there is no such number), and by how many rows."""
        length, count, heads = q.shape[2], q.shape[0] * q.shape[1], q.shape[1]
        q, k, v, mask = _operands_of_length(q, k, v, mask, "is_causal" in words, size)
        shapes = tuple(tuple(one.shape[2:]) for one in (q, k, v))
        parts = shapes, q.dtype, mask is not None
        key = ("heads", *parts, tuple(words.items()))
        ways = (False, True) if shapes[0][0] % ROWS else (False,)
        known = self.met.known(key, *(partial(Heads, *parts, words, wide) for wide in ways))
        rows = cast("Heads", known.run.operation).rows
        every = (more for more in range(MORE + 1) if known.sizes.usable(count + more * heads))
        least: int | None = next(every, None)
        if least is None:
            self.met.keeper.leave(known.run.operation.key, f"{count} heads of samples differ")
        y = padded_by(least or 0, q, k, v, mask, words, rows)
        return y[:, :, :length], least, rows


def _operands_of_length(
    q: Any, k: Any, v: Any, mask: Any, is_causal: bool, size: int
) -> tuple[Any, ...]:
    """Returns the operands of a call of that length, or of their own if it is 0."""
    length = q.shape[2]
    if size and (size != length or mask is not None):
        mask = None if is_causal else masked_wide(mask, q, length, size)
    if size:
        q, k, v = (widened(one, size) for one in (q, k, v))
    return aligned_contiguous(q), aligned_contiguous(k), aligned_contiguous(v), mask


def padded_by(
    more: int, q: Any, k: Any, v: Any, mask: Any, words: dict[str, Any], rows: int
) -> Any:
    """As ``attend``, with that many copies of the first sample behind."""
    if not more:
        return attend(q, k, v, mask, words, rows)
    count = len(q)
    q, k, v = (padded_samples(one, count + more) for one in (q, k, v))
    if mask is not None and len(mask) == count > 1:
        mask = padded_samples(mask, count + more)
    return attend(q, k, v, mask, words, rows)[:count]


def attend(q: Any, k: Any, v: Any, mask: Any, words: dict[str, Any], rows: int = 0) -> Any:
    """Returns the library's own call; ``rows``: so many more than there are."""
    length = q.shape[-2]
    if rows:
        q = pad(q, (0, 0, 0, rows))
        if mask is not None and mask.shape[-2] == length > 1:
            fill = True if mask.dtype is torch.bool else 0.0
            mask = pad(mask, (0, 0, 0, rows), value=fill)
    y = scaled_dot_product_attention(q, k, v, attn_mask=mask, **words)
    return y[..., :length, :] if rows else y


def mask_behind(given: Tensors, length: int) -> Any:
    """Returns a mask (samples, 1, rows, keys) of what stands behind a length."""
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
    """Returns the caller's mask, additive, and -inf for the keys behind the length."""
    if mask is None:
        wide = q.new_full((len(q), 1, size, size), -math.inf)
        wide[..., :length] = 0
        return wide
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
    mask, more = mask.to(q.dtype).expand(len(q), -1, length, length), size - length
    if not more:
        return mask.contiguous()
    wide = pad(mask, (0, more, 0, more), value=-math.inf)
    wide[:, :, length:, 0] = 0  # unused rows: they attend to one place, so that no NaN arises
    return wide

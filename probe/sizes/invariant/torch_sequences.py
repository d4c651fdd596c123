"""PyTorch's layers of sequences: attention and recurrent layers, along the batch.

Attention in one call is the same at every batch, and at every length that is padded behind a mask.
It is not a sum of products, so it has no order: its bits are compared, row by row, with those
at the largest length, where the keys behind the shorter one are masked. One query behind the keys
of a cache has the bits of the last row of the whole, as of so many rows that the library multiplies
them as it does those.

Of recurrent layers the batch is the second axis. Those of an LSTM are given to oneDNN, each in one
call. Of a GRU and a plain one each step is some twelve operations, of which the mode makes as many
calls; so the batch is filled up, and the state widened by zeros, where that helps, until all of
them are the library's own, and then it is the library's own call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import Parameter
from torch.nn.functional import pad, scaled_dot_product_attention

from probe.case import ulp
from probe.sizes.invariant.classes import mark_of_answers
from probe.sizes.invariant.keeper import Keeper
from probe.sizes.invariant.operations import spread_numbers
from probe.sizes.invariant.torch_calls import (
    FORMATS,
    Tensors,
    TorchSamples,
    TorchTestedRows,
    aligned_contiguous,
    container,
    padded_samples,
    tensor,
)
from probe.sizes.invariant.torch_products import MetOperations

STEP = 8  # lengths that are tried are whole multiples of it
BLOCKS = (16, 64, 128, 512)  # keys of a cache, of which PyTorch takes 512 at a time
HALF_HEADS = 16  # heads of bfloat16 and float16 that are compared at once
NUMBERS, SETS = 4096, 12  # in the answers of all sets of a shape's operands, and the most sets
# Samples that a call is padded by, where its own number has bits of its own.
MORE = 3
# PyTorch keeps products of up to 32 rows in a buffer, one thread's behind the other's. Of so many
# numbers, or a whole multiple, each begins where a vector does; MKL adds elsewhere in another
# order, and a head's bits would be those of the thread that computes it.
ROWS = 16


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
        """As ``IndependentRows.kept``, of the answers."""
        return sum(map(torch.numel, self._truth.values()))

    def forget(self) -> None:
        self._truth.clear()

    @property
    def heads(self) -> int:
        """Heads of other numbers that are compared: few digits round most of another order away."""
        return 1 if torch.finfo(self.dtype).bits > 16 else HALF_HEADS

    def telling(self, length: int) -> Tensors:
        """q, k and v, (heads, length, width); those of a shorter length are the first rows of a
        longer one."""
        widths = self.width, self.width, self.values
        drawn = (
            np.concatenate(
                [
                    spread_numbers(3 * head + at, "x", (1, length, width), 2 if head else 4)
                    for head in range(self.heads)
                ]
            )
            for at, width in enumerate(widths)
        )
        return tuple(tensor(values, self.dtype) for values in drawn)

    def answer(self, length: int, size: int, masked: bool = True) -> Any:
        """The rows of that many keys, computed at another size: (heads, length, values)."""
        q, k, v = (widened(x[None, :, :length], size) for x in self.telling(length))
        masked = masked and not self.words.get("is_causal")
        mask = mask_behind((q, k, v), length) if masked else None
        return attend((q, k, v), mask, self.words)[0, :, :length]

    def truth(self, length: int) -> Any:
        """What ``answer`` gives at the longest size."""
        return self.answer(length, self.longest)

    def mark(self, size: int) -> str:
        if size > self.longest:
            return ""
        with torch.no_grad():
            near = range(max(1, size - 2 * STEP), size + 1)
            for length in sorted({1, size // 3, size // 2, *near} - {0}):
                if length not in self._truth:
                    self._truth[length] = self.truth(length)
                for masked in (True, False)[: 1 + (length == size)]:
                    y = self.answer(length, size, masked)
                    there, wanted = container(y), container(self._truth[length])
                    if not ulp.equal(there[0], *wanted):
                        return ""
            return mark_of_answers([container(self.answer(1, self.longest)[:1])])

    def ready(self, size: int) -> Callable[[], Any]:
        return lambda: self.answer(size, size)


class CacheSteps(Lengths):
    """Up to ``rows`` queries behind the keys of a cache, by how many keys there are.

    The mark says that their bits are those of the last rows of the whole, under a causal mask, at
    ``longest``: a single row, or two, would be added in another order.
    """

    def __init__(self, *parts: Any, rows: int = 1) -> None:
        super().__init__(*parts)
        self.rows = rows
        some = "one query" if rows == 1 else f"up to {rows} queries"
        self.key = f"{some} behind a cache: {self.key}"
        self._whole: list[Any] = []

    def forget(self) -> None:
        super().forget()
        self._whole.clear()

    def truth(self, length: int) -> Any:
        if not self._whole:
            q, k, v = (x[None] for x in self.telling(self.longest))
            self._whole.append(attend((q, k, v), None, self.words | {"is_causal": True})[0])
        return self._whole[0][:, length - min(length, self.rows) : length]

    def answer(self, length: int, size: int, masked: bool = True) -> Any:
        count = min(length, self.rows)
        q, k, v = (x[None, :, :length] for x in self.telling(length))
        wide = aligned_contiguous(q[:, :, -count:]), widened(k, size), widened(v, size)
        mask = mask_behind(wide, length) if masked or count > 1 else None
        if mask is not None and count > 1:
            late = torch.ones(count, size, dtype=torch.bool).triu(length - count + 1)
            mask = mask.masked_fill(late, -math.inf)
        more = self.rows + -self.rows % ROWS - count
        return attend(wide, mask, self.words, more)[0]


class Heads(TorchSamples):
    """Attention of one shape by how many heads of samples there are: (heads, rows, width).

    ``wide``: with so many rows more that they are a whole multiple of ``ROWS``. A softmax hides
    most of a different order: one number of a hundred shows it.
    """

    enough, most = NUMBERS, SETS

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
        super().__init__(f"attention{' masked' * masked}{said}", shapes, dtype, attend)
        self.masked, self.words = masked, words

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        """As of ``TestedRows``; keys that are masked hide the order in which the others are added:
        few are, or none."""
        sample = tuple(
            tensor(spread_numbers(3 * number + at, "x", shape, 2 if number else 4), self.dtype)
            for at, shape in enumerate(self.shapes)
        )
        keys = self.shapes[1][0]
        behind = torch.zeros(keys, dtype=self.dtype)
        behind[max(1, keys - number % 4) :] = -math.inf
        return sample, (behind,)

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        q, k, v = (x[:, None] for x in samples)
        mask = parameters[0].expand(len(q), 1, q.shape[2], k.shape[2]).contiguous()
        return attend((q, k, v), mask if self.masked else None, self.words, self.rows)[:, 0]


class Attention:
    """The attention of one model."""

    def __init__(self, met: MetOperations) -> None:
        self.met = met
        self.ready: dict[Any, tuple[int, int, int]] = {}
        """The length that a call is padded to, 0 if it is not, and by how many samples and rows, by
        all that decides its bits."""
        self.masks: dict[Any, Any] = {}
        """Of steps behind a cache, which are called again and again: what hides further keys."""

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
        if enable_gqa and q.dim() == k.dim() == v.dim() == 4 and k.shape[1] and v.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            enable_gqa = False
        if attn_mask is not None and attn_mask.dim() < 4:
            attn_mask = attn_mask[(None,) * (4 - attn_mask.dim())]
        shapes = q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype
        mask = None if attn_mask is None else (attn_mask.shape, attn_mask.dtype)
        met = *shapes, mask, dropout_p, is_causal, scale, enable_gqa, torch.get_num_threads()
        if met in self.ready:
            length, options = q.shape[2], {"is_causal": is_causal, "scale": scale}
            size, more, rows = self.ready[met]
            attn_mask = self.masks.get(met, attn_mask)
            q, k, v, attn_mask = _operands_of_length(q, k, v, attn_mask, is_causal, size)
            y = attend((q, k, v), attn_mask, options, rows, more)
            return y if y.shape[2] == length else y[:, :, :length]
        four = all(x.dim() == 4 for x in (q, k, v)) and q.numel() and k.numel()
        same = q.shape[:2] == k.shape[:2] == v.shape[:2] and q.dtype is k.dtype is v.dtype
        if enable_gqa or dropout_p or not four or not same or q.dtype not in FORMATS:
            return NotImplemented
        if attn_mask is not None and (is_causal or attn_mask.dim() != 4):
            return NotImplemented
        words: dict[str, Any] = {"is_causal": True} if is_causal else {}
        words |= {} if scale is None else {"scale": float(scale)}
        length, size = q.shape[2], 0
        alike = length == k.shape[2] or (length < k.shape[2] and not is_causal)
        if alike and k.shape[2] <= self.met.keeper.length:
            size = self._length(q, k, v, words)
        if not size and "length" in self.met.keeper.table.sizes:
            self._limit(length, k.shape[2])
        y, least, rows = self._heads(q, k, v, attn_mask, words, size)
        if least is not None:
            self.ready[met] = size, least, rows
            if attn_mask is None and length == 1 and size > k.shape[2]:
                self.masks[met] = masked_wide(None, q, k.shape[2], size)
        return y

    def _limit(self, length: int, keys: int) -> None:
        """Notes that lengths are not covered. NotInvariant: ``strict``."""
        # of a cache each step has another number of keys
        what = (
            f"attention of {length} rows and {keys} keys" if length > 1 else "a step behind a cache"
        )
        why = f"{what}: along the batch alone"
        if length == 1 and self.met.keeper.length % ROWS:
            why += f"; let the largest length be a multiple of {ROWS}"
        if self.met.keeper.strict:
            self.met.keeper.leave("attention", why)
        self.met.keeper.report.limited.setdefault(what, why)

    def _length(self, q: Any, k: Any, v: Any, words: dict[str, Any]) -> int:
        """The number of keys that a call is padded to, of self-attention that of queries too; 0:
        there is none."""
        longest, keys = self.met.keeper.length, k.shape[2]
        kind = Lengths if q.shape[2] == keys else CacheSteps
        parts = q.shape[3], v.shape[3], q.dtype
        key: tuple[Any, ...] = (kind, *parts, tuple(words.items()))
        make = partial(kind, *parts, words, longest)
        if kind is CacheSteps and q.shape[2] > 1:  # of a draft or a piece of a prompt
            rows = q.shape[2] + -q.shape[2] % ROWS
            key, make = (*key, rows), partial(CacheSteps, *parts, words, longest, rows=rows)
        ready = self.met.ready(key, make, axis="length")
        tried = [*range(-(-keys // STEP) * STEP, longest, STEP)]
        if kind is CacheSteps:  # each step has another number: few sizes are tried for all of them
            tried = [-(-keys // each) * each for each in BLOCKS]
        usable = (size for size in (*tried, longest) if ready.sizes.usable(size))
        return next(usable, 0)

    def _heads(
        self, q: Any, k: Any, v: Any, mask: Any, words: dict[str, Any], size: int
    ) -> tuple[Any, int | None, int]:
        """The attention, by how many samples it is padded so that all heads have the same
        bits (None: there is no such number), and by how many rows."""
        length, count, heads = q.shape[2], q.shape[0] * q.shape[1], q.shape[1]
        q, k, v, mask = _operands_of_length(q, k, v, mask, "is_causal" in words, size)
        shapes = tuple(tuple(x.shape[2:]) for x in (q, k, v))
        parts = shapes, q.dtype, mask is not None
        key: tuple[Any, ...] = ("heads", *parts, tuple(words.items()))
        ways = (False, True) if shapes[0][0] % ROWS else (False,)
        if size and shapes[0][0] < size:  # as ``CacheSteps`` asks
            key, ways = (*key, ROWS), (True,)
        ready = self.met.ready(key, *(partial(Heads, *parts, words, wide) for wide in ways))
        rows = ready.operation.rows
        every = (more for more in range(MORE + 1) if ready.sizes.usable(count + more * heads))
        least: int | None = next(every, None)
        if size and not ready.sizes.usable(1):  # lengths are compared of one head
            self._limit(length, k.shape[2])
        if least is None:
            self.met.keeper.leave(ready.operation.key, f"{count} heads of samples differ")
        y = attend((q, k, v), mask, words, rows, least or 0)
        return y[:, :, :length], least, rows


def _operands_of_length(
    q: Any, k: Any, v: Any, mask: Any, is_causal: bool, size: int
) -> tuple[Any, ...]:
    """The operands of a call of that length, or of their own if it is 0."""
    length = k.shape[2]
    if size and (size != length or mask is not None):
        ready = mask is not None and mask.shape[-1] == size > length
        mask = None if is_causal else mask if ready else masked_wide(mask, q, length, size)
    if size:
        k, v = widened(k, size), widened(v, size)
        q = widened(q, size) if q.shape[2] == length else q
    return aligned_contiguous(q), aligned_contiguous(k), aligned_contiguous(v), mask


def attend(qkv: Tensors, mask: Any, words: dict[str, Any], rows: int = 0, more: int = 0) -> Any:
    """The library's own call; ``rows``: so many more than there are; ``more``: so many
    copies of the first sample behind."""
    q, k, v = qkv
    count, length = len(q), q.shape[-2]
    if more:
        q, k, v = (padded_samples(x, count + more) for x in qkv)
        if mask is not None and len(mask) == count > 1:
            mask = padded_samples(mask, count + more)
    if rows:
        q = pad(q, (0, 0, 0, rows))
        if mask is not None and mask.shape[-2] == length > 1:
            fill = True if mask.dtype is torch.bool else 0.0
            mask = pad(mask, (0, 0, 0, rows), value=fill)
    y = scaled_dot_product_attention(q, k, v, attn_mask=mask, **words)
    y = y.narrow(-2, 0, length) if rows else y
    return y[:count] if more else y


def mask_behind(qkv: Tensors, length: int) -> Any:
    """A mask (samples, 1, rows, keys) of what stands behind a length."""
    q, k, _ = qkv
    mask = q.new_zeros((len(q), 1, q.shape[-2], k.shape[-2]))
    mask[..., length:] = -math.inf
    return mask


def widened(x: Any, size: int) -> Any:
    """(samples, heads, size, width): zeros behind the rows there are; contiguous."""
    more = size - x.shape[2]
    return (pad(x, (0, 0, 0, more)) if more else x).contiguous()


def masked_wide(mask: Any, q: Any, length: int, size: int) -> Any:
    """The caller's mask, additive, and -inf for the keys behind the length; with as many
    further rows as keys where it has one row for each."""
    rows, more = q.shape[2], size - length
    further = more if rows == length else 0
    if mask is None:
        wide = q.new_full((len(q), 1, rows + further, size), -math.inf)
        wide[..., :length] = 0
        return wide
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
    mask = mask.to(q.dtype).expand(len(q), -1, rows, length)
    if not more:
        return mask.contiguous()
    wide = pad(mask, (0, more, 0, further), value=-math.inf)
    wide[:, :, rows:, 0] = 0  # unused rows: they attend to one place, so that no NaN arises
    return wide


class Recurrent(TorchTestedRows):
    """A layer in one direction: x (samples, steps, channels), and both states (samples, width).

    ``options``: all that oneDNN is told behind the states.
    """

    def __init__(
        self, shape: Sequence[int], weights: Sequence[Any], dtype: Any, options: Sequence[Any]
    ) -> None:
        self.shapes = [tuple(shape) for shape in weights]
        self.width, self.options = self.shapes[1][1], tuple(options)
        said = " ".join(map(str, options))
        super().__init__(
            f"LSTM {'x'.join(map(str, shape))} -> {self.width} {said} {FORMATS[dtype]}"
        )
        self.shape, self.dtype = tuple(shape), dtype

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        """As ``TorchTestedRows.drawn``: sums that are small, so that no gate is saturated."""
        shapes = [self.shape, (self.width,), (self.width,)]
        samples = (spread_numbers(number, "x", shape, 2) / 2 for shape in shapes)
        held = (
            spread_numbers(3 * at + number, "w", shape, 4) / (2 * shape[-1]) ** 0.5
            for at, shape in enumerate(self.shapes)
        )
        x, w = (tuple(tensor(x, self.dtype) for x in values) for values in (samples, held))
        return x, w

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        """A row of the answer has all steps, and both states at the end."""
        x, h, c = samples
        steps = aligned_contiguous(x.transpose(0, 1))
        y, h, c, _ = torch.ops.aten.mkldnn_rnn_layer(steps, *parameters, h, c, *self.options)
        rows = y.transpose(0, 1).flatten(1), *(state.view(len(x), -1) for state in (h, c))
        return torch.cat(rows, 1)


FILLED = (2, 4, 8, 16, 32)  # a batch is filled up to a whole multiple of one of these
# Bytes of two vectors of AVX-512. PyTorch takes two at a time where it computes a function of each
# element; a state of whole pairs has no elements behind them, which would get different bits.
WIDE = 128

# By functions whose states are finite where their inputs are: they may be widened by zeros.
GATES = {torch.gru: 3, torch.rnn_tanh: 1, torch.lstm: 4}


# Behind the weights: biases, layers, dropout, training, both directions, and whether the batch is
# first; packed sequences have their weights there.
OPTIONS = 6


class RecurrentSteps:
    """``torch.gru``, ``rnn_tanh``, ``rnn_relu`` or ``lstm`` of whole batches.

    ``run(function, args)``: within the mode, or by the library's own call where it has the same
    bits, which it tells beside the result.
    """

    def __init__(
        self, function: Any, keeper: Keeper, run: Callable[[Any, Tensors], tuple[Any, bool]]
    ) -> None:
        self.function, self.keeper, self.run = function, keeper, run
        self.filled: dict[Any, tuple[int, int]] = {}

    def __call__(self, x: Any, hx: Any, weights: Any, *options: Any) -> Any:
        """As the function. NotImplemented: there are no samples, or no batch.

        PyTorch adds the first products to a bias where the steps lie behind each other in memory,
        and a bias to the products elsewhere. Samples that lie behind each other are the latter, but
        a single one is both: so one is never run alone.
        """
        if len(options) != OPTIONS:
            return NotImplemented
        _, _, _, train, _, batch_first = options
        if not isinstance(weights, list | tuple) or train or not x.numel() or x.dim() != 3:
            return NotImplemented
        axis = 0 if batch_first else 1
        states = hx if isinstance(hx, list | tuple) else (hx,)
        kinds = [(operand.shape, operand.dtype) for operand in (x, *states, *weights)]
        key = *kinds, options, torch.get_num_threads()
        x, states = aligned_contiguous(x), tuple(map(aligned_contiguous, states))
        if key in self.filled:
            return self._run(x, states, weights, options, *self.filled[key])[0]
        count, width = x.shape[axis], states[0].shape[-1]
        # an LSTM without a projection is given to oneDNN; where it isn't after all, it is reported
        alike = len(states) > 1 and states[0].shape[-1] == states[1].shape[-1]
        formats = torch.float32, torch.bfloat16
        whole = alike and torch.backends.mkldnn.enabled and x.dtype in formats
        least = max(count, 2) if batch_first and not whole else count
        tried = sorted({least, *(-(-count // step) * step for step in FILLED)})
        more = -width % (WIDE // x.element_size())
        ways = [(size, 0) for size in tried[: 1 if whole else None]]
        if more and not whole and self.function in GATES and states[-1].shape[-1] == width:
            ways = [(size, more) for size in tried]
            self._run(x, states, weights, options, least, 0)  # as samples of NaN are run
            note = f"{self.function.__name__}: {width} numbers of a state are computed as "
            note += f"{width + more}, and some get bits that the unchanged model does not give"
            if self.keeper.table.like == "largest" and note not in self.keeper.table.notes:
                self.keeper.table.notes.append(note)
        for way in ways:
            answer, own = self._run(x, states, weights, options, *way)
            if own:
                break
        else:
            way = least, 0
            answer, _ = self._run(x, states, weights, options, *way)
        self.filled[key] = way
        return answer

    def _run(
        self, x: Any, states: Tensors, weights: Any, options: Any, size: int, more: int
    ) -> tuple[Any, bool]:
        """A call of that many samples with that many zeros behind each state, and whether
        it is the library's own.

        A state of zeros stays one. A sample whose input is infinite makes NaN of it, and is run
        without.
        """
        axis, width = 0 if options[-1] else 1, states[0].shape[-1]
        count, directions = x.shape[axis], 1 + bool(options[4])
        # at::matmul multiplies all rows at once by weights that require gradients, of which there
        # are none here, and sample by sample by others, whose shape has then the batch: should_fold
        held = [w if w.requires_grad else Parameter(w) for w in weights]
        if more:
            gates, each = GATES[self.function], 2 * (1 + options[0])
            held = _widened_weights(weights, gates, directions, each, more)
        wide = tuple(pad(state, (0, more)) for state in states) if more else states
        h = tuple(_filled_up(state, 1, size) for state in wide)
        called = _filled_up(x, axis, size), h if len(h) > 1 else h[0], held, *options
        (y, *last), own = self.run(self.function, called)
        if size > count:
            y, last = y.narrow(axis, 0, count), [state[:, :count] for state in last]
        if more:
            odd = last[0].isnan().any(2).any(0)
            y = y.unflatten(-1, (directions, -1))[..., :width].flatten(-2)
            last = [state[..., :width].contiguous() for state in last]
            if odd.any():
                (at,) = odd.nonzero(as_tuple=True)
                some = (
                    x.index_select(axis, at),
                    tuple(state.index_select(1, at) for state in states),
                )
                (part, *ends), _ = self._run(*some, weights, options, max(len(at), 2), 0)
                y = y.index_copy(axis, at, part)
                last = [state.index_copy(1, at, end) for state, end in zip(last, ends, strict=True)]
        return (y, *last), own


def _widened_weights(weights: Any, gates: int, directions: int, each: int, more: int) -> list[Any]:
    """The weights of all layers for states with that many zeros behind.

    ``each``: how many there are of a layer in one direction: of its input, of its state, biases.
    """
    wide = []
    for number, w in enumerate(weights):
        rows = w.view(gates, -1, *w.shape[1:])
        if number % each > 1:
            rows = pad(rows, (0, more))
        elif number % each or number >= each * directions:  # columns of a state, or of several
            parts = 1 if number % each else directions
            rows = pad(rows.unflatten(-1, (parts, -1)), (0, more, 0, 0, 0, more)).flatten(-2)
        else:
            rows = pad(rows, (0, 0, 0, more))
        wide.append(Parameter(rows.flatten(0, 1)))  # it requires gradients: see ``_run``
    return wide


def _filled_up(x: Any, axis: int, size: int) -> Any:
    """A batch with copies of its first sample behind the others."""
    shape, more = list(x.shape), size - x.shape[axis]
    shape[axis] = more
    return torch.cat((x, x.narrow(axis, 0, 1).expand(shape)), axis) if more else x


def mkldnn_rnn_layer(met: MetOperations, x: Any, *rest: Any) -> Any:
    """What ``aten::mkldnn_rnn_layer`` does; x (steps, samples, channels)."""
    (*weights, h, c), options = rest[:6], rest[6:]
    if options[1] or options[-1] or x.dtype not in FORMATS or not x.numel():
        return NotImplemented  # of packed sequences, or for training
    if any(w.dtype is not x.dtype for w in rest[:6]) or h.shape[1:] != weights[1].shape[1:]:
        return NotImplemented
    steps, count, channels = x.shape
    shapes = tuple(tuple(w.shape) for w in weights)
    key = "LSTM", steps, channels, shapes, x.dtype, str(options)
    ready = met.ready(key, lambda: Recurrent((steps, channels), shapes, x.dtype, options))
    met.keeper.limit_lengths(ready)
    rows = ready(
        (aligned_contiguous(x.transpose(0, 1)), aligned_contiguous(h), aligned_contiguous(c)),
        tuple(map(aligned_contiguous, weights)),
    )
    y, *states = rows.split([steps * h.shape[1], h.shape[1], h.shape[1]], 1)
    y = y.reshape(count, steps, -1).transpose(0, 1).contiguous()
    return y, *(state.reshape(h.shape) for state in states), x.new_empty(0)

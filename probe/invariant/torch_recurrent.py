"""Recurrent layers: along the batch, which is their second axis.

Those of an LSTM are given to oneDNN, each in one call. Of a GRU and a plain one each step is some
twelve operations, of which the mode makes as many calls; so the batch is filled up, and the state
widened by zeros, where that helps, until all of them are the library's own, and then it is the
library's own call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import pad

from probe.invariant.keeper import Keeper
from probe.invariant.telling import spread_numbers
from probe.invariant.torch_calls import (
    FORMATS,
    Tensors,
    TorchTestedRows,
    aligned_contiguous,
    tensor,
)
from probe.invariant.torch_products import MetOperations


class Recurrent(TorchTestedRows):
    """A layer in one direction: x (samples, steps, channels), and both states (samples, width).

    ``options``: all that oneDNN is told behind the states.
    """

    def __init__(
        self, shape: Sequence[int], weights: Sequence[Any], dtype: Any, options: Sequence[Any]
    ) -> None:
        self.shapes = [tuple(one) for one in weights]
        self.width, self.options = self.shapes[1][1], tuple(options)
        said = " ".join(map(str, options))
        super().__init__(
            f"LSTM {'x'.join(map(str, shape))} -> {self.width} {said} {FORMATS[dtype]}"
        )
        self.shape, self.dtype = tuple(shape), dtype

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        """As ``TorchTestedRows.drawn``: sums that are small, so that no gate is saturated."""
        shapes = [self.shape, (self.width,), (self.width,)]
        samples = [spread_numbers(number, "x", one, 2) / 2 for one in shapes]
        held = [
            spread_numbers(3 * at + number, "w", one, 4) / (2 * one[-1]) ** 0.5
            for at, one in enumerate(self.shapes)
        ]
        return (
            tuple(tensor(one, self.dtype) for one in samples),
            tuple(tensor(one, self.dtype) for one in held),
        )

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        """As ``Rows.call``; a row has all steps, and both states at the end."""
        x, h, c = samples
        given = aligned_contiguous(x.transpose(0, 1)), *parameters, h, c, *self.options
        y, h, c, _ = torch.ops.aten.mkldnn_rnn_layer(*given)
        rows = y.transpose(0, 1).flatten(1), *(one.view(len(x), -1) for one in (h, c))
        return torch.cat(rows, 1)


FILLED = (2, 4, 8, 16, 32)  # a batch is filled up to a whole multiple of one of these
WIDE = 128
"""Bytes of two vectors of AVX-512. PyTorch takes two at a time where it computes a function of each
element; a state of whole pairs has no elements behind them, which would get different bits."""

GATES = {torch.gru: 3, torch.rnn_tanh: 1, torch.lstm: 4}
"""By functions whose states are finite where their inputs are: they may be widened by zeros."""


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

    def __call__(
        self,
        x: Any,
        hx: Any,
        weights: Any,
        has_biases: Any,
        layers: Any = None,
        dropout: Any = None,
        train: Any = None,
        bidirectional: Any = None,
        batch_first: Any = None,
    ) -> Any:
        """As the function. NotImplemented: there are no samples, or no batch.

        PyTorch adds the first products to a bias where the steps lie behind each other in memory,
        and a bias to the products elsewhere. Samples that lie behind each other are the latter, but
        a single one is both: so one is never run alone.
        """
        if isinstance(hx, torch.Tensor) and not hx.is_floating_point():  # how many there are a step
            rest = has_biases, layers, dropout, train, bidirectional, batch_first  # one behind
            return self._packed(x, hx, weights, rest)
        if not isinstance(weights, list | tuple) or train or not x.numel() or x.dim() != 3:
            return NotImplemented
        axis = 0 if batch_first else 1
        options = has_biases, layers, dropout, train, bidirectional, batch_first
        states = hx if isinstance(hx, list | tuple) else (hx,)
        kinds = [(one.shape, one.dtype) for one in (x, *states, *weights)]
        key = *kinds, options, torch.get_num_threads()
        x, states = aligned_contiguous(x), tuple(map(aligned_contiguous, states))
        if key in self.filled:
            size, more = self.filled[key]
            found, _ = self._run(x, states, weights, options, size, more)
            return found
        count, width = x.shape[axis], states[0].shape[-1]
        whole = len(states) > 1 and _by_onednn(x, states)
        least = max(count, 2) if batch_first and not whole else count
        tried = sorted({least, *(-(-count // one) * one for one in FILLED)})
        more = -width % (WIDE // x.element_size())
        ways = [(size, 0) for size in tried[: 1 if whole else None]]
        if more and not whole and self.function in GATES and states[-1].shape[-1] == width:
            ways = [(size, more) for size in tried]
            self._run(x, states, weights, options, least, 0)  # as samples of NaN are run
            note = f"{self.function.__name__}: {width} numbers of a state are computed as "
            note += f"{width + more}, and some get bits that the unchanged model does not give"
            if self.keeper.table.like == "largest" and note not in self.keeper.table.notes:
                self.keeper.table.notes.append(note)
        for size, more in ways:
            found, own = self._run(x, states, weights, options, size, more)
            if own:
                break
        else:
            size, more = least, 0
            found, _ = self._run(x, states, weights, options, size, more)
        self.filled[key] = size, more
        return found

    def _packed(self, data: Any, sizes: Any, hx: Any, rest: Tensors) -> Any:
        """As the function, of packed sequences: the samples of a step, then those of the next.

        Where all have one length PyTorch may call oneDNN, which adds differently. So one more is
        put before them, a step longer.
        """
        if rest[-2] or not data.numel():
            return NotImplemented
        states, counts = hx if isinstance(hx, list | tuple) else (hx,), sizes.tolist()
        steps = [part for one in data.split(counts) for part in (one[:1], one)]
        states = tuple(torch.cat((one[:, :1], one), 1) for one in states)
        more = torch.tensor([*(one + 1 for one in counts), 1])
        given = states if len(states) > 1 else states[0]
        (y, *last), _ = self.run(self.function, (torch.cat([*steps, data[:1]]), more, given, *rest))
        kept = [one[1:] for one in y.split(more.tolist())]
        return torch.cat(kept), *(one[:, 1:].contiguous() for one in last)

    def _run(
        self, x: Any, states: Tensors, weights: Any, options: Any, size: int, more: int
    ) -> tuple[Any, bool]:
        """Returns a call of that many samples with that many zeros behind each state, and whether
        it is the library's own.

        A state of zeros stays one. A sample whose input is infinite makes NaN of it, and is run
        without.
        """
        axis, width = 0 if options[-1] else 1, states[0].shape[-1]
        count, directions = x.shape[axis], 1 + bool(options[4])
        given, held = states, _requiring_gradients(weights)
        if more:
            given = tuple(pad(one, (0, more)) for one in states)
            held = _widened_weights(
                weights, GATES[self.function], directions, 2 * (1 + options[0]), more
            )
        given = tuple(_filled_up(one, 1, size) for one in given)
        called = _filled_up(x, axis, size), given if len(given) > 1 else given[0], held, *options
        (y, *last), own = self.run(self.function, called)
        if size > count:
            y, last = y.narrow(axis, 0, count), [one[:, :count] for one in last]
        if more:
            odd = last[0].isnan().any(2).any(0)
            y = y.unflatten(-1, (directions, -1))[..., :width].flatten(-2)
            last = [one[..., :width].contiguous() for one in last]
            if odd.any():
                (at,) = odd.nonzero(as_tuple=True)
                some = x.index_select(axis, at), tuple(one.index_select(1, at) for one in states)
                (part, *ends), _ = self._run(*some, weights, options, max(len(at), 2), 0)
                y = y.index_copy(axis, at, part)
                last = [one.index_copy(1, at, end) for one, end in zip(last, ends, strict=True)]
        return (y, *last), own


def _requiring_gradients(weights: Any) -> list[Any]:
    """Returns weights that require gradients, of which there are none here.

    ``at::matmul`` multiplies all rows at once by these, and sample by sample by others, whose
    shape has then the batch (``should_fold``).
    """
    return [one if one.requires_grad else torch.nn.Parameter(one) for one in weights]


def _widened_weights(weights: Any, gates: int, directions: int, each: int, more: int) -> list[Any]:
    """Returns the weights of all layers for states with that many zeros behind.

    ``each``: how many there are of a layer in one direction: of its input, of its state, biases.
    """
    made = []
    for number, w in enumerate(weights):
        rows = w.view(gates, -1, *w.shape[1:])
        if number % each > 1:
            rows = pad(rows, (0, more))
        elif number % each or number >= each * directions:  # columns of a state, or of several
            parts = 1 if number % each else directions
            rows = pad(rows.unflatten(-1, (parts, -1)), (0, more, 0, 0, 0, more)).flatten(-2)
        else:
            rows = pad(rows, (0, 0, 0, more))
        made.append(torch.nn.Parameter(rows.flatten(0, 1)))  # see ``_requiring_gradients``
    return made


def _by_onednn(x: Any, states: Tensors) -> bool:
    """Returns whether an LSTM is given to oneDNN; where it isn't after all, it is reported."""
    alike = states[0].shape[-1] == states[1].shape[-1]  # no projection
    return alike and torch.backends.mkldnn.enabled and x.dtype in (torch.float32, torch.bfloat16)


def _filled_up(x: Any, axis: int, size: int) -> Any:
    """Returns a batch with copies of its first sample behind the others."""
    shape, more = list(x.shape), size - x.shape[axis]
    shape[axis] = more
    return torch.cat((x, x.narrow(axis, 0, 1).expand(shape)), axis) if more else x


def mkldnn_rnn_layer(met: MetOperations, x: Any, *given: Any) -> Any:
    """Returns what ``aten::mkldnn_rnn_layer`` does; x (steps, samples, channels)."""
    *weights, h, c = given[:6]
    options = given[6:]
    if options[1] or options[-1] or x.dtype not in FORMATS or not x.numel():
        return NotImplemented  # of packed sequences, or for training
    if any(one.dtype is not x.dtype for one in given[:6]) or h.shape[1:] != weights[1].shape[1:]:
        return NotImplemented
    steps, count, channels = x.shape
    shapes = tuple(tuple(one.shape) for one in weights)
    key = "LSTM", steps, channels, shapes, x.dtype, str(options)
    known = met.known(key, lambda: Recurrent((steps, channels), shapes, x.dtype, options))
    met.keeper.limit_lengths(known)
    rows = known(
        (aligned_contiguous(x.transpose(0, 1)), aligned_contiguous(h), aligned_contiguous(c)),
        tuple(map(aligned_contiguous, weights)),
    )
    y, *states = rows.split([steps * h.shape[1], h.shape[1], h.shape[1]], 1)
    y = y.reshape(count, steps, -1).transpose(0, 1).contiguous()
    return y, *(one.reshape(h.shape) for one in states), x.new_empty(0)

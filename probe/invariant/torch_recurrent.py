"""Recurrent layers: along the batch, which is their second axis.

Those of an LSTM are given to oneDNN, each in one call. Of a GRU and a plain one each step is some
twelve operations, of which the mode makes as many calls; so the batch is filled up, where that
helps, to one at which all of them are the library's own, and then it is the library's own call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from probe.invariant.telling import spread
from probe.invariant.torch_calls import FORMATS, Asked, Tensors, laid, tensor
from probe.invariant.torch_products import Met


class Recurrent(Asked):
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
        """As ``Asked.drawn``: sums that are small, so that no gate is saturated."""
        shapes = [self.shape, (self.width,), (self.width,)]
        samples = [spread(number, "x", one, 2) / 2 for one in shapes]
        held = [
            spread(3 * at + number, "w", one, 4) / (2 * one[-1]) ** 0.5
            for at, one in enumerate(self.shapes)
        ]
        return (
            tuple(tensor(one, self.dtype) for one in samples),
            tuple(tensor(one, self.dtype) for one in held),
        )

    def call(self, samples: Tensors, parameters: Tensors, out: Any = None) -> Any:
        """As ``Rows.call``; a row has all steps, and both states at the end."""
        x, h, c = samples
        given = laid(x.transpose(0, 1)), *parameters, h, c, *self.options
        y, h, c, _ = torch.ops.aten.mkldnn_rnn_layer(*given)
        rows = y.transpose(0, 1).flatten(1), *(one.view(len(x), -1) for one in (h, c))
        return torch.cat(rows, 1)


FILLED = (2, 4, 8, 16, 32)  # a batch is filled up to a whole multiple of one of these


class Steps:
    """``torch.gru``, ``rnn_tanh``, ``rnn_relu`` or ``lstm`` of whole batches.

    ``run(function, args)``: within the mode, or by the library's own call where it has the same
    bits, which it tells beside the result.
    """

    def __init__(self, function: Any, run: Callable[[Any, Tensors], tuple[Any, bool]]) -> None:
        self.function, self.run = function, run
        self.filled: dict[Any, int] = {}

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
        """As the function. NotImplemented: of packed sequences, or there are no samples.

        PyTorch adds the first products to a bias where the steps lie behind each other in memory,
        and a bias to the products elsewhere. Samples that lie behind each other are the latter, but
        a single one is both: so one is never run alone.
        """
        if not isinstance(weights, list | tuple) or train or not x.numel() or x.dim() != 3:
            return NotImplemented
        axis = 0 if batch_first else 1
        options = has_biases, layers, dropout, train, bidirectional, batch_first
        states = hx if isinstance(hx, list | tuple) else (hx,)
        kinds = [(one.shape, one.dtype) for one in (x, *states, *weights)]
        key = *kinds, options, torch.get_num_threads()
        count, size = x.shape[axis], self.filled.get(key)
        x, states = laid(x), tuple(map(laid, states))

        def given(size: int) -> Tensors:
            wide = tuple(_wide(one, 1, size) for one in states)
            return _wide(x, axis, size), wide if len(wide) > 1 else wide[0], weights, *options

        if size is not None:
            found, _ = self.run(self.function, given(size))
        else:
            whole = len(states) > 1 and _by_onednn(x, states)
            least = max(count, 2) if batch_first and not whole else count
            tried = sorted({least, *(-(-count // one) * one for one in FILLED)})
            for size in tried[: 1 if whole else None]:
                found, own = self.run(self.function, given(size))
                if own:
                    break
            else:
                size = least
                found, _ = self.run(self.function, given(size))
            self.filled[key] = size
        if size == count:
            return found
        y, *states = found
        return y.narrow(axis, 0, count), *(one[:, :count] for one in states)


def _by_onednn(x: Any, states: Tensors) -> bool:
    """Returns whether an LSTM is given to oneDNN; where it isn't after all, it is reported."""
    alike = states[0].shape[-1] == states[1].shape[-1]  # no projection
    return alike and torch.backends.mkldnn.enabled and x.dtype in (torch.float32, torch.bfloat16)


def _wide(x: Any, axis: int, size: int) -> Any:
    """Returns a batch with copies of its first sample behind the others."""
    shape, more = list(x.shape), size - x.shape[axis]
    shape[axis] = more
    return torch.cat((x, x.narrow(axis, 0, 1).expand(shape)), axis) if more else x


def mkldnn_rnn_layer(met: Met, x: Any, *given: Any) -> Any:
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
    rows = known((laid(x.transpose(0, 1)), laid(h), laid(c)), tuple(map(laid, weights)))
    y, *states = rows.split([steps * h.shape[1], h.shape[1], h.shape[1]], 1)
    y = y.reshape(count, steps, -1).transpose(0, 1).contiguous()
    return y, *(one.reshape(h.shape) for one in states), x.new_empty(0)

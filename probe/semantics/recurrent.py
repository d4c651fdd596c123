"""Recurrent layers, written once as the steps of their cells: LSTM, GRU and plain RNN.

The rows of a layer's weights are known by the gate that they belong to, not by their place, so that
libraries which keep gates in different orders compute the same; and each step is labelled as the
operations are of a library that computes it by sums, products and functions, one by one, in a loop
or in a ``scan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from probe.semantics import mixing
from probe.semantics.contract import Meaning, Shapes
from probe.semantics.elementwise import applied
from probe.semantics.labels import Labels, tag
from probe.semantics.moving import Joins, Picks, Turns
from probe.semantics.sums import Contracts, Scans

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": "n"}
"""Letters of each cell's gates: input, forget, cell, output; reset, update, new."""

MOST_STEPS, MOST_WEIGHTS = 1 << 11, 1 << 17
"""Steps, and weights between states, up to which a layer is labelled step by step, each state by
itself: some 5 ms a step, and a pair of labels for each weight and sample where weights are known by
their numbers. Larger ones have a label a step and sample, as only the same layer has."""


@dataclass(frozen=True)
class Recurs(Meaning):
    """A recurrent layer in one direction, of (length, batch, features), or with the batch first.

    ``reads``: numbers of the input, the weights (gates * cells, features) and (gates * cells,
    cells), the biases of either, (gates * cells,), the first states, (batch, cells), and an LSTM's
    first cells; -1 of one that is zero. ``gates``: the letters of ``GATES`` in the order of the
    weights' rows. ``resets_after``: a GRU resets what the states were multiplied by, not the
    states. It gives the states of all steps, then the last ones, then an LSTM's last cells.
    """

    word: str = "rnn"
    gates: str = "n"
    reads: tuple[int, ...] = (0, 1, 2)
    axis: int = 0
    reverse: bool = False
    resets_after: bool = True
    activation: str = "tanh"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        one, inner, outer, *rest = [reads[n] if n >= 0 else None for n in self.reads]
        assert one is not None and inner is not None and outer is not None
        if self.axis:
            one = _only(Turns((1, 0, 2)), [one], (one.shape[1], one.shape[0], one.shape[2]))
        length, batch, _ = one.shape
        rows = outer.shape[0]
        if length > MOST_STEPS or prod(outer.shape) > MOST_WEIGHTS:
            return self._whole(reads, shapes)
        none = (batch, outer.shape[1])
        zero = Labels(none, np.zeros(none, np.uint64))
        own, other, state, cell, *_ = (*rest, None, None)
        state, cell = state or zero, cell or zero
        given = _only(Contracts("abk,nk->abn"), [one, inner], (length, batch, rows))
        given = given if own is None else applied("add", given, own)
        found: list[Labels] = [zero] * length
        for step in range(length)[:: -1 if self.reverse else 1]:
            now = _only(Picks(axis=0, index=np.asarray(step)), [given], (batch, rows))
            state, cell = self._stepped(now, outer, other, state, cell)
            found[step] = state
        made = (*one.shape[:2], outer.shape[1])
        every = _only(Joins(0, stacked=True), found, made)
        if self.axis:
            every = _only(Turns((1, 0, 2)), [every], (batch, length, made[2]))
        known = mixing.known([reads[n] for n in self.reads if n >= 0])
        ends = [every, state, cell]
        given_shapes = enumerate(shapes)
        return [
            mixing.reshaped(ends[n], to)._replace(known=known)
            if n < len(ends)
            else mixing.of_one(mixing.whole(ends, tag(n)), to, known)
            for n, to in given_shapes
        ]

    def _whole(self, reads: Sequence[Labels], shapes: Shapes) -> list[Labels]:
        given = [reads[n] for n in self.reads[:5] if n >= 0]
        states = [reads[n] for n in self.reads[5:] if n >= 0]
        numbers = (self.gates, self.resets_after, self.activation, *(n < 0 for n in self.reads))
        own = tuple(range(len(given), len(given) + len(states)))
        scan = Scans(self.axis, self.word, self.reverse, (2,), numbers, own, batch=1 - self.axis)
        return scan.labels([*given, *states], shapes, tag(self.word))

    def _stepped(
        self, now: Labels, outer: Labels, other: Labels | None, state: Labels, cell: Labels
    ) -> tuple[Labels, Labels]:
        """Returns the next states and cells. ``now``: what is made of a step's input."""
        if self.word == "gru":
            return self._gated(now, outer, other, state), cell
        gates = applied("add", now, _product(state, outer, other))
        if self.word == "rnn":
            return applied(self.activation, gates), cell
        i, f, g, o = (self._gate(gates, letter) for letter in "ifgo")
        kept = applied("multiply", applied("sigmoid", f), cell)
        added = applied("multiply", applied("sigmoid", i), applied("tanh", g))
        cell = applied("add", kept, added)
        return applied("multiply", applied("sigmoid", o), applied("tanh", cell)), cell

    def _gated(self, now: Labels, outer: Labels, other: Labels | None, state: Labels) -> Labels:
        """A GRU's next states, ``(state - new) * update + new``, as PyTorch computes them."""
        before = _product(state, outer, other)
        both = {x: (self._gate(now, x), self._gate(before, x)) for x in "rzn"}
        reset, update = (applied("sigmoid", applied("add", *both[x])) for x in "rz")
        if self.resets_after:
            remembered = applied("multiply", reset, both["n"][1])
        else:
            rows = self._gate(outer, "n", 0)
            bias = None if other is None else self._gate(other, "n")
            remembered = _product(applied("multiply", reset, state), rows, bias)
        new = applied("tanh", applied("add", both["n"][0], remembered))
        return applied("add", applied("multiply", applied("subtract", state, new), update), new)

    def _gate(self, one: Labels, letter: str, axis: int = -1) -> Labels:
        axis %= len(one.shape)
        size = one.shape[axis] // len(self.gates)
        start = self.gates.index(letter) * size
        shape = tuple(size if a == axis else n for a, n in enumerate(one.shape))
        return _only(Picks(axis=axis, index=np.arange(start, start + size)), [one], shape)


def _only(meaning: Meaning, reads: Sequence[Labels], shape: tuple[int, ...]) -> Labels:
    return meaning.labels(reads, [shape], tag(meaning.word))[0]


def _product(state: Labels, outer: Labels, other: Labels | None) -> Labels:
    shape = (state.shape[0], outer.shape[0])
    found = _only(Contracts("bk,nk->bn"), [state, outer], shape)
    return found if other is None else applied("add", found, other)

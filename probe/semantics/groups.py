"""What reads a whole group of elements and is at the place of one: norms, softmax, attention; and
recurrent layers, as the steps of their cells: LSTM, GRU and plain RNN.

Each is labelled as the operations are of a library that computes it by sums, products and
functions, one by one. The rows of a recurrent layer's weights are known by the gate that they
belong to, not by their place, so that libraries which keep gates in different orders compute the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from probe.semantics import mixing
from probe.semantics.contract import LeavesZeros, Meaning, Shapes
from probe.semantics.elementwise import TRUE, Vanishes, applied, fitted, is_one, is_zero, of_float
from probe.semantics.labels import ZERO, Labels, joint, of_content, tag, with_words
from probe.semantics.moving import Joins, Picks, Turns
from probe.semantics.sums import Contracts, Maximum, Reduces, Scans, numbered

# What subtracts a mean (but an RMSNorm), divides by a root mean square, scales and shifts.
NORMS = ("layer_norm", "rms_norm", "group_norm", "instance_norm")


def exponentials(
    scores: Labels, axes: tuple[int, ...], zeros: np.ndarray | None
) -> tuple[Labels, Labels, Labels]:
    """Returns what a softmax computes: its input without the largest, their exponentials, and the
    sum of these. ``zeros``: which of them add nothing."""
    small = tuple(1 if a in axes else n for a, n in enumerate(scores.shape))
    (most,) = Maximum(axes, "max", True).labels([scores], [small], tag("max"), zeros)
    less = applied("subtract", scores, most)
    (powers,) = Vanishes("exp").labels([less], [scores.shape], tag("exp"), zeros)
    return less, powers, _one_result(Reduces(axes, "sum", True, True), [powers], small)


def _one_result(meaning: Meaning, reads: Sequence[Labels], shape: tuple[int, ...]) -> Labels:
    return meaning.labels(reads, [shape], tag(meaning.word))[0]


@dataclass(frozen=True)
class Normalises(LeavesZeros):
    """Every output reads all elements along ``axes``, and is at the place of one: softmax,
    LayerNorm.

    What is read besides (scales) broadcasts, from the last axis, or lies along ``along``.
    ``vanishes``: outputs that are exactly zero are left out of their group, as what a mask hides
    is in a softmax. ``groups``: (axis, n): that axis in n parts, each for itself: GroupNorm.
    ``apart``: nothing is left out along ``along``: as in an InstanceNorm, where that axis is the
    batch times the channels, and a batch of 1 has to have the labels of a batch of 8.
    """

    axes: tuple[int, ...]
    word: str = ""
    numbers: tuple[Any, ...] = ()
    vanishes: bool = False
    along: int | None = None
    groups: tuple[int, int] | None = None
    apart: bool = False

    @property
    def notices(self) -> bool:  # type: ignore[override]
        return self.vanishes

    def labels(
        self,
        reads: Sequence[Labels],
        shapes: Shapes,
        what: np.uint64,
        zeros: np.ndarray | None = None,
    ) -> list[Labels]:
        if self.word in ("softmax", "log_softmax"):
            return [fitted(self._softmax(reads[0], zeros), shapes[0], 0)]
        reads, numbers = self._needed(reads)
        source, axes, rank = self._split(reads[0])
        if self.apart and self.along is not None:
            source = source._replace(array=source.full([self.along % rank]))
        if self.word in NORMS:
            result, mean, root = self._steps(source, axes)
            beside = [root] if self.word == "rms_norm" else [mean, root]
        else:
            what = with_words(what, numbers)
            sizes = tag(*(source.shape[a] for a in axes))
            source = source._replace(array=mixing.visible(source.array))
            group = joint(mixing.reduce(source, axes, True), sizes)
            result = source._replace(array=joint(source.array, group, what))
            means = tuple(1 if a in axes else n for a, n in enumerate(source.shape))
            beside = [Labels(means, joint(group, what), source.known, source.names)]
        labels = mixing.reshape_labels(result, reads[0].shape)
        axis = (rank - 1 if self.along is None else self.along) % max(rank, 1)
        scales = [mixing.lay_along(other, axis, rank) for other in reads[1:]]
        if self.word in NORMS:
            # a scale and a shift, as far as it has them
            both = zip(("multiply", "add"), numbers[1:], strict=True)
            words = [word for word, has in both if has]
            for word, other in zip(words, scales, strict=False):
                labels = applied(word, labels, other)
        elif scales:
            shape, arrays, names = mixing.broadcast_labels([labels, *scales])
            labels = Labels(shape, joint(what, *arrays), mixing.all_known(reads), names)
        every = enumerate(shapes[1:], 1)
        return [labels] + [_beside(beside[min(n, len(beside)) - 1], to, n) for n, to in every]

    def _softmax(self, scores: Labels, zeros: np.ndarray | None) -> Labels:
        axes = tuple(axis % max(len(scores.shape), 1) for axis in self.axes)
        for beta in self.numbers:
            scores = applied("multiply", scores, of_float(beta))
        less, powers, total = exponentials(scores, axes, zeros)
        if self.word == "softmax":
            return applied("divide", powers, total)
        return applied("subtract", less, applied("log", total))

    def _steps(self, source: Labels, axes: tuple[int, ...]) -> tuple[Labels, Labels, Labels]:
        """Returns what is left without the mean over its root mean square; the mean; the root's
        reciprocal. As a library has them that computes them one by one."""
        small = tuple(1 if a in axes else n for a, n in enumerate(source.shape))

        def mean(of: Labels) -> Labels:
            return _one_result(Reduces(axes, "mean", True), [of], small)

        middle = mean(source)
        source = source if self.word == "rms_norm" else applied("subtract", source, middle)
        eps = self.numbers[0]
        number = Labels((), np.asarray(tag("eps"))) if eps is None else of_float(eps)
        root = applied("rsqrt", applied("add", mean(applied("square", source)), number))
        return applied("multiply", source, root), middle, root

    def _needed(self, reads: Sequence[Labels]) -> tuple[Sequence[Labels], tuple[Any, ...]]:
        """Returns what counts: a scale of ones and a shift of zeros, as files have them of norms
        without any, are none. A norm's numbers are eps, and whether it has them."""
        flags = self.numbers[1:]
        named = len(flags) == 2 and all(isinstance(flag, bool) for flag in flags)
        if not named or len(reads) - 1 != sum(flags):
            return reads, self.numbers
        counted, needed, sides = [reads[0]], [], iter(reads[1:])
        for flag, same in zip(flags, (is_one, is_zero), strict=True):
            side = next(sides) if flag else None
            needed.append(side is not None and not same(side))
            counted += [side] if side is not None and needed[-1] else []
        return counted, (self.numbers[0], *needed)

    def _split(self, source: Labels) -> tuple[Labels, tuple[int, ...], int]:
        rank = len(source.shape)
        axes = tuple(sorted(axis % rank for axis in self.axes if rank))
        if self.groups is None:
            return source, axes, rank
        axis, count = self.groups
        size = source.shape[axis] // count
        to = (*source.shape[:axis], count, size, *source.shape[axis + 1 :])
        inside = tuple(a + 1 if a >= axis else a for a in axes)
        return mixing.reshape_labels(source, to), inside, rank


def _beside(labels: Labels, to: tuple[int, ...], number: int) -> Labels:
    """Returns the labels of what is given beside a result: of a norm its means and deviations, of
    attention the sums of its softmax; of what has another size, as the seeds of dropout, one."""
    if prod(to) == prod(labels.shape):
        return fitted(labels, to, number)
    return mixing.of_one(mixing.one_label([labels], tag(number)), to, labels.known)


@dataclass(frozen=True)
class Attends(Meaning):
    """Attention: queries (..., L, E), keys (..., S, E), values (..., S, F), and perhaps a mask
    that is added to the scores (..., L, S) or, as bool, says which of them are seen.

    What the mask hides by minus infinity or the lowest number of its format adds nothing.
    ``causal``: query n sees keys up to n. ``numbers``: the scale. Where there are fewer heads (the
    third axis from the end) of keys and values than of queries, neighbouring queries share one.
    """

    causal: bool = False
    numbers: tuple[Any, ...] = ()
    word: str = "attention"
    boolean: bool = False
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        letters = "ABCDEFGH"[: len(reads[0].shape) - 2]
        queries, axis, shared = reads[0], len(reads[0].shape) - 3, []
        for part in reads[1:3]:  # a head of keys and values for every head of the queries
            if axis >= 0 and part.shape[axis] != queries.shape[axis]:
                heads = queries.shape[axis]
                shape = (*part.shape[:axis], heads, *part.shape[axis + 1 :])
                array = np.repeat(part.full((axis,)), heads // part.shape[axis], axis)
                part = part._replace(shape=shape, array=array)
            shared.append(part)
        keys, values = shared
        product = Contracts(f"{letters}le,{letters}se->{letters}ls")
        shape = (*queries.shape[:-1], keys.shape[-2])
        scores = _one_result(product, [queries, keys], shape)
        for scale in self.numbers:
            scores = applied("multiply", scores, of_float(scale))
        scores, hidden = self._masked(scores, reads[3:])
        _, powers, total = exponentials(scores, (len(shape) - 1,), hidden)
        chances = applied("divide", powers, total)
        product = Contracts(f"{letters}ls,{letters}sf->{letters}lf")
        result = _one_result(product, [chances, values], shapes[0])
        known = mixing.all_known(reads)
        sums = mixing.reshape_labels(total, total.shape[:-1])._replace(known=known)
        every = enumerate(shapes[1:], 1)
        return [result._replace(known=known)] + [_beside(sums, to, n) for n, to in every]

    def _masked(self, scores: Labels, masks: Sequence[Labels]) -> tuple[Labels, np.ndarray]:
        """Scores with the mask added, and which of them are hidden."""
        scores = scores._replace(array=scores.full())
        hidden = np.zeros((1, 1), bool)
        if self.causal:
            hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        for mask in masks:
            mask = mask._replace(array=mask.full())
            hides = np.isin(mask.array, ZERO if self.boolean else lowest(self.dtype))
            hidden = hidden | mixing.lifted(mask._replace(array=hides), len(scores.shape)).array
            if not self.boolean:
                scores = applied("add", scores, mask)
        # a row of which all is hidden hides nothing: the softmax of equal numbers gives each its
        # share
        hidden = hidden & ~hidden.all(-1, keepdims=True)
        shape = np.broadcast_shapes(hidden.shape, scores.array.shape)
        return scores, np.broadcast_to(hidden, shape)


def lowest(dtype: str) -> np.ndarray:
    """Labels of what a mask has where nothing is seen."""
    if dtype == "bfloat16":
        return of_content(np.array([0xFF80, 0xFF7F], np.uint16)).array
    return of_content(np.array([-np.inf, np.finfo(dtype).min], dtype)).array


@dataclass(frozen=True)
class Encodes(Meaning):
    """A layer of an encoder in one piece: (batch, length, features) to the same, where each
    position reads itself and, by attention, all positions of its row that the mask shows.

    ``mask``: the number of the input that hides, or None: (batch, length) if ``rows``, else
    (length, length): as bool where true, or as numbers of ``dtype`` by minus infinity.
    """

    word: str = ""
    numbers: tuple[Any, ...] = ()
    mask: int | None = None
    rows: bool = True
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        rest = [read for n, read in enumerate(reads[1:], 1) if n != self.mask]
        own = mixing.reduce(reads[0]._replace(array=numbered(reads[0], (2,))), (2,), True)
        own = reads[0]._replace(array=own, shape=(*reads[0].shape[:2], 1)).full([0, 1])
        seen = np.swapaxes(own, 1, 2)
        if self.mask is not None:
            mask = reads[self.mask].full()
            mask = mask[:, None, :] if self.rows else mask[None]
            hides = (mask == TRUE) if self.dtype == "bool" else np.isin(mask, lowest(self.dtype))
            seen = np.where(hides, ZERO, np.where(mask == ZERO, seen, joint(seen, mask)))
        group = mixing.summed(mixing.scattered(seen), (2,), True)
        label = joint(own, group, mixing.one_label(rest, what), tag(self.numbers))
        names = (0, 1, ("mixed", 2))
        result = Labels(reads[0].shape, label, mixing.all_known(reads), names)
        return [fitted(result, to, n) for n, to in enumerate(shapes)]


# recurrent layers


# Letters of each cell's gates: input, forget, cell, output; reset, update, new.
GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": "n"}

# Steps, and weights between states, up to which a layer is labelled step by step, each state by
# itself: some 5 ms a step, and a pair of labels for each weight and sample where weights are known
# by their numbers. Larger ones have a label a step and sample, as only the same layer has.
MOST_STEPS, MOST_WEIGHTS = 1 << 11, 1 << 17


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
        source, inner, outer, *rest = [reads[n] if n >= 0 else None for n in self.reads]
        assert source is not None and inner is not None and outer is not None
        if self.axis:
            batch, length, features = source.shape
            source = _one_result(Turns((1, 0, 2)), [source], (length, batch, features))
        length, batch, _ = source.shape
        rows = outer.shape[0]
        if length > MOST_STEPS or prod(outer.shape) > MOST_WEIGHTS:
            return self._whole(reads, shapes)
        none = (batch, outer.shape[1])
        zero = Labels(none, np.zeros(none, np.uint64))
        # a GRU and a plain layer have no cells: what is read ends before them
        own, other, state, cell, *_ = (*rest, None, None)
        state, cell = state or zero, cell or zero
        inputs = _one_result(Contracts("abk,nk->abn"), [source, inner], (length, batch, rows))
        inputs = inputs if own is None else applied("add", inputs, own)
        states: list[Labels] = [zero] * length
        for step in range(length)[:: -1 if self.reverse else 1]:
            now = _one_result(Picks(axis=0, index=np.asarray(step)), [inputs], (batch, rows))
            state, cell = self._stepped(now, outer, other, state, cell)
            states[step] = state
        every = _one_result(Joins(0, stacked=True), states, (length, *none))
        if self.axis:
            every = _one_result(Turns((1, 0, 2)), [every], (batch, length, none[1]))
        known = mixing.all_known([reads[n] for n in self.reads if n >= 0])
        ends = [every, state, cell]
        return [
            mixing.reshape_labels(ends[n], to)._replace(known=known)
            if n < len(ends)
            else mixing.of_one(mixing.one_label(ends, tag(n)), to, known)
            for n, to in enumerate(shapes)
        ]

    def _whole(self, reads: Sequence[Labels], shapes: Shapes) -> list[Labels]:
        inputs = [reads[n] for n in self.reads[:5] if n >= 0]
        states = [reads[n] for n in self.reads[5:] if n >= 0]
        numbers = (self.gates, self.resets_after, self.activation, *(n < 0 for n in self.reads))
        own = tuple(range(len(inputs), len(inputs) + len(states)))
        scan = Scans(self.axis, self.word, self.reverse, (2,), numbers, own, batch=1 - self.axis)
        return scan.labels([*inputs, *states], shapes, tag(self.word))

    def _stepped(
        self, now: Labels, outer: Labels, other: Labels | None, state: Labels, cell: Labels
    ) -> tuple[Labels, Labels]:
        """Returns the next states and cells. ``now``: what is made of a step's input."""
        if self.word == "gru":
            return self._gated(now, outer, other, state), cell
        gates = applied("add", now, _times_state(state, outer, other))
        if self.word == "rnn":
            return applied(self.activation, gates), cell
        i, f, g, o = (self._gate(gates, letter) for letter in "ifgo")
        remembered = applied("multiply", applied("sigmoid", f), cell)
        added = applied("multiply", applied("sigmoid", i), applied("tanh", g))
        cell = applied("add", remembered, added)
        return applied("multiply", applied("sigmoid", o), applied("tanh", cell)), cell

    def _gated(self, now: Labels, outer: Labels, other: Labels | None, state: Labels) -> Labels:
        """A GRU's next states, ``(state - new) * update + new``, as PyTorch computes them."""
        before = _times_state(state, outer, other)
        both = {x: (self._gate(now, x), self._gate(before, x)) for x in "rzn"}
        reset, update = (applied("sigmoid", applied("add", *both[x])) for x in "rz")
        if self.resets_after:
            remembered = applied("multiply", reset, both["n"][1])
        else:
            rows = self._gate(outer, "n", 0)
            bias = None if other is None else self._gate(other, "n")
            remembered = _times_state(applied("multiply", reset, state), rows, bias)
        new = applied("tanh", applied("add", both["n"][0], remembered))
        return applied("add", applied("multiply", applied("subtract", state, new), update), new)

    def _gate(self, labels: Labels, letter: str, axis: int = -1) -> Labels:
        axis %= len(labels.shape)
        size = labels.shape[axis] // len(self.gates)
        start = self.gates.index(letter) * size
        shape = tuple(size if a == axis else n for a, n in enumerate(labels.shape))
        return _one_result(Picks(axis=axis, index=np.arange(start, start + size)), [labels], shape)


def _times_state(state: Labels, outer: Labels, other: Labels | None) -> Labels:
    shape = (state.shape[0], outer.shape[0])
    product = _one_result(Contracts("bk,nk->bn"), [state, outer], shape)
    return product if other is None else applied("add", product, other)

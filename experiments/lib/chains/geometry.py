"""Computes which activations depend on data, which the runs share, and how far to pad.

Content of n positions stands at the beginning; padding of one value follows. An activation of the
short run (padded to a length L) is that of the full run if every element that it reads, through
all layers, is the same one or the same padding; so the activations are followed through the chain
as masks, exactly, whatever the padding conventions: where SAME with a stride puts other zeros
before another length, partners shift or there are none. With finite windows alone the same
question has an answer on paper (Araujo, Norris, Sim, "Computing Receptive Fields of Convolutional
Neural Networks", Distill 2019): field r, jump j, start s, which ``windows`` gives.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from probe.errors import InputError

if TYPE_CHECKING:
    from lib.chains.chain import Layer, Network

NEVER = np.iinfo(np.int64).max
"""The lowest content position read by what reads none."""

PAD, OUTSIDE = -1, -2
"""What a window reads beside elements: padding, or (pooling in ceil mode) what lies beyond it."""

Agrees = Callable[[int, int, int], "np.ndarray | None"]
"""(number of a layer, length of its input, shift) -> which outputs o of the layer it computes as
output o + shift of the full run, bool (outputs,); None: all."""


@dataclass(frozen=True)
class ReceptiveField:
    """The receptive window of one layer's outputs along the length, in positions of the input.

    Output o reads no position outside [start + o * jump, start + o * jump + field); ``outputs``
    is how many there are. ``own``: what the layer itself spans.
    """

    layer: str
    own: int
    field: int
    jump: int
    start: int
    outputs: int


@dataclass(frozen=True)
class Requirement:
    """What content of ``content`` positions takes at a padded length.

    ``padded``: the length; ``outputs``: what the full run has. Of these ``reading`` read content;
    they are among the first ``kept``, which the short run has at ``[offset + first, offset +
    kept)``; ``first`` is 0 unless padding before the content makes outputs of its own. The other
    ``tail`` outputs of the full run read padding alone, whatever the content is.
    """

    content: int
    padded: int
    outputs: int
    reading: int
    first: int
    kept: int
    offset: int

    @property
    def tail(self) -> int:
        """Returns outputs of the full run behind those that are kept."""
        return self.outputs - self.kept


@dataclass(frozen=True)
class Shared:
    """Activations of one layer that a short run shares with the full one.

    Activation o of the short run is o + ``shift`` of the full run where ``same[o]``. ``shift`` is
    None where there are no partners: the padding before differs by no multiple of the stride.
    """

    same: np.ndarray
    shift: int | None

    @property
    def whole(self) -> bool:
        """Returns whether all activations are shared, at their own index."""
        return self.shift == 0 and bool(self.same.all())

    def pairs(self, ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns what both runs share of a layer's (1, *height, positions, channels) arrays."""
        if self.shift is None:
            return ours[..., :0, :], theirs[..., :0, :]
        if self.whole:
            return ours, np.ascontiguousarray(theirs[..., : ours.shape[-2], :])
        kept = np.flatnonzero(self.same)
        mine = np.ascontiguousarray(ours[..., kept, :])
        return mine, np.ascontiguousarray(theirs[..., kept + self.shift, :])


def reads(layer: Layer, size: int) -> np.ndarray:
    """Returns what each output of a layer reads along the length: (outputs, leaves) int64.

    Positions of the layer's input, or ``PAD`` and ``OUTSIDE``.
    """
    after, index = layer.windows.around(-1, size)[1], layer.windows.reads(-1, size)
    index = np.where((index < 0) | ((index >= size) & (index < size + after)), PAD, index)
    return np.where(index >= size, OUTSIDE, index)


def lengths(network: Network, length: int) -> list[int]:
    """Returns positions along the length of the input and behind every layer."""
    return [sizes[-1] for sizes in network.sizes(length)]


def windows(network: Network, length: int) -> list[ReceptiveField]:
    """Returns ``Network.windows``; a layer that reads one position has its input's window."""
    found, field, jump, start = [], 1, 1, 0
    sizes = lengths(network, length)
    for layer, size, outputs in zip(network.layers, sizes, sizes[1:], strict=False):
        own, stride = layer.windows.extents[-1], layer.windows.stride[-1]
        before = layer.windows.around(-1, size)[0]
        start -= before * jump
        field += (own - 1) * jump
        found.append(ReceptiveField(layer.name, own, field, jump * stride, start, outputs))
        jump *= stride
    return found


class Geometry:
    """A network whose full length is ``fixed``. InputError where that gives no output."""

    def __init__(self, network: Network, fixed: int) -> None:
        self.network, self.fixed = network, fixed
        every = network.sizes(fixed)
        self.sizes = [sizes[-1] for sizes in every]
        self.heights = [sizes[:-1] for sizes in every]
        self._capacities: dict[int, int] = {}
        self._leasts: dict[int, int] = {}
        self._reads: dict[int, np.ndarray] = {}

    def reads(self, number: int) -> np.ndarray:
        """Returns what a layer's outputs read in the full run, (outputs, leaves): ``reads``."""
        if number not in self._reads:
            layer = self.network.layers[number]
            self._reads[number] = reads(layer, self.sizes[number])
        return self._reads[number]

    @cached_property
    def lowest(self) -> list[np.ndarray]:
        """The lowest input position that each activation of the full run reads, layer by layer.

        int64 (positions,) for the input and behind every layer; ``NEVER`` where it reads padding
        of the layers alone. Content of n positions is read by those below n.
        """
        found = [np.arange(self.fixed)]
        for number, layer in enumerate(self.network.layers):
            if layer.windowed:
                values = np.append(found[-1], NEVER)
                index = self.reads(number)
                found.append(values[np.where(index < 0, len(values) - 1, index)].min(axis=1))
            else:
                found.append(found[-1])
        return found

    def follow(self, length: int, agrees: Agrees | None = None) -> list[Shared]:
        """Returns what a run padded to ``length`` shares with the full one, at input and layers.

        ``agrees``: beside reading the same, outputs must be computed alike by every layer. Raises
        InputError where the length has no output.
        """
        sizes = lengths(self.network, length)
        found = [Shared(np.arange(length) < self.fixed, 0)]
        for number, (size, outputs) in enumerate(itertools.pairwise(sizes)):
            found.append(self._behind(number, found[-1], size, outputs, agrees))
        return found

    def _behind(
        self, number: int, shared: Shared, size: int, outputs: int, agrees: Agrees | None
    ) -> Shared:
        """What is shared behind a layer whose short run has these lengths before and behind it."""
        found = self._reading_the_same(number, shared, size, outputs)
        if agrees is None or found.shift is None:
            return found
        alike = agrees(number, size, found.shift)
        return found if alike is None else Shared(found.same & alike, found.shift)

    def _reading_the_same(self, number: int, shared: Shared, size: int, outputs: int) -> Shared:
        layer = self.network.layers[number]
        if shared.shift is None:
            return Shared(np.zeros(outputs, bool), None)
        if not layer.windowed:
            return shared
        fixed = self.sizes[number + 1]
        windows, stride = layer.windows, layer.windows.stride[-1]
        before, after = windows.around(-1, size)
        moved = windows.around(-1, self.sizes[number])[0] - before + shared.shift
        if moved % stride:
            return Shared(np.zeros(outputs, bool), None)
        shift = moved // stride
        if shift == 0 and shared.whole and after == 0 and not layer.ceil_mode:
            return Shared(np.arange(outputs) < fixed, 0)
        ours, partner = reads(layer, size), np.arange(outputs) + shift
        theirs = self.reads(number)[np.clip(partner, 0, fixed - 1)]
        known = np.append(shared.same, False)[np.where(ours < 0, size, ours)]
        alike = np.where(ours < 0, ours == theirs, known & (ours + shared.shift == theirs))
        there = (partner >= 0) & (partner < fixed)
        return Shared(there & alike.all(axis=1), shift)

    def through(
        self, first: int, last: int, size: int, agrees: Agrees | None = None
    ) -> tuple[Shared, list[int]]:
        """Returns what layers ``first`` up to ``last`` (excluded) share, fed ``size`` positions.

        The positions are the full run's first ones. Also the sizes before, between and behind
        them; where one has no output nothing is shared.
        """
        shared, sizes = Shared(np.ones(size, bool), 0), [(*self.heights[first], size)]
        for number in range(first, last):
            sizes.append(self.network.layers[number].output_sizes(sizes[-1]))
            if min(sizes[-1]) < 1:
                return Shared(np.zeros(0, bool), None), [one[-1] for one in sizes]
            shared = self._behind(number, shared, sizes[-2][-1], sizes[-1][-1], agrees)
        return shared, [one[-1] for one in sizes]

    def reach(self, first: int, last: int, wanted: int) -> int:
        """Counts positions before layer ``first`` that the first outputs of ``last`` - 1 read."""
        for number in reversed(range(first, last)):
            if self.network.layers[number].windowed:
                wanted = int(self.reads(number)[:wanted].max(initial=-1)) + 1
        return wanted

    def capacity(self, length: int, agrees: Agrees | None = None) -> int:
        """Finds the longest content of which a run padded to ``length`` has every output.

        0 where there is none. Outputs count if they read the same as in the full run and, with
        ``agrees``, are computed alike.
        """
        if agrees is None and length in self._capacities:
            return self._capacities[length]
        found = self._capacity(length, agrees)
        if agrees is None:
            self._capacities[length] = found
        return found

    def _capacity(self, length: int, agrees: Agrees | None) -> int:
        if length < self.network.shortest or length > self.fixed:
            return 0
        last = self.follow(length, agrees)[-1]
        lacking = np.ones(self.sizes[-1], bool)
        if last.shift is not None:
            partners = np.flatnonzero(last.same) + last.shift
            lacking[partners[(partners >= 0) & (partners < len(lacking))]] = False
        missed = self.lowest[-1][lacking].min(initial=NEVER)
        return int(min(missed, length))

    def least(self, content: int) -> int:
        """Returns the least padded length that has every output which reads ``content`` positions.

        The full length always has. InputError: more content than the full length.
        """
        self.check(content)
        if content not in self._leasts:
            start = max(content, self.network.shortest)
            longer = range(start, self.fixed)
            found = (length for length in longer if self.capacity(length) >= content)
            self._leasts[content] = next(found, self.fixed)
        return self._leasts[content]

    def check(self, content: int) -> None:
        """Raises InputError where the content is longer than the full length, or empty."""
        if not 1 <= content <= self.fixed:
            why = f"the full length is {self.fixed}"
            raise InputError("content", content, why, f"use 1 to {self.fixed}, or a larger --fixed")

    def requirement(self, content: int, padded: int | None = None) -> Requirement:
        """Says what content of so many positions takes, at its least padded length by default.

        At a length that is too short ``kept`` still says what the full run would need.
        """
        self.check(content)
        length = self.least(content) if padded is None else padded
        reading = self.lowest[-1] < content
        kept = int(np.flatnonzero(reading)[-1]) + 1 if reading.any() else 0
        last = self.follow(length)[-1]
        shift = last.shift or 0
        return Requirement(
            content=content,
            padded=length,
            outputs=self.sizes[-1],
            reading=int(reading.sum()),
            first=max(shift, 0),
            kept=kept,
            offset=-shift,
        )

    def needed(self, content: int) -> list[np.ndarray]:
        """Returns which activations of the full run the outputs that read content depend on.

        bool (positions,) for the input and behind every layer.
        """
        wanted = self.lowest[-1] < content
        found = [wanted]
        for number in reversed(range(len(self.network.layers))):
            if self.network.layers[number].windowed:
                index = self.reads(number)[wanted]
                wanted = np.zeros(self.sizes[number], bool)
                wanted[index[index >= 0]] = True
            found.insert(0, wanted)
        return found

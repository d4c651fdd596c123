"""Finds the shortest padded lengths at which all layers add in the order of the full length.

Decided by order, not by luck: each output's summation is recognised at the size that a padded
length gives it and at the full one (:mod:`probe.switch_points.recognition`), and two outputs agree
only if they are added in the same order with the same roundings: of all finite activations, since
an infinity or a NaN may get into outputs that do not read it. At the lengths that are told, every
output is then tested for every addition and every fusion. Functions of an element are compared
place by place (:mod:`probe.recording.place`). What is not a sum of products in either run
(averages, Winograd) is compared by the bits of several sets of operands, and marked as such.

Where a library keeps how its tensors lie in memory (PyTorch), a user's input may be contiguous or
turned from channels last (:mod:`probe.layout`), and then what the layers hand on lies so too: a
length is safe only if it is for both. Which layers then read what, the library is asked.

A library that runs the network end to end may compute differently than layer by layer (XLA fuses
what is multiplied in one layer and added in the next). So where it can, those bits decide too, on
sets of operands of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product

import numpy as np

from lib.chains.chain import Layer, Network
from lib.chains.geometry import Agrees, Geometry
from lib.chains.geometry import lengths as lengths_of
from lib.chains.places import Places
from lib.chains.running import Runner, content, session_for
from probe import operation, ulp, window
from probe.invariant.mitigations import examined
from probe.launch import AnySession
from probe.layout import CONTIGUOUS, TRANSPOSED
from probe.operands import normal
from probe.summation.tree import BIAS
from probe.switch_points.recognition import BUDGET, UNKNOWN, Pattern, Recogniser
from probe.target import Target

SETS = 8
"""Sets of operands on which outputs that are not sums are compared."""

LAYER_BY_LAYER = ("torch", "tensorflow", "reference")
"""Targets that run a whole network as one call for each layer, unless it is compiled."""

COMPILED = {("mode", "graph"), ("xla", "1"), ("weights", "constant")}
"""Switches that compile one."""

END_TO_END_SETS, END_TO_END_SEED = 8, 7_000
"""How many sets of operands are compared end to end, and the seed of the first."""


@dataclass(frozen=True)
class Width:
    """One layer at one size: ``alike`` of its ``outputs`` positions are computed as at full length.

    ``leading``: of these that many come before the first that isn't.
    """

    outputs: int
    alike: int
    leading: int


@dataclass
class SafeLengths:
    """Padded lengths of one network on one started session, found as they are asked for.

    ``widths``: layer -> size of its input -> what was seen there. ``by_bits``: layers that are not
    sums on this target, with the reason. ``by_places``: activations, and what they were asked.
    ``end_to_end``: padded length -> outputs, of those that all layers compute alike, that have
    different bits end to end. Errors: TargetError; what a target refuses ends in one.
    """

    session: AnySession
    geometry: Geometry
    widths: dict[int, dict[int, Width]] = field(default_factory=dict)
    by_bits: dict[int, str] = field(default_factory=dict)
    by_places: dict[int, str] = field(default_factory=dict)
    end_to_end: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network: Network = self.geometry.network
        self.session = session_for(self.session, self.network.swapped)
        self.runner = Runner(self.session, self.network)
        self._known: dict[tuple[int, str], Recogniser] = {}
        self._patterns: dict[tuple[int, int, str], Pattern] = {}
        self._masks: dict[tuple[int, int, int], np.ndarray | None] = {}
        self._capacities: dict[int, int] = {}
        self._bounds: dict[tuple[int, int], int] = {}
        self._full_outputs: dict[tuple[int, str], np.ndarray | None] = {}
        self._places: dict[int, Places] = {}
        self._fixed_outputs: dict[tuple[int, int, str], np.ndarray] = {}
        self._heights = self.geometry.heights
        self._words: dict[int, tuple[str, ...]] = {}
        self._certified: dict[int, str] = {}
        self._asked: set[tuple[int, int, str]] = set()

    def capacity(self, length: int) -> int:
        """Finds the longest content whose outputs a run padded to ``length`` adds as the full one.

        0 where there is none.
        """
        if length not in self._capacities:
            found = self.geometry.capacity(length, self.agrees)
            for word in self.layouts if found else ():
                found = min(found, self._end_to_end(length, word))
            self._capacities[length] = found if found and self._lies_alike(length) else 0
        return self._capacities[length]

    @cached_property
    def layouts(self) -> tuple[str, ...]:
        """Layouts of the input for which a length is safe; ``contiguous`` first."""
        return examined(self.session.target)

    def _lying(self, length: int) -> tuple[str, ...]:
        """How what each layer reads lies in memory where the input of that length is turned."""
        if length not in self._words:
            x = content(self.network, length, END_TO_END_SEED)
            self._words[length] = tuple(self.runner.lying(x, TRANSPOSED))
        return self._words[length]

    def _lies_alike(self, length: int) -> bool:
        """Returns whether windows read a turned input's activations in the full run's layouts."""
        if TRANSPOSED not in self.layouts:
            return True
        pairs = zip(self._lying(length), self._lying(self.geometry.fixed), strict=True)
        layers = zip(self.network.layers, pairs, strict=True)
        return all(ours == theirs for one, (ours, theirs) in layers if one.operation.windows)

    def _words_of(self, number: int) -> tuple[str, ...]:
        """The layouts in which a layer's input is examined; ``other`` ones only end to end."""
        if TRANSPOSED not in self.layouts or not self.network.layers[number].operation.windows:
            return (CONTIGUOUS,)
        turned = self._lying(self.geometry.fixed)[number]
        return (CONTIGUOUS, TRANSPOSED) if turned == TRANSPOSED else (CONTIGUOUS,)

    def _end_to_end(self, length: int, word: str) -> int:
        """Returns the longest content whose outputs have the full run's bits end to end.

        The full length where the target can't run the network so. ``word``: how the input lies.
        """
        last = self.geometry.follow(length, self.agrees)[-1]
        if length == self.geometry.fixed or last.shift is None or not last.same.any():
            return self.geometry.fixed
        kept = np.flatnonzero(last.same)
        apart = np.zeros(len(kept), bool)
        for seed in range(END_TO_END_SETS):
            whole = self._full_output(seed, word)
            if whole is None:
                return self.geometry.fixed
            x = content(self.network, self.geometry.fixed, END_TO_END_SEED + seed)
            short, _ = self.runner.end_to_end(np.ascontiguousarray(x[..., :length, :]), word=word)
            if short is None:  # the library refuses this length
                return 0
            theirs = whole[..., kept + last.shift, :]
            apart |= _positions_apart(short[..., kept, :], theirs, self.network.dtype)
        self.end_to_end[length] = self.end_to_end.get(length, 0) + int(apart.sum())
        read = self.geometry.lowest[-1][kept[apart] + last.shift]
        return int(min(self.geometry.fixed, read.min(initial=self.geometry.fixed)))

    def _full_output(self, seed: int, word: str) -> np.ndarray | None:
        """The output end to end for content of the full length; None where the target can't."""
        if (seed, word) not in self._full_outputs:
            x = content(self.network, self.geometry.fixed, END_TO_END_SEED + seed)
            self._full_outputs[seed, word], _ = self.runner.end_to_end(x, word=word)
        return self._full_outputs[seed, word]

    def safe(self, content: int) -> int:
        """Finds the shortest safe padded length by trying each one from the least up.

        The full length, if there is no shorter one.
        """
        self.geometry.check(content)
        for length in range(self.geometry.least(content), self.geometry.fixed):
            if self.serves(length, content):
                self.uncertified(length)  # which takes back what was recognised wrongly
                if self.serves(length, content):
                    return length
        return self.geometry.fixed

    def uncertified(self, length: int) -> str:
        """Says what of a run padded to ``length``, or of the full one, was not tested for every
        addition; empty if every sum of every layer was tested for every addition and every fusion.

        What answers differently than it was recognised is revealed anew, and ``agrees`` follows.
        """
        if length in (self.geometry.fixed, *self._certified):
            return self._certified.get(length, "")
        doubts = []
        for number in self.deciding:
            layer, name = self.network.layers[number], self.network.layers[number].label
            if number in self.by_bits or number in self.by_places or not layer.sums:
                doubts.append(f"{name} was compared by bits")
                continue
            sizes = lengths_of(self.network, length)[number], self.geometry.sizes[number]
            for size, word in product(dict.fromkeys(sizes), self._words_of(number)):
                if why := self._certify(number, size, word):
                    doubts.append(f"{name} at {size:,}: {why}")
        if self.end_to_end and not _in_calls(self.session.target):
            doubts.append("the library's program of all layers was compared by bits")
        self._certified[length] = "; ".join(dict.fromkeys(doubts))
        return self._certified[length]

    def _certify(self, number: int, size: int, word: str) -> str:
        """Asks all of a layer at a size; why some outputs are not certified, or empty."""
        place = number, size, word
        before = self._pattern(*place)
        if place not in self._asked:
            self._asked.add(place)
            now = self._known[number, word].pattern(self._rows(number, size), BUDGET)
            self._patterns[place] = now
            if not np.array_equal(now.kinds, before.kinds):
                self._masks = {key: mask for key, mask in self._masks.items() if key[0] != number}
                self._capacities.clear()
                self._bounds.clear()
        return self._patterns[place].uncertified

    def serves(self, length: int, content: int) -> bool:
        """Returns whether a run padded to ``length`` is safe for the content.

        The last layers are asked first, each by itself: they have few sizes, which many lengths
        share, so most lengths that are not safe are refused without running their own sizes.
        """
        if length not in self._capacities:
            if self.geometry.capacity(length) < content:
                return False
            for number in reversed(self.deciding):
                if self._bound(length, number) < content:
                    return False
        return self.capacity(length) >= content

    @cached_property
    def deciding(self) -> list[int]:
        """Returns numbers of the layers whose size may decide how they compute."""
        return [n for n, layer in enumerate(self.network.layers) if not _the_same_anywhere(layer)]

    def _bound(self, length: int, number: int) -> int:
        """``capacity``, were one layer alone to compute differently than at the full length."""
        if (length, number) not in self._bounds:
            self._bounds[length, number] = self.geometry.capacity(length, self.alone(number))
        return self._bounds[length, number]

    def alone(self, number: int) -> Agrees:
        """``agrees`` of one layer, as if all others computed as at the full length."""

        def agrees(layer: int, size: int, shift: int) -> np.ndarray | None:
            return self.agrees(layer, size, shift) if layer == number else None

        return agrees

    def table(
        self, contents: Iterable[int], progress: Callable[[int, int], None] | None = None
    ) -> dict[int, int]:
        """Returns the safe padded length of each content length."""
        wanted = list(contents)
        found = {}
        for done, length in enumerate(wanted, 1):
            found[length] = self.safe(length)
            if progress:
                progress(done, len(wanted))
        return found

    @property
    def lengths_tried(self) -> int:
        """Padded lengths of which it was found out whether they serve some content."""
        return len({*self._capacities, *(length for length, _ in self._bounds)})

    def agrees(self, number: int, size: int, shift: int) -> np.ndarray | None:
        """Says which outputs agree: see :data:`lib.chains.geometry.Agrees`."""
        key = number, size, shift
        if key not in self._masks:
            self._masks[key] = self._agrees(*key)
            if (mask := self._masks[key]) is not None:
                bad = np.flatnonzero(~mask)
                leading = int(bad[0]) if len(bad) else len(mask)
                width = Width(len(mask), int(mask.sum()), leading)
                self.widths.setdefault(number, {})[size] = width
        return self._masks[key]

    def _agrees(self, number: int, size: int, shift: int) -> np.ndarray | None:
        layer = self.network.layers[number]
        fixed = self.geometry.sizes[number]
        if size == fixed or _the_same_anywhere(layer):
            return None
        if layer.op == "activation":
            return self._by_place(number, size, shift)
        if layer.pool:
            self.by_bits.setdefault(number, f"{layer.label} is not a sum of products")
        masks = [self._in(word, number, size, shift) for word in self._words_of(number)]
        return np.logical_and.reduce(masks)

    def _in(self, word: str, number: int, size: int, shift: int) -> np.ndarray:
        """Returns a mask of outputs that are computed alike where the input lies so."""
        layer = self.network.layers[number]
        if layer.sums and number not in self.by_bits:
            mask = self._by_order(number, size, shift, word)
            if mask is not None:
                return mask
        return self._by_bits(number, size, shift, word)

    def _pattern(self, number: int, size: int, word: str) -> Pattern:
        """Returns how the layer adds every output at a size, which is cached."""
        if (number, size, word) not in self._patterns:
            if (number, word) not in self._known:
                layer, heights = self.network.layers[number], self._heights[number]
                case = layer.case((*heights, size), self.network.dtype)
                case = case.with_(length=None, layout=word)
                self._known[number, word] = Recogniser(self.session, case)
            known = self._known[number, word]
            self._patterns[number, size, word] = known.pattern(self._rows(number, size))
        return self._patterns[number, size, word]

    def _rows(self, number: int, size: int) -> int:
        if self.network.layers[number].op != "dense":
            return size
        return size * int(np.prod(self._heights[number]))

    def _by_order(self, number: int, size: int, shift: int, word: str) -> np.ndarray | None:
        """Returns a mask of outputs added alike; None where some summations are not known."""
        short = self._pattern(number, size, word)
        fixed = self._pattern(number, self.geometry.sizes[number], word)
        known = self._known[number, word]
        for pattern in (short, fixed):
            if pattern.unknown or not pattern.steady or not pattern.whole:
                evidence = known.evidence or "too large to examine every output"
                self.by_bits[number] = evidence
                return None
        lines = int(np.prod(self._heights[number + 1], dtype=int))
        ours, theirs = short.kinds.reshape(lines, -1), fixed.kinds.reshape(lines, -1)
        outputs = np.arange(ours.shape[1])
        partner = np.clip(outputs + shift, 0, theirs.shape[1] - 1)
        theirs = theirs[:, partner]
        alike = ours == theirs
        if not alike.all():
            alike |= self._same_over_what_is_read(number, known, size, ours, theirs)
        mask: np.ndarray = alike.all(axis=0)
        return mask

    def _same_over_what_is_read(
        self, number: int, known: Recogniser, size: int, ours: np.ndarray, theirs: np.ndarray
    ) -> np.ndarray:
        """Rows of different kinds whose summations are the same over the inputs that they read.

        In the padding all products are zeros, and what adds zeros may be told apart no further.
        """
        layer = self.network.layers[number]
        found = np.zeros(ours.shape, bool)
        if not layer.windowed or layer.padding == "valid":
            return found
        case = known.case.with_(length=size)
        classes, leaves = window.read_classes(case)
        bias = () if layer.bias is None else (BIAS,)
        shaped = classes.reshape(ours.shape)
        for one, other, kind in set(
            zip(
                ours.ravel().tolist(), theirs.ravel().tolist(), shaped.ravel().tolist(), strict=True
            )
        ):
            read = (*map(int, leaves[kind]), *bias)
            if one != other and self._alike(known, one, other, read):
                found |= (ours == one) & (theirs == other) & (shaped == kind)
        return found

    def _alike(self, known: Recogniser, one: int, other: int, read: tuple[int, ...]) -> bool:
        pairs = set(zip(known.kinds[one], known.kinds[other], strict=True))
        return all(
            left == right
            or (
                min(left, right) > UNKNOWN
                and not known.summations[left]
                .restricted(read)
                .causes(known.summations[right].restricted(read))
            )
            for left, right in pairs
        )

    def _by_place(self, number: int, size: int, shift: int) -> np.ndarray:
        """Returns a mask of positions that a function computes alike, whatever they hold."""
        if number not in self._places:
            layer, heights = self.network.layers[number], self._heights[number]
            call = partial(self.runner.layer, number)
            given = layer.in_channels, self.network.dtype, layer.activation == "softmax"
            places = Places(call, heights, *given)
            self._places[number] = places
            why = f"{layer.label} on {len(places.fills)} inputs at every place"
            self.by_places[number] = why
        return self._places[number].alike(size, self.geometry.sizes[number], shift)

    def _by_bits(self, number: int, size: int, shift: int, word: str) -> np.ndarray:
        """Outputs whose bits agree on ``SETS`` sets of operands, wherever both read the same."""
        fixed = self.geometry.sizes[number]
        found: list[np.ndarray] = []
        for seed in range(SETS):
            x = self._operands(number, seed)
            *shape, _, channels = x.shape
            before = self._moved(number, size, shift)
            mine = np.zeros((*shape, size, channels), x.dtype)
            start, stop = max(-before, 0), min(size, fixed - before)
            mine[..., start:stop, :] = x[..., start + before : stop + before, :]
            if (number, seed, word) not in self._fixed_outputs:
                self._fixed_outputs[number, seed, word] = self.runner.layer(number, x, word)
            short = self.runner.layer(number, mine, word)
            whole = self._fixed_outputs[number, seed, word]
            partner = np.clip(np.arange(short.shape[-2]) + shift, 0, whole.shape[-2] - 1)
            found.append(_positions_apart(short, whole[..., partner, :], self.network.dtype))
        mask: np.ndarray = ~np.any(found, axis=0)
        return mask

    def _operands(self, number: int, seed: int) -> np.ndarray:
        """Input of a layer at the full length, normal.

        Of a scale and a shift it is what all but cancels: then the product's rounding is most of
        the result, so that a fused product shows. Averages are taken of numbers of many
        magnitudes, so that another order shows.
        """
        layer = self.network.layers[number]
        shape = (1, *self._heights[number], self.geometry.sizes[number], layer.in_channels)
        x = normal(seed, "x", shape)
        if layer.scale is not None and layer.shift is not None:
            scale, shift = (one.astype(float) for one in (layer.scale, layer.shift))
            root = -np.divide(shift, scale, out=np.ones_like(scale), where=scale != 0)
            x = np.where(root == 0, 1.0, root) * (1 + x / 1024)
        if layer.pool:
            most = 8 if self.network.dtype == "float16" else 24
            x *= np.exp2(np.round(4 * normal(seed + SETS, "x", shape)).clip(-most, most))
        largest = float(np.finfo(self.network.dtype).max) / 4
        return x.clip(-largest, largest).astype(self.network.dtype)

    def _moved(self, number: int, size: int, shift: int) -> int:
        """By how much the layer's input is shifted where its outputs are by ``shift``."""
        layer = self.network.layers[number]
        stride = layer.stride[-1] if layer.kernel else 1
        sizes = size, self.geometry.sizes[number]
        before = [layer.windows.around(-1, one)[0] for one in sizes]
        return shift * stride - before[1] + before[0]


def _positions_apart(mine: np.ndarray, theirs: np.ndarray, dtype: str) -> np.ndarray:
    """Which positions, of arrays (..., positions, channels), differ in any channel or row."""
    apart = ulp.apart(mine, theirs, dtype)
    return np.asarray(apart.reshape(-1, *apart.shape[-2:]).any(axis=(0, 2)))


def _in_calls(where: Target) -> bool:
    """Returns whether a whole network is run as one call for each layer: then these decide."""
    eager = not (where.version or "").startswith("1.") and not COMPILED.intersection(where.switches)
    return where.name in LAYER_BY_LAYER and eager


def _the_same_anywhere(layer: Layer) -> bool:
    """Returns whether an output's bits follow from what it reads: at most one operation rounds."""
    return operation.rounds_once(vars(layer))

"""Compares a short run with the full one, layer by layer: what differs, where, and why.

Activations that read the same through all layers must agree. A layer at which they don't is run
again on the full run's activations: what differs then too is its own doing, the rest it was
handed. The own differences are explained as those of a single case are: order and rounding
revealed on both sides, replayed on the very activations. A scaled and shifted activation is rounded
twice, or once where both are fused; a function of an element may depend on its place in the buffer
(:mod:`probe.recording.place`). Activations that read something else in
the short run are counted apart: there the padding is wrong, and no rounding.

Last comes what a difference does: whether a decision crosses, and whether either side is nearer the
truth, the same network in float64 on the same target. Different is not worse: both runs are as far
from it as rounding puts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lib.chains.chain import Layer, Network
from lib.chains.geometry import Geometry, Requirement, Shared
from lib.chains.running import Run, Runner, content, padded, session_for
from probe import comparison, floats, ulp
from probe.comparison import OutputPairs, Revealer
from probe.errors import InputError
from probe.launch import AnySession
from probe.recording import place
from probe.summation.replay import replay
from probe.summation.summation import Rounding, Summation
from probe.summation.tree import Tree

ALL = 4096  # outputs up to which all of a layer are revealed, not only those that differ

MOST = 1024
"""Differences of one activation that are asked for."""


@dataclass
class AtLayer:
    """One layer of a short run against the full one.

    ``compared`` activations read the same in both runs; ``other_window`` of the short run read
    something else. ``differing`` and ``max_ulp`` are of the compared ones; ``scaled``: the largest
    difference over eps times the layer's largest activation. ``own``: how many differ when the
    layer is fed the full run's activations, of which ``replayed`` were reproduced on both sides;
    ``causes`` counts them. ``first``: (row, position, channel) of the first that differs.
    """

    number: int
    name: str
    op: str
    size: int
    size_fixed: int
    compared: int
    other_window: int
    differing: int = 0
    max_ulp: int | None = 0
    scaled: float = 0.0
    first: tuple[int, int, int] | None = None
    own: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    replayed: int = 0
    control: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the object that ``probe network --json`` prints."""
        return dict(vars(self))


@dataclass
class PaddedComparison:
    """A short run against the full one, for one content on one target.

    ``layers``: behind every layer; ``end_to_end``: differing outputs of those kept where the
    library ran all layers in one call, None where it can't: ``no_program`` says why.
    ``lacking``: outputs that read content and that the short run does not have, or that read
    something else in it.
    """

    need: Requirement
    padded: int
    fixed: int
    target: str
    layers: list[AtLayer]
    lacking: int
    end_to_end: int | None = None
    no_program: str = ""
    short: Run | None = None
    whole: Run | None = None
    explanation: comparison.Comparison | None = None

    @property
    def first(self) -> AtLayer | None:
        """Returns the first layer with a difference of its own, or any difference."""
        return next((layer for layer in self.layers if layer.differing), None)

    @property
    def own(self) -> list[AtLayer]:
        """Returns layers that differ by themselves."""
        return [layer for layer in self.layers if layer.own]

    @property
    def explained(self) -> bool:
        """Returns whether every layer's own differences have a cause that replays."""
        told = [layer for layer in self.own if "unexplained" not in layer.causes]
        return len(told) == len(self.own) and all(layer.replayed == layer.own for layer in told)

    @property
    def steady(self) -> bool:
        """Returns whether every layer gave the same bits again at the same shape."""
        return all(run.steady for run in (self.short, self.whole) if run)

    @property
    def verdict(self) -> str:
        """``padding`` (a mistake), ``nondeterministic``, ``alignment`` (bits go with the address of
        what a layer reads), ``rounding``, ``program`` or ``equal``.

        ``program``: all layers agree one by one, and differ where the library runs them as one.
        """
        if self.lacking:
            return "padding"
        if not self.steady:
            controls = {one for run in (self.short, self.whole) if run for one in run.controls}
            return "nondeterministic" if "differs" in controls else "alignment"
        if self.first:
            return "rounding"
        return "program" if self.end_to_end else "equal"

    def to_json(self) -> dict[str, Any]:
        """Returns the object that ``probe network --json`` prints."""
        first = self.first
        return {
            "target": self.target,
            "content": self.need.content,
            "padded": self.padded,
            "fixed": self.fixed,
            "least": self.need.padded,
            "kept": self.need.kept,
            "outputs": self.need.outputs,
            "tail": self.need.tail,
            "lacking": self.lacking,
            "verdict": self.verdict,
            "first": None if first is None else first.name,
            "steady": self.steady,
            "explained": self.explained,
            "end_to_end": self.end_to_end,
            "no_program": self.no_program or None,
            "layers": [layer.to_json() for layer in self.layers],
        }


class Comparer:
    """Compares padded lengths of one network on one started session with its full length.

    What was revealed of a layer at a size is kept, and proved again on each content's own
    activations. ``value``: what the padding holds. Errors: TargetError.
    """

    def __init__(self, session: AnySession, geometry: Geometry, value: float = 0.0) -> None:
        self.network: Network = geometry.network
        self.session = session_for(session, self.network.swapped)
        self.geometry, self.value = geometry, value
        self.runner = Runner(session, self.network)
        self.sizes = self.network.sizes(geometry.fixed)
        self._known = [Revealer(kept=None) for _ in self.network.layers]

    def compare(
        self,
        length: int,
        padded_to: int | None = None,
        seed: int = 0,
        control: bool = True,
        explained: bool = True,
        whole: bool = True,
    ) -> PaddedComparison:
        """Compares content of ``length`` positions, padded to the least length unless one is given.

        ``control``: every layer again at the same shape. ``whole``: end to end too. Raises
        InputError where the content does not fit.
        """
        need = self.geometry.requirement(length)
        to = need.padded if padded_to is None else self._checked(length, padded_to)
        x = content(self.network, length, seed)
        inputs = padded(x, to, self.value), padded(x, self.geometry.fixed, self.value)
        short, fixed = (self.runner.run(one, control) for one in inputs)
        shared = self.geometry.follow(to)
        found = PaddedComparison(
            *(need, to, self.geometry.fixed, self.session.target.text, []),
            lacking=self._lacking(length, shared[-1]),
            short=short,
            whole=fixed,
        )
        for number, layer in enumerate(self.network.layers):
            found.layers.append(self._at(number, layer, short, fixed, shared))
        if explained:
            self._explain(found, short, fixed, shared)
        if whole:
            found.end_to_end = self._end_to_end(length, *inputs, shared[-1])
            found.no_program = self.runner.no_program
        return found

    def _checked(self, length: int, to: int) -> int:
        """Returns a padded length that holds the content and gives outputs. Raises InputError."""
        if not max(length, self.network.shortest) <= to <= self.geometry.fixed:
            least = max(length, self.network.shortest)
            why = f"a valid length of {length} takes {least} to {self.geometry.fixed}"
            raise InputError("padded", to, why, f"use {least} or more")
        return to

    def _lacking(self, length: int, last: Shared) -> int:
        reading = np.flatnonzero(self.geometry.lowest[-1] < length)
        if last.shift is None:
            return len(reading)
        served = np.flatnonzero(last.same) + last.shift
        return int((~np.isin(reading, served)).sum())

    def _at(
        self, number: int, layer: Layer, short: Run, fixed: Run, shared: list[Shared]
    ) -> AtLayer:
        behind = shared[number + 1]
        ours, theirs = short.activations[number + 1], fixed.activations[number + 1]
        mine, other = behind.pairs(ours, theirs)
        lines = ours.size // ours.shape[-2]
        found = AtLayer(
            number=number,
            name=layer.name,
            op=layer.op,
            size=ours.shape[-2],
            size_fixed=theirs.shape[-2],
            compared=mine.size,
            other_window=int((~behind.same).sum()) * lines,
            control=_worst(short.controls[number], fixed.controls[number]),
        )
        differences = ulp.differences(mine, other, self.network.dtype)
        if not len(differences.index):
            return found
        found.differing = len(differences.index)
        found.max_ulp = ulp.largest(differences.ulps)
        values = [floats.widen(one, self.network.dtype).reshape(-1) for one in (mine, other)]
        apart = np.abs(values[0] - values[1]).max()
        found.scaled = float(
            apart / (floats.eps(self.network.dtype) * max(np.abs(values[1]).max(), 1e-300))
        )
        row, position, channel = np.unravel_index(
            int(differences.index[0]),
            (mine.size // (mine.shape[-2] * mine.shape[-1]), *mine.shape[-2:]),
        )
        found.first = int(row), int(np.flatnonzero(behind.same)[position]), int(channel)
        return found

    def _explain(
        self, found: PaddedComparison, short: Run, fixed: Run, shared: list[Shared]
    ) -> None:
        """Fills in every layer's own differences and their causes."""
        for at in found.layers:
            if not at.differing:
                continue
            before = found.layers[at.number - 1] if at.number else None
            x = short.activations[at.number]
            if before is not None and before.differing:
                x = _mixed(x, fixed.activations[at.number], shared[at.number])
            layer = self.network.layers[at.number]
            if layer.sums:
                told = self._layer(at, layer, x, fixed.activations[at.number], shared)
                if found.explanation is None and told is not None:
                    found.explanation = told
            else:
                at.own, at.replayed, at.causes = _own_differences(
                    self.runner, at.number, x, fixed, shared[at.number + 1]
                )

    def _layer(
        self, at: AtLayer, layer: Layer, x: np.ndarray, whole: np.ndarray, shared: list[Shared]
    ) -> comparison.Comparison | None:
        """Returns the explanation of a layer's own differences; None where it has none."""
        left, right = self._ran(layer, x), self._ran(layer, whole)
        pairs = _pairs(left, right, shared[at.number + 1], self.sizes[at.number + 1][:-1])
        told = comparison.Comparison(left.case, left, right, pairs)
        at.own = len(told.differing)
        if not at.own:
            return None
        chosen = np.arange(len(pairs)) if len(pairs) <= ALL else told.differing
        for side, places in ((right, pairs.right), (left, pairs.left)):
            self._known[at.number].reveal(side, self.session, side.mask(places[chosen]))
        at.causes = told.causes
        at.replayed = int(told.proved(told.differing).sum())
        return told

    def _ran(self, layer: Layer, x: np.ndarray) -> comparison.CaseRun:
        """Returns one run of a layer on given activations; nothing revealed yet."""
        arrays, shape = layer.operands(self.network.dtype), x.shape[1:-1]
        if layer.op == "dense":
            x = x.reshape(1, -1, x.shape[-1])
        given = np.ascontiguousarray(x), arrays["w"], arrays.get("b")
        return comparison.run(self.session, layer.case(shape, self.network.dtype), given)

    def _end_to_end(
        self, length: int, short: np.ndarray, fixed: np.ndarray, last: Shared
    ) -> int | None:
        """Outputs that read content and differ where the library runs the network as one."""
        ours, _ = self.runner.end_to_end(short)
        if ours is None or last.shift is None:
            return None
        theirs, _ = self.runner.end_to_end(fixed)
        if theirs is None:
            return None
        kept = np.flatnonzero(last.same)
        kept = kept[self.geometry.lowest[-1][kept + last.shift] < length]
        mine, other = ours[..., kept, :], theirs[..., kept + last.shift, :]
        return int(ulp.apart(mine, other, self.network.dtype).sum())


def _own_differences(
    runner: Runner, number: int, x: np.ndarray, fixed: Run, behind: Shared
) -> tuple[int, int, dict[str, int]]:
    """Of a layer fed ``x``, against the full run: how many, how many reproduced, and the causes.

    ``behind``: what both share behind the layer. Causes: ``rounding``, ``place``, ``not-a-sum``.
    Errors: TargetError.
    """
    layer, dtype = runner.network.layers[number], runner.network.dtype
    y = runner.layer(number, x)
    mine, other = behind.pairs(y, fixed.activations[number + 1])
    apart = ulp.differences(mine, other, dtype).index
    replayed, cause = 0, ""
    if len(apart) and layer.op == "normalisation":
        ours, theirs = behind.pairs(x, fixed.activations[number])
        known = _scaled(layer, ours, dtype, mine) & _scaled(layer, theirs, dtype, other)
        replayed, cause = int(known[apart].sum()), "rounding"
    if len(apart) and layer.op == "activation":
        replayed, cause = _placed(runner, number, x, y, fixed, behind, apart[:MOST]), "place"
    counts = {cause: replayed, "not-a-sum": len(apart) - replayed}
    return len(apart), replayed, {name: count for name, count in counts.items() if count}


def _scaled(layer: Layer, x: np.ndarray, dtype: str, y: np.ndarray) -> np.ndarray:
    """Where y is x times the layer's scale plus its shift, rounded twice or, fused, once; flat."""
    assert layer.scale is not None and layer.shift is not None
    met = [np.broadcast_to(each, x.shape).reshape(1, -1) for each in (x, layer.scale, layer.shift)]
    alike = np.zeros(y.size, bool)
    for fused in (frozenset[int](), frozenset([0])):
        summation = Summation(Tree.parse("(0+b)"), Rounding(fused))
        expected = replay(summation, met[0], met[1], dtype, met[2][0])
        alike |= ~ulp.apart(expected, y.reshape(-1), dtype)
    return alike


def _placed(
    runner: Runner,
    number: int,
    x: np.ndarray,
    y: np.ndarray,
    fixed: Run,
    behind: Shared,
    apart: np.ndarray,
) -> int:
    """Of an activation's differences, those that the input and its place decide."""
    inputs, outputs = fixed.activations[number : number + 2]
    indices = [np.arange(one.size).reshape(one.shape) for one in (y, outputs)]
    places = [one.reshape(-1) for one in behind.pairs(indices[0], indices[1])]
    ours, theirs = (
        place.PlacedFunction(
            lambda reads: runner.layer(number, reads[0]), [given], [str(x.dtype)] * 2, found, each
        )
        for given, found, each in ((x, y, places[0]), (inputs, outputs, places[1]))
    )
    rows = runner.network.layers[number].activation == "softmax"
    return place.reproduced(ours, theirs, apart, rows)


def _mixed(ours: np.ndarray, theirs: np.ndarray, shared: Shared) -> np.ndarray:
    """Returns the short run's activations with the full run's bits wherever both read the same."""
    if shared.shift is None:
        return ours
    found, kept = ours.copy(), np.flatnonzero(shared.same)
    found[..., kept, :] = theirs[..., kept + shared.shift, :]
    return found


def _pairs(
    left: comparison.CaseRun, right: comparison.CaseRun, behind: Shared, height: tuple[int, ...]
) -> OutputPairs:
    """Returns all outputs that read the same, as places (position, filter) of either side."""
    filters, lines = left.case.filters, int(np.prod(height, dtype=int))
    if behind.shift is None:
        nothing = np.zeros((0, 2), int)
        return OutputPairs(nothing, nothing, np.zeros(0, bool))
    kept = np.flatnonzero(behind.same)
    found = []
    for side, along in ((left, kept), (right, kept + behind.shift)):
        width = side.replays.shape[0] // lines
        flat = (np.arange(lines)[:, None] * width + along).reshape(-1)
        found.append(
            np.stack([np.repeat(flat, filters), np.tile(np.arange(filters), len(flat))], axis=1)
        )
    return OutputPairs(found[0], found[1], np.ones(len(found[0]), bool))


def _worst(*controls: str) -> str:
    return next((one for one in controls if one not in ("", "equal")), controls[0])


def as_float64(network: Network) -> Network:
    """Returns the same network with its weights, and everything that is computed, in float64."""
    layers = []
    for layer in network.layers:
        wide: dict[str, Any] = {k: array.astype(np.float64) for k, array in layer.arrays.items()}
        layers.append(replace(layer, **wide))
    return network.with_(layers=tuple(layers), dtype="float64")

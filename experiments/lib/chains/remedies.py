"""Measures every remedy of a chain on a target: which valid lengths keep the full run's bits.

A remedy is exact where, at the least padded length that has all activations that read content,
every layer adds each of them as in the full run (:mod:`lib.chains.safe`), with the
remedy on both sides. ``pad`` is the default at the lengths for which that holds: a little longer.
``layerwise`` is the default with every layer padded by itself
(:mod:`lib.chains.layerwise`). What is found exact is run on operands as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from lib.chains.chain import Network
from lib.chains.comparison import as_float64
from lib.chains.layerwise import Layerwise
from lib.chains.running import Runner, content, padded
from lib.chains.safe import SafeLengths
from probe import floats, ulp
from probe.errors import InputError, TargetError
from probe.invariant.mitigated_cases import RemedySessions, Timers, Work, few
from probe.invariant.mitigations import CHUNKS, Measured, Remedy, RemedyResult
from probe.launch import InlineSession
from probe.progress import Tell
from probe.target import Target


def measure_network(
    network: Network,
    where: Target,
    lengths: Sequence[int],
    fixed: int | None = None,
    *,
    at: int | None = None,
    chunks: Sequence[int] = CHUNKS,
    only: Iterable[str] | None = None,
    progress: Tell | None = None,
    sessions: RemedySessions | None = None,
) -> Measured:
    """Judges, times and checks every remedy for a network on ``where``.

    ``lengths``: of content, each compared with ``fixed`` (the network's own if not given). ``at``:
    the content length whose cost is reported; a tenth of ``fixed`` if not given, and compared too.
    Errors: as of ``measure``.
    """
    fixed = network.fixed if fixed is None else fixed
    if fixed is None:
        why = "the model does not define its full size"
        raise InputError("fixed", "(none)", why, "give --fixed N")
    geometry = network.geometry(fixed)
    at = at or max(fixed // 10, 1)
    contents = tuple(sorted({*lengths, at}))
    for one in contents:
        geometry.check(one)
    if only is not None and "layerwise,xla=1" in (only := set(only)):
        only.add("xla=1")
    with nullcontext(sessions) if sessions else RemedySessions() as running:
        work = _OfNetwork(network, fixed, contents, at, where, running, only)
        found, own = work.measured(chunks, progress), running.of(where)
        return Measured(network, where, contents, fixed, at, found, own.facts, own.variables)


class _OfNetwork(Work):
    """What is done with each remedy of one network."""

    def __init__(
        self, network: Network, fixed: int, contents: tuple[int, ...], at: int, *options: Any
    ) -> None:
        super().__init__(*options)
        self.network, self.fixed, self.contents, self.at = network, fixed, contents, at
        self.dtype, self.geometry = network.dtype, network.geometry(fixed)
        self.least = {one: self.geometry.least(one) for one in contents}
        self.whole = content(network, fixed)
        self.runners: dict[tuple[str, int], Runner] = {}
        self.plans: dict[tuple[str, int], Network] = {}
        self.safe: dict[str, SafeLengths] = {}

    def judged(self, remedy: Remedy, **known: Any) -> RemedyResult:
        """Returns one remedy at the least padded lengths."""
        return super().judged(remedy, sizes=tuple(self.least.values()), **known)

    def judge(self, found: RemedyResult) -> None:
        """Counts the content lengths at which the least padding changes nothing."""
        safe = self.safe[found.remedy.name] = self._safe(found.remedy)
        try:
            for one in self.contents:  # what was recognised wrongly is taken back
                safe.capacity(self.least[one])
                safe.uncertified(self.least[one])
            kept = [safe.capacity(self.least[one]) >= one for one in self.contents]
        except TargetError:
            del self.safe[found.remedy.name]
            raise
        found.compared, found.differing = len(kept), kept.count(False)
        found.certified = not any(map(safe.uncertified, set(self.least.values())))
        self._unproved(found, safe)

    def _safe(self, remedy: Remedy) -> SafeLengths:
        """Returns what finds the padded lengths at which every layer adds as at the full one.

        Sums that are kept in float64 are looked at as float64 ones, of a float64 network: what
        vanishes beside a large number in float32 does not there.
        """
        spec = remedy.spec or {}
        if spec.get("kind") != "float64" and spec.get("accumulate") is None:
            session = self.sessions.with_remedy(remedy, convolutions=True)
            return SafeLengths(session, self.geometry)
        plain = None if spec["kind"] == "float64" else spec | {"accumulate": None}
        session = self.sessions.with_remedy(replace(remedy, spec=plain), convolutions=True)
        return SafeLengths(session, as_float64(self.network).geometry(self.fixed))

    def _unproved(self, found: RemedyResult, safe: SafeLengths) -> None:
        """Layers whose summations aren't known were compared by bits, which proves nothing."""
        sums = {n: why for n, why in safe.by_bits.items() if self.network.layers[n].sums}
        if sums:
            number, why = next(iter(sums.items()))
            found.unknown = found.compared or 0
            found.refusal = f"{self.network.layers[number].name}: {why}"

    def more(self, found: RemedyResult) -> Iterator[RemedyResult]:
        """``pad`` and ``layerwise``, the latter compiled as well."""
        remedy = found.remedy
        names = {"default": ("pad", "layerwise"), "xla=1": ("layerwise,xla=1",)}
        for name in names.get(remedy.name, ()):
            if remedy.name in self.safe and self.wants(name):
                safe = self.safe[remedy.name]
                yield self.padded(safe) if name == "pad" else self.layerwise(name, remedy, safe)

    def padded(self, own: SafeLengths) -> RemedyResult:
        """Runs the network unchanged, padded to its safe length."""
        sizes = tuple(own.safe(one) for one in self.contents)
        doc = f"zeros up to {few(sizes)} positions"
        found = RemedyResult(Remedy("pad", self.where, doc), compared=len(sizes), sizes=sizes)
        found.certified = not any(map(own.uncertified, set(sizes)))
        self._unproved(found, own)
        return found

    def layerwise(self, name: str, on: Remedy, safe: SafeLengths) -> RemedyResult:
        """Pads every layer by itself with what it computes of padding alone."""
        found = RemedyResult(replace(on, name=name, doc="constants inserted before every layer"))
        found.compared, found.sizes = len(self.contents), self.contents
        plans = Layerwise(safe)
        for one in self.contents:
            self.plans[name, one] = plans.plan(one)
        self._unproved(found, safe)
        return found

    def exact(self) -> tuple[np.ndarray, float]:
        """Returns a float64 run, and its largest output."""
        exact = exact_output(self.network, self.whole)
        return exact, float(np.abs(exact).max())

    def output(self, remedy: Remedy) -> np.ndarray:
        """Returns what users get at the full length."""
        return self._runner(remedy).as_used(self.whole)

    def other_bits(self, found: RemedyResult) -> int:
        """Runs all contents on operands."""
        return sum(not self._same_bits(found, one) for one in self.contents)

    def _same_bits(self, one: RemedyResult, length: int) -> bool:
        """Returns whether the outputs that read content are those of the full run, on operands."""
        x = content(self.network, length, seed=length)
        whole = self._runner(one.remedy).as_used(padded(x, self.fixed))
        runner, given = self._short(one, length)
        if (one.remedy.name, length) in self.plans:
            short = runner.as_used(x)
            return bool(ulp.equal(short, _first(whole, 0, short.shape[-2]), self.network.dtype))
        need = self.geometry.requirement(length, given)
        start = need.offset + need.first
        short = _first(runner.as_used(padded(x, given)), start, need.offset + need.kept)
        return bool(ulp.equal(short, _first(whole, need.first, need.kept), self.network.dtype))

    def _short(self, one: RemedyResult, length: int) -> tuple[Runner, int]:
        """Returns what runs content of that length, and to which length it is padded before."""
        given = one.sizes[self.contents.index(length)]
        return self._runner(one.remedy, length), given

    def _runner(self, remedy: Remedy, plan: int = 0) -> Runner:
        """Returns the network with a remedy, or its plan for a content length where it has one."""
        key = remedy.name, plan if (remedy.name, plan) in self.plans else 0
        if key not in self.runners:
            session = self.sessions.with_remedy(remedy, convolutions=True)
            self.runners[key] = Runner(session, self.plans.get(key, self.network))
        return self.runners[key]

    def timers(self, ready: Sequence[RemedyResult]) -> Timers:
        """Whole runs: the content at its padded length, and the full ones."""
        calls, at = {}, self.at
        for number, one in enumerate(ready):
            runner, length = self._short(one, at)
            calls[number, at] = _timer(runner, padded(content(self.network, at), length))
            calls[number, self.fixed] = _timer(self._runner(one.remedy), self.whole)
        return calls


def _first(y: np.ndarray, start: int, stop: int) -> np.ndarray:
    return np.ascontiguousarray(y[..., start:stop, :])


def _timer(runner: Runner, x: np.ndarray) -> Callable[[float], Sequence[float]]:
    """Whole programs where the library has one, else the sum of its layers' calls."""
    took = 0.0

    def call(limit: float) -> Sequence[float]:
        nonlocal took
        if not took:  # the first call may compile
            runner.end_to_end(x)
        times = int(min(max(limit / took, 1), 1000)) if took else 1
        _, seconds = runner.end_to_end(x, times)
        if not seconds:
            seconds = [sum(runner.run(x).seconds) for _ in range(times)]
        took = float(np.median(seconds))
        return seconds

    return call


def exact_output(network: Network, x: np.ndarray) -> np.ndarray:
    """Returns the network's outputs for ``x`` with float64 weights, sums and activations."""
    with InlineSession(Target.parse("reference")) as session:
        return Runner(session, as_float64(network)).output(floats.widen(x, network.dtype))

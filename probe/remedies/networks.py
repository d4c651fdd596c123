"""Every remedy of a whole network on a target: which content lengths keep the fixed run's bits.

A remedy is exact where, at the least padded length that has all activations that read content,
every layer adds each of them as in the fixed run (:mod:`probe.network.safe`), with the remedy on
both sides. ``pad`` is the default at the lengths for which that holds: a little longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from probe import floats, ulp
from probe.errors import InputError, TargetError
from probe.launch import InlineSession
from probe.network.chain import Network
from probe.network.running import Runner, content, padded
from probe.network.safe import SafeLengths
from probe.remedies.candidates import CHUNKS, Remedy, candidates, unavailable
from probe.remedies.found import Found, Measured
from probe.remedies.measure import Progress, few
from probe.remedies.running import Sessions, in_turns
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
    progress: Progress | None = None,
    inline: bool = False,
) -> Measured:
    """Judges, times and checks every remedy for a network on ``where``.

    ``lengths``: of content, each compared with ``fixed`` (the network's own if not given). ``at``:
    the content length whose cost is told; a tenth of ``fixed`` if not given, and compared too.
    Errors: as of ``measure``.
    """
    fixed = network.fixed if fixed is None else fixed
    if fixed is None:
        why = "the model does not say for which size it was made"
        raise InputError("fixed", "(none)", why, "give --fixed N")
    geometry = network.geometry(fixed)
    at = at or max(fixed // 10, 1)
    contents = tuple(sorted({*lengths, at}))
    for one in contents:
        geometry.check(one)
    wanted = None if only is None else {"default", *only}
    todo = [one for one in candidates(where, chunks) if wanted is None or one.name in wanted]
    tell = progress or (lambda done, total, text: None)
    with ExitStack() as stack:
        work = _Work(network, fixed, contents, Sessions(stack, inline))
        found: list[Found] = []
        for number, remedy in enumerate(todo):
            tell(number, len(todo) + 1, remedy.name)
            found.append(work.judged(remedy))
            if number == 0 and (wanted is None or "pad" in wanted):
                found.append(work.padded(found[0]))
        tell(len(todo), len(todo) + 1, "cost")
        work.check(found)
        work.time(found, at)
        own = work.sessions.of(where)
        return Measured(network, where, contents, fixed, at, found, own.facts, own.variables)


class _Work:
    """What is done with each remedy of one network."""

    def __init__(
        self, network: Network, fixed: int, contents: tuple[int, ...], sessions: Sessions
    ) -> None:
        self.network, self.fixed, self.contents = network, fixed, contents
        self.sessions, self.geometry = sessions, network.geometry(fixed)
        self.least = {one: self.geometry.least(one) for one in contents}
        self.runners: dict[str, Runner] = {}
        self.own: SafeLengths | None = None

    def judged(self, remedy: Remedy) -> Found:
        """At which content lengths the least padding changes nothing."""
        found = Found(remedy, sizes=tuple(self.least.values()))
        if remedy.name != "default" and (why := unavailable(remedy)):
            found.refusal = why
            return found
        try:
            session = self.sessions.with_remedy(remedy, convolutions=True)
            safe = SafeLengths(session, self.geometry)
            if remedy.name == "default":
                self.own = safe
            kept = [safe.capacity(self.least[one]) >= one for one in self.contents]
        except TargetError as error:
            if remedy.name == "default":
                raise
            found.refusal = f"{error.kind}: {error.why}"
            return found
        found.compared, found.differing = len(kept), kept.count(False)
        self._unproved(found, safe)
        return found

    def _unproved(self, found: Found, safe: SafeLengths) -> None:
        """Sums whose ways aren't known were compared by bits, which proves nothing."""
        sums = {n: why for n, why in safe.by_bits.items() if self.network.layers[n].sums}
        if sums:
            number, why = next(iter(sums.items()))
            found.unknown = found.compared or 0
            found.refusal = f"{self.network.layers[number].name}: {why}"

    def padded(self, default: Found) -> Found:
        """The default at safe lengths."""
        assert self.own is not None
        sizes = tuple(self.own.safe(one) for one in self.contents)
        doc = f"zeros up to {few(sizes)} positions"
        remedy = Remedy("pad", default.remedy.where, doc)
        found = Found(remedy, compared=len(sizes), sizes=sizes)
        self._unproved(found, self.own)
        return found

    def check(self, found: list[Found]) -> None:
        """Each remedy's distance from a float64 run at the fixed length, and whose bits."""
        x = content(self.network, self.fixed)
        exact = exact_output(self.network, x)
        own: np.ndarray | None = None
        dtype = self.network.dtype
        for one in found:
            if one.compared is None:
                continue
            try:
                y = self._runner(one.remedy).output(x)
            except TargetError as error:
                one.refusal = one.refusal or f"{error.kind}: {error.why}"
                continue
            own = y if own is None else own
            one.keeps = bool(ulp.equal(y, own, dtype))
            scale = floats.eps(dtype) * np.abs(exact).max()
            errors = np.abs(floats.widen(y, dtype) - exact) / scale
            one.error_rms = float(np.sqrt(np.mean(errors**2)))
            one.error_max = float(errors.max())

    def _runner(self, remedy: Remedy) -> Runner:
        if remedy.name not in self.runners:
            session = self.sessions.with_remedy(remedy, convolutions=True)
            self.runners[remedy.name] = Runner(session, self.network)
        return self.runners[remedy.name]

    def time(self, found: list[Found], at: int) -> None:
        """Whole runs, all remedies in turns: the content at its padded length, and the fixed."""
        index = self.contents.index(at)
        ready = [one for one in found if one.keeps is not None]
        calls = {}
        for number, one in enumerate(ready):
            for name, length in ((at, one.sizes[index]), (self.fixed, self.fixed)):
                x = padded(content(self.network, min(name, length)), length)
                calls[number, name] = _timer(self._runner(one.remedy), x)
        for (number, name), medians in in_turns(calls).items():
            ready[number].seconds[name] = medians


def _timer(runner: Runner, x: np.ndarray) -> Callable[[float], Sequence[float]]:
    """Whole programs where the library has one, else the sum of its layers' calls."""
    took = 0.0

    def call(limit: float) -> Sequence[float]:
        nonlocal took
        times = int(min(max(limit / took, 1), 1000)) if took else 1
        _, seconds = runner.whole(x, times)
        if not seconds:
            seconds = [sum(runner.run(x).seconds) for _ in range(times)]
        took = float(np.median(seconds))
        return seconds

    return call


def exact_output(network: Network, x: np.ndarray) -> np.ndarray:
    """The network's outputs for ``x`` with float64 weights, sums and activations."""
    layers = tuple(
        replace(layer, **{name: array.astype(np.float64) for name, array in layer.arrays.items()})
        for layer in network.layers
    )
    wide = replace(network, layers=layers, dtype="float64")
    with InlineSession(Target.parse("reference")) as session:
        return Runner(session, wide).output(floats.widen(x, network.dtype))

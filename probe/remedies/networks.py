"""Measures every remedy of a network on a target: which valid lengths keep the full run's bits.

A remedy is exact where, at the least padded length that has all activations that read content,
every layer adds each of them as in the full run (:mod:`probe.network.safe`), with the remedy on
both sides. ``pad`` is the default at the lengths for which that holds: a little longer.
``layerwise`` is the default with every layer padded by itself (:mod:`probe.network.between`).
What is found exact is run on operands as well.

Of a model of any graph (``judged``) ``default`` pads each content to the least size that has its
outputs, ``pad`` to the least that changes no bit, ``fixed`` always to the full size, which is the
same call for every content. ``invariant`` runs the least size in the invariant mode: see
``invariants``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.errors import InputError, TargetError
from probe.launch import InlineSession
from probe.network.between import Layerwise
from probe.network.chain import Network
from probe.network.comparison import as_float64
from probe.network.running import Runner, content, padded
from probe.network.safe import SafeLengths
from probe.padding.search import Graph, Serves, Sized
from probe.progress import Tell
from probe.remedies.cases import Sessions, Timers, Work, few
from probe.remedies.invariants import DOC, NAME, Invariant, call
from probe.remedies.remedy import CHUNKS, Found, Measured, Remedy
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
    sessions: Sessions | None = None,
) -> Measured:
    """Judges, times and checks every remedy for a network on ``where``.

    ``lengths``: of content, each compared with ``fixed`` (the network's own if not given). ``at``:
    the content length whose cost is reported; a tenth of ``fixed`` if not given, and compared too.
    Of a network that is a part of its model (``network.part``) nothing is recommended, and no
    verdict is ``exact``: see ``Measured.verdict``. Errors: as of ``measure``.
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
    with nullcontext(sessions) if sessions else Sessions() as running:
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

    def judged(self, remedy: Remedy, **known: Any) -> Found:
        """Returns one remedy at the least padded lengths."""
        return super().judged(remedy, sizes=tuple(self.least.values()), **known)

    def judge(self, found: Found) -> None:
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

    def _unproved(self, found: Found, safe: SafeLengths) -> None:
        """Layers whose summations aren't known were compared by bits, which proves nothing."""
        sums = {n: why for n, why in safe.by_bits.items() if self.network.layers[n].sums}
        if sums:
            number, why = next(iter(sums.items()))
            found.unknown = found.compared or 0
            found.refusal = f"{self.network.layers[number].name}: {why}"

    def more(self, found: Found) -> Iterator[Found]:
        """``pad`` and ``layerwise``, the latter compiled as well."""
        remedy = found.remedy
        names = {"default": ("pad", "layerwise"), "xla=1": ("layerwise,xla=1",)}
        for name in names.get(remedy.name, ()):
            if remedy.name in self.safe and self.wants(name):
                safe = self.safe[remedy.name]
                yield self.padded(safe) if name == "pad" else self.layerwise(name, remedy, safe)

    def padded(self, own: SafeLengths) -> Found:
        """Runs the network unchanged, padded to its safe length."""
        sizes = tuple(own.safe(one) for one in self.contents)
        doc = f"zeros up to {few(sizes)} positions"
        found = Found(Remedy("pad", self.where, doc), compared=len(sizes), sizes=sizes)
        found.certified = not any(map(own.uncertified, set(sizes)))
        self._unproved(found, own)
        return found

    def layerwise(self, name: str, on: Remedy, safe: SafeLengths) -> Found:
        """Pads every layer by itself with what it computes of padding alone."""
        found = Found(replace(on, name=name, doc="constants inserted before every layer"))
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

    def other_bits(self, found: Found) -> int:
        """Runs all contents on operands."""
        return sum(not self._same_bits(found, one) for one in self.contents)

    def _same_bits(self, one: Found, length: int) -> bool:
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

    def _short(self, one: Found, length: int) -> tuple[Runner, int]:
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

    def timers(self, ready: Sequence[Found]) -> Timers:
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


TURNS = 7
"""Runs of each way, in turns, whose median is reported."""

DOCS = {
    "default": "inputs padded to the least size that has all outputs",
    "pad": "inputs padded to the least size that changes no bit",
    "fixed": "inputs always padded to the full size",
}


def judged(
    graph: Graph, sizes: Sequence[Sized], at: int, invariant: Invariant | None = None
) -> list[dict[str, Any]]:
    """Judges and times every way. ``at``: the content whose costs are told, one of the ``sizes``.

    Each has ``name``, ``doc``, ``verdict`` (``exact``, ``differs``, ``not known``), ``certified``,
    ``refusal`` (what is in the way, or differs), ``sizes``, ``of_fixed``: its time over that of
    the full size, ``ratio``: over that of the least size; both None where it can't run. ``keeps``:
    whether the full size has the unchanged model's bits.
    """
    ways: dict[str, tuple[list[int], list[Serves]]] = {
        "default": ([one.least for one in sizes], [one.at_least for one in sizes]),
        "pad": ([one.safe for one in sizes], [one.at_safe for one in sizes]),
        "fixed": ([graph.fixed] * len(sizes), []),
    }
    place = [one.content for one in sizes].index(at)
    calls: dict[Any, Callable[[], Any]] = {
        size: graph.call(at, size) for size in dict.fromkeys(p[place] for p, _ in ways.values())
    }
    least = sizes[place].least
    if invariant is not None and invariant.report is not None:
        calls[NAME] = call(invariant, graph, at, least)
    took = _timed(calls)
    found = [_way(name, *way) for name, way in ways.items()]
    if invariant is not None:
        found.append(_of_mode(invariant, sizes))
    for one in found:
        mine = took.get(NAME if one["name"] == NAME else one["sizes"][place])
        one["of_fixed"] = None if mine is None else mine / took[graph.fixed]
        one["ratio"] = None if mine is None else mine / took[least]
    return found


def _way(name: str, padded: list[int], told: list[Serves]) -> dict[str, Any]:
    """Returns a way of padding, by what is known of its sizes."""
    doubts = [f"{one.name}: {one.why}" for one in told if _verdict(one) != "exact"]
    words = {_verdict(one) for one in told}
    return {
        "name": name,
        "doc": DOCS[name],
        "verdict": next((w for w in ("differs", "not known") if w in words), "exact"),
        "certified": all(one.certified for one in told),
        "refusal": doubts[0] if doubts else None,
        "sizes": padded,
        "keeps": True,
    }


def _of_mode(found: Invariant, sizes: Sequence[Sized]) -> dict[str, Any]:
    """Returns the invariant mode as a way."""
    why = found.refusal
    if found.differing:
        why = f"{found.differing:,} kept outputs have different bits"
    return {
        "name": NAME,
        "doc": DOC,
        "verdict": found.verdict,
        "certified": found.certified,
        "refusal": why or None,
        "sizes": [one.least for one in sizes],
        "keeps": found.keeps,
    }


def recommended(ways: Sequence[dict[str, Any]]) -> str:
    """Returns the cheapest way that is exact.

    Of two paddings that with the smaller sizes, of equal ones the simpler; the invariant mode where
    it took less time than that.
    """
    exact = [one for one in ways if one["verdict"] == "exact"]
    padded = [one for one in exact if one["name"] != NAME]
    best: dict[str, Any] = min(padded, key=lambda one: (sum(one["sizes"]), ways.index(one)))
    for one in exact:
        if one["name"] == NAME and best["name"] != "default" and one["of_fixed"] < best["of_fixed"]:
            best = one
    return str(best["name"])


def _verdict(one: Serves) -> str:
    if one.lacking:  # no shorter size has the outputs, so it is the full one
        return "exact"
    if not one.serves:
        return "differs" if one.by_order == "differs" else "not known"
    return "exact" if one.by_order == "same" else "not known"


def _timed(calls: Mapping[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Medians of seconds by name, run in turns."""
    took: dict[Any, list[float]] = {name: [] for name in calls}
    for run in calls.values():
        run()  # the first one may compile
    for _ in range(TURNS):
        for name, run in calls.items():
            begun = time.perf_counter()
            run()
            took[name].append(time.perf_counter() - begun)
    return {name: float(np.median(times)) for name, times in took.items()}

"""Measures networks for a store: comparisons, safe lengths, decisions and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lib.chains import comparison
from lib.chains.chain import Network
from lib.chains.checks import differing, kept
from lib.chains.comparison import Comparer, PaddedComparison
from lib.chains.layerwise import Layerwise
from lib.chains.running import Runner, content, padded
from lib.chains.safe import SafeLengths
from probe import ulp
from probe.campaign import Campaign, CampaignPart, Row, Tally
from probe.comparison import decisions
from probe.errors import TargetError
from probe.launch import AnySession, InlineSession, open_session
from probe.progress import Tell
from probe.store import Store, load
from probe.target import Target

TIMES = 5
"""Calls of a program in one turn, of which the fastest counts."""


PROGRAM_SEED = 5_000
"""Of the content whose length is 0 and that is run end to end; longer content has those behind."""


@dataclass(frozen=True)
class Request:
    """What to measure of one network on one target.

    ``contents``: compared, and padded safely. ``checked``: how many fresh sets of operands for
    each. ``decided``: contents of which decisions are taken, on fresh operands; ``layerwise``: also
    with padding between the layers. ``costs``: contents whose variants are timed, in ``turns``
    turns. A request without ``contents`` is one for costs alone.
    """

    network: Network
    source: str
    fixed: int
    contents: Sequence[int]
    checked: int = 1
    decided: Sequence[int] = ()
    layerwise: bool = False
    costs: Sequence[int] = ()
    turns: int = 15


@dataclass
class Measured(Tally):
    """What was measured in this run, in counts: networks are ``found``.

    ``inexact``: contents with another bit at the safe length. ``programs``: contents that were run
    end to end at their safe length too, of which ``otherwise`` have another bit there.
    """

    comparisons: int = 0
    diverging: int = 0
    explained: int = 0
    inexact: int = 0
    programs: int = 0
    otherwise: int = 0


def measure(
    requests: Sequence[tuple[Target, Sequence[Request]]],
    store: Store,
    experiment: str,
    progress: Tell | None = None,
) -> Measured:
    """Measures what is not stored yet. A target's failure is stored; others go on."""
    job = _Measuring(store, experiment, progress, lambda one: open_session(one, time_limit=600.0))
    job.run(requests)
    return job.tally


class _Measuring(Campaign[Request]):
    """``stored``, ``programs`` and ``timed``: keys of what was measured before."""

    tally: Measured

    def __init__(self, store: Store, *options: Any) -> None:
        super().__init__(store, *options)
        self.tally = Measured()
        self.stored = {key[:3] for key in store.done_keys("padded_lengths")}
        self.programs = {key[:3] for key in store.done_keys("programs")}
        self.timed = {key[:2] for key in store.done_keys("measurements")}

    def ask(self, part: CampaignPart[Request], question: Request) -> None:
        """Measures one network, unless it is stored."""
        network = question.network
        part.tell(0, network.name)
        place: Row = {"run_id": part.run_id, "network_id": network.id, "target": part.target.text}
        key, done = tuple(place.values()), (part.run_id, subject(question)) in self.timed
        rows = _Rows(part.session, question, place, lambda text: part.tell(0, text))
        tables: dict[str, list[Row]] = {}
        try:
            if key not in self.stored if question.contents else not done:
                tables = rows.made()
            elif question.contents and key not in self.programs:
                tables = {"programs": rows.programs(self._safe(place))}
        except TargetError as error:
            why = f"{network.name}: {error.why}"
            raise TargetError(error.target, error.kind, why, error.stderr) from None
        if not any(tables.values()):
            self.tally.before += 1
            return
        self.keep("networks", network.row(question.fixed, question.source))
        for table, made in tables.items():
            self.keep(table, made)
        self._count(rows, tables)

    def _safe(self, place: Row) -> dict[int, int]:
        """Content -> safe padded length, as it was stored before."""
        assert self.store is not None
        found = load(self.store.path).padded_lengths
        for name, value in place.items():
            found = found[found[name] == value]
        return dict(zip(found.content.tolist(), found.safe.tolist(), strict=True))

    def _count(self, rows: _Rows, tables: dict[str, list[Row]]) -> None:
        assert self.store is not None
        self.store.flush()
        tally = self.tally
        tally.found += 1
        tally.comparisons += rows.compared
        tally.diverging += rows.diverging
        tally.explained += rows.explained
        lengths = tables.get("padded_lengths", [])
        tally.inexact += sum(bool(row["differing_safe"]) for row in lengths)
        safe = [row for row in tables.get("programs", []) if row["variant"] == "safe"]
        tally.programs += len(safe)
        tally.otherwise += sum(bool(row["differing"]) for row in safe)


class _Rows:
    """All rows of one network on one target."""

    def __init__(
        self, session: AnySession, request: Request, place: Row, tell: Callable[[str], None]
    ) -> None:
        self.session, self.request, self.place = session, request, place
        self.tell = lambda text: tell(f"{request.network.name} {text}")
        self.geometry = request.network.geometry(request.fixed)
        self.lengths = SafeLengths(session, self.geometry)
        self.exact: Runner | None = None
        self.compared = self.diverging = self.explained = 0

    @cached_property
    def layerwise(self) -> Layerwise:
        """Plans that pad every layer."""
        return Layerwise(self.lengths)

    def made(self) -> dict[str, list[Row]]:
        """Rows by table; the padded lengths, which say that the network is done, come last."""
        found: dict[str, list[Row]] = {"activations": self._activations()}
        safe = {length: self.lengths.safe(length) for length in self.request.contents}
        found["programs"] = self.programs(safe)
        found["decisions"] = self._decisions()
        found["measurements"] = self._costs()
        found["padded_lengths"] = self._lengths()
        return found

    def _activations(self) -> list[Row]:
        comparer, rows = Comparer(self.session, self.geometry), []
        controlled: set[int] = set()
        for number, length in enumerate(self.request.contents):
            self.tell(f"valid length {length}")
            to = self.geometry.least(length)
            first = to not in controlled
            controlled.add(to)
            found = comparer.compare(length, control=first, whole=first or number % 16 == 0)
            self.compared += 1
            if found.first is not None:
                self.diverging += 1
                self.explained += found.explained
            rows += self._layers(found)
        return rows

    def _layers(self, found: PaddedComparison) -> list[Row]:
        """Returns the last layer, and every one that differs, or was run again for control."""
        place = self.place | {"content": found.need.content, "padded": found.padded}
        place |= {"fixed": found.fixed}
        same = ("name", "op", "size", "size_fixed", "compared", "other_window", "differing")
        return [
            place
            | {name: getattr(at, name) for name in (*same, "max_ulp", "own", "replayed")}
            | {"layer": at.number, "max_scaled": at.scaled}
            | {"cause": ", ".join(at.causes) or None, "control": at.control or None}
            for at in found.layers
            if at.differing or at.control or at.number == len(found.layers) - 1
        ]

    def _lengths(self) -> list[Row]:
        rows = []
        for length in self.request.contents:
            self.tell(f"safe length for {length}")
            need, safe = self.geometry.requirement(length), self.lengths.safe(length)
            seeds = range(1, 1 + self.request.checked)
            differ = {
                to: sum(differing(self.lengths, length, to, seed) for seed in seeds)
                for to in {need.padded, safe}
            }
            row = {
                "content": length,
                "fixed": self.request.fixed,
                "outputs": need.outputs,
                "kept": need.kept,
                "least": need.padded,
                "safe": safe,
                "unknown": len(self.lengths.by_bits),
                "differing_least": differ[need.padded],
                "differing_safe": differ[safe],
                "checked": self.request.checked,
            }
            rows.append(self.place | row)
        return rows

    def programs(self, safe: dict[int, int]) -> list[Row]:
        """All contents end to end, in one call of the library; none where it has no such call.

        What was found layer by layer is asked again of all layers: a compiler may fuse over the
        borders of layers, and then adds differently than any layer does by itself.
        """
        rows: list[Row] = []
        for length, to in safe.items():
            self.tell(f"end to end, valid length {length}")
            found = list(self._end_to_end(length, to))
            if not found:
                return []
            rows += [self.place | row for row in found]
        return rows

    def _end_to_end(self, length: int, safe: int) -> Iterator[Row]:
        """Rows of ``programs`` for one content; with its layerwise plan where that is asked for.

        Then also how the full run's bits compare with those layer by layer.
        """
        geometry, network, runner = self.geometry, self.request.network, self.lengths.runner
        x = content(network, length, PROGRAM_SEED + length)
        given = padded(x, geometry.fixed)
        fixed, _ = runner.end_to_end(given)
        if fixed is None:
            return
        layerwise = self.request.layerwise and length in self.request.decided
        runs = [("least", geometry.least(length), runner), ("safe", safe, runner)]
        other = None
        if layerwise:
            other = int(ulp.apart(fixed, runner.output(given), network.dtype).sum())
            runs.append(("layerwise", length, Runner(self.session, self.layerwise.plan(length))))
        for variant, to, one in runs:
            output, _ = one.end_to_end(padded(x, to))
            if output is None:
                continue
            if variant == "layerwise":
                theirs = fixed[..., : output.shape[-2], :]
            else:
                need = geometry.requirement(length, to)
                output, theirs = kept(need, output), fixed[..., need.first : need.kept, :]
            found = ulp.differences(output, theirs, network.dtype)
            yield {
                "content": length,
                "variant": variant,
                "padded": to,
                "fixed": geometry.fixed,
                "compared": output.size,
                "differing": len(found.index),
                "max_ulp": ulp.largest(found.ulps),
                "other_than_layers": other,
            }

    def _decisions(self) -> list[Row]:
        network, rows = self.request.network, []
        for length in self.request.decided:
            self.tell(f"decisions at {length}")
            x, need = content(network, length, 1000 + length), self.geometry.requirement(length)
            fixed = self.lengths.runner.as_used(padded(x, self.request.fixed))
            fixed = fixed[..., need.first : need.kept, :]
            truth = kept(need, self._truth(padded(x, need.padded)))
            for variant, to, short in self._variants(length, x):
                common = self.place | {
                    "content": length,
                    "variant": variant,
                    "padded": to,
                    "differing": int(ulp.apart(short, fixed, network.dtype).sum()),
                    "error": decisions.error(short, truth, network.dtype),
                    "error_fixed": decisions.error(fixed, truth, network.dtype),
                }
                taken = decisions.decisions(short, fixed, network.dtype)
                rows += [common | vars(one) for one in taken]
        return rows

    def _truth(self, x: np.ndarray) -> np.ndarray:
        """Returns the output in float64: the target's own, or NumPy's where it has none."""
        if self.exact is None:
            self.exact = Runner(self.session, comparison.as_float64(self.request.network))
        try:
            return self.exact.output(x.astype(np.float64))
        except TargetError as error:
            if error.kind != "unsupported" or self.exact.session is not self.session:
                raise
        reference = InlineSession(Target.parse("reference")).start()
        self.exact = Runner(reference, self.exact.network)
        return self.exact.output(x.astype(np.float64))

    def _variants(self, length: int, x: np.ndarray) -> Iterator[tuple[str, int, np.ndarray]]:
        """(variant, padded length, outputs that are kept) of every way to run the content."""
        for variant, to in (
            ("least", self.geometry.least(length)),
            ("safe", self.lengths.safe(length)),
        ):
            output = self.lengths.runner.as_used(padded(x, to))
            yield variant, to, kept(self.geometry.requirement(length, to), output)
        if self.request.layerwise:
            plan = self.layerwise.plan(length)
            yield "layerwise", length, Runner(self.session, plan).as_used(x)

    def _costs(self) -> list[Row]:
        """Returns seconds of each variant's program, turn by turn."""
        rows: list[Row] = []
        for length in self.request.costs:
            self.tell(f"costs at {length}")
            for variant, turns in timed(self.lengths, length, self.request.turns).items():
                rows += [
                    {
                        "run_id": self.place["run_id"],
                        "subject": subject(self.request),
                        "variant": variant,
                        "size": length,
                        "repeat": number,
                        "value": seconds,
                        "unit": "s",
                    }
                    for number, seconds in enumerate(turns)
                ]
        return rows


def timed(lengths: SafeLengths, length: int, turns: int) -> dict[str, list[float]]:
    """Seconds of a call by variant, in turns: ``fixed``, ``least``, ``safe`` and ``layerwise``.

    Each is the fastest of ``TIMES`` calls of the library's own program on one input; empty where
    the library has none. Padding the content is part of no time.
    """
    geometry, network = lengths.geometry, lengths.network
    x, plan = content(network, length), Layerwise(lengths).plan(length)
    variants = {
        "fixed": (lengths.runner, padded(x, geometry.fixed)),
        "least": (lengths.runner, padded(x, geometry.least(length))),
        "safe": (lengths.runner, padded(x, lengths.safe(length))),
        "layerwise": (Runner(lengths.session, plan), x),
    }
    found: dict[str, list[float]] = {}
    for _ in range(turns):
        for variant, (runner, given) in variants.items():
            output, seconds = runner.end_to_end(given, TIMES)
            if output is not None:
                found.setdefault(variant, []).append(min(seconds))
    return found


def subject(request: Request) -> str:
    """Returns what ``measurements`` calls the costs of a request's network."""
    return f"{request.source}, fixed {request.fixed}"

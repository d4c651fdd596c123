"""Networks measured for a store: comparisons, safe lengths, decisions, costs, target by target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from probe.errors import TargetError
from probe.launch import AnySession, InlineSession, open_session
from probe.network import consequence, programs
from probe.network.chain import Network
from probe.network.comparison import Comparer, Comparison
from probe.network.layerwise import Layerwise
from probe.network.plan import differing, kept
from probe.network.rows import network_row
from probe.network.running import Runner, content, padded
from probe.network.safe import SafeLengths
from probe.store import Store, load
from probe.sweep.observations import run_row
from probe.target import Target

Row = dict[str, Any]
TIMES = 5
"""Calls of a program in one turn, of which the fastest counts."""


@dataclass(frozen=True)
class Wish:
    """What to measure of one network on one target.

    ``contents``: compared, and padded safely. ``checked``: how many fresh sets of operands for
    each. ``decided``: contents of which decisions are taken, on fresh operands; ``layerwise``: also
    with padding between the layers. ``costs``: contents whose variants are timed, in ``turns``
    turns. A wish without ``contents`` is one for costs alone.
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
class Measured:
    """What was measured in this run, in counts.

    ``inexact``: contents with another bit at the safe length. ``programs``: contents that were run
    as one program at their safe length too, of which ``otherwise`` have another bit there.
    """

    networks: int = 0
    before: int = 0
    comparisons: int = 0
    diverging: int = 0
    explained: int = 0
    inexact: int = 0
    programs: int = 0
    otherwise: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False


def measure(
    wishes: Sequence[tuple[Target, Sequence[Wish]]],
    store: Store,
    experiment: str,
    progress: Callable[[int, int, str], None] | None = None,
) -> Measured:
    """Measures every wish that is not stored yet. A target's failure is stored; others go on."""
    found = Measured()
    work = _Work(store, experiment, found, progress, sum(len(each) for _, each in wishes))
    try:
        for where, each in wishes:
            work.target(where, each)
    except KeyboardInterrupt:
        found.interrupted = True
    store.flush()
    return found


class _Work:
    def __init__(
        self,
        store: Store,
        experiment: str,
        found: Measured,
        progress: Callable[[int, int, str], None] | None,
        total: int,
    ) -> None:
        self.store, self.experiment, self.found = store, experiment, found
        self.progress, self.total, self.number = progress, total, 0
        self.stored = {key[:3] for key in store.done_keys("padded_lengths")}
        self.programs = {key[:3] for key in store.done_keys("programs")}
        self.timed = {key[:2] for key in store.done_keys("measurements")}

    def target(self, where: Target, wishes: Sequence[Wish]) -> None:
        session = open_session(where, time_limit=600.0)
        try:
            session.start()
            for wish in wishes:
                self._network(session, wish)
        except TargetError as error:
            self._failed(session, None, error)
            self.number += len(wishes)
        finally:
            session.close()

    def _run_row(self, session: AnySession) -> Row:
        return run_row(session.target, session.facts, session.variables, self.experiment)

    def _network(self, session: AnySession, wish: Wish) -> None:
        run, self.number = self._run_row(session), self.number + 1
        self._tell(session, wish, "")
        place = {"run_id": run["run_id"], "network_id": wish.network.id}
        place |= {"target": session.target.text}
        key = tuple(place.values())
        done = key in self.stored
        if not wish.contents:
            done = (run["run_id"], subject(wish)) in self.timed
        rows = _Rows(session, wish, place, lambda text: self._tell(session, wish, text))
        try:
            if not done:
                tables = rows.made()
            elif wish.contents and key not in self.programs:
                tables = {"programs": rows.programs(self._safe(place))}
            else:
                tables = {}
        except TargetError as error:
            self._failed(session, wish, error)
            if not session.alive:
                session.start()
            return
        if not any(tables.values()):
            self.found.before += 1
            return
        self.store.append("runs", run)
        self.store.append("networks", network_row(wish.network, wish.fixed, wish.source))
        for table, made in tables.items():
            self.store.append(table, made)
        self.store.flush()
        self.found.networks += 1
        self._count(rows, tables)

    def _safe(self, place: Row) -> dict[int, int]:
        """Content -> safe padded length, as it was stored before."""
        found = load(self.store.path).padded_lengths
        for name, value in place.items():
            found = found[found[name] == value]
        return dict(zip(found.content.tolist(), found.safe.tolist(), strict=True))

    def _count(self, rows: _Rows, tables: dict[str, list[Row]]) -> None:
        self.found.comparisons += rows.compared
        self.found.diverging += rows.diverging
        self.found.explained += rows.explained
        self.found.inexact += sum(
            bool(row["differing_safe"]) for row in tables.get("padded_lengths", [])
        )
        self.found.programs += sum(row["variant"] == "safe" for row in tables.get("programs", []))
        self.found.otherwise += sum(
            bool(row["differing"]) for row in tables.get("programs", []) if row["variant"] == "safe"
        )

    def _tell(self, session: AnySession, wish: Wish, text: str) -> None:
        if self.progress:
            what = f"{session.target.text}: {wish.network.name} {text}"
            self.progress(self.number, self.total, what)

    def _failed(self, session: AnySession, wish: Wish | None, error: TargetError) -> None:
        run = self._run_row(session)
        self.store.append("runs", run)
        row = {"run_id": run["run_id"], "target": session.target.text}
        what = "" if wish is None else f"{wish.network.name}: "
        told = {"kind": error.kind, "message": f"{what}{error.why}", "stderr": error.stderr or None}
        self.store.append("failures", row | told)
        self.found.failures.setdefault(session.target.text, []).append(str(error))


class _Rows:
    """All rows of one network on one target."""

    def __init__(
        self, session: AnySession, wish: Wish, place: Row, tell: Callable[[str], None]
    ) -> None:
        self.session, self.wish, self.place, self.tell = session, wish, place, tell
        self.geometry = wish.network.geometry(wish.fixed)
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
        safe = {length: self.lengths.safe(length) for length in self.wish.contents}
        found["programs"] = self.programs(safe)
        found["decisions"] = self._decisions()
        found["measurements"] = self._costs()
        found["padded_lengths"] = self._lengths()
        return found

    def _activations(self) -> list[Row]:
        comparer, rows = Comparer(self.session, self.geometry), []
        controlled: set[int] = set()
        for number, length in enumerate(self.wish.contents):
            self.tell(f"content {length}")
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

    def _layers(self, found: Comparison) -> list[Row]:
        """The last layer, and every one that differs, or was run again for control."""
        place = self.place | {"content": found.need.content, "padded": found.padded}
        place |= {"fixed": found.fixed}
        return [
            place
            | {
                "layer": at.number,
                "name": at.name,
                "op": at.op,
                "size": at.size,
                "size_fixed": at.size_fixed,
                "compared": at.compared,
                "other_window": at.other_window,
                "differing": at.differing,
                "max_ulp": at.max_ulp,
                "max_scaled": at.scaled,
                "own": at.own,
                "cause": ", ".join(at.causes) or None,
                "replayed": at.replayed,
                "control": at.control or None,
            }
            for at in found.layers
            if at.differing or at.control or at.number == len(found.layers) - 1
        ]

    def _lengths(self) -> list[Row]:
        rows = []
        for length in self.wish.contents:
            self.tell(f"safe length for {length}")
            need, safe = self.geometry.need(length), self.lengths.safe(length)
            seeds = range(1, 1 + self.wish.checked)
            differ = {
                to: sum(differing(self.lengths, length, to, seed) for seed in seeds)
                for to in {need.padded, safe}
            }
            row = {
                "content": length,
                "fixed": self.wish.fixed,
                "outputs": need.outputs,
                "kept": need.kept,
                "least": need.padded,
                "safe": safe,
                "unknown": len(self.lengths.by_bits),
                "differing_least": differ[need.padded],
                "differing_safe": differ[safe],
                "checked": self.wish.checked,
            }
            rows.append(self.place | row)
        return rows

    def programs(self, safe: dict[int, int]) -> list[Row]:
        """All contents as one program of the library; none where it has no such program."""
        rows: list[Row] = []
        for length, to in safe.items():
            self.tell(f"as one program, content {length}")
            layerwise = self.wish.layerwise and length in self.wish.decided
            with_plan = self.layerwise if layerwise else None
            found = list(programs.rows(self.lengths, length, to, with_plan))
            if not found:
                return []
            rows += [self.place | row for row in found]
        return rows

    def _decisions(self) -> list[Row]:
        network, rows = self.wish.network, []
        for length in self.wish.decided:
            self.tell(f"decisions at {length}")
            x, need = content(network, length, 1000 + length), self.geometry.need(length)
            fixed = self.lengths.runner.end_to_end(padded(x, self.wish.fixed))
            fixed = fixed[..., need.first : need.kept, :]
            truth = kept(need, self._truth(padded(x, need.padded)))
            for variant, to, short in self._variants(length, x):
                common = self.place | {
                    "content": length,
                    "variant": variant,
                    "padded": to,
                    "differing": consequence.differing(short, fixed, network.dtype),
                    "error": consequence.error(short, truth, network.dtype),
                    "error_fixed": consequence.error(fixed, truth, network.dtype),
                }
                taken = consequence.decisions(short, fixed, network.dtype)
                rows += [common | vars(one) for one in taken]
        return rows

    def _truth(self, x: np.ndarray) -> np.ndarray:
        """The output in float64: the target's own, or NumPy's where it has none."""
        if self.exact is None:
            self.exact = Runner(self.session, consequence.as_float64(self.wish.network))
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
            output = self.lengths.runner.end_to_end(padded(x, to))
            yield variant, to, kept(self.geometry.need(length, to), output)
        if self.wish.layerwise:
            plan = self.layerwise.plan(length)
            yield "layerwise", length, Runner(self.session, plan).end_to_end(x)

    def _costs(self) -> list[Row]:
        """Seconds of each variant's program, turn by turn."""
        rows: list[Row] = []
        for length in self.wish.costs:
            self.tell(f"costs at {length}")
            for variant, turns in timed(self.lengths, length, self.wish.turns).items():
                rows += [
                    {
                        "run_id": self.place["run_id"],
                        "subject": subject(self.wish),
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
            output, seconds = runner.whole(given, TIMES)
            if output is not None:
                found.setdefault(variant, []).append(min(seconds))
    return found


def subject(wish: Wish) -> str:
    """What ``measurements`` calls the costs of a wish's network."""
    return f"{wish.source}, fixed {wish.fixed}"

"""Measures networks for a store: comparisons, safe lengths, decisions and costs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib import nine_layers
from lib.nine_layers import NineLayers
from probe import floats, ulp
from probe.agreement.walk import compare_and_explain
from probe.campaign import Campaign, CampaignPart, Row, Tally
from probe.comparison import decisions
from probe.errors import TargetError
from probe.launch import AnySession, open_session
from probe.operands import normal
from probe.progress import Tell
from probe.recording.difference import Difference
from probe.recording.recording import Run
from probe.recording.replayed import OnTarget, replay_run
from probe.recording.subject import open_model
from probe.sizes import orders
from probe.sizes.search import PaddedModel
from probe.store import Store, load
from probe.target import Target

TIMES = 5
"""Calls of a program in one turn, of which the fastest counts."""


PROGRAM_SEED = 5_000
"""Of the content whose length is 0 and that is run end to end; longer content has those behind."""


@dataclass(frozen=True)
class Request:
    """What to measure of one network on one target. ``source``: as of ``NineLayers.parse``.

    ``contents``: compared, and padded safely. ``checked``: how many fresh sets of operands for
    each. ``decided``: contents of which decisions are taken, on fresh operands. ``costs``: contents
    whose variants are timed, in ``turns`` turns. A request without ``contents`` is one for costs
    alone.
    """

    source: str
    fixed: int
    contents: Sequence[int]
    checked: int = 1
    decided: Sequence[int] = ()
    costs: Sequence[int] = ()
    turns: int = 15

    @property
    def network(self) -> NineLayers:
        """Returns what is run."""
        return NineLayers.parse(self.source, self.fixed)


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
        tables: dict[str, list[Row]] = {}
        with tempfile.TemporaryDirectory(prefix="probe-") as folder:
            tell = lambda text: part.tell(0, text)  # noqa: E731
            rows = _Rows(part.session, question, place, Path(folder), tell)
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
        self.keep("networks", network.row(question.source))
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


AXIS = 3
"""The padded axis: arrays are (1, channels, 1, positions)."""


def graph_of(network: NineLayers, session: AnySession, folder: Path) -> PaddedModel:
    """Returns the network on a target, operation by operation, its input padded.

    ``folder``: for its file. It is recorded unoptimised, so that each layer is an operation.
    """
    words = {name: getattr(network, name) for name in ("width", "seed", "blocks", "padding")}
    path = nine_layers.onnx_model(folder / f"{network.id}.onnx", **words)
    model = open_model(path, switches={"optimisation": "none"})
    x = {"x": content(network.fixed)}
    return PaddedModel(OnTarget(model, session), x, {"x": AXIS}, network.fixed, seconds=SECONDS)


SECONDS = 3600.0
"""Seconds for finding the safe sizes of all contents."""


def content(length: int, seed: int = 0) -> np.ndarray:
    """Returns content of that many positions, normal; the prefix of longer content of its seed."""
    return normal(seed, "x", (1, 1, 1, length)).astype(np.float32)


def padded(x: np.ndarray, length: int) -> dict[str, np.ndarray]:
    """Returns the network's input, content with zeros behind it, up to ``length``."""
    return {"x": np.pad(x, [(0, 0)] * AXIS + [(0, length - x.shape[AXIS])])}


class _Rows:
    """All rows of one network on one target."""

    def __init__(
        self,
        session: AnySession,
        request: Request,
        place: Row,
        folder: Path,
        tell: Callable[[str], None],
    ) -> None:
        self.request, self.place, self.network = request, place, request.network
        self.tell = lambda text: tell(f"{self.network.name} {text}")
        self.graph = graph_of(self.network, session, folder)
        self.target: OnTarget = self.graph.opened
        self.compared = self.diverging = self.explained = 0

    def made(self) -> dict[str, list[Row]]:
        """Rows by table; the padded lengths, which say that the network is done, come last."""
        safe = {length: self.graph.sized(length).safe for length in self.request.contents}
        found: dict[str, list[Row]] = {"activations": self._activations()}
        found["programs"] = self.programs(safe)
        found["decisions"] = self._decisions()
        found["measurements"] = self._costs()
        found["padded_lengths"] = self._lengths()
        return found

    def kept(self, length: int, output: np.ndarray) -> np.ndarray:
        """Returns the outputs that are kept: those that read content. They stand at their places
        in the full run."""
        (box,) = self.graph.boxes(length)
        if box is None or not box:
            return output[..., :0] if box is None else output
        assert [part.axis for part in box] == [AXIS]
        return output[..., box[0].start : box[0].stop]

    def _activations(self) -> list[Row]:
        rows, controlled = [], set[int]()
        for length in self.request.contents:
            self.tell(f"valid length {length}")
            to = self.graph.sized(length).least
            sides = self.graph.side(length, to), self.graph.whole(length)
            control = [] if to in controlled else self._control(length, sides)
            controlled.add(to)
            match = orders.match_of(*sides, self.graph.marks(length, to))
            difference = compare_and_explain(*sides, match=match)
            rows += self._layers(length, to, difference, control)
        return rows

    def _control(self, length: int, sides: tuple[Run, Run]) -> list[str]:
        """Runs both sides again; of each layer whether it gave the same bits."""
        same = []
        for run in sides:
            again = self.target.side(self.graph.inputs(length, _size(run))).values
            values = run.values
            same.append([n for n, one in enumerate(values) if one.digest == again[n].digest])
        operations = sides[0].operations
        return [
            "equal" if all(set(one.gives) <= set(some) for some in same) else "differs"
            for one in operations
        ]

    def _layers(self, length: int, to: int, found: Difference, control: list[str]) -> list[Row]:
        """Returns the last layer, and every one that differs, or was run again for control."""
        self.compared += 1
        if any(one.differing for one in found.operations):
            self.diverging += 1
            known = [found.causes.get(n) for n in self._own(found)]
            self.explained += all(one is not None and one.explained for one in known)
        rows = []
        for number, one in enumerate(found.operations):
            last = number == len(found.operations) - 1
            if not (one.differing or control or last):
                continue
            assert one.left is not None and one.right is not None
            (pair,) = one.gives
            ours, theirs = (
                run.array(n) for run, n in ((found.left, pair.left), (found.right, pair.right))
            )
            assert ours is not None and theirs is not None
            cause = found.causes.get(number)
            own = self._own(found).get(number, 0)
            row = {
                "content": length,
                "padded": to,
                "fixed": self.request.fixed,
                "layer": number,
                "name": one.name,
                "op": next(each.op for each in self.network.layers if each.name == one.name),
                "size": ours.shape[AXIS],
                "size_fixed": theirs.shape[AXIS],
                "compared": one.compared,
                "other_window": ours.size - one.compared,
                "differing": one.differing,
                "max_ulp": one.max_ulp,
                "max_scaled": _scaled(pair, ours, theirs) if one.differing else 0.0,
                "own": own,
                "replayed": cause.replayed if own and cause is not None else 0,
                "cause": (one.cause.replace("+", ", ") or "unexplained") if own else None,
                "control": control[number] if control else None,
            }
            rows.append(self.place | row)
        return rows

    def _own(self, found: Difference) -> dict[int, int]:
        """Returns how many outputs each layer changes by itself, by its number."""
        every = enumerate(found.operations)
        own = {n: one.differing if one.verdict == "source" else one.own or 0 for n, one in every}
        return {n: count for n, count in own.items() if count}

    def _lengths(self) -> list[Row]:
        rows = []
        for length in self.request.contents:
            self.tell(f"safe length for {length}")
            sized = self.graph.sized(length)
            differ = dict.fromkeys((sized.least, sized.safe), 0)
            for seed in range(1, 1 + self.request.checked):
                x = content(length, seed)
                (whole,) = self.target.plain(padded(x, self.request.fixed))
                for to in differ:
                    (short,) = self.target.plain(padded(x, to))
                    differ[to] += self._apart(length, short, whole)
            (box,) = self.graph.boxes(length)
            row = {
                "content": length,
                "fixed": self.request.fixed,
                "outputs": whole.shape[AXIS],
                "kept": whole.shape[AXIS] if not box else box[0].stop,
                "least": sized.least,
                "safe": sized.safe,
                "unknown": int(sized.at_safe.by_order == "unknown"),
                "differing_least": differ[sized.least],
                "differing_safe": differ[sized.safe],
                "checked": self.request.checked,
            }
            rows.append(self.place | row)
        return rows

    def _apart(self, length: int, short: np.ndarray, whole: np.ndarray) -> int:
        mine, theirs = self.kept(length, short), self.kept(length, whole)
        shared = mine.shape[AXIS]
        ours, others = np.ascontiguousarray(mine), np.ascontiguousarray(theirs[..., :shared])
        apart = ulp.bits_apart(ours, others, "float32")
        return int(apart.sum()) + theirs[..., shared:].size

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
        """Rows of ``programs`` for one content; where decisions are asked for, also how the full
        run's bits compare with those layer by layer."""
        x = content(length, PROGRAM_SEED + length)
        given = padded(x, self.request.fixed)
        fixed, _, _ = self.target.end_to_end(given)
        if fixed is None:
            return
        ways = {"least": self.graph.sized(length).least, "safe": safe}
        other = None
        if length in self.request.decided:
            other = int(ulp.bits_apart(fixed, self.target.plain(given)[0], "float32").sum())
        for variant, to in ways.items():
            output, _, _ = self.target.port.end_to_end(self.target.base(padded(x, to)))
            if output is None:
                continue
            mine, theirs = (np.ascontiguousarray(self.kept(length, one)) for one in (output, fixed))
            found = ulp.differences(mine, theirs, "float32")
            yield {
                "content": length,
                "variant": variant,
                "padded": to,
                "fixed": self.request.fixed,
                "compared": mine.size,
                "differing": len(found.index),
                "max_ulp": ulp.largest_ulp(found.ulps),
                "other_than_layers": other,
            }

    def _as_used(self, run: Run) -> np.ndarray:
        """Computes what users get: all layers in one call, or one by one where none does that."""
        output, _, _ = self.target.port.end_to_end(run)
        if output is None:
            (output,) = replay_run(run, self.target.port).results
        assert output is not None
        return output

    def _decisions(self) -> list[Row]:
        rows = []
        for length in self.request.decided:
            self.tell(f"decisions at {length}")
            x, sized = content(length, 1000 + length), self.graph.sized(length)
            ways = {"fixed": self.request.fixed, "least": sized.least, "safe": sized.safe}
            found: dict[str, tuple[np.ndarray, int]] = {}
            for variant, to in ways.items():
                output = self.kept(length, self._as_used(self.target.base(padded(x, to))))
                found[variant] = np.moveaxis(output, 1, -1).copy(), to
            exact = self.network.exact(padded(x, sized.least)["x"])
            truth = np.moveaxis(self.kept(length, exact), 1, -1).copy()
            fixed, _ = found.pop("fixed")
            for variant, (short, to) in found.items():
                common = self.place | {
                    "content": length,
                    "variant": variant,
                    "padded": to,
                    "differing": int(ulp.bits_apart(short, fixed, "float32").sum()),
                    "error": decisions.error(short, truth, "float32"),
                    "error_fixed": decisions.error(fixed, truth, "float32"),
                }
                taken = decisions.decisions(short, fixed, "float32")
                rows += [common | vars(one) for one in taken]
        return rows

    def _costs(self) -> list[Row]:
        """Returns seconds of each variant's program, turn by turn: the fastest of ``TIMES`` calls
        on one input. Padding the content is part of no time."""
        rows: list[Row] = []
        for length in self.request.costs:
            self.tell(f"costs at {length}")
            x, sized = content(length), self.graph.sized(length)
            ways = {"fixed": self.request.fixed, "least": sized.least}
            ways |= {"safe": sized.safe}
            runs = {variant: self.target.base(padded(x, to)) for variant, to in ways.items()}
            for number in range(self.request.turns):
                for variant, run in runs.items():
                    _, seconds, _ = self.target.port.end_to_end(run, TIMES)
                    if seconds:
                        row: dict[str, Any] = {"subject": subject(self.request), "variant": variant}
                        row |= {"size": length, "repeat": number, "value": min(seconds)}
                        rows.append({"run_id": self.place["run_id"]} | row | {"unit": "s"})
        return rows


def _size(run: Run) -> int:
    """Returns the padded size of a run."""
    return next(one.shape[AXIS] for one in run.values if one.role == "input")


def _scaled(pair: Any, ours: np.ndarray, theirs: np.ndarray) -> float:
    """Returns the largest difference over eps times the layer's largest activation."""
    mine, other = pair.selection.taken(ours, 0), pair.selection.taken(theirs, 1)
    apart = np.abs(mine.astype(float) - other.astype(float)).max()
    largest = max(float(np.abs(other).max()), 1e-300)
    return float(apart / (floats.eps("float32") * largest))


def subject(request: Request) -> str:
    """Returns what ``measurements`` calls the costs of a request's network."""
    return f"{request.source}, fixed {request.fixed}"

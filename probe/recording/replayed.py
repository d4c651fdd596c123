"""A recording replayed on a target: its operations run on the target's session, one by one.

What a target's library can be asked for (:mod:`probe.recording.ported`) it computes: an old
release, an emulated processor, another library. What moves elements or rounds once has the same
bits everywhere, and everything else runs by itself, in the library of the recording; both are run
again where what they read has become different. So the result is a run like any other: comparing,
judging and explaining put their questions to the target.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash

from probe import floats
from probe.errors import InputError, TargetError
from probe.launch import AnySession
from probe.printing import counted
from probe.recording.contract import Operation
from probe.recording.ported import Called, Ports, Stage
from probe.recording.recording import Run, recorded
from probe.recording.store import Kept, digest

KEYS = itertools.count()


@dataclass(frozen=True, eq=False)
class Replayed(Run):
    """A run on a target. ``there``: numbers of the operations that the target computed; ``alone``:
    why others ran by themselves; the rest moves elements or rounds once, as it does everywhere."""

    there: frozenset[int] = frozenset()
    alone: Mapping[int, str] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """Returns how many of the operations ran on the target, and what did not."""
        every = self.recording.operations
        same = len(every) - len(self.there) - len(self.alone)
        told = [f"{len(self.there)} of {counted(len(every), 'operation')} ran there"]
        told += [f"{same} move elements or round once, as everywhere"] * bool(same)
        whys = Counter(f"{every[n].op}: {why}" for n, why in self.alone.items())
        each = [why if count == 1 else f"{count} times {why}" for why, count in whys.items()]
        some = "; ".join(each[:4]) + f"; and {len(each) - 4} more" * (len(each) > 4)
        told += [f"{len(self.alone)} ran in the model's own library ({some})"] * bool(each)
        return f"{self.recording.target}: {', '.join(told)}"


class Port:
    """A started session that keeps the weights it has been sent. Errors: TargetError."""

    def __init__(self, session: AnySession) -> None:
        self.session = session
        self.name = f"port-{next(KEYS)}"
        self.keys: set[str] = set()
        self.refused: dict[str, str] = {}
        self.process: object = None

    def call(self, one: Called, reads: Sequence[np.ndarray], keep: bool = True) -> np.ndarray:
        """Returns the result of one call. ``keep``: its weights are sent once; else each time."""
        operands = one.operands(reads)
        given = [part.taken(reads[part.number]) for part in one.inputs]
        arrays = {f"x{n}" if n else "x": array for n, array in enumerate(given)}
        self._alive()
        if one.case is not None and not keep:
            shape = one.case.weight_shape
            w = {} if "w" in operands else {"w": np.ones(shape, given[0].dtype)}
            header = {"do": "run", "spec": dict(one.spec)}
            _, found = self.session.request(header, {**arrays, **operands, **w})
            return one.output.put(found["y"])
        key = f"{self.name}-{self._key(one.spec, operands) if keep else 'once'}"
        if key not in self.keys or not keep:
            self._send(key, [dict(one.spec)], [list(range(len(given)))], len(given), [operands])
        _, found = self.session.request({"do": "through", "key": key}, arrays)
        return one.output.put(found["y0"])

    def _alive(self) -> None:
        """Starts the process again where it is gone: it has forgotten all weights."""
        process = getattr(self.session, "pid", 0)
        if self.process != process or process is None:
            self.session.revive()
            self.process = getattr(self.session, "pid", 0)
            self.keys.clear()

    def _key(self, spec: Mapping[str, Any], operands: Mapping[str, np.ndarray]) -> str:
        digests = {name: digest(array) for name, array in operands.items()}
        return xxhash.xxh3_128_hexdigest(json.dumps([spec, digests], sort_keys=True).encode())

    def _send(
        self,
        key: str,
        specs: list[dict[str, Any]],
        reads: list[list[int]],
        inputs: int,
        operands: Sequence[Mapping[str, np.ndarray]],
    ) -> None:
        arrays = {f"{n}.{name}": a for n, one in enumerate(operands) for name, a in one.items()}
        header = {"do": "network", "key": key, "specs": specs, "own": True}
        self.session.request(header | {"reads": reads, "inputs": inputs}, arrays)
        self.keys.add(key)


@dataclass(frozen=True)
class There:
    """An operation that runs on a target: as of ``Isolated``."""

    port: Port
    stages: Sequence[Stage]
    keep: bool = False

    def __call__(self, reads: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = list(reads)
        for stage in self.stages:
            given = [values[n] for n in stage.reads]
            if isinstance(stage.does, Called):
                values.append(self.port.call(stage.does, given, self.keep))
            else:
                values.append(stage.does(given))
        return values[-1:]


def replayed(run: Run, port: Port | AnySession) -> Replayed:
    """Computes a run once more, each operation on the target where its library can be asked for it.

    ``port``: the target's started session, or what keeps weights there for further runs. An
    operation that the library refuses runs by itself. Errors: TargetError where the target fails;
    InputError where an operation can't be run by itself, or its operands were left out.
    """
    port = port if isinstance(port, Port) else Port(port)
    ports, text = Ports(run.recording), port.session.target.text
    values, operations = list(run.recording.values), list[Operation]()
    store, changed = Kept(run.store), dict[int, np.ndarray]()
    there, alone = set[int](), dict[int, str]()
    for one in run.recording.operations:
        same = not any(n in changed for n in one.reads)
        found = None
        try:
            stages = ports.stages(one)
            found = _there(run, one, There(port, stages, True), changed)
            there.add(one.number)
            operations.append(replace(one, again=There(port, stages), lines=None))
        except InputError as error:
            settled = one.meaning.rounds is not None or all(ports.fixed[n] for n in one.reads)
            if not settled:
                alone[one.number] = error.why
        except TargetError as error:
            if error.kind != "unsupported":
                raise
            alone[one.number] = error.why
        if one.number not in there:
            operations.append(one)
        if found is None and same:  # it gives what it gave
            continue
        if found is None:
            found = _by_itself(run, one, changed)
        for number, array in zip(one.gives, found, strict=False):
            _put(run, number, array, store, values, changed)
        if one.meaning.notices and one.gives and one.gives[0] in changed:
            values[one.gives[0]] = replace(
                values[one.gives[0]], zeros=_noticed(run, one, values, changed)
            )
    recording = replace(run.recording, target=text, values=values, operations=operations)
    return Replayed(
        *(recording, store, frozenset(), "", run.made, run.keys, run.kinds),
        there=frozenset(there),
        alone=alone,
    )


def _reads(run: Run, one: Operation, changed: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    found = [changed[n] if n in changed else run.array(n) for n in one.reads]
    if any(array is None for array in found):
        why = f"{one.name} reads what was left out of the recording"
        raise InputError("recording", one.name, why, "record it again with more --most bytes")
    return found  # type: ignore[return-value]


def _there(
    run: Run, one: Operation, call: There, changed: Mapping[int, np.ndarray]
) -> list[np.ndarray]:
    return call(_reads(run, one, changed))


def _by_itself(run: Run, one: Operation, changed: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    if one.again is None:
        why = "it can't be run alone, and what it reads has other bits on the target"
        raise InputError("operation", one.name, why, "give the model's own library as the target")
    with np.errstate(all="ignore"):
        return one.again([np.array(array, order="C") for array in _reads(run, one, changed)])


def _put(
    run: Run,
    number: int,
    array: np.ndarray,
    store: Kept,
    values: list[Any],
    changed: dict[int, np.ndarray],
) -> None:
    """Takes a result in the place of the recorded value, if its bits are different."""
    value = values[number]
    array = np.asarray(array).reshape(value.shape)
    name = digest(array)
    if name == value.digest:
        return
    changed[number] = array
    content = None if value.content is None else array
    store.put(array, name)
    values[number] = replace(value, digest=name, content=content, zeros=None, address=None)


def _noticed(
    run: Run, one: Operation, values: Sequence[Any], changed: Mapping[int, np.ndarray]
) -> np.ndarray | None:
    def given(number: int) -> Any:
        def exact() -> np.ndarray:
            dtype = values[number].dtype
            array = changed[number] if number in changed else run.array(number)
            assert array is not None
            return floats.widen(array, dtype) if dtype in floats.FORMATS else array

        return exact

    return one.meaning.noticed([*map(given, one.reads)], [*map(given, one.gives)])


KEPT = 8
"""Recordings of other inputs that are kept to be replayed: of shapes that come again."""


class OnTarget:
    """A model on a target that is not its own library's: recorded here, replayed there.

    As of ``Opened``, with ``side`` and ``plain`` for any inputs. ``opened``: the model;
    ``session``: a started one. Weights are sent once, whatever the inputs' sizes.
    """

    def __init__(self, opened: Any, session: AnySession) -> None:
        self.opened, self.inputs, self.port = opened, opened.inputs, Port(session)
        self.runs: OrderedDict[Any, Run] = OrderedDict()

    def side(self, arrays: Mapping[str, np.ndarray]) -> Replayed:
        """Records the model with these inputs, and replays that. Errors: as of ``replayed``."""
        return replayed(recorded(self.opened.recorder(arrays)), self.port)

    def plain(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the outputs alone."""
        found = self.side(arrays).outputs
        return [np.array(one) for one in found if one is not None]

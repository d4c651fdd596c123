"""A recording replayed on a target: its operations run on the target's session, one by one.

What a target's library can be asked for (:mod:`probe.recording.ported`) it computes: an old
release, an emulated processor, another library. What moves elements or rounds once has the same
bits everywhere, and everything else runs by itself, in the library of the recording; both are run
again where what they read has become different. So the result is a run like any other: comparing,
judging and explaining put their questions to the target. What scripts print of it are the lines
that a user of the target's library writes.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from probe import backends
from probe.backends.contract import Unsupported
from probe.backends.source import Source, ValueShapes, Writing
from probe.errors import InputError, ProbeError, TargetError
from probe.launch import AnySession, Session, open_session
from probe.operation import Program, ProgramStep, operand_names
from probe.printing import counted
from probe.recording import RECORDERS
from probe.recording.apart import (
    COMMAND,
    Apart,
    Remote,
    is_own_library,
    module_paths,
    needs_other_interpreter,
    recording_target,
    with_calls,
)
from probe.recording.contract import Isolated, Operation
from probe.recording.end_to_end import as_program
from probe.recording.folder import RecordingFolder, onednn_text
from probe.recording.ported import Ports, Stage, TargetCall
from probe.recording.recording import Run, record_run
from probe.recording.related import input_values
from probe.recording.repeated import Marks
from probe.recording.store import ProcessStore, array_digest
from probe.recording.subject import is_function
from probe.recording.sums import OperandPart, OperationSum, Shape
from probe.recording.watched import unsteady, values_apart
from probe.target import Target, why_unavailable

# a session keeps weights by key, and several ports may put theirs to one
KEYS = itertools.count()


@dataclass(frozen=True, eq=False)
class Replayed(Run):
    """A run on a target. ``there``: numbers of the operations that the target computed. Of the
    others that are not ``alone`` elements are moved or rounded once, as everywhere."""

    there: frozenset[int] = frozenset()

    @property
    def said(self) -> str:
        """Returns how many of the operations ran on the target, and what did not."""
        every, alone = self.operations, self.alone or {}
        same = len(every) - len(self.there) - len(alone)
        parts = [f"{len(self.there)} of {counted(len(every), 'operation')} ran there"]
        parts += [f"{same} move elements or round once, as everywhere"] * bool(same)
        whys = Counter(f"{every[n].op}: {why}" for n, why in alone.items())
        each = [why if count == 1 else f"{count} times {why}" for why, count in whys.items()]
        some = "; ".join(each[:4]) + f"; and {len(each) - 4} more" * (len(each) > 4)
        parts += [f"{len(alone)} ran in the model's own library ({some})"] * bool(each)
        return f"{self.target}: {', '.join(parts)}"


class Port:
    """A started session that keeps the weights it has been sent. Errors: TargetError."""

    def __init__(self, session: AnySession) -> None:
        self.session = session
        self.name = f"port-{next(KEYS)}"
        self.keys: set[str] = set()
        self.process: object = None

    def call(
        self, called: TargetCall, reads: Sequence[np.ndarray], keep: bool = True
    ) -> np.ndarray:
        """Returns the result of one call. ``keep``: its weights are sent once; else each time."""
        operands = called.operands(reads)
        activations = [part.taken(reads[part.number]) for part in called.inputs]
        arrays = {f"x{n}" if n else "x": array for n, array in enumerate(activations)}
        self.alive()
        if called.case is not None and not keep:
            shape = called.case.weight_shape
            w = {} if "w" in operands else {"w": np.ones(shape, activations[0].dtype)}
            header = {"do": "run", "spec": dict(called.spec)}
            _, answer = self.session.request(header, {**arrays, **operands, **w})
            return called.output.put(answer["y"])
        # weights go by what they hold: sizes of a model share them, and a request without them is
        # small
        key = f"{self.name}-{self._key(called.spec, operands) if keep else 'once'}"
        if key not in self.keys or not keep:
            count = len(activations)
            self._send(key, [dict(called.spec)], [list(range(count))], count, [operands])
        _, answer = self.session.request({"do": "through", "key": key}, arrays)
        return called.output.put(answer["y0"])

    @cached_property
    def foreign(self) -> bool:
        """Returns whether the target is not this environment's own."""
        # asked once: it reads the metadata of installed packages, in 14 ms, and each operation of
        # each run of a plan would ask
        return needs_other_interpreter(self.session.target)

    def lines(self, stages: Sequence[Stage]) -> Scripted | None:
        """Returns lines of an operation that is one call, for a script in this environment."""
        where = self.session.target
        does = stages[0].does
        if len(stages) > 1 or not isinstance(does, TargetCall) or self.foreign:
            return None
        return scripted(where, str(self.session.facts.get("library_version", "")), does)

    def end_to_end(self, run: Run, times: int = 1) -> tuple[np.ndarray | None, list[float], str]:
        """Runs all of a recording as one program of the library, ``times``: its output, the seconds
        of each call, and where there is no such program None, [] and why."""
        try:
            program = as_program(run)
        except InputError as error:
            return None, [], f"{error.value}: {error.why}"
        self.alive()
        named = {str(n): operands for n, operands in enumerate(program.operands)}
        flat = {f"{n}.{name}": a for n, operands in named.items() for name, a in operands.items()}
        more = [list(array.shape) for array in program.inputs[1:]]
        key = f"{self.name}-{self._key([program.specs, program.reads, more], flat)}"
        if key not in self.keys:
            steps = program.specs, program.reads
            self._send(key, *steps, len(program.inputs), program.operands, more)
        arrays = {f"x{n}" if n else "x": array for n, array in enumerate(program.inputs)}
        request = {"do": "whole", "key": key, "times": times}
        header, answer = self.session.request(request, arrays)
        if "y" not in answer:
            return None, [], header["why"]
        return program.output(answer["y"]), header["seconds"], ""

    def alive(self) -> None:
        """Starts the process again where it is gone: it has forgotten all weights."""
        process = getattr(self.session, "pid", 0)
        if self.process != process or process is None:
            self.session.revive()
            self.process = getattr(self.session, "pid", 0)
            self.keys.clear()

    def _key(self, spec: Any, operands: Mapping[str, np.ndarray]) -> str:
        digests = {name: array_digest(array) for name, array in operands.items()}
        return xxhash.xxh3_128_hexdigest(json.dumps([spec, digests], sort_keys=True).encode())

    def _send(
        self,
        key: str,
        specs: list[dict[str, Any]],
        reads: list[list[int]],
        inputs: int,
        operands: Sequence[Mapping[str, np.ndarray]],
        more: Sequence[Sequence[int]] = (),
    ) -> None:
        arrays = {f"{n}.{name}": a for n, own in enumerate(operands) for name, a in own.items()}
        header = {"do": "network", "key": key, "specs": specs, "own": True}
        self.session.request(header | {"reads": reads, "inputs": inputs, "more": more}, arrays)
        self.keys.add(key)


@dataclass(frozen=True, eq=False)
class There:
    """An operation that runs on a target: as of ``Isolated``. ``keep``: as of ``Port.call``.
    InputError: no part of it is a call."""

    port: Port
    ports: Ports
    operation: Operation
    keep: bool = False

    def __call__(self, reads: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = list(reads)
        for stage in self.ports.stages(self.operation, [array.shape for array in reads]):
            operands = [values[n] for n in stage.reads]
            if isinstance(stage.does, TargetCall):
                values.append(self.port.call(stage.does, operands, self.keep))
            else:
                values.append(stage.does(operands))
        return values[-1:]

    @property
    def _shapes(self) -> list[Shape]:
        return [self.ports.run.values[n].shape for n in self.operation.reads]

    def masked(
        self, summed: OperationSum, _: Sequence[np.ndarray]
    ) -> tuple[AnySession, dict[str, Any]] | None:
        """Returns the session and the spec that are asked about a sum in its place: where the call
        is that sum, its operands and its result alike; else None."""
        shapes = list(self._shapes)
        for part in (summed.x, summed.w, summed.b):
            if part is not None:
                shapes[part.number] = part.whole
        try:
            (stage, *more) = self.ports.stages(self.operation, shapes)
        except InputError:
            return None
        does = stage.does
        if more or not isinstance(does, TargetCall) or does.case is None or does.case.pool:
            return None
        ours = does.inputs[0], does.parts.get("w"), does.parts.get("b"), does.output
        if ours != (summed.x, summed.w, summed.b, summed.y) or summed.scale != 1:
            return None
        self.port.alive()
        return self.port.session, dict(does.spec)


def replay_run(
    run: Run, port: Port | AnySession, inputs: Mapping[int, np.ndarray] | None = None
) -> Replayed:
    """Computes a run once more, each operation on the target where its library can be asked for it.

    ``port``: the target's started session, or what keeps weights there for further runs;
    ``inputs``: arrays of inputs that are not the recorded ones, which the run's values name
    already. An operation that the library refuses runs by itself. Errors: TargetError where the
    target fails; InputError where an operation can't be run by itself, or its operands were left
    out.
    """
    port = port if isinstance(port, Port) else Port(port)
    ports, text = Ports(run), port.session.target.text
    values, operations = list(run.values), list[Operation]()
    store, changed = ProcessStore(run.store), dict(inputs or {})
    there, alone = set[int](), dict[int, str]()
    for op in run.operations:
        same = not any(n in changed for n in op.reads)
        results = None
        try:
            stages = ports.stages(op)
            results = There(port, ports, op, True)(_reads(run, op, changed))
            there.add(op.number)
            lines = port.lines(stages)
            imports = lines.imports if lines else ()
            again = There(port, ports, op)
            operations.append(replace(op, again=again, lines=lines, imports=imports))
        except InputError as error:
            settled = op.meaning.exact or all(ports.fixed[n] for n in op.reads)
            if not settled:
                alone[op.number] = error.why
        except TargetError as error:
            if error.kind != "unsupported":
                raise
            alone[op.number] = error.why
        if op.number not in there:
            operations.append(op)
        if results is None and same:  # it gives what it gave
            continue
        if results is None:
            if op.again is None:
                why = "it can't be run alone, and its operands have different bits on the target"
                todo = "give the model's own library as the target"
                raise InputError("operation", op.name, why, todo)
            with np.errstate(all="ignore"):
                results = op.again([np.array(a, order="C") for a in _reads(run, op, changed)])
        for number, array in zip(op.gives, results, strict=False):
            value = values[number]
            array = np.asarray(array).reshape(value.shape)
            name = array_digest(array)
            if name == value.digest:
                continue
            changed[number] = array
            content = None if value.content is None else array
            store.put(array, name)
            values[number] = replace(value, digest=name, content=content, address=None)
    return Replayed(
        *(text, run.note, values, operations, run.outputs, store),
        *(frozenset(), "", run.made, run.keys, run.kinds, alone),
        there=frozenset(there),
    )


def _array_of(run: Run, number: int, changed: Mapping[int, np.ndarray]) -> np.ndarray | None:
    return changed[number] if number in changed else run.array(number)


def _reads(run: Run, op: Operation, changed: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    arrays = [_array_of(run, n, changed) for n in op.reads]
    if any(array is None for array in arrays):
        why = f"{op.name} reads what was left out of the recording"
        raise InputError("recording", op.name, why, "record it again with more --most bytes")
    return arrays  # type: ignore[return-value]


def replay_steadily(run: Run, port: Port, what: str) -> Replayed:
    """Replays a run twice: as of ``replay_run``, with what differs as ``unsteady``.
    Nondeterministic where outputs do."""
    replayed, again = replay_run(run, port), replay_run(run, port)
    apart = frozenset(values_apart(replayed, again))
    if apart.intersection(replayed.outputs):
        raise unsteady(replayed, again, what)
    provenance, facts = run.made, port.session.facts
    if provenance is not None:  # with the releases of the target's process
        libraries = {"numpy": facts.get("numpy_version")}
        libraries[str(facts.get("library"))] = facts.get("library_version")
        there = {"python": facts.get("python_version"), "libraries": libraries}
        if facts.get("library") == "tensorflow" and facts.get("onednn") is not None:
            chosen = "TF_ENABLE_ONEDNN_OPTS" in port.session.variables
            there["tensorflow_onednn"] = onednn_text(facts["onednn"], chosen)
        provenance = replace(provenance, made={**provenance.made, **there})
    return replace(replayed, unsteady=apart, made=provenance)


class OnTarget:
    """A model on a target that is not its own library's: recorded here, replayed there.

    As of ``Apart``: ``side`` and ``plain`` take any inputs. ``opened``: the model;
    ``session``: a started one. Weights are sent once, whatever the inputs' sizes.
    """

    def __init__(self, opened: Any, session: AnySession) -> None:
        self.opened, self.inputs, self.port = opened, opened.inputs, Port(session)
        self._last: tuple[dict[str, str], Run] | None = None
        # By shapes, each with the numbers of its values that are the inputs, by their names.
        self._straight: OrderedDict[Any, tuple[Run, dict[str, int]]] = OrderedDict()

    def base(self, arrays: Mapping[str, np.ndarray]) -> Run:
        """Records the model with these inputs: in this process, or where it is opened in another
        one, there."""
        digests = {name: array_digest(array) for name, array in arrays.items()}
        # outputs are wanted operation by operation, then as one program: of one recording
        if self._last is None or self._last[0] != digests:
            if elsewhere := getattr(self.opened, "side", None):
                run: Run = elsewhere(arrays)
            else:
                recorder = self.opened.recorder(arrays)
                run = record_run(recorder)
                fed = _fed_values(run, digests)
                if getattr(recorder, "straight", False) and fed.keys() == digests.keys():
                    self._straight[_shapes_of(arrays)] = run, fed
                    while len(self._straight) > KEPT:
                        self._straight.popitem(last=False)
            self._last = digests, run
        return self._last[1]

    def _fed(self, arrays: Mapping[str, np.ndarray]) -> tuple[Run, dict[int, np.ndarray]]:
        """Returns a recording of the model with these inputs, and which of them were not those that
        it was recorded with: of these shapes one serves, where others take the same operations."""
        shapes = _shapes_of(arrays)
        if shapes not in self._straight:
            return self.base(arrays), {}
        run, fed = self._straight[shapes]
        self._straight.move_to_end(shapes)
        values, replaced = list(run.values), dict[int, np.ndarray]()
        store = ProcessStore(run.store)
        for name, number in fed.items():
            value = values[number]
            replaced[number] = array = np.ascontiguousarray(arrays[name])
            content = None if value.content is None else array
            values[number] = replace(value, digest=store.put(array), content=content, address=None)
        return replace(run, values=values, store=store), replaced

    def side(self, arrays: Mapping[str, np.ndarray]) -> Replayed:
        """Records the model with these inputs, and replays that. Errors: as of ``replay_run``."""
        return replay_run(self.base(arrays), self.port)

    def plain(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the outputs alone."""
        run, replaced = self._fed(arrays)
        try:
            results = replay_run(run, self.port, replaced).results
        except (InputError, ValueError):  # by these numbers something has another shape
            if not replaced:
                raise
            results = self.side(arrays).results
        return [np.array(array) for array in results if array is not None]

    def end_to_end(
        self, arrays: Mapping[str, np.ndarray], times: int = 1
    ) -> tuple[np.ndarray | None, list[float], str]:
        """Runs it as one program of the library: as of ``Port.end_to_end``."""
        return self.port.end_to_end(self._fed(arrays)[0], times)


KEPT = 2  # recordings, by shapes: of a size and of the full one


def _fed_values(run: Run, digests: Mapping[str, str]) -> dict[str, int]:
    """Returns which value each input is, by its name, or by its bits where values have none: only
    those that one value alone can be. ``digests``: bits by name."""
    every = [(n, run.values[n]) for n in input_values(run)]
    numbers = {}
    for name, bits in digests.items():
        same = [v.name == name or (not v.name and v.digest == bits) for _, v in every]
        own = [n for (n, _), alike in zip(every, same, strict=True) if alike]
        if len(own) == 1:
            numbers[name] = own[0]
    return numbers if len({*numbers.values()}) == len(numbers) else {}


def _shapes_of(arrays: Mapping[str, np.ndarray]) -> Any:
    return tuple((name, array.shape, array.dtype) for name, array in sorted(arrays.items()))


class RunnableRecording:
    """A recording on disk whose operations may be run, on its target, in another process: by their
    lines, or those of a replay as it was replayed.

    A context manager, which gives the run. Where the target can't run here its operations are not
    run, and a note says so. ``extra``: variables of the process, instead of those by which it finds
    this one's modules.
    """

    def __init__(self, folder: Path, extra: Mapping[str, str] | None = None) -> None:
        self.stored, self.running = RecordingFolder(Path(folder)), ExitStack()
        self.extra = module_paths() if extra is None else extra

    def __enter__(self) -> Run:
        run = self.stored.run()
        assert run.made is not None
        calls = dict[int, Isolated]()
        try:
            where = Target.parse(run.target)
            if run.alone is not None:
                return self._replayed(run, where)
            calls = self._written(run, where)
        except ProbeError as error:
            what = f"{self.stored.folder.name}: its operations can't be run again"
            run.made.notes.append(f"{what}: {error}")
            if run.alone is not None:
                return run
        return with_calls(run, calls)

    def _written(self, run: Run, where: Target) -> dict[int, Isolated]:
        if why := why_unavailable(where):
            raise TargetError(where.text, "unavailable", why)
        session = Session(where, command=COMMAND, extra=self.extra)
        self.running.enter_context(session)
        calls = dict[int, Isolated]()
        for n, (lines, imports) in self.stored.lines.items():
            dtypes = [run.values[read].dtype for read in run.operations[n].reads]
            request = {"do": "written", "lines": lines, "imports": imports, "dtypes": dtypes}
            calls[n] = Remote(session, request)
        return calls

    def _replayed(self, run: Run, where: Target) -> Run:
        session: AnySession = open_session(where)
        self.running.enter_context(session)
        ports, port, operations = Ports(run), Port(session), list(run.operations)
        for op in run.operations:
            with suppress(InputError):
                ports.stages(op)
                if op.number not in (run.alone or {}):
                    operations[op.number] = replace(op, again=There(port, ports, op))
        return replace(run, operations=operations, untried="")

    def __exit__(self, *_: object) -> None:
        self.running.close()


def file_outputs(
    session: AnySession, model: str, arrays: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Runs a model's file whole on a started target, as its users run it. TargetError, kind
    ``unsupported``: the library reads no such file, or it is no file but a function."""
    if is_function(model):
        raise TargetError(session.target.text, "unsupported", "a function brings its own library")
    request = {"do": "file", "path": model, "names": list(arrays)}
    given = {str(n): np.asarray(array) for n, array in enumerate(arrays.values())}
    _, outputs = session.request(request, given)
    return [outputs[str(n)] for n in range(len(outputs))]


class TargetRuns:
    """Runs of a model on targets, for as long as ``running`` is open.

    ``model``: a file, or ``module:function``; ``folder``: for recordings. On its own library's
    target the model itself runs there, in a process of its own; for every other one it is recorded
    in such a process and replayed. Errors: as of ``Apart.record`` and ``replay_steadily``.
    """

    def __init__(self, model: str, folder: Path, running: ExitStack, trust: bool = False) -> None:
        self.model, self.folder, self.running, self.trust = model, folder, running, trust
        self.there: dict[str, Apart] = {}
        self.ports: dict[str, Port] = {}
        self.runs: list[tuple[str, Mapping[str, np.ndarray], bool, Run]] = []

    def record(
        self, where: Target, arrays: Mapping[str, np.ndarray], what: str, gradients: bool = False
    ) -> tuple[Run, bool | None]:
        """Returns a run with these inputs, and whether it had gradients, where that is known."""
        if is_own_library(where, self.model):
            run, process = self._recorded(where, arrays, what, gradients)
            if RECORDERS.get(process.library) == RECORDERS.get(where.name):
                return run, process.gradients
        if why := why_unavailable(where):  # before the model is run
            raise TargetError(where.text, "unavailable", why)
        run, process = self._recorded(recording_target(where, self.model), arrays, what, gradients)
        if where.text not in self.ports:
            session: AnySession = open_session(where)
            self.running.enter_context(session)
            self.ports[where.text] = Port(session)
        replayed = replay_steadily(run, self.ports[where.text], f"{what} on {where.text}")
        return replace(
            replayed, plain=self._file_outputs(where, arrays, replayed)
        ), process.gradients

    def _file_outputs(
        self, where: Target, arrays: Mapping[str, np.ndarray], run: Run
    ) -> tuple[str, ...]:
        """Returns the digests of what a target makes of the whole file, whose bits the run keeps;
        () where it reads no such file, or gives other outputs."""
        try:
            whole = file_outputs(self.ports[where.text].session, self.model, arrays)
        except TargetError as error:
            assert run.made is not None
            run.made.notes.append(f"{where.text}: the whole file was not run there: {error.why}")
            return ()
        if [array.shape for array in whole] != [run.values[n].shape for n in run.outputs]:
            return ()
        return tuple(run.store.put(np.ascontiguousarray(array)) for array in whole)

    def side(self, where: Target, gradients: bool = False) -> TargetSide:
        """What repeats runs on a target."""
        return TargetSide(self, where, gradients)

    def marks(
        self,
        where: Target,
        run: Run,
        arrays: Mapping[str, np.ndarray],
        lacked: Mapping[str, np.ndarray],
        gradients: bool,
    ) -> Marks:
        """As of ``Apart.repeated``; of what is replayed the run behind it is repeated, which reads
        the same."""
        own = is_own_library(where, self.model) and not isinstance(run, Replayed)
        process = self._process(where if own else recording_target(where, self.model))
        return process.repeated(run, arrays, lacked, gradients)

    def plain_of(self, where: Target) -> Callable[[Mapping[str, np.ndarray]], Any] | None:
        """Returns what runs the model unwatched on a target; None where it does not run there."""
        return self._process(where).plain if is_own_library(where, self.model) else None

    def base(self, where: Target, arrays: Mapping[str, np.ndarray], what: str) -> Run:
        """Returns the run of the model's own library that is replayed on a target."""
        return self._recorded(recording_target(where, self.model), arrays, what, False)[0]

    def open(self, where: Target) -> None:
        """Opens the model in the process in which it is run for a target, and nowhere else: a
        library takes seconds to be imported. InputError: it can't be opened."""
        process = self._process(
            where if is_own_library(where, self.model) else recording_target(where, self.model)
        )
        process.open()
        self.inputs = process.inputs

    def _process(self, where: Target) -> Apart:
        if where.text not in self.there:
            process = Apart(self.model, where, self.trust)
            self.there[where.text] = self.running.enter_context(process)
        return self.there[where.text]

    def _recorded(
        self, where: Target, arrays: Mapping[str, np.ndarray], what: str, gradients: bool
    ) -> tuple[Run, Apart]:
        process = self._process(where)
        for text, inputs, had, run in self.runs:
            if text == where.text and inputs is arrays and had == gradients:
                return run, process
        out = self.folder / f"run{len(self.runs)}"
        run = process.record(out, arrays, what=what, gradients=gradients)
        self.runs.append((where.text, arrays, gradients, run))
        return run, process


@dataclass(frozen=True)
class TargetSide:
    """One side of a comparison, repeated on its target."""

    runs: TargetRuns
    where: Target
    gradients: bool

    def marks(
        self, run: Run, arrays: Mapping[str, np.ndarray], where: Mapping[str, np.ndarray]
    ) -> Marks:
        return self.runs.marks(self.where, run, arrays, where, self.gradients)

    def run(self, arrays: Mapping[str, np.ndarray]) -> Run:
        what = "a run of other inputs"
        return self.runs.record(self.where, arrays, what, gradients=self.gradients)[0]


# as a user of the target's library writes it


@dataclass(frozen=True, eq=False)
class Scripted:
    """The lines of one call, of NumPy's arrays: as of ``Operation.lines``. ``imports``: what they
    need; ``setup``: what applies the target's switches."""

    called: TargetCall
    source: Source
    imports: tuple[str, ...]
    setup: tuple[str, ...]

    def __call__(self, names: Sequence[str], out: str) -> list[str]:
        (x,) = self.called.inputs
        lines = [*self.setup, *(f"{name} = np.asarray({name})" for name in names)]
        lines += [f"x = {_as_taken(x, names)}"]
        lines += [f"{name} = {_as_taken(part, names)}" for name, part in self.called.parts.items()]
        source, part = self.source, self.called.output
        turned = tuple(part.pieces[axis] for axis in part.axes)
        text = _reshaped(part.shape, turned)
        back = sorted(range(len(part.axes)), key=part.axes.__getitem__)
        if back != list(range(len(back))):
            text += f".transpose{_tuple(back)}"
        put = f"np.ascontiguousarray({source.leave}){text}{_reshaped(part.pieces, part.whole)}"
        lines += [*source.make, *source.enter, *source.load, *source.run]
        return [*lines, f"{out} = {put}"]


def scripted(where: Target, version: str, called: TargetCall) -> Scripted | None:
    """Returns the lines of a call on a target whose library runs in this environment; None where
    its backend writes none, builds a model in a format of its own, or the call is not one of
    operands that the operation reads."""
    backend: Any = backends.get(where.name)
    if not issubclass(backend, Writing) or len(called.inputs) != 1 or called.folded is not None:
        return None
    if called.spec["dtype"] == "bfloat16":  # whose bits enter as float32
        return None
    (x,), spec = called.inputs, dict(called.spec)
    steps = (ProgramStep(spec, (0,), {name: name for name in operand_names(spec)}),)
    program = Program(steps, 1, called.case is None)
    try:
        described = backend().described(dict(where.switches), where.device, version)
        source = described.emit(program, ValueShapes(program, x.shape))
    except Unsupported:
        return None
    if source.hold is not None:
        return None
    imports = tuple(f"import {name}" for name in source.standard) + tuple(described.imports)
    return Scripted(called, source, imports, tuple(described.setup()))


def _as_taken(part: OperandPart, names: Sequence[str]) -> str:
    """Returns ``OperandPart.taken`` as an expression; steps that change nothing are left out."""
    text, name = "", names[part.number]
    if part.pieces != part.whole:
        text += f".reshape{_tuple(part.pieces)}"
    if part.axes != tuple(range(len(part.axes))):
        text += f".transpose{_tuple(part.axes)}"
    turned = tuple(part.pieces[axis] for axis in part.axes)
    return f"np.array({name}{text}{_reshaped(turned, part.shape)})"


def _reshaped(have: Sequence[int], to: Sequence[int]) -> str:
    return "" if tuple(have) == tuple(to) else f".reshape{_tuple(to)}"


def _tuple(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"

"""A model, or a recording of one, that is run on its target in a process of its own.

Where a model can't be recorded on a target (a release of another Python, an emulated processor, a
library that reads files of others), the whole file is run there: what is known of such a run are
its inputs and its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError, Nondeterministic, ProbeError, TargetError
from probe.launch import AnySession, Session, open_session
from probe.recording import RECORDERS
from probe.recording.apart import (
    COMMAND,
    Apart,
    Remote,
    is_own_library,
    module_paths,
    own_target,
    with_calls,
)
from probe.recording.contract import INPUT, Isolated
from probe.recording.folder import RecordingFolder, environment_facts
from probe.recording.recording import Operation, Provenance, Run, Value
from probe.recording.repeated import Marks
from probe.recording.store import ProcessStore, array_digest
from probe.recording.subject import is_function
from probe.semantics import Unknown
from probe.target import Target, why_unavailable


class RunnableRecording:
    """A recording on disk whose operations may be run, by their lines, on its target, in another
    process.

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
            calls = self._written(run, Target.parse(run.target))
        except ProbeError as error:
            what = f"{self.stored.folder.name}: its operations can't be run again"
            run.made.notes.append(f"{what}: {error}")
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


WHOLE = "the whole file is run there, and its operations can't be asked"


def whole_run(session: AnySession, model: str, arrays: Mapping[str, np.ndarray]) -> Run:
    """Runs a model's file whole on a started target, twice. Nondeterministic where its outputs do
    not repeat; TargetError: as of ``file_outputs``."""
    text, store = session.target.text, ProcessStore()
    outputs, again = (file_outputs(session, model, arrays) for _ in range(2))
    values = [
        Value(array.shape, str(array.dtype), store.put(np.ascontiguousarray(array)), given, *named)
        for given, named, array in (
            *((-1, (INPUT, name), np.asarray(array)) for name, array in arrays.items()),
            *((0, ("", ""), np.asarray(array)) for array in outputs),
        )
    ]
    numbers = tuple(range(len(arrays), len(values)))
    reads, digests = tuple(range(len(arrays))), [values[n].digest for n in numbers]
    if digests != [array_digest(np.ascontiguousarray(array)) for array in again]:
        raise Nondeterministic(f"{text}: the outputs of the same file differ when it runs again")
    whole = Operation("model", "", reads, numbers, Unknown(WHOLE), {}, name=Path(model).name)
    facts = session.facts
    libraries = {"numpy": facts.get("numpy_version")}
    libraries[str(facts.get("library"))] = facts.get("library_version")
    there = {"python": facts.get("python_version"), "libraries": libraries}
    made, nothing = environment_facts() | there, {"values": 0, "bytes": 0}
    provenance = Provenance(Path(model), Path(model).name, made, [f"{text}: {WHOLE}"], nothing)
    return Run(
        *(text, "", values, [whole], numbers, store),
        untried=WHOLE,
        made=provenance,
        plain=tuple(digests),
    )


class TargetRuns:
    """Runs of a model on targets, each in a process of its own, for as long as ``running`` is open.

    ``model``: a file, or ``module:function``; ``folder``: for recordings. On targets of its own
    library the model is recorded; on others its file is run whole. Errors: as of ``Apart`` and
    ``whole_run``; InputError: a function calls another library than a target's.
    """

    def __init__(self, model: str, folder: Path, running: ExitStack, trust: bool = False) -> None:
        self.model, self.folder, self.running, self.trust = model, folder, running, trust
        self.there: dict[str, Apart] = {}
        self.sessions: dict[str, AnySession] = {}
        self.runs: list[tuple[str, Mapping[str, np.ndarray], bool, Run]] = []

    def record(
        self, where: Target, arrays: Mapping[str, np.ndarray], what: str, gradients: bool = False
    ) -> tuple[Run, bool | None]:
        """Returns a run with these inputs, and whether it had gradients, where that is known."""
        if not is_own_library(where, self.model):
            return whole_run(self._session(where), self.model, arrays), None
        process = self._process(where)
        for text, inputs, had, run in self.runs:
            if text == where.text and inputs is arrays and had == gradients:
                return run, process.gradients
        out = self.folder / f"run{len(self.runs)}"
        run = process.record(out, arrays, what=what, gradients=gradients)
        # of a function it is known only now
        if RECORDERS.get(process.library) != RECORDERS.get(where.name):
            why = f"{self.model} is run by {process.library}"
            todo = f"use {process.library}, or its switches"
            raise InputError("target", where.text, why, todo)
        self.runs.append((where.text, arrays, gradients, run))
        return run, process.gradients

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
        """As of ``Apart.repeated``."""
        return self._process(where).repeated(run, arrays, lacked, gradients)

    def plain_of(self, where: Target) -> Callable[[Mapping[str, np.ndarray]], Any]:
        """Returns what runs the model unwatched on a target."""
        if not is_own_library(where, self.model):
            return partial(file_outputs, self._session(where), self.model)
        return self._process(where).plain

    def open(self, where: Target) -> None:
        """Opens the model in the process in which it is run on a target, or else on its own
        library's, and nowhere else: a library takes seconds to be imported. InputError: it can't be
        opened."""
        own = is_own_library(where, self.model)
        process = self._process(where if own else own_target(where, self.model))
        process.open()
        self.inputs = process.inputs

    def _session(self, where: Target) -> AnySession:
        if where.text not in self.sessions:
            session: Any = open_session(where)
            self.sessions[where.text] = self.running.enter_context(session)
        return self.sessions[where.text]

    def _process(self, where: Target) -> Apart:
        if where.text not in self.there:
            process = Apart(self.model, where, self.trust)
            self.there[where.text] = self.running.enter_context(process)
        return self.there[where.text]


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

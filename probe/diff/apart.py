"""A model, or a recording of one, that is run in a process of its own with a target's environment
and switches.

The process stays, so that single operations can be run again where they were recorded: explaining
them takes thousands of calls. Its protocol is the worker's, with more requests: ``inputs``,
``record``, ``repeat``, ``plain``, ``again`` and ``written``. Where a model can't be recorded on a
target (a release of another Python, an emulated processor, a library that reads files of others),
the whole file is run there: what is known of such a run are its inputs and its outputs.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
import tokenize
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np

import probe
from probe.case.errors import InputError, Nondeterministic, ProbeError, TargetError
from probe.diff.alone import run_lines
from probe.diff.folder import (
    RecordingFolder,
    begin_recording,
    environment_facts,
    read_recording,
    write_recording,
)
from probe.diff.repeated import Marks, repeated_with_others
from probe.diff.running import watch
from probe.order.semantics import Unknown
from probe.record import RECORDERS
from probe.record.contract import INPUT, Input, Isolated
from probe.record.recording import Operation, Provenance, Run, Value
from probe.record.store import ProcessStore, array_digest
from probe.record.subject import is_function, library_of, open_model, run_unwatched, runs
from probe.targets import backends, child, target
from probe.targets.environments import Missing
from probe.targets.launch import AnySession, Arrays, Session, open_session
from probe.targets.target import Target, why_unavailable

# Seconds that one recording may take.
TIME_LIMIT = 3600.0

# Bytes of values that a process keeps for this one: all.
ALL_BYTES = 1 << 60

COMMAND = (sys.executable, "-s", "-u", "-m", "probe.diff.apart")

# Starts this module with further folders behind the interpreter's own packages: a release's.
BEHIND = (
    "import sys, runpy; sys.path += sys.argv[1:]; del sys.argv[1:]; "
    "runpy.run_module('probe.diff.apart', run_name='__main__')"
)


def tracer_command(where: Target) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The command that records a model where a target's release is, and the variables for it: in
    this interpreter, or in the release's own environment if that has this Python, with what probe
    needs behind it. None: another Python, an emulated processor, or the release is not here."""
    try:
        runtime = target.target_runtime(where)
    except Missing:
        return (COMMAND, module_paths()) if where.version is None else None
    if runtime.emulated:
        return None
    if runtime.facts is None:
        return COMMAND, module_paths()
    major_minor = str(runtime.facts.get("python_version")).rsplit(".", 1)[0]
    if major_minor != "{}.{}".format(*sys.version_info):
        return None
    packages = [path for path in sys.path if path.rstrip("/").endswith("-packages")]
    users = [str(Path.cwd()), *(path for path in sys.path if path and path not in packages)]
    users = [path for path in users if not path.startswith((sys.base_prefix, sys.prefix))]
    paths = os.pathsep.join([str(Path(probe.__file__).parent.parent), *users])
    variables = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    return (*runtime.command, "-s", "-u", "-c", BEHIND, *packages), variables


class Apart:
    """A model that is run on a target in a process of its own; a context manager.

    ``model``: a file, or ``module:function``. ``folder``: for runs with any inputs. Errors:
    InputError, also where a function calls another library than the target's; TargetError where
    the target fails; Nondeterministic.
    """

    def __init__(
        self, model: str, where: Target, trust: bool = False, folder: Path | None = None
    ) -> None:
        if why := target.why_unavailable(where):
            raise TargetError(where.text, "unavailable", why)
        self.model, self.where, self.trust, self.folder = model, where, trust, folder
        self.inputs: tuple[Input, ...] = ()
        self.within = model_switches(where, model)
        self.count = 0  # of the folder's runs
        # Recordings that are held here no more: their operations hold graphs and constants
        # there. Age does not tell which ones: a full run is repeated after all shorter ones.
        self.dropped: list[int] = []
        self.recordings = count()
        command, variables = tracer_command(where) or (COMMAND, module_paths())
        self.session = Session(where, time_limit=TIME_LIMIT, command=command, extra=variables)

    def __enter__(self) -> Self:
        self.session.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.session.__exit__()

    def record(
        self,
        out: Path,
        arrays: Mapping[str, np.ndarray],
        most: int = ALL_BYTES,
        what: str = "the run",
        notes: Sequence[str] = (),
    ) -> Run:
        """Records the model in the folder ``out``; its operations run there.

        ``what``: what it is called in notes and errors. ``notes``: further ones of the recording.
        """
        number = next(self.recordings)
        options = {"out": str(out.resolve()), "most": most, "what": what, "notes": [*notes]}
        options |= {"recording": number, "dropped": self.dropped[:]}
        self.dropped.clear()
        header, _ = self._request("record", arrays, options)
        library = header["library"]
        # of a function it is known only now
        if is_function(self.model) and RECORDERS.get(library) != RECORDERS.get(self.where.name):
            why, todo = f"{self.model} is run by {library}", f"use {library}, or its switches"
            raise InputError("target", self.where.text, why, todo)
        run = read_recording(out)
        assert isinstance(run.store, RecordingFolder)
        weakref.finalize(run.store, self.dropped.append, number)  # runs derived from it share it
        # this process's own child has just written them: their bits need not be hashed once more
        digests = {value.digest for value in run.values}
        run.store.checked.update(name for name in digests if run.store.has(name))
        request = {"do": "again", "recording": number}
        runnable = {*header["runnable"]}
        return with_calls(run, {n: Remote(self.session, request | {"number": n}) for n in runnable})

    def marks(
        self, run: Run, arrays: Mapping[str, np.ndarray], where: Mapping[str, np.ndarray]
    ) -> Marks:
        """Repeats a run of these inputs that was recorded here, with different content in these
        places: all repetitions in one request, of which marks alone come back."""
        assert run.made is not None
        options = {"out": str(run.made.folder.resolve()), "count": len(arrays)}
        sent = dict(arrays) | {f"where {name}": where[name] for name in arrays}
        header, changed = self._request("repeat", sent, options)
        marks = dict(zip(header["changed"], _arrays_in_order(changed), strict=True))
        return Marks(run, marks, set(header["missing"]), header["repetitions"])

    def side(self, arrays: Mapping[str, np.ndarray], what: str = "the run") -> Run:
        """Records the model with these inputs in ``folder``. Errors: as of ``record``."""
        assert self.folder is not None
        self.count += 1
        out = self.folder / f"run{self.count}"
        return self.record(out, arrays, what=what)

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> There:
        """The run with these inputs, which ``watched`` watches here."""
        return There(self, arrays)

    def open(self) -> None:
        """Opens the model of a file, and fills in its ``inputs``. InputError: it can't be opened.

        This process need not do it too: a library takes seconds to be imported."""
        if not is_function(self.model):
            inputs = self._request("inputs", {}, {})[0]["inputs"]
            self.inputs = tuple(Input(name, tuple(shape), dtype) for name, shape, dtype in inputs)

    def plain(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Outputs of the model, run unwatched on any inputs."""
        return _arrays_in_order(self._request("plain", arrays, {})[1])

    def _request(
        self, do: str, inputs: Mapping[str, np.ndarray], options: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Arrays]:
        request = {"do": do, "model": self.model, "trust": self.trust, "names": list(inputs)}
        request |= {"within": self.within, "target": self.where.text, **options}
        header, outputs = self.session.request(request, _by_number(inputs.values()))
        if "input" in header:
            raise InputError(*header["input"])
        if "nondeterministic" in header:
            raise Nondeterministic(header["nondeterministic"])
        return header, outputs


@dataclass
class There:
    """A run of a model with these inputs, watched where the model is."""

    model: Apart | WholeFile
    arrays: Mapping[str, np.ndarray]
    target = ""

    def plain(self) -> list[np.ndarray]:
        return self.model.plain(self.arrays)

    def watched(self, what: str) -> tuple[Run, list[str]]:
        """The run, which was watched there, and its notes."""
        run = self.model.side(self.arrays, what)
        assert run.made is not None
        return run, run.made.notes


@dataclass(frozen=True)
class Remote:
    """An operation run alone in another process. ``request``: for an operation that it recorded, by
    its number, or for the lines of one."""

    session: AnySession
    request: Mapping[str, Any]

    def moved(self, addresses: Sequence[int | None]) -> Remote | None:
        """The same with operands at different addresses; None for lines of a library that lay none.
        Lines lay them there behind those that lay them at their own, before the line that
        computes."""
        if "lines" not in self.request:
            return replace(self, request={**self.request, "addresses": list(addresses)})
        lines, imports = self.request["lines"], self.request["imports"]
        if not any("torch" in line for line in imports):
            return None
        at = next((n for n, line in enumerate(lines) if line.startswith("y = ")), 0)
        both = enumerate(addresses)
        laid = [f"x{n} = laid(x{n}, {int(address)})" for n, address in both if address is not None]
        return replace(self, request={**self.request, "lines": [*lines[:at], *laid, *lines[at:]]})

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return _arrays_in_order(self.session.request(dict(self.request), _by_number(arrays))[1])


def _by_name(request: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return {name: arrays[str(n)] for n, name in enumerate(request["names"])}


def _by_number(arrays: Iterable[Any]) -> Arrays:
    """Arrays as a request or an answer has them: by their numbers."""
    return {str(n): np.asarray(array) for n, array in enumerate(arrays)}


def _arrays_in_order(arrays: Arrays) -> list[np.ndarray]:
    return [arrays[str(n)] for n in range(len(arrays))]


def with_calls(run: Run, calls: Mapping[int, Isolated]) -> Run:
    """A recording whose operations are run by these calls, and written by its lines."""
    assert isinstance(run.store, RecordingFolder)
    operations = []
    for op in run.operations:
        recorded, imports = run.store.lines.get(op.number, ([], []))
        lines = partial(_with_names, recorded) if recorded else None
        again = calls.get(op.number)
        operations.append(replace(op, again=again, lines=lines, imports=imports))
    return replace(run, operations=operations, untried="")


def _with_names(recorded: Sequence[str], names: Sequence[str], out: str) -> list[str]:
    """Recorded lines, with these names instead of ``x0``, ``x1``, ... and ``y``; not inside of
    texts: bytes of a model are there as text. SyntaxError: they are not Python."""
    text = "\n".join(recorded)
    new, lines = {**{f"x{n}": name for n, name in enumerate(names)}, "y": out}, text.split("\n")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError as error:
        raise SyntaxError(str(error.args[0])) from None
    for token in reversed(tokens):
        if token.type == tokenize.NAME and token.string in new:
            (row, start), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:start] + new[token.string] + lines[row - 1][end:]
    return lines


def module_paths() -> dict[str, str]:
    """Variables with which a process finds the modules that this one finds."""
    paths = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
    return {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


# Libraries that set their switches with each model.
BY_MODEL = ("onnxruntime", "litert", "opencv")


def model_switches(where: Target, model: str) -> dict[str, str]:
    """Switches that the library sets with a model, rather than for the process.

    InputError: the model runs on another library; or a switch says how ``probe`` writes a single
    operation, and so does not reach a model.
    """
    if tracer_command(where) is None:
        why = "models are recorded in this Python environment, with its releases"
        todo = "install probe in that environment, run probe record there, then probe diff"
        raise InputError("target", where.text, why, todo)
    if not is_function(model) and not runs(where.name, Path(model)):
        library = library_of(Path(model))
        why = f"{Path(model).name} is run by {library}"
        raise InputError("target", where.text, why, f"use {library}, or its switches")
    switches = dict(where.switches)
    if where.name in BY_MODEL and not is_function(model):
        return switches
    for key, text in switches.items():
        if not changes_process(where, key):
            why = f"{key}={text} changes how probe runs single operations, and has no effect on a "
            todo = "leave it out, or set it in a function that runs the model: module:function"
            raise InputError("target", where.text, why + "model", todo)
    return {}


def is_own_library(where: Target, model: str) -> bool:
    """Whether a target is a model's own library, at this environment's release: then the model
    itself runs there. Of a function that isn't known before it has run."""
    return tracer_command(where) is not None and (
        is_function(model) or runs(where.name, Path(model))
    )


def own_target(where: Target, model: str) -> Target:
    """The target of a model's own library, in this environment."""
    if is_function(model) or runs(where.name, Path(model)):
        return Target(where.name)
    library = library_of(Path(model))
    return Target("keras" if library == "tensorflow" and where.name == "keras" else library)


def needs_other_interpreter(where: Target) -> bool:
    """Whether another release, processor or interpreter is asked for."""
    if where.version or target.emulated_processor(where):
        return True
    try:
        return target.target_runtime(where).facts is not None
    except Missing:  # what is not installed at all is told by ``Session``
        return False


def changes_process(where: Target, key: str) -> bool:
    """Whether a switch changes the process: its environment, or what is set when it starts."""
    backend, switches = backends.get(where.name), dict(where.switches)
    without = {name: text for name, text in switches.items() if name != key}
    variables = [backend.environment(chosen, where.device) for chosen in (switches, without)]
    if variables[0] != variables[1]:
        return True
    if where.name in BY_MODEL or not hasattr(backend, "described"):
        return False
    return _setup_lines(where, switches) != _setup_lines(where, without)


def _setup_lines(where: Target, switches: Mapping[str, str]) -> tuple[str, ...]:
    """The lines that set switches of a target's library."""
    backend = backends.get(where.name)
    writing = backend()
    writing.described(switches, where.device, target.installed_version(backend) or RELEASE)
    return tuple(writing.setup())


def switch_lines(left: Target, right: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines that set either side's switches in one process, the other side's back to the default.

    What only a variable of the environment sets has none.
    """
    backend = backends.get(left.name)
    if left.name != right.name or not hasattr(backend, "described"):
        return (), ()
    defaults = {
        key: backend.keys[key].default
        for key, _ in (*left.switches, *right.switches)
        if backend.keys[key].accepts(backend.keys[key].default)
    }
    left_lines, right_lines = (
        _setup_lines(side, {**defaults, **dict(side.switches)}) for side in (left, right)
    )
    return left_lines, right_lines


# Of a library that is not installed, or whose lines do not depend on it.
RELEASE = "2.16"


class ProcessRecording(child.Worker):
    """What runs in the process: the worker's start, then what ``Apart`` asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[int, Sequence[Operation]] = {}
        self.models: dict[str, Any] = {}

    def handle(
        self, request: dict[str, Any], arrays: Arrays
    ) -> Iterator[tuple[dict[str, Any], Arrays]]:
        """As of ``child.Worker``."""
        answers = {
            "inputs": self._inputs,
            "record": self._record,
            "repeat": self._repeat,
            "plain": self._plain,
            "again": self._again,
            "written": self._written,
        }
        name = str(request.get("do"))
        if name not in answers:
            yield from super().handle(request, arrays)
            return
        try:
            answer = answers[name](request, arrays)
        except InputError as error:
            answer = {"input": [error.name, str(error.value), error.why, error.todo]}, {}
        except Nondeterministic as error:
            answer = {"nondeterministic": str(error)}, {}
        except TargetError as error:
            answer = {"error": error.kind, "message": error.why}, {}
        except BaseException as error:
            kind, message = child.describe(error)
            answer = {"error": kind, "message": message}, {}
        yield answer[0] | {"done": True}, answer[1]

    def _opened(self, request: dict[str, Any]) -> Any:
        text, library = request["model"], Target.parse(request["target"]).name
        if text not in self.models:
            self.models[text] = open_model(text, request["trust"], request["within"], library)
        return self.models[text]

    def _recorder(self, request: dict[str, Any], arrays: Arrays) -> Any:
        return self._opened(request).recorder(_by_name(request, arrays))

    def _inputs(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        inputs = [(spec.name, spec.shape, spec.dtype) for spec in self._opened(request).inputs]
        return {"inputs": inputs}, {}

    def _record(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        recorder = self._recorder(request, arrays)
        model, out = request["model"], Path(request["out"])
        subject = model if is_function(model) else Path(model).name
        with begin_recording(out) as store:
            run, notes = watch(recorder, request["what"], store)
            notes += request["notes"]
            on_target = replace(run, target=request["target"])
            write_recording(on_target, out, subject, request["most"], notes)
        for dropped in request["dropped"]:
            self.operations.pop(dropped, None)
        self.operations[request["recording"]] = run.operations
        runnable = [op.number for op in run.operations if op.again is not None]
        return {"library": run.target.partition(",")[0], "runnable": runnable}, {}

    def _repeat(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        sent, opened = _by_name(request, arrays), self._opened(request)
        names = [*sent][: request["count"]]
        inputs = {name: sent[name] for name in names}
        where = {name: sent[f"where {name}"] for name in names}
        dtypes = {spec.name: spec.dtype for spec in opened.inputs if spec.dtype}
        recorder = getattr(opened, "repeated", opened.recorder)
        run = read_recording(Path(request["out"]))
        marks = repeated_with_others(run, recorder, inputs, where, dtypes)
        header = {
            "changed": [*marks.changed],
            "missing": sorted(marks.unknown),
            "repetitions": marks.repetitions,
        }
        return header, _by_number(marks.changed.values())

    def _plain(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        return {}, _by_number(run_unwatched(self._recorder(request, arrays)))

    def _again(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        call: Any = self.operations[request["recording"]][request["number"]].again
        if (addresses := request.get("addresses")) is not None and hasattr(call, "moved"):
            call = call.moved(addresses)
        return {}, _by_number(call(_arrays_in_order(arrays)))

    def _written(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        names: dict[str, Any] = {}
        if any(" = laid(" in line for line in request["lines"]):
            names["laid"] = import_module("probe.record.torch_calls").copied_at
        lines, dtypes = request["lines"], request["dtypes"]
        results = run_lines(request["imports"], lines, _arrays_in_order(arrays), dtypes, names)
        return {}, _by_number(results)


class RunnableRecording:
    """A recording on disk whose operations may be run, by their lines, on its target, in another
    process.

    A context manager, which gives the run. Where the target can't run here its operations are not
    run, and a note says so. ``extra``: variables of the process, instead of those by which it finds
    this one's modules.
    """

    def __init__(self, folder: Path, extra: Mapping[str, str] | None = None) -> None:
        self.folder, self.running = RecordingFolder(Path(folder)), ExitStack()
        self.extra = module_paths() if extra is None else extra

    def __enter__(self) -> Run:
        run = self.folder.run()
        assert run.made is not None
        calls = dict[int, Isolated]()
        try:
            where = Target.parse(run.target)
            if why := why_unavailable(where):
                raise TargetError(where.text, "unavailable", why)
            session = Session(where, command=COMMAND, extra=self.extra)
            self.running.enter_context(session)
            for n, (lines, imports) in self.folder.lines.items():
                dtypes = [run.values[read].dtype for read in run.operations[n].reads]
                request = {"do": "written", "lines": lines, "imports": imports, "dtypes": dtypes}
                calls[n] = Remote(session, request)
        except ProbeError as error:
            what = f"{self.folder.folder.name}: its operations can't be run again"
            run.made.notes.append(f"{what}: {error}")
        return with_calls(run, calls)

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
    return _arrays_in_order(session.request(request, _by_number(arrays.values()))[1])


WHOLE = "the whole file is run there, and its operations can't be asked"


class WholeFile:
    """A model's file on a target of another library, release or processor, run whole as its users
    run it. No operation of it can be asked. Errors: TargetError."""

    untold = "its operations can't be asked on this target"

    def __init__(self, session: Any, model: str, inputs: Any = ()) -> None:
        self.session, self.model, self.inputs = session, model, inputs
        self.plain: Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
        self.plain = partial(file_outputs, session, model)

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> There:
        """As of ``Apart``."""
        return There(self, arrays)

    def side(self, arrays: Mapping[str, np.ndarray], what: str = "") -> Run:
        """Runs the file twice: a recording of one operation. Nondeterministic where its outputs do
        not repeat."""
        text, path, store = self.session.target.text, Path(self.model), ProcessStore()
        outputs, again = ([*map(np.asarray, self.plain(arrays))] for _ in range(2))
        inputs = {name: np.asarray(array) for name, array in arrays.items()}
        values = [
            Value(array.shape, str(array.dtype), store.put(array), -1, INPUT, name)
            for name, array in inputs.items()
        ]
        values += [Value(a.shape, str(a.dtype), store.put(a), 0) for a in outputs]
        reads, numbers = tuple(range(len(inputs))), tuple(range(len(inputs), len(values)))
        digests = [values[n].digest for n in numbers]
        if digests != [*map(array_digest, again)]:
            why = "the outputs of the same file differ when it runs again"
            raise Nondeterministic(f"{text}: {why}")
        operation = Operation("model", "", reads, numbers, Unknown(WHOLE), {}, name=path.name)
        facts = self.session.facts
        libraries = {"numpy": facts.get("numpy_version")}
        libraries[str(facts.get("library"))] = facts.get("library_version")
        software = {"python": facts.get("python_version"), "libraries": libraries}
        environment, nothing = environment_facts() | software, {"values": 0, "bytes": 0}
        made = Provenance(path, path.name, environment, [f"{text}: {WHOLE}"], nothing)
        runs = text, "", values, [operation], numbers, store
        return Run(*runs, untried=WHOLE, made=made, plain=tuple(digests))


@contextmanager
def opened_on(where: Target, model: str, trust: bool = False) -> Iterator[Apart | WholeFile]:
    """Opens a model, a file or ``module:function``, on a target in a process of its own: recorded
    where the library is its own, else the whole file."""
    with ExitStack() as running:
        if is_own_library(where, model):
            folder = Path(tempfile.mkdtemp(prefix="probe-"))
            running.callback(shutil.rmtree, folder, ignore_errors=True)
            yield running.enter_context(Apart(model, where, trust, folder))
        else:
            session: AnySession = open_session(where)
            yield WholeFile(running.enter_context(session), model)


if __name__ == "__main__":
    # by its name: what runs as __main__ is a second copy of this module, with classes of its own
    from probe.diff.apart import ProcessRecording as Served

    child.main(Served)

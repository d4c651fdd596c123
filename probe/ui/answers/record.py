"""Keeps a run in a folder, to be compared with one of another machine, release or target; or the
digests of its operations alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from probe.case.arguments import typed
from probe.case.errors import Foreign, InputError, ProbeError, foreign
from probe.diff.apart import Apart
from probe.diff.folder import MOST, begin_recording, size_of_values, write_recording
from probe.diff.folder import read_recording as read_folder
from probe.diff.watched import watched
from probe.order.semantics import Moves
from probe.record import inputs as given_inputs
from probe.record.contract import Input, Opened
from probe.record.recording import Provenance, Run
from probe.record.subject import function_recorder, is_function, model_name, open_model
from probe.sweep.printing import counted
from probe.targets.target import Target
from probe.ui.answers.answer import Answer, checked_target

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(repr=False)
class Recorded(Answer):
    """Holds a recording on disk: ``found`` is read from its folder."""

    found: Run
    bytes: int

    @property
    def made(self) -> Provenance:
        """Returns where and of what it was made."""
        assert self.found.made is not None
        return self.found.made

    def report(self) -> dict[str, Any]:
        run, provenance = self.found, self.made
        return {
            "folder": str(provenance.folder),
            "subject": provenance.subject,
            "target": run.target,
            "operations_total": len(run.operations),
            "values": len(run.values),
            "bytes": self.bytes,
            "left_out": provenance.left_out,
            "made": provenance.made,
            "notes": [*provenance.notes],
        }

    def lines(self) -> tuple[str, str, str]:
        run, provenance = self.found, self.made
        libraries = provenance.made["libraries"]
        where = ", ".join(f"{name} {version}" for name, version in libraries.items())
        size = f"{counted(len(run.values), 'value')}, {self.bytes:,} bytes"
        size += f"; left out: {provenance.left_out_text}" if provenance.left_out["values"] else ""
        subject = f"{provenance.subject}: " if provenance.subject else ""
        return (
            f"{subject}{counted(len(run.operations), 'operation')} on {run.target} ({where})",
            size,
            "; ".join(provenance.notes) or f"compare: probe diff {provenance.folder} OTHER",
        )

    def shown(self) -> RenderableType:
        return "\n".join((*self.lines(), f"wrote {self.made.folder}"))


@dataclass(frozen=True)
class GivenModel:
    """A model as a user gave it, and what it is run on.

    ``model``: a file, one in memory, a function, or ``"module:function"``. ``inputs``: arrays by
    name or in order, or a .npz file; None: generated from ``seed``, in the model's own shapes, and
    in ``shapes`` where it leaves them open. ``trust``: read a file that runs code of its own.
    """

    model: Any
    inputs: Any = None
    shapes: Mapping[str, tuple[int, ...]] | None = None
    trust: bool = False
    seed: int = 0
    notes: list[str] = field(default_factory=list, compare=False)
    """What ``arrays`` took for what, where names don't say it."""

    def opened(self) -> Opened:
        """Returns what has its inputs and recorders. InputError."""
        return open_model(self.model, self.trust)

    @property
    def name(self) -> str:
        return model_name(self.model)

    def text(self, option: str) -> str:
        """Returns the model as another process finds it. InputError: it is in this one alone."""
        model = self.model
        if isinstance(model, str | Path):
            return str(model) if is_function(model) else str(Path(model).resolve())
        why = "a target's switches need a process of their own, and this model is in this one alone"
        todo = "save it as a file, or give module:function"
        raise InputError(option, type(model).__name__, why, todo)

    def require_inputs(self, declared: Sequence[Input], more: str = "") -> None:
        """Refuses a model of whose inputs nothing is known; ``more``: of what size they are."""
        if self.inputs is None and not self.shapes and not declared:
            why = "the model does not describe its inputs"
            todo = f"give --inputs FILE.npz, or --shape 8x64 (generated float32 numbers){more}"
            raise InputError("inputs", "(none)", why, todo)

    def arrays(
        self, declared: Sequence[Input], vary: str | None = None, most: int = 0
    ) -> dict[str, np.ndarray]:
        """Returns the inputs of a model that declares some: given ones, or seeded ones of its own
        shapes, with ``most`` entries where it leaves the axis that is varied open."""
        if self.inputs is None:
            shapes = self.shapes or {}
            return given_inputs.generated_inputs(declared, vary, most, shapes, self.seed)
        if isinstance(self.inputs, str | Path):
            arrays = given_inputs.read_inputs(Path(self.inputs))
        elif isinstance(self.inputs, Mapping):
            arrays = {str(name): array for name, array in self.inputs.items()}
        else:
            several = self.inputs if isinstance(self.inputs, list | tuple) else [self.inputs]
            arrays = {f"input{n}": array for n, array in enumerate(several)}
        arrays = {name: given_inputs.one_array(name, array) for name, array in arrays.items()}
        return given_inputs.in_declared_order(declared, arrays, self.notes)


@typed
def record(
    model: Any,
    out: str | Path,
    *,
    inputs: Mapping[str, np.ndarray] | Sequence[Any] | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    target: str | Target | None = None,
    trust: bool = False,
    most: int = MOST,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Recorded:
    """Runs a model or a function, and keeps every operation's bits in the new folder ``out``.

    ``model``: a function without arguments, ``"module:function"``, or a model file. ``inputs``:
    arrays by name, or a .npz file; generated from ``seed`` where a model file says its inputs'
    shapes, with ``shapes`` for what it leaves open. ``target``: run it in a process of its own with
    this target's switches; ``model`` is a file or ``"module:function"`` then. ``most``: bytes of
    values; of what is beyond them digests are kept. ``trust``: read a file that runs code of its
    own. It is run three times. Errors: InputError; TargetError; Nondeterministic where two runs of
    it differ.
    """
    folder, user_model = Path(out), GivenModel(model, inputs, shapes, trust, seed)
    if progress:
        progress("running it")
    if target is None:
        subject = user_model.opened()
        arrays = user_model.arrays(subject.inputs)
        named = Path(model).name if isinstance(model, str | Path) else ""
        named = str(model) if is_function(model) else named
        with begin_recording(folder) as store:
            run, notes = watched(subject.recorder(arrays), "the run", store)
            write_recording(run, folder, named, most, [*notes, *user_model.notes])
    else:
        with Apart(user_model.text("target"), checked_target(target), trust) as process:
            process.open()
            arrays = user_model.arrays(process.inputs)
            process.record(folder, arrays, most, notes=user_model.notes)
    return Recorded(read_folder(folder), size_of_values(folder))


# Operations of a run whose digests are told: `bits.lock` has a line for each.
MOST_DIGESTS = 2000


def digests_of(run: Run) -> list[str]:
    """Returns ``OP PATH DIGEST`` of each operation that computes: what moves elements is left out,
    and what did not repeat its bits within the run. With them beside a check's bits the first
    operation that changed is known without the machine that the lock was made on."""
    digests = []
    for operation in run.operations:
        if not isinstance(operation.meaning, Moves) and not run.unsteady.intersection(
            operation.gives
        ):
            every = "".join(run.values[n].digest for n in operation.gives)
            digest = xxhash.xxh3_128_hexdigest(every.encode())[:12]
            digests.append(f"{operation.op} {'_'.join(operation.path.split()) or '-'} {digest}")
    return digests[:MOST_DIGESTS]


def recorded_operations(
    function: Callable[[], Any],
    folder: Path | None = None,
    bare: tuple[Callable[..., Any], Sequence[Any]] | None = None,
) -> tuple[list[str], str]:
    """Runs a function a few times, watched; returns its operations' digests, or why there are none.

    ``folder``: also keeps the recording there. ``bare``: as ``function_recorder`` takes it:
    plain NumPy is watched by the arrays that it is called with alone.
    """
    try:
        recorder = function_recorder(function, bare=bare)
        with begin_recording(folder) if folder else nullcontext() as store:
            run, notes = foreign(watched, recorder, "the run", store)
            if folder:
                write_recording(run, folder, notes=notes)
        return digests_of(run), ""
    except (Foreign, ProbeError) as error:  # what the user's test raises when it is run again, say
        return [], " ".join(str(error).split())


def first_changed(old: Sequence[str], new: Sequence[str]) -> str:
    """Returns the first operation whose digest changed, in words; empty where none is known.

    Operations are matched in their order. Where the names part, other operations are run.
    """
    for number, (before, other) in enumerate(zip(old, new, strict=False), 1):
        if before != other:
            both = (each.rsplit(" ", 2) for each in (before, other))
            was, now = (f"{op} at {path}".removesuffix(" at -") for op, path, _ in both)
            ran = was if was == now else f"{now} is run, where it was {was}"
            return f"operation {number} of {len(old)}: {ran}"
    if old and new and len(old) != len(new):
        return f"{len(new)} operations are run, where it was {len(old)}; those in common agree"
    return ""

"""A replayed operation as a user of the target's library writes it: lines that scripts print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from probe import backends, program
from probe.backends.contract import Unsupported
from probe.backends.source import Source, ValueShapes, Writing
from probe.recording.ported import TargetCall
from probe.recording.sums import OperandPart
from probe.target import Target


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
        lines += [f"x = {_taken(x, names)}"]
        lines += [f"{name} = {_taken(part, names)}" for name, part in self.called.parts.items()]
        source = self.source
        lines += [*source.make, *source.enter, *source.load, *source.run]
        return [*lines, f"{out} = {_put(self.called.output, source.leave)}"]


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
    steps = (program.ProgramStep(spec, (0,), {name: name for name in program.operands(spec)}),)
    given = program.Program(steps, 1, called.case is None)
    try:
        made = backend().described(dict(where.switches), where.device, version)
        source = made.emit(given, ValueShapes(given, x.shape))
    except Unsupported:
        return None
    if source.hold is not None:
        return None
    imports = tuple(f"import {name}" for name in source.standard) + tuple(made.imports)
    return Scripted(called, source, imports, tuple(made.setup()))


def _taken(part: OperandPart, names: Sequence[str]) -> str:
    """Returns ``OperandPart.taken`` as an expression; steps that change nothing are left out."""
    text, name = "", names[part.number]
    if part.pieces != part.whole:
        text += f".reshape{_tuple(part.pieces)}"
    if part.axes != tuple(range(len(part.axes))):
        text += f".transpose{_tuple(part.axes)}"
    turned = tuple(part.pieces[axis] for axis in part.axes)
    return f"np.array({name}{text}{_reshaped(turned, part.shape)})"


def _put(part: OperandPart, name: str) -> str:
    """Returns ``OperandPart.put`` as an expression."""
    turned = tuple(part.pieces[axis] for axis in part.axes)
    text = _reshaped(part.shape, turned)
    back = sorted(range(len(part.axes)), key=part.axes.__getitem__)
    if back != list(range(len(back))):
        text += f".transpose{_tuple(back)}"
    return f"np.ascontiguousarray({name}){text}{_reshaped(part.pieces, part.whole)}"


def _reshaped(have: Sequence[int], to: Sequence[int]) -> str:
    return "" if tuple(have) == tuple(to) else f".reshape{_tuple(to)}"


def _tuple(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})" if len(numbers) != 1 else f"({numbers[0]})"

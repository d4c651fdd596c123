"""A recording as one program of a target's library: what a compiler fuses, and what a call costs.

Every operation has to be a step of a program (:mod:`probe.operation`), whose values are arrays with
the channels last. Each value of the recording has a *form* there: for each element of the program's
array its place in the value, row by row. So whatever only gives a value another shape, or another
order of axes, is no step at all: the value that it gives has another form of the same array.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.activations import ACTIVATIONS
from probe.case import Case
from probe.errors import InputError
from probe.operation import SPLICE
from probe.recording.ported import PortFrame, Ports, Stage, TargetCall, activation_call
from probe.recording.recording import Run, container_dtype
from probe.recording.sums import Shape
from probe.semantics import Each

Joins = Pads = Picks = ()

# Of a value: its number in the recording, or of one inside of an operation.
Key = Hashable


@dataclass
class EndToEndProgram:
    """A program: ``specs`` with the ``reads`` and ``operands`` of each, as of the worker's request
    ``network``. ``inputs``: arrays of its inputs; ``form``, ``shape``: of the one output."""

    specs: list[dict[str, Any]]
    reads: list[list[int]]
    operands: list[dict[str, np.ndarray]]
    inputs: list[np.ndarray]
    form: np.ndarray
    shape: Shape

    def output(self, y: np.ndarray) -> np.ndarray:
        """Returns the recording's output, of what the program gives."""
        values = np.empty(self.form.size, y.dtype)
        values[self.form.reshape(-1)] = y.reshape(-1)
        return values.reshape(self.shape)


def as_program(run: Run) -> EndToEndProgram:
    """Returns a run as one program. InputError: an operation can't be a step, with the reason."""
    return _Joined(run).program()


def _flat_indices(shape: Shape) -> np.ndarray:
    return np.arange(int(np.prod(shape, dtype=int))).reshape(shape)


class _Joined:
    """Steps as they come. ``forms``: of values, with the step that gives each (inputs: -1 and
    down); ``fixed``: arrays of values that come from weights alone."""

    def __init__(self, run: Run) -> None:
        self.run, self.ports = run, Ports(run)
        self.steps: list[tuple[dict[str, Any], list[int], dict[str, np.ndarray]]] = []
        self.inputs: list[int] = []
        self.forms: dict[Key, tuple[int, np.ndarray]] = {}
        self.fixed: dict[Key, np.ndarray] = {}
        self.shapes: dict[Key, Shape] = {}
        self.op = ""

    def program(self) -> EndToEndProgram:
        run = self.run
        if len(run.outputs) != 1:
            raise self.refused(f"it gives {len(run.outputs)} outputs")
        for number, value in enumerate(run.values):
            self.shapes[number] = value.shape
            if self.ports.fixed[number]:
                array = self.run.array(number)
                if array is not None:
                    self.fixed[number] = array
        for op in run.operations:
            self.op = op.name
            if all(self.ports.fixed[n] for n in op.reads) or not run.needed.intersection(op.gives):
                continue
            keys: list[Key] = list(op.reads)
            stages = self.ports.all_stages(op)
            for place, stage in enumerate(stages):
                last = place == len(stages) - 1
                key: Key = op.gives[0] if last else (op.number, place)
                self.shapes[key] = stage.shape
                self.stage(stage, [keys[n] for n in stage.reads], key)
                keys.append(key)
        return self.pruned(run.outputs[0])

    def pruned(self, output: int) -> EndToEndProgram:
        """Returns the program, of the steps alone that its output comes from."""
        step, form = self.forms.get(output, (-1, np.zeros(0, int)))
        if step < 0:
            raise self.refused("its output is an input, or a constant")
        wanted, pending = set[int](), [step]
        while pending:
            number = pending.pop()
            if number not in wanted:
                wanted.add(number)
                pending += [] if number < 0 else self.steps[number][1]
        inputs = sorted((n for n in wanted if n < 0), reverse=True)
        steps = sorted(n for n in wanted if n >= 0)
        numbers = {n: place for place, n in enumerate([*inputs, *steps])}
        arrays = []
        for n in inputs:
            value = self.inputs[-1 - n]
            array = self.run.array(value)
            assert array is not None
            arrays.append(array.reshape(-1)[self.forms[value][1]])
        chosen = [self.steps[n] for n in steps]
        return EndToEndProgram(
            [spec for spec, _, _ in chosen],
            [[numbers[read] for read in reads] for _, reads, _ in chosen],
            [operands for _, _, operands in chosen],
            *(arrays, form, self.shapes[output]),
        )

    def refused(self, why: str) -> InputError:
        return InputError("operation", self.op or "(none)", why, "")

    def add(
        self,
        key: Key,
        spec: dict[str, Any],
        reads: Sequence[Key],
        form: np.ndarray,
        operands: dict[str, np.ndarray] | None = None,
    ) -> None:
        self.steps.append((spec, [self.forms[read][0] for read in reads], operands or {}))
        self.forms[key] = len(self.steps) - 1, form

    def form(self, key: Key, wanted: np.ndarray | None = None) -> np.ndarray:
        """Returns the form of a value; an input takes the one that is ``wanted`` first, else its
        channels come last."""
        if key in self.forms:
            return self.forms[key][1]
        value = self.run.values[key] if isinstance(key, int) else None
        if value is None or value.given >= 0 or key in self.fixed:
            raise self.refused("it reads what is no activation")
        assert isinstance(key, int)
        if wanted is None:
            axis = self.ports.axes.get(key, len(value.shape) - 1)
            wanted = np.moveaxis(_flat_indices(value.shape or (1,)), axis if value.shape else 0, -1)
        while wanted.ndim < 3:  # rows of channels
            wanted = wanted[None]
        self.inputs.append(key)
        self.forms[key] = -len(self.inputs), wanted
        return wanted

    def stage(self, stage: Stage, keys: list[Key], key: Key) -> None:
        """Adds a stage of an operation."""
        if all(read in self.fixed for read in keys) and not isinstance(stage.does, TargetCall):
            self.fixed[key] = np.asarray(stage.does([self.fixed[read] for read in keys]))
        elif isinstance(stage.does, TargetCall):
            self.call(stage.does, keys, key)
        elif isinstance(stage.meaning, Each):
            self.each(stage.meaning, keys, key)
        elif isinstance(stage.meaning, Picks) and self.first(stage.meaning):
            self.splice(stage.meaning.axis, keys[0], key, None)
        elif isinstance(stage.meaning, Joins) and len(keys) == 2 and keys[1] in self.fixed:
            self.splice(stage.meaning.axis, keys[0], key, self.fixed[keys[1]])
        elif isinstance(stage.meaning, Joins):
            self.join(stage.meaning, keys, key)
        elif isinstance(stage.meaning, Pads):
            self.pad(stage.meaning, keys[0], key)
        else:
            self.moved(stage, keys[0], key)

    def call(self, called: TargetCall, keys: list[Key], key: Key) -> None:
        spec, used = dict(called.spec), [keys[part.number] for part in called.inputs]
        wanted = [part.taken(_flat_indices(part.whole)) for part in called.inputs]
        places = _flat_indices(self.shapes[key])
        rest = [read for read in keys if read not in used]
        if any(read not in self.fixed for read in rest):
            raise self.refused("its weights are computed from the inputs")
        arrays: list[Any] = [self.fixed.get(read) for read in keys]
        operands = called.operands(arrays)
        form = self.form(used[0], wanted[0])
        if spec["op"] == "activation" and spec["activation"] != "softmax":
            self.add(key, spec | {"channels": form.shape[-1]}, used, form)
            return
        output = called.output.taken(places)
        if spec["op"] == "sum":
            raise self.refused("a sum is no step of a program")
        if spec["op"] == "dense" or "kernel" not in spec:
            for place, (read, want) in enumerate(zip(used, wanted, strict=True)):
                other = np.swapaxes(want, -1, -2)
                form_read = self.form(read, want)
                if place and np.array_equal(form_read, other):  # turned by a step before
                    spec["transposed"] = not spec["transposed"]
                else:
                    self.fits(form_read, want)
            if spec["op"] == "product":
                self.add(key, spec, used, output)
                return
            if called.case is not None:  # rows of a network's positions
                case = called.case
                words: dict[str, Any] = {"dtype": case.dtype, "bias": case.bias}
                words |= {"in_channels": case.in_channels, "filters": case.filters}
                spec = Case("matmul", length=1, **words).spec()
                operands["w"] = operands["w"][None]
            output = output.reshape(*form.shape[:-1], output.shape[-1])
            self.add(key, spec, used, output, operands)
            return
        if not np.array_equal(form, wanted[0]):
            raise self.refused("what it reads has other axes than the value before it")
        self.add(key, spec, used, output, operands)

    def fits(self, form: np.ndarray, wanted: np.ndarray) -> None:
        """Raises InputError where rows of channels aren't those of the value."""
        if form.shape[-1] != wanted.shape[-1] or not np.array_equal(
            form.reshape(-1), wanted.reshape(-1)
        ):
            raise self.refused("what it reads has other rows than the value before it")

    def each(self, meaning: Each, keys: list[Key], key: Key) -> None:
        shape = self.shapes[key]
        dtype: dict[str, Any] = {"dtype": self.dtype(), "parameters": {}}
        active = [read for read in keys if read not in self.fixed]
        if len(keys) == 1 and meaning.word in ACTIVATIONS:
            known, kind = self.shapes[keys[0]], self.dtype()
            called = activation_call(meaning, PortFrame((known,), known, (kind,), kind, (False,)))
            form = self.form(keys[0])
            self.add(key, dict(called.spec) | {"channels": form.shape[-1]}, active, form)
            return
        if len(active) == len(keys) == 2 and meaning.word in ("add", "multiply"):
            forms = [self.form(read) for read in active]
            alike = np.array_equal(forms[0], forms[1])
            if not alike or any(self.shapes[read] != shape for read in active):
                raise self.refused("what it reads has other axes on either side")
            self.add(key, dtype | {"op": meaning.word}, active, forms[0])
            return
        if len(keys) != 2 or len(active) != 1 or meaning.beside or self.shapes[active[0]] != shape:
            raise self.refused(f"{meaning.word} is no step of a program")
        (other,) = (read for read in keys if read in self.fixed)
        form, array = self.form(active[0]), self.fixed[other]
        if meaning.along is not None and array.ndim == 1:
            array = array.reshape([-1 if a == meaning.along else 1 for a in range(len(shape))])
        lines = np.broadcast_to(array, shape).reshape(-1)[form].reshape(-1, form.shape[-1])
        if not (lines == lines[:1]).all():
            raise self.refused("what it reads besides is not one number a channel")
        line, channels = np.array(lines[0]), {"channels": form.shape[-1]}
        if meaning.word == "add" or (meaning.word == "subtract" and keys[1] == other):
            # IEEE 754: x - b is x + (-b) to the bit
            line = -line if meaning.word == "subtract" else line
            self.add(key, dtype | channels | {"op": "bias"}, active, form, {"b": line})
        elif meaning.word == "multiply":
            # -0 is the only number whose addition leaves every x as it is: +0 makes +0 of -0
            operands = {"scale": line, "shift": np.full_like(line, -0.0)}
            self.add(key, dtype | channels | {"op": "normalisation"}, active, form, operands)
        else:
            raise self.refused(f"{meaning.word} is no step of a program")

    def dtype(self) -> str:
        value = self.run.values[self.run.outputs[0]]
        return value.dtype

    def axis(self, key: Key, axis: int) -> int:
        """Returns which axis of a value's form an axis of it is. InputError: none, or a part."""
        form, shape = self.form(key), self.shapes[key]
        place = np.unravel_index(form, shape)[axis % len(shape)]
        some = [a for a in range(form.ndim) if form.shape[a] > 1 and np.diff(place, axis=a).any()]
        if len(some) != 1 or form.shape[some[0]] != shape[axis]:
            raise self.refused("the axis along which it joins or pads is none of the program's")
        return some[0]

    def join(self, meaning: Joins, keys: list[Key], key: Key) -> None:
        if meaning.stacked or any(read in self.fixed for read in keys):
            raise self.refused("it joins along a new axis, or constants")
        axes = {self.axis(read, meaning.axis) for read in keys}
        if len(axes) > 1:
            raise self.refused("what it joins has different axes")
        (axis,) = axes
        ends = np.cumsum([self.shapes[read][meaning.axis] for read in keys])[:-1]
        parts = np.split(_flat_indices(self.shapes[key]), ends, meaning.axis)
        both = zip(parts, keys, strict=True)
        forms = [part.reshape(-1)[self.form(read)] for part, read in both]
        spec = {"op": "concat", "axis": axis, "dtype": self.dtype(), "parameters": {}}
        self.add(key, spec, keys, np.concatenate(forms, axis))

    def first(self, meaning: Picks) -> bool:
        """Returns whether the first entries along an axis are picked."""
        picked = np.asarray(meaning.index)
        return picked.ndim == 1 and np.array_equal(picked, np.arange(picked.size))

    def splice(self, axis: int, read: Key, key: Key, behind: np.ndarray | None) -> None:
        """Adds the first entries of a value with constants behind them, where they lie along the
        last spatial axis; cutting and putting behind are one step."""
        form, to = self.form(read), self.shapes[key]
        place = form.ndim - 2
        if self.axis(read, axis) != place:
            raise self.refused("what it cuts or lengthens is not the program's length")
        order, axis = self.order(read), axis % len(to)
        sizes = [*form.shape[:place], to[axis], form.shape[-1]]
        whole_form = _flat_indices(to).transpose(order).reshape(sizes)
        count = 0 if behind is None else behind.shape[axis]
        step, length = self.forms[read][0], to[axis] - count
        spec: dict[str, Any] = {"op": SPLICE, "kept": length, "behind": count, "parameters": {}}
        spec |= {"dtype": self.dtype(), "channels": form.shape[-1]}
        tail = np.zeros(to, self.run.kinds.get(self.dtype()) or container_dtype(self.dtype()))
        if behind is not None:
            tail[(slice(None),) * axis + (slice(length, None),)] = behind
        tail = np.ascontiguousarray(tail.reshape(-1)[whole_form][..., length:, :])
        self.add(key, spec, [read], whole_form, {"tail": tail})
        if behind is not None and step >= 0 and self.steps[step][0].get("behind") == 0:
            self.steps[-1][1][:] = self.steps[step][1]  # what was cut is read itself

    def pad(self, meaning: Pads, read: Key, key: Key) -> None:
        form, shape, to = self.form(read), self.shapes[read], self.shapes[key]
        pairs = [(0, 0)] * form.ndim
        for axis, width in enumerate(meaning.widths):
            if any(width):
                pairs[self.axis(read, axis)] = width
        if any(pairs[0]) or any(pairs[-1]) or min(map(min, pairs)) < 0:
            raise self.refused("it pads the batch or the channels, or crops")
        inside = tuple(slice(a, a + n) for (a, _), n in zip(meaning.widths, shape, strict=True))
        # the places of what was there before, which the whole form has to have too; -1 is padding
        moved = np.pad(_flat_indices(to)[inside].reshape(-1)[form], pairs, constant_values=-1)
        order = self.order(read)  # the form of what is padded, by the axes of the value before it
        whole_form = _flat_indices(to).transpose(order).reshape(moved.shape)
        if not (moved == whole_form)[moved >= 0].all():
            raise self.refused("what it pads is not in the order of its axes")
        numbers = {"value": float(meaning.value.real)} if meaning.value else {}
        spec = {"op": "pad", "padding": [list(pair) for pair in pairs[1:-1]]}
        words = {"dtype": self.dtype(), "channels": form.shape[-1], "parameters": numbers}
        self.add(key, spec | words, [read], whole_form)

    def order(self, key: Key) -> list[int]:
        """Returns the axes of a value in the order of its form; those of size 1 come first."""
        shape = self.shapes[key]
        full = [axis for axis, size in enumerate(shape) if size > 1]
        rest = [axis for axis in range(len(shape)) if axis not in full]
        return [*rest, *sorted(full, key=lambda axis: self.axis(key, axis))]

    def moved(self, stage: Stage, read: Key, key: Key) -> None:
        """A value that is another's elements in another shape, or in another order of axes."""
        assert not isinstance(stage.does, TargetCall)
        try:
            places = np.asarray(stage.does([_flat_indices(self.shapes[read])])).reshape(-1)
        except (InputError, ValueError, TypeError):
            places = np.zeros(0, int)
        form = self.form(read)
        if places.size != form.size or len(np.unique(places)) != places.size:
            raise self.refused("it leaves out or repeats elements")
        inverse = np.empty_like(places)
        inverse[places] = np.arange(places.size)
        self.forms[key] = self.forms[read][0], inverse[form]

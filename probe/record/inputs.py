"""The inputs of both sides: a model's own, read from a file or generated, and cut along an axis.

``vary`` is ``batch``, ``length``, or names inputs and axes: ``audio:1,state:2``. What is cut is the
first that many entries, so that the shorter side's inputs are the beginning of the longer one's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats, memory, operands
from probe.case.arguments import axes_text, not_waiting
from probe.case.errors import Foreign, InputError, foreign
from probe.record.contract import Input

Arrays = dict[str, np.ndarray]
HOW = "write batch, length, or NAME:AXIS such as audio:1"
# From one generated input's seed to the next one's.
STEP = 101

# Elements of a generated input.
MOST = 1 << 40

# Generated integers are 0, 1, 2, ... and begin again here: less than any vocabulary.
VOCABULARY = 100


def listed_inputs(inputs: Any) -> list[Any]:
    """What a function is called with: an array, or arrays by name, is one argument; a
    sequence has them; None: none."""
    if inputs is None:
        return []
    if not hasattr(inputs, "__iter__") and not hasattr(inputs, "shape"):
        raise InputError("inputs", inputs, "it is neither an array nor several", "give arrays")
    return [inputs] if hasattr(inputs, "shape") or isinstance(inputs, Mapping) else list(inputs)


def one_array(name: str, value: Any) -> np.ndarray:
    """A given input as an array of numbers or texts. InputError: it is none."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        why = f"it is not one array ({' '.join(str(error).split())[:100]})"
        raise InputError("inputs", name, why, "give arrays of numbers") from None
    if array.dtype.kind == "O" and not all(isinstance(e, str | bytes) for e in array.reshape(-1)):
        why = f"{type(value).__name__} is not an array of numbers"
        raise InputError("inputs", name, why, "give arrays of numbers")
    return array


def read_inputs(path: Path) -> Arrays:
    """The arrays of a .npz file, by name in its order, or of a .npy file. InputError."""
    not_waiting("inputs", path)
    try:
        return foreign(_plain_arrays, path)
    except Foreign as damaged:  # zlib's, struct's, tokenize's, zipfile's: NumPy passes them on
        error = damaged.__cause__
    if isinstance(error, OSError):
        why = error.strerror or str(error)[:100]
        raise InputError("inputs", path, why, "give a .npz file of numpy.savez")
    if isinstance(error, ValueError) and "pickled" in str(error):  # NumPy's guess of any other file
        error = ValueError("it is not a file of NumPy's")
    why = f"it holds no plain arrays ({' '.join(str(error).split())[:80]})"
    raise InputError("inputs", path, why, "save it with numpy.savez")


def _plain_arrays(path: Path) -> Arrays:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {"input": loaded}
    with loaded:
        unpacked = sum(member.file_size for member in loaded.zip.infolist())
        memory.require_unpackable("inputs", path, unpacked)
        arrays = {name: loaded[name] for name in loaded.files}
    if not arrays:
        raise ValueError("it is empty")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} is a different file")
    return arrays


def shapes_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Reads ``name=1x3x224x224``; without a name it is that of the only input. InputError."""
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        try:
            shapes[name] = tuple(int(part) for part in sizes.split("x"))
        except ValueError:
            shapes[name] = (-1,)
        if any(size < 0 for size in shapes[name]):
            raise InputError("shape", text, "it is not a shape", "write 8x64, or NAME=8x64")
    return shapes


def in_declared_order(
    inputs: Sequence[Input], arrays: Mapping[str, np.ndarray], notes: list[str] | None = None
) -> Arrays:
    """Given arrays under the names of a model's inputs: by name, the others in their order.

    Of a file that says nothing of its inputs' formats some may be left out. ``notes``: gets what is
    taken for what. InputError: there are too few or too many.
    """
    if not inputs:
        return dict(arrays)
    names, fewer = [spec.name for spec in inputs], not any(spec.dtype for spec in inputs)
    if len(arrays) == len(names) or (fewer and len(arrays) < len(names)):
        named, said = by_name(names, arrays)
        if notes is not None and said:
            notes[:] = [said]
        return named
    listed = ", ".join(names)
    why = f"the model has {len(names)} inputs ({listed}), {len(arrays)} are given"
    raise InputError("inputs", ", ".join(arrays), why, f"name the arrays {listed}")


def by_name(names: Sequence[str], arrays: Mapping[str, np.ndarray]) -> tuple[Arrays, str]:
    """Arrays, no more than names, under the names of a model's inputs: by name, the others in
    order; and a note of these: empty where no name was given, or where there is one input alone."""
    free = (name for name in names if name not in arrays)
    to = {name: name if name in names else next(free) for name in arrays}
    taken = [f"{name} is taken for {input}" for name, input in to.items() if name != input]
    named = {input: arrays[name] for name, input in to.items()}
    unnamed = all(name == f"input{n}" for n, name in enumerate(arrays)) or len(names) == 1
    said = "" if unnamed or not taken else f"of the inputs, {', '.join(taken)}, by their order"
    return {name: named[name] for name in names if name in named}, said


def generated_inputs(
    inputs: Sequence[Input],
    vary: str | None,
    most: int,
    shapes: Mapping[str, tuple[int, ...]],
    seed: int = 0,
) -> Arrays:
    """Seeded inputs of a model's own shapes: normal numbers, integers 0, 1, 2, ...

    ``most``: the size of the axis that is varied, where the model leaves it open. ``shapes``: what
    the user says; of an input without a format they are those of float32. A function, which
    declares no ``inputs``, gets an array of each of ``shapes``, in their order. InputError names
    all sizes that are left open, and how they are given.
    """
    if inputs and not shapes and not any(spec.dtype for spec in inputs):
        why = "the file does not define the shapes of its inputs "
        why += f"({', '.join(spec.name for spec in inputs)})"
        todo = f"give --inputs FILE.npz, or --shape {inputs[0].name}=8x64 for float32 numbers"
        raise InputError("inputs", "(none)", why, todo)
    if not inputs:  # a function, which is called with them in order
        shapes = {name or f"input{n}": shape for n, (name, shape) in enumerate(shapes.items())}
        inputs = [Input(name, shape, "float32") for name, shape in shapes.items()]
    names = {spec.name for spec in inputs} | ({""} if len(inputs) == 1 else set())
    for name, shape in shapes.items():
        if name not in names:
            listed = ", ".join(spec.name for spec in inputs)
            raise InputError("shape", name, "the model has no such input", f"it has {listed}")
        spec = next(spec for spec in inputs if spec.name == name or not name)
        if spec.dtype and len(spec.shape) != len(shape):
            why = f"{spec.name} has {axes_text(len(spec.shape))}"
            raise InputError("shape", "x".join(map(str, shape)), why, _how(spec, vary, most))
    arrays, missing = {}, []
    for number, spec in enumerate(inputs):
        said = shapes.get(spec.name, shapes.get("") if len(inputs) == 1 else None)
        if not spec.dtype and said is None:
            continue
        sizes = list(spec.shape if said is None else said)
        for axis in _varied_by_shape(spec, vary) if said is None else ():
            if axis < len(sizes) and sizes[axis] is None:
                sizes[axis] = most
        if said is None and vary != "batch" and len(sizes) > 1 and sizes[0] is None:
            sizes[0] = 1  # one entry, where nothing else is said of a batch
        if None in sizes:
            missing.append(spec)
        else:
            shape = tuple(size for size in sizes if size is not None)
            known_as = replace(spec, dtype=spec.dtype or "float32")
            arrays[spec.name] = generated_input(known_as, shape, seed + STEP * number)
    if missing:
        unsized = ", ".join(spec.name for spec in missing)
        why = "the model does not define all sizes: " + ", ".join(_open(spec) for spec in missing)
        todo = " ".join(_how(spec, vary, most) for spec in missing)
        raise InputError("shape", unsized, why, f"{todo}, or --inputs FILE.npz")
    return arrays


def _open(spec: Input) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.name} [{sizes}]"


def _how(spec: Input, vary: str | None, most: int) -> str:
    example = [
        size if size is not None else 1 if n == 0 else 64 for n, size in enumerate(spec.shape)
    ]
    for axis in _varied_by_shape(spec, vary):
        example[axis] = most or example[axis]
    return f"give --shape {spec.name}={'x'.join(map(str, example))}"


def _varied_by_shape(spec: Input, vary: str | None) -> list[int]:
    """The axes of a model's input that are varied, as far as its own shape says."""
    if vary == "batch":
        return [0] if spec.shape and spec.shape[0] is None else []
    if vary == "length":
        free = [axis for axis, size in enumerate(spec.shape) if size is None]
        return ([axis for axis in free if axis] or (free if len(spec.shape) == 1 else []))[-1:]
    return [axis for name, axis in named_axes(vary) if name == spec.name] if vary else []


def generated_input(spec: Input, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """The generated array of one input. A mask is all ones, kinds of tokens all zero."""
    if math.prod(shape) > MOST:
        sizes = "x".join(map(str, shape))
        raise InputError(
            "shape", f"{spec.name}={sizes}", "it does not fit into memory", "choose a smaller shape"
        )
    if spec.dtype in floats.FORMATS:
        return floats.round_to(operands.normal(seed, "x", shape), spec.dtype)
    kind = np.dtype(spec.dtype)
    name = spec.name.lower()
    if kind.kind == "b" or "mask" in name:
        return np.ones(shape, kind)
    if "type" in name:
        return np.zeros(shape, kind)
    count = math.prod(shape)
    return (np.arange(count) % VOCABULARY).reshape(shape).astype(kind)


def named_axes(vary: str) -> list[tuple[str, int]]:
    """Reads ``audio:1,state:2``. Raises InputError."""
    axes = []
    for part in vary.split(","):
        name, _, axis = part.strip().rpartition(":")
        if not name or not (axis.isascii() and axis.isdigit()):
            raise InputError("vary", vary, "it is not an axis", HOW)
        axes.append((name, int(axis)))
    return axes


def varied_axes(
    vary: str, arrays: Mapping[str, np.ndarray], inputs: Sequence[Input]
) -> dict[str, int]:
    """The axis of each input that is varied. InputError: there is none."""
    declared = {spec.name: spec for spec in inputs if spec.dtype}
    if vary not in ("batch", "length"):
        axes = dict(named_axes(vary))
        for name, axis in axes.items():
            if name not in arrays:
                why = "no input has this name"
                raise InputError("vary", vary, why, f"there are {', '.join(arrays)}")
            if axis >= arrays[name].ndim:
                why = f"{name} has {axes_text(arrays[name].ndim)}"
                raise InputError("vary", vary, why, "count them from 0")
        return axes
    free = dict[str, list[int]]()  # the likeliest last: the last open axis, else the longest
    for name, array in arrays.items():
        likely = range(min(1, array.ndim - 1), array.ndim) if vary == "length" else range(1)
        if declared:
            shape = declared[name].shape
            free[name] = [axis for axis in likely if axis < len(shape) and shape[axis] is None]
        elif array.ndim:
            free[name] = sorted(likely, key=lambda axis: (array.shape[axis], axis))
    sizes = [arrays[name].shape[axes[-1]] for name, axes in free.items() if axes]
    size = (max(sizes) if vary == "length" else sizes[0]) if sizes else 0
    axes = {
        name: fitting[-1]
        for name, axes in free.items()
        if (fitting := [axis for axis in axes if arrays[name].shape[axis] == size])
    }
    if not axes:
        shapes = ", ".join(_open(spec) for spec in inputs) or "its inputs have no such axis"
        why = f"the model has a fixed {vary}: {shapes}"
        todo = "export it with a variable size along this axis, or name the axis: --vary NAME:AXIS"
        raise InputError("vary", vary, why, todo)
    return axes


def first_entries(
    arrays: Mapping[str, np.ndarray],
    along: Mapping[str, int],
    size: int,
    option: str = "against",
    start: int = 0,
) -> Arrays:
    """Returns ``size`` entries of the inputs that are varied, from ``start`` on. InputError: too
    few.

    ``option``: what the size was given as.
    """
    shortened = dict(arrays)
    for name, axis in along.items():
        have = arrays[name].shape[axis]
        if size > have:
            why = f"the size of {name} along axis {axis} is {have}"
            raise InputError(option, size, why, f"use {have} or less, or longer inputs")
        index = (slice(None),) * axis + (slice(start, start + size),)
        # in memory of its own, as a sample that is given alone is: a view of the batch begins at
        # another address, by which ONNX Runtime's means round otherwise
        shortened[name] = np.array(arrays[name][index], order="C")
    return shortened


@contextmanager
def arrays_restored(arrays: Sequence[Any]) -> Iterator[None]:
    """Gives arrays of NumPy back what they held, in the same memory.

    A function may change its arguments (``x += 1``), and its next run has to start from the same
    numbers, at the same addresses.
    """
    before = [(array, np.array(array)) for array in arrays if isinstance(array, np.ndarray)]
    try:
        yield
    finally:
        for array, held in before:
            if array.tobytes() != held.tobytes():
                array[...] = held

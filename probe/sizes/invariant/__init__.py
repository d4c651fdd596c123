"""Keeps the same bits at every batch, length and place, at nearly the library's speed.

A library chooses the order of additions by the shape of a call. So the sizes of an operation (rows
of a matrix product, samples of a convolution, elements of a function) fall into classes: all sizes
of a class add every output alike, at whatever place. One class is chosen. Each call is padded up to
a size of it, or cut into pieces of such sizes, and so never leaves it.

No size is ever run that was not checked itself: with operands whose sum shows nearly every other
order or rounding, held at every place of the call, against the bits of the chosen class
(``classes``; ``operations`` makes the operands, ``keeper`` finds and keeps the classes). Which
class was chosen is kept in a table, which travels as JSON; sizes are asked where they are run. Of
matrix products and convolutions the order itself can be asked: see ``keeper.Report``.

What an operation does along the batch is asked by running it (``operations``). ``torch_calls`` has
those of PyTorch, ``torch_operations`` what becomes of each; ``torch_products`` how a model's own
calls reach them at little cost, ``torch_sequences`` attention and recurrent layers; ``torch_model``
is the mode in which it runs. ``tensorflow_model`` has TensorFlow's operations, and the Keras model
that runs them one by one. Where a library runs a model as one program, that is the operation: see
``whole``; ``samples`` checks it, ``programs`` has the libraries and their files.

An operation that a library's table describes needs nothing here. One with classes of its own gets a
subclass of ``IndependentRows`` and a line in ``own`` of ``torch_operations`` or
``tensorflow_model``; a function that models call often joins ``quick``, a layer of one such
function ``KnownModules``. A library that runs programs as a whole: a subclass of ``LibraryProgram``
and its line in ``program_of_function`` or ``of_file``. What no table describes is
in ``report.left``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from itertools import islice
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Any

from probe.case.errors import InputError
from probe.targets.unchanged import leaves_unchanged

if TYPE_CHECKING:
    from probe.sizes.invariant.keeper import Report

LIKE = ("largest", "cheapest")


@leaves_unchanged
def invariant(
    model: Any,
    sizes: Iterable[int] | Mapping[str, Iterable[int]] = (1, 32),
    like: str = "largest",
    strict: bool = False,
    *,
    example: Any = None,
    table: Any = None,
    batched: Any = None,
    threads: int | None = None,
) -> tuple[Any, Report]:
    """A model whose result for a sample does not depend on its neighbours, and a report.

    ``model``: a ``torch.nn.Module`` in evaluation mode, or a ``keras.Model`` on TensorFlow; the
    result shares its weights, and is of the same kind. Or what is run whole, at a few sizes that
    are checked (``whole``): a function of JAX's or NumPy's arrays, a ``tf.function``, what
    ``torch.compile`` returned, a .onnx or .tflite file or its bytes, an ONNX Runtime session.
    ``sizes``: the batches that matter, or ``{"batch": ..., "length": ...}`` where samples also have
    a length that is padded behind an attention mask: of PyTorch's modules. A Keras model reports
    what it covers along the batch alone; what is run whole refuses lengths. Other sizes work too.
    ``like``: ``"largest"`` keeps the bits that the unchanged model gives at the largest of these
    sizes; ``"cheapest"`` takes the class that costs least over them, by measured time. ``strict``:
    an operation that is not known to keep its bits is refused, with ``NotInvariant``. ``example``:
    a tuple of inputs; given, the model is run on it once, so that the report is complete.
    ``table``: a path of a table; it is read if it is there (and checked), and ``report.save``
    writes it.

    ``batched``: along which axis each argument carries samples, None where it carries none, as
    ``jax.vmap``'s ``in_axes``, or by name; ``(None, 0)`` of ``f(weights, x)``. Not needed for one
    argument, and for files that leave one axis open. A PyTorch module's samples lie along the first
    axis of its first tensor, and of the others that have as many entries, if it is not given.

    Samples must not read each other. That is checked where a shape is first met, by a few more
    runs: of a module alone and beside other samples (``report.left`` names what fails), of what is
    run whole at every size (InputError).

    ``threads``: of a file; the library's default if not given.

    What is run whole is run at ``sizes`` alone, if these are up to 12, else at powers of two. Where
    the places of a size have different bits, a slightly larger size is tried; where those of all
    sizes have, samples run one by one, and a note of the report says so. Each size is compiled or
    prepared, and run some times, when a shape is first met.

    Inference only, without gradients. Classes are looked for when a shape is first met, which
    takes some calls of that shape. InputError; NotInvariant.
    """
    if like not in LIKE:
        raise InputError("like", like, "there is no such choice", f"use one of {', '.join(LIKE)}")
    if not isinstance(table, str | PathLike | None):
        why = f"{type(table).__name__} is not the path of a table"
        raise InputError("table", repr(table)[:40], why, "give a path; report.save writes the file")
    if not isinstance(strict, bool):
        raise InputError("strict", strict, "it is neither True nor False", "give one of them")
    _check_axes(batched)
    from probe.sizes.invariant import whole
    from probe.sizes.invariant.classes import InvariantOptions

    options = InvariantOptions(_checked_sizes(sizes), like, strict, example, table)
    if (program := whole.program_of(model, batched, threads)) is not None:
        return whole.invariant_program(program, options)
    kinds = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "keras" in kinds:
        import keras

        backend = keras.backend.backend()
        if backend not in ("tensorflow", "torch"):
            why = f"Keras computes with {backend}, and only TensorFlow and PyTorch are covered"
            todo = "set KERAS_BACKEND=tensorflow"
            raise InputError("model", type(model).__name__, why, todo)
        if backend == "tensorflow":
            keras_model = import_module("probe.sizes.invariant.tensorflow_model")
            return keras_model.invariant_keras(model, options, batched)
    if "torch" in kinds:
        return import_module("probe.sizes.invariant.torch_model").invariant_module(
            model, options, batched
        )
    name, why = type(model).__name__, "it is not a model or program that can be run here"
    todo = "give a torch.nn.Module, a keras.Model, a function, or the path of a model file"
    raise InputError("model", name, why, todo)


def _check_axes(batched: Any) -> None:
    """InputError: something that is nested in it is neither an axis nor None."""
    nested = isinstance(batched, Mapping | tuple | list)
    for each in batched.values() if isinstance(batched, Mapping) else batched if nested else ():
        _check_axes(each)
    if not (nested or batched is None or is_integer(batched)):
        why = "an axis is a whole number, or None where an argument carries no samples"
        todo = "write batched=0, or batched=(None, 0)"
        raise InputError("batched", repr(batched)[:40], why, todo)


def is_integer(value: Any) -> bool:
    """A Python or NumPy integer; True and False are not taken for one."""
    return isinstance(value, Integral) and not isinstance(value, bool)


# How many sizes may be given, and the largest: at it one number a sample takes 64 MB.
MOST_SIZES, LARGEST_SIZE = 1 << 16, 1 << 24


def _checked_sizes(
    sizes: Iterable[int] | Mapping[str, Iterable[int]],
) -> dict[str, tuple[int, ...]]:
    """Checked sizes by axis."""
    named = dict(sizes) if isinstance(sizes, Mapping) else {"batch": sizes}
    checked = {}
    for name, values in named.items():
        if name not in ("batch", "length"):
            raise InputError("sizes", name, "no axis has this name", "use batch, length")
        if not isinstance(values, Iterable) or isinstance(values, str | bytes):
            raise InputError("sizes", values, f"{name} takes several sizes", "use [1, 32]")
        numbers = [*islice(values, MOST_SIZES + 1)]
        if len(numbers) > MOST_SIZES:
            why = f"{name} takes up to {MOST_SIZES:,} sizes"
            raise InputError("sizes", repr(values)[:40], why, "give those that you call it with")
        if not numbers or not all(
            is_integer(size) and 1 <= size <= LARGEST_SIZE for size in numbers
        ):
            why = f"{name} takes whole numbers from 1 to {LARGEST_SIZE:,}"
            raise InputError("sizes", repr(numbers)[:40], why, "give those that you call it with")
        checked[name] = tuple(sorted({int(size) for size in numbers}))
    return {"batch": (1,)} | checked

"""Defines every exception. Each message says what was wrong, why, and what the user can do."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from importlib import util
from typing import Any, TypeVar

Result = TypeVar("Result")

# Exit status after Ctrl-C.
INTERRUPTED = 130

# Packages that many commands need, as import and pip call them; pandas and pyarrow are for what is
# stored, and not part of ``probe-numerics-core``.
BASE = ("click", "duckdb", "numpy", "pandas", "pyarrow", "rich")


class ProbeError(Exception):
    """Base of all errors that a user may see as one line. ``exit_code`` is the command's status."""

    exit_code = 2


class Foreign(Exception):
    """What a library or a user's code raised, as its cause: no mistake of probe's own."""


def foreign(call: Callable[..., Result], *arguments: Any) -> Result:
    """Calls somebody else's code, which may raise anything. Errors: Foreign, ProbeError."""
    try:
        return call(*arguments)
    except (ProbeError, MemoryError):
        raise
    except Exception as error:
        raise Foreign(line_of(error, 160)) from error


# Letters of a value that a message shows: an array or a file's text may have any number.
LONGEST = 300


class InputError(ProbeError):
    """The user's input is wrong: ``name=value: why; what to do``."""

    def __init__(self, name: str, value: object, why: str, todo: str = "") -> None:
        self.name, self.value, self.why, self.todo = name, value, why, todo
        try:
            shown = str(value)
        except Exception:  # a class of the user's may not even be printed
            shown = type(value).__name__
        shown = printable(" ".join(shown.split()))
        shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
        super().__init__(f"{name}={shown}: {why}" + (f"; {todo}" if todo else ""))

    def __str__(self) -> str:
        """In the words of who asks: options of commands become arguments where it is Python."""
        text = super().__str__()
        return text if COMMAND else in_python(text)


def refuse(options: Mapping[str, Any], why: str, todo: str = "leave it out") -> None:
    """InputError: one of these options is given. None, False and what is empty are not."""
    for name, value in options.items():
        empty = isinstance(value, tuple | dict) and not value
        if value is not None and value is not False and not empty:
            raise InputError(name, value, why, todo)


# Commands that run in this process, in all its threads; empty where somebody's Python asks.
COMMAND: list[str] = []

_OPTION = re.compile(
    r"--(?P<name>[a-z][a-z-]*)(?: (?P<value>[A-Z][\w.]*|[\w.]+=[\w.]+|\d[\w.,:]*))?"
)
_WHOLE = re.compile(r"probe [a-z]+ [^;,]*|python[\d.]* [^;]*|pip [^;]*")
_PLURAL = {"shape": "shapes", "case": "case"}


def in_python(text: str) -> str:
    """A message with ``--fixed 8`` as ``fixed=8``; whole commands stay as they are.

    A file becomes a text, a shape the mapping that the functions take; an option alone is True.
    """

    def argument(match: re.Match[str]) -> str:
        name, value = match["name"].replace("-", "_"), match["value"]
        if name == "shape" and value:
            key, _, sizes = value.rpartition("=")
            if sizes.replace("x", "").isdigit():
                value = f'{{"{key}": ({sizes.replace("x", ", ")})}}'
        elif value and (value.startswith("FILE") or value == "DIR" or "/" in value):
            value = f'"{value}"'
        return f"{_PLURAL.get(name, name)}={value or ('...' if name in VALUED else True)}"

    parts, start = [], 0
    for command in _WHOLE.finditer(text):
        parts += [_OPTION.sub(argument, text[start : command.start()]), command[0]]
        start = command.end()
    return "".join([*parts, _OPTION.sub(argument, text[start:])])


# Options that take a value also where a message names them alone.
VALUED = (
    *("inputs", "shape", "vary", "at", "against", "target", "against_target", "case", "operands"),
    *("fixed", "lengths", "plan", "sizes"),
)


def lacking(error: ModuleNotFoundError) -> InputError:
    """The error of a package that ``probe-numerics-core`` left out, and all that are lacking."""
    name = str(error.name).partition(".")[0]
    missing = [module for module in BASE if util.find_spec(module) is None] if name in BASE else []
    todo = f"run pip install {' '.join(missing or [name])}"
    return InputError("package", name, "it is not installed", todo)


def ended_by(number: int, stderr: str) -> tuple[str, str]:
    """Kind and sentence of a ``TargetError`` for a process that a signal ended.

    ``stderr`` is the tail of what it printed. That SIGKILL means lack of memory is a guess.
    """
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        return "memory", "its process was killed (SIGKILL): most likely the memory ran out"
    if number == signal.SIGABRT and ("bad_alloc" in stderr or "llocate memory" in stderr):
        return "memory", "its library could not allocate memory and stopped (SIGABRT)"
    why = (
        ": the library uses instructions that the processor does not have"
        if name == "SIGILL"
        else ""
    )
    return "crash", f"its process was ended by {name}{why}"


def printable(text: str) -> str:
    """A text of a file's, such as a name, as a terminal may show it: line ends, escapes and what
    turns the direction of writing are written as Python writes them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def line_of(error: BaseException, most: int) -> str:
    """The class of what a library raised and its words, in one line of so many letters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:most]}"


def one_of(value: object, names: Iterable[str]) -> str:
    """The advice for an unknown name: ``did you mean conv1d? use one of conv1d, ...``."""
    from difflib import get_close_matches

    known = list(names)
    word = str(value).lower()
    near = [name for name in MEANT.get(word, ()) if name in known]
    near = near or get_close_matches(word, known, n=2, cutoff=0.7)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}use one of {', '.join(known)}"


# What other libraries call things that are called otherwise here.
MEANT = {
    **dict.fromkeys(("tf", "tf2"), ("tensorflow",)),
    **dict.fromkeys(("pt", "pytorch"), ("torch",)),
    **dict.fromkeys(("ort", "onnx"), ("onnxruntime",)),
    **dict.fromkeys(("tflite", "lite"), ("litert",)),
    "cv2": ("opencv",),
    "np": ("numpy",),
    "jnp": ("jax",),
    "flax": ("jax",),
    "ov": ("openvino",),
    **dict.fromkeys(("fp32", "f32", "float", "single"), ("float32",)),
    **dict.fromkeys(("fp64", "f64", "double"), ("float64",)),
    **dict.fromkeys(("fp16", "f16", "half"), ("float16",)),
    **dict.fromkeys(("bf16", "bfloat"), ("bfloat16",)),
    **dict.fromkeys(("channels", "in_features", "input_channels"), ("in_channels",)),
    **dict.fromkeys(("out_channels", "out_features", "units", "output_channels"), ("filters",)),
    **dict.fromkeys(("kernel_size", "kernel_shape", "window"), ("kernel",)),
    **dict.fromkeys(("strides",), ("stride",)),
    **dict.fromkeys(("batch_size", "rows", "samples"), ("batch",)),
    **dict.fromkeys(("size", "width", "input_length", "sequence_length"), ("length",)),
    "conv": ("conv1d", "conv2d"),
    "linear1d": ("linear",),
    "gemm": ("matmul",),
    "fc": ("dense",),
    "depthwise": ("depthwise_conv2d",),
    "maxpool": ("max_pool1d",),
}


class StoreError(ProbeError):
    """A store can't be read or written: a newer schema, a damaged file, no room, no permission."""


class TargetError(ProbeError):
    """A target failed. ``kind`` says how; ``stderr`` is the tail of what its process printed.

    Kinds: ``unavailable`` (it can't run here), ``unsupported`` (it runs, but not this case),
    ``error`` (the library raised), ``crash``, ``timeout``, ``memory`` and ``protocol`` (the worker
    answered nonsense). On a cluster also ``lost`` (not run: no node was left, or it raised).
    """

    exit_code = 3

    def __init__(self, target: str, kind: str, why: str, stderr: str = "") -> None:
        self.target, self.kind, self.why, self.stderr = target, kind, why, stderr
        super().__init__(f"target={target}: {kind}: {why}")

    def __reduce__(self) -> tuple[type[TargetError], tuple[str, str, str, str]]:
        return type(self), (self.target, self.kind, self.why, self.stderr)


class ClusterError(ProbeError):
    """The cluster's scheduler is gone; what was measured until then is stored."""

    exit_code = 3


class Nondeterministic(ProbeError):
    """The same work on the same target gave different bits, so no order can be revealed."""

    exit_code = 3


class Misaligned(Nondeterministic):
    """The same work gave different bits because its operands began at other memory addresses."""


class TimeOver(KeyboardInterrupt):
    """The time that the user gave is over: raised in the main thread, wherever it is then.

    It is kept from what a library may raise as Ctrl-C is, and what is known stays in the same way.
    Callers get ``NothingKnown`` where nothing is.
    """


class NothingKnown(ProbeError):
    """The time that the user gave was over before anything was known."""

    exit_code = 3


class NotASum(ProbeError):
    """The operator's results for the masks fit no tree (Winograd, FFT, a non-linearity)."""

    exit_code, kind = 3, "not-a-sum"

    def __init__(self, evidence: str) -> None:
        self.evidence = evidence
        super().__init__(f"not a sum of products: {evidence}")


class NotAsked(NotASum):
    """A sum has more products than are asked for their order, which is said in ``evidence``."""

    kind = "not-asked"

    def __init__(self, evidence: str) -> None:
        super().__init__(evidence)
        self.args = (evidence,)


class NotReproduced(ProbeError):
    """A script does not give the measured bits every time; nothing is written."""

    exit_code = 3

"""Defines what a library must provide to be a target: a :class:`Backend` with its operators.

A backend module is imported in the parent (for its keys, devices and environment) and in the
worker (to run). It imports its library in :meth:`Backend.start` alone. It also runs in the targets'
interpreters (Python 3.6, NumPy 1.11).

Arrays are *container* arrays: float16, float32 and float64 as they are, bfloat16 as uint16 bits.
They are channels-last: x (batch, *spatial, channels), w (*kernel, channels/groups, filters),
bias (filters,). A *spec* is the JSON object of ``Case.spec``::

    {"op": "conv2d", "kernel": [1, 5], "stride": [1, 1], "dilation": [1, 1], "groups": 1,
     "padding": "valid" | "same" | [[0, 0], [2, 2]], "dtype": "float32",
     "in_channels": 1, "filters": 1, "bias": true}

It also has ``layout`` where operands don't lie row by row: see :mod:`probe.case.layout`.

``matmul``, ``dot`` and ``sum`` have the spec of a conv1d with a kernel of 1, ``dense`` that of a
convolution without spatial axes: x (batch, channels), w (channels, filters). ``source`` says which
arrays their calls are written with. A spec with ``split`` never comes here: ``rewritten`` makes two
of it.

A pool is composed from a library's padding and its pooling of whole windows, in all libraries
alike. Its spec is a depthwise one without weights, with two entries more: ``ceil_mode`` (a last
window may reach beyond the padded input, as long as it starts in the input or before it) and
``pad_with``: what padding puts into a window: ``nothing`` (no maximum, not counted in an average)
or ``zeros`` (a maximum of 0, counted). What lies beyond the padding is never counted.
"""

from abc import ABC, abstractmethod
from collections import namedtuple
from types import MappingProxyType
from typing import Any, Callable, Mapping, Tuple

import numpy as np

from probe.case import floats, layout
from probe.case.geometry import BY_SIZE
from probe.case.operation import operation_of_spec, windows_of_spec


class Unsupported(Exception):
    """The library runs, but not this operator. The message says which part of the spec and why."""


# What oneDNN, PyTorch, ONNX Runtime and XLA say of what they have no kernel for.
REFUSED = (
    "could not create a primitive",
    "not implemented for",
    "Could not find an implementation",
    "NOT_IMPLEMENTED",
    "UNIMPLEMENTED",
)

# Exceptions that mean nothing else, by name: of Python, TensorFlow and ONNX Runtime.
REFUSALS = ("NotImplementedError", "UnimplementedError", "NotImplemented")


def declined(error):
    """Whether an exception of a library says that it has no implementation, whatever its class.

    Some say it in general errors: TensorFlow aborts an operation that oneDNN has no primitive for.
    """
    # by name: the class is a library's, which is not imported here
    names = [parent.__name__ for parent in type(error).__mro__]
    return any(name in REFUSALS for name in names) or any(text in str(error) for text in REFUSED)


class Unavailable(Exception):
    """The library can't be used as asked: a device it does not see, a switch its release lacks."""


class OutOfMemory(Exception):
    """The library could not allocate; the message is its own."""


class Key:
    """One switch of a target: the values it takes, what users get without it, what it does.

    ``values`` is a tuple of texts, or None for a whole number from 1 up (``describe`` says N).
    ``default`` is text for people: the value in effect for a user of the library who sets nothing.
    ``needs``: of a switch of x86 instructions, the flags of /proc/cpuinfo that a CPU must have for
    a value to be the one in effect: {value: (flag, ...)}.
    """

    def __init__(self, values, default, doc, needs=None):
        self.values, self.default, self.doc, self.needs = values, default, doc, needs

    def accepts(self, text):
        """True where ``text`` is one of the values, spelled as it is stored."""
        if self.values is None:
            return text.isdigit() and not text.startswith("0") and len(text) <= 6
        return text in self.values

    def describe(self):
        """The values as a user writes them: ``0|1``, or ``N``."""
        return "N" if self.values is None else "|".join(self.values)

    def expects(self):
        """The values in words, for an error's advice."""
        return "a whole number from 1 to 999999" if self.values is None else self.describe()


# Limits of the instructions that oneDNN uses, and what they need: see ``Key``.
ONEDNN_ISA = {
    "sse41": ("sse4_1",),
    "avx": ("avx",),
    "avx2": ("avx2", "fma"),
    "avx2_vnni": ("avx2", "fma", "avx_vnni"),
    "avx512_core": ("avx512f", "avx512bw", "avx512vl", "avx512dq"),
    "avx512_core_vnni": ("avx512f", "avx512_vnni"),
    "avx512_core_bf16": ("avx512f", "avx512_vnni", "avx512_bf16"),
    "avx512_core_fp16": ("avx512f", "avx512_bf16", "avx512_fp16"),
    "avx512_core_amx": ("avx512f", "amx_tile", "amx_int8", "amx_bf16"),
}

# The ``isa`` switch of every target that carries oneDNN.
ONEDNN_KEY = Key(
    tuple(ONEDNN_ISA),
    "the best this CPU has",
    "newest instructions that oneDNN may use",
    ONEDNN_ISA,
)


def isa_variables(switches):
    """The variables of the ``isa`` switch: today's name, and the one before oneDNN 2.1.

    TensorFlow and PyTorch both carry oneDNN, which reads these once, when it is loaded (developer
    guide, "CPU dispatcher control"). Eigen's and XLA's kernels ignore them.
    """
    if "isa" not in switches:
        return {}
    limit = switches["isa"].upper()
    return {"ONEDNN_MAX_CPU_ISA": limit, "DNNL_MAX_CPU_ISA": limit}


class Operator:
    """One operator of one spec, for every length and batch.

    What :meth:`at` returns has, as methods or attributes: ``input(x)``, ``weights(w)`` and
    ``bias(b)``, which return the library's own values for the container arrays (batch, *spatial,
    in_channels), (*kernel, in_channels/groups, filters) and (filters,), or for None: no bias; and
    ``output(y)``, which returns the container array (batch, *spatial_out, filters), C-contiguous,
    of a call's result. It may share memory with ``y`` and must not be written to.

    Cheap to call: ``call`` is a function made once by the constructor, which the worker may take
    into a local name; calling the operator itself is the same with one more Python call. x, w and b
    are what ``input``, ``weights`` and ``bias`` returned; the library's own result is computed when
    the call returns. Raises Unsupported where the library refuses the operator.

    ``constant_weights`` is True where the library gets the weights as constants of a model, so that
    new weights mean a new model (built by the first call that brings them).
    """

    constant_weights = False
    call: Callable[[Any, Any, Any], Any]
    input: Callable[[Any], Any]
    weights: Callable[[Any], Any]
    bias: Callable[[Any], Any]
    output: Callable[[Any], Any]

    def __init__(self, spec):
        self.spec = spec

    def __call__(self, x, w, b):
        return self.call(x, w, b)

    def at(self, shape):
        """The operator for inputs (batch, *spatial, channels) of this shape: itself, or another."""
        return self

    def bind(self, operands):
        """f(value) -> result with these container arrays by name, ``w`` and ``b`` if there are."""
        spec, w = self.spec, operands.get("w")
        if w is None:  # sums and pools have no weights: ones stand for them
            shape = list(spec["kernel"]) + [spec["in_channels"] // spec["groups"], spec["filters"]]
            w = floats.round_to(np.ones(shape, np.float64), spec["dtype"])
        w, b = self.weights(w), self.bias(operands.get("b"))
        call = self.call
        return lambda x: call(x, w, b)


class Backend(ABC):
    """A library. Class attributes describe it without importing it.

    name            as in the target's text
    distributions   names under which it is installed; the first one found counts
    installs        what `pip install` is given for it, where that is not its first distribution
    module          what the interpreter imports
    keys            switch name -> Key, in the order in which a target's text lists them
    devices         patterns: "cpu", "gpu:N"
    doc             one line for ``probe targets``
    suggestions     what ``probe targets`` lists after the name: "@gpu:0", ",onednn=0"
    broken          why another package's backend can't be used at all; empty
    layouts         words of :mod:`probe.case.layout` that reach its kernels, ``offset:N`` for all
                    N; a library that copies its operands has one
    """

    name = ""
    distributions: Tuple[str, ...] = ()
    installs = ""
    module = ""
    keys: Mapping[str, Key] = MappingProxyType({})
    devices: Tuple[str, ...] = ("cpu",)
    doc = ""
    suggestions: Tuple[str, ...] = ()
    broken = ""
    layouts: Tuple[str, ...] = (layout.CONTIGUOUS,)

    @classmethod
    def conflict(cls, switches):
        """(key, why, what to do) where ``switches``, a dict, contradict each other, or ()."""
        return ()

    @classmethod
    def requires(cls, switches):
        """Other modules that these switches need: a tuple of (module, distribution)."""
        return ()

    @classmethod
    def unneeded(cls, switches):
        """Names of packages that the library imports where they are installed, for what this target
        never calls: its process starts without them. A tuple; only where the release that this
        environment asks for can do without."""
        return ()

    @classmethod
    def environment(cls, switches, device):
        """Variables to set before the library is loaded: a dict of texts. Runs in the parent."""
        return {}

    @classmethod
    def defaults_on(cls, version, flags):
        """Switches whose default goes by the processor, with what it comes to: {switch: value}.

        ``version``: the library's; ``flags``: as ``probe.targets.target.cpu_flags``."""
        return {}

    def lay(self, word):
        """Raises Unsupported for a layout that does not reach the library's kernels."""
        if not layout.keeps_layout(word, self.layouts):
            title, dense = getattr(self, "title", self.name), len(self.layouts) == 1
            why = "takes operands as dense buffers, row by row" if dense else "has none like it"
            words = ", ".join(self.layouts)
            raise Unsupported("layout=%s: %s %s; use %s" % (word, title, why, words))

    @abstractmethod
    def start(self, switches, device):
        """Imports the library, applies the switches; returns facts that may be published.

        The facts are at least ``library``, ``library_version``, ``devices`` (a list of texts) and
        ``threads`` (a number, or None where the library doesn't say). Raises Unavailable.
        """

    @abstractmethod
    def operator(self, spec):
        """The :class:`Operator` of a spec. Raises Unsupported where it is known not to run."""

    def stable(self, spec, accumulate=None):
        """The :class:`Operator` that computes a spec by ``probe.stable``; ``accumulate``: its own.

        Raises Unsupported where ``probe.stable`` does not know the library.
        """
        raise Unsupported("there is no prefix-stable convolution for %s" % self.name)

    def invariant(self, spec, sizes):
        """The :class:`Operator` that computes a spec by ``probe.stable.invariant``.

        ``sizes``: the batches that matter. Raises Unsupported where it does not know the library's
        operations.
        """
        raise Unsupported("probe.stable.invariant takes no single operation of %s" % self.name)

    def kernels(self, spec, shapes):
        """What the library, when asked, says it would run: {source: [name, ...]}, or {}.

        ``shapes``: of x and w as containers. A source is a word such as ``backend-choice``; no name
        may hold a path, a host or a process number.
        """
        return {}

    def run_file(self, path, arrays):
        """The outputs of a model's file, run whole as its users run it, by name of inputs.

        Unsupported: the library reads no such file.
        """
        raise Unsupported("%s: probe runs no whole files on it" % self.name)


def pool_kind(spec):
    """``max`` or ``avg`` of a pooling spec; empty for any other operator."""
    return operation_of_spec(spec).pool


def spans(spec, sizes):
    """The Span of every axis. Unsupported: one needs a size that is open, as in a graph."""
    needed = spec["ceil_mode"] or spec["padding"] in BY_SIZE
    if needed and any(size is None for size in sizes):
        raise Unsupported(
            "ceil_mode and SAME by hand require sizes, which a graph does not fix: use mode=eager"
        )
    return windows_of_spec(spec).spans([None if size is None else int(size) for size in sizes])


# What ``composed_pool`` needs of a library, as functions of its own values. ``pad(x, pairs,
# value)``: pairs of the spatial axes. ``whole(x)``: pooling of whole windows, without padding.
# ``ones(x)``: as x, all 1. ``native(x, spans)``: the library's own padded pooling, or None.
PoolingLibrary = namedtuple("PoolingLibrary", "pad whole ones native")


def composed_pool(spec, library, sizes, x):
    """The pool of a value x of these spatial sizes.

    What the library does not support is padded by hand: a maximum with -inf or 0; an average that
    leaves padding out is divided by the average of ones.
    """
    axes = spans(spec, sizes)
    y = library.native(x, axes)
    if y is not None:
        return y
    pads = [(span.before, span.after) for span in axes]
    beyond = [(0, span.beyond) for span in axes]
    zeros, padded, ragged = spec["pad_with"] == "zeros", any(map(any, pads)), any(map(any, beyond))

    def around(x, inside, outside):
        if inside == outside:
            both = [(before, after + more) for (before, after), (_, more) in zip(pads, beyond)]
            return library.pad(x, both, inside) if padded or ragged else x
        x = library.pad(x, pads, inside) if padded else x
        return library.pad(x, beyond, outside) if ragged else x

    if pool_kind(spec) == "max":
        nothing = -float("inf")
        return library.whole(around(x, 0.0 if zeros else nothing, nothing))
    mean = library.whole(around(x, 0.0, 0.0))
    if not ragged and (zeros or not padded):
        return mean
    return mean / library.whole(around(library.ones(x), float(zeros), 0.0))

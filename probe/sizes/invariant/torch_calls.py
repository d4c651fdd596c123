"""PyTorch's operations as they are checked and as they are run: the same calls for both."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

from probe.case.case import Case
from probe.case.errors import InputError
from probe.sizes.invariant import operations
from probe.sizes.invariant.classes import Plan, SizedCall
from probe.sizes.invariant.keeper import ReadyOperation
from probe.sizes.invariant.operations import Tensors, cancelling_products, convolved_operands

BATCHES = (1024, 512, 256, 128, 64, 32, 16)  # pieces of a convolution's batch
# Elements of a piece, if it has more than 64 samples: larger pieces would save no time.
MOST_ELEMENTS = 1 << 20
# Bytes: where PyTorch's own memory begins, and the longest vector of a processor.
ALIGNED = 64

FORMATS = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


# PyTorch 2.4 has these tables of hooks, and no function that looks into all of them
_HOOKS = [
    hooks
    for name, hooks in vars(modules).items()
    if name.startswith(("_global_forward", "_global_backward")) and isinstance(hooks, dict)
]
# Whether hooks are registered for all modules; PyTorch's own function, which models call often.
hooked_anywhere = getattr(modules, "_has_any_global_hook", lambda: any(_HOOKS))


def threads() -> int:
    return torch.get_num_threads()


def switches() -> dict[str, Any]:
    """As of ``keeper.Library``."""
    return {
        "library": "torch",
        "version": str(torch.__version__),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": bool(torch.backends.mkldnn.enabled),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def require_evaluation(model: Any) -> None:
    if any(module.training for module in model.modules()):
        why = "training is not covered: it has dropout, and statistics of the batch"
        raise InputError("model", type(model).__name__, why, "call model.eval()")


TRANSFORMED = "torch.func and forward-mode gradients change the calls that the mode has checked"
UNSEEN = "a program that is traced or exported keeps the operations of one call, without the mode"
GRADIENTS = "an input requires gradients, and the mode is for inference: there are none"
COMPILED = "the invariant mode runs operation by operation: fused, their bits would be different"
# PyTorch 2.4 has only the question that is wider: whether it is compiled or exported
_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


_transformed, _traced = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
_watching = torch._C._len_torch_dispatch_stack


def require_plain_call(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """InputError where a call is transformed or traced: its operations are then not run as such.
    Checked at each call of a model, so it must be cheap."""
    if _transformed() is not None or forward_ad._current_level >= 0:
        todo = "call it with a whole batch, and take gradients and torch.vmap of the plain model"
        raise InputError("model", kind.__name__, TRANSFORMED, todo)
    traced = _traced() is not None or _exporting()
    if not traced and _watching():
        traced = any(mode.is_infra_mode() for mode in _get_current_dispatch_mode_stack())
    if traced or any(type(x).__name__ in PLACEHOLDERS for x in (*args, *kwargs.values())):
        todo = "export the plain model; stable.invariant takes an .onnx file too"
        raise InputError("model", kind.__name__, UNSEEN, todo)


# Classes of what stands for a tensor while ``torch.fx`` and ``torch.export`` look at a model.
PLACEHOLDERS = ("Proxy", "FakeTensor", "FunctionalTensor")


def require_no_gradients(kind: Any, args: tuple[Any, ...]) -> None:
    """InputError for an input whose gradient somebody waits for: it would be silently none."""
    for x in args:
        if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf:
            todo = "use torch.no_grad() or x.detach(), or take gradients of the plain model"
            raise InputError("model", kind.__name__, GRADIENTS, todo)


def require_uncompiled(model: Any) -> None:
    """InputError for a model with a part that is compiled: that is one program, not operations."""
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            why = f"{name or 'it'} is TorchScript, whose operations are run where nothing sees them"
            todo = "give the model before torch.jit.script or torch.jit.trace"
            raise InputError("model", type(model).__name__, why, todo)
        compiled = part is not model and getattr(part, "_compiled_call_impl", None) is not None
        if compiled or hasattr(part, "_orig_mod"):
            why = f"{name or 'it'} is compiled, and a compiled program has bits of its own"
            raise InputError("model", type(model).__name__, why, "give it before torch.compile")


class UncompiledCall:
    """A function that ``torch.compile`` leaves as it is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._apart: Callable[..., Any] | None = None

    def __call__(self, called: Any, hooks: bool, args: tuple[Any, ...], kwargs: Any) -> Any:
        if self._apart is None and "torch._dynamo" in sys.modules:
            disable = torch.compiler.disable
            takes_reason = "reason" in signature(disable).parameters  # not in 2.4
            why = {"reason": COMPILED} if takes_reason else {}
            self._apart = disable(self.function, **why)
        return (self._apart or self.function)(called, hooks, args, kwargs)


_mkldnn_enabled = torch._C._get_mkldnn_enabled
_deterministic = torch._C._get_deterministic_algorithms
_matmul_precision = torch._C._get_float32_matmul_precision
# PyTorch 2.4 has one precision for all
_precision = getattr(torch._C, "_get_fp32_precision_getter", lambda *_: _matmul_precision())


def settings() -> tuple[Any, ...]:
    """PyTorch's settings that choose kernels, in the order of ``SETTINGS``.

    A model asks for them at each call, so they are read where PyTorch's own functions read them.
    The precision of matrix products is what ``torch.set_float32_matmul_precision`` sets too.
    """
    return (
        _mkldnn_enabled(),
        _deterministic(),
        _precision("mkldnn", "matmul"),
        _precision("mkldnn", "conv"),
        _precision("mkldnn", "rnn"),
    )


SETTINGS = (
    *("mkldnn", "deterministic", "mkldnn.matmul.fp32_precision"),
    *("mkldnn.conv.fp32_precision", "mkldnn.rnn.fp32_precision"),
)


def changed(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    """The ``settings`` that changed and may change bits, as ``mkldnn=False``; empty if none did."""
    exact = ("none", "highest", "ieee")  # the default of a precision is exact
    return ", ".join(
        f"{name}={new}"
        for name, old, new in zip(SETTINGS, before, now, strict=True)
        if old != new and not (old in exact and new in exact)
    )


def container(y: Any) -> tuple[np.ndarray, str]:
    """A tensor's bits as a container array, and the name of its format."""
    name = FORMATS[y.dtype]
    y = y.detach().contiguous()
    if name == "bfloat16":
        return y.view(torch.int16).numpy().view(np.uint16), name
    return y.numpy(), name


def of_container(array: np.ndarray, dtype: str) -> Any:
    """A container array's tensor, in the same memory."""
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def tensor(values: np.ndarray, dtype: Any) -> Any:
    """float64 values rounded to a tensor's format."""
    return aligned_contiguous(torch.from_numpy(np.array(values, order="C")).to(dtype))


def is_weight(x: Any) -> bool:
    """Whether these are weights: a parameter, or a view of one."""
    return isinstance(x, torch.nn.Parameter) or isinstance(x._base, torch.nn.Parameter)


def vector_offset(x: Any) -> int:
    """How many bytes behind a multiple of ``ALIGNED`` a tensor begins."""
    return int(x.data_ptr() % ALIGNED)


def aligned_tensor(x: Any) -> Any:
    """The same contiguous values where a vector begins: a copy if they begin elsewhere.

    MKL has products whose order of additions depends on that, on processors without AVX-512.
    """
    return x.clone() if x.data_ptr() % ALIGNED else x


def aligned_contiguous(x: Any) -> Any:
    """What ``default_strides`` does, where a vector begins."""
    return aligned_tensor(default_strides(x))


def default_strides(x: Any) -> Any:
    """Contiguous, with the strides that follow from the shape.

    Axes of size 1 may have any stride, and by them libraries take another kernel.
    """
    x = x.contiguous()
    wanted = _strides(x.shape)
    return x if x.stride() == wanted else x.as_strided(x.shape, wanted)


@lru_cache(maxsize=4096)
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of contiguous numbers that follow from their shape."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def at_offset(x: Any, by: int) -> Any:
    """The same contiguous values in memory that begins ``by`` bytes behind a multiple of
    ``ALIGNED``."""
    elements = by // x.element_size()
    room = torch.empty(x.numel() + elements, dtype=x.dtype)[elements:]
    return room.copy_(x.reshape(-1)).view(x.shape)


def aligned_rows(shape: Sequence[int], dtype: Any) -> Any:
    """Room for rows, along the last axis, each of which begins where a vector does."""
    vector = ALIGNED // dtype.itemsize
    *leading, channels = shape
    return torch.empty(*leading, -(-channels // vector) * vector, dtype=dtype)[..., :channels]


def repeated(sample: Tensors, size: int) -> Tensors:
    """A sample ``size`` times: with a batch axis in front, each tensor in memory of its own."""
    copies = (x.expand(size, *x.shape) for x in sample)
    return tuple(default_strides(x.clone(memory_format=torch.contiguous_format)) for x in copies)


TOOLS = operations.Tools(
    FORMATS, tensor, repeated, lambda x, at: x[torch.from_numpy(at)], container
)


class TorchTestedRows(operations.TestedRows):
    tools = TOOLS


class TorchLinear(TorchTestedRows):
    """Rows times a matrix: w (filters, channels), or (channels, filters) if it is ``turned``.

    ``at``: how many bytes behind a whole vector the weights begin.
    """

    native = True
    """Whether the call is the library's own, of operands as they are."""

    def __init__(
        self,
        channels: int,
        filters: int,
        dtype: Any,
        bias: bool,
        turned: bool = False,
        at: int = 0,
    ) -> None:
        with_bias, layout = " with bias" if bias else "", " turned" if turned else ""
        layout += f" weights {at} bytes on" if at else ""
        super().__init__(f"linear {channels} -> {filters}{with_bias}{layout} {FORMATS[dtype]}")
        self.channels, self.filters, self.dtype, self.bias = channels, filters, dtype, bias
        self.turned, self.at = turned, at

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        x, w, b = cancelling_products(
            number, self.channels, self.filters, FORMATS[self.dtype], number == 1
        )
        weights = at_offset(tensor(w if self.turned else w.T, self.dtype), self.at)
        bias = tensor(b, self.dtype) if self.bias else None
        return (tensor(x, self.dtype),), (weights, bias)

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        (x,), (w, b) = samples, parameters
        if self.turned:
            return torch.mm(x, w) if b is None else torch.addmm(b, x, w)
        return functional.linear(x, w, b)

    def library_call(self, x: Any, w: Any, b: Any) -> Any:
        """The call, with weights as ``functional.linear`` takes them: (filters, channels)."""
        return self.call(
            (x,), (at_offset(aligned_contiguous(w.t()) if self.turned else w, self.at), b)
        )

    def case(self) -> Case | None:
        return Case(
            "dense",
            in_channels=self.channels,
            filters=self.filters,
            dtype=FORMATS[self.dtype],
            bias="normal" if self.bias else None,
        )


class AlignedLinear(TorchLinear):
    """As a ``TorchLinear``, whose rows and answers each begin where a vector does.

    Where they don't, MKL adds some rows of a narrow product in another order.
    """

    native = False

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.key += " rows apart"

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        (x,), (w, b) = samples, parameters
        rows, columns = aligned_rows(x.shape, x.dtype).copy_(x), w if self.turned else w.t()
        y = aligned_rows((len(x), self.filters), x.dtype)
        torch.mm(rows, columns, out=y) if b is None else torch.addmm(b, rows, columns, out=y)
        return y.contiguous()


class TorchConvolution(TorchTestedRows):
    """A convolution of one spatial size, along the batch; ``at`` as of ``TorchLinear``."""

    def __init__(
        self,
        shape: tuple[int, ...],
        weights: tuple[int, ...],
        dtype: Any,
        bias: bool,
        words: dict[str, Any],
        at: int = 0,
    ) -> None:
        transposed = "output_padding" in words  # an option of transposed convolutions alone
        filters = weights[1] * words.get("groups", 1) if transposed else weights[0]
        sample = max(shape[0], filters) * math.prod(shape[1:])
        self.pieces = tuple(size for size in BATCHES if size <= max(64, MOST_ELEMENTS // sample))
        parts = {k: v if isinstance(v, tuple | list) else (v,) for k, v in words.items()}
        options = " ".join(f"{name}={'x'.join(map(str, parts[name]))}" for name in sorted(parts))
        options += f" weights {at} bytes on" if at else ""
        name = "transposed convolution" if transposed else "convolution"
        text = "x".join(map(str, shape)), "x".join(map(str, weights))
        with_bias = " with bias" if bias else ""
        super().__init__(f"{name} of {text[0]} by {text[1]}{with_bias} {options} {FORMATS[dtype]}")
        self.shape, self.weights, self.dtype, self.bias = shape, weights, dtype, bias
        self.words, self.transposed, self.at = words, transposed, at
        self.function = (TRANSPOSED if transposed else CONVOLUTIONS)[len(shape) - 1]

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        groups = self.words.get("groups", 1)
        filters = self.weights[1] * groups if self.transposed else self.weights[0]
        leaves, name = math.prod(self.weights) // filters, FORMATS[self.dtype]
        x, w, b = convolved_operands(number, self.shape, leaves, filters, name)
        weights = w.reshape(self.weights) if self.transposed else w.T.reshape(self.weights)
        bias = tensor(b, self.dtype) if self.bias else None
        return (tensor(x, self.dtype),), (at_offset(tensor(weights, self.dtype), self.at), bias)

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        return self.function(*samples, *parameters, **self.words)

    def library_call(self, x: Any, w: Any, b: Any) -> Any:
        """The call, with weights as the library's function takes them."""
        return self.call((x,), (at_offset(w, self.at), b))

    def case(self) -> Case | None:
        rank, words = len(self.shape) - 1, self.words
        if self.transposed or rank == 3 or isinstance(words.get("padding"), str):
            return None
        return Case(
            f"conv{rank}d",
            "x".join(map(str, self.weights[2:])),
            self.shape[0],
            self.weights[0],
            stride=for_each_axis(words.get("stride", 1), rank),
            dilation=for_each_axis(words.get("dilation", 1), rank),
            groups=words.get("groups", 1),
            padding=[(zeros, zeros) for zeros in for_each_axis(words.get("padding", 0), rank)],
            height=self.shape[1] if rank == 2 else None,
            length=self.shape[-1],
            dtype=FORMATS[self.dtype],
            bias="normal" if self.bias else None,
        )


class TorchSamples(operations.IndependentSamples, TorchTestedRows):
    """PyTorch's calls whose samples are computed each by itself."""


class AlignedPairs(TorchSamples):
    """Products of pairs of matrices, rows and answers begin where a vector does: see
    ``AlignedLinear``."""

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        a, b = (aligned_rows(x.shape, x.dtype).copy_(x) for x in samples)
        y = aligned_rows((*a.shape[:-1], b.shape[-1]), a.dtype)
        return torch.bmm(a, b, out=y).contiguous()


class TorchByPlace(operations.ByPlace):
    tools, tried = TOOLS, 3_003
    pieces = (1 << 22,)

    def shown(self, values: Tensors, first: bool) -> Any:
        """The function's values; the first time of operands that begin between two vectors."""
        return self.function(*(at_offset(x, x.element_size()) if first else x for x in values))


def for_each_axis(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def runner(operation: Any, plan: Plan, samples: Tensors, parameters: Tensors) -> Any:
    """As ``keeper.Library.runner``, of contiguous samples."""
    if len(plan) == 1:
        return whole_call(plan[0], operation.call, samples, parameters)
    return in_pieces([(piece, operation.call, parameters) for piece in plan], samples)


def whole_call(
    piece: SizedCall, call: Callable[..., Any], samples: Tensors, parameters: Tensors
) -> Any:
    """A call of all samples, which are filled up where it is of more."""
    _, count, size = piece
    if count == size:
        return call(samples, parameters)
    return call(tuple(padded_samples(x, size) for x in samples), parameters)[:count]


def in_pieces(
    steps: Iterable[tuple[SizedCall, Callable[..., Any], Tensors]], samples: Tensors
) -> Any:
    """The calls of some samples each, one behind the other."""
    rows = []
    for piece, call, parameters in steps:
        part = (x[piece.start : piece.start + piece.places] for x in samples)
        rows.append(whole_call(piece, call, tuple(map(aligned_tensor, part)), parameters))
    return torch.cat(rows).contiguous()


def padded_samples(x: Any, size: int) -> Any:
    """Copies of the first sample behind the others: no sample is odd, such as one of zeros."""
    count = x.shape[0]
    if count == 1:
        return x.expand(size, *x.shape[1:]).contiguous()
    if x.dim() == 2:
        return torch.cat((x, x[:1].expand(size - count, x.shape[1])))
    padded = x.new_empty((size, *x.shape[1:]))
    padded[:count] = x
    padded[count:] = x[:1]
    return padded


@dataclass(frozen=True)
class PositionalCall:
    """An implementation of a function that gets all of its arguments by position, defaults too.

    ``defaults``: by the arguments' names, what is taken where one is left out.
    """

    run: Callable[..., Any]
    defaults: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any], run: Callable[..., Any]) -> PositionalCall:
        """With the names and defaults of ``function``; None for an argument without a default."""
        parameters = signature(function).parameters.values()
        return cls(run, {p.name: None if p.default is p.empty else p.default for p in parameters})

    def __call__(self, *args: Any, **named: Any) -> Any:
        if len(args) < len(self.defaults):
            left_out = list(self.defaults.items())[len(args) :]
            args = (*args, *(named.get(name, default) for name, default in left_out))
        return self.run(*args)


# Calls of PyTorch's functions that are the library's own: found once, then made at once.
#
# Most functions are run operation by operation, which costs more than small operations do. Where
# each operation of a call was exact, or in its class at the very size and place in memory that it
# has, the function's own call makes the same calls below. A call is known by all that decides this:
# shapes, strides, formats and alignment of its tensors, its other arguments, and the number of
# threads.


PLAIN = (int, float, bool, str, type(None), torch.dtype)


class WatchedCalls(threading.local):
    """What became of the operations of a function's call, in one thread.

    ``native``: all so far are the library's own calls; ``native_now``: so is that which runs now.
    ``exact``: all so far were exact; ``last_exact``: all of the last call that was watched were.
    """

    native = native_now = exact = last_exact = False

    def note(self, x: Any, ready: ReadyOperation, count: int) -> None:
        """An operation of x, of so many places, was run in its class."""
        if ready.is_one_call(count) and default_strides(x) is x:
            self.native_now = not x.data_ptr() % ALIGNED


class NativeCalls:
    """Calls of functions that are known to be the library's own, and so are made at once."""

    def __init__(self, watched: WatchedCalls) -> None:
        self.watched = watched
        self.native_calls: dict[Any, bool] = {}

    def __call__(self, mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``func`` of its arguments, within a mode that sees its operations or alone."""
        key, watched = call_key(func, args, kwargs), self.watched
        watched.last_exact = False
        if key is not None and self.native_calls.get(key):
            return func(*args, **kwargs)
        native, exact = watched.native, watched.exact
        watched.native = watched.exact = True
        counts = None if key is None or key in self.native_calls else _versions(args, kwargs)
        try:
            with mode:
                y = func(*args, **kwargs)
            if counts is not None:
                same = watched.native and counts == _versions(args, kwargs)
                self.native_calls[key] = same and _same_bits(y, func(*args, **kwargs))
            watched.last_exact = watched.exact
        finally:
            watched.native, watched.exact = native and watched.native, exact and watched.exact
        return y


def call_key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What decides a call's bits, as a key of a table; None: an argument is of a kind that can't be
    in a key."""
    parts = [func, torch.get_num_threads(), torch.is_inference_mode_enabled(), *kwargs]
    for x in (*args, *kwargs.values()) if kwargs else args:
        if not _add_to_key(x, parts):
            return None
    return tuple(parts)


def _add_to_key(x: Any, parts: list[Any]) -> bool:
    """Adds an argument to a key. Numbers of other kinds may be equal, so the kind is told too."""
    kind = type(x)
    parts.append(kind)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if x.is_nested or x.layout is not torch.strided or x.is_conj() or x.is_neg():
            return False
        parts += x.shape, x.stride(), x.dtype, x.data_ptr() % ALIGNED
    elif kind in PLAIN:
        parts.append(x)
    elif kind in (tuple, list, torch.Size):
        parts.append(len(x))
        return all(_add_to_key(each, parts) for each in x)
    else:
        return False
    return True


def _versions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int] | None:
    """How often each tensor was changed in place; None where PyTorch does not count."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    return None if any(x.is_inference() for x in tensors) else [x._version for x in tensors]


def _same_bits(answer: Any, again: Any) -> bool:
    """Whether two results are tensors of the same bits, laid alike in memory."""
    first, second = tree_leaves(answer), tree_leaves(again)
    if len(first) != len(second) or not all(isinstance(x, torch.Tensor) for x in first):
        return False
    return all(
        (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
        and torch.equal(*(side.contiguous().flatten().view(torch.uint8) for side in (x, y)))
        for x, y in zip(first, second, strict=True)
    )

"""Calls of PyTorch's functions within a model in the invariant mode, and the operations below.

A mode of functions sees each call: those with an implementation in a class of sizes are made by it,
others operation by operation. Layers that are one call are run without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.functional import (
    batch_norm,
    conv1d,
    conv2d,
    conv3d,
    gelu,
    layer_norm,
    linear,
    silu,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from probe.sizes.invariant.torch_calls import InOrder, Natives, call_key, hooked_anywhere
from probe.sizes.invariant.torch_operations import MOST, VALUES, TorchOperations
from probe.sizes.invariant.torch_sequences import RecurrentSteps

_in_inference = torch.is_inference_mode_enabled
_cast_anywhere = torch._C._is_any_autocast_enabled  # a third of the time of asking about the CPU

# Functions of Python's that PyTorch's attention calls, and that call products themselves.
INSIDE = ("_in_projection_packed", "_in_projection")

CAUGHT = ("linear", "scaled_dot_product_attention", "softmax", "dropout")


def seen(function: Callable[..., Any], caught: dict[str, Any]) -> Callable[..., Any]:
    """Returns a function of Python's that hands no call to a mode, and calls what is ``caught``.

    PyTorch's own asks first whether there is a mode, and then a mode sees it alone.
    """
    names = function.__globals__ | {"has_torch_function": lambda operands: False} | caught
    for name in (*INSIDE, function.__name__):
        plain = function.__globals__[name]
        names[name] = FunctionType(plain.__code__, names, name, plain.__defaults__)
        names[name].__kwdefaults__ = plain.__kwdefaults__
    same: Callable[..., Any] = names[function.__name__]
    return same


class Functions(TorchFunctionMode):
    """Calls of functions: the frequent ones at once, the others operation by operation.

    Attention with its own weights is run as the calls of functions that it is made of: within the
    mode, and by itself where at such a call all of them but ``CAUGHT`` were exact.
    """

    def __init__(self, operators: TorchOperations) -> None:
        super().__init__()
        attention = functional.multi_head_attention_forward
        self.inside = {attention: seen(attention, {})}
        caught = {name: self._caught(getattr(functional, name)) for name in CAUGHT}
        self.alone = {attention: seen(attention, caught)}
        recurrent = torch.gru, torch.rnn_tanh, torch.rnn_relu, torch.lstm
        steps = {func: RecurrentSteps(func, operators.keeper, self._native) for func in recurrent}
        self.every: dict[Any, Any] = operators.quick | steps
        self.quick = self.every
        self.words = {
            func: frozenset(run.usual if isinstance(run, InOrder) else signature(run).parameters)
            for func, run in self.quick.items()
        }
        self.caught = {
            func: self.every.get(func) for func in (getattr(functional, n) for n in CAUGHT)
        }
        self.settled: set[Any] = set()
        """Calls of attention that are run by itself."""
        self.plain: set[Any] = set()
        """Calls all of whose operations are exact, by function, kinds of arguments and what chooses
        among those."""
        self.operators = operators
        self.operations, self.natives = Operations(operators), Natives(operators.watched)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        quick = self.quick.get(func)
        if quick is None or _cast_anywhere() or (kwargs and not kwargs.keys() <= self.words[func]):
            return self._otherwise(func, args, kwargs or {})
        try:
            y = quick(*args, **kwargs) if kwargs else quick(*args)
        except RuntimeError:
            if not unusual((args, kwargs)):
                raise
            y = NotImplemented
        return y if y is not NotImplemented else self._otherwise(func, args, kwargs or {})

    def _otherwise(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call that has no implementation here, or not with these arguments."""
        if _cast_anywhere() and torch.is_autocast_enabled("cpu"):
            return self._cast(func, args, kwargs)
        called = [func, *[x if (kind := type(x)) in VALUES else kind for x in args]]
        for name, x in kwargs.items():
            called += name, x if (kind := type(x)) in VALUES else kind
        plain = tuple(called)
        if plain in self.plain:
            return func(*args, **kwargs)
        if func in self.alone:
            return self._attention(func, plain, args, kwargs)
        y, watched = self._natively(func, args, kwargs), self.natives.watched
        if watched.plain and func not in self.every:  # a quick one is first asked
            self._note(plain, args)
        if not watched.plain and func not in self.caught:
            watched.others = True
        return y

    def _attention(self, func: Any, plain: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if plain in self.settled:
            return self.alone[func](*args, **kwargs)
        watched, self.quick = self.natives.watched, self.caught
        watched.others = False
        try:
            with self:
                y = self.inside[func](*args, **kwargs)
        finally:
            self.quick = self.every
        if not watched.others:
            self.settled.add(plain)
        return y

    def _note(self, plain: tuple[Any, ...], args: Any) -> None:
        """Keeps a call all of whose operations were exact: others like it are made at once.

        Of one number PyTorch's functions may call other operations than of an array.
        """
        if self.operators.kinds.complex or len(self.plain) >= MOST:
            self.plain.clear()
            self.settled.clear()
        if self.operators.kinds.complex:
            return
        if all(x.ndim for x in args if isinstance(x, torch.Tensor)):
            self.plain.add(plain)

    def _natively(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call operation by operation, or of the library where it has the same bits.

        A part of a model that enters ``torch.inference_mode`` is called as if it did not, but for
        what is changed in place: see ``_composite``.
        """
        if not _in_inference() or getattr(func, "__name__", "_").endswith("_"):
            return self.natives(self.operations, func, args, kwargs)
        args, kwargs = tree_map(usual_tensor, (args, kwargs))
        with torch.inference_mode(False), torch.no_grad():
            return self.natives(self.operations, func, args, kwargs)

    def _native(self, function: Any, args: Any) -> tuple[Any, bool]:
        """Returns a function of its arguments, and whether the library's own call has its bits."""
        y = self._natively(function, args, {})
        return y, bool(self.natives.known.get(call_key(function, args, {})))

    def _cast(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call within ``torch.autocast``, which a part of the model enters: its formats are
        known where its operations arrive, and what is kept of other calls is of other formats."""
        inside = self.inside.get(func)
        if inside is None:
            with self.operations:
                return func(*args, **kwargs)
        with self:
            return inside(*args, **kwargs)

    def _caught(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return self.__torch_function__(function, (), args, kwargs)

        return run


class Operations(TorchDispatchMode):
    """Every operation of whatever code: in its class, or exact, or reported."""

    def __init__(self, operators: TorchOperations) -> None:
        super().__init__()
        self.operators = operators

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Read by PyTorch, which would import its compiler, in seconds, and wrap each operation.

        ``UncompiledCall`` keeps the compiler from all of them at once.
        """
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _composite(func):
            every = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            odd = _in_inference() or any(x.is_inference() for x in every)
            if odd and every and not func._schema.is_mutable:
                args, kwargs = tree_map(usual_tensor, (args, kwargs))
                with torch.inference_mode(False), torch.no_grad(), self:
                    return func(*args, **kwargs)
            if odd:  # numbers made in that mode are changed in it alone
                with self:
                    return func._op_dk(COMPOSITE, *args, **kwargs)
        if _cast_anywhere() and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):  # its casts are behind this operation
                return self.operators.run(func, args, kwargs)
        return self.operators.run(func, args, kwargs)


COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
KERNELS = torch._C.DispatchKey.CPU, torch._C.DispatchKey.AutogradCPU


@cache
def _composite(func: Any) -> bool:
    """Returns whether PyTorch runs an operation as the operations that its C++ kernel calls.

    In ``torch.inference_mode``, and of numbers made in it, it arrives whole, elsewhere in parts.
    The parts are different ones in that mode (a matrix product looks whether weights require
    gradients), and in ``func.decompose``, which prefers Python (``gru``, ``upsample_*``). So it is
    run as it is elsewhere.
    """
    has, name = torch._C._dispatch_has_kernel_for_dispatch_key, func.name()
    return bool(has(name, COMPOSITE) and not any(has(name, key) for key in KERNELS))


def unusual(arguments: Any) -> bool:
    """Whether a tensor among these is not strided numbers in the memory of the CPU."""
    return any(
        isinstance(x, torch.Tensor)
        and (x.layout is not torch.strided or x.is_nested or x.device.type != "cpu")
        for x in tree_leaves(arguments)
    )


def usual_tensor(x: Any) -> Any:
    """Returns the same memory as a tensor that is usual outside of ``torch.inference_mode``.

    In that mode operations arrive whole, and in other parts: see ``_composite``.
    """
    if type(x) is not torch.Tensor or not x.is_inference() or unusual(x):
        return x
    with torch.inference_mode(False):
        memory = x.untyped_storage(), x.storage_offset(), x.shape, x.stride()
        return torch.empty(0, dtype=x.dtype).set_(*memory)


# Layers of PyTorch that are called without a mode of functions, which costs more than a small one.
#
# The forward of these modules is one call of a function that has an implementation here; that of a
# ``Sequential`` calls its modules one after the other. Whatever else there is, such as a module
# with hooks, runs within the mode.


Run = Callable[[Any, Any], Any]
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class KnownModules:
    """The modules that are known. ``quick``: implementations of functions; ``mode``: all others."""

    def __init__(self, quick: dict[Any, Callable[..., Any]], mode: Any) -> None:
        self.mode = mode

        def call(function: Any, *args: Any, **words: Any) -> Any:
            # asked here, as the mode's own way to the same answer takes half of a small layer
            if mode.natives.known.get(call_key(function, args, words)) and not _cast_anywhere():
                return function(*args, **words)
            return mode.__torch_function__(function, (), args, words)

        convolutions = {nn.Conv1d: conv1d, nn.Conv2d: conv2d, nn.Conv3d: conv3d}
        self.runs: dict[type, Run] = {
            nn.Linear: _with_weight(lambda layer, x, w, b: quick[linear](x, w, b)),
            nn.LayerNorm: _with_weight(
                lambda norm, x, w, b: call(layer_norm, x, norm.normalized_shape, w, b, norm.eps),
                plain=True,
            ),
            nn.GELU: lambda module, x: mode.__torch_function__(
                gelu, (), (x,), {"approximate": module.approximate}
            ),
            nn.Sequential: self._sequential,
            nn.SiLU: lambda module, x: call(silu, x, module.inplace),
            nn.Tanh: lambda module, x: call(torch.tanh, x),
            nn.Sigmoid: lambda module, x: call(torch.sigmoid, x),
            nn.Dropout: lambda module, x: NotImplemented if module.training else x,
            # they move elements or round once
            **dict.fromkeys(
                (nn.ReLU, nn.ReLU6, nn.Identity, nn.Flatten), lambda module, x: module.forward(x)
            ),
            **dict.fromkeys(NORMS, _with_weight(self._normed, plain=True)),
            **{
                kind: _with_weight(partial(self._convolved, quick[function]))
                for kind, function in convolutions.items()
            },
        }
        self.call = call

    def of(self, module: Any) -> Run | None:
        """Returns what runs a module of an input; None: nothing does without the mode."""
        return None if "forward" in module.__dict__ else self.runs.get(type(module))

    def _sequential(self, module: Any, x: Any) -> Any:
        anywhere = hooked_anywhere()
        for part in module._modules.values():
            there = part.__dict__
            hooked = anywhere or any(map(there.__getitem__, HOOKS))
            run = None if hooked or type(x) is not torch.Tensor else self.of(part)
            y = NotImplemented if run is None else run(part, x)
            if y is NotImplemented:
                with self.mode:
                    y = part(x)
            x = y
        return x

    def _convolved(self, quick: Callable[..., Any], layer: Any, x: Any, w: Any, b: Any) -> Any:
        if layer.padding_mode != "zeros":
            return NotImplemented
        return quick(x, w, b, layer.stride, layer.padding, layer.dilation, layer.groups)

    def _normed(self, norm: Any, x: Any, w: Any, b: Any) -> Any:
        mean, var = norm._buffers.get("running_mean"), norm._buffers.get("running_var")
        if norm.training or mean is None:
            return NotImplemented
        norm._check_input_dim(x)
        return self.call(batch_norm, x, mean, var, w, b, False, 0.0, norm.eps)


def _with_weight(call: Callable[..., Any], plain: bool = False) -> Run:
    """Returns what calls ``call(module, x, weight, bias)``. ``plain``: there may be no weight."""

    def run(module: Any, x: Any) -> Any:
        held = module._parameters
        w = held.get("weight")
        if w is None and not (plain and "weight" in held):  # it is computed, as parametrized ones
            return NotImplemented
        return call(module, x, w, held["bias"])

    return run

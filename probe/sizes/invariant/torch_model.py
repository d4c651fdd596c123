"""Runs every operation of a PyTorch model in its class of sizes.

A mode of functions sees each call within the model: those with an implementation in a class of
sizes are made by it, others operation by operation. Layers that are one call are run without it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import cache, wraps
from inspect import signature
from itertools import compress
from types import FrameType, FunctionType, MethodType, new_class
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.functional import gelu, layer_norm, linear, silu
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.hooks import RemovableHandle

from probe.case.errors import Foreign, InputError, foreign
from probe.sizes.invariant import torch_calls
from probe.sizes.invariant.classes import InvariantOptions, Table, conditions
from probe.sizes.invariant.keeper import Keeper, Report
from probe.sizes.invariant.programs import LibraryProgram
from probe.sizes.invariant.samples import UNREAD, Axes, Company, EndedCall, Value
from probe.sizes.invariant.torch_calls import (
    FORMATS,
    UNSEEN,
    InOrder,
    Natives,
    UncompiledCall,
    call_key,
    container,
    hooked_anywhere,
    looked_at,
    of_container,
    require_evaluation,
    require_no_gradients,
    require_numbers,
    require_uncompiled,
)
from probe.sizes.invariant.torch_operations import MOST, VALUES, TorchOperations
from probe.sizes.invariant.torch_sequences import RecurrentSteps
from probe.targets.unchanged import unchanged

_in_inference = torch.is_inference_mode_enabled
_cast_anywhere = torch._C._is_any_autocast_enabled  # a third of the time of asking about the CPU

# Functions of Python's that PyTorch's attention calls, and that call products themselves.
INSIDE = ("_in_projection_packed", "_in_projection")

# Stands for a tensor of one number, without axes: PyTorch's functions may call other operations of
# it than of an array.
SINGLE = object()


def seen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of Python's that hands no call to a mode: PyTorch's own asks first whether
    there is one, which then sees it alone."""
    names = function.__globals__ | {"has_torch_function": lambda operands: False}
    for name in (*INSIDE, function.__name__):
        plain = function.__globals__[name]
        names[name] = FunctionType(plain.__code__, names, name, plain.__defaults__)
        names[name].__kwdefaults__ = plain.__kwdefaults__
    same: Callable[..., Any] = names[function.__name__]
    return same


class Functions(TorchFunctionMode):
    """Calls of functions: the frequent ones at once, the others operation by operation.

    Attention with its own weights is run as the calls of functions that it is made of.
    """

    def __init__(self, operators: TorchOperations) -> None:
        super().__init__()
        self.attention = seen(functional.multi_head_attention_forward)
        recurrent = torch.gru, torch.rnn_tanh, torch.rnn_relu, torch.lstm
        steps = {func: RecurrentSteps(func, operators.keeper, self._native) for func in recurrent}
        self.quick: dict[Any, Any] = operators.quick | steps
        self.words = {
            func: frozenset(run.usual if isinstance(run, InOrder) else signature(run).parameters)
            for func, run in self.quick.items()
        }
        self.plain: dict[Any, set[Any]] = {}
        """Calls all of whose operations are exact: by function, kinds of arguments and what chooses
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
        if func is functional.multi_head_attention_forward:
            with self:
                return self.attention(*args, **kwargs)
        if _cast_anywhere() and torch.is_autocast_enabled("cpu"):
            # a part of the model enters it: formats are known where operations arrive, and what is
            # kept of calls is of others
            with self.operations:
                return func(*args, **kwargs)
        if (plain := self.plain.get(func)) and _kinds_of(args, kwargs) in plain:
            return func(*args, **kwargs)
        y = self._natively(func, args, kwargs)
        if self.operators.kinds.complex:
            self.plain.clear()
        elif self.natives.watched.plain and func not in self.quick:  # a quick one is first asked
            plain = self.plain.setdefault(func, set())
            if len(plain) < MOST:
                plain.add(_kinds_of(args, kwargs))
        return y

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


def _kinds_of(args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the kinds of a call's arguments; of axes, modes and exponents what they are."""
    kinds: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is torch.Tensor:
            kinds.append(kind if x.dim() else SINGLE)
        elif kind is tuple or kind is list:
            # of an index slices are views, and tensors may name a place twice
            kinds += kind, len(x), *map(type, x)
        else:
            kinds.append(x if kind in VALUES else kind)
    for name, x in kwargs.items():
        kinds += name, x if (kind := type(x)) in VALUES else kind
    return tuple(kinds)


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
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class KnownModules:
    """The modules that are known. ``quick``: implementations of functions; ``mode``: all others."""

    def __init__(self, quick: dict[Any, Callable[..., Any]], mode: Any) -> None:
        self.mode = mode

        def call(function: Any, *args: Any, **words: Any) -> Any:
            return mode.__torch_function__(function, (), args, words)

        self.runs: dict[type, Run] = {
            nn.Linear: _with_weight(lambda layer, x, w, b: quick[linear](x, w, b)),
            nn.LayerNorm: _with_weight(
                lambda norm, x, w, b: call(layer_norm, x, norm.normalized_shape, w, b, norm.eps),
                plain=True,
            ),
            nn.GELU: lambda module, x: call(gelu, x, approximate=module.approximate),
            nn.Sequential: self._sequential,
            nn.SiLU: lambda module, x: call(silu, x, module.inplace),
            nn.Tanh: lambda module, x: call(torch.tanh, x),
            nn.Sigmoid: lambda module, x: call(torch.sigmoid, x),
            nn.Dropout: lambda module, x: NotImplemented if module.training else x,
            # they move elements or round once
            **dict.fromkeys(
                (nn.ReLU, nn.ReLU6, nn.Identity, nn.Flatten), lambda module, x: module.forward(x)
            ),
        }

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


def _with_weight(call: Callable[..., Any], plain: bool = False) -> Run:
    """Returns what calls ``call(module, x, weight, bias)``. ``plain``: there may be no weight."""

    def run(module: Any, x: Any) -> Any:
        held = module._parameters
        w = held.get("weight")
        if w is None and not (plain and "weight" in held):  # it is computed, as parametrized ones
            return NotImplemented
        return call(module, x, w, held["bias"])

    return run


_threads = torch.get_num_threads

FUSED = (torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
FAST = (
    "PyTorch's fused path for attention is not taken: at the largest size the bits are those of "
    "torch.backends.mha.set_fastpath_enabled(False)"
)


def made(model: Any, options: InvariantOptions, batched: Any) -> tuple[Any, Report]:
    """As ``probe.sizes.invariant.invariant``."""
    sizes, like, strict, example, table = options
    if not isinstance(model, torch.nn.Module):
        name = type(model).__name__
        raise InputError(
            "model", name, "only PyTorch modules are supported", "give a torch.nn.Module"
        )
    require_evaluation(model)
    require_uncompiled(model)
    classes = Table.opened(
        table, like, sizes, torch_calls.threads(), conditions(torch_calls.switches())
    )
    keeper = Keeper(classes, strict, torch_calls)
    if any(isinstance(part, FUSED) for part in model.modules()) and FAST not in classes.notes:
        classes.notes.append(FAST)
    if any(weights.is_complex() for weights in (*model.parameters(), *model.buffers())):
        keeper.leave("complex weights", COMPLEX)
    invariant = in_mode(model, keeper, batched)
    if example is not None:
        inputs = example if isinstance(example, tuple) else (example,)
        try:
            y = foreign(invariant, *inputs)
        except Foreign as error:  # a mistake of the mode, unless the model itself refuses it
            try:
                with torch.no_grad():
                    foreign(model, *inputs)
            except Foreign as refused:
                todo = "give inputs as the model takes them, several as a tuple"
                why = f"the model does not take it: {refused}"
                raise InputError("example", type(example).__name__, why, todo) from None
            raise (error.__cause__ or error) from None
        every = [x for x in inputs if isinstance(x, torch.Tensor)]
        of_batch = {x.shape[0] if x.dim() else 0 for x in every} == {keeper.batch}
        of_length = any(keeper.length in x.shape[1:] for x in every)
        if like == "largest" and of_batch and (of_length or "length" not in sizes):
            with torch.no_grad():
                native = model(*inputs)
            both = zip(tree_leaves(y), tree_leaves(native), strict=False)
            keeper.compare_example(
                (container(ours), container(theirs))
                for ours, theirs in both
                if getattr(theirs, "dtype", None) in FORMATS and ours.dtype is theirs.dtype
            )
    return invariant, keeper.report


def in_mode(model: Any, keeper: Keeper, batched: Any) -> Any:
    """Returns the model in the mode: a second object with the attributes of the first.

    Both have one ``__dict__``, so what is set, loaded or registered on one is there on the other.
    Its class is a subclass of the model's, as an attribute ``forward`` would be passed over by
    whatever calls the function of the class (``torch.fx``), and would run the first object's
    weights in a copy. A copy has its own weights, and the classes and the report in common.
    """
    state, numbers = ModelState(model), Numbers()
    company = Company(keeper, _axes_of(model.forward, batched, type(model).__name__))
    modes: dict[Any, Mode] = {}
    here = [Mode(keeper, model)]  # that of the last call
    modes[here[0].settings] = here[0]
    base = type(model)
    custom = base.__call__ is not torch.nn.Module.__call__  # GraphModule, layers of Keras

    def forward(called: Any, hooks: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _in_inference():
            args, kwargs = tree_map(usual_tensor, (args, kwargs))
            with torch.inference_mode(False), torch.no_grad():
                return forward(called, hooks, args, kwargs)
        # what was asked of samples is of a model that is no more
        if state.changed():
            company.forget()
            for each in modes.values():
                each.done.clear()
        if True in [part.training for part in state.parts]:
            require_evaluation(model)
        if _cast_anywhere() and torch.is_autocast_enabled("cpu"):
            todo = "leave torch.autocast, and give model.to(torch.bfloat16)"
            raise InputError("model", base.__name__, AUTOCAST, todo)
        if looked_at():
            require_numbers(base, args, kwargs)
        owner = model if type(called) is kind else _without(called, kind)
        inner = owner.forward
        if hooks and not custom:  # whether a call runs more than its forward
            own = map(owner.__dict__.__getitem__, HOOKS)
            hooks = state.hooked and bool(hooked_anywhere() or any(own))
        if hooks:
            inner = owner.__call__ if custom else owner._call_impl
        mode, settings = here[0], torch_calls.settings()
        if mode.settings != settings:
            mode = here[0] = modes.setdefault(settings, Mode(keeper, model))
            keeper.note_setting()
        watched = torch.is_grad_enabled()
        # as no_grad, whose objects cost as much as a small layer
        if watched:
            require_no_gradients(base, args)
            torch._C._set_grad_enabled(False)
        try:
            met = _in_common(args, kwargs, numbers)
            if met in mode.done:
                keeper.calls.again()
                run = None if hooks or kwargs or len(args) != 1 else mode.alone.of(owner)
                try:
                    y = NotImplemented if run is None else run(owner, args[0])
                except RuntimeError:  # such as a sparse input, whose shape is that of another
                    if not unusual(args):
                        raise
                    y = NotImplemented
                if y is not NotImplemented:
                    return y
                with mode.functions:
                    return inner(*args, **kwargs)
            require_numbers(base, args, kwargs)
            leaves = tree_leaves((args, kwargs))
            every = [x for x in leaves if isinstance(x, torch.Tensor)]
            if every and all(x.dim() and not len(x) for x in every):
                # of no samples there are no bits to keep
                return inner(*args, **kwargs)
            kind_of, arrays = _kind_and_arrays(args, kwargs)
            company.begin(kind_of, [tuple(x.shape) for x in arrays], (args, kwargs))
            if any("complex" in str(x.dtype) for x in arrays):
                keeper.leave("complex inputs", COMPLEX)
            # a model may write to what it is given
            before = [x.copy() if isinstance(x, np.ndarray) else x.clone() for x in arrays]
            with mode.functions, Settled(keeper, settings):
                y = inner(*args, **kwargs)
            keeper.calls.end()
            if kind_of is None:
                keeper.leave(UNREAD, STRANGE)
            else:
                with unchanged(model):
                    single = (
                        leaf
                        for leaf in leaves
                        if type(leaf) in (int, float)
                        or (isinstance(leaf, ARRAYS) and not leaf.ndim)
                    )
                    about = kind_of, before, tuple(map(numbers, single))
                    _ask_in_company(company, mode, inner, about, (args, kwargs), y)
        except (RuntimeError, NotImplementedError) as error:
            if unusual((args, kwargs)):
                todo = "give contiguous tensors on the CPU"
                raise InputError("model", base.__name__, UNUSUAL, todo) from error
            if "Inplace update to inference tensor" in str(error):
                todo = "make the model outside of torch.inference_mode"
                raise InputError("model", base.__name__, INFERRED, todo) from error
            raise
        finally:
            if watched:
                torch._C._set_grad_enabled(True)
        if met is not None:
            mode.done.add(met)
        return y

    kind, keeper.where = _class_in_mode(model, keeper, batched, UncompiledCall(forward)), module_now
    return _sharing_attributes(kind, model)


def _sharing_attributes(kind: Any, model: Any) -> Any:
    twin = object.__new__(kind)
    object.__setattr__(twin, "__dict__", model.__dict__)
    return twin


def module_now() -> str:
    """Returns the name of the innermost module that a model in the mode runs now.

    It is read from the frames, as nothing else is kept about modules, which would cost each call.
    """
    frame: FrameType | None = sys._getframe()
    met = []
    while frame is not None:
        code, names = frame.f_code, frame.f_locals
        if code is torch.nn.Module._call_impl.__code__:
            met.append(names["self"])
        elif code is KnownModules._sequential.__code__:
            met.append(names.get("part"))
        elif code.co_filename == __file__ and "owner" in names:
            owner = names["owner"]
            known = {id(part): name for name, part in owner.named_modules()}
            there = [known[id(part)] for part in met if id(part) in known]
            return (there[0] if there else "") or type(owner).__name__
        frame = frame.f_back
    return ""


class _Forward:
    """``forward`` of a class: it goes before what an object has of this name, which it runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, model: Any, kind: Any = None) -> Any:
        return self.function if model is None else MethodType(self.function, model)

    def __set__(self, model: Any, value: Any) -> None:
        model.__dict__["forward"] = value

    def __delete__(self, model: Any) -> None:
        del model.__dict__["forward"]


def _class_in_mode(model: Any, keeper: Keeper, batched: Any, run: Callable[..., Any]) -> Any:
    """Returns the class of a model in the mode.

    ``run(called, hooks, args, kwargs)``: a call of an object of it, with its hooks or without.
    """
    base = type(model)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, True, args, kwargs)

    @wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, False, args, kwargs)

    def made_anew(cls: Any, *args: Any, **kwargs: Any) -> Any:
        todo = "make it from the plain model, and call stable.invariant"
        raise InputError("model", base.__name__, ANOTHER, todo)

    def copied(self: Any) -> Any:
        return in_mode(copy.copy(_owner(self)), keeper, batched)

    def deeply_copied(self: Any, memo: dict[int, Any]) -> Any:
        memo[id(self)] = in_mode(copy.deepcopy(_owner(self), memo), keeper, batched)
        return memo[id(self)]

    def reduced(self: Any, protocol: Any) -> Any:
        return restored_model, (_owner(self), keeper.strict, keeper.table.text(), batched)

    def scripted(self: Any) -> Any:
        raise InputError("model", base.__name__, UNSEEN, "give the model without the mode")

    def _owner(called: Any) -> Any:
        return model if type(called) is kind else _without(called, kind)

    there = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__new__": made_anew,
        "__call__": call,
        "__copy__": copied,
        "__deepcopy__": deeply_copied,
        "__reduce_ex__": reduced,
        "__prepare_scriptable__": scripted,
        "forward": _Forward(forward),
        "invariant_report": keeper.report,
    }
    kind: Any = new_class(base.__name__, (base,), {}, lambda names: names.update(there))
    return kind


def restored_model(model: Any, strict: bool, text: str, batched: Any = None) -> Any:
    """Returns what was pickled of a model in the mode: with its classes, which are checked anew."""
    table = Table.of(text, "pickle", conditions(torch_calls.switches()))
    return in_mode(model, Keeper(table, strict, torch_calls), batched)


def _without(called: Any, kind: Any) -> Any:
    """Returns a model in the mode whose class was changed, as by a parametrization: without it."""
    own = {name: value for name, value in vars(type(called)).items() if name not in BASICS}
    plain = new_class(kind.__name__, kind.__bases__, {}, lambda names: names.update(own))
    return _sharing_attributes(plain, called)


BASICS = ("__dict__", "__weakref__")


class Mode:
    """A model's operations with one choice of settings. ``done``: calls that are known."""

    def __init__(self, keeper: Keeper, model: Any) -> None:
        self.settings = torch_calls.settings()
        self.functions = Functions(TorchOperations(keeper, model.parameters))
        self.alone = KnownModules(self.functions.quick, self.functions)
        self.done: set[Any] = set()


class Settled(TorchFunctionMode):
    """Reports a setting that a model changes inside: operations are known by those of the call."""

    def __init__(self, keeper: Keeper, settings: tuple[Any, ...]) -> None:
        super().__init__()
        self.keeper, self.settings = keeper, settings

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if said := torch_calls.changed(self.settings, torch_calls.settings()):
            why = "it runs with settings that are not those of the call"
            self.keeper.leave(f"{getattr(func, '__name__', 'operation')} with {said}", why)
        return func(*args, **(kwargs or {}))


class ModelState:
    """What a model is made of. ``parts``: its modules when it was made, which are not to train.

    A layer that is replaced, or a hook, may make samples read each other. PyTorch counts neither,
    so all modules are compared, by identity, at every call (0.3 us for 5, 4 us for 100), and hooks
    where any was registered anywhere. Other attributes would cost small models too much.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.parts = tuple(model.modules())
        self._look()

    def _look(self) -> None:
        self.hooks = RemovableHandle.next_id
        self.now = tuple(self.model.modules())
        self.inside = [part._modules for part in self.now]
        self.there = [part for inside in self.inside for part in inside.values()]
        own = [tuple(vars(part)[name]) for part in self.now for name in HOOKS]
        self.hooks_of = [hooked_anywhere(), *own]
        self.hooked = any(self.hooks_of)
        """Whether there are hooks, or there were when one was last registered."""

    def changed(self) -> bool:
        """Whether modules or hooks are not those of the last time that this was asked."""
        alike = self.there == [part for inside in self.inside for part in inside.values()]
        if alike and self.hooks == RemovableHandle.next_id:
            return False
        before = self.hooks_of
        self._look()
        return not alike or before != self.hooks_of


# Whole numbers up to that may choose a branch, such as a number of steps.
SMALL = 16
DIFFERENT = 8  # of all other numbers


class Numbers:
    """The first different numbers among arguments, each of which may choose a branch.

    Of more than these none is asked about: a step of time may be new at each call.
    """

    def __init__(self) -> None:
        self.there: set[str] = set()

    def __call__(self, x: Any) -> str | None:
        """Returns a name of a number or tensor without axes; None: it is one of too many."""
        name = repr(x.item() if isinstance(x, ARRAYS) else x)  # NaN is not equal to itself
        if name not in self.there:
            if len(self.there) >= DIFFERENT:
                return None
            self.there.add(name)
        return name


def _in_common(args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Numbers) -> Any:
    """Returns what calls of the same shapes have in common; None: an argument can't be read."""
    if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor and args[0].shape:
        return _threads(), args[0].shape, args[0].dtype
    met: list[Any] = [_threads()]
    return tuple(met) if _add_in_common((args, kwargs), met, numbers) else None


# What may carry samples: a function may take NumPy's arrays and make tensors of them.
ARRAYS = torch.Tensor, np.ndarray


def _add_in_common(x: Any, met: list[Any], numbers: Numbers | None = None) -> bool:
    """Adds an argument to what calls have in common; returns whether it can be read.

    ``numbers``: None: those that are not small are not told.
    """
    kind = type(x)
    if isinstance(x, ARRAYS):
        met += kind, x.shape, x.dtype
        if numbers is not None and not x.ndim:
            met.append(numbers(x))
    elif kind in (list, tuple):
        met += kind, len(x)
        return all(_add_in_common(each, met, numbers) for each in x)
    elif kind is dict:
        met += kind, tuple(x)
        return all(_add_in_common(each, met, numbers) for each in x.values())
    elif x is None or kind in (bool, str, torch.dtype) or (kind is int and abs(x) <= SMALL):
        met += kind, x
    elif kind in (int, float):
        met += kind, numbers and numbers(x)
    else:
        leaves, shape = tree_flatten(x)  # PyTorch takes it apart, such as a named tuple
        if len(leaves) == 1 and leaves[0] is x:
            return False
        met += kind, str(shape)
        return all(_add_in_common(each, met, numbers) for each in leaves)
    return True


def _axes_of(function: Any, batched: Any, name: str) -> Any:
    """Returns what reads the axis of samples of each tensor of a call; None: none was named."""
    if batched is None:
        return None
    program = LibraryProgram(function, batched, name)

    def read(called: tuple[tuple[Any, ...], dict[str, Any]]) -> Axes:
        leaves, _ = program.flat(*called)
        arrays = ((x, leaf.axis) for leaf in leaves for x in tree_leaves(leaf.value))
        return tuple(
            axis % x.ndim if axis is not None and -x.ndim <= axis < x.ndim else None
            for x, axis in arrays
            if isinstance(x, ARRAYS)
        )

    return read


def _kind_and_arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The kind of a call (structure, types, formats, settings: all but its sizes) and its arrays.

    Calls of one kind share what was asked of the first of them; None: a type that isn't known."""
    leaves, shape = tree_flatten((args, kwargs))
    places = tuple(isinstance(leaf, ARRAYS) for leaf in leaves)
    arrays = list(compress(leaves, places))
    kind: list[Any] = [torch_calls.settings()]
    if not _add_in_common([leaf for leaf in leaves if not isinstance(leaf, ARRAYS)], kind):
        return None, arrays
    kind += ((type(x), x.ndim, x.dtype) for x in arrays)
    return (str(shape), places, torch.get_num_threads(), *kind), arrays


STRANGE = "there is an argument or a result of a type that is not known here"


def _ask_in_company(
    company: Company, mode: Mode, inner: Any, about: tuple[Any, Any, Any], called: Any, y: Any
) -> None:
    """Asks whether the samples of a call that has ended keep their bits in other company."""
    kind, inputs, numbers = about
    leaves, shape = tree_flatten(called)

    def run(values: Sequence[Value]) -> list[Value]:
        changed, rest = list(leaves), iter(values)
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, ARRAYS):
                value, dtype = next(rest)  # copied: a model may write to it
                plain = isinstance(leaf, np.ndarray)
                changed[n] = value.copy() if plain else of_container(value, dtype).clone()
        args, kwargs = tree_unflatten(changed, shape)
        with mode.functions:
            return _container_values(inner(*args, **kwargs))

    try:
        before, answer = [*map(_container_value, inputs)], _container_values(y)
    except (TypeError, RuntimeError) as error:
        company.keeper.leave(UNREAD, f"{STRANGE} ({' '.join(str(error).split())[:80]})")
        return
    company.ask(kind, EndedCall(before, answer, run), numbers)


def _container_values(y: Any) -> list[Value]:
    """Returns the tensors and numbers of a result. TypeError: there is something else in it."""
    leaves: list[Any] = []
    for part in tree_leaves(y):
        of_data = is_dataclass(part) and not isinstance(part, type)
        leaves += tree_leaves(vars(part)) if of_data else [part]
    return [_container_value(x) for x in leaves if x is not None and not isinstance(x, str)]


def _container_value(x: Any) -> Value:
    if isinstance(x, bool | int | float):
        x = torch.tensor(x, dtype=None if isinstance(x, bool | int) else torch.float64)
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiub":
        return np.array(x), x.dtype.name
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{type(x).__name__} is not a tensor")
    if x.dtype in FORMATS:
        return container(x)
    value = x.detach().numpy()
    return value, value.dtype.name


AUTOCAST = "autocast changes formats inside of operations, and the classes are those of one format"
ANOTHER = "a new object of this class, such as a slice of its modules, would not be in the mode"
INFERRED = "it changes numbers in place that were made in torch.inference_mode"
UNUSUAL = "an input is sparse, nested, or on a different device"
COMPLEX = "products and quotients of complex numbers depend on the place in a vector"

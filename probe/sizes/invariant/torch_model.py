"""Runs every operation of a PyTorch model in its class of sizes.

A mode of functions sees each call within the model: those with an implementation in a class of
sizes are made by it, others operation by operation. Layers that are one call are run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from inspect import signature
from types import FunctionType, MethodType, new_class
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.functional import gelu, layer_norm, linear, silu
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from probe.case.errors import Foreign, InputError, foreign
from probe.sizes.invariant import torch_calls
from probe.sizes.invariant.classes import InvariantOptions, Table, conditions
from probe.sizes.invariant.keeper import Keeper, Report
from probe.sizes.invariant.programs import LibraryProgram
from probe.sizes.invariant.samples import UNREAD, Axes, Company, EndedCall, Value
from probe.sizes.invariant.torch_calls import (
    FORMATS,
    UNSEEN,
    NativeCalls,
    PositionalCall,
    UncompiledCall,
    call_key,
    container,
    hooked_anywhere,
    of_container,
    require_evaluation,
    require_no_gradients,
    require_plain_call,
    require_uncompiled,
)
from probe.sizes.invariant.torch_operations import MOST, VALUES, TorchOperations
from probe.sizes.invariant.torch_sequences import RecurrentSteps
from probe.targets.unchanged import unchanged

_in_inference = torch.is_inference_mode_enabled
_cast_anywhere = torch._C._is_any_autocast_enabled  # a third of the time of asking about the CPU

# Functions of Python's that PyTorch's attention calls, and that call products themselves.
INSIDE = ("_in_projection_packed", "_in_projection")


def unseen_by_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Python's that hands no call to a mode: PyTorch's own asks first whether
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
        self.attention = unseen_by_modes(functional.multi_head_attention_forward)
        recurrent = torch.gru, torch.rnn_tanh, torch.rnn_relu, torch.lstm
        steps = {func: RecurrentSteps(func, operators.keeper, self._native) for func in recurrent}
        self.quick: dict[Any, Any] = operators.quick | steps
        self.words = {
            func: frozenset(
                run.defaults if isinstance(run, PositionalCall) else signature(run).parameters
            )
            for func, run in self.quick.items()
        }
        self.exact_kinds: dict[Any, set[Any]] = {}
        """Calls all of whose operations are exact: by function, kinds of arguments and what chooses
        among those."""
        self.operators = operators
        self.operations, self.natives = Operations(operators), NativeCalls(operators.watched)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if _cast_anywhere():
            require_one_format("a part of it")
        quick = self.quick.get(func)
        if quick is None or (kwargs and not kwargs.keys() <= self.words[func]):
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
        if (kinds := self.exact_kinds.get(func)) and _kinds_of(args, kwargs) in kinds:
            return func(*args, **kwargs)
        y = self.natives(self.operations, func, args, kwargs)
        if self.natives.watched.last_exact and func not in self.quick:  # a quick one is first asked
            kinds = self.exact_kinds.setdefault(func, set())
            if len(kinds) < MOST:
                kinds.add(_kinds_of(args, kwargs))
        return y

    def _native(self, function: Any, args: Any) -> tuple[Any, bool]:
        """A function of its arguments, and whether the library's own call has its bits."""
        y = self.natives(self.operations, function, args, {})
        return y, bool(self.natives.native_calls.get(call_key(function, args, {})))


def _kinds_of(args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The kinds of a call's arguments; of axes, modes and exponents what they are.

    PyTorch's functions may call other operations of a tensor without axes than of an array.
    """
    kinds: list[Any] = []
    for x in args:
        kind = type(x)
        if kind is torch.Tensor:
            kinds += x.dtype, x.dim() > 0
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
        return self.operators.run(func, args, kwargs or {})


def unusual(arguments: Any) -> bool:
    """Whether a tensor among these is not strided numbers in the memory of the CPU."""
    return any(
        isinstance(x, torch.Tensor)
        and (x.layout is not torch.strided or x.is_nested or x.device.type != "cpu")
        for x in tree_leaves(arguments)
    )


def usual_tensor(x: Any) -> Any:
    """The same memory as a tensor that is usual outside of ``torch.inference_mode``, in
    which operations arrive in other parts than elsewhere."""
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
        """What runs a module of an input; None: nothing does without the mode."""
        attributes = module.__dict__
        hooked = hooked_anywhere() or any(map(attributes.__getitem__, HOOKS))
        return None if hooked or "forward" in attributes else self.runs.get(type(module))

    def _sequential(self, module: Any, x: Any) -> Any:
        for part in module._modules.values():
            run = self.of(part) if type(x) is torch.Tensor else None
            y = NotImplemented if run is None else run(part, x)
            if y is NotImplemented:
                with self.mode:
                    y = part(x)
            x = y
        return x


def _with_weight(call: Callable[..., Any], plain: bool = False) -> Run:
    """What calls ``call(module, x, weight, bias)``. ``plain``: there may be no weight."""

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


def invariant_module(model: Any, options: InvariantOptions, batched: Any) -> tuple[Any, Report]:
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
    invariant = in_mode(model, keeper, batched)
    if example is not None:
        inputs = example if isinstance(example, tuple) else (example,)
        try:
            foreign(invariant, *inputs)
        except Foreign as error:  # a mistake of the mode, unless the model itself refuses it
            try:
                with torch.no_grad():
                    foreign(model, *inputs)
            except Foreign as refused:
                todo = "give inputs as the model takes them, several as a tuple"
                why = f"the model does not take it: {refused}"
                raise InputError("example", type(example).__name__, why, todo) from None
            raise (error.__cause__ or error) from None
    return invariant, keeper.report


def in_mode(model: Any, keeper: Keeper, batched: Any) -> Any:
    """The model in the mode: a second object with the attributes of the first.

    Both have one ``__dict__``, so what is set, loaded or registered on one is there on the other.
    Its class is a subclass of the model's, as an attribute ``forward`` would be passed over by
    whatever calls the function of the class (``torch.fx``).
    """
    parts, numbers, base = tuple(model.modules()), Numbers(), type(model)
    company = Company(keeper, _axes_of(model.forward, batched, base.__name__))
    operators = TorchOperations(keeper, model.parameters)
    functions, done, made_with = Functions(operators), set[Any](), torch_calls.settings()
    alone = KnownModules(functions.quick, functions)
    custom = base.__call__ is not torch.nn.Module.__call__  # GraphModule, layers of Keras

    def forward(called: Any, hooks: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _in_inference():
            args, kwargs = tree_map(usual_tensor, (args, kwargs))
            with torch.inference_mode(False), torch.no_grad():
                return forward(called, hooks, args, kwargs)
        if type(called) is not kind:
            raise InputError("model", base.__name__, PARAMETRIZED, PLAIN)
        if True in [part.training for part in parts]:
            require_evaluation(model)
        if _cast_anywhere():
            require_one_format(base.__name__)
        require_plain_call(base, args, kwargs)
        hooked = model.__call__ if custom else model._call_impl  # with hooks, if there are some
        inner = hooked if hooks else model.forward
        if torch_calls.settings() != made_with:
            keeper.require_settings(base.__name__)
        watched = torch.is_grad_enabled()
        # as no_grad, whose objects cost as much as a small layer
        if watched:
            require_no_gradients(base, args)
            torch._C._set_grad_enabled(False)
        try:
            shown = _one_tensor(args, kwargs) or ShownCall(args, kwargs, numbers)
            met = shown if isinstance(shown, tuple) else shown.key
            if met in done:
                keeper.calls.begin(None, 0)
                run = None if kwargs or len(args) != 1 else alone.of(model)
                y = NotImplemented if run is None else run(model, args[0])
                if y is not NotImplemented:
                    return y
                with functions:
                    return inner(*args, **kwargs)
            if unusual((args, kwargs)):
                todo = "give contiguous tensors on the CPU"
                raise InputError("model", base.__name__, UNUSUAL, todo)
            shown = ShownCall(args, kwargs, numbers)
            every = [x for x in shown.arrays if isinstance(x, torch.Tensor)]
            if every and all(x.dim() and not len(x) for x in every):
                # of no samples there are no bits to keep
                return inner(*args, **kwargs)
            shapes = [tuple(x.shape) for x in shown.arrays]
            company.begin(shown.kind, shapes, (args, kwargs))
            # a model may write to what it is given
            before = [x.copy() if isinstance(x, np.ndarray) else x.clone() for x in shown.arrays]
            with functions, Settled(keeper):
                y = inner(*args, **kwargs)
            keeper.calls.end()
            if shown.kind is None:
                keeper.leave(UNREAD, STRANGE)
            else:
                with unchanged(model):
                    about = shown.kind, before, tuple(shown.numbers)
                    _ask_in_company(company, functions, inner, about, (args, kwargs), y)
        except (RuntimeError, NotImplementedError) as error:
            if "Inplace update to inference tensor" in str(error):
                todo = "make the model outside of torch.inference_mode"
                raise InputError("model", base.__name__, INFERRED, todo) from error
            raise
        finally:
            if watched:
                torch._C._set_grad_enabled(True)
        if met is not None:
            done.add(met)
        return y

    kind = _class_in_mode(base, keeper, UncompiledCall(forward))
    twin = object.__new__(kind)
    object.__setattr__(twin, "__dict__", model.__dict__)
    return twin


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


def _class_in_mode(base: Any, keeper: Keeper, run: Callable[..., Any]) -> Any:
    """The class of a model in the mode.

    ``run(called, hooks, args, kwargs)``: a call of an object of it, with its hooks or without.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, True, args, kwargs)

    @wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, False, args, kwargs)

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise InputError("model", base.__name__, ANOTHER, PLAIN)

    def scripted(self: Any) -> Any:
        raise InputError("model", base.__name__, UNSEEN, "give the model without the mode")

    members = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        **dict.fromkeys(("__new__", "__copy__", "__deepcopy__", "__reduce_ex__"), refused),
        "__call__": call,
        "__prepare_scriptable__": scripted,
        "forward": _Forward(forward),
        "invariant_report": keeper.report,
    }
    kind: Any = new_class(base.__name__, (base,), {}, lambda names: names.update(members))
    return kind


class Settled(TorchFunctionMode):
    """Reports a setting that a model changes inside: operations are known by those of the call."""

    def __init__(self, keeper: Keeper) -> None:
        super().__init__()
        self.keeper = keeper

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if said := torch_calls.changed(self.keeper.settings, torch_calls.settings()):
            why = "it runs with settings that are not those of the call"
            self.keeper.leave(f"{getattr(func, '__name__', 'operation')} with {said}", why)
        return func(*args, **(kwargs or {}))


# Whole numbers up to that may choose a branch, such as a number of steps.
SMALL = 16
DIFFERENT = 8  # of all other numbers


class Numbers:
    """The first different numbers among arguments, each of which may choose a branch.

    Of more than these none is asked about: a step of time may be new at each call.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __call__(self, x: Any) -> str | None:
        """A name of a number or tensor without axes; None: it is one of too many."""
        name = repr(x.item() if isinstance(x, ARRAYS) else x)  # NaN is not equal to itself
        if name not in self.names:
            if len(self.names) >= DIFFERENT:
                return None
            self.names.add(name)
        return name


# What may carry samples: a function may take NumPy's arrays and make tensors of them.
ARRAYS = torch.Tensor, np.ndarray


def _one_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """What calls of one tensor of a shape have in common; empty: it is another call."""
    if len(args) == 1 and not kwargs and type(x := args[0]) is torch.Tensor and x.shape:
        return _threads(), x.shape, x.dtype, x.layout, x.device
    return ()


class ShownCall:
    """What is seen of a call. ``arrays``: its tensors and arrays; ``numbers``: names of others.

    ``kind``: structure, types, formats, threads: all but its sizes and numbers. Calls of one kind
    share what was asked of the first of them; None: there is a type that isn't known.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Numbers) -> None:
        self.arrays: list[Any] = []
        self.numbers: list[str | None] = []
        self._named = numbers
        kind: list[Any] = [_threads()]
        self.kind = tuple(kind) if self._add((args, kwargs), kind) else None

    @property
    def key(self) -> Any:
        """What calls of the same shapes and numbers have in common; None: it isn't known."""
        shapes = ((x.shape, getattr(x, "layout", None)) for x in self.arrays)
        return None if self.kind is None else (self.kind, *shapes, *self.numbers)

    def _add(self, x: Any, kind: list[Any]) -> bool:
        """Adds an argument; returns whether it can be read."""
        named = type(x)
        kind.append(named)
        if isinstance(x, ARRAYS):
            kind += x.ndim, x.dtype
            self.arrays.append(x)
            self.numbers += [] if x.ndim else [self._named(x)]
        elif named in (list, tuple):
            kind.append(len(x))
            return all(self._add(each, kind) for each in x)
        elif named is dict:
            kind.append(tuple(x))
            return all(self._add(each, kind) for each in x.values())
        elif x is None or named in (bool, str, torch.dtype) or (named is int and abs(x) <= SMALL):
            kind.append(x)
        elif named in (int, float):
            self.numbers.append(self._named(x))
        else:
            leaves, shape = tree_flatten(x)  # PyTorch takes it apart, such as a named tuple
            kind.append(str(shape))
            return not (len(leaves) == 1 and leaves[0] is x) and all(
                self._add(each, kind) for each in leaves
            )
        return True


def _axes_of(function: Any, batched: Any, name: str) -> Any:
    """What reads the axis of samples of each tensor of a call; None: none was named."""
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


STRANGE = "there is an argument or a result of a type that is not known here"


def _ask_in_company(
    company: Company, functions: Any, inner: Any, about: tuple[Any, Any, Any], called: Any, y: Any
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
        with functions:
            return _container_values(inner(*args, **kwargs))

    try:
        before, answer = [*map(_container_value, inputs)], _container_values(y)
    except (TypeError, RuntimeError) as error:
        company.keeper.leave(UNREAD, f"{STRANGE} ({' '.join(str(error).split())[:80]})")
        return
    company.ask(kind, EndedCall(before, answer, run), numbers)


def _container_values(y: Any) -> list[Value]:
    """The tensors and numbers of a result. TypeError: there is something else in it."""
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


def require_one_format(name: str) -> None:
    """InputError: operations are called within ``torch.autocast``."""
    if torch.is_autocast_enabled("cpu"):
        todo = "leave torch.autocast, and give model.to(torch.bfloat16)"
        raise InputError("model", name, AUTOCAST, todo)


AUTOCAST = "autocast changes formats inside of operations, and the classes are those of one format"
ANOTHER = "a new object of this class, such as a copy or a slice, would not be in the mode"
PARAMETRIZED = "its class was changed, as by a parametrization, and is not that of the mode"
PLAIN = "make it from the plain model, and call stable.invariant"
INFERRED = "it changes numbers in place that were made in torch.inference_mode"
UNUSUAL = "an input is sparse, nested, or on a different device"

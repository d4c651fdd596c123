"""Runs every operation of a PyTorch model in its class of sizes."""

from __future__ import annotations

import copy
import dis
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from inspect import signature
from types import FunctionType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from probe import ulp
from probe.errors import InputError
from probe.invariant import torch_calls
from probe.invariant.company import UNREAD, Axes, Company, Value
from probe.invariant.keeper import Keeper
from probe.invariant.programs import Program
from probe.invariant.report import Report
from probe.invariant.table import Table
from probe.invariant.torch_alone import Alone
from probe.invariant.torch_calls import FORMATS, container
from probe.invariant.torch_native import Natives
from probe.invariant.torch_operations import Operators

PLAIN = frozenset(
    "__get__ __set__ size dim numel stride shape is_contiguous is_floating_point get_device "
    "ndimension view reshape permute transpose t contiguous expand expand_as unsqueeze squeeze "
    "flatten unflatten __getitem__ __setitem__ movedim swapaxes narrow select chunk split "
    "unbind cat stack concat concatenate repeat repeat_interleave flip roll clone detach to "
    "float half bfloat16 double type type_as __len__ __iter__ __bool__ __hash__ __repr__ item "
    "tolist add sub mul div __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ "
    "__iadd__ __isub__ __imul__ add_ sub_ mul_ div_ neg __neg__ abs sqrt relu relu_ relu6 "
    "hardtanh masked_fill masked_fill_ where eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ "
    "__gt__ __ge__ logical_and logical_or logical_not __and__ __or__ __invert__ __xor__ all any "
    "isnan argmax argmin max_pool1d max_pool2d max_pool3d pad zeros ones full empty zeros_like "
    "ones_like full_like empty_like new_zeros new_ones new_full new_empty new_tensor arange "
    "tensor embedding gather index_select dropout dropout1d dropout2d dropout3d pixel_shuffle "
    "tril triu is_grad_enabled".split()
)
"""Functions that move elements or round once: their bits depend on nothing but their elements."""


FUSED = (torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
FAST = (
    "PyTorch's fused path for attention is not taken: at the largest size the bits are those of "
    "torch.backends.mha.set_fastpath_enabled(False)"
)


INSIDE = ("_in_projection_packed", "_in_projection")
"""Functions of Python's that PyTorch's attention calls, and that call products themselves."""

CAUGHT = ("linear", "scaled_dot_product_attention", "softmax", "dropout")
MOVING = frozenset(
    "has_torch_function handle_torch_function multi_head_attention_forward _mha_shape_check "
    "unsqueeze shape _canonical_mask _none_or_dtype dtype RuntimeError AssertionError isinstance "
    "torch Tensor div chunk dim cat repeat pad view transpose size zeros device jit is_scripting "
    "is_tracing _check_key_padding_mask expand reshape math sqrt float baddbmm bmm mean squeeze "
    "permute unflatten contiguous split".split()
)
"""All else that they name: products and means where weights are asked for, and exact functions."""


def seen(function: Callable[..., Any], caught: dict[str, Any]) -> Callable[..., Any]:
    """Returns a function of Python's that hands no call to a mode, and calls what is ``caught``.

    PyTorch's own asks first whether there is a mode, and then a mode sees it alone.
    """
    names = function.__globals__ | {"has_torch_function": lambda operands: False} | caught
    for name in (*INSIDE, function.__name__):
        one = function.__globals__[name]
        names[name] = FunctionType(one.__code__, names, name, one.__defaults__)
        names[name].__kwdefaults__ = one.__kwdefaults__
    found: Callable[..., Any] = names[function.__name__]
    return found


def known_inside(function: Callable[..., Any]) -> bool:
    """Returns whether PyTorch's attention, in this version, calls nothing that is not known here.

    Of operators all but products of matrices and powers round once.
    """
    there = [function.__globals__.get(name) for name in (*INSIDE, function.__name__)]
    if not all(isinstance(one, FunctionType) for one in there):
        return False
    codes = [one.__code__ for one in there if isinstance(one, FunctionType)]
    named = {name for code in codes for name in code.co_names}
    steps = [step for code in codes for step in dis.get_instructions(code)]
    operators = {step.argrepr for step in steps if step.opname == "BINARY_OP"}
    older = {step.opname for step in steps} & {"BINARY_MATRIX_MULTIPLY", "BINARY_POWER"}
    rounds_more = any("@" in one or "**" in one for one in operators) or older
    return named <= MOVING | {*CAUGHT, *INSIDE} and not rounds_more


def _plain(function: Any) -> bool:
    """Returns whether a function is PyTorch's own and ``PLAIN``; others may have such a name."""
    name = getattr(function, "__name__", "")
    if name not in PLAIN:
        return False
    if name in ("__get__", "__set__"):  # of properties of a tensor, each time a new object
        return getattr(getattr(function, "__self__", None), "__name__", "") in vars(
            torch._C.TensorBase
        )
    return any(getattr(one, name, None) is function for one in (torch, torch.Tensor, functional))


class Functions(TorchFunctionMode):
    """Calls of functions: the frequent ones at once, the others operation by operation.

    Attention with its own weights is run as the calls of functions that it is made of: by itself
    where it gives no weights and all that it calls is known, else within the mode.
    """

    def __init__(self, operators: Operators) -> None:
        super().__init__()
        attention = functional.multi_head_attention_forward
        self.inside = {attention: seen(attention, {})}
        caught = {name: self._caught(getattr(functional, name)) for name in CAUGHT}
        self.alone = {attention: seen(attention, caught)} if known_inside(attention) else {}
        self.quick = operators.quick
        self.words = {one: frozenset(signature(run).parameters) for one, run in self.quick.items()}
        self.plain: set[Any] = set()
        self.operations, self.natives = Operations(operators), Natives(operators.watched)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        quick = self.quick.get(func)
        if quick is not None and (not kwargs or kwargs.keys() <= self.words[func]):
            found = quick(*args, **kwargs) if kwargs else quick(*args)
            if found is not NotImplemented:
                return found
        kwargs = kwargs or {}
        if func in self.plain and "alpha" not in kwargs:
            return func(*args, **kwargs)
        if quick is None and "alpha" not in kwargs and _plain(func):
            self.plain.add(func)
            return func(*args, **kwargs)
        alone, inside = self.alone.get(func), self.inside.get(func)
        if alone is not None and kwargs.get("need_weights") is False:
            return alone(*args, **kwargs)
        if inside is None:
            return self.natives(self.operations, func, args, kwargs)
        with self:
            return inside(*args, **kwargs)

    def _caught(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function as the mode runs it."""

        def run(*args: Any, **kwargs: Any) -> Any:
            return self.__torch_function__(function, (), args, kwargs)

        return run


class Operations(TorchDispatchMode):
    """Every operation of whatever code: in its class, or exact, or reported."""

    def __init__(self, operators: Operators) -> None:
        super().__init__()
        self.operators = operators

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Read by PyTorch, which would import its compiler, in seconds, and wrap each operation.

        ``Uncompiled`` keeps the compiler from all of them at once.
        """
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self.operators.exact:
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled() and func._can_decompose():
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        return self.operators.run(func, args, kwargs)


BATCHED = True  # ``made`` takes the axes of samples


def made(
    model: Any,
    sizes: dict[str, tuple[int, ...]],
    like: str,
    strict: bool,
    example: Any,
    table: Any,
    batched: Any = None,
) -> tuple[Any, Report]:
    """As ``probe.invariant.invariant``, of checked sizes."""
    if not isinstance(model, torch.nn.Module):
        name = type(model).__name__
        raise InputError(
            "model", name, "only PyTorch modules are supported", "give a torch.nn.Module"
        )
    require_evaluation(model)
    require_uncompiled(model)
    kept = Table.opened(table, like, sizes, torch_calls.threads(), "torch")
    keeper = Keeper(kept, strict, torch_calls)
    parts = tuple(model.modules())
    if any(isinstance(part, FUSED) for part in parts) and FAST not in kept.notes:
        kept.notes.append(FAST)
    if any(one.is_complex() for one in (*model.parameters(), *model.buffers())):
        keeper.leave("complex weights", COMPLEX)
    found = copy.copy(model)
    inner = model.forward
    company = Company(keeper, _axes_of(inner, batched, type(model).__name__))
    modes: dict[Any, Mode] = {}
    here = [Mode(keeper, model)]  # that of the last call

    def forward(*args: Any, **kwargs: Any) -> Any:
        if True in [part.training for part in parts]:
            require_evaluation(model)
        if torch.is_autocast_enabled("cpu"):
            todo = "leave torch.autocast, and give model.to(torch.bfloat16)"
            raise InputError("model", type(model).__name__, AUTOCAST, todo)
        mode, settings = here[0], torch_calls.settings()
        if mode.settings != settings:
            mode = here[0] = modes.setdefault(settings, Mode(keeper, model))
            keeper.note_setting()
        watched = torch.is_grad_enabled()
        if watched:  # as no_grad, whose objects cost as much as a small layer
            torch._C._set_grad_enabled(False)
        try:
            met = _met(args, kwargs)
            if met in mode.done:
                keeper.calls.again()
                run = mode.alone.of(model) if len(args) == 1 and not kwargs else None
                y = NotImplemented if run is None else run(model, args[0])
                if y is not NotImplemented:
                    return y
                with mode.functions:
                    return inner(*args, **kwargs)
            kind, given = _parts(args, kwargs)
            company.begin(kind, [tuple(one.shape) for one in given], (args, kwargs))
            if any(one.is_complex() for one in given):
                keeper.leave("complex inputs", COMPLEX)
            kept, before = Kept(model), [one.clone() for one in given]  # it may write to them
            with mode.functions, Settled(keeper, settings):
                y = inner(*args, **kwargs)
            keeper.calls.end()
            if kind is None:
                keeper.leave(UNREAD, STRANGE)
            else:
                with kept:
                    _ask(company, mode, inner, (kind, before), (args, kwargs), y)
        finally:
            if watched:
                torch._C._set_grad_enabled(True)
        if met is not None:
            mode.done.add(met)
        return y

    found.forward = Uncompiled(forward)
    modes[here[0].settings] = here[0]
    if example is not None:
        given = example if isinstance(example, tuple) else (example,)
        y = found(*given)
        if like == "largest" and _is_largest(keeper, given):
            _note_native(keeper, model, given, y)
    return found, keeper.report


class Mode:
    """A model's operations with one choice of settings. ``done``: calls that are known."""

    def __init__(self, keeper: Keeper, model: Any) -> None:
        self.settings = torch_calls.settings()
        self.functions = Functions(Operators(keeper, model.parameters))
        self.alone = Alone(self.functions.quick, self.functions)
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


class Kept:
    """Buffers that a call changes, as that call left them: further ones are to leave no trace."""

    def __init__(self, model: Any) -> None:
        every = [one for one in model.buffers() if not one.is_inference()]
        self.before = [(one, one._version) for one in every]
        self.held: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        changed = [one for one, version in self.before if one._version != version]
        self.held = [(one, one.clone()) for one in changed]
        self.random = torch.get_rng_state()

    def __exit__(self, *_: object) -> None:
        for one, value in self.held:
            one.copy_(value)
        torch.set_rng_state(self.random)


SMALL = 16  # whole numbers up to that may choose a branch, such as a number of steps


def _met(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns what calls of the same shapes have in common; None: an argument can't be read."""
    met: list[Any] = [torch.get_num_threads(), torch.is_inference_mode_enabled()]
    for one in args:
        if type(one) is torch.Tensor:
            met += one.shape, one.dtype
        elif not _tell(one, met):
            return None
    for name, one in kwargs.items():
        met.append(name)
        if not _tell(one, met):
            return None
    return tuple(met)


def _tell(one: Any, met: list[Any]) -> bool:
    """Adds an argument to what calls have in common; returns whether it can be read."""
    kind = type(one)
    if isinstance(one, torch.Tensor):
        met += kind, one.shape, one.dtype
    elif kind in (list, tuple):
        met += kind, len(one)
        return all(_tell(each, met) for each in one)
    elif kind is dict:
        met += kind, tuple(one)
        return all(_tell(each, met) for each in one.values())
    elif one is None or kind in (bool, str, torch.dtype) or (kind is int and abs(one) <= SMALL):
        met += kind, one
    elif kind in (int, float):
        met.append(kind)
    else:
        return _tell_parts(one, kind, met)
    return True


def _tell_parts(one: Any, kind: Any, met: list[Any]) -> bool:
    """As ``_tell``, of what PyTorch takes apart, such as a named tuple."""
    leaves, shape = tree_flatten(one)
    if len(leaves) == 1 and leaves[0] is one:
        return False
    met += kind, str(shape)
    return all(_tell(each, met) for each in leaves)


def _axes_of(function: Any, batched: Any, name: str) -> Any:
    """Returns what reads the axis of samples of each tensor of a call; None: nobody named any."""
    if batched is None:
        return None
    program = Program(function, batched, name)

    def read(called: tuple[tuple[Any, ...], dict[str, Any]]) -> Axes:
        leaves, _ = program.flat(*called)
        found: list[int | None] = []
        for leaf in leaves:
            for one in tree_leaves(leaf.value):
                if isinstance(one, torch.Tensor):
                    there = leaf.axis is not None and -one.dim() <= leaf.axis < one.dim()
                    found.append(leaf.axis % one.dim() if there and leaf.axis is not None else None)
        return tuple(found)

    return read


def _parts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Returns what arguments have in common but their sizes, and their tensors; None: unknown."""
    leaves, shape = tree_flatten((args, kwargs))
    tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
    kind: list[Any] = [torch_calls.settings()]
    if not _tell([one for one in leaves if not isinstance(one, torch.Tensor)], kind):
        return None, tensors
    kind += ((one.dim(), one.dtype) for one in tensors)
    places = tuple(isinstance(one, torch.Tensor) for one in leaves)
    return (str(shape), places, torch.get_num_threads(), *kind), tensors


STRANGE = "there is an argument or a result of a type that is not known here"


def _ask(
    company: Company, mode: Mode, inner: Any, told: tuple[Any, Any], called: Any, y: Any
) -> None:
    """Asks whether the samples of a call that has ended keep their bits in other company."""
    kind, given = told
    leaves, shape = tree_flatten(called)
    at = [n for n, one in enumerate(leaves) if isinstance(one, torch.Tensor)]

    def run(values: Sequence[Value]) -> list[Value]:
        made = list(leaves)
        for n, (value, dtype) in zip(at, values, strict=True):
            made[n] = _tensor(value, dtype)
        args, kwargs = tree_unflatten(made, shape)
        with mode.functions:
            return _values(inner(*args, **kwargs))

    try:
        before, answer = [_value(one) for one in given], _values(y)
    except (TypeError, RuntimeError) as error:
        company.keeper.leave(UNREAD, f"{STRANGE} ({' '.join(str(error).split())[:80]})")
        return
    company.ask(kind, before, answer, run)


def _values(y: Any) -> list[Value]:
    """Returns the tensors and numbers of a result. TypeError: there is something else in it."""
    leaves: list[Any] = []
    for one in tree_leaves(y):
        parts = vars(one) if is_dataclass(one) and not isinstance(one, type) else None
        leaves += [one] if parts is None else tree_leaves(parts)
    return [_value(one) for one in leaves if one is not None and not isinstance(one, str)]


def _value(one: Any) -> Value:
    if isinstance(one, bool | int | float):
        one = torch.tensor(one, dtype=None if isinstance(one, bool | int) else torch.float64)
    if not isinstance(one, torch.Tensor):
        raise TypeError(f"{type(one).__name__} is not a tensor")
    value, dtype = container(one) if one.dtype in FORMATS else (one.detach().numpy(), "")
    return value, dtype or value.dtype.name


def _tensor(value: np.ndarray, dtype: str) -> Any:
    if dtype == "bfloat16":
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value).clone()  # a model may write to it


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int]:
    """Returns the shapes of what a model is called with, without the batch, and the batch; None, 0:
    they have no batch in common."""
    every = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    batches = {one.shape[0] if one.dim() else 0 for one in every}
    if len(batches) != 1:
        return None, 0
    shapes = tuple((one.shape[1:], one.dtype) for one in every)
    return (torch.get_num_threads(), shapes), batches.pop()


def _is_largest(keeper: Keeper, given: tuple[Any, ...]) -> bool:
    """Whether these inputs have the sizes whose bits are kept: the largest batch, and length."""
    shapes, batch = _given(given, {})
    lengths = "length" in keeper.table.sizes
    return batch == keeper.batch and (
        not lengths or any(keeper.length in shape for shape, _ in shapes[1])
    )


def _note_native(keeper: Keeper, model: Any, given: tuple[Any, ...], y: Any) -> None:
    """Runs the unchanged model, and notes how many of its numbers have different bits."""
    with torch.no_grad():
        native = model(*given)
    total = apart = 0
    for ours, theirs in zip(tree_leaves(y), tree_leaves(native), strict=False):
        kind = getattr(theirs, "dtype", None)
        if kind in FORMATS and ours.dtype is kind and ours.shape == theirs.shape:
            (there, name), (here, _) = container(theirs), container(ours)
            apart += int(ulp.apart(here, there, name).sum())
            total += theirs.numel()
    if apart:
        keeper.table.notes.append(
            f"at the largest size {apart:,} of {total:,} numbers of the example differ from the "
            "unchanged model's, whose bits depend on the place or the layout even there"
        )


AUTOCAST = "autocast changes formats inside of operations, and the classes are those of one format"
COMPLEX = "products and quotients of complex numbers depend on the place in a vector"
COMPILED = "the invariant mode runs operation by operation: fused, their bits would be different"


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


class Uncompiled:
    """A function that ``torch.compile`` leaves as it is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._apart: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._apart is None and "torch._dynamo" in sys.modules:
            self._apart = torch.compiler.disable(self.function, reason=COMPILED)
        return (self._apart or self.function)(*args, **kwargs)


def require_evaluation(model: Any) -> None:
    """InputError for a model in training mode."""
    if any(module.training for module in model.modules()):
        why = "training is not covered: it has dropout, and statistics of the batch"
        raise InputError("model", type(model).__name__, why, "call model.eval()")

"""Leaves what a user gave as it was, and the process that it is in.

A question runs the user's model several times, and each run moves what a run moves: a counter,
statistics, a generator of random numbers, the threads. What the user computes next must not depend
on whether a question was asked before it.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial, wraps
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

# From a function to what it calls, to what that holds: further objects are a library's.
STEPS = 6


def leaves_unchanged(function: F) -> F:
    """The function, within ``unchanged`` of its arguments."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with unchanged(args, kwargs):
            return function(*args, **kwargs)

    return cast(F, call)


@contextmanager
def unchanged(*values: Any) -> Iterator[None]:
    """Puts back, at the end, what is moved within.

    Of the process: random states, threads, gradients, the environment, the folder, ``sys.path``,
    Matplotlib's settings. Of models,
    functions, arrays and generators that are ``given``, or that these hold or read: attributes and
    hooks of modules, buffers, gradients, variables that are not trained, arrays, random states.
    Weights are shared with the user's model and may fill the memory, so no copy of them is kept.
    """
    with ExitStack() as back:
        _hold_process(back.callback)
        for value in _reached(values):
            _hold(value, back.callback)
        yield


def _hold_process(later: Callable[..., Any]) -> None:
    later(random.setstate, random.getstate())
    later(np.random.set_state, np.random.get_state())  # noqa: NPY002
    later(_refill, os.environ, dict(os.environ))
    with suppress(FileNotFoundError):  # a folder that was removed
        later(os.chdir, os.getcwd())
    later(sys.path.__setitem__, slice(None), list(sys.path))
    if torch := _loaded("torch"):
        later(torch.set_rng_state, torch.get_rng_state())
        if torch.cuda.is_initialized():
            later(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        later(torch.set_grad_enabled, torch.is_grad_enabled())
        # only where they changed: setting them also changes how MKL chooses its own
        _keep(later, torch.get_num_threads, lambda count: torch.set_num_threads(int(count)))
    if cv2 := _loaded("cv2"):
        _keep(later, cv2.getNumThreads, lambda count: cv2.setNumThreads(int(count)))
    if matplotlib := _loaded("matplotlib"):
        later(dict.update, matplotlib.rcParams, dict(matplotlib.rcParams))
    # of seeded functions such as tf.random.uniform; there is none before the first is called
    eager = _loaded("tensorflow.python.eager.context")
    if eager and (seeds := getattr(eager.context(), "_rng", None)):
        later(seeds.setstate, seeds.getstate())
    of_keras = _loaded("keras.src.backend.common.global_state")
    if of_keras and (seeded := of_keras.get_global_attribute("global_seed_generator")):
        _keep(later, lambda: seeded.state, seeded.state.assign)


def _loaded(name: str) -> Any:
    """A library; None if it isn't in memory, or is being imported."""
    module = sys.modules.get(name)
    importing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if importing else module


def _keep(later: Callable[..., Any], read: Callable[[], Any], write: Callable[..., Any]) -> None:
    """Has ``write`` put back what ``read`` gives now, where it gives something else then."""
    before = np.asarray(read()).copy()

    def put_back() -> None:
        if np.asarray(read()).tobytes() != before.tobytes():
            write(before)

    later(put_back)


def _refill(mapping: MutableMapping[Any, Any], before: dict[Any, Any]) -> None:
    # in place: a hook's handle removes it from the mapping that it was put into
    for name in mapping.keys() - before.keys():
        del mapping[name]
    for name, value in before.items():
        if mapping.get(name, mapping) is not value:
            mapping[name] = value


def _reached(values: Iterable[Any]) -> list[Any]:
    """All that values hold and functions read, nearest first."""
    met: dict[int, Any] = {}
    now = list(values)
    for _ in range(STEPS):
        now = [value for value in now if id(value) not in met]
        met |= {id(value): value for value in now}
        now = [part for value in now for part in _inside(value)]
    return list(met.values())


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, FunctionType):
        globals_read = [value.__globals__.get(name) for name in _names(value.__code__)]
        # functions of a library read its own state, not the user's
        globals_read = [
            x
            for x in globals_read
            if getattr(x, "__globals__", value.__globals__) is value.__globals__
        ]
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return *cells, *globals_read, value.__defaults__, value.__kwdefaults__
    if isinstance(value, MethodType):
        return value.__func__, getattr(value.__self__, "__dict__", {}), value.__self__
    if isinstance(value, type) or hasattr(type(value), "non_trainable_variables"):
        return ()
    if hasattr(value, "__wrapped__"):
        return (value.__wrapped__,)
    call = getattr(value, "__call__", None)  # noqa: B004
    return (call,) if isinstance(call, MethodType) else ()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _hold(value: Any, later: Callable[..., Any]) -> None:
    kind, torch = type(value), _loaded("torch")
    if isinstance(value, np.ndarray):
        if value.flags.writeable and not isinstance(value, np.memmap):
            _keep(later, lambda: value, partial(value.__setitem__, ...))
    elif torch and isinstance(value, torch.nn.Parameter):
        if value.grad is not None:
            _hold(value.grad, later)
        later(setattr, value, "grad", value.grad)
        if not value.is_inference():  # whose gradients nobody may switch
            later(setattr, value, "requires_grad", value.requires_grad)
    elif torch and isinstance(value, torch.Tensor):
        if not (value.is_inference() or torch.nn.parameter.is_lazy(value)):
            later(_put_back_tensor, value, value.detach().clone(), value._version)
    elif torch and isinstance(value, torch.nn.Module):
        for part in value.modules():
            # a lazy module becomes one of another class at its first call
            lazy = isinstance(part, torch.nn.modules.lazy.LazyModuleMixin)
            if not lazy and not isinstance(part, torch.jit.ScriptModule):
                inside = [x for x in vars(part).values() if isinstance(x, dict)]
                for mapping in (vars(part), *inside):
                    later(_refill, mapping, dict(mapping))
        for tensor in (*value.buffers(), *value.parameters()):
            _hold(tensor, later)
    elif hasattr(kind, "non_trainable_variables"):
        for variable in value.variables:
            if not variable.trainable or "float" not in str(variable.dtype):
                _keep(later, partial(np.asarray, variable), variable.assign)
    elif hasattr(kind, "assign") and hasattr(kind, "numpy"):
        _keep(later, value.numpy, value.assign)
    elif hasattr(kind, "bit_generator"):
        later(setattr, value.bit_generator, "state", value.bit_generator.state)
    else:
        for get, put in (("getstate", "setstate"), ("get_state", "set_state")):
            if hasattr(kind, get) and hasattr(kind, put):
                later(getattr(value, put), getattr(value, get)())


def _put_back_tensor(tensor: Any, before: Any, version: int) -> None:
    torch = sys.modules["torch"]
    with torch.no_grad():
        # gradients may wait for a version that is left alone; batch normalisation moves its
        # statistics without one
        plain = tensor.layout is torch.strided
        if tensor._version != version or (plain and not torch.equal(tensor, before)):
            tensor.copy_(before)

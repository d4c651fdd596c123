"""What PyTorch has no public interface for, in one place. Written with PyTorch 2.13."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch._dynamo.callback import callback_handler
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

__all__ = ["TorchDispatchMode"]

try:  # what is never compiled, nor what it calls
    from torch._C._dynamo import eval_frame

    _SKIP: Any = eval_frame._FrameExecStrategy(*(eval_frame._FrameAction.SKIP,) * 2)
except (ImportError, AttributeError):  # another release
    _SKIP = None

# Whether this release can be told to compile neither a function nor what it calls.
SKIPS = _SKIP is not None


def skip(function: Any) -> None:
    """Says that a function is not to be compiled, where that can be said."""
    if SKIPS:
        eval_frame.set_code_exec_strategy(function.__code__, _SKIP)


# What runs whenever a module is called. Looked for among the frames of Python: hooks on modules
# would be compiled into compiled functions, and change them.
CALL = torch.nn.Module._call_impl.__code__

Region = Callable[[Sequence[Any], Callable[[], Any], Sequence[int]], Any]
# The module of what Inductor compiles; it is large, and stays away until something is compiled.
OUTPUT_CODE = "torch._inductor.output_code"


@contextmanager
def compiled_as_one(region: Region) -> Iterator[Callable[[], bool]]:
    """Hands every compiled region that runs to ``region(operands, run, changed)`` while entered:
    ``changed`` numbers the operands that it changes in place. Yields a function that says whether
    something is being compiled at the moment.
    """
    with ExitStack() as stack:
        compiling: list[Any] = []

        def begin(args: Any) -> None:
            compiling.append(args)
            _watch(region, stack)

        def end(_: Any) -> None:
            compiling.clear()

        callback_handler.register_start_callback(begin)
        stack.callback(callback_handler.remove_start_callback, begin)
        callback_handler.register_end_callback(end)
        stack.callback(callback_handler.remove_end_callback, end)
        if OUTPUT_CODE in sys.modules:
            _watch(region, stack)
        yield lambda: bool(compiling)


def _watch(region: Region, stack: ExitStack) -> None:
    from torch._inductor.output_code import CompiledFxGraph

    plain = CompiledFxGraph.__call__
    if getattr(plain, "watched", False):
        return

    def watched(self: Any, inputs: Sequence[Any]) -> Any:
        operands = list(inputs)  # the region empties its list, to free memory early

        def run() -> Any:
            with _disable_current_modes():
                return plain(self, inputs)

        return region(operands, run, sorted(getattr(self, "mutated_input_idxs", ())))

    watched.watched = True  # type: ignore[attr-defined]
    CompiledFxGraph.__call__ = watched  # type: ignore[method-assign]
    stack.callback(setattr, CompiledFxGraph, "__call__", plain)


def of_others(func: Any) -> bool:
    """Returns whether an operation is no more than others that PyTorch calls for it. Dispatch shows
    these, but under ``torch.inference_mode()``, which leaves out the step that calls them."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    own = any(has(func.name(), key) for key in ("CPU", "CUDA"))
    return bool(has(func.name(), "CompositeImplicitAutograd")) and not own


with torch.inference_mode():
    _INFERENCE = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    )


def called_for(func: Any, args: Any, kwargs: Any, mode: TorchDispatchMode) -> Any:
    """Calls these others under a mode, as PyTorch's own dispatch does: its ``decompose`` takes
    Python's formulas where there are some, as of GRU, which give different bits; and inside a mode
    the views of weights ask for no gradients, by which ``matmul`` chooses its kernel."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch._C._ForceDispatchKeyGuard(*_INFERENCE))
        stack.enter_context(mode)
        return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def modules(root: torch.nn.Module) -> dict[torch.nn.Module, str]:
    """Returns a module and all in it with their paths, each once: as ``named_modules``, in a third
    of the time, which a model of milliseconds feels."""
    found: dict[torch.nn.Module, str] = {}

    def into(module: torch.nn.Module, name: str) -> None:
        if module not in found:
            found[module] = name
            for key, one in module._modules.items():
                if one is not None:
                    into(one, f"{name}.{key}")

    into(root, "")
    return found


def weights_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields its own parameters and buffers with their names."""
    for every in (module._parameters, module._buffers):
        yield from ((name, one) for name, one in every.items() if one is not None)


# Returns what tells a storage from others while it lives.
storage_address = attrgetter("_cdata")

# Returns an operation's schema: its name, arguments and results.
schema = attrgetter("_schema")

# Returns which of the operations of its name an operation is.
overload = attrgetter("_overloadname")

_EXPIRED, _FREE = torch.UntypedStorage._expired, torch.UntypedStorage._free_weak_ref


class Held:
    """Holds a weak reference to a storage, so that its address stays its own."""

    __slots__ = ("_held",)

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._held = storage._weak_ref()

    def expired(self) -> bool:
        """Returns whether the storage has died."""
        return bool(_EXPIRED(self._held))

    def __del__(self, free: Callable[[int], None] = _FREE) -> None:
        free(self._held)  # not by a global name, which is gone when Python ends


def packed_in(value: torch.ScriptObject) -> tuple[str, Any]:
    """Returns the type of an object of C++, such as packed weights, and what it holds; None where
    it can't be written to a file."""
    name = str(value._type().qualified_name().rpartition(".")[2])
    try:
        return name, value.__getstate__()
    except Exception:
        return name, None

"""Functions compiled by ``torch.compile``: each compiled region of a recorded run is one
operation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch._dynamo.callback import callback_handler
from torch.utils._python_dispatch import _disable_current_modes

Region = Callable[[Sequence[Any], Callable[[], Any], Sequence[int]], Any]
OUTPUT_CODE = "torch._inductor.output_code"
"""The module of what Inductor compiles; it is large, and stays away until something is compiled."""


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

        callback_handler.register_start_callback(begin)
        stack.callback(callback_handler.remove_start_callback, begin)
        end: Callable[[Any], None] = lambda _: compiling.clear()  # noqa: E731
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

"""Functions compiled by ``torch.compile``: each compiled region of a recorded run is one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

Region = Callable[[Sequence[Any], Callable[[], Any], str], Any]


@contextmanager
def compiled_as_one(region: Region) -> Iterator[None]:
    """Hands every compiled region that runs to ``region(operands, run, name)`` while entered."""
    try:
        from torch._inductor.output_code import CompiledFxGraph
    except ImportError:  # built without its compiler: nothing can be compiled
        yield
        return
    plain = CompiledFxGraph.__call__

    def watched(self: Any, inputs: Sequence[Any]) -> Any:
        operands = list(inputs)  # the region empties its list, to free memory early

        def run() -> Any:
            with _disable_current_modes():
                return plain(self, inputs)

        return region(operands, run, "compiled")

    CompiledFxGraph.__call__ = watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        CompiledFxGraph.__call__ = plain  # type: ignore[method-assign]

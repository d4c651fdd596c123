"""Why the same convolution gives other bits when only length, batch, device or version changed.

The public names. Each is imported when it is first used, so ``import probe`` costs nothing:

>>> import probe
>>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=8, length=40)
>>> results = probe.load("results/prefix_stability")  # doctest: +SKIP

The rooms are modules of their own: ``probe.ulp``, ``probe.window``, ``probe.sweep``, ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.case import Case as Case
    from probe.launch import Session as Session
    from probe.store import Store as Store
    from probe.store import merge as merge
    from probe.store.results import Results as Results
    from probe.store.results import load as load
    from probe.target import Target as Target

_HOMES = {
    "Case": "case",
    "Results": "store.results",
    "Session": "launch",
    "Store": "store",
    "Target": "target",
    "load": "store.results",
    "merge": "store",
}
_ROOMS = (
    "errors floats ulp schema stable backends operands case window runtimes target worker machine "
    "launch store sweep order kernels explain search network remedies reproduction plots notebook"
).split()

__all__ = ["Case", "Results", "Session", "Store", "Target", "load", "merge"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"probe.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return import_module(f"probe.{name}")
    if name == "__version__":
        return import_module("probe.machine").version()
    raise AttributeError(f"probe.{name}: there is no such name; there are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_ROOMS])

"""Why the same convolution gives other bits when only length, batch, device or version changed.

Ask in Python as on the command line; ``help(probe.explain)`` and the like say everything:

    probe.sweep(case, lengths, target)          at which lengths bits differ, and by how much
    probe.explain(case, target, at, against)    why two runs differ, proved by replay
    probe.order(case, target)                   in which order every output is added
    probe.order(f, n)                           the same of any function that adds n numbers
    probe.network(model, target)                where a network changes with its padding
    probe.remedies(case, lengths, target)       what keeps the bits, and what it costs
    probe.reproduce(case, target, at, against, out=DIR)    the folder for a bug report

A target is a text such as "tensorflow,onednn=0", as `probe targets` lists them, or a
``probe.Target``. Each returns an answer: three lines when it is printed, the picture in a notebook,
``to_json()`` the object that the command prints with --json, ``found`` all that was measured.

>>> import probe
>>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=8, length=40)
>>> probe.explain(case, "tensorflow,onednn=0", 5, 40)  # doctest: +SKIP
>>> results = probe.load("results/prefix_stability")  # doctest: +SKIP

Everything is imported when it is first used, so ``import probe`` costs nothing. The rooms are
modules of their own: ``probe.ulp``, ``probe.window``, ``probe.search``, ...; ``probe.backends``
says how a library of your own becomes a target.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.answers.explain import explain as explain
    from probe.answers.network import network as network
    from probe.answers.order import order as order
    from probe.answers.remedies import remedies as remedies
    from probe.answers.reproduce import reproduce as reproduce
    from probe.answers.sweep import sweep as sweep
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
    "reproduce": "answers.reproduce",
}
_ROOMS = (
    "errors public floats ulp schema stable backends operands case window runtimes target worker "
    "machine launch store sweep order kernels explain thresholds search network remedies "
    "reproduction plots notebook answers"
).split()

__all__ = [
    *("Case", "Results", "Session", "Store", "Target", "load", "merge"),
    *("explain", "network", "order", "remedies", "reproduce", "sweep"),
]


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

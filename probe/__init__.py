"""Explains why the same convolution, dense layer or model gives slightly different numbers.

Floating-point addition is not associative, and libraries choose the order of additions by shape,
device and version. The functions are those of the command line; ``help(probe.explain)`` and the
like describe their arguments:

    probe.examine(model, x)                     which operation, why, the fix, its cost, a report
    probe.sweep(case, lengths, target)          finds the lengths at which bits differ
    probe.explain(case, target, at, against)    explains why two runs differ, proved by replay
    probe.order(case, target)                   reveals in which order every output is added
    probe.order(f, n)                           does so for any function that adds n numbers
    probe.network(model, target)                finds what padding changes in a network
    probe.first_difference(f, g)                finds the first operation at which two runs differ
    probe.network(model, vary="batch", at=1, against=8)    does so for two runs of one model
    probe.record(f, out=DIR)                    records a run, to compare it elsewhere
    probe.diff(DIR, DIR)                        compares two recorded runs
    probe.diff(pieces=[f, g], whole=h)          tells rounding from mistakes of a model in pieces
    probe.remedies(case, lengths, target)       measures what keeps the bits, and its cost
    probe.thresholds(case, target)               finds which sizes add alike, and the floor
    probe.reproduce(case, target, at, against, out=DIR)    writes the folder for a bug report
    probe.assert_same_bits(a, b)                fails with where, how far, and why two values differ

A target is a library with its version, device and switches: a text such as "tensorflow,onednn=0",
as `probe targets` lists them, or a ``probe.Target``. Each function returns a result that prints as
three lines and shows a picture in a notebook; ``to_json()`` is the object that the command prints
with --json, and ``found`` has everything that was measured.

>>> import probe
>>> case = probe.Case(op="conv1d", kernel=5, in_channels=64, filters=8, length=40)
>>> probe.explain(case, "tensorflow,onednn=0", 5, 40)  # doctest: +SKIP
>>> results = probe.load("results/prefix_stability")  # doctest: +SKIP

Everything is imported when it is first used, so ``import probe`` costs nothing. ``probe.ROOMS``
lists the rooms along the flow; each says what is in it (``import probe.case.ulp``, ``from
probe.order import replay``), and ``probe.targets.backends`` how a library of your own becomes a
target.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.case.case import Case as Case
    from probe.sweep.store import Store as Store
    from probe.sweep.store import merge as merge
    from probe.sweep.stored import Results as Results
    from probe.sweep.stored import load as load
    from probe.targets.launch import Session as Session
    from probe.targets.target import Target as Target
    from probe.ui.answers.cases import explain as explain
    from probe.ui.answers.cases import order as order
    from probe.ui.answers.cases import thresholds as thresholds
    from probe.ui.answers.examine import examine as examine
    from probe.ui.answers.first_difference import first_difference as first_difference
    from probe.ui.answers.network import network as network
    from probe.ui.answers.network import remedies as remedies
    from probe.ui.answers.reproduce import reproduce as reproduce
    from probe.ui.answers.same_bits import assert_same_bits as assert_same_bits
    from probe.ui.answers.schedule import diff as diff
    from probe.ui.answers.sweep import sweep as sweep
    from probe.ui.answers.two_runs import record as record

_HOMES = {
    "Case": "case.case",
    "Results": "sweep.stored",
    "Session": "targets.launch",
    "Store": "sweep.store",
    "Target": "targets.target",
    "assert_same_bits": "ui.answers.same_bits",
    "diff": "ui.answers.schedule",
    "examine": "ui.answers.examine",
    "explain": "ui.answers.cases",
    "first_difference": "ui.answers.first_difference",
    "load": "sweep.stored",
    "merge": "sweep.store",
    "network": "ui.answers.network",
    "order": "ui.answers.cases",
    "record": "ui.answers.two_runs",
    "remedies": "ui.answers.network",
    "reproduce": "ui.answers.reproduce",
    "sweep": "ui.answers.sweep",
    "thresholds": "ui.answers.cases",
}
# The flow: a room imports only those above it.
ROOMS = {
    "case": "what is computed, and how bits are compared",
    "targets": "where: a library, its version, device and switches",
    "order": "in which order each output is added, with which roundings: revealed, then replayed",
    "sweep": "cases x targets x lengths: run, compared and stored",
    "explain": "why two runs differ, of one case or of a whole store",
    "record": "any program of a library, operation by operation",
    "diff": "what of two runs must agree, found by running; where they part",
    "sizes": "at which sizes the bits stay: thresholds, padding, fixes, the invariant mode",
    "report": "a smaller case, and the folder for a bug report",
    "ui": "functions, commands, and bits that tests accept",
}

__all__ = [*_HOMES]


class _Package(ModuleType):
    """Six functions have the name of a room (``order``, ``explain``, ...): an import of something
    in such a room would put the room here in the function's place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from probe.targets.unchanged import leaves_unchanged, unchanged

        with unchanged():  # a library that is imported here may draw random numbers
            value = getattr(import_module(f"probe.{_HOMES[name]}"), name)
        value = value if isinstance(value, type) else leaves_unchanged(value)
        globals()[name] = value
        return value
    if name == "stable":
        return import_module("probe.sizes.stable")
    if name in ROOMS:
        return import_module(f"probe.{name}")
    if name == "__version__":
        return import_module("probe.targets.machine").version()
    raise AttributeError(f"probe.{name}: there is no such name; there are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *ROOMS, "stable"])

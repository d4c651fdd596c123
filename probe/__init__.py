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

Everything is imported when it is first used, so ``import probe`` costs nothing. The rooms are
modules of their own, which ``probe.ROOMS`` lists along the flow: ``probe.ulp``, ``probe.window``,
``probe.summation``, ...; ``probe.backends`` says how a library of your own becomes a target.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.answers.cases import explain as explain
    from probe.answers.cases import order as order
    from probe.answers.cases import thresholds as thresholds
    from probe.answers.examine import examine as examine
    from probe.answers.first_difference import diff as diff
    from probe.answers.first_difference import first_difference as first_difference
    from probe.answers.network import network as network
    from probe.answers.network import remedies as remedies
    from probe.answers.record import record as record
    from probe.answers.reproduce import reproduce as reproduce
    from probe.answers.same_bits import assert_same_bits as assert_same_bits
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
    "assert_same_bits": "answers.same_bits",
    "diff": "answers.first_difference",
    "examine": "answers.examine",
    "explain": "answers.cases",
    "first_difference": "answers.first_difference",
    "load": "store.results",
    "merge": "store",
    "network": "answers.network",
    "order": "answers.cases",
    "record": "answers.record",
    "remedies": "answers.network",
    "reproduce": "answers.reproduce",
    "sweep": "answers.sweep",
    "thresholds": "answers.cases",
}
# The flow, a line a room: a room imports only those above it. Each is a name of ``probe``.
ROOMS = {
    "errors": "what was wrong, in one line",
    "supervisor": "the process that hears Ctrl-C for a command, and ends what does not end",
    "progress": "how far long work is, reported on stderr",
    "printing": "how results and bars are printed",
    "floats": "formats: bits, values, and correct rounding between them",
    "memory": "whether a run fits into what is free",
    "trust": "what a model's file would run, found out before its library reads it",
    "unchanged": "what is given, and the process, as they were",
    "ulp": "the only comparison: bits, and units in the last place",
    "semantics": "what the engine of sums must be told of an operation, whatever the library",
    "schema": "the columns of the store",
    "geometry": "windows: padding, output sizes, what each output reads",
    "layout": "how operands lie in memory",
    "operation": "the table of operations, with sizes and options",
    "stable": "convolutions and dense layers that keep their bits at every length",
    "backends": "libraries by name",
    "operands": "generated operands, whose bits never change",
    "arguments": "what people write, turned into checked values",
    "shard": "one of several parts of a command's questions",
    "budget": "how long a command may run, and what ends a question when the time is up",
    "case": "what is computed",
    "window": "which inputs each output reads, and so which outputs must agree",
    "runtimes": "old releases, and processors that qemu stands in for",
    "target": "where a case is computed: a library, its version, device and switches",
    "worker": "the child process, inside the target's interpreter",
    "machine": "facts of the machine that may be published",
    "launch": "the child's parent: its environment, requests and failures",
    "installation": "installing what a target lacks here",
    "store": "rows, written atomically and merged by key",
    "campaign": "many questions run on targets: starts, restarts, failures, progress, Ctrl-C",
    "sweeps": "cases x targets x lengths: run, compared and stored",
    "cluster": "shards run on other machines, by Dask",
    "summation": "in which order each output is added: revealed, then replayed",
    "enclosure": "all results that rounding can give: what lies outside is a bug",
    "kernels": "the kernels that the library itself reports",
    "comparison": "two runs: which outputs must agree, what differs, and why",
    "explaining": "why two runs differ, of one case or of a whole store",
    "recording": "any program, operation by operation, and each of them run alone",
    "recorders": "a recorder for each library: its operations and what each computes",
    "agreement": "which elements of two runs must agree, found by repeating them; where they part",
    "sizes": "at which sizes, and since which release, a target or a model gives the same bits",
    "invariant": "the same bits at every batch and length; what else keeps them, and what it costs",
    "shrink": "a smaller case that fails in the same way",
    "plots": "pictures of answers",
    "reproduction": "the folder for a bug report",
    "answers": "the functions below, and what they return",
    "lock": "bits that were accepted, checked in tests, and why they changed",
    "cli": "the command line",
}

__all__ = [*_HOMES]

# Whether this process runs a command or is started by probe, so that no user's code imports here.
OWN_PROCESS = False


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from probe.unchanged import leaves_unchanged, unchanged

        with unchanged():  # a library that is imported here may draw random numbers
            value = getattr(import_module(f"probe.{_HOMES[name]}"), name)
        value = value if isinstance(value, type) else leaves_unchanged(value)
        globals()[name] = value
        return value
    if name in ROOMS:
        return import_module(f"probe.{name}")
    if name == "__version__":
        return import_module("probe.machine").version()
    raise AttributeError(f"probe.{name}: there is no such name; there are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *ROOMS])

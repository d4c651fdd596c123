"""Which class each operation of a model runs in: found when a shape is first met, then kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import torch

from probe.invariant.classes import Entry, Plan, Sizes
from probe.invariant.report import NotInvariant, Report
from probe.invariant.table import Table, anew
from probe.invariant.torch_calls import Rows, Runner, Tensors

ASKED = 6  # operations whose telling operands are kept


class Known:
    """An operation with one number of threads, ready to run."""

    def __init__(self, operation: Rows, sizes: Sizes, keeper: Keeper) -> None:
        self.sizes, self.keeper, self.run = sizes, keeper, Runner(operation)
        self.plans = sizes.plans

    def plan(self, count: int) -> Plan | None:
        """As ``Sizes.plan``; what is not known yet is found by one thread at a time."""
        with self.keeper.lock:
            found = self.sizes.plan(count)
            self.keeper.remember(self.run.operation)
        return found

    def __call__(self, samples: Tensors, parameters: Tensors = ()) -> Any:
        """The operation in its class; as it is, and reported, where there is no way."""
        count = len(samples[0])
        plan = self.plans.get(count) or self.plan(count)
        if plan is None:
            threads = torch.get_num_threads()
            why = f"no size was found at which {threads} threads give the chosen bits everywhere"
            self.keeper.leave(self.run.operation.key, why)
            return self.run.operation.call(samples, parameters)
        return self.run(plan, samples, parameters)


class Keeper:
    """All operations of one model. ``threads``: with which classes are chosen."""

    def __init__(self, table: Table, strict: bool) -> None:
        self.table, self.strict, self.report = table, strict, Report(table)
        self.threads = table.threads
        self.lock = threading.RLock()
        self.length = max(table.sizes.get("length", (1,)))
        self.batch = max(table.sizes["batch"])
        self._asked: OrderedDict[str, Rows] = OrderedDict()
        self._settled: set[tuple[str, int]] = set()

    def leave(self, operation: str, why: str) -> None:
        """Notes an operation that runs as it is. NotInvariant with ``strict``."""
        if self.strict:
            raise NotInvariant(operation, why)
        self.report.left.setdefault(operation, why)

    def known(self, operation: Rows, axis: str) -> Known:
        """An operation with the threads there are now; ``axis``: as of ``_wanted``."""
        with self.lock:
            threads = torch.get_num_threads()
            there = operation.key in self.table.entries
            entry = self.table.entries.setdefault(operation.key, Entry())
            self._settle(operation, entry, axis, there)
            sizes = Sizes(operation, entry, threads)
            sizes.notes = self.table.notes
            if (operation.key, threads) not in self._settled:
                self.table.recheck(sizes)
                self._settled.add((operation.key, threads))
            self.remember(operation)
            self.report.operations[operation.key, threads] = operation
            return Known(operation, sizes, self)

    def remember(self, operation: Rows) -> None:
        """Keeps the operands of the operations that were asked last, and forgets the others'."""
        self._asked[operation.key] = operation
        self._asked.move_to_end(operation.key)
        while len(self._asked) > ASKED:
            self._asked.popitem(last=False)[1].forget()

    def _settle(self, operation: Rows, entry: Entry, axis: str, there: bool) -> None:
        """Chooses the class with the number of threads that there was when the model was made.

        ``there``: it stands in the table that was read, and is checked.
        """
        if (operation.key, self.threads) in self._settled:
            return
        now = torch.get_num_threads()
        try:
            torch.set_num_threads(self.threads)
            sizes = Sizes(operation, entry, self.threads)
            if there:
                self.table.recheck(sizes)
                anew(sizes, *self._wanted(axis), self.table.notes)
            else:
                sizes.choose(*self._wanted(axis))
            self.table.notes += [sizes.doubts] if sizes.doubts else []
        finally:
            torch.set_num_threads(now)
        self._settled.add((operation.key, self.threads))

    def _wanted(self, axis: str) -> tuple[int, str, list[int]]:
        """The largest size, which class, and the sizes that count for the cheapest.

        ``axis``: ``batch``, ``length``, or ``rows``: of the samples of a batch and their lengths.
        """
        batches, lengths = self.table.sizes["batch"], self.table.sizes.get("length", (1,))
        if axis == "length":
            return self.length, "largest", []
        if axis == "batch":
            return self.batch, self.table.like, list(batches)
        wanted = {batch * length for batch in batches for length in lengths}
        return self.batch * self.length, self.table.like, sorted(wanted)

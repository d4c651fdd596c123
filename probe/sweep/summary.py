"""Summarises a sweep by bits, by target: counts, differences, failures, what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe.case.schema import NULL_INT
from probe.order import window
from probe.sweep.campaign import Failure
from probe.sweep.printing import ranges


@dataclass(frozen=True)
class DifferingRun:
    """One comparison with differing outputs.

    ``max_ulp`` is None where no distance is a number; ``first`` is a flat index into the left
    output. ``control`` other than ``equal``: the same shape gives different bits too, so this says
    nothing about the axis.
    """

    case_id: str
    at: int
    outputs: int
    max_ulp: int | None
    first: int
    control: str | None


@dataclass
class TargetSummary:
    """What one target's part of a sweep found, the comparisons that were stored before included.

    ``kept``: of the differing outputs, those that are rows of a store, if there is one.
    ``left_out``: the values of the axis that there was no time for, by case.
    """

    target: str
    run_id: str | None = None
    comparisons: int = 0
    stored_before: int = 0
    compared: int = 0
    not_compared: int = 0
    differing: int = 0
    max_ulp: int | None = 0
    nondeterministic: int = 0
    alignment: int = 0
    signed_zero: int = 0
    kept: int = 0
    differences: list[DifferingRun] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    left_out: dict[str, list[int]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any], before: bool = False) -> None:
        """Counts a row of ``comparisons``, or one that stands for several (``rows``) which agree.

        ``before``: it had been stored by an earlier sweep.
        """
        # a sweep's answer has thousands of rows that agree: they come as one, with their sums
        rows = row.get("rows", 1)
        self.comparisons += rows
        self.stored_before += rows * before
        self.compared += row["compared"]
        self.not_compared += row["not_compared"]
        self.differing += row["differing"]
        self.signed_zero += row.get("signed_zero") or 0
        self.nondeterministic += row["control"] == "differs"
        self.alignment += row["control"] == "alignment differs"
        if not row["differing"]:
            return
        difference = DifferingRun(*(row[name] for name in _DIFFERENCE))
        if not self.differences:
            self.max_ulp = difference.max_ulp
        elif difference.max_ulp is not None:
            self.max_ulp = max(self.max_ulp or 0, difference.max_ulp)
        self.differences.append(difference)
        self.kept += row.get("kept", 0)

    def add_columns(self, columns: Mapping[str, Any]) -> None:
        """Counts rows of ``comparisons`` that are given by columns; those that agree at once."""
        agree = np.array([control in ("equal", None) for control in columns["control"]])
        agree &= columns["differing"] == 0
        for row in np.flatnonzero(~agree).tolist():
            counted = {name: columns[name][row] for name in _COUNTED}
            missing = columns["max_ulp"][row] == NULL_INT
            counted["max_ulp"] = None if missing else int(columns["max_ulp"][row])
            counted |= {
                name: int(counted[name]) for name in ("at", "first", "differing", "compared")
            }
            self.add(
                {
                    "case_id": columns["case_id"],
                    **counted,
                    "not_compared": int(counted["not_compared"]),
                }
            )
        if agree.any():
            sums = {name: int(columns[name][agree].sum()) for name in ("compared", "not_compared")}
            zeros = sum(zero or 0 for zero in np.array(columns["signed_zero"], object)[agree])
            same = {"control": "equal", "differing": 0, "signed_zero": zeros}
            self.add({"rows": int(agree.sum()), **sums, **same})

    def to_json(self, vary: str, cases: int = 1) -> dict[str, Any]:
        """Returns what ``probe sweep --json`` says of it; with several cases, ``lengths`` have
        ``case``."""
        lengths = []
        for run in sorted(self.differences, key=lambda run: (run.case_id, run.at)):
            entry: dict[str, Any] = {
                vary: window.shown_axis_value(vary, run.at),
                "outputs": run.outputs,
                "max_ulp": run.max_ulp,
                "first": run.first,
            }
            lengths.append({"case": run.case_id} | entry if cases > 1 else entry)
        return {
            "compared": self.compared,
            "differing": self.differing,
            "max_ulp": self.max_ulp,
            "signed_zero": self.signed_zero,
            "lengths": lengths,
            "not_compared": self.not_compared,
            "comparisons": self.comparisons,
            "stored_before": self.stored_before,
            "nondeterministic": self.nondeterministic,
            "alignment": self.alignment,
            "failures": [vars(failure) for failure in self.failures],
        }

    @property
    def unasked(self) -> int:
        return sum(map(len, self.left_out.values()))

    def unasked_json(self, vary: str, cases: int = 1) -> dict[str, Any]:
        """Returns what was left out: ``comparisons`` and ``lengths``, these by case if several."""
        by_case = {
            case: ranges(values, len(values))
            if vary != "layout"
            else ", ".join(window.shown_axis_value(vary, value) for value in values)
            for case, values in self.left_out.items()
        }
        where = by_case if cases > 1 else next(iter(by_case.values()), "")
        return {"comparisons": self.unasked, "lengths": where}


_COUNTED = ("at", "compared", "not_compared", "differing", "signed_zero", "first", "control")
_DIFFERENCE = ("case_id", "at", "differing", "max_ulp", "first", "control")


@dataclass
class Summary:
    """A whole sweep. ``against``: the longest value of ``vary``, with which all were compared.

    ``store``: the folder written to, None if nothing was kept. ``interrupted``: it was ended by
    Ctrl-C; what had been measured by then is counted here and stored. ``budget``: the seconds that
    it was given, None: it had no limit.
    """

    vary: str
    against: int
    cases: int
    store: str | None = None
    seconds: float = 0.0
    interrupted: bool = False
    targets: dict[str, TargetSummary] = field(default_factory=dict)
    budget: float | None = None

    @property
    def left_out(self) -> int:
        return sum(summary.unasked for summary in self.targets.values())

    @property
    def differing(self) -> int:
        return sum(summary.differing for summary in self.targets.values())

    @property
    def failures(self) -> list[Failure]:
        return [failure for summary in self.targets.values() for failure in summary.failures]

    def to_json(self) -> dict[str, Any]:
        """Returns the object that ``probe sweep --json`` prints: one target's at the top level."""
        about = {
            "store": self.store,
            "vary": self.vary,
            "against": window.shown_axis_value(self.vary, self.against),
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
        }
        parts = {
            name: summary.to_json(self.vary, self.cases) for name, summary in self.targets.items()
        }
        if self.store is not None:
            for name, part in parts.items():
                part["kept"] = self.targets[name].kept
        if self.budget is not None:
            about["time"] = self.budget
            for name, part in parts.items():
                part["left_out"] = self.targets[name].unasked_json(self.vary, self.cases)
        if len(parts) == 1:
            ((name, part),) = parts.items()
            return part | {"target": name} | about
        return {"targets": parts} | about

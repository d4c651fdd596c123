"""What ``probe.explain.conventions.measure`` stored, by target and case, as a notebook draws it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from probe import floats
from probe.case import Case
from probe.store.results import Results


@dataclass(frozen=True)
class Reading:
    """The windows and outputs of one case on one target.

    ``reads``: int64 (groups, positions, leaves), flat indices into x, -1 for padding. ``outputs``:
    float64 (batch, *spatial, filters). ``as_said``: whether all windows lie where the case's
    padding says. ``counted``: what an average divides by, (positions,), else None. ``pad_with``:
    what padding puts into pooling, else empty.
    """

    target: str
    case: Case
    reads: np.ndarray
    outputs: np.ndarray
    as_said: bool
    counted: np.ndarray | None
    pad_with: str

    @property
    def around(self) -> list[tuple[int, int]]:
        """Padding before and after each axis, told from what the first and last windows read.

        After: up to the end of the last window, negative where inputs behind it are never read.
        """
        case, found = self.case, []
        for axis, size in enumerate(case.spatial()):
            starts = self.starts(axis)
            after = starts[-1] + case.effective_kernel[axis] - size
            found.append((-int(starts[0]), int(after)))
        return found

    def starts(self, axis: int) -> np.ndarray:
        """Where each output's window begins on an axis, int64 (outputs,); below 0 in padding."""
        case = self.case
        spatial = case.spatial()
        kernel = np.unravel_index(
            np.arange(self.reads.shape[2]) // case.group_channels, case.kernel
        )
        read = np.where(self.reads[0] < 0, 0, self.reads[0]) // case.in_channels
        place = np.unravel_index(read % int(np.prod(spatial)), spatial)[axis]
        begin = place - kernel[axis] * case.dilation[axis]
        held = self.reads[0] >= 0
        first = np.where(held.any(axis=1), begin[np.arange(len(held)), held.argmax(axis=1)], -1)
        shape = (case.batch, *self.outputs.shape[1:-1])
        along = np.moveaxis(first.reshape(shape), 1 + axis, 0).reshape(shape[1 + axis], -1)
        return along.max(axis=1)


class Readings:
    """Every reading of a store: the newest run of every target counts."""

    def __init__(self, results: Results) -> None:
        self.results = results
        runs = results.runs.sort_values("started").groupby("target").tail(1)
        self._windows = self._of(results.windows, runs)
        self._outputs = self._of(results.outputs, runs)
        self._failures = self._of(results.failures, runs)
        self._read: dict[tuple[str, str], Reading] = {}

    def _of(self, rows: pd.DataFrame, runs: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
        kept = rows[rows.run_id.isin(runs.run_id)]
        return {(str(t), str(c)): found for (t, c), found in kept.groupby(["target", "case_id"])}

    @cached_property
    def cases(self) -> dict[Case, str]:
        """The id under which each case is stored."""
        table = self.results.cases
        return {
            Case.from_json(text): case for text, case in zip(table.json, table.case_id, strict=True)
        }

    def __call__(self, target: str, case: Case) -> Reading:
        """The reading of a case on a target. KeyError where there is none."""
        key = target, self.cases[case]
        if key not in self._read:
            self._read[key] = self._reading(target, case, key)
        return self._read[key]

    def _reading(self, target: str, case: Case, key: tuple[str, str]) -> Reading:
        windows = self._windows[key].sort_values(["group", "position"])
        groups = windows.group.nunique()
        reads = np.array(windows.reads.tolist(), np.int64)
        outputs = self._outputs[key].sort_values("index")
        kind = floats.container(case.dtype).itemsize
        bits = outputs.bits.to_numpy(np.uint64).astype(f"u{kind}")
        values = floats.widen(floats.from_bits(bits, case.dtype), case.dtype)
        averages = windows.counted.notna().all()
        return Reading(
            *(target, case, reads.reshape(groups, -1, reads.shape[1])),
            *(values.reshape(case.output_shape()), bool(windows.as_said.all())),
            windows.counted.to_numpy(np.int64)[: len(windows) // groups] if averages else None,
            str(windows.pad_with.dropna().iloc[0]) if windows.pad_with.notna().any() else "",
        )

    def all(self) -> Iterator[Reading]:
        """Every reading."""
        named = {case_id: case for case, case_id in self.cases.items()}
        for target, case_id in self._windows:
            yield self(target, named[case_id])

    def refusal(self, target: str, case: Case) -> str:
        """Why a target could not run a case; empty where it could."""
        found = self._failures.get((target, self.cases.get(case, "")))
        return "" if found is None else str(found.message.iloc[-1])

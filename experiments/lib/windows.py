"""Reads and draws the windows that ``lib.conventions`` stored.

On a line and on a map: blue is read, grey and hatched is padding; a row or a colour is one output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from lib import pictures
from lib.notebook import newest
from probe.case import floats
from probe.case.case import Case
from probe.report.plots import DIFFERS, QUIET, STABLE
from probe.sweep.stored import Results


@dataclass(frozen=True)
class Reading:
    """The windows and outputs of one case on one target.

    ``reads``: int64 (groups, positions, leaves), flat indices into x, -1 for padding. ``outputs``:
    float64 (batch, *spatial, filters). ``as_said``: whether all windows lie where the case's
    padding says. ``counted``: what an average divides by, (positions,), else None.
    """

    target: str
    case: Case
    reads: np.ndarray
    outputs: np.ndarray
    as_said: bool
    counted: np.ndarray | None

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
        self._windows, self._outputs, self._failures = (
            {
                (str(target), str(case_id)): rows
                for (target, case_id), rows in newest(results, table).groupby(["target", "case_id"])
            }
            for table in ("windows", "outputs", "failures")
        )
        self._read: dict[tuple[str, str], Reading] = {}

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
        kind = floats.container_of_format(case.dtype).itemsize
        bits = outputs.bits.to_numpy(np.uint64).astype(f"u{kind}")
        values = floats.widen(floats.from_bits(bits, case.dtype), case.dtype)
        averages = windows.counted.notna().all()
        return Reading(
            *(target, case, reads.reshape(groups, -1, reads.shape[1])),
            *(values.reshape(case.output_shape()), bool(windows.as_said.all())),
            windows.counted.to_numpy(np.int64)[: len(windows) // groups] if averages else None,
        )

    def all(self) -> Iterator[Reading]:
        named = {case_id: case for case, case_id in self.cases.items()}
        for target, case_id in self._windows:
            yield self(target, named[case_id])

    def refusal(self, target: str, case: Case) -> str:
        """Why a target could not run a case; empty where it could."""
        found = self._failures.get((target, self.cases.get(case, "")))
        return "" if found is None else str(found.message.iloc[-1])


READ, PADDING, INPUT = "#8ecae6", "#dee2e6", "#ffffff"

SHADES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
"""Colours of windows that lie over each other, after Okabe and Ito."""

VERDICTS = {
    "the same windows": "#e9ecef",
    "windows moved": "#f8961e",
    "a different number of outputs": "#7b1e6d",
    "refused": "#ffffff",
}
"""How the windows of one library relate to those of another."""


def line(
    axes: Axes,
    reading: Reading,
    inputs: Sequence[float],
    weights: Sequence[float] | None = None,
    right: Sequence[float] | None = None,
    room: int = 0,
) -> None:
    """A one-dimensional case with one channel a group: inputs above, below them a row an output.

    ``weights``: written where they meet an input; None: not written. ``right``: the outputs that
    are right; others are red. ``room``: padding for which to leave room on both sides, so that
    several pictures have one scale.
    """
    case, starts = reading.case, reading.starts(0)
    size, (before, after) = case.spatial()[-1], reading.around[-1]
    after = max(after, 0)
    for place in range(-before, size + after):
        inside = 0 <= place < size
        _cell(axes, place, 0, INPUT if inside else PADDING, f"{inputs[place]:g}" if inside else "0")
    outputs = reading.outputs.reshape(len(starts), -1)[:, 0]
    for row, (start, value) in enumerate(zip(starts, outputs, strict=True)):
        for tap in range(case.kernel[-1]):
            place = int(start) + tap * case.dilation[-1]
            colour = READ if 0 <= place < size else PADDING
            _cell(axes, place, row + 1.4, colour, "" if weights is None else f"{weights[tap]:g}")
        good = right is None or (row < len(right) and right[row] == value)
        look: dict[str, Any] = {"va": "center", "weight": "bold", "fontsize": 12}
        look["color"] = STABLE if good else DIFFERS
        axes.text(size + max(after, room) + 0.25, row + 1.9, f"= {value:g}", **look)
    left, end = max(before, room), size + max(after, room)
    axes.set(xlim=(-left - 0.2, end + 1.3), ylim=(len(starts) + 1.7, -0.35))
    axes.set_aspect("equal", anchor="NW")
    axes.axis("off")


def _cell(axes: Axes, x: float, y: float, colour: str, text: str) -> None:
    hatch = "////" if colour == PADDING else None
    look: dict[str, Any] = {"facecolor": colour, "edgecolor": "#adb5bd", "hatch": hatch}
    axes.add_patch(Rectangle((x, y), 1, 0.92, lw=0.8, **look))
    weight = "bold" if colour == READ else "normal"
    axes.text(x + 0.5, y + 0.46, text, ha="center", va="center", weight=weight)


def map_of_windows(
    axes: Axes,
    reading: Reading,
    show: Sequence[tuple[int, int]] = ((0, 0),),
    dots: bool = True,
    room: int = 0,
) -> None:
    """A two-dimensional case: the input as a grid, padding around it, and some windows framed.

    ``show``: output positions whose windows are framed. ``dots``: a dot in the middle of the window
    of every output. ``room``: as in ``line``.
    """
    case = reading.case
    height, width = case.spatial()
    (top, bottom), (left, right) = reading.around
    bottom, right = max(bottom, 0), max(right, 0)
    area = Rectangle((-left, -top), left + width + right, top + height + bottom)
    area.set(facecolor=PADDING, edgecolor="#adb5bd", hatch="////", lw=0)
    axes.add_patch(area)
    axes.add_patch(Rectangle((0, 0), width, height, facecolor=INPUT, edgecolor="none"))
    for x in range(-left, width + right + 1):
        axes.plot([x, x], [-top, height + bottom], color="#ced4da", lw=0.6, zorder=1)
    for y in range(-top, height + bottom + 1):
        axes.plot([-left, width + right], [y, y], color="#ced4da", lw=0.6, zorder=1)
    axes.add_patch(Rectangle((0, 0), width, height, facecolor="none", edgecolor="black", lw=1.6))
    rows, columns = reading.starts(0), reading.starts(1)
    tall, wide = case.effective_kernel
    if dots:
        across, down = np.meshgrid(columns + wide / 2, rows + tall / 2)
        axes.plot(across.ravel(), down.ravel(), "o", color="#495057", ms=3.5, zorder=3)
    for (row, column), colour in zip(show, SHADES * len(show), strict=False):
        corner = columns[column] + 0.06, rows[row] + 0.06
        frame = Rectangle(corner, wide - 0.12, tall - 0.12, lw=2.4, edgecolor=colour, zorder=4)
        frame.set_facecolor((colour, 0.25))
        axes.add_patch(frame)
    wall, roof = max(left, room) + 0.3, max(top, room) + 0.3
    end, floor = max(right, room) + 0.3, max(bottom, room) + 0.3
    axes.set(xlim=(-wall, width + end), ylim=(height + floor, -roof))
    axes.set_aspect("equal")
    axes.axis("off")


def map_legend(figure: Figure, framed: str, dots: bool = True) -> None:
    """Draws what the marks of :func:`map_of_windows` are; ``framed``: the windows that are."""
    handles: list[Artist] = [
        Patch(facecolor=INPUT, edgecolor="black", label="input"),
        Patch(facecolor=PADDING, edgecolor="#adb5bd", hatch="////", label="padding"),
        Patch(facecolor=(SHADES[0], 0.25), edgecolor=SHADES[0], label=framed),
    ]
    if dots:
        look: dict[str, Any] = {"ls": "", "marker": "o", "color": "#495057", "ms": 3.5}
        handles.append(Line2D([], [], label="middle of an output's window", **look))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)


def verdict(one: Reading | None, other: Reading) -> str:
    """How ``one`` reads compared with ``other``: a name in ``VERDICTS``."""
    if one is None:
        return "refused"
    if one.outputs.shape != other.outputs.shape:
        return "a different number of outputs"
    return "the same windows" if np.array_equal(one.reads, other.reads) else "windows moved"


def verdicts(axes: Axes, verdict: pd.DataFrame, text: pd.DataFrame) -> None:
    """A table of ``VERDICTS``, each a coloured cell with its ``text``; missing: left white."""
    pictures.cells(axes, verdict.map(VERDICTS.get).fillna("#ffffff"), text.fillna(""))
    axes.tick_params(labelsize=7)


def verdict_legend(
    figure: Figure, names: Sequence[str] = tuple(VERDICTS), title: str | None = None
) -> None:
    """Draws what the colours of ``verdicts`` mean; ``title``: and the text of a cell."""
    patches = [Patch(facecolor=VERDICTS[name], edgecolor=QUIET, label=name) for name in names]
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": len(patches)}
    figure.legend(handles=patches, title=title, title_fontsize=8, fontsize=8, **place)


def channels(axes: Axes, reading: Reading) -> None:
    """Draws which channels every filter reads: a column a channel, a row a filter."""
    case = reading.case
    axes.set(xlim=(-0.1, case.in_channels + 0.1), ylim=(case.filters + 0.1, -0.1))
    width = case.filters // case.groups
    for filter_ in range(case.filters):
        held = reading.reads[filter_ // width]
        read = set((held[held >= 0] % case.in_channels).tolist())
        for channel in range(case.in_channels):
            colour = SHADES[(filter_ // width) % len(SHADES)] if channel in read else INPUT
            axes.add_patch(
                Rectangle((channel, filter_), 0.92, 0.92, facecolor=colour, edgecolor="#adb5bd")
            )
    axes.set_xticks(np.arange(case.in_channels) + 0.46, [str(c) for c in range(case.in_channels)])
    axes.set_yticks(np.arange(case.filters) + 0.46, [str(f) for f in range(case.filters)])
    axes.tick_params(length=0)
    axes.set(xlabel="channel", ylabel="filter")
    axes.set_aspect("equal")
    for spine in axes.spines.values():
        spine.set_visible(False)

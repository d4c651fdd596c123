"""A worker's answers as rows of the store's tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np

from probe import backends, floats, machine, schema
from probe.arguments import by
from probe.case import Case
from probe.runtimes.runtime import Missing
from probe.target import Target, runtime

Size: TypeAlias = "int | np.ndarray"

_SATURATED = 2**63 - 1
_COLUMNS = ("at", "compared", "differing", "max_ulp", "first", "seconds")


def run_row(
    where: Target,
    facts: Mapping[str, Any],
    variables: Mapping[str, str],
    experiment: str | None = None,
) -> dict[str, Any]:
    """The row of ``runs`` for a started target; ``facts`` empty where it did not start."""
    keys = backends.get(where.name).keys
    switches = {key: one.default for key, one in keys.items()} | dict(where.switches)
    names = ("library", "library_version", "python_version", "numpy_version")
    row = {
        "started": datetime.fromtimestamp(time.time(), UTC),
        "experiment": experiment,
        "target": where.text,
        "device": where.device,
        "switches": switches,
        "environment": dict(variables),
        **{name: facts.get(name) for name in names},
        **machine.facts(),
        **_processor(where),
    }
    return {"run_id": schema.run_id(row), **row}


def _processor(where: Target) -> dict[str, Any]:
    """What an emulated target's processor is, instead of this machine's; {} for a native one."""
    try:
        ran = runtime(where)
    except Missing:
        return {}
    return machine.emulating(ran.emulated, where.device) if ran.emulated else {}


def case_row(case: Case) -> dict[str, Any]:
    """The row of ``cases``."""
    same = ("op", "in_channels", "filters", "groups", "length", "batch", "dtype", "seed")
    return {
        "case_id": case.id,
        **{name: getattr(case, name) for name in (*same, "summands")},
        "kernel": by(case.kernel),
        "stride": by(case.stride),
        "dilation": by(case.dilation),
        "padding": case.padding_text,
        "height": None if case.height is None else by(case.height),
        "operands": case.kind,
        "json": case.to_json(),
    }


def comparison_rows(
    pair: dict[str, Any],
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    not_compared: Mapping[int, int],
) -> list[dict[str, Any]]:
    """Rows of ``comparisons`` of one answer to a ``sweep`` request, one for each item.

    ``pair``: the key columns other than ``at``. ``not_compared``: by value of the axis.
    """
    found = {name: arrays[name].tolist() for name in _COLUMNS} | {
        name: header[name] for name in ("control", "digest_at", "digest_against")
    }
    found["not_compared"] = [not_compared[at] for at in found["at"]]
    by_row = zip(*found.values(), strict=True)
    rows = [pair | dict(zip(found, values, strict=True)) for values in by_row]
    for row in rows:
        row["kept"], row["max_scaled"] = row["differing"], None
        row["max_ulp"] = None if row["max_ulp"] < 0 else row["max_ulp"]
        row["first"] = None if row["first"] < 0 else row["first"]
    return rows


def difference_columns(
    pair: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[int, tuple[int, ...]],
    dtype: str,
    scale: np.ndarray,
) -> dict[str, Any]:
    """Columns of ``differences`` of one answer, one item after the other, each in order of index.

    ``shapes``: the output shape by value of the axis, (batch, *spatial, filters). ``scale``:
    sum|x*w|, float64, of the shape of the output at ``against``; the difference of two values is
    divided by it and by eps, NaN where that is no number.
    """
    at, times = arrays["at"], arrays["differing"]
    index = arrays["index"]
    sizes = np.array([_sizes(shapes[int(value)]) for value in at], np.int64).reshape(-1, 3)
    rows, positions, filters = np.repeat(sizes, times, axis=0).T
    ulps = arrays["ulps"]
    scaled = _scaled(arrays, dtype, scale)
    return {
        **pair,
        "at": np.repeat(at, times),
        "index": index,
        **_place(index, rows, positions, filters),
        "bits_at": arrays["bits_at"].astype(np.uint64),
        "bits_against": arrays["bits_against"].astype(np.uint64),
        "ulp": np.where(np.abs(ulps) == _SATURATED, schema.NULL_INT, ulps),
        "scaled": scaled,
    }


def output_columns(
    pair: Mapping[str, Any], at: int, output: np.ndarray, dtype: str
) -> dict[str, Any]:
    """Columns of ``outputs``: every element of an output, (batch, *spatial, filters), container."""
    names = ("run_id", "case_id", "target", "vary")
    index = np.arange(output.size)
    rows, positions, filters = _sizes(output.shape)
    return {
        **{name: pair[name] for name in names},
        "at": at,
        "index": index,
        **_place(index, rows, positions, filters),
        "bits": floats.to_bits(output, dtype).reshape(-1).astype(np.uint64),
    }


def _place(index: np.ndarray, rows: Size, positions: Size, filters: Size) -> dict[str, np.ndarray]:
    """Where flat indices into outputs are; the sizes may change from one index to the next."""
    return {
        "batch": index // (rows * positions * filters),
        "row": index // (positions * filters) % rows,
        "position": index // filters % positions,
        "channel": index % filters,
    }


def _sizes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Rows, positions and filters of an output shape."""
    positions = shape[-2] if len(shape) > 2 else 1
    return int(np.prod(shape[1:-2], dtype=np.int64)), positions, shape[-1]


def _scaled(arrays: Mapping[str, np.ndarray], dtype: str, scale: np.ndarray) -> np.ndarray:
    left, right = (
        floats.widen(floats.from_bits(arrays[name], dtype), dtype)
        for name in ("bits_at", "bits_against")
    )
    with np.errstate(all="ignore"):
        scaled = (right - left) / (floats.eps(dtype) * scale.reshape(-1)[arrays["index_against"]])
    return np.where(np.isfinite(scaled), scaled, np.nan)


def largest_scaled(scaled: np.ndarray, times: np.ndarray) -> list[float | None]:
    """The largest |scaled| of each item, None where it has no number. ``times``: rows by item."""
    ends = np.cumsum(times)
    found: list[float | None] = []
    for start, end in zip((ends - times).tolist(), ends.tolist(), strict=True):
        part = np.abs(scaled[start:end])
        numbers = part[~np.isnan(part)]
        found.append(float(numbers.max()) if numbers.size else None)
    return found


def kept(ulps: np.ndarray, times: np.ndarray, keep: int) -> np.ndarray:
    """Which rows stay (bool): of every item the first ``keep`` and the one with the most ulps."""
    ends = np.cumsum(times)
    mask = np.zeros(len(ulps), bool)
    for start, end in zip((ends - times).tolist(), ends.tolist(), strict=True):
        if end > start:
            mask[start : min(end, start + keep)] = True
            part = ulps[start:end]
            size = np.where(part == schema.NULL_INT, _SATURATED, np.abs(part))
            mask[start + int(np.argmax(size))] = True
    return mask

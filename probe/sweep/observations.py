"""A worker's answers as rows of the store's tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from probe import floats, schema
from probe.sweep.plan import Plan

Size: TypeAlias = "int | np.ndarray"

_SATURATED = 2**63 - 1
_COLUMNS = ("at", "compared", "differing", "max_ulp", "first", "seconds")


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
    rows: list[dict[str, Any]],
    arrays: Mapping[str, np.ndarray],
    plan: Plan,
    most: int | None,
) -> dict[str, Any]:
    """Columns of ``differences`` of one answer, one item after the other, each in order of index.

    The difference of two values is divided by eps and by sum|x*w|, NaN where that is no number.
    ``rows``: the answer's comparisons, which get their ``max_scaled`` and how many are ``kept``:
    with ``most`` so many of each, the first ones, and the one with the most ulps.
    """
    at, times, index = arrays["at"], arrays["differing"], arrays["index"]
    sizes = np.array([_sizes(plan.shapes[int(value)]) for value in at], np.int64).reshape(-1, 3)
    ulps, scaled = arrays["ulps"], _scaled(arrays, plan.base.dtype, plan.scale)
    ulps = np.where(np.abs(ulps) == _SATURATED, schema.NULL_INT, ulps)
    mask = np.ones(len(index), bool) if most is None else np.zeros(len(index), bool)
    ends = np.cumsum(times)
    for row, start, end in zip(rows, ends - times, ends, strict=True):
        numbers = np.abs(scaled[start:end])
        numbers = numbers[~np.isnan(numbers)]
        row["max_scaled"] = float(numbers.max()) if numbers.size else None
        if most is not None and end > start:
            part = ulps[start:end]
            size = np.where(part == schema.NULL_INT, _SATURATED, np.abs(part))
            mask[start : min(end, start + most)] = True
            mask[start + int(np.argmax(size))] = True
        row["kept"] = int(mask[start:end].sum())
    columns = {
        "at": np.repeat(at, times),
        "index": index,
        **_place(index, *np.repeat(sizes, times, axis=0).T),
        "bits_at": arrays["bits_at"].astype(np.uint64),
        "bits_against": arrays["bits_against"].astype(np.uint64),
        "ulp": ulps,
        "scaled": scaled,
    }
    return {**pair, **{name: column[mask] for name, column in columns.items()}}


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

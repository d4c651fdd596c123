"""Convolutions, pools that add and transposed convolutions as cases of the engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from probe.case import Case
from probe.errors import InputError
from probe.recording.meaning import Windows
from probe.recording.view import AsCase, Part, Phase


def windows(
    meaning: Windows, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], dtype: str
) -> AsCase:
    """A convolution, or a pool that adds."""
    if meaning.kind in ("average", "sum"):
        return _pool(meaning, shapes[0], out, dtype)
    if meaning.kind != "convolution":
        raise InputError(
            "kind", meaning.kind, "only sums of products in windows can be written as a case", ""
        )
    number, weights = meaning.reads[0], meaning.reads[1]
    shape, rank = shapes[number], len(meaning.spatial)
    batch = [a for a in range(len(shape)) if a not in meaning.spatial and a != meaning.channels]
    order = [*batch, *meaning.spatial, meaning.channels]
    spatial = tuple(shape[axis] for axis in meaning.spatial)
    channels, filters = shape[meaning.channels], out[meaning.channels]
    b = meaning.reads[2] if len(meaning.reads) > 2 else None
    case = Case(
        f"conv{rank}d",
        kernel=meaning.kernel,
        stride=meaning.stride,
        dilation=meaning.dilation,
        in_channels=channels,
        filters=filters,
        groups=meaning.groups,
        padding=tuple(tuple(pair) for pair in meaning.padding),
        batch=prod(shape[axis] for axis in batch),
        length=spatial[-1],
        height=spatial[:-1] or None,
        dtype=dtype,
        bias=None if b is None else "normal",
    )
    if b is not None and prod(shapes[b]) != filters:
        raise InputError("bias", shapes[b], "it is not one number for each filter", "")
    positions = tuple(out[axis] for axis in meaning.spatial)
    if case.output_spatial() != positions:
        raise InputError("windows", positions, f"the case has {case.output_spatial()}", "")
    return AsCase(
        case,
        x=Part.of(number, shape, order, case.batch, *spatial, channels),
        w=Part.of(weights, shapes[weights], meaning.weights, *case.weight_shape),
        b=None if b is None else Part.of(b, shapes[b], range(len(shapes[b])), filters),
        y=Part.of(0, out, order, case.batch, *positions, filters),
    )


def _pool(meaning: Windows, shape: tuple[int, ...], out: tuple[int, ...], dtype: str) -> AsCase:
    """A mean, or a sum, of windows: a convolution of each channel by itself with weights of 1."""
    rank, channels = len(meaning.spatial), shape[meaning.channels]
    batch = [a for a in range(len(shape)) if a not in meaning.spatial and a != meaning.channels]
    order = [*batch, *meaning.spatial, meaning.channels]
    spatial = tuple(shape[axis] for axis in meaning.spatial)
    positions = tuple(out[axis] for axis in meaning.spatial)
    padding = []
    for k, (before, _) in enumerate(meaning.padding):  # behind, as far as the last window reaches
        extent = (meaning.kernel[k] - 1) * meaning.dilation[k] + 1
        reach = (positions[k] - 1) * meaning.stride[k] + extent
        padding.append((before, max(reach - before - spatial[k], 0)))
    case = Case(
        f"conv{rank}d",
        kernel=meaning.kernel,
        stride=meaning.stride,
        dilation=meaning.dilation,
        in_channels=channels,
        filters=channels,
        groups=channels,
        padding=tuple(padding),
        batch=prod(shape[axis] for axis in batch),
        length=spatial[-1],
        height=spatial[:-1] or None,
        dtype=dtype,
    )
    if case.output_spatial() != positions:
        raise InputError("windows", positions, f"the case has {case.output_spatial()}", "")
    return AsCase(
        case,
        x=Part.of(0, shape, order, case.batch, *spatial, channels),
        w=None,
        b=None,
        y=Part.of(0, out, order, case.batch, *positions, channels),
        divides=meaning.kind == "average",
        pooled=True,
    )


def transposed(
    meaning: Windows, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], dtype: str
) -> list[AsCase]:
    """A transposed convolution: outputs a stride apart are a convolution with some of the taps."""
    if meaning.groups > 1:
        raise InputError("groups", meaning.groups, "of a transposed convolution", "")
    phases = itertools.product(*(range(step) for step in meaning.stride))
    found = [_phase(meaning, shapes, out, dtype, phase) for phase in phases]
    return [one for one in found if one is not None]


def _phase(
    meaning: Windows,
    shapes: Sequence[tuple[int, ...]],
    out: tuple[int, ...],
    dtype: str,
    phase: tuple[int, ...],
) -> AsCase | None:
    """Outputs at ``phase`` + n strides; None where there are none, or they read nothing."""
    number, weights = meaning.reads[:2]
    shape, rank = shapes[number], len(meaning.spatial)
    taps, dilation, padding, outputs = [], [], [], []
    for k, axis in enumerate(meaning.spatial):
        step, before = meaning.stride[k], meaning.padding[k][0]
        offsets = {
            t: (phase[k] + before - t * meaning.dilation[k]) // step
            for t in range(meaning.kernel[k])
            if (phase[k] + before - t * meaning.dilation[k]) % step == 0
        }
        count = len(range(phase[k], out[axis], step))
        if not offsets or not count:
            return None
        taps.append(sorted(offsets, key=lambda t: offsets[t]))
        places = sorted(offsets.values())
        dilation.append(places[1] - places[0] if len(places) > 1 else 1)
        padding.append((-places[0], count - 1 + places[-1] - (shape[axis] - 1)))
        outputs.append(count)
    if min(map(min, padding)) < 0:
        raise InputError("padding", meaning.padding, "some of the input is never read", "")
    batch = [a for a in range(len(shape)) if a not in meaning.spatial and a != meaning.channels]
    order = [*batch, *meaning.spatial, meaning.channels]
    spatial = tuple(shape[axis] for axis in meaning.spatial)
    filters, b = out[meaning.channels], meaning.reads[2] if len(meaning.reads) > 2 else None
    case = Case(
        f"conv{rank}d",
        kernel=tuple(map(len, taps)),
        dilation=tuple(dilation),
        in_channels=shape[meaning.channels],
        filters=filters,
        padding=tuple(padding),
        batch=prod(shape[axis] for axis in batch),
        length=spatial[-1],
        height=spatial[:-1] or None,
        dtype=dtype,
        bias=None if b is None else "normal",
    )
    every, axes = slice(None), tuple(meaning.weights)
    steps = [slice(first, None, step) for first, step in zip(phase, meaning.stride, strict=True)]
    own, all_ = shapes[weights], (every,) * len(batch)
    return AsCase(
        case,
        x=Part.of(number, shape, order, case.batch, *spatial, shape[meaning.channels]),
        w=Phase(weights, own, own, axes, case.weight_shape, (*taps, every, every)),
        b=None if b is None else Part.of(b, shapes[b], range(len(shapes[b])), filters),
        y=Phase(
            *(0, out, out, tuple(order), (case.batch, *outputs, filters)),
            (*all_, *steps, every),
        ),
    )

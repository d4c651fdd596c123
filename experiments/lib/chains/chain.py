"""Defines a layer with its operands, and a chain of layers with its shapes.

A layer is one operation: a Keras layer with a bias and an activation is a convolution with a bias
and an activation behind it. Arrays are channels-last, in the network's dtype, as in
:mod:`probe.case`; padding, stride, dilation, groups and pooling have the words of a case.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lib.chains.geometry import Geometry, ReceptiveField, windows
from probe import memory, operation
from probe.arguments import by, padding_text
from probe.case import Case
from probe.errors import InputError
from probe.geometry import Padding, WindowSizes
from probe.operation import SPLICE

ONES = (1, 1, 1)


@dataclass(frozen=True, eq=False)
class Layer(operation.Layer):
    """One operation. ``kernel``, ``stride``, ``dilation`` are empty where it has no window.

    ``weights`` (*kernel, in_channels / groups, filters), of ``dense`` (1, in_channels, filters);
    ``bias`` (filters,) or None; ``scale`` and ``shift`` (in_channels,), of ``normalisation``
    alone. ``parameters``: of an activation (``alpha``), and ``value`` of ``pad``. ``filters``:
    channels of the output. ``tail``: what a splice puts behind its ``kept`` first positions.
    """

    name: str
    op: str
    in_channels: int
    filters: int
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    padding: Padding = "valid"
    groups: int = 1
    ceil_mode: bool = False
    pad_with: str = "nothing"
    activation: str = ""
    parameters: Mapping[str, float] = field(default_factory=dict)
    weights: np.ndarray | None = None
    bias: np.ndarray | None = None
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None
    tail: np.ndarray | None = None
    kept: int = 0

    @property
    def windowed(self) -> bool:
        """Returns whether an output may read more than its own position, or another one."""
        return self.operation.windows or self.op == "pad"

    @property
    def sums(self) -> bool:
        """Whether outputs are sums of products, whose order and rounding can be revealed."""
        return self.operation.sums

    @cached_property
    def windows(self) -> WindowSizes:
        """Returns where its windows lie; without any, every output reads its own position."""
        if self.kernel:
            return super().windows
        return WindowSizes(ONES, ONES, ONES, self.padding if self.op == "pad" else "valid")

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays that it has, by name."""
        found = {
            name: getattr(self, name) for name in ("weights", "bias", "scale", "shift", "tail")
        }
        return {name: array for name, array in found.items() if array is not None}

    def output_sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the spatial sizes behind it; 0 where no window fits."""
        if self.tail is not None:
            return (*sizes[:-1], self.kept + self.tail.shape[-2])
        return self.windows.outputs(sizes)

    def case(self, sizes: tuple[int, ...], dtype: str = "float32") -> Case:
        """Returns the layer as a case of an input of these spatial sizes, whose operands it has.

        Raises InputError where it is no case (an activation, ``pad``), and where no window fits.
        """
        common: dict[str, Any] = {"in_channels": self.in_channels, "dtype": dtype}
        if self.sums:
            common |= {"filters": self.filters, "bias": None if self.bias is None else "normal"}
        if self.op == "dense":
            return Case("matmul", length=int(np.prod(sizes)), **common)
        if not self.operation.windows:
            raise InputError(
                "layer", self.name, f"{self.op} has no windows", "choose a different layer"
            )
        if self.pool:
            common |= {"ceil_mode": self.ceil_mode, "pad_with": self.pad_with}
        return Case(
            self.op,
            self.kernel,
            length=sizes[-1],
            height=sizes[:-1] or None,
            stride=self.stride,
            dilation=self.dilation,
            padding=self.padding,
            groups=self.groups,
            **common,
        )

    def spec(self, dtype: str) -> dict[str, Any]:
        """Returns what a worker builds it from: ``Case.spec``, or ``op`` and its words."""
        if self.op == "dense":
            one = (1,)
            return replace(self, op="matmul", kernel=one, stride=one, dilation=one).spec_in(dtype)
        if self.operation.windows:
            return self.spec_in(dtype)
        found: dict[str, Any] = {"op": self.op, "dtype": dtype, "channels": self.in_channels}
        if self.op == "activation":
            found |= {"activation": self.activation}
        if self.op == "pad":
            found |= {"padding": [list(pair) for pair in self.padding]}
        if self.op == SPLICE:
            assert self.tail is not None
            found |= {"kept": self.kept, "behind": self.tail.shape[-2]}
        return found | {"parameters": dict(self.parameters)}

    def operands(self, dtype: str) -> dict[str, np.ndarray]:
        """Returns a request's arrays beside x: ``w`` and ``b``, or ``scale`` and ``shift``.

        Pooling has weights of 1 in ``dtype``, as its case has; no library sees them.
        """
        if self.pool:
            return {"w": np.ones((*self.kernel, 1, self.filters), dtype)}
        names = {"weights": "w", "bias": "b"}
        return {names.get(name, name): array for name, array in self.arrays.items()}

    def swapped(self) -> Layer:
        """Returns the layer with its two spatial axes, and those of its weights, exchanged."""
        pads = self.padding if isinstance(self.padding, str) else self.padding[::-1]
        weights = self.weights
        if weights is not None and self.kernel:
            weights = np.ascontiguousarray(np.swapaxes(weights, 0, 1))
        return replace(
            self,
            kernel=self.kernel[::-1],
            stride=self.stride[::-1],
            dilation=self.dilation[::-1],
            padding=pads,
            weights=weights,
        )

    @property
    def label(self) -> str:
        """Returns a short text for tables and figures: ``conv2d 1x5, 16 -> 16``."""
        channels = f"{self.in_channels} -> {self.filters}"
        if not self.kernel:
            what = self.activation or self.op
            return f"{what} {channels}" if self.sums else what
        parts = [f"{self.op} {by(self.kernel)}"]
        parts += [channels] * self.sums
        parts += [f"stride {by(self.stride)}"] * (set(self.stride) != {1})
        parts += [f"dilation {by(self.dilation)}"] * (set(self.dilation) != {1})
        parts += [padding_text(self.padding)] * (self.padding != "valid")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Returns the words of a description, with all numbers."""
        found: dict[str, Any] = {"name": self.name, "op": self.op}
        if self.kernel:
            found |= {"kernel": by(self.kernel), "stride": by(self.stride)}
            found |= {"dilation": by(self.dilation)} if set(self.dilation) != {1} else {}
        if self.windowed and self.padding != "valid":
            found["padding"] = padding_text(self.padding)
        if self.sums:
            found |= {"filters": self.filters, "groups": self.groups}
        if self.pool:
            found |= {"ceil_mode": self.ceil_mode, "pad_with": self.pad_with}
        if self.activation:
            found["activation"] = self.activation
        if self.parameters:
            found["parameters"] = dict(self.parameters)
        return found | {name: array.tolist() for name, array in self.arrays.items()}


def check_dtype(dtype: str) -> str:
    """Returns the dtype itself. InputError where networks are not run in it."""
    if dtype not in ("float32", "float64", "float16"):
        why = "networks are run in float32, float64 or float16"
        raise InputError("dtype", dtype, why, "convert the model")
    return dtype


@dataclass(frozen=True, eq=False)
class Network:
    """A chain of layers over ``rank`` spatial axes, channels last; frozen.

    The *length* is the last spatial axis, as in a case; ``height`` are the sizes of those before
    it (empty for one axis). ``fixed``: the length that the model was made for, None if it doesn't
    say. ``swapped``: that axis is the first spatial one of the model, and targets run it so.
    Layers are checked to fit
    each other. Raises InputError.
    """

    layers: tuple[Layer, ...]
    rank: int
    height: tuple[int, ...] = ()
    dtype: str = "float32"
    name: str = "network"
    fixed: int | None = None
    swapped: bool = False

    def __post_init__(self) -> None:
        if not self.layers:
            why = "no layer is supported"
            todo = "give a chain that begins with convolutions"
            raise InputError("network", self.name, why, todo)
        if len(self.height) != self.rank - 1:
            why = f"{len(self.height)} sizes for the {self.rank - 1} axes before the length"
            raise InputError("height", by(self.height) or None, why, "give one size for each")
        check_dtype(self.dtype)
        dense = next((layer for layer in self.layers if layer.op == "dense"), None)
        if self.swapped and self.height != (1,) and dense:
            why = "it multiplies rows of two axes, of which the model's first one is long"
            raise InputError("layer", dense.name, why, "end the chain before it, or height 1")
        for one, two in zip(self.layers, self.layers[1:], strict=False):
            if one.filters != two.in_channels:
                why = f"it takes {two.in_channels} channels, and {one.name} gives {one.filters}"
                raise InputError("layer", two.name, why, "correct the chain")
        self.sizes(self.shortest)

    @property
    def in_channels(self) -> int:
        """Channels of the input."""
        return self.layers[0].in_channels

    @property
    def filters(self) -> int:
        """Channels of the output."""
        return self.layers[-1].filters

    def sizes(self, length: int) -> list[tuple[int, ...]]:
        """Returns the spatial sizes of the input and of every layer's output.

        Raises InputError where a layer has none.
        """
        found = [(*self.height, length)]
        for layer in self.layers:
            found.append(layer.output_sizes(found[-1]))
            if min(found[-1]) < 1:
                why = f"{layer.name} ({layer.label}) gets an input of size {by(found[-2])}"
                why += ", which is smaller than its kernel"
                raise InputError("length", length, why, f"use {self.shortest} or more")
        return found

    @cached_property
    def shortest(self) -> int:
        """Returns the smallest length that gives an output; InputError if the height gives none."""
        lengths = range(1, 1 << 20)  # a longer input never gives fewer outputs
        if stopped := self._stops(lengths[-1]):
            layer, size = stopped
            if min(size[:-1], default=1) < 1:
                why = f"with it {layer.name} ({layer.label}) has no output"
                raise InputError("height", by(self.height), why, "use a larger one")
            why = "no length up to 2**20 gives an output"
            raise InputError("network", self.name, why, "check it")
        return lengths[bisect_left(lengths, True, key=lambda length: not self._stops(length))]

    def _stops(self, length: int) -> tuple[Layer, tuple[int, ...]] | None:
        """Returns the first layer without an output at a length, and the sizes behind it."""
        size = (*self.height, length)
        for layer in self.layers:
            size = layer.output_sizes(size)
            if min(size) < 1:
                return layer, size
        return None

    def input_shape(self, length: int) -> tuple[int, ...]:
        """Returns (1, *spatial, in_channels)."""
        return (1, *self.height, length, self.in_channels)

    def windows(self, length: int) -> list[ReceptiveField]:
        """Returns the receptive window of every layer's outputs at a length: field, jump, start."""
        return windows(self, length)

    def geometry(self, fixed: int) -> Geometry:
        """Returns which activations at the full length read content, and what shorter lengths give.

        InputError: running it at that length needs more memory than is free.
        """
        channels = [self.in_channels, *(layer.filters for layer in self.layers)]
        shapes = [(*size, n) for size, n in zip(self.sizes(fixed), channels, strict=True)]
        kept = memory.need((), shapes, self.dtype) // 2  # all activations, of both lengths
        largest = max(memory.need([shape], (), self.dtype) for shape in shapes)
        memory.room(kept + largest, "fixed", fixed)
        return Geometry(self, fixed)

    def with_(self, **changes: Any) -> Network:
        """Returns a copy with other fields."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Returns the description that ``description.load`` reads: layers with all numbers."""
        found: dict[str, Any] = {
            "name": self.name,
            "rank": self.rank,
            "height": list(self.height),
            "dtype": self.dtype,
            "fixed": self.fixed,
            "in_channels": self.in_channels,
        }
        found |= {"turned": True} if self.swapped else {}
        return found | {"layers": [layer.to_json() for layer in self.layers]}

    def row(self, fixed: int, source: str | None = None) -> dict[str, Any]:
        """Returns the row of ``networks``: windows at the full length, layers without numbers.

        ``source``: what ``description.load`` makes it from, where that is known.
        """
        last = self.windows(fixed)[-1]
        arrays = [set(layer.arrays) for layer in self.layers]
        words = self.to_json()
        words["layers"] = [
            {word: value for word, value in told.items() if word not in own}
            for told, own in zip(words["layers"], arrays, strict=True)
        ]
        return {
            "network_id": self.id,
            "name": self.name,
            "source": source,
            "layers": len(self.layers),
            "dtype": self.dtype,
            "in_channels": self.in_channels,
            "filters": self.filters,
            "field": last.field,
            "jump": last.jump,
            "json": words,
            "examined": len(self.layers),
            "operations_total": len(self.layers),
            "part": None,
        }

    def save(self, path: str | Path) -> None:
        """Writes the description. Errors: OSError."""
        Path(path).write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits that change with the computation or its numbers, not its names."""
        content: Mapping[str, Any] = self.to_json()
        told = {
            key: content[key] for key in ("rank", "height", "dtype", "turned") if key in content
        }
        told["layers"] = [
            {key: value for key, value in layer.items() if key != "name"}
            for layer in content["layers"]
        ]
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

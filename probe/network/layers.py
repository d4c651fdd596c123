"""One layer of a chain: what it computes, which inputs its outputs read, its weights.

A layer is one operation: a Keras layer with a bias and an activation is a convolution with a bias
and an activation behind it. Arrays are channels-last, in the network's dtype, as in
:mod:`probe.case`; padding, stride, dilation, groups and pooling have the words of a case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from probe import operation
from probe.arguments import by, padding_text
from probe.case import Case
from probe.errors import InputError
from probe.geometry import Padding, Windows
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
        """Whether an output may read more than its own position, or another one."""
        return self.operation.windows or self.op == "pad"

    @property
    def sums(self) -> bool:
        """Whether outputs are sums of products, whose order and rounding can be revealed."""
        return self.operation.sums

    @cached_property
    def windows(self) -> Windows:
        """Where its windows lie; without any, every output reads its own position."""
        if self.kernel:
            return super().windows
        return Windows(ONES, ONES, ONES, self.padding if self.op == "pad" else "valid")

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that it has, by name."""
        found = {
            name: getattr(self, name) for name in ("weights", "bias", "scale", "shift", "tail")
        }
        return {name: array for name, array in found.items() if array is not None}

    def output_sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Spatial sizes behind it; 0 where no window fits."""
        if self.tail is not None:
            return (*sizes[:-1], self.kept + self.tail.shape[-2])
        return self.windows.outputs(sizes)

    def case(self, sizes: tuple[int, ...], dtype: str = "float32", batch: int = 1) -> Case:
        """The case that it is for an input of these spatial sizes; its operands are the network's.

        InputError where it is none (an activation, ``pad``), and where no window fits.
        """
        common: dict[str, Any] = {"in_channels": self.in_channels, "dtype": dtype, "batch": batch}
        if self.sums:
            common |= {"filters": self.filters, "bias": None if self.bias is None else "normal"}
        if self.op == "dense":
            return Case("matmul", length=int(np.prod(sizes)), **common)
        if not self.operation.windows:
            raise InputError("layer", self.name, f"{self.op} has no windows", "ask another layer")
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
        """What a worker builds it from: ``Case.spec``, or an object with ``op`` and its words."""
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
        """The arrays of a worker's request beside x: ``w`` and ``b``, or ``scale`` and ``shift``.

        Pooling has weights of 1 in ``dtype``, as its case has; no library sees them.
        """
        if self.pool:
            return {"w": np.ones((*self.kernel, 1, self.filters), dtype)}
        names = {"weights": "w", "bias": "b"}
        return {names.get(name, name): array for name, array in self.arrays.items()}

    def swapped(self) -> Layer:
        """The layer with its two spatial axes in the other order, and its weights with them."""
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
        """A short text for tables and figures: ``conv2d 1x5, 16 -> 16``."""
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

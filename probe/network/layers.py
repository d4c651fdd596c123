"""One layer of a chain: what it computes, which inputs its outputs read, its weights.

A layer is one operation: a Keras layer with a bias and an activation is a convolution with a bias
and an activation behind it. Arrays are channels-last, in the network's dtype, as in
:mod:`probe.case`; padding, stride, dilation, groups and pooling have the words of a case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from probe.case import Case
from probe.case.arguments import by
from probe.case.operators import OPERATORS
from probe.case.padding import text
from probe.errors import InputError
from probe.geometry import Padding, Windows

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
POOLS = ("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d")
ELEMENTWISE = ("activation", "bias", "normalisation")
EXTEND = "extend"
"""The first ``kept`` positions, and constant activations behind them; plans alone have it."""

OPS = (*CONVOLUTIONS, *POOLS, "dense", "pad", *ELEMENTWISE)
"""``dense``: a matrix product over the channels of every position. ``pad``: a constant around the
spatial axes. ``normalisation``: times ``scale``, plus ``shift``, one of each a channel."""

ACTIVATIONS = (
    *("relu", "relu6", "leaky_relu", "sigmoid", "tanh", "softmax", "elu", "selu", "softplus"),
    *("softsign", "gelu", "silu", "hard_sigmoid", "exp"),
)
"""Functions of one element, or of the channels of one position (``softmax``)."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One operation. ``kernel``, ``stride``, ``dilation`` are empty where it has no window.

    ``weights`` (*kernel, in_channels / groups, filters), of ``dense`` (1, in_channels, filters);
    ``bias`` (filters,) or None; ``scale`` and ``shift`` (in_channels,), of ``normalisation``
    alone. ``parameters``: of an activation (``alpha``), and ``value`` of ``pad``. ``filters``:
    channels of the output.
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
        return bool(self.kernel) or self.op == "pad"

    @cached_property
    def windows(self) -> Windows:
        """Where its windows lie; without any, every output reads its own position."""
        ones = (1, 1, 1)
        if not self.kernel:
            return Windows(ones, ones, ones, self.padding if self.op == "pad" else "valid")
        up = self.ceil_mode or (self.padding == "caffe" and bool(self.pool))
        return Windows(self.kernel, self.stride, self.dilation, self.padding, up)

    def output_sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Spatial sizes behind it; 0 where no window fits."""
        if self.tail is not None:
            return (*sizes[:-1], self.kept + self.tail.shape[-2])
        return self.windows.outputs(sizes)

    @property
    def sums(self) -> bool:
        """Whether outputs are sums of products, whose order and rounding can be revealed."""
        return self.op in CONVOLUTIONS or self.op == "dense"

    @property
    def pool(self) -> str:
        """``max``, ``avg`` or empty."""
        return OPERATORS[self.op].pool if self.op in POOLS else ""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that it has, by name."""
        found = {
            name: getattr(self, name) for name in ("weights", "bias", "scale", "shift", "tail")
        }
        return {name: array for name, array in found.items() if array is not None}

    def case(self, sizes: tuple[int, ...], dtype: str = "float32", batch: int = 1) -> Case:
        """The case that it is for an input of these spatial sizes; its operands are the network's.

        InputError where it is none (an activation, ``pad``), and where no window fits.
        """
        common: dict[str, Any] = {"in_channels": self.in_channels, "dtype": dtype, "batch": batch}
        if self.sums:
            common |= {"filters": self.filters, "bias": None if self.bias is None else "normal"}
        if self.op == "dense":
            return Case("matmul", length=int(np.prod(sizes)), **common)
        if self.op not in CONVOLUTIONS and not self.pool:
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
        if self.sums or self.pool:
            return self._any_case(dtype).spec()
        found: dict[str, Any] = {"op": self.op, "dtype": dtype, "channels": self.in_channels}
        if self.op == "activation":
            found |= {"activation": self.activation}
        if self.op == "pad":
            found |= {"padding": [list(pair) for pair in self.padding]}
        if self.op == EXTEND:
            assert self.tail is not None
            found |= {"kept": self.kept, "behind": self.tail.shape[-2]}
        return found | {"parameters": dict(self.parameters)}

    def _any_case(self, dtype: str) -> Case:
        """Its case with every size left open or at the kernel's extent."""
        if self.op == "dense":
            return self.case((1,), dtype)
        return self.case(self.windows.extents, dtype)

    def operands(self, dtype: str) -> dict[str, np.ndarray]:
        """The arrays of a worker's request beside x: ``w`` and ``b``, or ``scale`` and ``shift``.

        Pooling has weights of 1 in ``dtype``, as its case has; no library sees them.
        """
        if self.pool:
            return {"w": np.ones((*self.kernel, 1, self.filters), dtype)}
        names = {"weights": "w", "bias": "b"}
        return {names.get(name, name): array for name, array in self.arrays.items()}

    @property
    def label(self) -> str:
        """A short text for tables and figures: ``conv2d 1x5, 16 -> 16``."""
        if not self.kernel:
            what = self.activation or self.op
            return f"{what} {self.in_channels} -> {self.filters}" if self.op == "dense" else what
        parts = [f"{self.op} {by(self.kernel)}"]
        parts += [f"{self.in_channels} -> {self.filters}"] * (self.op in CONVOLUTIONS)
        parts += [f"stride {by(self.stride)}"] * (set(self.stride) != {1})
        parts += [f"dilation {by(self.dilation)}"] * (set(self.dilation) != {1})
        parts += [text(self.padding)] * (self.padding != "valid")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The words of a description, with all numbers."""
        found: dict[str, Any] = {"name": self.name, "op": self.op}
        if self.kernel:
            found |= {"kernel": by(self.kernel), "stride": by(self.stride)}
            found |= {"dilation": by(self.dilation)} if set(self.dilation) != {1} else {}
        if self.windowed and self.padding != "valid":
            found["padding"] = text(self.padding)
        if self.sums:
            found |= {"filters": self.filters, "groups": self.groups}
        if self.pool:
            found |= {"ceil_mode": self.ceil_mode, "pad_with": self.pad_with}
        if self.activation:
            found["activation"] = self.activation
        if self.parameters:
            found["parameters"] = dict(self.parameters)
        return found | {name: array.tolist() for name, array in self.arrays.items()}

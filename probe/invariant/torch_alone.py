"""Layers of PyTorch that are called without a mode of functions, which costs more than a small one.

The forward of these modules is one call of a function that has an implementation here; that of a
``Sequential`` calls its modules one after the other. Whatever else there is, such as a module with
hooks, runs within the mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import (
    batch_norm,
    conv1d,
    conv2d,
    conv3d,
    gelu,
    layer_norm,
    linear,
    silu,
)
from torch.nn.modules.module import _has_any_global_hook

Run = Callable[[Any, Any], Any]
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Alone:
    """The modules that are known. ``quick``: implementations of functions; ``mode``: all others."""

    def __init__(self, quick: dict[Any, Callable[..., Any]], mode: Any) -> None:
        self.mode = mode
        convolutions = {nn.Conv1d: conv1d, nn.Conv2d: conv2d, nn.Conv3d: conv3d}
        self.runs: dict[type, Run] = {
            nn.Linear: _linear(quick[linear]),
            nn.LayerNorm: _layer_norm(quick[layer_norm]),
            nn.GELU: lambda module, x: quick[gelu](x, module.approximate),
            nn.Sequential: self._sequential,
            nn.SiLU: lambda module, x: quick[silu](x, module.inplace),
            nn.Tanh: lambda module, x: quick[torch.tanh](x),
            nn.Sigmoid: lambda module, x: quick[torch.sigmoid](x),
            nn.Dropout: lambda module, x: NotImplemented if module.training else x,
            **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.Identity, nn.Flatten), _as_it_is),
            **dict.fromkeys(NORMS, _batch_norm(quick[batch_norm])),
            **{one: _convolution(quick[function]) for one, function in convolutions.items()},
        }

    def of(self, module: Any) -> Run | None:
        """Returns what runs a module of an input; None: nothing does without the mode."""
        return None if "forward" in module.__dict__ else self.runs.get(type(module))

    def _sequential(self, module: Any, x: Any) -> Any:
        anywhere = _has_any_global_hook()
        for part in module._modules.values():
            there = part.__dict__
            hooked = anywhere or any(map(there.__getitem__, HOOKS))
            run = None if hooked or type(x) is not torch.Tensor else self.of(part)
            y = NotImplemented if run is None else run(part, x)
            if y is NotImplemented:
                with self.mode:
                    y = part(x)
            x = y
        return x


def _linear(quick: Callable[..., Any]) -> Run:
    def run(module: Any, x: Any) -> Any:
        held = module._parameters
        w = held.get("weight")
        return NotImplemented if w is None else quick(x, w, held["bias"])

    return run


def _convolution(quick: Callable[..., Any]) -> Run:
    def run(module: Any, x: Any) -> Any:
        held = module._parameters
        w = held.get("weight")
        if w is None or module.padding_mode != "zeros":
            return NotImplemented
        words = module.stride, module.padding, module.dilation, module.groups
        return quick(x, w, held["bias"], *words)

    return run


def _layer_norm(quick: Callable[..., Any]) -> Run:
    def run(module: Any, x: Any) -> Any:
        held = module._parameters
        if "weight" not in held:
            return NotImplemented
        return quick(x, module.normalized_shape, held["weight"], held["bias"], module.eps)

    return run


def _batch_norm(quick: Callable[..., Any]) -> Run:
    def run(module: Any, x: Any) -> Any:
        held, kept = module._parameters, module._buffers
        if module.training or "weight" not in held or kept.get("running_mean") is None:
            return NotImplemented
        module._check_input_dim(x)
        parts = kept["running_mean"], kept["running_var"], held["weight"], held["bias"]
        return quick(x, *parts, False, 0.0, module.eps)

    return run


def _as_it_is(module: Any, x: Any) -> Any:
    """A module that moves elements or rounds once."""
    return module.forward(x)

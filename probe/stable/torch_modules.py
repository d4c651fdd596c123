"""PyTorch's convolution modules on the prefix-stable convolution: the same words, the same state.

>>> from probe.stable import torch_modules
>>> model = torch_modules.stabilized(model)  # doctest: +SKIP
"""

import copy
from typing import Any

import torch

from probe.stable.torch import conv


class _Stable:
    """What replaces the call of ``torch.nn.functional`` in the three modules."""

    accumulate = None

    def _conv_forward(self: Any, input, weight, bias):
        if self.padding_mode != "zeros":
            why = "a stable convolution pads with zeros; pad before it"
            raise ValueError(f"padding_mode={self.padding_mode}: {why}")
        words = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        padding = self.padding
        if not isinstance(padding, str):
            padding = [(zeros, zeros) for zeros in padding]
        return conv(input, weight, bias, padding=padding, accumulate=self.accumulate, **words)


class Conv1d(_Stable, torch.nn.Conv1d):
    """``torch.nn.Conv1d``; the attribute ``accumulate`` is that of ``probe.stable.conv``."""


class Conv2d(_Stable, torch.nn.Conv2d):
    """``torch.nn.Conv2d``; the attribute ``accumulate`` is that of ``probe.stable.conv``."""


class Conv3d(_Stable, torch.nn.Conv3d):
    """``torch.nn.Conv3d``; the attribute ``accumulate`` is that of ``probe.stable.conv``."""


KINDS = {torch.nn.Conv1d: Conv1d, torch.nn.Conv2d: Conv2d, torch.nn.Conv3d: Conv3d}


def stabilized(model, accumulate=None):
    """A copy of a module in which every convolution is prefix-stable, with the same weights.

    Inputs need a batch axis. Other layers stay as they are: dense layers and normalisations over
    positions may still depend on the length.
    """
    made = copy.deepcopy(model)
    for module in made.modules():
        if type(module) in KINDS:
            module.__class__ = KINDS[type(module)]
            module.accumulate = accumulate
    return made

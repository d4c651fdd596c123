"""PyTorch modules, with the same arguments and state, on the prefix-stable operators.

>>> from probe.sizes.stable import torch_modules
>>> model = torch_modules.stabilized(model)  # doctest: +SKIP
>>> print(model.stable_report)  # what was replaced, and what was left  # doctest: +SKIP
"""

import copy
from typing import Any

import torch

from probe.sizes.stable.convolution import accumulator, check_format, normalised
from probe.sizes.stable.report import LayerReport
from probe.sizes.stable.torch import conv, dense
from probe.targets.unchanged import leaves_unchanged


class _StableTorchCall:
    """What replaces the call of ``torch.nn.functional`` in the convolutions."""

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


class Linear(torch.nn.Linear):
    """``torch.nn.Linear``; the attribute ``accumulate`` is that of ``probe.stable.dense``."""

    accumulate = None

    def forward(self, input):
        """Multiplies each row for itself."""
        return dense(input, self.weight, self.bias, self.accumulate)


class _Normalised:
    """Batch normalisation at inference: a scale and a shift. In training it is PyTorch's own."""

    accumulate = None

    def forward(self: Any, input):
        if self.training:
            return super().forward(input)  # type: ignore[misc]
        self._check_input_dim(input)
        wide = getattr(torch, accumulator(str(input.dtype).split(".")[-1], self.accumulate))
        wide = torch.promote_types(wide, self.running_mean.dtype)
        shape = [-1] + [1] * (input.dim() - 2)
        statistics = (self.running_mean, self.running_var, self.weight, self.bias)
        mean, variance, scale, shift = (
            each if each is None else each.to(wide).reshape(shape) for each in statistics
        )
        deviation = torch.sqrt(variance + self.eps)
        outputs = normalised(
            input.to(wide),
            (mean, scale, shift),
            deviation,
            lambda values: values.to(input.dtype).to(wide),
        )
        return outputs.to(input.dtype)


def _stable_module(first, name):
    """Returns PyTorch's class of a name with what replaces its call."""
    doc = "``torch.nn.%s``; the attribute ``accumulate`` is that of ``probe.stable``." % name
    return type(name, (first, getattr(torch.nn, name)), {"__module__": __name__, "__doc__": doc})


Conv1d, Conv2d, Conv3d = (_stable_module(_StableTorchCall, f"Conv{rank}d") for rank in (1, 2, 3))
BatchNorm1d, BatchNorm2d, BatchNorm3d = (
    _stable_module(_Normalised, f"BatchNorm{n}d") for n in (1, 2, 3)
)

KINDS = {
    getattr(torch.nn, kind.__name__): kind
    for kind in (Conv1d, Conv2d, Conv3d, Linear, BatchNorm1d, BatchNorm2d, BatchNorm3d)
}
CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


@leaves_unchanged
def stabilized(model, accumulate=None):
    """Copies a module with layers that depend on their own window or row alone.

    The copy has equal weights. Replaced are convolutions, Linear, and batch normalisation at
    inference (in training mode it takes means over the batch, as always). Inputs need a batch axis.
    Other layers stay as they are: recurrent layers, attention, layer normalisation, softmax and the
    like may still depend on the batch or the length. The copy's attribute ``stable_report`` lists
    what was replaced and left. Under a compiler that fuses (XLA), take ``accumulate="float64"``.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model={type(model).__name__}: it takes a torch.nn.Module")
    check_format(accumulate)
    stable = copy.deepcopy(model)
    inside: tuple[str, ...] = ()
    replaced: list[tuple[str, str]] = []
    left: list[tuple[str, str]] = []
    for name, module in stable.named_modules():
        kind = type(module)
        if name.startswith(inside):
            continue  # parts of a layer that is left as a whole
        if _replaceable(module):
            replaced.append((name, kind.__name__))
            module.__class__ = KINDS.get(kind, kind)
            module.accumulate = accumulate
        elif kind not in CONTAINERS:
            left.append((name, kind.__name__))
            if kind.__module__.startswith("torch."):
                inside += (f"{name}." if name else "",)
    stable.stable_report = LayerReport(tuple(replaced), tuple(left))
    return stable


def _replaceable(module):
    """Whether there is a stable module in its place; a stable one is its own."""
    kind, zeros = type(module), getattr(module, "padding_mode", "zeros") == "zeros"
    tracked = getattr(module, "track_running_stats", True)
    return kind in KINDS.values() or (kind in KINDS and zeros and tracked)

"""PyTorch modules, with the same arguments and state, on the prefix-stable operators.

>>> from probe.sizes.stable import torch_modules
>>> model = torch_modules.stabilized(model)  # doctest: +SKIP
>>> print(model.stable_report)  # what was replaced, and what was left  # doctest: +SKIP
"""

import copy
from math import lcm, prod
from typing import Any

import torch

from probe.sizes.stable.convolution import check_options
from probe.sizes.stable.report import LayerReport, exact
from probe.sizes.stable.torch import conv, dense, normalised
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
        statistics = self.running_mean, self.running_var, self.weight, self.bias, self.eps
        return normalised(input, *statistics, axis=1, accumulate=self.accumulate)


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
def stabilized(model, accumulate=None, strict=False):
    """Copies a module with layers that depend on their own window or row alone.

    The copy has equal weights. Replaced are convolutions, Linear, and batch normalisation at
    inference (in training mode it takes means over the batch, as always). Inputs need a batch axis.
    Other layers stay as they are: recurrent layers, attention, layer normalisation, softmax and the
    like may still depend on the batch or the length. The copy's attribute ``stable_report`` lists
    what was replaced, kept and left. Under a compiler that fuses (XLA), take
    ``accumulate="float64"``. ``strict``: ``NotStable``, a ValueError, names the layers that would
    be left, if any.
    """
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model={type(model).__name__}: it takes a torch.nn.Module")
    check_options(accumulate, strict)
    stable, names = copy.deepcopy(model), ("replaced", "kept", "left", "unread")
    report: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    inside: list[str] = []
    for name, module in stable.named_modules():
        if any(name.startswith(outer) for outer in inside):
            continue  # parts of a layer that is left as a whole
        what = _made_stable(module, accumulate)
        if what == "left" and module.__module__.startswith("torch."):
            inside.append(f"{name}." if name else "")
        if what:
            report[what].append((name, type(module).__name__))
    stable.stable_report = LayerReport(**{name: tuple(layers) for name, layers in report.items()})
    if strict:
        stable.stable_report.refuse_left()
    return stable


def _made_stable(module, accumulate):
    """Makes a module stable where there is a way; under which name of a Report it belongs."""
    kind = type(module)
    if kind in KINDS.values():
        return "replaced"
    if kind in KINDS and getattr(module, "padding_mode", "zeros") == "zeros":
        if getattr(module, "track_running_stats", True):
            module.__class__ = KINDS[kind]
            module.accumulate = accumulate
            return "replaced"
        return "left"
    if kind in CONTAINERS:
        return ""
    if kind.__module__.startswith("torch.nn.") and _module_is_exact(module):
        return "kept"
    own = any(True for _ in module.children()) and not any(True for _ in module.parameters(False))
    return "unread" if own and not kind.__module__.startswith("torch.") else "left"


def _module_is_exact(module):
    """Returns whether a module of PyTorch's own is exact in evaluation, by running it.

    Nothing says which shapes it takes: channels and positions are made from its own numbers.
    """
    if any(True for _ in module.children()):
        return False
    options = [value for value in vars(module).values() if isinstance(value, (int, tuple))]
    flat = [n for value in options for n in (value if isinstance(value, tuple) else (value,))]
    numbers = [n for n in flat if isinstance(n, int) and 1 < n <= 4096]
    size = max(8, 2 * max(numbers, default=1))
    copied = copy.deepcopy(module).eval()
    shapes = [
        (2, channels, *[size] * rank)
        for channels in {prod(numbers), lcm(*numbers) ** 2}
        for rank in range(4)
        if channels * size**rank <= MOST
    ]
    tensors = [torch.zeros(2, 4, dtype=torch.long), *map(torch.zeros, shapes)]
    return any(exact(lambda x=x: copied(x)) for x in tensors)


# Elements of an input that a layer is run on.
MOST = 1 << 24

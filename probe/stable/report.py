"""Reports what ``stabilized`` did with each layer of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from probe.activations import ACTIVATIONS, rounds_once

Layers = tuple[tuple[str, str], ...]

#: Layers whose every output is an element of the input, or one rounded operation of a few: no order
#: of additions, and no function that a vector unit and its tail may compute in different ways.
EXACT = frozenset(
    "Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout Flatten Unflatten ReLU ReLU6 "
    "Hardtanh LeakyReLU Threshold MaxPool1d MaxPool2d MaxPool3d AdaptiveMaxPool1d "
    "AdaptiveMaxPool2d ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d "
    "ReflectionPad1d ReflectionPad2d ReplicationPad1d ReplicationPad2d PixelShuffle "
    "ChannelShuffle Embedding InputLayer SpatialDropout1D SpatialDropout2D SpatialDropout3D "
    "Reshape Permute RepeatVector MaxPooling1D MaxPooling2D MaxPooling3D GlobalMaxPooling1D "
    "GlobalMaxPooling2D GlobalMaxPooling3D ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D "
    "Cropping2D Cropping3D Concatenate Add Subtract Multiply Maximum Minimum GaussianNoise".split()
)
#: Names of activations of which the same holds.
EXACT_ACTIVATIONS = frozenset(("linear", *filter(rounds_once, ACTIVATIONS)))


class NotStable(ValueError):
    """``strict``: layers whose bits may depend on the batch or the length would be left."""


@dataclass(frozen=True)
class Report:
    """Layers by name, each with its kind or why it is here.

    ``replaced``: they no longer depend on batch, length or position. ``kept``: they never did.
    ``left``: as they were, so their bits may depend on any of these. ``unread``: modules with code
    of their own, which calls their layers; what else that code computes was not looked at.
    """

    replaced: Layers
    kept: Layers
    left: Layers
    unread: Layers = ()

    @property
    def complete(self) -> bool:
        """Returns whether no layer was left."""
        return not self.left

    def refuse_left(self) -> None:
        """Raises NotStable, which names the layers that were left, if there are any."""
        if self.left:
            names = ", ".join(f"{name} ({kind})" for name, kind in self.left)
            why = "their bits may depend on the batch or the length; replace them, or drop strict"
            raise NotStable(f"strict=True: left as they are: {names}: {why}")

    def __str__(self) -> str:
        told = {
            "replaced (independent of batch, length and position)": self.replaced,
            "kept (they never depend on these)": self.kept,
            "left as they are (bits may depend on batch or length)": self.left,
            "not looked into (code of their own)": self.unread,
        }
        return "\n".join(f"{what}: {_shown(layers)}" for what, layers in told.items() if layers)


def _shown(layers: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name or '(the model)'} ({kind})" for name, kind in layers)

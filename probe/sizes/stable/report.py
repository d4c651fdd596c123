"""Reports what ``stabilized`` did with each layer of a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from warnings import catch_warnings

from probe.case.errors import Foreign, ProbeError, foreign

Layers = tuple[tuple[str, str], ...]

# Names of activations whose every output is an element of the input, or one rounded operation of
# a few: no order of additions, and no function that a vector and its tail may compute differently.
EXACT_ACTIVATIONS = frozenset(("linear", "relu", "relu6", "leaky_relu"))


def exact(run) -> bool:
    """Returns whether all that ``run()`` computes is exact at every place: it is watched.

    False too where it cannot be run.
    """
    # a room further on, which a worker never needs
    watch = import_module("probe.sizes.invariant.operations").exact_throughout
    try:
        with catch_warnings(action="ignore"):
            return bool(watch(partial(foreign, run)))
    except (Foreign, ProbeError, MemoryError):  # at sizes that a layer does not take
        return False


class NotStable(ValueError):
    """``strict``: layers whose bits may depend on the batch or the length would be left."""


@dataclass(frozen=True)
class LayerReport:
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
        """Whether no layer was left."""
        return not self.left

    def refuse_left(self) -> None:
        """Raises NotStable, which names the layers that were left, if there are any."""
        if self.left:
            names = ", ".join(f"{name} ({kind})" for name, kind in self.left)
            why = "their bits may depend on the batch or the length; replace them, or drop strict"
            raise NotStable(f"strict=True: left as they are: {names}: {why}")

    def __str__(self) -> str:
        parts = {
            "replaced (independent of batch, length and position)": self.replaced,
            "kept (they never depend on these)": self.kept,
            "left as they are (bits may depend on batch or length)": self.left,
            "not looked into (code of their own)": self.unread,
        }
        lines = []
        for what, layers in parts.items():
            names = ", ".join(f"{name or '(the model)'} ({kind})" for name, kind in layers)
            lines += [f"{what}: {names}"] * bool(layers)
        return "\n".join(lines)

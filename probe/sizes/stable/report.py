"""Reports what ``stabilized`` did with each layer of a model."""

from dataclasses import dataclass

Layers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LayerReport:
    """Layers by name, each with its kind.

    ``replaced``: they no longer depend on batch, length or position. ``left``: as they were. What
    moves numbers or chooses among them depends on none of these; what rounds, and code of one's
    own, may.
    """

    replaced: Layers
    left: Layers

    def __str__(self) -> str:
        parts = {
            "replaced (independent of batch, length and position)": self.replaced,
            "left as they are (where they round, bits may depend on batch or length)": self.left,
        }
        lines = []
        for what, layers in parts.items():
            names = ", ".join(f"{name or '(the model)'} ({kind})" for name, kind in layers)
            lines.append(f"{what}: {names or 'none'}")
        return "\n".join(lines)

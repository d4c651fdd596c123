"""How a user writes one of JAX's primitives: ``jax.lax`` in lines of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax import lax

from probe.recording.jax_programs import inner

NAMES = {"add_any": "add", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
         "not": "bitwise_not", "copy_p": "asarray", "squeeze": "squeeze"}
DROPPED = {"out_sharding", "sharding", "accuracy", "unique_indices", "weak_type", "new_sizes"}
ORDER = {
    "dot_general": ("dimension_numbers", "precision", "preferred_element_type"),
}
CHECKED = set(dir(lax))


def lines(
    primitive: Any, params: Mapping[str, Any], count: int
) -> Callable[[Sequence[str], str], list[str]] | None:
    """Lines that compute what a primitive gives; None where there is no such text."""
    return None

"""The lines of Python that a recording has for an operation, run where it is trusted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

WAYS = {
    "torch": ("torch.from_numpy({0})", "torch.from_numpy({0}).view(torch.bfloat16)"),
    "tensorflow": ("tf.constant({0})", "tf.bitcast({0}, tf.bfloat16)"),
    "jax": ("jnp.asarray({0})", "jax.lax.bitcast_convert_type(jnp.asarray({0}), jnp.bfloat16)"),
}
"""How arrays become a library's own values, by the module that an operation's lines import; the
second of arrays that hold the bits of bfloat16."""

IMPORTS = {"torch": "import torch", "tensorflow": "import tensorflow as tf", "jax": "import jax"}


def computed(
    imports: Sequence[str], lines: Sequence[str], given: Sequence[np.ndarray], dtypes: Sequence[str]
) -> list[np.ndarray]:
    """Runs the lines of an operation, which a user trusts, on container arrays.

    They take the library's own values, or where that fails, NumPy's.
    """
    library = next((name for name in WAYS if any(name in line for line in imports)), "")
    space: dict[str, Any] = {"np": np}
    more = [IMPORTS[library]] if library else []
    more += ["import jax.numpy as jnp"] if library == "jax" else []
    exec("\n".join([*more, *imports]), space)
    space.update({f"a{n}": np.array(one) for n, one in enumerate(given)})
    text = "\n".join(lines)
    for ways in dict.fromkeys((WAYS.get(library, PLAIN), PLAIN)):
        entering = [
            f"x{n} = {ways[dtype == 'bfloat16'].format(f'a{n}')}" for n, dtype in enumerate(dtypes)
        ]
        try:
            exec("\n".join([*entering, text]), space)
            break
        except (TypeError, ValueError, AttributeError, RuntimeError):
            if ways == PLAIN:
                raise
    found = space["y"]
    return [_plain(one) for one in (found if isinstance(found, list | tuple) else [found])]


PLAIN = ("{0}", "{0}")


def _plain(value: Any) -> np.ndarray:
    """A library's array as a container array."""
    if "bfloat16" in str(getattr(value, "dtype", "")):
        module = type(value).__module__.partition(".")[0]
        if module == "torch":
            value = value.contiguous().view(sys.modules["torch"].uint16)
            return np.asarray(value.detach().cpu())
        return np.asarray(value).view(np.uint16)
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)

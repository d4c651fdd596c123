"""Models in JAX alone, and in Flax."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.experiments.variations import ALL, Function, normal, sides_of


def blocks(_: Path) -> Any:
    """Two blocks of a transformer of 128 features in JAX alone, eagerly or under ``jax.jit``."""
    import jax
    from jax import numpy as jnp

    rng = np.random.default_rng(0)
    names = ("query", "key", "value", "mixed", "up", "down")
    wide = {"up": (128, 256), "down": (256, 128)}
    weights = [
        {n: jnp.asarray(rng.normal(0, 0.09, wide.get(n, (128, 128))), jnp.float32) for n in names}
        for _block in range(2)
    ]
    x = jnp.asarray(rng.standard_normal((ALL, 40, 128)), jnp.float32)

    def norm(y: Any) -> Any:
        centred = y - y.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)

    def model(y: Any) -> Any:
        for w in weights:
            z = norm(y)
            q, k, v = (
                (z @ w[n]).reshape(*z.shape[:2], 4, 32).swapaxes(1, 2)
                for n in ("query", "key", "value")
            )
            chances = jax.nn.softmax(q @ k.swapaxes(2, 3) / 32**0.5)
            y = y + (chances @ v).swapaxes(1, 2).reshape(y.shape) @ w["mixed"]
            y = y + jax.nn.gelu(norm(y) @ w["up"]) @ w["down"]
        return norm(y).mean(1)

    def run(batch: int | None, _: int | None, compiled: bool = False) -> Function:
        given, chosen = x[: batch or ALL], jax.jit(model) if compiled else model
        return lambda: chosen(given)

    return lambda one: sides_of(run, one)


def flax_residual(folder: Path) -> Any:
    """Two residual blocks of convolutions with GroupNorm, attention over the positions, in Flax."""
    sys.path.append(str(folder))
    import jax
    from jax import numpy as jnp

    nn = import_module("flax.linen")

    class Residual(nn.Module):  # type: ignore[misc,name-defined]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(32, (3, 3))(x)
            for strides in (1, 2):
                y = nn.relu(nn.GroupNorm(num_groups=8)(nn.Conv(32, (3, 3), strides)(x)))
                y = nn.Conv(32, (3, 3))(y)
                x = nn.relu(nn.Conv(32, (1, 1), strides)(x) + y)
            x = x.reshape(x.shape[0], -1, x.shape[-1])
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x))
            return nn.Dense(10)(x.mean(1))

    module = Residual()
    x = jnp.asarray(normal(ALL, 24, 24, 3))
    weights = jax.jit(module.init)(jax.random.key(0), x)

    def run(batch: int | None, _: int | None, compiled: bool = False) -> Function:
        function = jax.jit(module.apply) if compiled else module.apply
        return lambda: function(weights, x[: batch or ALL])

    return lambda one: sides_of(run, one)

"""JAX's matrix products and sums: ``jnp.matmul``, ``jnp.dot`` and ``jnp.sum``, to be jitted."""


def operator(jax, spec):
    """f(x, w, b) for a spec."""
    if spec["op"] == "sum":
        return lambda x, w, b: jax.numpy.sum(x, axis=-1)
    function = jax.numpy.dot if spec["op"] in ("dot", "dense") else jax.numpy.matmul

    def product(x, w, b):
        y = function(x, w)
        return y if b is None else y + b

    return product

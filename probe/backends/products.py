"""Matrix products and sums as libraries' users write them: which arrays are handed over.

``matmul``  x (length, in_channels) @ w (in_channels, filters); with a batch of more than one, x is
            a stack of matrices that share w
``dot``     the same, with one row or one column as a vector: dot product, matrix times vector
``sum``     x (batch, length, in_channels) over its last axis; the weights, all 1, go nowhere

Of every other operator these functions give the arrays as they are.
"""

OPS = ("matmul", "dot", "sum")


def left(spec, x):
    """x (batch, length, in_channels) as it is written in the call."""
    if spec["op"] not in ("matmul", "dot") or len(x) > 1:
        return x
    return x[0, 0] if spec["op"] == "dot" and x.shape[1] == 1 else x[0]


def right(spec, w):
    """w (1, in_channels, filters) as it is written in the call."""
    if spec["op"] not in ("matmul", "dot"):
        return w
    return w[0, :, 0] if spec["op"] == "dot" and w.shape[-1] == 1 else w[0]


def restored(spec, y):
    """The result of the call as (batch, length, filters)."""
    if spec["op"] == "sum":
        return y[..., None]
    return y if spec["op"] not in OPS or y.ndim == 3 else y.reshape(1, -1, spec["filters"])

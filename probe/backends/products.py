"""Says which arrays matrix products and sums get, as users of the libraries write them.

``matmul``  x (length, in_channels) @ w (in_channels, filters); with a batch of more than one, x is
            a stack of matrices that share w
``dot``     the same, with one row or one column as a vector: dot product, matrix times vector
``dense``   x (batch, in_channels) @ w (in_channels, filters), as layers do it
``sum``     x (batch, length, in_channels) over its last axis; the weights, all 1, go nowhere

Of every other operator these functions give the names as they are.
"""

OPS = ("matmul", "dot", "sum", "dense")


def left_expression(spec, shapes):
    """Returns the expression of x (batch, length, in_channels) as it is written in the call."""
    if spec["op"] not in ("matmul", "dot") or shapes.stacked:
        return "x"
    return "x[0, 0]" if spec["op"] == "dot" and shapes.shape[1] == 1 else "x[0]"


def right_expression(spec, w):
    """Returns the expression of w (1, in_channels, filters), of the name given, in the call."""
    if spec["op"] not in ("matmul", "dot"):
        return w
    return w + ("[0, :, 0]" if spec["op"] == "dot" and spec["filters"] == 1 else "[0]")


def is_vector(array):
    """Whether an expression of these functions is a vector, which can't be turned."""
    return "," in array


def result_expression(spec, y, shapes):
    """The expression of the result as (batch, length, filters); of ``dense`` (batch, filters)."""
    if spec["op"] == "sum":
        return y + "[..., None]"
    if spec["op"] not in ("matmul", "dot") or shapes.stacked:
        return y
    return "%s.reshape(1, -1, %d)" % (y, spec["filters"])

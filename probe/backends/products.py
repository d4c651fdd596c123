"""Matrix products and sums as libraries' users write them: which arrays are handed over.

``matmul``  x (length, in_channels) @ w (in_channels, filters); with a batch of more than one, x is
            a stack of matrices that share w
``dot``     the same, with one row or one column as a vector: dot product, matrix times vector
``dense``   x (batch, in_channels) @ w (in_channels, filters), as layers do it
``sum``     x (batch, length, in_channels) over its last axis; the weights, all 1, go nowhere

Of every other operator these functions give the arrays as they are.
"""

from probe.backends import channels_first

OPS = ("matmul", "dot", "sum", "dense")


def left(spec, x):
    """x (batch, length, in_channels) as it is written in the call."""
    if spec["op"] not in ("matmul", "dot") or len(x) > 1:
        return x
    return x[0, 0] if spec["op"] == "dot" and x.shape[1] == 1 else x[0]


def right(spec, w):
    """w (1, in_channels, filters) as it is written in the call."""
    if spec["op"] not in ("matmul", "dot"):
        return w[...]  # an object of its own, as of the others: it stands for new weights
    return w[0, :, 0] if spec["op"] == "dot" and w.shape[-1] == 1 else w[0]


def restored(spec, y):
    """The result of the call as (batch, length, filters), of a dense layer (batch, filters)."""
    if spec["op"] == "sum":
        return y[..., None]
    written = spec["op"] in ("matmul", "dot") and y.ndim < 3
    return y.reshape(1, -1, spec["filters"]) if written else y


def left_text(spec, shapes):
    """``left`` as text: the expression of x as it is written in the call."""
    if spec["op"] not in ("matmul", "dot") or shapes.stacked:
        return "x"
    return "x[0, 0]" if spec["op"] == "dot" and shapes.shape[1] == 1 else "x[0]"


def right_text(spec, w):
    """``right`` as text."""
    if spec["op"] not in ("matmul", "dot"):
        return w
    return w + ("[0, :, 0]" if spec["op"] == "dot" and spec["filters"] == 1 else "[0]")


def restored_text(spec, y, shapes):
    """``restored`` as text."""
    if spec["op"] == "sum":
        return y + "[..., None]"
    if spec["op"] not in ("matmul", "dot") or shapes.stacked:
        return y
    return "%s.reshape(1, -1, %d)" % (y, spec["filters"])


class Layout:
    """A product's arrays in memory of their own, under the names of ``channels_first``.

    ``transposed``: w as (filters, in_channels), which is how linear layers keep it.
    """

    def __init__(self, spec, transposed=False):
        self.spec, self.transposed = spec, transposed

    def activations(self, x):
        """A copy of x as it is written in the call."""
        return channels_first.copied(left(self.spec, x))

    def kernels(self, w):
        """A copy of w as it is written in the call."""
        w = right(self.spec, w)
        return channels_first.copied(w.T if self.transposed else w)

    def channels_last(self, y):
        """The result as (batch, length, filters), of a dense layer (batch, filters)."""
        return restored(self.spec, y)

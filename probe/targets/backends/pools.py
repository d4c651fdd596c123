"""Pools, which libraries compose alike.

A pool is composed from a library's padding and its pooling of whole windows. Its spec is a
depthwise one without weights, with two entries more: ``ceil_mode`` (a last window may reach beyond
the padded input, as long as it starts in the input or before it) and ``pad_with``: what padding
puts into a window: ``nothing`` (no maximum, not counted in an average) or ``zeros`` (a maximum of
0, counted). What lies beyond the padding is never counted.
"""

from collections import namedtuple

from probe.case.geometry import BY_SIZE, WindowSizes
from probe.case.operation import operation_of_spec
from probe.targets.backends.contract import Unsupported


def pool_kind(spec):
    """``max`` or ``avg`` of a pooling spec; empty for any other operator."""
    return operation_of_spec(spec).pool


def spans(spec, sizes):
    """Returns the Span of every axis. Unsupported: one needs a size that is open, as in a graph."""
    needed = spec["ceil_mode"] or spec["padding"] in BY_SIZE
    if needed and any(size is None for size in sizes):
        raise Unsupported(
            "ceil_mode and SAME by hand require sizes, which a graph does not fix: use mode=eager"
        )
    return WindowSizes.of(spec).spans([None if size is None else int(size) for size in sizes])


# What ``composed_pool`` needs of a library, as functions of its own values. ``pad(x, pairs,
# value)``: pairs of the spatial axes. ``whole(x)``: pooling of whole windows, without padding.
# ``ones(x)``: as x, all 1. ``native(x, spans)``: the library's own padded pooling, or None.
PoolingLibrary = namedtuple("PoolingLibrary", "pad whole ones native")


def composed_pool(spec, library, sizes, x):
    """The pool of a value x of these spatial sizes.

    What the library does not support is padded by hand: a maximum with -inf or 0; an average that
    leaves padding out is divided by the average of ones.
    """
    axes = spans(spec, sizes)
    y = library.native(x, axes)
    if y is not None:
        return y
    pads = [(span.before, span.after) for span in axes]
    beyond = [(0, span.beyond) for span in axes]
    zeros, padded, ragged = spec["pad_with"] == "zeros", any(map(any, pads)), any(map(any, beyond))

    def around(x, inside, outside):
        if inside == outside:
            both = [(before, after + more) for (before, after), (_, more) in zip(pads, beyond)]
            return library.pad(x, both, inside) if padded or ragged else x
        x = library.pad(x, pads, inside) if padded else x
        return library.pad(x, beyond, outside) if ragged else x

    if pool_kind(spec) == "max":
        nothing = -float("inf")
        return library.whole(around(x, 0.0 if zeros else nothing, nothing))
    mean = library.whole(around(x, 0.0, 0.0))
    if not ragged and (zeros or not padded):
        return mean
    return mean / library.whole(around(library.ones(x), float(zeros), 0.0))

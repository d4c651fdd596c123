"""Computes convolutions that do not add the products, as test doubles.

Both are in float32 and float64, groups=1. Sources: Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", CVPR 2016 (Winograd's F(2,3)); the convolution theorem.
"""

import numpy as np

from probe.backends.contract import Unsupported

#: F(2,3): the transforms of four inputs, of three weights, and back to two outputs.
OF_INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
OF_WEIGHTS = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
OF_OUTPUT = ((1, 1, 1, 0), (0, 1, -1, -1))


def refuse(spec, name, arithmetic):
    """Raises Unsupported for what neither transform does here."""
    if not arithmetic.native:
        raise Unsupported(f"dtype={spec['dtype']}: algorithm={name} is float32 and float64 alone")
    if not spec["kernel"]:
        raise Unsupported(f"op={spec['op']}: algorithm={name} is for convolutions")
    if spec["groups"] != 1:
        raise Unsupported(f"groups={spec['groups']}: algorithm={name} has one group")


def transformed(matrix, array, axis):
    """Returns a small matrix applied along one axis, its terms added in order."""
    rows = []
    for row in matrix:
        terms = [c * array.take(i, axis) for i, c in enumerate(row) if c]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        rows.append(total)
    return np.stack(rows, axis).astype(array.dtype)


def winograd(spec, arithmetic):
    """f(x, w) for kernels of 3 or 3x3, stride and dilation 1: four multiplications for two outputs.

    Tiles of two outputs start at output 0, so that a longer input changes no tile but the last.
    """
    refuse(spec, "winograd", arithmetic)
    if set(spec["kernel"]) != {3} or len(spec["kernel"]) > 2:
        raise Unsupported(f"kernel={spec['kernel']}: algorithm=winograd is for 3 and 3x3")
    if set(spec["stride"]) | set(spec["dilation"]) != {1}:
        raise Unsupported("algorithm=winograd has stride 1 and dilation 1")
    rank = len(spec["kernel"])

    def compute(x, w):
        channels, filters = x.array.shape[1], w.shape[2]
        w = w.reshape((3,) * rank + (channels, filters))
        tiles, places = [-(-size // 2) for size in x.out], []
        short = [2 * t + 2 - size for t, size in zip(tiles, x.array.shape[3:])]
        d = np.pad(x.array[0], [(0, 0), (0, 0)] + [(0, max(s, 0)) for s in short], "constant")
        for axis in range(rank):  # (channels, batch, tiles, 4, tiles, 4)
            place = 2 + 2 * axis
            windows = 2 * np.arange(tiles[axis])[:, None] + np.arange(4)
            d = transformed(OF_INPUT, d.take(windows, place), place + 1)
            w = transformed(OF_WEIGHTS, w, axis)
            places.append(place + 1)
        y = _multiplied_tiles(d, w, rank)
        for place in places:
            y = transformed(OF_OUTPUT, y, place)
        y = y.reshape(y.shape[:2] + tuple(2 * t for t in tiles))
        return y[(None, slice(None), slice(None)) + tuple(slice(size) for size in x.out)]

    return compute


def _multiplied_tiles(d, w, rank):
    """Multiplied place by place, then added over the channels in order: (filters, batch, ...)."""
    between = (1,) + (1, 4) * rank
    total = 0
    for channel in range(d.shape[0]):
        factor = np.moveaxis(w[..., channel, :], -1, 0)
        term = factor.reshape(factor.shape[:1] + between) * d[channel]
        total = term if channel == 0 else total + term
    return total


def fft_convolution(spec, arithmetic):
    """f(x, w) for any kernel: the product of the spectra of the whole padded input."""
    refuse(spec, "fft", arithmetic)
    steps = [tuple(spec[key]) for key in ("kernel", "stride", "dilation")]

    def compute(x, w):
        kernel, stride, dilation = steps
        sizes, axes = x.array.shape[3:], tuple(range(-len(kernel), 0))
        channels, filters = x.array.shape[1], w.shape[2]
        spread = np.zeros((channels, filters, 1) + sizes, w.dtype)
        taps = tuple(slice(0, (k - 1) * d + 1, d) for k, d in zip(kernel, dilation))
        w = w.reshape(kernel + (channels, filters))
        spread[(slice(None), slice(None), 0) + taps] = np.moveaxis(w, (-2, -1), (0, 1))
        spectra = np.fft.rfftn(x.array[0][:, None], axes=axes) * np.conj(
            np.fft.rfftn(spread, axes=axes)
        )
        total = spectra[0]
        for term in spectra[1:]:
            total = total + term
        y = np.fft.irfftn(total, sizes, axes=axes).astype(w.dtype)
        kept = tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(x.out, stride))
        return y[(None, slice(None), slice(None)) + kept]

    return compute

"""Checks what every backend must do, on small integers, which are never rounded.

The expected outputs are worked out here in Python integers, one window at a time, from the
definition of the operator alone. A library may refuse an operator; it may not give other numbers.
"""

import functools
import itertools
from collections import namedtuple

import numpy as np

from probe.case import floats
from probe.targets.backends.contract import Unsupported

# On one spec: ``verdict`` is "agrees", "unsupported" or "wrong", ``detail`` is one line.
Finding = namedtuple("Finding", "spec sizes batch verdict detail")

DTYPES = ("float32", "float64", "float16", "bfloat16")


def spec(op, kernel, **changes):
    """A spec with the defaults of ``Case``: one channel, one filter, stride 1, valid, float32."""
    ones = [1] * len(kernel)
    words = {"op": op, "kernel": list(kernel), "stride": ones, "dilation": ones, "groups": 1}
    words.update(padding="valid", dtype="float32", in_channels=1, filters=1, bias=False)
    words.update(changes)
    if op == "depthwise_conv2d":
        words["groups"] = words["in_channels"]
    return words


def specs(dtypes=DTYPES):
    """(spec, spatial sizes, batch): every part of a spec alone, some together, each dtype."""
    for spec, sizes, batch in _float32_specs():
        for dtype in dtypes:
            yield dict(spec, dtype=dtype), sizes, batch


def _float32_specs():
    # matrix products and sums: matrices, one row, one column, one of each, a stack of matrices
    for channels, filters, rows in ((4, 6, 7), (4, 6, 1), (7, 1, 5), (7, 1, 1)):
        for op in ("matmul", "dot"):
            sizes = {"in_channels": channels, "filters": filters}
            yield spec(op, [1], **sizes), [rows], 1
            yield spec(op, [1], bias=True, **sizes), [rows], 1
        yield spec("sum", [1], in_channels=channels), [rows], 1
    for bias in (False, True):
        yield spec("matmul", [1], bias=bias, in_channels=4, filters=6), [5], 3
    yield spec("sum", [1], in_channels=9), [5], 3
    for channels, filters, rows in ((4, 6, 7), (4, 6, 1), (7, 1, 5), (1, 3, 2)):
        for bias in (False, True):
            sizes = {"in_channels": channels, "filters": filters, "bias": bias}
            yield spec("dense", [], **sizes), [], rows
    wide = {"in_channels": 4, "filters": 6}
    grouped = dict(wide, groups=2)
    yield spec("conv1d", [5]), [5], 1
    yield spec("conv1d", [5], bias=True), [13], 2
    yield spec("conv1d", [1], bias=True, **wide), [7], 1
    yield from _strided_specs("conv1d", [3], [11], wide)
    yield spec("conv1d", [3], padding=[[0, 2]], stride=[2], **wide), [10], 2
    yield spec("conv1d", [3], padding=[[3, 1]], dilation=[2], bias=True, **wide), [9], 1
    yield spec("conv1d", [3], padding="same", **grouped), [9], 1
    yield spec("conv2d", [1, 5], bias=True), [1, 9], 1
    yield from _strided_specs("conv2d", [3, 2], [6, 9], wide)
    yield spec("conv2d", [3, 3], padding=[[0, 1], [2, 0]], bias=True, **wide), [5, 7], 2
    yield spec("conv2d", [2, 3], padding=[[1, 0], [0, 2]], stride=[1, 2], **wide), [5, 8], 1
    yield spec("conv2d", [3, 3], padding=[[2, 2], [1, 3]], dilation=[2, 1], **wide), [5, 8], 1
    yield spec("conv2d", [3, 3], padding="same", bias=True, **grouped), [5, 7], 2
    yield spec("conv2d", [3, 3], padding="same", stride=[2, 2], **grouped), [6, 7], 1
    yield from _strided_specs("conv3d", [2, 1, 3], [3, 4, 7], wide)
    yield spec("conv3d", [2, 2, 3], padding=[[1, 0], [0, 0], [2, 1]], **wide), [3, 3, 6], 2
    yield spec("conv3d", [2, 2, 2], **grouped), [3, 3, 5], 1
    yield from _strided_specs("conv1d_transpose", [3], [5], wide)
    yield from _strided_specs("conv2d_transpose", [3, 2], [3, 4], wide)
    for padding in ([[1, 0]], [[0, 2]], [[3, 1]], [[1, -1]]):
        yield spec("conv1d_transpose", [3], padding=padding, stride=[2], **wide), [5], 2
    yield spec("conv2d_transpose", [1, 2], stride=[2, 3], padding="same_lower", **wide), [3, 4], 1
    yield spec("conv2d_transpose", [3, 3], stride=[2, 1], bias=True, **grouped), [3, 4], 2
    for filters in (3, 6):
        deep = {"in_channels": 3, "filters": filters}
        yield from _strided_specs("depthwise_conv2d", [3, 3], [7, 9], deep)
        yield spec("depthwise_conv2d", [1, 5], bias=True, **deep), [2, 9], 2
        yield spec("depthwise_conv2d", [3, 3], padding=[[0, 2], [1, 0]], **deep), [5, 8], 1
        pads = {"padding": [[0, 2], [3, 0]], "dilation": [2, 2]}
        yield spec("depthwise_conv2d", [2, 3], **dict(deep, **pads)), [5, 8], 1


def _strided_specs(op, kernel, sizes, channels):
    """Strides and dilations under both conventions, for even and odd sizes of the last axis."""
    rank = len(kernel)
    last_two = [1] * (rank - 1) + [2]
    for padding in ("valid", "same"):
        for size in (sizes[-1], sizes[-1] + 1):
            at = sizes[:-1] + [size]
            yield spec(op, kernel, padding=padding, stride=[2] * rank, **channels), at, 1
            yield spec(op, kernel, padding=padding, dilation=[2] * rank, **channels), at, 1
        yield spec(op, kernel, padding=padding, bias=True, **channels), sizes, 2
        yield spec(op, kernel, padding=padding, dilation=last_two, **channels), sizes, 1
        if rank > 1:
            yield spec(op, kernel, padding=padding, stride=last_two, **channels), sizes, 1
        steps = {"stride": [2] * rank, "dilation": [2] * rank}
        yield spec(op, kernel, padding=padding, **dict(channels, **steps)), sizes, 1


def integer_operands(spec, sizes, batch):
    """(x, w, b): int64 arrays so small that every partial sum is exact in all formats."""
    # the 8 bits of bfloat16 hold whole numbers up to 256, and sums stay below that
    largest = 1 if spec["dtype"] == "bfloat16" else 2
    shape = tuple(spec["kernel"]) + (spec["in_channels"] // spec["groups"], spec["filters"])
    x = _small_integers((batch,) + tuple(sizes) + (spec["in_channels"],), 3, largest)
    w = np.ones(shape, np.int64) if spec["op"] == "sum" else _small_integers(shape, 5, largest)
    return x, w, _small_integers((spec["filters"],), 7, 3) if spec["bias"] else None


def _small_integers(shape, salt, largest):
    """Integers from -largest to largest, fixed for all time, with no pattern along any axis."""
    index = np.arange(1, int(np.prod(shape)) + 1, dtype=np.int64)
    # Knuth's multiplicative hash (2**32 over the golden ratio), then a prime of xxHash: fixed here,
    # since NumPy's generators may change with a release
    mixed = (index * 2654435761 + salt * 40503) % 4294967296
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) % 4294967296
    return ((mixed >> 13) % (2 * largest + 1) - largest).reshape(shape)


def exact_outputs(spec, x, w, b):
    """The exact outputs, int64 (batch, *spatial_out, filters), one output at a time."""
    axes = [_taps_of_axis(spec, axis, size) for axis, size in enumerate(x.shape[1:-1])]
    y = np.zeros((x.shape[0],) + tuple(len(axis) for axis in axes) + (spec["filters"],), np.int64)
    channels = spec["in_channels"] // spec["groups"]
    for place in itertools.product(*(range(len(axis)) for axis in axes)):
        windows = [axis[index] for axis, index in zip(axes, place)]
        for taps in itertools.product(*windows):
            kernel, inputs = (tuple(tap[k] for tap in taps) for k in range(2))
            for f in range(spec["filters"]):
                first = f // (spec["filters"] // spec["groups"]) * channels
                read = x[(slice(None),) + inputs + (slice(first, first + channels),)]
                y[(slice(None),) + place + (f,)] += (read * w[kernel + (slice(None), f)]).sum(-1)
    return y if b is None else y + b


def _taps_of_axis(spec, axis, size):
    """For every output of one axis: the (kernel position, input position) pairs that it reads."""
    stride, dilation = spec["stride"][axis], spec["dilation"][axis]
    kernel, padding = spec["kernel"][axis], spec["padding"]
    extent = dilation * (kernel - 1) + 1
    if spec["op"].endswith("transpose"):  # every input adds to the outputs from its own on
        cut = extent - stride
        before = (max(cut, 0) + (padding == "same_lower")) // 2
        before, after = {"valid": (0, min(cut, 0))}.get(str(padding), (before, cut - before))
        if not isinstance(padding, str):
            before, after = padding[axis]
        places = range(before, (size - 1) * stride + extent - after)
        pairs = list(itertools.product(range(kernel), range(size)))
        return [[(k, i) for k, i in pairs if i * stride + k * dilation == at] for at in places]
    if padding == "same":  # ceil(size / stride) outputs; the odd zero is on the right
        outputs = (size + stride - 1) // stride
        left = max(extent + stride * (outputs - 1) - size, 0) // 2
    else:
        left, right = (0, 0) if padding == "valid" else padding[axis]
        outputs = (left + size + right - extent + stride) // stride
    starts = [output * stride - left for output in range(outputs)]
    taps = [[(k, start + k * dilation) for k in range(kernel)] for start in starts]
    return [[(k, at) for k, at in window if 0 <= at < size] for window in taps]


def compare_spec(spec, sizes, batch, run):
    """The Finding on one spec. ``run(spec, x, w, b)``: from container arrays to one."""
    x, w, b = integer_operands(spec, sizes, batch)
    exact = exact_outputs(spec, x, w, b)
    operands = [
        None if a is None else floats.round_to(a.astype(float), spec["dtype"]) for a in (x, w, b)
    ]
    finding = functools.partial(Finding, spec, sizes, batch)
    try:
        y, again = (run(spec, *operands) for _ in range(2))
    except Unsupported as error:
        return finding("unsupported", str(error))
    dtype, wanted = spec["dtype"], floats.container_of_format(spec["dtype"])
    if y.dtype != wanted or y.shape != exact.shape:
        why = f"{y.dtype}{list(y.shape)}, expected {wanted}{list(exact.shape)}"
        return finding("wrong", why)
    if floats.to_bits(y, dtype).tobytes() != floats.to_bits(again, dtype).tobytes():
        return finding("wrong", "the same call gave different bits")
    values = floats.widen(y, dtype)
    differ = np.argwhere(values != exact)
    if not differ.size:
        return finding("agrees", "")
    first = tuple(int(i) for i in differ[0])
    place = f"out[{', '.join(map(str, first))}]={values[first]}"
    return finding("wrong", f"{place}, expected {exact[first]}; {len(differ)} differ")


def running(backend):
    """``run`` of a Backend that has been started in this process."""

    def run(spec, x, w, b):
        operator = backend.operator(spec).at(x.shape)
        call = operator.bind({"w": w} if b is None else {"w": w, "b": b})
        return np.array(operator.output(call(operator.input(x))))

    return run


def check(run, dtypes=DTYPES):
    """The list of Findings on all specs. ``run(spec, x, w, b)`` gives a container array.

    ``run`` raises Unsupported for what the library refuses. See ``running``.
    """
    return [compare_spec(spec, sizes, batch, run) for spec, sizes, batch in specs(dtypes)]

"""A pool of what a library has: padding, and pooling of whole windows."""

import numpy as np
import pytest

from probe.case.case import Case
from probe.targets.backends.contract import (
    PoolingLibrary,
    Unsupported,
    composed_pool,
    pool_kind,
    spans,
)

X = np.arange(1, 8, dtype=np.float32).reshape(1, 7, 1)


def pooled(op, **words):
    """A pool of windows of three along X, as the functions of NumPy compose it."""
    spec = Case(op, 3, 1, length=7, **words).spec()
    reduced = np.max if pool_kind(spec) == "max" else np.mean
    steps = spec["stride"][0]

    def whole(x):
        windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)[:, ::steps]
        return reduced(windows, axis=-1)

    def pad(x, pairs, value):
        return np.pad(x, [(0, 0), *pairs, (0, 0)], constant_values=value)

    library = PoolingLibrary(pad, whole, np.ones_like, lambda x, axes: None)
    return composed_pool(spec, library, [7], X).reshape(-1).tolist()


def test_padding_is_no_maximum_and_not_counted_unless_it_is_zeros():
    assert pooled("max_pool1d", padding=1) == [2, 3, 4, 5, 6, 7, 7]
    assert pooled("avg_pool1d", padding=1)[0] == 1.5
    assert pooled("avg_pool1d", padding=1, pad_with="zeros")[0] == 1


def test_a_last_window_reaches_beyond_and_counts_what_is_there():
    assert pooled("max_pool1d", stride=3) == [3, 6]
    assert pooled("max_pool1d", stride=3, ceil_mode=True) == [3, 6, 7]
    assert pooled("avg_pool1d", stride=3, ceil_mode=True) == pytest.approx([2, 5, 7])


def test_sizes_that_are_open_give_no_spans_of_windows_that_go_by_them():
    spec = Case("max_pool1d", 3, 1, length=7, stride=2, padding="same").spec()
    with pytest.raises(Unsupported, match="mode=eager"):
        spans(spec, [None])

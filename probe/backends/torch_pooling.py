"""torch.nn.functional's pooling, on channels-first tensors.

Its own padding is symmetric and at most half a window; everything else is padded by ``F.pad``.
"""

from probe.backends import pooling
from probe.backends.contract import Unsupported


def operator(torch, spec):
    """f(x) of a tensor (batch, channels, *spatial) for a pooling spec."""
    functional, rank, plans = torch.nn.functional, len(spec["kernel"]), {}
    largest = pooling.kind(spec) == "max"
    function = getattr(functional, f"{'max' if largest else 'avg'}_pool{rank}d")
    kernel, stride = tuple(spec["kernel"]), tuple(spec["stride"])
    if not largest and any(step != 1 for step in spec["dilation"]):
        raise Unsupported(f"torch.nn.functional.avg_pool{rank}d has no dilation")
    options = {"dilation": tuple(spec["dilation"])} if largest else {}

    def native(x, found):
        own = all(2 * max(one[:2]) <= k for one, k in zip(found, kernel))
        zeros = any(map(any, [one[:2] for one in found])) and spec["pad_with"] == "zeros"
        if not own or any(one.before != one.after for one in found) or (largest and zeros):
            return None
        keywords = dict(options, ceil_mode=spec["ceil_mode"])
        if not largest:
            keywords["count_include_pad"] = spec["pad_with"] == "zeros"
        return function(x, kernel, stride, tuple(one.before for one in found), **keywords)

    def pad(x, pairs, value):
        return functional.pad(x, [n for pair in pairs[::-1] for n in pair], value=value)

    library = pooling.Library(
        pad, lambda x: function(x, kernel, stride, **options), torch.ones_like, native
    )

    def call(x):
        sizes = tuple(x.shape[2:])
        if sizes not in plans:
            plans[sizes] = pooling.pool(spec, library, sizes)
        return plans[sizes](x)

    return call

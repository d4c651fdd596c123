"""Any small convolution, for Hypothesis; and why two runs of a case differ."""

from hypothesis import assume
from hypothesis import strategies as st

from probe import Case
from probe.case.errors import InputError
from probe.explain.evidence import explain_case as explained
from probe.explain.runs import ComparedShapes

DTYPES = ("float32", "float64", "float16", "bfloat16")


@st.composite
def cases(draw):
    op = draw(st.sampled_from(["conv1d", "conv2d", "conv3d", "depthwise_conv2d"]))
    rank = {"conv1d": 1, "conv3d": 3}.get(op, 2)

    def each(least, most):
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    groups, depth, each_filters = (draw(st.integers(1, 3)) for _ in range(3))
    depth = 1 if op == "depthwise_conv2d" else depth
    pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
    given = {
        "op": op,
        "kernel": each(1, 4),
        "in_channels": groups * depth,
        "filters": groups * each_filters,
        "groups": groups,
        "stride": each(1, 3),
        "dilation": each(1, 2),
        "padding": draw(st.sampled_from(["valid", "same", "same_lower", pads])),
        "batch": draw(st.integers(1, 2)),
        "dtype": draw(st.sampled_from(DTYPES)),
        "bias": draw(st.sampled_from([None, "normal"])),
        "seed": draw(st.integers(0, 99)),
        "length": draw(st.integers(1, 12)),
    }
    try:
        return Case(**given)
    except InputError:
        assume(False)


def explain_case(
    case, target, at=None, against=None, vary=None, against_target=None, against_padding=None, **how
):
    shapes = ComparedShapes.named(case, vary, at, against, against_padding)
    return explained(shapes, target, against_target, **how)

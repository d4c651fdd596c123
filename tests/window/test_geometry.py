"""Windows, against the same thing written out in plain loops."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probe import window
from probe.case import Case
from probe.errors import InputError
from probe.operation import OPERATIONS

MOVING = [name for name, row in OPERATIONS.items() if row.kind == "convolution"]
small = settings(max_examples=80, deadline=None)


def before(case, axis, size):
    """Zeros before an axis, by TensorFlow's own formulation of SAME."""
    extent, stride = (case.kernel[axis] - 1) * case.dilation[axis] + 1, case.stride[axis]
    if case.padding == "same":
        return max(extent - (size % stride or stride), 0) // 2
    if case.padding == "caffe":
        return (extent - 1) // 2
    return 0 if case.padding == "valid" else case.padding[axis][0]


def windows(case, length):
    """{(position, filter): {leaf: (spatial index, channel)}}, padding left out."""
    sizes = case.spatial(length)
    found = {}
    for place in itertools.product(*map(range, case.output_spatial(length))):
        for f in range(case.filters):
            group = f // (case.filters // case.groups)
            read = {}
            for k, tap in enumerate(itertools.product(*map(range, case.kernel))):
                index = tuple(
                    place[a] * case.stride[a]
                    - before(case, a, sizes[a])
                    + tap[a] * case.dilation[a]
                    for a in range(len(sizes))
                )
                if all(0 <= i < size for i, size in zip(index, sizes, strict=True)):
                    for c in range(case.in_channels // case.groups):
                        leaf = k * (case.in_channels // case.groups) + c
                        read[leaf] = (index, group * (case.in_channels // case.groups) + c)
            found[place, f] = read
    return found


paddings = st.one_of(
    st.sampled_from(["valid", "same", "caffe"]), st.tuples(st.integers(0, 3), st.integers(0, 3))
)


@st.composite
def cases(draw, ops=MOVING, padding=None):
    op = draw(st.sampled_from(ops))
    rank = OPERATIONS[op].spatial_rank
    axis = st.integers(1, 3 if rank < 3 else 2)
    sizes = st.tuples(*[axis] * rank)
    groups = draw(st.integers(1, 2))
    channels = groups * draw(st.integers(1, 2))
    depthwise = OPERATIONS[op].depthwise
    pads = draw(paddings if padding is None else padding)
    try:
        return Case(
            op,
            draw(sizes),
            in_channels=channels,
            filters=(channels if depthwise else groups) * draw(st.integers(1, 2)),
            groups=None if depthwise else groups,
            stride=draw(sizes),
            dilation=draw(sizes),
            padding=pads if isinstance(pads, str) else (pads,) * rank,
            height=None if rank == 1 else draw(st.tuples(*[st.integers(1, 4)] * (rank - 1))),
            batch=draw(st.integers(1, 2)),
        )
    except InputError:
        assume(False)


def at_length(case, length):
    assume(length >= case.shortest_length)
    return case.with_(length=length)


@small
@given(cases(), st.integers(1, 7))
def test_every_read_is_the_loop_s(case, length):
    case = at_length(case, length)
    geometry = window.Geometry.of(case)
    assert min(geometry.outputs) > 0 and case.output_spatial() == geometry.outputs
    places = list(itertools.product(*map(range, geometry.outputs)))
    for (place, f), read in windows(case, length).items():
        row = geometry.gather_indices(f, np.array([places.index(place)]))[0]
        for leaf in range(case.summands):
            expected = -1
            if leaf in read:
                spatial = np.ravel_multi_index(read[leaf][0], case.spatial())
                expected = spatial * case.in_channels + read[leaf][1]
            assert row[leaf] == expected


def test_indices_are_int32_where_they_fit():
    assert window.Geometry.of(Case("conv1d", 3, length=9)).gather_indices().dtype == np.int32
    wide = window.Geometry.of(Case("conv1d", 3, in_channels=2**20, length=2**12))
    assert wide.gather_indices(0, np.array([2**12 - 3])).max() == 2**32 - 1


@small
@given(cases(), st.integers(1, 7), st.sampled_from(["float32", "bfloat16"]))
def test_gather_and_scale_hold_what_the_loop_meets(case, length, dtype):
    case = at_length(case, length).with_(dtype=dtype, bias="normal")
    x, w, b = case.operands()
    shape = case.output_shape()
    outputs = np.arange(math.prod(shape))[::-1]
    met, weights, read = window.gather(case, x, w, outputs)
    scale = window.scale(case, x, w, b).ravel()
    assert window.scale(case).shape == shape and (window.scale(case).ravel() == scale).all()
    reads = windows(case, length)
    columns = window.columns(case, x)
    table = w.reshape(-1, case.filters)
    for column, flat in enumerate(outputs):
        entry, *place, f = np.unravel_index(flat, shape)
        leaves = reads[tuple(map(int, place)), int(f)]
        total = abs(float(b[f]))
        group = f // (case.filters // case.groups)
        position = int(np.ravel_multi_index(place, shape[1:-1])) + entry * math.prod(shape[1:-1])
        for leaf in range(case.summands):
            value = x[(entry, *leaves[leaf][0], leaves[leaf][1])] if leaf in leaves else 0
            assert met[leaf, column] == value == columns[group][leaf, position]
            assert read[leaf, column] == (leaf in leaves)
            assert weights[leaf, column] == table[leaf, f]
            total += abs(float(value) * float(table[leaf, f]))
        assert scale[flat] == pytest.approx(total, rel=1e-13)


def test_gather_takes_a_prefix_of_the_input_and_refuses_another():
    case = Case("conv1d", 3, in_channels=2, length=9)
    x, w, _ = case.operands()
    met, _, read = window.gather(case, x[:, :5], w, np.array([2]))
    assert (met[:, 0] == x[0, 2:5].ravel()).all() and read.all()
    with pytest.raises(InputError, match=r"x.shape=\(1, 9, 1\): the case has \(batch, 9, 2\)"):
        window.gather(case, x[..., :1], w, np.array([0]))


@small
@given(cases(), st.integers(1, 7))
def test_a_read_class_is_a_set_of_leaves(case, length):
    case = at_length(case, length)
    classes, leaves = window.read_classes(case)
    places = itertools.product(*map(range, case.output_spatial()))
    reads = windows(case, length)
    for number, place in zip(classes, places, strict=True):
        assert leaves[number].tolist() == sorted(reads[place, 0])
    assert len({tuple(leaf) for leaf in leaves}) == len(leaves) == len(set(classes))


def expected_partners(left, right, at, against):
    """{(left place, filter): right place} of all outputs whose windows are the same."""
    partner = {(f, *sorted(w.items())): p for (p, f), w in windows(right, against).items() if w}
    return {
        (place, f): partner[key]
        for (place, f), read in windows(left, at).items()
        if (key := (f, *sorted(read.items()))) in partner
    }


def found_partners(found, left, right, at, against):
    """The same from an Agreement, for the outputs that read anything."""
    flat_left = np.arange(math.prod(left.output_shape(at))).reshape(left.output_shape(at))
    flat_right = np.arange(math.prod(right.output_shape(against)))
    flat_right = flat_right.reshape(right.output_shape(against))
    reads, pairs = windows(left, at), {}
    for ours, theirs in found.blocks:
        ours, theirs = flat_left[ours], flat_right[theirs]
        assert ours.shape == theirs.shape
        for one, other in zip(ours.ravel(), theirs.ravel(), strict=True):
            entry, *place, f = map(int, np.unravel_index(one, left.output_shape(at)))
            entry_, *partner, f_ = map(int, np.unravel_index(other, right.output_shape(against)))
            assert (entry, f) == (entry_, f_) and (entry, tuple(place), f) not in pairs
            if reads[tuple(place), f]:
                pairs[entry, tuple(place), f] = tuple(partner)
    return pairs


def check(found, left, right, at, against):
    expected = expected_partners(left, right, at, against)
    entries = range(min(left.batch, right.batch))
    wanted = {(e, place, f): p for (place, f), p in expected.items() for e in entries}
    assert found_partners(found, left, right, at, against) == wanted
    assert found.compared == sum(
        math.prod(p.stop - p.start for p in one) for one, _ in found.blocks
    )
    assert found.compared + found.not_compared == math.prod(left.output_shape(at))
    assert bool(found.reason) == bool(found.not_compared)


@small
@given(cases(), st.integers(1, 9), st.integers(1, 9))
def test_lengths_agree_where_the_windows_are_the_same(case, at, against):
    assume(min(at, against) >= case.shortest_length)
    check(window.agreement(case, "length", at, against), case, case, at, against)


@small
@given(cases(), paddings, st.integers(1, 9), st.integers(1, 9))
def test_paddings_agree_where_the_windows_are_the_same(case, pads, at, against):
    try:
        pads = pads if isinstance(pads, str) else (pads,) * case.spatial_rank
        right = case.with_(padding=pads)
    except InputError:
        assume(False)
    assume(at >= case.shortest_length and against >= right.shortest_length)
    found = window.agreement(case, "length", at, against, against_padding=pads)
    check(found, case, right, at, against)


@small
@given(cases(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["batch", "filters"]))
def test_batches_and_filters_agree_where_the_windows_are_the_same(case, at, against, vary):
    case = at_length(case, 6)
    step = case.groups if vary == "filters" else 1
    left, right = (window.case_at(case, vary, value * step) for value in (at, against))
    found = window.agreement(case, vary, at * step, against * step)
    check(found, left, right, case.length, case.length)


def test_same_with_a_stride_moves_the_partner():
    case = Case("conv1d", 5, padding="same", stride=2)
    found = window.agreement(case, "length", 9, 12)  # padding before is 2 and 1: no partner
    assert (found.compared, found.not_compared) == (0, 5)
    assert "2 and 1 zeros before: this is not a multiple of the stride 2" in found.reason
    case = Case("conv1d", 9, padding="same", stride=2)
    found = window.agreement(case, "length", 6, 101)  # 3 and 4
    assert found.compared == 0
    case = case.with_(padding="0", dilation=1)
    moved = window.agreement(case, "length", 20, 20, against_padding="4:0")
    ((left, right),) = moved.blocks
    assert (left[1], right) == (slice(0, 6), (slice(0, 1), slice(2, 8), slice(0, 1)))


def test_a_prefix_of_a_valid_convolution_agrees_whole():
    case = Case("conv2d", (1, 5), in_channels=3, filters=4, batch=2, height=6)
    found = window.agreement(case, "length", 7, 19)
    whole = (slice(0, 2), slice(0, 6), slice(0, 3), slice(0, 4))
    assert found.blocks == ((whole, whole),)
    assert (found.compared, found.not_compared, found.reason) == (144, 0, "")


def test_case_at_keeps_the_first_explicit_filters():
    case = Case("conv1d", 2, filters=3, weights=range(6), bias="1,2,3", length=4)
    two = window.case_at(case, "filters", 2)
    assert two.weights == (0, 1, 3, 4) and two.bias == (1, 2)
    assert window.case_at(case, "batch", 5).batch == 5
    with pytest.raises(InputError, match="filters=4: weights are given for 3 filters only"):
        window.case_at(case, "filters", 4)
    with pytest.raises(InputError, match="vary=height: unknown; use one of length, batch, filters"):
        window.case_at(case, "height", 4)


def test_what_can_not_be_compared_is_an_error():
    with pytest.raises(InputError, match="length=4: shorter than the kernel"):
        window.agreement(Case("conv1d", 5), "length", 4, 9)
    with pytest.raises(InputError, match="length=None: the case has no length"):
        window.agreement(Case("conv1d", 5), "batch", 1, 2)
    with pytest.raises(InputError, match="batch=0: it is less than 1"):
        window.agreement(Case("conv1d", 5, length=9), "batch", 0, 2)

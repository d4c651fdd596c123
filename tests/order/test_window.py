"""Windows, against the same thing written out in plain loops, and as other frameworks read them."""

import importlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probe.case.case import Case
from probe.case.errors import InputError
from probe.case.operation import OPERATIONS
from probe.explain.runs import outputs_of_call
from probe.order import window
from probe.order.masks import SessionOperator
from probe.order.window import equivalent
from probe.order.windows import as_predicted, reveal_windows

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
    places, reads = list(itertools.product(*map(range, geometry.outputs))), geometry.reads()
    for (place, f), read in windows(case, length).items():
        for leaf in range(case.summands):
            tap, channel = divmod(leaf, geometry.group_channels)
            expected = -1
            if leaf in read:
                expected = np.ravel_multi_index(read[leaf][0], case.spatial())
                assert geometry.channels(f)[channel] == read[leaf][1]
            assert reads[places.index(place), tap] == expected


def test_indices_are_int32_where_they_fit():
    assert window.Geometry.of(Case("conv1d", 3, length=9)).reads().dtype == np.int32
    wide = window.Geometry.of(Case("conv1d", 3, in_channels=2**20, length=2**12))
    assert wide.reads(np.array([2**12 - 3])).dtype == np.int64


@small
@given(cases(), st.integers(1, 7), st.sampled_from(["float32", "bfloat16"]))
def test_columns_and_scale_hold_what_the_loop_meets(case, length, dtype):
    case = at_length(case, length).with_(dtype=dtype, bias="normal")
    x, w, b = case.operands()
    shape = case.output_shape()
    scale = window.scale(case, x, w, b)
    assert scale.shape == shape
    reads = windows(case, length)
    columns = window.columns(case, x)
    table = w.reshape(-1, case.filters)
    for entry, *place, f in np.ndindex(shape):
        leaves = reads[tuple(place), f]
        total = abs(float(b[f]))
        group = f // (case.filters // case.groups)
        position = int(np.ravel_multi_index(place, shape[1:-1])) + entry * math.prod(shape[1:-1])
        for leaf in range(case.summands):
            value = x[(entry, *leaves[leaf][0], leaves[leaf][1])] if leaf in leaves else 0
            assert columns[group][leaf, position] == value
            total += abs(float(value) * float(table[leaf, f]))
        assert scale[(entry, *place, f)] == pytest.approx(total, rel=1e-13)


def test_columns_take_a_prefix_of_the_input_and_refuse_another():
    case = Case("conv1d", 3, in_channels=2, length=9)
    x, _, _ = case.operands()
    assert (window.columns(case, x[:, :5])[0][:, 2] == x[0, 2:5].ravel()).all()
    with pytest.raises(InputError, match=r"x.shape=\(1, 9, 1\): the case has \(batch, 9, 2\)"):
        window.columns(case, x[..., :1])


def expected_partners(left, right, at, against):
    """{(left place, filter): right place} of all outputs whose windows are the same."""
    partner = {(f, *sorted(w.items())): p for (p, f), w in windows(right, against).items() if w}
    return {
        (place, f): partner[key]
        for (place, f), read in windows(left, at).items()
        if (key := (f, *sorted(read.items()))) in partner
    }


def agreement(case, vary, at, against):
    """The blocks that must agree, how many outputs those are, and how many others the left has."""
    left, right = (window.case_at(case, vary, value) for value in (at, against))
    blocks = window.agreeing_blocks(*map(window.Geometry.of, (left, right)))
    compared = sum(map(window.block_size, blocks))
    return blocks, compared, math.prod(left.output_shape()) - compared


def found_partners(blocks, left, right, at, against):
    """The same from blocks, for the outputs that read anything."""
    flat_left = np.arange(math.prod(left.output_shape(at))).reshape(left.output_shape(at))
    flat_right = np.arange(math.prod(right.output_shape(against)))
    flat_right = flat_right.reshape(right.output_shape(against))
    reads, pairs = windows(left, at), {}
    for block in blocks:
        ours, theirs = flat_left[block], flat_right[block]
        assert ours.shape == theirs.shape
        for one, other in zip(ours.ravel(), theirs.ravel(), strict=True):
            entry, *place, f = map(int, np.unravel_index(one, left.output_shape(at)))
            entry_, *partner, f_ = map(int, np.unravel_index(other, right.output_shape(against)))
            assert (entry, f) == (entry_, f_) and (entry, tuple(place), f) not in pairs
            if reads[tuple(place), f]:
                pairs[entry, tuple(place), f] = tuple(partner)
    return pairs


def check(blocks, left, right, at, against):
    expected = expected_partners(left, right, at, against)
    entries = range(min(left.batch, right.batch))
    wanted = {(e, place, f): p for (place, f), p in expected.items() for e in entries}
    assert found_partners(blocks, left, right, at, against) == wanted
    sizes = [math.prod(p.stop - p.start for p in block) for block in blocks]
    assert [*map(window.block_size, blocks)] == sorted(sizes, reverse=True)


@small
@given(cases(), st.integers(1, 9), st.integers(1, 9))
def test_lengths_agree_where_the_windows_are_the_same(case, at, against):
    assume(min(at, against) >= case.shortest_length)
    check(agreement(case, "length", at, against)[0], case, case, at, against)


@small
@given(cases(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["batch", "filters"]))
@pytest.mark.slow
def test_batches_and_filters_agree_where_the_windows_are_the_same(case, at, against, vary):
    case = at_length(case, 6)
    step = case.groups if vary == "filters" else 1
    left, right = (window.case_at(case, vary, value * step) for value in (at, against))
    blocks, _, _ = agreement(case, vary, at * step, against * step)
    check(blocks, left, right, case.length, case.length)


def test_same_with_a_stride_may_leave_no_partner():
    case = Case("conv1d", 5, padding="same", stride=2)
    # padding before is 2 and 1: no partner
    assert agreement(case, "length", 9, 12)[1:] == (0, 5)


def test_outputs_without_a_partner_are_not_compared():
    case = Case("conv1d", 3, in_channels=4, filters=4, groups=2, batch=3, length=9, padding="3:0")
    assert agreement(case, "batch", 3, 2)[1:] == (80, 40)
    assert agreement(case, "filters", 4, 2)[1:] == (30, 90)  # the second is in another group
    # of 4 filters in two groups and 6, the third is in the second group on one side alone
    blocks, compared, _ = agreement(case, "filters", 4, 6)
    assert compared == 90 and [block[-1] for block in blocks] == [slice(0, 2), slice(3, 4)]
    assert agreement(case, "length", 9, 6)[1:] == (84, 36)


SPLIT = Case("conv1d", 3, in_channels=6, filters=2, length=9, operands="cancel", padding="same")


def test_an_axis_says_its_value_and_its_limits():
    assert window.value_on_axis(window.case_at(SPLIT, "channels", 2), "channels") == 2
    assert window.value_on_axis(SPLIT, "channels") == 6
    assert window.value_on_axis(SPLIT.with_(length=None), "length") is None
    assert window.number_of("layout", None) is None and window.number_of("batch", 3) == 3
    assert window.axis_of(Case("dense", in_channels=4), None) == "batch"
    with pytest.raises(InputError, match="dense has no length"):
        window.axis_of(Case("dense", in_channels=4), "length")
    with pytest.raises(InputError, match="channels=7: the case has 6 channels to split"):
        window.case_at(SPLIT, "channels", 7)
    with pytest.raises(InputError, match="split=1: the channels of 2 groups"):
        window.case_at(SPLIT.with_(groups=2), "channels", 1)


def test_all_outputs_must_agree():
    assert agreement(SPLIT, "channels", 2, 6)[1:] == (18, 0)


# What makes another framework read the same windows: checked by reading them off it.


SAME = {"stride": 2, "padding": "same"}
CASES = [
    Case("conv1d", 2, length=4, weights="0,1", **SAME),
    Case("conv1d", 3, in_channels=2, filters=4, groups=2, length=8, **SAME),
    Case("conv1d", 4, length=11, stride=3, padding="same_lower"),
    Case("conv1d", 3, length=9, padding="same", dilation=2, filters=2),
    Case("conv2d", "2x3", height=5, length=8, padding="caffe", stride="1x2", dilation="2x1"),
    Case("conv3d", 2, height="3x4", length=5, padding=1, stride=2),
    Case("depthwise_conv2d", 3, in_channels=2, filters=4, height=6, length=7, **SAME),
    Case("conv1d_transpose", 3, in_channels=2, filters=4, length=4, **SAME),
    Case("conv1d_transpose", 3, in_channels=4, filters=6, groups=2, length=4, stride=2),
    Case("conv2d_transpose", 3, height=3, length=4, stride=2, padding="1:0"),
    Case("conv2d_transpose", "2x3", 2, height=3, length=4, stride="3x2", padding="0:-1,2"),
    Case("max_pool2d", 3, height=6, length=6, stride=2, padding="caffe"),
    Case("max_pool2d", 3, height=6, length=7, stride=2, padding="0:2,1:0", pad_with="zeros"),
    Case("avg_pool1d", 3, length=8, in_channels=2, **SAME),
    Case("avg_pool2d", 3, height=6, length=6, stride=2, padding=1, pad_with="zeros"),
    Case("avg_pool2d", 2, height=5, length=7, stride=2, ceil_mode=True),
]
TARGETS = ("tensorflow", "keras", "torch", "jax", "onnxruntime", "opencv", "reference")


def converted(case, framework):
    """The conversion; skips where the framework has no word for it, with its reason."""
    try:
        return equivalent(case, framework)
    except InputError as error:
        pytest.skip(str(error))


def cropped(found, case, crop):
    """Windows (groups, batch * positions, leaves) of the outputs that are kept."""
    shape = (case.groups, case.batch, *case.output_spatial(), -1)
    kept = found.reshape(shape)[(slice(None), slice(None), *crop)]
    return kept.reshape(case.groups, -1, found.shape[-1])


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize(
    "target",
    [pytest.param(one, marks=pytest.mark.slow) if one == "keras" else one for one in TARGETS],
)
@pytest.mark.slow_at(
    "tensorflow-conv1d 3, 2 -> 4, stride 2, 2 groups, same, length 8",
    "tensorflow-conv1d 2, 1 -> 1, stride 2, same, length 4",
    "torch-conv1d 2, 1 -> 1, stride 2, same, length 4",
)
def test_the_windows_after_conversion_are_those_of_the_case(started, target, case):
    session = started(target)
    if target == "reference":
        revealed = reveal_windows(SessionOperator(session, case))
    else:
        found = converted(case, target)
        revealed = reveal_windows(SessionOperator(session, found.case))
        revealed = cropped(revealed, found.case, found.crop)
    if "pool" in case.op:
        revealed = np.sort(revealed, axis=2)
        assert (revealed == np.sort(as_predicted(case), axis=2)).all()
    else:
        assert (revealed == as_predicted(case)).all()


def layouts(case):
    """x and w of a case, channels last and channels first."""
    x, w, _ = case.operands()
    plain = np.moveaxis(w, (-1, -2), (0, 1))
    if "transpose" in case.op:  # (in, out / groups, *kernel), and (*kernel, out / groups, in)
        grouped = w.reshape(*case.kernel, case.group_channels, case.groups, -1)
        plain = np.moveaxis(grouped, (-2, -3, -1), (0, 1, 2))
        plain = plain.reshape(case.in_channels, -1, *case.kernel)
        w = np.moveaxis(plain, (0, 1), (-1, -2))
    return x, w, *map(np.ascontiguousarray, (np.moveaxis(x, -1, 1), plain))


def in_torch(case, code):
    torch = importlib.import_module("torch")
    _, _, x, w = map(torch.from_numpy, layouts(case))
    names = {"F": torch.nn.functional, "torch": torch, "x": x, "w": w}
    exec(code, names)
    return np.moveaxis(names["y"].numpy(), 1, -1)


def in_tensorflow(case, code):
    tf = importlib.import_module("tensorflow")
    x, w, _, _ = layouts(case)
    if case.op.startswith("depthwise"):
        w = w.reshape(*case.kernel, case.in_channels, -1)
    names = {"tf": tf, "x": tf.constant(x), "w": tf.constant(w)}
    exec(code, names)
    return names["y"].numpy()


def in_jax(case, code):
    jax = importlib.import_module("jax")
    x, w, _, _ = layouts(case)
    if "transpose" in case.op:  # its taps are in the opposite order
        w = np.flip(case.operands()[1], range(case.spatial_rank))
    names = {"lax": jax.lax, "jnp": jax.numpy, "x": jax.numpy.asarray(x), "w": jax.numpy.asarray(w)}
    exec(code, names)
    return np.asarray(names["y"])


def in_keras(case, code):
    keras = importlib.import_module("keras")
    names = {"keras": keras, "x": keras.ops.convert_to_tensor(layouts(case)[0])}
    exec(code, names)
    return np.asarray(names["y"]).shape


RUNS = {"torch": in_torch, "tensorflow": in_tensorflow, "jax": in_jax, "keras": in_keras}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize("framework", list(RUNS))
@pytest.mark.filterwarnings("ignore")
def test_the_code_runs_as_it_is_and_gives_the_same_outputs(started, framework, case):
    pytest.importorskip(framework)
    case = case.with_(bias=None, operands="integers" if "conv" in case.op else "normal")
    found = RUNS[framework](case, converted(case, framework).code)
    if framework == "keras":  # its layer makes its own weights
        assert found == case.output_shape()
        return
    expected = outputs_of_call(started("reference"), case)
    assert found.shape == expected.shape
    # whole numbers are exact; an average is a quotient of two averages at worst: 4 roundings
    assert (
        np.abs(found - expected).max() <= ("avg" in case.op) * 4 * 2**-23 * np.abs(expected).max()
    )


def test_onnx_and_caffe_have_the_padding_in_their_own_words():
    even = Case("conv2d", 3, height=10, length=10, **SAME)
    assert 'auto_pad="SAME_UPPER"' in equivalent(even, "onnx").code
    assert "pads=[1, 1, 1, 1]" in equivalent(even.with_(padding=1), "onnx").code
    found = equivalent(even, "caffe")
    assert found.crop == (slice(1, 6), slice(1, 6)) and "pad_h: 2 pad_w: 2" in found.code
    assert found.code.endswith("y = net.forward()[:, :, 1:6, 1:6]")
    assert "the extra outputs are cropped" in found.note


def test_a_transposed_convolution_says_by_how_much_it_would_be_shifted():
    same = Case("conv2d_transpose", 3, height=5, length=5, **SAME)
    found = equivalent(same, "torch")
    assert found.code.endswith("y = y[:, :, :-1, :-1]")
    assert "padding=1x1, output_padding=1x1 has as many outputs, shifted" in found.note
    assert "output 1x1 here is its output 0x0" in found.note
    torch_own = same.with_(padding="1:0")
    assert "padding=1, output_padding=1" in equivalent(torch_own, "torch").code
    assert "output 0x0 here is its output 1x1" in equivalent(torch_own, "keras").note
    with pytest.raises(InputError, match="framework=caffe"):
        equivalent(same, "caffe")


@pytest.mark.parametrize(
    ("case", "framework", "why"),
    [
        (Case("conv1d", 3, length=9), "theano", "use one of torch, tensorflow"),
        (Case("matmul", in_channels=3, length=2), "torch", "it has no windows"),
        (Case("conv1d", 3), "torch", "give one, length=N"),
    ],
)
def test_what_cannot_be_converted_is_an_input_error(case, framework, why):
    with pytest.raises(InputError, match=why):
        equivalent(case, framework)

"""What makes another framework read the same windows: checked by reading them off it."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from probe import window
from probe.case import Case
from probe.errors import InputError
from probe.summation.masks import SessionOperator
from probe.summation.windows import reveal_windows
from probe.window import equivalent

pytestmark = pytest.mark.long

SAME = {"stride": 2, "padding": "same"}
CASES = [
    Case("conv1d", 2, length=4, weights="0,1", **SAME),
    Case("conv1d", 3, in_channels=2, filters=4, groups=2, length=8, **SAME),
    Case("conv1d", 4, length=11, stride=3, padding="same_lower"),
    Case("conv1d", 3, length=9, padding="same", dilation=2, filters=2),
    Case("conv1d", 5, length=9, padding="3:0", stride=2, bias=0.5),
    Case("conv2d", 3, in_channels=3, filters=2, height=6, length=6, **SAME),
    Case("conv2d", "2x3", height=5, length=8, padding="caffe", stride="1x2", dilation="2x1"),
    Case("conv2d", 3, height=4, length=6, padding="0:1,2:0", batch=2),
    Case("conv3d", 2, height="3x4", length=5, padding=1, stride=2),
    Case("depthwise_conv2d", 3, in_channels=2, filters=4, height=6, length=7, **SAME),
    Case("max_pool1d", 3, length=8, in_channels=2, **SAME),
    Case("max_pool2d", 3, height=6, length=6, stride=2, padding="caffe"),
    Case("max_pool2d", 3, height=6, length=7, stride=2, padding="0:2,1:0", pad_with="zeros"),
    Case("max_pool2d", 2, height=5, length=7, stride=2, ceil_mode=True, in_channels=3),
    Case("avg_pool1d", 3, length=8, in_channels=2, **SAME),
    Case("avg_pool2d", 3, height=6, length=6, stride=2, padding=1, pad_with="zeros"),
    Case("avg_pool2d", 3, height=6, length=6, stride=2, padding="caffe", pad_with="zeros"),
    Case("avg_pool2d", 2, height=5, length=7, stride=2, ceil_mode=True),
    Case("avg_pool2d", 3, height=6, length=7, stride=1, padding="0:1,2:0", pad_with="zeros"),
]
TARGETS = ("tensorflow", "keras", "torch", "jax", "onnxruntime", "opencv", "reference")


def predicted(case):
    """(groups, batch * positions, leaves): where the case's own padding puts its windows."""
    geometry = window.Geometry.of(case)
    size = np.prod(case.input_shape()) // case.batch
    entries = np.arange(case.batch)[:, None, None] * size
    found = []
    for group in range(case.groups):
        reads = geometry.gather_indices(group * (case.filters // case.groups))
        met = np.where(reads < 0, -1, reads + entries)
        found.append(met.reshape(-1, reads.shape[1]))
    return np.stack(found)


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize(
    "target",
    [pytest.param(one, marks=pytest.mark.slow) if one == "keras" else one for one in TARGETS],
)
@pytest.mark.slow_at(
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
        assert (revealed == np.sort(predicted(case), axis=2)).all()
    else:
        assert (revealed == predicted(case)).all()


def layouts(case):
    """x and w of a case, channels last and channels first."""
    x, w, _ = case.operands()
    first = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
    return x, w, *map(np.ascontiguousarray, first)


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
    names = {"lax": jax.lax, "jnp": jax.numpy, "x": jax.numpy.asarray(x), "w": jax.numpy.asarray(w)}
    exec(code, names)
    return np.asarray(names["y"])


def in_keras(case, code):
    keras = importlib.import_module("keras")
    names = {"keras": keras, "x": keras.ops.convert_to_tensor(layouts(case)[0])}
    exec(code, names)
    return np.asarray(names["y"]).shape


RUNS = {"torch": in_torch, "tensorflow": in_tensorflow, "jax": in_jax, "keras": in_keras}


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
    expected = given(started("reference"), case)
    assert found.shape == expected.shape
    # whole numbers are exact; an average is a quotient of two averages at worst: 4 roundings
    assert (
        np.abs(found - expected).max() <= ("avg" in case.op) * 4 * 2**-23 * np.abs(expected).max()
    )


def given(session, case):
    x, w, _ = case.operands()
    return session.request({"do": "run", "spec": case.spec()}, {"x": x, "w": w})[1]["y"]


def test_symmetric_padding_is_native_and_the_odd_zero_an_extra_pad():
    even = Case("conv2d", 3, height=10, length=10, **SAME)
    assert equivalent(even, "torch").code == (
        "x = F.pad(x, (0, 1, 0, 1))\ny = F.conv2d(x, w, stride=2, padding=0)"
    )
    assert equivalent(even.with_(length=11, height=11), "torch").code == (
        "y = F.conv2d(x, w, stride=2, padding=1)"
    )
    assert equivalent(even, "torch").padding == ((0, 1), (0, 1))
    note = equivalent(even, "torch").note
    assert "0:1 where size mod 2 is 0, 1:1 where size mod 2 is 1" in note


def test_names_that_frameworks_have_for_a_convention_are_used():
    even = Case("conv2d", 3, height=10, length=10, **SAME)
    assert 'padding="SAME"' in equivalent(even, "tensorflow").code
    assert 'padding="same"' in equivalent(even, "keras").code
    assert 'auto_pad="SAME_UPPER"' in equivalent(even, "onnx").code
    lower = even.with_(padding="same_lower")
    assert 'auto_pad="SAME_LOWER"' in equivalent(lower, "onnx").code
    symmetric = even.with_(padding=1)
    assert "pads=[1, 1, 1, 1]" in equivalent(symmetric, "onnx").code
    assert "ZeroPadding2D(((1, 1), (1, 1)))" in equivalent(symmetric, "keras").code
    assert 'padding="SAME"' in equivalent(symmetric.with_(stride=1), "tensorflow").code


def test_caffe_pads_more_and_crops_where_padding_is_not_symmetric():
    found = equivalent(Case("conv2d", 3, height=10, length=10, **SAME), "caffe")
    assert found.target == "opencv" and found.crop == (slice(1, 6), slice(1, 6))
    assert found.padding == ((2, 2), (2, 2)) and "pad_h: 2 pad_w: 2" in found.code
    assert found.code.endswith("y = net.forward()[:, :, 1:6, 1:6]")
    pool = equivalent(Case("max_pool2d", 3, height=6, length=6, stride=2), "opencv")
    assert pool.crop == (slice(0, 2), slice(0, 2)) and pool.ceil_mode


def test_what_caffe_has_no_layer_for_is_an_error_that_says_so():
    same = Case("avg_pool2d", 3, height=6, length=6, **SAME, pad_with="nothing").with_(stride=1)
    with pytest.raises(InputError, match="Caffe's average counts only its own symmetric padding"):
        equivalent(same, "caffe")


def test_keras_refuses_strides_together_with_dilations():
    with pytest.raises(InputError, match="refuses strides together with dilations"):
        equivalent(Case("conv1d", 3, length=9, stride=2, dilation=2), "keras")


def test_maxima_are_padded_with_infinity_and_not_with_zeros():
    case = Case("max_pool2d", 3, height=6, length=6, **SAME)
    assert 'value=float("-inf")' in equivalent(case, "torch").code
    assert "inf" not in equivalent(case.with_(padding="0:1", pad_with="zeros"), "torch").code


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

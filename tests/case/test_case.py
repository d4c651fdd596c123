"""A case: checked once, the same words in Python, JSON and text, an id of its content."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probe.case import floats, operands
from probe.case.case import LARGEST_FILE, Case, require_length
from probe.case.errors import InputError
from probe.case.operation import OPERATIONS

REPORT = {
    "op": "conv2d",
    "kernel": "1x5",
    "weights": "-0.7313,-1.1043,1.8492,1.3007,-0.1033",
    "bias": "0.0401",
    "operands": "ramp",
    "length": "7",
}


def test_text_and_python_make_the_same_case():
    weights = np.array([-0.7313, -1.1043, 1.8492, 1.3007, -0.1033])
    python = Case("conv2d", (1, 5), weights=weights, bias=0.0401, operands="ramp", length=7)
    assert Case(**REPORT) == python and hash(python) == hash(Case(**REPORT))
    numbers = {"in_channels": "4", "filters": "8", "groups": "2", "batch": "3", "seed": "7"}
    text = Case("conv3d", "3", stride="1x2x1", dilation="2", height="7x8", **numbers)
    assert (text.kernel, text.stride, text.dilation) == ((3, 3, 3), (1, 2, 1), (2, 2, 2))
    assert (text.in_channels, text.filters, text.groups, text.batch, text.seed) == (4, 8, 2, 3, 7)
    assert text.height == (7, 8) and text.length is None


def test_shapes():
    case = Case("conv2d", (3, 5), 8, 12, length=20, groups=4, stride=(2, 3), dilation=(1, 2),
                batch=2, height=9, padding="0,1:2")  # fmt: skip
    assert case.effective_kernel == (3, 9)
    assert case.spatial() == (9, 20) and case.spatial(30) == (9, 30)
    assert case.input_shape() == (2, 9, 20, 8) and case.input_shape(30, 5) == (5, 9, 30, 8)
    assert case.weight_shape == (3, 5, 2, 12) and case.summands == 30
    assert case.output_shape() == (2, 4, 5, 12) and case.output_shape(21, 1) == (1, 4, 6, 12)
    assert case.shortest_length == 6
    x, w, b = case.with_(bias="normal").operands()
    assert (x.shape, w.shape, b.shape) == ((2, 9, 20, 8), (3, 5, 2, 12), (12,))


def test_bias_is_none_one_number_all_numbers_or_generated():
    assert Case("conv1d", 3).bias_values is None and Case("conv1d", 3, bias="none").bias is None
    assert Case("conv1d", 3, filters=3, bias=0.5).bias_values == (0.5, 0.5, 0.5)
    assert Case("conv1d", 3, filters=2, bias="1,2").bias_values == (1.0, 2.0)
    generated = Case("conv1d", 3, filters=2, bias="normal", length=5)
    assert generated.bias_values is None and generated.operands()[2].shape == (2,)
    assert generated.spec()["bias"] and not Case("conv1d", 3).spec()["bias"]


WRONG = [
    ({"kernel": None}, "kernel=None: it is required; write kernel=N"),
    ({"op": "matmul"}, "kernel=5: matmul has none; leave it out"),
    ({"op": "matmul", "kernel": 1, "stride": 2}, "stride=2: matmul has none"),
    ({"op": "sum", "kernel": 1, "filters": 2}, "filters=2: sum has none"),
    ({"in_channels": 4, "split": 4}, "split=4: there are 4 channels, .*; use fewer"),
    ({"op": "conv4d"}, "op=conv4d: unknown; did you mean conv3d or conv2d\\? use one of conv1d"),
    ({"length": 4}, "length=4: shorter than the kernel, which spans 5; padding=valid; write"),
    ({"in_channels": 4, "groups": 3}, "in_channels=4: not divisible by the 3 groups"),
    ({"in_channels": 4, "groups": 2, "filters": 3}, "filters=3: not divisible by the 2 groups"),
    ({"op": "depthwise_conv2d", "in_channels": 4, "groups": 2}, "groups=2: a depthwise operator"),
    ({"kernel": 2.5}, "kernel=2.5: it is not a whole number"),
    ({"kernel": "1x5"}, "kernel=1x5: 2 sizes for 1 axis; write kernel=N"),
    ({"batch": -1}, "batch=-1: it is less than 1"),
    ({"batch": True}, "batch=True: it is not a whole number"),
    ({"seed": 2**63}, "seed=9223372036854775808: it has more than 63 bits"),
    ({"height": 3}, "height=3: this operation has one spatial axis only"),
    ({"padding": -1}, "padding=-1: padding can't be negative"),
    ({"padding": "0:1,2:2"}, "padding=0:1,2:2: 2 entries for 1 spatial axis"),
    ({"dtype": "int8"}, "dtype=int8: unknown; use one of float16, bfloat16, float32, float64"),
    ({"weights": "1,2"}, r"weights=\(2 numbers\): 2 weights for a kernel of shape 5 x 1 x 1"),
    ({"weights": [1, 2, 3, 4, 1e39]}, r"weights=1e\+39: no finite float32"),
    ({"bias": [1, 2]}, r"bias=\(2 numbers\): it does not fit filters=1"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_input_is_one_line_that_says_what_to_do(change, message):
    with pytest.raises(InputError, match=message) as error:
        Case(**{"op": "conv1d", "kernel": 5, **change})
    assert "\n" not in str(error.value) and "; " in str(error.value)


def test_what_needs_a_length_says_so():
    case = Case("conv1d", 5)
    for use in (case.spatial, case.input_shape, case.output_shape, case.operands):
        with pytest.raises(InputError, match="length=None: the case has no length"):
            use()
    with pytest.raises(InputError, match="length=None: the order depends on the shape"):
        require_length(case)
    assert case.output_shape(9) == (1, 5, 1)


def test_unknown_and_missing_keys_are_refused():
    with pytest.raises(
        InputError, match="size=4: there is no such argument of a case; did you mean length"
    ):
        Case.from_json({"op": "conv1d", "kernel": 3, "size": 4})
    with pytest.raises(InputError, match="kernel=None: it is required"):
        Case.from_json({"op": "conv1d"})
    with pytest.raises(InputError, match="strides=2: there is no such argument of a case"):
        Case("conv1d", 3).with_(strides=2)


def test_a_case_file(tmp_path):
    path = tmp_path / "case.json"
    path.write_text(json.dumps(REPORT))
    assert Case.from_file(path) == Case(**REPORT)
    with pytest.raises(InputError, match="No such file"):
        Case.from_file(tmp_path / "none.json")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is not a text file"):
        Case.from_file(path)
    path.write_text("[" * 200_000)
    with pytest.raises(InputError, match="nested too deeply"):
        Case.from_file(path)
    path.write_bytes(b" " * (LARGEST_FILE + 1))
    with pytest.raises(InputError, match="a case has at most"):
        Case.from_file(path)


@settings(deadline=None)
@given(
    st.sampled_from([name for name, row in OPERATIONS.items() if row.kind == "convolution"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["valid", "same", "caffe", 1, "0:2"]),
    st.sampled_from(list(floats.FORMATS)),
    st.sampled_from(list(operands.KINDS)),
    st.sampled_from([None, "normal", 0.25]),
    st.one_of(st.none(), st.integers(9, 20)),
)
def test_json_gives_the_case_back(op, kernel, channels, padding, dtype, kind, bias, length):
    case = Case(op, kernel, channels, channels * 2, length, padding=padding, dtype=dtype,
                operands=kind, bias=bias)  # fmt: skip
    again = Case.from_json(json.dumps(case.to_json()))
    assert again == case == Case.from_json(case.to_json()) and again.id == case.id
    assert case.with_() == case
    json.dumps(case.spec())


def test_matrix_products_and_sums_need_no_kernel():
    product = Case("matmul", in_channels=64, filters=3, length=5, batch=2, bias="normal")
    assert product.kernel == (1,) and product.summands == 64
    assert product.input_shape() == (2, 5, 64) and product.output_shape() == (2, 5, 3)
    assert [a.shape for a in product.operands()] == [(2, 5, 64), (1, 64, 3), (3,)]
    assert product.label == "matmul, 64 -> 3, batch 2, length 5"
    assert Case.from_json(product.to_json()) == product == product.with_(kernel=1)
    with pytest.raises(InputError, match="kernel=None: it is required"):
        product.with_(op="conv1d", kernel=None)


def test_a_split_is_part_of_a_case_that_has_one():
    case = Case("conv1d", 3, in_channels=16, filters=2, length=9)
    half = case.with_(split="8")
    assert half.split == 8 and half.id != case.id and half.label.endswith("split 8+8, length 9")
    assert half.spec() == case.spec() | {"split": 8} and "split" not in case.spec()
    assert Case.from_json(half.to_json()) == half and "split" not in case.to_json()
    assert half.with_(split=None) == case


def test_the_id_changes_with_the_content_alone():
    base = {"op": "conv1d", "kernel": 5, "in_channels": 2, "filters": 2, "length": 9}
    single = {"kernel": 3, "in_channels": 4, "filters": 4, "length": 10, "stride": 2, "dilation": 2}
    single |= {"groups": 2, "padding": "same", "batch": 2, "dtype": "float64", "seed": 1}
    single |= {"operands": "cancel", "weights": range(20), "bias": 0}
    changes = [{}, {"op": "conv2d", "kernel": (1, 5)}, {"padding": 0}]
    changes += [{name: value} for name, value in single.items()]
    ids = [Case(**{**base, **change}).id for change in changes]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in ids)
    assert Case(**base).id == Case(**{**base, "kernel": "5", "height": None}).id
    assert Case(**base).id == "8521d4341b483d21"  # recorded: stored results are found by it


def test_the_spec_resolves_what_a_library_does_not_know():
    case = Case("conv2d", (3, 5), dilation=(1, 2), padding="caffe")
    assert case.spec()["padding"] == [[1, 1], [4, 4]]
    assert Case("conv1d", 3, padding="same").spec()["padding"] == "same"
    assert Case("conv1d", 3, padding="1:0").spec() == {
        "op": "conv1d",
        "kernel": [3],
        "stride": [1],
        "dilation": [1],
        "groups": 1,
        "padding": [[1, 0]],
        "dtype": "float32",
        "in_channels": 1,
        "filters": 1,
        "bias": False,
    }


def test_the_label_says_what_differs_from_the_defaults():
    assert Case("conv1d", 5).label == "conv1d 5, 1 -> 1"
    case = Case("conv2d", (1, 5), 4, 8, 40, stride=(1, 2), groups=2, padding="same", batch=3,
                height=6, dtype="float16", operands="cancel")  # fmt: skip
    assert case.label == (
        "conv2d 1x5, 4 -> 8, stride 1x2, 2 groups, same, batch 3, height 6, length 40, float16, "
        "cancel"
    )


def test_values_are_put_where_a_case_says():
    case = Case("conv1d", 3, 2, 2, 6, put="x[0,1]=nan; w[2, 1]=-inf;x[0, 5, 1]=1e30", bias=0.5)
    x, w, b = case.operands()
    assert np.isnan(x[0, 1]).all() and np.isnan(x).sum() == 2 and x[0, 5, 1] == np.float32(1e30)
    assert np.isneginf(w[2, 1]).all() and np.isfinite(b).all()
    assert case.put == "x[0, 1]=nan; w[2, 1]=-inf; x[0, 5, 1]=1e+30"
    assert Case.from_json(case.to_json()) == case and Case.from_json(case.to_json()).id == case.id
    plain = Case("conv1d", 3, 2, 2, 6, bias=0.5)
    assert plain.id != case.id and "put" not in plain.to_json()
    shorter = case.with_(length=4)
    assert np.array_equal(shorter.operands()[0], x[:, :4], equal_nan=True)

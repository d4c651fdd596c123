"""Inputs of both sides: read, generated from a model's own shapes, cut along the varied axis."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.record import inputs
from probe.record.contract import Input

IMAGE = (Input("image", (None, 3, 8, 8), "float32"),)
TOKENS = (Input("ids", (None, None), "int64"), Input("attention_mask", (None, None), "int64"))
AUDIO = (Input("audio", (None, None), "float32"), Input("state", (2, None, 4), "float32"))
FIXED = (Input("x", (1, 3, 8), "float32"),)


def test_open_batches_get_the_larger_size():
    found = inputs.generated_inputs(IMAGE, "batch", 8, {})
    assert found["image"].shape == (8, 3, 8, 8) and found["image"].dtype == np.float32
    again = inputs.generated_inputs(IMAGE, "batch", 8, {})["image"]
    assert np.array_equal(found["image"], again)
    other = inputs.generated_inputs(IMAGE, "batch", 8, {}, seed=1)["image"]
    assert not np.array_equal(other, again)


def test_tokens_are_whole_numbers_and_masks_ones():
    found = inputs.generated_inputs(TOKENS, "length", 5, {})
    assert found["ids"].tolist() == [[0, 1, 2, 3, 4]]
    assert found["attention_mask"].tolist() == [[1] * 5]


def test_open_sizes_are_asked_for_by_name():
    wide = (Input("x", (None, 3, None, None), "float32"),)
    with pytest.raises(InputError) as caught:
        inputs.generated_inputs(wide, "batch", 8, {})
    assert str(caught.value) == (
        "shape=x: the model does not define all sizes: x [?, 3, ?, ?]; "
        'give shapes={"x": (8, 3, 64, 64)}, or inputs="FILE.npz"'
    )
    shapes = inputs.shapes_of(["x=8x3x16x24"])
    assert inputs.generated_inputs(wide, "batch", 8, shapes)["x"].shape == (8, 3, 16, 24)
    assert inputs.generated_inputs(wide, "batch", 8, inputs.shapes_of(["8x3x16x24"]))


def test_a_function_gets_an_array_of_each_shape_in_their_order():
    found = inputs.generated_inputs((), "batch", 8, inputs.shapes_of(["8x3", "scale=8"]))
    assert {name: one.shape for name, one in found.items()} == {"input0": (8, 3), "scale": (8,)}
    assert all(one.dtype == np.float32 for one in found.values())
    again = inputs.generated_inputs((), "batch", 8, inputs.shapes_of(["8x3"]), seed=1)["input0"]
    assert not np.array_equal(again, found["input0"])
    assert inputs.generated_inputs((), "batch", 8, {}) == {}


@pytest.mark.parametrize("text", ["x", "x=3xa", "x=-1", "x="])
def test_what_is_no_shape_is_said(text):
    with pytest.raises(InputError, match="it is not a shape; write 8x64, or NAME=8x64"):
        inputs.shapes_of([text])


def test_shapes_of_other_inputs_or_ranks_are_refused():
    with pytest.raises(InputError, match="the model has no such input; it has image"):
        inputs.generated_inputs(IMAGE, "batch", 2, {"picture": (1, 2)})
    with pytest.raises(InputError, match="image has 4 axes"):
        inputs.generated_inputs(IMAGE, "batch", 2, {"image": (1, 2)})


def cut(declared, arrays, vary, size):
    found = inputs.first_entries(arrays, inputs.varied_axes(vary, arrays, declared), size)
    return {name: array.shape for name, array in found.items()}


def test_every_input_with_a_batch_is_cut():
    arrays = inputs.generated_inputs(TOKENS, "batch", 4, {"ids": (4, 9), "attention_mask": (4, 9)})
    assert cut(TOKENS, arrays, "batch", 1) == {"ids": (1, 9), "attention_mask": (1, 9)}


def test_a_length_is_cut_where_inputs_share_it():
    arrays = {"audio": np.zeros((1, 512)), "state": np.zeros((2, 1, 4))}
    assert cut(AUDIO, arrays, "length", 100) == {"audio": (1, 100), "state": (2, 1, 4)}


def test_axes_can_be_named():
    arrays = {"audio": np.zeros((3, 512)), "state": np.zeros((2, 3, 4))}
    found = cut(AUDIO, arrays, "audio:0,state:1", 1)
    assert found == {"audio": (1, 512), "state": (2, 1, 4)}
    for text, why in {
        "audio": "not an axis; write batch",
        "audio:7": "audio has 2 axes",
        "sound:1": "no input has this name; there are audio, state",
    }.items():
        with pytest.raises(InputError, match=why):
            inputs.varied_axes(text, arrays, AUDIO)


def test_undeclared_inputs_are_cut_along_the_longest_axis_behind_the_batch():
    arrays = {"x": np.zeros((2, 4, 64)), "y": np.zeros((64, 2)), "scale": np.zeros(())}
    assert cut((), arrays, "length", 10) == {"x": (2, 4, 10), "y": (64, 2), "scale": ()}
    assert cut((), {"x": np.zeros(64)}, "length", 10) == {"x": (10,)}
    assert cut((), arrays, "batch", 1) == {"x": (1, 4, 64), "y": (64, 2), "scale": ()}


def test_a_fixed_model_is_refused_with_what_to_do():
    for vary in ("batch", "length"):
        with pytest.raises(InputError, match=rf"a fixed {vary}: x \[1, 3, 8\]; export it"):
            inputs.varied_axes(vary, inputs.generated_inputs(FIXED, vary, 8, {}), FIXED)


def test_too_few_entries_are_refused():
    arrays = {"image": np.zeros((4, 3, 8, 8))}
    with pytest.raises(InputError, match="the size of image along axis 0 is 4; use 4 or less"):
        cut(IMAGE, arrays, "batch", 5)


def test_files_are_read_in_order_or_by_name(tmp_path):
    np.savez(tmp_path / "x.npz", b=np.ones(2), a=np.zeros(2))
    found = inputs.read_inputs(tmp_path / "x.npz")
    assert list(found) == ["b", "a"]
    two = (Input("a", (2,), "float64"), Input("b", (2,), "float64"))
    assert inputs.in_declared_order(two, found)["b"].tolist() == [1, 1]
    others = (Input("p", (2,), "float64"), Input("q", (2,), "float64"))
    assert inputs.in_declared_order(others, found)["p"].tolist() == [1, 1]
    with pytest.raises(InputError, match="the model has 1 inputs"):
        inputs.in_declared_order(IMAGE, found)


SILENT = (Input("x", (), ""), Input("mask", (), ""))


def test_a_file_that_says_no_shapes_is_given_inputs():
    arrays = {"x": np.zeros((8, 5)), "mask": np.zeros((8, 1))}
    assert cut(SILENT, arrays, "batch", 2) == {"x": (2, 5), "mask": (2, 1)}
    assert list(inputs.in_declared_order(SILENT, {"first": arrays["x"]})) == ["x"]
    assert list(inputs.in_declared_order(SILENT, {"mask": arrays["mask"]})) == ["mask"]
    made = inputs.generated_inputs(SILENT, "batch", 8, {"x": (8, 5)})
    assert list(made) == ["x"] and made["x"].dtype == np.float32
    with pytest.raises(
        InputError, match=r"does not define the shapes of its inputs \(x, mask\); give"
    ):
        inputs.generated_inputs(SILENT, "batch", 8, {})
    with pytest.raises(InputError, match="3 are given"):
        inputs.in_declared_order(SILENT, {**arrays, "more": arrays["x"]})


def test_sizes_that_no_memory_holds_and_axes_in_other_digits_are_refused():
    with pytest.raises(
        InputError, match="shape=image=.*: it does not fit into memory; choose a smaller shape"
    ):
        inputs.generated_inputs(IMAGE, "batch", 10**27, {})
    with pytest.raises(InputError, match="not an axis"):
        inputs.named_axes("x:²")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("objects", "no plain arrays"),
        ("text", "no plain arrays"),
        ("bytes flipped", "no plain arrays"),
        ("no file", "No such file"),
    ],
)
def test_a_file_that_holds_no_arrays_is_one_line(damage, why, tmp_path):
    path = tmp_path / "x.npz"
    if damage == "objects":
        np.savez(path, a=np.array([{}], dtype=object))
    elif damage == "text":
        path.write_text("hello")
    elif damage == "bytes flipped":
        np.savez_compressed(path, x=np.arange(999.0))
        data = bytearray(path.read_bytes())
        data[60:70] = bytes(10)
        path.write_bytes(data)
    with pytest.raises(InputError, match=why):
        inputs.read_inputs(path)


def test_arrays_go_to_inputs_by_name_and_the_others_are_said():
    """``mask`` and ``ids`` in the other order, or under other names, gave a confident answer about
    nonsense."""
    two = (Input("ids", (2,), "float64"), Input("mask", (2,), "float64"))
    zeros, ones = np.zeros(2), np.ones(2)
    cases = [
        ({"mask": ones, "ids": zeros}, ""),
        ({"mask": ones, "x": zeros}, "of the inputs, x is taken for ids, by their order"),
        (
            {"a": zeros, "b": ones},
            "of the inputs, a is taken for ids, b is taken for mask, by their order",
        ),
        ({"input0": zeros, "input1": ones}, ""),  # a list, whose order is what was meant
    ]
    for arrays, said in cases:
        notes = []
        named = inputs.in_declared_order(two, arrays, notes)
        assert list(named) == ["ids", "mask"] and named["mask"] is ones
        assert notes == [said] * bool(said)


def test_a_sample_of_a_batch_has_memory_of_its_own():
    """A view begins at another address, by which ONNX Runtime's means round otherwise."""
    batch = {"x": np.arange(12, dtype=np.float32).reshape(4, 3)}
    sample = inputs.first_entries(batch, {"x": 0}, 1, start=2)["x"]
    assert sample.tolist() == [[6, 7, 8]]
    assert not np.shares_memory(sample, batch["x"])

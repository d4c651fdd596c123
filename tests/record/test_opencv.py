"""Nets in OpenCV, recorded, of Caffe and ONNX: fused layers, and what must agree."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.record.recording import Run, record_run

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
if not hasattr(cv2.dnn, "readNetFromCaffe"):
    pytest.skip("this OpenCV reads no Caffe models", allow_module_level=True)

from probe.record.contract import OpenedFile  # noqa: E402
from probe.record.opencv import input_names, opened  # noqa: E402
from probe.targets.backends.opencv import (  # noqa: E402
    input_text,
    layer_caffemodel,
    layer_text,
)

pytestmark = pytest.mark.long

SIZE = 12


def model() -> tuple[str, bytes]:
    """A stem with BatchNorm and Scale, two branches, Eltwise, Concat, a pool and a classifier."""
    random = np.random.default_rng(0)
    text, content = [input_text("x", (1, 3, SIZE, SIZE))], list[bytes]()

    def layer(kind: str, bottoms: str, fields: str, *shapes: tuple[int, ...]) -> str:
        name = f"{kind.lower()}{len(text) - 1}"
        blobs = [(np.abs(random.normal(size=shape)) * 0.3).astype(np.float32) for shape in shapes]
        text.append(layer_text(name, kind, bottoms.split(), [name], fields))
        content.append(layer_caffemodel(name, kind, blobs) if blobs else b"")
        return name

    three = "convolution_param { num_output: 8 kernel_size: 3 pad: 1 bias_term: true }"
    one = "convolution_param { num_output: 8 kernel_size: 1 bias_term: false }"
    x = layer("Convolution", "x", three, (8, 3, 3, 3), (8,))
    x = layer("BatchNorm", x, "batch_norm_param { eps: 0.001 }", (8,), (8,), (1,))
    x = layer("Scale", x, "scale_param { bias_term: true }", (8,), (8,))
    x = layer("ReLU", x, "")
    left = layer("Convolution", x, three, (8, 8, 3, 3), (8,))
    right = layer("Convolution", x, one, (8, 8, 1, 1))
    y = layer("Eltwise", f"{left} {right}", "eltwise_param { operation: SUM }")
    y = layer("Concat", f"{layer('ReLU', y, '')} {x}", "concat_param { axis: 1 }")
    y = layer("Pooling", y, "pooling_param { pool: AVE kernel_size: 6 stride: 6 }")
    y = layer("InnerProduct", y, "inner_product_param { num_output: 5 }", (5, 64), (5,))
    layer("Softmax", y, "")
    return "".join(text), b"".join(content)


TEXTS = model()


def of_caffe(text: str, weights: bytes = b"") -> OpenedFile:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "net.prototxt").write_text(text)
        Path(folder, "net.caffemodel").write_bytes(weights)
        return opened(Path(folder, "net.prototxt"))


MODEL = of_caffe(*TEXTS)
IMAGES = np.random.default_rng(1).normal(size=(4, 3, SIZE, SIZE)).astype(np.float32)


def live(count: int) -> Run:
    """The model on the first images, with the bits of an unrecorded run."""
    recorder = MODEL.recorder({"x": IMAGES[:count]})
    found, plain = record_run(recorder), recorder.plain()
    assert [one.tobytes() for one in found.results] == [one.tobytes() for one in plain]
    return found


def test_fused_layers_are_one_operation_and_the_note_says_which() -> None:
    """All layers are in some operation; none is run alone."""
    recording = live(2)
    kinds = [kind for one in recording.operations for kind in one.op.split("+")]
    assert len(kinds) == TEXTS[0].count("layer {") and len(recording.operations) >= 4
    assert all(one.again is None for one in recording.operations)
    if len(recording.operations) < len(kinds):
        assert "fuses" in recording.note


def test_layers_that_work_in_place_are_recorded_too() -> None:
    """As Caffe's models have it: BatchNorm, Scale and ReLU write over what they read."""
    text = TEXTS[0]
    for name in ("batchnorm1", "scale2", "relu3"):
        text = text.replace(f'top: "{name}"', 'top: "convolution0"')
        text = text.replace(f'bottom: "{name}"', 'bottom: "convolution0"')
    run = record_run(of_caffe(text, TEXTS[1]).recorder({"x": IMAGES[:2]}))
    assert [one.tobytes() for one in run.results] == [one.tobytes() for one in live(2).results]


def test_a_prototxt_names_its_inputs() -> None:
    """In both ways of writing them; comments are left out."""
    layer = 'layer { name: "a" type: "ReLU" bottom: "data" top: "a" }'
    input_layer = (
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 } } }'
    )
    for text in (
        f'input: "data" input_dim: 1 input_dim: 3 input_dim: 8  # input: "b" {layer}\n',
        "name: 'net' input: 'data' input_shape < dim: [1, 3] >",
        input_layer,
    ):
        assert input_names(text + layer) == ["data"]


@pytest.mark.parametrize("text", ["", "layer {", "{ }", "layer { } }"])
def test_what_is_no_caffe_model_is_refused(text: str) -> None:
    """In one line that says what to do."""
    with pytest.raises(InputError):
        of_caffe(text).recorder({})


def test_files_are_opened_by_either_name(tmp_path: Path) -> None:
    """And a missing half is named."""
    (tmp_path / "net.prototxt").write_text(TEXTS[0])
    (tmp_path / "net.caffemodel").write_bytes(TEXTS[1])
    for ending in (".prototxt", ".caffemodel"):
        found = opened(tmp_path / f"net{ending}")
        assert [(one.name, one.shape) for one in found.inputs] == [("x", ())]
    arrays = {"x": IMAGES[:1]}
    assert found.recorder(arrays).plain()[0].shape == (1, 5)
    with pytest.raises(InputError, match="inputs"):
        found.recorder({"y": IMAGES})
    (tmp_path / "net.prototxt").unlink()
    with pytest.raises(InputError, match="beside"):
        opened(tmp_path / "net.caffemodel")


BILINEAR = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}


def exported() -> bytes:
    """An ONNX model with what Caffe has not: NumPy's broadcasting, constants, gathers, a resize."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    node, random = onnx.helper.make_node, np.random.default_rng(2)
    held = {
        "w": random.normal(size=(6, 3, 3, 3)).astype(np.float32),
        "c": np.float32(random.normal(size=(1, 6, 1, 1))),
        "i": np.int64([4, 0, 2]),
        "s": np.float32([1, 1, 2, 2]),
    }
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        node("Mul", ["a", "c"], ["b"], name="mul"),
        node("HardSigmoid", ["b"], ["h"], name="gate", alpha=0.2),
        node("Gather", ["h", "i"], ["g"], name="pick", axis=1),
        node("Resize", ["g", "", "s"], ["r"], name="wider", **BILINEAR),
        node("AveragePool", ["r"], ["t"], name="pool", kernel_shape=[4, 4], strides=[2, 2]),
        node("Transpose", ["t"], ["u"], name="turn", perm=[0, 2, 3, 1]),
        node("Softmax", ["u"], ["y"], name="chances", axis=-1),
    ]
    float32, info = onnx.TensorProto.FLOAT, onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [info("x", float32, ["n", 3, SIZE, SIZE])],
        [info("y", float32, ["n", 11, 11, 3])],
        [onnx.numpy_helper.from_array(one, name) for name, one in held.items()],
    )
    opset = [onnx.helper.make_opsetid("", 13)]
    made: bytes = onnx.helper.make_model(graph, opset_imports=opset).SerializeToString()
    return made


def test_an_onnx_file_is_watched_and_gives_the_bits_of_a_plain_run(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(exported())
    model = opened(path, switches={"winograd": "0"})
    assert [(one.name, one.shape) for one in model.inputs] == [("x", (None, 3, SIZE, SIZE))]
    first = record_run(model.recorder({"x": IMAGES[:2]}))
    kinds = [one.op for one in first.operations]
    assert kinds.count("Convolution") == 1 and "Gather" in kinds
    whole = cv2.dnn.readNetFromONNX(np.frombuffer(exported(), np.uint8))
    whole.enableWinograd(False)
    whole.setInput(IMAGES[:2])
    assert first.results[0].tobytes() == whole.forward().tobytes()


def test_inputs_that_a_net_refuses_are_one_line(tmp_path: Path) -> None:
    """With OpenCV's own words; and so is what is no model."""
    path = tmp_path / "net.onnx"
    path.write_bytes(exported())
    with pytest.raises(InputError, match="OpenCV refuses"):
        opened(path).recorder({"x": np.zeros((1, 5, SIZE, SIZE), np.float32)})
    path.write_bytes(b"nothing")
    with pytest.raises(InputError):
        opened(path)

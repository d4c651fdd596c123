"""Operations that stand at other places are paired by what they compute, and by nothing else."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import probe
from probe.diff import walk
from probe.diff.repeated import aligned
from probe.order.semantics import Contracts, Each, Step, Steps
from tests.record.onnx_files import onnx_model
from tests.record.taped import Tape, Taped, normal, sought

X, W, B, V = normal(6, 32), normal(32, 24), normal(24), normal(32, 24, seed=9)


def missing(*names: str) -> bool:
    return any(importlib.util.find_spec(name) is None for name in names)


def fused(tape, x, w, b, blocks=1):
    shape = (x.shape[0], w.shape[1])
    product = Step(Contracts("...k,kn->...n"), (0, 1), shape)
    added = Step(Each("add"), (3, 2), shape)
    meaning = Steps((product, added, Step(Each("relu"), (4,), shape)))

    def call(x, w, b):
        return np.maximum(Tape(None).dense(x, w, blocks) + b, 0)

    return tape.ran("FusedDense", meaning, call, x, w, b)


def one(x=X, blocks=1):
    return Taped(lambda t: t.softmax(fused(t, x, t.weight(W), t.weight(B), blocks)))


def three(x=X):
    def program(tape):
        y = tape.dense(x, tape.weight(W))
        return tape.softmax(tape.relu(tape.add(y, tape.weight(B))))

    return Taped(program)


def found_at(operations):
    """Verdict and groups' sizes of what has a counterpart."""
    both = [n for n in operations if n.left is not None and n.right is not None]
    return [(n.op, n.verdict, n.grouped and tuple(map(len, n.members))) for n in both]


def differs(found):
    return found.verdict == "differs"


def test_a_fused_operation_is_paired_with_the_last_of_those_that_it_stands_for():
    found = walk.walk(one(), three(), explain=False)
    op = "FusedDense against Dense + Add + Relu"
    assert found_at(found.operations) == [(op, "equal", (1, 3)), ("Softmax", "equal", False)]
    alone = [(n.op, n.verdict) for n in found.operations if None in (n.left, n.right)]
    assert alone == [("Dense", "right"), ("Add", "right")]
    assert found.verdict == "equal" and not found.notes


def test_a_difference_inside_a_group_is_a_source_whose_cause_replays():
    found = sought(lambda blocks: walk.walk(one(blocks=blocks), three()), differs)
    first = found.first
    assert first is not None and first.op.startswith("FusedDense against")
    (cause,) = found.causes.values()
    assert first.cause == "order" and cause.explained and cause.examined
    assert [n.verdict for n in found.operations if n.op == "Softmax"] == ["carried"]


def test_rows_of_a_batch_are_paired_too():
    found = walk.walk(one(X[:2]), three(), explain=False)
    first = next(n for n in found.operations if n.grouped)
    assert first.verdict == "equal" and first.compared == 2 * 24
    assert found.verdict == "equal"


def test_many_layers_of_one_kind_are_aligned_by_their_order():
    """From 200 items on difflib would take what is more than 1 % of them for junk."""

    def run(*ops):
        return SimpleNamespace(operations=[SimpleNamespace(op=op, path="") for op in ops])

    left, right = run(*["relu"] * 250), run("tanh", *["relu"] * 250)
    pairs = aligned(left.operations, right.operations)
    assert pairs == [(n, n + 1) for n in range(250)]


def branches(order, blocks=1):
    """Two branches without a path of their own, visited in this order."""

    def program(tape):
        weights = {"a": tape.weight(W), "b": tape.weight(V)}
        made = {}
        for name in order:
            some = blocks if name == "b" else 1
            made[name] = tape.relu(tape.dense(X, weights[name], some))
        return tape.add(made["a"], made["b"])

    return Taped(program)


def test_branches_in_another_order_are_paired_by_what_they_compute():
    found = walk.walk(branches("ab"), branches("ba"), explain=False)
    assert [(n.left, n.right) for n in found.operations] == [(0, 2), (1, 3), (2, 0), (3, 1), (4, 4)]
    assert found.verdict == "equal" and found.first is None
    of = lambda n: walk.walk(branches("ab"), branches("ba", n), explain=False)  # noqa: E731
    assert sought(of, differs).first.ends == (2, 0)


def test_weights_that_neither_branch_has_are_named():
    def program(tape):
        y = tape.relu(tape.dense(X, tape.weight(V + 1)))
        return tape.add(y, tape.relu(tape.dense(X, tape.weight(W))))

    found = walk.walk(branches("ab"), Taped(program))
    assert "different weights" in found.different_weights and found.verdict == "differs"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(missing("torch"), reason="PyTorch is not installed")
def test_a_compiled_function_is_what_it_is_uncompiled():
    import torch

    from probe.record.torch import TorchRecorder

    torch.manual_seed(0)
    x = torch.randn(3, 20)
    layers = torch.nn.Sequential(torch.nn.Linear(20, 7), torch.nn.LayerNorm(7), torch.nn.GELU())
    made = torch.compile(layers.eval(), backend="inductor")
    try:
        made(x)
    except Exception as error:  # no compiler here
        pytest.skip(f"torch.compile can't compile here: {type(error).__name__}")
    found = walk.walk(
        TorchRecorder(lambda: layers(x)), TorchRecorder(lambda: made(x)), explain=False
    )
    last = next(n for n in found.operations if n.grouped)
    assert last.verdict in ("equal", "source") and last.compared == 21
    assert last.op.endswith("against compiled")


def keras_and_onnx():
    """One network in Keras and, with its weights transposed, in ONNX: (model, bytes, input)."""
    import keras
    from onnx.helper import make_node

    keras.utils.set_random_seed(0)
    x = keras.Input((12, 12, 3))
    y = keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="one")(x)
    z = keras.layers.DepthwiseConv2D(3, padding="same", name="two")(y)
    y = keras.layers.MaxPooling2D()(keras.layers.Add()([y, z]))
    y = keras.layers.GlobalAveragePooling2D()(y)
    model = keras.Model(x, keras.layers.Dense(5, activation="softmax", name="last")(y))
    rng = np.random.default_rng(1)
    held = {}
    for one in model.weights:
        one.assign(rng.standard_normal(one.shape).astype(np.float32))
        held[one.path] = np.asarray(one.numpy())
    turned = {"one/kernel": (3, 2, 0, 1), "two/kernel": (2, 3, 0, 1)}
    both = ((k, w.transpose(turned.get(k, range(w.ndim)))) for k, w in held.items())
    made = {name: np.ascontiguousarray(array) for name, array in both}
    nodes = [
        make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        make_node("Conv", ["t", "one/kernel", "one/bias"], ["c"], pads=[1, 1, 1, 1]),
        make_node("Relu", ["c"], ["r"]),
        make_node("Conv", ["r", "two/kernel", "two/bias"], ["d"], pads=[1, 1, 1, 1], group=16),
        make_node("Add", ["r", "d"], ["a"]),
        make_node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        make_node("GlobalAveragePool", ["p"], ["g"]),
        make_node("Flatten", ["g"], ["h"]),
        make_node("Gemm", ["h", "last/kernel", "last/bias"], ["i"]),
        make_node("Softmax", ["i"], ["y"]),
    ]
    content = onnx_model(nodes, {"x": [None, 12, 12, 3]}, {"y": [None, 5]}, made)
    return model, content, rng.standard_normal((2, 12, 12, 3)).astype(np.float32)


def needs_keras_and(*names: str) -> Callable[[Any], Any]:
    """A slow test of Keras on TensorFlow, and of other libraries."""
    lacks = missing("tensorflow", "keras", *names)
    lacks |= os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow"
    skip = pytest.mark.skipif(lacks, reason="not installed, or another backend of Keras")
    return lambda test: pytest.mark.slow(skip(test))


@needs_keras_and("onnxruntime", "onnx")
def test_keras_and_onnx_of_the_same_weights_are_aligned_layer_by_layer():
    import tensorflow as tf

    from probe.record.onnxruntime import OnnxRecorder as Onnx
    from probe.record.tensorflow import TensorFlowRecorder as Keras

    model, content, x = keras_and_onnx()
    keras_run = Keras(lambda: model(tf.constant(x), training=False))
    for level in ("none", "all"):
        right = Onnx(content, {"x": x}, {"optimisation": level})
        found = walk.walk(keras_run, right, explain=False)
        both = [n for n in found.operations if n.left is not None and n.right is not None]
        assert len(both) >= 5 and {n.verdict for n in both} <= {"equal", "source", "carried"}
        assert both[-1].op.count("Softmax") and both[-1].compared == 10
        for n in both:  # what must agree agrees up to rounding: labels tell the truth
            for pair in n.gives:
                mine, other = (
                    side.arrays({at})[at]
                    for side, at in ((found.left, pair.left), (found.right, pair.right))
                )
                ours, theirs = pair.selection.elements(mine, 0), pair.selection.elements(other, 1)
                assert pair.compared == mine.size
                assert np.abs(ours - theirs).max() <= 1e-4 * max(1, np.abs(ours).max()), n.name


def test_an_operand_that_one_side_reads_besides_is_said() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    class Attention(torch.nn.Module):
        def forward(self, x: Any, mask: Any) -> Any:  # as transformers leave a full mask out
            some = None if bool(mask.all()) else mask[:, None, None].bool()
            q = x.reshape(1, -1, 4, 16).transpose(1, 2)
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=some)

    class Norm(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            weight = torch.linspace(1, 2, 64) if len(x) > 1 else None
            return functional.layer_norm(x, (64,), weight)

    x = np.random.default_rng(0).standard_normal((1, 48, 64)).astype("f4")
    mask = (np.arange(48) < 40).astype("i8")[None]
    vary = {"vary": "x:1,mask:1", "at": 40, "against": 48}
    padded = probe.network(Attention().eval(), inputs={"x": x, "mask": mask}, **vary)
    notes = [(op.verdict, op.arguments) for op in padded.found.operations if op.arguments]
    assert notes and all("is read on the right alone" in text for _, text in notes)
    assert {verdict for verdict, _ in notes} <= {"source", "equal"}  # as this processor adds it
    assert all(not cause.kind for cause in padded.found.causes.values())
    normed = probe.network(Norm().eval(), inputs={"x": x[0, :4]}, vary="batch", at=1, against=4)
    (cause,) = normed.found.causes.values()
    assert not cause.kind and "float32 64, is read on the right alone" in cause.why


def test_factors_of_two_formulas_do_not_stand_for_each_other() -> None:
    jax = pytest.importorskip("jax")
    x, w, v = normal(4, 32), normal(32, 64) / 6, normal(64, 8) / 8

    def layer(approximate: bool) -> Callable[[], Any]:
        return lambda: jax.nn.gelu(jax.numpy.asarray(x) @ w, approximate=approximate) @ v

    found = probe.first_difference(layer(True), layer(False)).found
    assert found.first is not None and found.first.op.endswith("neg + mul + erfc")
    assert found.outputs[0].differing == (np.asarray(layer(True)()) != layer(False)()).sum()

"""How often a user's function is run to be compared and explained: watched twice, plain once."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import probe
from probe.recording.recording import record_run
from probe.recording.store import ProcessStore, array_digest

X = np.random.default_rng(0).standard_normal((64, 257)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((257, 65)).astype(np.float32)
MOST = 3


def _torch() -> tuple[Callable[[int], Any], tuple[Any, ...]]:
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(X.copy()), torch.from_numpy(W.copy())
    return lambda rows: torch.relu(x[:rows] @ w).sum(1).cumsum(0), ()


def _keras() -> tuple[Callable[[int], Any], tuple[Any, ...]]:
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    inner = [keras.layers.Dense(65, activation="relu"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.layers.Input((257,)), *inner])
    return lambda rows: model(X[:rows]), ()


def _jax() -> tuple[Callable[[int], Any], tuple[Any, ...]]:
    jnp = pytest.importorskip("jax.numpy")
    return lambda rows: jnp.tanh(jnp.asarray(X[:rows]) @ jnp.asarray(W)).sum(1), ()


def _numpy() -> tuple[Callable[[int], Any], tuple[Any, ...]]:
    return lambda rows, x, w: np.maximum(x[:rows] @ w, 0).sum(1), (X, W)


@pytest.mark.parametrize("library", [_torch, _keras, _jax, _numpy])
def test_a_function_is_run_three_times_a_side(library: Any) -> None:
    function, inputs = library()
    runs = {1: 0, 64: 0}

    def side(rows: int) -> Callable[..., Any]:
        def run(*arrays: Any) -> Any:
            runs[rows] += 1
            return function(rows, *arrays)

        if not inputs:
            return lambda: run()
        return lambda x, w: run(x, w)

    probe.first_difference(side(1), side(64), inputs=inputs or None)
    assert max(runs.values()) <= MOST, runs


def test_a_model_of_onnx_is_run_three_times_a_side(tmp_path: Any, monkeypatch: Any) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 257), ("y", 65))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(W, "w")])
    path = tmp_path / "model.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    from probe.recorders.onnxruntime import OnnxRecorder

    runs: dict[int, int] = {}
    for name in ("plain", "record"):
        whole = getattr(OnnxRecorder, name)

        def counted(self: Any, *given: Any, whole: Any = whole) -> Any:
            runs[id(self)] = runs.get(id(self), 0) + 1
            return whole(self, *given)

        monkeypatch.setattr(OnnxRecorder, name, counted)
    probe.network(path, vary="batch", at=1, against=64, inputs={"x": X})
    assert len(runs) == 2 and max(runs.values()) <= MOST, runs


def test_arrays_are_kept_once_and_beyond_a_bound_on_disk(monkeypatch: Any) -> None:
    from probe.recording import store

    one, other = ProcessStore(), ProcessStore()
    name = one.put(X)
    assert other.put(np.asfortranarray(X)) == name and one.bits(name) is other.bits(name)
    monkeypatch.setattr(store, "memory_room", lambda: 0)
    monkeypatch.setattr(store, "SURE", 0)
    far = ProcessStore()
    turned = np.asfortranarray(W)
    found = far.bits(far.put(turned))
    assert found is not None and found.view(np.float32).tobytes() == W.tobytes()
    assert array_digest(found.view(np.float32).reshape(W.shape)) == array_digest(W)
    for bits in (found, one.bits(name)):
        with pytest.raises(ValueError, match="read-only"):
            bits[0] = 1


def test_arrays_stay_in_memory_where_the_disk_is_full(monkeypatch: Any) -> None:
    from probe.recording import store

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "SURE", 0)
    monkeypatch.setattr(store, "memory_room", lambda: 0)
    monkeypatch.setattr(store, "_segment", full)
    fresh = ProcessStore()
    other = X + np.float32(1)
    found = fresh.bits(fresh.put(other))
    assert found is not None and found.tobytes() == other.tobytes()


def test_a_disk_that_fills_up_while_it_is_written_is_left(monkeypatch: Any) -> None:
    from probe.recording import store

    class Full(io.BytesIO):
        def write(self, some: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_segment", lambda size: (Full(), np.zeros(size, np.uint8)))
    everywhere = store._Everywhere()
    assert everywhere._on_disk(X) is None and everywhere.taken == 0


def test_what_no_run_holds_any_more_is_given_up() -> None:
    from probe.recording.store import _everywhere
    from tests.recording.taped import network

    before = _everywhere.size
    run = record_run(network(X))
    assert _everywhere.size > before
    del run
    assert _everywhere.size == before

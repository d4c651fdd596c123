"""What is given to a public function, and the process, are as they were when it returns."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

import probe
from probe.sizes import stable
from probe.targets.unchanged import unchanged

pytestmark = pytest.mark.long

X = np.random.default_rng(0).normal(size=(6, 16)).astype("float32")
CASE = probe.Case(op="conv1d", kernel=3, in_channels=4, filters=2, length=9)


def draw():
    random.random(), np.random.random()  # noqa: NPY002


def bits(value):
    return np.asarray(value).tobytes()


def state_of_process():
    state = {
        "random": random.getstate(),
        "numpy": str(np.random.get_state()),  # noqa: NPY002
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
    }
    if torch := sys.modules.get("torch"):
        state["torch"] = bits(torch.get_rng_state()), torch.get_num_threads()
        state["gradients"] = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        state["mode"] = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    if tf := sys.modules.get("tensorflow"):
        state["tensorflow"] = tf.config.threading.get_intra_op_parallelism_threads()
        seeds = getattr(sys.modules["tensorflow.python.eager.context"].context(), "_rng", None)
        state["seeds"] = seeds and seeds.getstate()
    if jax := sys.modules.get("jax"):
        state["jax"] = dict(jax.config.values)
    if cv2 := sys.modules.get("cv2"):
        state["cv2"] = cv2.getNumThreads()
    if matplotlib := sys.modules.get("matplotlib"):
        state["matplotlib"] = dict(matplotlib.rcParams)
    return state


def state_of_torch(model):
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {
        "tensors": {n: (id(x), bits(x.detach()), x.requires_grad) for n, x in tensors},
        "gradients": {n: None if p.grad is None else bits(p.grad) for n, p in tensors},
        "modes": [part.training for part in model.modules()],
        "hooks": [len(part._forward_hooks) for part in model.modules()],
        "attributes": [sorted(vars(part)) for part in model.modules()],
        "counted": model.counted,
    }


def state_of_keras(model):
    return {
        "variables": {each.path: bits(each) for each in model.variables},
        "trained": [weight.path for weight in model.trainable_weights],
        "modes": [layer.trainable for layer in model._flatten_layers()],
        "compiled": model.compiled,
    }


@pytest.fixture
def torch_model():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    threads = torch.get_num_threads()

    class Moving(torch.nn.Module):
        """Everything that one run of a model may move."""

        def __init__(self):
            super().__init__()
            self.first, self.norm = torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8)
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("steps", torch.zeros(()))
            self.generator = np.random.default_rng(3)
            self.counted = 0

        def forward(self, x):
            self.counted += 1
            self.calls += 1  # in place
            self.steps = self.steps + 1  # another tensor
            self.last = x
            self.generator.random(), draw(), torch.rand(())
            self.register_forward_hook(lambda *_: None)
            torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
            os.environ["PROBE_TEST"] = str(self.counted)
            return torch.nn.functional.relu(self.norm(self.first(x)))

    model = Moving().eval()
    model.first.bias.requires_grad_(False)
    model.first.weight.grad = torch.ones(8, 16)
    yield model
    torch.set_num_threads(threads)


@pytest.fixture
def keras_model():
    from tests.sizes.invariant.keras_models import L, keras, tf

    class Statistics(L.Layer):
        def __init__(self, **words):
            super().__init__(**words)
            self.norm, self.dropped = L.BatchNormalization(), L.Dropout(0.5)

        def call(self, x):
            return self.norm(x, training=True) + 0 * self.dropped(x, training=True)

    tf.random.set_seed(1)
    given = keras.Input((16,))
    model = keras.Model(given, L.Dense(4)(Statistics()(L.Dense(8)(given))))
    model.compile("sgd", "mse")
    return model


def torch_questions(model, folder):
    torch = sys.modules["torch"]
    x, inputs = torch.from_numpy(X.copy()), {"x": X}
    yield "orders", lambda: stable.invariant(model, example=x)[1].orders()
    yield "network", lambda: probe.network(model, vary="batch", at=1, against=6, inputs=inputs)
    yield "examine", lambda: probe.examine(model, X, time="2s")
    yield "record", lambda: probe.record(model, folder / "run", inputs=inputs)
    yield "diff", lambda: probe.diff(folder / "run", folder / "run")
    yield "first_difference", lambda: probe.first_difference(lambda: model(x[:1]), lambda: model(x))
    yield "a method", lambda: probe.first_difference(partial(model.forward, x), lambda: model(x))
    yield "assert_same_bits", lambda: probe.assert_same_bits(x, x.clone())


def keras_questions(model):
    from tests.sizes.invariant.keras_models import tf

    def draws():
        return tf.reduce_sum(X, -1) + 0 * tf.random.uniform(())

    inputs = {model.inputs[0].name: X}
    yield "orders", lambda: stable.invariant(model, example=X)[1].orders()
    yield "network", lambda: probe.network(model, vary="batch", at=1, against=6, inputs=inputs)
    yield "tensorflow", lambda: probe.first_difference(draws, draws)


def other_questions(folder, slow=True):
    held, counts = X.copy(), np.zeros(3)

    def writes(x):
        x += 1
        counts[:] += 1
        draw()
        return x.sum(-1)

    yield "numpy", lambda: probe.first_difference(writes, writes, inputs=(held,)), held
    yield "a closure", lambda: probe.order(lambda x: (writes(held), np.sum(x))[1], 5), held, counts
    yield "invariant", lambda: stable.invariant(writes, example=held), held
    yield "explain", lambda: probe.explain(CASE, "reference", at=5, against=9)
    yield (
        "sweep",
        lambda: probe.sweep(CASE, range(5, 10), "reference", store=folder / "s").picture(),
    )
    yield "load", lambda: probe.load(folder / "s").comparisons
    yield "merge", lambda: probe.merge([folder / "s"], folder / "merged")
    yield "reproduce", lambda: reproduced(folder)
    if not slow:
        return
    yield "order", lambda: probe.order(CASE, "reference").picture()
    yield "thresholds", lambda: probe.thresholds(CASE, "reference", upto=12)
    yield "remedies", lambda: probe.remedies(CASE, [5, 9], "reference")


def reproduced(folder):
    # a case that agrees is refused, after all runs
    with pytest.raises(probe.case.errors.ProbeError):
        probe.reproduce(CASE, "reference", at=9, against=9, out=folder / "report")


def differences(before, now, path=""):
    if isinstance(before, Mapping):
        for name in before:  # a library that is imported meanwhile has settings of its own
            yield from differences(before.get(name), now.get(name), f"{path} {name}")
    elif before != now:
        yield path


def ask(name, question, state):
    before = state()
    with suppress(probe.case.errors.ProbeError):  # what moves from run to run may be refused
        question()
    assert not [*differences(before, state())], name


def test_nothing_of_a_torch_model_or_the_process_is_changed(torch_model, tmp_path):
    for name, question in torch_questions(torch_model, tmp_path):
        ask(name, question, lambda: {**state_of_process(), **state_of_torch(torch_model)})


def test_nothing_of_a_keras_model_or_the_process_is_changed(keras_model):
    for name, question in keras_questions(keras_model):
        ask(name, question, lambda: {**state_of_process(), **state_of_keras(keras_model)})


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_of_arrays_or_the_process_is_changed(tmp_path, slow):
    for name, question, *arrays in other_questions(tmp_path, slow):
        # bound here: a question of the loop's last arrays would pass
        ask(name, question, lambda a=arrays: {**state_of_process(), "arrays": [*map(bits, a)]})


def test_every_public_function_is_asked(tmp_path):
    asked = {name for name, *_ in other_questions(tmp_path)}
    asked |= {"network", "examine", "record", "diff", "first_difference", "assert_same_bits"}
    functions = {name for name in probe.__all__ if not isinstance(getattr(probe, name), type)}
    assert functions <= asked


def test_a_call_of_an_invariant_model_moves_what_one_plain_call_moves(torch_model, keras_model):
    torch = sys.modules["torch"]
    model, _ = stable.invariant(torch_model)
    model(torch.from_numpy(X))
    assert torch_model.counted == 1 and float(torch_model.calls) == 1
    before = keras_model.get_weights()
    keras_model(X)
    moved = keras_model.get_weights()
    keras_model.set_weights(before)
    stable.invariant(keras_model)[0](X)
    assert list(map(bits, keras_model.get_weights())) == list(map(bits, moved))


def test_hooks_are_kept_where_their_handles_find_them():
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2)
    handle = layer.register_forward_hook(lambda *_: None)
    with unchanged(layer):
        layer.register_forward_hook(lambda *_: None)
    assert len(layer._forward_hooks) == 1
    handle.remove()
    assert not layer._forward_hooks

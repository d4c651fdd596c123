"""TensorFlow's values: keys that stay, variables by their names, operations alone and written."""

from __future__ import annotations

import gc

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from probe.record.recording import record_run  # noqa: E402
from probe.record.tensorflow import TensorFlowRecorder  # noqa: E402
from probe.record.tensorflow_values import array, tensor_of  # noqa: E402
from tests.record.recorded import alone  # noqa: E402
from tests.record.test_tensorflow import network, normal, seen  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow, pytest.mark.long]


def test_variables_are_weights_under_their_names():
    gc.freeze()  # as a session in this process does
    found, _, _ = seen(lambda: network(normal(2, 9, 9, 4)))
    roles = {one.name: one.role for event, *_ in found for one in event.reads if one.name}
    assert {"kernel": "weight", "bias": "weight", "dense": "weight"}.items() <= roles.items()


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=lambda one: one.name)
def test_a_number_of_the_program_is_never_taken_for_a_variable_of_one_number(dtype):
    scale, one = tf.Variable(tf.constant(2.0, dtype), name="scale"), tf.constant(1.0, dtype)
    x = tf.cast(normal(3), dtype)
    events, _, _ = seen(lambda: x * scale.value() + one)
    (_, (_, second), *_), (added, *_) = [(event, event.reads) for event, *_ in events]
    assert second.name == "scale"
    assert "scale" not in [value.name for value in added.reads]


def test_values_keep_their_keys_though_memory_is_used_again():
    def many():
        total = tf.constant(np.ones(64, np.float32))
        for n in range(50):
            total = tf.sqrt(total * total + float(n % 7))
        return total

    given = {}
    found, _, _ = seen(many)
    for event, reads, gives in found:
        for one, bits in zip(event.reads, reads, strict=True):
            assert given.setdefault(one.key, bits) == bits, event.op
        for one, bits in zip(event.gives, gives, strict=True):
            assert one.key not in given, f"{event.op} gives a key that there was"
            given[one.key] = bits
    assert len(found) == 150


@pytest.mark.parametrize("graph", [False, True])
def test_again_and_lines_give_the_bits_of_the_run(graph):
    x, function = normal(2, 9, 9, 4), tf.function(network) if graph else network
    ran, written = alone(TensorFlowRecorder(lambda: function(x)), tensor_of, array)
    assert len(ran) > 6 and all(op.startswith("_") for op in {*ran} - {*written})  # Grappler's own


def test_a_run_keeps_no_tensor_alive():
    run = record_run(TensorFlowRecorder(lambda: network(normal(2, 9, 9, 4))))
    assert run.operations
    gc.collect()
    large = [one for one in gc.get_objects() if isinstance(one, tf.Tensor) and hasattr(one, "_id")]
    sizes = [one.shape for one in large if one.shape == (2, 5, 5, 6)]
    assert not sizes

"""TensorFlow's operations as they are checked, with one thread and with two."""

import json
import subprocess
import sys

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from probe.sizes.invariant.tensorflow_calls import MatrixProduct
from tests.sizes.invariant.keras_models import L, built, differing, numbers, tf


def test_a_table_travels_and_is_checked(tmp_path):
    plain, path, x = built(lambda x: L.Dense(9)(x), 24), tmp_path / "table.json", numbers(40, 24)
    model, report = stable.invariant(plain, [40], example=x)
    wanted = [np.asarray(model(x[:count])) for count in (1, 3, 40)]
    report.save(path)
    told = json.loads(path.read_text())
    assert told["environment"]["library"] == "tensorflow"
    model, report = stable.invariant(plain, [40], table=path)
    assert all(differing(model(x[: len(y)]), y) == 0 for y in wanted)
    assert not report.table.notes and report.table.trusted
    assert MatrixProduct(24, 9, tf.float32, False).key in told["operations"]
    told["environment"]["library"] = "torch"
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match="it is of torch, not of tensorflow"):
        stable.invariant(plain, [40], table=path)


def test_orders_are_revealed_when_asked():
    plain = built(lambda x: L.Dense(3)(x), 9)
    _, report = stable.invariant(plain, [8], example=numbers(8, 9))
    (told,) = report.orders().values()
    assert told.startswith(("same: all outputs", "not known: "))


ONE_THREAD = """
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
import keras
from probe.sizes import stable
keras.utils.set_random_seed(1)
model = keras.applications.MobileNetV2(input_shape=(96, 96, 3), weights=None, classes=50)
same, report = stable.invariant(model, range(1, 9), strict=True)
x = np.random.default_rng(0).normal(size=(8, 96, 96, 3)).astype("float32")
whole = same(x).numpy()
for count in (1, 2, 3, 5):
    assert (same(x[8 - count :]).numpy() == whole[8 - count :]).all(), count
assert report.table.notes or (model(x).numpy() == whole).all()
print("same")
"""


@pytest.mark.slow
def test_mobilenet_keeps_its_bits_with_one_thread():
    """The number of threads is set once a process: all other tests have the machine's."""
    ran = subprocess.run(
        [sys.executable, "-c", ONE_THREAD], capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip().endswith("same"), ran.stderr[-2000:]

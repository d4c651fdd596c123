"""Keras: exact on integers, and in the formats that the library below it has."""

from __future__ import annotations

import pytest

from probe.targets.backends import conformance
from probe.targets.backends.contract import Unsupported
from probe.targets.backends.keras import Keras

pytestmark = pytest.mark.long


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_keras_has_no_float64_where_it_computes_in_float32(library):
    backend = Keras().described({"backend": library}, "cpu", "3.15")
    case = conformance.spec("matmul", [1], dtype="float64")
    with pytest.raises(Unsupported, match="dtype=float64: .* in float32"):
        backend.check(case)

"""OpenBLAS by itself multiplies matrices, and refuses the rest."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from probe import backends
from probe.backends.contract import Unsupported
from probe.backends.openblas import OpenBlas
from probe.case import Case
from probe.target import Target


@pytest.fixture
def backend(monkeypatch):
    """Started with the library that NumPy's wheel has: one and the same build, without its own."""
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    found = sorted(folder.glob("libscipy_openblas64_*.so"))
    if not found:
        pytest.skip("NumPy here is no wheel with OpenBLAS")
    wheel = SimpleNamespace(
        __version__="0.3.0",
        get_lib_dir=lambda: str(folder),
        get_library=lambda fullname: found[0].name,
    )
    monkeypatch.setitem(sys.modules, "scipy_openblas64", wheel)
    made = OpenBlas()
    facts = made.start({}, "cpu")
    assert facts["library_version"] == "0.3.0" and facts["library"] == "scipy-openblas64"
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["matmul", "dense"])
def test_integers_are_multiplied_exactly_and_numpys_bits_come_out(backend, op, dtype):
    size = {"length": 5} if op == "matmul" else {"batch": 5}
    case = Case(op, in_channels=70, filters=6, dtype=dtype, bias="normal", **size)
    operator = backend.operator(case.spec()).at(case.input_shape())
    for exact in (True, False):
        x, w, b = (np.rint(one * 4) if exact else one for one in case.operands())
        y = operator.output(operator.bind({"w": w, "b": b})(operator.input(x)))
        ours = x.reshape(5, 70), w.reshape(70, 6)
        assert np.array_equal(y.reshape(5, 6), ours[0] @ ours[1] + b)
        wide = ours[0].astype(np.float64) @ ours[1].astype(np.float64) + b
        assert np.array_equal(y.reshape(5, 6), wide) or not exact


def test_other_operations_are_refused(backend):
    for case in (Case("conv1d", 3, 2, 2, 9), Case("sum", in_channels=9, length=1)):
        with pytest.raises(Unsupported, match="products of two matrices alone"):
            backend.operator(case.spec()).at(case.input_shape())
    half = Case("matmul", in_channels=9, filters=2, length=3, dtype="float16")
    with pytest.raises(Unsupported, match="float32 and float64"):
        backend.operator(half.spec()).at(half.input_shape())


def test_releases_and_processors_are_targets():
    where = Target.parse("openblas==0.3.34.0.0,core=Haswell,threads=1")
    variables = backends.get("openblas").environment(dict(where.switches), where.device)
    assert variables == {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}

"""NumPy, SciPy and OpenBLAS: called as their users call them, exact, and what they refuse."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.targets import backends, launch
from probe.targets.backends import conformance
from probe.targets.backends.arrays import OpenBlas
from probe.targets.backends.contract import Unsupported
from probe.targets.launch import InlineSession
from probe.targets.target import Target
from tests.targets.backends import conforming

pytestmark = pytest.mark.long


def numpy_session():
    return InlineSession(Target.parse("numpy")).start()


def ask(session, case):
    x, w, _ = case.operands()
    return conforming.run(session, case.spec(), x, w).ravel()


@pytest.mark.parametrize("n", [7, 100])
def test_numpy_is_called_as_its_users_call_it(n):
    session, case = numpy_session(), Case("matmul", in_channels=n, filters=4, length=3)
    x, w = (array[0] for array in case.operands()[:2])
    assert (ask(session, case) == (x @ w).ravel()).all()
    dot = Case("dot", in_channels=n, length=1)
    u, v = (array.ravel() for array in dot.operands()[:2])
    assert ask(session, dot) == np.dot(u, v)
    assert ask(session, dot.with_(op="sum")) == np.sum(u)
    stack = case.with_(batch=2)
    x, w = stack.operands()[0], stack.operands()[1][0]
    assert (ask(session, stack) == (x @ w).ravel()).all()


def test_a_processors_kernels_that_openblas_lacks_are_not_taken_for_another_ones():
    with pytest.raises(InputError, match="leave one of the two out"):
        Target.parse("numpy,core=Haswell,isa=avx2")
    session = launch.Session(Target.parse("numpy,core=VORTEX"))
    with pytest.raises(TargetError, match=r"core=VORTEX: .*no (such kernels|OpenBLAS)"):
        session.start()
    session.close()


@pytest.mark.slow
def test_scipy_conforms_and_refuses_what_it_has_not(started):
    findings = conformance.check(conforming.asking(started("scipy")), ("float32",))
    assert not [found for found in findings if found.verdict == "wrong"]
    agreed = {found.spec["op"] for found in findings if found.verdict == "agrees"}
    assert {"conv1d", "conv2d", "matmul", "dense"} <= agreed
    unsupported = [found.spec for found in findings if found.verdict == "unsupported"]
    convolutions = [one for one in unsupported if one["op"] == "conv1d"]
    for name in ("stride", "dilation"):
        assert any(set(one[name]) != {1} for one in convolutions)
    assert any(one["groups"] > 1 for one in convolutions)


@pytest.fixture
def openblas(monkeypatch):
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
def test_integers_are_multiplied_exactly_and_numpys_bits_come_out(openblas, op, dtype):
    size = {"length": 5} if op == "matmul" else {"batch": 5}
    case = Case(op, in_channels=70, filters=6, dtype=dtype, bias="normal", **size)
    operator = openblas.operator(case.spec()).at(case.input_shape())
    for exact in (True, False):
        x, w, b = (np.rint(one * 4) if exact else one for one in case.operands())
        y = operator.output(operator.bind({"w": w, "b": b})(operator.input(x)))
        ours = x.reshape(5, 70), w.reshape(70, 6)
        assert np.array_equal(y.reshape(5, 6), ours[0] @ ours[1] + b)
        wide = ours[0].astype(np.float64) @ ours[1].astype(np.float64) + b
        assert np.array_equal(y.reshape(5, 6), wide) or not exact


def test_other_operations_are_refused(openblas):
    for case in (Case("conv1d", 3, 2, 2, 9), Case("sum", in_channels=9, length=1)):
        with pytest.raises(Unsupported, match="OpenBLAS has matmul, dense"):
            openblas.operator(case.spec()).at(case.input_shape())
    half = Case("matmul", in_channels=9, filters=2, length=3, dtype="float16")
    with pytest.raises(Unsupported, match="OpenBLAS has float32, float64"):
        openblas.operator(half.spec()).at(half.input_shape())


def test_releases_and_processors_are_targets():
    where = Target.parse("openblas==0.3.34.0.0,core=Haswell,threads=1")
    variables = backends.get("openblas").environment(dict(where.switches), where.device)
    assert variables == {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}

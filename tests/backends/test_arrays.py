"""NumPy: called as its users call it, its BLAS and its own loops as they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from probe import launch
from probe.backends.arrays import Arrays
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.launch import InlineSession
from probe.target import Target
from tests.backends import conforming

pytestmark = pytest.mark.long


def numpy_session():
    return InlineSession(Target.parse("numpy")).start()


def ask(session, case):
    x, w, _ = case.operands()
    return conforming.run(session, case.spec(), x, w).ravel()


def test_numpys_long_dot_product_and_sum_are_replayed():
    long = [Case(op, in_channels=1500, length=1) for op in ("dot", "sum")]
    assert not conforming.not_replayed(numpy_session(), long)


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


def test_levels_of_numpys_own_loops_disable_what_is_above_them():
    variables = Arrays.environment({"cpu": "x86_v3"}, "cpu")["NPY_DISABLE_CPU_FEATURES"].split()
    assert {"X86_V4", "AVX512F", "AVX512_SPR"} <= set(variables)
    assert not {"AVX2", "X86_V3", "FMA3"} & set(variables)

"""JAX: exact on integers, every order replayed, XLA's program."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.case import Case
from probe.order.orders import reveal
from probe.targets.backends import conformance
from probe.targets.backends.jax import Jax, operations
from tests.targets.backends import conforming

pytestmark = pytest.mark.long


def test_flags_of_xla_are_set_together():
    flags = Jax.environment({"ynn": "0", "isa": "avx2"}, "cpu")["XLA_FLAGS"].split()
    assert flags == ["--xla_cpu_max_isa=AVX2", "--xla_cpu_experimental_ynn_fusion_type="]
    assert "XLA_FLAGS" not in Jax.environment({"threads": "2"}, "cpu")


@pytest.mark.slow
def test_without_ynnpack_long_sums_replay(started):
    """With it the last level of a sum of 4,096 numbers and more does not round once an addition."""
    found = reveal(started("jax,ynn=0"), Case(op="sum", in_channels=4100, length=2))
    assert found.replayed.all()


def test_float64_leaves_float32_as_it_is(started):
    session = started("jax")
    spec = conformance.spec("conv1d", [3])
    x, w = np.ones((1, 5, 1), np.float32), np.ones((3, 1, 1), np.float32)
    wide = conforming.run(session, dict(spec, dtype="float64"), x.astype("f8"), w.astype("f8"))
    assert wide.dtype == np.float64 and conforming.run(session, spec, x, w).dtype == np.float32


def test_xla_turns_a_single_output_into_a_reduction(started):
    spec = conformance.spec("conv1d", [5])
    one, two = (conforming.kernels(started("jax"), spec, (1, n, 1)) for n in (5, 60))
    assert "reduce" in one["xla-program"] and two == {"xla-program": ["convolution"]}


def test_opcodes_are_read_from_xlas_text():
    program = """
%fused (p: f32[1]) -> f32[1] {
  %p = f32[1]{0} parameter(0)
  ROOT %add.1 = f32[1]{0} add(%p, %p)
}
ENTRY %main (x: f32[1]) -> f32[1] {
  %x = f32[1]{0} parameter(0), metadata={op_name="x"}
  %c.1 = (f32[1]{0}, u8[0]{0}) custom-call(%x), custom_call_target="__cudnn$convForward"
  ROOT %fusion = f32[1]{0} fusion(%x), kind=kLoop, calls=%fused
}"""
    assert operations(program) == ["add", "custom-call __cudnn$convForward", "fusion"]

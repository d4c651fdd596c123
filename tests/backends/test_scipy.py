"""SciPy: exact on integers, and what it has no operation for is refused."""

from __future__ import annotations

import pytest

from probe.backends import conformance
from probe.backends.scipy import SciPy
from tests.backends.conforming import wrong

pytestmark = pytest.mark.long


def test_scipy_conforms_and_refuses_what_it_has_not(started):
    findings = conformance.check(conformance.asking(started(SciPy.name)))
    assert not wrong(findings)
    agreed = {found.spec["op"] for found in findings if found.verdict == "agrees"}
    assert {"conv1d", "conv2d", "matmul", "dense"} <= agreed
    unsupported = [found.spec for found in findings if found.verdict == "unsupported"]
    convolutions = [one for one in unsupported if one["op"] == "conv1d"]
    for name in ("stride", "dilation"):
        assert any(set(one[name]) != {1} for one in convolutions)
    assert any(one["groups"] > 1 for one in convolutions)

"""probe's own arithmetic: a script for it needs probe, and is there for tries and tests."""

from __future__ import annotations

import json

from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction.scripts.contract import Library, refuse
from probe.target import Target


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    if case.dtype == "bfloat16":
        raise refuse(target, "bfloat16")
    spec = json.dumps(case.spec()).replace("true", "True").replace("false", "False")
    switches = json.dumps(dict(target.switches))
    weights = "w" if case.weighted else f"np.ones({case.weight_shape})"
    b = "operator.bias(b)" if case.bias is not None else "None"
    body = (
        "from probe.backends.reference import Reference",
        "",
        "backend = Reference()",
        f'backend.start({switches}, "{target.device}")',
        f"operator = backend.operator({spec})",
        f"y = operator.call(operator.input(x), operator.weights({weights}), {b})",
        "return operator.output(y)",
    )
    version = "np.__version__"
    return Library("probe on NumPy", version, (), body, modules=("probe-numerics",))

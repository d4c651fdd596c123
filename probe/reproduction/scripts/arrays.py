"""NumPy itself: x @ w, np.dot and np.sum."""

from __future__ import annotations

from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction.scripts.contract import Library, flat, refuse, restored
from probe.target import Target

CALLS = {
    "matmul": "np.matmul(x, w)",
    "dot": "np.dot(x, w)",
    "sum": "np.sum(x, axis=-1)",
    "dense": "np.matmul(x, w)",
}


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    if case.op not in CALLS or case.dtype == "bfloat16":
        raise refuse(target, case.label)
    x, w = flat(case)
    call = CALLS[case.op].replace("(x", f"({x}").replace(", w)", f", {w})")
    y = f"y = {call}" + " + b" * (case.bias is not None)
    return Library("NumPy", "np.__version__", (), (y, f"return {restored(case, 'y')}"))

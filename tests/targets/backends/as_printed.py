"""Computes cases twice in a target's own process: as its worker does, and by a script's lines.

    python as_printed.py TARGET

Prints a JSON list: for each case its label, and ``same``, ``other``, or why the library refuses.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from probe.case import floats, operands
from probe.case.case import Case
from probe.report import program
from probe.targets import backends
from probe.targets.backends.contract import Unsupported
from probe.targets.target import Target

COMMON = {"in_channels": 4, "length": 9}
CASES = [
    Case("conv1d", 4, filters=3, padding="same", stride=2, **COMMON),
    Case("conv1d", 5, filters=3, padding="0:1", bias="normal", dtype="bfloat16", **COMMON),
    Case("conv2d", "2x3", filters=6, groups=2, padding="same", bias="normal", **COMMON),
    Case("conv3d", 2, filters=3, padding="caffe", **COMMON),
    Case("depthwise_conv2d", 3, filters=8, padding="same_lower", **COMMON),
    Case("matmul", filters=5, batch=2, dtype="float16", **COMMON),
    Case("dot", filters=1, **COMMON),
    Case("sum", **COMMON),
    Case("dense", in_channels=40, filters=7, batch=3, bias="normal"),
    Case("max_pool1d", 3, padding="same", stride=2, **COMMON),
    Case("avg_pool1d", 3, padding=1, ceil_mode=True, stride=2, **COMMON),
    Case("conv1d", 5, filters=3, bias="normal", layout="strided", **COMMON),
    Case("conv3d", 2, filters=6, layout="channels_last", dtype="bfloat16", **COMMON),
    Case("matmul", filters=5, bias="normal", layout="offset:16", **COMMON),
    Case("dot", filters=1, length=1, in_channels=40, layout="strided"),
]


def main(text: str) -> list[tuple[str, str]]:
    target = Target.parse(text)
    backend = backends.get(target.name)()
    version = backend.start(dict(target.switches), target.device)["library_version"]
    found = []
    for case in CASES:
        x, w, b = operands.generate(case)
        try:
            backend.lay(case.layout)
            operator = backend.operator(case.spec()).at(x.shape)
            named = {"w": w} if b is None else {"w": w, "b": b}
            run = operator.bind(named)
            ours = widened(operator.output(run(operator.input(x))), case.dtype)
        except Unsupported as error:
            found.append((case.label, str(error)))
            continue
        theirs = printed(target, version, case, (x, w, b))
        same = ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()
        found.append((case.label, "same" if same else "other"))
    return found


def widened(array: np.ndarray, dtype: str) -> np.ndarray:
    """A container array as a script has it: bfloat16 as float32."""
    plain = "float32" if dtype == "bfloat16" else dtype
    return np.asarray(floats.widen(array, dtype)).astype(plain)


def printed(target: Target, version: str, case: Case, arrays: tuple) -> np.ndarray:
    """What the script's function gives of the same operands."""
    written = program.of_case(target, version, case, arrays)
    given = {
        name: widened(array, case.dtype)
        for name, array in zip("xwb", arrays, strict=True)
        if array is not None
    }
    standard = [one if one.startswith("from") else f"import {one}" for one in written.standard]
    text = [*standard, "import numpy as np", *written.imports, *written.setup]
    text.append("def compute(x, w=None, b=None):")
    names: dict = {}
    exec("\n".join([*text, *program.block(written.body)]), names)
    return np.ascontiguousarray(names["compute"](**given))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))

"""Proves the rows of libraries' tables by running the libraries: one line a library.

    python -m tests.recorders.rows [LIBRARY ...]

``rows``: operations that a table describes. ``proved``: run on two batches that differ in the order
of rows and in one element, where everything with equal labels was the same number, in whatever run
or operation it stood, what is said to be exact had the bits that IEEE 754 asks for, and what isn't
said to read an element kept its bits where that was changed.
``refuted``: where that wasn't so. ``elsewhere``: what can't be run here, and why. ``not reached``:
others that no sample runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.recorders import truth

HERE = Path(__file__).parent
OWN = "../semantics"
LIBRARIES = {
    "numpy": ("ndarray", "test_ndarray_table test_ndarray"),
    "torch": ("torch_table", f"test_torch_table {OWN}/test_meaning test_torch"),
    "tensorflow": ("tensorflow_table", "test_tensorflow_table test_tensorflow"),
    "jax": ("jax_table", "test_jax_table test_jax"),
    "onnxruntime": ("onnx_table", "test_onnx_table test_onnxruntime test_onnx_file"),
    "litert": ("litert_table", "test_litert_table test_litert"),
    "opencv": ("opencv_table", "test_opencv_table test_opencv"),
}
"""The file of each library's table in ``probe/recorders``, and the tests that run its rows."""


ELSEWHERE: dict[str, tuple[set[str], str]] = {
    "torch": ({"_fused_rms_norm", "cudnn_batch_norm"}, "operations of CUDA"),
    "onnxruntime": (
        {"CastLike", "CenterCropPad", "GroupNormalization", "HardSwish", "Mish", "Swish"},
        "its CPU has no kernel for these and runs what ONNX writes them out as, which is proved; "
        "other devices have",
    ),
}
"""Rows that can't be run on this processor by this release, and why."""


def _plain(op: str) -> str:
    return op


def _of_torch(op: str) -> str:
    """``aten.add_.Tensor`` is the row ``add``, ``aten.view_copy`` the row ``view``."""
    library, name = (*op.split("."), "")[:2]
    name = name if name.startswith("__") else name.removesuffix("_")
    name = name if name in ("_to_copy", "index_copy") else name.removesuffix("_copy")
    return name if library == "aten" else f"{library}::{name}"


def _of_layers(op: str) -> str:
    """Layers that OpenCV has fused: the first of them, which is what the others are behind."""
    return op.partition("+")[0]


NAMES: dict[str, Callable[[str], str]] = {"torch": _of_torch, "opencv": _of_layers}


def proved(library: str) -> int:
    """Prints a library's line, and returns how many rows are refuted."""
    file, tests = LIBRARIES[library]
    table = set(import_module(f"probe.recorders.{file}").TABLE)
    truth.PROOFS.clear()
    files = [str(HERE / f"{name}.py") for name in tests.split()]
    matrix = [str(HERE / "test_matrix.py"), "-k", library.removesuffix("runtime")]
    # this command has imported the package already, whose asserts pytest can't show in full then
    words = ["-q", "--no-header", "-p", "no:cacheprovider", "--capture=sys"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    for some in (files, matrix):
        pytest.main([*words, *some])
    name = NAMES.get(library, _plain)
    known = {name(op) for one in truth.PROOFS for op in one.known}
    every = {name(op): why for one in truth.PROOFS for op, why in one.refuted.items()}
    refuted = {op: why for op, why in every.items() if op in table}  # not of the matrix's others
    left = sorted(table - known - refuted.keys())
    elsewhere, why = ELSEWHERE.get(library, (set[str](), ""))
    elsewhere, left = elsewhere & set(left), [op for op in left if op not in elsewhere]
    count = len(table & (known - refuted.keys()))
    print(f"{library}: rows {len(table)}, proved {count}, refuted {len(refuted)}, "
          f"not reached {len(left)}, elsewhere {len(elsewhere)}")  # fmt: skip
    for op, reason in refuted.items():
        print(f"  refuted {op}: {reason}")
    if elsewhere:
        print(f"  elsewhere: {' '.join(sorted(elsewhere))} ({why})")
    if left:
        print(f"  not reached: {' '.join(left)}")
    return len(refuted)


if __name__ == "__main__":
    sys.exit(1 if sum(map(proved, sys.argv[1:] or LIBRARIES)) else 0)

"""What a library's user writes to compute a case: one file per library, by the name of its backend.

Each has ``library(target, version, case, operands)``, which gives a ``contract.Library``.
"""

from __future__ import annotations

from importlib import import_module

from probe.case import Case
from probe.comparison import Arrays
from probe.errors import InputError
from probe.reproduction.scripts import written
from probe.reproduction.scripts.contract import Library
from probe.target import Target

SCRIPTS = {
    "tensorflow": "tensorflow",
    "keras": "keras",
    "torch": "written",
    "jax": "jax",
    "onnxruntime": "onnxruntime",
    "litert": "litert",
    "opencv": "opencv",
    "numpy": "arrays",
    "reference": "reference",
}
"""The module of each backend."""


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case`` (its length set) with the target's library at ``version``.

    ``operands``: x, w and b of the case, for libraries whose models hold them.

    Raises InputError where no script is written for it.
    """
    if target.name not in SCRIPTS:
        known = ", ".join(SCRIPTS)
        raise InputError(
            "target", target.text, "no script is written for it", f"use one of {known}"
        )
    if written.is_written(target):
        return written.library(target, version, case, operands)
    module = import_module(f"probe.reproduction.scripts.{SCRIPTS[target.name]}")
    found: Library = module.library(target, version, case, operands)
    return found

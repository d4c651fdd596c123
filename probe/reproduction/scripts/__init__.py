"""What a library's user writes to compute a case: the lines that its backend emits.

Those of a library that emits none are in the file of its name.
"""

from __future__ import annotations

from importlib import import_module

from probe import backends
from probe.case import Case
from probe.comparison import Arrays
from probe.errors import InputError
from probe.reproduction.scripts import written
from probe.reproduction.scripts.contract import Library
from probe.target import Target

SCRIPTS = {
    "reference": "reference",
}
"""The modules of libraries that emit no lines; each has ``library``, as below."""


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case`` (its length set) with the target's library at ``version``.

    ``operands``: x, w and b of the case, for libraries whose models hold them.

    Raises InputError where no script is written for it.
    """
    if written.is_written(target):
        return written.library(target, version, case, operands)
    if target.name not in SCRIPTS:
        todo = f"use one of {', '.join(backends.BACKENDS)}"
        raise InputError("target", target.text, "no script is written for it", todo)
    module = import_module(f"probe.reproduction.scripts.{SCRIPTS[target.name]}")
    found: Library = module.library(target, version, case, operands)
    return found

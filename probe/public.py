"""Defines what ``import probe`` offers; makes ``probe.explain`` callable although it is a package.

``probe.explain(...)``, ``probe.sweep(...)`` and the like are the Python interface, and packages of
the same names stand below them. Python sets the attribute ``explain`` of ``probe`` to the package
as soon as anything imports that, so a function of this name would be gone after the first import
of ``probe.explain.causes``. So the packages themselves can be called: ``opens(__name__)`` in
their ``__init__`` gives the module object a class with ``__call__``, whose signature and help
are the function's. Nothing depends on who imports what first, ``from probe.explain import ...``
stays what it was, and the function is imported by the first call. Type checkers are told of the
functions in ``probe/__init__.py``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import Signature, cleandoc, signature
from types import ModuleType
from typing import Any

QUESTIONS = {
    "explain": "probe.answers.explain",
    "order": "probe.answers.order",
    "remedies": "probe.answers.network",
    "reproduce": "probe.answers.reproduce",
    "sweep": "probe.answers.sweep",
    "thresholds": "probe.answers.thresholds",
}
"""Every question that can be asked in Python, and the module with the function of its name."""


def question(name: str) -> Any:
    """Returns the function that answers a question of ``QUESTIONS``; imports it."""
    return getattr(import_module(QUESTIONS[name]), name)


class Room(ModuleType):
    """A package of probe that is also a question: calling it asks."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._function(*given, **named)

    @property
    def _function(self) -> Any:
        return question(self.__name__.rpartition(".")[2])

    @property
    def __signature__(self) -> Signature:
        return signature(self._function)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What the package says of itself, and then how it is called: ``help(probe.explain)``."""
        own = self.__dict__.get("__doc__") or ""
        asked = cleandoc(self._function.__doc__)
        return f"{own.rstrip()}\n\n{self.__name__}{self.__signature__}\n\n{asked}\n"


def opens(name: str) -> None:
    """Makes the package ``name``, which is being imported, one that can be called."""
    sys.modules[name].__class__ = Room

"""What a shell offers for the values of options: ``--op con<TAB>``, ``--target tensorflow,o<TAB>``.

After ``eval "$(_PROBE_COMPLETE=bash_source probe)"`` (or zsh, fish); see click's manual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Complete = Callable[[Any, Any, str], list[str]]


def _of(known: Callable[[], Iterable[str]]) -> Complete:
    """Those of ``known`` that begin as the word does; nothing is imported before a shell asks."""

    def complete(ctx: Any, param: Any, incomplete: str) -> list[str]:
        return [word for word in known() if word.startswith(incomplete)]

    return complete


def _ops() -> Iterable[str]:
    from probe.operation import OF_CASES

    return OF_CASES


def _dtypes() -> Iterable[str]:
    from probe.floats import FORMATS

    return FORMATS


def _operands() -> Iterable[str]:
    from probe.operands import KINDS

    return KINDS


def _axes() -> Iterable[str]:
    from probe.window.agreement import VARY

    return VARY


def _forms() -> Iterable[str]:
    from probe.reproduction.forms import FORMS

    return FORMS


def _targets(ctx: Any, param: Any, incomplete: str) -> list[str]:
    """Names and devices; after a comma the switches, and after ``=`` their values."""
    from probe import backends

    *before, last = incomplete.split(",")
    if not before:
        names = [
            name + ("" if device == "cpu" else f"@{device.replace('N', '0')}")
            for name in backends.names()
            for device in backends.get(name).devices
        ]
        return [name for name in names if name.startswith(last)]
    name = before[0].partition("@")[0].partition("==")[0]
    if name not in backends.names():
        return []
    given = {word.partition("=")[0] for word in before[1:]}
    found = [
        f"{key}={value}"
        for key, what in backends.get(name).keys.items()
        if key not in given
        for value in (what.values or ("",))
    ]
    return [",".join([*before, word]) for word in found if word.startswith(last)]


VALUES: dict[str, Complete] = {
    "op": _of(_ops),
    "padding": _of(lambda: ("valid", "same", "same_lower", "caffe")),
    "ceil_mode": _of(lambda: ("true", "false")),
    "pad_with": _of(lambda: ("nothing", "zeros")),
    "dtype": _of(_dtypes),
    "operands": _of(_operands),
    "bias": _of(lambda: ("normal",)),
    "vary": _of(_axes),
    "by": _of(lambda: ("bits", "order")),
    "control": _of(lambda: ("every", "differing")),
    "kernels": _of(lambda: ("said", "all", "none")),
    "form": _of(_forms),
    "target": _targets,
    "targets": _targets,
    "against_target": _targets,
    "also": _targets,
    "against_padding": _of(lambda: ("valid", "same", "same_lower", "caffe")),
}
"""By the name that a command gets the option under."""

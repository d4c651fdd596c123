"""What a shell offers for the values of options: ``--op con<TAB>``, ``--target tensorflow,o<TAB>``.

After ``eval "$(_PROBE_COMPLETE=bash_source probe)"`` (or zsh, fish); see click's manual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Complete = Callable[[Any, Any, str], list[str]]


def _of(*words: str) -> Complete:
    """Returns what completes to these words."""
    return lambda ctx, param, begun: [word for word in words if word.startswith(begun)]


def _known(module: str, name: str) -> Complete:
    """Returns what completes to the names in a table, which is imported when a shell asks."""

    def complete(ctx: Any, param: Any, begun: str) -> list[str]:
        return _of(*getattr(import_module(f"probe.{module}"), name))(ctx, param, begun)

    return complete


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


PADDING = _of("valid", "same", "same_lower", "caffe")
VALUES: dict[str, Complete] = {
    "op": _known("operation", "OF_CASES"),
    "padding": PADDING,
    "ceil_mode": _of("true", "false"),
    "pad_with": _of("nothing", "zeros"),
    "dtype": _known("floats", "FORMATS"),
    "operands": _known("operands", "KINDS"),
    "bias": _of("normal"),
    "vary": _known("window.agreement", "VARY"),
    "by": _of("bits", "order"),
    "control": _of("every", "differing"),
    "kernels": _of("said", "all", "none"),
    "form": _known("reproduction.forms", "FORMS"),
    **dict.fromkeys(("target", "targets", "against_target", "also"), _targets),
    "against_padding": PADDING,
}
"""By the name that a command gets the option under."""

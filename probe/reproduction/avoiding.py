"""What avoids a difference, as far as it was tried: the target's own switches, nearby lengths.

Only what was run is told. A switch counts where the smallest case adds every compared output alike
on both sides, replayed bit for bit, and the case as it was found agrees in bits too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from probe import backends, target
from probe.errors import InputError, ProbeError
from probe.launch import library_variables
from probe.reproduction.failing import Failing, failing
from probe.shrink import Finding
from probe.target import Target

SWITCHES = 4
"""Settings that are tried: each costs a start of the library."""

VALUES = 8
"""Values of the axis that are tried, beyond the two of the smallest case."""


def by_values(failed: Failing, finding: Finding) -> list[str]:
    """Which values of the axis next to the smallest case's agree with its right side."""
    if not finding.paired or finding.vary not in ("length", "batch"):
        return []
    assert finding.at is not None and finding.against is not None
    high = max(finding.at, finding.against)
    good: list[int] = []
    bad: list[int] = []
    for value in range(high + 1, high + 1 + VALUES):
        try:
            one = finding.reshaped(at=value, against=high).drawn_as("cancel")
        except InputError:
            return []
        (good if failed.survives(lambda f: alike(failed, f), one) else bad).append(value)
    if not good or bad:
        return []
    words = {"length": ("length", "lengths"), "batch": ("batch", "batches of")}[finding.vary]
    return [
        f"{words[0]} {high} or more, as far as it was tried with the smallest case: {words[1]} "
        f"{good[0]} to {good[-1]} add every compared output as {words[0]} {high} does"
    ]


def by_switches(
    finding: Finding, start: Finding, where: Target, tell: Callable[[str], None]
) -> list[str]:
    """Which other settings of the target give both sides of both cases the same sums."""
    found = []
    for other in _others(where):
        tell(f"trying {other.text}")
        try:
            with failing(other) as failed:
                good = alike(failed, finding) and not failed.by_bits(start)
        except ProbeError:
            continue
        if good:
            found.append(
                f"`{other.text}`{_set(other)}: the smallest case adds every compared output alike, "
                "and the case as it was found agrees, bit for bit"
            )
    return found


def alike(failed: Failing, finding: Finding) -> bool:
    """Whether every compared output is added alike on both sides, whatever the operands are."""
    found = failed.explained(finding)
    whole = found.replayed == found.compared
    return whole and not found.by_order and not len(found.differing)


def _others(where: Target) -> Iterator[Target]:
    """The first ``SWITCHES`` other settings that the backend suggests and that can run here."""
    own, given = dict(where.switches), 0
    for text in sorted(_suggested(where), key=lambda one: "isa" in one):
        try:
            other = replace(where, switches=tuple((own | _parsed(text)).items()))
        except InputError:
            continue
        if other == where or target.unavailable(other):
            continue
        yield other
        given += 1
        if given == SWITCHES:
            return


def _suggested(where: Target) -> Sequence[str]:
    """Settings of switches alone: no devices, no backends that are different libraries."""
    texts = backends.get(where.name).suggestions
    return [one for one in texts if one.startswith(",") and "backend=" not in one]


def _parsed(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.strip(",").split(","))  # type: ignore[misc]


def _set(where: Target) -> str:
    """The variables that a user would set for it, where it is done by variables."""
    plain = library_variables(replace(where, switches=()))
    own = {k: v for k, v in library_variables(where).items() if plain.get(k) != v}
    return f" ({', '.join(f'`{name}={value}`' for name, value in own.items())})" if own else ""

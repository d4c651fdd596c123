"""The recommendation: the cheapest remedy that is exact for this case on this target."""

from __future__ import annotations

from dataclasses import dataclass

from probe.printing import times
from probe.remedies.found import Found, Measured


@dataclass(frozen=True)
class Advice:
    """``name``: the remedy to use, ``none`` where lengths agree already, None where none is exact.

    None too where the model was read in part: nothing is recommended then.

    ``ratio``: its time at the content's length over the default's there; ``of_fixed``: over the
    default's time at the fixed length. ``keeping``: the cheapest exact one that also gives the
    default's bits at the fixed length, for users who have results to match; None if there is none.
    """

    name: str | None
    text: str
    ratio: float | None = None
    of_fixed: float | None = None
    keeping: str | None = None


def advise(measured: Measured) -> Advice:
    """What to do, in one sentence."""
    if measured.part:
        return Advice(None, f"nothing is recommended: {measured.part}")
    exact = [one for one in measured.found if one.verdict == "exact" and one.seconds]
    keeping = _cheapest(measured, [one for one in exact if one.keeps])
    kept = None if keeping is None else keeping.remedy.name
    if measured.default.verdict == "exact":
        text = "no remedy is needed: all of these lengths add every output in the same way"
        return Advice("none", text, 1.0, measured.of_fixed(measured.default), "default")
    best = _cheapest(measured, exact)
    if best is None:
        return Advice(None, "no remedy is exact on this target")
    ratio, of_fixed = measured.ratio(best, measured.content), measured.of_fixed(best)
    text = (
        f"{best.remedy.name}: {best.remedy.doc}; exact, {times(ratio)} times the default at length "
        f"{measured.content}, {times(of_fixed)} times padding everything to {measured.fixed}"
    )
    if kept != best.remedy.name and kept is not None:
        text += f"; to keep the default's bits at {measured.fixed}: {kept}"
    return Advice(best.remedy.name, text, ratio, of_fixed, kept)


def _cheapest(measured: Measured, found: list[Found]) -> Found | None:
    return min(found, key=lambda one: measured.of_fixed(one) or 0, default=None)

"""Causes: what each one means, counted over a pair of runs or a whole store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.cli.show.facts import table

MEANING = {
    "window": "reads other inputs: a convention (padding, stride, groups), not rounding",
    "order": "adds the same products in another order",
    "rounding": "fuses other products into their additions (FMA), or cuts its result off",
    "precision": "keeps products or partial sums in another format",
    "nondeterministic": "does not repeat its own bits: nothing can be said about the rest",
    "place": "computes a function otherwise where it lies: the remainder of a vectorised loop",
    "not-a-sum": "does not form the products (Winograd, FFT): there is no order to compare",
    "unexplained": "not reproduced by replay: we do not know",
}
"""What each cause says of an output."""


def counted(causes: Mapping[str, int]) -> RenderableType:
    """A row a cause."""
    rows = table("cause", "outputs", "what it is", right=("outputs",))
    for cause, count in causes.items():
        rows.add_row(Text(cause, style(cause)), f"{count:,}", meaning(cause))
    return rows


def meaning(cause: str) -> str:
    """A cause in words; of several at once, all of them."""
    return "; ".join(MEANING.get(part, part) for part in cause.split("+"))


def style(cause: str) -> str:
    """Red for what counts against us, and for what cannot be said."""
    return "bold red" if cause in ("unexplained", "nondeterministic") else "cyan"


def store_causes(found: Mapping[str, Any], verbose: bool = False) -> RenderableType:
    """What ``probe explain --from STORE`` found."""
    head = Text(f"{found['differing']:,} differing outputs in {found['store']}; ", "bold")
    head.append(f"replayed {found['replayed']:,}", _share(found["replayed"], found["differing"]))
    lines: list[RenderableType] = [head]
    if before := found["comparisons_explained_before"]:
        lines.append(Text(f"{before:,} comparisons had been explained before", "dim"))
    if found["causes"]:
        lines += ["", counted(found["causes"]), "", _targets(found)]
    return Group(*lines, *_failures(found["failures"], verbose), *_interrupted(found))


def _share(part: int, total: int) -> str:
    return "green" if part == total else "red"


def _targets(found: Mapping[str, Any]) -> RenderableType:
    names = list(found["causes"])
    rows = table("target", *names, right=names)
    for target, causes in found["targets"].items():
        rows.add_row(target, *(f"{causes.get(name, 0):,}" for name in names))
    return rows


def _failures(failures: list[str], verbose: bool, most: int = 3) -> Iterator[RenderableType]:
    shown = failures if verbose else failures[:most]
    for failure in shown:
        yield Text(failure, "yellow")
    if len(failures) > len(shown):
        yield Text(f"{len(failures) - len(shown)} other failures; --verbose shows them", "yellow")


def _interrupted(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    if found["interrupted"]:
        yield Text("interrupted: the same command goes on where it stopped", "yellow")

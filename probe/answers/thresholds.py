"""Finds at which sizes a target changes how it adds, and which floor keeps the order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from probe.answers.answer import DEFAULT_TARGET, Answer, checked_case, checked_target
from probe.case import Case
from probe.errors import InputError
from probe.launch import open_session
from probe.options import checked_options
from probe.printing import counted
from probe.progress import Say
from probe.switch_points import floors, search
from probe.switch_points.search import Thresholds, islands
from probe.target import Target
from probe.window import axis_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The largest size that is looked at where none is given.
UPTO = {"length": 1_000_000, "batch": 1024}


@dataclass(repr=False)
class Switching(Answer):
    """Where a target switches along an axis: ``found``; ``classes`` of sizes, and the ``floor``."""

    found: Thresholds

    @property
    def classes(self) -> list[floors.SizeClass]:
        """Returns sizes that were run and at which every row adds alike, class by class."""
        return floors.classes(self.found)

    @property
    def floor(self) -> floors.Floor:
        """Returns which floor keeps every row's sum as at the largest size, and why."""
        return floors.floor(self.found)

    def report(self) -> dict[str, Any]:
        stretches = [
            {"first": first, "last": last, "kind": kind}
            for first, last, kind in islands(self.found)
        ]
        return self.found.to_json() | {
            "stretches": stretches,
            "classes": [one.to_json() for one in self.classes],
            "floor": self.floor.to_json(),
        }

    def lines(self) -> tuple[str, str, str]:
        found = self.found
        switches = counted(len(found.switches), "switch")
        told = ", ".join(one.text for one in self.classes[:8]) or "none"
        return (
            f"{found.case.label} on {found.target}, {found.threads_text}, {found.sizes} "
            f"{found.shortest:,} to {found.upto:,}: {switches}",
            f"classes of {found.sizes} that add alike: {told}",
            self.floor.text,
        )

    def drawn(self) -> Figure | None:
        """Draws the sizes of each class, a row a class, and the floor."""
        from probe.plots import views

        return views.draw_switching(self.found)


def thresholds(
    case: Case,
    target: str | Target = DEFAULT_TARGET,
    *,
    vary: str | None = None,
    upto: int | str | None = None,
    scan: int | str | None = None,
    seconds: float | str | None = None,
    progress: Say | None = None,
) -> Switching:
    """Finds the sizes at which the order or rounding of the outputs changes, and what adds alike.

    ``vary``: ``length``, or ``batch`` (the rows of a dense layer), the case's length then being
    set; None: the length, of a dense layer the batch. ``upto``: the largest size; a million, of
    batches 1,024. ``scan``: that many of the smallest sizes are all run; None: 64, and as many more
    as take some seconds. A class holds the sizes that were run; what is expected of others is
    listed apart. All of it holds for the number of threads that is named. ``seconds``: no size is
    begun after that time. Errors: InputError; TargetError where the target fails at the first size.
    """
    case, where = checked_case(case), checked_target(target)
    if case.pool:
        why = "a pool has no weights that could show an order"
        raise InputError("op", case.op, why, "compare two sizes with probe explain")
    vary = axis_of(case, vary)
    scan, upto = checked_options(scan=scan, upto=upto)
    # the command hands over the word as typed, Python a number of any kind
    if isinstance(seconds, str):
        (seconds,) = checked_options(seconds=seconds)
    given: dict[str, Any] = {"scanned": scan, "seconds": seconds}
    longest: int = UPTO.get(vary, 1) if upto is None else upto  # type: ignore[assignment]

    with open_session(where) as session:
        found = search.find_switch_points(
            *(session, case, longest),
            progress=progress,
            vary=vary,
            **{name: limit for name, limit in given.items() if limit is not None},
        )
    return Switching(found)

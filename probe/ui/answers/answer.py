"""Defines what all answers have in common, and how their arguments are read."""

from __future__ import annotations

import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case.arguments import by, padding_text, whole_numbers
from probe.case.case import Case
from probe.case.errors import InputError
from probe.order.window import shown_axis_value
from probe.sweep.printing import as_json, ranges
from probe.targets.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

DEFAULT_TARGET = "tensorflow"
# Columns of an answer's first and last line where it is not printed on a terminal.
WIDTH = 100


class Answer(ABC):
    """Holds the result of a question. ``found`` has all of it, and its attributes are also the
    result's own.

    A result is data, and what is made of it stands here: three lines, JSON, the text of a terminal
    and the picture of a notebook.
    """

    found: Any
    figure: tuple[str, ...] = ()
    """What draws it in ``probe.report``: module, function, and the attributes that this takes."""

    @property
    def finding(self) -> bool:
        """Of runs that are compared: whether anything differs, or whether that is unknown."""
        return bool(self.verdict != "equal")

    @abstractmethod
    def lines(self) -> tuple[str, str, str]:
        """The question, the finding, and what it means or what to do next."""

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """What ``to_json`` says, perhaps in NumPy's numbers."""

    def shown(self) -> RenderableType:
        return "\n".join(self.lines())

    def drawn(self) -> Figure | None:
        """What ``picture`` gives, without its style."""
        if not self.figure:
            return None
        module, function, *parts = self.figure  # late: it imports matplotlib
        draw = getattr(import_module(f"probe.report.{module}"), function)
        figure: Figure | None = draw(*(getattr(self, part) for part in parts))
        return figure

    def picture(self) -> Figure | None:
        """The matplotlib figure that a notebook shows; None if there is nothing to draw."""
        import matplotlib.pyplot as plt

        from probe.report import plots

        with plt.rc_context():
            plots.style()
            figure = self.drawn()
        if figure is not None:
            plt.close(figure)  # else a notebook shows it once more
        return figure

    def to_json(self) -> dict[str, Any]:
        """The object that the command prints with ``--json``, in plain Python."""
        plain: dict[str, Any] = as_json(self.report())
        return plain

    def __repr__(self) -> str:
        """Three lines: the question and the last line end at the terminal's width; the finding,
        which says why, is never cut."""
        question, finding, last = (" ".join(line.split()) for line in self.lines())
        return "\n".join((_cut_to_terminal(question), finding, _cut_to_terminal(last)))

    def _repr_png_(self) -> bytes | None:
        """The picture for notebooks; None makes them print the three lines."""
        figure = self.picture()
        if figure is None:
            return None
        file = BytesIO()
        # matplotlib writes its version: equal pictures would be different files
        figure.savefig(file, format="png", metadata={"Software": None})
        return file.getvalue()

    def __getattr__(self, name: str) -> Any:
        # copy and pickle ask for attributes before there is a ``found``: no recursion then
        if name.startswith("_") or "found" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.found, name)


def _cut_to_terminal(line: str) -> str:
    width = WIDTH
    if sys.stdout is not None and sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns, 40)
    return line if len(line) <= width else line[: width - 3] + "..."


def checked_case(case: object) -> Case:
    """The case that was given. InputError for anything else, such as a text or a model."""
    if not isinstance(case, Case):
        todo = 'give one such as probe.Case(op="conv1d", kernel=5, in_channels=4)'
        raise InputError(
            "case", type(case).__name__, "an object of this class is not a probe.Case", todo
        )
    return case


def checked_target(target: Any) -> Target:
    """A target, or that of a text. Raises InputError."""
    if isinstance(target, str):
        return Target.parse(target)
    if not isinstance(target, Target):
        todo = 'give a text such as "torch,threads=1"; a case stands before it'
        raise InputError(
            "target", type(target).__name__, "an object of this class is not a target", todo
        )
    return target


def checked_targets(targets: str | Target | Iterable[str | Target]) -> list[Target]:
    """One target or several, each once. Raises InputError."""
    several: Iterable[Any] = targets if isinstance(targets, Iterable) else [targets]
    several = [targets] if isinstance(targets, str | Target) else several
    return list(dict.fromkeys(map(checked_target, several)))


def checked_sides(
    target: str | Target,
    at: object = None,
    against: object = None,
    against_target: str | Target | None = None,
    against_padding: object = None,
) -> tuple[Target, Target]:
    """Both sides' targets. InputError: there is nothing to compare, or the same run twice."""
    left, right = checked_target(target), checked_target(against_target or target)
    if left == right and against_padding is None and against in (None, at):
        why = "both sides are the same run"
        if against is None:
            why = "there is nothing to compare with"
        todo = "give --against B, --against-target U or --against-padding P"
        raise InputError("against", "(none)" if against is None else against, why, todo)
    return left, right


# Values of an axis: what is none of these is said by ``length_values``, with what to write.
Lengths = Iterable[int | str] | str | None


def length_values(lengths: Any) -> list[int]:
    """The values of an axis ascending, each once. InputError: they aren't whole numbers."""
    if isinstance(lengths, int | np.integer):
        why = "one length has nothing to be compared with"
        todo = f"write range(1, {lengths + 1}) or [1, {lengths}]"
        raise InputError("lengths", lengths, why, todo)
    if isinstance(lengths, str):
        return whole_numbers("lengths", lengths)
    whole = list(lengths) if isinstance(lengths, Iterable) else None
    if whole is None or not all(isinstance(length, int | np.integer) for length in whole):
        todo = "write range(5, 41), [5, 9] or 5..40"
        raise InputError("lengths", lengths, "these are not whole numbers", todo)
    return sorted({int(length) for length in whole})


def command_line(case: Case, leave_out: tuple[str, ...] = ()) -> str:
    """The words that make this case on a command line, without those at their defaults."""
    if case.spatial_rank > 1 and case.length is not None:
        case = case.with_(height=case.other_axes)  # a line without it is square
    plain = Case(case.op, case.kernel, case.in_channels).arguments()
    parts = []
    for name, value in case.arguments().items():
        needed = name == "op" or (name == "kernel" and case.operation.windows)
        if name in leave_out or (value == plain[name] and not needed):
            continue
        if name == "padding":
            value = padding_text(value)
        elif isinstance(value, tuple):
            value = by(value) if isinstance(value[0], int) else ",".join(map(repr, value))
        parts.append(f"--{name.replace('_', '-')} {shlex.quote(str(value))}")
    if case.in_channels != 1:
        parts.insert(2, f"--in-channels {case.in_channels}")
    return " ".join(parts)


def values_of_axis(vary: str, values: Iterable[int]) -> str:
    """Values of an axis: ranges of numbers, or layouts' words."""
    if vary != "layout":
        return ranges(values)
    return ", ".join(shown_axis_value(vary, value) for value in sorted(values))

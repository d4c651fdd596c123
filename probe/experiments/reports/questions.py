"""What a public report asks: two runs that must agree, on any target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from probe.case import Case
from probe.comparison import Shapes
from probe.target import Target

Written = Callable[[Target, Case], "Case | None"]


@dataclass(frozen=True)
class Pair:
    """One operator at two values of the axis ``vary``: both must give the same."""

    text: str
    case: Case
    vary: str
    at: int
    against: int

    @property
    def shapes(self) -> Shapes:
        """Both sides."""
        return Shapes.named(self.case, self.vary, self.at, self.against)

    @property
    def left(self) -> Case:
        """The left side's case."""
        return self.shapes.left


@dataclass(frozen=True)
class Operators:
    """Two operators of one target over the same numbers, such as a 1x1 convolution and a product.

    ``sized(n)`` gives both cases with ``n`` products for each output, numbered alike, and as many
    outputs in the same order; ``size`` is the report's n. Both get the left side's numbers, or
    ``value`` in every place and weights of 1.
    """

    text: str
    sized: Callable[[int], tuple[Case, Case]]
    size: int
    value: float | None = None

    @property
    def left(self) -> Case:
        """The left side's case."""
        return self.sized(self.size)[0]


@dataclass(frozen=True)
class Conventions:
    """One layer as it is on the target ``origin``, and as users write it for another library.

    ``written(target, case)`` is what they write; None: they can't. ``origin=""``: both sides run on
    the same target. ``small``: the same question at a smaller case; None: it is looked for by
    shrinking, which needs sides that differ in padding alone.
    """

    text: str
    origin: str
    case: Case
    written: Written
    small: Case | None = None

    @property
    def left(self) -> Case:
        """The left side's case."""
        return self.case


Question = Pair | Operators | Conventions


@dataclass(frozen=True)
class Report:
    """A public thread: its title and its maintainers' answer in our words, and what it asks.

    ``home``: the target whose smallest case is looked for first. ``reason``: why there is nothing
    to ask here.
    """

    thread: str
    title: str
    answer: str | None
    questions: tuple[Question, ...] = ()
    home: str = ""
    reason: str | None = None

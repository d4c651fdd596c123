"""What was found of each remedy, and all of it for one case or network on one target."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import Case
from probe.remedies.candidates import Remedy
from probe.target import Target

if TYPE_CHECKING:
    from probe.network import Network


@dataclass
class Found:
    """One remedy. ``refusal``: why it can't be used here, or why its orders aren't known.

    ``compared``: outputs that must agree (of a network: content lengths); of these ``differing``
    are added in another way than at the fixed length, ``unknown`` in a way that isn't known; None
    where nothing was compared. ``causes`` counts the differing ones by cause.
    ``seconds``: by length the medians of each turn's calls. ``error_rms``, ``error_max``: distance
    from the exact outputs at the fixed length, over eps * sum|x*w| (of a network eps * the largest
    output). ``keeps``: whether the fixed length has the default's bits. ``sizes``: what ``pad``
    fills up to: numbers of outputs, or of a network the padded length of each content length.
    """

    remedy: Remedy
    refusal: str = ""
    compared: int | None = None
    differing: int = 0
    unknown: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    seconds: dict[int, np.ndarray] = field(default_factory=dict)
    error_rms: float | None = None
    error_max: float | None = None
    keeps: bool | None = None
    sizes: tuple[int, ...] = ()

    @property
    def verdict(self) -> str:
        """``exact`` whatever the operands, ``differs``, or ``not known``."""
        if self.differing:
            return "differs"
        return "not known" if self.refusal or self.unknown or self.compared is None else "exact"


@dataclass
class Measured:
    """All remedies of a case or a network on a target, the default first.

    ``lengths``: those whose orders were compared with ``fixed``, the size that stands for padding
    everything. ``content``: the length at which costs are told, beside ``fixed``.
    """

    subject: Case | Network
    target: Target
    lengths: tuple[int, ...]
    fixed: int
    content: int
    found: list[Found]
    facts: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What was measured, in words."""
        return self.subject.label if isinstance(self.subject, Case) else self.subject.name

    @property
    def part(self) -> str:
        """``Network.part``: what to say first of a model read in part; empty otherwise."""
        return "" if isinstance(self.subject, Case) else self.subject.part

    def verdict(self, one: Found) -> str:
        """A remedy's verdict; of a model that was read in part ``exact`` is not known."""
        return "not known" if self.part and one.verdict == "exact" else one.verdict

    def refusal(self, one: Found) -> str:
        """Why a remedy can't be used, or why its verdict is not known."""
        if self.part and one.verdict == "exact":
            return f"exact in the part that was read alone: {self.part}"
        return one.refusal

    @property
    def default(self) -> Found:
        """The target as it is."""
        return self.found[0]

    def seconds(self, one: Found, length: int) -> float | None:
        """The median of the turns; None where it was not timed."""
        return float(np.median(one.seconds[length])) if length in one.seconds else None

    def ratio(self, one: Found, length: int, against: int | None = None) -> float | None:
        """Time of a remedy at a length over the default's, at ``against`` if given.

        The median of the turns' ratios. None where one of them was not timed.
        """
        mine, theirs = one.seconds.get(length), self.default.seconds.get(against or length)
        return None if mine is None or theirs is None else float(np.median(mine / theirs))

    def of_fixed(self, one: Found) -> float | None:
        """Time of a remedy for the content over the default's at the fixed length."""
        return self.ratio(one, self.content, self.fixed)

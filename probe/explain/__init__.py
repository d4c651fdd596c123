"""Two runs, output by output: what differs, and why, with replay as proof.

Outputs that read the same inputs with the same weights must agree. Where they don't, the order or
the rounding of their sums differs: both are revealed on both sides, and count as the cause only if
replaying them gives both sides' bits. What does not replay is ``unexplained``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe import operands, public, ulp, window
from probe.case import Case
from probe.errors import InputError, Nondeterministic, NotASum
from probe.explain.judge import Judge
from probe.launch import AnySession, open_session
from probe.order.masks import SessionOperator
from probe.order.orders import Operands, Orders, reveal
from probe.order.summation import Summation
from probe.order.windows import reveal_windows
from probe.target import Target

CAUSES = (
    *("window", "order", "rounding", "precision"),
    *("nondeterministic", "not-a-sum", "unexplained"),
)


NO_PLACES = np.zeros((0, 2), int)


@dataclass
class Side:
    """One run: a case at one shape on one target, its bits, and how each output was added.

    ``orders`` is None where the target is nondeterministic or no linear operator; ``refusal`` says
    so, and ``evidence`` what was seen. ``replays`` (positions, filters): the replay gave the
    library's bits on the case's operands.
    """

    target: Target
    case: Case
    control: str
    operands: Operands
    orders: Orders | None = None
    refusal: str = ""
    evidence: str = ""
    replays: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    windows: np.ndarray | None = None

    def summation(self, place: tuple[int, int]) -> Summation | None:
        """How the output at (position, filter) is added; None where that is not known."""
        number = -1 if self.orders is None else int(self.orders.index[place])
        return None if number < 0 or self.orders is None else self.orders.summations[number]

    def named(self) -> dict[str, Any]:
        """Target, length and batch as the JSON output has them."""
        return {"target": self.target.text, "length": self.case.length, "batch": self.case.batch}


def run_side(
    session: AnySession, case: Case, known: list[Summation] | None = None, windows: bool = False
) -> Side:
    """Runs ``case`` (its length set), with controls, and reveals and replays every output.

    ``known``: summations to try first. ``windows``: also read which input every output reads,
    instead of taking it from the case's padding.
    """
    side = run(session, case)
    if windows:
        side.windows = reveal_windows(SessionOperator(session, case))
    if side.refusal:
        return side
    return add_orders(side, session, known or [])


def run(
    session: AnySession,
    case: Case,
    given: tuple[np.ndarray, np.ndarray, np.ndarray | None] | None = None,
) -> Side:
    """Runs ``case`` (its length set) once, and again for control; reveals nothing yet.

    ``given``: x, w and b as container arrays of the case's shapes, instead of its own operands.
    """
    x, w, b = operands.generate(case) if given is None else given
    arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
    request = {"do": "run", "spec": case.spec(), "control": True}
    header, found = session.request(request, arrays)
    y = found["y"].reshape(-1, case.filters)
    side = Side(session.target, case, header["control"], Operands(case, x, w, b, y))
    side.replays = np.zeros(y.shape, bool)
    if side.control != "equal":
        side.refusal, side.evidence = "nondeterministic", "the same shape again gives other bits"
    return side


def add_orders(
    side: Side, session: AnySession, known: Sequence[Summation], wanted: np.ndarray | None = None
) -> Side:
    """Reveals and replays the outputs of a side: ``wanted`` (positions, filters), None for all.

    A known summation that is wrong at one addition may pass all checks; the case's own bits tell,
    and then everything is asked.
    """
    try:
        side.orders = reveal(session, side.case, known, wanted)
    except Nondeterministic as error:
        side.refusal, side.evidence = "nondeterministic", str(error)
    except NotASum as error:
        side.refusal, side.evidence = "not-a-sum", error.evidence
    else:
        side.evidence = side.orders.evidence
        side.replays = replays(side.orders, side.operands)
        if known and ((side.orders.index >= 0) & ~side.replays).any():
            return add_orders(side, session, (), wanted)
    return side


def replays(orders: Orders, operands: Operands) -> np.ndarray:
    """Where replaying each output's summation gives the library's bits: (positions, filters)."""
    agreed = (orders.index < 0) & orders.replayed  # windows that read nothing: the output is 0
    for number, summation in enumerate(orders.summations):
        positions, filters = np.nonzero(orders.index == number)
        if len(positions):
            agreed[positions, filters] = operands.agrees(summation, positions, filters)
    return agreed


@dataclass
class Pairs:
    """Outputs to compare: (pairs, 2) places (position, filter) on the left and on the right.

    ``same_window``: whether both read the same inputs with the same weights.
    """

    left: np.ndarray
    right: np.ndarray
    same_window: np.ndarray


@dataclass
class Explanation:
    """What ``explain`` found. ``differing`` indexes pairs; ``cause`` names each of those'.

    ``apart``: pairs by what sets their sums apart whatever the operands are, ``by_order`` in all.
    """

    case: Case
    left: Side
    right: Side
    pairs: Pairs
    differing: np.ndarray
    ulps: np.ndarray
    cause: list[str]
    by_order: int
    kernels: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    apart: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        from probe.explain import lines

        return "\n".join(lines.told(self))

    @property
    def compared(self) -> int:
        """Outputs that must agree."""
        return len(self.pairs.left)

    @property
    def causes(self) -> dict[str, int]:
        """Differing outputs by cause; causes that explain none are left out."""
        counted = Counter(self.cause)
        return {name: counted[name] for name in sorted(counted, key=_rank)}

    @property
    def replayed(self) -> int:
        """Compared outputs that the replay reproduced on both sides."""
        sides = ((self.left, self.pairs.left), (self.right, self.pairs.right))
        both = [side.replays[places[:, 0], places[:, 1]] for side, places in sides]
        return int((both[0] & both[1]).sum())

    @property
    def max_ulp(self) -> int | None:
        """Largest absolute distance; 0 where nothing differs, None where none is a number."""
        numbers = self.ulps[self.ulps != ulp.NAN]
        if len(self.ulps) and not len(numbers):
            return None
        return int(np.abs(numbers).max(initial=0))

    def to_json(self) -> dict[str, Any]:
        """The object that ``probe explain --json`` prints."""
        return {
            "case": self.case.to_json(),
            "left": self.left.named(),
            "right": self.right.named(),
            "compared": self.compared,
            "differing": len(self.differing),
            "max_ulp": self.max_ulp,
            "causes": self.causes,
            "replayed": self.replayed,
            "by_order": self.by_order,
            "left_orders": side_orders(self.left, self.pairs.left),
            "right_orders": side_orders(self.right, self.pairs.right),
            "windows_differ": int((~self.pairs.same_window).sum()),
            "controls": {"left": self.left.control, "right": self.right.control},
            "kernels": self.kernels,
        }


def _rank(cause: str) -> tuple[int, str]:
    first = cause.split("+")[0]
    return (CAUSES.index(first) if first in CAUSES else len(CAUSES), cause)


def side_orders(side: Side, places: np.ndarray) -> list[dict[str, Any]]:
    """The summations of the compared outputs of a side, the most frequent first."""
    if side.orders is None:
        return []
    numbers = side.orders.index[places[:, 0], places[:, 1]]
    found = [
        summation.to_json(side.case.dtype) | {"outputs": int((numbers == number).sum())}
        for number, summation in enumerate(side.orders.summations)
    ]
    return sorted((f for f in found if f["outputs"]), key=lambda f: -f["outputs"])


def explain(
    case: Case,
    target: Target,
    at: int | None = None,
    against: int | None = None,
    *,
    vary: str | None = None,
    against_target: Target | None = None,
    against_padding: object = None,
    inline: bool = False,
) -> Explanation:
    """Why ``case`` at ``at`` and at ``against`` of the axis ``vary`` differ, output by output.

    ``vary`` None: the length, of a dense layer the batch.
    With ``against_target`` (another library, device or switch) or ``against_padding`` (another
    convention) the two sides may have the same shape: leave ``against`` out. Then the windows are
    read off both sides, and outputs whose windows differ are told apart from rounding. Costs a
    reveal on each side. InputError: there is nothing to compare. TargetError: a target failed.
    """
    vary = window.axis_of(case, vary)
    values = (case.in_channels if value is None else value for value in (at, against))
    case = window.case_for(case, vary, values)
    left = case if at is None else window.case_at(case, vary, at)
    right = left if against is None else window.case_at(case, vary, against)
    if against_padding is not None:
        right = right.with_(padding=against_padding)
    other = against_target or target
    if left == right and other == target:
        raise InputError("against", against, "both sides are the same run", "give another value")
    for name, side in (("at", left), ("against", right)):
        if side.length is None:
            raise InputError(name, None, "the length is open", "give --at N, or --length N")
    conventions = other != target or against_padding is not None
    with ExitStack() as stack:
        first = second = stack.enter_context(_started(target, inline))
        if other != target:
            second = stack.enter_context(_started(other, inline))
        one = run_side(first, left, windows=conventions)
        two = run_side(second, right, one.orders.summations if one.orders else [], conventions)
    pairs = same_place(one, two) if conventions else must_agree(case, vary, left, right)
    return compare(case, one, two, pairs)


@contextmanager
def _started(target: Target, inline: bool) -> Iterator[AnySession]:
    session = open_session(target, inline).start()
    try:
        yield session
    finally:
        session.close()


def must_agree(case: Case, vary: str, left: Case, right: Case) -> Pairs:
    """Outputs of two shapes of one case that read the same inputs with the same weights."""
    at, against = window.value_of(left, vary), window.value_of(right, vary)
    assert at is not None and against is not None
    found = window.agreement(case, vary, at, against)
    one = np.concatenate([places(left, block) for block, _ in found.blocks] or [NO_PLACES])
    two = np.concatenate([places(right, block) for _, block in found.blocks] or [NO_PLACES])
    return Pairs(one, two, np.ones(len(one), bool))


def places(case: Case, block: tuple[slice, ...]) -> np.ndarray:
    """(position, filter) of all outputs in a block of the output, row by row: (outputs, 2)."""
    shape = case.output_shape()
    flat = np.arange(np.prod(shape)).reshape(shape)[block].reshape(-1)
    return np.stack(np.divmod(flat, case.filters), axis=1)


def same_place(left: Side, right: Side) -> Pairs:
    """Outputs of the same index, with whether the windows that were read off them are the same."""
    shapes = left.case.output_shape(), right.case.output_shape()
    common = tuple(slice(0, min(sizes)) for sizes in zip(*shapes, strict=True))
    found = [places(side.case, common) for side in (left, right)]
    assert left.windows is not None and right.windows is not None
    windows = []
    for side, place in zip((left, right), found, strict=True):
        group = place[:, 1] // (side.case.filters // side.case.groups)
        windows.append((side.windows, group, place[:, 0]))
    same = _equal_windows(windows)
    return Pairs(found[0], found[1], same)


def _equal_windows(windows: list[tuple[Any, np.ndarray, np.ndarray]]) -> np.ndarray:
    """Row by row whether two windows name the same inputs, a block at a time."""
    (left, *at), (right, *against) = windows
    same = np.empty(len(at[0]), bool)
    for start in range(0, len(same), 65536):
        rows = slice(start, start + 65536)
        one, two = left[at[0][rows], at[1][rows]], right[against[0][rows], against[1][rows]]
        same[rows] = (one == two).all(axis=1) if one.shape == two.shape else False
    return same


def differing(left: Side, right: Side, pairs: Pairs) -> np.ndarray:
    """The pairs (indices) whose bits differ."""
    ours = left.operands.y[tuple(pairs.left.T)]
    theirs = right.operands.y[tuple(pairs.right.T)]
    return ulp.differences(ours, theirs, left.case.dtype).index


def compare(case: Case, left: Side, right: Side, pairs: Pairs) -> Explanation:
    """Differences of the paired outputs, each with its cause."""
    y_left = left.operands.y[pairs.left[:, 0], pairs.left[:, 1]]
    y_right = right.operands.y[pairs.right[:, 0], pairs.right[:, 1]]
    found = ulp.differences(y_left, y_right, case.dtype)
    judge = Judge(left, right, pairs)
    cause = judge.causes(found.index)
    apart = {name: len(which) for name, which in judge.apart()[0].items()}
    by_order = sum(apart.values())
    told = Explanation(case, left, right, pairs, found.index, found.ulps, cause, by_order)
    told.apart = apart
    return told


public.opens(__name__)

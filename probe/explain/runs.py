"""Defines what is compared: two shapes of a case with their operands, and both sides' runs.

A run holds its outputs, the windows that they read, and how they are added.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from probe.case import floats, layout, operands, ulp
from probe.case.case import Case, require_places
from probe.case.errors import InputError, Nondeterministic, NotASum
from probe.case.layout import CONTIGUOUS
from probe.order import masks, window
from probe.order.masks import SessionOperator
from probe.order.orders import ContainerOperands, Orders, reveal
from probe.order.pools import Pooled, reveal_pooling
from probe.order.summation import Summation
from probe.order.window import Geometry
from probe.order.windows import Reach, as_predicted, reached_by, reveal_windows
from probe.targets import backends
from probe.targets.launch import AnySession
from probe.targets.progress import VOICE
from probe.targets.target import Target

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray | None]
# A value of an axis as it is asked for: a number, or a layout's word.
Value = int | str
Blocks = tuple[tuple[slice, ...], ...]


@dataclass(frozen=True)
class ComparedShapes:
    """The cases ``left`` and ``right`` of a comparison, and which of their outputs must agree.

    ``at`` and ``against`` are the left and the right value of the axis ``vary``; None: the case's
    own, and ``against`` None: both sides have the same shape. ``padding``: the right side's, None
    for the case's own. Raises InputError where there is no such case.
    """

    case: Case
    vary: str
    at: int | None
    against: int | None
    padding: Any
    left: Case = field(init=False)
    right: Case = field(init=False)

    def __post_init__(self) -> None:
        left = self.case if self.at is None else self._at(self.at)
        right = left if self.against is None else self._at(self.against)
        if self.padding is not None:
            right = right.with_(padding=self.padding)
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "right", right)

    def _at(self, value: int) -> Case:
        return window.case_at(self.case, self.vary, value)

    @staticmethod
    def named(
        case: Case,
        vary: str | None = None,
        at: Value | None = None,
        against: Value | None = None,
        padding: object = None,
    ) -> ComparedShapes:
        """The shapes that ``probe explain`` compares for these words. InputError.

        ``vary`` None: the length, of a dense layer the batch. ``at`` None: the case's own. Values
        of the axis ``layout`` are words or their numbers.
        """
        vary = window.axis_of(case, vary)
        at, against = (window.number_of(vary, value) for value in (at, against))
        if at is None and (against is not None or vary == "length"):
            at = window.value_on_axis(case, vary)
        channels = case.in_channels
        case = window.case_for(case, vary, [channels if n is None else n for n in (at, against)])
        if at is None and against is not None:
            raise InputError("at", None, "the length is not given", "give --at N, or --length N")
        right_padding = None if padding is None else case.with_(padding=padding).padding
        shapes = ComparedShapes(case, vary, at, against, right_padding)
        if shapes.left.length is not None:
            require_places(shapes.larger)
        return shapes

    @property
    def paired(self) -> bool:
        return self.against is not None

    @property
    def larger(self) -> Case:
        left, right = self.left, self.right
        assert left.length is not None and right.length is not None
        length, batch = max(left.length, right.length), max(left.batch, right.batch)
        wider = max(left, right, key=lambda case: case.filters)
        return wider.with_(length=length, batch=batch, split=None)

    def blocks(self, same_place: bool = False) -> Blocks:
        """Outputs to compare, in blocks of either side: slices over (batch, *positions, filters).

        Those whose windows hold the same values; with ``same_place`` all that both sides have.
        """
        if same_place:
            return common(self.left, self.right)
        return window.agreeing_blocks(*map(Geometry.of, (self.left, self.right)))


def common(left: Case, right: Case) -> Blocks:
    """The outputs of the same index that both have, as one block."""
    shapes = left.output_shape(), right.output_shape()
    both = tuple(slice(0, min(sizes)) for sizes in zip(*shapes, strict=True))
    return (both,)


# A control: the same call gives different bits where its input begins at a different address.
ALIGNMENT = "alignment differs"

# The layout whose operands begin at a multiple of 64 bytes.
PINNED = "offset:0"

MOST_KNOWN = 24  # speed alone: summations of other shapes that are tried before one is revealed


@dataclass(frozen=True, eq=False)
class CaseRun:
    """One run: a case at one shape on one target, its bits, and how each output was added.

    What is found out later makes a new value: ``run_case`` executes, ``reveal`` finds the orders,
    ``with_orders`` takes given ones, and both replay them on the run's operands.

    ``orders`` is None where nothing was revealed, or where the target is nondeterministic, gives
    bits that go with the address of its input (``alignment``), or is no linear operator;
    ``refusal`` says so, and ``evidence`` what was seen. ``replays`` (positions, filters): the
    replay gave the library's bits on the run's operands. ``windows``: what every output reads,
    int64 (groups, positions, leaves), -1 for padding, where that was asked. ``reach``: which
    outputs the operands' infinities and NaNs reach from elsewhere; None where all are finite.
    ``reached``: outputs that are NaN by that alone, (positions, filters). ``pooled``: of a pool,
    how it comes to its outputs, instead of ``orders``.
    """

    target: Target
    case: Case
    control: str
    operands: ContainerOperands
    replays: np.ndarray
    reached: np.ndarray
    orders: Orders | None = None
    refusal: str = ""
    evidence: str = ""
    windows: np.ndarray | None = None
    reach: Reach | None = None
    pooled: Pooled | None = None

    def summation(self, place: Sequence[int] | np.ndarray) -> Summation | None:
        """How the output at (position, filter) is added; None where that is not known."""
        position, filter_ = place
        if self.orders is None:
            return None
        number = int(self.orders.index[position, filter_])
        return self.orders.summations[number] if number >= 0 else None

    def mask(self, places: np.ndarray) -> np.ndarray:
        """Where these places (outputs, 2) are among all: bool (positions, filters)."""
        mask = np.zeros(self.replays.shape, bool)
        mask[tuple(places.T)] = True
        return mask

    def named(self) -> dict[str, Any]:
        """Target, length and batch as the JSON output has them, and a layout of its own."""
        case = self.case
        names = {"target": self.target.text, "length": case.length, "batch": case.batch}
        return names if case.layout == CONTIGUOUS else names | {"layout": case.layout}

    @property
    def _size(self) -> str:
        size = self.case.length if self.case.spatial_rank else self.case.batch
        return f"{'length' if self.case.spatial_rank else 'batch'} {size}"

    def reveal(
        self,
        session: AnySession,
        tried: Sequence[Summation] = (),
        wanted: np.ndarray | None = None,
    ) -> CaseRun:
        """Reveals and replays outputs: ``wanted`` (positions, filters), None for all.

        ``tried``: summations to try first. One that is wrong at one addition may pass all checks;
        the case's own bits tell, and then everything is asked.
        """
        if self.refusal:
            return self
        if self.case.pool:
            return self._pool(session, wanted)
        try:
            with VOICE.doing(f"revealing orders on {self.target.text}, {self._size}"):
                orders = reveal(session, self.case, tried, wanted, self.operands.zeros)
        except Nondeterministic as error:
            return replace(self, refusal="nondeterministic", evidence=str(error))
        except NotASum as error:
            return replace(self, refusal=error.kind, evidence=error.evidence)
        run = self.with_orders(session, orders)
        if tried and ((orders.index >= 0) & ~run.replays).any():
            return run.reveal(session, (), wanted)
        return run

    def _pool(self, session: AnySession, wanted: np.ndarray | None) -> CaseRun:
        """The run with how a pool comes to its outputs; those that came out again replay."""
        call = self.operands

        def ask(x: np.ndarray) -> np.ndarray:
            return outputs_of_call(session, self.case, (x, call.w, None))

        with VOICE.doing(f"replaying pools of {self.target.text}, {self._size}"):
            pooled = reveal_pooling(self.case, ask, call.x, call.y, call.zeros, wanted)
        return replace(self, pooled=pooled, replays=pooled.index >= 0, evidence=pooled.words)

    def with_orders(self, session: AnySession, orders: Orders) -> CaseRun:
        """The run with these orders, replayed on its operands."""
        call = self.operands
        replays = (orders.index < 0) & orders.replayed  # windows that read nothing: the output is 0
        if not call.finite:
            replays &= floats.widen(call.y, call.case.dtype) == 0
        for number, summation in enumerate(orders.summations):
            positions, filters = np.nonzero(orders.index == number)
            if len(positions):
                replays[positions, filters] = call.agrees(summation, positions, filters)
        run = replace(self, orders=orders, evidence=orders.evidence, replays=replays)
        return _with_nonfinite(run, session, orders)


def _call(session: AnySession, case: Case, xwb: Arrays, control: bool) -> tuple[np.ndarray, str]:
    arrays = {name: array for name, array in zip("xwb", xwb, strict=True) if array is not None}
    request = {"do": "run", "spec": case.spec(), "control": control}
    header, answer = session.request(request, arrays)
    return answer["y"], header.get("control", "")


def outputs_of_call(session: AnySession, case: Case, arrays: Arrays | None = None) -> np.ndarray:
    """The outputs of one call, container, (batch, *positions, filters); ``arrays`` as of
    ``run_case``."""
    return _call(session, case, operands.generate(case) if arrays is None else arrays, False)[0]


def run_case(
    session: AnySession,
    case: Case,
    arrays: Arrays | None = None,
    windows: bool = False,
    zeros: str = "equal",
) -> CaseRun:
    """Runs ``case`` (its length set) once, and again for control; reveals no order yet.

    ``arrays``: x, w and b as container arrays of the case's shapes, instead of its own operands.
    ``windows``: also reads which input every output reads; of sums that are too long to be asked,
    which takes a call for each product, those that the padding implies. ``zeros``: as
    ``ulp.differences``.
    """
    x, w, b = operands.generate(case) if arrays is None else arrays
    y, control = _call(session, case, (x, w, b), True)
    y, placed, name = y.reshape(-1, case.filters), case, session.target.name
    # the bits go with the address: at a fixed one, where the target can lay operands so, it may
    # repeat them; what is asked of it then is asked there
    if (
        control == ALIGNMENT
        and case.layout == CONTIGUOUS
        and name in backends.known_backends()
        and layout.keeps_layout(PINNED, backends.get(name).layouts)
    ):
        pinned = case.with_(layout=PINNED)
        again, repeats = _call(session, pinned, (x, w, b), True)
        if repeats == "equal" and ulp.equal(again.reshape(y.shape), y, case.dtype):
            placed, control = pinned, "equal"
    refusal = "" if control == "equal" else "nondeterministic"
    evidence = "the same shape, run again, gives different bits"
    evidence += " if its operands have a different memory address" * (control == ALIGNMENT)
    reads = None
    if windows:
        long = masks.why_not_whole(case.summands)
        reads = as_predicted(case) if long else reveal_windows(SessionOperator(session, case))
    return CaseRun(
        session.target,
        placed,
        control,
        ContainerOperands(placed, x, w, b, y, zeros, behind=getattr(session, "behind", None)),
        replays=np.zeros(y.shape, bool),
        reached=np.zeros(y.shape, bool),
        refusal="alignment" if control == ALIGNMENT else refusal,
        evidence=evidence if refusal else "",
        windows=reads,
    )


def run_and_reveal(session: AnySession, case: Case) -> CaseRun:
    """Runs ``case`` (its length set), with controls, and reveals and replays every output."""
    return run_case(session, case).reveal(session)


def _with_nonfinite(run: CaseRun, session: AnySession, orders: Orders) -> CaseRun:
    """A run with what its orders did not give because of infinities or NaN.

    An output that an infinity or a NaN gets into without a weight adds 0 times that: it replays if
    it is NaN. Found are ``replays``, ``reach`` and ``reached``.
    """
    call, dtype = run.operands, run.case.dtype
    # finite operands times a zero weight add nothing, whatever the kernel reads
    if call.finite:
        return run
    reach = run.reach or reached_by(session, run.case, call.x, call.w, call.b)
    any_reach, nan = reach.any, np.isnan(floats.widen(call.y, dtype))
    nan_by_windows = np.zeros_like(nan)  # where the windows alone make a NaN
    for number, summation in enumerate(orders.summations):
        positions, filters = np.nonzero(any_reach & nan & (orders.index == number))
        if len(positions):
            y = call.replay(summation, positions, filters)
            nan_by_windows[positions, filters] = np.isnan(floats.widen(y, dtype))
    reached = any_reach & nan & ~nan_by_windows
    replays = np.where(any_reach, nan & orders.replayed, run.replays)
    return replace(run, reach=reach, reached=reached, replays=replays)


class Revealer:
    """Reveals runs, and tries what was revealed before.

    ``tried``: how many summations of earlier runs are tried before any is revealed; None: all.
    ``kept``: of how many shapes the orders are kept; None: of all. Orders go with the shape, for
    all finite operands: where a replay of kept ones gives a run's bits, nothing is revealed.
    ``small``: up to that many outputs all are revealed, though some are wanted.
    """

    def __init__(
        self, tried: int | None = MOST_KNOWN, kept: int | None = 0, small: int = 0
    ) -> None:
        self.tried, self.kept, self.small = tried, kept, small
        self.summations: list[Summation] = []
        self._orders: dict[Hashable, Orders] = {}

    def _key(self, run: CaseRun) -> Hashable:
        return run.target.text, str(run.case.to_json())

    def recall(self, run: CaseRun, session: AnySession) -> CaseRun | None:
        """A run with the orders kept of its shape, replayed; None if there are none."""
        orders = self._orders.get(self._key(run))
        if orders is None or run.refusal:
            return None
        index, replayed = orders.index.copy(), orders.replayed.copy()
        return run.with_orders(session, replace(orders, index=index, replayed=replayed))

    def reveal(
        self, run: CaseRun, session: AnySession, wanted: np.ndarray | None = None
    ) -> CaseRun:
        places = slice(None) if wanted is None else wanted
        run = (recalled := self.recall(run, session)) or run
        if recalled and run.replays[places].all():
            return run
        all_wanted = wanted is not None and wanted.size <= self.small
        run = run.reveal(session, self.summations, None if all_wanted else wanted)
        if run.orders is not None:
            distinct = dict.fromkeys([*run.orders.summations, *self.summations])
            self.summations = list(distinct)[: self.tried]
            key = self._key(run)
            self._orders.pop(key, None)
            self._orders[key] = run.orders
            if self.kept is not None and len(self._orders) > self.kept:
                del self._orders[next(iter(self._orders))]
        return run


@dataclass(frozen=True, eq=False)
class Finding(ComparedShapes):
    """A case at two values of an axis, or at one shape that two targets or paddings compute.

    ``case`` has all shapes; its weights and bias only say whether there are any. ``x`` (batch,
    *spatial, in_channels), ``w`` (*kernel, in_channels/groups, filters) and ``b`` (filters,) or
    None are container arrays of the larger side; the smaller one reads their prefix. ``drawn``
    names the kind and seed of operands that were generated; then they are part of ``key`` by name
    only.
    """

    x: np.ndarray
    w: np.ndarray
    b: np.ndarray | None
    drawn: str = ""

    @classmethod
    def of(
        cls,
        case: Case,
        vary: str | None = None,
        at: Value | None = None,
        against: Value | None = None,
        padding: object = None,
    ) -> Self:
        """The finding that ``probe explain`` explains for the same words. InputError."""
        return cls.drawn_from(ComparedShapes.named(case, vary, at, against, padding))

    @classmethod
    def drawn_from(cls, shapes: ComparedShapes) -> Self:
        """Shapes with the case's own operands. InputError: the length is open."""
        case, vary, at, against = shapes.case, shapes.vary, shapes.at, shapes.against
        if shapes.left.length is None:
            raise InputError("length", None, "the length is not given", "give --length N")
        if vary == "length" and at is not None:
            case = case.with_(length=max(at, against or at))
        x, w, b = operands.generate(shapes.larger)
        if case.weighted:  # its numbers are in the arrays
            bias = None if case.bias is None else "normal"
            case = case.with_(weights=None, bias=bias)
        case = case.with_(put=None)  # these too
        return cls(case, vary, at, against, shapes.padding, x, w, b)

    @property
    def key(self) -> Hashable:
        """Shapes, and the operands by name where they were generated, else by value."""
        shape = (str(self.case.to_json()), self.vary, self.at, self.against, str(self.padding))
        if self.drawn:
            return (*shape, self.drawn)
        return (*shape, *(None if a is None else a.tobytes() for a in (self.x, self.w, self.b)))

    def operands(self, side: Case) -> Arrays:
        """The arrays x, w and b of one side: C-contiguous, the prefix of the larger side's."""
        x = self.x[: side.batch]
        if side.spatial_rank:
            x = x[..., : side.length, :]
        b = None if self.b is None else self.b[: side.filters].copy()
        w = self.w[..., : side.filters]
        return np.ascontiguousarray(x), np.ascontiguousarray(w), b

    def reshaped(self, **changes: Any) -> Self:
        """The same with other arguments of the case, or other ``at`` and ``against``.

        The operands are the old ones' prefix where that is enough for the new shapes, else
        generated. Raises InputError where there is no such case.
        """
        at, against = changes.pop("at", self.at), changes.pop("against", self.against)
        arguments = self.case.arguments() | changes
        if self.vary == "length" and at is not None:
            arguments["length"] = max(at, against or at)
        if self.vary == "channels" and at is not None:
            arguments["in_channels"] = max(at, against or at)
        case = Case(**arguments)
        largest = ComparedShapes(case, self.vary, at, against, self.padding).larger
        shapes = largest.input_shape(), largest.weight_shape
        x, w = (_prefix(*pair) for pair in zip((self.x, self.w), shapes, strict=True))
        b = None
        if case.bias is not None and self.b is not None:
            b = _prefix(self.b, (largest.filters,))
        if x is None or w is None or (case.bias is not None and b is None):
            x, w, b = operands.generate(largest)
        return replace(self, case=case, at=at, against=against, x=x, w=w, b=b, drawn="")

    def drawn_as(self, kind: str, seed: int = 0) -> Self:
        """The same with generated operands of that kind (see ``probe.case.operands.KINDS``)."""
        x, w, b = operands.generate(self.larger.with_(operands=kind, seed=seed))
        return replace(self, x=x, w=w, b=b, drawn=f"{kind} {seed}")

    def with_operands(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> Self:
        return replace(self, x=x, w=w, b=b, drawn="")

    @property
    def label(self) -> str:
        """Such as ``conv1d 3, 16 -> 8, length 5 against 6``."""
        case = self.left.with_(operands="normal")
        once: dict[str, Any] = {"length": None, "batch": 1, "channels": None}
        once |= {"filters": self.case.filters, "layout": CONTIGUOUS}
        if self.paired:  # the axis that sets them apart is told at the end
            field = "split" if self.vary == "channels" else self.vary
            case = case.with_(**{field: once[self.vary]})
        text = case.label
        if self.padding is not None:
            text += f", padding {self.left.padding_text} against {self.right.padding_text}"
        at, against = (
            window.shown_axis_value(self.vary, value) for value in (self.at, self.against)
        )
        return text + (f", {self.vary} {at} against {against}" if self.paired else "")

    def to_json(self) -> dict[str, Any]:
        """The shapes, and how many operands are not 0."""
        entry = self.case.to_json()
        if self.paired:
            at, against = (
                window.shown_axis_value(self.vary, value) for value in (self.at, self.against)
            )
            entry |= {"vary": self.vary, "at": at, "against": against}
        if self.padding is not None:
            entry["against_padding"] = self.right.padding_text
        counts = {"x": self.x} | ({"w": self.w} if self.case.weighted else {})
        counts |= {} if self.b is None else {"b": self.b}
        return entry | {"not_zero": {k: int(np.count_nonzero(v)) for k, v in counts.items()}}


def _prefix(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The array cut to ``shape``; None where it is smaller along an axis."""
    if len(shape) != array.ndim or any(a < b for a, b in zip(array.shape, shape, strict=True)):
        return None
    return np.ascontiguousarray(array[tuple(slice(0, size) for size in shape)])

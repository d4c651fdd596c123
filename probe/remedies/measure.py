"""Every remedy of a case on a target: stable by order, its cost, its distance from exact sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from probe import floats, ulp
from probe.case import Case, padding
from probe.case.operators import OPERATORS
from probe.errors import InputError, TargetError
from probe.launch import AnySession, InlineSession, open_session
from probe.remedies.candidates import CHUNKS, Remedy, candidates, unavailable
from probe.remedies.session import Remedied
from probe.search import by_order
from probe.search.by_order import ByOrder
from probe.target import Target

ROUNDS = 9
"""Turns in which all remedies are timed, one after the other."""
SECONDS = 0.04
"""Calls of one remedy at one length, in one turn."""

Progress = Callable[[int, int, str], None]


@dataclass
class Found:
    """One remedy. ``refusal``: why it can't be used here, or why its orders aren't known.

    ``orders``: the sweep by order, every length against the longest; None where it has none.
    ``seconds``: by length the medians of each turn's calls. ``error_rms``, ``error_max``: distance
    from the exact sum at the longest length over eps * sum|x*w|. ``keeps``: whether the longest
    length has the default's bits.
    """

    remedy: Remedy
    orders: ByOrder | None = None
    refusal: str = ""
    seconds: dict[int, np.ndarray] = field(default_factory=dict)
    error_rms: float | None = None
    error_max: float | None = None
    keeps: bool | None = None
    outputs: tuple[int, ...] = ()

    @property
    def differing(self) -> int:
        """Outputs that are added in another way than at the longest length."""
        return 0 if self.orders is None else self.orders.differing

    @property
    def unknown(self) -> int:
        """Outputs whose way of adding isn't known on one of the sides."""
        return 0 if self.orders is None else sum(one.unknown for one in self.orders.values)

    @property
    def verdict(self) -> str:
        """``exact`` whatever the operands, ``differs``, or ``not known``."""
        if self.differing:
            return "differs"
        return "not known" if self.refusal or self.unknown or self.orders is None else "exact"

    @property
    def causes(self) -> Counter[str]:
        """The differing outputs by cause."""
        every = [] if self.orders is None else self.orders.values
        return sum((one.causes for one in every), Counter())


@dataclass
class Measured:
    """All remedies of a case on a target, the default first.

    ``lengths``: those whose orders were compared; the last one is ``fixed``, the size that stands
    for padding everything. ``content``: the length at which costs are told, beside ``fixed``.
    """

    case: Case
    target: Target
    lengths: tuple[int, ...]
    content: int
    found: list[Found]
    facts: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def fixed(self) -> int:
        """The longest length."""
        return self.lengths[-1]

    @property
    def default(self) -> Found:
        """The target as it is."""
        return self.found[0]

    def ratio(self, one: Found, length: int, against: int | None = None) -> float | None:
        """Time of a remedy at a length over the default's, at ``against`` if given: the median of
        the turns' ratios. None where one of them was not timed."""
        mine, theirs = one.seconds.get(length), self.default.seconds.get(against or length)
        if mine is None or theirs is None:
            return None
        return float(np.median(mine / theirs))


def measure(
    case: Case,
    where: Target,
    lengths: Sequence[int],
    *,
    content: int | None = None,
    chunks: Sequence[int] = CHUNKS,
    only: Iterable[str] | None = None,
    progress: Progress | None = None,
    inline: bool = False,
) -> Measured:
    """Judges, times and checks every remedy for ``case`` on ``where``.

    ``lengths``: two or more; every one is compared by order with the largest. ``content``: the
    length whose cost is told; the first of the lengths that is a tenth of the largest if not given.
    ``only``: names of remedies, the default always being one. What can't run says why; TargetError
    only where the default can't. InputError: a case without remedies.
    """
    _check(case, lengths)
    lengths = tuple(sorted(set(lengths)))
    fixed = lengths[-1]
    content = content or next(one for one in lengths if 10 * one >= fixed)
    case = case.with_(length=None)
    todo = candidates(where, chunks)
    wanted = None if only is None else {"default", *only}
    todo = [one for one in todo if wanted is None or one.name in wanted]
    tell = progress or (lambda done, total, text: None)
    with ExitStack() as stack:
        sessions = _Sessions(stack, inline)
        work = _Work(case, lengths, sessions)
        found: list[Found] = []
        for number, remedy in enumerate(todo):
            tell(number, len(todo) + 2, remedy.name)
            found.append(work.judged(remedy))
            if number == 0 and (wanted is None or "pad" in wanted):
                found.append(work.padded(found[0]))
        tell(len(todo), len(todo) + 2, "accuracy")
        work.check(found)
        tell(len(todo) + 1, len(todo) + 2, "cost")
        work.time(found, tuple(dict.fromkeys((content, fixed))))
        own = sessions.of(where)
        return Measured(case, where, lengths, content, found, own.facts, own.variables)


def _check(case: Case, lengths: Sequence[int]) -> None:
    if OPERATORS[case.op].pool or case.split is not None:
        why = "remedies are for single convolutions and products"
        raise InputError("op", case.op, why, "leave out split, or take a convolution")
    if len(set(lengths)) < 2:
        text = ",".join(map(str, lengths))
        raise InputError("lengths", text, "one length can't differ from itself", "give two or more")


class _Sessions:
    """The running targets, one process each; all stay up, so that they can be timed in turns."""

    def __init__(self, stack: ExitStack, inline: bool) -> None:
        self.stack, self.inline = stack, inline
        self.running: dict[Target, AnySession] = {}

    def of(self, where: Target) -> AnySession:
        if where not in self.running:
            session = open_session(where, self.inline)
            self.stack.enter_context(session)
            self.running[where] = session
        return self.running[where]

    def with_remedy(self, remedy: Remedy) -> AnySession:
        session = self.of(remedy.where)
        if not session.alive:
            session.start()
        return session if remedy.spec is None else cast(AnySession, Remedied(session, remedy.spec))


class _Work:
    """What is done with each remedy of one case."""

    def __init__(self, case: Case, lengths: tuple[int, ...], sessions: _Sessions) -> None:
        self.case, self.lengths, self.sessions = case, lengths, sessions

    def judged(self, remedy: Remedy) -> Found:
        """Its sweep by order."""
        found = Found(remedy)
        if remedy.name != "default" and (why := unavailable(remedy)):
            found.refusal = why
            return found
        try:
            session = self.sessions.with_remedy(remedy)
            found.orders = by_order.sweep(session, self.case, self.lengths)
        except TargetError as error:
            if remedy.name == "default" and error.kind == "unavailable":
                raise
            found.refusal = f"{error.kind}: {error.why}"
            return found
        refused = [one for one in [found.orders.base, *found.orders.values] if one.refusal]
        if refused:
            found.refusal = f"length {refused[0].at}: {refused[0].refusal}"
        return found

    def padded(self, default: Found) -> Found:
        """Padding to lengths whose outputs are all added as the longest one's are."""
        sizes = self._safe_outputs(default)
        doc = "zeros up to " + _few(sizes) + " outputs"
        spec = {"kind": "pad", "outputs": list(sizes)}
        found = self.judged(Remedy("pad", default.remedy.where, doc, spec))
        found.outputs = sizes
        return found

    def _safe_outputs(self, default: Found) -> tuple[int, ...]:
        """Numbers of outputs, the longest length's among them, without zeros on the last axis."""
        case = self.case
        axis = case.spatial_rank - 1
        counts = {case.output_spatial(length)[axis]: length for length in self.lengths}
        extent, step = case.effective_kernel[axis], case.stride[axis]
        lengths = {(count - 1) * step + extent: count for count in counts}
        orders, plain = default.orders, _without_zeros(case)
        if plain != case or set(lengths) != set(self.lengths):
            session = self.sessions.of(default.remedy.where)
            orders = by_order.sweep(session, plain, tuple(lengths)) if len(lengths) > 1 else None
        most = max(counts)
        if orders is None:
            return (most,)
        safe = {
            lengths[one.at]
            for one in orders.values
            if not (one.outputs or one.unknown or one.refusal) and one.at in lengths
        }
        return tuple(sorted({*safe, most}))

    def check(self, found: list[Found]) -> None:
        """Each remedy's distance from the exact sums at the longest length, and whose bits."""
        case = self.case.with_(length=self.lengths[-1])
        exact, scale = exact_sums(case)
        own: np.ndarray | None = None
        for one in found:
            y = self._output(one, case)
            if y is None:
                continue
            own = y if own is None else own
            one.keeps = bool(ulp.equal(y, own, case.dtype))
            wide = floats.widen(y, case.dtype)
            with np.errstate(all="ignore"):
                errors = np.abs(wide - exact) / (floats.eps(case.dtype) * scale)
            errors = errors[np.isfinite(errors)]
            if errors.size:
                one.error_rms = float(np.sqrt(np.mean(errors**2)))
                one.error_max = float(errors.max())

    def _output(self, one: Found, case: Case) -> np.ndarray | None:
        if one.orders is None:
            return None
        x, w, b = case.operands()
        arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
        try:
            session = self.sessions.with_remedy(one.remedy)
            y: np.ndarray = session.request({"do": "run", "spec": case.spec()}, arrays)[1]["y"]
        except TargetError as error:
            one.refusal = one.refusal or f"{error.kind}: {error.why}"
            return None
        return y

    def time(self, found: list[Found], lengths: tuple[int, ...]) -> None:
        """Medians of calls, all remedies in turns, so that whatever slows one slows all."""
        ready = [one for one in found if self._loaded(one)]
        turns: dict[tuple[int, int], list[float]] = {}
        for turn in range(ROUNDS + 1):
            for number, one in enumerate(ready):
                for length in lengths:
                    header = {"do": "time", "key": one.remedy.name, "at": {"length": length}}
                    limit = {"limit": SECONDS if turn else 0.0}
                    session = self.sessions.of(one.remedy.where)
                    seconds = session.request(header | limit)[1]["seconds"]
                    if turn:  # the first one builds and compiles
                        turns.setdefault((number, length), []).append(float(np.median(seconds)))
        for (number, length), medians in turns.items():
            ready[number].seconds[length] = np.array(medians)

    def _loaded(self, one: Found) -> bool:
        if one.keeps is None:
            return False
        case = self.case.with_(length=self.lengths[-1])
        x, w, b = case.operands()
        arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
        session = self.sessions.with_remedy(one.remedy)
        session.request({"do": "load", "key": one.remedy.name, "spec": case.spec()}, arrays)
        return True


def _without_zeros(case: Case) -> Case:
    """The case whose last axis has no zeros around it."""
    extents = case.effective_kernel
    if case.padding == "valid" or case.spatial_rank == 1:
        return case.with_(padding="valid")
    pads = [
        padding.around(case.padding, axis, size, extents[axis], case.stride[axis])
        for axis, size in enumerate(case.other_axes)
    ]
    return case.with_(padding=[*pads, (0, 0)])


def _few(sizes: Sequence[int]) -> str:
    if len(sizes) <= 4:
        return ", ".join(map(str, sizes))
    return f"{sizes[0]}, {sizes[1]}, ..., {sizes[-1]}"


def exact_sums(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Every output in float64, and sum|x*w| with |bias|: (batch, *outputs, filters) each.

    The float64 sums of the formats' own operands are nearer to the exact ones than any float32
    result by nine digits; of float64 cases they are the reference's.
    """
    wide = case.spec() | {"dtype": "float64"}
    operands = {
        name: floats.widen(array, case.dtype)
        for name, array in zip("xwb", case.operands(), strict=True)
        if array is not None
    }
    sizes = {name: np.abs(array) for name, array in operands.items()}
    with InlineSession(Target.parse("reference")) as session:
        exact, scale = (
            session.request({"do": "run", "spec": wide}, arrays)[1]["y"]
            for arrays in (operands, sizes)
        )
    return exact, scale

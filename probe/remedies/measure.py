"""Every remedy of a case on a target: stable by order, its cost, its distance from exact sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import numpy as np

from probe import floats, ulp
from probe.case import Case
from probe.case.operators import OPERATORS
from probe.errors import InputError, TargetError
from probe.launch import Arrays, InlineSession
from probe.remedies.candidates import CHUNKS, Remedy, candidates, unavailable
from probe.remedies.found import Found, Measured
from probe.remedies.running import Sessions, in_turns
from probe.search import by_order
from probe.search.by_order import ByOrder
from probe.target import Target

Progress = Callable[[int, int, str], None]


def measure(
    case: Case,
    where: Target,
    lengths: Sequence[int],
    *,
    content: int | None = None,
    chunks: Sequence[int] = CHUNKS,
    only: Iterable[str] | None = None,
    progress: Progress | None = None,
    sessions: Sessions | None = None,
) -> Measured:
    """Judges, times and checks every remedy for ``case`` on ``where``.

    ``lengths``: two or more; every one is compared by order with the largest. ``content``: the
    length whose cost is told; the first of the lengths that is a tenth of the largest if not given.
    ``only``: names of remedies, the default always being one. ``sessions``: processes that are
    used and left running; new ones if not given. What can't run says why; TargetError only where
    the default can't. InputError: a case without remedies.
    """
    _check(case, lengths)
    lengths = tuple(sorted(set(lengths)))
    fixed = lengths[-1]
    content = content or next(one for one in lengths if 10 * one >= fixed)
    case = case.with_(length=None)
    wanted = None if only is None else {"default", *only}
    todo = [one for one in candidates(where, chunks) if wanted is None or one.name in wanted]
    tell = progress or (lambda done, total, text: None)
    with nullcontext(sessions) if sessions else Sessions() as running:
        work = _Work(case, lengths, running)
        found: list[Found] = []
        for number, remedy in enumerate(todo):
            tell(number, len(todo) + 1, remedy.name)
            found.append(work.judged(remedy))
            if number == 0 and (wanted is None or "pad" in wanted):
                found.append(work.padded(found[0]))
        tell(len(todo), len(todo) + 1, "cost")
        work.check(found)
        work.time(found, tuple(dict.fromkeys((content, fixed))))
        own = work.sessions.of(where)
        return Measured(case, where, lengths[:-1], fixed, content, found, own.facts, own.variables)


def _check(case: Case, lengths: Sequence[int]) -> None:
    if OPERATORS[case.op].pool or case.split is not None:
        why = "remedies are for single convolutions and products"
        raise InputError("op", case.op, why, "leave out split, or take a convolution")
    if not case.spatial_rank:
        why = "remedies are compared by length, and its rows are its batch"
        raise InputError("op", case.op, why, "use probe.stable for dense layers")
    if len(set(lengths)) < 2:
        text = ",".join(map(str, lengths))
        raise InputError("lengths", text, "one length can't differ from itself", "give two or more")


class _Work:
    """What is done with each remedy of one case."""

    def __init__(self, case: Case, lengths: tuple[int, ...], sessions: Sessions) -> None:
        self.case, self.lengths, self.sessions = case, lengths, sessions
        self.longest = case.with_(length=lengths[-1])
        self.own_orders: ByOrder | None = None

    def judged(self, remedy: Remedy) -> Found:
        """Its sweep by order."""
        found = Found(remedy)
        if remedy.name != "default" and (why := unavailable(remedy)):
            found.refusal = why
            return found
        try:
            session = self.sessions.with_remedy(remedy)
            orders = by_order.sweep(session, self.case, self.lengths)
        except TargetError as error:
            if remedy.name == "default" and error.kind == "unavailable":
                raise
            found.refusal = f"{error.kind}: {error.why}"
            return found
        if remedy.name == "default":
            self.own_orders = orders
        found.compared, found.differing = orders.compared, orders.differing
        found.unknown = sum(one.unknown for one in orders.values)
        found.causes = sum((one.causes for one in orders.values), Counter())
        refused = [one for one in [orders.base, *orders.values] if one.refusal]
        if refused:
            found.refusal = f"length {refused[0].at}: {refused[0].refusal}"
        return found

    def padded(self, default: Found) -> Found:
        """Padding to lengths whose outputs are all added as the longest one's are."""
        sizes = self._safe_outputs(default)
        doc = "zeros up to " + few(sizes) + " outputs"
        spec = {"kind": "pad", "outputs": list(sizes)}
        found = self.judged(Remedy("pad", default.remedy.where, doc, spec))
        found.sizes = sizes
        return found

    def _safe_outputs(self, default: Found) -> tuple[int, ...]:
        """Numbers of outputs, the longest length's among them, without zeros on the last axis."""
        case = self.case
        axis = case.spatial_rank - 1
        counts = {case.output_spatial(length)[axis]: length for length in self.lengths}
        extent, step = case.effective_kernel[axis], case.stride[axis]
        lengths = {(count - 1) * step + extent: count for count in counts}
        orders, plain = self.own_orders, _without_zeros(case)
        if plain != case or set(lengths) != set(self.lengths):
            session = self.sessions.of(default.remedy.where)
            orders = by_order.sweep(session, plain, tuple(lengths)) if len(lengths) > 1 else None
        safe = {
            lengths[one.at]
            for one in (orders.values if orders else ())
            if not (one.outputs or one.unknown or one.refusal) and one.at in lengths
        }
        return tuple(sorted({*safe, max(counts)}))

    def check(self, found: list[Found]) -> None:
        """Each remedy's distance from the exact sums at the longest length, and whose bits."""
        dtype, own = self.case.dtype, None
        exact, scale = exact_sums(self.longest)
        for one in found:
            y = self._output(one)
            if y is None:
                continue
            own = y if own is None else own
            one.keeps = bool(ulp.equal(y, own, dtype))
            with np.errstate(all="ignore"):
                errors = np.abs(floats.widen(y, dtype) - exact) / (floats.eps(dtype) * scale)
            errors = errors[np.isfinite(errors)]
            if errors.size:
                one.error_rms = float(np.sqrt(np.mean(errors**2)))
                one.error_max = float(errors.max())

    def _output(self, one: Found) -> np.ndarray | None:
        if one.compared is None:
            return None
        try:
            session = self.sessions.with_remedy(one.remedy)
            request = {"do": "run", "spec": self.longest.spec()}
            y: np.ndarray = session.request(request, _operands(self.longest))[1]["y"]
        except TargetError as error:
            one.refusal = one.refusal or f"{error.kind}: {error.why}"
            return None
        return y

    def time(self, found: list[Found], lengths: tuple[int, ...]) -> None:
        """Medians of calls, all remedies in turns, so that whatever slows one slows all."""
        ready = [one for one in found if one.keeps is not None]
        for one in ready:
            session = self.sessions.with_remedy(one.remedy)
            header = {"do": "load", "key": one.remedy.name, "spec": self.longest.spec()}
            session.request(header, _operands(self.longest))
        calls = {
            (number, length): self._timer(one.remedy, length)
            for number, one in enumerate(ready)
            for length in lengths
        }
        for (number, length), medians in in_turns(calls).items():
            ready[number].seconds[length] = medians

    def _timer(self, remedy: Remedy, length: int) -> Callable[[float], Sequence[float]]:
        session = self.sessions.of(remedy.where)
        header = {"do": "time", "key": remedy.name, "at": {"length": length}}

        def call(limit: float) -> Sequence[float]:
            found = session.request(header | {"limit": limit})[1]
            return list(found["seconds"])

        return call


def _operands(case: Case) -> Arrays:
    named = zip("xwb", case.operands(), strict=True)
    return {name: array for name, array in named if array is not None}


def _without_zeros(case: Case) -> Case:
    """The case whose last axis has no zeros around it."""
    if case.padding == "valid" or case.spatial_rank == 1:
        return case.with_(padding="valid")
    return case.with_(padding=[*case.windows.pads(case.other_axes), (0, 0)])


def few(sizes: Sequence[int]) -> str:
    """Numbers in words, the middle left out where there are many."""
    if len(sizes) <= 4:
        return ", ".join(map(str, sizes))
    return f"{sizes[0]}, {sizes[1]}, ..., {sizes[-1]}"


def exact_sums(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Every output in float64, and sum|x*w| with |bias|: (batch, *outputs, filters) each.

    The float64 sums of the formats' own operands are nearer to the exact ones than any float32
    result by nine digits; of float64 cases they are the reference's.
    """
    wide = case.spec() | {"dtype": "float64"}
    operands = {name: floats.widen(array, case.dtype) for name, array in _operands(case).items()}
    sizes = {name: np.abs(array) for name, array in operands.items()}
    with InlineSession(Target.parse("reference")) as session:
        exact, scale = (
            session.request({"do": "run", "spec": wide}, arrays)[1]["y"]
            for arrays in (operands, sizes)
        )
    return exact, scale

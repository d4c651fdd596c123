"""Reveals the order and rounding of every output of one call, and proves them by replay.

The interior windows are revealed first. What they add up in is tried on the other outputs by
replaying fresh operands; only what does not come out bit for bit is revealed apart. Short sums may
agree by luck, so there every window is asked. An output counts as explained when the replay of its
order gave the library's bits on all check operands.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from probe.case import floats, operands, ulp
from probe.case.case import Summed
from probe.case.errors import Nondeterministic, NotAsked, NotASum, TargetError
from probe.order import masks, window
from probe.order.arithmetic import BLOCK
from probe.order.masks import Masks, SessionOperator
from probe.order.replay import Picked, replay
from probe.order.reveal import SHORT, Answers, RefusedOutputs, reveal_trees
from probe.order.rounding import Revealed, reveal_roundings, starts_of_outputs
from probe.order.summation import Row, Summation, ranges_of_mask
from probe.order.tree import BIAS, Tree
from probe.targets.launch import AnySession

CHUNK = 4096  # outputs replayed at once, and more where they have few leaves: speed alone
WORDS = 1 << 23  # operands of those, 32 MiB of float32: speed alone
PROBES = 32  # calls with one weight a filter, for outputs that did not replay


@dataclass(frozen=True, eq=False)
class Orders:
    """How one call adds: ``index`` (positions, filters) numbers each output's summation.

    Positions are batch entries times output positions, flat in C order. ``replayed`` is True where
    the replay gave the library's bits on every set of check operands; only then an output has a
    summation. ``index`` is -1 where it has none: it reads nothing (and is 0: ``replayed``), is
    ``not_a_sum``, or is a sum that did not replay; ``evidence`` says what was seen. ``calls``
    counts runs of the operator that asked questions, ``checks`` those with check operands.
    ``sets``: of fresh operands that a summation was replayed on, scaled through the format's range.
    """

    case: Summed
    summations: list[Summation]
    index: np.ndarray
    replayed: np.ndarray
    not_a_sum: np.ndarray
    evidence: str
    calls: int
    checks: int
    seconds: float
    sets: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, *output positions, filters)."""
        return self.case.output_shape()

    def counts(self) -> np.ndarray:
        """How many outputs each summation has."""
        return np.bincount(self.index[self.index >= 0], minlength=len(self.summations))

    def rows(
        self, place: Row, wanted: np.ndarray | None = None, replayed: np.ndarray | None = None
    ) -> list[Row]:
        """Rows of the store's table ``reveals``, one a summation; ``place``: columns of the call.

        Of shape (positions, filters), bool: ``wanted``, the outputs to tell of; None: all that add
        anything. ``replayed``, those that count as reproduced; None: on the check operands.
        """
        sums = (self.index >= 0) | ~self.replayed  # the others read nothing but padding
        wanted = sums if wanted is None else wanted
        replayed = self.replayed if replayed is None else replayed
        cost: Row = {"calls": self.calls, "checks": self.checks, "seconds": self.seconds}
        rows = []
        for number in (*range(len(self.summations)), -1):
            outputs = wanted & (self.index == number)
            if not outputs.any():
                continue
            names: Row = {"order_id": None, "rounding_id": None, "evidence": self.evidence}
            if number >= 0:
                tree, rounding = self.summations[number]
                names = {"order_id": tree.id, "rounding_id": rounding.id, "evidence": None}
            counts: Row = {"outputs": int(outputs.sum()), "ranges": ranges_of_mask(outputs)}
            counts["replayed"] = int((outputs & replayed).sum()) * (number >= 0)
            counts["sets"] = self.sets if number >= 0 else None
            rows.append(place | names | cost | counts)
        return rows


@dataclass(frozen=True)
class Behind:
    """What a library does with each sum before it gives it: divides it, cuts off what is negative.

    ``apply``: that of container arrays (sums,), given also their positions and filters.
    ``linear``: whether signs and powers of two go through.
    """

    apply: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    linear: bool = False


@dataclass
class ContainerOperands:
    """Container operands of one call, cut into what each leaf meets, and the library's outputs.

    ``zeros``: whether a replay has to give their sign, as ``ulp.differences`` has it. ``behind``:
    what becomes of a sum; None: it is the output.
    """

    case: Summed
    x: np.ndarray
    w: np.ndarray
    b: np.ndarray | None
    y: np.ndarray
    zeros: str = "equal"
    columns: list[np.ndarray] = field(default_factory=list)
    behind: Behind | None = None

    def __post_init__(self) -> None:
        self.columns = window.columns(self.case, self.x)
        self.weights = self.w.reshape(self.case.summands, self.case.filters)
        self.padded = None
        if not floats.is_finite(self.w, self.case.dtype).all():
            self.padded = window.leaves_at_padding(self.case, self.x)

    @property
    def finite(self) -> bool:
        """Whether no operand is infinite or NaN."""
        arrays = [array for array in (self.x, self.w, self.b) if array is not None]
        return all(floats.is_finite(array, self.case.dtype).all() for array in arrays)

    def replay(
        self, summation: Summation, positions: np.ndarray, filters: np.ndarray
    ) -> np.ndarray:
        """Outputs of the named (position, filter) pairs, container, by this summation.

        Over their windows alone: an infinite weight that meets padding adds nothing.
        """
        return _replay_sets([self], summation, positions, filters)[0]

    def agrees(
        self, summation: Summation, positions: np.ndarray, filters: np.ndarray
    ) -> np.ndarray:
        """Whether the replay gives the library's bits: a bool for each pair."""
        return replays_agree([self], summation, positions, filters)

    def met(self, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """Weights that meet the input, 0 where that is padding: (leaves, outputs)."""
        w = self.weights[:, filters]
        if self.padded is None:
            return w
        return np.where(self.padded[:, positions], w.dtype.type(0), w)


def _pick_columns(arrays: Sequence[np.ndarray], columns: np.ndarray) -> Picked:
    """These columns of every array, one array after the other."""
    distinct, which = np.unique(columns, return_inverse=True)
    starts = np.arange(len(arrays))[:, None] * len(distinct)
    rows = np.concatenate([array[:, distinct] for array in arrays], axis=1)
    return Picked(rows, (starts + which.reshape(-1)).reshape(-1))


def replays_agree(
    sets: Sequence[ContainerOperands],
    summation: Summation,
    positions: np.ndarray,
    filters: np.ndarray,
) -> np.ndarray:
    """Whether the replay gives the library's bits on all of these sets: a bool for each pair."""
    alike = np.ones(len(positions), bool)
    for check, y in zip(sets, _replay_sets(sets, summation, positions, filters), strict=True):
        alike &= ~ulp.bits_apart(y, check.y[positions, filters], check.case.dtype, check.zeros)
    return alike


def _replay_sets(
    sets: Sequence[ContainerOperands],
    summation: Summation,
    positions: np.ndarray,
    filters: np.ndarray,
) -> np.ndarray:
    """Outputs of the named pairs on operands of one shape: container, (sets, pairs).

    All sets are replayed at once: NumPy's calls for each node of a long chain cost more than the
    outputs that they work on.
    """
    first, biased = sets[0], BIAS in summation.tree.leaves
    out = np.empty((len(sets), len(positions)), first.y.dtype)
    groups = filters // (first.case.filters // first.case.groups)
    at_once = max(CHUNK, min(BLOCK, WORDS // first.case.summands)) // len(sets)  # speed alone
    for group in np.unique(groups).tolist():
        members = np.flatnonzero(groups == group)
        for start in range(0, len(members), max(at_once, 1)):
            part = members[start : start + max(at_once, 1)]
            x = _pick_columns([check.columns[group] for check in sets], positions[part])
            w: np.ndarray | Picked = _pick_columns([check.weights for check in sets], filters[part])
            if any(check.padded is not None for check in sets):
                w = np.concatenate(
                    [check.met(positions[part], filters[part]) for check in sets], axis=1
                )
            bias = None
            if biased:
                bias = np.concatenate(
                    [check.b[filters[part]] for check in sets if check.b is not None]
                )
            replayed = replay(summation, x, w, first.case.dtype, bias)
            out[:, part] = replayed.reshape(len(sets), len(part))
    for check, y in zip(sets, out, strict=True):
        if check.behind is not None:
            y[:] = check.behind.apply(y, positions, filters)
    return out


def reveal(
    session: AnySession,
    case: Summed,
    tried: Sequence[Summation] = (),
    wanted: np.ndarray | None = None,
    zeros: str = "equal",
) -> Orders:
    """Reveals how every output of ``case`` (its length set) is added on ``session``.

    ``tried``: summations of other lengths, tried by replay before any question is asked.
    ``wanted``: bool (positions, filters), the outputs to reveal; None for all. ``zeros``
    ``"differ"``: the sign of a sum of zeros is asked too.
    Nondeterministic: the same call differed. NotASum: the operator is not linear; NotAsked: its
    sums are too long. An output that is not a sum of its products (Winograd, FFT) is marked so,
    never given a tree that replays.
    """
    if case.pool:
        raise NotASum(f"{case.op} has no weights: `probe order window` reveals its windows")
    if why := masks.why_not_whole(case.summands):
        raise NotAsked(why)
    started = time.perf_counter()
    work = _OpenOutputs(SessionOperator(session, case), wanted, zeros == "differ")
    for summation in tried if case.summands > SHORT else ():
        work.settle(summation, work.open)
    while work.open.any():
        work.reveal_next()
    work.check_doubted()
    work.judge()
    return Orders(
        case,
        work.summations,
        work.index,
        work.replayed,
        work.not_a_sum,
        evidence=work.evidence,
        calls=work.masks.calls,
        checks=work.checks,
        seconds=time.perf_counter() - started,
        sets=work.replayed_on,
    )


def check_sets(summands: int) -> list[str]:
    """The kinds of fresh operands an order has to replay on: short sums agree more by luck.

    ``cancel`` shows nearly every other order; ``normal`` a product that is fused among many that
    aren't, which drowns beside a pair that is about to cancel.
    """
    return ["cancel"] * 8 + ["normal"] * 4 if summands < 16 else ["cancel"] * 4 + ["normal"] * 2


def scaled_sets(dtype: str) -> list[tuple[str, int | None]]:
    """Kinds of fresh operands, and the binade that their largest product is scaled to.

    A function that clips its sum at 50, saturates or overflows early adds like a sum until numbers
    are as large. So products come near the largest number, sums go beyond it, and both go through
    the subnormal ones.
    """
    form = floats.FORMATS[dtype]
    high, low = ("normal", form.emax - 1), ("cancel", form.emin + form.precision)
    return [high, ("cancel", form.emax - 1), ("ones", form.emax), low, ("tiny", None)]


# Outputs of check operands, all sets together, up to which further sets are replayed.
ENOUGH = 128
KINDS_OF_MORE = ("normal", "cancel", "image")
# Operands of all further sets together.
MOST_NUMBERS = 1 << 18

# Sets on which a summation is replayed again that failed where outputs answered for it: as many, or
# fewer where these are more than 64 times ``MOST_NUMBERS``.
DOUBTED = 192


class _OpenOutputs:
    """The outputs of one call on their way from open to settled."""

    def __init__(
        self, operator: SessionOperator, wanted: np.ndarray | None, signed: bool = False
    ) -> None:
        self.operator, self.case, self.checks = operator, operator.case, 0
        self.masks = Masks(operator, signed)
        classes, leaves = window.read_classes(self.case)
        self.classes = np.tile(classes, self.case.batch)
        bias = [operator.summands] if operator.bias else []
        self.leaves = [np.array([*read, *bias], int) for read in leaves]
        shape = (operator.positions, operator.filters)
        self.open = np.ones(shape, bool) if wanted is None else wanted.copy()
        self.wanted = self.open.copy()
        self.apart = np.zeros(shape, bool)  # no tree fits where filters were taken to be alike
        self.summations: list[Summation] = []
        self.index = np.full(shape, -1)
        self.replayed, self.not_a_sum = np.zeros(shape, bool), np.zeros(shape, bool)
        self.evidence = ""
        self.numbers: dict[Summation, int] = {}
        self.doubted: set[Tree] = set()  # they did not replay where outputs answered for them
        self.sizes = np.array([len(read) for read in self.leaves])
        self.answers = Answers(self.masks, self.classes, self.leaves)
        # the shortest window agrees by luck most often
        kinds = check_sets(int(min(self.sizes[self.sizes > 1], default=1)))
        self.sets = [self._fresh(kind, seed) for seed, kind in enumerate(kinds)]
        self._check_linearity()
        self._count_summands()

    def _fresh(self, kind: str, seed: int, top: int | None = None) -> ContainerOperands:
        """Operands that the reveal did not use; ``top``: binade of the largest product."""
        case = self.case.drawn(kind, 0xC4EC + seed)
        x, w, b = (
            None if a is None else floats.to_container(a, case.dtype) for a in case.operands()
        )
        assert x is not None and w is not None
        if kind == "normal" and case.dtype == "float64":
            # generated normal numbers have 33 bits at most, so that a few of them add exactly in
            # any order and by any formula: Kahan's sum of three replayed as a plain one
            x = x * self.case.drawn(kind, 0x5EC0 + seed).operands()[0]
        if top is not None:
            x, w, b = _scaled(x, w, b, case, top, seed)
        self.checks += 1
        y, behind = self.operator.apply(x, w, b), self.operator.behind
        return ContainerOperands(case, x, w, b, y, behind=behind)

    @cached_property
    def _further(self) -> list[ContainerOperands]:
        """Operands scaled through the format's range, and more where a call has few outputs.

        A function that nearly adds (a mean, times how many) gives one output's bits on a dozen sets
        by luck.
        """
        size = max(int(np.prod(self.case.input_shape())), self.case.summands * self.case.filters)
        wanted, form = scaled_sets(self.case.dtype), floats.FORMATS[self.case.dtype]
        count = min(ENOUGH // self.open.size, MOST_NUMBERS // size) - len(self.sets) - len(wanted)
        least = form.emin
        if self.operator.behind is not None or getattr(self.case, "scale", 1) != 1:
            # what is computed behind a sum is asked in tiny numbers, and a mean is taken times its
            # count: which subnormal numbers become zero on the way can't be seen from outside
            wanted, least = wanted[:3], form.emin // 2
        tops = np.linspace(least, form.emax - 1, max(count, 0)).astype(int).tolist()
        wanted += zip(itertools.cycle(KINDS_OF_MORE), tops, strict=False)
        sets = []
        for seed, (kind, top) in enumerate(wanted, len(self.sets)):
            try:
                fresh = self._fresh(kind, seed, top)
                # LiteRT's kernels clamp their results to the largest finite number: infinities and
                # NaN become that, which says nothing of how they add
                largest = floats.largest_finite(self.case.dtype)
                if not (np.abs(floats.widen(fresh.y, self.case.dtype)) == largest).any():
                    sets.append(fresh)
            except TargetError as error:  # Python has no infinite fraction, and no such fsum
                if "OverflowError" not in error.why:
                    raise
        return sets

    @property
    def replayed_on(self) -> int:
        """On how many sets of fresh operands each summation was replayed."""
        return len(self.sets) + len(self._further) if self.summations else 0

    def _check_linearity(self) -> None:
        """Makes the call again (Nondeterministic), mirrored and halved. NotASum where it is not
        linear to the last bit, as sums of products are."""
        for check in self.sets:
            self.checks += 1
            again = self.operator.apply(check.x, check.w, check.b)
            differences = ulp.differences(check.y, again, self.case.dtype)
            if len(differences.index):
                raise Nondeterministic(self._example("the same call again", differences))
        dtype, first = self.case.dtype, self.sets[0]
        # half of a float16 operand is soon subnormal, and rounded
        scales = {"-f(-x)": -1.0} if dtype == "float16" else {"-f(-x)": -1.0, "2 f(x/2)": 0.5}
        if self.operator.behind is not None and not self.operator.behind.linear:
            scales = {}
        for name, scale in scales.items():  # exact, but for numbers too small for the dtype
            self.checks += 1
            b = None if first.b is None else _times(first.b, scale, dtype)
            y = self.operator.apply(_times(first.x, scale, dtype), first.w, b)
            differences = ulp.differences(first.y, _times(y, 1 / scale, dtype), dtype)
            if len(differences.index):
                raise NotASum(self._example(name, differences))

    def _example(self, what: str, differences: ulp.Differences) -> str:
        place = np.unravel_index(int(differences.index[0]), self.case.output_shape())
        name = f"out[{', '.join(str(int(i)) for i in place)}]"
        both = differences.bits_a, differences.bits_b
        sides = [floats.bits_text(int(bits[0]), self.case.dtype) for bits in both]
        return f"{name}={sides[0]}, and {what} gives {sides[1]}"

    def _count_summands(self) -> None:
        """Every output must add as many leaves as its window reads."""
        expected = self.sizes[self.classes]
        counted = self.masks.summands()
        wrong = self.wanted & (counted != expected[:, None])
        if wrong.any() and self.masks.count_fewer():  # some sum may be kept in 16 bits
            counted = self.masks.summands()
            wrong = self.wanted & (counted != expected[:, None])
        if wrong.any():
            position, filt = (int(i[0]) for i in np.nonzero(wrong))
            seen, read = float(counted[position, filt]), expected[position]
            evidence = f"{read} products of 1 add up to {seen!r}"
            self._refuse(wrong, evidence)

    def _refuse(self, which: np.ndarray, evidence: str) -> None:
        self.not_a_sum |= which
        self.evidence = self.evidence or evidence
        self.open &= ~which

    def settle(self, summation: Summation, which: np.ndarray, asked: bool = False) -> None:
        """Gives ``summation`` to those of the named outputs that replay it on all check operands.

        ``asked``: it is what these outputs answered themselves.
        """
        leaves = {self.case.summands if leaf == BIAS else leaf for leaf in summation.tree.leaves}
        fits = np.array([leaves.issuperset(read.tolist()) for read in self.leaves])
        positions, filters = np.nonzero(which & fits[self.classes][:, None])
        # what was not asked is wrong more often: one set refutes it before the others are replayed
        for checks in [self.sets] if asked else [self.sets[:1], self.sets[1:]]:
            if len(positions):
                agreed = replays_agree(checks, summation, positions, filters)
                positions, filters = positions[agreed], filters[agreed]
        if len(positions):  # further sets are run only if they are needed
            agreed = replays_agree(self._further, summation, positions, filters)
            if asked and not agreed.all():
                self.evidence = self.evidence or (
                    "a tree fits the answers, and its replay gives different bits where operands "
                    "are scaled through the whole range: is it clipped, or does it saturate?"
                )
            positions, filters = positions[agreed], filters[agreed]
        if len(positions) and self.masks.signed and not asked:
            alike = starts_of_outputs(self.masks)[positions, filters] == (
                summation.rounding.zero or ""
            )
            positions, filters = positions[alike], filters[alike]
        for like in (self.answers.like, *[self.answers.edges_like] * (not asked)):
            fits_answers = like(summation.tree, positions, filters)
            positions, filters = positions[fits_answers], filters[fits_answers]
        if len(positions):
            if summation not in self.numbers:
                self.numbers[summation] = len(self.summations)
                self.summations.append(summation)
            self.index[positions, filters] = self.numbers[summation]
            self.replayed[positions, filters] = True
            self.open[positions, filters] = False

    def reveal_next(self) -> None:
        """Reveals the open outputs of the window class that reads most, and settles what it can."""
        apart = not (self.open & ~self.apart).any()
        wanted = self.open & self.apart if apart else self.open & ~self.apart
        classes = np.unique(self.classes[wanted.any(axis=1)])
        chosen = classes[np.argmax(self.sizes[classes])]
        wanted &= (self.classes == chosen)[:, None]
        trees, refused = reveal_trees(self.masks, self.classes, self.leaves, apart, wanted)
        if apart and refused and self._asked_coarser([piece.evidence for piece in refused]):
            return  # some sum may have fewer bits than the dtype: the same is asked again
        for piece in refused:
            if apart:
                self._refuse(_outputs_of_piece(piece, wanted), piece.evidence)
            else:  # filters that were taken to be alike may have answered for different trees
                self.apart |= _outputs_of_piece(piece, wanted)
        if self.sizes[chosen] == 0:  # windows in the padding: nothing is added, the output is 0
            self.open &= ~wanted
            self.replayed |= wanted
        for revealed in reveal_roundings(self.masks, trees, alone=apart):
            outputs = _outputs_of_piece(revealed, wanted) & self.open
            self.settle(revealed.summation, outputs, asked=True)
            if self.case.summands > SHORT:
                self.settle(revealed.summation, self.open & ~wanted)
            unreplayed = outputs & self.open
            if apart:  # the tree fits the answers and not the bits
                self.open &= ~unreplayed
                self.doubted |= {revealed.summation.tree} if unreplayed.any() else set()
            else:
                self.apart |= unreplayed

    def check_doubted(self) -> None:
        """Replays more operands where a tree failed at other outputs that answered for it.

        A sum that rounds in a way that no question shows gives many of its outputs on a few sets.
        """
        doubted = [
            n for n, summation in enumerate(self.summations) if summation.tree in self.doubted
        ]
        unproved = np.isin(self.index, doubted)
        size = int(np.prod(self.case.input_shape()))
        # a sum that rounds in a way of its own gave many outputs of a few sets by luck
        for seed in range(min(DOUBTED, 64 * MOST_NUMBERS // size) if unproved.any() else 0):
            check = self._fresh(KINDS_OF_MORE[seed % len(KINDS_OF_MORE)], ENOUGH + seed)
            for number in np.unique(self.index[unproved]):
                positions, filters = np.nonzero(unproved & (self.index == number))
                summation = self.summations[number]
                wrong = ~check.agrees(summation, positions, filters)
                places = positions[wrong], filters[wrong]
                self.index[places], self.replayed[places] = -1, False
                unproved[places] = False
            if not unproved.any():
                return

    def _asked_coarser(self, evidence: list[str]) -> bool:
        """Takes masks that sums kept in 16 bits can answer; False: there are none left."""
        over = any("nan" in text or "inf" in text for text in evidence)
        return self.masks.mask_smaller() if over else self.masks.count_fewer()

    def judge(self) -> None:
        """Outputs that did not replay: sums in an unknown rounding, or no sums at all?

        Where all weights but one are zero, an output must be that one product, whatever else the
        window holds. Winograd's and FFT's are not: they mix the inputs before they multiply.
        """
        # a tree may fit the answers of what is no sum: it counts for nothing unless it replays
        doubtful = self.wanted & ~self.replayed & ~self.not_a_sum
        for number in range(PROBES):
            if not doubtful.any():
                return
            wrong = doubtful & self._mixes(number)
            if wrong.any():
                self._refuse(
                    wrong, "with all weights but one zero, outputs are not products of that weight"
                )
                doubtful &= ~wrong
        unproved = int(doubtful.sum())
        if unproved and not self.evidence:
            self.evidence = (
                f"{unproved:,} output{'s' * (unproved > 1)}: a tree fits the answers, and its "
                "replay gives different bits"
            )

    def _mixes(self, number: int) -> np.ndarray:
        """Outputs that are not the one product whose weight isn't zero: (positions, filters)."""
        dense, case = self.sets[number % len(self.sets)], self.case
        filters = np.arange(case.filters)
        # steps of a large prime: calls and filters test leaves all over the window
        leaf = (number + filters) * 7919 % case.summands
        weights = np.zeros_like(dense.weights)
        weights[leaf, filters] = dense.weights[leaf, filters]
        w = weights.reshape(dense.w.shape)
        b = None if dense.b is None else np.zeros_like(dense.b)
        # inputs of one size would survive a transform to the last bits
        x = self._uneven(dense.x, number)
        self.checks += 1
        y = floats.widen(self.operator.apply(x, w, b), case.dtype)
        if self.operator.behind is not None:  # what it makes of a product says nothing more
            return np.zeros(y.shape, bool)
        columns = window.columns(case, x)
        group = filters // (case.filters // case.groups)
        met = np.stack([columns[g][k] for g, k in zip(group, leaf, strict=True)], axis=1)
        x, w = floats.widen(met, case.dtype), floats.widen(weights[leaf, filters], case.dtype)
        # a Winograd or FFT convolution mixes inputs before it multiplies: it loses bits of the
        # small ones
        # operands, both or one, or the result too, may be kept in fewer bits
        near = np.full(y.shape, floats.eps(case.dtype))
        for form in ("tf32", "bfloat16"):
            near[y == floats.nearest(y, form)] = floats.eps(form)
        fits = np.zeros(y.shape, bool)
        with np.errstate(all="ignore"):
            for met_form, weight_form in itertools.product(
                _in_short_formats(x), _in_short_formats(w)
            ):
                eps = floats.eps(case.dtype) if met_form is x and weight_form is w else near
                exact = met_form * weight_form
                near_it = np.abs(y - exact) <= 2 * eps * np.abs(exact)
                # float16 has no such operands: beside an infinity every number would be near
                fits |= near_it & np.isfinite(exact)
                fits |= (y == exact) | (np.isnan(y) & np.isnan(exact))
        return ~fits

    def _uneven(self, x: np.ndarray, seed: int) -> np.ndarray:
        """Scales the input by powers of two, so that mixing its elements loses bits."""
        binades = 8 if self.case.dtype == "float16" else floats.FORMATS[self.case.dtype].precision
        powers = operands.hashes(seed, "x", 0, x.shape) % np.uint64(binades)
        scaled = np.ldexp(floats.widen(x, self.case.dtype), -powers.astype(np.int32))
        return floats.round_to(scaled, self.case.dtype)


def _in_short_formats(values: np.ndarray) -> list[np.ndarray]:
    """Float64 values as they are, and as short formats have them, rounded or cut."""
    versions = [values]
    versions += [floats.nearest(values, form) for form in ("bfloat16", "tf32", "float16")]
    for form in ("bfloat16", "tf32"):
        digits = floats.format_of(form).precision
        fraction, power = np.frexp(values)
        versions.append(np.ldexp(np.trunc(np.ldexp(fraction, digits)), power - digits))
    return versions


def _outputs_of_piece(piece: RefusedOutputs | Revealed, wanted: np.ndarray) -> np.ndarray:
    """The piece's outputs as a mask, within ``wanted``."""
    mask = np.zeros_like(wanted)
    mask[np.ix_(piece.positions, piece.filters)] = True
    return mask & wanted


def _scaled(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, case: Summed, top: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Operands times powers of two, so that the largest product is in the binade ``top``.

    The seed says which become large or small: the input, the weights, or both.
    """
    binades = [
        int(np.frexp(np.abs(floats.widen(operand, case.dtype)).max(initial=0))[1]) - 1
        for operand in (x, w)
    ]
    power, limit = top - sum(binades), floats.FORMATS[case.dtype].emax - 1
    share = (power, power // 2, 0)[seed % 3] if case.weighted else power
    share = max(power + binades[1] - limit, min(share, limit - binades[0]))
    parts = ((x, share), (w, power - share), (b, power))
    return tuple(  # type: ignore[return-value]
        None
        if array is None
        else floats.round_to(np.ldexp(floats.widen(array, case.dtype), exponent), case.dtype)
        for array, exponent in parts
    )


def _times(array: np.ndarray, scale: float, dtype: str) -> np.ndarray:
    return floats.round_to(floats.widen(array, dtype) * scale, dtype)

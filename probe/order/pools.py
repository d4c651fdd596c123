"""Finds how pools come to their outputs, which have no weights to ask about an order with.

An average is a sum of equal weights, then a division by how many numbers it counts, or a product
with that count's rounded reciprocal. A maximum rounds nothing; libraries differ in what they make
of subnormal numbers and of NaN. The ways that libraries have are replayed on fresh operands, and an
output has the first one that gave its bits on all of them: recognised, not revealed. What is
flushed may depend on the thread that serves an output, so that is read off the run itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probe.case import floats, operands, ulp
from probe.case.case import Case
from probe.order import window
from probe.order.tree import Tree

DIVIDED, TIMES = "divided by the count", "times the rounded reciprocal of the count"
FLUSHES = ("", "results", "operands", "operands and results")
COMPARED = "operands where they are compared"
# Kinds of fresh operands, and how many of each: what every way has to give the bits of.
SETS = (("normal", 3), ("cancel", 2), ("uneven", 6), ("masks", 4), ("tiny", 2))
# Outputs up to which so many more uneven operands are taken: a short sum agrees more by luck.
FEW, MORE = 64, 18
# Kinds that only maxima are asked about, and only where the operands are not finite.
STRANGE = ("infinite", "nan")

# Returns the library's outputs, container, for an input of the case's shape, container.
Ask = Callable[[np.ndarray], np.ndarray]


def _nested_chain(places: list[Any]) -> Any:
    """Pairs within each other: ((0, 1), 2), a chain."""
    return functools.reduce(lambda total, place: (total, place), places)


def _nested_by_nine(places: list[int]) -> int | tuple:  # type: ignore[type-arg]
    """XNNPACK's order: nine products at a time, fewer at the end."""

    def sum_of(*parts: Any) -> Any:
        present = [part for part in parts if part is not None]
        return tuple(present) if len(present) > 1 else present[0] if present else None

    total: Any = None
    for start in range(0, len(places), 9):
        p = [*places[start : start + 9], *[None] * 8]
        # the order in which its kernel for nine rows of a window adds them
        left = sum_of(sum_of(sum_of(p[0], p[1]), p[8]), sum_of(p[6], p[7]))
        right = sum_of(sum_of(p[2], p[3]), sum_of(p[4], p[5]))
        total = sum_of(total, sum_of(left, right))
    return total


def _tree_of_nested(nested: object) -> Tree:
    nodes: list[tuple[int, ...]] = []

    def add(part: object) -> int:
        if isinstance(part, int):
            return part
        assert isinstance(part, tuple)
        nodes.append(tuple([add(child) for child in part]))
        return ~(len(nodes) - 1)

    add(nested)
    return Tree.from_nodes(nodes) if nodes else Tree.sequential(1)


@functools.lru_cache(maxsize=64)
def orders(kernel: tuple[int, ...]) -> tuple[Tree, ...]:
    """Orders in which libraries add windows of this size, each once."""
    grid = np.arange(int(np.prod(kernel))).reshape(kernel)
    rows, columns = grid.reshape(-1).tolist(), grid.T.reshape(-1).tolist()
    lines = [grid.reshape(-1, kernel[-1]).tolist(), grid.T.reshape(-1, kernel[0]).tolist()]
    trees = [
        Tree.sequential(rows),
        Tree.sequential(columns),
        _tree_of_nested(_nested_by_nine(columns)),
        _tree_of_nested(_nested_by_nine(rows)),
        Tree.sequential(rows[::-1]),
    ]
    chains = [_nested_chain([_nested_chain(line) for line in each]) for each in lines]
    trees += map(_tree_of_nested, chains)
    return tuple(dict.fromkeys([*trees, Tree.pairwise(rows)]))


@dataclass(frozen=True)
class Average:
    """A way of averaging. ``kept``: the format of sums, and of what ``last`` makes of them.

    ``rounded``: a wider sum is rounded to the dtype before that. ``whole``: it is averaged over the
    window's size, padding included, and divided by the share of it that counts. ``flushed``: of
    ``FLUSHES``, what becomes zero where it is subnormal.
    """

    tree: Tree
    kept: str
    rounded: bool = False
    last: str = DIVIDED
    whole: bool = False
    flushed: str = ""

    @property
    def words(self) -> str:
        last = self.last.replace("the count", "the window's size") if self.whole else self.last
        last += ", divided by the share of it that counts" * self.whole
        rounded = ", rounded to the dtype" * self.rounded
        return f"sums in {self.kept}{rounded}, {last}" + _flushed_words(self.flushed)

    def outputs(
        self, met: np.ndarray, valid: np.ndarray, counts: np.ndarray, dtype: str
    ) -> np.ndarray:
        """As ``PoolMaximum.outputs``."""
        form = self.kept
        sums: dict[int, np.ndarray] = {}
        for number, children in enumerate(self.tree.nodes):
            terms = [self._read(met[leaf] if leaf >= 0 else sums.pop(leaf)) for leaf in children]
            total = terms[0]
            for term in terms[1:]:
                total = self._gives(total + term, form)
            sums[~number] = total
        total = sums.popitem()[1] if sums else met[0]
        if self.rounded:
            total, form = floats.nearest(total, dtype), dtype
        count = np.full(counts.shape, float(len(met))) if self.whole else counts
        by, ones = self._read(total), counts
        if self.last == TIMES:
            share = self._gives(1 / count, form)
            total, ones = self._gives(by * share, form), self._gives(ones * share, form)
        else:
            total, ones = self._gives(by / count, form), self._gives(ones / count, form)
        if self.whole:  # two operations of the library, each with a result in the dtype
            total, ones = floats.nearest(total, dtype), floats.nearest(ones, dtype)
            total = self._gives(self._read(total) / ones, dtype)
        return floats.round_to(total, dtype)

    def _read(self, values: np.ndarray) -> np.ndarray:
        if "operands" not in self.flushed:
            return values
        small = np.abs(values) < floats.flushed_below(self.kept, "before")
        return np.where(small, np.copysign(0.0, values), values)

    def _gives(self, values: np.ndarray, form: str) -> np.ndarray:
        # a sum, product or quotient of float64, rounded again, is the one rounded once: float64 has
        # twice float32's digits and two more (Figueroa, "When is double rounding innocuous?", 1995)
        rounded = floats.nearest(values, form)
        if "results" not in self.flushed:
            return rounded
        small = np.abs(values) < floats.flushed_below(form)
        return np.where(small, np.copysign(0.0, values), rounded)

    @property
    def text(self) -> str:
        """The order of the sum, and the rest in words."""
        return f"{self.tree.text}: {self.words}"

    def apart(self, other: Average) -> dict[str, Average]:
        """The causes in which two ways differ, each with this way changed in that alone."""
        changed = {
            "order": replace(self, tree=other.tree),
            "rounding": replace(self, last=other.last, whole=other.whole),
            "precision": replace(self, kept=other.kept, rounded=other.rounded),
            "flush": replace(self, flushed=other.flushed),
        }
        return {name: way for name, way in changed.items() if way != self}


CHOOSE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "NaN gives NaN": np.maximum,
    "NaN is passed over": np.fmax,
    "NaN is never larger": lambda best, value: np.where(value > best, value, best),
    "NaN gives way to the next number": lambda best, value: np.where(best > value, best, value),
}
STARTS = ("its first number", "minus infinity", "the smallest finite number")


@dataclass(frozen=True)
class PoolMaximum:
    """A way of taking the largest. ``choose``: of ``CHOOSE``; ``start``: of ``STARTS``.

    ``padded``: zeros that pad the input take part, as ``pad_with`` says. ``flushed``: empty,
    ``"operands"``, or ``COMPARED``: they count as zero and are given as they are.
    """

    choose: str
    start: str
    padded: bool = False
    flushed: str = ""

    @property
    def words(self) -> str:
        padded = ", padding included" * self.padded
        return f"a maximum from {self.start}: {self.choose}{padded}" + _flushed_words(self.flushed)

    def outputs(
        self, met: np.ndarray, valid: np.ndarray, counts: np.ndarray, dtype: str
    ) -> np.ndarray:
        """Pools what windows hold: container outputs.

        ``met``: float64 (places, outputs), 0 in padding; ``valid``: the places that are not, bool.
        ``counts`` (outputs,): what an average divides by.
        """
        first = {
            "minus infinity": -np.inf,
            "the smallest finite number": -floats.largest_finite(dtype),
        }
        best = np.full(met.shape[1], first.get(self.start, 0.0))
        empty = np.full(met.shape[1], self.start not in first)
        shown, seen = best.copy(), met
        if self.flushed:
            small = np.abs(met) < floats.flushed_below(dtype, "before")
            seen = np.where(small, np.copysign(0.0, met), met)
        choose = CHOOSE[self.choose]
        for value, flushed, counted in zip(met, seen, valid | self.padded, strict=True):
            taken = np.where(empty, flushed, choose(best, flushed))
            stays = (taken == best) | ((taken != taken) & (best != best))
            moved = counted & (empty | ~stays)
            shown = np.where(moved, value, shown)
            best, empty = np.where(counted, taken, best), empty & ~counted
        return floats.round_to(shown if self.flushed == COMPARED else best, dtype)

    @property
    def text(self) -> str:
        return self.words

    def apart(self, other: PoolMaximum) -> dict[str, PoolMaximum]:
        """The causes in which two ways differ, each with this way changed in that alone."""
        changed = {
            "window": replace(self, padded=other.padded),
            "algorithm": replace(self, choose=other.choose, start=other.start),
            "flush": replace(self, flushed=other.flushed),
        }
        return {name: way for name, way in changed.items() if way != self}


def _flushed_words(what: str) -> str:
    return f"; subnormal {what} become zero" * bool(what)


Way = Average | PoolMaximum


def _ways_of_pool(case: Case) -> Iterator[Way]:
    """The ways of a pool, the most frequent first; what is flushed is left open."""
    if case.pool == "max":
        padded = (True, False) if case.pad_with == "zeros" else (False,)
        for start, choose, with_zeros in itertools.product(STARTS, CHOOSE, padded):
            yield PoolMaximum(choose, start, with_zeros)
        return
    formats = [(case.dtype, False)]
    if floats.format_of(case.dtype).bits == 16:
        formats += [("float32", False), ("float32", True)]
    # float64 can't be told from exact sums of short numbers, and stands last
    formats += [("float64", False)] * (case.dtype != "float64")
    for form, rounded in formats:
        for tree in orders(tuple(case.kernel)):
            for last, whole in itertools.product((DIVIDED, TIMES), (False, True)):
                yield Average(tree, form, rounded, last, whole)


def _flushing(way: Way) -> Iterator[Way]:
    """A way with each kind of flushing, none first."""
    for what in FLUSHES if isinstance(way, Average) else ("", "operands", COMPARED):
        yield replace(way, flushed=what)


# Outputs that are pooled at once.
AT_ONCE = 1 << 15  # speed alone


class PoolAnswers:
    """What the windows of one call hold, and what the library made of it.

    ``x``: the input, container; ``y`` (positions, filters); ``counts`` (positions,): what an
    average divides by, positions being batch entries times output positions.
    """

    def __init__(self, case: Case, x: np.ndarray, y: np.ndarray, counts: np.ndarray) -> None:
        self.case, self.counts, self.y = case, counts, y.reshape(-1, case.filters)
        rows = floats.widen(x, case.dtype).reshape(case.batch, -1, case.filters)
        self.rows = np.concatenate([rows, np.zeros_like(rows[:, :1])], axis=1)  # -1 reads zeros
        self.reads = window.Geometry.of(case).reads().T

    def outputs(self, way: Way, places: np.ndarray) -> np.ndarray:
        """What a way gives at places (outputs, 2), which are position and filter: container."""
        outputs = np.empty(len(places), self.y.dtype)
        for start in range(0, len(places), AT_ONCE):
            positions, filters = places[start : start + AT_ONCE].T
            entries, at = np.divmod(positions, self.reads.shape[1])
            reads = self.reads[:, at]
            windows = (self.rows[entries, reads, filters], reads >= 0, self.counts[positions])
            with np.errstate(all="ignore"):
                outputs[start : start + AT_ONCE] = way.outputs(*windows, self.case.dtype)
        return outputs

    def agrees(self, way: Way, places: np.ndarray, zeros: str = "equal") -> np.ndarray:
        """Whether a way gives the library's bits: a bool for each place."""
        y = self.y[tuple(places.T)]
        return ~ulp.bits_apart(self.outputs(way, places), y, self.case.dtype, zeros)


@dataclass
class Pooled:
    """How the outputs of one call are pooled: ``index`` (positions, filters) numbers ``ways``.

    -1: no way that was tried gives its bits, here and on fresh operands. ``answers``:
    what the windows hold.
    """

    ways: list[Way]
    index: np.ndarray
    answers: PoolAnswers

    @property
    def words(self) -> str:
        """How most outputs are pooled, how many ways there are, and what is not known."""
        counts = np.bincount(self.index[self.index >= 0], minlength=len(self.ways))
        unknown = int((self.index < 0).sum())
        doubt = f"no way that was tried gives {unknown:,} of {self.index.size:,} outputs"
        if not counts.sum():
            return doubt
        used = int((counts > 0).sum())
        more = f"; {used - 1} more way{'s' * (used > 2)}" if used > 1 else ""
        return self.ways[int(np.argmax(counts))].words + more + f"; {doubt}" * bool(unknown)

    def orders(self, numbers: np.ndarray) -> list[dict[str, Any]]:
        """The averages among these numbers of ways, the most frequent first.

        The keys are those of ``Summation.to_json``, and ``last``, what is done to the sum.
        """
        rows = []
        for number, way in enumerate(self.ways):
            count = int((numbers == number).sum())
            if isinstance(way, Average) and count:
                row: dict[str, Any] = {"id": way.tree.id, "tree": way.tree.text}
                row |= {"fused": [], "rounding": "none", "accumulator": way.kept}
                rows.append(row | {"last": way.words, "outputs": count})
        return sorted(rows, key=lambda row: -row["outputs"])

    def causes(self, other: Pooled, places: np.ndarray, other_places: np.ndarray) -> list[str]:
        """Why outputs at these places, (outputs, 2) on each side, differ; empty: not known.

        A cause is a part of the two ways that moves bits of one of the two where it alone is
        changed to the other side's; where none does alone, all that differ are named.
        """
        causes = np.array([""] * len(places), object)
        numbers = self.index[tuple(places.T)], other.index[tuple(other_places.T)]
        counts = self.answers.counts[places[:, 0]], other.answers.counts[other_places[:, 0]]
        for number, their_number in {*zip(*(side.tolist() for side in numbers), strict=True)}:
            alike = np.flatnonzero((numbers[0] == number) & (numbers[1] == their_number))
            if number < 0 or their_number < 0 or self.ways[number] == other.ways[their_number]:
                continue
            way, their_way = self.ways[number], other.ways[their_number]
            moved: dict[str, np.ndarray] = {}
            sides = (
                (self.answers, places, way, their_way),
                (other.answers, other_places, their_way, way),
            )
            for answers, where, its_way, other_way in sides:
                for name, changed in its_way.apart(other_way).items():  # type: ignore[arg-type]
                    apart = ~answers.agrees(changed, where[alike])
                    moved[name] = moved.get(name, False) | apart
            moved_at = np.stack(list(moved.values()))
            moved_at |= ~moved_at.any(axis=0)
            causes[alike] = ["+".join(itertools.compress(moved, column)) for column in moved_at.T]
        # means that count different numbers: what padding is taken for
        if self.answers.case.pool == "avg":
            causes[(counts[0] != counts[1]) & (causes != "")] = "window"
        return causes.tolist()


def reveal_pooling(
    case: Case,
    ask: Ask,
    x: np.ndarray,
    y: np.ndarray,
    zeros: str = "equal",
    wanted: np.ndarray | None = None,
) -> Pooled:
    """Finds how a call pools; costs some fifteen calls.

    ``x``, ``y``: the run's own. ``wanted``: bool (positions, filters); None for all. ``zeros``: as
    of ``ulp.differences``.
    """
    dtype = case.dtype
    ones = ask(floats.round_to(np.ones(case.input_shape()), dtype)).reshape(-1, case.filters)
    read = np.tile((window.Geometry.of(case).reads() >= 0).sum(axis=1), case.batch)
    with np.errstate(all="ignore"):  # how many a mean of ones counts; of a maximum it is not used
        counts = np.rint(read / floats.widen(ones, dtype)[:, 0])
    nonfinite_kinds = () if floats.is_finite(x, dtype).all() else STRANGE
    kinds = [*SETS, *((kind, 2) for kind in nonfinite_kinds if case.pool == "max")]
    sets = []
    few = MORE * (y.size <= FEW)
    for kind, count in kinds:
        for seed in range(count + few * (kind == "uneven")):
            drawn = _fresh(case, kind, 0xC4EC + seed)
            sets.append((kind, PoolAnswers(case, drawn, ask(drawn), counts)))
    answers = PoolAnswers(case, x, y, counts)
    pooled = Pooled([], np.full(answers.y.shape, -1), answers)
    left = np.argwhere(np.ones(answers.y.shape, bool) if wanted is None else wanted)
    fits: list[tuple[Way, np.ndarray]] = []
    for way in _ways_of_pool(case):
        explained = np.ones(len(left), bool)  # outputs that the way gives on all sets
        for kind, check in sets:
            wrong = np.flatnonzero(explained)
            # what a thread flushes may differ from call to call: any of it will do here
            for variant in _flushing(way) if kind == "tiny" else (way,):
                if not len(wrong):
                    break
                wrong = wrong[~check.agrees(variant, left[wrong])]
            explained[wrong] = False
        if explained.any():
            fits.append((way, explained))
        if explained.all():
            break
    # The way of most outputs comes first: what agrees by luck does so at few of them, and is what
    # another way explains, too.
    while fits:
        way, explained = max(fits, key=lambda fit: int(fit[1].sum()))
        places = left[explained]
        for variant in _flushing(way):  # whose bits it gives on the run's own operands
            if not len(places):
                break
            agreed = answers.agrees(variant, places, zeros)
            if agreed.any():
                pooled.index[tuple(places[agreed].T)] = len(pooled.ways)
                pooled.ways.append(variant)
            places = places[~agreed]
        fits = [
            (rival, explains & ~explained)
            for rival, explains in fits
            if (explains & ~explained).any()
        ]
    return pooled


def _fresh(case: Case, kind: str, seed: int) -> np.ndarray:
    """A generated input, container.

    ``uneven``: of sizes that lie apart; ``masks``: huge numbers that cancel, among ones.
    """
    if kind in ("masks", "tiny", "uneven"):
        rng, form = np.random.default_rng(seed), floats.FORMATS[case.dtype]
        values = rng.choice([-1.0, 1.0], case.input_shape())
        if kind == "tiny":
            around = form.emin + rng.integers(-4, 4, case.input_shape())
            values *= np.ldexp(1 + rng.random(case.input_shape()), around)
        elif kind == "uneven":
            digits = min(form.precision, 11)
            around = rng.integers(0, digits, case.input_shape())
            values *= np.ldexp(1 + rng.random(case.input_shape()), around)
        else:
            huge = 2.0 ** (15 if case.dtype == "float16" else 60)
            values = np.where(rng.random(values.shape) < 0.4, values * huge, 1 + values / 4)
        return floats.round_to(values, case.dtype)
    x, _, _ = operands.generate(case.with_(operands=kind, seed=seed, put=None))
    return x

"""Two formulas of the same, replayed one step after the other.

``(x + bias) + rest`` against ``(x + rest) + bias``; a convolution with its BatchNorm against one
whose weights have been multiplied before. Where every operation of both sides is known by itself,
so is what the whole comes to: sums of products by their revealed orders, what IEEE 754 settles in
NumPy, functions by their own number alone at their place, and what moves elements by moving it. The
formulas are the cause only if each step gives its recorded bits, for each output that is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from probe import floats
from probe.errors import ProbeError
from probe.recording import adding, place
from probe.recording.adding import Adds, Known
from probe.recording.alone import Alone, same, unequal
from probe.recording.difference import Pair
from probe.recording.matching import named
from probe.recording.reasons import Cause
from probe.recording.recording import Operation, Run, between
from probe.recording.sums import first_of
from probe.semantics import (
    Contracts,
    Convolution,
    Each,
    Holds,
    Meaning,
    Reduces,
    Step,
    Steps,
    Unknown,
    Windows,
)
from probe.summation.summation import Summation
from probe.summation.tree import Tree

STEPPED = ("float32", "float64")
"""Of which NumPy rounds as a library does. float16 is added in float32 by some."""

LETTERS = "abcdefgh"
"""Names of what is added, in the order of the left side's operands; no longer sums are named."""

SUMS = (Contracts, Windows, Convolution, Reduces)

LISTED = 1 << 22
"""Products that are listed one by one, to find those of one side on the other."""

BAD, OPEN, GOOD = 0, 1, 2
"""An element that did not come out again, was not asked about, came out: the least of all that
something is computed from is its own."""


@dataclass
class _Told:
    """What a side's steps came to, for each output that was asked about. ``states``: of these;
    ``sums``: those that are steps, with where each output comes from in what such a sum gives: flat
    indices, -1 for what isn't known."""

    states: np.ndarray
    sums: list[tuple[Adds, np.ndarray]]


def of_formulas(
    left: Alone, right: Alone, apart: np.ndarray, known: Known, most: int
) -> Cause | None:
    """Returns what sets two formulas apart: they are two, or one whose sums are written and added
    in different ways. None where a step of either is not known.

    ``apart``: which of the outputs that must agree differ, of which ``most`` are asked about.
    """
    runs = left.side, right.side
    inside = [
        [
            run.operations[n]
            for n in between(run, [one.operation.gives[one.output]], one.operation.reads)[0]
        ]
        for run, one in zip(runs, (left, right), strict=True)
    ]
    for one in (*inside[0], *inside[1]):  # is it of a kind that may be known by itself?
        settled = one.meaning.exact and not isinstance(one.meaning, Unknown)
        if not (settled or isinstance(first_of(one.meaning), SUMS) or _at_places(one.meaning)):
            return None
    words = [
        [word for one in some for word in _words(one, run)]
        for some, run in zip(inside, runs, strict=True)
    ]
    # both sides are asked about the same outputs: a step that is known on one side alone proves
    # nothing
    chosen, told = adding.evenly(apart, most), []
    for side, some in zip((left, right), inside, strict=True):
        found = _replayed(side, some, side.index[chosen], known, most)
        if found is None:
            return None
        told.append(found)
    least = np.minimum(told[0].states, told[1].states)
    examined = (told[0].states != OPEN) & (told[1].states != OPEN)
    count, came = int(examined.sum()), int((least == GOOD).sum())
    if not count or came < count:
        return None
    cost = sum(adds.sum.summands for one in told for adds, _ in one.sums)
    listed = max(1, LISTED // max(cost, 1))
    both = zip((left, right), inside, strict=True)
    said = [named(one.side, [n.number for n in some]) for one, some in both]
    against = f"{said[0]} on the left, {said[1]} on the right"
    if words[0] != words[1]:
        kind, what = "algorithm", f"two formulas: {against}"
    elif kind := _of_one_sum(told, which := adding.evenly(np.flatnonzero(examined), listed)):
        count = came = len(which)
        what = f"the same products are added in different ways: {against}"
    else:
        return None
    all_of = f"replayed step by step, {came} of {count} examined outputs come out on both sides"
    return Cause(kind, f"{what}; {all_of}", count, came)


def _of_one_sum(told: Sequence[_Told], which: np.ndarray) -> str:
    """Returns what sets two sums of the same products apart, where each of these outputs is one on
    both sides; empty where it isn't, or it can't be seen which product is which."""
    if any(len(one.sums) != 1 or (one.sums[0][1][which] < 0).any() for one in told):
        return ""
    kinds = set[str]()
    for n in which.tolist():
        left, right = (_by_product(*one.sums[0], n) for one in told)
        if left is None or right is None or left[1].keys() != right[1].keys():
            return ""
        names = {leaf: left[1][key] for key, leaf in right[1].items()}
        ours, theirs = (one.restricted(leaves.values()) for one, leaves in (left, right))
        apart = ours.causes(_renamed(theirs, names))
        kinds.update(apart or ("order",))  # alone a bias is added elsewhere
    return "+".join(sorted(kinds))


def _by_product(
    adds: Adds, origin: np.ndarray, n: int
) -> tuple[Summation, dict[tuple[float, ...], int]] | None:
    """Returns how an output is added, and its leaves by what they multiply, but for products of
    zero; None where two have the same factors, or nothing is known."""
    position, filter_ = adds.places[origin[n]].tolist()
    summation, given, dtype = (
        adds.run.summation((position, filter_)),
        adds.run.operands,
        adds.sum.dtype,
    )
    group = filter_ // (adds.sum.filters // adds.sum.groups)
    x, w = given.columns[group][:, position], given.weights[:, filter_]
    pairs = zip(floats.widen(x, dtype).tolist(), floats.widen(w, dtype).tolist(), strict=True)
    leaves = [(tuple(sorted(pair)), leaf) for leaf, pair in enumerate(pairs) if all(pair)]
    found = dict(leaves)
    known = summation is not None and {*found.values()} <= {*summation.tree.leaves}
    return (summation, found) if known and len(found) == len(leaves) else None  # type: ignore[return-value]


def _renamed(one: Summation, names: Mapping[int, int]) -> Summation:
    """Returns a summation whose leaves have other numbers."""
    nodes = [[names.get(child, child) for child in node] for node in one.tree.nodes]
    leaf = names.get(one.tree.leaves[0], 0)
    changed = {
        name: frozenset(names.get(n, n) for n in value)
        for name, fact, value in one.rounding.facts()
        if isinstance(value, frozenset) and fact.leaves
    }
    rounding = replace(one.rounding, **changed)  # type: ignore[arg-type]
    return Summation(Tree.from_nodes(nodes, leaf=leaf), rounding)


def _words(one: Operation, run: Run) -> list[str]:
    """Returns what an operation computes, in words; of what only moves or changes nothing, none.

    All sums of products have one word, however they are written, a bias is an addition, and a mean
    is divided behind: that a sum is added in another order is no other formula.
    """
    shown = [(run.values[n].shape, run.values[n].digest) for n in one.reads]
    if any((run.values[n].shape, run.values[n].digest) in shown for n in one.gives):
        return []
    found = []
    for each in [step.meaning for step in getattr(one.meaning, "steps", ())] or [one.meaning]:
        first = getattr(each, "windows", each)
        if isinstance(first, Contracts | Windows) and getattr(first, "kind", "") != "max":
            pool = isinstance(first, Windows) and first.pool
            biased = getattr(first, "bias", None) is not None or (not pool and len(first.reads) > 2)
            divided = getattr(first, "kind", "") == "average"
            found += ["sum", *["add"] * biased, *["divide"] * divided]
        elif isinstance(each, Reduces) and each.word in ("sum", "mean"):
            found += ["sum", *["divide"] * (each.word == "mean")]
        elif isinstance(each, Each) or not (each.exact or isinstance(each, Holds)):
            found.append(each.word or one.op)
    return found


def _replayed(
    one: Alone, inside: Sequence[Operation], wanted: np.ndarray, known: Known, most: int
) -> _Told | None:
    """Returns what a side's outputs ``wanted`` (flat indices) come to after all of its steps; None
    where a step is not known."""
    values, side, last = one.side.values, one.side, one.operation.gives[one.output]
    used = {last, *(n for each in inside for n in each.reads)}
    ends = [[n for n in each.gives if n in used] for each in inside]
    if any(len(some) != 1 for some in ends):
        return None
    outs = [some[0] for some in ends]
    needs = {out: np.zeros(values[out].shape, bool) for out in outs}
    needs[last].reshape(-1)[wanted] = True
    for each, out in zip(reversed(inside), reversed(outs), strict=True):
        for n, number in enumerate(each.reads):
            if number in needs:
                needs[number] |= _needed(needs[out], values[number].shape, each.meaning, n)
    states: dict[int, np.ndarray] = {}
    sums: list[tuple[Adds, dict[int, np.ndarray]]] = []
    for each, out in zip(inside, outs, strict=True):
        pair = Pair.of_all(out, out, needs[out].size)
        step = Alone.of(side, each.number, each.gives.index(out), pair, one.place)
        if step.again is None or not same(step.chosen(step.call()), step.outputs, step.value.dtype):
            return None
        try:
            adds = Adds(step) if isinstance(first_of(each.meaning), SUMS) else None
        except (ProbeError, LookupError, ValueError):
            return None
        own = _of_step(step, adds, needs[out], known, most)
        if own is None:
            return None
        for n, number in enumerate(each.reads):
            if number in states:
                moved = _carried(GOOD - states[number], step, n)  # what is padded is good
                least = states[number].min(initial=GOOD)
                own = np.minimum(own, least if moved is None else GOOD - moved)
            for _, origins in sums:
                if number in origins:
                    moved = _carried(origins[number] + 1, step, n)
                    origins[out] = np.full(own.shape, -1) if moved is None else moved - 1
        states[out] = own
        if adds is not None:
            sums.append((adds, {out: np.arange(own.size).reshape(own.shape)}))
    found = [(adds, at[last].reshape(-1)[wanted]) for adds, at in sums if last in at]
    return _Told(states[last].reshape(-1)[wanted], found)


def _at_places(meaning: Meaning) -> Each | None:
    """Returns the first function of an operation that computes nothing but functions of the
    elements at each place; None of all else."""
    steps = [step.meaning for step in getattr(meaning, "steps", ())] or [meaning]
    return steps[0] if all(isinstance(one, Each) for one in steps) else None  # type: ignore[return-value]


def _lifted(shape: tuple[int, ...], rank: int, each: Each | None, read: int) -> tuple[int, ...]:
    """Returns the shape of an operand of a function, with as many axes as its result; empty where
    its elements are not at the places of the results."""
    if each is None or len(shape) > rank:
        return ()
    if each.along is not None and len(shape) == 1 and read:
        k = each.along % rank
        return (1,) * k + shape + (1,) * (rank - k - 1)
    return (1,) * (rank - len(shape)) + shape


def _needed(need: np.ndarray, shape: tuple[int, ...], meaning: Meaning, read: int) -> np.ndarray:
    """Returns which elements of an operand are needed for those of a result: bool."""
    lifted = _lifted(shape, need.ndim, _at_places(meaning), read)
    if not lifted:
        return np.full(shape, need.any())
    axes = tuple(k for k, (a, b) in enumerate(zip(lifted, need.shape, strict=True)) if a != b)
    return np.asarray(need.any(axis=axes, keepdims=True).reshape(shape))


def _carried(array: np.ndarray, step: Alone, read: int) -> np.ndarray | None:
    """Returns whole numbers that are at the elements of an operand, at those of the result; None
    where results are computed from several elements."""
    shape, meaning = step.value.shape, step.operation.meaning
    if lifted := _lifted(array.shape, len(shape), _at_places(meaning), read):
        return np.broadcast_to(array.reshape(lifted), shape)
    dtype = step.reads[read].dtype
    exact = dtype.kind == "f" and array.size < 1 << np.finfo(dtype).nmant
    if not exact or not meaning.exact or isinstance(meaning, Unknown) or len(step.reads) > 1:
        return None
    return step.one([array.astype(dtype)]).astype(np.int64).reshape(shape)


def _of_step(
    step: Alone, adds: Adds | None, need: np.ndarray, known: Known, most: int
) -> np.ndarray | None:
    """Returns the states of what a step gives, given what it reads; None where it is not known.
    ``adds``: of a sum."""
    meaning, flat = step.operation.meaning, np.flatnonzero(need)
    state = np.full(need.size, OPEN, np.int8)
    if adds is not None:
        examined = adding.revealed([adds], flat, known, most)
        state[examined] = np.where(adds.came(examined), GOOD, BAD)
    elif (settled := _in_numpy(step, meaning)) is not None:
        apart = unequal(settled.reshape(-1), step.outputs, step.value.dtype)
        state = np.where(apart, BAD, GOOD).astype(np.int8)
    elif meaning.exact and not isinstance(meaning, Unknown):
        state[:] = GOOD  # it gave its recorded bits, and these follow from what it reads
    else:
        each = _at_places(meaning)
        assert each is not None
        chosen = adding.evenly(flat, place.affordable(need.size))
        came = place.repeated(place.PlacedFunction.of(step), chosen, each.along)
        if came is None:
            return None
        state[chosen] = np.where(came, GOOD, BAD)
    return state.reshape(need.shape)


def _in_numpy(step: Alone, meaning: Meaning) -> np.ndarray | None:
    """Returns what NumPy makes of a function that IEEE 754 settles; None where it has none: the
    table of functions has NumPy's names."""
    plain = isinstance(meaning, Each) and not meaning.numbers and meaning.along is None
    function = getattr(np, meaning.word, None)
    if not plain or not meaning.exact or not isinstance(function, np.ufunc):
        return None
    assert isinstance(meaning, Each)
    used = step.reads if meaning.reads is None else [step.reads[n] for n in meaning.reads]
    for at, value, dtype in meaning.beside:
        used = [*used[:at], np.array(value, dtype), *used[at:]]
    dtype = step.value.dtype
    if dtype not in STEPPED or set(step.dtypes) != {dtype} or len(used) != function.nin:
        return None
    with np.errstate(all="ignore"):
        found = np.asarray(function(*used))
    return found if found.shape == step.value.shape else None


def of_terms(left: Alone, right: Alone, reads: Sequence[Pair], apart: np.ndarray) -> Cause | None:
    """Returns why two sums of the same terms differ: their order; None where they are no such sums,
    or NumPy does not give all differing outputs ``apart`` of both sides.

    ``reads``: which terms are the same.
    """
    ours, theirs = _tree(left), _tree(right)
    if ours is None or theirs is None:
        return None
    names, others = _named(left, right, reads)
    terms = [sorted(map(str, _leaves(*one))) for one in ((ours, names), (theirs, others))]
    if terms[0] != terms[1] or str(None) in terms[0]:
        return None
    said = _said(ours, names), _said(theirs, others)
    if said[0] == said[1]:
        return None
    for side, tree in ((left, ours), (right, theirs)):
        found = _added(tree, side.reads)
        if found.shape != side.value.shape:
            return None
        if unequal(side.taken(found)[apart], side.outputs[apart], side.value.dtype).any():
            return None
    why = (
        f"{said[0]} on the left, {said[1]} on the right, of the operands as the left reads them; "
        f"all {len(apart)} differing outputs replay in NumPy on both sides"
    )
    return Cause("order", why, len(apart), len(apart))


Terms = int | tuple["Terms", "Terms"]
"""An operand's number, or two of these that are added."""


def _tree(one: Alone) -> Terms | None:
    """Returns how an operation adds what it reads; None where it does anything else."""
    meaning = one.operation.meaning
    count = len(one.operation.reads)
    if set(one.dtypes) - {one.dtypes[-1]} or one.dtypes[-1] not in STEPPED:
        return None
    steps: Sequence[Step] = [Step(meaning, tuple(range(count)), one.value.shape)]
    if isinstance(meaning, Steps):
        steps = meaning.steps if not meaning.gives else ()
    values: list[Terms] = list(range(count))
    for step in steps:
        what = step.meaning
        plain = isinstance(what, Each) and what == Each(what.word, zero="adds")
        if not plain:
            return None
        made, *rest = (values[n] for n in step.reads)
        for each in rest:
            made = made, each
        values.append(made)
    return values[-1] if steps else None


def _named(left: Alone, right: Alone, reads: Sequence[Pair]) -> tuple[list[str | None], ...]:
    """Returns the names of both sides' operands; of the right side None where it is no one's."""
    numbers = left.operation.reads
    names = dict(zip(dict.fromkeys(numbers), LETTERS, strict=False))
    same = {one.right: one.left for one in reads if one.equal and one.selection.whole}
    for n in right.operation.reads:
        weight = right.side.values[n]
        if n not in same and weight.given < 0:
            values = left.side.values
            same[n] = next((m for m in numbers if values[m].key == weight.key), -1)
    others = [names.get(same.get(n, -1)) for n in right.operation.reads]
    return [names.get(n) for n in numbers], others


def _leaves(tree: Terms, names: Sequence[str | None]) -> list[str | None]:
    if isinstance(tree, int):
        return [names[tree]]
    return [name for one in tree for name in _leaves(one, names)]


def _said(tree: Terms, names: Sequence[str | None]) -> str:
    """Returns the sum in words; the two sides of one addition have no order."""
    if isinstance(tree, int):
        return str(names[tree])
    both = sorted((_said(one, names) for one in tree), key=lambda one: (-len(one), one))
    return " + ".join(f"({one})" if len(one) > 1 else one for one in both)


def _added(tree: Terms, reads: Sequence[np.ndarray]) -> np.ndarray:
    if isinstance(tree, int):
        return reads[tree]
    with np.errstate(all="ignore"):
        return np.asarray(_added(tree[0], reads) + _added(tree[1], reads))

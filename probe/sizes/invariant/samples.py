"""Makes the samples with which a whole program is checked.

Of a whole program the weights are what they are, so no sum can be made to cancel. Instead there are
several samples with numbers that fill their digits: normal ones, some over several binades, some
that are each followed by themselves with the sign turned, at several scales around that of the
numbers that the program was called with. A program may hide what happens inside of it: behind a
softmax whose inputs are large, or nearly alike, nothing shows. So candidates are drawn, and those
are taken whose answers show most where their inputs are moved by one unit in the last place.

Integers (tokens, pixels, masks) and floating-point inputs of few different values are the caller's
own, in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats, operands, ulp
from probe.case.errors import Foreign, InputError, ProbeError, foreign, line_of
from probe.sizes.invariant.keeper import Keeper, NotInvariant
from probe.sizes.invariant.operations import spread_numbers
from probe.sizes.invariant.programs import HOW as AXES
from probe.sizes.invariant.programs import ProgramOutput

# Samples of a program: few where an answer has many numbers, more where it has a few.
FEW, MANY = 5, 31

CANDIDATES = 4  # times as many are drawn
SCALES = (1.0, 2.0**4, 2.0**-4, 2.0**8)

ENOUGH = 160  # numbers in all answers together
# Samples of a quick program, and the numbers in all their answers: a size may round differently in
# one of several hundred numbers, and a function in one of a million.
MOST, PLENTY = 1024, 1 << 22

# Values of a floating-point input that is a mask or a code rather than a quantity.
DISTINCT = 16
KEPT = 4096  # values of a recipe


def sample_recipe(rows: np.ndarray, dtype: str) -> dict[str, Any]:
    """What samples of an input are made from; ``rows``: container array, a sample a row."""
    if dtype not in floats.FORMATS:
        return {"values": rows.reshape(-1)[:KEPT].tolist()}
    values = floats.widen(rows, dtype).astype(np.float64).reshape(-1)
    if 2 <= len(np.unique(values[:KEPT])) <= DISTINCT:  # one value: a state of zeros
        return {"values": values[:KEPT].tolist()}
    finite = values[np.isfinite(values)]
    size = float(np.sqrt(np.mean(finite**2))) if finite.size else 1.0
    scale = 2.0 ** round(math.log2(size)) if size else 1.0
    return {"scale": scale, "positive": bool((finite >= 0).all())}


def drawn_samples(
    recipe: dict[str, Any], shape: tuple[int, ...], dtype: str, numbers: Sequence[int], at: int
) -> np.ndarray:
    """Samples (len(numbers), *shape) as a container array; ``at``: of the input among others."""
    size = math.prod(shape)
    if "values" in recipe:
        values = np.array(recipe["values"])
        values = np.resize(values, size) if values.size else np.zeros(size)
        # another order of the values for each sample but the first
        orders = (operands.hashes(n, "x", at, (size,)) if n else np.arange(size) for n in numbers)
        drawn = np.stack([values[np.argsort(order, kind="stable")] for order in orders])
    else:
        drawn = np.stack([_numbers_of_sample(number, at, size) for number in numbers])
        drawn *= recipe["scale"]
        drawn = np.abs(drawn) if recipe["positive"] else drawn
    rounded = floats.round_to(drawn, dtype) if dtype in floats.FORMATS else drawn.astype(dtype)
    return rounded.reshape(len(numbers), *shape)


def _numbers_of_sample(sample: int, at: int, size: int) -> np.ndarray:
    """Numbers of one sample, of the kinds and scales that the module names, in turn."""
    seed, kind = 1_000 * (at + 1) + sample, sample % 3
    scale = SCALES[sample // 3 % len(SCALES)]
    if not kind:
        return operands.normal(seed, "x", (size,)) * scale
    numbers = spread_numbers(seed, "x", (size,), 8 if kind == 1 else 4)
    if kind == 2:
        numbers[1::2] = -numbers[: size // 2 * 2 : 2]
    return numbers * scale


# By what a sample is multiplied that stands beside others, to show whether they read it.
LARGE, SMALL = 2.0**12, 2.0**-12


def altered(
    samples: np.ndarray, sample: np.ndarray, dtype: str, name: str, fixed: bool = False
) -> np.ndarray:
    """A sample made from another: container arrays.

    ``samples``: all samples of the call. ``name``: ``large``, ``small`` or ``turned`` (of opposite
    sign where there are both), each with its numbers in the opposite order, or ``nan``. Of tokens,
    masks and codes those of the call, elsewhere; ``fixed``: they stay as they are.
    """
    if not sample.size:
        return sample
    wide = floats.widen(samples, dtype) if dtype in floats.FORMATS else samples
    distinct = len(np.unique(wide.reshape(-1)[:KEPT]))
    if dtype not in floats.FORMATS or 1 < distinct <= DISTINCT < wide.size:
        if fixed:
            return sample
        flat = samples.reshape(-1)
        if name in ("large", "small"):
            order = np.argsort(wide.reshape(-1), kind="stable")
            return np.full_like(sample, flat[order[-1 if name == "large" else 0]])
        start = 1 if name == "turned" else flat.size // 2
        return np.resize(np.roll(flat, start), sample.shape)
    if name == "nan":
        return floats.round_to(np.full(sample.shape, np.nan), dtype)
    values = floats.widen(sample, dtype).astype(np.float64).reshape(-1)[::-1].reshape(sample.shape)
    values = np.where(np.isfinite(values) & (values != 0), values, 1.0)
    sign = 1.0 if (values >= 0).all() else -1.0
    scale = {"large": LARGE, "small": SMALL, "turned": 1.0}[name]
    with np.errstate(over="ignore"):  # beyond a narrow format: infinite, as good as any
        return floats.round_to(sign * scale * values, dtype)


def all_whole(rows: np.ndarray, dtype: str) -> bool:
    """Whether all numbers are whole or infinite, as in masks and tokens."""
    values = floats.widen(rows, dtype) if dtype in floats.FORMATS else rows
    return bool(np.all((values == np.rint(values)) | np.isinf(values)))


def nudged(rows: np.ndarray, dtype: str) -> np.ndarray:
    """The same with every finite number other than zero moved by one unit in the last place.

    Up and down in turn: a program that normalises would not see them all grow.
    """
    if dtype not in floats.FORMATS:
        return rows
    bits = floats.to_bits(rows, dtype).copy()
    moved = floats.is_finite(rows, dtype) & (floats.widen(rows, dtype) != 0)
    up = (np.arange(bits.size) % 2 == 0).reshape(bits.shape)
    unit = np.array(1, bits.dtype)
    bits[moved & up] += unit
    bits[moved & ~up] -= unit
    return floats.from_bits(bits, dtype)


def output_of(number: int, here: Any, size: int, there: Any, other: int) -> ProgramOutput:
    """Where an output carries samples, by its shapes at two sizes. InputError: nowhere."""
    (shape, dtype), (other_shape, _) = here, there
    if len(shape) == len(other_shape):
        for axis, (n, m) in enumerate(zip(shape, other_shape, strict=True)):
            if n % size == 0 and m % other == 0 and n // size == m // other and n:
                apart = [a for a in range(len(shape)) if shape[a] != other_shape[a]]
                if apart == [axis]:
                    return ProgramOutput(axis, n // size, dtype)
    said = f"{list(shape)} for {size} samples, {list(other_shape)} for {other}"
    raise InputError(
        "model",
        f"output {number} has shape {said}",
        "no axis of it has an entry for each sample",
        AXES,
    )


# Asks whether samples have nothing to do with each other, and which arguments carry them.
#
# Operations in their classes keep the bits of every sample, and still a model may mix samples: by a
# maximum over the batch, a sort, a loop that ends when all numbers are small. None of these rounds,
# so no class shows it. And where arguments are a dictionary, or some have no batch, nothing says
# which axis is that of samples. So a model is run a few times more where arguments of a kind are
# first met: a sample alone, and beside others that are large, small, and NaN. Its result has to
# have the same bits each time. An operation that is first met there has the batch in its shape.
#
# This is a test and no proof: a branch that only other numbers take is not seen.


# A container array and the name of its format; of integers and truth values NumPy's name.
Value = tuple[np.ndarray, str]

# By argument: the axis of samples; None: it carries none.
Axes = tuple[int | None, ...]

Run = Callable[[Sequence[Value]], list[Value]]

GUESSES = 12  # ways to read the arguments that are tried
VARY = "two runs of the same sample have different bits"
MIXED, UNREAD = "samples that read each other", "samples among the arguments"
HOW = (
    "samples are taken to lie along the first axis: if they don't, name it, batched=1 or (0, None)"
)


# Three samples of one call, by the names of ``EndedCall.sample``: a sample of the user, and one of
# opposite sign, at each place, in each company.
FULL = (
    ("own", "large", "large"),
    ("small", "own", "small"),
    ("nan", "nan", "own"),
    ("large", "turned", "large"),
    ("turned", "small", "small"),
)

# For further shapes of a kind that was asked about fully.
BRIEF = (("large", "own", "small"),)


class Company:
    """What is known of one model's arguments.

    ``named``: reads their axes from a call, where a user names them. ``how``: what is taken of
    them, as a sentence for users.
    """

    def __init__(
        self, keeper: Keeper, named: Callable[[Any], Axes] | None = None, how: str = HOW
    ) -> None:
        self.keeper, self.named, self.how = keeper, named, how
        self._axes: dict[Any, Axes] = {}
        self._asked: set[Any] = set()
        self._full: set[Any] = set()

    def begin(self, kind: Any, shapes: Sequence[tuple[int, ...]], called: Any = None) -> None:
        """A call starts. ``kind``: all that arguments have in common but their sizes; None: they
        are not known. InputError: axes that are named are not those of samples."""
        if self.named is not None and called is not None:
            named = self._axes[kind] = self.named(called)
            if _sample_count(shapes, named) is None and not any(0 in shape for shape in shapes):
                said = ", ".join(str(list(shape)) for shape in shapes)
                why = f"these are not axes of one number of samples of arguments {said}"
                raise InputError("batched", named, why, "name those of samples, or None")
        axes = self._axes.get(kind)
        count = None if axes is None else _sample_count(shapes, axes)
        if axes is None or count is None:
            self.keeper.calls.begin(None, 0)
        else:
            self.keeper.calls.begin((kind, _other_sizes(shapes, axes)), count)

    def ask(self, kind: Any, call: EndedCall, numbers: Hashable = None) -> None:
        """Asks about a call that has ended. NotInvariant: ``strict``, and something isn't kept.

        ``numbers``: among the arguments; calls of a kind are briefly asked about again with others.
        """
        shapes = call.shapes
        if not any(shapes) or any(0 in shape for shape in shapes):
            return
        if self.keeper.report.left:  # it is known already that not all bits are kept
            # as the arguments mostly are: what is left is named once for all batches
            self._axes.setdefault(kind, next(guesses(shapes, sample_counts(shapes)[0])))
            self._end(kind, shapes)
            return
        axes = self._axes.get(kind)
        if axes is not None and _sample_count(shapes, axes) is not None and kind in self._full:
            asked_before = (kind, _other_sizes(shapes, axes), numbers) in self._asked
            reading = self._tried(call, axes, () if asked_before else BRIEF)
            if not reading.why and not reading.left:
                self._keep(kind, axes, shapes, numbers)
                return
        axes, reading = self._read(axes or (), call)
        by_kind = {
            which or operation: (operation, why, which) for operation, why, which in reading.left
        }
        for operation, why, which in by_kind.values():  # bits that differ are these operations'
            self.keeper.leave(operation, f"{why}; {self.how}", which)
        if reading.why and not reading.left:
            self.keeper.leave(MIXED if reading.ran else UNREAD, reading.why)
        if not reading.why:
            self._keep(kind, axes, shapes, numbers)

    def _read(self, axes: Axes, call: EndedCall) -> tuple[Axes, SampleReading]:
        """Which arguments carry samples, and whether these keep their bits."""
        if self.named is not None:
            return axes, self._tried(call, axes, FULL)
        first: tuple[Axes, SampleReading] | None = None
        for size in sample_counts(call.shapes):
            axes, reading = (), SampleReading("", False, False, [])
            for axes in guesses(call.shapes, size):
                reading = self._tried(call, axes, BRIEF if first else FULL)
                if reading.ran:
                    break
            if first is None:
                first = axes, reading
                if reading.left or (reading.why and reading.ran):
                    break
            elif reading.along and (reading.left or not reading.why):
                both = f"{sample_counts(call.shapes)[0]} and {size} entries"
                why = f"arguments have {both}, and either may be the samples; {self.how}"
                return axes, SampleReading(why, False, False, [])
        assert first is not None
        return first

    def _keep(
        self, kind: Any, axes: Axes, shapes: Sequence[tuple[int, ...]], numbers: Hashable
    ) -> None:
        self._axes[kind] = axes
        self._full.add(kind)
        self._asked.add((kind, _other_sizes(shapes, axes), numbers))
        self._end(kind, shapes)

    def _end(self, kind: Any, shapes: Sequence[tuple[int, ...]]) -> None:
        self.begin(kind, shapes)
        self.keeper.calls.end()

    def _tried(
        self, call: EndedCall, axes: Axes, companies: Sequence[Sequence[str]]
    ) -> SampleReading:
        with self.keeper.calls.trying() as left:
            reading = call.refuted(axes, companies)
        why = f"{reading.why}; {self.how}" if reading.why else ""
        return reading._replace(why=why, left=left)


class SampleReading(NamedTuple):
    """What came of a way to read the arguments. ``why``: samples don't keep their bits; or empty.

    ``ran``: the model takes single samples. ``along``: a result has an axis of samples. ``left``:
    the arguments of ``Keeper.leave``, of operations whose shape has the batch.
    """

    why: str
    ran: bool
    along: bool
    left: list[Any]


def sample_counts(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """How many samples there may be: sizes of first axes, that of the first argument first.

    One is the last of them: arguments that all samples share often have such an axis.
    """
    sizes = dict.fromkeys(shape[0] for shape in shapes if shape)
    return sorted(sizes, key=lambda size: size == 1)


def guesses(shapes: Sequence[tuple[int, ...]], size: int) -> Iterator[Axes]:
    """Which arguments carry that many samples: all that have the size; then fewer of them.

    Fewer are asked where the model refuses to take single entries of all: a square mask may have
    the size of the batch by chance.
    """
    fitting = [at for at, shape in enumerate(shapes) if shape and shape[0] == size]
    fewer = [[at for at in fitting if at != out] for out in fitting[1:]] if len(fitting) > 2 else []
    ways = [fitting, *fewer, fitting[:1]]
    for carrying in ways[: 1 if len(fitting) == 1 else GUESSES]:
        yield tuple(0 if at in carrying else None for at in range(len(shapes)))


class EndedCall(NamedTuple):
    """A call of a model, whose samples are put into other company.

    ``run``: the model in the mode, of other values in place of its ``inputs``.
    """

    inputs: Sequence[Value]
    answer: Sequence[Value]
    run: Run

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [value.shape for value, _ in self.inputs]

    def refuted(self, axes: Axes, companies: Sequence[Sequence[str]]) -> SampleReading:
        """Whether samples along these axes keep their bits in all company that is tried.

        Without ``companies`` the last sample of the call alone is asked.
        """

        def reading(why: str, ran: bool = True) -> SampleReading:
            return SampleReading(why, ran, along, [])

        along, count = False, _sample_count(self.shapes, axes)
        assert count
        try:
            alone = {"last": foreign(self.run, self.sample(axes, "last"))}
            if companies:
                last = count == 1
                own = alone["last"] if last else foreign(self.run, self.sample(axes, "own"))
                alone |= {"own": own, "turned": foreign(self.run, self.sample(axes, "turned"))}
        except NotInvariant:
            raise
        except (Foreign, ProbeError) as error:
            said = line_of(error.__cause__ or error, 120)
            return reading(f"one sample alone does not run ({said})", False)
        ran = False
        for company in (None, *companies):
            together = self.answer if company is None else self.answer_of(axes, company)
            if together is None:
                continue
            size, names = count, {0: "own", count - 1: "last"} if count > 1 else {}
            if company is not None:
                ran, size, names = True, len(company), dict(enumerate(company))
            both = zip(alone["last"], together, strict=False)
            along |= any(single.shape != many.shape for (single, _), (many, _) in both)
            for place, name in names.items():
                if name in alone and (why := _differ(alone[name], together, size, place)):
                    again = self.run(self.sample(axes, name))
                    return reading(VARY if any(map(_numbers_apart, again, alone[name])) else why)
        if companies and not ran:
            return reading("it does not run on three samples made from those of the call", False)
        return reading("")

    def answer_of(self, axes: Axes, company: Sequence[str]) -> list[Value] | None:
        """The answer of a company; None where the model refuses these values.

        Integers may be places in a table or lengths, so if others are refused those of the user
        stay.
        """
        for fixed in (False, True):
            drawn = [self.sample(axes, name, fixed) for name in company]
            joined = [
                (
                    value if axis is None else np.concatenate([each[n][0] for each in drawn], axis),
                    dtype,
                )
                for n, ((value, dtype), axis) in enumerate(zip(self.inputs, axes, strict=True))
            ]
            try:
                return foreign(self.run, joined)
            except NotInvariant:
                raise
            except (Foreign, ProbeError):
                continue
        return None

    def sample(self, axes: Axes, name: str, fixed: bool = False) -> list[Value]:
        """One sample: the first or last of the call, or what is made from the first.

        ``fixed``: integers and codes stay as they are.
        """
        sample = []
        for (value, dtype), axis in zip(self.inputs, axes, strict=True):
            if axis is not None:
                part = np.take(value, [-1 if name == "last" else 0], axis)
                if name not in ("own", "last"):
                    part = altered(value, part, dtype, name, fixed)
                value = part
            sample.append((value, dtype))
        return sample


def _differ(alone: Sequence[Value], together: Sequence[Value], count: int, place: int) -> str:
    """Why the sample at a place of ``count`` has not the result that it has alone."""
    if len(alone) != len(together):
        return f"{len(alone)} results of one sample, {len(together)} of {count}"
    for number, ((single, kind), (many, dtype)) in enumerate(zip(alone, together, strict=True)):
        row = many  # of one shape: of no sample, the same for all
        if single.shape != many.shape:
            try:
                output = output_of(number, (many.shape, dtype), count, (single.shape, kind), 1)
            except InputError:
                return (
                    f"result {number} has shape {list(single.shape)} for one sample, "
                    f"{list(many.shape)} for {count}: no axis with an entry for each sample"
                )
            row = many[output.index(place, 1)]
        if changed := _numbers_apart((single, kind), (row, dtype)):
            return (
                f"{changed:,} of {single.size:,} numbers of a sample's result {number} change with "
                "its neighbours"
            )
    return ""


def _numbers_apart(left: Value, right: Value) -> int:
    """How many numbers differ; zeros of either sign are alike here."""
    (a, name), (b, _) = left, right
    if a.shape != b.shape or a.dtype != b.dtype:
        return max(a.size, 1)
    if name in floats.FORMATS:
        return int(ulp.bits_apart(np.ascontiguousarray(a), np.ascontiguousarray(b), name).sum())
    return int((a != b).sum())


def _sample_count(shapes: Sequence[tuple[int, ...]], axes: Axes) -> int | None:
    """The number of samples; None: the axes are not those of these shapes."""
    if len(shapes) != len(axes):
        return None
    both = [(shape, at) for shape, at in zip(shapes, axes, strict=True) if at is not None]
    if any(len(shape) <= at for shape, at in both):
        return None
    sizes = {shape[at] for shape, at in both}
    return sizes.pop() if len(sizes) == 1 and 0 not in sizes else None


def _other_sizes(shapes: Sequence[tuple[int, ...]], axes: Axes) -> tuple[Any, ...]:
    return tuple(
        tuple(shape) if at is None else (*shape[:at], None, *shape[at + 1 :])
        for shape, at in zip(shapes, axes, strict=True)
    )

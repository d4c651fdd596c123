"""What an operation is, asked by running it, and the operands that show how it adds.

No table says what an operation computes: does it round, does it work place by place, does a sample
read another. It is run on a few irregular numbers. Where each result is one of them (or a
constant), nothing is rounded: the operation moves or chooses elements. A move takes its elements
from the same places whatever stands there, so it gives the same under any renaming of the numbers;
a choice (the largest, a sorted order) does not, and which zero it chooses of two with unlike signs
may depend on the place. Where other numbers in some places change results in these places alone, it
is a function of the elements there. Only which functions IEEE 754 defines can't be asked: a few
names say so.

What is neither exact nor a function by place is asked with telling operands, which are the same for
all time. A sum hides its rounding errors unless it ends small. Here it ends at nothing: half of the
products are the other half with the sign turned, at shuffled places, over 16 binades. The exact sum
is zero, so what comes out *is* the rounding errors, and another order or rounding makes others:
also where the library adds in a wider format and rounds at the end, which no other operands show. A
bias is too small to hide them, or (``of_bias``) takes away one product that has no partner: what is
left is then how that product was rounded, and where the bias was added.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats, operands, ulp
from probe.case.case import Case
from probe.order.semantics import COMPLEX_OPEN, COMPLEX_SETTLED, MORE, canonical, row_of
from probe.sizes.invariant.classes import PIECES, mark_of_answers

Tensors = tuple[Any, ...]

# Pieces of what is computed row by row, in one pass over memory.
ROWS = (1 << 14, 1 << 12)

# Sets of telling operands; each is held at every place of the call.
SETS = 3

BINADES = 12
# Of about the size of what the products leave, so that neither hides the other.
OF_BIAS = 2.0**-16


def spread_numbers(
    seed: int, tensor: str, shape: tuple[int, ...], binades: int = BINADES
) -> np.ndarray:
    """Numbers of either sign over some binades, float64: hashes of seed and coordinates."""
    drawn = operands.hashes(seed, tensor, 0, shape)
    fraction = 1.0 + (drawn >> np.uint64(12)).astype(np.float64) * 2.0**-52
    powers = np.ldexp(1.0, np.arange(binades) - binades // 2)
    power = (drawn >> np.uint64(8)) % np.uint64(binades)
    power += (drawn & np.uint64(1)) * np.uint64(binades)
    scaled: np.ndarray = fraction * np.concatenate([powers, -powers])[power.astype(np.intp)]
    return scaled


def rounded_to(values: np.ndarray, dtype: str) -> np.ndarray:
    """Float64 values rounded once to a format, as float64."""
    return floats.widen(floats.round_to(values, dtype), dtype)


def cancelling_products(
    seed: int,
    leaves: int,
    filters: int,
    dtype: str,
    of_bias: bool = False,
    constant: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (leaves,), w (leaves, filters) and b (filters,) whose products cancel.

    They are float64 values of ``dtype``. ``constant``: the value of all x; None: they are spread.
    """
    x = spread_numbers(seed, "x", (leaves,), 4) if constant is None else np.full(leaves, constant)
    x, w = rounded_to(x, dtype), rounded_to(spread_numbers(seed, "w", (leaves, filters)), dtype)
    shuffled = np.argsort(operands.hashes(seed, "x", 1, (leaves,)), kind="stable").tolist()
    b = rounded_to(OF_BIAS * spread_numbers(seed, "b", (filters,), 4), dtype)
    if of_bias or leaves == 1:
        alone = shuffled.pop()
        b = -rounded_to(x[alone] * w[alone], dtype)
    if len(shuffled) % 2 and len(shuffled) > 1:  # three that cancel: once, once, and twice less
        first, second, twice = (shuffled.pop() for _ in range(3))
        x[second] = x[twice] = x[first]
        w[second], w[twice] = w[first], -2 * w[first]
    if len(shuffled) == 1:
        w[shuffled] = 0
    half = len(shuffled) // 2
    left, right = shuffled[:half], shuffled[half : 2 * half]
    x[right], w[right] = x[left], -w[left]
    return x, w, b


# Whose products are not exact in any format.
CONSTANT = 1.37


def cancelling_along_axes(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that add up to zero along every axis, as each has its opposite there at a shuffled
    place; the last of an odd number is zero. float64."""
    places, signs = [], np.ones(shape)
    for axis, size in enumerate(shape):
        drawn = operands.hashes(seed, "w", 1 + axis, (size,))
        order = np.argsort(drawn, kind="stable")
        pair, sign = np.zeros(size, int), np.ones(size)
        pair[order], sign[order[1::2]] = np.arange(size) // 2, -1
        if size % 2 and size > 1:
            sign[order[-1]] = 0
        places.append(pair)
        signs *= sign.reshape(-1, *(1,) * (len(shape) - axis - 1))
    pairs = spread_numbers(seed, "w", tuple((size + 1) // 2 for size in shape))
    return np.asarray(signs * pairs[np.ix_(*places)])


def convolved_operands(
    number: int, shape: tuple[int, ...], leaves: int, filters: int, dtype: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (shape), w (leaves, filters) and b (filters,) of a set of operands of a convolution.

    One value everywhere keeps the products of a window paired; the last set is of others.
    """
    _, w, b = cancelling_products(number, leaves, filters, dtype, number == 1, CONSTANT)
    x = spread_numbers(number, "x", shape, 4) if number == 2 else np.full(shape, CONSTANT)
    return x, w, b


class IndependentRows(ABC):
    """An operation whose samples, along axis 0, have nothing to do with each other.

    ``key`` says all that decides its bits but the number of samples.
    """

    pieces: Sequence[int] = PIECES

    def __init__(self, key: str) -> None:
        self.key = key
        self._kept: dict[int, tuple[Tensors, Tensors]] = {}  # telling operands by their numbers

    @abstractmethod
    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        """The library's call."""

    @abstractmethod
    def mark(self, size: int) -> str:
        """The digest of the bits of telling operands; empty where places differ."""

    @abstractmethod
    def ready(self, size: int) -> Callable[[], Any]:
        """One call at this size, to be timed: its operands are there."""

    @property
    def kept(self) -> int:
        """How many numbers of telling operands there are in memory."""
        operands = (operand for both in self._kept.values() for side in both for operand in side)
        return sum(math.prod(operand.shape) for operand in operands if operand is not None)

    def forget(self) -> None:
        """Gives back the memory of the operands."""
        self._kept.clear()

    def case(self) -> Case | None:
        """The case of one sample, whose order can be asked; None where there is none."""
        return None


class Tools(NamedTuple):
    """What an operation needs of its library. ``formats``: names by dtype.

    ``tensor(values, dtype)`` rounds float64 values; ``repeated(sample, size)`` holds the same
    sample at every place; ``taken(x, at)`` gives the elements of a flat tensor at whole numbers;
    ``container(y)`` gives bits and the name of their format.
    """

    formats: Mapping[Any, str]
    tensor: Callable[[np.ndarray, Any], Any]
    repeated: Callable[[Tensors, int], Tensors]
    taken: Callable[[Any, np.ndarray], Any]
    container: Callable[[Any], tuple[np.ndarray, str]]


class TestedRows(IndependentRows):
    """Rows that are asked with sets of telling operands."""

    sets = SETS
    tools: Tools

    @abstractmethod
    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        """One sample of each input of a set of operands, and the parameters."""

    def telling(self, number: int) -> tuple[Tensors, Tensors]:
        """What ``drawn`` does, which is kept: to draw it may take longer than to ask."""
        if number not in self._kept:
            self._kept[number] = self.drawn(number)
        return self._kept[number]

    def answer(self, number: int, size: int) -> Any:
        """What comes out of a set of operands that is held at every place."""
        sample, parameters = self.telling(number)
        return self.call(self.tools.repeated(sample, size), parameters)

    def mark(self, size: int) -> str:
        answers = (self.answer(number, size) for number in range(self.sets))
        return mark_of_answers(map(self.tools.container, answers))

    def ready(self, size: int) -> Callable[[], Any]:
        sample, parameters = self.telling(0)
        samples = self.tools.repeated(sample, size)
        return lambda: self.call(samples, parameters)


class IndependentSamples(TestedRows):
    """Any function of samples along axis 0, whose shapes and options are in its name.

    ``enough``: numbers in the answers of all sets, of which there are so many at the ``most``.
    ``shapes``: of one sample of each of its inputs; ``held``: what else it is called with, such as
    ``positive`` numbers: a variance.
    """

    enough, most = 256, 24

    def __init__(
        self,
        name: str,
        shapes: Sequence[tuple[int, ...]],
        dtype: Any,
        function: Callable[..., Any],
        held: Tensors = (),
        pieces: Sequence[int] = (),
        positive: bool = False,
    ) -> None:
        said = ", ".join("x".join(map(str, shape)) or "1" for shape in shapes)
        super().__init__(f"{name} of {said} {self.tools.formats[dtype]}")
        self.shapes, self.dtype, self.function = shapes, dtype, function
        self.held, self.pieces, self.positive = held, pieces, positive

    def drawn(self, number: int) -> tuple[Tensors, Tensors]:
        """Spread numbers; in the second set each is followed by itself with the sign turned. In
        each third all sums along axes cancel: of products, of which one operand is one value
        everywhere, or of the only operand's numbers."""
        samples, held = [], list(self.held)
        for at, shape in enumerate(self.shapes):
            size, binades = (math.prod(shape),), 4 if number else 2
            values = spread_numbers(SETS * at + number, "x", size, binades)
            if number == 1 and not at:
                values[1::2] = -values[: len(values) // 2 * 2 : 2]
            samples.append(self.tools.tensor(values.reshape(shape), self.dtype))
        if number % 3 == 2:
            cancelling = [
                cancelling_along_axes(SETS * at + number, shape)
                for at, shape in enumerate(self.shapes)
            ]
            weights = [at for at, w in enumerate(held) if getattr(w, "dtype", 0) == self.dtype]
            if len(samples) > 1 or weights:
                cancelling[0] = np.full(self.shapes[0], CONSTANT)
            samples = [self.tools.tensor(values, self.dtype) for values in cancelling]
            for at in weights if not self.positive else ():
                values = cancelling_along_axes(7 + at + number, tuple(held[at].shape))
                held[at] = self.tools.tensor(values, self.dtype)
        return tuple(samples), tuple(held)

    def mark(self, size: int) -> str:
        """As of ``TestedRows``; of an answer of few numbers, which may be alike by luck in another
        order, with more sets."""
        if not self._kept:
            numbers = max(1, self.tools.container(self.answer(0, 1))[0].size)
            self.sets = max(self.sets, min(self.most, -(-self.enough // numbers)))
        return super().mark(size)

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        return self.function(*samples, *parameters)


# Elements of a function by place from which fewer turns of the values are asked.
LARGE = 1 << 20
# Values that are held at places, a number that no vector's width divides; places of one value in an
# array whose middle is not a tail.
TOLD, LONG = 61, 4096

# Zeros and subnormal numbers of either sign, in pairs.
ODD = 4
SMALL = {"float16": 1e-7, "bfloat16": 1e-40, "float32": 1e-40, "float64": 1e-310}


class ByPlace(IndependentRows):
    """A function of one element, such as tanh: its bits may change with the place in a vector.

    It is called on flat tensors, ``inputs`` of them. The values that are held at places are zeros
    and subnormal numbers, which even a maximum treats differently in a vector's tail, and those at
    which one element alone and a long tensor give different bits, if there are any.
    """

    tools: Tools
    tried: int
    """Half as many values are tried to find those that a body and a tail see differently."""

    def __init__(
        self, name: str, dtype: Any, function: Callable[..., Any], inputs: int = 1
    ) -> None:
        super().__init__(f"{name} by place {self.tools.formats[dtype]}")
        self.dtype, self.function, self.inputs = dtype, function, inputs
        self._held: Tensors = ()  # the values, and their answers in the middle of a long tensor
        self._answers, self._name = np.empty(0), self.tools.formats[dtype]

    def call(self, samples: Tensors, parameters: Tensors) -> Any:
        return self.function(*samples)

    def shown(self, values: Tensors, first: bool) -> Any:
        """The function of values at places; ``first``: of the first that are shown."""
        return self.function(*values)

    def values(self) -> np.ndarray:
        """``TOLD`` values of each input as float64, (inputs, TOLD): after the odd ones those that
        one element alone sees differently, each beside the one that it was seen with."""
        name, tools = self.tools.formats[self.dtype], self.tools
        drawn = rounded_to(np.abs(spread_numbers(5, "x", (self.tried,), 8)), name)
        both = np.concatenate([drawn, drawn * np.where(np.arange(self.tried) % 2, 1.0, -1.0)])
        drawn = np.stack([both, np.roll(both, 1)][: self.inputs])
        inputs = tuple(tools.tensor(row, self.dtype) for row in drawn)
        at = np.arange(len(both))
        single = (tuple(tools.taken(x, at[n : n + 1]) for x in inputs) for n in at)
        alone = np.concatenate([tools.container(self.function(*xs))[0] for xs in single])
        long, _ = tools.container(self.function(*inputs))
        apart = np.flatnonzero(ulp.bits_apart(long, alone, name, zeros="differ"))
        inside = apart[apart < len(both) - len(both) % 1024]  # behind it a long tensor has a tail
        chosen = inside if len(inside) else np.arange(self.tried, self.tried + TOLD)
        odd = np.array([0.0, -0.0, SMALL[name], -SMALL[name]])
        every = np.stack([odd, odd[[1, 0, 3, 2]]][: self.inputs])
        return np.concatenate([every, drawn[:, np.resize(chosen, TOLD - ODD)]], 1)

    def _values_at(self, numbers: np.ndarray) -> Tensors:
        return tuple(self.tools.taken(values, numbers) for values in self._held)

    def mark(self, size: int) -> str:
        """As of ``IndependentRows``: a long tensor gives each value the bits of its middle."""
        if not self._held:
            self._held = tuple(self.tools.tensor(row, self.dtype) for row in self.values())
            numbers = np.arange(TOLD * LONG) // LONG
            y, _ = self.tools.container(self.function(*self._values_at(numbers)))
            self._answers = y.reshape(TOLD, LONG)[:, LONG // 2].copy()
        large, rest = size >= LARGE, np.arange(TOLD - ODD)
        turns = [ODD + np.roll(rest, -17 * at) for at in range(1 if large else SETS)]
        turns += [np.roll(rest[:ODD], -at) for at in range(1, 3 if large else ODD + 1)]
        for number, turn in enumerate(turns):
            turned = np.resize(turn, size)
            y, _ = self.tools.container(self.shown(self._values_at(turned), not number))
            wanted = self._answers[turned]
            if not ulp.equal(y, wanted, self._name) or ulp.signed_zeros(y, wanted, self._name):
                return ""
        return mark_of_answers([(self._answers[None], self._name)])

    def ready(self, size: int) -> Callable[[], Any]:
        half = self.tools.tensor(np.full(size, 0.5), self.dtype)
        return lambda: self.function(*(half,) * self.inputs)


Arrays = Sequence[np.ndarray]


class OperationKind(Enum):
    """``EITHER``: exact but for the sign of zeros. ``PLACE``: a function of the elements at one
    place, whose bits may depend on it. ``SOME``: none of these is known."""

    EXACT, EITHER, PLACE, SOME = range(4)


@dataclass(frozen=True)
class AskedCall:
    """One call of an operation that can be run again.

    ``name``: the library's, such as ``add`` or ``BiasAdd``; ``reads``: container arrays; ``dtypes``
    and ``gives``: formats of these and of its results; ``run``: results for operands; ``options``:
    names of arguments that aren't arrays nor as by default; ``approximate``: it isn't rounded as
    IEEE 754 asks, though the function is one that it defines.
    """

    name: str
    run: Callable[[Arrays], list[np.ndarray]]
    reads: Arrays
    dtypes: Sequence[str]
    gives: Sequence[str]
    options: frozenset[str] = frozenset()
    approximate: bool = False

    @property
    def complex(self) -> bool:
        return any("complex" in dtype for dtype in (*self.dtypes, *self.gives))

    def floating(self) -> list[int]:
        """The operands that hold floating-point or complex numbers."""
        return [n for n, dtype in enumerate(self.dtypes) if is_floating(dtype)]


def is_floating(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype


# Numbers of either sign with all digits in use, from 2**-6 to 2**6: so few that a computed result
# is hardly ever one of them, also in a format of eight digits.
COUNT = 61

# How often the places of the numbers are drawn anew.
DRAWS = 3


def operation_kind(call: AskedCall) -> OperationKind:
    """What a call of an operation is. It is run some ten times; what the library raises passes."""
    named = named_kind(call)
    if named is not None:
        return named
    if not any(map(is_floating, (*call.dtypes, *call.gives))):
        return OperationKind.EXACT  # of integers and truth values alone
    chosen = _chosen_elements(call)
    if chosen is not None:
        return chosen
    return OperationKind.PLACE if _place_by_place(call) else OperationKind.SOME


def named_kind(call: AskedCall) -> OperationKind | None:
    """What IEEE 754 defines, or orders, by its name; None: it is no such function."""
    word = canonical(spelled(call.name))
    row = row_of(word)
    further = call.options & MORE and not row.sloped
    if row.rounds is None or call.approximate or further:
        return None
    if call.complex and word not in COMPLEX_SETTLED and (row.rounds or word in COMPLEX_OPEN):
        return None
    return OperationKind.EITHER if row.either else OperationKind.EXACT


def spelled(name: str) -> str:
    """A library's name as the table of functions spells it: ``AddV2`` as ``add``."""
    plain = re.sub(r"V\d$", "", name)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower()
    return {"bias_add": "add", "select": "where", "_to_copy": "cast"}.get(words, words)


def _numbers(dtype: str) -> np.ndarray:
    """The irregular numbers of a format, as a container array."""
    drawn = np.random.default_rng(COUNT)
    # also in eight digits no two are the same
    digits = 1 + (np.arange(COUNT) * 37 % 127 + drawn.uniform(0, 0.4, COUNT)) / 128
    values = digits * np.exp2(np.arange(COUNT) % 12 - 6)
    values *= np.where(np.arange(COUNT) % 2, 1, -1)
    if "complex" in dtype:
        return (values + 1j * drawn.permutation(values)).astype(dtype)
    return floats.to_container(floats.round_to(values, dtype), dtype)


def _chosen_elements(call: AskedCall) -> OperationKind | None:
    """``EXACT``: it moves elements; ``EITHER``: it chooses among them; None: it computes."""
    drawn, floating = np.random.default_rng(0), call.floating()
    if not floating:
        return _made_numbers(call)
    if len({call.dtypes[n] for n in floating}) > 1:
        return None
    numbers = _numbers(call.dtypes[floating[0]])
    places = [drawn.integers(0, COUNT, call.reads[n].shape) for n in floating]
    moves, first = True, None
    for turn in range(DRAWS + 1):
        # the first run again under another naming, each time
        naming = drawn.permutation(COUNT) if turn else np.arange(COUNT)
        results = call.run(_with(call.reads, floating, [numbers[naming[at]] for at in places]))
        found = []
        for result, dtype in zip(results, call.gives, strict=True):
            if is_floating(dtype) and dtype != call.dtypes[floating[0]]:
                return None
            found.append(_numbers_in(result, numbers, naming))
        if first is None:
            first = list(zip(found, results, strict=True))
            continue
        for (was, constant), index, result in zip(first, found, results, strict=True):
            if result.shape != constant.shape:  # how many there are follows from the numbers
                return None
            if was is None or index is None:  # integers, as of a largest one's place
                moves &= np.array_equal(constant, result)
                continue
            # also a zero may be chosen, as by a rectifier
            chosen = (index >= 0) | (result == constant) | _is_zero(result)
            if not (chosen & ((was >= 0) | (constant == result) | _is_zero(constant))).all():
                return None
            if not (index >= 0).any():  # the same whatever is read, as a softmax of one element
                return None
            moves &= bool((index == was).all())
    return OperationKind.EXACT if moves else OperationKind.EITHER


def _numbers_in(result: np.ndarray, numbers: np.ndarray, naming: np.ndarray) -> np.ndarray | None:
    """Of each element, which of the numbers it is, by its number before the naming; -1: none.
    None: the result has other numbers, such as places."""
    if result.dtype != numbers.dtype:
        return None
    order = np.argsort(numbers, kind="stable")
    at = np.clip(np.searchsorted(numbers, result, sorter=order), 0, COUNT - 1)
    index = order[at]
    back = np.argsort(naming)
    return np.where(numbers[index] == result, back[index], -1)


def _is_zero(result: np.ndarray) -> np.ndarray:
    """Which elements of a container array are zeros of either sign: bool."""
    return (result << 1 == 0) if result.dtype == np.uint16 else result == 0


def _made_numbers(call: AskedCall) -> OperationKind | None:
    """Of an operation that reads no floating-point numbers and gives some: whether these are whole
    or all the same, so that nothing was rounded."""
    if any(array.size for array in call.reads):
        return None
    for result, dtype in zip(call.run(call.reads), call.gives, strict=True):
        if is_floating(dtype) and result.size and "complex" not in dtype:
            values = floats.widen(result, dtype)
            same = (values == values.flat[0]).all()
            if not (same or (np.isfinite(values).all() and (values == np.rint(values)).all())):
                return None
    return OperationKind.EXACT


def _place_by_place(call: AskedCall) -> bool:
    """Whether every result depends on the elements at its own place alone; operands broadcast."""
    floating = call.floating()
    varied = floating or list(range(len(call.reads)))
    if len(call.gives) != 1 or not varied:
        return False
    drawn = np.random.default_rng(1)
    before = _with(call.reads, varied, [_other(call, n, drawn) for n in varied])
    (plain,) = call.run(before)
    try:
        if np.broadcast_shapes(*(call.reads[n].shape for n in varied)) != plain.shape:
            return False
    except ValueError:
        return False
    for share in (0.5, 0.5, 0.1, 0.1):
        masks = [drawn.random(call.reads[n].shape) < share for n in varied]
        mixed = [
            np.where(mask, _other(call, n, drawn), before[n])
            for mask, n in zip(masks, varied, strict=True)
        ]
        (result,) = call.run(_with(call.reads, varied, mixed))
        touched = np.zeros(plain.shape, bool)
        for mask in masks:
            touched |= mask
        if (unlike(plain, result) & ~touched).any():
            return False
    return True


def samples_apart(call: AskedCall, carries: Sequence[bool]) -> bool:
    """Whether no sample's results read another sample.

    Samples lie along the first axis of every result, and of the operands that ``carry`` them. The
    others' contents are exchanged, and each sample has to keep its bits.
    """
    count = next(len(x) for x, along in zip(call.reads, carries, strict=True) if along)
    varied = [n for n, along in enumerate(carries) if along]
    drawn = np.random.default_rng(2)
    plain = call.run(call.reads)
    if any(result.shape[:1] != (count,) for result in plain):
        return False
    for sample in range(count):
        kept = np.arange(count) == sample
        for _ in range(DRAWS):
            exchanged = []
            for n in varied:
                mask = kept.reshape(-1, *(1,) * (call.reads[n].ndim - 1))
                exchanged.append(np.where(mask, call.reads[n], _other(call, n, drawn)))
            results = call.run(_with(call.reads, varied, exchanged))
            for before, after in zip(plain, results, strict=True):
                if after.shape != before.shape or unlike(before[sample], after[sample]).any():
                    return False
    return True


def _other(call: AskedCall, number: int, drawn: np.random.Generator) -> np.ndarray:
    """Other content for an operand: the irregular numbers; of integers those that it has."""
    array, dtype = call.reads[number], call.dtypes[number]
    if not array.size:
        return array
    numbers = _numbers(dtype) if is_floating(dtype) else np.unique(array)
    return drawn.choice(numbers, array.shape)


def _with(reads: Arrays, varied: Sequence[int], contents: Arrays) -> list[np.ndarray]:
    changed = list(reads)
    for n, content in zip(varied, contents, strict=True):
        changed[n] = np.ascontiguousarray(content, reads[n].dtype).reshape(reads[n].shape)
    return changed


def unlike(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Which elements of two arrays differ (bool); two NaN are equal, and so are zeros."""
    return (before != after) & ~((before != before) & (after != after))


# Functions that IEEE 754 defines and PyTorch (a sixth of roots one ulp off), TensorFlow (Eigen's
# packets) or LiteRT compute by a way of their own.
NOT_ROUNDED_ONCE = frozenset(("sqrt", "Sqrt", "SQRT", "Reciprocal", "Inv"))

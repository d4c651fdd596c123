"""What is computed element by element: functions, arithmetic, choices; and known numbers.

The table of functions comes first: one name, and what follows from it, for all libraries. What
libraries call differently has one name here, so that none of what is said of a function (that it
keeps zero, how often it rounds, that its operands commute) is said twice, and drifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, pi, prod
from typing import Any, NamedTuple

import numpy as np

from probe.semantics import mixing
from probe.semantics.contract import Exact, LeavesZeros, Meaning, Shapes
from probe.semantics.labels import ZERO, Labels, joint, of_content, tag, with_words


class Function(NamedTuple):
    """What is known of a function of the elements at one place.

    ``keeps_zero``: f(0) = 0, of one operand. ``rounds``: how often its result is rounded where IEEE
    754 leaves no choice: 0 (it moves, selects or compares), 1 (rounded correctly once); None: the
    library chooses how it computes it. ``commutes``: its two operands may change places.
    ``zero``: what an exact zero does to two operands: it ``adds`` nothing, it ``clears`` the
    result, or nothing is known (empty). ``either``: of zeros of unlike sign it may give either, as
    it compares: which one a library takes may depend on the place in a vector. ``sloped``: its
    ``alpha`` is the factor that it rounds by, where that of a sum is a further product.
    """

    keeps_zero: bool = False
    rounds: int | None = None
    commutes: bool = False
    zero: str = ""
    either: bool = False
    sloped: bool = False


_FLAGS: dict[str, dict[str, Any]] = {
    "keeps": {"keeps_zero": True},
    "moves": {"rounds": 0},
    "once": {"rounds": 1},
    "twice": {"rounds": 2},
    "either": {"either": True},
    "sloped": {"sloped": True},
    "commutes": {"commutes": True},
    "adds": {"zero": "adds"},
    "clears": {"zero": "clears"},
    "nothing": {},
}

# What is known of functions: their names, each with what libraries call it. NumPy's name where it
# has one, else the field's.
_TABLE = """
keeps moves: absolute=abs negative=neg sign=sgn floor ceil trunc=fix round=rint=round_nearest_even
    round_away relu relu6 real imag conj=conjugate
moves: clip=hardtanh threshold where select_n bits sign_bit complex less=lt
    less_equal=le=less_or_equal greater=gt greater_equal=ge=greater_or_equal not=logical_not
    bitwise_not=invert left_shift=bitwise_left_shift=shift_left
    right_shift=bitwise_right_shift=shift_right_arithmetic isnan=is_nan isinf=is_inf
    isfinite=is_finite argmax argmin any all sort top_k=topk nonzero invertpermutation
    adaptive_max_pool2d adaptive_max_pool3d nextafter=next_after population_count
moves either: clamp max min
moves either commutes: maximum=clamp_min minimum=clamp_max fmax fmin
moves commutes: equal=eq not_equal=ne and=logical_and or=logical_or xor=logical_xor bitwise_and
    bitwise_or bitwise_xor
once commutes adds: add
once: subtract=sub multiply_no_nan=mul_no_nan prelu=_prelu_kernel reciprocal=inv
    truncate_divide=truncate_div
once commutes clears: multiply=mul
once clears: divide=div=true_divide=real_div divide_no_nan=div_no_nan
keeps once: sqrt square cast
keeps once sloped: leaky_relu
twice commutes: squared_difference
keeps: log1p expm1 sin tan asin=arcsin atan=arctan sinh tanh asinh=arcsinh atanh=arctanh cbrt erf
    erfinv=erf_inv softsign gelu gelu_tanh=gelu_approximation silu=swish scaled_silu elu selu celu
    mish hard_swish=hardswish bessel_i1e=i1e=special_i1e
nothing: power=pow floor_divide=floor_div floor_mod=remainder=mod truncate_mod=rem=fmod
    atan2=arctan2 exp exp2 log log2 cos acos=arccos cosh acosh=arccosh rsqrt erfc lgamma digamma
    sigmoid=logistic log_sigmoid=log_sigmoid_forward softplus=bnll hard_sigmoid=hardsigmoid
    bessel_i0e=i0e=special_i0e igamma=gammainc igammac=gammaincc zeta=special_zeta
    det=_linalg_det=determinant=matrixdeterminant inverse=linalg_inv_ex=matrixinverse
    cholesky=linalg_cholesky_ex cumlogsumexp=logcumsumexp=cumulativelogsumexp
"""


def _parse() -> tuple[dict[str, Function], dict[str, str]]:
    functions: dict[str, Function] = {}
    names: dict[str, str] = {}
    for line in _TABLE.replace("\n    ", " ").strip().splitlines():
        flags, _, every = line.partition(": ")
        fields: dict[str, Any] = {}
        for flag in flags.split():
            fields |= _FLAGS[flag]
        for name, *spelled in (words.split("=") for words in every.split()):
            assert name not in functions, f"{name} stands twice"
            functions[name] = Function(**fields)
            for word in (name, *spelled):
                assert names.setdefault(word, name) == name, f"{word} stands for two functions"
    return functions, names


FUNCTIONS, _NAMES = _parse()
# A function without a row: nothing is known of it.
UNKNOWN = Function()


def canonical(word: str) -> str:
    """Returns the one name of a function that a library calls ``word``; ``word`` if unknown."""
    return _NAMES.get(word, word)


def row_of(word: str) -> Function:
    """Returns what is known of a function by its one name."""
    return FUNCTIONS.get(word, UNKNOWN)


# Functions that round each half of a complex number once. A product adds two products, in an order
# and with a fusion that the library chooses.
COMPLEX_SETTLED = {"add", "subtract", "cast"}

# Functions that round nothing of a real number, and take the root of a sum of a complex one.
COMPLEX_OPEN = {"absolute", "sign"}

# Numbers with which a function rounds once more: the factor of a sum, the quotient of a floor, the
# power of ten of a rounding.
MORE = {"alpha", "rounding_mode", "decimals"}

# Numbers of the hard sigmoid that hard_swish is made of.
SIXTH = (("alpha", float(np.float32(1 / 6))), ("beta", 0.5))

# Functions that some libraries have and others compute in steps: the word, numbers and operands of
# each step, where 0 is what the function reads, 1, 2, ... are what the steps give, and 1.0 is a
# number.
COMPOSITES: dict[tuple[str, Any], tuple[tuple[str, Any, tuple[int | float, ...]], ...]] = {
    ("square", ()): (("multiply", (), (0, 0)),),
    ("rsqrt", ()): (("sqrt", (), (0,)), ("reciprocal", (), (1,))),
    ("silu", ()): (("sigmoid", (), (0,)), ("multiply", (), (0, 1))),
    ("softplus", ()): (("exp", (), (0,)), ("add", (), (1, 1.0)), ("log", (), (2,))),
    ("log_sigmoid", ()): (("sigmoid", (), (0,)), ("log", (), (1,))),
    ("log2", ()): (("log", (), (0,)), ("log", (), (2.0,)), ("divide", (), (1, 2))),
    ("isnan", ()): (("not_equal", (), (0, 0)),),
    ("isinf", ()): (("absolute", (), (0,)), ("equal", (), (1, inf))),
    ("isfinite", ()): (("subtract", (), (0, 0)), ("equal", (), (1, 0.0))),
    ("gelu", ()): (
        *(("multiply", (), (0, 0.5)), ("negative", (), (0,)), ("multiply", (), (2, 0.5**0.5))),
        *(("erfc", (), (3,)), ("multiply", (), (1, 4))),
    ),
    ("gelu_tanh", ()): (
        *(("multiply", (), (0, 0.5)), ("power", (), (0, 3.0))),
        *(("multiply", (), (2, 0.044715)), ("add", (), (0, 3))),
        *(("multiply", (), (4, (2 / pi) ** 0.5)), ("tanh", (), (5,)), ("add", (), (6, 1.0))),
        ("multiply", (), (1, 7)),
    ),
    ("mish", ()): (("softplus", (), (0,)), ("tanh", (), (1,)), ("multiply", (), (0, 2))),
    ("softsign", ()): (("absolute", (), (0,)), ("add", (), (1, 1.0)), ("divide", (), (0, 2))),
    ("hard_sigmoid", SIXTH): (
        *(("add", (), (0, 3.0)), ("relu6", (), (1,)), ("divide", (), (2, 6.0))),
    ),
    ("hard_swish", ()): (("hard_sigmoid", SIXTH, (0,)), ("multiply", (), (0, 1))),
}


@dataclass(frozen=True)
class Each(Meaning):
    """Every output reads the elements at its own place; inputs broadcast as NumPy's do.

    ``zero``: what an exact zero does: ``adds`` nothing (addition), ``clears`` (multiplication; in
    a division the first input alone), ``stays`` (a function of one input with f(0) = 0), or
    nothing of the kind. ``numbers``: arguments that are not arrays. ``reads``: which inputs count;
    None: all. ``along``: the axis along which inputs with one axis lie, the first aside; None: the
    last. ``beside``: numbers among the operands that are no inputs: (place, value, dtype).
    ``approximate``: the library does not round as IEEE 754 asks, though the function is one that it
    defines: a square root by Newton's method.
    """

    word: str = ""
    zero: str = ""
    numbers: tuple[Any, ...] = ()
    reads: tuple[int, ...] | None = None
    along: int | None = None
    beside: tuple[tuple[int, Any, str], ...] = ()
    approximate: bool = False

    @property
    def exact(self) -> bool:
        return self.rounds is not None

    @property
    def rounds(self) -> int | None:
        known = row_of(self.word)
        names = {pair[0] for pair in self.numbers if isinstance(pair, tuple)}
        further = names & MORE and not known.sloped
        return None if self.approximate or further else known.rounds

    @property
    def exact_but_subnormal(self) -> bool:
        """Whether its bits follow from what it reads unless that is subnormal: a choice, which
        rounds nothing, of a library that reads subnormal numbers as zeros in some places."""
        return self.approximate and row_of(self.word).rounds == 0

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        used = list(reads) if self.reads is None else [reads[n] for n in self.reads]
        result = self._result(used, what)
        return [fitted(result, to, n) for n, to in enumerate(shapes)]

    def _result(self, used: list[Labels], what: np.uint64) -> Labels:
        if self.along is not None:
            rank = len(used[0].shape)
            used[1:] = [mixing.lay_along(operand, self.along % rank, rank) for operand in used[1:]]
        for place, value, dtype in self.beside:  # labelled by content, as an array of one number is
            used.insert(place, Labels((), np.asarray(of_number(value, dtype))))
        if (self.word, self.numbers) in COMPOSITES:
            # the labels that a library's result has which computes the steps one by one
            values = list(used)
            for word, numbers, places in COMPOSITES[self.word, self.numbers]:
                operands = [values[n] if isinstance(n, int) else of_float(n) for n in places]
                values.append(applied(word, *operands, numbers=numbers))
            return values[-1]
        if self.word == "multiply" and any(map(_single_one, used)):  # x * 1 is x, bit for bit
            return next((operand for operand in used if not _single_one(operand)), used[0])
        if self.word == "divide" and len(used) == 2 and not self.numbers:
            return divided(used[0], used[1])
        if self.word == "squared_difference" and used[0].shape != used[1].shape:  # of a mean
            used.sort(key=lambda operand: -prod(operand.shape))
            return applied("square", applied("subtract", *used))
        # what is the same both ways round gets one label: libraries write a + b and b + a
        what = with_words(what, self.numbers)
        if row_of(self.word).commutes and len(used) == 2 and not self.numbers:
            if self.zero == "adds" or self.word == "multiply":
                return mixing.associated(used[0], used[1], self.zero == "adds")
            return mixing.pair(used[0], used[1], what)
        shape, arrays, names = mixing.broadcast_labels(used)
        label = joint(what, *arrays)
        # of a quotient the numerator alone: what is divided by zero is no zero
        clearing = len(used) if self.word == "multiply" else self.zero in ("clears", "stays")
        for array in arrays[:clearing]:
            label = np.where(array == ZERO, ZERO, label)
        return Labels(shape, label, mixing.all_known(used), names)


def applied(word: str, *reads: Labels, numbers: tuple[Any, ...] = ()) -> Labels:
    """Returns the labels of a function of elements, as an operation of this word has them."""
    known = row_of(word)
    kind = Vanishes if word == "exp" else Each  # as ``operations.function`` has it
    each = kind(word, known.zero or "stays" * known.keeps_zero, numbers)
    shape = np.broadcast_shapes(*(operand.shape for operand in reads))
    return each.labels(reads, [shape], tag(word))[0]


def of_float(value: float) -> Labels:
    """Returns the labels of a number beside arrays."""
    return Labels((), np.asarray(of_number(value, "float32")))


def divided(dividend: Labels, divisor: Labels) -> Labels:
    """Returns the labels of a / b, which are those of a times the reciprocal of b: by which of both
    a library divides by a root or a sum is a matter of rounding."""
    if _single_one(divisor):
        return dividend
    inverse = joint(with_words(tag("reciprocal"), ()), divisor.array)
    divisor = divisor._replace(array=inverse)
    return divisor if _single_one(dividend) else mixing.associated(dividend, divisor, False)


def of_complex(meaning: Meaning) -> Meaning:
    """Returns what an operation computes, given that its numbers are complex: a product or an
    absolute value has a word of its own then, as it is not rounded once."""
    if not isinstance(meaning, Each) or not meaning.exact:
        return meaning
    moves = row_of(meaning.word).rounds == 0 and meaning.word not in COMPLEX_OPEN
    if moves or meaning.word in COMPLEX_SETTLED:
        return meaning
    return replace(meaning, word=f"complex {meaning.word}", zero="")


def fitted(labels: Labels, to: tuple[int, ...], number: int) -> Labels:
    """Returns the labels of output ``number``, broadcast to its shape."""
    if number:
        further = joint(labels.array, tag(number))
        labels = labels._replace(array=np.where(labels.array == ZERO, ZERO, further))
    if 0 in to:
        return Labels(to, np.zeros(to, np.uint64), labels.known)
    if to == labels.shape:
        return labels
    if prod(to) == prod(labels.shape):
        return mixing.reshape_labels(labels, to)
    wide = mixing.lifted(labels, len(to))
    if len(wide.shape) == len(to) and all(n in (1, m) for n, m in zip(wide.shape, to, strict=True)):
        array = np.broadcast_to(
            wide.array,
            [n if m == k else m for n, m, k in zip(to, wide.array.shape, wide.shape, strict=True)],
        )
        return Labels(to, array, labels.known, wide.names)
    return mixing.of_one(mixing.one_label([labels], tag(number)), to, labels.known)


def of_number(value: Any, dtype: str) -> np.uint64:
    """Returns the label that a number has by its content."""
    if dtype == "bfloat16":
        bits = np.array(value, np.float32).view(np.uint32) >> 16  # of numbers that it has
        return np.uint64(of_content(bits.astype(np.uint16)).array[()])
    return np.uint64(of_content(np.array(value, dtype)).array[()])


ONES = {int(of_number(1, dtype)) for dtype in ("float32", "float16", "bfloat16", "float64")}


def is_one(labels: Labels) -> bool:
    """Whether labels say that all numbers are 1."""
    return bool(labels.array.size) and set(np.unique(labels.array).tolist()) <= ONES


def is_zero(labels: Labels) -> bool:
    """Whether labels say that all numbers are 0."""
    return bool((labels.array == ZERO).all())


def _single_one(labels: Labels) -> bool:
    return labels.array.size == prod(labels.shape) == 1 and is_one(labels)


@dataclass(frozen=True)
class Made(Exact):
    """The same ``value`` everywhere, of ``dtype``; or, with ``places``, numbers that depend on
    their place alone: a range, an identity; then ``value`` says which.
    """

    value: Any = 0
    dtype: str = "float32"
    places: bool = False

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        if self.places:
            return [mixing.of_one(joint(what, tag(self.value, to)), to) for to in shapes]
        label = of_number(self.value, self.dtype)
        return [Labels(to, np.broadcast_to(label, to)) for to in shapes]


TRUE = of_content(np.array(True)).array[()]


@dataclass(frozen=True)
class Chooses(Exact):
    """The second input where the first, a bool, is true, else the third; all broadcast.

    ``reads``: these three by number, -1 for ``value``, a number of ``dtype``.
    """

    reads: tuple[int, int, int] = (0, 1, 2)
    value: Any = 0
    dtype: str = "float32"

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        constant = Labels((), np.asarray(of_number(self.value, self.dtype)))
        every = [reads[n] if n >= 0 else constant for n in self.reads]
        shape, arrays, names = mixing.broadcast_labels(every)
        mask, yes, no = arrays
        either = joint(tag("where"), mask, mixing.visible(yes), mixing.visible(no))
        chosen = np.where(mask == TRUE, yes, np.where(mask == ZERO, no, either))
        return [fitted(Labels(shape, chosen, mixing.all_known(every), names), shapes[0], 0)]


@dataclass(frozen=True)
class Vanishes(Each, LeavesZeros):
    """A function whose exact zeros add nothing later: the exponential of what a mask hides."""

    notices: bool = True

    def labels(
        self,
        reads: Sequence[Labels],
        shapes: Shapes,
        what: np.uint64,
        zeros: np.ndarray | None = None,
    ) -> list[Labels]:
        written = super().labels(reads, shapes, what)
        results = [result._replace(array=result.full()) for result in written]
        if zeros is None:
            return results
        return [result._replace(array=np.where(zeros, ZERO, result.array)) for result in results]


@dataclass(frozen=True)
class Holds(Exact):
    """A value that is known by its content, whatever it was computed from: a mask, positions."""

    content: np.ndarray

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        return [of_content(self.content)]

"""What is computed element by element: the table of functions, one name for all libraries, and how
often each rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from probe.order.semantics.contract import Meaning


class Function(NamedTuple):
    """What is known of a function of the elements at one place.

    ``rounds``: how often its result is rounded where IEEE 754 leaves no choice: 0 (it moves,
    selects or compares), 1 (rounded correctly once); None: the library chooses how it computes it.
    ``either``: of zeros of unlike sign it may give either, as it compares: which one a library
    takes may depend on the place in a vector. ``sloped``: its ``alpha`` is the factor that it
    rounds by, where that of a sum is a further product.
    """

    rounds: int | None = None
    either: bool = False
    sloped: bool = False


_FLAGS: dict[str, dict[str, Any]] = {
    "moves": {"rounds": 0},
    "once": {"rounds": 1},
    "twice": {"rounds": 2},
    "either": {"either": True},
    "sloped": {"sloped": True},
    "nothing": {},
}

# What is known of functions: their names, each with what libraries call it. NumPy's name where it
# has one, else the field's.
_TABLE = """
moves: absolute=abs negative=neg sign=sgn floor ceil trunc=fix round=rint=round_nearest_even
    round_away relu relu6 real imag conj=conjugate
moves: clip=hardtanh threshold where select_n bits sign_bit complex less=lt
    less_equal=le=less_or_equal greater=gt greater_equal=ge=greater_or_equal not=logical_not
    bitwise_not=invert left_shift=bitwise_left_shift=shift_left
    right_shift=bitwise_right_shift=shift_right_arithmetic isnan=is_nan isinf=is_inf
    isfinite=is_finite argmax argmin any all sort top_k=topk nonzero invertpermutation
    adaptive_max_pool2d adaptive_max_pool3d nextafter=next_after population_count
moves either: clamp max min
moves either: maximum=clamp_min minimum=clamp_max fmax fmin
moves: equal=eq not_equal=ne and=logical_and or=logical_or xor=logical_xor bitwise_and
    bitwise_or bitwise_xor
once: add
once: subtract=sub multiply_no_nan=mul_no_nan prelu=_prelu_kernel reciprocal=inv
    truncate_divide=truncate_div
once: multiply=mul
once: divide=div=true_divide=real_div divide_no_nan=div_no_nan
once: sqrt square cast
once sloped: leaky_relu
twice: squared_difference
nothing: log1p expm1 sin tan asin=arcsin atan=arctan sinh tanh asinh=arcsinh atanh=arctanh cbrt erf
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


@dataclass(frozen=True)
class Each(Meaning):
    """Every output reads the elements at its own place; inputs broadcast as NumPy's do.

    ``numbers``: arguments that are not arrays. ``reads``: which inputs count; None: all. ``along``:
    the axis along which inputs with one axis lie, the first aside; None: the last. ``beside``:
    numbers among the operands that are no inputs: (place, value, dtype). ``approximate``: the
    library does not round as IEEE 754 asks, though the function is one that it defines: a square
    root by Newton's method.
    """

    word: str = ""
    numbers: tuple[Any, ...] = ()
    reads: tuple[int, ...] | None = None
    along: int | None = None
    beside: tuple[tuple[int, Any, str], ...] = ()
    approximate: bool = False

    @property
    def exact(self) -> bool:
        known = row_of(self.word)
        names = {pair[0] for pair in self.numbers if isinstance(pair, tuple)}
        further = names & MORE and not known.sloped
        return not (self.approximate or further) and known.rounds is not None


def of_complex(meaning: Meaning) -> Meaning:
    """What an operation computes, given that its numbers are complex: a product or an absolute
    value has a word of its own then, as it is not rounded once."""
    if not isinstance(meaning, Each) or not meaning.exact:
        return meaning
    moves = row_of(meaning.word).rounds == 0 and meaning.word not in COMPLEX_OPEN
    if moves or meaning.word in COMPLEX_SETTLED:
        return meaning
    return replace(meaning, word=f"complex {meaning.word}")

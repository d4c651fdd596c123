"""The table of functions: one name, and what follows from it, for all libraries.

What libraries call differently has one row here, so that none of what is said of a function (that
it keeps zero, how often it rounds, that its operands commute) is said twice, and drifts.
"""

from __future__ import annotations

from typing import Any, NamedTuple


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
}

# name: what it does: what libraries call it. NumPy's name where it has one, else the field's
_TABLE = """
absolute: keeps moves: abs
negative: keeps moves: neg
sign: keeps moves: sgn
floor: keeps moves
ceil: keeps moves
trunc: keeps moves: fix
round: keeps moves: rint round_nearest_even
round_away: keeps moves
relu: keeps moves
relu6: keeps moves
clip: moves: hardtanh
clamp: moves either
threshold: moves
where: moves
select_n: moves
bits: moves
sign_bit: moves
real: keeps moves
imag: keeps moves
conj: keeps moves: conjugate
complex: moves
maximum: moves commutes either: clamp_min
minimum: moves commutes either: clamp_max
fmax: moves commutes either
fmin: moves commutes either
equal: moves commutes: eq
not_equal: moves commutes: ne
less: moves: lt
less_equal: moves: le less_or_equal
greater: moves: gt
greater_equal: moves: ge greater_or_equal
and: moves commutes: logical_and
or: moves commutes: logical_or
xor: moves commutes: logical_xor
not: moves: logical_not
bitwise_and: moves commutes
bitwise_or: moves commutes
bitwise_xor: moves commutes
bitwise_not: moves: invert
left_shift: moves: bitwise_left_shift shift_left
right_shift: moves: bitwise_right_shift shift_right_arithmetic
isnan: moves: is_nan
isinf: moves: is_inf
isfinite: moves: is_finite
max: moves either
min: moves either
argmax: moves
argmin: moves
any: moves
all: moves
sort: moves
top_k: moves: topk
nonzero: moves
invertpermutation: moves
adaptive_max_pool2d: moves
adaptive_max_pool3d: moves

add: once commutes adds
subtract: once: sub
multiply: once commutes clears: mul
divide: once clears: div true_divide real_div
divide_no_nan: once clears: div_no_nan
multiply_no_nan: once: mul_no_nan
sqrt: keeps once
square: keeps once
cast: keeps once
leaky_relu: keeps once sloped
prelu: once: _prelu_kernel
reciprocal: once: inv

power: : pow
squared_difference: commutes twice
floor_divide: : floor_div
truncate_divide: once: truncate_div
floor_mod: : remainder mod
truncate_mod: : rem fmod
atan2: : arctan2
exp:
exp2:
log:
log2:
log1p: keeps
expm1: keeps
sin: keeps
cos:
tan: keeps
asin: keeps: arcsin
acos: : arccos
atan: keeps: arctan
sinh: keeps
cosh:
tanh: keeps
asinh: keeps: arcsinh
acosh: : arccosh
atanh: keeps: arctanh
cbrt: keeps
rsqrt:
erf: keeps
erfc:
erfinv: keeps: erf_inv
lgamma:
digamma:
sigmoid: : logistic
log_sigmoid: : log_sigmoid_forward
softplus: : bnll
softsign: keeps
gelu: keeps
gelu_tanh: keeps: gelu_approximation
silu: keeps: swish
scaled_silu: keeps
elu: keeps
selu: keeps
celu: keeps
mish: keeps
hard_swish: keeps: hardswish
hard_sigmoid: : hardsigmoid
bessel_i0e: : i0e special_i0e
bessel_i1e: keeps: i1e special_i1e
igamma: : gammainc
igammac: : gammaincc
zeta: : special_zeta
nextafter: moves: next_after
population_count: moves

det: : _linalg_det determinant matrixdeterminant
inverse: : linalg_inv_ex matrixinverse
cholesky: : linalg_cholesky_ex
cumlogsumexp: : logcumsumexp cumulativelogsumexp
"""


def _parse() -> tuple[dict[str, Function], dict[str, str]]:
    functions: dict[str, Function] = {}
    names: dict[str, str] = {}
    for line in filter(None, _TABLE.splitlines()):
        name, flags, spelled = (*(part.strip() for part in line.split(":")), "")[:3]
        given: dict[str, Any] = {}
        for flag in flags.split():
            given.update(_FLAGS[flag])
        functions[name] = Function(**given)
        for word in (name, *spelled.split()):
            assert names.setdefault(word, name) == name, f"{word} stands for two functions"
    return functions, names


FUNCTIONS, _NAMES = _parse()
# A function without a row: nothing is known of it.
UNKNOWN = Function()


def canonical(word: str) -> str:
    """Returns the one name of a function that a library calls ``word``; ``word`` if unknown."""
    return _NAMES.get(word, word)


def all_words(name: str) -> list[str]:
    """Returns all words for a function, its one name first."""
    return [word for word, of_word in _NAMES.items() if of_word == name]


def row_of(word: str) -> Function:
    """Returns what is known of a function by its one name."""
    return FUNCTIONS.get(word, UNKNOWN)

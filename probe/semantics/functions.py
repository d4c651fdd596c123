"""The table of functions: one name, and what follows from it, for all libraries.

What libraries call differently has one name here, so that none of what is said of a function (that
it keeps zero, how often it rounds, that its operands commute) is said twice, and drifts. What GELU,
SiLU and the like compute, as steps of others, is ``elementwise.COMPOSITES``.
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
        given: dict[str, Any] = {}
        for flag in flags.split():
            given |= _FLAGS[flag]
        for name, *spelled in (one.split("=") for one in every.split()):
            assert name not in functions, f"{name} stands twice"
            functions[name] = Function(**given)
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

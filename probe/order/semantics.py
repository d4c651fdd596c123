"""What an operation computes: what a meaning says, several of them in one, and one call of a
library's operation, as the rows of all libraries' tables are asked what it computes.

It is what the engine of sums must be told of an operation to rebuild it: products, windows,
reductions, norms, and functions of elements. What only moves elements is said to, and no more;
which outputs of two runs must agree is found by running (:mod:`probe.diff`). What is computed
element by element has a table of functions, one name for all libraries, and how often each rounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf
from typing import Any, NamedTuple, TypeVar

import numpy as np

Shapes = Sequence[tuple[int, ...]]


class Meaning:
    """What one operation computes.

    ``word``: the name of what is computed where several libraries or operations have it (``add``,
    ``relu``, ``softmax``); empty: the library's own name of the operation.
    """

    word: str = ""

    @property
    def exact(self) -> bool:
        """Whether the bits of its results are settled by those of its inputs alone, everywhere: as
        where elements are moved, and in the arithmetic of IEEE 754 element by element."""
        return False

    @property
    def sums(self) -> bool:
        """Whether each result is a sum of what is read, or of products, perhaps with more behind:
        then the order of additions says how it is computed."""
        return False


@dataclass(frozen=True)
class Moves(Meaning):
    """Elements are moved, copied, chosen or counted: none is rounded. Which go where, the runs
    say."""

    @property
    def exact(self) -> bool:
        return True


@dataclass(frozen=True)
class Same(Moves):
    """Every output is the first input, bit for bit, in other memory: ``clone``."""


@dataclass(frozen=True)
class Reshapes(Moves):
    """The same elements in the same order (row by row), in another shape: view, flatten,
    squeeze."""


@dataclass(frozen=True)
class Turns(Moves):
    """Axes in another order: output axis k is input axis ``axes[k]``."""

    axes: tuple[int, ...]


@dataclass(frozen=True)
class Passes(Moves):
    """Output n is input ``numbers[n]``."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Unknown(Meaning):
    """It is unknown what it computes, because ``why``."""

    why: str = ""


@dataclass(frozen=True)
class Several(Meaning):
    """Results that have nothing to do with each other, as the gradients of what an operation reads:
    a recorder has an operation for each, by these names."""

    each: tuple[tuple[str, Meaning], ...]


@dataclass(frozen=True)
class Step:
    """One step of ``Steps``: ``reads``: numbers of what it reads; ``shape``: of what it gives.

    ``more``: shapes of further results.
    """

    meaning: Meaning
    reads: tuple[int, ...]
    shape: tuple[int, ...]
    more: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Steps(Meaning):
    """Several steps in one operation: a convolution and its activation, a sum and its norm.

    Numbers of values: first what the operation reads, then what each step gives. ``gives``: the
    numbers of the operation's outputs; empty: the last step's alone.
    """

    steps: tuple[Step, ...]
    gives: tuple[int, ...] = ()

    @property
    def sums(self) -> bool:
        return bool(self.steps) and self.steps[0].meaning.sums


# calls, and the rows of tables


class Operand(NamedTuple):
    """An array that a call is given. ``at``: its place among the arrays that the recorded operation
    reads, -1 where it isn't one of them; ``content``: gives its array, None: no row asks for it."""

    at: int
    shape: tuple[int, ...]
    dtype: str
    content: Callable[[], np.ndarray] | None = None


@dataclass(frozen=True)
class Call:
    """An operation with everything that decides what it computes, as a table is asked about it.

    ``op``, ``domain``, ``version``: its name in the library, and of which set and release of
    operations. ``attributes``: arguments that are no arrays, by the names of the library's schema.
    ``reads``: its operands in the schema's order, None where one is left out. ``gives``,
    ``dtypes``: shapes and dtypes of its results.
    """

    op: str
    attributes: Mapping[str, Any]
    reads: Sequence[Operand | None]
    gives: Sequence[tuple[int, ...]]
    dtypes: Sequence[str] = ()
    domain: str = ""
    version: int = 0

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    @property
    def count(self) -> int:
        """How many arrays the recorded operation reads, one that stands twice twice."""
        return sum(operand is not None and operand.at >= 0 for operand in self.reads)

    def has(self, slot: int) -> bool:
        return slot < len(self.reads) and self.reads[slot] is not None

    def operand(self, slot: int) -> Operand:
        """The operand in a slot. IndexError where there is none."""
        operand = self.reads[slot]
        if operand is None:
            raise IndexError(slot)
        return operand

    def at(self, slot: int) -> int:
        return self.operand(slot).at

    def places(self, *slots: int) -> tuple[int, ...]:
        """The places of those of these operands that are given."""
        return tuple(self.at(slot) for slot in slots if self.has(slot))

    def shape(self, slot: int = 0) -> tuple[int, ...]:
        return self.operand(slot).shape

    def rank(self, slot: int = 0) -> int:
        return len(self.operand(slot).shape)

    def dtype(self, slot: int = 0) -> str:
        return self.operand(slot).dtype

    def value(self, slot: int) -> np.ndarray:
        content = self.operand(slot).content
        assert content is not None
        return content()

    def integers(self, slot: int) -> list[int]:
        flat: list[int] = self.value(slot).reshape(-1).tolist()
        return flat


def left_out(slots: Sequence[Any]) -> list[int]:
    """Which slots are empty ahead of one that isn't."""
    last = max((n for n, held in enumerate(slots) if held is not None), default=0)
    return [n for n, held in enumerate(slots[:last]) if held is None]


# A row of a library's table: what a call of this operation computes.
Row = Callable[..., Meaning]

C = TypeVar("C", bound=Call)
R = TypeVar("R", bound=Row)


class OperationTable(dict[str, Row]):
    """A library's table: a row for each operation, by its name."""

    def row(self, names: str | Iterable[str]) -> Callable[[R], R]:
        """A decorator: a function of a call is the row of these operations, as of ``rows_for``."""

        def put(row: R) -> R:
            self.update(rows_for(names, row))
            return row

        return put


def by_table(table: Mapping[str, Callable[[C], Meaning]], call: C) -> Meaning:
    """What a call computes by a library's table, or by a name that all libraries have;
    ``Unknown`` with the reason where nothing is described, or what is described isn't this."""
    row = table.get(call.op)
    if row is None:
        return by_name(call.op) or Unknown(f"{call.op} is not described in probe")
    try:
        return row(call)
    # a row indexes attributes and axes as they are in all calls that it describes: what has others
    # isn't described
    except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError):
        return Unknown(f"{call.op} has attributes that are not described in probe")


def word_list(words: str) -> dict[str, str]:
    """Names of operations with what they compute, from ``"ABS POW:power"``: without a colon
    it is the name itself in small letters."""
    pairs = (text.partition(":") for text in words.split())
    return {name: word or name.lower() for name, _, word in pairs}


def rows_for(names: str | Iterable[str], row: Row) -> dict[str, Row]:
    """A row for each of these operations, of the call; of names with words, as of
    ``word_list``, of the call and the word."""
    if isinstance(names, Mapping):
        return {name: lambda call, word=word: row(call, word) for name, word in names.items()}
    return dict.fromkeys(names.split() if isinstance(names, str) else names, row)


def then(call: Call, first: Meaning, *behind: Meaning | tuple[Meaning, int]) -> Meaning:
    """An operation and what it does behind, one step after the other, as in an epilogue: a
    function of what is there, or one with an operand in the slot that is named beside it."""
    if not behind or isinstance(first, Unknown):
        return first
    steps = [*getattr(first, "steps", ())]
    steps = steps or [Step(first, tuple(range(call.count)), call.gives[0])]
    for item in behind:
        meaning, *slots = item if isinstance(item, tuple) else (item,)
        last = call.count + len(steps) - 1
        steps.append(Step(meaning, (last, *map(call.at, slots)), call.gives[0]))
    return Steps(tuple(steps))


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


# What is known of functions: their names, each with what libraries call it. NumPy's name where it
# has one, else the field's.
_TABLE = {
    Function(rounds=0): """
absolute=abs=complex_abs=abs_val negative=neg sign=sgn floor ceil trunc=fix
round=rint=round_nearest_even round_away relu relu6 real imag conj=conjugate
clip=hardtanh threshold bits sign_bit complex less=lt less_equal=le=less_or_equal greater=gt
greater_equal=ge=greater_or_equal not=logical_not bitwise_not=invert
left_shift=bitwise_left_shift=shift_left=bit_shift
right_shift=bitwise_right_shift=shift_right_arithmetic shift_right_logical isnan=is_nan
isinf=is_inf isfinite=is_finite nextafter=next_after population_count where select_n argmax
argmin any all sort top_k=topk nonzero invertpermutation adaptive_max_pool2d adaptive_max_pool3d
equal=eq not_equal=ne and=logical_and or=logical_or xor=logical_xor bitwise_and bitwise_or
bitwise_xor
""",
    Function(rounds=0, either=True): """
clamp=clip_by_value max min maximum=clamp_min minimum=clamp_max fmax fmin
""",
    Function(rounds=1): """
add=add_any subtract=sub multiply_no_nan=mul_no_nan prelu=_prelu_kernel reciprocal=inv
truncate_divide=truncate_div multiply=mul divide=div=true_divide=real_div
divide_no_nan=div_no_nan sqrt square cast
""",
    Function(rounds=1, sloped=True): "leaky_relu",
    Function(rounds=2): "squared_difference",
    Function(): """
log1p expm1 sin tan asin=arcsin atan=arctan sinh tanh asinh=arcsinh atanh=arctanh cbrt erf
erfinv=erf_inv softsign gelu gelu_tanh=gelu_approximation silu=swish scaled_silu elu selu celu
mish hard_swish=hardswish bessel_i1e=i1e=special_i1e
power=pow floor_divide=floor_div floor_mod=remainder=mod truncate_mod=rem=fmod
atan2=arctan2 exp exp2 log log2 cos acos=arccos cosh acosh=arccosh rsqrt erfc lgamma digamma
sigmoid=logistic log_sigmoid=log_sigmoid_forward softplus=bnll hard_sigmoid=hardsigmoid
bessel_i0e=i0e=special_i0e igamma=gammainc igammac=gammaincc zeta=special_zeta
polygamma betainc=regularized_incomplete_beta ndtri xlogy xlog1py angle fake_quant quantize
dequantize quick_gelu thresholded_relu shrink relu_grad relu6_grad elu_grad selu_grad
sigmoid_grad tanh_grad softplus_grad softsign_grad sqrt_grad rsqrt_grad
""",
}

# Operations that move, copy, choose or count elements, or make numbers of none, by the names that
# libraries have for them. What pools or scatters stands in a library's own table: there the name
# doesn't say whether it adds.
_MOVES = """
    check_numerics ensure_shape guarantee_const prevent_gradient
    append arg_max arg_min all any arange batch_to_space batch_to_space_nd block_diag broadcast_args
    broadcast_in_dim broadcast_to cat center_crop_pad channel_shuffle chunk_cat compress concat
    concatenate concatenation constant_of_shape constant_pad_nd count_nonzero delete depth_to_space
    diag diag_embed diag_part diagonal diagonal_scatter dstack dynamic_slice dynamic_stitch
    dynamic_update_slice embedding embedding_lookup expand extract_image_patches
    extract_volume_patches eye eye_like fill flip fliplr flipud full full_like gather
    gather_elements gather_nd getitem hstack im2col index index_fill index_select
    invert_permutation iota list_diff masked_fill masked_scatter masked_select matrix_band_part
    matrix_diag matrix_diag_part matrix_set_diag mirror_pad narrow native_channel_shuffle new_full
    new_ones new_zeros non_max_suppression nonzero one_hot ones ones_like pack
    pack_padded_sequence pad padding parallel_dynamic_stitch pixel_shuffle pixel_unshuffle rank
    reduce_all reduce_and reduce_any reduce_max reduce_min reduce_or reflection_pad1d
    reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d resize_nearest_neighbor resource_gather rev reverse reverse_sequence roll
    rot90 scalar_tensor select select_n select_scatter setitem shape shuffle_channel size slice
    slice_scatter sort argsort space_to_batch space_to_batch_nd space_to_depth split split_v
    split_with_sizes squeeze stack strided_slice take take_along_axis tensor_scatter_update
    tensor_strided_slice_update tile top_k tril tril_indices trilu triu triu_indices unbind unfold
    unique unpack unsafe_index unsafe_split unsafe_split_with_sizes unstack
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest_exact1d
    upsample_nearest_exact2d upsample_nearest_exact3d view_as_complex view_as_real vstack where
    as_strided as_strided_scatter zero zeros zeros_like
"""


FUNCTIONS: dict[str, Function] = {}
_NAMES: dict[str, str] = {}
for _function, _names in _TABLE.items():
    for _words in _names.split():
        _name = _words.partition("=")[0]
        FUNCTIONS[_name] = _function
        _NAMES.update(dict.fromkeys(_words.split("="), _name))


def _spelling(name: str) -> str:
    """``LogicalNot``, ``LOGICAL_NOT`` and ``logical_not`` in the same letters, of any version."""
    return re.sub(r"^stablehlo|v[23]$", "", name.lower().replace("_", ""))


MOVES = {_spelling(name) for name in _MOVES.split()}
_WORDS = {_spelling(word): name for word, name in _NAMES.items()}


def moved(op: str) -> Moves | None:
    """What an operation of this name computes, if it moves elements in every library."""
    return Moves() if _spelling(op) in MOVES else None


def by_name(op: str) -> Meaning | None:
    """What an operation of this name computes in every library; None: the name doesn't say it."""
    word = _WORDS.get(_spelling(op))
    return moved(op) or (Each(word) if word else None)


def canonical(word: str) -> str:
    """The one name of a function that a library calls ``word``; ``word`` if unknown."""
    return _NAMES.get(word, word)


def row_of(word: str) -> Function:
    return FUNCTIONS.get(word, Function())


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

    ``numbers``: arguments that are not arrays. ``along``: the axis along which inputs with one axis
    lie, the first aside; None: the last. ``approximate``: the library does not round as IEEE 754
    asks, though the function is one that it defines: a square root by Newton's method.
    """

    word: str = ""
    numbers: tuple[Any, ...] = ()
    along: int | None = None
    approximate: bool = False

    @property
    def exact(self) -> bool:
        function = row_of(self.word)
        names = {pair[0] for pair in self.numbers if isinstance(pair, tuple)}
        further = names & MORE and not function.sloped
        return not (self.approximate or further) and function.rounds is not None


def of_complex(meaning: Meaning) -> Meaning:
    """What an operation computes, given that its numbers are complex: a product or an absolute
    value has a word of its own then, as it is not rounded once."""
    if not isinstance(meaning, Each) or not meaning.exact:
        return meaning
    moves = row_of(meaning.word).rounds == 0 and meaning.word not in COMPLEX_OPEN
    if moves or meaning.word in COMPLEX_SETTLED:
        return meaning
    return replace(meaning, word=f"complex {meaning.word}")


@dataclass(frozen=True)
class Contracts(Meaning):
    """A sum of products of two inputs, in einsum's words: ``...k,kn->...n``; perhaps a bias behind.

    ``reads``: the two inputs; ``bias``: the number of an input that is added, or None. ``weights``:
    which of ``reads`` holds weights, if one does: 1 in a dense layer.
    """

    equation: str
    reads: tuple[int, int] = (0, 1)
    bias: int | None = None

    @property
    def sums(self) -> bool:
        return True

    def spelled(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[str, str], str]:
        """The letters of both inputs and of the output, with the dots written out as capitals."""
        ins, out = self.equation.split("->")
        texts = ins.split(",")
        ends = [*zip(texts, (left, right), strict=True)]
        dots = [("..." in text) * (len(shape) - len(text) + 3) for text, shape in ends]
        names = "ABCDEFGHIJKLMNOP"[: max(dots)]
        first, second = (
            text.replace("...", names[len(names) - n :])
            for text, n in zip(texts, dots, strict=True)
        )
        return (first, second), out.replace("...", names)


@dataclass(frozen=True)
class Reduces(Meaning):
    """A sum, a mean, a norm or a maximum over ``axes``."""

    axes: tuple[int, ...]
    word: str = ""

    @property
    def sums(self) -> bool:
        return self.word in ("sum", "mean")


@dataclass(frozen=True)
class Normalises(Meaning):
    """Every output reads all elements along ``axes``, and is at the place of one: softmax,
    LayerNorm."""

    axes: tuple[int, ...]
    word: str = ""


class Frame(NamedTuple):
    """Sizes of a sliding window, one number a spatial axis; as in ``Windows``."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    transposed: bool = False


@dataclass(frozen=True)
class Windows(Meaning):
    """A convolution or a pool: each output reads a window of its input, channel by channel or all.

    ``spatial``: the input's spatial axes; ``channels``: its channel axis. ``kernel``, ``stride``,
    ``dilation``: one a spatial axis; ``padding``: (before, after) a spatial axis. ``kind``:
    ``convolution``, ``transposed``, ``max``, ``average`` or ``sum``. ``groups``: of a convolution.
    ``reads``: input, weights and bias by number; a pool has its input alone. ``weights``: the axes
    of the weights in the order (*kernel, in channels, filters). ``counts_padding``: an average
    divides by the whole window at the edges too.
    ``flipped``: of a transposed convolution, the weights' last tap comes first, as in JAX.
    """

    spatial: tuple[int, ...]
    channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    kind: str = "convolution"
    groups: int = 1
    reads: tuple[int, ...] = (0, 1)
    weights: tuple[int, ...] = ()
    counts_padding: bool = False
    flipped: bool = False

    @property
    def sums(self) -> bool:
        return self.kind != "max"

    @property
    def pool(self) -> bool:
        """Whether each channel is computed from its own alone, without weights."""
        return self.kind in ("max", "average", "sum")


# Constructors, with arguments in one form for all libraries: two that mean the same can't say it
# differently, since names, defaults and numbers are settled here.


def function(word: str, along: int | None = None, **numbers: Any) -> Each:
    """A function of the elements at one place, by any of its names.

    ``along``: as of ``Each``. ``numbers``: arguments that are not arrays, by name.
    """
    return Each(canonical(word), tuple(sorted(numbers.items())), along)


def approximate(word: str) -> Each:
    """A function that the library rounds in a way of its own, where IEEE 754 has one."""
    return replace(function(word), approximate=True)


def several(word: str, count: int) -> Meaning:
    """A function of two arrays taken over ``count`` of them: the sum, the largest."""
    if count != 2:
        return Same() if count == 1 else Each(f"{word}_of_{count}")
    return function(word)


def clip(low: float | None, high: float | None) -> Each:
    """A Clip between two numbers; None: no bound. ReLU and ReLU6 are two of them."""
    low, high = (None if bound is None or isinf(bound) else bound for bound in (low, high))
    if (low, high) in ((0.0, None), (0.0, 6.0)):
        return function("relu" if high is None else "relu6")
    return Each("clip", (low, high))


def gelu(approximate: bool = False) -> Each:
    """GELU by erf, or its approximation by tanh."""
    return function("gelu_tanh" if approximate else "gelu")


def power(exponent: float) -> Meaning:
    """A power with a number as its exponent."""
    if exponent in (1, 2):
        return Same() if exponent == 1 else function("square")
    if exponent == -1:  # where it goes through a logarithm it isn't rounded correctly
        return approximate("reciprocal")
    return function("power")


def cast(before: str, after: str) -> Meaning:
    """A conversion between dtypes, by NumPy's names."""
    return Same() if before == after else function("cast")


def bitcast(before: str, after: str, in_place: bool = True) -> Meaning:
    """The bits of a dtype read as another. ``in_place``: of the same size, so that elements stay
    where it is."""
    if not in_place:
        return Unknown("bits of a different size")
    return Same() if before == after else function("bits")


def reduced(word: str, axes: Iterable[int]) -> Reduces:
    return Reduces(tuple(axes), word)


def normalised(word: str, axes: Iterable[int]) -> Normalises:
    """What normalises rows that lie along ``axes``: softmax, LayerNorm."""
    return Normalises(tuple(axes), word)


def batch_norm(axes: int, training: bool, along: int | None = 1) -> Meaning:
    """A batch norm of so many ``axes``, whose channels lie ``along`` one, None: the last.
    ``training``: by means and variances of what it reads; else by those among its operands."""
    if not training:
        return function("batch_norm", along)
    channels = axes - 1 if along is None else along
    return normalised("batch_norm", (axis for axis in range(axes) if axis != channels))


# sliding windows


# For each axis the number of zeros before and after it; a negative number cuts elements off.
Padding = tuple[tuple[int, int], ...]


def same_padding(
    ins: Sequence[int],
    outs: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    odd_first: bool = False,
) -> Padding:
    """The padding by which ``ins`` give ``outs``; the odd zero behind, or ``odd_first``."""
    pads = []
    for size, out, k, s, d in zip(ins, outs, kernel, stride, dilation, strict=True):
        total = max(0, (out - 1) * s + (k - 1) * d + 1 - size)
        before = total - total // 2 if odd_first else total // 2
        pads.append((before, total - before))
    return tuple(pads)


def _windows(kind: str, frame: Frame, channels_last: bool, lead: int = 2, **more: Any) -> Windows:
    rank = len(frame.kernel)
    first, channels = (1, rank + 1) if channels_last else (lead, lead - 1)
    return Windows(
        tuple(range(first, first + rank)),
        channels,
        tuple(frame.kernel),
        tuple(frame.stride),
        tuple(frame.dilation),
        tuple(frame.padding),
        kind,
        **more,
    )


def convolution(
    frame: Frame,
    weights: Sequence[int] = (),
    groups: int = 1,
    channels_last: bool = False,
    reads: Sequence[int] = (0, 1),
) -> Windows:
    """A convolution of a batch, with channels second or last; all but these as of
    ``Windows``. ``weights``: their axes in the order (*kernel, in channels, filters)."""
    kind = "transposed" if frame.transposed else "convolution"
    more: dict[str, Any] = {"groups": groups, "reads": tuple(reads), "weights": tuple(weights)}
    return _windows(kind, frame, channels_last, **more)


def pool(
    kind: str,
    frame: Frame,
    channels_last: bool = False,
    counts_padding: bool = False,
    lead: int = 2,
) -> Windows:
    """A pool, ``max`` or ``average``. ``lead``: axes before the spatial ones where channels
    aren't last: 1 without a batch. Others as of ``Windows``."""
    return _windows(kind, frame, channels_last, lead, reads=(0,), counts_padding=counts_padding)


# sums of products


def matmul(
    ranks: tuple[int, int] = (2, 2),
    turned: tuple[bool, bool] = (False, False),
    reads: tuple[int, int] = (0, 1),
) -> Contracts:
    """A product of matrices, batches of them or vectors, as NumPy's matmul; ``turned``:
    which of them are transposed; ``reads``: as of ``Contracts``."""
    first = "k" if ranks[0] == 1 else "...km" if turned[0] else "...mk"
    second = "k" if ranks[1] == 1 else "...nk" if turned[1] else "...kn"
    out = "..." + "m" * (ranks[0] > 1) + "n" * (ranks[1] > 1)
    return Contracts(f"{first},{second}->{out}", reads)


def gemm(call: Call, product: Contracts, added: int, alpha: float, beta: float) -> Meaning:
    """Returns ``alpha product + beta c``, where c is the operand in the slot ``added``, if there is
    one: of a sum that is scaled nothing is known."""
    plain = not call.has(added) or beta == 0
    if alpha != 1 or not (plain or beta == 1):
        return Unknown("it scales a product")
    return product if plain else replace(product, bias=call.at(added))


def dense(reads: tuple[int, int] = (0, 1), bias: int | None = None) -> Contracts:
    """A dense layer whose weights are (units, inputs)."""
    return Contracts("...k,nk->...n", reads, bias)


def einsum(equation: str) -> Meaning:
    """What an einsum of one or two operands computes. ValueError: none that is known."""
    equation = equation.replace(" ", "")
    ins, arrow, out = equation.partition("->")
    texts = ins.split(",")
    if any(len(set(text.replace(".", ""))) < len(text.replace(".", "")) for text in texts):
        raise ValueError("an operand's own diagonal")
    if len(texts) == 2 and arrow:
        return Contracts(equation)
    if len(texts) == 1 and "." not in ins and sorted(ins) == sorted(out):
        return Turns(tuple(ins.index(letter) for letter in out))
    raise ValueError(equation)


def transpose(axes: Sequence[int]) -> Turns:
    """Axes in another order: output axis k is input axis ``axes[k]``."""
    return Turns(tuple(axis % len(axes) for axis in axes))

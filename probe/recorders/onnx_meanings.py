"""What ONNX's operators mean, and those that ONNX Runtime's optimiser makes of several.

A row a kind of operator in ``MEANINGS``, from one file a family; products, convolutions and pools,
and what is fused behind them, stand here. Sizes, axes
and indices that nodes read as inputs are known where they are constants or come from integers
alone; an operator that needs others is ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from probe.recorders.node import Call, Fact, NotSettled
from probe.recorders.onnx_functions import FUNCTIONS, NUMBERED, clip, function, snake
from probe.recorders.onnx_layers import LAYERS
from probe.recorders.onnx_moves import MOVES, PLACES, words_of
from probe.semantics import (
    Contracts,
    Each,
    Meaning,
    Step,
    Steps,
    Unknown,
    Whole,
    Windows,
    operations,
)


def _matmul(call: Call) -> Meaning:
    one, two = call.rank(0), call.rank(1)
    words = call.words
    if words.get("transBatchA", 0) or words.get("transBatchB", 0):
        return Unknown("its batch axes are permuted")
    first = "k" if one == 1 else "...km" if words.get("transA", 0) else "...mk"
    second = "k" if two == 1 else "...nk" if words.get("transB", 0) else "...kn"
    out = "..." + "m" * (one > 1) + "n" * (two > 1)
    product = Contracts(f"{first},{second}->{out}", (call.at(0), call.at(1)))
    if call.has(2):
        return Unknown("it has an input that is not described in probe")
    return _scaled(call, product, float(words.get("alpha", 1.0)))


def _scaled(
    call: Call, product: Contracts, alpha: float, activation: Each | None = None
) -> Meaning:
    steps = [Step(product, tuple(range(call.count)), call.gives[0])]
    if alpha != 1.0:
        scale = operations.function("multiply", other=alpha)
        steps.append(Step(scale, (call.count + len(steps) - 1,), call.gives[0]))
    if activation is not None:
        steps.append(Step(activation, (call.count + len(steps) - 1,), call.gives[0]))
    return product if len(steps) == 1 else Steps(tuple(steps))


def _gemm(call: Call) -> Meaning:
    words = call.words
    alpha, beta = float(words.get("alpha", 1.0)), float(words.get("beta", 1.0))
    biased = call.has(2) and beta != 0
    if biased and (alpha, beta) != (1.0, 1.0):
        return Unknown("its product and its bias are scaled")
    first = "km" if words.get("transA", 0) else "mk"
    second = "nk" if words.get("transB", 0) else "kn"
    bias = call.at(2) if biased else None
    product = Contracts(f"{first},{second}->mn", (call.at(0), call.at(1)), bias)
    return _scaled(call, product, alpha, _activation(call))


def _activation(call: Call) -> Each | None:
    """Returns the activation that a fused operator applies behind."""
    name = call.words.get("activation")
    if not name:
        return None
    given = list(call.words.get("activation_params", []))
    if name == "Clip":
        return clip(*(float(one) for one in given))
    names = NUMBERED[name][1] if name in NUMBERED else {}
    alone = {
        key: call.words[f"activation_{key}"] for key in names if f"activation_{key}" in call.words
    }
    return function(name, alone or dict(zip(names, given, strict=False)))


def _windows(call: Call, kind: str, kernel: tuple[int, ...], **words: Any) -> Windows:
    rank = len(kernel)
    strides = tuple(call.words.get("strides", [1] * rank))
    dilations = tuple(call.words.get("dilations", [1] * rank))
    return Windows(
        spatial=tuple(range(2, rank + 2)),
        channels=1,
        kernel=kernel,
        stride=strides,
        dilation=dilations,
        padding=_padding(call, kernel, strides, dilations, kind == "transposed"),
        kind=kind,
        **words,
    )


def _padding(
    call: Call,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    transposed: bool,
) -> tuple[tuple[int, int], ...]:
    rank = len(kernel)
    auto = call.words.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", "") and not call.words.get("output_shape"):
        pads = call.words.get("pads", [0] * 2 * rank)
        return tuple(zip(pads[:rank], pads[rank:], strict=True))
    if auto == "VALID":
        return ((0, 0),) * rank
    found = []
    extra = call.words.get("output_padding", [0] * rank)
    for k in range(rank):
        size, out = call.shape(0)[k + 2], call.gives[0][k + 2]
        reach = (kernel[k] - 1) * dilations[k] + 1
        ins, outs = (out, size) if transposed else (size, out)
        total = max(0, (outs - 1) * strides[k] + reach - ins + (extra[k] if transposed else 0))
        if total % 2 and transposed:
            raise NotSettled("where its odd padding goes differs between versions of ONNX")
        before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        found.append((before, total - before))
    return tuple(found)


def _conv(call: Call) -> Meaning:
    kernel, transposed = call.shape(1)[2:], call.op == "ConvTranspose"
    groups = int(call.words.get("group", 1))
    if call.shape(0)[1] % groups or call.gives[0][1] % groups:
        return Unknown("its groups do not divide its channels")
    axes = tuple(range(2, len(kernel) + 2))
    conv = _windows(
        call,
        "transposed" if transposed else "convolution",
        kernel,
        groups=groups,
        reads=tuple(call.at(n) for n in range(3) if call.has(n)),
        weights=(*axes, 0, 1) if transposed else (*axes, 1, 0),
        word="conv_transpose" if transposed else "conv",
    )
    shape, every = call.gives[0], call.count
    steps = [Step(conv, tuple(range(every)), shape)]
    if call.has(3):
        steps.append(Step(operations.function("add"), (every, call.at(3)), shape))
    if (activation := _activation(call)) is not None:
        steps.append(Step(activation, (every + len(steps) - 1,), shape))
    return conv if len(steps) == 1 else Steps(tuple(steps))


def _pool(call: Call) -> Meaning:
    if len(call.gives) > 1:
        return Unknown("indices count from the first batch row")
    kind = "max" if call.op == "MaxPool" else "average"
    return _windows(
        call,
        kind,
        tuple(call.words["kernel_shape"]),
        reads=(call.at(0),),
        counts_padding=bool(call.words.get("count_include_pad", 0)),
        ceil=bool(call.words.get("ceil_mode", 0)),
        word=f"{kind}_pool",
    )


def _global_pool(call: Call) -> Meaning:
    word = "max" if call.op == "GlobalMaxPool" else "mean"
    return operations.reduced(word, range(2, call.rank(0)), keep=True)


def _rows(*kept: int) -> Callable[[Call], Meaning]:
    """Every output reads all of its row of some axes: with -1 all axes but the last."""

    def row(call: Call) -> Meaning:
        axes = range(call.rank(0) - 1) if kept == (-1,) else kept
        numbers = tuple(sorted((key, str(one)) for key, one in call.words.items()))
        return Whole(tuple((a, a) for a in axes), snake(call.op), numbers)

    return row


def _fourier(call: Call) -> Meaning:
    """Every output reads all along one axis, and real and imaginary parts, which are last."""
    rank = call.rank(0)
    axis = int(
        call.words.get("axis", 1) if call.opset < 20 else call.value(2) if call.has(2) else -2
    )
    kept = tuple((a, a) for a in range(rank - 1) if a != axis % rank)
    return Whole(kept, "dft", words_of(call))


def _einsum(call: Call) -> Meaning:
    equation = str(call.words["equation"]).replace(" ", "")
    ins = equation.partition("->")[0].split(",")
    if "->" not in equation or len(ins) != 2 or any(len(set(one)) < len(one) for one in ins):
        return Unknown("its equation is not a product of two operands")
    if "." in equation or not equation.partition("->")[2]:
        return Unknown("its equation has dots, or gives one number")
    return Contracts(equation, (0, 1))


PRODUCTS: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv"), _conv),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("MatMul", "FusedMatMul"), _matmul),
    **dict.fromkeys(("Gemm", "FusedGemm"), _gemm),
    **dict.fromkeys(("QLinearConv", "ConvInteger"), _rows(0)),
    **dict.fromkeys(("MatMulInteger", "QLinearMatMul"), _rows(-1)),
    **dict.fromkeys(("DynamicQuantizeLinear", "DynamicQuantizeMatMul"), _rows()),
    "LRN": _rows(0, 2, 3),
    "Einsum": _einsum,
    "DFT": _fourier,
}
"""Rows of products, windows, and integer products."""


DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")
"""Domains in which an operator's name means what it does here."""

MEANINGS: dict[str, Callable[[Call], Meaning]] = {
    **FUNCTIONS,
    **PRODUCTS,
    **LAYERS,
    **MOVES,
    **PLACES,
}
"""Each operator's row."""


def meaning(
    op: str,
    domain: str,
    words: dict[str, Any],
    reads: Sequence[Fact | None],
    gives: Sequence[tuple[int, ...]],
    opset: int,
) -> Meaning:
    """Returns what a node computes. ``words``: its attributes; ``reads``: None where it has no such
    input; ``gives``: the shapes of its outputs; ``opset``: the version of ONNX's operators."""
    call = Call(op, domain, words, list(reads), list(gives), opset)
    row = MEANINGS.get(op)
    if row is None or domain not in DOMAINS:
        return Unknown(f"{op} is not described in probe")
    try:
        return row(call)
    except NotSettled as error:
        return Unknown(str(error))
    except (KeyError, IndexError, ValueError, TypeError):
        return Unknown(f"{op} has attributes that are not described in probe")


__all__ = ["Fact", "meaning"]

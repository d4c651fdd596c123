"""What ONNX's operators mean, and those that ONNX Runtime's optimiser makes of several.

A row a kind of operator in ``MEANINGS``; moves are in :mod:`probe.recording.onnx_moves`. Sizes, axes
and indices that nodes read as inputs are known where they are constants or come from integers alone;
an operator that needs others is ``Unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from probe.recording.meaning import (
    Contracts,
    Each,
    Meaning,
    Normalises,
    Reduces,
    Reshapes,
    Same,
    Scans,
    Step,
    Steps,
    Unknown,
    Whole,
    Windows,
)
from probe.recording.onnx_moves import MOVES, framed, joined_rows
from probe.recording.node import Call, Fact, NotSettled

UNARY = {
    **{"Abs": "abs", "Neg": "negative", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Erf": "erf"},
    **{"Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu", "Softplus": "softplus"},
    **{"Reciprocal": "reciprocal", "Floor": "floor", "Ceil": "ceil", "Round": "round"},
    **{"Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan"},
    **{"Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh"},
    **{"Sign": "sign", "HardSwish": "hard_swish", "Mish": "mish", "Softsign": "softsign"},
    **{"Not": "not", "IsNaN": "isnan", "IsInf": "isinf", "BitwiseNot": "bitwise_not"},
}
"""Operators of one input and no numbers, and their words."""

ODD = {"abs", "negative", "sqrt", "erf", "tanh", "relu", "floor", "ceil", "round", "sin", "tan"}
ODD |= {"asin", "atan", "sinh", "asinh", "atanh", "sign", "hard_swish", "softsign", "mish"}
"""Words of functions with f(0) = 0."""

NUMBERED: dict[str, dict[str, float]] = {
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "Celu": {"alpha": 1.0},
    "ThresholdedRelu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "QuickGelu": {"alpha": 1.702},
    "Shrink": {"bias": 0.0, "lambd": 0.5},
}
"""Functions of one input with attributes that are numbers, and their defaults."""

BROADCAST = {
    **{"Add": ("add", "adds"), "Mul": ("multiply", "clears"), "Sub": ("subtract", "")},
    **{"Div": ("divide", ""), "Pow": ("power", ""), "Mod": ("mod", ""), "PRelu": ("prelu", "")},
    **{"Equal": ("equal", ""), "Less": ("less", ""), "Greater": ("greater", "")},
    **{"LessOrEqual": ("less_equal", ""), "GreaterOrEqual": ("greater_equal", "")},
    **{"And": ("and", ""), "Or": ("or", ""), "Xor": ("xor", ""), "Where": ("where", "")},
    **{"BitwiseAnd": ("bitwise_and", ""), "BitwiseOr": ("bitwise_or", "")},
    **{"BitShift": ("shift", ""), "BitwiseXor": ("bitwise_xor", "")},
    **{"Max": ("maximum", ""), "Min": ("minimum", ""), "Sum": ("add", "adds"), "Mean": ("average", "")},
}
"""Operators whose inputs broadcast: their words, and what zeros do."""

REDUCES = {
    **{"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min"},
    **{"ReduceProd": "prod", "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "log_sum"},
    **{"ReduceLogSumExp": "log_sum_exp", "ReduceSumSquare": "sum_square"},
}


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
        return Unknown(f"nobody said what {op} computes")
    try:
        return row(call)
    except NotSettled as error:
        return Unknown(str(error))
    except (KeyError, IndexError, ValueError, TypeError):
        return Unknown(f"{op} is written in a way that is not known here")


def function(op: str, words: dict[str, Any], reads: tuple[int, ...] | None = None) -> Each:
    """Returns what a function of one input means, or the activation that a fused operator names."""
    if op in NUMBERED:
        numbers = tuple((key, float(words.get(key, n))) for key, n in NUMBERED[op].items())
        stays = op not in ("HardSigmoid", "ThresholdedRelu", "Shrink")
        return Each(_snake(op), "stays" * stays, numbers, reads)
    word = UNARY[op]
    return Each(word, "stays" * (word in ODD), (), reads)


def _snake(op: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in op).removeprefix("_")


def _unary(call: Call) -> Meaning:
    return function(call.op, call.words)


def _broadcast(call: Call) -> Meaning:
    word, zero = BROADCAST[call.op]
    if call.op in ("Max", "Min", "Sum", "Mean") and call.count != 2:
        return Same() if call.count == 1 else Each(f"{word}_of_{call.count}")
    numbers = tuple(sorted(call.words.items())) if call.op in ("Mod", "BitShift") else ()
    return Each(word, zero, numbers)


def _clip(call: Call) -> Meaning:
    ends = [call.words.get("min"), call.words.get("max")]
    for n in (1, 2):
        if call.has(n):
            ends[n - 1] = float(call.value(n).reshape(-1)[0])
    return clip(*ends)


def clip(low: float | None, high: float | None) -> Each:
    """Returns what a Clip between two numbers means; None: no bound."""
    if (low, high) == (0.0, None):
        return Each("relu", "stays", (), (0,))
    stays = (low is None or low <= 0) and (high is None or high >= 0)
    return Each("clip", "stays" * stays, (low, high), (0,))


def _gelu(call: Call) -> Meaning:
    approximate = call.words.get("approximate", "none")
    return Each("gelu", "stays", ("tanh",) if approximate == "tanh" else ())


def _biased(word: str, numbers: tuple[Any, ...]) -> Callable[[Call], Meaning]:
    """A function of a sum with a bias, if there is one."""

    def row(call: Call) -> Meaning:
        each = Each(word, "stays", numbers)
        if not call.has(1):
            return each
        shape = call.gives[0]
        added = Step(Each("add", "adds"), (call.at(0), call.at(1)), shape)
        return Steps((added, Step(each, (call.count,), shape)))

    return row


def _cast(call: Call) -> Meaning:
    to = call.words.get("to")
    widens = {(10, 1), (10, 11), (1, 11), (16, 1), (16, 11)}  # float16, bfloat16, float32, float64
    names = {"float16": 10, "bfloat16": 16, "float32": 1, "float64": 11}
    kind = names.get(call.dtype(0))
    if kind == to or (kind, to) in widens:
        return Same()
    return Each("cast", "stays", (to, call.words.get("saturate", 1)), (0,))


def _same(call: Call) -> Meaning:
    if call.op == "Dropout" and (len(call.gives) > 1 or (call.has(2) and call.value(2).any())):
        return Unknown("a Dropout that drops is random")
    return Same()


def _matmul(call: Call) -> Meaning:
    one, two = call.rank(0), call.rank(1)
    words = call.words
    if words.get("transBatchA", 0) or words.get("transBatchB", 0):
        return Unknown("its batch axes are turned")
    first = "k" if one == 1 else "...km" if words.get("transA", 0) else "...mk"
    second = "k" if two == 1 else "...nk" if words.get("transB", 0) else "...kn"
    out = "..." + "m" * (one > 1) + "n" * (two > 1)
    product = Contracts(f"{first},{second}->{out}", (call.at(0), call.at(1)))
    if call.has(2):
        return Unknown("it has an input that nobody described")
    return _scaled(call, product, float(words.get("alpha", 1.0)))


def _scaled(call: Call, product: Contracts, alpha: float, activation: Each | None = None) -> Meaning:
    steps = [Step(product, tuple(range(call.count)), call.gives[0])]
    if alpha != 1.0:
        scale = Each("multiply", "stays", (alpha,))
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
    """The activation that a fused operator applies behind."""
    name = call.words.get("activation")
    if not name:
        return None
    given = list(call.words.get("activation_params", []))
    if name == "Clip":
        return clip(*(float(one) for one in given))
    alone = {
        key: call.words[f"activation_{key}"]
        for key in NUMBERED.get(name, {})
        if f"activation_{key}" in call.words
    }
    return function(name, alone or dict(zip(NUMBERED.get(name, {}), given, strict=False)))


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
        steps.append(Step(Each("add", "adds"), (every, call.at(3)), shape))
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
    return Reduces(tuple(range(2, call.rank(0))), word, keep=True)


def _reduce(call: Call) -> Meaning:
    axes = call.words.get("axes")
    if call.has(1):
        axes = call.value(1).reshape(-1).tolist()
    if not axes and call.words.get("noop_with_empty_axes", 0):
        return Unknown("it reduces no axis") if call.op != "ReduceSum" else Same()
    axes = tuple(axes) if axes else tuple(range(call.rank(0)))
    keep = bool(call.words.get("keepdims", 1))
    zero = call.op == "ReduceSum"
    return Reduces(axes, REDUCES[call.op], keep, zero)


def _chosen(call: Call) -> Meaning:
    """ArgMax, ArgMin, TopK, CumSum with unusual options: of all along one axis."""
    rank = call.rank(0)
    axis = int(call.words.get("axis", -1 if call.op == "TopK" else 0)) % rank
    kept = [a for a in range(rank) if a != axis]
    stays = bool(call.words.get("keepdims", 1)) or call.op == "TopK"
    places = kept if stays else range(len(kept))
    numbers = tuple(sorted(call.words.items()))
    return Whole(tuple(zip(kept, places, strict=True)), _snake(call.op), numbers)


def _cumsum(call: Call) -> Meaning:
    if call.words.get("exclusive", 0):
        return Unknown("it leaves out its own element")
    axis = int(call.value(1).reshape(-1)[0])
    scan = Scans(axis, "cumsum", bool(call.words.get("reverse", 0)))
    return Steps((Step(scan, (call.at(0),), call.gives[0]),))


def _softmax(call: Call) -> Meaning:
    rank, early = call.rank(0), call.opset < 13
    axis = int(call.words.get("axis", 1 if early else -1)) % rank
    axes = tuple(range(axis, rank)) if early else (axis,)
    if call.op == "LogSoftmax":
        return Normalises(axes, "log_softmax")
    return Normalises(axes, "softmax", vanishes=True)


def _per_channel(call: Call, numbers: Sequence[int]) -> tuple[list[Step], list[int]]:
    """Steps that turn inputs of a number a channel so that they broadcast, and their values."""
    ones = (1,) * (call.rank(0) - 2)
    steps = [Step(Reshapes(), (call.at(n),), (call.shape(n)[0], *ones)) for n in numbers]
    return steps, [call.count + n for n in range(len(steps))]


def _batch_norm(call: Call) -> Meaning:
    if call.words.get("training_mode", 0) or len(call.gives) > 1:
        return Unknown("it is in its training mode")
    steps, places = _per_channel(call, (1, 2, 3, 4))
    each = Each("batch_norm", "", (float(call.words.get("epsilon", 1e-5)),))
    return Steps((*steps, Step(each, (call.at(0), *places), call.gives[0])))


def _instance_norm(call: Call) -> Meaning:
    steps, places = _per_channel(call, (1, 2))
    axes = tuple(range(2, call.rank(0)))
    norm = Normalises(axes, "instance_norm", (float(call.words.get("epsilon", 1e-5)),))
    return Steps((*steps, Step(norm, (call.at(0), *places), call.gives[0])))


def _group_norm(call: Call) -> Meaning:
    batch, channels = call.shape(0)[:2]
    if call.domain or call.shape(1) != (channels,):
        return Unknown("its scales are no number a channel, or its channels are last")
    groups = int(call.words["num_groups"])
    size = 1
    for n in call.shape(0)[1:]:
        size *= n
    steps, places = _per_channel(call, (1, 2))
    number, split = call.count + len(steps), (batch, groups, size // groups)
    steps += [
        Step(Reshapes(), (call.at(0),), split),
        Step(Normalises((2,), "group_norm", (call.words.get("epsilon", 1e-5),)), (number,), split),
        Step(Reshapes(), (number + 1,), call.shape(0)),
        Step(Each("scale_and_shift"), (number + 2, *places), call.gives[0]),
    ]
    return Steps(tuple(steps))


def _layer_norm(call: Call) -> Meaning:
    rank = call.rank(0)
    axis = int(call.words.get("axis", -1)) % rank
    simple = call.op in ("SimplifiedLayerNormalization", "RMSNormalization")
    word = "rms_norm" if simple else "layer_norm"
    return Normalises(tuple(range(axis, rank)), word, (float(call.words.get("epsilon", 1e-5)),))


def _skip_norm(call: Call) -> Meaning:
    """A sum of two, perhaps with a bias, and its norm; the sum may be the fourth output."""
    simple = call.op == "SkipSimplifiedLayerNormalization"
    bias = 3 if simple else 4
    shape, every = call.gives[0], call.count
    steps = [Step(Each("add", "adds"), (call.at(0), call.at(1)), shape)]
    if call.has(bias):
        steps.append(Step(Each("add", "adds"), (every, call.at(bias)), shape))
    total = every + len(steps) - 1
    scales = tuple(call.at(n) for n in range(2, bias) if call.has(n))
    numbers = (float(call.words.get("epsilon", 1e-12)),)
    norm = Normalises((-1,), "rms_norm" if simple else "layer_norm", numbers)
    steps.append(Step(norm, (total, *scales), shape))
    if len(call.gives) == 1:
        return Steps(tuple(steps))
    if len(call.gives) == 2 and call.gives[1] == shape:
        return Steps(tuple(steps), (total + 1, total))
    return Unknown("it gives its means")


def _recurrent(call: Call) -> Meaning:
    """LSTM, GRU, RNN: output t reads inputs up to t of its own batch row, and its first states."""
    if call.words.get("layout", 0):
        return Unknown("its batch comes first")
    length, batch, _ = call.shape(0)
    if call.has(4) and (call.value(4) != length).any():
        return Unknown("its sequences have several lengths")
    numbers = tuple((key, str(one)) for key, one in sorted(call.words.items()))
    weights = [call.at(n) for n in (1, 2, 3, 7) if call.has(n)]
    states = [n for n in (5, 6) if call.has(n)]
    if call.words.get("direction", "forward") == "bidirectional":
        return _both_ways(call, weights, states, numbers)
    ahead = len(states)
    rows = (ahead + length, batch, 1)
    steps = [Step(Whole(((0, 0), (1, 1)), "features"), (call.at(0),), (length, batch, 1))]
    steps += [
        Step(Whole(((0, 0), (1, 1)), "state"), (call.at(n),), (1, batch, 1)) for n in states
    ]
    first = call.count
    back = call.words.get("direction") == "reverse"
    inputs = [first + 1 + n for n in range(ahead)] + [first]
    steps.append(Step(joined_rows(back), tuple(inputs), rows))
    scan = Scans(0, f"{call.op.lower()} {numbers}", reverse=back)
    steps.append(Step(scan, (first + len(steps) - 1, *weights), rows))
    scanned, gives = first + len(steps) - 1, []
    for shape in call.gives:
        if len(shape) == 4:
            cut = joined_rows(back, ahead)
            steps.append(Step(cut, (scanned,), (length, batch, 1)))
            kept: tuple[tuple[int, int], ...] = ((0, 0), (1, 2))
        else:
            cut = joined_rows(back, ahead, last=True)
            steps.append(Step(cut, (scanned,), (1, batch, 1)))
            kept = ((1, 1),)
        whole = Whole(kept, f"output {len(gives)}")
        steps.append(Step(whole, (first + len(steps) - 1,), shape))
        gives.append(first + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _both_ways(
    call: Call, weights: list[int], states: list[int], numbers: tuple[Any, ...]
) -> Meaning:
    """Every output reads its whole sequence, in both directions."""
    length, batch, size = call.shape(0)
    parts = [(call.shape(n)[0] * call.shape(n)[2]) for n in states]
    total = length * size + sum(parts)
    lines = Step(framed("batch"), (call.at(0), *(call.at(n) for n in states)), (batch, total))
    whole = Whole(((0, 0),), call.op.lower(), numbers)
    steps, gives = [lines], []
    for number, shape in enumerate(call.gives):
        axis = 2 if len(shape) == 4 else 1
        kept = Whole(((0, axis),), f"{whole.word} {number}", (length, *numbers))
        steps.append(Step(kept, (call.count, *weights), shape))
        gives.append(call.count + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _stft(call: Call) -> Meaning:
    """Each frame reads its own part of the signal, and the window."""
    step = int(call.value(1).reshape(-1)[0])
    bins = call.gives[0]
    size = int(call.value(3).reshape(-1)[0]) if call.has(3) else call.shape(2)[0]
    frames = framed("frames", step, size, bins[1])
    cut = Step(frames, (call.at(0),), (bins[0], bins[1], size))
    whole = Whole(((0, 0), (1, 1)), "stft", (call.words.get("onesided", 1),))
    windows = (call.at(2),) if call.has(2) else ()
    return Steps((cut, Step(whole, (call.count, *windows), bins)))


def _attention(call: Call) -> Meaning:
    """Every output reads all of its batch row."""
    if call.op == "Attention" and call.domain:
        if any(call.has(n) for n in range(3, call.slots)) or len(call.gives) > 1:
            return Unknown("it has a mask or a past")
        numbers = tuple(sorted((k, str(v)) for k, v in call.words.items()))
        return Whole(((0, 0),), "attention", numbers)
    biased = call.op == "MultiHeadAttention" and call.has(3)
    if any(call.has(n) for n in range(4 if biased else 3, call.slots)) or len(call.gives) > 1:
        return Unknown("it has a mask or a past")
    inputs = [n for n in range(3) if call.has(n)]
    size = sum(_size(call.shape(n)[1:]) for n in inputs)
    batch = call.shape(0)[0]
    lines = Step(framed("first"), tuple(call.at(n) for n in inputs), (batch, size))
    numbers = tuple(sorted((k, str(v)) for k, v in call.words.items()))
    shapes = tuple(call.shape(n)[1:] for n in inputs)
    whole = Whole(((0, 0),), "attention", (*numbers, shapes))
    rest = (call.at(3),) if biased else ()
    return Steps((lines, Step(whole, (call.count, *rest), call.gives[0])))


def _size(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _quantised(call: Call) -> Meaning:
    """A number a tensor, or a number a channel, that scales every element."""
    rank = call.rank(0)
    axis = int(call.words.get("axis", 1))
    if int(call.words.get("block_size", 0)):
        return Unknown("it scales by blocks")
    steps, places = [], []
    for n in (1, 2):
        if call.has(n):
            size = _size(call.shape(n))
            shape = tuple(size if a == axis % max(rank, 1) and size > 1 else 1 for a in range(rank))
            steps.append(Step(Reshapes(), (call.at(n),), shape))
            places.append(call.count + len(steps) - 1)
    each = Each(_snake(call.op))
    return Steps((*steps, Step(each, (call.at(0), *places), call.gives[0])))


def _rows(*kept: int) -> Callable[[Call], Meaning]:
    """Every output reads all of its row of some axes: with -1 all axes but the last."""

    def row(call: Call) -> Meaning:
        axes = range(call.rank(0) - 1) if kept == (-1,) else kept
        numbers = tuple(sorted((key, str(one)) for key, one in call.words.items()))
        return Whole(tuple((a, a) for a in axes), _snake(call.op), numbers)

    return row


def _lp_norm(call: Call) -> Meaning:
    return Normalises((int(call.words.get("axis", -1)),), f"l{call.words.get('p', 2)}_normalised")


def _einsum(call: Call) -> Meaning:
    equation = str(call.words["equation"]).replace(" ", "")
    ins = equation.partition("->")[0].split(",")
    if "->" not in equation or len(ins) != 2 or any(len(set(one)) < len(one) for one in ins):
        return Unknown("its equation is no product of two")
    if "." in equation or not equation.partition("->")[2]:
        return Unknown("its equation has dots, or gives one number")
    return Contracts(equation.lower(), (0, 1))


DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc")
"""Domains in which an operator's name means what it does here."""

MEANINGS: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys([*UNARY, *NUMBERED], _unary),
    **dict.fromkeys(BROADCAST, _broadcast),
    **dict.fromkeys(REDUCES, _reduce),
    **dict.fromkeys(("Identity", "Dropout"), _same),
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv"), _conv),
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), _chosen),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    **dict.fromkeys(("LayerNormalization", "SimplifiedLayerNormalization"), _layer_norm),
    **dict.fromkeys(("RMSNormalization",), _layer_norm),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("MatMul", "FusedMatMul"), _matmul),
    **dict.fromkeys(("Gemm", "FusedGemm"), _gemm),
    **dict.fromkeys(("Attention", "MultiHeadAttention"), _attention),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantised),
    **dict.fromkeys(("QLinearConv", "ConvInteger", "DFT"), _rows(0)),
    **dict.fromkeys(("MatMulInteger", "QLinearMatMul"), _rows(-1)),
    **dict.fromkeys(("DynamicQuantizeLinear", "DynamicQuantizeMatMul"), _rows()),
    **{"Clip": _clip, "Gelu": _gelu, "BiasGelu": _biased("gelu", ())},
    **{"FastGelu": _biased("gelu", ("tanh",)), "Cast": _cast, "CumSum": _cumsum},
    **{"BatchNormalization": _batch_norm, "InstanceNormalization": _instance_norm},
    **{"GroupNormalization": _group_norm, "LpNormalization": _lp_norm, "STFT": _stft},
    **{"LRN": _rows(0, 2, 3), "Einsum": _einsum},
    **MOVES,
}
"""Each operator's row."""

__all__ = ["Call", "Fact", "meaning"]

"""Says which layer a recorded operation is, in the words of its library's users.

A product of weights and a convolution are a case too: what they compute is known by its sizes
(``case_of``). So an operation of a model is called as people know it, ``nn.Linear(1536, 384)``,
the padding of two programs can be compared, and the report of such an operation can be that of a
case (``probe.report.recorded``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from probe.case.case import Case
from probe.case.errors import InputError, ProbeError
from probe.case.geometry import TransposedSizes, WindowSizes
from probe.case.operation import OPERATIONS
from probe.diff.alone import Alone, isolated_sides
from probe.diff.difference import Difference, Pair, Region
from probe.diff.sums import OperationSum, ProductLetters, behind_of
from probe.order.semantics import Contracts, Windows
from probe.order.window import equivalent
from probe.record.contract import CONSTANT, WEIGHT
from probe.record.recording import Run
from probe.targets.backends.source import one_or_all
from probe.targets.target import Target


def no_case(why: str) -> InputError:
    return InputError("operation", "(of the model)", why, "its own script is written")


def case_of(alone: Alone) -> Case:
    """The case of an operation's sizes. InputError: it is none."""
    summed = alone.summed
    # what is behind the sum, whether the library fused it or not, is no part of a case
    if summed.w is None or summed.functions or summed.scale != 1 or summed.divides:
        raise no_case("it is not one product of weights or one convolution")
    shapes = [array.shape for array in alone.reads]
    meaning, _ = behind_of(alone.operation.meaning, shapes)
    words: dict[str, Any] = {"in_channels": summed.in_channels, "filters": summed.filters}
    words |= {"dtype": summed.dtype, "batch": summed.batch}
    words |= {"bias": None if summed.b is None else "normal"}
    if isinstance(meaning, Windows):
        return _convolution_case(meaning, summed, words)
    assert isinstance(meaning, Contracts)
    if summed.groups != 1:
        raise no_case("it is several products")
    if summed.b is None:  # the sum takes the larger operand for the input: the weights are asked
        axes = ProductLetters.of(meaning, shapes)
        fixed = [_is_fixed(alone.side, alone.operation.reads[n]) for n in meaning.reads]
        rows = 1 if fixed == [True, False] else 0
        filters = [x for x in axes.out if x in axes.own[1 - rows] and x not in axes.own[rows]]
        lines = [x for x in axes.out if x not in filters]
        if any(x in axes.own[1 - rows] and axes.sizes[x] > 1 for x in lines):
            raise no_case("it is several products")
        words |= {"batch": axes.count(lines), "filters": axes.count(filters)}
        words["in_channels"] = axes.count(axes.summed(rows))
    return Case("dense", **words)


def _is_fixed(run: Run, number: int) -> bool:
    """Whether a value comes from weights alone."""
    value = run.values[number]
    if value.given < 0:
        return value.role in (WEIGHT, CONSTANT)
    return all(_is_fixed(run, n) for n in run.operations[value.given].reads)


def _convolution_case(inner: Windows, summed: OperationSum, words: dict[str, Any]) -> Case:
    if inner.kind not in ("convolution", "transposed") or inner.flipped:
        raise no_case("it is a transposed convolution whose taps are in the opposite order")
    rank, transposed, pads = len(inner.kernel), inner.kind == "transposed", inner.padding
    op = f"conv{rank}d{'_transpose' * transposed}"
    if op not in OPERATIONS:
        raise no_case("it has more spatial axes than a case's")
    sizes = inner.kernel, inner.stride, inner.dilation
    if transposed:  # the padding is how many outputs of the whole are cropped at each end
        plain = TransposedSizes(*sizes, ((0, 0),) * rank).outputs(summed.sizes)
        whole = zip(plain, pads, summed.index, strict=True)
        pads = tuple(
            (before, all_ - before - len(positions)) for all_, (before, _), positions in whole
        )
    elif min(min(pair) for pair in pads) < 0:
        raise no_case("its padding crops")
    padding: Any = pads if any(map(any, pads)) else "valid"
    windows = TransposedSizes if transposed else WindowSizes
    if padding != "valid" and pads == windows(*sizes, "same").pads(summed.sizes):
        # users of TensorFlow, Keras and JAX write SAME: explicit zeros are another call there
        padding = "same"
    depthwise = op == "conv2d" and 1 < inner.groups == summed.in_channels
    op = "depthwise_conv2d" if depthwise else op
    case = Case(
        *(op, inner.kernel),
        length=summed.sizes[-1],
        height=summed.sizes[:-1] or None,
        stride=inner.stride,
        dilation=inner.dilation,
        padding=padding,
        **words | ({} if depthwise else {"groups": inner.groups}),
    )
    if case.output_spatial() != tuple(map(len, summed.index)):
        raise no_case("its last windows reach beyond the input as no case's do")
    return case


def layer_of(difference: Difference, region: Region) -> str:
    """What a source is called in its library; empty where it is no case, or not kept."""
    try:
        sides = isolated_sides(difference.left, difference.right, region)
    except (KeyError, InputError):
        return ""
    return "" if sides is None else layer_text(sides[0], region.path)


def layer_text(alone: Alone, path: str = "") -> str:
    """What an operation is called in its library; empty where it is no case.

    ``path``: where it stands in the model: a layer of Keras's, where there is one.
    """
    with suppress(ProbeError, KeyError, IndexError):
        library = Target.parse(alone.side.target).name
        return as_users_write(case_of(alone), library, bool(path))
    return ""


def windows_apart(left: Run, right: Run) -> str:
    """Says at which convolution, counted along two programs, the windows differ, and what reads the
    left one's in the right one's library; empty where none does. No value behind it is close to one
    of the other program, so no operation is matched by value that would show it."""
    for (case, ours), (other, theirs) in zip(_cases_along(left), _cases_along(right), strict=False):
        both = [(c.op, c.kernel, c.in_channels, c.filters) for c in (case, other)]
        if both[0] != both[1]:
            return ""
        if not case.spatial_rank or case.spatial() != other.spatial():
            continue  # a layer of its own may have padded before
        names = ["padding"] if case.pads() != other.pads() else []
        same = ("stride", "dilation", "groups")
        names += [name for name in same if getattr(case, name) != getattr(other, name)]
        if names:
            text = f"window: {ours} and {theirs} read different inputs: {' and '.join(names)}"
            with suppress(InputError):
                code = equivalent(case, Target.parse(right.target).name).code
                lines = "; ".join(line for line in code.splitlines() if line.strip())
                text += f"; on the right this reads what the left one reads: {lines}"
            return text
    return ""


def _cases_along(run: Run) -> Iterator[tuple[Case, str]]:
    """The convolutions and products of a run in order, each with what it is called and where."""
    for number, op in enumerate(run.operations):
        with suppress(ProbeError, KeyError, IndexError):
            pair = Pair.of_all(op.gives[0], op.gives[0], 1)
            case = case_of(Alone.of(run, number, 0, pair, 0))
            words = as_users_write(case, Target.parse(run.target).name, bool(op.path))
            yield case, f"{words} at {op.path}" if op.path else words


def as_users_write(case: Case, library: str, named: bool = True) -> str:
    """Returns a case as its library's users write it: ``nn.Linear(1536, 384)``."""
    rank, depthwise = case.spatial_rank, case.op[0] == "d"  # a dense layer has no rank
    kernel = case.kernel[0] if rank == 1 else case.kernel
    plain = Case(case.op, case.kernel, case.in_channels, filters=case.filters, groups=case.groups)
    options = [
        f"{name}={one_or_all(getattr(case, name))}"
        for name in ("stride", "dilation")
        if getattr(case, name) != getattr(plain, name)
    ]
    if rank and case.padding != "valid":
        pads = case.windows.pads(case.spatial())
        even = all(left == right for left, right in pads)
        numbers = one_or_all(tuple(left for left, _ in pads)) if even else repr(pads)
        more = tuple(before - after for before, after in pads)
        if library == "torch" and case.operation.transposed and min(more) >= 0:
            numbers = one_or_all(tuple(before for before, _ in pads))
            numbers += f", output_padding={one_or_all(more)}" * any(more)
        text = numbers if library == "torch" else repr(case.padding_text)
        options.append(f"padding={text}")
    if library == "torch":
        if not rank:
            return f"nn.Linear({case.in_channels}, {case.filters})"
        groups = case.in_channels if depthwise else case.groups
        options += [f"groups={groups}"] * (depthwise or groups > 1)
        sizes = f"{case.in_channels}, {case.filters}, {kernel}"
        name = f"nn.Conv{'Transpose' * case.operation.transposed}{rank}d"
        return f"{name}({', '.join([sizes, *options])})"
    if library in ("tensorflow", "keras"):
        if not rank:
            dense = f"Dense({case.filters}) of {case.in_channels} numbers"
            return dense if named else f"tf.matmul with {case.in_channels}x{case.filters} weights"
        if depthwise:
            return f"DepthwiseConv{rank}D({', '.join([str(kernel), *options])})"
        sizes = f"{case.filters}, {kernel}"
        name = f"Conv{rank}D{'Transpose' * case.operation.transposed}"
        return f"{name}({', '.join([sizes, *options])}) of {case.in_channels} channels"
    word = {"onnxruntime": ("Gemm", "Conv"), "litert": ("FULLY_CONNECTED", "CONV_2D")}
    name = word.get(library, ("a product", "a convolution"))[rank > 0]
    sizes = f"{case.in_channels} to {case.filters}"
    return f"{name} of {sizes}{f', kernel {kernel}' * (rank > 0)}"

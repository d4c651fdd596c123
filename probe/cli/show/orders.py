"""Shows what outputs read, how they are added, and where a target changes its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from probe.answers.explain import WindowsAnswer
from probe.case import Case
from probe.comparison import CaseRun
from probe.printing import counted, next_commands, ranges
from probe.summation import certificate
from probe.summation.orders import Orders
from probe.summation.summation import Summation
from probe.summation.tree import DRAWN_LEAVES, drawing, order_name, short_formula
from probe.switch_points import floors
from probe.switch_points.search import Thresholds, islands

Region = tuple[np.ndarray, ...]


def regions(mask: np.ndarray) -> Iterator[Region]:
    """Yields the True entries of a mask as disjoint products of indices, one index set an axis.

    Slices along the first axis that look alike are taken together, and so on inwards.
    """
    if mask.ndim == 1:
        if mask.any():
            yield (np.flatnonzero(mask),)
        return
    rows = mask.reshape(len(mask), -1)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    for number in np.argsort(first):
        members = np.flatnonzero(which.reshape(-1) == number)
        for inner in regions(mask[members[0]]):
            yield (members, *inner)


def where_true(mask: np.ndarray, most: int = 4) -> str:
    """Returns where a mask of the output's shape is True; at most ``most`` regions are written out.

    Axes of one entry are left out, ``*`` is all of an axis.
    """
    found = list(regions(mask))
    if mask.size == 1:
        return "the output" if found else "none"
    texts = []
    for region in found[:most]:
        parts = [
            "*" if len(indices) == size else ranges(indices.tolist(), 8)
            for indices, size in zip(region, mask.shape, strict=True)
            if size > 1
        ]
        if len(parts) > 1:
            parts = [f"({part})" if "," in part else part for part in parts]
        texts.append(f"out[{', '.join(parts)}]")
    text, more = "; ".join(texts), len(found) - most
    return f"{text}; and {more} more blocks of this kind" if more > 0 else text or "none"


def output_name(index: tuple[int, ...]) -> str:
    """Returns one entry with all its indices: ``out[0, 3, 7]``."""
    return f"out[{', '.join(map(str, index))}]"


# Outputs that are written out: the first, the last, and those that are not as predicted.
SHOWN = 12

# Reads of one output that are written out.
READS = 12


def windows(found: WindowsAnswer) -> RenderableType:
    """Returns a line an output: the first and last ones, and those not where the padding says."""
    case, same = found.case, found.same
    groups = (_group(case, group, found.revealed, same) for group in range(case.groups))
    several = "" if case.groups == 1 else f" in {case.groups} groups"
    head = Text(f"{same.size:,} windows{several} of {case.summands:,} inputs revealed; ")
    if same.all():
        head.append(f"all are where padding={case.padding_text} puts them", "green")
    else:
        wrong = f"{int((~same).sum()):,} are not where padding={case.padding_text} puts them"
        head.append(wrong, "bold red")
    return Group(
        Text(f"{case.label} on {found.target}", "bold"),
        head,
        *_reach_lines(found),
        "",
        *(line for group in groups for line in group),
    )


# What ``probe.summation.windows`` finds, of outputs.
REACHED = {
    "inputs": "multiply inputs outside of their window by 0: an infinity there gives NaN",
    "weights": "are reached by the weights of different filters",
    "padding": "multiply their padding: an infinite weight at padding gives NaN",
}


def _reach_lines(found: WindowsAnswer) -> Iterator[Text]:
    """Yields what reaches outputs beyond what they read."""
    if found.reach is None:
        yield Text("this holds for finite operands; infinities and NaN were not tested", "dim")
        return
    told = found.reach.to_json().get("reach", {})
    for name, count in told.items():
        style = "dim" if name == "padding" else "bold red"
        yield Text(f"{counted(count, 'output')} {REACHED[name]}", style)
    if not found.reach.outputs.any():
        yield Text("infinities and NaN outside of its window reach no output", "green")
    case = found.case
    for one in found.reach.named[:SHOWN]:
        shape = case.input_shape()
        apart = (np.diff(one.inputs) > 1) | (np.diff(one.inputs // case.in_channels) > 0)
        runs = np.split(one.inputs, np.flatnonzero(apart) + 1)
        some = " ".join(
            _span(int(run[0]), len(run), shape) if len(run) > 1 else _input(int(run[0]), shape)
            for run in runs[:READS]
        )
        more = f" ... ({len(runs) - READS} more)" if len(runs) > READS else ""
        which = f", filter {one.group * (case.filters // case.groups)}" * (case.groups > 1)
        how = "" if one.exact else "some of "
        yield Text(
            f"{_output_at(case, one.position)}{which} is reached by {how}{some}{more}", "red"
        )
    if (rest := len(found.reach.named) - SHOWN) > 0:
        yield Text(f"... and {rest:,} more; --json has them", "dim")


def _group(
    case: Case, group: int, revealed: np.ndarray, same: np.ndarray
) -> Iterator[RenderableType]:
    """Yields the first group in full; of the others what is not as predicted."""
    if group and same[group].all():
        if group == case.groups - 1:
            yield Text("the other groups read alike, their own channels", "dim")
        return
    if case.groups > 1:
        yield Text(f"filter {group * (case.filters // case.groups)}", "bold")
    positions = revealed.shape[1]
    wrong = np.flatnonzero(~same[group])[:SHOWN].tolist()
    ends = range(positions) if positions <= SHOWN else [*range(5), *range(positions - 4, positions)]
    before = -1
    for position in sorted({*ends, *wrong}):
        if position != before + 1:
            yield Text("...", "dim")
        before = position
        line = (
            f"{_output_at(case, position)} reads {reads_of_output(case, revealed[group, position])}"
        )
        yield Text(line, "" if same[group, position] else "red")


def _output_at(case: Case, position: int) -> str:
    shape = case.output_shape()[:-1]
    return _entry_in_words("out", np.unravel_index(position, shape), shape)


def reads_of_output(case: Case, met: np.ndarray) -> str:
    """Returns what one output reads, kernel position by kernel position: ``x[-] x[0] x[1]``."""
    shape, channels = case.input_shape(), case.group_channels
    rows = np.asarray(met).reshape(-1, channels)
    words = []
    for row in rows[:READS]:
        if (row < 0).all():
            words.append("x[-]")
        elif channels > 1 and (row >= 0).all() and (np.diff(row) == 1).all():
            words.append(_span(int(row[0]), channels, shape))
        else:
            words += ["x[-]" if i < 0 else _input(int(i), shape) for i in row]
    more = len(rows) - READS
    return " ".join(words) + (f" ... ({more} more)" if more > 0 else "")


def _input(flat: int, shape: tuple[int, ...]) -> str:
    return _entry_in_words("x", np.unravel_index(flat, shape), shape)


def _span(flat: int, channels: int, shape: tuple[int, ...]) -> str:
    """Returns neighbouring channels of one place: ``x[3, 0..7]``."""
    *place, channel = (int(i) for i in np.unravel_index(flat, shape))
    span = "*" if channels == shape[-1] else f"{channel}..{channel + channels - 1}"
    return _entry_in_words("x", (*place, span), shape)


def _entry_in_words(tensor: str, index: tuple[object, ...], shape: tuple[int, ...]) -> str:
    """Returns an entry by its indices; axes of one entry are left out."""
    kept = [str(i) for i, size in zip(index, shape, strict=True) if size > 1] or ["0"]
    return f"{tensor}[{', '.join(kept)}]"


# Summations that are written out, and that are drawn too.
MOST, DRAWN = 8, 3


def order(side: CaseRun, found: Mapping[str, Any]) -> RenderableType:
    """Returns every summation with its outputs. ``found``: what ``--json`` prints."""
    title = Text(f"{side.case.label} on {side.target.text}", "bold")
    parts: list[RenderableType] = [title, _headline(side, found)]
    if side.orders is None:
        return Group(*parts)
    if side.orders.certified is not None:  # it was asked for
        doubts = side.orders.doubts
        parts.append(Text(certificate.words(doubts), "yellow" if doubts else "green"))
    counts = side.orders.counts()
    ranked = sorted(range(len(counts)), key=lambda number: -counts[number])
    for rank, number in enumerate(ranked[:MOST]):
        one = side.orders.summations[number]
        mask = (side.orders.index == number).reshape(side.orders.shape)
        where = f"  {counted(counts[number], 'output')}: {where_true(mask)}"
        head = Text(f"\norder {one.tree.id}", "bold cyan").append(where, "not bold default")
        parts += [head, summation(one, side.case.dtype, rank < DRAWN)]
    if len(ranked) > MOST:
        rest = sum(int(counts[number]) for number in ranked[MOST:])
        more = f"\nand {len(ranked) - MOST} more summations, for {rest:,} outputs; --json has all"
        parts.append(Text(more, "dim"))
    return Group(*parts, *_outputs_without_order(side.orders))


def _headline(side: CaseRun, found: Mapping[str, Any]) -> Text:
    if side.pooled is not None:
        total, replayed = found["outputs"], found["replayed"]
        text = Text(f"{side.pooled.words}; ")
        text.append(f"replayed {replayed:,} of {total:,}", "green" if replayed == total else "red")
        return text.append(", not certified", "dim")
    if side.orders is None:
        return Text(f"{side.refusal}: {side.evidence}", "magenta")
    total, replayed = found["outputs"], found["replayed"]
    count = len(side.orders.summations)
    outputs, adding = counted(total, "output"), counted(count, "summation")
    bias = "" if side.case.bias is None else " and the bias"
    text = Text(f"{outputs} of {counted(side.case.summands, 'product')}{bias}, {adding}; ")
    text.append(f"replayed {replayed:,} of {total:,}", "green" if replayed == total else "red")
    return text.append(
        f" ({found['calls']} calls and {found['checks']} checks, {found['seconds']:.2f} s)", "dim"
    )


def _outputs_without_order(orders: Orders) -> Iterator[RenderableType]:
    """Yields outputs without a summation, and why."""
    nothing = (orders.index < 0) & orders.replayed
    if nothing.any():
        where = where_true(nothing.reshape(orders.shape))
        yield Text(f"\n{int(nothing.sum()):,} outputs read only padding and are 0: {where}")
    rest = (orders.index < 0) & ~orders.replayed
    if rest.any():
        where = where_true(rest.reshape(orders.shape))
        kind = (
            "not a sum of the products (Winograd or FFT, for example)"
            if orders.not_a_sum.any()
            else "not known"
        )
        yield Text(f"\n{int(rest.sum()):,} outputs are {kind}: {where}\n  {orders.evidence}", "red")


def summation(found: Summation, dtype: str, drawn: bool = True, indent: int = 2) -> RenderableType:
    """Prints a summation: its name if it has one, the sum, its drawing if small, its rounding."""
    tree, rounding = found
    name = order_name(tree)
    sum_of = Text(short_formula(tree))
    sum_of.append(f"   {name}" if name else "", "dim")
    lines: list[RenderableType] = [sum_of, Text(rounding_in_words(found, dtype))]
    if drawn and 2 < len(tree.leaves) <= DRAWN_LEAVES:
        lines += [Text(line) for line in drawing(tree, rounding.fused)]
    return Padding(Group(*lines), (0, 0, 0, indent), expand=False)


def rounding_in_words(found: Summation, dtype: str) -> str:
    """Says in words where a summation rounds."""
    return "; ".join(found.text(dtype, ranges))


# Stretches, and kinds of rows, that are written out.
LISTED = 20


def thresholds(found: Thresholds, after: Sequence[tuple[str, str]] = ()) -> RenderableType:
    """Shows stretches of sizes that add alike, their summations, and how they are known.

    ``after``: the next commands, each with what it does.
    """
    count, run = len(found.switches), f"{len(found.patterns)} {found.sizes} run"
    switches = Text(counted(count, "switch"), "yellow" if count else "green")
    span = f" between {found.sizes} {found.shortest:,} and {found.upto:,}"
    switches.append(span, "default").append(f" ({run}, {found.seconds:.1f} s)", "dim")
    return Group(
        Text(f"{found.case.label} on {found.target}, {found.threads_text}", "bold"),
        switches,
        Text(certificate.words(found.uncertified), "yellow" if found.uncertified else "green"),
        *_found_sizes(found),
        *next_commands(after),
    )


def _found_sizes(found: Thresholds) -> Iterator[RenderableType]:
    """Yields the classes of sizes that add alike and the floor, stretches, kinds, tails, doubts."""
    every = floors.classes(found)
    told = ", ".join(one.text for one in every[:LISTED]) or "none"
    yield Text(f"classes of {found.sizes} at which all rows add alike: {told}")
    if any(one.expected for one in every):
        yield Text(
            f"a class holds the {found.sizes} that were run; others are expected in it, not tested",
            "dim",
        )
    yield Text(floors.floor(found).text, "bold")
    yield ""
    stretches = list(islands(found))
    for (first, last, kind), switch in [*zip(stretches, [None, *found.switches], strict=True)][
        :LISTED
    ]:
        why = "" if switch is None else f"  {', '.join(switch.causes)}"
        sure = "" if switch is None or switch.scanned else ", by bisection"
        line = Text(f"{first:>9,} .. {last:<9,}  adds as ")
        yield line.append(f"kind {kind}", "cyan").append(f"{why}{sure}", "dim")
    if len(stretches) > LISTED:
        yield Text(f"and {len(stretches) - LISTED} more stretches; --json has all", "dim")
    # the summations of each kind of row that is an interior or a tail
    used = {kind for _, _, kind in stretches}
    used |= {kind for one in found.tails.values() for tail in one.values() for kind, _ in tail}
    for kind in sorted(used)[:LISTED]:
        yield Text(f"\nkind {kind}", "bold cyan")
        row = found.recogniser.kinds[kind]
        distinct = sorted(set(row))
        for number in distinct:
            if len(distinct) > 1:
                yield Text(f"  {counted(row.count(number), 'filter')}:", "dim")
            if number < 0:
                yield Text("  nothing to add" if number == -2 else "  not known", "yellow")
            else:
                yield summation(found.recogniser.summations[number], found.case.dtype)
    # what is left over behind the last full packet, by the length's remainder
    for kind, by_rest in found.tails.items():
        tails = sorted((rest, tail) for rest, tail in by_rest.items() if tail)
        if tails:
            what = f"\ntails of kind {kind}, by the {found.vary}'s remainder by {found.period}"
            yield Text(what, "bold")
        for rest, tail in tails:
            said = ", ".join(f"the last {rows} as kind {other}" for other, rows in tail)
            yield Text(f"  {rest}: {said}")
    # what was assumed, what was checked, and what speaks against it
    yield Text("")
    for word, sentences, style in (
        ("assumed", found.assumed, "dim"),
        ("checked", found.checked, "dim"),
        ("contradicted", found.violations, "bold red"),
        ("failed", found.failures, "yellow"),
        ("limited", [found.limited] if found.limited else [], "yellow"),
    ):
        for sentence in sentences:
            yield Text(f"{word}: {sentence}", style)
    if any(one.unknown for one in found.patterns.values()):
        yield Text(f"not known: {found.recogniser.evidence}", "red")

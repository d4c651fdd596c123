"""Shows two runs of a model, operation by operation, and recordings on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from probe.answers.first_difference import NAMED, NOT_SOUGHT, Walked
from probe.answers.record import Recorded
from probe.floats import rounded_text
from probe.printing import counted, next_commands, table
from probe.recording.difference import Region

# Rows of operations that are printed; --json has all.
MOST = 40

# Reasons of unknown operations that are printed; --json has all.
MOST_REASONS = 6

MOVE = "move elements (reshape, transpose, slice and the like)"
COLOURS = {
    "source": "bold red",
    "carried": "yellow",
    "healed": "cyan",
    "equal": "green",
    "left": "magenta",
    "right": "magenta",
    "unknown": "dim",
}

MEANS = (
    "source: its inputs agree and its outputs differ; carried: its inputs differ already; healed: "
    "its inputs differ and its outputs agree; left, right: it exists in one run only; own: outputs "
    "of a carried operation that differ even if its inputs are made to agree"
)


def walked(found: Walked, after: Sequence[tuple[str, str]] = ()) -> RenderableType:
    """Returns everything that is said of two runs; ``after``: commands, what they do."""
    first, second, _ = found.lines()
    colour = {"equal": "green", "differs": "red"}.get(found.verdict, "yellow")
    words = f" ({', '.join(found.words)})" if found.words else ""
    parts: list[RenderableType] = [
        Text(first),
        Text(f"verdict: {found.verdict}{words}", f"bold {colour}"),
        Text(second),
        Text(found.outcome("--report DIR")),
    ]
    parts += [Text(text) for text in [found.same_bits()] if text]
    parts += [Text(f"note: {one}", "yellow") for one in found.found.notes]
    told = found.unknown()
    parts += [Text(one, "yellow") for one in told[:MOST_REASONS]]
    if len(told) > MOST_REASONS:
        parts.append(
            Text(f"unknown for {len(told) - MOST_REASONS} more reasons: see --json", "dim")
        )
    if shown := _table_of_operations(found):
        parts += ["", shown, Text(MEANS, "dim")]
    parts += [""] * bool(found.found.causes)
    for number, cause in found.found.causes.items():
        one = found.found.operations[number]
        kind = cause.kind or ("" if NOT_SOUGHT in cause.why else "not explained yet")
        head = ": ".join(filter(None, [f"{one.name} ({one.op})", kind]))
        parts.append(Text(head, "bold").append(f": {cause.why}", "not bold"))
    right = ("compared", "differing", "max ulp", "scaled", "growth")
    rows = table("output", *right, "decisions changed", right=right)
    for number, output in enumerate(found.found.outputs):
        decided = [
            f"{NAMED[each.decision]}: {each.crossed:,} of {each.taken:,}"
            for each in found.decisions(output)
        ]
        rows.add_row(
            str(number),
            f"{output.compared:,}",
            f"{output.differing:,}",
            "" if output.max_ulp is None else f"{output.max_ulp:,}",
            rounded_text(output.scaled),
            rounded_text(found.report_output(output)["growth"]),
            ", ".join(decided),
        )
    what = "scaled: the largest difference over eps times the largest value; growth: since the "
    parts += ["", Group(rows, Text(f"{what}first source", "dim")), *next_commands(after)]
    return Group(*parts)


def _table_of_operations(found: Walked) -> RenderableType | None:
    operations = found.found.operations
    if not operations or set(found.counts()) == {"equal"}:
        return None
    right = ("compared", "differing", "own", "max ulp", "scaled")
    rows = table("operation", "op", *right, "verdict", "cause", right=right)
    shown = list(collapsed(found.found.computed))
    for some in shown[:MOST]:
        one = some[0]
        if len(some) > 1:
            compared = sum(each.compared for each in some)
            name = f"{len(some)} operations"
            rows.add_row(name, "", f"{compared:,}", "", "", "", "", _coloured_verdict(one), "")
            continue
        rows.add_row(
            Text(one.name, "bold" if one is found.found.first else ""),
            one.op,
            f"{one.compared:,}",
            f"{one.differing:,}" if one.differing else "",
            f"{one.own:,}" if one.own else "",
            "" if not one.differing or one.max_ulp is None else f"{one.max_ulp:,}",
            rounded_text(max((pair.scaled for pair in one.gives), default=0.0) or None),
            _coloured_verdict(one),
            one.why or one.note,
        )
    left_out = len(operations) - len(found.found.computed)
    more = [f"{len(shown) - MOST} more rows"] if len(shown) > MOST else []
    if left_out:
        more.append(f"{counted(left_out, 'operation')} that only {MOVE}")
    if not more:
        return rows
    return Group(rows, Text(f"not shown: {' and '.join(more)}; --json has all", "dim"))


def _coloured_verdict(one: Region) -> Text:
    return Text(one.verdict, COLOURS[one.verdict])


def collapsed(operations: list[Region]) -> Iterator[list[Region]]:
    """Yields operations one by one, and runs of those in which nothing differs together."""
    some: list[Region] = []
    for one in operations:
        quiet = one.verdict in ("equal", "left", "right", "unknown") and not one.note
        if some and not (quiet and some[-1].verdict == one.verdict):
            yield some
            some = []
        if quiet:
            some.append(one)
        else:
            yield [one]
    if some:
        yield some


def recorded_run(found: Recorded) -> RenderableType:
    """Returns what was recorded."""
    told = found.made.left_out
    more = f"; {counted(told['values'], 'value')} left out" if told["values"] else ""
    return Group(*map(Text, found.lines()), Text(f"wrote {found.made.folder}{more}"))

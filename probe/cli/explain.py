"""Commands ``probe explain``, ``window``, ``order`` and ``thresholds``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    OTHER_TARGETS,
    PATH,
    AskedRuns,
    Words,
    ask_for,
    case_of_words,
    case_options,
    fail_on_option,
    number_of_option,
    option,
    output_options,
    parsed_targets,
    question_options,
    said_again,
    sides_options,
    sized_case,
    target_option,
)
from probe.errors import INTERRUPTED, InputError
from probe.options import OPTIONS

if TYPE_CHECKING:
    from probe.comparison import Comparison
    from probe.printing import Output
    from probe.target import Target


AT = (
    "The length (or batch, ...) of the left run; the case's own if not given (--length A means the "
    "same as --at A)."
)


KERNELS = f"Which kernels to name. {OPTIONS['kernels'].help}"
WORKERS = "With --from: how many processes; one per processor if not given."


@click.command(cls=Words, short_help="Explain why two runs differ, proved by replay.")
@case_options
@target_option()
@sides_options(AT)
@option(
    *("--from store", "STORE"),
    "Explain every difference that a sweep stored there, and store the causes.",
    type=PATH,
)
@question_options("kernels certify zeros workers", workers=WORKERS, kernels=KERNELS)
@fail_on_option(
    differing="an output differs",
    finding="an output differs, is added in a different order or rounding, or is not explained",
)
@output_options
def explain(
    runs: AskedRuns, store: Path | None, workers: str | None, out: Output, **how: Any
) -> int:
    """Finds the cause of every difference between two runs of a case, and proves it by replay.

    It reveals the windows, orders and roundings of both runs. A cause is reported only if its
    replay in NumPy gave the bits of both runs. Distances are in ulp, units in the last place. With
    --against-target alone both runs have the same shape.
    """
    from probe.cli.show import explanation as show

    if store is not None:
        runs.refuse_beside(store, *how)
        from probe.explaining.causes import explain_store

        with out.progress("explain") as tell:
            stored = explain_store(store, number_of_option("workers", workers), tell)
        report = stored.to_json() | {"store": str(store)}
        out.give(report, lambda: show.store_causes(report, out.verbose))
        if stored.interrupted:
            return INTERRUPTED
        if stored.failures and not stored.added:
            return 3
        return out.status(stored.causes.total() > 0)
    if workers is not None:
        why, todo = "one process explains two runs", "leave it out, or give --from STORE"
        raise InputError("workers", workers, why, todo)
    from probe.answers.explain import explain as explained
    from probe.window import axis_of

    words = runs.words
    at, against, targets = runs.values_and_targets()
    case, length = case_of_words(words), number_of_option("length", words.get("length"))
    vary = axis_of(case, runs.sides["vary"])
    if vary == "length" and length is not None and at not in (None, length):
        why = f"--length {length} contradicts it: with --vary length both mean the left length"
        raise InputError("at", at, why, "leave one out")
    with out.working(f"explaining {case.label} on {' and '.join(map(str, targets))}"):
        found = explained(
            *(case, targets[0], at, against),
            vary=vary,
            against_target=targets[-1],
            against_padding=runs.sides["against_padding"],
            **how,
        )
    shown = (found.found, found.evidence, out.results.width)
    after = _next_after_explaining(found.found, vary, runs._replace(target=targets[0].text))
    out.give(found.report(), lambda: show.explanation(*shown, after))
    refused = bool(found.found.left.refusal or found.found.right.refusal)
    if out.fail_on == "finding":
        return int(bool(len(found.found.differing) or found.found.by_order or refused))
    return out.status(len(found.found.differing) > 0)


def _next_after_explaining(found: Comparison, vary: str, runs: AskedRuns) -> list[tuple[str, str]]:
    """Returns the next commands, each with what it does, of the words that the user gave."""
    words, target, sides = runs
    case = said_again(words, () if vary != "length" else ("length",)) + f" --target {target}"
    at = sides["at"] or words.get(vary) or str(getattr(found.left.case, vary, ""))
    sized = f"{case} --at {at}" if sides["against"] and at else case
    if sized == case and "length" in words and vary == "length":
        sized += f" --length {words['length']}"
    other = "".join(
        f" --{name.replace('_', '-')} {shlex.quote(value)}"
        for name, value in sides.items()
        if value is not None and name != "at"
    )
    alone = sides["against_target"] is None and sides["against_padding"] is None
    sizes = alone and (vary == "length" or (vary == "batch" and not found.left.case.spatial_rank))
    refused = found.left.refusal or found.right.refusal
    if not found.compared or refused or set(found.causes) == {"window"}:
        return []
    if len(found.differing):
        steps = [(f"probe reproduce {sized}{other} --out report", "writes a bug report")]
        if sizes and not found.left.case.pool:
            fix = f"probe remedies {case} --lengths {at},{sides['against']}"
            steps.append((fix, "measures what keeps the bits"))
        return steps
    if found.by_order:
        again = f"probe explain {sized}{other} --operands cancel"
        return [] if "operands" in words else [(again, "shows nearly every change of order")]
    if not sizes:
        return []
    searched = (f"probe thresholds {case}", "finds the sizes at which the order changes")
    return [searched] * (not found.left.case.pool) + [OTHER_TARGETS]


@click.command(cls=Words, short_help="Reveal which inputs every output reads.")
@case_options
@target_option()
@fail_on_option(finding="a window is not where the case's padding puts it")
@output_options
def window(words: dict[str, str], target: str, out: Output) -> int:
    """Reveals which inputs every output reads, and compares that with the case's padding.

    This holds for finite operands. An input outside of the window can still reach an output if it
    is infinite or NaN and the kernel multiplies it by zero; such inputs are reported as `reaches`.

    Give the length with --length. With --json, `reads` has for every product the flat index into x
    (of shape `input_shape`), null where it is padding. Only the first filter of a group is shown,
    since all filters of a group read the same inputs.
    """
    from probe.answers.explain import window as revealed
    from probe.cli.show import orders as show

    case, (where,) = sized_case(words), parsed_targets((target,))
    with out.working(f"reading windows of {where.text}"):
        found = revealed(case, where)
    out.give(found.to_json() if out.as_json else {}, lambda: show.windows(found))
    return out.status(not found.same.all())


TREE = (
    "Write the order of most outputs into FILE, as its name ends: .json (nested), .dot (Graphviz), "
    ".svg or .html (long sums fold)."
)


@click.command(cls=Words, short_help="Reveal in which order every output is added.")
@case_options
@target_option()
@question_options("certify")
@option("--tree", "FILE", TREE, type=PATH)
@fail_on_option(finding="an output is not a sum of its products, or its order did not replay")
@output_options
def order(words: dict[str, str], target: str, certify: bool, tree: Path | None, out: Output) -> int:
    """Reveals the order and rounding of every output, and replays them bit for bit.

    Give the length with --length. Products are numbered row by row over (kernel, channels); b is
    the bias.
    """
    from probe.answers.order import order as ordered
    from probe.cli.show import orders

    case, (where,) = sized_case(words), parsed_targets((target,))
    with out.working(f"revealing {case.label} on {where.text}"):
        answer = ordered(case, where, certify=certify)
    found = answer.report()
    if tree is not None:
        answer.save_tree(tree)
    out.give(found, lambda: orders.order(answer.found, found))
    if tree is not None:
        out.note(f"wrote {tree}")
    return out.status(found["replayed"] < found["outputs"])


SIZES = "What is varied: length or batch (the rows of dense); length, of dense batch, if not given."


@click.command(
    cls=Words, short_help="The sizes at which a target switches kernels, and which floor you need."
)
@case_options
@target_option()
@question_options("vary upto scan seconds", vary=SIZES)
@option("--time limit", "5m", "Start no new size after 5m (90s, 2h, 1h30m).")
@fail_on_option(finding="the order changes with the size, or a result contradicts what was assumed")
@output_options
def thresholds(
    words: dict[str, str],
    target: str,
    vary: str | None,
    limit: str | None,
    out: Output,
    **search: str | None,
) -> int:
    """Finds the lengths or batches at which the order or rounding of the outputs changes.

    \b
      probe thresholds --op conv1d --kernel 5 --in-channels 64
      probe thresholds --op dense --in-channels 384 --filters 384 --upto 128 --target torch

    Sizes at which every row (sample, output) is added alike make a class. The floor is the size up
    to which calls have to be padded so that none leaves the class of the largest size; the line
    shows the two orders in which rows are added below and above it. Classes hold for the number of
    threads that is printed.

    It runs all small sizes, then doubles the size and bisects intervals whose ends differ. A class
    contains only sizes that were run; sizes between them are listed as expected. The assumptions
    are printed and checked at random sizes; sizes that contradict them are examined.
    """
    from probe.answers.thresholds import thresholds as found_by
    from probe.budget import within
    from probe.cli.show import orders as show

    ask_for(words)
    case, (where,) = case_of_words(words), parsed_targets((target,))
    with within(limit), out.progress("sizes") as tell:
        answer = found_by(case, where, vary=vary, progress=tell.say, **search)
    found = answer.found
    after = [] if found.switches else _next_without_switches(said_again(words), vary, where)
    out.give(answer.report(), lambda: show.thresholds(found, after))
    return out.status(bool(found.switches or found.violations))


def _next_without_switches(case: str, vary: str | None, where: Target) -> list[tuple[str, str]]:
    """Returns the next commands where no size changes the order, each with what it does."""
    from probe.target import available_targets

    others = [
        choice.target.text
        for choice in available_targets()
        if choice.target.name == where.name and choice.target != where and choice.why is None
    ]
    axis = "" if vary is None else f" --vary {vary}"
    again = f"probe thresholds {case}{axis} --target"
    steps = [(f"{again} {one}", "searches with a different switch") for one in others[:3]]
    return [*steps, OTHER_TARGETS]

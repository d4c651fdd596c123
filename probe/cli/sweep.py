"""Commands ``probe sweep`` and ``probe bisect``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    PATH,
    ModelRun,
    Words,
    ask_for,
    axis_given,
    case_of_words,
    case_options,
    fail_on_option,
    has_length,
    numbers_of_option,
    on_command_line,
    option,
    output_options,
    question_options,
    run_options,
    target_option,
)
from probe.errors import INTERRUPTED, InputError

if TYPE_CHECKING:
    from probe.printing import Output

WORDS = ["order", "bits", "stability"]
WHAT = (
    "order: the order of additions; bits: the bits of all outputs; stability: which lengths differ "
    "from the longest."
)
KEPT = (
    "Store the results in DIR/<machine>; stored ones are not measured again. Nothing is stored if "
    "not given; --shard and --cluster need it, as their results come in parts."
)


@click.command(cls=Words, short_help="Find the lengths, batches, ... at which bits differ.")
@case_options
@question_options("lengths vary by")
@target_option(several=True)
@option("--store folder", "DIR", KEPT, type=PATH)
@option("--no-store", None, "Store nothing, also with --shard or --cluster.", is_flag=True)
@question_options("keep control workers shard cluster time zeros")
@fail_on_option(
    differing="an output differs",
    finding="an output differs, or a shape does not repeat its own bits",
)
@output_options
def sweep(
    words: dict[str, str],
    values: str | None,
    targets: tuple[str, ...],
    folder: Path | None,
    no_store: bool,
    out: Output,
    **options: Any,
) -> int:
    """Runs a case at many lengths and compares each with the longest, output by output.

    Outputs that read the same values must agree to the bit. Differences are counted in ulp (units
    in the last place). With --store, Ctrl-C keeps what was measured, and the same command
    continues from there.
    """
    from probe.answers.sweep import sweep as asked
    from probe.cli.show import sweeps as show

    axis, by = axis_given(words, options["vary"]), options["by"]
    if values is None and axis == "length":
        values = words.pop("length", None)
    known = axis == "length" or has_length(words)
    given = values is not None or axis == "layout"
    need = {"length": (known, "--length N"), "lengths": (given, "--lengths 5..64")}
    ask_for(words, **need)
    if not given:
        raise InputError("lengths", "(none)", "it is required", "give --lengths 5..64")
    if no_store and folder is not None:
        why, todo = "--no-store stores nothing", "leave out one of the two"
        raise InputError("store", folder, why, todo)
    parts = {"shard": options["shard"] not in (None, "1/1"), "cluster": options["cluster"]}
    if folder is None and not no_store and any(parts.values()):
        name = next(name for name in parts if parts[name])
        why = "its results come in parts, which would be lost"
        raise InputError(name, options[name], why, "give --store DIR, or --no-store")
    case = case_of_words(words)
    with out.progress("orders" if by == "order" else "sweep") as tell:
        store = None if no_store else folder
        found: Any = asked(case, values, targets, store=store, progress=tell, **options)
    if found.vary == "length" and "length" in words:
        out.note(f"length={words['length']} is not used: --lengths says which lengths are run")
    report = found.report()
    if by == "order":
        out.give(report, lambda: show.sweep_by_order(found.found.targets, report, found.values))
        if found.failed:
            return 3
        differing = report["differing"] > 0
        strange = any(one.strange for one in found.found.targets.values())
        return out.status(differing or (out.fail_on == "finding" and strange))
    for line in found.notes:
        out.note(line)
    summary = found.found
    out.give(report, lambda: show.sweep_by_bits(summary, case, found.values[:-1], out.verbose))
    if summary.interrupted:
        return INTERRUPTED
    each = summary.targets.values()
    if any(one.failures and not one.comparisons for one in each):
        return 3
    # a shape that does not repeat its own bits
    strange = any(one.nondeterministic or one.alignment for one in each)
    return out.status(summary.differing > 0 or (out.fail_on == "finding" and strange))


BETWEEN = "The release to start from, such as tensorflow==1.2.1."
RELEASES = "Search these releases instead of all that probe knows."
MEASURED = "Store what is measured in DIR/<machine>; nothing if not given."


@click.command(cls=Words, short_help="Find the release or condition that changed the results.")
@click.argument("model", required=False)
@case_options
@option("--between left", "T", BETWEEN, required=True)
@option("--and right", "T", "The release to end with, such as tensorflow==1.15.0.", required=True)
@option("--what", None, WHAT, type=click.Choice(WORDS), default="order", show_default=True)
@option("--lengths", "5..19", "The lengths to run; the kernel's and the next 14 if not given.")
@option("--releases", "1.0,1.1", RELEASES)
@option("--remove", None, "Remove the releases that had to be installed.", is_flag=True)
@run_options("Of a model: ", seeded=False)
@option("--store", "DIR", MEASURED, type=PATH)
@output_options
def bisect(
    model: str | None,
    words: dict[str, str],
    run: ModelRun,
    left: str,
    right: str,
    out: Output,
    **given: Any,
) -> None:
    """Finds the first release between two whose results differ from those of the first release.

    Missing releases are installed (see `probe install`). The search assumes a single change; it
    reports results that contradict this.

    If the two targets differ in switches or devices (`--between numpy,isa=avx2,threads=1 --and
    numpy`), it finds the smallest set of the first one's conditions that brings its results back.
    So it does of MODEL, a model's file or module:function, whose outputs are compared bit by bit.
    """
    from probe.cli.show import sweeps as show
    from probe.target import Target

    if model is not None:
        for name, value in words.items():
            why = "the model defines what is computed"
            raise InputError(name, value, why, f"leave out --{name}")
        for name in filter(on_command_line, given):
            why = "it is for a case: of a model the bits of its outputs are compared"
            raise InputError(name, "(given)", why, f"leave out --{name}")
        from probe.answers.bisect import bisect as asked
        from probe.answers.record import GivenModel
        from probe.cli.network import users_output_to_stderr

        with out.progress("bisect"), users_output_to_stderr():
            ends = Target.parse(left), Target.parse(right)
            told = asked(GivenModel(model, **run.arguments()), *ends, out.note)
        of_model = {"what": "bits", "model": model} | told.to_json()
        out.give(of_model, lambda: show.conditioned(told, "bits"))
        return
    run.refuse_beside_case()
    from probe.store import Store
    from probe.switch_points import bisection

    case, what = case_of_words(words), given["what"]
    if not case.spatial_rank:
        raise InputError("op", case.op, "releases are compared by length", "use op=matmul")
    shortest = case.effective_kernel[-1]
    values = numbers_of_option("lengths", given["lengths"] or f"{shortest}..{shortest + 14}")
    ends = Target.parse(left), Target.parse(right)
    if ends[0].name == ends[1].name and not bisection.only_releases(*ends):
        for name in filter(on_command_line, ("releases", "remove", "store")):
            why = "the targets differ in conditions, which are searched without it"
            raise InputError(name, given[name], why, f"leave out --{name}")
        with out.progress("bisect"):
            told = bisection.bisect_conditions(case, *ends, values, what, out.note)
        of_case = {"what": what, "case": case.to_json()} | told.to_json()
        out.give(of_case, lambda: show.conditioned(told, what))
        return
    some, store = given["releases"], given["store"]
    opened: AbstractContextManager[Store | None] = nullcontext()
    if store is not None:
        opened = Store.here(store)
    with opened as kept, out.progress("bisect"):
        found = bisection.bisect_releases(
            *(case, *ends, values, what),
            store=kept,
            releases=[one.strip() for one in some.split(",")] if some else (),
            keep=not given["remove"],
            tell=out.note,
        )
    report = {"what": what, "case": case.to_json(), "store": None if store is None else str(store)}
    report |= found.to_json()
    out.give(report, lambda: show.bisected(report))

"""What a script of ``experiments/`` begins with: two options, a bar, every error as one line."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from probe import load
from probe.case import schema
from probe.case.case import Case
from probe.case.errors import INTERRUPTED, InputError, ProbeError
from probe.explain.causes import explain_store
from probe.sweep.bits import sweep_cases
from probe.sweep.campaign import Row, Tally, run_row
from probe.sweep.plan import ALL, Shard, current_shard, within_shard
from probe.sweep.printing import Output
from probe.sweep.store import Store
from probe.targets import budget
from probe.targets.launch import open_session
from probe.targets.progress import Tell
from probe.targets.target import Target
from probe.ui.answers import sweep as answers

Main = Callable[[Path, bool], "bool | None"]

REPORT = Case(
    op="conv2d",
    kernel="1x5",
    weights=(-0.7313, -1.1043, 1.8492, 1.3007, -0.1033),
    bias=0.0401,
    operands="ramp",
)
"""The convolution of the report that probe started from, as it was published: NHWC and VALID."""

LIBRARIES = """
    tensorflow
    tensorflow,isa=avx2
    tensorflow,onednn=0
    keras
    torch
    torch,mkldnn=0
    jax
    onnxruntime
    onnxruntime,weights=argument
    litert
    litert,xnnpack=0
    opencv
    numpy
    reference
""".split()
"""Every library on the processor, with the switches by which most of them add differently."""

PATIENCE = 900.0
"""Seconds for an answer or a start: nothing may be called a failure that is only a busy machine."""

patient = functools.partial(open_session, time_limit=PATIENCE, start_limit=PATIENCE)


def script(main: Main) -> click.Command:
    """Returns the command of an experiment, with ``--store``, ``--quick`` and what divides it.

    ``main(store, quick)`` gets the folder that the machine's folder lies in: ``results/NAME`` of
    the checkout, or ``build/quick/NAME`` for a quick run, which must not mix with results. It
    returns whether Ctrl-C ended it. ``NAME`` is the script's file name.
    """
    path = Path(sys.modules[main.__module__].__file__ or "").resolve()
    root, name = path.parent.parent, path.stem

    @click.command(name, help=sys.modules[main.__module__].__doc__)
    @click.option("--store", type=click.Path(path_type=Path), help=f"default: results/{name}")
    @click.option("--quick", is_flag=True, help="a few seconds on NumPy alone, to try it out")
    @click.option("--shard", default="1/1", help="2/8: the second of eight parts, stored apart")
    @click.option("--time", "limit", help="30m, 90s, 2h: stop after that; run again to continue")
    @functools.wraps(main)
    def command(store: Path | None, quick: bool, shard: str, limit: str | None) -> None:
        kept = root / "build" / "quick" if quick else root / "results"
        try:
            with (
                within_shard(Shard.parse(shard)) as part,
                budget.within(limit) as allowed,
                Output().progress(name),
            ):
                interrupted = main((store or kept / name) / part.folder, quick)
            if allowed and allowed.left_out:
                said = f"the time is up, {allowed.left_out:,} questions were left out"
                click.echo(f"{name}: {said}; the same command continues with them", err=True)
        except ProbeError as error:
            click.echo(f"{name}: {error}", err=True)
            sys.exit(error.exit_code)
        if interrupted:
            sys.exit(INTERRUPTED)

    return command


def bar(what: str) -> AbstractContextManager[Tell]:
    """Returns a progress bar on stderr; what it gives is a campaign's ``progress``."""
    return Output().progress(what)


def refuse_shards() -> None:
    """Raises InputError where an experiment whose times are compared is asked for a part."""
    if (part := current_shard()) != ALL:
        why = "times are compared within one run"
        raise InputError("shard", part.text, why, "leave it out, and run it on each machine")


def swept(
    store: Path,
    name: str,
    parts: Iterable[tuple[Sequence[Case], Sequence[int], str]],
    targets: Sequence[str],
    **options: Any,
) -> bool:
    """Sweeps every part (cases, values, axis) into the store of an experiment; whether Ctrl-C
    ended it. ``options`` are those of :func:`probe.sweep.bits.sweep_cases`.
    """
    given = {"experiment": name, "opens": patient} | options
    where = [Target.parse(text) for text in targets]
    with Store.here(store) as kept, bar(name) as progress:
        for cases, values, vary in parts:
            part = sweep_cases(cases, where, values, vary, store=kept, progress=progress, **given)
            if part.interrupted:
                return True
    return False


def explained(store: Path, name: str) -> bool:
    """Finds the cause of every difference of a store, prints all; whether Ctrl-C ended it."""
    out = Output()
    with out.progress(f"{name}: causes") as tell:
        found = explain_store(store, progress=tell)
    for line in found.failures:
        out.note(line)
    summed_up(store)
    return found.interrupted


def summed_up(store: Path) -> None:
    """Prints a store as ``probe results`` does."""
    Output().results.print(answers.stores_shown(answers.summary_of_stores(load(store))))


def stored_run(text: str, store: Store, experiment: str) -> str:
    """Stores the row of the run on a target; its id. TargetError: it does not start."""
    with open_session(Target.parse(text)).start() as session:
        row = run_row(session.target, session.facts, session.variables, experiment)
    store.append("runs", row)
    return str(row["run_id"])


def timed(store: Path, name: str, measured: Iterable[tuple[str, Iterable[Row]]]) -> None:
    """Stores rows of ``measurements``, by target, as soon as they are known; prints the medians."""
    refuse_shards()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", ABSL_MIN_LOG_LEVEL="3")
    with Store.here(store) as kept, bar(name):
        for text, rows in measured:
            named = {"run_id": stored_run(text, kept, name)}
            kept.append("measurements", [row | named for row in rows])
            kept.flush()
    by = ["subject", "variant", "size", "unit"]
    print(load(store).measurements.groupby(by, sort=False).value.median().to_string())


def answered(
    store: Path,
    name: str,
    table: str,
    questions: Iterable[tuple[tuple[Any, ...], Callable[[], Row]]],
    where: Callable[[tuple[Any, ...]], str],
) -> bool:
    """Stores a row of ``table`` for each question that has none; whether Ctrl-C ended it.

    ``questions``: the columns that name one, behind its run, and what gives the others. ``where``:
    the target of its run. A refusal is a row with the reason, or is printed where there is no such
    column.
    """
    names, runs = schema.key_columns(table)[1:], dict[str, str]()
    with Store.here(store) as kept, bar(name) as tell:
        known = {row[1:] for row in kept.done_keys(table)}
        try:
            for number, (key, measure) in enumerate(questions):
                words = " ".join(str(word) for word in key if word)
                tell(number, 0, words)
                if key in known:
                    continue
                begun = time.monotonic()
                try:
                    row = measure()
                except ProbeError as error:
                    if "reason" not in schema.column_names(table):
                        Output().note(f"{words}: not asked, {error}")
                        continue
                    row = {"reason": str(error)}
                if (target := where(key)) not in runs:
                    runs[target] = stored_run(target, kept, name)
                row = {"run_id": runs[target]} | dict(zip(names, key, strict=True)) | row
                kept.append(table, row | {"seconds": time.monotonic() - begun})
        except KeyboardInterrupt:
            return True
    return False


def told(found: Tally, what: str) -> bool:
    """Prints what a campaign did, and what was refused; whether Ctrl-C ended it."""
    out = Output()
    out.results.print(f"{found.found:,} {what}, {found.before:,} were stored before")
    for text, failures in found.failures.items():
        out.results.print(f"{text}: {'; '.join(dict.fromkeys(failures))}", style="yellow")
    return found.interrupted

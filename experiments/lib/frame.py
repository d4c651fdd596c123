"""What a script of ``experiments/`` begins with: two options, a bar, every error as one line."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from probe import load
from probe.case.case import Case
from probe.case.errors import INTERRUPTED, InputError, ProbeError
from probe.explain.causes import explain_store
from probe.sweep.bits import sweep_cases
from probe.sweep.campaign import Tally
from probe.sweep.cluster import run_on_nodes
from probe.sweep.printing import Output
from probe.sweep.shard import ALL, Shard, current_shard, within_shard
from probe.sweep.store import Store
from probe.targets import budget
from probe.targets.progress import Tell
from probe.targets.target import Target
from probe.ui.answers import sweep as answers
from probe.ui.answers.show import here as show
from probe.ui.cli.here import from_here

Main = Callable[[Path, bool], "bool | None"]


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
    @click.option("--cluster", help="local:2, or tcp://HOST:PORT: nodes run shards of it")
    @click.option("--time", "limit", help="30m, 90s, 2h: stop after that; run again to continue")
    @functools.wraps(main)
    def command(
        store: Path | None, quick: bool, shard: str, cluster: str | None, limit: str | None
    ) -> None:
        kept = root / "build" / "quick" if quick else root / "results"
        try:
            if cluster and limit:
                raise InputError("time", limit, "nodes are not timed", "leave out --cluster")
            with (
                within_shard(Shard.parse(shard)) as part,
                budget.within(limit) as allowed,
                Output().progress(name),
            ):
                folder = (store or kept / name) / part.folder
                told = on_nodes(cluster, path, folder, quick) if cluster else main(folder, quick)
            if allowed and allowed.left_out:
                said = f"the time is up, {allowed.left_out:,} questions were left out"
                click.echo(f"{name}: {said}; the same command continues with them", err=True)
        except ProbeError as error:
            click.echo(f"{name}: {error}", err=True)
            sys.exit(error.exit_code)
        if told:
            sys.exit(INTERRUPTED)

    return command


def on_nodes(cluster: str, path: Path, folder: Path, quick: bool) -> bool:
    """Runs an experiment's shards on a cluster's nodes; whether Ctrl-C ended it."""
    out = Output()
    if current_shard() != ALL:
        todo = "leave --shard out: nodes get parts of the experiment"
        raise InputError(
            "shard", current_shard().text, "a cluster divides the experiment by itself", todo
        )
    with out.progress(path.stem) as tell:
        interrupted = run_on_nodes(cluster, path, folder, quick, tell, out.note)
    if not interrupted:
        out.results.print(f"{path.stem}: every part is stored in {from_here(folder)}")
    return interrupted


def bar(what: str) -> AbstractContextManager[Tell]:
    """Returns a progress bar on stderr; what it gives is a campaign's ``progress``."""
    return Output().progress(what)


def swept(
    store: Path,
    what: str,
    parts: Iterable[tuple[Sequence[Case], Sequence[int], str]],
    targets: Sequence[Target],
    **options: Any,
) -> bool:
    """Sweeps every part (cases, values, axis) into a store; whether Ctrl-C ended it.

    ``options`` are those of :func:`probe.sweep.bits.sweep_cases`.
    """
    with Store.here(store) as kept, bar(what) as progress:
        for cases, values, vary in parts:
            part = sweep_cases(
                cases, targets, values, vary, store=kept, progress=progress, **options
            )
            if part.interrupted:
                return True
    return False


def explained(store: Path, what: str) -> bool:
    """Finds the cause of every difference of a store, prints all; whether Ctrl-C ended it."""
    out = Output()
    with out.progress(f"{what}: causes") as tell:
        found = explain_store(store, progress=tell)
    for line in found.failures:
        out.note(line)
    out.results.print(show.stores(answers.summary_of_stores(load(store))))
    return found.interrupted


def told(found: Tally, what: str) -> bool:
    """Prints what a campaign did, and what was refused; whether Ctrl-C ended it."""
    out = Output()
    out.results.print(what)
    for text, failures in found.failures.items():
        out.results.print(f"{text}: {'; '.join(dict.fromkeys(failures))}", style="yellow")
    return found.interrupted


def windows_read(found: Tally) -> bool:
    """Prints how many windows were read and what was refused; whether Ctrl-C ended it."""
    return told(found, f"{found.found} cases read, {found.before} were stored before")


def reported(store: Path, asked: Tally) -> bool:
    """Prints how many findings were made, by cause, and what was refused; whether interrupted."""
    rows = load(store).findings
    shown = f"{asked.found} findings made,  {asked.before} were stored before; "
    return told(asked, f"{shown}{len(rows[rows.differing > 0])} of {len(rows)} differ")


def fuzzed(store: Path, done: Tally, promised: Tally) -> bool:
    """Prints what became of all stored trials and promises; whether Ctrl-C ended it."""
    results = load(store)
    rows, promises = results.trials, results.promises
    judged = rows[rows.compared.notna()]
    refereed = judged[judged.refereed.notna()]
    unexplained = sum(each.get("unexplained", 0) for each in judged.causes.map(json.loads))
    shown = (
        f"{done.found} trials now, {done.before} were stored before. Of {len(rows)}: "
        f"{len(judged)} compared, {int(judged.differing.sum()):,} outputs differ, {unexplained} "
        f"unexplained; {len(refereed)} refereed: {int(refereed.missed.sum())} outputs missed, "
        f"{int(refereed.false.sum())} false, {int(refereed.other.sum())} other than direct calls'"
    )
    ended = told(done, shown)
    held = promises[promises.compared.notna()]
    shown = (
        f"{promised.found} cases asked for classes now, {promised.before} were stored before. Of "
        f"{len(promises)}: {len(held)} refereed, {int(held.sizes.sum()):,} sizes promised, "
        f"{int(held['false'].sum())} false; {int(held.expected.sum()):,} expected, "
        f"{int(held.unexpected.sum())} of them false"
    )
    return told(promised, shown) or ended


def answered(store: Path, done: Tally) -> bool:
    """Prints how many causes of planted doubles are right, unknown and false; whether Ctrl-C ended
    it."""
    rows = load(store).planted
    counts = rows.answer.value_counts()
    shown = (
        f"{done.found} planted doubles now, {done.before} were stored before. Of {len(rows)}: "
        + ", ".join(f"{counts.get(word, 0)} {word}" for word in ("right", "unknown", "false"))
        + f", {int(rows.reason.notna().sum())} not run"
    )
    return told(done, shown)


def walked(store: Path, done: Tally) -> bool:
    """Prints how many pairs of runs differ, and how many sources are explained."""
    rows, sources = load(store).walks, load(store).sources
    judged = rows[rows.reason.isna()]
    explained = (sources.cause.notna() & (sources.replayed == sources.examined)).sum()
    shown = (
        f"{done.found} pairs of runs now, {done.before} were stored before. Of {len(judged)} "
        f"compared {int((judged.verdict == 'differs').sum())} differ at the output and "
        f"{int((judged.verdict == 'unknown').sum())} are unknown;  {len(sources)} sources, "
        f"{int(explained)} of them explained and replayed"
    )
    return told(done, shown)


def reproduced(tried: Tally, source: str, drawn: int) -> bool:
    """Prints how many findings scripts confirm, and why others don't; whether Ctrl-C ended it."""
    confirmed = f"{tried.found} of {drawn} findings confirmed"
    return told(tried, f"{source}: {confirmed}, {tried.before} before")

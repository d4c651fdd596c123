"""Runs a script of ``experiments/`` and executes its notebook.

A script has two options, a bar, and every error as one line; its notebook is executed in place.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from probe import budget, load
from probe.answers import stored
from probe.campaign import Tally
from probe.case import Case
from probe.cluster import scripts
from probe.errors import INTERRUPTED, InputError, ProbeError
from probe.explain.causes import explain_store
from probe.printing import Output
from probe.progress import Tell
from probe.shard import ALL, Shard, asking, current
from probe.store import Store
from probe.sweep import sweep
from probe.target import Target

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
                asking(Shard.parse(shard)) as part,
                budget.within(limit) as allowed,
                Output().heard(name),
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
    if current() != ALL:
        todo = "leave --shard out: nodes get parts of the experiment"
        raise InputError(
            "shard", current().text, "a cluster divides the experiment by itself", todo
        )
    with out.progress(path.stem) as tell:
        interrupted = scripts.run(cluster, path, folder, quick, tell, out.note)
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

    ``options`` are those of :func:`probe.sweep.sweep`.
    """
    with Store.here(store) as kept, bar(what) as progress:
        for cases, values, vary in parts:
            part = sweep(cases, targets, values, vary, store=kept, progress=progress, **options)
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
    out.results.print(stored.shown(stored.stored(load(store))))
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


def checkout(name: str) -> Path:
    """Returns the folder with ``experiments/NAME.py``.
    InputError says which experiments there are."""
    there: list[str] = []
    for root in _roots():
        folder = root / "experiments"
        if (folder / f"{name}.py").is_file() and Path(name).name == name:
            return root
        own = [file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")]
        there = there or own
    if not there:
        why = "experiments are not part of the installed package, and none are here or above"
        raise InputError("experiment", name, why, "run it in a checkout (git clone) of probe")
    todo = f"run one of {', '.join(sorted(there))}"
    raise InputError("experiment", name, "there is no such experiment", todo)


def _roots() -> Iterator[Path]:
    """This folder, those above it, and the checkout that probe is imported from."""
    here = Path.cwd()
    yield from (here, *here.parents)
    yield Path(__file__).resolve().parents[2]


def run_script(root: Path, name: str, arguments: Sequence[str], quiet: bool) -> int:
    """Runs an experiment's script; its exit status. ``quiet``: what it prints goes to stderr."""
    command = [sys.executable, str(root / "experiments" / f"{name}.py"), *arguments]
    stdout = sys.stderr if quiet else None
    process = subprocess.Popen(command, cwd=root, stdout=stdout, env=os.environ)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the script has it too: it stores what it has and prints its summary


def execute(notebook: Path, to: Path | None = None, store: str | None = None) -> None:
    """Executes a notebook in the folder of ``to`` and saves it there (None: where it is).

    ``store`` replaces the folder that it reads, in the cell with the tag ``parameters``.
    ProbeError: a cell fails; nothing is saved then.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    book: Any = nbformat.read(notebook, as_version=4)
    to = to or notebook
    if store is not None:
        (cell,) = (one for one in book.cells if "parameters" in one.metadata.get("tags", []))
        cell.source = f"STORE = {store!r}"
    client = NotebookClient(
        book,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(to.parent)}},
    )
    before = signal.getsignal(signal.SIGINT)
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        last = [line for line in plain.splitlines() if line.strip()][-1:]
        told = f"{notebook.name}: a cell fails: {''.join(last)}"
        raise ProbeError(f"notebook={told}; open it and run it cell by cell") from None
    finally:
        signal.signal(signal.SIGINT, before)  # nbclient leaves a handler of its own
    partial = to.with_suffix(".ipynb.tmp")
    nbformat.write(book, partial)
    partial.replace(to)


def from_here(path: Path) -> str:
    """Returns a path as it reads from this folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)

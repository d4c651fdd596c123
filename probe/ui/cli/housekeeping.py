"""Commands about what is here: targets, the machine, environments, stores, experiments; the lock of
bits (``check`` and its forms); and ``demo``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.case.errors import INTERRUPTED, InputError, ProbeError, TargetError
from probe.ui.cli.models import running_model
from probe.ui.cli.options import (
    PATH,
    TIME,
    ModelRun,
    OptionsByScope,
    Shared,
    case_options,
    fail_on_option,
    option,
    output_options,
    run_options,
    sized_case,
)

if TYPE_CHECKING:
    from probe.sweep.printing import Output


@click.command(cls=OptionsByScope, short_help="List what can run here, and why the rest can't.")
@output_options
def targets(out: Output) -> None:
    """Lists the targets that can run here, and why the others can't."""
    from probe.targets import backends
    from probe.targets.target import available_targets, installed_version
    from probe.ui.answers import doctor as answers

    rows = [
        {
            "target": choice.target.text,
            "available": choice.why is None,
            "why": choice.why,
            "version": choice.target.version or installed_version(backends.get(choice.target.name)),
            "doc": choice.doc,
            "defaults": choice.defaults,
        }
        for choice in available_targets()
    ]
    out.give({"targets": rows}, lambda: answers.targets_shown(rows))


@click.command(cls=OptionsByScope, short_help="Print the facts that are stored with every result.")
@output_options
def machine(out: Output) -> None:
    """Prints the facts that are stored with every result: never a host or user name, nor a path."""
    from probe.targets import backends
    from probe.targets import machine as this
    from probe.targets.target import installed_version
    from probe.ui.answers import doctor as answers

    libraries = {name: installed_version(backends.get(name)) for name in backends.known_backends()}
    facts = dict(this.facts()) | {"libraries": libraries}
    out.give(facts, lambda: answers.machine_shown(facts))


@click.command(
    cls=OptionsByScope, short_help="Check what is installed, what is missing, and what works."
)
@option("--time limit", "2m", TIME)
@output_options
def doctor(limit: str | None, out: Output) -> int:
    """Examines this machine: Python, libraries, old releases, emulators, memory, disk, variables.

    For every installed library it reveals and replays the order of one small convolution. For each
    missing part it says what the part would add and the command that installs it. Exits with
    status 3 if an installed part does not work.
    """
    from probe.targets.budget import within
    from probe.ui.answers import doctor as answers

    with within(limit), out.progress("doctor", whole=True) as tell:
        examination = answers.examine_machine(tell=tell)
    out.give(examination)
    return 0 if examination.healthy else TargetError.exit_code


@click.command(cls=OptionsByScope, short_help="Install an old release, or an emulated processor.")
@click.argument("target", required=False)
@option("--list listed", None, "List what is installed, and its size.", is_flag=True)
@option("--remove", None, "Remove TARGET's environment.", is_flag=True)
@option(
    *("--sysroot", "DIR"),
    "For @arm64: an arm64 root folder with usr/bin/python3.N, instead of Debian's packages.",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
)
@output_options
def install(
    target: str | None, listed: bool, remove: bool, sysroot: Path | None, out: Output
) -> None:
    """Installs TARGET, such as tensorflow==1.2.1 or tensorflow@arm64, so that it can run here.

    A release gets its own environment in the user's cache, made with a Python of this machine
    (PATH, pyenv, uv), and must pass a test run. Processors are emulated by qemu's user mode.
    Nothing outside the cache is changed.
    """
    from probe.targets import installation
    from probe.targets.environments import installed_environments
    from probe.targets.target import Target
    from probe.ui.answers import doctor as answers

    if listed:
        installed = [environment.to_json() for environment in installed_environments()]
        return out.give({"installed": installed}, lambda: answers.environments_shown(installed))
    if target is None:
        todo = "name one such as tensorflow==1.2.1, or give --list"
        raise InputError("target", "(none)", "there is nothing to install", todo)
    where = Target.parse(target)
    if remove:
        gone = installation.remove_installed(where).target
        return out.give({"removed": gone}, lambda: f"{gone} is removed")
    with out.progress("install") as tell:
        report = installation.install_target(where, tell, sysroot).to_json()
    outcome = (
        "was already installed" if report["already"] else f"answers, after {report['seconds']:g} s"
    )
    library = f"{report['library']} {report['library_version']}"
    text = f"{report['target']} {outcome}: {library}, Python {report['python_version']}"
    return out.give(report, lambda: text)


FOLDERS = click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=PATH)


@click.command(cls=OptionsByScope, short_help="Summarise stored results, by machine and target.")
@FOLDERS
@fail_on_option(differing="a stored comparison has a difference")
@output_options
def results(folders: tuple[Path, ...], out: Output) -> int:
    """Summarises stored results of one machine or of several.

    DIR is an experiment's folder, one machine's folder in it, or `results` itself. Damaged files
    are left out and named, missing files of differences too; the exit status is then 2.
    `probe.load(DIR).query("SELECT ...")` answers other questions.
    """
    from probe.sweep.stored import load
    from probe.ui.answers import sweep as answers

    # a summary of what can be read is worth more than none; what was left out decides the status
    stored = load(*folders, tolerant=True)
    report = answers.summary_of_stores(stored)
    missing = report["missing"]
    out.give(report, lambda: answers.stores_shown(report))
    for why in stored.left_out.values():
        click.echo(f"probe: {why}; this file is left out", err=True)
    for why in missing:
        click.echo(f"probe: {why}", err=True)
    if stored.left_out or missing:
        return InputError.exit_code
    return out.status(report["differing"] > 0)


@click.command(cls=OptionsByScope, short_help="Merge several stores into one.")
@FOLDERS
@option("--out into", "DIR", "The folder to write.", required=True)
@output_options
def merge(folders: tuple[Path, ...], into: Path, out: Output) -> None:
    """Merges several stores into one.

    The merged store has one folder for each machine. Of two rows with the same key the later one
    is kept.
    """
    from probe.sweep.store import merge as merged

    with out.progress("merge", whole=True) as tell:
        written = [str(folder) for folder in merged(folders, into, tell)]
    report = {"out": str(into), "folders": written}
    out.give(report, lambda: "\n".join(f"wrote {folder}" for folder in written))


def checkout(name: str) -> Path:
    """The folder with ``experiments/NAME.py``. InputError says which experiments there are."""
    known_experiments: list[str] = []
    current = Path.cwd()
    for root in (current, *current.parents, Path(__file__).resolve().parents[3]):
        folder = root / "experiments"
        if (folder / f"{name}.py").is_file() and Path(name).name == name:
            return root
        experiments = [file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")]
        known_experiments = known_experiments or experiments
    if not known_experiments:
        why = "experiments are not part of the installed package, and none are here or above"
        raise InputError("experiment", name, why, "run it in a checkout (git clone) of probe")
    todo = f"run one of {', '.join(sorted(known_experiments))}"
    raise InputError("experiment", name, "there is no such experiment", todo)


def execute_notebook(notebook: Path, to: Path | None = None, store: str | None = None) -> None:
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
        (cell,) = (cell for cell in book.cells if "parameters" in cell.metadata.get("tags", []))
        cell.source = f"STORE = {store!r}"
        # the copy lies elsewhere, and finds the library of notebooks from there
        lib = os.path.relpath(notebook.parent.parent / "experiments", to.parent)
        for cell in book.cells:
            cell.source = cell.source.replace('"../experiments"', repr(lib))
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
        # IPython colours its tracebacks; a message is one line of plain text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        last = [line for line in plain.splitlines() if line.strip()][-1:]
        text = f"{notebook.name}: a cell fails: {''.join(last)}"
        raise ProbeError(f"notebook={text}; open it and run it cell by cell") from None
    finally:
        # nbclient leaves a handler of its own
        signal.signal(signal.SIGINT, before)
    # a notebook that is being written when somebody interrupts stays as it was
    partial = to.with_suffix(".ipynb.tmp")
    nbformat.write(book, partial)
    partial.replace(to)


@click.command(cls=OptionsByScope, short_help="Run an experiment and its notebook.")
@click.argument("name")
@click.argument("arguments", nargs=-1)
@option("--no-notebook", None, "Run the script only.", is_flag=True)
@option("--out folder", "DIR", "Write results and notebook into DIR; the checkout is not changed.")
@output_options
def run(
    name: str, arguments: tuple[str, ...], no_notebook: bool, folder: Path | None, out: Output
) -> int:
    """Runs experiments/NAME.py, which writes results/NAME, then notebooks/NAME.ipynb in place.

    It looks for the folder `experiments` here and in the parent folders, then in probe's own
    checkout. With --out DIR the checkout is not changed: results go to DIR/NAME, the executed
    notebook to DIR/NAME.ipynb. ARGUMENTS after -- go to the script.
    """
    root, start = checkout(name), time.monotonic()
    own_notebook = root / "notebooks" / f"{name}.ipynb"
    store, notebook = root / "results" / name, own_notebook
    if folder is not None:
        store, notebook = folder.resolve() / name, folder.resolve() / own_notebook.name
        arguments = ("--store", str(store), *arguments)
    command = [sys.executable, str(root / "experiments" / f"{name}.py"), *arguments]
    # what the script prints goes to stderr beside an object
    stdout = sys.stderr if out.as_json else None
    process, status = subprocess.Popen(command, cwd=root, stdout=stdout, env=os.environ), None
    while status is None:
        # the script has Ctrl-C too: it stores what it has and prints its summary
        with suppress(KeyboardInterrupt):
            status = process.wait()
    # the script said what its options are, and measured nothing
    if "--help" in arguments:
        return status
    ran = own_notebook.is_file() and not status and not no_notebook
    if ran:
        with out.progress(f"executing {notebook.name}"):
            execute_notebook(own_notebook, notebook, None if folder is None else name)
    elif not status and not no_notebook:
        out.note(f"notebooks/{name}.ipynb does not exist, so no notebook was executed")
    places = [store, notebook]
    for at, path in enumerate(places):
        if path.is_relative_to(Path.cwd()):
            places[at] = path.relative_to(Path.cwd())
    report = {
        "experiment": name,
        "status": status,
        "results": str(places[0]),
        "notebook": str(places[1]) if ran else None,
        "seconds": round(time.monotonic() - start, 1),
    }
    if not status or out.as_json:
        pictures = f"\npictures in {report['notebook']}" if ran else ""
        out.give(report, lambda: f"results in {report['results']}{pictures}")
    # Popen gives the negative signal, a shell in between 128 and the signal: SIGINT is 2
    return INTERRUPTED if status in (-2, 128 + 2) else abs(status)


LOCK = "The lock; bits.lock in this folder if not given."
WHY = (
    "Which causes to look for. here: those of changed bits, with what is installed (default); all: "
    "those of unknown bits too; install: also by installing old releases; no: none."
)
TARGET = "Run it with this target's switches (see `probe targets`); a case: on this target (numpy)."
TRUST = (
    "Run the code that the lock names: functions, which are imported, and models' files that run "
    "code. Use it only for a lock whose origin you trust."
)


@click.command(cls=OptionsByScope, short_help="Keep the bits of a model or a case in bits.lock.")
@click.argument("model", metavar="[MODEL]", required=False)
@option("--name", "NAME", "The check's name; MODEL, or the case in words, if not given.")
@option("--lock path", "FILE", LOCK, default="bits.lock")
@option("--bless", "REASON", "Replace bits that changed; the reason is kept in the lock.")
@run_options(seeded=False)
@option("--target", "T", TARGET, cls=Shared)
@case_options
@output_options
def lock(
    model: str | None,
    words: dict[str, str],
    run: ModelRun,
    path: Path,
    out: Output,
    **options: str | None,
) -> None:
    """Runs a model or a case, and keeps its bits with the conditions that they have here.

    \b
      probe check lock model.onnx --inputs x.npz
      probe check lock package:function --shape 8x64 --target torch,threads=1
      probe check lock --op matmul --in-channels 768 --filters 64 --length 8
      probe check

    bits.lock has a line for each accepted value, with the conditions: library releases, processor,
    BLAS core, threads, flags. Tests add theirs by `pytest --bits-update`.
    """
    from probe.case.arguments import whole_number
    from probe.case.case import Case
    from probe.targets.target import Target
    from probe.ui.answers.answer import command_line
    from probe.ui.lock import checks, runs

    case, bless = None, options["bless"]
    if model is None and (set(words) - {"seed"}):
        case = sized_case(words)
        run.refuse_beside_case()
    elif set(words) - {"seed"}:
        raise InputError("model", model, "a case is given too", "give one of the two")
    elif model is None:
        raise InputError("model", "(none)", "there is nothing to run", "give MODEL, or --op conv1d")
    where = options["target"]
    spec = {} if where is None else {"target": Target.parse(where).text}
    if case is None:
        seed = str(whole_number("seed", words.get("seed", "0"), least=0))
        more = {"inputs": str(run.inputs or ""), "shapes": " ".join(run.shapes), "seed": seed}
        spec |= {"model": str(model)} | {name: value for name, value in more.items() if value}
    else:
        plain = Case(case.op, case.kernel, case.in_channels).arguments()
        arguments = {
            k: v for k, v in case.arguments().items() if v != plain[k] or k in ("op", "kernel")
        }
        arguments["in_channels"] = case.in_channels
        spec = {"target": "numpy"} | spec | {"case": json.dumps(arguments)}
    called = options["name"] or model or (command_line(case) if case is not None else "")
    if bless is not None and not bless.strip():
        raise InputError("bless", bless, "a reason is required", "say why the bits changed")
    with running_model(out, "lock") as tell:
        results = runs.lock_run(path, called, spec, bless, tell.say, trust=run.trust)
    lines = [f"{result.check}: {result.bits.text}: {SAID[result.verdict]}" for result in results]
    out.give(checks.json_report(results), lambda: "\n".join(lines))


SAID = {
    "same": "accepted already",
    "new": "added",
    "unknown": "added for these conditions",
    "changed": "replaced",
}


@click.command(
    cls=OptionsByScope, short_help="Check the bits of models and cases against bits.lock."
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@option("--lock path", "FILE", LOCK, default="bits.lock")
@option("--why", "WHICH", WHY, default="here", type=click.Choice(["here", "all", "install", "no"]))
@option(
    *("--report reports", "FORMAT"),
    "Also write bits-report.FORMAT (json, markdown or github: annotations), or FORMAT=FILE.",
    multiple=True,
)
@option("--trust", None, TRUST, is_flag=True)
@output_options
def check(
    names: tuple[str, ...],
    path: Path,
    why: str,
    reports: tuple[str, ...],
    trust: bool,
    out: Output,
) -> int:
    """Runs what `probe check lock` added, and compares its bits with those that are accepted.

    If bits changed, it runs the check again under the conditions of its entry until they return,
    and so finds the cause: the processor, a release, threads, a flag, or your code. Exit status: 0
    the same; 1 changed; 3 unknown, because no entry has the conditions of this machine.
    """
    from probe.ui.lock import checks, runs

    for each in reports:
        form, _, path_of_report = each.partition("=")
        if form not in checks.ENDINGS:
            known = ", ".join(checks.ENDINGS)
            raise InputError("report", each, "there is no such format", f"use one of {known}")
        if not Path(path_of_report).parent.is_dir():
            todo = f"give {form}=FILE in a folder that exists"
            raise InputError("report", each, "there is no such folder", todo)
    with running_model(out, "check") as tell:
        try:
            results = runs.check_runs(path, names, why, tell.say, trust=trust)
        except InputError as error:
            for each in reports:
                checks.write_report(each, Path(), (), error=str(error))
            raise
    for each in reports:
        out.note(checks.write_report(each, Path(), results))
    lines = checks.terminal_lines(results, (), (), update=False)
    out.give(checks.json_report(results), lambda: "\n".join(lines))
    return runs.exit_status(results)


@click.command(cls=OptionsByScope, short_help="Show with NumPy alone how one bit moves.")
@output_options
def demo(out: Output) -> None:
    """Shows how one bit moves: a report's outputs, recomputed with NumPy in both orders."""
    from probe.ui.answers import doctor as answers

    out.give(answers.demo_json(), answers.demo_text)


@click.command(cls=OptionsByScope, short_help="Copy a workflow that checks bits.lock in CI.")
@click.argument("service", metavar="github")
@option("--out folder", "DIR", "The repository, or a folder in it.", default=".")
@output_options
def setup(service: str, out: Output, folder: Path) -> None:
    """Copies a workflow that runs pytest under several instruction sets on one runner.

    It is copied where GitHub looks, at the repository's root, and is yours to edit: what pip
    installs, and the folder of the tests. It prints a Markdown summary and annotates the lines of
    checks that changed.
    """
    from probe.ui.lock import conditions

    if service != "github":
        raise InputError("service", service, "there is no such service", "use github")
    file = conditions.WORKFLOW.as_posix()
    conditions.copy_workflow(folder)
    advice = f"{file} was written at the repository's root; edit its PROBE, NEEDS and FOLDER"
    out.give({"file": file}, lambda: f"{advice}, and commit it with bits.lock")

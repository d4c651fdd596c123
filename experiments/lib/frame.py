"""What a script of ``experiments/`` begins with: two options, a bar, every error as one line."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from probe import load
from probe.case import schema
from probe.case.case import Case
from probe.case.errors import INTERRUPTED, InputError, ProbeError
from probe.explain.causes import explain_store
from probe.sweep.bits import sweep_cases
from probe.sweep.campaign import Campaign, Question, Row, Tally, run_row
from probe.sweep.plan import ALL, Shard, current_shard, within_shard
from probe.sweep.printing import Output
from probe.sweep.store import Store
from probe.targets import budget
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import Tell
from probe.targets.target import Target
from probe.ui.answers import sweep as answers

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

QUICK = "reference reference,algorithm=pairwise,length_switch=9".split()
"""Targets of a quick run: NumPy, and the same with an order that switches with the length."""

FEW = 2
"""Differing outputs stored of each comparison where pictures need no more; how many there are is
counted without limit."""

Part = tuple[Sequence[Case], Sequence[int], str]
"""Of a sweep: cases, the values that each is run at, and the axis that they are of."""

PATIENCE = 900.0
"""Seconds for an answer or a start: nothing may be called a failure that is only a busy machine."""

patient = functools.partial(open_session, time_limit=PATIENCE, start_limit=PATIENCE)


@dataclass(frozen=True)
class Experiment:
    """One run of a script. ``folder``: has the machines' folders; ``quick``: tried out on NumPy.

    Ctrl-C ends each method with all that is stored, and then the script: KeyboardInterrupt.
    """

    name: str
    folder: Path
    quick: bool = False

    @contextmanager
    def store(self, what: str = "") -> Iterator[tuple[Store, Tell]]:
        """This machine's store, and a bar on stderr."""
        with Store.here(self.folder) as kept, Output().progress(what or self.name) as tell:
            yield kept, tell

    def sweep(self, parts: Iterable[Part], targets: Sequence[str], **options: Any) -> None:
        """Sweeps every part; ``options``: of ``sweep_cases``."""
        words = {"experiment": self.name, "opens": patient} | options
        where = [Target.parse(text) for text in targets]
        try:
            with self.store() as (kept, tell):
                for cases, values, vary in parts:
                    end_if_interrupted(
                        sweep_cases(cases, where, values, vary, store=kept, progress=tell, **words)
                    )
        except KeyboardInterrupt:
            self.sum_up()
            raise

    def explain(self) -> None:
        """Finds the cause of every difference that is stored, and prints all."""
        out = Output()
        with out.progress(f"{self.name}: causes") as tell:
            explained = explain_store(self.folder, progress=tell)
        for line in explained.failures:
            out.note(line)
        self.sum_up()
        end_if_interrupted(explained)

    def sum_up(self) -> None:
        """Prints the store as ``probe results`` does."""
        Output().results.print(answers.stores_shown(answers.summary_of_stores(load(self.folder))))

    def time(self, measured: Iterable[tuple[str, Iterable[Row]]]) -> None:
        """Stores rows of ``measurements``, by target, as soon as they are known; prints medians."""
        refuse_shards()
        os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", ABSL_MIN_LOG_LEVEL="3")
        with self.store() as (kept, _):
            for text, rows in measured:
                named = {"run_id": stored_run(text, kept, self.name)}
                kept.append("measurements", [row | named for row in rows])
                kept.flush()
        by = ["subject", "variant", "size", "unit"]
        print(load(self.folder).measurements.groupby(by, sort=False).value.median().to_string())

    def answer(
        self,
        table: str,
        questions: Iterable[tuple[tuple[Any, ...], Callable[[], Row]]],
        where: Callable[[tuple[Any, ...]], str],
    ) -> None:
        """Stores a row of ``table`` for each question that has none.

        ``questions``: the columns that name one, behind its run, and what gives the others.
        ``where``: the target of its run. A refusal is a row with the reason, or is printed where
        there is no such column.
        """
        names, runs = schema.key_columns(table)[1:], dict[str, str]()
        with self.store() as (kept, tell):
            stored = {row[1:] for row in kept.done_keys(table)}
            for number, (key, measure) in enumerate(questions):
                words = " ".join(str(word) for word in key if word)
                tell(number, 0, words)
                if key in stored:
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
                    runs[target] = stored_run(target, kept, self.name)
                row = {"run_id": runs[target]} | dict(zip(names, key, strict=True)) | row
                kept.append(table, row | {"seconds": time.monotonic() - begun})

    def ask(
        self,
        campaign: Callable[..., Campaign[Question]],
        questions: Iterable[tuple[str, Question]],
        counted: str = "",
        opens: Callable[[Target], AnySession] = open_session,
        workers: int | None = None,
        **attributes: Any,
    ) -> Tally:
        """Asks questions of targets, each with the text of its target.

        ``counted``: what is printed as the number of answers; ``workers``: targets at once;
        ``attributes``: of the campaign.
        """
        by_target: dict[str, list[Question]] = {}
        for text, question in questions:
            by_target.setdefault(text, []).append(question)
        with self.store(counted) as (kept, tell):
            job = campaign(kept, self.name, tell, opens)
            for name, value in attributes.items():
                setattr(job, name, value)
            tally = job.run(
                [(Target.parse(text), some) for text, some in by_target.items()], workers
            )
        out = Output()
        if counted:
            out.results.print(f"{tally.found:,} {counted}, {tally.before:,} were stored before")
        for text, failures in tally.failures.items() if counted else ():
            out.results.print(f"{text}: {'; '.join(dict.fromkeys(failures))}", style="yellow")
        end_if_interrupted(tally)
        return tally


def end_if_interrupted(done: Any) -> None:
    """Ends the script where Ctrl-C ended what it did."""
    if done.interrupted:
        raise KeyboardInterrupt


def script(main: Callable[[Experiment], None]) -> click.Command:
    """The command of an experiment, with ``--store``, ``--quick`` and what divides it.

    ``main`` gets the folder ``results/NAME`` of the checkout, or ``build/quick/NAME`` for a quick
    run, which must not mix with results. ``NAME`` is the script's file name.
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
                main(Experiment(name, (store or kept / name) / part.folder, quick))
            if allowed and allowed.left_out:
                said = f"the time is up, {allowed.left_out:,} questions were left out"
                click.echo(f"{name}: {said}; the same command continues with them", err=True)
        except ProbeError as error:
            click.echo(f"{name}: {error}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    return command


def refuse_shards() -> None:
    """Raises InputError where an experiment whose times are compared is asked for a part."""
    if (part := current_shard()) != ALL:
        why = "times are compared within one run"
        raise InputError("shard", part.text, why, "leave it out, and run it on each machine")


def stored_run(text: str, store: Store, experiment: str) -> str:
    """Stores the row of the run on a target; its id. TargetError: it does not start."""
    with open_session(Target.parse(text)).start() as session:
        row = run_row(session.target, session.facts, session.variables, experiment)
    store.append("runs", row)
    return str(row["run_id"])

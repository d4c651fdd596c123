"""Runs many questions on targets: starts, restarts, failures, stored rows, progress, Ctrl-C.

A ``Campaign`` asks every target its questions in one process of it. A process that is lost is
started again for the next question; a target that does not start leaves its questions out. What
fails becomes a row of ``failures``, and the other questions go on.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from probe.case import schema
from probe.case.case import Case, by
from probe.case.errors import NotASum, TargetError, TimeOver
from probe.sweep import plan
from probe.targets import backends, budget, machine
from probe.targets.environments import Missing
from probe.targets.launch import AnySession, InlineSession, open_session
from probe.targets.progress import Reporter, Tell, silent
from probe.targets.target import Target, target_runtime

if TYPE_CHECKING:  # what keeps nothing needs no pyarrow
    from probe.sweep.store import Store

Row = dict[str, Any]
Question = TypeVar("Question")
Job = TypeVar("Job")
Answer = TypeVar("Answer")


# Seconds after which a wait ends for a moment, so that Ctrl-C is heard.
HEARD = 0.2


def completed_in_processes(futures: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    """Futures in the order in which they end, so that Ctrl-C is heard at once.

    A library that installs its own handler of SIGINT with SA_RESTART (polars does) keeps a thread
    that waits for a lock from noticing it: the wait goes on. So nothing here waits long.
    """
    pending = set(futures)
    while pending:
        done, pending = wait(pending, HEARD, FIRST_COMPLETED)
        yield from done
        if pending:
            budget.require_time()


@dataclass(frozen=True)
class Failure:
    """One failure of a target. ``case_id`` and ``at`` are None where it wasn't at one."""

    kind: str
    message: str
    case_id: str | None = None
    at: int | None = None


@dataclass
class Tally:
    """What a campaign did: questions answered now, those stored before, and failures by target.

    ``left_out``: those that a budget left no time for.
    """

    found: int = 0
    before: int = 0
    left_out: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False


class NotStarted(Exception):
    """A target did not start, so nothing more can be asked of it."""

    def __init__(self, error: TargetError) -> None:
        self.error = error


class Stopped(Exception):
    """Nothing more is asked of a target: the campaign is to stop, or all is known."""


class Campaign(ABC, Generic[Question]):
    """Questions of one kind. A subclass says how one is asked and where its answer goes.

    ``store``: where rows are kept; None keeps nothing. ``opens``: gives a target's session, which
    need not be started; with ``close`` it is ended with the target's last question.
    """

    refusals: tuple[type[Exception], ...] = (TargetError, NotASum)
    """What ``ask`` may raise where a target does not answer: it becomes a row of ``failures``."""

    def __init__(
        self,
        store: Store | None = None,
        experiment: str | None = None,
        progress: Tell | None = None,
        opens: Callable[[Target], AnySession] = open_session,
        close: bool = True,
    ) -> None:
        self.store, self.experiment, self.tell = store, experiment, progress or silent
        self.opens, self.close = opens, close
        self.tally = Tally()
        self.parts: dict[str, CampaignPart[Question]] = {}
        self.done = self.total = 0
        self.shard, self.budget = plan.current_shard(), budget.current_budget()
        self._ended = False
        self.lock = threading.Lock()

    @abstractmethod
    def ask(self, part: CampaignPart[Question], question: Question) -> None:
        """Asks one question and stores the answer.

        Errors: ``refusals``, ``NotStarted``, and ``Stopped`` where it was left in the middle.
        """

    def begin(self, part: CampaignPart[Question]) -> None:
        """Does what is to be done as soon as a target has started, before its first question."""

    def known(self, part: CampaignPart[Question]) -> bool:
        """Counts what is stored, if that is everything: then the target need not even start."""
        return False

    def place(self, question: Question) -> Row:
        """``case_id``, ``vary`` and ``at`` of a failure at this question."""
        return {}

    def size(self, question: Question) -> int:
        """How much a question counts for in the progress."""
        return 1

    def share(self, number: int, questions: Sequence[Question]) -> list[Question]:
        """The questions of a target that this shard asks; ``number``: of questions before them."""
        return [
            question for place, question in enumerate(questions, number) if self.shard.has(place)
        ]

    def agenda(self, part: CampaignPart[Question]) -> Iterable[Question]:
        """The questions of a target that has started, one after the other, as they are asked."""
        return part.questions

    def keep(self, table: str, rows: Any) -> None:
        """Stores rows, if there is a store: a row or a list of rows."""
        if self.store is not None:
            self.store.append(table, rows)

    def keep_columns(self, table: str, columns: Mapping[str, Any]) -> None:
        """Stores rows by columns, if there is a store: there may be millions."""
        if self.store is not None:
            self.store.extend(table, columns)

    def run(
        self, questions: Iterable[tuple[Target, Sequence[Question]]], workers: int | None = None
    ) -> Tally:
        """Asks all targets; Ctrl-C ends it with what there is, which the store then has.

        ``workers``: targets that are asked side by side, in threads; None: one after the other, in
        this thread, which in-process sessions need.
        """
        parts_asked, before = [], 0
        for target, questions_of_target in questions:
            all_questions = list(questions_of_target)
            if asked_here := self.share(before, all_questions):
                parts_asked.append((target, asked_here))
            before += len(all_questions)
        self.total = sum(
            self.size(question)
            for _, questions_of_target in parts_asked
            for question in questions_of_target
        )
        if self.budget is not None and isinstance(self.tell, Reporter):
            self.tell.ends = time.monotonic() + self.budget.left
        try:
            # one after the other each opens its session when its turn comes
            begun_in_turn = (CampaignPart(self, *part) for part in parts_asked)
            parts = [] if workers is None else list(begun_in_turn)
            if all(isinstance(part.session, InlineSession) for part in parts):
                for part in parts or begun_in_turn:
                    part.run()
            else:
                with ThreadPoolExecutor(workers, "campaign") as pool:
                    futures = [pool.submit(part.run) for part in parts]
                    try:
                        for future in completed_in_processes(futures):
                            future.result()
                    finally:
                        if not all(future.done() for future in futures):
                            self._ended = not self.late
                        # again and again: a process may be started meanwhile
                        while not all(future.done() for future in futures):
                            for part in parts:
                                part.session.interrupt()
                            wait(futures, HEARD)
        except TimeOver:  # what was asked by then counts; the rest is left out, below
            self._ended = True
        except KeyboardInterrupt:
            self.tally.interrupted = True
        if self.late and self.budget is not None:
            self.tally.left_out = self.total - self.done
            self.budget.left_out += self.tally.left_out
        if self.store is not None:
            # the alarm must not raise TimeOver during the flush: measured rows would be lost
            before = self.budget is not None and self.budget.answered
            if self.budget is not None:
                self.budget.answered = True
            self.store.flush()
            if self.budget is not None:
                self.budget.answered = before
        return self.tally

    @property
    def stop(self) -> bool:
        """Whether nothing more is asked: Ctrl-C, or the time is up."""
        return self._ended or self.late

    @property
    def late(self) -> bool:
        return self.budget is not None and self.budget.over


class CampaignPart(Generic[Question]):
    """One target's part of a campaign, with one session for all its questions.

    ``run_id``: its run, known when it has begun. ``stack`` is closed at its end.
    """

    def __init__(
        self, campaign: Campaign[Question], target: Target, questions: Sequence[Question]
    ) -> None:
        self.campaign, self.target, self.questions = campaign, target, questions
        self.session = campaign.opens(target)
        campaign.parts[target.text] = self
        self.run_id = ""
        self.failures: list[Failure] = []
        self.stack = ExitStack()
        self._left = sum(map(campaign.size, questions))

    @property
    def left(self) -> int:
        """Questions that are neither answered nor known to fail, as ``Campaign.size`` counts."""
        return self._left

    def run(self) -> None:
        """Asks all questions; whether it starts or not, it ends with its session closed."""
        campaign = self.campaign
        with self.stack:
            if campaign.close:
                self.stack.callback(self.session.close)
            with suppress(Stopped):  # the answers so far are stored; what is left is told below
                try:
                    if campaign._ended or campaign.known(self) or self.stopped():
                        raise Stopped
                    try:
                        self.revive()
                    except NotStarted:
                        if not self.stopped():
                            self.identify()
                        raise
                    self.identify()
                    campaign.begin(self)
                    for question in campaign.agenda(self):
                        if self.stopped():
                            raise Stopped
                        due = self._left - campaign.size(question)  # what was not told while it ran
                        self.revive()
                        try:
                            campaign.ask(self, question)
                        except campaign.refusals as error:
                            if self.stopped():
                                raise Stopped from None
                            self.fail(error, campaign.place(question))
                        if self._left > due:
                            self.tell(self._left - due)
                except NotStarted as lost:
                    self.fail(lost.error)
            if not campaign.stop and self._left:
                self.tell(self._left, asked=False)

    def revive(self) -> None:
        """Starts the target's process unless it is running. Raises NotStarted."""
        try:
            self.session.revive()
        except TargetError as error:
            raise NotStarted(error) from None

    def identify(self) -> None:
        """Stores the row of ``runs``; ``facts`` are empty where the target did not start."""
        row = run_row(
            self.target, self.session.facts, self.session.variables, self.campaign.experiment
        )
        self.run_id = row["run_id"]
        self.campaign.keep("runs", row)

    def fail(self, error: Exception, place: Mapping[str, Any] | None = None, why: str = "") -> None:
        """Records a failure, unless it is we who ended the process; ``why`` is added to it."""
        if self.campaign.stop:
            return
        row = failure_row(self.run_id, self.target, error, place, why)
        self.failures.append(Failure(row["kind"], row["message"], row["case_id"], row["at"]))
        self.campaign.keep("failures", row)
        with self.campaign.lock:
            failures = self.campaign.tally.failures
            failures.setdefault(self.target.text, []).append(str(error))
            # a GPU or a library that isn't there is no failure: nothing was tried
            tried = not (isinstance(error, TargetError) and error.kind == "unavailable")
            if tried and isinstance(tell := self.campaign.tell, Reporter):
                tell.failures += 1
        self.tell(0)

    def stopped(self) -> bool:
        return self.campaign.stop

    def tell(self, done: int, what: str = "", asked: bool = True) -> None:
        """Counts what is done, and reports; ``asked`` False: what was stored, or can't be done."""
        campaign = self.campaign
        self._left -= done
        with campaign.lock:
            campaign.done += done
            if isinstance(campaign.tell, Reporter) and not asked:
                campaign.tell.skipped += done
            text = f"{self.target.text}: {what}" if what else self.target.text
            campaign.tell(campaign.done, campaign.total, text)


def in_processes(
    jobs: Sequence[Job],
    answer: Callable[[Job], Answer],
    take: Callable[[Job, Answer], None],
    workers: int | None = None,
    progress: Callable[[int, int, Job], None] | None = None,
) -> bool:
    """Answers jobs in fresh processes and takes the answers here; whether Ctrl-C ended it.

    ``workers``: processes; None: one a processor. They are spawned, so that a script needs
    ``if __name__ == "__main__"``: a fork of a process with JAX or TensorFlow in it may hang.
    """
    # a fork of a process with JAX or TensorFlow in it may hang
    afresh = get_context("spawn")
    with ProcessPoolExecutor(workers or machine.cores(), mp_context=afresh) as pool:
        waiting = {pool.submit(answer, job): job for job in jobs}
        try:
            for done, future in enumerate(completed_in_processes(waiting), 1):
                take(waiting[future], future.result())
                if progress:
                    progress(done, len(jobs), waiting[future])
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            return True
    return False


def run_row(
    where: Target,
    facts: Mapping[str, Any],
    variables: Mapping[str, str],
    experiment: str | None = None,
) -> Row:
    """The row of ``runs`` for a started target; ``facts`` empty where it did not start."""
    keys = backends.get(where.name).keys
    switches = {name: key.default for name, key in keys.items()} | dict(where.switches)
    # what a default came to, where the library says it: TensorFlow's oneDNN is off on processors
    # without VNNI, so that `tensorflow` is another program there
    for name in switches.keys() - dict(where.switches).keys():
        if (value := facts.get(name)) is not None:
            switches[name] = str(int(value) if isinstance(value, bool) else value)
    names = ("library", "library_version", "python_version", "numpy_version")
    facts_here = machine.facts()
    with suppress(Missing):  # an emulated processor stands in the place of this machine's
        if (emulator := target_runtime(where).emulated) is not None:
            facts_here = facts_here | machine.emulating(emulator, where.device)
    row = {
        "started": datetime.fromtimestamp(time.time(), UTC),
        "experiment": experiment,
        "target": where.text,
        "device": where.device,
        "switches": switches,
        "environment": dict(variables),
        **{name: facts.get(name) for name in names},
        **facts_here,
    }
    return {"run_id": schema.run_id(row), **row}


def case_row(case: Case) -> Row:
    same = ("op", "in_channels", "filters", "groups", "length", "batch", "dtype", "seed")
    return {
        "case_id": case.id,
        **{name: getattr(case, name) for name in (*same, "summands")},
        "kernel": by(case.kernel),
        "stride": by(case.stride),
        "dilation": by(case.dilation),
        "padding": case.padding_text,
        "height": None if case.height is None else by(case.height),
        "operands": case.kind,
        "json": case.to_json(),
    }


def failure_row(
    run_id: str,
    target: Target,
    error: Exception,
    place: Mapping[str, Any] | None = None,
    why: str = "",
) -> Row:
    """The row of ``failures``; ``place``: ``case_id``, ``vary`` and ``at``, where it was at one."""
    message = getattr(error, "why", str(error))
    return {
        "run_id": run_id,
        "target": target.text,
        **dict.fromkeys(("case_id", "vary", "at")),
        **(place or {}),
        "kind": getattr(error, "kind", "not-a-sum"),
        "message": message + (f"; {why}" if why else ""),
        "stderr": getattr(error, "stderr", None) or None,
    }

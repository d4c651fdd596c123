"""Campaigns whose questions are rows of one table: what the store has is not asked again."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property
from multiprocessing import get_context
from typing import Any

from probe.case import schema
from probe.case.case import Case
from probe.case.errors import ProbeError
from probe.order.orders import Orders
from probe.sweep.campaign import Campaign, CampaignPart, Question, Row
from probe.targets import machine

Answer = Mapping[str, "Row | Sequence[Row]"]
"""Rows by table, without the columns that say which question they answer."""


class Answered(Campaign[Question]):
    """Stores what answers each question, and knows which answers the store has.

    ``table``: where answers are; ``key``: its columns that name a question of a run.
    """

    table: str
    key: tuple[str, ...]

    @abstractmethod
    def columns(self, question: Question) -> Row:
        """What is known of a question without asking it, ``key`` among it."""

    @cached_property
    def stored(self) -> set[tuple[Any, ...]]:
        """Runs and keys of the answers in the store."""
        assert self.store is not None
        names = schema.key_columns(self.table)
        places = [names.index(name) for name in ("run_id", *self.key)]
        return {tuple(row[at] for at in places) for row in self.store.done_keys(self.table)}

    def is_stored(self, part: CampaignPart[Any], question: Question) -> bool:
        """Counts a question that the store has an answer to."""
        columns = self.columns(question) | {"target": part.target.text}
        found = (part.run_id, *(columns[name] for name in self.key)) in self.stored
        with self.lock:
            self.tally.before += found
        return found

    def take(
        self, part: CampaignPart[Any], question: Question, answer: Answer | str, seconds: float
    ) -> None:
        """Stores an answer, or the reason why there is none."""
        if isinstance(answer, str):
            answer = {self.table: {"reason": answer}}
        else:
            with self.lock:
                self.tally.found += 1
        columns = {"run_id": part.run_id, "target": part.target.text, "seconds": seconds}
        columns |= self.columns(question)
        for table, rows in answer.items():
            names = {*columns} & {*schema.column_names(table)}
            shared = {name: columns[name] for name in names}
            several = [rows] if isinstance(rows, dict) else rows
            self.keep(table, [shared | row for row in several])


class Answering(Answered[Question]):
    """Asks the questions that the store has no answer to, one after the other."""

    reasons: tuple[type[Exception], ...] = ()
    """What ``answer`` may raise where there is none: then the row of ``table`` says why."""

    @abstractmethod
    def answer(self, part: CampaignPart[Question], question: Question) -> Answer:
        """Asks; each row gets those of ``columns`` that its table has."""

    def reason(self, error: Exception) -> str:
        """Why there is no answer, in one line."""
        return machine.publishable(str(error))

    def ask(self, part: CampaignPart[Question], question: Question) -> None:
        if not self.is_stored(part, question):
            begun = time.perf_counter()
            try:
                answer: Answer | str = self.answer(part, question)
            except self.reasons as error:
                answer = self.reason(error)
            self.take(part, question, answer, time.perf_counter() - begun)


class InProcesses(Answered[Any]):
    """Answers several questions at once in a process of their own, which a library may end."""

    @abstractmethod
    def function(self, part: CampaignPart[Any]) -> Callable[[list[Any]], list[Timed]]:
        """What answers questions there."""

    def size(self, question: Sequence[Any]) -> int:
        return len(question)

    def ask(self, part: CampaignPart[Any], question: Sequence[Any]) -> None:
        todo = [each for each in question if not self.is_stored(part, each)]
        answers = in_process(self.function(part), todo) if todo else []
        for each, (answer, seconds) in zip(todo, answers, strict=True):
            self.take(part, each, answer, seconds)


Timed = tuple["Answer | str", float]
"""An answer, or why there is none; and seconds."""


def answer_each(answer: Callable[[Any], Answer], questions: Iterable[Any]) -> list[Timed]:
    """Answers questions in this process; whatever a library raises is the reason of one alone."""
    answers: list[Timed] = []
    for question in questions:
        begun = time.perf_counter()
        try:
            found: Answer | str = answer(question)
        except Exception as error:  # recorded, so that the next ones run
            found = in_one_line(error)
        answers.append((found, time.perf_counter() - begun))
    return answers


def in_one_line(error: Exception) -> str:
    """What is stored of an error: of a library's with its class."""
    text = str(error) if isinstance(error, ProbeError) else f"{type(error).__name__}: {error}"
    return machine.publishable((text.splitlines() or [type(error).__name__])[0])


def in_process(function: Callable[[list[Any]], list[Timed]], questions: list[Any]) -> list[Timed]:
    """What a function gives for questions in a process of its own; where that dies, for each in its
    own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(function, questions).result()
        except BrokenProcessPool:
            if len(questions) > 1:
                return [each for one in questions for each in in_process(function, [one])]
            return [("the process died", 0.0)]


def place(case: Case) -> Row:
    """Columns of a case at its length."""
    return {"case_id": case.id, "vary": "length", "at": case.length}


def revealed(orders: Orders) -> dict[str, list[Row]]:
    """Rows of how all outputs of a call are added."""
    return {
        "reveals": orders.rows({}),
        "orders": [each.order_row() for each in orders.summations],
        "roundings": [each.rounding_row() for each in orders.summations],
    }

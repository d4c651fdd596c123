"""Runs one of several parts of a sweep or an experiment, for job arrays and CI matrices.

The questions of a command have an order, which the command alone decides. Shard i of n asks every
n-th of them from the i-th on: no question twice, none left out, whatever the other shards do, and
no engine is needed between them. Each writes to a folder of its own beside the others, so that no
two processes write to one; the folder above reads as the store of one run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from probe.case.errors import InputError

Question = TypeVar("Question")

HOW = "use i/n, such as 2/8: the second of eight parts"


class Shard(NamedTuple):
    """Part ``number`` (from 1) of ``total``."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads ``i/n``. Raises InputError."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if not match:
            raise InputError("shard", text, "it is not a part such as 2/8", HOW)
        number, total = int(match[1]), int(match[2])
        if not 1 <= number <= total:
            raise InputError("shard", text, f"parts are numbered from 1 to {total}", HOW)
        return cls(number, total)

    @property
    def text(self) -> str:
        """``2/8``; as a folder's name it is ``folder``."""
        return f"{self.number}/{self.total}"

    @property
    def folder(self) -> str:
        """Where this part's results are kept beside the others'; empty for the only part."""
        return f"shard-{self.number}-of-{self.total}" if self.total > 1 else ""

    def has(self, place: int) -> bool:
        """Returns whether the question at this place, from 0, is asked here."""
        return place % self.total == self.number - 1

    def part(self, questions: Sequence[Question]) -> list[Question]:
        return list(questions[self.number - 1 :: self.total])


ALL = Shard(1, 1)

_CURRENT: ContextVar[Shard] = ContextVar("shard", default=ALL)


def questions_of_part(questions: Iterable[Question]) -> Iterator[Question]:
    """Yields the questions of this part; campaigns within the loop run all of their own."""
    mine = current_shard().part(list(questions))
    with within_shard(ALL):
        yield from mine


def current_shard() -> Shard:
    """Returns the part that is run now; ``ALL`` if none was chosen."""
    return _CURRENT.get()


@contextmanager
def within_shard(shard: Shard) -> Iterator[Shard]:
    """Within this context every campaign runs this part alone."""
    token = _CURRENT.set(shard)
    try:
        yield shard
    finally:
        _CURRENT.reset(token)

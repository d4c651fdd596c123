"""Waiting for futures so that Ctrl-C is heard at once, whichever libraries are loaded.

A library that installs its own handler of SIGINT with SA_RESTART (polars does) keeps a thread that
waits for a lock from noticing it: the wait goes on. So nothing here waits long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

PATIENCE = 0.2  # seconds


def completed(futures: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    """Futures in the order in which they end."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, PATIENCE, FIRST_COMPLETED)
        yield from done

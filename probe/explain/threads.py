"""Names public threads of the same library, cause and verdict: what became of a question like it.

``threads.toml`` has them as data: facts, looked up by hand, with no wording of theirs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

# Threads that an answer names.
NAMED = 2


@cache
def public_threads() -> list[dict[str, Any]]:
    text = Path(__file__).with_name("threads.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["thread"])


def alike(
    library: str, verdict: str, causes: Collection[str], op: str, dtype: str, vary: str | None
) -> str:
    """Returns ``as in pytorch#134715: closed as expected behaviour``, or nothing.

    ``causes``: single words. ``vary``: the axis along which the sides differ, None for none
    (`""` in the file).
    """
    asked = (("ops", op), ("dtypes", dtype), ("vary", vary or ""))
    found = [
        thread
        for thread in public_threads()
        if thread["library"] in (library, "*")
        and thread["verdict"] == verdict
        and ("any" in thread["causes"] or set(causes) & set(thread["causes"]))
        and all(value in thread.get(name, [value]) for name, value in asked)
    ]
    # those that say most of what they are about come first
    found.sort(key=lambda thread: -len(set(thread) & {"ops", "dtypes", "vary"}))
    if not found:
        return ""
    return "as in " + "; ".join(f"{thread['name']}: {thread['said']}" for thread in found[:NAMED])

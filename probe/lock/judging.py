"""Compares what a check has with what the lock accepts: same, changed, unknown, or new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from probe.lock.conditions import Apart, Facts, apart, key
from probe.lock.file import Accepted, LockFile
from probe.lock.values import Bits

SAME, CHANGED, UNKNOWN, NEW = "same", "changed", "unknown", "new"


@dataclass
class Checked:
    """One check. ``check``: its name; ``test``: the test that it is of, or the name again.

    ``verdict``: ``same``: bits that are accepted, here or under other conditions. ``changed``: not
    those of an entry whose conditions hold, or hold but for releases. ``unknown``: no entry is of
    these conditions. ``new``: there is no entry. ``nearest``: the conditions of the entry that
    differs least; ``apart``: in what. ``place``: file and line of the check. ``why``: what
    :mod:`probe.lock.why` found. ``difference``: where the arrays differ, in words, if it is known.
    """

    check: str
    test: str
    bits: Bits
    facts: Facts
    verdict: str
    nearest: str = ""
    accepted: Accepted | None = None
    apart: Apart = field(default_factory=dict)
    place: tuple[str, int] | None = None
    why: dict[str, Any] = field(default_factory=dict)
    difference: str = ""

    @property
    def message(self) -> str:
        """Returns what is wrong in one line, and what to do; empty for the same bits."""
        if self.verdict == SAME:
            return ""
        if self.verdict == NEW:
            return f"check={self.check}: bits.lock has no entry; run pytest --bits-update to add it"
        assert self.accepted is not None
        told = f"{self.bits.text}, accepted is {self.accepted.bits.text}"
        told += f" ({self.difference})" if self.difference else ""
        if self.verdict == UNKNOWN:
            todo = f"if you trust them, add them: {self._how(False)}"
            return f"check={self.check}: {told}, under {self.conditions}; {todo}"
        under = f", with {self.conditions}" if self.apart else ""
        todo = f"accept them with {self._how(True)}"
        return f"check={self.check}: the bits changed: {told}{under}; {todo}"

    def _how(self, bless: bool) -> str:
        if "::" not in self.test:  # a run of probe lock
            return f"probe lock ... {'--bless REASON' if bless else '(as it was added)'}"
        return f"pytest {'--bits-bless REASON' if bless else '--bits-update'}"

    @property
    def conditions(self) -> str:
        """Returns in what the nearest entry differs: ``threads 1 -> 2, release numpy ...``."""
        told = []
        for facts in self.apart.values():
            each = [
                f"{name.removeprefix('library.')} {_said(theirs)} -> {_said(ours)}"
                for name, (theirs, ours) in facts.items()
            ]
            told.append(", ".join(each))
        return "; ".join(told) or "the same conditions"

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe check --json`` and ``--bits-report=json`` have of it."""
        accepted = self.accepted
        return {
            "check": self.check,
            "test": self.test,
            "verdict": self.verdict,
            "bits": _bits(self.bits),
            "accepted": None if accepted is None else _bits(accepted.bits),
            "reason": (accepted.reason or None) if accepted else None,
            "conditions": self.facts,
            "nearest": self.nearest or None,
            "apart": {
                group: {name: list(both) for name, both in facts.items()}
                for group, facts in self.apart.items()
            },
            "difference": self.difference or None,
            "file": self.place[0] if self.place else None,
            "line": self.place[1] if self.place else None,
            "why": self.why or None,
        }

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Checked:
        """Returns what ``to_json`` wrote, of another process."""
        accepted = told["accepted"]
        return cls(
            told["check"],
            told["test"],
            _of(told["bits"]),
            dict(told["conditions"]),
            told["verdict"],
            told["nearest"] or "",
            Accepted(_of(accepted), told["reason"] or "") if accepted else None,
            {
                group: {name: (both[0], both[1]) for name, both in facts.items()}
                for group, facts in told["apart"].items()
            },
            (told["file"], told["line"]) if told["file"] else None,
            dict(told["why"] or {}),
            told["difference"] or "",
        )


def _said(value: str | int | None) -> str:
    return "unset" if value is None else str(value)


def _bits(bits: Bits) -> dict[str, Any]:
    return {"dtype": bits.dtype, "shape": list(bits.shape), "hash": bits.hash}


def _of(told: Mapping[str, Any]) -> Bits:
    return Bits(told["dtype"], tuple(told["shape"]), told["hash"])


def judged(lock: LockFile, check: str, test: str, bits: Bits, facts: Facts) -> Checked:
    """Returns the verdict on one check's bits under the conditions here.

    An entry whose conditions all hold decides. Where there is none, bits that any entry has are the
    same: they are accepted. Else, where an entry differs in releases alone, the bits changed with
    them: a release is what a user chooses, a processor is not. With anything else it is unknown.
    """
    found = Checked(check, test, bits, facts, NEW)
    entries = lock.checks.get(check, {})
    if not entries:
        return found
    differing = {named: apart(lock.conditions[named], facts) for named in entries}

    def far(named: str) -> tuple[Any, ...]:
        groups = differing[named]
        others = [group for group in groups if not group.startswith("release ")]
        # of two that hold, the one that says more; the same key first: two may hold at once
        known = len(lock.conditions[named])
        return (len(others), len(groups), named != key(facts), -known, named)

    exact = [named for named in entries if not differing[named]]
    equal = [named for named in entries if entries[named].bits == bits]
    nearest = min(entries, key=far)
    if key(facts) in entries or not equal:
        wanted = nearest
    elif exact:  # two sets of conditions may hold at once, which name different libraries
        wanted = min(exact, key=far) if not set(exact) & set(equal) else min(equal, key=far)
    else:
        wanted = min(equal, key=far)
    found.nearest, found.accepted, found.apart = wanted, entries[wanted], differing[wanted]
    if entries[wanted].bits == bits:
        found.verdict = SAME
    elif all(group.startswith("release ") for group in differing[wanted]):
        found.verdict = CHANGED
    else:
        found.verdict = UNKNOWN
    return found

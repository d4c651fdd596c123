"""Classes of sizes as JSON, with what they were found on: they are checked before they are used."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError
from probe.invariant.classes import Entry, Sizes

FORMAT = 1
CHECKED = 6  # sizes of each operation that are asked again where a table is read


def environment() -> dict[str, Any]:
    """What decides which kernels PyTorch takes: none of it names the machine or its user."""
    import torch

    from probe.machine import facts

    here = facts()
    return {
        "library": "torch",
        "version": str(torch.__version__),
        "processor": here["cpu_model"],
        "isa": here["cpu_isa"],
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": bool(torch.backends.mkldnn.enabled),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "variables": variables(),
    }


def variables(
    prefixes: tuple[str, ...] = ("MKL_", "ONEDNN_", "DNNL_", "ATEN_", "OMP_", "KMP_"),
) -> dict[str, str]:
    """Variables of the environment that libraries read when they choose kernels; no paths."""
    there = sorted(os.environ.items())
    return {name: one for name, one in there if name.startswith(prefixes) and "/" not in one}


@dataclass
class Table:
    """Entries by the operation's key.

    ``threads``: with so many were classes chosen. ``notes``: what did not hold when it was read;
    ``trusted``: whether the environment is the one that it was made in. ``recipes``: of the samples
    that whole programs were checked with, by key (``samples``).
    """

    like: str
    sizes: dict[str, tuple[int, ...]]
    threads: int
    environment: dict[str, Any] = field(default_factory=environment)
    entries: dict[str, Entry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    trusted: bool = True
    recipes: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes it whole, or not at all."""
        kept = {"format": FORMAT, "like": self.like, "threads": self.threads}
        entries = {key: vars(entry) for key, entry in sorted(self.entries.items())}
        told = kept | {"sizes": self.sizes, "environment": self.environment, "operations": entries}
        told |= {"samples": self.recipes} if self.recipes else {}
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(told, indent=1))
        part.replace(path)

    @classmethod
    def read(cls, path: Path, now: dict[str, Any] | None = None) -> Table:
        """A table as it was written. InputError: it is none, or one of another format.

        ``now``: the environment that there is; PyTorch's if not given.
        """
        try:
            told = json.loads(path.read_text())
            found = cls(
                str(told["like"]),
                {name: tuple(values) for name, values in told["sizes"].items()},
                int(told["threads"]),
                environment() if now is None else now,
                entries={key: _entry(each) for key, each in told["operations"].items()},
            )
            number, before = told["format"], dict(told["environment"])
            found.recipes = dict(told.get("samples", {}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"this is no table of classes ({type(error).__name__})"
            raise InputError("table", path.name, why, "write one with report.save") from error
        if number != FORMAT:
            raise InputError("table", path.name, f"its format is {number}, not {FORMAT}")
        now = found.environment
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if names:
            found.trusted = False
            found.notes.append(
                f"the table was made with another {', '.join(names)}: all sizes are checked anew"
            )
        return found

    def recheck(self, sizes: Sizes) -> None:
        """Asks some sizes of an operation again; what does not hold is forgotten.

        All of them are forgotten if one doesn't hold, or where the environment is another. The
        chosen class stays, so that the same bits are looked for; where no size gives them any
        more, a class is chosen anew, and ``notes`` says so.
        """
        marks, kept = sizes.marks, dict(sizes.marks)
        asked = sorted(kept)
        at = np.linspace(0, len(asked) - 1, min(len(asked), CHECKED)).round().astype(int)
        marks.clear()
        for size in (asked[number] for number in at):
            if sizes.mark(size) != kept[size]:
                self.notes.append(f"{sizes.operation.key}: size {size} differs: checked anew")
                sizes.entry.certified.clear()
                return
        if self.trusted:
            marks |= kept | marks
        else:
            sizes.entry.certified.clear()


def _entry(told: dict[str, Any]) -> Entry:
    marks = {
        int(threads): {int(size): str(mark) for size, mark in each.items()}
        for threads, each in told["marks"].items()
    }
    certified = {str(name): str(value) for name, value in told["certified"].items()}
    return Entry(str(told["chosen"]), str(told["like"]), int(told["largest"]), marks, certified)


def anew(sizes: Sizes, largest: int, like: str, wanted: Sequence[int], notes: list[str]) -> None:
    """Chooses a class where no size gives the bits of the one that was chosen before."""
    if sizes.plan(largest) is None:
        notes.append(f"{sizes.operation.key}: no size gives the bits of the table: chosen anew")
        sizes.choose(largest, like, wanted)

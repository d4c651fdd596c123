"""Stores classes of sizes as JSON, with their conditions; they are checked before use."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError
from probe.invariant.classes import Entry, Sizes

FORMAT = 1
VARIABLES = ("MKL_", "ONEDNN_", "DNNL_", "OMP_", "KMP_")
MOST_BYTES, MOST_THREADS = 1 << 26, 4096  # of a table that is read
HEARSAY = "the table says: "
CHECKED = 6  # sizes of each operation that are asked again where a table is read


def table_environment(library: str = "torch") -> dict[str, Any]:
    """What decides which kernels a library takes: none of it names the machine or its user."""
    found = _torch() if library == "torch" else _tensorflow()
    chosen = (*VARIABLES, *found.pop("prefixes"))
    return {"library": library} | conditions(found, chosen)


def conditions(found: dict[str, Any], prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Returns what is known of a library with the processor and the variables that it reads."""
    from probe.machine import facts

    here = facts()
    processor = {"processor": here["cpu_model"], "isa": here["cpu_isa"]}
    there = sorted(os.environ.items())  # a path would name the machine
    read = {name: one for name, one in there if name.startswith(prefixes) and "/" not in one}
    return {**found, **processor, "variables": read}


def _torch() -> dict[str, Any]:
    import torch

    return {
        "version": str(torch.__version__),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": bool(torch.backends.mkldnn.enabled),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "prefixes": ("ATEN_",),
    }


def _tensorflow() -> dict[str, Any]:
    import keras
    import tensorflow as tf
    from tensorflow.python.framework import config

    return {
        "version": str(tf.__version__),
        "keras": str(keras.__version__),
        "deterministic": bool(config.is_op_determinism_enabled()),
        "prefixes": ("TF_ENABLE_", "TF_DISABLE_", "TF_SET_ONEDNN", "TF_DETERMINISTIC", "XLA_"),
    }


@dataclass
class Table:
    """Entries by the operation's key.

    ``threads``: with that many were classes chosen. ``notes``: what did not hold when it was read;
    ``trusted``: whether the environment is the one that it was made in. ``recipes``: of the samples
    that whole programs were checked with, by key (``samples``).
    """

    like: str
    sizes: dict[str, tuple[int, ...]]
    threads: int
    environment: dict[str, Any] = field(default_factory=table_environment)
    entries: dict[str, Entry] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    trusted: bool = True
    recipes: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes it whole, or not at all."""
        part = path.with_name(path.name + ".part")  # a reader sees the old table or the new one
        part.write_text(self.text())
        part.replace(path)

    def text(self) -> str:
        kept = {"format": FORMAT, "like": self.like, "threads": self.threads}
        entries = {key: entry.to_json() for key, entry in sorted(self.entries.items())}
        told = kept | {"sizes": self.sizes, "environment": self.environment, "operations": entries}
        told |= {"samples": self.recipes} if self.recipes else {}
        return json.dumps(told, indent=1)

    @classmethod
    def read(cls, path: Path, now: dict[str, Any] | None = None) -> Table:
        """A table as it was written. InputError: it is none, or of another format or library.

        ``now``: the environment that there is; PyTorch's if not given.
        """
        try:
            if path.stat().st_size > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
            text = path.read_text()
        except ValueError as error:
            raise _no_table(path.name, type(error).__name__) from error
        except OSError as error:
            raise InputError(
                "table", path.name, str(error.strerror), "write one with report.save"
            ) from error
        return cls.of(text, path.name, table_environment() if now is None else now)

    @classmethod
    def of(cls, text: str, name: str, now: dict[str, Any]) -> Table:
        """As ``read``, of the text of a table, which errors call ``name``."""
        try:
            told = json.loads(text)
            found = cls(
                str(told["like"]),
                {name: tuple(map(_checked_size, values)) for name, values in told["sizes"].items()},
                _checked_threads(told["threads"]),
                now,
                entries={key: _entry_of(each) for key, each in told["operations"].items()},
            )
            number, before = told["format"], dict(told["environment"])
            found.recipes = dict(told.get("samples", {}))
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise _no_table(name, type(error).__name__) from error
        except RecursionError as error:
            why = "it is nested too deeply"
            raise InputError("table", name, why, "write one with report.save") from error
        if number != FORMAT:
            raise InputError("table", name, f"its format is {number}, not {FORMAT}")
        now = found.environment
        if (its := before.get("library")) != now["library"]:
            why = f"it is of {its}, not of {now['library']}"
            raise InputError("table", name, why, "give a different table")
        names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if names:
            found.trusted = False
            found.notes.append(
                f"the table was made with another {', '.join(names)}: all sizes are checked anew"
            )
        return found

    @classmethod
    def opened(
        cls,
        path: str | Path | None,
        like: str,
        sizes: dict[str, tuple[int, ...]],
        threads: int,
        now: dict[str, Any],
    ) -> Table:
        """Returns the table of this path, or a new one in the environment that there is ``now``.
        InputError: it is for other sizes."""
        if path is None or not Path(path).is_file():
            return cls(like, sizes, threads, now)
        kept = cls.read(Path(path), now)
        if (kept.like, kept.sizes) != (like, sizes):
            said = f"it is for like={kept.like}, sizes={kept.sizes}"
            raise InputError("table", Path(path).name, said, "give the same, or another table")
        return kept

    def recheck(self, sizes: Sizes) -> None:
        """Asks some sizes of an operation again; what does not hold is forgotten.

        All of them are forgotten if one doesn't hold, or where the environment is another. Those
        that were not asked are believed until one of them is to be run: then it is asked first. The
        chosen class stays, so that the same bits are looked for; where no size gives them any
        more, a class is chosen anew, and ``notes`` says so.
        """
        marks, kept = sizes.marks, dict(sizes.marks)
        most = CHECKED * max(self.sizes["batch"]) * max(self.sizes.get("length", (1,)))
        asked = sorted(size for size in kept if size <= most)
        at = np.linspace(0, len(asked) - 1, min(len(asked), CHECKED)).round().astype(int)
        marks.clear()
        sizes.believed.clear()
        sizes.notes, sizes.entry.home = self.notes, self.trusted
        for size in (asked[number] for number in at):
            if sizes.mark(size) != kept[size]:
                self.notes.append(f"{sizes.operation.key}: size {size} differs: checked anew")
                sizes.entry.certified.clear()
                return
        if self.trusted:  # thousands of sizes may stand there: few are ever run
            sizes.believed |= kept.keys() - marks.keys()
            marks |= kept | marks
        else:
            sizes.entry.certified.clear()


def _no_table(name: str, error: str) -> InputError:
    why = f"it is not a table of classes ({error})"
    return InputError("table", name, why, "write one with report.save")


def _checked_size(given: Any) -> int:
    """Returns a size. ValueError, TypeError: it is none."""
    if isinstance(given, bool) or index(given) < 1:
        raise ValueError(given)
    return index(given)


def _checked_threads(given: Any) -> int:
    if not 1 <= (found := int(given)) <= MOST_THREADS:
        raise ValueError(given)
    return found


def _entry_of(told: dict[str, Any]) -> Entry:
    marks = {
        _checked_threads(threads): {
            _checked_size(int(size)): str(mark) for size, mark in each.items()
        }
        for threads, each in told["marks"].items()
    }
    certified = {  # marked as not tested here
        str(name): HEARSAY + str(value).removeprefix(HEARSAY)
        for name, value in told["certified"].items()
    }
    return Entry(str(told["chosen"]), str(told["like"]), int(told["largest"]), marks, certified)


def anew(sizes: Sizes, largest: int, like: str, wanted: Sequence[int], notes: list[str]) -> None:
    """Chooses a class where that of the table is not the one that is wanted, or has no sizes."""
    entry = sizes.entry
    if (entry.like, entry.largest) != (like, largest):
        why = "the table's class is for other sizes"
    elif like == "largest" and entry.home and sizes.of_largest(largest) != entry.chosen:
        why = "the table's class is not that of the largest size"
    elif sizes.plan(largest) is None:
        why = "no size gives the bits of the table"
    else:
        return
    notes.append(f"{sizes.operation.key}: {why}: chosen anew")
    sizes.choose(largest, like, wanted)

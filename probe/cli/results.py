"""``probe results`` and ``probe merge``: stores of several machines read as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import Words, fail_on_option, output_options

if TYPE_CHECKING:
    import pandas

    from probe.cli.output import Output
    from probe.store.results import Results

BY = ["machine", "target", "library_version", "vary"]

folders_argument = click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)


@click.command(cls=Words, short_help="What stores hold, by machine and target.")
@folders_argument
@fail_on_option(differing="a stored comparison has a difference")
@output_options
def results(folders: tuple[Path, ...], fail_on: str | None, out: Output) -> int:
    """Sums up stored results, of one machine or of several.

    DIR is an experiment's folder, one machine's folder in it, or results itself.
    """
    from probe.cli.show import stored
    from probe.store.results import load

    found = report(load(*folders))
    out.give(found, lambda: stored.results(found))
    return int(bool(fail_on) and found["differing"] > 0)


@click.command(cls=Words, short_help="Make one store of several.")
@folders_argument
@click.option(
    "--out",
    "into",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder to write; it gets a folder for every machine.",
)
@output_options
def merge(folders: tuple[Path, ...], into: Path, out: Output) -> None:
    """Merges stores into one, a folder for every machine; of two equal rows the later counts."""
    from probe.cli.show import stored
    from probe.store import merge as merged

    written = [str(folder) for folder in merged(folders, into)]
    found = {"out": str(into), "folders": written}
    out.give(found, lambda: stored.merged(found))


def report(found: Results) -> dict[str, Any]:
    """What ``--json`` prints: totals, and one entry of ``targets`` for each machine and target."""
    rows = _comparisons(found)
    targets = [
        dict(zip(BY, key, strict=True)) | _sums(part)
        for key, part in rows.groupby(BY, dropna=False, sort=True)
    ]
    failures, causes = _counts(found.failures, ["machine", "target"]), _causes(found)
    for entry in targets:
        place = (entry["machine"], entry["target"])
        entry["library_version"] = _text(entry["library_version"])
        entry["failures"] = failures.pop(place, 0)
        entry["causes"] = causes.get((*place, entry["vary"]), {})
    targets += [
        dict.fromkeys([*BY, *_NOTHING])
        | _NOTHING
        | {"machine": place[0], "target": place[1]}
        | {"failures": count, "causes": {}}
        for place, count in failures.items()
    ]
    totals = {name: sum(one[name] for one in targets) for name in ("compared", "differing")}
    return {"machines": found.machines, "cases": len(found.cases), **totals, "targets": targets}


_NOTHING: dict[str, Any] = {
    "cases": 0,
    "comparisons": 0,
    "compared": 0,
    "differing": 0,
    "max_ulp": 0,
    "unstable": 0,
    "nondeterministic": 0,
}


def _comparisons(found: Results) -> pandas.DataFrame:
    """The comparisons, with the library's version of their run."""
    rows = found.comparisons.copy()
    runs = found.runs.drop_duplicates(["machine", "run_id"])
    version = runs.set_index(["machine", "run_id"])["library_version"].to_dict()
    keys = zip(rows["machine"], rows["run_id"], strict=True)
    rows["library_version"] = [version.get(key) for key in keys]
    return rows


def _sums(part: pandas.DataFrame) -> dict[str, Any]:
    """Counts of one target's comparisons. ``unstable``: comparisons with a difference."""
    differs = part[part["differing"] > 0]
    ulps = differs["max_ulp"].dropna()
    return {
        "cases": int(part["case_id"].nunique()),
        "comparisons": len(part),
        "compared": int(part["compared"].sum()),
        "differing": int(part["differing"].sum()),
        "max_ulp": int(ulps.max()) if len(ulps) else (None if len(differs) else 0),
        "unstable": len(differs),
        "nondeterministic": int((part["control"] == "differs").sum()),
    }


def _counts(rows: pandas.DataFrame, by: list[str]) -> dict[tuple[str, ...], int]:
    return {tuple(key): len(part) for key, part in rows.groupby(by)}


def _causes(found: Results) -> dict[tuple[str, ...], dict[str, int]]:
    """Explained outputs by cause, for each machine, target and axis."""
    sums: dict[tuple[str, ...], dict[str, int]] = {}
    grouped = found.causes.groupby(["machine", "target", "vary", "cause"])["outputs"].sum()
    for (machine, target, vary, cause), outputs in grouped.items():
        sums.setdefault((machine, target, vary), {})[cause] = int(outputs)
    return sums


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

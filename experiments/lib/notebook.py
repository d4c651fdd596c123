"""Reads a store for a notebook: one machine, and the newest run of every target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probe.sweep.printing import ranges
from probe.sweep.stored import Results, load
from probe.targets import backends, machine
from probe.targets.target import Target

if TYPE_CHECKING:
    import pandas


def results(store: str | Path, label: str | None = None) -> Results:
    """The results of one machine of an experiment: ``label``, else this machine, else the first.

    Errors: StoreError where there are none.
    """
    machines = load(store).machines
    label = label or machine.label()
    return load(Path(store) / (label if label in machines else machines[0]))


def newest(found: Results, table: str) -> pandas.DataFrame:
    """The rows of ``table`` of every target's newest run, each with the columns of its case.

    A store keeps what other versions of a library gave; a picture shows one of them.
    """
    rows = getattr(found, table)
    runs = found.runs.sort_values("started").groupby("target").tail(1)
    rows = rows[rows.run_id.isin(runs.run_id)]
    if "case_id" not in rows:
        return rows.reset_index(drop=True)
    return rows.merge(found.cases, on="case_id", how="left", suffixes=("", "_of_case"))


def in_order(targets: Iterable[str]) -> list[str]:
    """Target texts, each once: by library as ``probe targets`` lists them, fewer switches first."""
    libraries = backends.known_backends()

    def place(text: str) -> tuple[int, int, str]:
        target = Target.parse(text)
        return libraries.index(target.name), len(target.switches), text

    return sorted(set(targets), key=place)


def alike(comparisons: pandas.DataFrame) -> dict[str, list[str]]:
    """Targets with the same bits in every comparison: the first of each group, and the others."""
    bits = comparisons.pivot_table(
        index="target", columns=["case_id", "at"], values="digest_at", aggfunc="first"
    ).fillna("")
    groups: dict[tuple[str, ...], list[str]] = {}
    for target in in_order(bits.index):
        groups.setdefault(tuple(bits.loc[target]), []).append(target)
    return {names[0]: names[1:] for names in groups.values()}


def lengths_that_differ(comparisons: pandas.DataFrame, reported: Sequence[int]) -> str:
    """Sentences: what differs at the lengths of a report, and at which others.

    ``comparisons``: rows of one case, of every target and length (``at``). A target counts at a
    length where an output differs from the longest length's.
    """
    targets, longest = comparisons.target.nunique(), comparisons.against.max()
    differ = comparisons[comparisons.differing > 0]
    there = differ[differ["at"].isin(reported)]
    listed = " and ".join(map(str, reported))
    if len(there):
        where = _lengths(there)
        found = f"Yes, at lengths that were reported ({listed}): {where}."
    else:
        found = (
            f"Not at the lengths that were reported: at {listed} all {targets} targets give the "
            f"bits of length {longest}."
        )
    others = differ[~differ["at"].isin(reported)]
    if others.empty:
        return f"{found} No other length differs."
    return f"{found} At other lengths earlier outputs do change: {_lengths(others)}."


def _lengths(differ: pandas.DataFrame) -> str:
    """The targets, each with the lengths at which it differs."""
    lengths = differ.groupby("target")["at"].unique()
    return "; ".join(
        f"`{name}` at {ranges(sorted(map(int, lengths[name])), len(lengths[name]))}"
        for name in in_order(lengths.index)
    )


def step_costs(measurements: pandas.DataFrame) -> pandas.DataFrame:
    """How many times as long a decoder takes in the invariant mode, by decoder: the median of its
    steps, and each length of a prompt."""
    rows = measurements[measurements.unit == "processor s"]
    least = rows.groupby(["subject", "variant", "size"]).value.min().unstack("variant")
    ratio = {
        kind: (least[f"{kind}, invariant mode"] / least[f"{kind}, as it is"]).dropna()
        for kind in ("step", "prefill")
    }
    prompts = ratio["prefill"].unstack("size").add_prefix("prompt of ")
    prompts.insert(0, "step", ratio["step"].groupby("subject").median())
    return prompts


def measured_on(found: Results) -> str:
    """One sentence: processor, libraries and month of the newest run."""
    newest_run = found.runs.sort_values("started").iloc[-1]
    named = found.runs.dropna(subset=["library", "library_version"])
    libraries = ", ".join(
        f"{name} {' and '.join(sorted(set(versions)))}"
        for name, versions in named.groupby("library").library_version
    )
    return (
        f"Measured in {newest_run.started:%B %Y} on {newest_run.cpu_model} ({newest_run.cpu_isa}, "
        f"{newest_run.cores} cores, {newest_run.os}) with {libraries}."
    )

"""Compares what several kinds of processor gave for the same questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt

from lib import pictures
from lib.notebook import in_order, newest
from probe.sweep.stored import Results, load

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

PLACE = ["target", "case_id", "vary", "at", "against"]
"""The columns that name a question that can be put to every machine."""

COLOURS = ("#d9d9d9", "#56b4e9", "#d55e00", "#0072b2")
"""Of ``agreement``'s columns: the same bits, different bits, and changes on one machine only."""


def by_machine(store: str | Path) -> dict[str, Results]:
    """The results of every machine of an experiment, by its processor's name.

    Processors of one name are told by their labels too. Errors: StoreError where there are none.
    """
    found = {label: load(Path(store) / label) for label in load(store).machines}
    models = {label: str(one.runs.cpu_model.dropna().iloc[0]) for label, one in found.items()}
    # such as `AMD EPYC` or `Intel Xeon`: the model without its marks
    marks = re.compile(r"\(R\)|\(TM\)| Processor| CPU")
    names = {at: " ".join(marks.sub("", model).split()[:2]) for at, model in models.items()}
    alone = {label: list(names.values()).count(name) == 1 for label, name in names.items()}
    return {names[at] if alone[at] else f"{names[at]} ({at})": one for at, one in found.items()}


def pairs(found: Mapping[str, Results]) -> list[tuple[str, str]]:
    return list(combinations(found, 2))


def agreement(found: Mapping[str, Results], pair: tuple[str, str]) -> pandas.DataFrame:
    """Comparisons that both machines have, by target (rows) and by what is alike (columns).

    ``same bits``; ``different bits``: stable, or unstable, on both; ``changes only on`` one.
    The bits are those of the shorter side (``digest_at``); of the same library version alone.
    """
    import pandas as pd

    one, other = (
        newest(found[name], "comparisons").merge(
            found[name].runs[["run_id", "library_version"]], on="run_id"
        )
        for name in pair
    )
    both = one.merge(other, on=[*PLACE, "library_version"], suffixes=("", "_other"))
    unstable = both.differing > 0, both.differing_other > 0
    words = {True: "same bits", False: "different bits"}
    kind = (both.digest_at == both.digest_at_other).map(words)
    kind[unstable[0] & ~unstable[1]] = f"changes only on {pair[0]}"
    kind[unstable[1] & ~unstable[0]] = f"changes only on {pair[1]}"
    columns = ["same bits", "different bits", *(f"changes only on {name}" for name in pair)]
    counts = pd.crosstab(both.target, kind)
    return counts.reindex(index=in_order(both.target), columns=columns, fill_value=0)


def walks(found: Mapping[str, Results], pair: tuple[str, str]) -> pandas.DataFrame:
    """Counts pairs of runs that both machines have, by model (rows) and by where outputs differ.

    Columns: ``equal on both``, ``differs on both``, ``differs only on`` one. Pairs of runs about
    which nothing is known on one of them are left out.
    """
    import pandas as pd

    one, other = (_walked(found[name]) for name in pair)
    both = pd.concat([one, other], axis=1, keys=pair, join="inner").dropna()
    columns = ["equal on both", "differs on both", *(f"differs only on {name}" for name in pair)]
    differs = both == "differs"
    kind = pd.Series(columns[0], index=both.index)
    kind[differs.all(axis=1)] = columns[1]
    for name, column in zip(pair, columns[2:], strict=True):
        kind[differs[name] & ~differs.all(axis=1)] = column
    models = both.index.get_level_values("model") + " on " + both.index.get_level_values("target")
    return pd.crosstab(models, kind).reindex(columns=columns, fill_value=0).rename_axis(index=None)


def _walked(found: Results) -> pandas.Series:
    """The verdicts on pairs of runs, by ``model, target, vary, at, against``."""
    rows = newest(found, "walks")
    rows = rows[rows.verdict.isin(["equal", "differs"])]
    return rows.set_index(["model", "target", *PLACE[2:]]).verdict


def invariance(found: Mapping[str, Results]) -> pandas.DataFrame:
    """What the invariant mode kept and cost, a row a machine.

    How many layers and models were run, how many numbers must agree, how many of them differ in the
    unchanged library and in the mode; and medians over layers of the time over the unchanged
    library, for 1 to 15 rows or samples and for 16 and more.
    """
    import pandas as pd

    rows = {}
    for name, one in found.items():
        within = one.invariances[one.invariances.axis != "threads"]
        models = within[within.kind == "model"].subject
        times = one.measurements[~one.measurements.subject.isin(models)]
        of = times.variant.str.split(", ", expand=True)
        keys = [times["subject"], times["size"], of[1], of[0]]
        best = times.groupby(keys).value.min().unstack()
        ratio = best.invariant / best.plain
        many = ratio.index.get_level_values("size") >= 16
        rows[name] = {
            "layers and models": f"{within.subject.nunique()}",
            "numbers": f"{within.compared.sum():,}",
            "differ in the library": f"{within.plain.sum():,}",
            "differ in the mode": f"{within.differing.sum():,}",
            "time, 1 to 15": f"{ratio[~many].median():.2f}",
            "time, 16 and more": f"{ratio[many].median():.2f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def summations(found: Mapping[str, Results]) -> pandas.DataFrame:
    """How many ways to add (tree and rounding) each target has on every machine, and on all.

    Of targets and cases that were revealed on all of them; a column a machine, for those that no
    other one has, and ``on all``. In which outputs they are met may differ.
    """
    import pandas as pd

    way = ["target", "case_id", "order_id", "rounding_id"]
    tables = {name: newest(one, "reveals") for name, one in found.items()}
    rows = pd.concat([one.assign(on=name) for name, one in tables.items()]).dropna(subset=way)
    rows = rows[rows.groupby(way[:2]).on.transform("nunique") == len(found)]
    there = pd.crosstab([rows[name] for name in way], rows.on).astype(bool)
    alone = there.sum(axis=1) == 1
    kinds = {"on all": there.all(axis=1)}
    kinds |= {f"only on {name}": there.get(name, False) & alone for name in found}
    counts = pd.DataFrame(kinds, index=there.index).groupby("target").sum()
    return counts.reindex(in_order(counts.index)).rename_axis(None)


def draw(found: Mapping[str, Results], pair: tuple[str, str]) -> Figure:
    """``agreement`` as bars, a row a target; how many comparisons both have stands at the end."""
    counts = agreement(found, pair)
    same, total = int(counts["same bits"].sum()), int(counts.to_numpy().sum())
    return _bars(counts, pair, f"the same bits in {same:,} of {total:,} comparisons")


def draw_walks(found: Mapping[str, Results], pair: tuple[str, str]) -> Figure:
    """``walks`` as bars, a row a model; how many pairs of runs both have stands at the end."""
    counts = walks(found, pair)
    alike, total = int(counts.iloc[:, :2].to_numpy().sum()), int(counts.to_numpy().sum())
    return _bars(counts, pair, f"the same verdict on {alike:,} of {total:,} pairs of runs")


def _bars(counts: pandas.DataFrame, pair: tuple[str, str], message: str) -> Figure:
    figure, axes = plt.subplots(figsize=(8.5, 0.3 * len(counts) + 1.3), layout="constrained")
    pictures.stacked_shares(axes, counts, COLOURS)
    axes.set_xlabel("share of the comparisons, whose number is on the right")
    axes.set_title(f"{' and '.join(pair)}: {message}", fontsize=10)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure

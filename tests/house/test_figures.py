"""Figures in README and docs are those of the committed results: sentences are made anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import probe

ROOT = Path(__file__).parents[2]
README, EXPERIMENTS = ROOT / "README.md", ROOT / "docs" / "experiments.md"


def of(name):
    return probe.load(ROOT / "results" / name)


def length_sweep():
    causes = of("length_sweep").causes
    assert (causes.outputs == causes.replayed).all()
    assert not set(causes.cause) & {"unexplained", "nondeterministic", "not-a-sum"}
    by = causes.groupby("machine").outputs.sum()
    amd, intel = (int(by[by.index.str.startswith(kind)].sum()) for kind in ("amd", "intel"))
    return [
        (README, f"{amd + intel:,} outputs differ from the same"),
        (EXPERIMENTS, f"{amd:,} outputs differ on AMD and {intel:,} on Intel"),
    ]


def frameworks():
    results = of("frameworks")
    by = results.comparisons.groupby("target").differing.sum()
    causes = results.causes
    assert causes.outputs.sum() == causes.replayed.sum() == by.sum()
    said = f"{(by > 0).sum()} of {len(by)} targets change bits with the length"
    return [(README, said), (EXPERIMENTS, f"{said}: {by.sum():,} differing outputs")]


def padded_network():
    results = of("padded_network")
    least = results.decisions[results.decisions.variant == "least"]
    lengths = results.padded_lengths
    assert (lengths.differing_safe == 0).all()
    taken, crossed = int(least.taken.sum()), int(least.crossed.sum())
    assert crossed == 0
    return [
        (README, f"{crossed} of {taken:,} decisions"),
        (EXPERIMENTS, f"exact at all {len(lengths):,} valid lengths"),
        (EXPERIMENTS, f"of {taken:,} decisions none changed"),
    ]


def remedies():
    found = of("remedies").remedies
    single = found[found.network_id.isna() & (found.vary != "batch")]
    keys = ["target", "case_id"]
    unstable = single[(single.remedy == "default") & (single.verdict == "differs")][keys]
    exact = {
        name: int((rows.merge(unstable, on=keys).verdict == "exact").sum())
        for name, rows in single.groupby("remedy")
    }
    count = len(unstable)
    assert exact["threads=1"] == exact["deterministic=1"]
    return [
        (
            README,
            f"Deterministic mode and one thread fix {exact['threads=1']} of {count} unstable "
            f"cases, float64 fixes {exact['float64']}",
        ),
        (
            EXPERIMENTS,
            f"Padding to a safe length fixes {exact['pad']} of {count} unstable cases; one "
            f"thread and deterministic mode fix {exact['threads=1']}, float64 fixes "
            f"{exact['float64']}",
        ),
    ]


def real_models():
    walks = of("real_models").walks
    differ = walks[walks.verdict == "differs"]
    pairs = f"{len(differ)} of {len(walks)} pairs of runs"
    decisions = f"{differ.crossed.sum()} of {differ.rows.sum()} decisions"
    return [
        (README, f"{pairs} of real models differ at the output; {decisions} change"),
        (EXPERIMENTS, f"{pairs} differ at the output; {decisions} of these change"),
    ]


def reproductions():
    found = of("reproductions").reproductions
    said = f"{int(found.confirmed.sum())} of {len(found)}"
    return [(README, f"{said} generated bug scripts"), (EXPERIMENTS, f"{said} gave the measured")]


def fuzz():
    trials = of("fuzz").trials
    checked = trials[trials.refereed.notna() & (trials.refereed > 0)]
    unexplained = int(trials.differing.sum() - trials.replayed.sum())
    return [
        (
            EXPERIMENTS,
            f"{len(trials):,} random pairs on {trials.target.nunique()} targets: "
            f"{int(trials.differing.sum()):,} outputs differ, {unexplained} are unexplained",
        ),
        (
            EXPERIMENTS,
            f"{int(checked.missed.sum())} missed and {int(checked.false.sum())} false among "
            f"{int(checked.refereed.sum()):,} outputs",
        ),
    ]


def public_reports():
    results = of("public_reports")
    found = results.findings
    windows = found.causes.str.contains('"window"')
    conventions = found.thread.isin(set(found[windows].thread))
    found = found[(found.differing > 0) & (~conventions | windows)]
    home = found[found.target == found.thread.map(results.reports.set_index("thread").home)]
    ran, alive = results.findings.thread.nunique(), found.thread.nunique()
    at_home = home.thread.nunique()
    said = f"{alive} of the {ran} that can be run still happen, {at_home} at the library that was "
    return [(EXPERIMENTS, f"{said}reported and {alive - at_home} elsewhere")]


STORES = (
    length_sweep,
    frameworks,
    padded_network,
    remedies,
    real_models,
    reproductions,
    fuzz,
    public_reports,
)


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.__name__)
def test_sentences_say_what_the_store_holds(store):
    for page, sentence in store():
        assert sentence in " ".join(page.read_text().split()), page.name


def test_all_long_figures_of_the_findings_are_made_from_stores():
    said = " ".join(sentence for store in STORES for _, sentence in store())
    findings = README.read_text().partition("## Five findings")[2] + EXPERIMENTS.read_text()
    assert set(re.findall(r"\d{1,3}(?:,\d{3})+", findings)) - {"100,000"} <= set(
        re.findall(r"\d{1,3}(?:,\d{3})+", said)
    )

"""Experiments run in seconds on NumPy alone, and their notebooks on what these runs stored."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from lib import notebook
from probe import load
from probe.targets import machine
from tests.experiments.notebooks import pictures, ran

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

SWEEPS = ("prefix_stability", "length_sweep")
OTHERS = ("accumulation_orders", "bug_or_rounding", "devices", "frameworks", "fuzz", "invariance")
OTHERS += ("lock", "public_reports", "real_models", "reproductions", "schedules")
PICTURES = sorted({*SWEEPS, *OTHERS, "overhead"} - {"bug_or_rounding", "schedules"})
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def rows(store):
    """The rows of all tables but runs, in any order."""
    found = load(store)
    tables = {path.name.partition(".")[0] for path in store.rglob("*.parquet")} - {"runs"}
    values = {name: getattr(found, name).astype(str).to_numpy().tolist() for name in tables}
    return {name: sorted(map(tuple, table)) for name, table in values.items()}


@pytest.mark.parametrize("name", [*SWEEPS, *OTHERS])
@pytest.mark.slow_at(*OTHERS)
def test_a_second_run_measures_nothing_again(name, first):
    store, _ = first(name)
    before = rows(store)
    ran(name, store)
    assert before and rows(store) == before


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.slow
def test_its_notebook_runs_on_a_quick_run(name, first, tmp_path):
    assert pictures(name, first(name)[0], tmp_path) > 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("name", [*SWEEPS, "overhead"])
@pytest.mark.slow_at("overhead")
def test_a_quick_run_stores_what_it_measured(name, first):
    found = load(first(name)[0])
    assert found.machines == [machine.label()]
    assert set(found.runs.experiment) == {name} and found.failures.empty
    assert len(found.measurements if name == "overhead" else found.comparisons) >= 8


@pytest.mark.parametrize("name", SWEEPS)
def test_only_the_target_that_switches_differs(name, first):
    differing = load(first(name)[0]).comparisons.groupby("target").differing.sum()
    assert not differing["reference"] and differing.drop("reference").all()


def test_published_lengths_are_stored_whole(first):
    outputs = notebook.newest(load(first("prefix_stability")[0]), "outputs")
    mine = outputs[outputs.target == "reference"].sort_values(["at", "position"])
    assert mine["at"].value_counts().to_dict() == {7: 3, 8: 4, 9: 5}
    assert mine.bits[mine["at"] == 7].tolist() == [0x42737AFD, 0x4291F5D0, 0x42AA2E22]


@pytest.mark.parametrize("name", ["length_sweep", "accumulation_orders"])
def test_a_mistaken_store_is_one_line(name, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as left:
        ran(name, tmp_path / "file")
    said = capsys.readouterr().err
    assert left.value.code == 2 and said.count("\n") == 1 and f"{name}: " in said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_executed_beside_its_experiment_and_results(path):
    if path.stem != "start_here":  # it reads what length_sweep stored
        assert (ROOT / "experiments" / f"{path.stem}.py").is_file()
        assert list((ROOT / "results" / path.stem).glob("*/runs.parquet"))
    book = json.loads(path.read_text())
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    kinds = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert "error" not in kinds and kinds
    assert book["cells"][0]["source"][0].startswith("# ")

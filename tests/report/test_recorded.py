"""The folder of a recorded operation: one script with its operands, proved before it is kept."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probe.case.errors import InputError, NotReproduced
from probe.diff import source
from probe.diff.difference import Region, compare_runs
from probe.diff.match import RunningMatch
from probe.diff.running import by_running
from probe.order.semantics import Contracts, Each, Unknown
from probe.record.recording import record_run
from probe.report import recorded as reports
from tests.record.doubles import Doubles, Step, added

pytestmark = pytest.mark.long

RANDOM = np.random.default_rng(2)

PRODUCT = """order = range({1}.shape[0]) if len({0}) == 1 else range({1}.shape[0])[::-1]
{y} = 0
for k in order:
    {y} = {y} + {0}[:, k, None] * {1}[k]
{y} = {y}.astype(np.float32)"""


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    order = list(range(w.shape[0]))
    return added(x[:, :, None] * w, order if len(x) == 1 else order[::-1])


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def found(step: Step, left: np.ndarray, right: np.ndarray, w: Any = None) -> tuple[Any, ...]:
    more = {} if w is None else {"w": w}
    sides = [record_run(Doubles({"x": one} | more, [step])) for one in (left, right)]
    first = compare_runs(RunningMatch.of(sides[0], sides[1])).first
    assert first is not None
    return sides[0], sides[1], first, source.find_cause(sides[0], sides[1], first)


def planted(k: int = 6, n: int = 40, text: str = PRODUCT) -> tuple[Any, ...]:
    x, w = normal(3, k), normal(k, n)
    step = Step("planted", Contracts("mk,kn->mn"), product, ["x", "w"], text)
    return found(step, x[:1], x, w)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "reproduce.py")]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder.parent)


def test_the_script_shows_the_recorded_bits_anywhere_and_can_be_published(tmp_path: Path) -> None:
    left, right, first, cause = planted()
    made = reports.write_operation(tmp_path / "out", (left, right), first, cause, times=1)
    again = run(tmp_path / "out")
    assert again.returncode == 0 and again.stdout == made.ran.printed
    assert f"{first.differing} of {first.compared} outputs differ" in again.stdout
    assert "operands.npz" not in made.files and "order.png" in made.files
    report = (tmp_path / "out" / "report.md").read_text()
    assert "Class: order." in report and "layers.0" in report and "p0" in report
    about = json.loads((tmp_path / "out" / "machine.json").read_text())
    assert about["cause"]["class"] == "order" and len(about["bits"]) == min(20, first.differing)
    text = "".join(p.read_text() for p in (tmp_path / "out").iterdir() if p.suffix != ".png")
    assert str(tmp_path) not in text and str(Path.home()) not in text


@pytest.mark.parametrize("limit", [1 << 22, 1000])
def test_large_operands_are_packed_or_stand_beside_the_script(limit, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reports, "PACKED", limit)
    left, right, first, cause = planted(70, 80)
    made = reports.write_operation(tmp_path, (left, right), first, cause, times=1)
    assert ("operands.npz" in made.files) == (limit == 1000)
    assert ("x1 = unpacked(" in made.script) == (limit != 1000)
    assert "x0 = x0_right[0:1].copy()" in made.script
    assert run(tmp_path).returncode == 0 and run(tmp_path).stdout == made.ran.printed


def test_no_word_for_it_is_no_reason_not_to_report(tmp_path: Path) -> None:
    x = normal(3, 5)
    left, right = (
        record_run(
            Doubles({"x": x}, [Step("strange", Unknown("nobody said"), function, ["x"], text)])
        )
        for function, text in (
            (lambda x: x + x, "{y} = {0} + {0}"),
            (lambda x: x * np.float32(1.5), "{y} = {0} * np.float32(1.5)"),
        )
    )
    first = compare_runs(RunningMatch.of(left, right)).first
    assert first is not None
    made = reports.write_operation(tmp_path, (left, right), first, times=1)
    assert made.ran.verdict == "still there"
    assert "not classified yet" in (tmp_path / "report.md").read_text()


def test_a_script_that_says_otherwise_is_not_written(tmp_path: Path) -> None:
    left, right, first, cause = planted(text="{y} = {0} @ {1} * 0")
    with pytest.raises(NotReproduced, match="fresh process"):
        reports.write_operation(tmp_path / "out", (left, right), first, cause, times=1)
    assert not (tmp_path / "out").exists()


def test_names_of_a_model_are_text_alone(tmp_path: Path) -> None:
    x = normal(3, 5)
    name = 'x"""\nimport os; os.abort()\n"""\\'
    text = "{y} = {0} * np.float32(1 + len({0}) * 2**-20)"
    scaled = lambda x: x * np.float32(1 + len(x) * 2**-20)  # noqa: E731
    step = Step(name, Each("f"), scaled, ["x"], text)
    inputs = {"x": x[:1]}, {"x": x}
    recorder = lambda given: Doubles(dict(given), [step])  # noqa: E731
    sides = [record_run(recorder(given)) for given in inputs]
    match = by_running(recorder, inputs)(*sides)
    for side in sides:
        side.operations[0].path = name
    first = compare_runs(match).first
    assert first is not None
    made = reports.write_operation(tmp_path, (sides[0], sides[1]), first, times=1)
    named = {
        node.names[0].name
        for node in ast.walk(ast.parse(made.script))
        if isinstance(node, ast.Import)
    }
    assert named == {"numpy", "platform", "sys"}
    assert "abort()" not in [line.strip() for line in made.script.splitlines()]
    assert len((tmp_path / "report.md").read_text().splitlines()[0]) < 400


def test_a_folder_with_files_and_a_place_without_a_difference_are_refused(tmp_path: Path) -> None:
    left, right, first, cause = planted()
    (tmp_path / "mine").write_text("")
    with pytest.raises(InputError, match="files"):
        reports.write_operation(tmp_path, (left, right), first, cause)
    equal = Region("a", "a", "", 0, 0)
    with pytest.raises(InputError, match="no output of it differs"):
        reports.write_operation(tmp_path / "out", (left, right), equal, cause)

"""The house keeps to its numbers, which ``.ci/budget.toml`` has with the reasons."""

import functools
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("house", ROOT / ".ci" / "house.py")
house = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(house)
measured = functools.cache(house.measured)


def test_the_house_keeps_to_its_numbers():
    assert not house.over(measured(), house.limits())


def test_every_number_has_a_limit_and_a_sentence_above_it():
    lines = house.LIMITS.read_text().splitlines()
    named = [n for n, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert [lines[n].split(" = ")[0] for n in named] == [*measured()]
    assert all(lines[n - 1].startswith("# ") for n in named)


def test_a_module_has_a_test_where_the_file_of_its_name_imports_it_or_runs_commands(
    tmp_path, monkeypatch
):
    written = {
        "probe/a.py": "",
        "probe/b.py": "",
        "probe/ui/cli/c.py": "",
        "probe/ui/cli/d.py": "",
        "probe/ui/cli/__init__.py": "",
        "tests/test_a.py": "from probe.a import f",
        "tests/test_b.py": "from probe import a",
        "tests/ui/cli/test_c.py": "from probe.ui.cli import shell",
    }
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    assert house.modules_without_test() == ["probe/b", "probe/ui/cli/d"]


def test_what_is_over_a_limit_is_told():
    found = {"package_lines": 11.0, "comments_percent": 1.0}
    (lines, comments) = house.over(found, {"package_lines": 10, "comments_percent": 2.0})
    assert lines.startswith("package_lines=11.0: the limit is 10; make it less")
    assert comments.startswith("comments_percent=1.0: the limit is 2.0; make it more")
    assert not house.over(found, {"package_lines": 11, "comments_percent": 1.0})

"""What is here is shown whole, and as it is."""

from rich.console import Console

from probe.ui.answers.show import here


def test_a_library_that_is_missing_is_listed_once_with_how_many_variants_it_has(capsys):
    names = ("numpy", "tensorflow", "tensorflow,onednn=0", "tensorflow@cuda:0")
    row = {"version": "1", "doc": "adds"}
    rows = [
        row | {"target": name, "available": name == "numpy", "why": "not installed"}
        for name in names
    ]
    Console(width=120).print(here.targets(rows))
    said = capsys.readouterr().out
    assert said.count("not installed") == 1 and "and 2 with switches or on other devices" in said

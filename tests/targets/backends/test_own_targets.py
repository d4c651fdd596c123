"""A library of another package as a target: entry points of the group ``probe.targets``."""

from __future__ import annotations

import json
import sys

import pytest

import probe
from probe.case.errors import InputError, TargetError
from probe.targets import backends, target
from probe.ui.cli import shell

SOURCE = """
from probe.targets.backends.contract import Key, Unsupported
from probe.targets.backends.reference import Reference


class Lonely(Reference):
    name = "lonely"
    distributions = ("lonely-library",)
    module = "lonely_library"
    keys = {"pairs": Key(("0", "1"), "0", "adds neighbours first")}
    doc = "adds in a Python loop"
    suggestions = (",pairs=1",)

    def start(self, switches, device):
        import lonely_library

        algorithm = "pairwise" if switches.get("pairs") == "1" else "sequential"
        facts = Reference.start(self, {"algorithm": algorithm}, device)
        return dict(facts, library="lonely", library_version=lonely_library.VERSION)

    def operator(self, spec):
        if spec["op"] != "sum":
            raise Unsupported("op=%s: it has sums alone" % spec["op"])
        return Reference.operator(self, spec)
"""


@pytest.fixture
def _lonely(tmp_path, monkeypatch):
    """A package with a target, as pip would have installed it, and one that is broken."""
    info = tmp_path / "lonely_library-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lonely-library\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(
        "[probe.targets]\nlonely = lonely_library.target:Lonely\n"
        "gone = lonely_library.nowhere:Gone\nnumpy = lonely_library.target:Lonely\n"
    )
    package = tmp_path / "lonely_library"
    package.mkdir()
    (package / "__init__.py").write_text("VERSION = '1.5'\n")
    (package / "target.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("lonely_library")]:
        del sys.modules[name]


@pytest.mark.usefixtures("_lonely")
@pytest.mark.slow
def test_it_is_a_target_like_any_other(capsys):
    case = probe.Case("sum", in_channels=4, length=2)
    assert probe.order(case, "lonely").tree == "(((0+1)+2)+3)"
    assert probe.order(case, "lonely,pairs=1").tree == "((0+1)+(2+3))"
    with pytest.raises(TargetError, match="unsupported: op=dot: it has sums alone"):
        probe.order(probe.Case("dot", in_channels=4, length=1), "lonely")
    with pytest.raises(InputError, match="lonely has no switch 'x'; use pairs=0|1"):
        probe.Target.parse("lonely,x=1")
    assert shell.run(["targets", "--json"]) == 0
    rows = {row["target"]: row for row in json.loads(capsys.readouterr().out)["targets"]}
    assert rows["lonely"]["available"] and rows["lonely"]["version"] == "1.5"
    assert rows["lonely,pairs=1"]["doc"] == "adds neighbours first"


@pytest.mark.usefixtures("_lonely")
def test_what_can_not_be_imported_says_so_and_breaks_nothing(capsys):
    why = target.why_unavailable(probe.Target.parse("gone"))
    assert why.startswith("its entry point lonely_library.nowhere:Gone can't be imported: Module")
    case = probe.Case("sum", in_channels=4, length=2)
    with pytest.raises(TargetError, match="target=gone: unavailable: its entry point"):
        probe.order(case, "gone")
    assert shell.run(["targets", "machine"]) == 0
    assert (
        backends.get("numpy").__module__ == "probe.targets.backends.arrays"
    )  # ours can't be taken


def test_without_the_package_there_is_no_such_target():
    with pytest.raises(InputError, match="target=lonely: there is no such library"):
        probe.Target.parse("lonely")

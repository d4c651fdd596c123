"""probe results, merge, explain --from and run: what is on the disk."""

from __future__ import annotations

import json
import shutil

import nbformat
import pytest

from probe.case.errors import ProbeError
from probe.sweep.store import Store
from probe.targets import machine
from probe.ui.cli import housekeeping, shell
from tests.ui.cli.commands import answered, in_this_process

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("elsewhere")]

SWITCHES = "reference,algorithm=pairwise,length_switch=8"
SWEEP = f"sweep --op conv1d --kernel 5 --operands cancel --lengths 5..12 --target {SWITCHES}"
SWEEP += " --store results/sweep"


@pytest.fixture(scope="module")
def _swept(tmp_path_factory):
    root = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch, in_this_process(patch):
        patch.chdir(root)
        assert shell.run(SWEEP.split()) == 0
    return root / "results"


@pytest.fixture
def swept(_swept, tmp_path, capsys):
    """A store in ``results/sweep`` of this folder."""
    shutil.copytree(_swept, tmp_path / "results")
    capsys.readouterr()


def test_results_are_summed_up_by_target(capsys):
    assert shell.run([*SWEEP.split(), "--target", "reference==0.1"]) == 3
    capsys.readouterr()
    found, text = answered(capsys, "results results")
    assert found["machines"] == [machine.label()] and found["compared"] == 28
    one, failed = found["targets"]
    assert one["target"] == SWITCHES and one["comparisons"] == 7 and one["unstable"] > 0
    assert failed["target"] == "reference==0.1" and failed["failures"] == 1
    assert not failed["comparisons"] and failed["max_ulp"] == 0
    assert SWITCHES in text and "1 case, 1 machine" in text
    answered(capsys, "results results --fail-on differing", status=1)


def test_what_strangers_wrote_does_not_reach_the_terminal(capsys):
    with Store("results/machine") as store:
        store.append(
            "failures", {"run_id": "r", "target": "a\x1b[2Jb", "kind": "x", "message": "m"}
        )
    found, text = answered(capsys, "results results")
    assert found["targets"][0]["target"] == "a\x1b[2Jb" and "a\\x1b[2Jb" in text
    assert "\x1b" not in text


@pytest.mark.slow
def test_stores_are_merged_by_machine(swept, capsys):
    found, text = answered(capsys, "results merge results/sweep --out all")
    assert found["folders"] == [f"all/{machine.label()}"] and text.startswith("wrote all/")
    assert answered(capsys, "results all")[0] == answered(capsys, "results results")[0]
    assert shell.run("results merge all --out all".split()) == 2
    assert "choose a different folder" in capsys.readouterr().err


def test_a_store_is_explained(swept, capsys):
    assert shell.run("explain --from results/sweep --workers 1 --json".split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["causes"] == {"order": found["differing"]}
    assert found["replayed"] == found["differing"] > 0 and found["failures"] == []
    stored, text = answered(capsys, "results results")
    assert stored["targets"][0]["causes"] == found["causes"] and "order" in text
    for more, flag in {
        "--target torch": "--target",
        "--kernels all --vary batch": "--vary, --kernels",
        "--zeros differ": "--zeros",
    }.items():
        assert shell.run(f"explain --from results/sweep {more}".split()) == 2
        assert f"leave out {flag}, or --from" in capsys.readouterr().err


SCRIPT = """
import sys
from pathlib import Path
print("hello", *sys.argv[1:])
Path("results/demo").mkdir(parents=True)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def checkout(tmp_path):
    for folder in ("experiments", "notebooks", "below"):
        (tmp_path / folder).mkdir()
    (tmp_path / "experiments" / "demo.py").write_text(SCRIPT)
    return tmp_path


def notebook(checkout, source):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, id="one")])
    path = checkout / "notebooks" / "demo.ipynb"
    nbformat.write(book, path)
    return path


@pytest.mark.slow
def test_an_experiment_and_its_notebook_are_run(checkout, capfd, monkeypatch):
    path = notebook(checkout, "from pathlib import Path\nPath('../results/demo').is_dir()")
    monkeypatch.chdir(checkout / "below")
    assert shell.run(["run", "demo", "--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert "hello" in err and found["status"] == 0 and found["notebook"].endswith("demo.ipynb")
    (cell,) = nbformat.read(path, as_version=4).cells
    assert cell.outputs[0]["data"]["text/plain"] == "True"
    assert not list(path.parent.glob("*.tmp"))


@pytest.mark.slow
def test_with_out_the_checkout_stays_as_it_is(checkout, capfd, monkeypatch):
    path = notebook(checkout, "STORE = '../results/demo'")
    book = nbformat.read(path, as_version=4)
    book.cells[0].metadata["tags"] = ["parameters"]
    book.cells.append(nbformat.v4.new_code_cell("print(STORE, open(STORE).read())", id="two"))
    nbformat.write(book, path)
    before = {one: one.read_bytes() for one in checkout.rglob("*") if one.is_file()}
    script = "import sys; assert sys.argv[1] == '--store'; open(sys.argv[2], 'w').write('rows')"
    (checkout / "experiments" / "demo.py").write_text(script)
    (checkout / "kept").mkdir()
    monkeypatch.chdir(checkout / "below")
    assert shell.run(["run", "demo", "--out", "../kept"]) == 0
    assert (checkout / "kept" / "demo").read_text() == "rows"
    ran = nbformat.read(checkout / "kept" / "demo.ipynb", as_version=4).cells[1]
    assert ran.outputs[0].text == "demo rows\n"
    changed = [one for one, was in before.items() if one.read_bytes() != was]
    assert changed == [checkout / "experiments" / "demo.py"]


@pytest.mark.slow
def test_what_fails_leaves_the_notebook_alone(checkout, capfd):
    path = notebook(checkout, "1 / 0")
    before = path.read_bytes()
    assert shell.run(["run", "demo", "--", "3"]) == 3
    assert path.read_bytes() == before and "hello 3" in capfd.readouterr().out
    with pytest.raises(ProbeError, match=r"demo.ipynb: a cell fails: ZeroDivisionError"):
        housekeeping.execute_notebook(path)
    assert path.read_bytes() == before


def test_an_experiment_without_a_notebook_says_so(checkout, capfd):
    assert shell.run(["run", "demo"]) == 0
    out, err = capfd.readouterr()
    assert "results in results/demo" in out and "notebooks/demo.ipynb does not exist" in err
    assert shell.run(["run", "other"]) == 2
    assert "run one of demo\n" in capfd.readouterr().err


def test_help_of_a_script_executes_no_notebook(monkeypatch, capfd):
    monkeypatch.setattr(housekeeping, "execute_notebook", lambda *_: 1 / 0)
    assert shell.run(["run", "batch_invariance", "--", "--help"]) == 0
    assert "--quick" in capfd.readouterr().out

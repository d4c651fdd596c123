"""The ways in by Python: ``probe.explain(...)`` and the like, and that commands say the same."""

from __future__ import annotations

import json
import pydoc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import probe
from probe.case.errors import InputError
from probe.ui.answers import answer
from probe.ui.cli import shell
from tests.ui.cli.commands import in_this_process

pytestmark = pytest.mark.long

ROOT = Path(probe.__file__).parent.parent
CASE = probe.Case("conv1d", kernel=5, in_channels=3, filters=2)
WORDS = "--op conv1d --kernel 5 --in-channels 3 --filters 2"
PAIR = ("reference,algorithm=sequential", "reference,algorithm=pairwise")
QUESTIONS = ("explain", "order", "remedies", "reproduce", "sweep", "thresholds")


BATCH = {
    "vary": "batch",
    "fixed": 24,
    "lengths": [5],
}
MODEL = """
import numpy as np
def model(x):
    return np.matmul(x, np.ones((8, 3), np.float32))
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "padded_rows.py").write_text(MODEL)
    with in_this_process(monkeypatch):
        yield


def command(capsys, text):
    """What the command prints with --json."""
    status = shell.run([*text.split(), "--json"])
    out, err = capsys.readouterr()
    assert status == 0, err
    return json.loads(out)


TIMES = ("seconds", "seconds_fixed", "ratio", "of_fixed", "ratio_fixed", "keeping", "advice")


def untimed(told):
    """Without what differs between two runs of the same: times and what follows from them."""
    if isinstance(told, dict):
        return {k: untimed(v) for k, v in told.items() if k not in (*TIMES, "recommended")}
    return [untimed(one) for one in told] if isinstance(told, list) else told


ASKED = {
    "explain": (
        lambda: probe.explain(CASE, PAIR[0], 9, against_target=PAIR[1]),
        f"explain {WORDS} --at 9 --target {PAIR[0]} --against-target {PAIR[1]}",
    ),
    "explain, equal": (
        lambda: probe.explain(CASE, probe.Target.parse("reference"), 5, 9),
        f"explain {WORDS} --at 5 --against 9 --target reference",
    ),
    "order": (
        lambda: probe.order(CASE.with_(length=9), "reference"),
        f"order {WORDS} --length 9 --target reference",
    ),
    "sweep": (
        lambda: probe.sweep(CASE, range(5, 10), "reference"),
        f"sweep {WORDS} --lengths 5..9 --target reference",
    ),
    "sweep, several": (
        lambda: probe.sweep(CASE, np.arange(5, 10), PAIR),
        f"sweep {WORDS} --lengths 5..9 --target {PAIR[0]} --target {PAIR[1]}",
    ),
    "sweep, by order": (
        lambda: probe.sweep(CASE, [5, 7, 9], "reference", by="order"),
        f"sweep {WORDS} --lengths 5,7,9 --target reference --by order",
    ),
    "sweep, batch": (
        lambda: probe.sweep(CASE.with_(length=9), [1, 3], ["reference"], vary="batch"),
        f"sweep {WORDS} --length 9 --lengths 1,3 --vary batch --target reference",
    ),
    "network": (
        lambda: probe.network("padded_rows:model", shapes={"x": (24, 8)}, **BATCH),
        "fix padding padded_rows:model --shape x=24x8 --vary batch --fixed 24 --lengths 5",
    ),
    "remedies": (
        lambda: probe.remedies(CASE, [5, 9], "reference", only=["pad"]),
        f"fix {WORDS} --lengths 5,9 --target reference --only pad",
    ),
    "reproduce": (
        lambda: probe.reproduce(
            *(CASE, PAIR[0], 9), against_target=PAIR[1], out="here", times=1, avoid=False
        ),
        f"report {WORDS} --at 9 --target {PAIR[0]} --against-target {PAIR[1]} --out here "
        "--times 1 --no-avoid",
    ),
}


LONG = ("remedies", "reproduce")


@pytest.mark.parametrize(
    "asked", [pytest.param(one, marks=pytest.mark.slow) if one in LONG else one for one in ASKED]
)
def test_an_answer_is_what_the_command_prints(asked, capsys, tmp_path):
    ask, text = ASKED[asked]
    found = ask()
    if (tmp_path / "here").exists():
        (tmp_path / "here").rename(tmp_path / "there")
    told = found.to_json()
    assert json.loads(json.dumps(told)) == told
    assert untimed(told) == untimed(command(capsys, text))
    lines = repr(found).splitlines()
    assert len(lines) == 3 and all(map(len, lines))
    assert max(len(lines[0]), len(lines[2])) <= 100  # the finding, which says why, is never cut
    assert found._repr_png_().startswith(b"\x89PNG")
    assert repr(found) == repr(found)  # nothing of it is used up


def test_a_picture_leaves_no_figure_behind():
    import matplotlib.pyplot as plt

    before, style = plt.get_fignums(), dict(plt.rcParams)
    found = probe.sweep(CASE, range(5, 8), "reference")
    assert found.picture() is not None
    assert plt.get_fignums() == before and dict(plt.rcParams) == style


@pytest.mark.slow
def test_no_room_takes_a_questions_name():
    """An import of a room, and of what is in it, puts it in no function's place."""
    code = (
        "import importlib, inspect, probe; "
        "[importlib.import_module(f'probe.{room}') for room in probe.ROOMS]; "
        "import probe.order.tree, probe.explain.causes, probe.sweep.plan, probe.diff.walk; "
        f"from probe import {', '.join(QUESTIONS)}; "
        f"assert all(map(inspect.isfunction, [{', '.join(QUESTIONS)}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def test_help_of_probe_leads_to_all_questions():
    text = pydoc.plain(pydoc.render_doc(probe))
    for name in QUESTIONS:
        assert f"probe.{name}(" in text
    assert "probe.targets.backends" in text and "--json" in text


def test_importing_a_room_does_not_import_its_question():
    code = (
        "import sys, probe.explain, probe.sweep, probe.order.orders, probe.sizes; "
        "sys.exit(any(name.startswith('probe.ui.answers') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_values_of_an_axis_are_a_text_or_numbers():
    assert answer.length_values([9, 7, 5, 5]) == answer.length_values("5..9:2") == [5, 7, 9]
    with pytest.raises(InputError, match="these are not whole"):
        answer.length_values([5, 7.5])
    with pytest.raises(InputError, match="fixed=.none.: the size to compare with .* give fixed=N"):
        probe.network(lambda x: x)

"""README and docs/: short enough, links that lead somewhere, and every command and script runs."""

from __future__ import annotations

import ast
import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from probe.ui.cli.shell import commands as main
from tests.house import script

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>.+?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```", re.M | re.S
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MINUTES = ("bisect", "install")
"""Commands that tests of their own run, with what they need (tests/targets/test_installed.py)."""


def blocks(page, kind):
    """The blocks of a page: (text, why it is not run)."""
    found = BLOCK.finditer(page.read_text())
    return [(one["text"], one["why"]) for one in found if one["kind"] == kind]


def commands(page):
    """The `probe` command lines of a page that are to be run, as lists of words."""
    lines = []
    for text, why in blocks(page, "console"):
        joined = text.replace("\\\n", " ")
        typed = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
        lines += [] if why else [shlex.split(line, comments=True) for line in typed]
    lines = [["probe", *words[1:]] if words[0].endswith("/probe") else words for words in lines]
    return [words for words in lines if words[0] == "probe"]


def test_the_readmes_terminal_shows_what_the_commands_print():
    """Bits depend on processor and release: the whole picture is held where both are as it says."""
    pytest.importorskip("tensorflow")
    terminal = script(ROOT / "docs" / "terminal.py")
    committed, now = (
        re.findall(">([^<]*)</text>", one) for one in (terminal.SVG.read_text(), terminal.svg())
    )
    committed, now = ([html.unescape(line) for line in lines] for lines in (committed, now))
    if committed[0] == now[0]:
        assert committed == now
    said = "\n".join(now).replace("\xa0", " ")
    assert all(f"$ {command}\n" in said for command in terminal.COMMANDS)
    assert "outputs differ, up to" in said


def test_the_readme_is_one_screen():
    assert len((ROOT / "README.md").read_text().split()) <= 700


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    text = page.read_text().replace("\\\n", " ")
    for words in re.findall(
        r"(?:^\$ |`|run: \")(?:\.venv/bin/)?probe ([a-z]+)([^`\n\"]*)", text, re.M
    ):
        model = words[1][:1] in (":", ".")  # `probe model.onnx` is `probe MODEL`
        name, context = "MODEL" if model else words[0], click.Context(main)
        form = f"{name} {''.join(words[1].split()[:1])}"
        command = main.get_command(context, form) or main.get_command(context, name)
        assert command is not None, f"probe {words[0]}"
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        typed = set(re.findall(r"(?<![\w-])--[a-z-]+", words[1].partition(" -- ")[0]))
        assert typed <= known | {"--help", "--json"}, f"probe {words[0]}: {typed - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_pages_compiles(page):
    for text, _ in blocks(page, "python"):
        compile(text, page.name, "exec")


ROWS_OF_PLACES = re.compile(
    r"^\| (?P<question>[^|]+\?) \| `(?P<path>[^`]+)` \| (?P<names>.+) \|$", re.M
)


def names_of(path):
    """What a module defines: functions, classes, ``Class.method`` and constants."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        names |= {getattr(node, "name", "")}
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names |= {one.id for one in targets if isinstance(one, ast.Name)}
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if hasattr(each, "name")}
    return names


def test_what_a_newcomer_looks_for_stands_where_contributing_says():
    places = [*ROWS_OF_PLACES.finditer((ROOT / "CONTRIBUTING.md").read_text())]
    assert len(places) >= 25
    for place in places:
        names = set(re.findall(r"`([^`]+)`", place["names"]))
        assert names and names <= names_of(ROOT / place["path"]), place["question"]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "PROBE_NETWORK": "0"}


MODEL = """
import torch
from torch import nn

torch.manual_seed(0)
layers = nn.Sequential(nn.Linear(96, 128), nn.GELU(), nn.Linear(128, 64)).eval()
codec = nn.Sequential(nn.Conv1d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2),
                      nn.ConvTranspose1d(16, 8, 2, 2)).eval()
"""


@pytest.fixture(scope="session")
def named(tmp_path_factory):
    """What commands of the docs name: a Keras model, an ONNX file, inputs, results."""
    folder = tmp_path_factory.mktemp("named")
    (folder / "results").symlink_to(ROOT / "results")
    script = """
import keras, numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
keras.utils.set_random_seed(0)
layers = [keras.layers.Input((40, 8)), keras.layers.Conv1D(16, 5, activation="relu"),
          keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(4)]
keras.Sequential(layers).save("model.keras")
w = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
    "model", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])],
    [numpy_helper.from_array(w, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(model, "model.onnx")
np.savez("inputs.npz", x=np.ones((8, 64), np.float32))
np.savez("rows.npz", x=np.random.default_rng(1).normal(size=(32, 96)).astype(np.float32))
"""
    (folder / "model.py").write_text(MODEL)
    (folder / "experiments").symlink_to(ROOT / "experiments")  # models of the checkout
    ran(folder, [sys.executable, "-c", script])
    return folder


def copied(named, folder):
    """Fills a page's own folder: commands write beside what they read."""
    shutil.copytree(named, folder, symlinks=True, dirs_exist_ok=True)


def ran(folder, words, expected=(0,)):
    found = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True)
    assert found.returncode in expected, f"{words}: {found.stderr[-2000:]}"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_pages_run(page, request, tmp_path):
    """In order, in one folder, with the files that they name; `run NAME` has tests of its own."""
    typed = [words for words in commands(page) if words[1] not in (*MINUTES, "run")]
    if not typed:
        pytest.skip("no command to run")
    copied(request.getfixturevalue("named"), tmp_path)
    for words in typed:
        ran(tmp_path, [sys.executable, "-m", *words])


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_of_pages_runs(page, request, tmp_path):
    """Each block by itself."""
    if not (texts := [text for text, why in blocks(page, "python") if not why]):
        pytest.skip("no Python")
    copied(request.getfixturevalue("named"), tmp_path)
    for text in texts:
        ran(tmp_path, [sys.executable, "-c", text])


PRINTED = re.compile(r"^```python\n(?P<text>.*?)^```\n\n```text\n(?P<said>.*?)^```", re.M | re.S)
SUMS = ROOT / "docs" / "sums.md"


@pytest.mark.slow
def test_sums_print_what_the_page_says(tmp_path):
    """Trees and names of compensated sums hang on the releases of the table below the block."""
    pytest.importorskip("polars")
    (found,) = PRINTED.finditer(SUMS.read_text())
    assert ran(tmp_path, [sys.executable, "-c", found["text"]]).stdout == found["said"]
    assert "Kahan's sum" in found["said"] and found["said"].count("((") >= 3

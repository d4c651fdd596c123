"""Nothing tracked tells where it was made: no host, user, home, checkout or index address."""

import functools
import getpass
import json
import re
import socket
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from probe.targets import machine

ROOT = Path(__file__).parents[2]
WHERE = re.compile(
    r"""/home/\w+ | /roo[t]/ | /Users/\w+ | [A-Z]:\\Users | /tmp/\w+/
    | --?(?:extra-)?index-url | --find-link[s] | /simple/?(?=["'\s]|$) | PIP_INDEX_UR[L]=
    | files\.pythonhosted\.org | pypi\.org/simpl[e]""",
    re.VERBOSE,
)


def tracked():
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: there is no list of tracked files")
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def private():
    names = {name: rf"(?<!\w){re.escape(name)}(?!\w)" for name in machine.private_names()}
    for folder in (str(Path.home()), str(ROOT)):
        if len(folder) > 3:
            names[folder] = re.escape(folder) + r"(?!\w)"
    return re.compile("|".join(names.values())) if names else re.compile(r"(?!)")


def strings(value):
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.items():
            yield from strings(list(item))
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def texts(path):
    """The texts of a file: its lines, a notebook's cells and outputs, a parquet file's cells."""
    if path.suffix == ".parquet":
        table = pq.read_table(path, partitioning=None)
        yield str(table.schema.metadata)
        for name in table.column_names:
            if str(table.schema.field(name).type) == "string":
                yield from filter(None, table.column(name).unique().to_pylist())
    elif path.suffix == ".ipynb":
        for text in strings(json.loads(path.read_text())):
            # pictures are base64: any short name may occur in one
            yield from [] if re.fullmatch(r"[A-Za-z0-9+/=\n]{200,}", text) else [text]
    else:
        try:
            yield path.read_text()
        except UnicodeDecodeError:
            yield path.read_bytes().decode("latin-1")


read_once = functools.cache(lambda name: list(texts(ROOT / name)))
"""Two patterns look at all that is tracked, some 60 MB."""


def found(pattern, names):
    for name in names:
        for text in read_once(name):
            for match in pattern.finditer(text):
                yield f"{name}: {match[0]}"


def test_no_tracked_file_names_this_machine_or_user():
    assert not list(found(private(), tracked()))


def test_no_tracked_file_names_any_home_or_index():
    assert not list(found(WHERE, tracked()))


def test_no_tracked_file_name_tells_it():
    assert not [name for name in tracked() if private().search(name) or WHERE.search(name)]


def test_the_search_finds_what_it_looks_for(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.lab")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    machine.private_names.cache_clear()
    for text in ("at node17", "by ada", f"in {Path.home()}/x", f"in {ROOT}"):
        assert private().search(text), text
    # in two parts, so that the search doesn't find them here
    for start, end in (
        ("/home", "/ada/x"),
        ("--index", "-url x"),
        ("a.b/sim", "ple/"),
        ("/ro", "ot/x"),
    ):
        assert WHERE.search(start + end), start + end
    for text in ("adapt", "the root of a tree", "a simple/plain sum", "/simpler"):
        assert not private().search(text) and not WHERE.search(text), text
    notebook = tmp_path / "x.ipynb"
    notebook.write_text(json.dumps({"cells": [{"outputs": [{"text": ["by ada"]}]}]}))
    assert list(found(private(), [notebook])) == [f"{notebook}: ada"]
    monkeypatch.undo()
    machine.private_names.cache_clear()


def test_constraints_are_pins_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+( ; [^#]+)?", line), line

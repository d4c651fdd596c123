"""Generated command lines, case files and stores: no traceback, no hang, no undocumented status."""

from __future__ import annotations

import json
import shutil
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import probe
from probe.targets import launch
from probe.ui.cli import shell
from tests.ui.cli.commands import Within, kept_to, lines, restore, text

SOME = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CASE = probe.Case("conv1d", 3, 2, 2, 9)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """A folder with a case to read, targets in this process, and no program to install."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "Session", Within)
    monkeypatch.setattr(traceback, "print_exc", lambda **_: None)  # a child's own stderr
    Path("conv1d.json").write_text(json.dumps(CASE.to_json()))
    Path("broken.json").write_text(json.dumps(CASE.to_json())[:-3])
    yield
    restore(Within)


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_every_command_line_ends_with_a_status_that_is_documented(count):
    @settings(SOME, max_examples=count)
    @given(lines())
    @example(["targets", "", "--json"])
    def check(words):
        kept_to(words)

    check()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text(), inner, max_size=4),
    max_leaves=8,
)
GIVEN = CASE.to_json()
CASES = (
    st.dictionaries(st.sampled_from([*GIVEN, "x"]), JSON, max_size=3).map(lambda more: GIVEN | more)
    | JSON
)


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_every_case_file_is_read_or_refused(count):
    @settings(SOME, max_examples=count)
    @given(CASES | st.binary(max_size=40))
    def check(content):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        Path("given.json").write_bytes(data)
        kept_to("order window --case given.json --target reference --json".split())

    check()


@st.composite
def damaged(draw, data: bytes) -> bytes:
    """The bytes of a file, of which some are others, are lacking, or came in between."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(found) - 1)))
        how = draw(st.sampled_from(["flip", "flip", "flip", "cut", "insert", "zeros"]))
        if how == "cut":
            del found[place : place + draw(st.integers(1, 200))]
        elif how == "insert":
            found[place:place] = draw(st.binary(min_size=1, max_size=20))
        elif how == "zeros":
            found[place : place + 64] = bytes(len(found[place : place + 64]))
        elif found:
            found[place] ^= 1 << draw(st.integers(0, 7))
    return bytes(found)


STORED = "sweep --op sum --in-channels 9 --lengths 1..5 --target numpy --store whole"


@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_every_damaged_store_is_read_or_refused(count):
    assert shell.run(STORED.split()) == 0
    files = sorted(Path("whole").rglob("*.parquet"))
    assert files

    @settings(SOME, max_examples=count)
    @given(st.data())
    def check(data):
        shutil.rmtree("cut", ignore_errors=True)
        shutil.copytree("whole", "cut")
        one = Path("cut") / data.draw(st.sampled_from(files)).relative_to("whole")
        one.write_bytes(data.draw(damaged(one.read_bytes())))
        kept_to(["results", "cut", "--json"])
        kept_to([*STORED.split()[:-1], "cut", "--json"])

    check()

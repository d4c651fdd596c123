"""docs/known.md says what the libraries answered: a sample is asked again, or the whole page."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from probe.targets import machine
from probe.targets.target import Target, why_unavailable

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "known.md").read_text()
SAMPLE = {"numpy": ("sum", "dense", "mean", "exp", "conv1d"), "torch": ("avg_pool2d", "softmax")}


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    if f"Measured on {machine.label()}:" not in PAGE:
        pytest.skip("the page was written on another processor, which may have other kernels")
    return runpy.run_path(str(ROOT / "docs" / "known.py"))


def cells() -> dict[tuple[str, str], str]:
    """The page's letters by library and operation."""
    lines = [line[1:-1].split("|") for line in PAGE.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line] for line in lines]
    start = next(number for number, row in enumerate(rows) if row[0] == "operation")
    head, _, *places = rows[start:]
    pairs = ((row, zip(head[1:], row[1:], strict=True)) for row in places)
    return {(library, row[0]): text for row, each in pairs for library, text in each}


@pytest.mark.parametrize("library", SAMPLE)
def test_a_sample_of_the_page_is_what_the_library_answers(known: Any, library: str) -> None:
    if why := why_unavailable(Target(library)):
        pytest.skip(why)
    found = known["column"](library, SAMPLE[library])
    assert found == [cells()[library, row] for row in SAMPLE[library]]


@pytest.mark.slow
def test_the_page_is_what_docs_known_writes(known: Any) -> None:
    assert known["page"]() == PAGE

"""The runner that changes the package and sees whether a test notices."""

from __future__ import annotations

from pathlib import Path

import pytest

import probe
from tests.house import script

ROOT = Path(probe.__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def mutate():
    return script(ROOT / ".ci" / "mutate.py")


SOURCE = '''
"""Words 1 + 1."""
LIMIT = 4
CHUNK = 64  # speed alone

def f(x: int | None, *, deep=False) -> int:
    """Words 2 < 3."""
    if x is None or x < LIMIT:
        raise ValueError(f"x={x + 1}: too small" + "!")
    return x * 2 if not deep else -x

def quick(pairs):  # speed alone
    return pairs[1:] + 1

def words(pairs):
    return f"{len(pairs)} pair{'s' * (len(pairs) > 1)}" + ", ".join(pairs[:3])

def g(pairs):
    more = "s" * (len(pairs) > 1) + ", ".join(pairs[:3])
    failed = InputError("g", pairs[0], "too few", more)
    assert len(pairs) > 0
    pairs = pairs.reshape(-1, -width)
    return [a < b for a, b in zip(pairs, more, strict=True)]
'''


def test_operators_numbers_and_truth_are_changed_one_at_a_time(mutate):
    found = {
        (one.line, one.before, one.after): one.source for one in mutate.mutations("f.py", SOURCE)
    }
    assert set(found) == {
        (3, "4", "5"),
        (6, "False", "True"),
        (8, "x is None or x < LIMIT", "x is None and x < LIMIT"),
        (8, "x is None", "x is not None"),
        (8, "x < LIMIT", "x <= LIMIT"),
        (10, "x * 2", "x + 2"),
        (10, "2", "3"),
        (10, "not deep", "deep"),
        (10, "-x", "x"),
        (22, "-1", "1"),
        (22, "-width", "width"),
        (23, "a < b", "a <= b"),
    }
    for (line, _, _), source in found.items():
        compile(source, "f.py", "exec")
        lines = zip(SOURCE.split("\n"), source.split("\n"), strict=True)
        assert [n for n, (old, new) in enumerate(lines, 1) if old != new] == [line]


@pytest.mark.slow
def test_of_changes_drawn_from_trees_and_how_they_grow_nearly_all_are_noticed(mutate, capsys):
    """Of other files too many change nothing that is computed to be counted without being read."""
    files = ["probe/order/tree.py", "probe/order/fprev.py"]
    missed = mutate.run(mutate.drawn(files, 6, seed=3))
    assert len(missed) <= 1, capsys.readouterr().out

"""The house keeps to its numbers, which ``.ci/budget.toml`` has with the reasons."""

import functools
from pathlib import Path

from tests.house import script

ROOT = Path(__file__).parents[2]
house = script(ROOT / ".ci" / "house.py")
measured = functools.cache(house.measured)


def test_the_house_keeps_to_its_numbers():
    assert not house.over(measured(), house.limits())


def test_every_number_has_a_limit_and_a_sentence_above_it():
    lines = house.LIMITS.read_text().splitlines()
    named = [n for n, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert [lines[n].split(" = ")[0] for n in named] == [*measured()]
    assert all(lines[n - 1].startswith("# ") for n in named)

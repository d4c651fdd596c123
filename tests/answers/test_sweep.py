"""A case swept in Python: its values, its parts, and layouts."""

import probe
from probe.answers import sweep as answers

CASE = probe.Case("conv1d", kernel=5, in_channels=3, filters=2)


def test_python_takes_lengths_as_a_command_line_has_them():
    given = "5..7,9", [5, 6, 7, 9]
    one, other = (answers.sweep(CASE, lengths, "reference") for lengths in given)
    assert one.values == other.values == [5, 6, 7, 9]
    assert one.to_json()["compared"] == other.to_json()["compared"] > 0

"""Messages: names that are near, and a command's options in the words of Python."""

from __future__ import annotations

import pytest

from probe.case.errors import InputError, in_python, one_of, printable


def test_a_name_that_is_near_is_offered():
    assert one_of("swep", ["sweep", "order"]) == "did you mean sweep? use one of sweep, order"
    assert one_of("nonsense", ["sweep", "order"]) == "use one of sweep, order"


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("give --fixed N, the full size", "give fixed=N, the full size"),
        ("leave out --vary, or --trust", "leave out vary=..., or trust=True"),
        ("run probe record MODEL --out RUN there", "run probe record MODEL --out RUN there"),
        ("give --shape x=1x3", 'give shapes={"x": (1, 3)}'),
        ("a - b -- c", "a - b -- c"),
    ],
)
def test_options_become_arguments_and_whole_commands_stay(told, wanted):
    assert in_python(told) == wanted


def test_a_text_of_a_file_can_not_steer_a_terminal():
    name = "a\nb\x1b[31m\u202ec\r"
    assert printable(name) == "a\\nb\\x1b[31m\\u202ec\\r" and printable("plain, ü") == "plain, ü"
    assert str(InputError("x", name, "w")).isprintable()

"""Options that several commands share: what they take."""

import click
import pytest

from probe.ui.answers.answer import command_line
from probe.ui.cli import options

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "words",
    [
        {"op": "conv1d", "kernel": "5", "in_channels": "64", "filters": "8"},
        {"op": "conv2d", "kernel": "1x5", "weights": "-0.7,1,2,3,4", "bias": "-0.5", "length": "9"},
        {"op": "depthwise_conv2d", "kernel": "3", "in_channels": "4", "padding": "0:1,2:2"},
        {"op": "conv2d", "kernel": "3", "stride": "1x2", "height": "4", "dtype": "float16"},
    ],
)
def test_a_case_is_written_as_the_words_that_make_it(words):
    case = options.case_of_words(words)
    line = command_line(case)
    flags = [f"--{word.replace(' ', '=', 1)}" for word in line.removeprefix("--").split(" --")]
    given = {}

    def keep(words):
        given.update(words)

    import click

    click.command()(options.case_options(keep)).main(flags, standalone_mode=False)
    assert options.case_of_words(given) == case


def test_the_case_words_are_options_of_one_kind():
    found = click.command()(options.case_options(lambda words: None))
    assert all(isinstance(param, options.Shared) for param in found.params)


def test_a_picture_is_square_unless_a_height_is_given():
    """`--op conv2d --kernel 3 --length 32` was a picture of 3 x 32."""
    from probe.case.case import Case
    from probe.ui.cli.options import case_of_words

    words = {"op": "conv2d", "kernel": "3", "in_channels": "2", "length": "32"}
    case = case_of_words(words)
    assert case.input_shape() == (1, 32, 32, 2) and "height 32, length 32" in case.label
    assert case_of_words(words | {"height": "5"}).input_shape() == (1, 5, 32, 2)
    # stored cases of before, and experiments, say no height: they mean what they meant
    plain = Case("conv2d", 3, 2, length=32)
    assert plain.input_shape() == (1, 3, 32, 2) and "height 3, length 32" in plain.label

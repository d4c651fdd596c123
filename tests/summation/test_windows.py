"""Which input every output reads, of operators that clip, round or mix, and of pools."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import Case
from probe.errors import NotASum
from probe.launch import InlineSession
from probe.summation.masks import SessionOperator
from probe.summation.windows import PoolWindows, as_predicted, as_windows, reveal_windows
from probe.target import Target
from probe.window import Geometry
from tests.summation.synthetic import planted

CASES = (
    Case("conv1d", 3, 2, 3, 9, padding="same", batch=2),
    Case("conv2d", (2, 3), 4, 4, 5, groups=2, height=4, stride=2, padding=1),
    Case("matmul", in_channels=3, filters=2, length=4, bias="normal"),
)
OUTPUTS = {
    "clipped": lambda y: np.clip(y, np.float32(-6), np.float32(6)),
    "quarters": lambda y: np.rint(y * np.float32(4)) / np.float32(4),
    "off": lambda y: y + np.float32(0.01) * (np.abs(y) > 0.5),
    "long": lambda y: y * np.float32(1.004),
    "plain": lambda y: y,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_the_predicted_windows_are_those_of_plain_loops(case):
    found = as_predicted(case)
    width = case.in_channels // case.groups
    reads, size = Geometry.of(case).reads(), int(np.prod(case.spatial()))
    for group, entry, at in np.ndindex(case.groups, case.batch, len(reads)):
        wanted = [
            -1 if place < 0 else (entry * size + place) * case.in_channels + group * width + channel
            for place in reads[at].tolist()
            for channel in range(width)
        ]
        assert found[group, entry * len(reads) + at].tolist() == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_windows_are_found_behind_what_clips_or_rounds(case, output):
    found = reveal_windows(SessionOperator(planted(output=output), case))
    assert np.array_equal(found, as_predicted(case)) and found.dtype == np.int32


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (lambda y: y * np.float32(1.25), "not an"),
        (lambda y: np.where(y > 0, np.float32(np.nan), y), "not an integer"),
        (lambda y: y + np.float32(1000), "not an element of the input"),
    ],
)
def test_what_names_no_element_is_no_window(output, why):
    with pytest.raises(NotASum, match=why):
        reveal_windows(SessionOperator(planted(output=output), CASES[0]))


def padded_otherwise(output):
    """An operator of other padding than its case says, and that padding's windows."""
    case, other = (Case("conv1d", 3, 2, 3, 8, padding=pad, stride=2) for pad in ("same", "caffe"))
    assert case.output_shape() == other.output_shape()
    operator = SessionOperator(planted(output=output), other)
    operator.case = case
    operator.run = SessionOperator(operator.session, other).run
    return operator, as_predicted(other)


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_windows_of_other_padding_are_read_off(output):
    operator, windows = padded_otherwise(output)
    found = reveal_windows(operator)
    assert np.array_equal(found, windows) and (found != as_predicted(operator.case)).any()


def test_two_answers_that_differ_are_no_windows():
    operator, _ = padded_otherwise(lambda y: np.clip(y, np.float32(-2), np.float32(2)))
    with pytest.raises(NotASum, match="depends on how large the inputs are"):
        reveal_windows(operator)


def test_names_beyond_the_digits_of_a_format_are_asked_in_parts():
    case = Case("conv1d", 2, 3, 2, 1400, dtype="float16")
    found = reveal_windows(SessionOperator(InlineSession(Target("reference")).start(), case))
    assert np.array_equal(found, as_predicted(case))


def test_what_a_pool_reads_stands_where_its_padding_puts_it_or_in_places_left():
    case = Case("max_pool2d", (2, 3), in_channels=2, height=4, length=5, padding=1, batch=2)
    predicted, rng = Geometry.of(case).reads(), np.random.default_rng(0)
    for share in (1.0, 0.7, 0.3):
        reads = np.zeros((len(predicted), 20), bool)
        for held, row in zip(reads, predicted, strict=True):
            own = [place for place in row.tolist() if place >= 0 and rng.random() < share]
            others = rng.permutation([n for n in range(20) if n not in row])
            held[[*own, *others[: int(rng.integers(0, 7 - len(own)))]]] = True
        found = as_windows(case, PoolWindows(reads, np.ones(len(reads)), ""))
        assert found.shape == (2, 2 * len(reads), 6)
        for channel, entry in np.ndindex(2, 2):
            rows = found[channel, entry * len(reads) : (entry + 1) * len(reads)]
            for row, plain, held in zip(rows.tolist(), predicted.tolist(), reads, strict=True):
                places = [-1 if one < 0 else (one - channel) // 2 - entry * 20 for one in row]
                assert sorted(one for one in places if one >= 0) == np.flatnonzero(held).tolist()
                assert all(
                    places[n] == one for n, one in enumerate(plain) if one >= 0 and held[one]
                )
                assert all(one < 0 or one % 2 == channel for one in row)

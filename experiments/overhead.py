"""Measures what a sweep costs in time, compared with a loop written by hand.

Both run the same convolutions in the same process, in turns, and the loop repeats as many calls for
its controls as the sweep. The sweep's time is all of it: plan, calls, comparison, digests, store.
Meant for an idle machine.

Writes results/overhead/<machine>/*.parquet; notebooks/overhead.ipynb draws them.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib import frame
from lib.frame import Row
from probe import Case, Store, Target
from probe.sweep.bits import sweep_cases
from probe.targets.launch import InlineSession

SINGLE = "tensorflow,threads=1"
TINY = [
    Case("conv1d", kernel, channels, filters, seed=seed)
    for kernel in (3, 5)
    for channels in (1, 4)
    for filters in (1, 4)
    for seed in range(8)
]
LARGE = [Case("conv1d", kernel, channels, 64) for kernel in (5, 9) for channels in (64, 128)]


class Race(NamedTuple):
    """One sweep that is also written by hand."""

    subject: str
    target: str
    cases: list[Case]
    lengths: list[int]
    control: str


RACES = [
    Race("tiny shapes", SINGLE, TINY, list(range(5, 106)), "differing"),
    Race("tiny shapes, every control", SINGLE, TINY, list(range(5, 106)), "every"),
    Race(
        "tiny shapes, most lengths differ",
        "tensorflow,onednn=0,contraction=0,threads=1",
        TINY,
        list(range(5, 106)),
        "differing",
    ),
    Race("calls over 1 ms", SINGLE, LARGE, list(range(2000, 6001, 10)), "differing"),
    Race("calls over 1 ms, every control", SINGLE, LARGE, list(range(2000, 6001, 40)), "every"),
]
REPEATS = 7

Convolve = Callable[[np.ndarray, np.ndarray], np.ndarray]


def convolution(target: str) -> Convolve:
    """What one calls by hand, from arrays to an array: TensorFlow, or NumPy for a quick run."""
    if target.startswith("reference"):
        view = np.lib.stride_tricks.sliding_window_view
        return lambda x, w: np.einsum("blck,kcf->blf", view(x, w.shape[0], axis=1), w)
    import tensorflow as tf

    return lambda x, w: tf.nn.conv1d(x, w, stride=1, padding="VALID").numpy()


def by_hand(race: Race, convolve: Convolve) -> list[tuple[int, int, int]]:
    """The loop: every length against the longest; length, differing outputs, largest distance."""
    found = []
    *lengths, longest = race.lengths
    for case in race.cases:
        x, w, _ = case.with_(length=longest).operands()
        last = convolve(x, w)
        repeats(last, x, w, convolve)
        for length in lengths:
            part = x[:, :length]
            y = convolve(part, w)
            other = last[:, : y.shape[1]]
            differ = np.flatnonzero(y != other)
            if race.control == "every" or differ.size:
                repeats(y, part, w, convolve)
            far = 0
            if differ.size:
                bits = y.view(np.int32).astype(np.int64), other.view(np.int32)
                far = int(np.abs(bits[0] - bits[1]).max())
            found.append((length, differ.size, far))
    return found


def repeats(y: np.ndarray, x: np.ndarray, w: np.ndarray, convolve: Convolve) -> bool:
    """The control: the same shape again, and from another buffer."""
    return np.array_equal(y, convolve(x, w)) and np.array_equal(y, convolve(x.copy(), w))


def by_probe(race: Race) -> None:
    """The sweep of the same, in this process, with a store."""
    where = Target.parse(race.target)
    with tempfile.TemporaryDirectory() as path, Store(Path(path) / "machine") as store:
        options: dict[str, Any] = {"control": race.control, "opens": InlineSession}
        sweep_cases(race.cases, [where], race.lengths, store=store, **options)


def run_race(race: Race, repeat: int) -> list[Row]:
    """Seconds of both ways in turns, each repetition in the other order than the one before; the
    first, in which libraries warm up, does not count."""
    named = {"subject": race.subject, "size": len(race.cases) * (len(race.lengths) - 1)}
    rows: list[Row] = []
    with InlineSession(Target.parse(race.target)):
        hand, probe = partial(by_hand, race, convolution(race.target)), partial(by_probe, race)
        ways: dict[str, Callable[[], object]] = {"by hand": hand, "probe": probe}
        for number in range(repeat + 1):
            for variant, way in list(ways.items())[:: -1 if number % 2 else 1]:
                start = time.perf_counter()
                way()
                seconds = time.perf_counter() - start
                if number:
                    row = {"variant": variant, "repeat": number, "value": seconds, "unit": "s"}
                    rows.append(named | row)
    return rows


def measure(quick: bool) -> Iterator[tuple[str, list[Row]]]:
    """(target, rows), each race in a fresh process, since a library takes its switches once."""
    for race in RACES[:2] if quick else RACES:
        if quick:
            race = race._replace(target="reference", cases=TINY[:4], lengths=[5, 6, 9, 20])
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield race.target, pool.apply(run_race, (race, 2 if quick else REPEATS))


@frame.script
def main(experiment: frame.Experiment) -> None:
    experiment.time(measure(experiment.quick))


if __name__ == "__main__":
    main()

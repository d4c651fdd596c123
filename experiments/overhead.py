"""Measures what probe costs in time and memory, compared with a loop written by hand.

Both run the same convolutions in the same process, in turns, and the loop repeats as many calls for
its controls as the sweep. The sweep's time is all of it: plan, calls, comparison, digests, store.
Ulps are counted against ``numpy.testing.assert_array_max_ulp``. Meant for an idle machine.

Writes results/overhead/<machine>/*.parquet; notebooks/overhead.ipynb draws them.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib import frame
from probe import Case, Store, Target
from probe.case import ulp
from probe.sweep.bits import sweep_cases
from probe.sweep.campaign import run_row
from probe.sweep.printing import Output, table
from probe.targets.launch import InlineSession, open_session

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
SIDE_BY_SIDE = ["tensorflow,threads=1", "tensorflow,onednn=0,threads=1"]
PAIRS = 20_000_000
COUNTS = (10, 100, 1000)
"""Numbers of lengths of which the most memory held is compared."""
REPEATS = 7

Row = dict[str, Any]
Convolve = Callable[[np.ndarray, np.ndarray], np.ndarray]
Ways = dict[str, Callable[[], object]]


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
    """Returns the control: the same shape again, and from another buffer."""
    return np.array_equal(y, convolve(x, w)) and np.array_equal(y, convolve(x.copy(), w))


def by_probe(race: Race, folder: Path) -> None:
    """The sweep of the same, in this process, with a store."""
    where = Target.parse(race.target)
    with tempfile.TemporaryDirectory(dir=folder) as path, Store(Path(path) / "machine") as store:
        options: dict[str, Any] = {"control": race.control, "opens": InlineSession}
        sweep_cases(race.cases, [where], race.lengths, store=store, **options)


def run_race(race: Race, repeat: int, folder: Path) -> list[Row]:
    """Both ways in turns; the first turn, in which libraries warm up, does not count."""
    with InlineSession(Target.parse(race.target)):
        convolve = convolution(race.target)
        hand, probe = partial(by_hand, race, convolve), partial(by_probe, race, folder)
        ways: Ways = {"by hand": hand, "probe": probe}
        size = len(race.cases) * (len(race.lengths) - 1)
        return list(in_turns(race.subject, size, ways, repeat))


def in_turns(subject: str, size: int, ways: Ways, repeat: int) -> Iterator[Row]:
    """Yields seconds of each way, each repetition in the other order than the one before."""
    for number in range(repeat + 1):
        for variant, way in list(ways.items())[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            way()
            seconds = time.perf_counter() - start
            if number:
                row = {"subject": subject, "variant": variant, "size": size, "repeat": number}
                yield row | {"value": seconds, "unit": "s"}


def side_by_side(targets: Sequence[str], repeat: int) -> Iterator[Row]:
    """A loop a target, one after the other, against one sweep of both; the start of all counts."""
    race = Race("", "", LARGE, list(range(2000, 6001, 50)), "differing")

    def loops() -> None:
        for target in targets:
            apart(_loop, race._replace(target=target))

    def both() -> None:
        with tempfile.TemporaryDirectory() as path, Store(Path(path) / "machine") as store:
            where = [Target.parse(target) for target in targets]
            sweep_cases(LARGE, where, race.lengths, store=store, control="differing")

    size = len(targets) * len(LARGE) * (len(race.lengths) - 1)
    yield from in_turns("two targets", size, {"by hand": loops, "probe": both}, repeat)


def _loop(race: Race) -> None:
    with InlineSession(Target.parse(race.target)):
        by_hand(race, convolution(race.target))


def comparisons(pairs: int, repeat: int) -> Iterator[Row]:
    """Ulps of float32 pairs, of which one in a thousand, or all, are 1 ulp apart.

    NumPy's function returns the distance of every pair, whatever one wants to know.
    """
    random = np.random.default_rng(1)
    a = random.standard_normal(pairs, dtype=np.float32)
    wanted = {"largest": ulp.max_ulp, "list": ulp.differences, "all distances": ulp.distance}
    for which, step in (("1 in 1,000 differs", 1000), ("all differ", 1)):
        b = a.copy()
        b.view(np.int32)[::step] += 1
        numpy = partial(np.testing.assert_array_max_ulp, a, b, maxulp=1)
        for asked, ours in wanted.items():
            ways: Ways = {"numpy.testing": numpy, "probe": partial(ours, a, b, "float32")}
            yield from in_turns(f"{asked}, {which}", pairs, ways, repeat)


def memory(target: str, counts: Sequence[int], longest: int) -> Iterator[Row]:
    """The most memory that a process ever held which runs that many lengths up to the same one.

    A process each, by hand too: libraries keep things for every shape (oneDNN its kernels).
    """
    for count in counts:
        lengths = sorted({*np.linspace(5, longest, count + 1).astype(int).tolist()})
        race = Race("", target, [Case("conv1d", 5, 1, 64)], lengths, "differing")
        for variant, way in (("by hand", _loop), ("probe", _sweep)):
            row = {"subject": f"peak memory, {target}", "variant": variant, "size": count}
            yield row | {"repeat": 1, "value": apart(_most_memory, way, race), "unit": "MiB"}


def _sweep(race: Race) -> None:
    by_probe(race, Path(tempfile.gettempdir()))


def _most_memory(way: Callable[[Race], None], race: Race) -> float:
    way(race)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls in a fresh process, since a library takes its switches once."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure(quick: bool) -> Iterator[tuple[str, list[Row]]]:
    """(target, rows), one part after the other."""
    repeat, folder = 2 if quick else REPEATS, Path(tempfile.gettempdir())
    for race in RACES[:2] if quick else RACES:
        if quick:
            race = race._replace(target="reference", cases=TINY[:4], lengths=[5, 6, 9, 20])
        yield race.target, apart(run_race, race, repeat, folder)
    if not quick:
        yield SINGLE, list(side_by_side(SIDE_BY_SIDE, 2))
    yield "reference", list(comparisons(PAIRS // 200 if quick else PAIRS, repeat))
    for target in ("reference",) if quick else SIDE_BY_SIDE:
        counts, longest = ((5, 20), 200) if quick else (COUNTS, 20_000)
        yield target, list(memory(target, counts, longest))


@frame.script
def main(store: Path, quick: bool) -> None:
    """Measures, stores and prints."""
    frame.refuse_shards()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", ABSL_MIN_LOG_LEVEL="3")
    out, rows = Output(), []
    with Store.here(store) as kept, out.progress("measuring"):
        for text, found in measure(quick):
            with open_session(Target.parse(text)) as session:
                facts, variables = session.facts, session.variables
            run = run_row(session.target, facts, variables, "overhead")
            kept.append("runs", run)
            kept.append("measurements", [row | {"run_id": run["run_id"]} for row in found])
            rows += found
    show(rows, out)


def show(rows: list[Row], out: Output) -> None:
    """The medians, and how many times the other way they are."""
    shown = table("what", "size", "by hand or NumPy", "probe", "probe / other")
    for subject, size in dict.fromkeys((row["subject"], row["size"]) for row in rows):
        mine = [row for row in rows if (row["subject"], row["size"]) == (subject, size)]
        ways: dict[str, list[float]] = {}
        for row in mine:
            ways.setdefault("probe" if row["variant"] == "probe" else "other", []).append(
                row["value"]
            )
        unit, ours = mine[0]["unit"], ways["probe"]
        other = f"{np.median(ways['other']):.4g} {unit}" if "other" in ways else ""
        ratios = [a / b for a, b in zip(ours, ways.get("other", []), strict=False)]
        ratio = f"{np.median(ratios):.3f}" if ratios else ""
        shown.add_row(subject, f"{size:,}", other, f"{np.median(ours):.4g} {unit}", ratio)
    out.results.print(shown)


if __name__ == "__main__":
    main()

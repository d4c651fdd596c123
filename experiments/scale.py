"""Measures a large sweep: a million convolutions, 10^9 compared outputs, and kill -9.

Time and memory against the number of cases and of lengths, each over three orders of magnitude;
bytes in the store and seconds to read it; and a sweep that is killed at random moments, parent or
child, until it has finished. Stores that are only measured lie in a temporary folder. Meant for an
idle machine with two processors.

Writes results/scale/<machine>/*.parquet; notebooks/scale.ipynb draws them.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lib import frame
from lib.frame import Row
from probe import Case, Store, Target, load
from probe.sweep import plan as shard
from probe.sweep.bits import sweep_cases
from probe.ui.answers import sweep as answers

PROBE = [sys.executable, "-m", "probe"]


class Plan(NamedTuple):
    """How much is measured. Comparisons of a case: one less than its lengths."""

    targets: tuple[str, ...]
    cases: tuple[int, ...]
    lengths: tuple[int, ...]
    large: tuple[int, ...]
    spread: int
    repeat: int
    kills: int


FULL = Plan(
    targets=("tensorflow,threads=1", "torch,threads=1"),
    cases=(1, 10, 100, 1000),
    lengths=(10, 100, 1000, 10_000),
    large=(10, 100, 1000),
    spread=1000,
    repeat=3,
    kills=60,
)
QUICK = Plan(
    targets=("reference",),
    cases=(1, 4, 16),
    lengths=(5, 20, 80),
    large=(2, 6),
    spread=20,
    repeat=1,
    kills=3,
)

SHARDS = 2
FEW = 10
"""Lengths of each case where the number of cases is what grows."""
LONGEST = 10_010
"""Where the number of lengths grows they are spread up to here, so that calls cost alike."""
KILLED = "sweep --op conv1d --kernel 5 --in-channels 4 --operands cancel --lengths 5..{}"
KILLED_TARGETS = (
    "--workers 2 --target reference --target reference,algorithm=pairwise,length_switch=200"
)


def convolutions(count: int) -> list[Case]:
    """Cheap convolutions, all different: of ``n`` values ``n - 2`` outputs."""
    return [Case("conv1d", 3, seed=seed) for seed in range(count)]


def spread(count: int, longest: int) -> list[int]:
    """So many lengths and the longest, evenly spread."""
    return sorted({3 + round(n * (longest - 3) / count) for n in range(count + 1)})


def odd(count: int) -> list[int]:
    """Returns lengths 3, 5, 7, ...: of 1,000 and a longest one 10^6 outputs are compared."""
    return list(range(3, 2 * count + 4, 2))


class Swept(NamedTuple):
    """What a process measured of its sweep. Memory in MiB: the most that it, or a child, held."""

    comparisons: int
    compared: int
    differing: int
    failures: int
    cpu: float
    parent: float
    child: float


def swept(
    target: str, cases: Sequence[Case], lengths: Sequence[int], store: Path, part: str
) -> Swept:
    """Sweeps in this process and a child, every length run once and compared with the longest."""
    with (
        shard.within_shard(shard.Shard.parse(part)) as mine,
        Store.here(store / mine.folder) as kept,
    ):
        found = sweep_cases(cases, [Target.parse(target)], lengths, store=kept, control="differing")
    (one,) = found.targets.values()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Swept(
        *(one.comparisons, one.compared, one.differing, len(one.failures)),
        cpu=sum(each.ru_utime + each.ru_stime for each in used),
        parent=used[0].ru_maxrss / 1024,
        child=used[1].ru_maxrss / 1024,
    )


def side_by_side(
    parts: int, target: str, cases: Sequence[Case], lengths: Sequence[int], store: Path
) -> list[Swept]:
    """Returns the same sweep in that many fresh processes, a shard each."""
    afresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(parts, mp_context=afresh) as pool:
        every = [f"{number}/{parts}" for number in range(1, parts + 1)]
        jobs = [pool.submit(swept, target, cases, lengths, store, one) for one in every]
        return [job.result() for job in jobs]


def row(subject: str, variant: str, size: int, value: float, unit: str, repeat: int = 1) -> Row:
    """Returns a row of ``measurements``."""
    found: Row = {"subject": subject, "variant": variant, "size": size, "repeat": repeat}
    return found | {"value": value, "unit": unit}


def lines(target: str, plan: Plan) -> Iterator[Row]:
    """Seconds and memory against cases and against lengths, a fresh process each, in turns."""
    grown = [("cases", count, convolutions(count), odd(FEW)) for count in plan.cases]
    grown += [("lengths", count, convolutions(1), spread(count, LONGEST)) for count in plan.lengths]
    for repeat in range(1, plan.repeat + 1):
        for subject, _, cases, lengths in grown:
            with tempfile.TemporaryDirectory() as folder:
                (one,) = side_by_side(1, target, cases, lengths, Path(folder))
            size = one.comparisons
            yield row(f"{subject}: time", "of processors", size, one.cpu, "s", repeat)
            yield row(f"{subject}: memory", "parent", size, one.parent, "MiB", repeat)
            yield row(f"{subject}: memory", "child", size, one.child, "MiB", repeat)


def large(target: str, plan: Plan) -> Iterator[Row]:
    """Sweeps in two shards: time, memory, bytes, reading; and the same again, all of it stored."""
    for count in plan.large:
        cases, lengths = convolutions(count), odd(plan.spread)
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder)
            start = time.monotonic()
            parts = side_by_side(SHARDS, target, cases, lengths, store)
            seconds = time.monotonic() - start
            size = sum(one.comparisons for one in parts)
            compared = sum(one.compared for one in parts)
            yield row("sweep", "time", size, seconds, "s")
            yield row("sweep", "time of processors", size, sum(one.cpu for one in parts), "s")
            yield row("sweep", "compared", size, compared, "outputs")
            yield row("sweep", "differing", size, sum(one.differing for one in parts), "outputs")
            yield row("sweep", "failures", size, sum(one.failures for one in parts), "failures")
            yield row("sweep", "parent", size, max(one.parent for one in parts), "MiB")
            yield row("sweep", "child", size, max(one.child for one in parts), "MiB")
            yield row("store", "bytes", size, on_disk(store), "bytes")
            yield from reading(store, size)
            start = time.monotonic()
            again = side_by_side(SHARDS, target, cases, lengths, store)
            yield row("again", "time", size, time.monotonic() - start, "s")
            yield row("again", "parent", size, max(one.parent for one in again), "MiB")


def reading(store: Path, size: int) -> Iterator[Row]:
    """Seconds until the store is read and summed up, in a fresh process; and by the command."""
    afresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=afresh) as pool:
        seconds, most = pool.submit(summed_up, store).result()
    yield row("store", "read and summed up", size, seconds, "s")
    yield row("store", "reader", size, most, "MiB")
    start = time.monotonic()
    command("results", str(store), "--json")
    yield row("store", "probe results", size, time.monotonic() - start, "s")


def summed_up(store: Path) -> tuple[float, float]:
    """Seconds, and the most MiB that this process held, imports and all."""
    start = time.monotonic()
    answers.summary_of_stores(load(store))
    seconds = time.monotonic() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def on_disk(folder: Path) -> int:
    """Returns bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def command(*words: str) -> None:
    """Runs probe in a process of its own. CalledProcessError: it failed."""
    subprocess.run([*PROBE, *words], check=True, capture_output=True)


def kills(plan: Plan) -> Iterator[Row]:
    """A sweep killed at random moments, parent or child, then finished: rows lost or changed."""
    random.seed(1)
    words = KILLED.format(400 if plan is FULL else 60).split() + KILLED_TARGETS.split()
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        command(*words, "--store", f"{folder}/whole")
        whole, usual = rows(Path(folder) / "whole"), time.monotonic() - start
        done, stores, wrong, finished = {"parent": 0, "child": 0}, 0, 0, False
        while sum(done.values()) < plan.kills or not finished:
            store = Path(folder) / f"killed{stores}"
            enough = sum(done.values()) >= plan.kills
            victim = "" if enough else random.choice(["parent", "child"])
            finished, hit = killed([*words, "--store", str(store)], victim, usual)
            if hit:
                done[victim] += 1
            if finished:
                found = rows(store)
                wrong += len(set(whole.items()) ^ set(found.items()))
                stores += 1
        for victim, count in done.items():
            yield row("kill -9", victim, len(whole), count, "kills")
        yield row("kill -9", "sweeps finished", len(whole), stores, "sweeps")
        yield row("kill -9", "rows lost or changed", len(whole), wrong, "rows")


def killed(words: list[str], victim: str, usual: float) -> tuple[bool, bool]:
    """Runs a sweep, kills it or a child of it at a random moment: whether it ended, was hit.

    One whose child is lost goes on and ends; one that ended before its moment wasn't hit.
    """
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*PROBE, *words], stdout=quiet, stderr=quiet) as process:
        hit = False
        if victim:
            with suppress(subprocess.TimeoutExpired):
                process.wait(random.random() * usual)
            running = process.poll() is None
            target = [process.pid] if victim == "parent" else children(process.pid)
            if running and target:
                with suppress(ProcessLookupError):
                    os.kill(random.choice(target), signal.SIGKILL)
                    hit = True
        return process.wait() == 0, hit


def children(pid: int) -> list[int]:
    """Process numbers of a process's children."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(each) for each in (task / "children").read_text().split()]
    return found


def rows(store: Path) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Returns comparisons and differences of a store, by key; without times, which differ."""
    found = load(store)
    rows = {}
    for name in ("comparisons", "differences"):
        frame_ = getattr(found, name).drop(columns=["seconds"], errors="ignore")
        frame_ = frame_.sort_index(axis=1).astype(object).where(frame_.notna(), None)
        keys = [one for one in ("target", "case_id", "at", "index") if one in frame_]
        for values in frame_.to_dict("records"):
            key = (name, *(values[one] for one in keys))
            rows[key] = tuple(map(str, values.values()))
    return rows


def measure(plan: Plan) -> Iterator[tuple[str, Iterator[Row]]]:
    """(target, rows), one part after the other."""
    for target in plan.targets:
        yield target, lines(target, plan)
    first = plan.targets[0]
    yield first, large(first, plan)
    yield "reference", kills(plan)


@frame.script
def main(store: Path, quick: bool) -> None:
    """Measures, stores and prints."""
    frame.timed(store, "scale", measure(QUICK if quick else FULL))


if __name__ == "__main__":
    main()

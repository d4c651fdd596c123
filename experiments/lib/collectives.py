"""All-reduce of PyTorch's gloo among processes on this machine: in which order it adds the ranks'
numbers, and what that predicts for every size.

Every rank's number at a place is a summand, so ``probe.order`` reveals the order of a place as that
of any function that adds. Gloo's ring gives each rank a chunk of the array and passes it round,
each rank adding its own; so the order follows from the chunk, and the chunk from the size.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from typing import Any

import numpy as np

import probe
from probe.order.replay import replay

MOST = 1 << 20
"""Numbers of each rank at most, and bytes of what the ring passes on at once."""


class Ranks:
    """Processes that stay alive, with one array each: ``given`` is what they have, (ranks, n)."""

    def __init__(self, world: int) -> None:
        self.world, context = world, get_context("spawn")
        self.room = tempfile.TemporaryDirectory()
        self.given, self.gives = (
            np.memmap(f"{self.room.name}/{name}", np.float32, "w+", shape=(world, 2 * MOST))
            for name in ("given", "gives")
        )
        self.ends, self.processes = list[Any](), list[Any]()
        for rank in range(world):
            here, there = context.Pipe()
            process = context.Process(target=_rank, args=(rank, world, self.room.name, there))
            process.start()
            self.ends.append(here)
            self.processes.append(process)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self.ends:
            end.send(None)
        for process in self.processes:
            process.join()
        self.room.cleanup()

    def reduced(self, places: Sequence[tuple[int, int]]) -> Iterator[np.ndarray]:
        """Sums of all ranks' numbers [start, stop), (ranks, stop - start) for each of ``places``:
        what each rank got."""
        pending = [*places]
        while pending:
            ends = np.cumsum([stop - start for start, stop in pending])
            some = pending[: max(1, int((ends <= MOST).sum()))]
            pending = pending[len(some) :]
            for end in self.ends:
                end.send(some)
            for end in self.ends:
                end.recv()
            at = 0
            for start, stop in some:
                yield np.array(self.gives[:, at : at + stop - start])
                at += stop - start

    def adds(self, size: int, place: int) -> Any:
        """The function that adds one number of each rank, at a place of arrays of this size."""

        def add(numbers: np.ndarray) -> np.float32:
            self.given[:, :size] = 0
            self.given[:, place] = numbers
            (sums,) = self.reduced([(0, size)])
            return np.float32(sums[0, place])

        return add

    def order(self, size: int, place: int) -> Any:
        """How the numbers of a place are added: revealed, and replayed."""
        return probe.order(self.adds(size, place), self.world, products=False)


def _rank(rank: int, world: int, room: str, end: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{room}/met", rank=rank, world_size=world)
    given, gives = (
        np.memmap(f"{room}/{name}", np.float32, "r+", shape=(world, 2 * MOST))
        for name in ("given", "gives")
    )
    while (places := end.recv()) is not None:
        at = 0
        for start, stop in places:
            tensor = torch.from_numpy(np.array(given[rank, start:stop]))
            dist.all_reduce(tensor)
            gives[rank, at : at + stop - start] = tensor.numpy()
            at += stop - start
        end.send(True)
    dist.destroy_process_group()


def chunk(size: int, world: int) -> int:
    """How many places in a row belong to one rank: the ring has two segments a rank at least, and
    none is larger than a MiB."""
    least = max(-(-size * np.float32().itemsize // MOST), 2 * world)
    segments = -(-least // world) * world
    return segments // world * -(-size // segments)


def predicted(summations: Sequence[Any], given: np.ndarray) -> np.ndarray:
    """What each chunk's summation makes of all places, (ranks, n)."""
    ones = np.ones((len(given), 1), np.float32)
    return np.stack([replay(each, given, ones, "float32") for each in summations])

"""Asks the operations of a program that is run whole, size against size and place against place.

A run at the largest size in use is compared, operation by operation, with runs at the smaller ones
(``probe.network.graph``): sums by the order in which each of their outputs is added, which no
luck of the data hides. Content of the smallest size is put at each place of the largest run: so all
places are alike. What is no sum, nor exact, is compared by bits or place by place, and then nothing
is certified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from probe.errors import ProbeError
from probe.recording.contract import Recorder

SECONDS = 240.0
"""After which no further place is asked about."""

UNWATCHED = (
    "operations of a compiled program, a session or a net can't be asked one by one; where there "
    "is a model file, give that"
)


class _Opened:
    """Recorders of a program, with inputs by their numbers."""

    inputs = ()

    def __init__(self, recorder: Callable[[Mapping[str, np.ndarray]], Recorder]) -> None:
        self.recorder = recorder


def certified(operation: Any, sizes: Sequence[int], seconds: float = SECONDS) -> str:
    """What asking came to, in words that begin with ``certified`` or with ``not certified``.

    ``operation``: a ``whole.Whole``; ``sizes``: those in use.
    """
    if operation.program.watched is None:
        return f"not certified: {UNWATCHED}"
    largest = sizes[-1]
    if operation.program.fixed is not None or largest == 1:
        return f"not certified: places of one size are not asked ({largest} samples a call)"
    try:
        return _asked(operation, list(sizes), seconds)
    except ProbeError as error:
        return f"not certified: {error}"
    except Exception as error:  # a library raises what it likes
        return f"not certified: {type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _asked(operation: Any, sizes: list[int], seconds: float) -> str:
    begun = time.monotonic()
    known: dict[Any, Any] = {}
    largest, least = sizes[-1], sizes[0]
    if len(sizes) == 1:
        return f"not certified: {largest} is the only size in use, so nothing is compared with it"
    questions = [(size, 0) for size in sizes[:-1]]
    # moved by one place, each sample of the smallest size is held against its neighbour
    blocks = {1, *range(least, largest - least + 1, least), largest - least}
    questions += [(least, place) for place in sorted(blocks)]
    for number, (size, place) in enumerate(questions):
        if time.monotonic() - begun > seconds:
            done = f"{number} of {len(questions)} questions about sizes and places"
            return f"not certified: {seconds:.0f} seconds were over after {done}"
        graph = _graph(operation, largest, place)
        graph.known = known
        told = graph.serves(size, size)
        where = f"size {size} against place {place} of size {largest}"
        if told.by_order == "differs":
            return f"not certified: {where}: {told.name}: {told.why}"
        if not told.certified:
            why = ": ".join(filter(None, (told.name, told.why))) or "some sums were not asked whole"
            return f"not certified: {where}: {why}"
    said = ", ".join(map(str, sizes))
    return f"certified: all outputs of sizes {said} were asked for every addition at every place"


def _graph(operation: Any, largest: int, place: int) -> Any:
    """The program padded along its batch, with content from a place on."""
    from probe.network.graph import Graph
    from probe.recording.walk import CHANGED, watched

    class Moved(Graph):
        """Content of the fixed run begins at ``place``."""

        def inputs(self, content: int, size: int, seed: int = 0) -> dict[str, np.ndarray]:
            """As of ``Graph``."""
            found = super().inputs(content, size, seed)
            if size == self.fixed and place:
                for name, axis in self.along.items():
                    found[name] = np.ascontiguousarray(np.roll(found[name], place, axis))
            return found

    arrays, along = {}, {}
    rows = iter(operation.pool)
    for number, leaf in enumerate(operation.leaves):
        if leaf.axis is not None:
            pool = next(rows)
            order = np.arange(largest) % len(pool)
            name = leaf.name or f"input {number}"
            arrays[name], along[name] = np.moveaxis(pool[order], 0, leaf.axis), leaf.axis
    graph = Moved(_Opened(lambda given: _recorder(operation, given)), arrays, along, largest)
    graph.near = largest
    if not place:
        _, notes = watched(graph.opened.recorder(graph.inputs(largest, largest)), "the program")
        graph.doubt = next((one for one in notes if CHANGED in one), "")
    return graph


def _recorder(operation: Any, given: Mapping[str, np.ndarray]) -> Recorder:
    """Watches the program with these samples, beside the inputs that carry none."""
    values = []
    for number, leaf in enumerate(operation.leaves):
        name = leaf.name or f"input {number}"
        values.append(leaf.value if leaf.axis is None else given[name])
    found: Recorder = operation.program.watched(values, operation.rebuild)
    return found

"""Measures the invariant mode as a remedy of a model: kept bits and cost.

The model is run by ``probe.stable.invariant`` at each content's own size and at the full one, on
several sets of inputs; what is kept of the outputs has to have the same bits. That every size adds
alike rests on what the mode checked itself: see its report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError, ProbeError
from probe.padding.kept import apart
from probe.padding.search import SETS, Graph, Sized
from probe.recording.subject import Called, leaves, of_function

NAME, DOC = "invariant", "probe.stable.invariant: each call stays in sizes that add alike"
APART = "the model runs in a process of its own"


@dataclass
class Invariant:
    """What became of it. ``refusal``: why there is none, or why its verdict is not known.

    ``report``: the mode's own, None where it could not be made. ``differing``: kept outputs with
    bits that differ from the full run's, over all valid lengths and sets of inputs; ``keeps``:
    whether the full run has the bits of the unchanged model. ``of_arrays``: the model takes NumPy's
    arrays.
    """

    refusal: str = ""
    report: Any = None
    differing: int = 0
    keeps: bool | None = None
    notes: list[str] = field(default_factory=list)
    model: Any = None
    of_arrays: bool = False

    @property
    def verdict(self) -> str:
        """``exact``, ``differs`` or ``not known``."""
        if self.differing:
            return "differs"
        return "not known" if self.refusal or self.report is None else "exact"

    @property
    def certified(self) -> bool:
        """Returns whether every operation was tested for every addition and every fusion."""
        told = [] if self.report is None else self.report.to_json()["operations"]
        return self.verdict == "exact" and all(
            str(one.get("certified", "")).startswith("certified") for one in told
        )

    def to_json(self) -> dict[str, Any] | None:
        """Returns the mode's own report; None where there is none."""
        return None if self.report is None else self.report.to_json()


def of_graph(
    graph: Graph, sizes: Sequence[Sized], model: Any, table: str | Path | None = None
) -> Invariant:
    """Makes a model invariant over the contents and the full size, and compares its runs.

    ``model``: as it was given, or a file. ``table``: of classes; it is read where it is there, and
    written afterwards. InputError: it is not a table, or one for other sizes.
    """
    wanted, given = _sizes(graph, sizes), graph.inputs(graph.fixed, graph.fixed)
    try:
        taken = _taken(graph, model, given)
        invariant = import_module("probe.stable").invariant
        wrapped = isinstance(graph.opened, Called) and taken is not graph.opened.function
        arrays = wrapped and not graph.opened.torch
        example = tuple(given.values()) if arrays else _example(taken, given)
        made = invariant(taken, wanted, example=example, table=table)
        found = Invariant(model=made[0], report=made[1], of_arrays=arrays)
        _compare(found, graph, sizes)
    except InputError as error:
        if error.name in ("table", "sizes"):
            raise
        return Invariant(f"{error.why}; {error.todo}" if error.todo else error.why)
    except ProbeError as error:
        return Invariant(str(error))
    except Exception as error:  # a library refuses what it likes
        return Invariant(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    _doubt(found, "length" in wanted)
    if table is not None:
        found.report.save(table)
    return found


def call(
    found: Invariant, graph: Graph, content: int, size: int, seed: int = 0
) -> Callable[[], list[np.ndarray]]:
    """Returns what runs it, again and again; as ``Graph.call``."""
    given = graph.inputs(content, size, seed)
    runs: Callable[[], list[np.ndarray]]
    try:
        if found.of_arrays:
            runs = of_function(lambda: found.model(*given.values())).plain
        else:
            runs = Called(found.model).recorder(given).plain
        return runs
    except InputError:  # what it gives are NumPy's arrays
        return lambda: [np.asarray(one) for one in leaves(found.model(*given.values()))]


def _sizes(graph: Graph, sizes: Sequence[Sized]) -> dict[str, list[int]]:
    """Returns the sizes that the mode is made for."""
    contents = sorted({*(one.content for one in sizes), graph.fixed})
    if set(graph.along.values()) == {0}:
        return {"batch": contents}
    batches = {array.shape[0] for array in graph.arrays.values() if array.ndim}
    return {"batch": sorted(batches), "length": contents}


def _taken(graph: Graph, model: Any, given: Mapping[str, np.ndarray]) -> Any:
    """Returns what ``stable.invariant`` takes. InputError: the model runs in another process."""
    if hasattr(graph.opened, "side"):
        raise InputError("target", "(own process)", APART, "leave out --target")
    if not isinstance(graph.opened, Called):
        return model
    if graph.opened.torch:
        return graph.opened.function
    recorder: Any = graph.opened.recorder(given)
    kind = type(getattr(recorder, "inner", recorder)).__module__
    of_torch = kind == "probe.recorders.torch"
    return _as_module(graph.opened.function) if of_torch else graph.opened.function


def _as_module(function: Callable[..., Any]) -> Any:
    """Returns a PyTorch module that calls a function of arrays."""
    torch = import_module("torch")

    class Function(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *arrays: Any) -> Any:
            return function(*arrays)

    return Function().eval()


def _example(model: Any, given: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    """Returns inputs of the full size: tensors for a module of PyTorch that takes some."""
    if not callable(model) or not Called(model).torch:
        return tuple(given.values())
    torch = import_module("torch")
    return tuple(torch.from_numpy(np.array(one)) for one in given.values())


def _compare(found: Invariant, graph: Graph, sizes: Sequence[Sized]) -> None:
    """Runs every content at its least size and at the full one, and the unchanged model there."""
    found.keeps = True
    for one in sizes:
        boxes = one.at_least.boxes or graph.boxes(one.content)
        for seed in range(SETS):
            whole = call(found, graph, one.content, graph.fixed, seed)()
            short = call(found, graph, one.content, one.least, seed)()
            found.differing += graph.parted(one.content, boxes, short, whole)
            own = graph.run(one.content, graph.fixed, seed)
            same = zip(own, whole, graph.whole(one.content).outputs, strict=True)
            values = graph.whole(one.content).values
            found.keeps &= not any(apart(a, b, values[number]) for a, b, number in same)


def _doubt(found: Invariant, along_length: bool) -> None:
    """Notes what keeps a verdict from being known, and what did not hold of a table."""
    told = found.report.to_json()
    left, limited = dict(told.get("left", {})), dict(told.get("limited", {}))
    doubts = [f"{name}: {why}" for name, why in left.items()]
    doubts += [f"{name}: {why}" for name, why in limited.items()] if along_length else []
    found.refusal = "; ".join(doubts[:2]) + f"; and {len(doubts) - 2} more" * (len(doubts) > 2)
    found.notes = [str(one) for one in told.get("notes", ())]

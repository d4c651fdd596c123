"""What to pad a model of any graph to, for the user's own code: ``plan.json`` and ``padded.py``.

For every length of content: the padded size, which part of each output to keep, and, of padding
alone, what completes it to the full size. Each size was judged operation by operation, and is
checked on fresh contents by running the model as users do. What was not proved stands in the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from probe.padding.between import Between
from probe.padding.kept import Box
from probe.padding.search import BY_BITS, PaddedModel, SafeSize
from probe.progress import Say, silent

# Contents, evenly spread, on which a plan is checked with inputs of their own; the first seed.
CHECKS, SEED = 12, 300


OWN_PLACES = (
    "of each output the entries of the valid part are kept: the following ones carry a state on "
    "through the padding"
)


OF_CONTIGUOUS = (
    "constants between operations were computed in contiguous memory: in torch.channels_last "
    "memory an input of padding alone gives different bits, so compute them there"
)


@dataclass(frozen=True)
class GraphStretch:
    """Neighbouring contents that are padded to one size, with the same outputs kept.

    ``least``: what the outputs' windows alone ask. ``kept``: for each output what is kept of it,
    None of one that content does not reach. ``by_order``: ``same``, or ``unknown`` where
    ``in_the_way`` was compared differently. ``given``: for which values alone; empty: for all.
    """

    first: int
    last: int
    least: int
    padded: int
    kept: tuple[Box | None, ...]
    by_order: str
    in_the_way: str
    certified: bool
    given: str = ""

    def to_json(self) -> dict[str, Any]:
        kept = [None if box is None else [vars(part) for part in box] for box in self.kept]
        told = vars(self) | {"kept": kept, "in_the_way": self.in_the_way or None}
        told["certified_for"] = told.pop("given") or None
        return told


@dataclass
class GraphPlan:
    """Padded sizes for contents. ``along``: the axis of each input that is padded.

    ``constant``: the outputs of padding alone at the full size. ``checked``: contents that were
    run on fresh inputs, ``failed``: those whose outputs differed; a plan with any must not be
    used. ``over``: why the search stopped early, empty if it did not. ``between``: shorter sizes
    that take constants between operations, of some contents.
    """

    model: str
    target: str
    fixed: int
    value: float
    along: dict[str, int]
    stretches: list[GraphStretch]
    constant: list[np.ndarray]
    assumed: list[str] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    tried: int = 0
    over: str = ""
    between: list[Between] = field(default_factory=list)

    @property
    def certified(self) -> bool:
        """Returns whether every sum at the padded sizes was asked for every addition and fusion."""
        return bool(self.stretches) and all(one.certified for one in self.stretches)

    def to_json(self) -> dict[str, Any]:
        found = dict(vars(self))
        del found["constant"]
        found["stretches"] = [one.to_json() for one in self.stretches]
        found["between"] = [one.to_json() for one in self.between]
        return found | {"certified": self.certified, "over": self.over or None}

    def save(self, folder: Path) -> list[Path]:
        """Writes ``plan.json``, ``constant.npz`` and ``padded.py``; their paths. OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / name for name in ("plan.json", "constant.npz", "padded.py")]
        files[0].write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")
        arrays = {f"y{n}": one for n, one in enumerate(self.constant)}
        for one in self.between:
            arrays |= {f"content{one.content}.{n}": a for n, a in enumerate(one.constants)}
        np.savez(files[1], allow_pickle=False, **arrays)
        files[2].write_text(SCRIPT, encoding="utf-8")
        return files


def make(
    graph: PaddedModel,
    contents: Iterable[int],
    model: str,
    tell: Say = silent,
) -> GraphPlan:
    """Seeks the safe size of every content, and checks some. Errors as of ``PaddedModel``."""
    every, sizes = sorted(set(contents)), []
    start = 0
    for content in every:
        tell(f"safe sizes: {content:,} of {every[-1]:,}")
        sizes.append(graph.sized(content, start))
        start = 0 if sizes[-1].safe == graph.fixed else sizes[-1].safe
    constant = graph.run(0, graph.fixed)
    over = next((one.over for one in sizes if one.over), "")
    target, stretches = graph.nothing.target, list[GraphStretch]()
    for one in sizes:
        at, n = one.at_safe, one.content
        words = (one.least, one.safe, at.boxes, at.by_order, at.name, at.certified, at.given)
        made, before = GraphStretch(n, n, *words), stretches[-1] if stretches else None
        # neighbours that differ in their contents alone are one stretch
        if before and before == replace(made, first=before.first, last=n - 1):
            stretches[-1] = replace(before, last=n)
        else:
            stretches.append(made)
    plan = GraphPlan(model, target, graph.fixed, graph.value, graph.along, stretches, constant)
    plan.assumed, plan.tried, plan.over = assumptions(sizes), graph.tried, over
    if graph.own_places:
        plan.assumed.append(OWN_PLACES)
    spread = np.linspace(0, len(every) - 1, min(CHECKS, len(every))).round().astype(int)
    for seed, number in enumerate(sorted(set(spread.tolist())), SEED):
        one = sizes[number]
        plan.checked.append(one.content)
        if graph.differing(one.content, one.safe, one.at_safe.boxes, seed):
            plan.failed.append(one.content)
    return plan


def assumptions(sizes: list[SafeSize]) -> list[str]:
    """Returns what stands behind a plan beside what was run."""
    found = [
        "the library computes a shape in one way for all finite inputs, on this processor, with "
        "this release and as many threads"
    ]
    doubts = {one.at_safe.name: one.at_safe.why for one in sizes if one.at_safe.name}
    given = dict.fromkeys(one.at_safe.given for one in sizes if one.at_safe.given)
    found += dict.fromkeys(o.at_safe.why for o in sizes if o.at_safe.why == BY_BITS)
    found += [f"what is said holds for {one}" for one in given]
    return found + [f"{name}: {why}" for name, why in doubts.items()]


SCRIPT = '''\
"""How far to pad inputs, which outputs to keep, and what completes them. NumPy alone.

Made by probe, with plan.json and constant.npz beside it, for one model on one target: see "model",
"target" and "assumed" in plan.json. Paste the functions into your own code, or import this file.

    short = pad({"x": content})              # each input by its name, of the content's own size
    outputs = complete(model(short), length of the content)

The constants are the outputs of padding alone at the fixed size. ``crop`` gives what reads content
and no more, which is what a batch needs. ``between`` says what to put in behind operations, where a
shorter run is to have the same bits.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PLAN = json.loads((HERE / "plan.json").read_text())
with np.load(HERE / "constant.npz") as found:
    ARRAYS = dict(found)
COUNT = sum(name[0] == "y" for name in ARRAYS)
CONSTANT = [ARRAYS["y%d" % n] for n in range(COUNT)]


def _stretch(content):
    for stretch in PLAN["stretches"]:
        if stretch["first"] <= content <= stretch["last"]:
            return stretch
    raise ValueError(f"content={content}: the plan has no such length")


def padded_size(content):
    """The padded size for content of so many entries. ValueError: the plan has none."""
    return _stretch(content)["padded"]


def pad(inputs):
    """Inputs by name, with the plan's padding behind them along its axes."""
    found = {}
    for name, array in inputs.items():
        axis = PLAN["along"].get(name)
        if axis is not None:
            around = [(0, 0)] * array.ndim
            around[axis] = 0, padded_size(array.shape[axis]) - array.shape[axis]
            value = PLAN["value"] if array.dtype.kind == "f" else 0
            array = np.pad(array, around, constant_values=value)
        found[name] = array
    return found


def _index(box, short, ndim):
    index = [slice(None)] * ndim
    for part in box:
        moved = part["offset"] if short else 0
        index[part["axis"]] = slice(part["start"] + moved, part["stop"] + moved)
    return tuple(index)


def crop(outputs, content):
    """Of the outputs of a padded run what reads content; None of an output that reads none."""
    kept = _stretch(content)["kept"]
    return [None if box is None else y[_index(box, True, y.ndim)] for box, y in zip(kept, outputs)]


def complete(outputs, content, constant=CONSTANT):
    """The fixed size's outputs, from those of the padded content and the constant rest."""
    found = []
    for box, mine, whole in zip(_stretch(content)["kept"], crop(outputs, content), constant):
        whole = whole.copy()
        if box is not None:
            whole[_index(box, False, whole.ndim)] = mine
        found.append(whole)
    return found


def between(content):
    """What to do behind operations in a run padded to PLAN's "between" size for this content.

    (operation, number of its output, axis, start, constants) for each: keep the output's entries
    before start along the axis, and put the constants behind them. KeyError: the plan has none for
    this content.
    """
    for one in PLAN["between"]:
        if one["content"] == content:
            names = ["content%d.%d" % (content, n) for n in range(len(one["splices"]))]
            return [
                (s["operation"], s["output"], s["axis"], s["start"], ARRAYS[name])
                for s, name in zip(one["splices"], names)
            ]
    raise KeyError(content)
'''

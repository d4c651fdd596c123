"""What to pad a model to, for the user's own code: ``plan.json`` and ``padded.py``.

For every length of content: the padded size, and which part of each output to keep. Some lengths
are searched for by running the model (:mod:`probe.sizes.search`); those between take the size of
the next longer one, whose outputs have all of theirs. The plan is checked on fresh contents. What
was not proved stands in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.errors import InputError
from probe.sizes.marks import SizeSearch
from probe.sizes.orders import Box
from probe.sizes.search import PaddedModel, SafeSize, kept_apart, taken
from probe.targets import budget
from probe.targets.progress import Say, silent

# Contents, evenly spread, on which a plan is checked with inputs of their own; the first seed.
CHECKS, SEED = 12, 300

# Lengths that are searched for, at most; and how far the sizes of two may be apart, as a part of
# the longer one's and at least, until one between is searched for too.
MOST, APART, LEAST_APART = 64, 1 / 32, 8

# After which further sizes are not asked for their orders.
SECONDS = 20.0

OWN_PLACES = (
    "of each output the entries of the valid part are kept: the following ones carry a state on "
    "through the padding"
)


@dataclass(frozen=True)
class GraphStretch:
    """Neighbouring contents that are padded to one size, with the same outputs kept.

    ``least``: what the outputs' windows alone ask of the last one. ``kept``: for each output what
    is kept of it, None of one that content does not reach. ``by_order``: ``same``, or ``unknown``
    where ``in_the_way`` was compared differently.
    """

    first: int
    last: int
    least: int
    padded: int
    kept: tuple[Box | None, ...]
    by_order: str
    in_the_way: str
    sets: int

    def to_json(self) -> dict[str, Any]:
        kept = [None if box is None else [vars(part) for part in box] for box in self.kept]
        return vars(self) | {"kept": kept, "in_the_way": self.in_the_way or None}


@dataclass
class GraphPlan:
    """Padded sizes for contents. ``along``: the axis of each input that is padded.

    ``checked``: contents that were run on fresh inputs, ``failed``: those whose outputs differed; a
    plan with any must not be used. ``over``: why the search stopped early, empty if it did not.
    """

    model: str
    target: str
    fixed: int
    value: float
    along: dict[str, int]
    stretches: list[GraphStretch]
    assumed: list[str] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    tried: int = 0
    over: str = ""

    @property
    def sets(self) -> int:
        """On how many fresh sets of operands each order was replayed; 0: none had to be."""
        return min((stretch.sets for stretch in self.stretches if stretch.sets), default=0)

    def to_json(self) -> dict[str, Any]:
        stretches = [stretch.to_json() for stretch in self.stretches]
        return vars(self) | {
            "stretches": stretches,
            "sets": self.sets,
            "over": self.over or None,
        }

    def save(self, folder: Path) -> list[Path]:
        """Writes ``plan.json`` and ``padded.py``; their paths. OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / name for name in ("plan.json", "padded.py")]
        files[0].write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")
        files[1].write_text(SCRIPT, encoding="utf-8")
        return files


def make(graph: PaddedModel, contents: Iterable[int], model: str, tell: Say = silent) -> GraphPlan:
    """Seeks safe sizes for all contents, and checks some. Errors as of ``PaddedModel``."""
    every = sorted(set(contents))
    sizes = searched(graph, every, tell)
    plan = GraphPlan(
        *(model, graph.text, graph.fixed, graph.value, graph.along),
        stretches=stretches(graph, every, sizes),
        assumed=assumptions(sizes),
        tried=len(graph.tried),
        over=next((size.over for size in sizes if size.over), ""),
    )
    plan.assumed += [OWN_PLACES] * bool(graph.carried)
    spread = np.linspace(0, len(every) - 1, min(CHECKS, len(every))).round().astype(int)
    for seed, number in enumerate(sorted(set(spread.tolist())), SEED):
        content = every[number]
        stretch = next(one for one in plan.stretches if one.first <= content <= one.last)
        try:
            short, whole = (graph.run(content, n, seed) for n in (stretch.padded, graph.fixed))
        except InputError:  # a model may refuse other numbers
            continue
        plan.checked.append(content)
        if kept_apart(short, stretch.kept, taken(whole, stretch.kept)):
            plan.failed.append(content)
    return plan


def searched(graph: PaddedModel, every: list[int], tell: Say) -> list[SafeSize]:
    """Sizes of some contents, the longest among them, in order: of neighbours that are padded to
    sizes far apart one between is searched for, as long as there is time. The longest content of
    each size is asked for its orders."""
    known = {*graph.found}

    def padded(place: int) -> int:
        tell(f"safe sizes: {every[place]:,}")
        # what serves more content serves less of it, so that shorter sizes need not be tried
        shorter = (size.safe for n, size in graph.found.items() if n < every[place])
        start = max((safe for safe in shorter if safe != graph.fixed), default=0)
        return graph.sized(every[place], start, asked=False).safe

    search = SizeSearch(padded, _near_enough)
    for place, content in enumerate(every):
        if content in known or place in (0, len(every) - 1):
            search.mark(place)
    search.bisect(0, len(every) - 1, most=MOST)
    sizes = {every[place]: graph.found[every[place]] for place in sorted(search.marks)}
    begun = time.monotonic()
    longest = {size.safe: size for size in sizes.values()}
    for size in longest.values():
        late = time.monotonic() - begun > SECONDS or budget.spent()
        if late or size.content in known or size.safe == graph.fixed:
            continue
        tell(f"orders at size {size.safe:,}")
        del graph.found[size.content]
        asked = graph.sized(size.content, size.safe, named=False)
        if asked.safe != size.safe:  # less content takes this size, too
            sizes = {n: other for n, other in sizes.items() if other.safe != size.safe}
        sizes[size.content] = asked
    return [sizes[content] for content in sorted(sizes)]


def _near_enough(shorter: int, longer: int) -> bool:
    return longer - shorter <= max(LEAST_APART, APART * longer)


def stretches(graph: PaddedModel, every: list[int], sizes: list[SafeSize]) -> list[GraphStretch]:
    """What is done for all contents: each takes the size of the next one that was searched for."""
    result, first, own = list[GraphStretch](), every[0], own_entries(sizes, graph.fixed)
    for size in sizes:
        at, last = size.at_safe, size.content
        words = (size.least, size.safe, at.boxes, at.by_order, at.name, at.sets)
        before = result[-1] if result else None
        if own:
            for content in range(first, last + 1):
                kept = tuple(
                    box
                    and tuple(
                        replace(part, stop=content) if (number, part.axis) in own else part
                        for part in box
                    )
                    for number, box in enumerate(at.boxes)
                )
                result.append(replace(GraphStretch(content, content, *words), kept=kept))
        elif before is not None and before.padded == size.safe:
            result[-1] = GraphStretch(before.first, last, *words)
        else:
            result.append(GraphStretch(first, last, *words))
        first = last + 1
    return result


def own_entries(sizes: list[SafeSize], fixed: int) -> set[tuple[int, int]]:
    """Outputs by number, with the axes of which just the content's own entries are kept at all
    lengths: rows of a batch, positions that read none behind them."""
    every = [
        {
            (number, part.axis)
            for number, box in enumerate(size.at_safe.boxes)
            for part in box or ()
            if (part.start, part.stop) == (0, size.content)
        }
        for size in sizes
        if size.content < fixed
    ]
    return set.intersection(*every) if every else set()


def assumptions(sizes: list[SafeSize]) -> list[str]:
    """What stands behind a plan beside what was run."""
    assumed = [
        "the library computes a shape in one way for all finite inputs, on this processor, with "
        "this release and as many threads; of subnormal numbers nothing is said"
    ]
    doubts = {size.at_safe.name: size.at_safe.why for size in sizes if size.at_safe.name}
    return assumed + [f"{name}: {why}" for name, why in doubts.items()]


SCRIPT = '''\
"""How far to pad inputs, and which outputs to keep. NumPy alone.

Made by probe, with plan.json beside it, for one model on one target: see "model", "target" and
"assumed" in plan.json. Paste the functions into your own code, or import this file.

    short = pad({"x": content})              # each input by its name, of the content's own size
    outputs = crop(model(short), length of the content)

What is kept has the bits of the run at the fixed size, where it stands at "start" to "stop".
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PLAN = json.loads((HERE / "plan.json").read_text())


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


def kept_index(box, ndim, short=True):
    """Where what is kept of an output stands in a padded run, or in one at the fixed size."""
    index = [slice(None)] * ndim
    for part in box:
        moved = part["offset"] if short else 0
        index[part["axis"]] = slice(part["start"] + moved, part["stop"] + moved)
    return tuple(index)


def crop(outputs, content):
    """Of the outputs of a padded run what may read content; None of an output that reads none."""
    kept = _stretch(content)["kept"]
    return [None if box is None else y[kept_index(box, y.ndim)] for box, y in zip(kept, outputs)]
'''

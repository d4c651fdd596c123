"""Writes the padding plan of a chain for the user's code: ``plan.json`` and ``padded.py``.

The plan holds, for every length of content, the padded length, which outputs to keep, and the
outputs of padding alone that complete them to the full length. It is found by order and checked on
fresh operands; what it was found for (network, target, versions) and what it assumes stand in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probe import backends, ulp
from probe.errors import InputError
from probe.layout import CONTIGUOUS
from probe.network.geometry import Requirement
from probe.network.running import content, padded
from probe.network.safe import END_TO_END_SETS, SafeLengths
from probe.padding.plan import Range, joined, padded_size
from probe.thresholds.switches import threads_of, threads_text

CHECKS = 12
"""Contents, evenly spread, on which a plan is checked with operands of their own."""


@dataclass(frozen=True)
class Stretch(Range):
    """Neighbouring content lengths with one padded length; ``least``: what geometry alone asks.

    Outputs [skipped, kept) of the full run are the short run's [skipped + offset, kept + offset).
    """

    kept: int
    skipped: int = 0
    offset: int = 0


@dataclass
class Plan:
    """Padded lengths for contents on one target. ``contents``: those it was found for.

    ``constant``: outputs of padding alone at the full length, (1, *height, outputs, channels).
    ``axis``: of (batch, ..., channels), the one that is padded; ``constant`` has the length last.
    ``rule``: the plan in a sentence, empty where only the table says it. ``failed``: contents whose
    outputs differed in the check; a plan with any must not be used. ``part``: of a model that
    was read in part, ``Network.part``: then it holds for that part alone, and is not written.
    ``layouts``: how the user's input may lie in memory, words of :mod:`probe.layout`.
    ``uncertified``: what was not tested for every addition and fusion, and why; empty if all was.
    """

    network: str
    network_id: str
    target: str
    fixed: int
    value: float
    stretches: list[Stretch]
    constant: np.ndarray
    rule: str = ""
    assumed: list[str] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    tried: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    axis: int = -2
    part: str = ""
    layouts: list[str] = field(default_factory=lambda: [CONTIGUOUS])
    uncertified: str = ""

    @property
    def certified(self) -> bool:
        """Whether every sum at the padded lengths was tested for every addition and fusion."""
        return not self.uncertified

    def padded(self, length: int) -> int:
        """Returns the padded length for content of ``length``. KeyError outside of the plan."""
        return padded_size(self.stretches, length)

    @property
    def moved(self) -> list[Stretch]:
        """Stretches that take more than geometry asks: there the least length changes bits."""
        return [stretch for stretch in self.stretches if stretch.padded > stretch.least]

    def to_json(self) -> dict[str, Any]:
        """Returns what ``plan.json`` holds."""
        found = dict(vars(self))
        found["stretches"] = [vars(stretch) for stretch in self.stretches]
        found["constant"] = self.constant.tolist()
        found |= {"certified": self.certified, "uncertified": self.uncertified or None}
        return found | {"dtype": str(self.constant.dtype)}

    def save(self, folder: str | Path) -> list[Path]:
        """Writes ``plan.json`` and ``padded.py`` into a folder; their paths.

        Errors: OSError; InputError for a model that was read in part.
        """
        if self.part:
            raise refused("plan", folder, self.part)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = folder / "plan.json", folder / "padded.py"
        files[0].write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")
        files[1].write_text(SCRIPT, encoding="utf-8")
        return list(files)


def refused(name: str, value: object, part: str) -> InputError:
    """Returns why there is no plan for a model that was read in part."""
    why = f"a plan is for whole models, and only a part of this one is supported: {part}"
    todo = "leave out --target, so that its own library runs the whole graph"
    return InputError(name, value, why, todo)


def make(
    lengths: SafeLengths,
    contents: Sequence[int],
    value: float = 0.0,
    checks: int = CHECKS,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Makes the plan for these content lengths on the session of ``lengths``.

    Of a model that was read in part it holds for that part's outputs alone, and says so: ``part``.
    Raises TargetError.
    """
    geometry, network, session = lengths.geometry, lengths.network, lengths.session
    table = lengths.table(contents, progress)
    nothing = np.zeros(network.input_shape(1), network.dtype)[..., :0, :]
    plan = Plan(
        network.name,
        network.id,
        session.target.text,
        geometry.fixed,
        value,
        _stretches(lengths, table),
        lengths.runner.as_used(padded(nothing, geometry.fixed, value)),
        rule(lengths),
        assumptions(lengths),
        tried=lengths.lengths_tried,
        axis=-3 if network.swapped else -2,
        part=network.part,
        layouts=list(lengths.layouts),
        uncertified=uncertified(lengths, table),
        facts={
            name: session.facts.get(name)
            for name in ("library", "library_version", "numpy_version", "threads")
        },
    )
    plan.assumed += _other_constants(plan, lengths, padded(nothing, geometry.fixed, value))
    spread = np.linspace(0, len(contents) - 1, min(checks, len(contents))).round().astype(int)
    for seed, number in enumerate(sorted(set(spread.tolist())), 1):
        check(plan, lengths, contents[number], seed)
    return plan


def uncertified(lengths: SafeLengths, table: dict[int, int]) -> str:
    """Returns what was not tested for every addition, at any padded length of the table."""
    return "; ".join(dict.fromkeys(filter(None, map(lengths.uncertified, table.values()))))


def _other_constants(plan: Plan, lengths: SafeLengths, nothing: np.ndarray) -> list[str]:
    """Returns in which layouts of the input padding alone gives different bits from the plan's."""
    own, run = plan.constant, lengths.runner.as_used
    apart = [
        word
        for word in plan.layouts[1:]
        if not ulp.equal(run(nothing, word), own, lengths.network.dtype)
    ]
    text = (
        "the constant outputs are those of a contiguous input, and a {} one gives different bits: "
        "complete(..., constant=model(padding alone))"
    )
    return [text.format(word) for word in apart]


def check(plan: Plan, lengths: SafeLengths, length: int, seed: int) -> bool:
    """Checks and notes whether fresh content at its planned length has the full run's bits.

    Layer by layer, and as users run it: end to end, where the target can.
    """
    runner, given = lengths.runner, (lengths, length, plan.padded(length), seed, plan.value)
    runs: list[Callable[[np.ndarray], np.ndarray]] = [runner.output]
    runs += [partial(runner.as_used, word=word) for word in plan.layouts]
    equal = not any(differing(*given, run) for run in runs)
    plan.checked.append(length)
    if not equal:
        plan.failed.append(length)
    return equal


def differing(
    lengths: SafeLengths,
    length: int,
    to: int,
    seed: int,
    value: float = 0.0,
    run: Callable[[np.ndarray], np.ndarray] | None = None,
) -> int:
    """Counts outputs that read content and differ between a run padded to ``to`` and the full one.

    ``run``: a method of a ``Runner``; layer by layer unless it is given.
    """
    geometry, network, run = lengths.geometry, lengths.network, run or lengths.runner.output
    need = geometry.requirement(length, to)
    x = content(network, length, seed)
    short, whole = run(padded(x, to, value)), run(padded(x, geometry.fixed, value))
    mine, theirs = kept(need, short), whole[..., need.first : need.kept, :]
    shared = mine.shape[-2]
    apart = ulp.apart(mine, theirs[..., :shared, :], network.dtype)
    return int(apart.sum()) + theirs[..., shared:, :].size


def kept(need: Requirement, output: np.ndarray) -> np.ndarray:
    """Returns the outputs of a short run that are kept."""
    return output[..., need.first + need.offset : need.kept + need.offset, :]


def _stretches(lengths: SafeLengths, table: dict[int, int]) -> list[Stretch]:
    """Returns neighbours with the same lengths and outputs as one row."""
    found = []
    for length in sorted(table):
        least = lengths.geometry.least(length)
        need = lengths.geometry.requirement(length, table[length])
        found.append(
            Stretch(length, length, least, need.padded, need.kept, need.first, need.offset)
        )
    return joined(found)


def rule(lengths: SafeLengths) -> str:
    """Says in a sentence what makes a length safe; empty where no single bound of a layer does.

    ``conv9 gives at least 2 positions``: of all sizes that were looked at, the layer adds as at the
    full length at those that wide and at no other.
    """
    if any(lengths.end_to_end.values()):
        return ""
    bounds, network = [], lengths.network
    for number, seen in sorted(lengths.widths.items()):
        bad = [width.outputs for width in seen.values() if width.alike < width.outputs]
        good = [width.outputs for width in seen.values() if width.alike == width.outputs]
        if not bad:
            continue
        if not good or min(good) <= max(bad):
            return ""
        name = network.layers[number].name
        bounds.append(f"{name} gives at least {min(good)} position{'s' * (min(good) > 1)}")
    if not bounds and network.part:
        return f"no extra padding is needed up to {network.layers[-1].name}"
    return " and ".join(bounds) if bounds else "no extra padding is needed to keep the bits"


def assumptions(lengths: SafeLengths) -> list[str]:
    """Returns what stands behind the plan beside what was run."""
    facts, where = lengths.session.facts, lengths.session.target
    found = [
        "the target computes a shape in one way for all finite operands, on this processor, "
        f"with this release and {threads_text(threads_of(facts, where))} (OMP_DYNAMIC, where it is "
        "set, lets a busy machine take threads away, and that changes bits)"
    ]
    if len(lengths.layouts) > 1 or len(backends.get(lengths.session.target.name).layouts) > 1:
        found.append(
            f"the input lies in memory as {' or '.join(lengths.layouts)}, in a tensor of its own, "
            "and the weights as the library's layers hold them"
        )
    for names, why in _by_reason(lengths, lengths.by_bits):
        found.append(f"{names} compared by bits, on a few sets of operands: {why}")
    for names, why in _by_reason(lengths, lengths.by_places):
        found.append(f"{names} compared place by place: {why}")
    if lengths.end_to_end:
        found.append(
            "beside layer by layer, the library's program of all layers was compared by bits, on "
            f"{END_TO_END_SETS} sets of operands"
        )
    return found


def _by_reason(lengths: SafeLengths, reasons: dict[int, str]) -> Iterator[tuple[str, str]]:
    """``conv2 and conv3 were``, with the reason that they share."""
    layers: dict[str, list[str]] = {}
    for number, why in sorted(reasons.items()):
        layers.setdefault(why, []).append(lengths.network.layers[number].name)
    for why, names in layers.items():
        told = ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]
        yield f"{told} {'were' if len(names) > 1 else 'was'}", why


SCRIPT = '''\
"""How far to pad content, which outputs to keep, and what completes them. NumPy alone.

Made by probe, with plan.json beside it, for one network on one target: see "network", "target" and
"assumed" there. Paste the functions into your own code, or import this file.

    short = pad(content)                     # (batch, *spatial, channels), channels last
    outputs = complete(model(short), length of the content)

The constant outputs behind are the target's. Where your model runs otherwise (all layers compiled
as one, another memory format), give its own: complete(..., constant=model(padding alone)), which
has the fixed size and is computed once.
"""

import json
from pathlib import Path

import numpy as np

PLAN = json.loads((Path(__file__).parent / "plan.json").read_text())
AXIS = PLAN["axis"]  # of the positions
CONSTANT = np.moveaxis(np.array(PLAN["constant"], PLAN["dtype"]), -2, AXIS)


def padded_length(content):
    """The padded length for content of so many positions. ValueError: the plan has none."""
    return _stretch(content)["padded"]


def _stretch(content):
    for stretch in PLAN["stretches"]:
        if stretch["first"] <= content <= stretch["last"]:
            return stretch
    raise ValueError(f"content={content}: the plan has no such length")


def pad(content):
    """Content (batch, *spatial, channels) with the plan's padding behind it."""
    around = [(0, 0)] * content.ndim
    around[AXIS] = 0, padded_length(content.shape[AXIS]) - content.shape[AXIS]
    return np.pad(content, around, constant_values=PLAN["value"])


def complete(output, content, constant=CONSTANT):
    """The fixed size's outputs, from those of the padded content and the constant tail."""
    stretch, found = _stretch(content), np.repeat(constant, len(output), axis=0)
    start, stop, offset = stretch["skipped"], stretch["kept"], stretch["offset"]
    into, came = np.moveaxis(found, AXIS, 0), np.moveaxis(output, AXIS, 0)
    into[start:stop] = came[start + offset : stop + offset]
    return found
'''

"""Draws random cases, asks ``probe fix sizes``, and holds its promises against direct calls.

A promise is a set of sizes at which every row is said to add alike: a class, and the sizes of the
floor up to which all were run. Operands repeat, so that one window stands at many places of a call
and in calls of all sizes. The library's own calls (``referee``), at every size of the promise, must
give it the same bits at all of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.answering import Answer
from lib.fuzzing import Drawing, Judging, first_drawn
from lib.referee import Arrays, Referee
from probe.case import operands, ulp
from probe.case.case import Case
from probe.case.errors import InputError
from probe.order.window import Geometry
from probe.sizes import thresholds
from probe.sweep.campaign import CampaignPart, Row, case_row
from probe.targets.launch import AnySession
from probe.ui.answers.cases import Switching

REPEATED = 5
"""Elements along the length, or samples, after which operands repeat: it divides no vector's size,
so that every window meets every place of one."""

SETS = ("cancel", "cancel", "normal", "cancel")
"""Kinds of operands, a set of each: sums that cancel show nearly every different order."""

UPTO = (9, 16, 33, 64, 100, 150, 200)
SCANS = (None, None, None, 20)
"""How many sizes are all run; None: as by default."""

MOST = 100_000_000
"""Products of one set of operands at all sizes."""


@dataclass(frozen=True)
class Asked:
    """A case whose sizes up to ``upto`` are asked for. ``number``: its place in the draw."""

    number: int
    target: str
    case: Case
    vary: str
    upto: int
    scan: int | None = None

    @property
    def sizes(self) -> range:
        return range(thresholds.shortest_size(self.case, self.vary), self.upto + 1)

    def at(self, size: int) -> Case:
        return self.case.with_(**{self.vary: size})


def drawn(drawing: Drawing, target: str, count: int, seed: int) -> list[Asked]:
    """``count`` cases on a target. The same ones for a seed; a longer draw begins with it."""
    seeded = f"{seed} promises {target}"
    return first_drawn(lambda rng, n: _drawn(rng, drawing, target, n), seeded, count)


def _drawn(rng: random.Random, drawing: Drawing, target: str, number: int) -> Asked | None:
    """None where the draw is not a case that has sizes, or too large."""
    arguments, longest = drawing.case(rng)
    arguments |= {"layout": "contiguous", "operands": "normal"}
    windows = "kernel" in arguments
    vary = "batch" if arguments["op"] == "dense" or (windows and rng.random() < 0.4) else "length"
    upto, scan = rng.choice(UPTO), rng.choice(SCANS)
    try:
        case = Case(**arguments)
        if vary == "batch" and windows:
            case = case.with_(length=case.shortest_length + longest // 8)
        asked = Asked(
            number, target, case.with_(batch=1) if vary == "batch" else case, vary, upto, scan
        )
        largest = asked.at(upto)
        work = np.prod(largest.output_shape()) * largest.summands * upto
    except InputError:
        return None
    return asked if len(asked.sizes) > 1 and work <= MOST else None


class Promises(Judging[Asked]):
    """Asks for sizes and referees them. ``referees``: what calls each target's library directly,
    one dictionary for all threads: targets that begin at once would lose each other's."""

    table = "promises"
    referees: dict[str, Referee]

    def begin(self, part: CampaignPart[Asked]) -> None:
        self.referees[part.target.text] = part.stack.enter_context(Referee(part.target))

    def columns(self, question: Asked) -> Row:
        row: Row = {"number": question.number, "case_id": question.case.id}
        return row | {"vary": question.vary, "upto": question.upto}

    def answer(self, part: CampaignPart[Asked], question: Asked) -> Answer:
        self.keep("cases", case_row(question.case))
        referee = self.referees[question.target]
        return {"promises": held(question, part.session, referee)}


def held(asked: Asked, session: AnySession, referee: Referee) -> Row:
    """Columns of ``promises``: what probe promises, and how much of it direct calls contradict.

    Errors: ``Unrefereed`` where there is no direct call; TargetError.
    """
    referee.outputs(asked.at(asked.sizes[0]), operands.generate(asked.at(asked.sizes[0])))
    found = thresholds.find_thresholds(
        session, asked.case, asked.upto, vary=asked.vary, scanned=asked.scan
    )
    told = Switching(found).report()
    sure = promises(told)
    broken, compared = contradicted(asked, sure, referee)
    return {
        "classes": len(told["classes"]),
        "sizes": len(set().union(*sure)),
        "floor": told["floor"]["size"],
        "step": told["floor"]["step"],
        "sets": told["sets"],
        "compared": compared,
        "false": len(set().union(*broken)),
    }


def promises(told: Mapping[str, Any]) -> list[set[int]]:
    """Sets of sizes said to add alike, as ``probe fix sizes --json`` tells them."""
    sure = [
        {size for first, last, step in one["sizes"] for size in range(first, last + 1, step)}
        for one in told["classes"]
    ]
    floor = told["floor"]
    if floor["size"] is not None:
        sure.append(set(range(floor["size"], floor["run_to"] + 1, floor["step"])))
    return sure


def contradicted(
    asked: Asked, alike: Sequence[set[int]], referee: Referee
) -> tuple[list[set[int]], int]:
    """Of each set of sizes those at which a window has different bits than at another
    place or size of the set, by direct calls; and how many outputs were compared."""
    called = sorted(set().union(*alike), reverse=True)
    if not called:  # at each size rows add differently
        return [set() for _ in alike], 0
    each = [labels(asked.at(size), asked.vary) for size in called]
    known, every = np.unique(np.concatenate(each), return_inverse=True)
    places = np.split(every.reshape(-1), np.cumsum([len(one) for one in each])[:-1])
    broken: list[set[int]] = [set() for _ in alike]
    compared = 0
    for number, kind in enumerate(SETS):
        given = repeated(asked, kind, number)
        found = {
            size: referee.outputs(asked.at(size), given(size)).reshape(-1, asked.case.filters)
            for size in called
        }
        compared += sum(y.size for y in found.values())
        for sizes, wrong in zip(alike, broken, strict=True):
            seen = np.zeros(len(known), bool)
            first = np.zeros((len(known), *found[called[0]].shape[1:]), found[called[0]].dtype)
            for size, place in zip(called, places, strict=True):
                if size not in sizes:
                    continue
                new = ~seen[place]
                first[place[new]], seen[place] = found[size][new], True
                if ulp.bits_apart(first[place], found[size], asked.case.dtype).any():
                    wrong.add(size)
    return broken, compared


def repeated(asked: Asked, kind: str, number: int) -> Any:
    """What gives the operands of a size: the input repeats along what is varied, and what
    is behind its first ``REPEATED`` places is the same at every size."""
    case = asked.case.with_(operands=kind, seed=asked.case.seed + 1000 * (number + 1))
    if asked.vary == "length":
        case = case.with_(length=max(REPEATED, case.shortest_length))
        axis = -2
    else:
        case, axis = case.with_(batch=REPEATED), 0
    x, w, b = operands.generate(case)

    def given(size: int) -> Arrays:
        turned = np.take(x, np.arange(size) % REPEATED, axis=axis)
        return np.ascontiguousarray(turned), w, b

    return given


def labels(case: Case, vary: str) -> np.ndarray:
    """What decides what each row's window holds, int (rows,): rows with the same label hold
    the same."""
    geometry = Geometry.of(case)
    rows = np.arange(case.batch * geometry.positions)
    if vary == "batch":
        sample, place = np.divmod(rows, geometry.positions)
        return sample % REPEATED * geometry.positions + place
    line, along = np.divmod(rows, geometry.outputs[-1])
    if not case.spatial_rank:
        return line * REPEATED + along % REPEATED
    taps = along[:, None] * case.stride[-1] - case.pads()[-1][0]
    taps = taps + np.arange(case.kernel[-1]) * case.dilation[-1]
    read = (taps >= 0) & (taps < geometry.sizes[-1])  # those that meet padding read less
    which = read @ (1 << np.arange(case.kernel[-1]))
    labelled: np.ndarray = (line * REPEATED + taps[:, 0] % REPEATED << case.kernel[-1]) + which
    return labelled

"""Draws random pairs of runs, explains them, and checks them by direct calls of the libraries.

A trial is a random case at two values of an axis on one target, or at one shape on two. It is
explained as ``probe explain`` does. Then the libraries' own calls (``referee``) say whether the
outputs are right, whether a difference was missed, and whether one was reported that is not there.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from lib.answering import Answer, Answering, in_one_line
from lib.referee import Referee, Unrefereed
from probe.case import ulp
from probe.case.case import Case
from probe.case.errors import InputError, ProbeError
from probe.explain.comparison import Comparison, compare_shapes
from probe.explain.enclosure import RoundingVerdict
from probe.explain.runs import ComparedShapes, Finding, Revealer
from probe.sweep.campaign import CampaignPart, Question, Row, case_row
from probe.targets import machine
from probe.targets.launch import AnySession, Sessions
from probe.targets.target import Target

OPERATIONS = {
    "conv1d": 5,
    "conv2d": 4,
    "conv3d": 1,
    "depthwise_conv2d": 2,
    "matmul": 4,
    "dense": 3,
    "sum": 1,
}
"""How often each is drawn."""

MOST_PRODUCTS = 700
MOST_OUTPUTS = 3000
"""Of one output, and of one call: a reveal stays within a second or two."""

MISTAKE = "a mistake of probe's: "
"""What the reason of a trial begins with that ended in an exception of our own."""


T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One random pair. ``number``: its place in the draw; ``against_target`` None: one target."""

    number: int
    target: str
    shapes: ComparedShapes
    against_target: str | None = None


@dataclass(frozen=True)
class Drawing:
    """What is drawn from: ``dtypes`` and ``kinds`` (of operands) with how often each, and
    ``layouts`` beside contiguous ones. ``others``: targets for the other side, by target.
    """

    dtypes: Mapping[str, int]
    kinds: Mapping[str, int]
    operations: Mapping[str, int]
    layouts: Sequence[str] = ()
    others: Sequence[str] = ()

    def trials(self, target: str, count: int, seed: int) -> list[Trial]:
        """``count`` trials on a target. The same ones for a seed; a longer draw begins with it."""
        return first_drawn(lambda rng, n: self._trial(rng, target, n), f"{seed} {target}", count)

    def _trial(self, rng: random.Random, target: str, number: int) -> Trial | None:
        """None where the draw is not a case, or too large."""
        arguments, largest = self.case(rng)
        vary = rng.choice(AXES.get(arguments["op"], ("length", "length", "batch", "filters")))
        other = rng.choice(self.others) if self.others and rng.random() < 0.15 else None
        if other is not None:  # which may keep no layouts
            arguments.pop("layout", None)
        try:
            case = Case(**arguments)
            if other is not None:
                shapes = ComparedShapes.named(case.with_(length=largest), None, None, None, None)
            else:
                shapes = ComparedShapes.named(*_pair(rng, case, vary, largest), None)
        except InputError:
            return None
        sizes = [np.prod(side.output_shape()) for side in (shapes.left, shapes.right)]
        if case.summands > MOST_PRODUCTS or max(sizes) > MOST_OUTPUTS:
            return None
        return Trial(number, target, shapes, other)

    def case(self, rng: random.Random) -> tuple[Row, int]:
        """Arguments of ``Case``, and the longest length."""
        op, rank = _one(rng, self.operations), {"conv1d": 1, "conv3d": 3}
        windows = op in ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
        axes = rank.get(op, 2) if windows else 0
        channels = rng.choice((1, 2, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 96, 129))
        found: Row = {"op": op, "in_channels": channels, "seed": rng.randrange(1000)}
        found |= {"dtype": _one(rng, self.dtypes), "operands": _one(rng, self.kinds)}
        if op != "sum":
            found["filters"] = rng.choice((1, 1, 2, 3, 5, 8, 8, 13, 16, 32, 48, 64))
        longest = rng.choice((8, 16, 33, 64, 70, 128, 200, 400))
        if windows:
            found["kernel"] = tuple(rng.choice((1, 2, 3, 3, 5, 7)) for _ in range(axes))
            found["stride"] = rng.choice((1, 1, 1, 2))
            found["dilation"] = rng.choice((1, 1, 1, 2)) if found["stride"] == 1 else 1
            found["padding"] = rng.choice(("valid", "same"))
            found["height"] = tuple(rng.randint(1, 10) for _ in range(axes - 1)) or None
            found["batch"] = rng.choice((1, 1, 1, 2, 3))
        if op == "depthwise_conv2d":
            found["filters"] = channels
        elif op in ("conv1d", "conv2d") and rng.random() < 0.2:
            found["groups"] = rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
            found["filters"] = found["groups"] * rng.choice((1, 2, 3))
        if (windows or op == "dense") and rng.random() < 0.4:
            found["bias"] = "normal"
        if self.layouts and windows and rng.random() < 0.3:
            found["layout"] = rng.choice(self.layouts)
        return found, longest


def first_drawn(draw: Callable[[random.Random, int], T | None], seed: str, count: int) -> list[T]:
    """The first draws that give something; each has a seed of its own."""
    draws = (draw(random.Random(f"{seed} {number}"), number) for number in itertools.count())
    return list(itertools.islice((one for one in draws if one is not None), count))


AXES = {"dense": ("batch",), "matmul": ("length", "length", "filters"), "sum": ("length",)}
"""What is varied of an operation; of the others length, batch or filters."""


def _one(rng: random.Random, often: Mapping[str, int]) -> str:
    return rng.choices(list(often), list(often.values()))[0]


def _pair(rng: random.Random, case: Case, vary: str, longest: int) -> tuple[Case, str, int, int]:
    """A case at two values of an axis."""
    if vary == "length":
        least = case.shortest_length
        at, against = rng.randint(least, least + longest), rng.randint(least, least + longest)
        return case, vary, at, against
    most = {"batch": 40 if case.op == "dense" else 6, "filters": case.filters}[vary]
    at, against = rng.randint(1, most), rng.randint(1, most)
    length = None if case.op == "dense" else case.shortest_length + rng.randint(0, longest)
    case = case.with_(length=length, **({"batch": 1} if vary == "batch" else {}))
    return case, vary, at, against


class Judging(Answering[Question]):
    """Drawn questions: what a target refuses, and a mistake of ours, are the reason of a row."""

    key, reasons = ("number",), (Exception,)

    def reason(self, error: Exception) -> str:
        if isinstance(error, ProbeError | Unrefereed):
            return super().reason(error)
        return f"{MISTAKE}{in_one_line(error)}"


class Fuzzing(Judging[Trial]):
    """Runs, explains and referees trials. ``sides``: the processes of each target's."""

    table = "trials"
    sides: dict[str, _Sides]

    def begin(self, part: CampaignPart[Trial]) -> None:
        self.sides[part.target.text] = part.stack.enter_context(_Sides(part.session, self.opens))

    def columns(self, question: Trial) -> Row:
        shapes = question.shapes
        row: Row = {"number": question.number, "against_target": question.against_target}
        row |= {"case_id": shapes.case.id, "vary": shapes.vary if shapes.paired else None}
        return row | {"at": shapes.at, "against": shapes.against}

    def answer(self, part: CampaignPart[Trial], question: Trial) -> Answer:
        self.keep("cases", case_row(question.shapes.case))
        return {"trials": self.sides[question.target].judged(question)}


class _Sides:
    """The processes of one target's trials: the targets' own, and their referees'."""

    def __init__(self, session: AnySession, opens: Callable[[Target], AnySession]) -> None:
        self.session, self.stack = session, ExitStack()
        self.others = self.stack.enter_context(Sessions(opens))
        self.referees: dict[str, Referee] = {}

    def __enter__(self) -> _Sides:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def judged(self, trial: Trial) -> Row:
        """Columns of ``trials``: what probe says of a trial, and what the direct calls say."""
        second = self.session
        if trial.against_target is not None:
            second = self.others.of(Target.parse(trial.against_target))
        finding = Finding.drawn_from(trial.shapes)
        found = compare_shapes(trial.shapes, self.session, second, finding.operands)
        found.reveal(self.session, second, Revealer(tried=None))
        return told(found) | self._refereed(found, finding)

    def _refereed(self, found: Comparison, finding: Finding) -> Row:
        """What direct calls say; nulls, and why, where there is none."""
        direct = []
        for side in (found.left, found.right):
            try:
                y = self._referee(side.target).outputs(side.case, finding.operands(side.case))
            except Unrefereed as why:
                nothing: Row = dict.fromkeys(("refereed", "other", "missed", "false"))
                return nothing | {"unrefereed": machine.publishable(str(why))}
            direct.append(y.reshape(-1, side.case.filters))
        dtype, sides = found.left.case.dtype, (found.left, found.right)
        other = [
            ulp.bits_apart(y, one.operands.y, dtype) for y, one in zip(direct, sides, strict=True)
        ]
        values = direct[0][tuple(found.pairs.left.T)], direct[1][tuple(found.pairs.right.T)]
        differs = ulp.bits_apart(*values, dtype)
        said = np.zeros(len(differs), bool)
        said[found.differing] = True
        return {
            "refereed": sum(y.size for y in direct),
            "other": sum(int(apart.sum()) for apart in other),
            "missed": int((differs & ~said).sum()),
            "false": int((said & ~differs).sum()),
        }

    def _referee(self, where: Target) -> Referee:
        if where.text not in self.referees:
            self.referees[where.text] = self.stack.enter_context(Referee(where))
        return self.referees[where.text]


def told(found: Comparison) -> Row:
    """What probe says of a comparison, in columns of ``trials``."""
    return {
        "compared": found.compared,
        "differing": len(found.differing),
        "max_ulp": found.max_ulp,
        "causes": found.causes,
        "replayed": int(found.proved(found.differing).sum()),
        "unknown": found.unknown,
        **proved(found.rounding),
    }


def proved(verdict: RoundingVerdict) -> Row:
    """What is proved of differing outputs, in columns of ``trials``, ``walks``, ..."""
    names = ("explained", "within", "beyond")
    return {name: getattr(verdict, name) for name in names} | {"open": verdict.unknown}

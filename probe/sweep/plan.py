"""Plans what a sweep computes of one case, and turns a worker's answers into rows.

A plan is made once and shared by all targets. For job arrays and CI matrices one of several parts
is run (``Shard``): the questions of a command have an order, which the command alone decides, and
shard i of n asks every n-th of them from the i-th on: no question twice, none left out, whatever
the other shards do. Each writes to a folder of its own beside the others, so that no two processes
write to one; the folder above reads as the store of one run.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from probe.case import floats, layout, memory, operands, schema
from probe.case.arguments import choice
from probe.case.case import Case
from probe.case.errors import InputError
from probe.order import window

# Plans whose operands are kept: targets that run side by side are at about the same case.
CACHED = 4
# Differing outputs of a comparison that are stored where nobody says how many: of all of 10^7 the
# rows alone took 3 GB. In memory these take 0.3 GB, on the disk some 10 MB.
KEPT = 1_000_000

Ranges = list[list[int]]
Item = tuple[int, list[tuple[Ranges | None, Ranges]]]


def axis_values(values: Sequence[int], vary: str) -> tuple[list[int], int]:
    """The sorted values to compare, and the longest, with which they are. Raises
    InputError.

    Layouts are compared with ``contiguous``, whether it is among them or not.
    """
    distinct = sorted(set(values))
    if vary == "layout":
        contiguous = layout.layout_number(layout.CONTIGUOUS)
        layouts = [value for value in distinct if value != contiguous]
        if not layouts:
            why = "a sweep compares each layout with contiguous"
            raise InputError(
                "layouts", layout.CONTIGUOUS, why, "give different ones, such as transposed"
            )
        for value in layouts:
            window.shown_axis_value("layout", value)
        return layouts, contiguous
    shown = ",".join(map(str, distinct[:9])) or "(none)"
    if len(distinct) < 2:
        why = "a sweep compares each value with the longest"
        raise InputError("lengths", shown, why, "give two or more, such as 5..64")
    if distinct[0] < 1:
        raise InputError("lengths", shown, "they must be 1 or more", "leave out the others")
    return distinct[:-1], distinct[-1]


class Plan:
    """One case of a sweep. Checked when made: a value that does not fit it is an InputError.

    ``case`` is the case as it is stored, with an open length where the length is varied and all
    channels where they are; ``base`` the one at ``against``. ``vary``: as of ``window.axis_of``.
    """

    def __init__(self, case: Case, vary: str, values: Sequence[int], against: int) -> None:
        case = case.with_(length=None) if vary == "length" else case
        case = case.with_(layout=layout.CONTIGUOUS) if vary == "layout" else case
        self.case = window.case_for(case, vary, (against,))
        self.vary, self.values, self.against = vary, values, against
        # lengths fit where the shortest and the longest do: there may be a million of them
        for value in (values[0], against) if vary == "length" else (*values, against):
            window.case_at(self.case, vary, value)
        self.base = window.case_at(self.case, vary, against)
        memory.require(self.base)  # says so too where the length is neither given nor varied
        self.id = self.case.id

    @cached_property
    def items(self) -> dict[int, Item]:
        """By value: what a ``sweep`` request needs, see ``compare.compare_items``."""
        return {value: self._item(value) for value in self.values}

    @cached_property
    def not_compared(self) -> dict[int, int]:
        """By value: outputs without a partner whose window holds the same values."""
        if self._prefixes:
            return dict.fromkeys(self.values, 0)
        outputs = {value: math.prod(shape) for value, shape in self.shapes.items()}
        return {
            value: outputs[value] - sum(map(window.block_size, blocks))
            for value, blocks in self._blocks.items()
        }

    @cached_property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        if self.vary in ("channels", "layout"):
            return dict.fromkeys(self.values, self.base.output_shape())
        if self.vary == "filters":
            return {value: (*self.base.output_shape()[:-1], value) for value in self.values}
        return {value: self.case.output_shape(**{self.vary: value}) for value in self.values}

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """x, w and, if there is one, b of the base: container arrays."""
        x, w, b = operands.generate(self.base)
        return {"x": x, "w": w} | ({} if b is None else {"b": b})

    @cached_property
    def scale(self) -> np.ndarray:
        """sum|x*w| of every output of the base, float64; costs a convolution."""
        return window.scale(self.base, **self.arrays)

    @property
    def _prefixes(self) -> bool:
        """Whether every output must agree with the one of its index: the usual case, told
        quickly.

        Without padding no window reaches past the shorter input.
        """
        return self.vary == "length" and self.case.padding == "valid"

    @cached_property
    def _blocks(self) -> dict[int, tuple[window.Slices, ...]]:
        """By value: the outputs that must agree with those of the base."""
        base = window.Geometry.of(self.base)
        return {value: window.agreeing_blocks(self._geometry(value), base) for value in self.values}

    def _geometry(self, value: int) -> window.Geometry:
        if self.vary == "length":  # a million of them may be asked for: no case is made of each
            return window.Geometry.of(self.case, value)
        return window.Geometry.of(window.case_at(self.case, self.vary, value))

    def _item(self, value: int) -> Item:
        whole = [[0, size, 1] for size in self.shapes[value]]
        if self._prefixes:
            return value, [(None, whole)]
        nothing = [[0, 0, 1] for _ in whole]
        blocks: list[tuple[Ranges | None, Ranges]] = []
        for block in self._blocks[value]:
            ranges = [[part.start, part.stop, 1] for part in block]
            blocks.append((None if ranges == whole else ranges, ranges))
        return value, blocks or [(nothing, nothing)]


class Plans:
    """The plans of a sweep by number; operands of the ones used last are kept. Thread-safe."""

    def __init__(
        self, cases: Sequence[Case], vary: str, values: Sequence[int], against: int
    ) -> None:
        self.vary, self.values, self.against = vary, values, against
        self._kept = lru_cache(CACHED)(self._made)
        self._lock = threading.Lock()
        self.cases, self.ids = list[Case](), dict[str, int]()
        for case in cases:  # one that is given twice, also at two values of the axis, is one
            if (own := self._kept(case).id) not in self.ids:
                self.ids[own] = len(self.cases)
                self.cases.append(case)

    @classmethod
    def of(cls, cases: Sequence[Case], lengths: Sequence[int], vary: str | None = None) -> Self:
        """The plans for two or more values of an axis (None: the cases' own); checks all.

        Errors: InputError.
        """
        if not cases:
            raise InputError("cases", "(none)", "there is nothing to run", "give one or more")
        vary = window.axis_of(cases[0], vary)
        return cls(cases, vary, *axis_values(lengths, vary))

    def __len__(self) -> int:
        return len(self.cases)

    def _made(self, case: Case) -> Plan:
        return Plan(case, self.vary, self.values, self.against)

    def __getitem__(self, number: int) -> Plan:
        with self._lock:
            return self._kept(self.cases[number])


@dataclass(frozen=True)
class SweepRequest:
    """What a sweep asks of every target: what it computes, and three options of that name.

    ``only``: the values of the plans that are asked, a shard's; empty: all. ``whole``: values of
    the axis at which all outputs of a case are stored.
    """

    plans: Plans
    control: str = "every"
    keep: int | None = None
    zeros: str = "equal"
    only: tuple[int, ...] = ()
    whole: Mapping[Case, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choice("control", self.control, ("every", "differing"))
        choice("zeros", self.zeros, ("equal", "differ"))

    @property
    def values(self) -> Sequence[int]:
        return self.only or self.plans.values

    @property
    def most(self) -> int:
        return KEPT if self.keep is None else self.keep

    def to_json(self, values: Sequence[int]) -> dict[str, Any]:
        """What a node of a cluster is asked: one case at some of its values."""
        plans, names = self.plans, ("control", "keep", "zeros")
        about = {"vary": plans.vary, "values": list(values), "against": plans.against}
        how = {name: getattr(self, name) for name in names}
        return {"case": plans[0].case.to_json(), **about, **how}

    @classmethod
    def from_json(cls, question: Mapping[str, Any]) -> Self:
        """Reads what ``to_json`` gives, other names beside it too. Errors: InputError."""
        values = [*question["values"], question["against"]]
        plans = Plans.of([Case.from_json(question["case"])], values, question["vary"])
        return cls(plans, question["control"], question["keep"], question["zeros"])


Size: TypeAlias = "int | np.ndarray"

_SATURATED = 2**63 - 1
_COLUMNS = ("at", "compared", "differing", "max_ulp", "first", "seconds")


_TOLD = ("control", "digest_at", "digest_against", "signed_zero")
_PLACES = ("index", "index_against", "bits_at", "bits_against", "ulps")


def nonsense(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], plan: Plan, wanted: Iterable[int]
) -> str:
    """Why an answer to a ``sweep`` request can't be true; empty where nothing speaks
    against it.

    ``wanted``: the values of the axis that are not answered yet.
    """
    rows = {name: np.shape(arrays[name]) for name in _COLUMNS}
    rows |= {name: np.shape(header[name]) for name in _TOLD}
    if len({*rows.values(), arrays["at"].shape[:1]}) > 1:
        return "its columns are not of one length"
    answered = [*arrays["at"].tolist(), *(at for at, *_ in header["failures"])]
    if len(set(answered)) < len(answered) or not set(answered) <= set(wanted):
        return "it answers a different question"
    for at, compared, differing in zip(
        *(arrays[name].tolist() for name in ("at", "compared", "differing")), strict=True
    ):
        if not 0 <= differing <= compared <= np.prod(plan.shapes[at], dtype=np.int64):
            return f"{differing} of {compared} outputs differ at {at}"
    places = [arrays[name] for name in _PLACES] if "index" in arrays else []
    total = int(arrays["differing"].sum())
    if any(place.shape != (total,) for place in places) or (total and not places):
        return f"{total} outputs differ, and it lists others"
    return ""


def comparison_columns(
    pair: Mapping[str, Any],
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    not_compared: Mapping[int, int],
) -> dict[str, Any]:
    """Columns of ``comparisons`` of one answer to a ``sweep`` request, a row an item.

    ``pair``: the key columns other than ``at``. ``not_compared``: by value of the axis.
    """
    columns = {**pair, **{name: arrays[name] for name in _COLUMNS}}
    columns |= {name: header[name] for name in _TOLD}
    for name in ("max_ulp", "first"):  # the worker says -1 where there is none
        columns[name] = np.where(arrays[name] < 0, schema.NULL_INT, arrays[name])
    at = arrays["at"]
    columns["not_compared"] = np.array([not_compared[value] for value in at.tolist()], np.int64)
    return {**columns, "kept": arrays["differing"].copy(), "max_scaled": np.full(len(at), np.nan)}


def difference_columns(
    pair: Mapping[str, Any],
    comparisons: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    plan: Plan,
    most: int,
) -> dict[str, Any]:
    """Columns of ``differences`` of one answer, one item after the other, each in order of index.

    The difference of two values is divided by eps and by sum|x*w|, NaN where that is not a number.
    ``comparisons``: the answer's, which get their ``max_scaled`` and how many are ``kept``: the
    first ``most`` of each, and the one with the most ulps.
    """
    at, times, index = arrays["at"], arrays["differing"], arrays["index"]
    sizes = np.array([_output_sizes(plan.shapes[int(value)]) for value in at], np.int64).reshape(
        -1, 3
    )
    left, right = (
        floats.widen(floats.from_bits(arrays[name], plan.base.dtype), plan.base.dtype)
        for name in ("bits_at", "bits_against")
    )
    with np.errstate(all="ignore"):
        scale = plan.scale.reshape(-1)[arrays["index_against"]]
        scaled = (right - left) / (floats.eps(plan.base.dtype) * scale)
    scaled = np.where(np.isfinite(scaled), scaled, np.nan)
    # a distance past int64 (of float64's extremes) is no number that the column can hold
    ulps = np.where(np.abs(arrays["ulps"]) == _SATURATED, schema.NULL_INT, arrays["ulps"])
    mask = np.zeros(len(index), bool)
    ends = np.cumsum(times)
    for row, (start, end) in enumerate(zip(ends - times, ends, strict=True)):
        numbers = np.abs(scaled[start:end])
        numbers = numbers[~np.isnan(numbers)]
        if numbers.size:
            comparisons["max_scaled"][row] = numbers.max()
        if end > start:
            part = ulps[start:end]
            size = np.where(part == schema.NULL_INT, _SATURATED, np.abs(part))
            mask[start : min(end, start + most)] = True
            mask[start + int(np.argmax(size))] = True
        comparisons["kept"][row] = mask[start:end].sum()
    index, times = index[mask], comparisons["kept"]
    return {
        **pair,
        "at": np.repeat(at, times),
        "index": index,
        **_output_places(index, *np.repeat(sizes, times, axis=0).T),
        "bits_at": arrays["bits_at"][mask].astype(np.uint64),
        "bits_against": arrays["bits_against"][mask].astype(np.uint64),
        "ulp": ulps[mask],
        "scaled": scaled[mask],
    }


def output_columns(
    pair: Mapping[str, Any], at: int, output: np.ndarray, dtype: str
) -> dict[str, Any]:
    """Columns of ``outputs``: every element of an output, (batch, *spatial, filters), container."""
    names = ("run_id", "case_id", "target", "vary")
    index = np.arange(output.size)
    rows, positions, filters = _output_sizes(output.shape)
    return {
        **{name: pair[name] for name in names},
        "at": at,
        "index": index,
        **_output_places(index, rows, positions, filters),
        "bits": floats.to_bits(output, dtype).reshape(-1).astype(np.uint64),
    }


def _output_places(
    index: np.ndarray, rows: Size, positions: Size, filters: Size
) -> dict[str, np.ndarray]:
    """Where flat indices into outputs are; sizes may change from index to index."""
    return {
        "batch": index // (rows * positions * filters),
        "row": index // (positions * filters) % rows,
        "position": index // filters % positions,
        "channel": index % filters,
    }


def _output_sizes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Rows, positions and filters of an output shape."""
    positions = shape[-2] if len(shape) > 2 else 1
    return int(np.prod(shape[1:-2], dtype=np.int64)), positions, shape[-1]


Question = TypeVar("Question")

HOW = "use i/n, such as 2/8: the second of eight parts"


class Shard(NamedTuple):
    """Part ``number`` (from 1) of ``total``."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads ``i/n``. Raises InputError."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if not match:
            raise InputError("shard", text, "it is not a part such as 2/8", HOW)
        number, total = int(match[1]), int(match[2])
        if not 1 <= number <= total:
            raise InputError("shard", text, f"parts are numbered from 1 to {total}", HOW)
        return cls(number, total)

    @property
    def text(self) -> str:
        """``2/8``; as a folder's name it is ``folder``."""
        return f"{self.number}/{self.total}"

    @property
    def folder(self) -> str:
        """Where this part's results are kept beside the others'; empty for the only part."""
        return f"shard-{self.number}-of-{self.total}" if self.total > 1 else ""

    def has(self, place: int) -> bool:
        return place % self.total == self.number - 1

    def part(self, questions: Sequence[Question]) -> list[Question]:
        return list(questions[self.number - 1 :: self.total])


ALL = Shard(1, 1)

_CURRENT: ContextVar[Shard] = ContextVar("shard", default=ALL)


def questions_of_part(questions: Iterable[Question]) -> Iterator[Question]:
    """The questions of this part; campaigns within the loop run all of their own."""
    shard_questions = current_shard().part(list(questions))
    with within_shard(ALL):
        yield from shard_questions


def current_shard() -> Shard:
    return _CURRENT.get()


@contextmanager
def within_shard(shard: Shard) -> Iterator[Shard]:
    """Within this context every campaign runs this part alone."""
    token = _CURRENT.set(shard)
    try:
        yield shard
    finally:
        _CURRENT.reset(token)

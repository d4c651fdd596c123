"""A whole program at a few sizes of its batch, each checked: the same bits for a sample anywhere.

Where a library runs a model as one program, its operations can't be put into classes one by one.
So the program itself is one operation. A size is checked with several samples (``samples``): each
stands at every place of the call once, with different neighbours, from aligned memory and from
other; its answer has to have the same bits everywhere, and those of the chosen size. A sample that
shows the places of one size to differ, as where a function's vector body and tail do, is held at
all places of every other size. Calls are padded with copies of their first sample, or cut.

That is a test and no proof: a size is not refuted. ``WholeReport.orders`` asks the operations.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.errors import Foreign, InputError, ProbeError, foreign, line_of
from probe.sizes.invariant import samples
from probe.sizes.invariant.classes import (
    Buckets,
    Entry,
    InvariantOptions,
    Plan,
    Table,
    conditions,
    ladder,
)
from probe.sizes.invariant.keeper import NotInvariant, Report
from probe.sizes.invariant.programs import (
    HOW,
    Leaf,
    LibraryProgram,
    ProgramOutput,
    Rebuild,
    aligned_array,
    joined_answers,
    of_file,
    padded_piece,
    program_of_function,
    program_with_library,
)
from probe.targets.unchanged import leaves_unchanged, unchanged

SPENT = 0.5  # seconds of processors, about, on more samples than stand at every place
LEAST = 2e-5  # of one call, with what it takes to make its inputs
DRAWN = 1 << 20  # numbers of their inputs
TELLING = 16  # samples that told at one size, and are asked first at the others
HALF = 0.5  # of the samples: where more differ between two sizes, these add in different orders


class WholeProgram:
    """A program with inputs of one shape but for the batch: an operation of ``classes``.

    ``leaves``: the inputs of the first call. ``recipes``: of what their samples are made, by input.
    """

    pieces: Sequence[int] = ()

    def __init__(
        self,
        key: str,
        program: LibraryProgram,
        leaves: list[Leaf],
        rebuild: Rebuild,
        recipes: Sequence[Any],
    ) -> None:
        self.key, self.program, self.rebuild = key, program, rebuild
        self.leaves, self.recipes = leaves, recipes
        self.refused: dict[int, str] = {}
        self.outputs: list[ProgramOutput] = []
        self.pool: list[np.ndarray] = []
        self.alike: list[np.ndarray] = []
        self.dtypes: list[str] = []
        self.placed = 0
        """How many of the samples are run at every place; further ones at one."""
        self.telling: list[int] = []
        """Samples that had different bits at different places of some size."""

    # samples

    def prepare(self, sizes: Sequence[int]) -> None:
        """Finds where the outputs carry samples, and draws the samples. InputError."""
        largest, other = sizes[-1], (sizes[-2] if len(sizes) > 1 else 1 if sizes[-1] > 1 else 2)
        self.pool = self._drawn(range(samples.FEW))
        shapes = self._shapes(largest)
        if self.program.fixed is not None:
            axis = next(leaf.axis for leaf in self.leaves if leaf.axis is not None)
            for number, (shape, dtype) in enumerate(shapes):  # along the axis of its inputs
                if len(shape) <= axis or shape[axis] != largest:
                    said = f"output {number} has shape {list(shape)} for {largest} samples"
                    why = "no axis of it has an entry for each sample"
                    raise InputError("model", said, why, HOW)
                self.outputs.append(ProgramOutput(axis, 1, dtype))
        else:
            both = enumerate(zip(shapes, self._shapes(other), strict=True))
            self.outputs = [
                samples.output_of(n, at_largest, largest, at_other, other)
                for n, (at_largest, at_other) in both
            ]
        numbers = sum(math.prod(shape) for shape, _ in shapes) // largest
        enough = math.ceil(samples.ENOUGH / max(numbers, 1))
        self.placed = min(samples.MANY, max(samples.FEW, enough))
        # candidates whose answers are numbers, and show most
        candidates = range(self.placed * samples.CANDIDATES)
        self.pool = self._drawn(candidates)
        changed, _, finite = self.seen(sizes[0])
        good = np.flatnonzero(finite) if finite.any() else np.array(candidates)
        order = good[np.argsort(-changed[good], kind="stable")]
        most_telling = sorted(order[: self.placed].tolist())
        self.pool = self._drawn(most_telling + self._more(numbers, sizes))
        self.alike = self._alike()

    def _alike(self) -> list[np.ndarray]:
        """The samples, and behind them the first with all whole numbers alike: one, the
        smallest and the largest of those that were given, where the program takes them.

        They may be lengths, and a program may multiply as many rows as the longest sample has
        steps: then the others decide the order of additions, and one step alone has its own.
        """
        recipes = [recipe for recipe in self.recipes if recipe is not None]
        alike = self.pool
        for choose in (min, max, lambda values: 1):
            more = [
                np.full_like(rows[:1], choose(recipe["values"]))
                if rows.dtype.kind in "iub" and dtype not in floats.FORMATS
                else rows[:1]
                for recipe, rows, dtype in zip(recipes, self.pool, self.dtypes, strict=True)
            ]
            if all(map(np.array_equal, more, (rows[:1] for rows in self.pool))):
                continue
            call = self._call(np.zeros(self.program.fixed or 1, int), False, more)
            try:
                foreign(call)
            except (Foreign, ProbeError):
                continue
            alike = [np.concatenate(both) for both in zip(alike, more, strict=True)]
        return alike

    def _more(self, numbers: int, sizes: Sequence[int]) -> list[int]:
        """Further samples, of a quick program: they pass through the places of every size.

        One number of several hundred may be all that two sizes round differently, and a function
        whose vector body and tail differ shows it at rare inputs. So more are run than are taken:
        those to which the smallest size and the largest give different bits come first.
        """
        order, seconds = np.arange(sizes[-1]) % len(self.pool[0]), []
        for _ in range(3):  # it is compiled by now; a busy machine takes no more of this time
            begun = time.process_time()
            self._call(order, False)()
            seconds.append(max(time.process_time() - begun, LEAST))
        drawn = sum(rows[0].size for rows in self.pool)
        calls = min(SPENT / min(seconds), DRAWN / max(drawn, 1))
        plenty = min(samples.PLENTY // max(numbers, 1), samples.MOST)
        most = int(min(plenty, calls / (1 + len(sizes)))) - self.placed
        if most <= 0:
            return []
        start = self.placed * samples.CANDIDATES
        candidates = np.arange(start, start + min(int(calls), samples.CANDIDATES * most))
        self.pool = self._drawn(candidates.tolist())
        *_, finite = self.seen(sizes[0])
        apart = np.zeros(len(candidates), bool)
        for (few, dtype), (many, _) in zip(
            self._answers_of_all(sizes[0]), self._answers_of_all(sizes[-1]), strict=True
        ):
            apart |= _unlike(few, many, dtype).reshape(len(apart), -1).any(1)
        if apart.mean() > HALF:
            apart[:] = False
        first = [*candidates[finite & apart], *candidates[finite & ~apart]]
        return [int(number) for number in sorted(first[:most])]

    def _shapes(self, size: int) -> list[tuple[tuple[int, ...], str]]:
        call = self._call(np.zeros(size, int), False)
        try:
            answers = foreign(call)
        except Foreign as error:
            todo = f"{HOW}; a file or signature of one batch has to be exported with an open one"
            why = f"it does not run on {size} samples: {error}"
            raise InputError("model", self.program.name, why, todo) from None
        if not answers:
            raise InputError("model", self.program.name, "it returns no array", "return one")
        return [(bits.shape, dtype) for bits, dtype in answers]

    def _drawn(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """The samples of each input that carries them: container arrays, a sample a row."""
        pool, self.dtypes = [], []
        for at, leaf in enumerate(self.leaves):
            if leaf.axis is None:
                continue
            shape, dtype = self.program.form(leaf.value)
            shape = (*shape[: leaf.axis], *shape[leaf.axis + 1 :])
            pool.append(samples.drawn_samples(self.recipes[at], shape, dtype, numbers, at))
            self.dtypes.append(dtype)
        return pool

    # runs

    def _call(
        self, order: np.ndarray, odd: bool, pool: Sequence[np.ndarray] | None = None
    ) -> Callable[[], list[tuple[np.ndarray, str]]]:
        """A call of these samples; ``odd``: from memory that is not aligned."""
        program, drawn = self.program, iter(zip(pool or self.pool, self.dtypes, strict=True))
        values = []
        for leaf in self.leaves:
            if leaf.axis is None:
                values.append(program.aligned(leaf.value, None))
                continue
            rows, dtype = next(drawn)
            array = aligned_array(np.moveaxis(rows[order], 0, leaf.axis))
            if odd:  # elsewhere in memory: at no whole multiple of a vector
                moved = np.empty(array.size + 1, array.dtype)[1:]
                moved[:] = array.reshape(-1)
                array = moved.reshape(array.shape)
            values.append(program.aligned(program.native(array, dtype), leaf.axis))
        args, kwargs = self.rebuild(values)

        def call() -> list[tuple[np.ndarray, str]]:
            answers, _ = program.split(program.at(len(order))(*args, **kwargs))
            return [program.bits(answer) for answer in answers]

        return call

    def answers(
        self, order: np.ndarray, odd: bool, pool: Sequence[np.ndarray] | None = None
    ) -> list[tuple[np.ndarray, str]]:
        """Calls it: a row of each output for each sample, (samples, ...). ValueError."""
        by_sample = []
        for (bits, dtype), output in zip(self._call(order, odd, pool)(), self.outputs, strict=True):
            rows = np.moveaxis(bits, output.axis, 0)
            if len(rows) != output.each * len(order):
                raise ValueError(f"an output has {len(rows)} rows of {len(order)} samples")
            by_sample.append((rows.reshape(len(order), output.each, *rows.shape[1:]), dtype))
        return by_sample

    def ready(self, size: int) -> Callable[[], Any]:
        return self._call(np.arange(size) % len(self.pool[0]), False)

    # checks

    def mark(self, size: int) -> str:
        """As ``operations.IndependentRows.mark``; empty too where the library refuses the size."""
        try:
            return self._mark(size)
        except (ProbeError, MemoryError):
            raise
        except Exception as error:  # a library raises what it likes
            self.refused[size] = line_of(error, 160)
            return ""

    def _mark(self, size: int) -> str:
        count = min(self.placed, len(self.pool[0]))
        met, held = np.zeros(len(self.alike[0]), bool), list[tuple[np.ndarray, str]]()
        for turn, order in enumerate(self._arrangements(size, count)):
            answers = self.answers(order, bool(turn % 2), self.alike)
            if not held:
                held = [(np.zeros((len(met), *y.shape[1:]), y.dtype), name) for y, name in answers]
            fresh = ~met[order]
            for (rows, dtype), (first_answers, _) in zip(answers, held, strict=True):
                first_answers[order[fresh]] = rows[fresh]
                unlike = _unlike(rows, first_answers[order], dtype).reshape(size, -1).any(1)
                if unlike.any():
                    more = (n for n in order[unlike].tolist() if n not in self.telling)
                    self.telling += list(dict.fromkeys(more))[: TELLING - len(self.telling)]
                    return ""
            met[order] = True
        digest = hashlib.sha256()
        for first_answers, _ in held:
            digest.update(first_answers[met].tobytes())
        return digest.hexdigest()[:16]

    def differs_on_telling(self, size: int, first: int) -> bool:
        """Whether places of a size give different bits to what told since it was checked: the
        ``telling`` samples from ``first`` on."""
        for sample in self.telling[first:]:
            for rows, dtype in self.answers(np.full(size, sample), False, self.alike):
                if _unlike(rows, np.broadcast_to(rows[:1], rows.shape), dtype).any():
                    return True
        return False

    def _arrangements(self, size: int, count: int) -> Iterator[np.ndarray]:
        """The calls of a size, each as the samples at its places. The first ``count`` stand at
        every place beside each other; a vector's tail is at the end of a call, so each further one
        stands last once, and so at all other places too. What told at another size comes first, at
        all places at once."""
        count_of_pool, places = len(self.pool[0]), np.arange(size)
        for sample in self.telling:
            yield np.full(size, sample)
        for turn in range(count):
            yield (places + turn) % count
        for last in range(count, count_of_pool):
            yield np.maximum(last - size + 1 + places, 0)
        for alike in range(count_of_pool, len(self.alike[0])):  # beside others, and beside itself
            yield np.where(places, places % count, alike)
            yield np.full(size, alike)

    def mixes(self, size: int) -> bool:
        """Whether a sample's answer changes where nothing changes but its neighbours.

        Asked at the first, the middle and the last place, beside the other samples, and beside
        numbers that are large, small, and none. InputError: runs do not repeat.
        """
        count = len(self.pool[0])
        if size < 2 or count < 2:
            return False
        alone, again = (self.answers(np.zeros(size, int), False) for _ in range(2))
        if any(_unlike(a, b, dtype).any() for (a, dtype), (b, _) in zip(alone, again, strict=True)):
            why = f"two runs of the same {size} samples have different bits"
            raise InputError("model", self.program.name, why, "nothing can keep bits that vary")

        def changed(order: np.ndarray, place: int, pool: Any = None) -> bool:
            both = zip(alone, self.answers(order, False, pool), strict=True)
            return any(_unlike(a[place], b[place], dtype).any() for (a, dtype), (b, _) in both)

        for place in {0, size // 2, size - 1}:
            order = 1 + np.arange(size) % (count - 1)
            order[place] = 0
            if changed(order, place):
                return True
        # hundreds of rows that are drawn from one sample repeat its few numbers: only whole ones
        # (masks, tokens) are taken for codes then, which are never made larger
        both = zip(self.pool, self.dtypes, strict=True)
        distinct_rows = [
            rows if samples.all_whole(rows, dtype) else rows[:1] for rows, dtype in both
        ]
        for name, place in (("large", 0), ("small", size // 2), ("nan", size - 1)):
            pool = [
                np.concatenate([rows[:1], samples.altered(row_pool, rows[:1], dtype, name)])
                for rows, row_pool, dtype in zip(self.pool, distinct_rows, self.dtypes, strict=True)
            ]
            order = np.ones(size, int)
            order[place] = 0
            try:
                if changed(order, place, pool):
                    return True
            except ProbeError:
                raise
            except Exception:  # a library refuses such numbers as it likes
                continue
        return False

    def _answers_of_all(
        self, size: int, pool: Sequence[np.ndarray] | None = None
    ) -> list[tuple[np.ndarray, str]]:
        """Of each output the answers to all samples, in calls of a size: (samples, ...)."""
        count, calls = len(self.pool[0]), list[list[tuple[np.ndarray, str]]]()
        for start in range(0, count, size):
            calls.append(self.answers((start + np.arange(size)) % count, False, pool))
        return [
            (np.concatenate([rows for rows, _ in output])[:count], output[0][1])
            for output in zip(*calls, strict=True)
        ]

    def seen(self, size: int) -> tuple[np.ndarray, int, np.ndarray]:
        """What the samples show where all their inputs are moved by one unit in the last place.

        How many numbers of each sample's answer change, of how many, and whether they are finite.
        """
        count = len(self.pool[0])
        nudged = [samples.nudged(p, d) for p, d in zip(self.pool, self.dtypes, strict=True)]
        changed, finite, each = np.zeros(count, int), np.ones(count, bool), 0
        for (plain, dtype), (moved, _) in zip(
            self._answers_of_all(size), self._answers_of_all(size, nudged), strict=True
        ):
            changed += _unlike(plain, moved, dtype).reshape(count, -1).sum(1)
            each += plain[0].size
            if dtype in floats.FORMATS:
                finite &= floats.is_finite(plain, dtype).reshape(count, -1).all(1)
        return changed, each, finite


def _unlike(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Which numbers of two arrays differ, zeros of unlike signs too; two NaN are equal."""
    if dtype not in floats.FORMATS:
        return np.asarray(left != right)
    a, b = np.ascontiguousarray(left), np.ascontiguousarray(right)
    return ulp.bits_apart(a, b, dtype, zeros="differ").reshape(left.shape)


# What the bits of a program rest on that is run whole, and what that does not show.
#
# A run at the largest size in use is compared, operation by operation, with runs at the smaller
# ones (``probe.sizes.orders``): sums by the order in which each of their outputs is added, which
# no luck of the data hides. Content of the smallest size is put at each place of the largest run:
# so all places are alike. What is not a sum, nor exact, is compared by bits or place by place, and
# then no order is known.


TESTED = (
    "each sample held at every place of each size, beside other samples: not refuted, which is no "
    "proof for other samples; orders() asks the operations"
)
BLIND = "no number of its answers changes where all inputs change in their last place"

# After which no further place is asked about.
SECONDS = 240.0

UNWATCHED = (
    "operations of a compiled program, a session or a net can't be asked one by one; where there "
    "is a model file, give that"
)

INTEGERS = "its inputs are integers, so how much its answers show is not known"


class WholeReport(Report):
    """As ``Report``, of a program that is run whole.

    ``sizes``: the sizes that it is run at, by key and threads. ``shown``: of the numbers in the
    answers of all samples, how many change where every input changes by one unit in the last place,
    and of how many. Where few do, an operation that adds differently may not be seen either.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.sizes: dict[tuple[str, int], list[int]] = {}
        self.shown: dict[str, tuple[int, int]] = {}
        self.samples: dict[str, int] = {}

    def met(self, operation: Any, buckets: Any, strict: bool) -> None:
        """Notes a program of one shape that was checked. NotInvariant with ``strict``."""
        key, threads = operation.key, buckets.threads
        self.operations[key, threads] = operation
        self.sizes[key, threads] = buckets.used
        self.samples[key] = len(operation.pool[0])
        self.table.notes += [buckets.doubts] if buckets.doubts else []
        self.table.notes += [
            f"{key}: size {size} is not used, the library refuses it: {why}"
            for size, why in operation.refused.items()
        ]
        if not any(dtype in floats.FORMATS for dtype in operation.dtypes):
            self.limited[key] = INTEGERS
            return
        changed, each, _ = operation.seen(buckets.used[0])
        self.shown[key] = int(changed.sum()), each * len(changed)
        if not changed.any():
            if strict:
                raise NotInvariant(key, BLIND)
            self.limited[key] = BLIND

    def save(self, path: str | Path) -> None:
        why = "the sizes of a program that runs whole are checked in each process, and not read"
        raise InputError("path", repr(path)[:40], why, "write report.to_json()")

    @leaves_unchanged
    def orders(self) -> dict[str, str]:
        """Asks the operations of each program that was met, at the smallest size and the largest.

        What it came to, by key: words that begin with ``same``, ``different`` or ``not known``.
        Takes seconds to minutes.
        """
        found = {}
        for (key, threads), operation in list(self.operations.items()):
            found[key] = orders_of_program(operation, self.sizes[key, threads])
            self.table.entries[key].orders[threads] = found[key]
        return found

    def to_json(self) -> dict[str, Any]:
        content = super().to_json() | {"how": TESTED}
        for row in content["operations"]:
            key = row["operation"]
            row["used"] = self.sizes.get((key, row["threads"]), [])
            row["samples"] = self.samples.get(key)
            row["shown"], row["numbers"] = self.shown.get(key, (None, None))
        return content

    def __repr__(self) -> str:
        same = [row.operation for row in self.rows if row.orders.startswith("same")]
        programs = "; ".join(
            f"{key}{' (by order)' * (key in same)}: run at {', '.join(map(str, sizes))} of "
            f"{', '.join(map(str, sorted(self.table.entries[key].marks[threads])))}, "
            f"held on {self.samples[key]} samples"
            for (key, threads), sizes in self.sizes.items()
        )
        changed, total = (sum(counts[n] for counts in self.shown.values()) for n in (0, 1))
        shown = f"; {changed:,} of {total:,} numbers show a change of the inputs' last place"
        limits = "; ".join(dict.fromkeys((*self.limited.values(), *self.table.notes))) or "none"
        return (
            f"{programs or 'nothing was called yet'}, like={self.table.like}\n"
            f"{TESTED}{shown * bool(total)}\nlimits: {limits}"
        )


def orders_of_program(operation: Any, sizes: Sequence[int]) -> str:
    """What asking came to, in words that begin with ``same``, ``different`` or ``not known``.

    ``operation``: a ``whole.WholeProgram``; ``sizes``: those in use.
    """
    if operation.program.watched is None:
        return f"not known: {UNWATCHED}"
    largest = sizes[-1]
    if operation.program.fixed is not None or largest == 1:
        return f"not known: places of one size are not asked ({largest} samples a call)"
    if len(sizes) == 1:
        return f"not known: {largest} is the only size in use, so nothing is compared with it"
    begun, least, revealed, sets = time.monotonic(), sizes[0], dict[Any, Any](), 0
    questions = [(size, 0) for size in sizes[:-1]]
    # moved by one place, each sample of the smallest size is held against its neighbour
    blocks = {1, *range(least, largest - least + 1, least), largest - least}
    questions += [(least, place) for place in sorted(blocks)]
    for number, (size, place) in enumerate(questions):
        if time.monotonic() - begun > SECONDS:
            done = f"{number} of {len(questions)} questions about sizes and places"
            return f"not known: {SECONDS:.0f} seconds were over after {done}"
        try:  # sums that were revealed for one question serve the next
            verdict = foreign(_orders_at_place, operation, size, largest, place, revealed)
        except (Foreign, ProbeError) as error:
            return f"not known: {error}"
        where = f"size {size} against place {place} of size {largest}"
        if verdict.verdict != "same":
            word = "different" if verdict.verdict == "differs" else "not known"
            return f"{word}: {where}: {', '.join(filter(None, (verdict.name, verdict.why)))}"
        sets = min(sets or verdict.sets, verdict.sets or sets)
    said = ", ".join(map(str, sizes))
    on = f", replayed on {sets} sets of operands" * bool(sets)
    return f"same: all outputs of sizes {said} are computed alike at every place{on}"


def _orders_at_place(operation: Any, size: int, largest: int, place: int, revealed: Any) -> Any:
    """How a program adds samples alone and at a place of the largest batch, among zeros."""
    from probe.diff.repeated import repeated_with_others
    from probe.diff.running import CHANGED, watch
    from probe.record.recording import record_run
    from probe.sizes import orders

    small, large, along = {}, {}, {}
    names = [leaf.name or f"input {number}" for number, leaf in enumerate(operation.leaves)]
    pools = iter(operation.pool)
    for name, leaf in zip(names, operation.leaves, strict=True):
        if leaf.axis is not None:
            pool = next(pools)
            samples = pool[np.arange(size) % len(pool)]
            batch = np.zeros((largest, *samples.shape[1:]), samples.dtype)
            batch[place : place + size] = samples
            small[name], large[name] = (
                np.ascontiguousarray(np.moveaxis(rows, 0, leaf.axis)) for rows in (samples, batch)
            )
            along[name] = leaf.axis

    def recorder(inputs: Mapping[str, np.ndarray]) -> Any:
        """Watches the program with these samples, beside the inputs that carry none."""
        both = zip(names, operation.leaves, strict=True)
        values = [leaf.value if leaf.axis is None else inputs[name] for name, leaf in both]
        return operation.program.watched(values, operation.rebuild)

    whole, notes = watch(recorder(large), "the program")
    where = orders.places_behind(large, along, place + size, place)
    marks = repeated_with_others(whole, recorder, large, where)
    part = record_run(recorder(small))
    verdict = orders.by_order(
        orders.compared(part, whole, marks, Fraction(place, largest)), revealed
    )
    doubt = next((note for note in notes if CHANGED in note), "")
    if doubt and verdict.verdict == "same":
        verdict = orders.OrderVerdict("unknown", "the whole run", doubt)
    return verdict


# Makes a whole program callable as its users call it, invariant to the batch


class SameBitsProgram:
    """A program that gives a sample the same bits in every batch and at every place.

    Called as the program itself. ``report``: what that rests on. Thread-safe.
    """

    def __init__(
        self,
        program: LibraryProgram,
        sizes: dict[str, Any],
        like: str,
        strict: bool,
    ) -> None:
        self.program, self.strict = program, strict
        self.table = Table(like, sizes, 0, {})
        self.report = WholeReport(self.table)
        self._buckets: dict[Any, Buckets] = {}
        self._lock = threading.RLock()
        self._settings: Any = ()
        if program.library:
            self._note_library()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.program.library:
            with self._lock, unchanged(self.program.function):
                self.program = program_with_library(self.program, args, kwargs)
                self._note_library()
        if self.program.settings() != self._settings:
            why = f"settings of {self.program.library} changed, and it takes kernels by them"
            todo = "set them back, or call stable.invariant again"
            raise InputError("model", self.program.name, why, todo)
        leaves, rebuild = self.program.flat(args, kwargs)
        count, shapes = self._signature(leaves)
        key = self.program.threads(), shapes
        buckets = self._buckets.get(key) or self._checked(key, leaves, rebuild)
        with self._lock:
            plan = buckets.plan(count)
        assert plan is not None  # ``_checked`` refuses a program without a way
        return self._ran(plan, buckets.operation, leaves, rebuild)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raises InputError: neither copied nor pickled."""
        why = "what is run whole is neither copied nor pickled: a library holds its program"
        todo = "call stable.invariant there"
        raise InputError("model", self.program.name, why, todo)

    def _note_library(self) -> None:
        """Notes where it runs, as soon as the library is known."""
        program = self.program
        facts = {"library": program.library, "version": program.version, **program.facts()}
        self.table.environment, self.table.threads = conditions(facts), program.threads()
        self._settings = program.settings()

    def _signature(self, leaves: list[Leaf]) -> tuple[int, tuple[str, ...]]:
        """How many samples there are, and what is alike in calls that share their sizes."""
        counts: dict[str, int] = {}
        alike: list[str] = []
        for number, leaf in enumerate(leaves):
            if leaf.axis is None:
                alike.append(str(self.program.deciding(leaf.value)))
                continue
            name = leaf.name or f"input {number}"
            if not self.program.holds(leaf.value):
                raise InputError("batched", type(leaf.value).__name__, f"{name}: not an array", HOW)
            shape, dtype = self.program.form(leaf.value)
            if not -len(shape) <= leaf.axis < len(shape):
                raise InputError("batched", leaf.axis, f"{name} has shape {list(shape)}", HOW)
            leaf.axis %= len(shape)
            if dtype not in floats.FORMATS and not dtype.startswith(("int", "uint", "bool")):
                why = "samples are floating-point numbers, integers and truth values"
                raise InputError("inputs", dtype, f"{name} has this format; {why}", "")
            counts[name] = shape[leaf.axis]
            sizes = ["n" if axis == leaf.axis else str(size) for axis, size in enumerate(shape)]
            alike.append(f"{'x'.join(sizes)} {dtype}")
        if len(set(counts.values())) != 1 or not all(counts.values()):
            said = ", ".join(f"{name} {size}" for name, size in counts.items()) or "none"
            raise InputError("batched", said, "one number of samples, at least 1, is needed", HOW)
        return next(iter(counts.values())), tuple(alike)

    def _checked(self, signature: Any, leaves: list[Leaf], rebuild: Rebuild) -> Buckets:
        """The buckets of a shape that is met first: each is checked.
        InputError; NotInvariant."""
        with self._lock, unchanged(self.program.function, [leaf.value for leaf in leaves]):
            if signature in self._buckets:
                return self._buckets[signature]
            name = self._key(leaves, signature[1])
            sizes = ladder(self.table.sizes["batch"], self.program.fixed)
            recipes: list[Any] = []
            for leaf in leaves:
                recipe = None
                if leaf.axis is not None:
                    bits, dtype = self.program.bits(leaf.value)
                    recipe = samples.sample_recipe(np.moveaxis(bits, leaf.axis, 0), dtype)
                recipes.append(recipe)
            operation = WholeProgram(name, self.program, leaves, rebuild, recipes)
            operation.prepare(sizes)
            if operation.mixes(sizes[-1]):
                why = "a sample's answer depends on the values of its neighbours"
                todo = "sizes=[1] computes each sample alone; or name the axes: batched="
                raise InputError("model", self.program.name, why, todo)
            self._buckets[signature] = buckets = self._chosen(operation, sizes)
            return buckets

    def _key(self, leaves: Sequence[Leaf], alike: Sequence[str]) -> str:
        """Names the program and the shapes of its inputs; of those without samples a digest."""
        both = list(zip(leaves, alike, strict=True))
        shapes = ", ".join(said for leaf, said in both if leaf.axis is not None)
        rest = ";".join(said for leaf, said in both if leaf.axis is None)
        beside = f" beside {hashlib.sha256(rest.encode()).hexdigest()[:8]}" if rest else ""
        return f"{self.program.library} {self.program.name} of {shapes}{beside}"

    def _chosen(self, operation: WholeProgram, sizes: Sequence[int]) -> Buckets:
        table, threads = self.table, self.program.threads()
        entry = table.entries.setdefault(operation.key, Entry())
        buckets = Buckets(operation, entry, threads, sizes, self.program.fixed is not None)
        buckets.choose(sizes[-1], table.like, table.sizes["batch"])
        if not buckets.used:
            del table.entries[operation.key]
            why = next(iter(operation.refused.values()), "no size repeats its bits at all places")
            raise InputError("model", self.program.name, why, "give other sizes=")
        self.report.met(operation, buckets, self.strict)
        return buckets

    def _ran(
        self, plan: Plan, operation: WholeProgram, leaves: list[Leaf], rebuild: Rebuild
    ) -> Any:
        program = self.program
        if len(plan) == 1 and plan[0].places == plan[0].size:
            args, kwargs = rebuild([program.aligned(leaf.value, leaf.axis) for leaf in leaves])
            return program.at(plan[0].size)(*args, **kwargs)
        arrays = {
            number: program.bits(leaf.value)
            for number, leaf in enumerate(leaves)
            if leaf.axis is not None
        }
        pieces = []
        for piece in plan:
            values = [program.aligned(leaf.value, None) for leaf in leaves]
            for number, (bits, dtype) in arrays.items():
                part = padded_piece(bits, (leaves[number].axis or 0) % bits.ndim, piece)
                values[number] = program.native(part, dtype)
            args, kwargs = rebuild(values)
            answers, build = program.split(program.at(piece.size)(*args, **kwargs))
            pieces.append(([program.bits(answer)[0] for answer in answers], piece.places))
        outputs = operation.outputs
        joined = zip(joined_answers(pieces, outputs), outputs, strict=True)
        return build([program.native(array, output.dtype) for array, output in joined])


def program_of(model: Any, batched: Any, threads: int | None) -> LibraryProgram | None:
    """What is run whole; None of a model whose operations are run one by one.
    InputError."""
    if threads is not None and not isinstance(model, str | Path | bytes):
        why = "it is of files that are run whole"
        raise InputError("threads", threads, why, "set it in the library")
    return of_file(model, batched, threads) or program_of_function(model, batched)


def invariant_program(
    program: LibraryProgram, options: InvariantOptions
) -> tuple[SameBitsProgram, WholeReport]:
    """As ``probe.sizes.invariant.invariant``."""
    sizes, like, strict, example, table = options
    if "length" in sizes:
        why = "programs that are run whole are padded along batches"
        todo = "pad samples to one length yourself; or give a torch.nn.Module, not compiled"
        raise InputError("sizes", "length", why, todo)
    if table is not None:
        why = "a table is of operations that run one by one, and this program runs whole"
        raise InputError("table", repr(table)[:40], why, "leave it out")
    model = SameBitsProgram(program, sizes, like, strict)
    if isinstance(example, dict) and hasattr(program, "names"):
        model(**example)
    elif example is not None:
        model(*(example if isinstance(example, tuple) else (example,)))
    return model, model.report

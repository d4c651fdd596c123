"""A whole program at a few sizes of its batch, each checked: the same bits for a sample anywhere.

Where a library runs a model as one program, its operations can't be put into classes one by one.
So the program itself is one operation. A size is checked with several samples (``samples``): each
stands at every place of the call once, with different neighbours, from aligned memory and from
other; its answer has to have the same bits everywhere, and those of the chosen size. Calls are
padded with copies of their first sample, or cut.

That is a test and no proof: a size is not refuted. ``Report.certify`` asks the operations.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.errors import InputError, ProbeError
from probe.invariant import samples
from probe.invariant.buckets import Buckets, ladder
from probe.invariant.classes import Entry, Plan, digest
from probe.invariant.programs import HOW, Leaf, Program, Rebuild, of_function, settled
from probe.invariant.table import Table, anew, variables
from probe.invariant.whole_report import WholeReport

VARIABLES = (
    *("MKL_", "ONEDNN_", "DNNL_", "ATEN_", "OMP_", "KMP_", "OPENBLAS_", "XLA_", "JAX_"),
    *("TF_ENABLE_ONEDNN", "TF_XLA", "ORT_", "OPENCV_", "TORCHINDUCTOR_"),
)
"""What begins the names of variables of the environment that choose kernels."""


@dataclass(frozen=True)
class Output:
    """An output: its samples lie along ``axis``, ``each`` entries a sample."""

    axis: int
    each: int
    dtype: str


class Whole:
    """A program with inputs of one shape but for the batch: an operation of ``classes``.

    ``leaves``: the inputs of the first call. ``recipes``: of the samples, by input.
    """

    pieces: Sequence[int] = ()

    def __init__(
        self, key: str, program: Program, leaves: list[Leaf], rebuild: Rebuild, recipes: list[Any]
    ) -> None:
        self.key, self.program, self.rebuild = key, program, rebuild
        self.leaves, self.recipes = leaves, recipes
        self.refused: dict[int, str] = {}
        self.outputs: list[Output] = []
        self.pool: list[np.ndarray] = []
        self.dtypes: list[str] = []

    def forget(self) -> None:
        """Its samples are small, and stay."""

    # samples

    def prepare(self, sizes: Sequence[int]) -> None:
        """Finds where the outputs carry samples, and draws the samples. InputError."""
        largest, other = sizes[-1], (sizes[-2] if len(sizes) > 1 else 1 if sizes[-1] > 1 else 2)
        self._draw(samples.FEW)
        here = self._shapes(largest)
        if self.program.fixed is not None:
            axis = next(one.axis for one in self.leaves if one.axis is not None)
            self.outputs = [_fixed(n, one, largest, axis) for n, one in enumerate(here)]
        else:
            both = enumerate(zip(here, self._shapes(other), strict=True))
            self.outputs = [_output(n, mine, largest, yours, other) for n, (mine, yours) in both]
        numbers = sum(int(np.prod(shape)) for shape, _ in here) // largest
        self._draw(samples.how_many(numbers))
        self._keep_finite(largest)

    def _shapes(self, size: int) -> list[tuple[tuple[int, ...], str]]:
        try:
            found = [(bits.shape, dtype) for bits, dtype in self._run(np.zeros(size, int), False)]
        except ProbeError:
            raise
        except Exception as error:  # a library raises what it likes
            todo = f"{HOW}; a file or signature of one batch has to be exported with an open one"
            why = f"it does not run on {size} samples: {_line(error)}"
            raise InputError("model", self.program.name, why, todo) from None
        if not found:
            raise InputError("model", self.program.name, "it returns no array", "return one")
        return found

    def _draw(self, count: int) -> None:
        self.pool, self.dtypes = [], []
        for number, leaf in enumerate(self.leaves):
            if leaf.axis is None:
                continue
            bits, dtype = self.program.bits(leaf.value)
            shape = (*bits.shape[: leaf.axis], *bits.shape[leaf.axis + 1 :])
            made = samples.made(self.recipes[number], shape, dtype, count, number)
            self.pool.append(made.astype(bits.dtype, copy=False))
            self.dtypes.append(dtype)

    def _keep_finite(self, size: int) -> None:
        """Leaves out samples whose answers are not numbers: a NaN hides every difference."""
        count = len(self.pool[0])
        finite = np.ones(count, bool)
        for start in range(0, count, size):
            order = (start + np.arange(size)) % count
            for rows, dtype in self.answers(order, False):
                if dtype in floats.FORMATS:
                    there = floats.is_finite(rows, dtype).reshape(size, -1).all(1)
                    np.logical_and.at(finite, order, there)
        if finite.any():
            self.pool = samples.taken(self.pool, np.flatnonzero(finite))

    # runs

    def _run(
        self, order: np.ndarray, odd: bool, pool: Sequence[np.ndarray] | None = None
    ) -> list[tuple[np.ndarray, str]]:
        """The outputs of a call of these samples; ``odd``: from memory that is not aligned."""
        program, drawn = self.program, iter(zip(pool or self.pool, self.dtypes, strict=True))
        values = []
        for leaf in self.leaves:
            if leaf.axis is None:
                values.append(leaf.value)
                continue
            rows, dtype = next(drawn)
            array = np.ascontiguousarray(np.moveaxis(rows[order], 0, leaf.axis))
            values.append(program.native(_shifted(array) if odd else array, dtype))
        args, kwargs = self.rebuild(values)
        found, _ = program.split(program.at(len(order))(*args, **kwargs))
        return [program.bits(one) for one in found]

    def answers(
        self, order: np.ndarray, odd: bool, pool: Sequence[np.ndarray] | None = None
    ) -> list[tuple[np.ndarray, str]]:
        """As ``_run``, a row of each output for each sample: (samples, ...). ValueError."""
        found = self._run(order, odd, pool)
        made = []
        for (bits, dtype), output in zip(found, self.outputs, strict=True):
            rows = np.moveaxis(bits, output.axis, 0)
            if len(rows) != output.each * len(order):
                raise ValueError(f"an output has {len(rows)} rows of {len(order)} samples")
            made.append((rows.reshape(len(order), output.each, *rows.shape[1:]), dtype))
        return made

    def run(self, size: int) -> Any:
        """As ``classes.Operation.run``."""
        return self._run(np.arange(size) % len(self.pool[0]), False)

    # checks

    def mark(self, size: int) -> str:
        """As ``classes.Operation.mark``; empty too where the library refuses the size."""
        try:
            return self._mark(size)
        except (ProbeError, MemoryError):
            raise
        except Exception as error:  # a library raises what it likes
            self.refused[size] = _line(error)
            return ""

    def _mark(self, size: int) -> str:
        count = len(self.pool[0])
        seen: dict[tuple[int, int], str] = {}
        for turn in range(count):
            order = (np.arange(size) + turn) % count
            for output, (rows, dtype) in enumerate(self.answers(order, bool(turn % 2))):
                for sample in range(min(size, count)):
                    mine = int(order[sample])
                    told = _digest(rows[order == mine], dtype)
                    if not told or seen.setdefault((mine, output), told) != told:
                        return ""
        text = ";".join(told for _, told in sorted(seen.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def mixes(self, size: int) -> bool:
        """Whether the first sample's answer changes where nothing changes but its neighbours."""
        count = len(self.pool[0])
        if size < 2 or count < 2:
            return False
        same = [0] * size
        others = [0, *(1 + at % (count - 1) for at in range(size - 1))]
        told = [
            [_digest(rows[:1], dtype) for rows, dtype in self.answers(np.array(order), False)]
            for order in (same, same, others)
        ]
        if told[0] != told[1]:
            why = f"two runs of the same {size} samples have different bits"
            raise InputError("model", self.program.name, why, "nothing can keep bits that vary")
        return told[1] != told[2]

    def shown(self, size: int) -> tuple[int, int]:
        """How many numbers of the answers change where all inputs change in their last place.

        And of how many: what a difference at the inputs would have to show in.
        """
        count = len(self.pool[0])
        moved = [samples.nudged(p, d) for p, d in zip(self.pool, self.dtypes, strict=True)]
        changed = total = 0
        for start in range(0, count, size):
            order = (start + np.arange(size)) % count
            fresh = min(size, count - start)
            both = self.answers(order, False), self.answers(order, False, moved)
            for (one, dtype), (other, _) in zip(*both, strict=True):
                changed += _apart(one[:fresh], other[:fresh], dtype)
                total += one[:fresh].size
        return changed, total


def _apart(one: np.ndarray, other: np.ndarray, dtype: str) -> int:
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    if dtype in floats.FORMATS:
        return int(ulp.apart(one, other, dtype, zeros="differ").sum())
    return int((one != other).sum())


def _digest(rows: np.ndarray, dtype: str) -> str:
    """As ``classes.digest``, of integers and truth values too."""
    if dtype in floats.FORMATS:
        return digest([(rows, dtype)])
    told = {hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest()[:16] for row in rows}
    return told.pop() if len(told) == 1 else ""


def _shifted(array: np.ndarray) -> np.ndarray:
    """The same elsewhere in memory: at no whole multiple of a vector."""
    kept = np.empty(array.size + 1, array.dtype)[1:]
    kept[:] = array.reshape(-1)
    return kept.reshape(array.shape)


def _line(error: Exception) -> str:
    said = " ".join(str(getattr(error, "why", error)).split())[:160]
    return f"{type(error).__name__}: {said}"


def _output(number: int, here: Any, size: int, there: Any, other: int) -> Output:
    """Where an output carries samples, by its shapes at two sizes. InputError: nowhere."""
    (mine, dtype), (yours, _) = here, there
    if len(mine) == len(yours):
        for axis, (n, m) in enumerate(zip(mine, yours, strict=True)):
            if n % size == 0 and m % other == 0 and n // size == m // other and n:
                rest = [a for a in range(len(mine)) if a != axis and mine[a] != yours[a]]
                if not rest and n != m:
                    return Output(axis, n // size, dtype)
    why = f"output {number} has shape {list(mine)} for {size} samples, {list(yours)} for {other}"
    raise InputError("model", why, "no axis of it has an entry for each sample", HOW)


def _fixed(number: int, here: Any, size: int, axis: int) -> Output:
    """The same of a program that takes one size alone: along the axis of its inputs."""
    shape, dtype = here
    if len(shape) > axis and shape[axis] == size:
        return Output(axis, 1, dtype)
    why = f"output {number} has shape {list(shape)} for {size} samples"
    raise InputError("model", why, "no axis of it has an entry for each sample", HOW)


class Same:
    """A program that gives a sample the same bits in every batch and at every place.

    Called as the program itself. ``report``: what that rests on. Thread-safe.
    """

    def __init__(
        self, program: Program, sizes: dict[str, Any], like: str, strict: bool, path: Path | None
    ) -> None:
        self.program, self.strict, self.path = program, strict, path
        self.table = Table(like, sizes, 0, {})
        self.report = WholeReport(self.table, program)
        self._known: dict[Any, Buckets] = {}
        self._lock = threading.RLock()
        if program.library:
            self._read()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.program.library:
            with self._lock:
                self._settle(args, kwargs)
        leaves, rebuild = self.program.flat(args, kwargs)
        found, count, told = self._signature(leaves)
        key = self.program.threads(), told
        buckets = self._known.get(key) or self._checked(key, leaves, rebuild)
        with self._lock:
            plan = buckets.plan(count)
        assert plan is not None  # ``_checked`` refuses a program without a way
        operation: Any = buckets.operation
        return self._ran(plan, operation, leaves, found, rebuild, count)

    def _settle(self, args: Any, kwargs: Any) -> None:
        self.program = self.report.program = settled(self.program, args, kwargs)
        self._read()

    def _read(self) -> None:
        """The table of the user, or an empty one, as soon as the library is known."""
        like, sizes, program = self.table.like, self.table.sizes, self.program
        now = surroundings(program)
        if self.path is None or not self.path.is_file():
            self.table = Table(like, sizes, program.threads(), now)
        else:
            self.table = Table.read(self.path, now)
            if (self.table.like, self.table.sizes) != (like, sizes):
                said = f"it is for like={self.table.like}, sizes={self.table.sizes}"
                raise InputError("table", self.path.name, said, "give the same, or another table")
        self.report.table = self.table

    def _signature(self, leaves: list[Leaf]) -> tuple[dict[int, Any], int, Any]:
        """The container arrays that carry samples, how many these are, and what is alike."""
        found: dict[int, Any] = {}
        sizes: dict[str, int] = {}
        told: list[Any] = []
        for number, leaf in enumerate(leaves):
            if leaf.axis is None:
                told.append(self.program.told(leaf.value))
                continue
            if not self.program.holds(leaf.value):
                kind = type(leaf.value).__name__
                raise InputError("batched", kind, f"input {number} is no array", HOW)
            bits, dtype = found[number] = self.program.bits(leaf.value)
            if not -bits.ndim <= leaf.axis < bits.ndim:
                why = f"input {number} has shape {list(bits.shape)}"
                raise InputError("batched", leaf.axis, why, HOW)
            leaf.axis %= bits.ndim
            if dtype not in floats.FORMATS and bits.dtype.kind not in "iub":
                why = "samples of floating-point numbers, integers and truth values are known"
                raise InputError("inputs", dtype, why, "")
            sizes[leaf.name or f"input {number}"] = bits.shape[leaf.axis]
            shape = ["n" if at == leaf.axis else str(one) for at, one in enumerate(bits.shape)]
            told.append(f"{'x'.join(shape)} {dtype}")
        if len(set(sizes.values())) != 1 or not all(sizes.values()):
            said = ", ".join(f"{name} {size}" for name, size in sizes.items()) or "none"
            raise InputError("batched", said, "one number of samples, at least 1, is needed", HOW)
        return found, next(iter(sizes.values())), tuple(map(str, told))

    def _checked(self, signature: Any, leaves: list[Leaf], rebuild: Rebuild) -> Buckets:
        """The buckets of a shape that is met first: each is checked. InputError; NotInvariant."""
        with self._lock:
            if signature in self._known:
                return self._known[signature]
            name = _key(self.program, leaves, signature[1])
            sizes = ladder(self.table.sizes["batch"], self.program.fixed)
            recipes = self.table.recipes.setdefault(name, self._recipes(leaves))
            operation = Whole(name, self.program, leaves, rebuild, recipes)
            operation.prepare(sizes)
            if operation.mixes(sizes[-1]):
                why = "a sample's answer depends on the values of its neighbours"
                todo = "sizes=[1] computes each sample alone; or name the axes: batched="
                raise InputError("model", self.program.name, why, todo)
            made = self._chosen(operation, sizes)
            self._known[signature] = made
            return made

    def _recipes(self, leaves: list[Leaf]) -> list[Any]:
        return [
            None
            if leaf.axis is None
            else samples.recipe(
                np.moveaxis(self.program.bits(leaf.value)[0], leaf.axis, 0),
                self.program.bits(leaf.value)[1],
            )
            for leaf in leaves
        ]

    def _chosen(self, operation: Whole, sizes: Sequence[int]) -> Buckets:
        table, threads = self.table, self.program.threads()
        there = operation.key in table.entries
        entry = table.entries.setdefault(operation.key, Entry())
        made = Buckets(operation, entry, threads, sizes)
        wanted = max(table.sizes["batch"]), table.like, table.sizes["batch"]
        if there:
            table.recheck(made)
            anew(made, *wanted, table.notes)
        else:
            made.choose(*wanted)
        if not made.used:
            del table.entries[operation.key]
            why = next(iter(operation.refused.values()), "no size repeats its bits at all places")
            raise InputError("model", self.program.name, why, "give other sizes=")
        self.report.met(operation, made, self.strict)
        return made

    def _ran(
        self,
        plan: Plan,
        operation: Whole,
        leaves: list[Leaf],
        arrays: dict[int, Any],
        rebuild: Rebuild,
        count: int,
    ) -> Any:
        """Runs the pieces, and puts their outputs into one buffer each."""
        program = self.program
        if len(plan) == 1 and plan[0].size == count:
            values = [
                program.native(*arrays[n]) if leaf.axis is not None else leaf.value
                for n, leaf in enumerate(leaves)
            ]
            args, kwargs = rebuild(values)
            return program.at(count)(*args, **kwargs)
        made: list[np.ndarray] = []
        for start, places, size in plan:
            values = []
            for number, leaf in enumerate(leaves):
                if leaf.axis is None:
                    values.append(leaf.value)
                    continue
                bits, dtype = arrays[number]
                part = _padded(bits, leaf.axis, start, places, size)
                values.append(program.native(part, dtype))
            args, kwargs = rebuild(values)
            found, build = program.split(program.at(size)(*args, **kwargs))
            for number, (one, output) in enumerate(zip(found, operation.outputs, strict=True)):
                bits, _ = program.bits(one)
                before = (slice(None),) * output.axis
                rows = bits[(*before, slice(places * output.each))]
                if len(plan) == 1:
                    made.append(np.ascontiguousarray(rows))
                    continue
                if len(made) == number:
                    shape = list(rows.shape)
                    shape[output.axis] = count * output.each
                    made.append(np.empty(shape, rows.dtype))
                at = slice(start * output.each, (start + places) * output.each)
                made[number][(*before, at)] = rows
        outputs = zip(made, operation.outputs, strict=True)
        return build([program.native(one, output.dtype) for one, output in outputs])


def _padded(bits: np.ndarray, axis: int, start: int, places: int, size: int) -> np.ndarray:
    """Some samples, and copies of their first behind them; contiguous."""
    before = (slice(None),) * axis
    part = bits[(*before, slice(start, start + places))]
    if places == size:
        return np.ascontiguousarray(part)
    made = np.empty((*bits.shape[:axis], size, *bits.shape[axis + 1 :]), bits.dtype)
    made[(*before, slice(places))] = part
    made[(*before, slice(places, None))] = part[(*before, slice(1))]
    return made


def _key(program: Program, leaves: Sequence[Leaf], told: Sequence[str]) -> str:
    """Names the program and the shapes of its inputs; of those without samples a digest."""
    both = list(zip(leaves, told, strict=True))
    shapes = ", ".join(one for leaf, one in both if leaf.axis is not None)
    rest = ";".join(one for leaf, one in both if leaf.axis is None)
    beside = f" beside {hashlib.sha256(rest.encode()).hexdigest()[:8]}" if rest else ""
    return f"{program.library} {program.name} of {shapes}{beside}"


def surroundings(program: Program) -> dict[str, Any]:
    """What decides which kernels a program's library takes; none of it names the machine."""
    from probe.machine import facts

    here = facts()
    return {
        "library": program.library,
        "version": program.version,
        "processor": here["cpu_model"],
        "isa": here["cpu_isa"],
        **program.facts(),
        "variables": variables(VARIABLES),
    }


def program_of(model: Any, batched: Any, threads: int | None) -> Program | None:
    """What is run whole; None of a model whose operations are run one by one. InputError."""
    from probe.invariant.files import of_file

    found = of_file(model, batched, threads)
    if found is None and (found := of_function(model, batched)) is not None and threads is not None:
        todo = "set it in the library"
        raise InputError("threads", threads, "a function has those of its library", todo)
    return found


def made(
    program: Program,
    sizes: dict[str, tuple[int, ...]],
    like: str,
    strict: bool,
    example: Any,
    table: Any,
) -> tuple[Same, WholeReport]:
    """As ``probe.invariant.invariant``, of checked sizes."""
    if "length" in sizes:
        todo = "pad samples to one length yourself; or give a torch.nn.Module, not compiled"
        raise InputError(
            "sizes", "length", "programs that are run whole are padded along batches", todo
        )
    found = Same(program, sizes, like, strict, None if table is None else Path(table))
    if example is not None:
        named = isinstance(example, dict) and hasattr(program, "names")
        given = () if named else example if isinstance(example, tuple) else (example,)
        found(*given, **(example if named else {}))
    return found, found.report

"""LiteRT, watched operator by operator: each as a model of its own, with its constant weights.

The XNNPACK delegate runs many operators as one and shows nothing between them; so each operator of
the file runs alone, under the same delegate or without one, which also keeps memory flat; after the
first recording several in a row run as one model that gives all their results, if these have the
same bits (:mod:`probe.recorders.litert_file`). That the outputs have the bits of an unwatched run
is checked at the first recording; where they don't, the whole model is one operation.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from probe.errors import InputError
from probe.recorders.litert_file import DTYPES, KEPT, NESTED, File, Rows, invoked
from probe.recorders.litert_table import meaning, quantised
from probe.recorders.node import Nodes, same_bits
from probe.recording.contract import INPUT, WEIGHT, Event, Input, Seen, Visit
from probe.recording.recording import digest
from probe.semantics.call import Call, Operand, positions

ENDINGS = (".tflite",)
LONGEST = 1 << 15
"""Characters up to which an operator's model is written into a script."""

LINES = (
    *("import base64", "import zlib"),
    "from ai_edge_litert.interpreter import Interpreter, OpResolverType",
)
"""What an operator's lines need."""


class Recorder(Nodes):
    """A model with its inputs.

    ``model``: the file, or its bytes. ``inputs``: arrays by the names of the model's inputs.
    ``switches``: ``threads`` and ``xnnpack`` (0: LiteRT's built-in kernels). InputError where
    LiteRT refuses the model or the inputs.
    """

    def __init__(
        self,
        model: Path | str | bytes,
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        self.name = "model" if isinstance(model, bytes) else Path(model).name
        self.content = model if isinstance(model, bytes) else content(Path(model))
        self.inputs, self.switches = dict(inputs), dict(switches or {})
        self.target = "litert" + "".join(f",{key}={value}" for key, value in self.switches.items())
        self.note = ""
        self.cut: _Cut | None = None
        self.whole = False

    def plain(self) -> list[np.ndarray]:
        """Runs the model unwatched."""
        try:
            made = interpreter(self.content, self.switches)
        except Exception as error:
            raise unreadable(self.name, error) from None
        details = made.get_input_details()
        for one in details:
            if one["name"] not in self.inputs:
                names = ", ".join(self.inputs)
                raise InputError("inputs", names, f"{one['name']} is missing", "give it")
        try:
            for one in details:
                array = self.inputs[one["name"]]
                if tuple(one["shape"]) != array.shape:
                    made.resize_tensor_input(one["index"], array.shape)
            made.allocate_tensors()
            for one in details:
                made.set_tensor(one["index"], self.inputs[one["name"]])
            made.invoke()
        except Exception as error:
            shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in self.inputs.items())
            why = f"LiteRT refuses them: {' '.join(str(error).split())[:160]}"
            raise InputError(
                "inputs", shapes, why, "give the model's own shapes and types"
            ) from None
        return [made.get_tensor(one["index"]) for one in made.get_output_details()]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it operator by operator, and calls ``visit`` behind each."""
        if self.cut is None and not self.whole:
            self._check()
        return self.as_one(visit) if self.cut is None else self.cut.run(visit)

    def _check(self) -> None:
        """Whether its operators alone give the bits that it gives unwatched."""
        wanted = self.plain()
        try:
            cut = _Cut(File(self.content), self.inputs, self.switches)
            alone, together = list[str](), list[str]()
            found = [one.array() for one in cut.run(_digests(alone))]
            cut.join()
            cut.run(_digests(together))
            if alone != together:
                cut.rows = None
        except Exception as error:  # an operator that can't run alone, or a type without arrays
            said = " ".join(str(error).split())[:120] or type(error).__name__
            self.give_up(f"its operators can't be run one by one ({said})")
            return
        if any(not same_bits(*pair) for pair in zip(found, wanted, strict=True)):
            self.give_up("its operators run one by one give different bits")
            return
        self.cut = cut

    def with_inputs(self, inputs: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of the same model with other inputs."""
        return Recorder(self.content, inputs, self.switches)


def _digests(into: list[str]) -> Visit:
    """Notes the digests of all that operators give."""

    def visit(event: Event) -> None:
        into.extend(digest(one.array()) for one in event.gives)

    return visit


def interpreter(model: bytes | Path, switches: Mapping[str, str]) -> Any:
    """Returns an interpreter of a model or its file: ``threads``, and ``xnnpack``: 0 for the
    built-in kernels."""
    words: dict[str, Any] = {}
    if "threads" in switches:
        words["num_threads"] = int(switches["threads"])
    if switches.get("xnnpack") == "0":
        words["experimental_op_resolver_type"] = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    if isinstance(model, Path):
        return Interpreter(model_path=str(model), **words)
    return Interpreter(model_content=model, **words)


class _Cut:
    """A model cut into its operators, with its inputs."""

    def __init__(
        self, file: File, inputs: Mapping[str, np.ndarray], switches: Mapping[str, str]
    ) -> None:
        self.file, self.switches = file, switches
        self.given = {int(n): inputs[file.name(int(n))] for n in file.graph.inputs}
        self.outputs = [int(n) for n in file.graph.outputs]
        self.operators = _folded(file)
        self.values: dict[int, np.ndarray] = {}
        self.settled = {n for n in self.given if "float" not in file.dtype(n)}
        self.events: list[Event] = []
        self.kept: dict[int, Any] = {}
        self.size = self.most = 0
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.rows: Rows | None = None

    def run(self, visit: Visit) -> list[Seen]:
        """Runs all operators, and returns the outputs."""
        self.values = dict(self.given)
        left = Counter(self.outputs)
        for operator in self.operators:
            left.update(self.file.reads(operator))
        for number, operator in enumerate(self.operators):
            if self.rows is None or not self.rows.computed(number, self.values):
                self._compute(number, operator)
            if number == len(self.events):
                self.events.append(self._event(operator))
                self.shapes.update((n, self.values[n].shape) for n in self.file.gives(operator))
                self.most = max(self.most, sum(one.nbytes for one in self.values.values()))
            visit(self.events[number])
            left.subtract(self.file.reads(operator))
            for n in [*self.file.reads(operator), *self.file.gives(operator)]:
                if left[n] <= 0:
                    self.values.pop(n, None)
        return [self.seen(n) for n in self.outputs]

    def join(self) -> None:
        """From now on runs operators in a row together, as long as what they give stays small
        beside what is alive at once in any case."""
        alone = {n for n, one in enumerate(self.operators) if self._keeps(one)}
        self.kept.clear()
        self.size = 0
        start = partial(_started, switches=self.switches)
        self.rows = Rows(self.file, self.operators, alone, self.shapes, self.most, start)

    def _keeps(self, operator: Any) -> bool:
        """Returns whether an operator keeps a state, or runs others."""
        return self.file.kind(operator) in NESTED or any(
            one.isVariable for one in self._tensors(operator)
        )

    def _fed(self, operator: Any) -> dict[int, tuple[int, ...]]:
        reads = self.file.reads(operator)
        return {n: self.values[n].shape for n in reads if n not in self.file.constants}

    def _compute(self, number: int, operator: Any) -> None:
        fed = self._fed(operator)
        made = self.kept.get(number)
        if made is None:
            made = _started(self.file.piece([operator], fed).content(), self.switches)
        found = invoked(made, [self.values[n] for n in fed])
        self.values.update(zip(self.file.gives(operator), found, strict=True))
        if number in self.kept or any(t.isVariable for t in self._tensors(operator)):
            return
        size = sum(self.array(n).nbytes for n in self.file.reads(operator))
        size += sum(one.nbytes for one in found)
        if self.size + size <= KEPT:
            self.kept[number] = made
            self.size += size

    def _tensors(self, operator: Any) -> list[Any]:
        given = [] if operator.inputs is None else operator.inputs
        return [self.file.tensors[n] for n in given if n >= 0]

    def array(self, number: int) -> np.ndarray:
        """Returns a value's bits."""
        held = number not in self.values
        return self.file.constants[number] if held else self.values[number]

    def seen(self, number: int) -> Seen:
        """Returns a value as it is met."""
        held = number not in self.values
        array = self.array(number)
        known = self.file.name(number) if held or number in self.given else ""
        role = WEIGHT if held else INPUT
        return Seen(number, array.shape, str(array.dtype), lambda: self.array(number), role, known)

    def _event(self, operator: Any) -> Event:
        file = self.file
        op, words = file.kind(operator), file.options(operator)
        every, gives = file.reads(operator), file.gives(operator)
        reads = [] if op in ("SHAPE", "RANK") else every
        if all(n in self.settled or n in file.constants for n in reads):
            self.settled.update(gives)
        slots = [] if operator.inputs is None else [int(n) for n in operator.inputs]
        places = positions(slots, reads)
        both = zip(slots, places, strict=True)
        operands = [self._operand(n, at) if n in every else None for n, at in both]
        given = [self.seen(n) for n in gives]
        fed = {} if not reads else self._fed(operator)
        again = self._again(operator, reads, fed)
        shapes, dtypes = [one.shape for one in given], [one.dtype for one in given]
        what = meaning(Call(op, words, operands, shapes, dtypes, run=again))
        path = file.name(gives[0]).removesuffix(":0") if gives else op
        return Event(
            *(op, path, [self.seen(n) for n in reads], given),
            quantised(what, [file.scale(n) for n in reads], [file.scale(n) for n in gives]),
            {name: one for name, one in words.items() if _plain(one)},
            *(again, self._lines(operator, reads, fed)),
            LINES,
        )

    def _operand(self, number: int, at: int) -> Operand:
        settled = number in self.file.constants or number in self.settled
        content = (lambda: self.array(number)) if settled else None
        array = self.array(number)
        return Operand(at, array.shape, str(array.dtype), content)

    def _again(
        self, operator: Any, reads: list[int], fed: dict[int, tuple[int, ...]]
    ) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
        last: list[Any] = []

        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            given = dict(zip(reads, arrays, strict=True))
            held = {n: given[n] for n in given if n not in fed}
            if not last:
                last[:] = [self.file.piece([operator], fed), b"", None]
            model = last[0].content({n: one for n, one in held.items() if n in last[0].places})
            if last[1] != model:
                last[1:] = [model, _started(model, self.switches)]
            return invoked(last[2], [given[n] for n in fed])

        return again

    def _lines(
        self, operator: Any, reads: list[int], fed: dict[int, tuple[int, ...]]
    ) -> Callable[[Sequence[str], str], list[str]]:
        """Returns a model of this one operator, whose weights are put into its bytes."""
        words = {"num_threads": int(self.switches["threads"])} if "threads" in self.switches else {}
        plain = "OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES"
        said = "".join(f", {name}={value}" for name, value in words.items())
        said += f", experimental_op_resolver_type={plain}" * (self.switches.get("xnnpack") == "0")

        def lines(names: Sequence[str], out: str) -> list[str]:
            own, piece = dict(zip(reads, names, strict=True)), self.file.piece([operator], fed)
            held = {n: place for n, place in piece.places.items() if n in own and n not in fed}
            empty = piece.content({n: np.zeros_like(self.file.constants[n]) for n in held})
            model = ["model = bytearray(zlib.decompress(base64.b85decode(", *_quoted(empty), ")))"]
            for n, (start, end) in piece.spans(held).items():
                model.append(f"model[{start}:{end}] = np.ascontiguousarray({own[n]}).tobytes()")
            given = ", ".join(own[n] for n in fed)
            found = [
                *model,
                f"one = Interpreter(model_content=bytes(model){said})",
                "one.allocate_tensors()",
                f"for detail, array in zip(one.get_input_details(), [{given}], strict=True):",
                '    one.set_tensor(detail["index"], array)',
                "one.invoke()",
                'results = [one.get_tensor(d["index"]) for d in one.get_output_details()]',
            ]
            gives = self.file.gives(operator)
            return [*found, *(f"{out}{n or ''} = results[{n}]" for n in range(len(gives)))]

        return lines


def _quoted(data: bytes) -> list[str]:
    """Returns bytes as lines of text, compressed. ValueError: they are too many for a script."""
    text = base64.b85encode(zlib.compress(data, 9)).decode()
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters")
    return [f"    {text[at : at + 88]!r}" for at in range(0, len(text), 88)]


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | list | type(None))


def _folded(file: File) -> list[Any]:
    """The operators without those that widen constants, which XNNPACK unpacks as weights."""
    found = []
    for operator in file.operators:
        (source, *_) = file.reads(operator) or [-1]
        constant = file.constants.get(source)
        halves = constant is not None and constant.dtype == np.float16
        if constant is not None and halves and file.kind(operator) == "DEQUANTIZE":
            file.constants[file.gives(operator)[0]] = constant.astype(np.float32)
        else:
            found.append(operator)
    return found


def _started(model: bytes | Path, switches: Mapping[str, str]) -> Any:
    made = interpreter(model, switches)
    made.allocate_tensors()
    return made


class Opened:
    """A model file and its inputs; None for the batch, and for sizes that the file leaves open."""

    def __init__(self, path: Path, switches: Mapping[str, str] | None = None) -> None:
        self.path, self.switches = path, dict(switches or {})
        try:
            self.file = File(content(path))
            numbers = [int(n) for n in self.file.graph.inputs]
            self.inputs = tuple(self._declared(n) for n in numbers)
        except InputError:
            raise
        except Exception as error:
            raise unreadable(path.name, error) from None

    def _declared(self, number: int) -> Input:
        tensor, name = self.file.tensors[number], self.file.name(number)
        if tensor.type not in DTYPES:
            raise InputError("network", name, "this input is not an array", "export it with arrays")
        sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        sizes = [] if sizes is None else list(sizes)
        return Input(name, tuple(None if n < 0 else int(n) for n in sizes), self.file.dtype(number))

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of the model with these inputs."""
        return Recorder(self.path, arrays, self.switches)


def content(path: Path) -> bytes:
    """Returns a file's bytes. InputError where it can't be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            "network", path.name, f"can't be read: {error.strerror}", "give a file"
        ) from None


def unreadable(name: str, error: Exception) -> InputError:
    """Returns what is said of a file that LiteRT refuses."""
    said = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
    return InputError("network", name, f"can't be read: {said}", "convert or download it again")


def opened(path: Path, trust: bool = False, switches: Mapping[str, str] | None = None) -> Opened:
    """Opens a ``.tflite`` file, which runs no code. InputError where it can't be read.

    ``switches``: of the target, ``threads`` and ``xnnpack``.
    """
    return Opened(Path(path), switches)


__all__ = ["ENDINGS", "Opened", "Recorder", "opened"]

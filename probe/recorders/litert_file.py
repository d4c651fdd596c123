"""A .tflite file's operators, and one of them, or a few in a row, as a model of their own.

A piece keeps the operator's constants, its options and what the file says of quantisation; what it
reads else are inputs of the shapes that they have in the run. Its schema is an installed LiteRT's.

Operators in a row run as one model all of whose values are outputs, since to make a model of each
costs a small network more than to run it. Models wait on disk, where they take no memory, and an
interpreter lives only while its operators run; small ones stay.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from probe.backends.litert_model import aligned_buffer
from probe.recorders.litert_table import Scale

NAMES = {n: name for name, n in vars(schema.BuiltinOperator).items() if isinstance(n, int)}
DTYPES = {
    getattr(schema.TensorType, name): dtype
    for name, dtype in {
        "FLOAT32": "float32",
        "FLOAT16": "float16",
        "FLOAT64": "float64",
        "BOOL": "bool",
        "INT8": "int8",
        "INT16": "int16",
        "INT32": "int32",
        "INT64": "int64",
        "UINT8": "uint8",
        "UINT16": "uint16",
        "UINT32": "uint32",
        "UINT64": "uint64",
        "COMPLEX64": "complex64",
        "COMPLEX128": "complex128",
    }.items()
}
NESTED = ("IF", "WHILE", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "CALL")
"""Operators that run other subgraphs of the file; these go with them."""


class Piece:
    """A model of operators, packed once. ``places``: the numbers of its constants' buffers."""

    def __init__(self, packed: bytearray, places: Mapping[int, int]) -> None:
        self.packed, root = packed, schema.Model.GetRootAs(packed, 0)
        self.places = {n: root.Buffers(place).DataAsNumpy() for n, place in places.items()}

    def content(self, constants: Mapping[int, np.ndarray] | None = None) -> bytes:
        """Returns the file's bytes. ``constants``: other numbers for constants, of their shapes."""
        for number, array in (constants or {}).items():
            self.places[number][:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return bytes(self.packed)

    def spans(self, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Returns where in the file's bytes constants are: (start, end)."""
        begin = np.frombuffer(self.packed, np.uint8).ctypes.data
        starts = {n: self.places[n].ctypes.data - begin for n in numbers}
        return {n: (start, start + self.places[n].size) for n, start in starts.items()}


class File:
    """A model as it is read. ``operators``: of its first subgraph, in the order in which they
    run."""

    def __init__(self, content: bytes) -> None:
        root = schema.Model.GetRootAs(content, 0)
        self.model = schema.ModelT.InitFromObj(root)
        self.graph = self.model.subgraphs[0]
        self.tensors = self.graph.tensors
        self.operators = list(self.graph.operators)
        self.constants: dict[int, np.ndarray] = {}
        for number, tensor in enumerate(self.tensors):
            data = self.model.buffers[tensor.buffer].data
            if data is not None and len(data) and tensor.type in DTYPES:
                array = np.asarray(data, np.uint8).view(DTYPES[tensor.type])
                shape = () if tensor.shape is None else tuple(tensor.shape)
                self.constants[number] = array.reshape(shape)

    def name(self, number: int) -> str:
        """Returns a tensor's name."""
        given = self.tensors[number].name
        return given.decode(errors="replace") if isinstance(given, bytes) else str(given or number)

    def dtype(self, number: int) -> str:
        """Returns a tensor's dtype; KeyError for one that NumPy doesn't have."""
        return DTYPES[self.tensors[number].type]

    def kind(self, operator: Any) -> str:
        """Returns an operator's name in the schema, such as ``CONV_2D``."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        number = max(code.builtinCode, code.deprecatedBuiltinCode)
        if NAMES[number] == "CUSTOM":
            return str((code.customCode or b"custom").decode(errors="replace"))
        return NAMES[number]

    def reads(self, operator: Any) -> list[int]:
        """Returns tensors that an operator reads, without variables, which it keeps for itself."""
        given = [] if operator.inputs is None else list(operator.inputs)
        return [int(n) for n in given if n >= 0 and not self.tensors[n].isVariable]

    def gives(self, operator: Any) -> list[int]:
        """Returns the tensors that an operator gives."""
        return [] if operator.outputs is None else [int(n) for n in operator.outputs]

    def options(self, operator: Any) -> dict[str, Any]:
        """Returns an operator's options by their names in the schema."""
        found = operator.builtinOptions or operator.builtinOptions2
        words = {} if found is None else dict(vars(found))
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in words.items()
        }

    def scale(self, number: int) -> Scale | None:
        """Returns how a tensor's integers are meant: scales and zero points; None: as they are."""
        found = self.tensors[number].quantization
        if found is None or found.scale is None or not len(found.scale):
            return None
        zeros = () if found.zeroPoint is None else found.zeroPoint
        return tuple(map(float, found.scale)), tuple(map(int, zeros))

    def piece(
        self,
        operators: Sequence[Any],
        fed: Mapping[int, Sequence[int]],
        shapes: Mapping[int, Sequence[int]] | None = None,
    ) -> Piece:
        """Returns a model of operators in a row, all of whose results are its outputs.

        ``fed``: what they read from before, by number, with its shape; ``shapes``: those of values
        inside, where they aren't the file's.
        """
        numbers = list(dict.fromkeys(n for one in operators for n in self._tensors_of(one)))
        places = {n: place for place, n in enumerate(numbers)}
        made, graph = schema.ModelT(), schema.SubGraphT()
        made.buffers, graph.tensors = [aligned_buffer(schema)], []
        for n in numbers:
            graph.tensors.append(self._tensor(n, made.buffers, {**(shapes or {}), **fed}))
        graph.operators = [self._placed(one, places) for one in operators]
        graph.inputs = [places[n] for n in fed]
        graph.outputs = [n for one in graph.operators for n in one.outputs]
        graph.name = b"main"
        made.operatorCodes, made.version = self.model.operatorCodes, self.model.version
        made.subgraphs = [graph]
        if len(operators) == 1 and self.kind(operators[0]) not in NESTED:
            (one,) = graph.operators
            made.operatorCodes, one.opcodeIndex = [made.operatorCodes[one.opcodeIndex]], 0
        elif len(operators) == 1:
            made.subgraphs += [
                self._copied(other, made.buffers) for other in self.model.subgraphs[1:]
            ]
        size = sum(len(one.data) for one in made.buffers if one.data is not None)
        builder = schema.flatbuffers.Builder(size + 4096)
        builder.Finish(made.Pack(builder), file_identifier=b"TFL3")
        held = [(n, graph.tensors[places[n]].buffer) for n in numbers if n in self.constants]
        return Piece(bytearray(builder.Output()), {n: place for n, place in held if place})

    def _placed(self, operator: Any, places: Mapping[int, int]) -> Any:
        one = copy(operator)
        given = [] if operator.inputs is None else operator.inputs
        one.inputs = [places[int(n)] if n >= 0 else -1 for n in given]
        one.outputs = [places[n] for n in self.gives(operator)]
        return one

    def _tensors_of(self, operator: Any) -> list[int]:
        given = [] if operator.inputs is None else list(operator.inputs)
        every = [int(n) for n in [*given, *self.gives(operator)] if n >= 0]
        return list(dict.fromkeys(every))

    def _tensor(self, number: int, buffers: list[Any], fed: Mapping[int, Sequence[int]]) -> Any:
        tensor_of_file = self.tensors[number]
        tensor = copy(tensor_of_file)
        tensor.buffer, tensor.shapeSignature = 0, None
        if number in fed:
            tensor.shape = list(fed[number])
        elif number in self.constants or tensor_of_file.buffer:
            data = self.model.buffers[tensor_of_file.buffer].data
            if number in self.constants:
                data = np.ascontiguousarray(self.constants[number]).reshape(-1).view(np.uint8)
            if data is not None and len(data):
                tensor.buffer = len(buffers)
                buffers.append(aligned_buffer(schema))
                buffers[-1].data = np.asarray(data, np.uint8)
        return tensor

    def _copied(self, graph: Any, buffers: list[Any]) -> Any:
        made = copy(graph)
        made.tensors = []
        for one in graph.tensors:
            tensor = copy(one)
            data = self.model.buffers[one.buffer].data
            tensor.buffer = 0
            if data is not None and len(data):
                tensor.buffer = len(buffers)
                buffers.append(aligned_buffer(schema))
                buffers[-1].data = np.asarray(data, np.uint8)
            made.tensors.append(tensor)
        return made


KEPT = 1 << 22
"""Bytes of inputs, outputs and constants of the operators whose interpreters stay for the next
run."""

LEAST = 1 << 20
"""Bytes of values up to which operators stay together, however little is alive at once."""


@dataclass
class Row:
    """Operators in a row: the numbers of what they read from before, and of all that they give.

    ``path``: the file of their model; ``made``: its interpreter, if that stays; ``size``: bytes of
    all that they work on.
    """

    fed: list[int]
    gives: list[int]
    path: Path
    size: int
    made: Any = None


class Rows:
    """The operators of a model with its inputs, row by row.

    ``alone``: the numbers of operators that no row has; ``shapes``: of all values; ``most``: bytes
    of values that are alive at once; ``start``: makes an interpreter of a file.
    """

    def __init__(
        self,
        file: File,
        operators: Sequence[Any],
        alone: set[int],
        shapes: Mapping[int, tuple[int, ...]],
        most: int,
        start: Callable[[Path], Any],
    ) -> None:
        self.file, self.operators, self.shapes, self.start = file, operators, dict(shapes), start
        self.folder = Path(tempfile.mkdtemp(prefix="probe"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.members = {numbers[0]: numbers for numbers in self._cut(alone, most)}
        self.inside = {n for numbers in self.members.values() for n in numbers}
        self.rows: dict[int, Row] = {}
        self.size = 0

    def _cut(self, alone: set[int], most: int) -> list[list[int]]:
        """Returns operators of each row: together they give a quarter of what is alive at once."""
        found: list[list[int]] = []
        size, last = 0, -2
        for number, operator in enumerate(self.operators):
            if number in alone:
                continue
            given = sum(self._bytes(n) for n in self.file.gives(operator))
            if last != number - 1 or size + given > max(LEAST, most // 4):
                found.append([])
                size = 0
            found[-1].append(number)
            size, last = size + given, number
        return found

    def _bytes(self, number: int) -> int:
        return (
            int(np.prod(self.shapes[number], dtype=int))
            * np.dtype(self.file.dtype(number)).itemsize
        )

    def computed(self, number: int, values: dict[int, np.ndarray]) -> bool:
        """Whether an operator is in a row; the first of each runs them all, and adds to values."""
        if number in self.members:
            row = self.rows.get(number)
            if row is None:
                row = self.rows[number] = self._made(number, values)
            made = self.start(row.path) if row.made is None else row.made
            if row.made is None and self.size + row.size <= KEPT:
                row.made = made
                self.size += row.size
            found = invoked(made, [values[n] for n in row.fed], row.made is not None)
            values.update(zip(row.gives, found, strict=True))
        return number in self.inside

    def _made(self, number: int, values: Mapping[int, np.ndarray]) -> Row:
        some = [self.operators[n] for n in self.members[number]]
        gives = [n for one in some for n in self.file.gives(one)]
        reads = dict.fromkeys(n for one in some for n in self.file.reads(one))
        held = [self.file.constants[n].nbytes for n in reads if n in self.file.constants]
        fed = [n for n in reads if n not in gives and n not in self.file.constants]
        shapes = {n: self.shapes[n] for n in gives}
        path = self.folder / f"{number}.tflite"
        piece = self.file.piece(some, {n: values[n].shape for n in fed}, shapes)
        path.write_bytes(piece.content())
        size = sum(held) + sum(values[n].nbytes for n in fed) + sum(map(self._bytes, gives))
        return Row(fed, gives, path, size)


def invoked(made: Any, arrays: Sequence[np.ndarray], again: bool = True) -> list[np.ndarray]:
    """Returns what an interpreter gives of these inputs. ``again``: it will run again; if not, they
    are its own memory, which lives as long as they do."""
    for one, array in zip(made.get_input_details(), arrays, strict=True):
        made.set_tensor(one["index"], array)
    made.invoke()
    gives = [one["index"] for one in made.get_output_details()]
    return [made.get_tensor(n) if again else made.tensor(n)() for n in gives]

"""Runs model files as whole programs: ONNX Runtime, LiteRT, OpenCV, SavedModels.

They are called with arrays in the order of the model's inputs, or by their names, and return what
the library returns: a list of NumPy arrays, of a SavedModel a dictionary of tensors. A file is
data: nothing of it is run but its graph, and a SavedModel is looked at before it is loaded.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError
from probe.invariant.classes import Plan
from probe.invariant.programs import (
    Leaf,
    LibraryProgram,
    ProgramOutput,
    Rebuild,
    TensorFlowProgram,
    aligned_array,
    decides,
    padded_piece,
    together,
)
from probe.machine import cores

FILES = ".onnx, .tflite, a SavedModel folder"
KEPT = 8  # sizes of which LiteRT's interpreters are kept


class _File(LibraryProgram):
    """A program with named inputs."""

    def __init__(self, function: Any, batched: Any, name: str, names: Sequence[str]) -> None:
        super().__init__(function, batched, name)
        self.names = tuple(names)

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """As of ``LibraryProgram``: arrays in order, by name, or in one dictionary."""
        named = args[0] if len(args) == 1 and isinstance(args[0], dict) and not kwargs else kwargs
        order = args if named is kwargs else ()
        given = dict(zip(self.names, order, strict=False)) | named
        if set(given) != set(self.names) or len(order) + len(named) != len(self.names):
            said = ", ".join(given) or f"{len(order)} arrays"
            raise InputError("inputs", said, f"the model has {', '.join(self.names)}", "give these")
        axes = self._by_name()
        leaves = [Leaf(np.asarray(given[one]), axes[one], one) for one in self.names]
        return leaves, lambda values: (tuple(values), {})

    def _by_name(self) -> dict[str, int | None]:
        """Returns the axis of each input that carries samples."""
        given = self.batched
        if given is None:
            return self._open()
        if isinstance(given, dict):
            if unknown := set(given) - set(self.names):
                why = f"the model has {', '.join(self.names)}"
                raise InputError("batched", ", ".join(sorted(unknown)), why, "name these")
            return {name: given.get(name) for name in self.names}
        axes = given if isinstance(given, tuple | list) else [given] * len(self.names)
        if len(axes) != len(self.names):
            why = f"the model has {', '.join(self.names)}"
            raise InputError("batched", given, why, "give an axis or None for each")
        return dict(zip(self.names, axes, strict=True))

    def signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As of ``LibraryProgram``, of contiguous arrays in the order of the inputs."""
        if kwargs or len(args) != len(self.names):
            return None
        told: list[Any] = [self.threads()]
        for one in args:
            if type(one) is not np.ndarray or not one.flags.c_contiguous:
                return None
            told += one.shape, one.dtype
        return tuple(told)

    def planned(
        self, plan: Plan, leaves: Sequence[Leaf], rebuild: Rebuild, outputs: Sequence[ProgramOutput]
    ) -> Callable[..., Any] | None:
        """As of ``LibraryProgram``. None where integers without samples may choose a branch."""
        if any(one.axis is None and decides(*self.form(one.value)) for one in leaves):
            return None
        if len(plan) == 1 and plan[0].places == plan[0].size:
            return lambda *values: self.function(*map(aligned_array, values))
        axes = [leaf.axis for leaf in leaves]

        def run(*values: np.ndarray) -> list[np.ndarray]:
            both = list(zip(values, axes, strict=True))
            found = []
            for piece in plan:
                part = [
                    aligned_array(one) if axis is None else padded_piece(one, axis, piece)
                    for one, axis in both
                ]
                found.append((self.function(*part), piece.places))
            return together(found, outputs)

        return run

    def _open(self) -> dict[str, int | None]:
        """Returns what the file itself says of them."""
        return dict.fromkeys(self.names, 0)


class Onnx(_File):
    """A file or a session of ONNX Runtime."""

    library, package = "onnxruntime", "onnxruntime"

    def __init__(self, model: Any, batched: Any, threads: int | None, name: str) -> None:
        import onnxruntime

        self.session: Any = model
        self.content: bytes | str | None = None
        if isinstance(model, bytes | str):
            self.content = model
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3  # what it can't read is said once, by the error
            if threads is not None:
                options.intra_op_num_threads = threads
            try:
                self.session = onnxruntime.InferenceSession(
                    model, options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:  # ONNX Runtime's own classes, one for each status
                raise _cant_be_read(name, error, model if isinstance(model, str) else "") from None
        self.inputs = self.session.get_inputs()
        self.several = int(self.session.get_session_options().intra_op_num_threads) or cores()
        super().__init__(self._run, batched, name, [one.name for one in self.inputs])
        self.fixed = self._size()
        if self.content is not None:
            self.watched = self._recorder

    def _recorder(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        from probe.recorders.onnxruntime import OnnxRecorder

        assert self.content is not None
        given = dict(zip(self.names, values, strict=True))
        return OnnxRecorder(self.content, given, {"threads": str(self.threads())})

    def _run(self, *values: Any) -> Any:
        return self.session.run(None, dict(zip(self.names, values, strict=True)))

    def _open(self) -> dict[str, int | None]:
        """Returns the first axis where its size is left open, else the only one that is."""
        found: dict[str, int | None] = {}
        for one in self.inputs:
            opened = [n for n, size in enumerate(one.shape) if not isinstance(size, int)]
            first = 0 if one.shape else None
            fixed = not any(not isinstance(n, int) for each in self.inputs for n in each.shape)
            found[one.name] = first if fixed else (opened[0] if opened else None)
        return found

    def _size(self) -> int | None:
        """Returns the only batch that the file takes; None: it is left open."""
        axes = self._by_name()
        sizes = {
            one.shape[at]
            for one in self.inputs
            if (at := axes[one.name]) is not None and -len(one.shape) <= at < len(one.shape)
        }
        fixed = {size for size in sizes if isinstance(size, int)}
        return fixed.pop() if len(sizes) == 1 and fixed else None

    def threads(self) -> int:
        """As of ``LibraryProgram``; a session keeps those that it was made with."""
        return self.several

    def facts(self) -> dict[str, Any]:
        options = self.session.get_session_options()
        return {
            "providers": list(self.session.get_providers()),
            "optimisation": str(options.graph_optimization_level).rpartition(".")[2],
            "deterministic": bool(options.use_deterministic_compute),
        }


class LiteRTProgram(_File):
    """A .tflite file: an interpreter for each size."""

    library, package = "litert", "ai_edge_litert"

    def __init__(self, content: bytes, batched: Any, threads: int | None, name: str) -> None:
        self.content, self.chosen = content, threads
        self.kept: OrderedDict[Any, Any] = OrderedDict()
        self.lock = threading.Lock()
        try:
            self.details = self._opened().get_input_details()
        except (ValueError, RuntimeError) as error:
            raise _cant_be_read(name, error) from None
        super().__init__(self._run, batched, name, [one["name"] for one in self.details])
        self.watched = self._recorder

    def _recorder(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        from probe.recorders.litert import LiteRTRecorder

        given = dict(zip(self.names, values, strict=True))
        return LiteRTRecorder(self.content, given, {"threads": str(self.threads())})

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("ai-edge-litert")

    def _opened(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(model_content=self.content, num_threads=self.chosen)

    def _open(self) -> dict[str, int | None]:
        """Returns the first axis, where there is one."""
        return {one["name"]: 0 if len(one["shape"]) else None for one in self.details}

    def _run(self, *values: np.ndarray) -> list[np.ndarray]:
        with self.lock:  # an interpreter holds the values of one call
            return self._ran(values)

    def _ran(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        shapes = tuple(one.shape for one in values)
        if shapes not in self.kept:
            made = self._opened()
            for one, value in zip(self.details, values, strict=True):
                if tuple(one["shape"]) != value.shape:
                    made.resize_tensor_input(one["index"], value.shape)
            made.allocate_tensors()
            self.kept[shapes] = made
            while len(self.kept) > KEPT:  # each holds memory of its own
                self.kept.popitem(last=False)
        made = self.kept[shapes]
        self.kept.move_to_end(shapes)
        for one, value in zip(self.details, values, strict=True):
            made.set_tensor(one["index"], value)
        made.invoke()
        return [made.get_tensor(one["index"]) for one in made.get_output_details()]

    def threads(self) -> int:
        """As of ``LibraryProgram``; LiteRT's own default is one."""
        return self.chosen or 1


class OpenCVProgram(_File):
    """A ``cv2.dnn.Net``. Its inputs have to be named where there are several."""

    library, package = "opencv", "cv2"

    def __init__(self, net: Any, batched: Any, name: str) -> None:
        self.net, self.lock = net, threading.Lock()
        names = list(batched) if isinstance(batched, dict) else [""]
        super().__init__(self._run, batched, name, names)
        self.outputs = list(net.getUnconnectedOutLayersNames())

    def _run(self, *values: np.ndarray) -> list[np.ndarray]:
        with self.lock:  # a net holds the values of one call
            for name, value in zip(self.names, values, strict=True):
                self.net.setInput(value, name)
            return [np.array(one) for one in self.net.forward(self.outputs)]

    def threads(self) -> int:
        import cv2

        return int(cv2.getNumThreads())

    def facts(self) -> dict[str, Any]:
        import cv2

        return {"optimized": bool(cv2.useOptimized())}


class SavedModel(TensorFlowProgram):
    """A signature of a SavedModel folder, called with keywords."""

    def __init__(self, path: Path, batched: Any) -> None:
        from probe.recorders.tensorflow import opened

        held = opened(path)
        self.names = [one.name for one in held.inputs]
        super().__init__(held.call, batched, path.name)

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """As of ``LibraryProgram``: arrays in order, or by name."""
        if set(kwargs) - set(self.names) or len(args) + len(kwargs) != len(self.names):
            said = ", ".join(kwargs) or f"{len(args)} arrays"
            raise InputError("inputs", said, f"the model has {', '.join(self.names)}", "give these")
        import tensorflow as tf

        order = [*args, *(kwargs[name] for name in self.names[len(args) :])]
        leaves, _ = super().flat(tuple(order), {})
        return leaves, lambda values: (([tf.convert_to_tensor(one) for one in values],), {})


def of_file(model: Any, batched: Any, threads: int | None) -> LibraryProgram | None:
    """Returns the program of a file, of its bytes, or of a session; None: it is none.
    InputError."""
    kind = type(model)
    if kind.__module__.startswith("onnxruntime") and kind.__name__ == "InferenceSession":
        _not_here(threads, "session")
        return Onnx(model, batched, None, "session")
    if kind.__module__.startswith("cv2") and hasattr(model, "setInput"):
        _not_here(threads, "net")
        return OpenCVProgram(model, batched, "net")
    if isinstance(model, bytes):
        name = f"model {hashlib.sha256(model).hexdigest()[:8]}"
        lite = model[4:8] == b"TFL3"
        return (LiteRTProgram if lite else Onnx)(model, batched, threads, name)  # type: ignore[operator]
    if not isinstance(model, str | Path):
        return None
    path = Path(model)
    if not path.exists():
        raise InputError("model", model, "there is no such file", f"give {FILES}")
    if (path / "saved_model.pb").is_file():
        _not_here(threads, "SavedModel")
        return SavedModel(path, batched)
    made: dict[str, Callable[[], LibraryProgram]] = {
        ".onnx": lambda: Onnx(str(path), batched, threads, path.name),
        ".tflite": lambda: LiteRTProgram(path.read_bytes(), batched, threads, path.name),
    }
    if path.suffix.lower() not in made:
        ending = path.suffix or "no ending"
        todo = f"give {FILES}; models of other files as objects: cv2.dnn.readNet, torch.nn.Module"
        raise InputError("model", path.name, f"{ending} is no file that is run whole", todo)
    return made[path.suffix.lower()]()


def _not_here(threads: int | None, what: str) -> None:
    if threads is not None:
        why = f"a {what} has its own number of threads"
        raise InputError("threads", threads, why, "set it in the library")


def _cant_be_read(name: str, error: Exception, path: str = "") -> InputError:
    said = " ".join(str(error).split())
    said = said.replace(path, name) if path else said
    why = f"the library can't read it: {said[:160]}"
    return InputError("model", name, why, "export it again")

"""Model files that are run whole: of ONNX Runtime and LiteRT.

They are called with arrays in the order of the model's inputs, or by their names, and return what
the library returns: a list of NumPy arrays. A file is data: nothing of it is run but its graph.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.arguments import not_waiting
from probe.case.errors import InputError
from probe.sizes.invariant.programs import Leaf, LibraryProgram, Rebuild
from probe.targets.machine import cores

FILES = ".onnx, .tflite"
KEPT = 8  # sizes of which LiteRT's interpreters are kept


class NamedInputs(LibraryProgram):
    """A program with named inputs."""

    def __init__(self, function: Any, batched: Any, name: str, names: Sequence[str]) -> None:
        super().__init__(function, batched, name)
        self.names = tuple(names)

    def flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Leaf], Rebuild]:
        """As of ``LibraryProgram``: arrays in order, by name, or in one dictionary."""
        named = args[0] if len(args) == 1 and isinstance(args[0], dict) and not kwargs else kwargs
        order = args if named is kwargs else ()
        arrays = dict(zip(self.names, order, strict=False)) | named
        if set(arrays) != set(self.names) or len(order) + len(named) != len(self.names):
            said = ", ".join(arrays) or f"{len(order)} arrays"
            raise InputError("inputs", said, f"the model has {', '.join(self.names)}", "give these")
        axes = self._by_name()
        leaves = [Leaf(np.asarray(arrays[name]), axes[name], name) for name in self.names]
        return leaves, lambda values: (tuple(values), {})

    def _by_name(self) -> dict[str, int | None]:
        """Returns the axis of each input that carries samples."""
        batched, why = self.batched, f"the model has {', '.join(self.names)}"
        if batched is None:
            return self._open()
        if isinstance(batched, dict):
            if unknown := set(batched) - set(self.names):
                raise InputError("batched", ", ".join(sorted(unknown)), why, "name these")
            return {name: batched.get(name) for name in self.names}
        axes = batched if isinstance(batched, tuple | list) else [batched] * len(self.names)
        if len(axes) != len(self.names):
            raise InputError("batched", batched, why, "give an axis or None for each")
        return dict(zip(self.names, axes, strict=True))

    def _open(self) -> dict[str, int | None]:
        """Returns what the file itself says of them."""
        return dict.fromkeys(self.names, 0)


class Onnx(NamedInputs):
    """A file or a session of ONNX Runtime."""

    library, package = "onnxruntime", "onnxruntime"

    def __init__(self, model: Any, batched: Any, threads: int | None, name: str) -> None:
        import onnxruntime

        self.session: Any = model
        self.content: bytes | str | None = None
        if isinstance(model, bytes | str):
            self.content = model
            options = onnxruntime.SessionOptions()
            # what it can't read is said once, by the error
            options.log_severity_level = 3
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
        super().__init__(self._run, batched, name, [each.name for each in self.inputs])
        self.fixed = self._size()
        if self.content is not None:
            self.watched = self._recorder

    def _recorder(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        from probe.record.recorders.onnxruntime import OnnxRecorder

        assert self.content is not None
        inputs = dict(zip(self.names, values, strict=True))
        return OnnxRecorder(self.content, inputs, {"threads": str(self.threads())})

    def _run(self, *values: Any) -> Any:
        return self.session.run(None, dict(zip(self.names, values, strict=True)))

    def _open(self) -> dict[str, int | None]:
        """Returns the first axis whose size is left open; the first one where no size is."""
        fixed = all(isinstance(size, int) for each in self.inputs for size in each.shape)
        return {
            each.name: next(
                (n for n, size in enumerate(each.shape) if fixed or not isinstance(size, int)), None
            )
            for each in self.inputs
        }

    def _size(self) -> int | None:
        """Returns the only batch that the file takes; None: it is left open."""
        axes = self._by_name()
        sizes = {
            each.shape[at]
            for each in self.inputs
            if (at := axes[each.name]) is not None and -len(each.shape) <= at < len(each.shape)
        }
        size = sizes.pop() if len(sizes) == 1 else None
        return size if isinstance(size, int) else None

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


class LiteRTProgram(NamedInputs):
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
        super().__init__(self._run, batched, name, [each["name"] for each in self.details])
        self.watched = self._recorder

    def _recorder(self, values: Sequence[Any], rebuild: Rebuild) -> Any:
        from probe.record.recorders.litert import LiteRTRecorder

        inputs = dict(zip(self.names, values, strict=True))
        return LiteRTRecorder(self.content, inputs, {"threads": str(self.threads())})

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return version("ai-edge-litert")

    def _opened(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(model_content=self.content, num_threads=self.chosen)

    def _open(self) -> dict[str, int | None]:
        return {each["name"]: 0 if len(each["shape"]) else None for each in self.details}

    def _run(self, *values: np.ndarray) -> list[np.ndarray]:
        shapes = tuple(value.shape for value in values)
        both = list(zip(self.details, values, strict=True))
        with self.lock:  # an interpreter holds the values of one call
            if shapes not in self.kept:
                interpreter = self._opened()
                for each, value in both:
                    if tuple(each["shape"]) != value.shape:
                        interpreter.resize_tensor_input(each["index"], value.shape)
                interpreter.allocate_tensors()
                self.kept[shapes] = interpreter
                while len(self.kept) > KEPT:  # each holds memory of its own
                    self.kept.popitem(last=False)
            interpreter = self.kept[shapes]
            self.kept.move_to_end(shapes)
            for each, value in both:
                interpreter.set_tensor(each["index"], value)
            interpreter.invoke()
            details = interpreter.get_output_details()
            return [interpreter.get_tensor(each["index"]) for each in details]

    def threads(self) -> int:
        """As of ``LibraryProgram``; LiteRT's own default is one."""
        return self.chosen or 1


def of_file(model: Any, batched: Any, threads: int | None) -> LibraryProgram | None:
    """Returns the program of a file, of its bytes, or of a session; None: it is none.
    InputError. ``threads``: of a file."""
    kind = type(model)
    if kind.__module__.startswith("onnxruntime") and kind.__name__ == "InferenceSession":
        return Onnx(model, batched, None, "session")
    if isinstance(model, bytes):
        name = f"model {hashlib.sha256(model).hexdigest()[:8]}"
        lite = model[4:8] == b"TFL3"
        return (LiteRTProgram if lite else Onnx)(model, batched, threads, name)  # type: ignore[operator]
    if not isinstance(model, str | Path):
        return None
    path = Path(model)
    if not not_waiting("model", path).exists():
        raise InputError("model", model, "there is no such file", f"give {FILES}")
    match path.suffix.lower():
        case ".onnx":
            return Onnx(str(path), batched, threads, path.name)
        case ".tflite":
            return LiteRTProgram(path.read_bytes(), batched, threads, path.name)
    why = f"{path.suffix or 'no ending'} is no file that is run whole"
    todo = f"give {FILES}; what a library loads as an object: a torch.nn.Module, a tf.function"
    raise InputError("model", path.name, why, todo)


def _cant_be_read(name: str, error: Exception, path: str = "") -> InputError:
    said = " ".join(str(error).split())
    said = said.replace(path, name) if path else said
    return InputError("model", name, f"the library can't read it: {said[:160]}", "export it again")

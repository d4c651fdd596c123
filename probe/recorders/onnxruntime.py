"""ONNX Runtime, watched node by node: the nodes of the model as its optimiser left them.

The optimised model is saved and its nodes run one after the other, or a few in a row with all their
outputs visible, without any more optimisation. Kernels, constant weights, layouts and threads are
those of an unwatched run; that the outputs have its bits is checked at the first recording, and
where they don't the whole model is one operation. A node alone runs as it did in the recording.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from probe.errors import InputError
from probe.recorders.node import Nodes, same_bits
from probe.recorders.onnx_pieces import inputs_of
from probe.recorders.onnx_run import LEVELS, PROVIDERS, Optimised, options
from probe.recording.contract import Seen, Visit

ENDINGS = (".onnx",)


class Recorder(Nodes):
    """A model with its inputs.

    ``model``: the file, or its bytes. ``inputs``: container arrays by name. ``switches``:
    ``threads``, ``deterministic`` (0 or 1) and ``optimisation`` (a name of ``LEVELS``). InputError
    where ONNX Runtime refuses the model or the inputs.
    """

    def __init__(
        self,
        model: Path | str | bytes,
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        self.model = model if isinstance(model, bytes) else str(model)
        self.inputs, self.switches = dict(inputs), dict(switches or {})
        words = [f",{key}={value}" for key, value in self.switches.items() if key != "optimisation"]
        self.target, self.note = "onnxruntime" + "".join(words), ""
        level = self.switches.get("optimisation", "all")
        if level not in LEVELS:
            raise InputError(
                "optimisation", level, "no such level", f"use one of {', '.join(LEVELS)}"
            )
        self.optimised: Optimised | None = None
        self.whole = False

    def plain(self) -> list[np.ndarray]:
        """Runs the model unwatched."""
        return self._run(self._session(options(self.switches)))

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it node by node, and calls ``visit`` behind each."""
        if self.optimised is None and not self.whole:
            self._optimise()
        if self.optimised is None:
            return self.as_one(visit)
        return self.optimised.run(self.inputs, visit)

    def _optimise(self) -> None:
        """Has the model optimised, runs it, and checks that its nodes alone give the same bits."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path = Path(folder, "optimised.onnx")
            made = options(self.switches)
            made.optimized_model_filepath = str(path)
            made.add_session_config_entry(
                "session.optimized_model_external_initializers_file_name", "weights"
            )
            made.add_session_config_entry(
                "session.optimized_model_external_initializers_min_size_in_bytes", str(1 << 12)
            )
            session = self._session(made)
            wanted = self._run(session)
            del session
            model, beside = onnx.load(path, load_external_data=False), Path(folder, "weights")
            some = beside.exists() and beside.stat().st_size > 0
            mapped = np.memmap(beside, np.uint8, "r") if some else None
            optimised = Optimised(model, self.switches, mapped)
        try:
            found = [one.array() for one in optimised.run(self.inputs, lambda _: None)]
        except Exception as error:  # an operator's kernel, or a type that only a whole model has
            self.give_up(f"its nodes can't be run one by one ({str(error).splitlines()[0][:120]})")
            return
        for got, due in zip(found, wanted, strict=True):
            if not same_bits(got, due):
                self.give_up("its nodes run one by one give different bits")
                return
        self.optimised = optimised

    def _session(self, made: Any) -> Any:
        try:
            return onnxruntime.InferenceSession(self.model, made, providers=PROVIDERS)
        except Exception as error:
            name = "model" if isinstance(self.model, bytes) else Path(self.model).name
            raise unreadable(name, error) from None

    def _run(self, session: Any) -> list[np.ndarray]:
        names = [one.name for one in session.get_inputs()]
        for name in names:
            if name not in self.inputs:
                raise InputError("inputs", ", ".join(self.inputs), f"{name} is missing", "give it")
        given = {name: self.inputs[name] for name in names}
        try:
            return [np.asarray(one) for one in session.run(None, given)]
        except Exception as error:
            shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in given.items())
            why = f"ONNX Runtime refuses them: {str(error).splitlines()[0][:160]}"
            raise InputError(
                "inputs", shapes, why, "give the model's own shapes and types"
            ) from None

    def with_inputs(self, inputs: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of the same model with other inputs."""
        return Recorder(self.model, inputs, self.switches)


class Opened:
    """A model file. ``inputs``: those that no constant of the file fills."""

    def __init__(self, path: Path, switches: Mapping[str, str] | None = None) -> None:
        self.path, self.switches = path, dict(switches or {})
        try:
            graph = onnx.load(path, load_external_data=False).graph
        except Exception as error:
            raise unreadable(path.name, error) from None
        self.inputs = inputs_of(graph)

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of the model with these inputs."""
        return Recorder(self.path, arrays, self.switches)


def unreadable(name: str, error: Exception) -> InputError:
    """Returns what is said of a file that ONNX Runtime refuses."""
    said = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
    return InputError("network", name, f"can't be read: {said}", "export or download it again")


def opened(path: Path, trust: bool = False, switches: Mapping[str, str] | None = None) -> Opened:
    """Opens an ``.onnx`` file, which runs no code. InputError where it can't be read.

    ``switches``: of the target, such as ``threads``.
    """
    return Opened(Path(path), switches)


__all__ = ["ENDINGS", "LEVELS", "Opened", "Recorder", "opened"]

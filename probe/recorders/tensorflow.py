"""TensorFlow and Keras, watched: every eager operation, and the nodes of the graphs that run.

Operations that run eagerly are seen by TensorFlow's own callbacks, behind the same kernels as
without them. A ``tf.function`` runs once as always, and then once more, node by node, as it was
optimised (:mod:`probe.recorders.tensorflow_graphs`). Paths are the name scopes, in which Keras has
the names of its layers. What an operation computes stands in
:mod:`probe.recorders.tensorflow_meanings`, what is read of files in
:mod:`probe.recorders.tensorflow_files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from probe.recorders.tensorflow_files import ENDINGS, Loaded, loaded
from probe.recorders.tensorflow_graphs import called, instead
from probe.recorders.tensorflow_values import Names, array, tensor_of, tensors
from probe.recorders.tensorflow_watch import Told, Watching
from probe.recording.contract import Input, Seen, Visit
from probe.recording.recording import digest


class Recorder:
    """A function of no arguments that computes with TensorFlow, or with Keras on TensorFlow."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.target = target()
        self.note = ""
        self.names = Names()
        self.functions: dict[Hashable, Any] = {}
        self.told: dict[Hashable, Told] = {}
        self.expected: list[np.ndarray] | None = None

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        return [array(one) for one in tensors(self.function())]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation.

        The first time it runs unwatched before, so that layers are built and functions traced.
        """
        if self.expected is None:
            self.expected = [np.array(one) for one in self.plain()]
        watch = Watching(visit, self.names, self.functions, called, self.told, instead)
        watch.wanted = {one.shape for one in self.expected}
        with watch.watching():
            found = self.function()
        outputs = watch.outputs(found)
        self._notes(watch, [one.array() for one in outputs])
        return outputs

    def _notes(self, watch: Watching, outputs: Sequence[np.ndarray]) -> None:
        """Says what isn't looked into, and whether the watched run gave the bits of the other."""
        if watch.graphs and "mode=" not in self.target:
            self.target += ",mode=graph"
        said = list(watch.said)
        pairs = zip(outputs, self.expected or (), strict=True)
        if not all(digest(one) == digest(two) for one, two in pairs):
            said.append("the recorded run gave different bits from the run before it")
        self.note = "; ".join(dict.fromkeys(said))


def target() -> str:
    """Returns the text of this process' target: threads and oneDNN's operators as they are set."""
    text = "tensorflow"
    if (choice := os.environ.get("TF_ENABLE_ONEDNN_OPTS")) in ("0", "1"):
        text += f",onednn={choice}"
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return text + (f",threads={threads}" if threads else "")


class Opened:
    """A model file, as ``contract.Opened`` says."""

    def __init__(self, model: Loaded) -> None:
        self.model = model
        self.inputs: tuple[Input, ...] = model.inputs

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Recorder:
        """Returns a recorder of the model with these inputs (container arrays, by name)."""
        given = [tensor_of(arrays[one.name], tf.as_dtype(one.dtype)) for one in self.inputs]
        return Recorder(lambda: self.model.call(given))


def opened(path: Path, trust: bool = False) -> Opened:
    """Opens a ``.keras`` or ``.h5`` file, or the folder of a SavedModel.

    Errors: InputError where it can't be read, or holds code and is not trusted.
    """
    return Opened(loaded(Path(path), trust))


__all__ = ["ENDINGS", "Opened", "Recorder", "opened", "target"]

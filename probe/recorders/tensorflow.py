"""TensorFlow and Keras, watched: every eager operation, and the nodes of the graphs that run.

Operations that run eagerly are seen by TensorFlow's own callbacks, behind the same kernels as
without them. A ``tf.function`` runs once as always, and then once more, node by node, as it was
optimised (:mod:`probe.recorders.tensorflow_graphs`). Paths are the name scopes, in which Keras has
the names of its layers. What an operation computes stands in
:mod:`probe.recorders.tensorflow_table`, and model files are read below.

``.keras`` and ``.h5`` files: :mod:`probe.trust` looks first at every class that they name. A
SavedModel is a program: loading it makes its variables and runs its initialisers, calling it runs
its graph. So its operations are read from ``saved_model.pb`` before TensorFlow loads it, and one
that reads or writes files, calls Python or keeps a state that isn't a variable's is refused, unless
the model is trusted. What TensorFlow itself does with a damaged file is out of reach here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from probe import trust
from probe.errors import InputError
from probe.progress import without_stderr
from probe.recorders import graphs
from probe.recorders.tensorflow_graphs import HARMLESS, KnownGraphs, Watching
from probe.recorders.tensorflow_values import NOTHING, array, schema, tensor_of, tensors
from probe.recording.contract import Input, Seen, Visit
from probe.recording.recording import array_digest

# Files; the folder of a SavedModel is known by its ``saved_model.pb``.
ENDINGS = (".keras", ".h5", ".hdf5")

AGAIN = "save the model again"
# Operations with a state that read no file, write none and call nothing outside of the graph.
PLAIN = (
    *(*HARMLESS, "VarHandleOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
    *("DestroyResourceOp", "HashTableV2", "MutableHashTableV2", "LookupTableImportV2"),
    *("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt"),
    *("StatefulUniform", "StatefulStandardNormalV2", "Multinomial"),
)

# Parts of the names of operations that do: TensorFlow's registry marks not all of them.
OUTSIDE = ("File", "Python", "PyFunc", "Dataset", "Summary", "Print", "Debug", "ImmutableConst")

# Functions that every SavedModel has to save its variables; nothing in it calls them.
SAVING = ("__inference__traced_save", "__inference__traced_restore")


@dataclass(frozen=True)
class OpenedTensorFlow:
    """A model file, as ``contract.Opened`` says. ``call``: runs it on tensors in the order of its
    inputs. ``model``: Keras's own, whose layers can be replaced; None of a SavedModel.
    ``straight``: as of a recorder."""

    inputs: tuple[Input, ...]
    call: Callable[[Sequence[Any]], Any]
    model: Any = None
    straight: bool = False

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> TensorFlowRecorder:
        """Returns a recorder of the model with these inputs (container arrays, by name)."""
        given = [tensor_of(arrays[one.name], tf.as_dtype(one.dtype)) for one in self.inputs]
        return TensorFlowRecorder(lambda: self.call(given), self.straight)


def opened(path: Path, trust: bool = False) -> OpenedTensorFlow:
    """Opens a ``.keras`` or ``.h5`` file, or the folder of a SavedModel.

    Errors: InputError where it can't be read, or holds code and is not trusted.
    """
    path = Path(path)
    if not path.exists():
        raise InputError("network", path.name, "there is no such file", "check the name")
    if path.is_dir():
        return _saved_model(path, trust)
    if path.suffix.lower() not in ENDINGS:
        why = f"unsupported file type {path.suffix}" if path.suffix else "the file has no extension"
        raise InputError("network", path.name, why, f"give {', '.join(ENDINGS)} or a SavedModel")
    return _keras(path, trust)


def _keras(path: Path, trusted: bool) -> OpenedTensorFlow:
    with without_stderr():
        named = trust.check_keras(path, trusted)
    try:
        with without_stderr():
            import keras
    except ImportError:
        raise trust.library_missing("keras") from None
    try:
        with without_stderr():
            more = {"custom_objects": trust.imported(named), "safe_mode": not trusted}
            model = keras.models.load_model(path, compile=False, **more)
    except Exception as error:
        todo = trust.IN_PYTHON if named else AGAIN
        raise graphs.unreadable(path.name, error, todo) from None
    if not model.inputs:
        why = "it has not been built, so its inputs are not known"
        raise InputError("network", path.name, why, "give it an Input, or call it once, and save")
    inputs = tuple(_input_of(one.name, one.shape, one.dtype) for one in model.inputs)
    call = lambda given: model(_packed(model, given), training=False)  # noqa: E731
    # shapes alone decide which operations Keras' own layers take; code of others decides as it does
    return OpenedTensorFlow(inputs, call, model, straight=not named)


def _packed(model: Any, given: Sequence[Any]) -> Any:
    """Returns a model's inputs in the structure in which it takes them."""
    import keras

    structure = getattr(model, "input", None)
    if isinstance(structure, dict | list | tuple):
        return keras.tree.pack_sequence_as(structure, list(given))
    return given[0] if len(given) == 1 else list(given)


def _input_of(name: str, shape: Any, dtype: Any) -> Input:
    return Input(
        str(name), tuple(None if n is None else int(n) for n in shape), tf.as_dtype(dtype).name
    )


def _saved_model(path: Path, trusted: bool) -> OpenedTensorFlow:
    if not (path / "saved_model.pb").is_file():
        why = "the folder has no saved_model.pb, so it is not a SavedModel"
        raise InputError("network", path.name, why, "check the name")
    if not trusted:
        _check_graph(path)
    try:
        with without_stderr():
            model = tf.saved_model.load(str(path))
    except Exception as error:
        raise graphs.unreadable(path.name, error, AGAIN) from None
    signatures = dict(model.signatures)
    if not signatures:
        why = "it has no signature, so its inputs are unknown"
        raise InputError("network", path.name, why, "save it with signatures=...")
    function = signatures.get("serving_default") or signatures[min(signatures)]
    specs = function.structured_input_signature[1]
    inputs = tuple(_input_of(n, one.shape.as_list(), one.dtype) for n, one in specs.items())
    names = [one.name for one in inputs]

    def call(given: Sequence[Any]) -> Any:
        _ = model  # its variables live as long as it does
        for name, one in zip(names, given, strict=True):
            if not specs[name].shape.is_compatible_with(one.shape):  # a kernel may end Python
                why, todo = f"has shape {tuple(one.shape)}", f"give {specs[name].shape}"
                raise InputError("inputs", name, why, todo)
        return function(**dict(zip(names, given, strict=True)))

    return OpenedTensorFlow(inputs, call)


def _check_graph(path: Path) -> None:
    """InputError where a SavedModel holds an operation that reaches beyond its graph."""
    made = saved_model_pb2.SavedModel()
    try:
        made.ParseFromString((path / "saved_model.pb").read_bytes())
    except Exception as error:
        raise graphs.unreadable(path.name, error, AGAIN) from None
    todo = "if you trust where it comes from, give --trust"
    for graph in made.meta_graphs:
        if not graph.HasField("object_graph_def"):
            why = "it was saved by TensorFlow 1, and loading it runs operations on files"
            raise InputError("network", path.name, why, todo)
        for op in _beyond_graph(graph.graph_def.library.function):
            name = "".join(one if one.isprintable() else "?" for one in op)[:100]
            why = f"its graph holds {name}, which may read or write files or run code"
            raise InputError("network", path.name, why, todo)


def _beyond_graph(functions: Any) -> Iterator[str]:
    """The operations of functions that reach beyond the graph; those that save are not called."""
    saving = {one.signature.name for one in functions if one.signature.name.startswith(SAVING)}
    own = {one.signature.name for one in functions}
    for one in functions:
        if one.signature.name in saving:
            continue
        for node in one.node_def:
            reached = {value.func.name for value in node.attr.values() if value.func.name}
            reached |= {each.name for value in node.attr.values() for each in value.list.func}
            if reached & saving:
                yield f"a call of {min(reached & saving)}"
            known = schema(node.op)
            beyond = known is NOTHING or any(part in node.op for part in OUTSIDE)
            if node.op not in own and (beyond or (known.stateful and node.op not in PLAIN)):
                yield node.op


class TensorFlowRecorder:
    """A function of no arguments that computes with TensorFlow, or with Keras on TensorFlow.

    ``straight``: it takes the same operations whatever numbers of these shapes it is given.
    """

    def __init__(self, function: Callable[[], Any], straight: bool = False) -> None:
        self.function, self.straight = function, straight
        self.target = target()
        self.note = ""
        self.known = KnownGraphs()
        self.expected: list[tuple[tuple[int, ...], str]] | None = None
        self.already: list[str] | None = None

    def plain(self) -> list[np.ndarray]:
        return [array(one) for one in tensors(self.function())]

    def ran(self, outputs: Sequence[Any]) -> None:
        """Takes the outputs of a run unwatched, which need not be run again then."""
        every = [array(one) for one in tensors(outputs)]
        self.expected = [(one.shape, array_digest(one)) for one in every]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation.

        The first time it runs unwatched before, so that layers are built and functions traced.
        """
        if self.expected is None:
            self.expected = [(one.shape, array_digest(one)) for one in self.plain()]
            self.already = [bits for _, bits in self.expected]
        watch = Watching(visit, self.known, {shape for shape, _ in self.expected})
        with watch.watching():
            found = self.function()
        outputs = watch.outputs(found)
        if watch.graphs and "mode=" not in self.target:
            self.target += ",mode=graph"
        if [array_digest(one.array()) for one in outputs] != [bits for _, bits in self.expected]:
            watch.said.append("the recorded run gave different bits from the run before it")
        self.note = "; ".join(dict.fromkeys(watch.said))
        return outputs


def target() -> str:
    """Returns the text of this process' target: threads and oneDNN's operators as they are set."""
    text = "tensorflow"
    if (choice := os.environ.get("TF_ENABLE_ONEDNN_OPTS")) in ("0", "1"):
        text += f",onednn={choice}"
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return text + (f",threads={threads}" if threads else "")


__all__ = ["ENDINGS", "OpenedTensorFlow", "TensorFlowRecorder", "opened", "target"]


# What watches a function of this library, see ``probe.recording.subject``.
RECORDER = TensorFlowRecorder

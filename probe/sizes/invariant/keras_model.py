"""Runs every operation of a Keras model, on TensorFlow, in its class of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from probe.case.errors import Foreign, InputError, ProbeError, foreign
from probe.record.recorders.tensorflow_values import tensor_of
from probe.sizes.invariant import tensorflow_operations
from probe.sizes.invariant.classes import InvariantOptions, Table, conditions
from probe.sizes.invariant.keeper import Keeper, Report
from probe.sizes.invariant.samples import Company, EndedCall, Value
from probe.sizes.invariant.tensorflow_operations import FORMATS, TensorFlowOperations, container
from probe.targets.unchanged import unchanged


class Traced(NamedTuple):
    """The model's function for inputs of one kind. ``packed``: its outputs, to be filled in."""

    function: Any
    captured: Sequence[Any]
    packed: Any


class InvariantKeras(keras.Model):
    """A model with the layers and weights of another, run operation by operation.

    Called eagerly, or in ``predict``, it gives the same bits for a sample at every batch. In a
    ``tf.function`` it is a call of Python, with the same bits; XLA and saved models can't have it.
    """

    def __init__(self, inner: Any, keeper: Keeper) -> None:
        super().__init__(name=inner.name, dtype=inner.dtype_policy)
        self.inner = inner
        self._keeper, self._company = keeper, Company(keeper, how=FIRST)
        self._operators, self._traced = TensorFlowOperations(keeper), dict[Any, Traced]()
        self._done: set[Any] = set()
        # predict() would else trace the call, where sizes are not known and XLA may fuse
        self.run_eagerly, self.jit_compile, self.built = True, False, True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model's own. What is refused is said in one line, without Keras' own words."""
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:  # raised on, or one of ours inside of it
            own: BaseException | None = error  # Keras raises one of its own around a layer's
            while own is not None and not isinstance(own, ProbeError):
                own = own.__context__
            if own is not None:
                raise own from None
            raise

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """InputError: it is for inference."""
        refuse_training()

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """As the model's own call. InputError in training."""
        if training:
            refuse_training()
        flat = [tf.convert_to_tensor(each) for each in tf.nest.flatten(inputs)]
        kinds = tuple((x.dtype, tuple(x.shape.as_list()[1:])) for x in flat)
        key = str(tf.nest.map_structure(lambda _: 0, inputs)), kinds
        if key not in self._traced:
            with tf.init_scope():
                self._traced[key] = _traced(self.inner, inputs, kinds)
        traced = self._traced[key]
        run = self._run if tf.executing_eagerly() else self._inside
        return tf.nest.pack_sequence_as(traced.packed, run(traced, flat))

    def _run(self, traced: Traced, flat: Sequence[Any]) -> list[Any]:
        self._keeper.require_settings(self.name)
        name = traced.function.name.decode()
        follows = (True,) * len(flat) + (False,) * len(traced.captured)

        def call(tensors: Sequence[Any]) -> list[Any]:
            return self._operators(name, [*tensors, *traced.captured], follows)

        shapes = [tuple(x.shape) for x in flat]
        met = (name, *shapes)
        if met in self._done:
            return call(flat)
        self._company.begin(name, shapes)
        outputs = call(flat)
        self._keeper.calls.end()

        def run(values: Sequence[Value]) -> list[Value]:
            changed = [
                (tensor_of if x.dtype in FORMATS else tf.constant)(value, x.dtype)
                for (value, _), x in zip(values, flat, strict=True)
            ]
            return [*map(_bits_and_format, call(changed))]

        inputs, answer = ([*map(_bits_and_format, side)] for side in (flat, outputs))
        with unchanged(self.inner):
            self._company.ask(name, EndedCall(inputs, answer, run))
        self._done.add(met)
        return outputs

    def _inside(self, traced: Traced, flat: Sequence[Any]) -> Any:
        """In a graph: a call of Python, where the sizes are known when it runs."""
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

        if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
            why = "XLA would compile it into a different program, with different bits"
            raise InputError("model", self.name, why, "call it without jit_compile")
        kinds = [symbolic.dtype for symbolic in traced.function.outputs]
        outputs = tf.py_function(lambda *flat: self._run(traced, flat), flat, kinds)
        for output, symbolic in zip(outputs, traced.function.outputs, strict=True):
            output.set_shape(symbolic.shape)
        return outputs


FIRST = "samples of a Keras model are taken to lie along the first axis of its inputs"


def _bits_and_format(x: Any) -> Value:
    return container(x) if x.dtype in FORMATS else (x.numpy(), x.dtype.name)


def _traced(model: Any, inputs: Any, kinds: Sequence[tuple[Any, tuple[int | None, ...]]]) -> Traced:
    """Returns the model's function: its graph has an open batch."""
    open_ = [tf.TensorSpec((None, *shape), dtype) for dtype, shape in kinds]
    packed: list[Any] = []

    def function(*flat: Any) -> Any:
        outputs = model(tf.nest.pack_sequence_as(inputs, flat), training=False)
        packed[:] = [tf.nest.map_structure(lambda _: 0, outputs)]
        return tf.nest.flatten(outputs)

    trace = tf.function(function, autograph=False).get_concrete_function
    try:
        concrete = foreign(trace, *open_)
    except Foreign as refused:  # a loop or branch of Python's on numbers, or on an open batch
        error = refused.__cause__
        said = " ".join(str(getattr(error, "message", error)).split())[:160]
        why = f"it cannot be traced with an open batch ({type(error).__name__}: {said})"
        todo = "write loops and branches on tensors with keras.ops or tf.while_loop, tf.cond"
        raise InputError("model", model.name, why, todo) from error
    return Traced(concrete, [outer for outer, _ in concrete.graph.captures], packed[0])


def made(model: Any, options: InvariantOptions, batched: Any) -> tuple[Any, Report]:
    """As ``probe.sizes.invariant.invariant``."""
    sizes, like, strict, example, table = options
    if batched is not None:
        why = "samples of a Keras model lie along the first axis of all its inputs"
        raise InputError("batched", batched, why, "leave it out")
    if tf.config.list_logical_devices("GPU"):
        why = "TensorFlow sees a GPU, and only processors are covered"
        raise InputError("model", type(model).__name__, why, "hide it: CUDA_VISIBLE_DEVICES=-1")
    if not isinstance(model, keras.Model):
        why = "a single layer is not a model"
        raise InputError("model", type(model).__name__, why, "give keras.Sequential([layer])")
    arguments = example if isinstance(example, tuple) else (example,)
    if len(arguments) > 1:
        why = "a Keras model takes one argument, which may be a list or a dict"
        raise InputError("example", len(arguments), why)
    environment = conditions(tensorflow_operations.switches())
    classes = Table.opened(table, like, sizes, tensorflow_operations.threads(), environment)
    keeper = Keeper(classes, strict, tensorflow_operations)
    if not model.built:
        if example is None:
            why = "it has no weights yet, since it has never been called"
            raise InputError("model", model.name, why, "call it once, or give an example")
        model(arguments[0], training=False)
    invariant = InvariantKeras(model, keeper)
    if example is None:
        return invariant, keeper.report
    (inputs,) = arguments
    invariant(inputs)
    return invariant, keeper.report


def refuse_training() -> None:
    why = "training is not covered: it has dropout, and statistics of the batch"
    raise InputError("training", True, why, "call it for inference: model(x), model.predict(x)")

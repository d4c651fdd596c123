"""Keras 3 layers, with the same arguments and weights, on the prefix-stable operators.

>>> from probe.sizes.stable import keras_layers
>>> model = keras_layers.stabilized(model)  # doctest: +SKIP
>>> print(model.stable_report)  # what was replaced, and what was left  # doctest: +SKIP
"""

from typing import Any

import keras

from probe.sizes.stable.convolution import check_options
from probe.sizes.stable.report import EXACT_ACTIVATIONS, LayerReport, exact
from probe.sizes.stable.tensorflow import conv, dense, normalised
from probe.targets.unchanged import leaves_unchanged


def _require_tensorflow():
    if keras.backend.backend() != "tensorflow":
        why = "these layers are TensorFlow's"
        raise ValueError(f"backend={keras.backend.backend()}: {why}")


class _StableKerasCall:
    """What replaces the call of the library in the convolutions."""

    accumulate = None

    def call(self: Any, inputs):
        _require_tensorflow()
        if self.data_format != "channels_last":
            why = "a stable layer has its channels last"
            raise ValueError(f"data_format={self.data_format}: {why}")
        kernel, groups = self.kernel, getattr(self, "groups", 1)
        if isinstance(self, keras.layers.DepthwiseConv1D | keras.layers.DepthwiseConv2D):
            groups, multiplier = kernel.shape[-2:]
            kernel = keras.ops.reshape(kernel, (*kernel.shape[:-2], 1, groups * multiplier))
        padding = self.padding
        if padding == "causal":
            padding = [(self.dilation_rate[0] * (self.kernel_size[0] - 1), 0)]
        outputs = conv(
            inputs,
            keras.ops.convert_to_tensor(kernel),
            keras.ops.convert_to_tensor(self.bias) if self.use_bias else None,
            stride=tuple(self.strides),
            dilation=tuple(self.dilation_rate),
            groups=groups,
            padding=padding,
            accumulate=self.accumulate,
        )
        return outputs if self.activation is None else self.activation(outputs)


def _stable_layer(name):
    """Returns Keras' class of a name with what replaces its call."""
    doc = "``keras.layers.%s``; ``accumulate`` is that of ``probe.stable.conv``." % name
    bases = (_StableKerasCall, getattr(keras.layers, name))
    return type(name, bases, {"__module__": __name__, "__doc__": doc})


Conv1D, Conv2D, Conv3D = map(_stable_layer, ("Conv1D", "Conv2D", "Conv3D"))
DepthwiseConv1D, DepthwiseConv2D = map(_stable_layer, ("DepthwiseConv1D", "DepthwiseConv2D"))


class Dense(keras.layers.Dense):
    """``keras.layers.Dense``; the attribute ``accumulate`` is that of ``probe.stable.dense``."""

    accumulate = None

    def call(self, inputs, training=None):
        """Multiplies each row for itself."""
        _require_tensorflow()
        kernel = keras.ops.convert_to_tensor(self.kernel)
        bias = None if self.bias is None else keras.ops.convert_to_tensor(self.bias)
        outputs = dense(inputs, kernel, bias, self.accumulate)
        return outputs if self.activation is None else self.activation(outputs)


class BatchNormalization(keras.layers.BatchNormalization):
    """Keras' own at inference, as a scale and a shift; ``accumulate`` as of ``conv``.

    In training it is Keras' own: its means are taken over the batch.
    """

    accumulate = None

    def call(self, inputs, training=None, mask=None):
        """Multiplies and adds each element; 16-bit inputs in float32, as Keras."""
        if training and self.trainable:
            return super().call(inputs, training=training, mask=mask)
        _require_tensorflow()
        ops, wide = keras.ops, keras.backend.result_type(inputs.dtype, "float32")
        outputs = normalised(
            ops.cast(inputs, wide),
            ops.cast(self.moving_mean, wide),
            ops.cast(self.moving_variance, wide),
            ops.cast(self.gamma, wide) if self.scale else None,
            ops.cast(self.beta, wide) if self.center else None,
            self.epsilon,
            self.axis,
            self.accumulate,
        )
        return ops.cast(outputs, self.compute_dtype)


KINDS = {
    getattr(keras.layers, kind.__name__): kind
    for kind in (
        *(Conv1D, Conv2D, Conv3D, DepthwiseConv1D, DepthwiseConv2D),
        *(Dense, BatchNormalization),
    )
}


@leaves_unchanged
def stabilized(model, accumulate=None, strict=False):
    """Copies a Keras model with layers that depend on their own window or row alone.

    The copy has equal weights. Replaced are convolutions, Dense, and batch normalisation at
    inference (in training it takes means over the batch, as always); in models within the model
    too. Other layers stay as they are: recurrent layers, attention, layer normalisation, softmax
    and the like may still depend on the batch or the length. The copy's attribute ``stable_report``
    lists what was replaced, kept and left. Under a compiler that fuses (XLA), take
    ``accumulate="float64"``. ``strict``: ``NotStable``, a ValueError, names the layers that would
    be left, if any.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"model={type(model).__name__}: it takes a keras.Model")
    check_options(accumulate, strict)
    report: dict[str, list[tuple[str, str]]] = {"replaced": [], "kept": [], "left": []}

    def replaced(layer):
        # with quantised weights it computes something else than its class says
        quantised = getattr(layer, "quantization_mode", None) is not None
        kind = None if quantised else KINDS.get(type(layer))
        for what, said in _where_in_report(layer, kind):
            report[what].append((layer.name, said))
        copy = (kind or type(layer)).from_config(layer.get_config())
        if kind:
            copy.accumulate = accumulate
        return copy

    # recursive: layers of a model within the model are replaced too
    stable = keras.models.clone_model(model, clone_function=replaced, recursive=True)
    stable.stable_report = LayerReport(
        **{name: tuple(dict.fromkeys(layers)) for name, layers in report.items()}
    )
    if strict:
        stable.stable_report.refuse_left()
    stable.set_weights(model.get_weights())
    return stable


def _where_in_report(layer, kind):
    """Under which names of a Report a layer belongs, and as what."""
    name = type(layer).__name__
    if isinstance(layer, keras.layers.Activation) or kind:
        activation = getattr(layer, "activation", None) or keras.activations.linear
        settled = getattr(activation, "__name__", "") in EXACT_ACTIVATIONS
        said = getattr(activation, "__name__", type(activation).__name__)
        if kind:
            yield "replaced", name
        if not settled:
            yield "left", f"its activation {said}" if kind else f"{name} {said}"
        elif not kind:
            yield "kept", name
    elif type(layer).__module__.startswith("keras.") and _layer_is_exact(layer):
        yield "kept", name
    elif type(layer) not in (keras.Sequential, keras.Model):
        yield "left", name


def _layer_is_exact(layer):
    """Returns whether a layer of a built model is exact, by running it on its own shapes."""
    if isinstance(layer, keras.layers.InputLayer):
        return True

    def zeros(x):
        return keras.ops.zeros([SIZE if n is None else n for n in x.shape], x.dtype)

    def run(**words):
        return layer(keras.tree.map_structure(zeros, layer.input), **words)

    # not every layer takes the word
    return exact(lambda: run(training=False)) or exact(run)


# Of axes that are open, such as the batch: enough for the windows of most pools.
SIZE = 48

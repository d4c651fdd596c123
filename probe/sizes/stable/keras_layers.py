"""Keras 3 layers, with the same arguments and weights, on the prefix-stable operators.

>>> from probe.sizes.stable import keras_layers
>>> model = keras_layers.stabilized(model)  # doctest: +SKIP
>>> print(model.stable_report)  # what was replaced, and what was left  # doctest: +SKIP
"""

from typing import Any

import keras

from probe.sizes.stable.convolution import check_format, normalised
from probe.sizes.stable.report import LayerReport
from probe.sizes.stable.tensorflow import conv, dense
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
        ops, dtype = keras.ops, keras.backend.result_type(inputs.dtype, "float32")
        wide = self.accumulate or dtype
        shape = [1] * len(inputs.shape)
        shape[self.axis] = -1
        scale, shift = (self.gamma if self.scale else None), (self.beta if self.center else None)
        statistics = (self.moving_mean, self.moving_variance, scale, shift)
        mean, variance, scale, shift = (
            each if each is None else ops.reshape(ops.cast(each, wide), shape)
            for each in statistics
        )
        outputs = normalised(
            ops.cast(inputs, wide),
            (mean, scale, shift),
            ops.sqrt(variance + self.epsilon),
            lambda values: ops.cast(ops.cast(values, dtype), wide),
        )
        return ops.cast(ops.cast(outputs, dtype), self.compute_dtype)


KINDS = {
    getattr(keras.layers, kind.__name__): kind
    for kind in (
        *(Conv1D, Conv2D, Conv3D, DepthwiseConv1D, DepthwiseConv2D),
        *(Dense, BatchNormalization),
    )
}


@leaves_unchanged
def stabilized(model, accumulate=None):
    """Copies a Keras model with layers that depend on their own window or row alone.

    The copy has equal weights. Replaced are convolutions, Dense, and batch normalisation at
    inference (in training it takes means over the batch, as always); in models within the model
    too. Other layers stay as they are: recurrent layers, attention, layer normalisation, softmax
    and the like may still depend on the batch or the length. The copy's attribute ``stable_report``
    lists what was replaced and left. Under a compiler that fuses (XLA), take
    ``accumulate="float64"``.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"model={type(model).__name__}: it takes a keras.Model")
    check_format(accumulate)
    replaced: dict[tuple[str, str], None] = {}  # a layer that is used twice is told once
    left: dict[tuple[str, str], None] = {}

    def copied(layer):
        # with quantised weights it computes something else than its class says
        quantised = getattr(layer, "quantization_mode", None) is not None
        kind = None if quantised else KINDS.get(type(layer))
        copy = (kind or type(layer)).from_config(layer.get_config())
        if kind:
            copy.accumulate = accumulate
            replaced[layer.name, type(layer).__name__] = None
        elif not isinstance(layer, keras.layers.InputLayer | keras.Model):
            left[layer.name, type(layer).__name__] = None
        activation = getattr(layer, "activation", None)
        if kind and activation not in (None, keras.activations.linear):
            name = getattr(activation, "__name__", type(activation).__name__)
            left[layer.name, f"its activation {name}"] = None
        return copy

    # recursive: layers of a model within the model are replaced too
    stable = keras.models.clone_model(model, clone_function=copied, recursive=True)
    stable.stable_report = LayerReport(tuple(replaced), tuple(left))
    stable.set_weights(model.get_weights())
    return stable

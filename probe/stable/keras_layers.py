"""Keras 3 layers on the prefix-stable convolution, on TensorFlow: the same words and weights.

>>> from probe.stable import keras_layers
>>> model = keras_layers.stabilized(model)  # doctest: +SKIP
"""

from typing import Any

import keras

from probe.stable.tensorflow import conv


class _Stable:
    """What replaces the call of the library in the layers."""

    accumulate = None

    def call(self: Any, inputs):
        if keras.backend.backend() != "tensorflow":
            why = "these layers are TensorFlow's"
            raise ValueError(f"backend={keras.backend.backend()}: {why}")
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


class Conv1D(_Stable, keras.layers.Conv1D):
    """``keras.layers.Conv1D``; the attribute ``accumulate`` is that of ``probe.stable.conv``."""


class Conv2D(_Stable, keras.layers.Conv2D):
    """``keras.layers.Conv2D``; the attribute ``accumulate`` is that of ``probe.stable.conv``."""


class Conv3D(_Stable, keras.layers.Conv3D):
    """``keras.layers.Conv3D``; the attribute ``accumulate`` is that of ``probe.stable.conv``."""


class DepthwiseConv1D(_Stable, keras.layers.DepthwiseConv1D):
    """``keras.layers.DepthwiseConv1D``; ``accumulate`` is that of ``probe.stable.conv``."""


class DepthwiseConv2D(_Stable, keras.layers.DepthwiseConv2D):
    """``keras.layers.DepthwiseConv2D``; ``accumulate`` is that of ``probe.stable.conv``."""


KINDS = {
    getattr(keras.layers, kind.__name__): kind
    for kind in (Conv1D, Conv2D, Conv3D, DepthwiseConv1D, DepthwiseConv2D)
}


def stabilized(model, accumulate=None):
    """A copy of a Keras model in which every convolution is prefix-stable, with the same weights.

    Other layers stay as they are: dense layers and normalisations over positions may still depend
    on the length.
    """

    def replaced(layer):
        kind = KINDS.get(type(layer))
        made = (kind or type(layer)).from_config(layer.get_config())
        if kind:
            made.accumulate = accumulate
        return made

    made = keras.models.clone_model(model, clone_function=replaced)
    made.set_weights(model.get_weights())
    return made

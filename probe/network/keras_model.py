"""Reads Keras models that are a chain: Sequential and functional ones, channels last.

Layers that do nothing outside of training (Dropout, noise, regularisation) are left out. Models
inside models are read through. Classes that are not Keras' own end the chain, whatever their name.
BatchNormalization is written as ``scale`` and ``shift``, taken together in float64: Keras computes
it in several roundings, which the whole model shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from probe import trust
from probe.activations import ACTIVATIONS
from probe.errors import InputError
from probe.network import reading
from probe.network.chain import Network, Suffix
from probe.network.description import Writer
from probe.network.reading import BRANCHED, Progress, Stop, chain, other_dtype, unreadable
from probe.progress import without_stderr
from probe.trust import missing

CUSTOM_FUNCTION = "is a custom function, so what it computes is unknown"
TRAINS = "is called with training=True, so it computes something different from inference"
IDLE = (
    *("InputLayer", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"),
    *("GaussianNoise", "GaussianDropout", "AlphaDropout", "ActivityRegularization", "Identity"),
)
ENDLESS = {
    "RNN": reading.STEPS,
    "LSTM": reading.STEPS,
    "GRU": reading.STEPS,
    "SimpleRNN": reading.STEPS,
    "Bidirectional": reading.STEPS,
    "ConvLSTM1D": reading.STEPS,
    "Attention": reading.PAIRS,
    "AdditiveAttention": reading.PAIRS,
    "MultiHeadAttention": reading.PAIRS,
    "GroupQueryAttention": reading.PAIRS,
    "Flatten": reading.WHOLE,
    "Reshape": reading.UNKNOWN,
}
CONVOLUTIONS = {
    "Conv1D": "conv1d",
    "Conv2D": "conv2d",
    "Conv3D": "conv3d",
    "DepthwiseConv2D": "depthwise_conv2d",
}
POOLS = {
    "MaxPooling1D": "max_pool1d",
    "MaxPooling2D": "max_pool2d",
    "AveragePooling1D": "avg_pool1d",
    "AveragePooling2D": "avg_pool2d",
}
ACTIVATION_LAYERS = {
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "ELU": "elu",
    "Softmax": "softmax",
}


def from_file(path: Path, height: tuple[int, ...] | None, trusted: bool) -> Network:
    """Returns the chain of a ``.keras`` or ``.h5`` file. InputError where Keras can't read it.

    Without ``trusted`` classes that are not Keras' own are refused before Keras sees the file.
    """
    with without_stderr():
        named = trust.check_keras(path, trusted)
    try:
        with without_stderr():
            import keras
    except ImportError:
        raise missing("keras") from None
    try:
        with without_stderr():
            own = trust.imported(named)
            more = {"compile": False, "custom_objects": own, "safe_mode": not trusted}
            model = keras.models.load_model(path, **more)
    except Exception as error:
        advice = trust.IN_PYTHON if named else "save the model again"
        raise unreadable(path, error, advice) from None
    return from_object(model, height).with_(name=path.name)


def from_object(model: Any, height: tuple[int, ...] | None) -> Network:
    """Returns the chain of a Keras 3 model that has been built."""
    shape = _input_shape(model)
    rank = len(shape) - 2
    if rank not in (1, 2, 3) or shape[-1] is None:
        why = "it takes no input of shape (batch, positions, channels), or of more axes"
        raise InputError("network", model.name, why, "build it with one, channels last")
    writer, progress = Writer(rank, int(shape[-1]), _dtype(model)), Progress(_count(model))
    suffix: Suffix | None = None
    try:
        for layer in _chain(model):
            _write(writer, layer)
            progress.reached(writer)
    except Stop as stop:
        suffix = stop.suffix
    return chain(writer, shape[1:-1], height, model.name, suffix, progress)


def _input_shape(model: Any) -> tuple[int | None, ...]:
    """(batch, *spatial, channels); None where open."""
    try:
        shape = model.input_shape
    except AttributeError:
        why = "it has not been built, so its input is not known"
        raise InputError("network", model.name, why, "give it an Input, or call it once") from None
    if isinstance(shape, dict | list):
        why = f"it has {len(shape)} inputs"
        raise InputError("network", model.name, why, BRANCHED)
    return tuple(shape)


def _dtype(layer: Any) -> str:
    """What a layer computes in, a model as its first layer: its variables may have another one."""
    for inner in getattr(layer, "layers", ()):
        if type(inner).__name__ not in IDLE:
            return _dtype(inner)
    return str(getattr(layer, "compute_dtype", None) or "float32")


def _chain(model: Any) -> Iterator[Any]:
    """Yields the layers in the order of the data.
    Stop where one is not fed by its predecessor alone."""
    import keras

    _check_own(model)
    before = None
    for layer in _operations(model):
        if type(layer).__name__ == "InputLayer":
            before = layer
            continue
        if not isinstance(model, keras.Sequential):
            _check_fed(layer, before)
        before = layer
        if isinstance(layer, keras.Model):
            yield from _chain(layer)
        elif isinstance(layer, keras.Layer):
            yield layer
        else:  # as of x * 2 or keras.ops
            raise Stop(layer.name, type(layer).__name__, reading.UNKNOWN)
    _check_outputs(model)


def _operations(model: Any) -> list[Any]:
    """What ``model.summary()`` lists: layers, and in a functional model the operations between and
    behind them, such as ``x * 2`` and those of ``keras.ops``, of which ``model.layers`` is silent.
    """
    import keras

    functional = isinstance(model, keras.src.models.functional.Functional)
    return list(model.operations if functional else model.layers)


def _count(model: Any) -> int:
    """All layers of ``model.summary()``, those of models inside it one by one; no InputLayer."""
    import keras

    return sum(
        _count(layer) if isinstance(layer, keras.Model) else type(layer).__name__ != "InputLayer"
        for layer in _operations(model)
    )


def _check_own(layer: Any) -> None:
    """Stop at a class that is not Keras' own: its name says nothing of what it computes."""
    if type(layer).__module__.split(".")[0] != "keras":
        raise Stop(layer.name, type(layer).__name__, reading.CUSTOM)


def _check_outputs(model: Any) -> None:
    """Stop where a functional model gives more than what its last layer does."""
    outputs = list(getattr(model, "outputs", None) or ())
    if len(outputs) > 1:
        last = _operations(model)[-1]
        others = [one._keras_history.operation for one in outputs]
        name = next((one.name for one in others if one is not last), last.name)
        raise Stop(name, "output", reading.OUTPUTS, reading.BRANCHED)


def _check_fed(layer: Any, before: Any) -> None:
    """Stop where a layer of a functional model takes more or other than what is before it."""
    nodes = layer._inbound_nodes
    feeding = [
        tensor._keras_history.operation for tensor in (nodes[0].input_tensors if nodes else [])
    ]
    if len(nodes) != 1 or feeding != [before]:
        why = reading.FORKS if len(nodes) == len(feeding) == 1 else reading.JOINS
        _check_own(layer)
        raise Stop(layer.name, type(layer).__name__, why)
    if nodes[0].arguments.kwargs.get("training"):
        raise Stop(layer.name, type(layer).__name__, TRAINS)


def _write(writer: Writer, layer: Any) -> None:
    kind, name = type(layer).__name__, layer.name
    _check_own(layer)
    if kind in IDLE:
        return
    if (dtype := _dtype(layer)) != writer.dtype:
        raise Stop(name, kind, other_dtype(dtype, writer.dtype))
    if getattr(layer, "data_format", "channels_last") != "channels_last":
        raise Stop(name, kind, "has its channels first; build it with channels_last")
    if kind in CONVOLUTIONS:
        _convolution(writer, layer, CONVOLUTIONS[kind])
    elif kind in POOLS:
        words = {"kernel": layer.pool_size, "stride": layer.strides, "padding": layer.padding}
        writer.add(POOLS[kind], name, **words)
    elif kind == "Dense":
        writer.add("dense", name, filters=layer.units, **_arrays(layer))
    elif kind == "BatchNormalization":
        _normalisation(writer, layer)
    elif kind.startswith("ZeroPadding"):
        pairs = [tuple(pair) for pair in np.reshape(layer.padding, (-1, 2)).tolist()]
        writer.add("pad", name, padding=pairs)
    elif kind == "Rescaling":
        ones = np.ones(writer.channels)
        scale, shift = ones * np.asarray(layer.scale), ones * np.asarray(layer.offset)
        writer.add("normalisation", name, scale=scale, shift=shift)
    elif kind in ACTIVATION_LAYERS:
        _activation_layer(writer, layer, kind)
    elif kind != "Activation":
        whole = reading.WHOLE if kind.startswith("Global") else reading.UNKNOWN
        raise Stop(name, kind, ENDLESS.get(kind, whole))
    _activation(writer, layer)


def _convolution(writer: Writer, layer: Any, op: str) -> None:
    if layer.padding not in ("valid", "same"):
        if layer.padding != "causal":
            raise Stop(layer.name, op, f"padding={layer.padding} is not supported")
        before = (layer.kernel_size[0] - 1) * layer.dilation_rate[0]
        writer.add("pad", f"{layer.name}/causal", padding=[(before, 0)])
    words: dict[str, Any] = {
        "kernel": layer.kernel_size,
        "stride": layer.strides,
        "dilation": layer.dilation_rate,
        "padding": "valid" if layer.padding == "causal" else layer.padding,
    }
    if op == "depthwise_conv2d":
        words["filters"] = writer.channels * layer.depth_multiplier
    else:
        words |= {"filters": layer.filters, "groups": layer.groups}
    writer.add(op, layer.name, **words, **_arrays(layer))


def _arrays(layer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"weights": layer.kernel.numpy()}
    return found | ({"bias": layer.bias.numpy()} if layer.use_bias else {})


def _normalisation(writer: Writer, layer: Any) -> None:
    if layer.axis not in (-1, writer.rank + 1):
        raise Stop(layer.name, "BatchNormalization", "is not over the channels")

    def numbers(name: str, default: float) -> np.ndarray:
        value = getattr(layer, name, None)
        array = default if value is None else value.numpy()
        return np.asarray(array, np.float64) * np.ones(writer.channels)

    variance, mean = numbers("moving_variance", 1.0), numbers("moving_mean", 0.0)
    scale = numbers("gamma", 1.0) / np.sqrt(variance + layer.epsilon)
    shift = numbers("beta", 0.0) - mean * scale
    writer.add("normalisation", layer.name, scale=scale, shift=shift)


def _activation_layer(writer: Writer, layer: Any, kind: str) -> None:
    parameters: dict[str, float] = {}
    named = ACTIVATION_LAYERS[kind]
    if kind == "ReLU":
        limit = layer.max_value
        plain = not layer.negative_slope and not layer.threshold
        if not plain or limit not in (None, 6):
            raise Stop(layer.name, kind, "has a slope, a threshold or a limit other than 6")
        named = "relu6" if limit else "relu"
    elif kind in ("LeakyReLU", "ELU"):
        value = layer.negative_slope if kind == "LeakyReLU" else layer.alpha
        parameters = {"alpha": float(value)}
    elif layer.axis not in (-1, writer.rank + 1):
        raise Stop(layer.name, kind, reading.WHOLE)
    writer.add("activation", layer.name, activation=named, parameters=parameters)


def _activation(writer: Writer, layer: Any) -> None:
    """Writes the activation that a layer has of its own."""
    function = getattr(layer, "activation", None)
    named = getattr(function, "__name__", None)
    if function is None or named == "linear" or type(layer).__name__ in ACTIVATION_LAYERS:
        return
    own = str(getattr(function, "__module__", "")).partition(".")[0] == "keras"
    if named not in ACTIVATIONS or not own:
        alone = type(layer).__name__ == "Activation"
        name = layer.name if alone else f"{layer.name}/{named}"
        raise Stop(name, str(named), reading.UNKNOWN if own else CUSTOM_FUNCTION)
    name = layer.name if type(layer).__name__ == "Activation" else f"{layer.name}/{named}"
    parameters = {"alpha": 0.2} if named == "leaky_relu" else {}
    writer.add("activation", name, activation=named, parameters=parameters)

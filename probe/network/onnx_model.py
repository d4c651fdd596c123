"""Reads ONNX models whose nodes are a chain with constant weights.

Convolutions and pools have channels first. Transpositions, as converters put around them and around
matrix products, only say where the channels are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probe.activations import ACTIVATIONS
from probe.arguments import by
from probe.errors import InputError
from probe.network import reading
from probe.network.chain import Network
from probe.network.description import Writer
from probe.network.reading import BRANCHED, Progress, Stop, chain, unreadable
from probe.trust import missing

ENDLESS = {
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "Flatten", "ReduceMean"), reading.WHOLE),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), reading.STEPS),
    "Attention": reading.PAIRS,
}
SINGLE = {
    row.onnx[0].kind: name
    for name, row in ACTIVATIONS.items()
    if len(row.onnx) == 1 and not row.onnx[0].given and set(row.onnx[0].attributes) <= {"alpha"}
}
"""Activations that are one node, whatever its attributes."""

IDLE = ("Identity", "Dropout")
WINDOWED = ("Conv", "MaxPool", "AveragePool", "BatchNormalization")
SPELLED = {name: row.onnx for name, row in ACTIVATIONS.items() if len(row.onnx) > 1}
"""Activations that exporters write as several nodes, each of the one before it and of nothing else,
a number, or what the activation is of (``x``)."""


def from_file(path: Path, height: tuple[int, ...] | None, trust: bool) -> Network:
    """Returns the chain of an ``.onnx`` file, which runs no code.
    InputError where it can't be read."""
    try:
        import onnx
    except ImportError:
        raise missing("onnx") from None
    try:
        model = onnx.load(path)
    except Exception as error:
        raise unreadable(path, error) from None
    return from_object(model, height).with_(name=path.name)


def from_object(model: Any, height: tuple[int, ...] | None) -> Network:
    """Returns the chain of an ``onnx.ModelProto``."""
    from onnx import numpy_helper

    graph = model.graph
    constants = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    given = [one for one in graph.input if one.name not in constants]
    name = graph.name or "onnx"
    if len(given) != 1:
        raise InputError("network", name, f"it has {len(given)} inputs", BRANCHED)
    shape = [one.dim_value or None for one in given[0].type.tensor_type.shape.dim]
    rank = len(shape) - 2
    nodes = [node for node in graph.node if not _is_constant(node, constants)]
    last = _starts_last(nodes, rank)
    channels = shape[-1 if last else 1] if rank in (1, 2, 3) else None
    if channels is None:
        why = "its input is not of shape (batch, channels, positions), or with more axes"
        raise InputError(
            "network", name, why, "export it with this shape and a fixed number of channels"
        )
    writer, suffix, progress = Writer(rank, channels), None, Progress(len(nodes))
    try:
        _Walk(writer, constants, last, progress, _opset(model)).through(nodes, given[0].name, graph)
    except Stop as stop:
        suffix = stop.suffix
    spatial = tuple(shape[1:-1] if last else shape[2:])
    return chain(writer, spatial, height, name, suffix, progress)


def _opset(model: Any) -> int:
    """Returns the version of ONNX's own operators that a model is written in."""
    return max(
        (one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=1
    )


def _starts_last(nodes: list[Any], rank: int) -> bool:
    """Returns whether the input's channels are last, by the first nodes that tell."""
    turns = 0
    for node in nodes:
        if node.op_type == "Transpose":
            if rank > 1:
                return _moves(node, rank) == "first"
            turns += 1  # with one spatial axis it says the same both ways
        elif node.op_type in WINDOWED:
            return turns % 2 == 1
        elif node.op_type == "MatMul":
            return turns % 2 == 0
    return False


def _moves(node: Any, rank: int) -> str:
    """Where a Transpose puts the channels: ``first`` or ``last``; empty for any other node."""
    from onnx import helper

    if node.op_type != "Transpose":
        return ""
    words = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    spatial = list(range(1, rank + 1))
    ways = {"first": [0, rank + 1, *spatial], "last": [0, *(n + 1 for n in spatial), 1]}
    return next((name for name, way in ways.items() if words.get("perm") == way), "")


class _Walk:
    """Writes nodes from the input on. ``last``: whether channels are last there, not first."""

    def __init__(
        self,
        writer: Writer,
        constants: dict[str, np.ndarray],
        last: bool,
        progress: Progress,
        opset: int,
    ) -> None:
        self.writer, self.constants, self.last = writer, constants, last
        self.progress, self.opset = progress, opset

    def through(self, nodes: list[Any], value: str, graph: Any) -> None:
        """All nodes; ``value``: the input's name. Raises Stop."""
        from onnx import helper

        while nodes:
            before, node = len(nodes), nodes.pop(0)
            name = node.name or node.output[0]
            if spelled := _spelled([node, *nodes], value, self.constants):
                self.writer.add("activation", name, activation=spelled)
                rest = len(SPELLED[spelled]) - 1
                value, nodes = nodes[rest - 1].output[0], nodes[rest:]
                self.progress.reached(self.writer, rest + 1)
                continue
            words = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            at, arrays = self._given(node, value, name)
            value = node.output[0]
            scale = (
                self._per_channel(arrays[1 - at])
                if node.op_type == "Mul" and _is_standard(node)
                else None
            )
            if scale is not None:
                shift = np.zeros_like(scale)
                if nodes and nodes[0].op_type == "Add" and value in nodes[0].input:
                    at, arrays = self._given(nodes[0], value, name)
                    added = self._per_channel(arrays[1 - at])
                    if added is not None:
                        shift, value = added, nodes.pop(0).output[0]
                self.writer.add("normalisation", name, scale=scale, shift=shift)
            else:
                self._write(node, name, words, arrays, at)
            self.progress.reached(self.writer, before - len(nodes))
        for output in graph.output:
            if output.name != value:
                raise Stop(output.name, "output", reading.OUTPUTS, reading.BRANCHED)

    def _given(self, node: Any, value: str, name: str) -> tuple[int, list[np.ndarray | None]]:
        """Returns which input the chain's value is, and the arrays of the others. Raises Stop."""
        given = list(node.input)
        if given.count(value) != 1 or any(
            one and one not in self.constants for one in set(given) - {value}
        ):
            raise Stop(name, node.op_type, reading.JOINS if value in given else reading.FORKS)
        return given.index(value), [self.constants.get(one) for one in given]

    def _write(
        self, node: Any, name: str, words: dict[str, Any], arrays: list[Any], at: int
    ) -> None:
        writer, kind = self.writer, node.op_type
        if not _is_standard(node):
            raise Stop(name, f"{node.domain}.{kind}", reading.CUSTOM)
        if kind in IDLE and not _trains(words, arrays):
            return
        if kind == "Transpose":
            self._transpose(node, name)
        elif kind == "Pad" and words.get("mode", b"constant") == b"constant":
            self._pad(name, words, arrays)
        elif kind == "MatMul" and at == 0 and self._is_dense(arrays[1]):
            writer.dtype = str(arrays[1].dtype)
            writer.add("dense", name, filters=arrays[1].shape[1], weights=arrays[1][None])
        elif kind == "Add" and (bias := self._per_channel(arrays[1 - at])) is not None:
            writer.add("bias", name, bias=bias)
        elif kind == "Clip" and _clips(arrays, words) == (0, 6):
            writer.add("activation", name, activation="relu6")
        elif kind == "Softmax" and self._over_channels(words):
            writer.add("activation", name, activation="softmax")
        elif kind == "Gelu" and words.get("approximate", b"none") == b"none":
            writer.add("activation", name, activation="gelu")
        elif kind in SINGLE:
            alpha = {"LeakyRelu": 0.01, "Elu": 1.0}.get(kind)
            parameters = {} if alpha is None else {"alpha": float(words.get("alpha", alpha))}
            writer.add("activation", name, activation=SINGLE[kind], parameters=parameters)
        elif kind in WINDOWED and at == 0 and not self.last and not _trains(words, []):
            self._windowed(kind, name, words, arrays)
        else:
            raise Stop(name, kind, ENDLESS.get(kind, reading.UNKNOWN))

    def _windowed(self, kind: str, name: str, words: dict[str, Any], arrays: list[Any]) -> None:
        """Writes what has channels first by definition."""
        if kind == "Conv":
            _convolution(self.writer, name, words, arrays)
        elif kind == "BatchNormalization":
            gamma, beta, mean, variance = (one.astype(np.float64) for one in arrays[1:5])
            scale = gamma / np.sqrt(variance + words.get("epsilon", 1e-5))
            self.writer.add("normalisation", name, scale=scale, shift=beta - mean * scale)
        else:
            _pool(self.writer, name, kind, words)

    def _over_channels(self, words: dict[str, Any]) -> bool:
        """Returns whether a Softmax is over the channels of each position. Before opset 13 it was
        over all axes from the one given on, and that was the first if none was."""
        early = self.opset < 13
        ends, first = (-1, self.writer.rank + 1), (1, -self.writer.rank - 1)
        axis = words.get("axis", 1 if early else -1)
        return axis in ends if self.last else axis in first and not early

    def _transpose(self, node: Any, name: str) -> None:
        moves = _moves(node, self.writer.rank)
        if not moves or (self.writer.rank > 1 and moves == ("last" if self.last else "first")):
            raise Stop(name, "Transpose", "moves other axes than the channels to their other end")
        self.last = not self.last

    def _pad(self, name: str, words: dict[str, Any], arrays: list[Any]) -> None:
        sizes = words.get("pads") if len(arrays) < 2 else arrays[1]
        if sizes is None or len(sizes) != 2 * (self.writer.rank + 2) or min(sizes) < 0:
            raise Stop(name, "Pad", "has sizes that are unknown before it runs, or crops")
        pairs = list(zip(sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :], strict=True))
        spatial = pairs[1:-1] if self.last else pairs[2:]
        if sum(map(sum, pairs)) != sum(map(sum, spatial)):
            raise Stop(name, "Pad", "pads the batch or the channels")
        value = arrays[2] if len(arrays) > 2 and arrays[2] is not None else words.get("value", 0.0)
        padding = [(int(before), int(after)) for before, after in spatial]
        self.writer.add(
            "pad", name, padding=padding, parameters={"value": float(np.ravel(value)[0])}
        )

    def _is_dense(self, array: np.ndarray | None) -> bool:
        """Returns whether a product with the array is one over the channels of every position."""
        shape = None if array is None else array.shape
        return self.last and shape is not None and shape[:-1] == (self.writer.channels,)

    def _per_channel(self, array: np.ndarray | None) -> np.ndarray | None:
        """Returns numbers of a channel each, if that is what the array adds, or multiplies by."""
        channels, rank = self.writer.channels, self.writer.rank
        if array is None or array.size not in (1, channels):
            return None
        one = (channels,) if self.last else (channels, *(1,) * rank)
        shape = array.shape
        while len(shape) > len(one) and shape[0] == 1:
            shape = shape[1:]
        if array.size == 1 or shape == one:
            flat: np.ndarray = array.reshape(-1) * np.ones(channels, array.dtype)
            return flat
        return None


def _is_standard(node: Any) -> bool:
    """Returns whether a node's name means what ONNX says: other domains have names of their own."""
    return node.domain in ("", "ai.onnx") or (node.domain, node.op_type) == (
        "com.microsoft",
        "Gelu",
    )


def _trains(words: dict[str, Any], arrays: list[Any]) -> bool:
    """Whether a Dropout or a BatchNormalization is in its training mode, and so does something."""
    held = arrays[2] if len(arrays) > 2 else None
    return bool(words.get("training_mode", 0)) or (held is not None and bool(np.any(held)))


def _is_constant(node: Any, constants: dict[str, np.ndarray]) -> bool:
    """Whether a node gives an array that the model holds, which is then one of ``constants``."""
    from onnx import helper, numpy_helper

    if node.op_type == "Constant":
        attribute = helper.get_attribute_value(node.attribute[0])
        constants[node.output[0]] = numpy_helper.to_array(attribute)
    elif node.op_type == "Identity" and node.input[0] in constants:
        constants[node.output[0]] = constants[node.input[0]]
    return node.output[0] in constants


def _spelled(nodes: list[Any], value: str, constants: dict[str, np.ndarray]) -> str | None:
    """Returns the activation of ``value`` that the first nodes are, if they are one of several."""
    for name, steps in SPELLED.items():
        if len(nodes) < len(steps):
            continue
        before = [value, *(node.output[0] for node in nodes)]
        if all(
            (node.op_type, _is_standard(node)) == (step.kind, True)
            and _takes(node, one, step.given, value, constants)
            for node, one, step in zip(nodes, before, steps, strict=False)
        ):
            return name
    return None


def _takes(
    node: Any, before: str, other: tuple[Any, ...], x: str, constants: dict[str, Any]
) -> bool:
    """Returns whether a node takes ``before`` and beside it a number, ``x``, or nothing."""
    given = list(node.input)
    if before not in given or (node.op_type == "Div" and given[0] != before):
        return False
    given.remove(before)
    if other in ((), ("x",)):
        return given == [x for _ in other]
    held = constants.get(given[0]) if len(given) == 1 else None
    return held is not None and held.size == 1 and bool(np.isclose(held, other).all())


def _clips(arrays: list[Any], words: dict[str, Any]) -> tuple[float, ...]:
    found = [float(one) for one in arrays[1:3] if one is not None]
    return tuple(found) or (words.get("min", 0.0), words.get("max", 0.0))


def _padding(words: dict[str, Any], rank: int, name: str) -> Any:
    said = words.get("auto_pad", b"NOTSET")
    said = said.decode() if isinstance(said, bytes) else said
    named = {"SAME_UPPER": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}
    if said in named:
        return named[said]
    pads = words.get("pads", [0] * 2 * rank)
    if min(pads) < 0:
        raise Stop(name, "pads", f"are {by(pads)}: negative ones crop")
    pairs = [(pads[axis], pads[axis + rank]) for axis in range(rank)]
    return pairs if any(pads) else "valid"


def _convolution(writer: Writer, name: str, words: dict[str, Any], arrays: list[Any]) -> None:
    weights = arrays[1]
    given: dict[str, Any] = {
        "kernel": weights.shape[2:],
        "stride": words.get("strides", [1] * writer.rank),
        "dilation": words.get("dilations", [1] * writer.rank),
        "groups": words.get("group", 1),
        "filters": weights.shape[0],
        "padding": _padding(words, writer.rank, name),
        "weights": np.moveaxis(weights, (0, 1), (-1, -2)),
    }
    if len(arrays) > 2 and arrays[2] is not None:
        given["bias"] = arrays[2]
    writer.dtype = str(weights.dtype)
    writer.add(f"conv{writer.rank}d", name, **given)


def _pool(writer: Writer, name: str, kind: str, words: dict[str, Any]) -> None:
    if writer.rank > 2:
        raise Stop(name, kind, "has three spatial axes, and pooling here has up to two")
    ones = [1] * writer.rank
    padding = _padding(words, writer.rank, name)
    counted = kind == "AveragePool" and words.get("count_include_pad", 0) and padding != "valid"
    writer.add(
        f"{kind[:3].lower()}_pool{writer.rank}d"
        if kind == "MaxPool"
        else f"avg_pool{writer.rank}d",
        name,
        kernel=words["kernel_shape"],
        stride=words.get("strides", ones),
        dilation=words.get("dilations", ones),
        padding=padding,
        ceil_mode=bool(words.get("ceil_mode", 0)),
        pad_with="zeros" if counted else "nothing",
    )

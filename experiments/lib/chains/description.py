"""Reads and writes networks as plain JSON.

``{"rank": 2, "height": [1], "in_channels": 1, "fixed": 4096, "seed": 0, "layers": [{"op":
"conv2d", "kernel": "1x5", "filters": 16, "bias": true}, {"op": "max_pool2d", "kernel": "1x2",
"stride": "1x2"}, {"op": "activation", "activation": "relu"}]}``. The words are a case's. Weights
that are not given are drawn from ``seed``, normal, with a variance of 2 / products (He and others,
"Delving Deep into Rectifiers", 2015), so that activations keep their size.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lib.chains.chain import Layer, Network, check_dtype
from probe import arguments
from probe.activations import ACTIVATIONS
from probe.arguments import by, choice, count, flag, sizes
from probe.errors import InputError
from probe.geometry import Padding
from probe.operands import normal
from probe.operation import OF_NETWORKS, OPERATIONS

KEYS = (*("rank", "height", "dtype", "name", "fixed", "in_channels", "seed", "layers", "turned"),)
WORDS = (
    *("name", "op", "kernel", "stride", "dilation", "padding", "groups", "filters", "ceil_mode"),
    *("pad_with", "activation", "parameters", "weights", "bias", "scale", "shift"),
)
DRAWN = ("weights", "bias", "scale", "shift")
SPREAD = 0.1
"""Standard deviation of generated biases and shifts, and of generated scales around 1."""


def from_json(source: str | Mapping[str, Any], height: tuple[int, ...] | None = None) -> Network:
    """Returns the network of a description or its text.
    Unknown words and misfits are an InputError."""
    try:
        given = json.loads(source) if isinstance(source, str) else dict(source)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON ({error})"
        raise InputError("network", repr(source)[:40], why, "fix it") from None
    if not isinstance(given, dict) or not isinstance(given.get("layers"), list):
        why = "it has no list of layers"
        raise InputError("network", repr(given)[:40], why, 'write {"layers": [{"op": ...}]}')
    _refuse("network", given, KEYS)
    rank = count("rank", given.get("rank", 1))
    writer = Writer(
        rank,
        count("in_channels", given.get("in_channels", 1)),
        str(given.get("dtype", "float32")),
        count("seed", given.get("seed", 0), least=0),
    )
    for words in given["layers"]:
        if not isinstance(words, Mapping) or "op" not in words:
            raise InputError("layer", repr(words)[:40], "it has no op", 'write {"op": "conv1d"}')
        _refuse("layer", words, WORDS)
        writer.add(**words)
    own = given.get("height", [1] * (rank - 1))
    fixed = given.get("fixed")
    return Network(
        tuple(writer.layers),
        rank,
        height or sizes("height", own, rank - 1) if rank > 1 else (),
        writer.dtype,
        str(given.get("name", "network")),
        None if fixed is None else count("fixed", fixed),
        swapped=_swapped(flag("turned", given.get("turned", False)), rank),
    )


def _swapped(given: bool, rank: int) -> bool:
    if given and rank != 2:
        why = f"the network has {rank} spatial axes, and two change places"
        raise InputError("turned", given, why, "leave it out")
    return given


def _refuse(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name, value in given.items():
        if name not in known:
            why = f"a {what} has no such word"
            raise InputError(str(name), str(value)[:40], why, f"use {', '.join(known)}")


class Writer:
    """Writes a chain layer by layer, in the words of a description; readers use it too."""

    def __init__(self, rank: int, in_channels: int, dtype: str = "float32", seed: int = 0) -> None:
        self.rank, self.channels, self.seed = rank, in_channels, seed
        self.dtype = check_dtype(dtype)
        self.layers: list[Layer] = []

    def add(self, op: str, name: str | None = None, **words: Any) -> None:
        """Adds a layer. Missing weights are drawn. Raises InputError."""
        choice("op", op, OF_NETWORKS)
        name = name or f"{op}_{sum(layer.op == op for layer in self.layers) + 1}"
        try:
            layer = self._made(op, str(name), words)
        except InputError as error:
            todo = f"{error.todo} (layer {name})".strip()
            raise InputError(error.name, error.value, error.why, todo) from None
        self.layers.append(layer)
        self.channels = layer.filters

    def _made(self, op: str, name: str, words: dict[str, Any]) -> Layer:
        if OPERATIONS[op].windows:
            return self._windowed(op, name, words)
        if op == "dense":
            filters = count("filters", words.get("filters", self.channels))
            found = Layer(name, op, self.channels, filters)
            return self._weighted(found, (1, self.channels, filters), words)
        if op == "pad":
            pairs = arguments.padding(words.get("padding", 0), self.rank)
            if isinstance(pairs, str):
                raise InputError("padding", pairs, "pad must be numbers", "write N or L:R an axis")
            numbers = dict(words.get("parameters", {}))
            return Layer(name, op, self.channels, self.channels, padding=pairs, parameters=numbers)
        return self._elementwise(op, name, words)

    def _windowed(self, op: str, name: str, words: dict[str, Any]) -> Layer:
        what = OPERATIONS[op]
        if what.spatial_rank != self.rank:
            why = f"it has {what.spatial_rank} spatial axes, and the network has {self.rank}"
            raise InputError("op", op, why, f"use one of {self.rank} axes")
        kernel = sizes("kernel", words.get("kernel", 1), self.rank)
        steps = words.get("stride", kernel if what.pool else 1)
        filters = words.get("filters", self.channels if what.depthwise else 1)
        found = Layer(
            name,
            op,
            self.channels,
            self.channels if what.pool else count("filters", filters),
            kernel,
            sizes("stride", steps, self.rank),
            sizes("dilation", words.get("dilation", 1), self.rank),
            _padding(words.get("padding", "valid"), self.rank),
            self.channels if what.depthwise else count("groups", words.get("groups", 1)),
            flag("ceil_mode", words.get("ceil_mode", False)),
            str(words.get("pad_with", "nothing")),
        )
        found.case(found.windows.extents, self.dtype)  # raises InputError for misfits
        if what.pool:
            return found
        shape = (*kernel, self.channels // found.groups, found.filters)
        return self._weighted(found, shape, words)

    def _weighted(self, layer: Layer, shape: tuple[int, ...], words: dict[str, Any]) -> Layer:
        products = math.prod(shape[:-1])
        weights = self._array("weights", words.get("weights"), shape, math.sqrt(2 / products))
        bias = words.get("bias", False)
        if bias is None or bias is False:
            return replace(layer, weights=weights)
        given = None if bias is True else bias
        return replace(
            layer, weights=weights, bias=self._array("bias", given, (layer.filters,), SPREAD)
        )

    def _elementwise(self, op: str, name: str, words: dict[str, Any]) -> Layer:
        numbers = {key: float(value) for key, value in words.get("parameters", {}).items()}
        found = Layer(name, op, self.channels, self.channels, parameters=numbers)
        shape = (self.channels,)
        if op == "activation":
            named = choice("activation", words.get("activation"), ACTIVATIONS)
            return replace(found, activation=named)
        if op == "bias":
            given = words.get("bias")
            given = None if given is True else given
            return replace(found, bias=self._array("bias", given, shape, SPREAD))
        return replace(
            found,
            scale=self._array("scale", words.get("scale"), shape, SPREAD, 1.0),
            shift=self._array("shift", words.get("shift"), shape, SPREAD),
        )

    def _array(
        self, name: str, given: Any, shape: tuple[int, ...], spread: float, middle: float = 0.0
    ) -> np.ndarray:
        """Given numbers in the network's dtype, or drawn ones: by seed and the layer's place."""
        if given is None:
            draw = (self.seed << 20) + 4 * len(self.layers) + DRAWN.index(name)
            values = middle + spread * normal(draw, "w", shape)
        else:
            values = np.asarray(given, np.float64)
            if values.size != math.prod(shape):
                why = f"{values.size} numbers for a shape of {by(shape)}"
                raise InputError(name, f"({values.size} numbers)", why, "give all, row by row")
            if not np.isfinite(values).all():
                raise InputError(
                    name, "(numbers)", "some numbers are not finite", "give finite numbers"
                )
        made: np.ndarray = values.reshape(shape).astype(self.dtype)
        return made


def _padding(given: object, rank: int) -> Padding:
    """Returns the padding of a window; no elements on either side is ``valid``."""
    found = arguments.padding(given, rank)
    return found if isinstance(found, str) or any(map(any, found)) else "valid"


NAME = "nine-layers"
FORM = f"{NAME}[:width=16,kernel=5,seed=0,blocks=8,activation=relu,padding=valid,in_channels=1]"
NUMBERS = ("width", "kernel", "seed", "blocks", "in_channels")


def nine_layers(
    width: int = 16,
    kernel: int = 5,
    seed: int = 0,
    blocks: int = 8,
    activation: str = "relu",
    padding: str = "valid",
    in_channels: int = 1,
    fixed: int = 4096,
) -> Network:
    """``blocks`` times conv2d 1 x ``kernel`` and max-pool 1 x 2, then one conv2d; height 1.

    All convolutions have a bias and ``width`` filters, the last one too; weights are drawn from
    ``seed`` (see above). ``activation`` follows every convolution but
    the last; empty or ``none``: no activation, as in the report. ``padding``: of convolutions and
    pools.
    """
    writer = Writer(2, in_channels, seed=seed)
    for number in range(1, blocks + 2):
        words = {"kernel": (1, kernel), "filters": width, "bias": True, "padding": padding}
        writer.add("conv2d", f"conv{number}", **words)
        if number > blocks:
            break
        if activation not in ("", "none"):
            writer.add("activation", f"{activation}{number}", activation=activation)
        writer.add("max_pool2d", f"pool{number}", kernel=(1, 2), stride=(1, 2), padding=padding)
    name = f"nine-layers, width {width}, seed {seed}" if blocks == 8 else f"{blocks + 1} layers"
    return Network(tuple(writer.layers), 2, (1,), name=name, fixed=fixed)


def load(source: str | Mapping[str, Any] | Path) -> Network:
    """Returns the chain of a description, its file, or ``nine-layers``. InputError."""
    if isinstance(source, Mapping):
        return from_json(source)
    if str(source).partition(":")[0] == NAME:
        return parse(str(source))
    return from_json(Path(source).read_text(encoding="utf-8"))


def parse(text: str) -> Network:
    """Returns the network of ``nine-layers:width=32,seed=1``. Raises InputError."""
    given: dict[str, int | str] = {}
    _, _, words = text.partition(":")
    for word in filter(None, words.split(",")):
        found = re.fullmatch(r"(\w+)=(\w+)", word.strip())
        if not found or found[1] not in (*NUMBERS, "activation", "padding"):
            raise InputError(
                "network", text, f"{word!r} is not a part of this name", f"write {FORM}"
            )
        name, value = found[1], found[2]
        least = 0 if name in ("seed", "blocks") else 1
        given[name] = count(name, value, least) if name in NUMBERS else value
    return nine_layers(**given)  # type: ignore[arg-type]

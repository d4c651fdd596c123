"""Runs a network on a target, layer by layer and end to end.

The length is the last axis everywhere here. Where the model's long axis is its first spatial one,
what is sent says so (``turned``, in JSON and in specs), and the worker gives the library its own
axes (:mod:`probe.backends.rewritten`). What users are given, a script or a report, has the model's
axes: :class:`Axes`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from lib.chains.chain import Network
from probe import operation
from probe.invariant.mitigated_cases import Changed
from probe.launch import AnySession
from probe.layout import CONTIGUOUS
from probe.operands import normal

_KEYS = itertools.count()


@dataclass
class Run:
    """Activations of the input and behind every layer: container (1, *spatial, channels).

    ``seconds`` of each layer's call; ``controls``: ``equal``, ``differs`` or ``alignment differs``
    for layers that were run again, else empty.
    """

    activations: list[np.ndarray]
    seconds: list[float] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)

    @property
    def output(self) -> np.ndarray:
        """Returns what comes out behind the last layer."""
        return self.activations[-1]

    @property
    def steady(self) -> bool:
        """Returns whether every layer gave the same bits again."""
        return all(control in ("", "equal") for control in self.controls)


class Runner:
    """A network whose weights are kept by a started session. Errors: TargetError.

    ``no_program``: why the last ``end_to_end`` had no call of the library to make; else empty.
    """

    def __init__(self, session: AnySession, network: Network) -> None:
        self.session, self.network = session_for(session, network.swapped), network
        self.key = f"network-{next(_KEYS)}"
        self._process: object = None
        self.no_program = ""

    def _ask(self, header: dict[str, Any], x: np.ndarray) -> tuple[dict[str, Any], Any]:
        """Sends a request about the network, and the network before the first one of a process."""
        process = getattr(self.session, "pid", 0)
        if self._process != process or process is None:
            self.session.revive()
            specs = [layer.spec(self.network.dtype) for layer in self.network.layers]
            arrays = {
                f"{number}.{name}": array
                for number, layer in enumerate(self.network.layers)
                for name, array in layer.operands(self.network.dtype).items()
            }
            self.session.request({"do": "network", "key": self.key, "specs": specs}, arrays)
            self._process = getattr(self.session, "pid", 0)
        return self.session.request({"key": self.key} | header, {"x": x})

    def run(self, x: np.ndarray, control: bool = False) -> Run:
        """Runs every layer as a call of its own, fed with the activations before it.

        ``x``: (1, *spatial, in_channels) in the network's dtype. ``control``: every convolution,
        pool and product is run again at the same shape and from another alignment.
        """
        header, found = self._ask({"do": "through", "control": control}, x)
        outputs = [found[f"y{number}"] for number in range(len(self.network.layers))]
        return Run([x, *outputs], header["seconds"], header["controls"])

    def output(self, x: np.ndarray) -> np.ndarray:
        """Runs the network layer by layer and returns what comes out behind the last one."""
        _, found = self._ask({"do": "through", "only_last": True}, x)
        output: np.ndarray = found["y0"]
        return output

    def layer(self, number: int, x: np.ndarray, word: str = CONTIGUOUS) -> np.ndarray:
        """Runs one layer on the caller's activations, laid out as ``word`` says."""
        header = {"do": "through", "first": number, "last": number + 1, "layout": word}
        _, found = self._ask(header, x)
        output: np.ndarray = found["y0"]
        return output

    def lying(self, x: np.ndarray, word: str) -> list[str]:
        """Returns how what each layer reads lies in memory where x lies as ``word`` says.

        Words of :mod:`probe.layout`, or ``other``. Layers other than windows are taken to keep it.
        """
        header, _ = self._ask({"do": "through", "only_last": True, "layout": word}, x)
        found: list[str] = header["layouts"]
        return found

    def as_used(self, x: np.ndarray, word: str = CONTIGUOUS) -> np.ndarray:
        """Computes what users get: all layers in one call, or one by one where none does that."""
        output, _ = self.end_to_end(x, word=word)
        return self.output(x) if output is None else output

    def end_to_end(
        self, x: np.ndarray, times: int = 1, word: str = CONTIGUOUS
    ) -> tuple[np.ndarray | None, list[float]]:
        """Runs all layers in one call of the library: (output, seconds of each of ``times`` calls).

        (None, []) where there is no such call: only ``run`` tells then, and ``no_program`` why.
        ``word``: how x lies in memory.
        """
        header, found = self._ask({"do": "whole", "times": times, "layout": word}, x)
        self.no_program = header["why"]
        return (found["y"], header["seconds"]) if "y" in found else (None, [])


def content(network: Network, length: int, seed: int = 0) -> np.ndarray:
    """Returns content of that many positions, normal: (1, *height, length, in_channels).

    Shorter content of the same seed is the prefix of longer content.
    """
    drawn = normal(seed, "x", network.input_shape(length))
    return drawn.astype(network.dtype)


def padded(x: np.ndarray, length: int, value: float = 0.0) -> np.ndarray:
    """Returns content with positions of ``value`` behind it, up to ``length``."""
    missing = length - x.shape[-2]
    pairs = [(0, 0)] * (x.ndim - 2) + [(0, missing), (0, 0)]
    return np.pad(x, pairs, constant_values=value)


Block = tuple[slice, ...]


class Swapped(Changed):
    """A session with ``turned`` in every spec, products aside."""

    def changed(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the spec with ``turned``, unless it is a product's.

        Rows of a product have no axes; where they would (a height), no network is swapped.
        """
        product = operation.of(spec).kind == "product"
        return dict(spec) if product else {**spec, "turned": True}


def session_for(session: AnySession, swapped: bool) -> AnySession:
    """Returns the session as a network needs it."""
    if not swapped or isinstance(session, Swapped):
        return session
    return cast("AnySession", Swapped(session))


class Axes:
    """A network's layers, sizes and activations in the axes that its model has."""

    def __init__(self, network: Network) -> None:
        self.network, self.swapped = network, network.swapped
        own = network.layers
        self.layers = tuple(layer.swapped() for layer in own) if self.swapped else own
        self.length = -3 if self.swapped else -2

    def sizes(self, length: int) -> list[tuple[int, ...]]:
        """Returns ``Network.sizes``."""
        found = self.network.sizes(length)
        return [size[::-1] for size in found] if self.swapped else found

    def activations(self, x: np.ndarray) -> np.ndarray:
        """Returns (1, *spatial, channels) of the network as its model has them."""
        return np.ascontiguousarray(np.swapaxes(x, 1, 2)) if self.swapped else x

    def block(self, part: Block) -> Block:
        """Returns the part of the model's activations that a part of the network's is."""
        return (part[0], part[2], part[1], *part[3:]) if self.swapped else part

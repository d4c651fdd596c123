"""A session for networks whose long axis is the first spatial one of their model.

The length is the last axis everywhere here; what is sent for such a network says so, and the worker
gives the library its own axes (:mod:`probe.backends.rewritten`). What users are given, a script or
a report, has the model's axes: :class:`Axes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from probe.backends import rewritten as library
from probe.launch import Answer, AnySession, Arrays
from probe.network.chain import Network
from probe.network.layers import Layer

Block = tuple[slice, ...]


class Turned:
    """``session`` with ``turned`` in every spec that it is sent, products aside."""

    def __init__(self, session: AnySession) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def request(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Answer:
        """As ``Session.request``."""
        return self.session.request(_turned(header), arrays)

    def stream(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Iterator[Answer]:
        """As ``Session.stream``."""
        return self.session.stream(_turned(header), arrays)


def _turned(header: Mapping[str, Any]) -> dict[str, Any]:
    asked = dict(header)
    if "spec" in asked:
        asked["spec"] = _spec(asked["spec"])
    if "specs" in asked:
        asked["specs"] = [_spec(spec) for spec in asked["specs"]]
    return asked


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a product have no axes; where they would (a height), no layer is turned."""
    return dict(spec) if spec["op"] == "matmul" else {**spec, "turned": True}


def session_for(session: AnySession, turned: bool) -> AnySession:
    """The session as a network needs it."""
    if not turned or isinstance(session, Turned):
        return session
    return cast(AnySession, Turned(session))


def layer(one: Layer) -> Layer:
    """A layer over (length, height) as one over (height, length)."""
    pads = one.padding if isinstance(one.padding, str) else one.padding[::-1]
    weights = one.weights
    if weights is not None and one.kernel:
        weights = np.ascontiguousarray(np.swapaxes(weights, 0, 1))
    return replace(
        one,
        kernel=one.kernel[::-1],
        stride=one.stride[::-1],
        dilation=one.dilation[::-1],
        padding=pads,
        weights=weights,
    )


class Axes:
    """A network's layers, sizes and activations in the axes that its model has."""

    def __init__(self, network: Network) -> None:
        self.network, self.turned = network, network.turned
        self.layers = tuple(map(layer, network.layers)) if self.turned else network.layers
        self.length = -3 if self.turned else -2

    def sizes(self, length: int) -> list[tuple[int, ...]]:
        """As ``Network.sizes``."""
        found = self.network.sizes(length)
        return [size[::-1] for size in found] if self.turned else found

    def activations(self, x: np.ndarray) -> np.ndarray:
        """(1, *spatial, channels) of the network as its model has them."""
        return np.asarray(library.activations(x)) if self.turned else x

    def block(self, part: Block) -> Block:
        """The part of the model's activations that a part of the network's is."""
        return (part[0], part[2], part[1], *part[3:]) if self.turned else part

"""Networks whose long axis is the first spatial one of their model: the two axes are swapped.

The length is the last axis everywhere here; what is sent for such a network says so (``turned``, in
JSON and in specs), and the worker gives the library its own axes (:mod:`probe.backends.rewritten`).
What users are given, a script or a report, has the model's axes: :class:`Axes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from probe import operation
from probe.launch import Answer, AnySession, Arrays
from probe.network.chain import Network

Block = tuple[slice, ...]


class Swapped:
    """``session`` with ``turned`` in every spec that it is sent, products aside."""

    def __init__(self, session: AnySession) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def request(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Answer:
        """As ``Session.request``."""
        return self.session.request(_swapped(header), arrays)

    def stream(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Iterator[Answer]:
        """As ``Session.stream``."""
        return self.session.stream(_swapped(header), arrays)


def _swapped(header: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(header)
    if "spec" in found:
        found["spec"] = _spec(found["spec"])
    if "specs" in found:
        found["specs"] = [_spec(spec) for spec in found["specs"]]
    return found


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a product have no axes; where they would (a height), no network is swapped."""
    return dict(spec) if operation.of(spec).kind == "product" else {**spec, "turned": True}


def session_for(session: AnySession, swapped: bool) -> AnySession:
    """The session as a network needs it."""
    if not swapped or isinstance(session, Swapped):
        return session
    return cast(AnySession, Swapped(session))


class Axes:
    """A network's layers, sizes and activations in the axes that its model has."""

    def __init__(self, network: Network) -> None:
        self.network, self.swapped = network, network.swapped
        own = network.layers
        self.layers = tuple(layer.swapped() for layer in own) if self.swapped else own
        self.length = -3 if self.swapped else -2

    def sizes(self, length: int) -> list[tuple[int, ...]]:
        """As ``Network.sizes``."""
        found = self.network.sizes(length)
        return [size[::-1] for size in found] if self.swapped else found

    def activations(self, x: np.ndarray) -> np.ndarray:
        """(1, *spatial, channels) of the network as its model has them."""
        return np.ascontiguousarray(np.swapaxes(x, 1, 2)) if self.swapped else x

    def block(self, part: Block) -> Block:
        """The part of the model's activations that a part of the network's is."""
        return (part[0], part[2], part[1], *part[3:]) if self.swapped else part

"""A network as a row of the store."""

from __future__ import annotations

from typing import Any

from probe.network.chain import Network


def network_row(network: Network, fixed: int, source: str | None = None) -> dict[str, Any]:
    """The row of ``networks``: windows at the fixed length, layers without their numbers.

    ``source``: what ``Network.load`` makes it from, where that is known.
    """
    last = network.windows(fixed)[-1]
    arrays = [set(layer.arrays) for layer in network.layers]
    words = network.to_json()
    words["layers"] = [
        {word: value for word, value in told.items() if word not in numbers}
        for told, numbers in zip(words["layers"], arrays, strict=True)
    ]
    return {
        "network_id": network.id,
        "name": network.name,
        "source": source,
        "layers": len(network.layers),
        "dtype": network.dtype,
        "in_channels": network.in_channels,
        "filters": network.filters,
        "field": last.field,
        "jump": last.jump,
        "json": words,
        "examined": network.examined,
        "operations_total": network.operations_total,
        "part": network.part or None,
    }

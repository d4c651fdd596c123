"""The network of the report, ready made: eight convolutions with max-pools, then one more."""

from __future__ import annotations

import re

from probe.arguments import count
from probe.errors import InputError
from probe.network.chain import Network
from probe.network.description import Writer

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
    ``seed`` (see :mod:`probe.network.description`). ``activation`` follows every convolution but
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


def parse(text: str) -> Network:
    """The network of ``nine-layers:width=32,seed=1``. Raises InputError."""
    given: dict[str, int | str] = {}
    _, _, words = text.partition(":")
    for word in filter(None, words.split(",")):
        found = re.fullmatch(r"(\w+)=(\w+)", word.strip())
        if not found or found[1] not in (*NUMBERS, "activation", "padding"):
            raise InputError("network", text, f"{word!r} is not part of it", f"write {FORM}")
        name, value = found[1], found[2]
        least = 0 if name in ("seed", "blocks") else 1
        given[name] = count(name, value, least) if name in NUMBERS else value
    return nine_layers(**given)  # type: ignore[arg-type]

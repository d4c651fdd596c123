"""The report that this project started from, in NumPy alone: two lengths, two orders, one bit.

conv2d 1x5 on 10 * [0, 1, ..., T - 1], VALID, on the processors and releases of TensorFlow up to
1.5.0: outputs are computed in groups of four, added ``(((0+1)+(2+3))+4)``, and what is left over
one product after the other. So which outputs are in a group depends on T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.summation.replay import partial_sums, replay
from probe.summation.summation import Summation
from probe.summation.tree import Tree

WEIGHTS = np.array([-0.7313, -1.1043, 1.8492, 1.3007, -0.1033], np.float32)
BIAS = np.float32(0.0401)
GROUPED, SEQUENTIAL = "(((0+1)+(2+3))+4)", "((((0+1)+2)+3)+4)"
LENGTHS = 7, 8
PUBLISHED = {
    7: ("60.87010574", "72.98010254", "85.09010315"),
    8: ("60.87010574", "72.98009491", "85.09008789", "97.20009613"),
}
"""What the report printed."""


@dataclass(frozen=True)
class DemoOutput:
    """One output of a length: the order of its five products, their partial sums, and the value."""

    index: int
    order: str
    sums: tuple[str, ...]
    value: np.float32

    @property
    def bits(self) -> str:
        """Returns its bits as hexadecimal digits."""
        return f"{int(self.value.view(np.uint32)):08x}"


def outputs(length: int) -> list[DemoOutput]:
    """Returns what each output of a length was, as those releases added it."""
    x = (10 * np.arange(length)).astype(np.float32)
    count = length - len(WEIGHTS) + 1
    found = []
    for at in range(count):
        order = SEQUENTIAL if at >= count - count % 4 else GROUPED
        summation = Summation(Tree.parse(order))
        window = x[at : at + len(WEIGHTS), None], WEIGHTS[:, None], "float32"
        sums = tuple(one.text for one in partial_sums(summation, *window))
        value = replay(summation, *window)[0] + BIAS
        found.append(DemoOutput(at, order, sums, np.float32(value)))
    return found


def report() -> dict[str, Any]:
    """Returns what ``probe demo --json`` prints."""
    both = {length: outputs(length) for length in LENGTHS}
    short, long = (both[length] for length in LENGTHS)
    moved = [one.index for one, other in zip(short, long, strict=False) if one.bits != other.bits]
    return {
        "weights": [float(one) for one in WEIGHTS],
        "bias": float(BIAS),
        "lengths": {
            str(length): [
                {
                    "output": one.index,
                    "value": f"{float(one.value):.8f}",
                    "bits": one.bits,
                    "tree": one.order,
                    "sums": list(one.sums),
                    "published": PUBLISHED[length][one.index],
                }
                for one in some
            ]
            for length, some in both.items()
        },
        "differing": moved,
        "replayed": all(
            f"{float(one.value):.8f}" == PUBLISHED[length][one.index]
            for length, some in both.items()
            for one in some
        ),
    }


def lines() -> list[str]:
    """Returns the demonstration as text."""
    both = [outputs(length) for length in LENGTHS]
    told = [
        "A report: conv2d 1x5 over 10 * [0, 1, ..., T-1]. The first three outputs read the same",
        "inputs at T = 7 and T = 8, and TensorFlow (up to 1.5, x86) returned different numbers:",
        "",
        f"{'':10}{'T = 7':24}T = 8",
    ]
    for number in range(len(both[1])):
        cells = [
            f"{float(some[number].value):.8f} {some[number].bits}" if number < len(some) else ""
            for some in both
        ]
        differs = number < len(both[0]) and both[0][number].bits != both[1][number].bits
        told.append(f"output {number}: {cells[0]:24}{cells[1]}{'   differs' * differs}")
    one, other = both[0][MOVED], both[1][MOVED]
    told += [
        "",
        f"Floating-point addition is not associative. Output {MOVED} is the same five products,",
    ]
    told += [
        "p0 to p4, added in two orders, which T selects (blocks of 4 outputs, and the rest):",
        "",
    ]
    told += [f"  T = 7: {one.order}", *(f"    {text}" for text in one.sums)]
    told += [f"  T = 8: {other.order}", *(f"    {text}" for text in other.sums)]
    told += ["", f"and the bias, b = {float(BIAS):.4f}, last. The bits of output {MOVED}:", ""]
    pair = [f"{int(each.value.view(np.uint32)):032b}" for each in (one, other)]
    told += [f"  T = {length}: {text}" for length, text in zip(LENGTHS, pair, strict=True)]
    marks = "".join("^" if a != b else " " for a, b in zip(*pair, strict=True))
    told += [f"         {marks}".rstrip(), ""]
    same = (
        "all seven numbers are those that the report printed"
        if report()["replayed"]
        else ("these are not the numbers that the report printed")
    )
    return [*told, f"Computed here by NumPy alone, in these orders: {same}."]


MOVED = 1
"""The output whose trees are shown: the first that differs."""

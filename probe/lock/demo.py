"""The report that this project started from, in NumPy alone: two lengths, two orders, one bit.

conv2d 1x5 on 10 * [0, 1, ..., T - 1], VALID, on the processors and releases of TensorFlow up to
1.5.0: outputs are computed in groups of four, added ``(((0+1)+(2+3))+4)``, and what is left over
one product after the other. So which outputs are in a group depends on T.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from probe.summation.replay import partial_sums, replay
from probe.summation.summation import Summation
from probe.summation.tree import Tree

WEIGHTS = np.array([-0.7313, -1.1043, 1.8492, 1.3007, -0.1033], np.float32)
BIAS = np.float32(0.0401)
GROUPED, SEQUENTIAL = "(((0+1)+(2+3))+4)", "((((0+1)+2)+3)+4)"
PUBLISHED = {
    7: ("60.87010574", "72.98010254", "85.09010315"),
    8: ("60.87010574", "72.98009491", "85.09008789", "97.20009613"),
}
"""What the report printed, by T."""

MOVED = 1
"""The output whose trees are shown: the first that differs."""


def demonstrated_outputs(length: int) -> list[dict[str, Any]]:
    """Returns what each output of a length was, as those releases added it."""
    x = (10 * np.arange(length)).astype(np.float32)
    count = length - len(WEIGHTS) + 1
    found = []
    for at in range(count):
        order = SEQUENTIAL if at >= count - count % 4 else GROUPED
        summation = Summation(Tree.parse(order))
        window = x[at : at + len(WEIGHTS), None], WEIGHTS[:, None], "float32"
        value = np.float32(replay(summation, *window)[0] + BIAS)
        output = {"output": at, "value": f"{float(value):.8f}"}
        output |= {"bits": f"{int(value.view(np.uint32)):08x}", "tree": order}
        output["sums"] = [one.text for one in partial_sums(summation, *window)]
        found.append({**output, "published": PUBLISHED[length][at]})
    return found


def demo_json() -> dict[str, Any]:
    """Returns what ``probe demo --json`` prints."""
    both = {length: demonstrated_outputs(length) for length in PUBLISHED}
    pairs = list(zip(*both.values(), strict=False))
    return {
        "weights": [float(one) for one in WEIGHTS],
        "bias": float(BIAS),
        "lengths": {str(length): some for length, some in both.items()},
        "differing": [one["output"] for one, other in pairs if one["bits"] != other["bits"]],
        "replayed": all(one["value"] == one["published"] for some in both.values() for one in some),
    }


def demo_lines() -> list[str]:
    """Returns the demonstration as text."""
    found = demo_json()
    short, long = found["lengths"].values()
    told = [
        "A report: conv2d 1x5 over 10 * [0, 1, ..., T-1]. The first three outputs read the same",
        "inputs at T = 7 and T = 8, and TensorFlow (up to 1.5, x86) returned different numbers:",
        "",
        f"{'':10}{'T = 7':24}T = 8",
    ]
    for number, one in enumerate(long):
        cells = [f"{each['value']} {each['bits']}" for each in (*short[number : number + 1], one)]
        differs = "   differs" * (number in found["differing"])
        told.append(f"output {number}: {cells[0] if len(cells) > 1 else '':24}{cells[-1]}{differs}")
    told += [
        "",
        f"Floating-point addition is not associative. Output {MOVED} is the same five products,",
        "p0 to p4, added in two orders, which T selects (blocks of 4 outputs, and the rest):",
        "",
    ]
    both = short[MOVED], long[MOVED]
    for length, one in zip(PUBLISHED, both, strict=True):
        told += [f"  T = {length}: {one['tree']}", *(f"    {text}" for text in one["sums"])]
    told += ["", f"and the bias, b = {float(BIAS):.4f}, last. The bits of output {MOVED}:", ""]
    pair = [f"{int(one['bits'], 16):032b}" for one in both]
    told += [f"  T = {length}: {text}" for length, text in zip(PUBLISHED, pair, strict=True)]
    marks = "".join("^" if a != b else " " for a, b in zip(*pair, strict=True))
    same = "all seven numbers are those that the report printed"
    if not found["replayed"]:
        same = "these are not the numbers that the report printed"
    told += [f"         {marks}".rstrip(), ""]
    return [*told, f"Computed here by NumPy alone, in these orders: {same}."]

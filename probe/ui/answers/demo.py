"""The report that this project started from, in NumPy alone: two lengths, two orders, one bit.

conv2d 1x5 on 10 * [0, 1, ..., T - 1], VALID, on the processors and releases of TensorFlow up to
1.5.0: outputs are computed in groups of four, added ``(((0+1)+(2+3))+4)``, and what is left over
one product after the other. So which outputs are in a group depends on T.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probe.order.replay import partial_sums, replay
from probe.order.summation import Summation
from probe.order.tree import Tree

WEIGHTS = np.array([-0.7313, -1.1043, 1.8492, 1.3007, -0.1033], np.float32)
BIAS = np.float32(0.0401)
GROUPED, SEQUENTIAL = "(((0+1)+(2+3))+4)", "((((0+1)+2)+3)+4)"
# What the report printed, by T.
PUBLISHED = {
    7: ("60.87010574", "72.98010254", "85.09010315"),
    8: ("60.87010574", "72.98009491", "85.09008789", "97.20009613"),
}

# The output whose trees are shown: the first that differs.
MOVED = 1


def demonstrated_outputs(length: int) -> list[dict[str, Any]]:
    """What each output of a length was, as those releases added it."""
    x = (10 * np.arange(length)).astype(np.float32)
    count = length - len(WEIGHTS) + 1
    outputs = []
    for at in range(count):
        order = SEQUENTIAL if at >= count - count % 4 else GROUPED
        summation = Summation(Tree.parse(order))
        window = x[at : at + len(WEIGHTS), None], WEIGHTS[:, None], "float32"
        value = np.float32(replay(summation, *window)[0] + BIAS)
        output = {"output": at, "value": f"{float(value):.8f}"}
        output |= {"bits": f"{int(value.view(np.uint32)):08x}", "tree": order}
        output["sums"] = [step.text for step in partial_sums(summation, *window)]
        outputs.append({**output, "published": PUBLISHED[length][at]})
    return outputs


def demo_json() -> dict[str, Any]:
    """What ``probe demo --json`` prints."""
    both = {length: demonstrated_outputs(length) for length in PUBLISHED}
    pairs = list(zip(*both.values(), strict=False))
    return {
        "weights": [float(weight) for weight in WEIGHTS],
        "bias": float(BIAS),
        "lengths": {str(length): some for length, some in both.items()},
        "differing": [short["output"] for short, other in pairs if short["bits"] != other["bits"]],
        "replayed": all(out["value"] == out["published"] for outs in both.values() for out in outs),
    }


def demo_text() -> str:
    from jinja2 import Template

    facts = demo_json()
    short, long = facts["lengths"].values()
    pair = [f"{int(some[MOVED]['bits'], 16):032b}" for some in (short, long)]
    marks = "".join("^" if a != b else " " for a, b in zip(*pair, strict=True)).rstrip()
    text = Path(__file__).with_name("templates").joinpath("demo.txt.j2").read_text()
    return Template(text).render(facts, short=short, long=long, pair=pair, marks=marks, moved=MOVED)

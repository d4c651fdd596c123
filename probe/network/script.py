"""The file that goes with a plan: what users paste into their own code."""

SCRIPT = '''\
"""How far to pad content, which outputs to keep, and what completes them. NumPy alone.

Made by probe, with plan.json beside it, for one network on one target: see "network", "target" and
"assumed" there. Paste the functions into your own code, or import this file.

    short = pad(content)                     # (batch, *spatial, channels), channels last
    outputs = complete(model(short), length of the content)

The constant outputs behind are the target's. Where your model runs otherwise (all layers compiled
as one, another memory format), give its own: complete(..., constant=model(padding alone)), which
has the fixed size and is computed once.
"""

import json
from pathlib import Path

import numpy as np

PLAN = json.loads((Path(__file__).parent / "plan.json").read_text())
AXIS = PLAN["axis"]  # of the positions
CONSTANT = np.moveaxis(np.array(PLAN["constant"], PLAN["dtype"]), -2, AXIS)


def padded_length(content):
    """The padded length for content of so many positions. ValueError: the plan has none."""
    return _stretch(content)["padded"]


def _stretch(content):
    for stretch in PLAN["stretches"]:
        if stretch["first"] <= content <= stretch["last"]:
            return stretch
    raise ValueError(f"content={content}: the plan has no such length")


def pad(content):
    """Content (batch, *spatial, channels) with the plan's padding behind it."""
    around = [(0, 0)] * content.ndim
    around[AXIS] = 0, padded_length(content.shape[AXIS]) - content.shape[AXIS]
    return np.pad(content, around, constant_values=PLAN["value"])


def complete(output, content, constant=CONSTANT):
    """The fixed size's outputs, from those of the padded content and the constant tail."""
    stretch, found = _stretch(content), np.repeat(constant, len(output), axis=0)
    start, stop, offset = stretch["skipped"], stretch["kept"], stretch["offset"]
    into, came = np.moveaxis(found, AXIS, 0), np.moveaxis(output, AXIS, 0)
    into[start:stop] = came[start + offset : stop + offset]
    return found
'''

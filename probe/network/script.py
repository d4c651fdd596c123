"""The file that goes with a plan: what users paste into their own code."""

SCRIPT = '''\
"""How far to pad content, which outputs to keep, and what completes them. NumPy alone.

Made by probe, with plan.json beside it, for one network on one target: see "network", "target" and
"assumed" there. Paste the functions into your own code, or import this file.

    short = pad(content)                     # (batch, ..., positions, channels), channels last
    outputs = complete(model(short), length of the content)
"""

import json
from pathlib import Path

import numpy as np

PLAN = json.loads((Path(__file__).parent / "plan.json").read_text())
CONSTANT = np.array(PLAN["constant"], PLAN["dtype"])


def padded_length(content):
    """The padded length for content of so many positions. ValueError: the plan has none."""
    return _stretch(content)["padded"]


def _stretch(content):
    for stretch in PLAN["stretches"]:
        if stretch["first"] <= content <= stretch["last"]:
            return stretch
    raise ValueError(f"content={content}: the plan has no such length")


def pad(content):
    """Content (batch, ..., positions, channels) with the plan's padding behind it."""
    missing = padded_length(content.shape[-2]) - content.shape[-2]
    around = [(0, 0)] * (content.ndim - 2) + [(0, missing), (0, 0)]
    return np.pad(content, around, constant_values=PLAN["value"])


def complete(output, content):
    """The fixed size's outputs, from those of the padded content and the constant tail."""
    stretch, found = _stretch(content), np.repeat(CONSTANT, len(output), axis=0)
    start, stop, offset = stretch["skipped"], stretch["kept"], stretch["offset"]
    found[..., start:stop, :] = output[..., start + offset : stop + offset, :]
    return found
'''

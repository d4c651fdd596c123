"""What every library's tests ask: the conformance check, and the proof by replay."""

from __future__ import annotations

import numpy as np

from probe import floats
from probe.backends import conformance
from probe.case import Case
from probe.summation.orders import reveal

#: Cases between them: one leaf a window to 320, borders, strides, dilation, groups, bias, batch.
CASES = (
    *(Case(op="conv1d", kernel=5, length=length) for length in (5, 6, 19)),
    *(
        Case(op="conv1d", kernel=3, in_channels=16, filters=64, length=length)
        for length in (3, 4, 9)
    ),
    Case(op="conv1d", kernel=5, in_channels=64, length=40),
    Case(op="conv1d", kernel=5, in_channels=64, filters=64, length=15),
    Case(
        op="conv1d",
        kernel=5,
        in_channels=4,
        filters=8,
        length=9,
        padding="same",
        batch=2,
        bias="normal",
    ),
    Case(
        op="conv1d",
        kernel=4,
        in_channels=6,
        filters=9,
        groups=3,
        length=17,
        stride=2,
        dilation=2,
        padding="3:1",
    ),
    Case(
        op="conv2d",
        kernel=3,
        in_channels=16,
        filters=8,
        height=6,
        length=8,
        padding="same",
        bias="normal",
    ),
    Case(op="conv2d", kernel=3, in_channels=3, filters=8, height=7, length=9, stride=2, padding=1),
    Case(op="depthwise_conv2d", kernel=3, in_channels=8, height=5, length=9, padding="same"),
    Case(op="conv3d", kernel=2, in_channels=3, filters=4, height="3x4", length=6, bias="normal"),
)


CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")


def findings(session, dtypes=conformance.DTYPES, every=1):
    """What isn't ``agrees`` in the conformance check of convolutions: {verdict: [Finding, ...]}."""
    run = conformance.asking(session)
    chosen = [one for one in conformance.specs(dtypes) if one[0]["op"] in CONVOLUTIONS]
    found = [conformance.compare_spec(*one, run) for one in chosen[::every]]
    return {
        verdict: [one for one in found if one.verdict == verdict]
        for verdict in ("wrong", "unsupported")
    }


def wrong(findings):
    return [found for found in findings if found.verdict == "wrong"]


def not_replayed(session, cases=CASES, dtype="float32"):
    """Labels of the cases of which not every output was revealed and replayed bit for bit."""
    labels = []
    for case in cases:
        orders = reveal(session, case.with_(dtype=dtype))
        if not orders.replayed.all():
            labels.append(f"{case.label}: {orders.replayed.sum()} of {orders.index.size}")
    return labels


def run(session, spec, x, w, b=None):
    """The output of one call, from container arrays."""
    arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
    return session.request({"do": "run", "spec": spec}, arrays)[1]["y"]


def kernels(session, spec, shape):
    """What the library says it would run for zeros of this input shape."""

    kind = floats.container_of_format(spec["dtype"])
    w = (*spec["kernel"], spec["in_channels"] // spec["groups"], spec["filters"])
    arrays = {"x": np.zeros(shape, kind), "w": np.zeros(w, kind)}
    return session.request({"do": "kernels", "spec": spec}, arrays)[0]["kernels"]

"""What every library's tests ask: the conformance check, and the proof by replay."""

from __future__ import annotations

import numpy as np

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import TargetError
from probe.order.orders import reveal
from probe.targets.backends import conformance
from probe.targets.backends.contract import Unsupported

# Cases between them: one leaf a window to 320, borders, strides, dilation, groups, bias, batch.
SAME = {"padding": "same", "bias": "normal"}
CASES = (
    *(Case("conv1d", 5, length=length) for length in (5, 6, 19)),
    *(Case("conv1d", 3, in_channels=16, filters=64, length=length) for length in (3, 4, 9)),
    Case("conv1d", 5, in_channels=64, length=40),
    Case("conv1d", 5, in_channels=64, filters=64, length=15),
    Case("conv1d", 5, in_channels=4, filters=8, length=9, batch=2, **SAME),
    Case("conv1d", 4, 6, 9, length=17, groups=3, stride=2, dilation=2, padding="3:1"),
    Case("conv2d", 3, in_channels=16, filters=8, height=6, length=8, **SAME),
    Case("conv2d", 3, in_channels=3, filters=8, height=7, length=9, stride=2, padding=1),
    Case("depthwise_conv2d", 3, in_channels=8, height=5, length=9, padding="same"),
    Case("conv3d", 2, in_channels=3, filters=4, height="3x4", length=6, bias="normal"),
)

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")


def findings(session, dtypes, every, ops=CONVOLUTIONS):
    """What isn't ``agrees`` in the conformance check: by verdict; ``every``: which spec."""
    run = asking(session)
    chosen = [row for row in conformance.specs(dtypes) if row[0]["op"] in ops]
    found = [conformance.compare_spec(*row, run) for row in chosen[::every]]
    return {verdict: [f for f in found if f.verdict == verdict] for verdict in VERDICTS}


VERDICTS = ("wrong", "unsupported")


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


def asking(session):
    """``run`` of the conformance check: the same questions to a target's own process."""

    def asked(spec, x, w, b):
        try:
            return run(session, spec, x, w, b)
        except TargetError as error:
            if error.kind != "unsupported":
                raise
            raise Unsupported(str(error)) from None

    return asked


def kernels(session, spec, shape):
    """What the library says it would run for zeros of this input shape."""

    kind = floats.container_of_format(spec["dtype"])
    w = (*spec["kernel"], spec["in_channels"] // spec["groups"], spec["filters"])
    arrays = {"x": np.zeros(shape, kind), "w": np.zeros(w, kind)}
    return session.request({"do": "kernels", "spec": spec}, arrays)[0]["kernels"]

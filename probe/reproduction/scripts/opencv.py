"""OpenCV's cv2.dnn on a Caffe model of one layer."""

from __future__ import annotations

import re

from probe.backends import opencv as backend
from probe.backends.contract import Unsupported
from probe.case import Case
from probe.case.operators import OPERATORS
from probe.reproduction.scripts.contract import Library, refuse
from probe.shrink.finding import Arrays
from probe.target import Target


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    switches, pool = dict(target.switches), bool(OPERATORS[case.op].pool)
    flat, spec = case.spatial_rank == 1, case.spec()
    plan = _plan(target, case)
    shape = (case.batch, case.in_channels, *((1,) if flat else ()), *case.spatial())
    prototxt = backend.prototxt(spec, shape, [pad for pad, _, _ in plan])
    body = ["x = np.ascontiguousarray(np.moveaxis(x, -1, 1))"]
    body += ["x = np.ascontiguousarray(x[:, :, None])"] * flat
    body += ['prototxt = """', *_lines(prototxt), '"""']
    body.append("net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8))")
    body.append(f"net.enableWinograd({switches.get('winograd', '1') == '1'})")
    if not pool:
        if case.op.startswith("depthwise"):
            body.append(f"w = w.reshape({(*case.kernel, 1, case.filters)})")
        body.append("w = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1)))")
        body += ["w = np.ascontiguousarray(w[:, :, None])"] * flat
        body.append(f'net.getLayer("y").blobs = [w{", b" * (case.bias is not None)}]')
    body += ["net.setInput(x)", "y = net.forward()"]
    ends = [f"{drop}:{drop + outputs}" for _, drop, outputs in plan]
    body.append(f"y = y[{', '.join([':', ':', *(['0'] if flat else []), *ends])}]")
    body.append("return np.moveaxis(y, 1, -1)")
    setup = [f"cv2.setNumThreads({switches['threads']})"] if "threads" in switches else []
    found = ("OpenCV", "cv2.__version__", ("import cv2",), tuple(body), tuple(setup))
    return Library(*found, modules=("opencv-python-headless",))


def _lines(prototxt: str) -> list[str]:
    """The model with its layer's fields in lines that fit; Caffe's format knows no line ends."""
    head, brace, fields = prototxt.rpartition("_param {")
    words = re.findall(r"\w+: \S+", fields)
    rows = [f"    {' '.join(words[k : k + 6])}" for k in range(0, len(words), 6)]
    return [*(head + brace).splitlines(), *rows, "  }", "}"]


def _plan(target: Target, case: Case) -> list[tuple[int, int, int]]:
    """Padding, first output kept and outputs kept of every axis, as the backend has them."""

    class Planned(backend.CaffeLayer):
        def __init__(self) -> None:
            self.spec, self.pool = case.spec(), OPERATORS[case.op].pool

    try:
        found: list[tuple[int, int, int]] = Planned().plan(case.spatial())
    except Unsupported as error:
        raise refuse(target, f"{case.label}: {error}") from None
    return found

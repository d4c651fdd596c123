"""OpenCV's cv2.dnn on a Caffe model of one layer."""

from __future__ import annotations

import base64
import re
import textwrap
from typing import Any

from probe.backends import caffe, caffe_layers, opencv_chain
from probe.backends.contract import Unsupported
from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction.scripts.contract import Library, refuse
from probe.target import Target


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    switches, product = dict(target.switches), case.op in caffe_layers.PRODUCTS
    flat, spec = case.spatial_rank == 1 and not product, case.spec()
    plan = _plan(target, case)
    shape = (case.batch, case.in_channels, *((1,) if flat else ()), *case.spatial())
    if product:
        shape = (case.batch, *case.spatial(), case.in_channels)
    prototxt = caffe_layers.prototxt(spec, shape, [one.pad for one in plan])
    body = []
    if not product:
        body = ["x = np.ascontiguousarray(np.moveaxis(x, -1, 1))"]
    body += ["x = np.ascontiguousarray(x[:, :, None])"] * flat
    body += ['prototxt = """', *_lines(prototxt), '"""']
    given = "np.frombuffer(prototxt.encode(), np.uint8)"
    if product:
        body += _caffemodel(spec, operands)
        given += ", np.frombuffer(caffemodel, np.uint8)"
    body.append(f"net = cv2.dnn.readNetFromCaffe({given})")
    body.append(f"net.enableWinograd({switches.get('winograd', '1') == '1'})")
    if not product and not case.pool:
        if case.op.startswith("depthwise"):
            body.append(f"w = w.reshape({(*case.kernel, 1, case.filters)})")
        body.append("w = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1)))")
        body += ["w = np.ascontiguousarray(w[:, :, None])"] * flat
        body.append(f'net.getLayer("y").blobs = [w{", b" * (case.bias is not None)}]')
    body += ["net.setInput(x)", "y = net.forward()"]
    if not product:
        ends = [f"{one.drop}:{one.drop + one.outputs}" for one in plan]
        body.append(f"y = y[{', '.join([':', ':', *(['0'] if flat else []), *ends])}]")
    body.append("return y" if product else "return np.moveaxis(y, 1, -1)")
    setup = [f"cv2.setNumThreads({switches['threads']})"] if "threads" in switches else []
    found = ("OpenCV", "cv2.__version__", ("import cv2",), tuple(body), tuple(setup))
    standard = ("base64",) * product
    return Library(*found, modules=("opencv-python-headless",), standard=standard)


def _caffemodel(spec: dict[str, Any], operands: Arrays) -> list[str]:
    """The bytes of a product's weights, which are read from nowhere else."""
    blobs = [caffe_layers.weights(spec, operands[1]), operands[2]]
    held = [blob for blob in blobs if blob is not None]
    content = base64.b64encode(caffe.caffemodel("y", "InnerProduct", held)).decode()
    lines = [f'    "{line}"' for line in textwrap.wrap(content, 84)]
    return ["caffemodel = base64.b64decode(", *lines, ")"]


def activation(target: Target, name: str, alpha: float) -> list[str]:
    """Lines of a function of x: a model of the activation alone, for the shape of x."""
    kind, fields = opencv_chain.activation(name, alpha)
    layer = caffe.text("y", kind, ["x"], ["y"], fields).splitlines()
    return [
        "x = np.ascontiguousarray(np.moveaxis(x, -1, 1))",
        'dims = " ".join("dim: %d" % size for size in x.shape)',
        'prototxt = \'input: "x" input_shape { %s }\' % dims + """',
        *layer,
        '"""',
        "net = cv2.dnn.readNetFromCaffe(np.frombuffer(prototxt.encode(), np.uint8))",
        "net.setInput(x)",
        "return np.moveaxis(net.forward(), 1, -1)",
    ]


def _lines(prototxt: str) -> list[str]:
    """The model with its layer's fields in lines that fit; Caffe's format knows no line ends."""
    head, brace, fields = prototxt.rpartition("_param {")
    words = re.findall(r"\w+: \S+", fields)
    rows = [f"    {' '.join(words[k : k + 6])}" for k in range(0, len(words), 6)]
    return [*(head + brace).splitlines(), *rows, "  }", "}"]


def _plan(target: Target, case: Case) -> list[caffe_layers.Axis]:
    """Padding, first output kept and outputs kept of every axis, as the backend has them."""
    try:
        caffe_layers.supported(case.spec())
        return list(caffe_layers.plan(case.spec(), case.spatial()))
    except Unsupported as error:
        raise refuse(target, f"{case.label}: {error}") from None

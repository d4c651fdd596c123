"""LiteRT: the bytes of a .tflite model of one convolution, and its interpreter."""

from __future__ import annotations

import base64
import textwrap

from probe.backends import litert_model
from probe.backends.contract import Unsupported
from probe.case import Case
from probe.reproduction.scripts.contract import Library, refuse
from probe.shrink.finding import Arrays
from probe.target import Target


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``: the model holds the weights."""
    switches = dict(target.switches)
    words = [f"num_threads={switches['threads']}"] if "threads" in switches else []
    imports = ["from ai_edge_litert.interpreter import Interpreter"]
    if switches.get("xnnpack") == "0":
        imports[0] += ", OpResolverType"
        built_in = "OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES"
        words.append(f"experimental_op_resolver_type={built_in}")
    text = base64.b64encode(model(target, case, operands)).decode()
    body = ["model = base64.b64decode("]
    body += [f'    "{line}"' for line in textwrap.wrap(text, 84)]
    given = ", ".join(["model_content=model", *words])
    body += [")", f"interpreter = Interpreter({given})", "interpreter.allocate_tensors()"]
    one = case.op == "conv1d"
    source, sink = 'get_input_details()[0]["index"]', 'get_output_details()[0]["index"]'
    body.append(f"interpreter.set_tensor(interpreter.{source}, {'x[:, None]' if one else 'x'})")
    body += ["interpreter.invoke()", f"y = interpreter.get_tensor(interpreter.{sink})"]
    body.append("return y[:, 0]" if one else "return y")
    version_text = 'metadata.version("ai-edge-litert")'
    standard = ("base64", "from importlib import metadata")
    found = ("LiteRT", version_text, tuple(imports), tuple(body))
    return Library(*found, modules=("ai-edge-litert",), standard=standard)


def model(target: Target, case: Case, operands: Arrays) -> bytes:
    """The bytes of the model with its weights. InputError where LiteRT's schema is not here."""
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError:
        raise refuse(target, "LiteRT where ai-edge-litert is not installed") from None
    x, w, b = operands
    shape = x.shape if case.op != "conv1d" else (x.shape[0], 1, *x.shape[1:])
    try:
        made = litert_model.Model(schema_py_generated, case.spec(), shape)
    except (Unsupported, KeyError) as error:
        raise refuse(target, f"{case.label}: {error}") from None
    return bytes(made.content(litert_model.weights(case.spec(), w), b))

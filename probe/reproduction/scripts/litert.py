"""LiteRT: the bytes of a .tflite model of one operator, and its interpreter."""

from __future__ import annotations

import base64
import textwrap
from dataclasses import dataclass
from typing import Any

from probe.backends import litert_chain, litert_model, litert_pooling, pooling
from probe.backends.contract import Unsupported
from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction.scripts.contract import Library, refuse
from probe.target import Target


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``: the model holds the weights."""
    imports = ["from ai_edge_litert.interpreter import Interpreter"]
    if dict(target.switches).get("xnnpack") == "0":
        imports[0] += ", OpResolverType"
    pooled = Pooled.of(target, case) if case.pool else None
    content = pooled.model if pooled else model(target, case, operands)
    body = [*interpreter(target, content), "interpreter.allocate_tensors()"]
    one = case.spatial_rank == 1
    source, sink = SOURCE, SINK
    if pooled:
        body += ["", "def pool(x):", f"    interpreter.set_tensor(interpreter.{source}, x)"]
        body += ["    interpreter.invoke()"]
        body += [f"    return interpreter.get_tensor(interpreter.{sink})", ""]
        body += ["x = x[:, None]"] * one + [f"y = {pooled.text}"]
    else:
        body.append(f"interpreter.set_tensor(interpreter.{source}, {'x[:, None]' if one else 'x'})")
        body += ["interpreter.invoke()", f"y = interpreter.get_tensor(interpreter.{sink})"]
    body.append("return y[:, 0]" if one else "return y")
    version_text = 'metadata.version("ai-edge-litert")'
    standard = ("base64", "from importlib import metadata")
    found = ("LiteRT", version_text, tuple(imports), tuple(body))
    return Library(*found, modules=("ai-edge-litert",), standard=standard)


SOURCE, SINK = 'get_input_details()[0]["index"]', 'get_output_details()[0]["index"]'
"""Of an interpreter: which of its tensors are the input and the output."""


def interpreter(target: Target, content: bytes) -> list[str]:
    """Lines that make an interpreter of a model's bytes."""
    switches = dict(target.switches)
    words = [f"num_threads={switches['threads']}"] if "threads" in switches else []
    if switches.get("xnnpack") == "0":
        built_in = "OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES"
        words.append(f"experimental_op_resolver_type={built_in}")
    text = base64.b64encode(content).decode()
    held = [f'    "{line}"' for line in textwrap.wrap(text, 84)]
    given = ", ".join(["model_content=model", *words])
    return ["model = base64.b64decode(", *held, ")", f"interpreter = Interpreter({given})"]


def activation(target: Target, name: str, alpha: float) -> list[str]:
    """Lines of a function of x, float32: a model of the activation alone, for any shape."""
    spec: dict[str, Any] = {"op": "activation", "activation": name, "dtype": "float32"}
    spec |= {"parameters": {"alpha": alpha}}
    chain = litert_chain.Chain(schema_of(target), None, [spec], [{}])
    return [
        *interpreter(target, chain.content((1, 1, 1, 1))),
        f"at = interpreter.{SOURCE}",
        "interpreter.resize_tensor_input(at, x.shape)",
        "interpreter.allocate_tensors()",
        "interpreter.set_tensor(at, x)",
        "interpreter.invoke()",
        f"return interpreter.get_tensor(interpreter.{SINK})",
    ]


def model(target: Target, case: Case, operands: Arrays) -> bytes:
    """The bytes of the model with its weights. InputError where LiteRT's schema is not here."""
    schema = schema_of(target)
    x, w, b = operands
    shape = x.shape if case.spatial_rank != 1 else (x.shape[0], 1, *x.shape[1:])
    try:
        made = litert_model.Model(schema, case.spec(), shape)
    except (Unsupported, KeyError) as error:
        raise refuse(target, f"{case.label}: {error}") from None
    return bytes(made.content(litert_model.weights(case.spec(), w), b))


def schema_of(target: Target) -> Any:
    """LiteRT's model format. InputError where it is not here."""
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError:
        raise refuse(target, "LiteRT where ai-edge-litert is not installed") from None
    return schema_py_generated


@dataclass(frozen=True)
class Shaped:
    """An expression and the shape of its value; the quotient of two is one."""

    text: str
    shape: tuple[int, ...]

    def __truediv__(self, other: Shaped) -> Shaped:
        return Shaped(f"{self.text} / {other.text}", self.shape)


class Pooled:
    """A pooling case as an expression of ``x`` and ``pool(x)``, whose ``model`` has one shape."""

    def __init__(self, schema: Any, case: Case) -> None:
        self.schema, self.case = schema, case
        self.ahead = (1,) * (case.spatial_rank == 1)
        self.model = b""
        x = Shaped("x", (case.batch, *self.ahead, *case.spatial(), case.in_channels))
        library = pooling.Library(self.padded, self.whole, self.ones, self.native)
        self.text: str = pooling.pool(case.spec(), library, case.spatial())(x).text

    @classmethod
    def of(cls, target: Target, case: Case) -> Pooled:
        """InputError where LiteRT has no such pooling."""
        try:
            return cls(schema_of(target), case)
        except Unsupported as error:
            raise refuse(target, f"{case.label}: {error}") from None

    def padded(self, x: Shaped, pairs: Any, value: float) -> Shaped:
        """Padding is NumPy's."""
        around = [(0, 0), *((0, 0) for _ in self.ahead), *map(tuple, pairs), (0, 0)]
        shape = tuple(size + sum(pair) for size, pair in zip(x.shape, around, strict=True))
        fill = f'float("{value}")' if abs(value) == float("inf") else str(value)
        return Shaped(f'np.pad({x.text}, {around}, "constant", constant_values={fill})', shape)

    def ones(self, x: Shaped) -> Shaped:
        """As x, all 1."""
        return Shaped(f"np.ones_like({x.text})", x.shape)

    def whole(self, x: Shaped, same: bool = False) -> Shaped:
        """The model's own pooling."""
        windows = litert_pooling.windows_of(self.case.spec())
        kind = self.case.pool
        self.model = litert_pooling.Model(self.schema, kind, windows, x.shape, same).packed
        return Shaped(f"pool({x.text})", x.shape)

    def native(self, x: Shaped, found: Any) -> Shaped | None:
        """SAME as LiteRT has it."""
        return self.whole(x, True) if litert_pooling.has_same(self.case.spec(), found) else None

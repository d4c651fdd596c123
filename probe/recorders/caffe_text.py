"""Caffe's prototxt, read: a model's layers in order, with every blob named once.

Protocol buffers' text format: fields are ``name: value`` or ``name { ... }``, and repeat. A layer
that works in place (top = bottom) gives a new value here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from probe.errors import InputError

QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
TOKEN = re.compile(rf"""#[^\n]*|{QUOTED}|[{{}}<>:;,\[\]]|[^\s{{}}<>:;,\[\]"']+""")

Fields = dict[str, list[Any]]


@dataclass(frozen=True)
class Layer:
    """A layer; ``reads`` and ``gives``: names of values; ``fields``: all that is written of it."""

    name: str
    kind: str
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    fields: Fields

    def given(self, group: str, name: str, otherwise: Any = None) -> Any:
        """A parameter, such as ``pool`` of ``pooling_param``."""
        found = self.every(group, name)
        return found[-1] if found else otherwise

    def every(self, group: str, name: str) -> list[Any]:
        """All values of a parameter that repeats."""
        inside = self.fields.get(group, [{}])[-1]
        found: list[Any] = inside.get(name, [])
        return found


@dataclass(frozen=True)
class Model:
    """``inputs``: shapes by name; ``layers``: in order; ``outputs``: values that nothing reads."""

    inputs: dict[str, tuple[int, ...]]
    layers: tuple[Layer, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Values that no layer reads."""
        read = {name for layer in self.layers for name in layer.reads}
        every = [name for layer in self.layers for name in layer.gives]
        return tuple(name for name in every if name not in read)


def parsed(text: str) -> Fields:
    """The fields of a message in text format. InputError where it is none."""
    tokens = (one for one in TOKEN.findall(text) if not one.startswith("#"))
    return _message(tokens, "")


def _message(tokens: Iterator[str], end: str) -> Fields:
    found: Fields = {}
    for name in tokens:
        if name == end:
            return found
        if name in (";", ","):
            continue
        if not re.fullmatch(r"\w+", name):
            raise InputError(
                "prototxt", name, "it is not the name of a field", "check the file's text"
            )
        value = next(tokens, "")
        if value == ":":
            value = next(tokens, "")
        if value in ("{", "<"):
            found.setdefault(name, []).append(_message(tokens, {"{": "}", "<": ">"}[value]))
        elif value == "[":
            every = found.setdefault(name, [])
            for item in tokens:
                if item == "]":
                    break
                if item != ",":
                    every.append(_value(item))
        else:
            found.setdefault(name, []).append(_value(value))
    if end:
        raise InputError("prototxt", "end of file", f"a {end} is missing", "check the file's text")
    return found


def _value(word: str) -> Any:
    if word[:1] in ("'", '"'):
        return word[1:-1]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(word, word)


def read(text: str) -> Model:
    """The model of a prototxt. InputError where it has no layers or is of Caffe's first format."""
    fields = parsed(text)
    if "layers" in fields:
        why = "the first version of Caffe's format (layers { ... })"
        raise InputError(
            "prototxt", "layers", why, "upgrade it with Caffe's upgrade_net_proto_text"
        )
    inputs = _inputs(fields)
    current = {name: name for name in inputs}
    layers, used = [], set(inputs)
    for one in fields.get("layer", []):
        if any("TRAIN" in str(rule.get("phase")) for rule in one.get("include", [])):
            continue
        name, kind = str(one["name"][0]), str(one["type"][0])
        tops = [str(top) for top in one.get("top", [])]
        if kind == "Input":
            shapes = one["input_param"][0]["shape"]
            for top, shape in zip(tops, shapes * len(tops), strict=False):
                inputs[top] = tuple(shape["dim"])
                current[top] = top
                used.add(top)
            continue
        reads = tuple(current[str(bottom)] for bottom in one.get("bottom", []))
        gives = []
        for top in tops:
            gives.append(top if top not in used else f"{top}@{name}")
            used.add(gives[-1])
            current[top] = gives[-1]
        layers.append(Layer(name, kind, reads, tuple(gives), one))
    if not layers:
        raise InputError("prototxt", "layer", "the file has no layers", "give a Caffe model's text")
    return Model(inputs, tuple(layers))


def _inputs(fields: Fields) -> dict[str, tuple[int, ...]]:
    names = [str(name) for name in fields.get("input", [])]
    shapes = [tuple(one["dim"]) for one in fields.get("input_shape", [])]
    dims = fields.get("input_dim", [])
    shapes += [tuple(dims[k : k + 4]) for k in range(0, len(dims), 4)]
    return dict(zip(names, shapes, strict=False))


def written(fields: Fields) -> str:
    """Fields as text again, on one line."""
    parts = []
    for name, every in fields.items():
        for value in every:
            if isinstance(value, dict):
                parts.append(f"{name} {{ {written(value)} }}")
            elif isinstance(value, bool):
                parts.append(f"{name}: {str(value).lower()}")
            else:
                quoted = isinstance(value, str) and name in ("name", "type", "bottom", "top")
                parts.append(f'{name}: "{value}"' if quoted else f"{name}: {value}")
    return " ".join(parts)

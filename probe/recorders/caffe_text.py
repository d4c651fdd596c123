"""Protocol buffers' text format, in which Caffe writes its models and OpenCV dumps its nets.

Fields are ``name: value`` or ``name { ... }``, and repeat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from probe.errors import InputError

QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
TOKEN = re.compile(rf"""#[^\n]*|{QUOTED}|[{{}}<>:;,\[\]]|[^\s{{}}<>:;,\[\]"']+""")

Fields = dict[str, list[Any]]


def parsed(text: str) -> Fields:
    """Returns the fields of a message in text format. InputError where it is none."""
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


def declared(text: str) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a prototxt's inputs, by name. InputError where it has no layers or is
    of Caffe's first format."""
    fields = parsed(text)
    if "layers" in fields:
        why = "the first version of Caffe's format (layers { ... })"
        raise InputError(
            "prototxt", "layers", why, "upgrade it with Caffe's upgrade_net_proto_text"
        )
    if not fields.get("layer"):
        raise InputError("prototxt", "layer", "the file has no layers", "give a Caffe model's text")
    names = [str(name) for name in fields.get("input", [])]
    shapes = [tuple(one["dim"]) for one in fields.get("input_shape", [])]
    dims = fields.get("input_dim", [])
    shapes += [tuple(dims[k : k + 4]) for k in range(0, len(dims), 4)]
    found = dict(zip(names, shapes, strict=False))
    for one in fields["layer"]:
        if one["type"][0] == "Input":
            tops = [str(top) for top in one.get("top", [])]
            shapes = one["input_param"][0]["shape"]
            found |= {
                top: tuple(shape["dim"])
                for top, shape in zip(tops, shapes * len(tops), strict=False)
            }
    return found

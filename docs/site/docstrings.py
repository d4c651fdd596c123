"""How docstrings become pages: doctests are code, and Sphinx' roles are names."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites every docstring of the package as it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called of every object, before its page is written."""
        if obj.docstring:
            obj.docstring.value = shown(obj.docstring.value)


def shown(text: str) -> str:
    """A docstring as Markdown."""
    text = re.sub(r":\w+:(`+)~?([^`]+)`+", r"`\2`", text)
    text = re.sub(r" *# doctest: .*", "", text)
    return re.sub(r"^(?:>>>|\.\.\.)(?:.*\n?)+?(?=\n|\Z)", fenced, text, flags=re.M)


def fenced(found: re.Match[str]) -> str:
    """A block of doctests in a fence."""
    return f"\n```pycon\n{found[0].rstrip()}\n```\n"

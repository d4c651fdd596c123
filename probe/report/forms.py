"""The bug forms of the libraries' projects, and forms that a user brings.

A form is a list of headings, and what goes under each. Those that are known are data
(``templates/forms.toml``); of a file, GitHub's form or Markdown, the headings are read in their own
order and filled by what they ask for. What nothing here can answer is left open, and says so.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.case.arguments import not_waiting
from probe.case.errors import InputError, one_of
from probe.targets.target import Target


@dataclass(frozen=True)
class Form:
    """``name``: whose documentation is quoted. ``tracker``: where it goes. ``level``: the mark of a
    heading. ``sections``: pairs of a heading and the name of what goes under it, or a fixed text in
    brackets."""

    name: str
    tracker: str
    level: str
    sections: Sequence[tuple[str, str]]


_TEXTS = tomllib.loads(
    Path(__file__).with_name("templates").joinpath("forms.toml").read_text(encoding="utf-8")
)


# By the names of backends.
FORMS: dict[str, Form] = {}
for _name, _entry in _TEXTS["forms"].items():
    _whole: dict[str, Any] = _TEXTS["forms"].get(_entry.get("like"), {}) | _entry
    _sections = [(heading, source) for heading, source in _whole["sections"]]
    FORMS[_name] = Form(_name, _whole["tracker"], _whole["level"], _sections)
# What projects promise of bits, and where; apart: of two releases, switches or processors.
PROMISES: dict[str, list[str]] = _TEXTS["promises"] | {"keras": _TEXTS["promises"]["tensorflow"]}
PROMISES_APART: dict[str, list[str]] = _TEXTS["promises_apart"]


def form_of(target: Target, name: str | None = None) -> Form:
    """Returns a form: of that name, of that file (.md, .yml, .yaml), or the target's own.

    InputError: there is no such form, or the file has no headings.
    """
    own = target.name if target.name in FORMS else "other"
    if name is None or name in FORMS:
        return FORMS[name or own]
    path = Path(name)
    if path.suffix not in (".md", ".yml", ".yaml"):
        todo = f"{one_of(name, FORMS)}; or give a form's file (.md, .yml)"
        raise InputError("form", name, "there is no such form", todo)
    try:
        text = not_waiting("form", path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise InputError("form", name, why, "give a form's file that can be read") from None
    sections = list(markdown_headings(text) if path.suffix == ".md" else form_fields(text))
    if not sections:
        raise InputError("form", name, "it has no headings", "give an issue form, or Markdown")
    if not any(source == "script_and_output" for _, source in sections):
        described = "description_with_script"  # nothing else asks for the script
        sections = [(h, described if s == "description" else s) for h, s in sections]
    return Form(own, f"the tracker of {path.name}", "###", sections)


# What a heading asks for, by its words: the first that fits.
ASKS = (
    (r"expected", "expected"),
    (r"reproduc|standalone|sample|steps|code example", "script_and_output"),
    (r"\blogs?\b|error message|traceback", "output"),
    (r"environment|versions|system info|setup|collect_env", "versions"),
    (r"python version", "python"),
    (r"cuda|cudnn", "cuda"),
    (r"\bgpu|accelerator|device", "accelerator"),
    (r"\bos\b|platform|operating", "os"),
    (r"architecture", "architecture"),
    (r"execution provider", "[Default CPU]"),
    (r"version|release|commit", "version"),
    (r"descri|bug|issue|problem|behaviou?r|happen|summary|current|question", "description"),
    (r"additional|context|else|info", "summary"),
)

# What is chosen from a list, by the words of its heading.
CHOICES = (
    (r"type", ("Bug", "bug")),
    (r"nightly|latest", ("No",)),
    (r"custom code", ("Yes",)),
    (r"source|install", ("binary", "pip", "Released Package")),
    (r"provider", ("Default CPU", "CPU")),
    (r"api|language", ("Python",)),
    (r"platform|\bos\b", ("Linux",)),
    (r"architecture", ("X64", "x86_64", "x64")),
)

OPEN = "[(left open: probe can't answer this)]"


def _asked(heading: str) -> str:
    words = heading.lower()
    return next((source for pattern, source in ASKS if re.search(pattern, words)), OPEN)


def markdown_headings(text: str) -> list[tuple[str, str]]:
    """Headings of a template: lines that begin with ``#``, or are bold as a whole."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    lines = re.findall(r"^(?:#+\s+(.+?)|\*\*(.+?)\*\*:?)\s*$", text, re.MULTILINE)
    headings = [(first or second).strip(" #:") for first, second in lines]
    return [(heading, _asked(heading)) for heading in headings]


def form_fields(text: str) -> list[tuple[str, str]]:
    """Fields of GitHub's form: their labels in their order. Of the file's YAML only what a form's
    schema has: ``type``, ``label``, and the ``options`` of a list."""
    sections = []
    for block in re.split(r"^\s*-\s+type:", text, flags=re.MULTILINE)[1:]:
        kind = block.split(None, 1)[0].strip("\"'")
        label = re.search(r"^\s*label:\s*(.+?)\s*$", block, re.MULTILINE)
        if kind in ("markdown", "checkboxes") or label is None:
            continue
        heading = label[1].strip("\"'")
        source = _asked(heading)
        if kind == "dropdown":
            listed = block.partition("options:")[2]
            options = [
                o.strip("\"' ") for o in re.findall(r"^\s*-\s+(.+?)\s*$", listed, re.MULTILINE)
            ]
            ways = (o for pattern, o in CHOICES if re.search(pattern, heading.lower()))
            chosen = next((o for o in next(ways, ()) if o in options), None)
            source = f"[{chosen}]" if chosen else f"[(choose: {', '.join(options)})]"
        sections.append((heading, source))
    return sections

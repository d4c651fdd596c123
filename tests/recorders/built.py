"""What each library's table builds, read off its source: functions, sums, norms, structures.

Canonical words and constructors that a table names are what it can build: the matrix has to compare
all that two tables name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from probe import semantics
from probe.semantics import Chooses, Steps, operations
from probe.semantics.contract import Meaning
from probe.semantics.elementwise import FUNCTIONS, canonical

WORDED = ("Normalises", "Reduces", "Scans", "Whole", "Each", "Windows", "Steps", "Meaning")
"""What constructors return whose word says what it is; of the others the class does."""

PLACES = {
    **dict.fromkeys("reduced along own_rows cumulated function approximate word_list".split(), 0),
    **dict.fromkeys("Each variance solved".split(), 0),
    **dict.fromkeys("Normalises Reduces Scans Whole".split(), 1),
    "norm": 4,
}
"""Constructors that take a word, and which argument it is."""


def key(meaning: Meaning) -> Iterator[str]:
    """Yields what a meaning is, of each of its steps."""
    if isinstance(meaning, Chooses):
        yield "where"
    if isinstance(meaning, Steps):
        for step in meaning.steps:
            yield from key(step.meaning)
    elif word := getattr(meaning, "word", ""):
        yield re.sub(r" \d+$|[ (].*", "", word)
        yield word
        yield type(meaning).__name__.lower()
        yield getattr(meaning, "kind", word)
    else:
        yield type(meaning).__name__.lower()


def _tree(module: str) -> ast.Module:
    found = find_spec(module)
    assert found is not None and found.origin is not None, module
    return ast.parse(Path(found.origin).read_text())


def _name(call: ast.Call) -> str:
    found = call.func
    return found.attr if isinstance(found, ast.Attribute) else getattr(found, "id", "")


def _words(tree: ast.AST) -> Iterator[str]:
    """Yields words that constructors are given, and those of ``word_list``."""
    for one in ast.walk(tree):
        if not isinstance(one, ast.Call):
            continue
        place = PLACES.get(_name(one))
        given = one.args[place : place + 1] if place is not None else []
        given += [each.value for each in one.keywords if each.arg == "word"]
        for each in given:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                for word in each.value.split() if _name(one) == "word_list" else [each.value]:
                    yield word.partition(":")[2] or word.partition(":")[0].lower()


def constructors() -> dict[str, set[str]]:
    """Returns what each constructor of ``operations`` may build."""
    found: dict[str, set[str]] = {}
    tree = _tree(operations.__name__)
    for one in tree.body:
        if isinstance(one, ast.FunctionDef):
            returned = ast.unparse(one.returns) if one.returns else ""
            some = set(map(canonical, _words(one)))
            defaults = zip(one.args.args[::-1], one.args.defaults[::-1], strict=False)
            some |= {ast.literal_eval(d) for arg, d in defaults if arg.arg == "word"}
            if returned in WORDED:
                found[one.name] = some
            elif hasattr(semantics, returned):
                found[one.name] = {returned.lower()}
    return found


def built(module: str, known: set[str]) -> set[str]:
    """Returns what a table builds: of ``known`` words those that its strings name."""
    tree, found, made = _tree(module), set[str](), constructors()
    for one in ast.walk(tree):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
            if one.value.id in ("o", "operations"):
                found |= made.get(one.attr, set())
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            for word in re.findall(r"\w+", one.value):
                inner = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
                found |= {canonical(w) for w in (word, word.lower(), inner)} & known
    return found


def every(modules: dict[str, str]) -> dict[str, set[str]]:
    """Returns what each of several tables builds."""
    known = set(FUNCTIONS)
    for module in (operations.__name__, *modules.values()):
        known |= set(map(canonical, _words(_tree(module))))
    return {library: built(module, known) for library, module in modules.items()}

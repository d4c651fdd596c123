"""The house's numbers: how large it is, and what a reader has to hold in mind.

    python .ci/house.py             # every number beside its limit in .ci/budget.toml

A test compares them with the tree. Whoever goes over a limit raises it in the same commit and says
why in the comment above it, because growth by a few lines at a time is not seen otherwise.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / ".ci" / "budget.toml"

MANY = 6
"""Parameters that a reader still keeps apart; more want a value of their own."""


def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def lines(paths: list[Path]) -> int:
    return sum(path.read_text().count("\n") for path in paths)


# Comments that do not speak to a tool: on a line of their own, and behind code.
ALONE = r"^\s*# (?!type:|noqa|fmt:)"
BEHIND = r"  # (?!type:|noqa|fmt:|doctest:)"


def share(pattern: str, paths: list[Path]) -> float:
    """Percent of the files' lines that have this."""
    found = re.compile(pattern, re.M)
    count = sum(len(found.findall(path.read_text())) for path in paths)
    return round(100 * count / lines(paths), 2)


@functools.cache
def nodes(tree: ast.Module) -> list[ast.AST]:
    """All nodes of a file: each number asks for them."""
    return list(ast.walk(tree))


def defined(trees: dict[Path, ast.Module]) -> tuple[dict[str, set[Path]], dict[str, set[Path]]]:
    """Classes at any depth and functions of modules, by name: the files that they stand in."""
    classes, functions = collections.defaultdict(set), collections.defaultdict(set)
    for path, tree in trees.items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(path)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                functions[node.name].add(path)
    return classes, functions


def parameters(trees: dict[Path, ast.Module]) -> Iterator[tuple[int, str, Path]]:
    """How many each function takes, without the object that it is a method of."""
    for path, tree in trees.items():
        for node in nodes(tree):
            if isinstance(node, ast.FunctionDef):
                of = node.args
                names = [one.arg for one in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
                yield len(names) - (names[:1] in (["self"], ["cls"])), node.name, path


def called_once(trees: dict[Path, ast.Module]) -> float:
    """Percent of the modules' private functions whose name stands once more in their file: a jump
    for the reader, unless it has a name worth having."""
    once = every = 0
    for tree in trees.values():
        named = collections.Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in nodes(tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        own = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name[0] == "_"]
        every += len(own)
        once += sum(named[name] == 1 for name in own)
    return 100 * once / max(every, 1)


SAY_NOTHING = {"one", "found", "made", "told", "given", "asked", "kept"}
"""Names that any value could have: a reader has to look up what it is."""


def names_that_say_nothing(trees: dict[Path, ast.Module]) -> float:
    """Percent of the uses of names of variables and parameters."""
    uses = [
        node.id if isinstance(node, ast.Name) else node.arg
        for tree in trees.values()
        for node in nodes(tree)
        if isinstance(node, ast.Name | ast.arg)
    ]
    return 100 * sum(name in SAY_NOTHING for name in uses) / max(len(uses), 1)


IMPORT = re.compile(r"^\s*(?:from ([\w.]+) )?import (\([^)]*\)|[^\n]+)", re.M)


def modules_without_test() -> list[str]:
    """Modules that no test file of their name, in the folder of theirs, imports or (cli) runs.

    A reader looks there first: what is tested elsewhere is hard to find, and to miss.
    """
    found = []
    for path in files("probe"):
        if path.stem in ("__init__", "__main__"):
            continue
        place = path.relative_to(ROOT).with_suffix("")
        test = ROOT / "tests" / Path(*place.parts[1:-1]) / f"test_{place.name}.py"
        if not test.exists():
            found.append(str(place))
            continue
        names, module = set(), ".".join(place.parts)
        for package, imported in IMPORT.findall(test.read_text()):
            names |= {package}
            for name in re.findall(r"[\w.]+", imported):
                names |= {f"{package}.{name}" if package else name}
        commands = {"probe.ui.cli.shell", "tests.ui.cli.commands"}
        runs = place.parts[1:3] == ("ui", "cli") and names & commands
        if module not in names and not runs:
            found.append(str(place))
    return found


def measured() -> dict[str, float]:
    package, tests = files("probe"), files("tests")
    trees = {path: ast.parse(path.read_text()) for path in package}
    classes, functions = defined(trees)
    own = {name: paths for name, paths in functions.items() if name[0] != "_"}
    return {
        "package_lines": lines(package),
        "package_files": len(package),
        "test_lines": lines(tests),
        "laboratory_lines": lines(files("experiments")),
        "class_names_twice": sum(len(paths) > 1 for paths in classes.values()),
        "function_names_twice": sum(len(paths) > 1 for paths in functions.values()),
        "public_function_names_twice": sum(len(paths) > 1 for paths in own.values()),
        "functions_of_many_parameters": sum(n > MANY for n, _, _ in parameters(trees)),
        "private_functions_called_once_percent": round(called_once(trees), 1),
        "names_that_say_nothing_percent": round(names_that_say_nothing(trees), 1),
        "comments_percent": share(f"{ALONE}|{BEHIND}", package),
        "comment_lines_percent": share(ALONE, package),
        "modules_without_test": len(modules_without_test()),
    }


AT_LEAST = {"comments_percent", "comment_lines_percent"}
"""Numbers that may not fall; all others may not rise."""


def limits() -> dict[str, float]:
    return tomllib.loads(LIMITS.read_text())


def over(found: dict[str, float], allowed: dict[str, float]) -> list[str]:
    """A line for each number that is not within its limit."""
    lines_over = []
    for name, value in found.items():
        way = "more" if name in AT_LEAST else "less"
        if value < allowed[name] if way == "more" else value > allowed[name]:
            todo = f"make it {way}, or change .ci/budget.toml in this commit and say why"
            lines_over.append(f"{name}={value}: the limit is {allowed[name]}; {todo}")
    return lines_over


if __name__ == "__main__":
    found, allowed = measured(), limits()
    for name, value in found.items():
        print(f"{name:40} {value:>8,} {allowed[name]:>8,}")
    sys.exit(bool(over(found, allowed)))

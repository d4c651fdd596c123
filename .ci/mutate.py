"""Changes an operator or a number of the package, one at a time, and sees whether a test notices.

    python .ci/mutate.py --count 40 --seed 1                # drawn from summation, comparison, ...
    python .ci/mutate.py --only probe/case/ulp.py --count 10
    python .ci/mutate.py --seed 1 --list                     # the changes, and runs nothing

A change is made in a copy of the checkout, where the test files that import the module run, the
closest first, until one fails. It is *caught* by a test that fails, by one that never ends, or by
an import that fails; *missed* if all pass. The share of what is caught is printed last, and the
exit is 1 where something was missed. Changes are drawn by the seed from all that is there; what
cannot change a result is left alone: texts and what they are put together of, errors, assertions,
annotations, ``strict`` of ``zip`` (both sides are of one length), and lines with a comment that
says ``speed alone``: in the line of a ``def`` or ``class``, all of it.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

MODULES = {
    "probe/order": ("tests/order", "tests/explain"),
    "probe/explain/comparison.py": ("tests/explain", "tests/case/test_layout"),
    "probe/explain/runs.py": ("tests/explain", "tests/case/test_layout"),
    "probe/explain/outputs.py": ("tests/explain",),
    "probe/order/semantics.py": (*("tests/order/test_semantics", "tests/record"),),
    "probe/explain/enclosure.py": ("tests/explain", "tests/diff/test_enclosed"),
    "probe/case/ulp.py": ("tests/case/test_ulp", "tests/order", "tests/explain"),
}
"""What is changed, where a wrong operator gives wrong bits or a wrong claim about them, and the
folders of tests that are to notice."""

LIBRARIES = ("jax", "litert", "onnx", "opencv", "tensorflow", "torch", "whole")
"""Words in the names of test files that go through all that a library has: they are not asked."""

ALONE = "speed alone"

SPOKEN = {"__repr__", "words", "lines"}
"""Functions that write for people what others have computed."""

# Bytes that a test run of one change may take.
MEMORY = 8 << 30

PATIENCE = 180
"""Seconds without a result, after which a change is taken for one that never ends."""

SWAPPED = (
    *((ast.Add, ast.Sub), (ast.LShift, ast.RShift), (ast.BitAnd, ast.BitOr), (ast.Lt, ast.LtE)),
    *((ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    (ast.And, ast.Or),
)

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    **{one: two for pair in SWAPPED for one, two in (pair, pair[::-1])},
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitXor: ast.BitOr,
}


class Mutation(NamedTuple):
    """One change: ``source`` is the whole file with it."""

    path: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"


def mutations(path: str, source: str) -> Iterator[Mutation]:
    """Every change of one operator, number or truth value of a file."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    alone = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and ALONE in token.string
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno in alone:
            alone.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    raw = source.encode()
    for node in _computing(tree):
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if alone.intersection(lines):
            continue
        start = starts[lines[0] - 1] + node.col_offset
        stop = starts[lines[-1] - 1] + (node.end_col_offset or 0)
        for changed in _changed(node):
            made = raw[:start] + b"(" + changed.encode() + b")" + raw[stop:]
            yield Mutation(path, lines[0], ast.unparse(node), changed, made.decode())


def _computing(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that compute something, outermost first."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, ast.AST) or _says(each):
                continue
            if isinstance(each, ast.expr):
                yield each
            # of a negative number the sign is changed: to many, -2 is as good as -1
            if not (isinstance(each, ast.UnaryOp) and isinstance(each.operand, ast.Constant)):
                yield from _computing(each)


def _says(node: ast.AST) -> bool:
    """Whether a part of the code puts words together, or only checks lengths."""
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.Call):  # an error, and ", ".join(...)
        called = node.func
        name = getattr(called, "id", getattr(called, "attr", ""))
        return name.endswith("Error") or (
            name == "join" and isinstance(getattr(called, "value", None), ast.Constant)
        )
    if isinstance(node, ast.FunctionDef):
        return node.name in SPOKEN
    # positions within formatted texts are wrong before Python 3.12
    return isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr) or (
        isinstance(node, ast.BinOp) and _of_texts(node)
    )


def _changed(node: ast.AST) -> Iterator[str]:
    """The texts of what may stand instead of an expression."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield str(not node.value)
        elif isinstance(node.value, int):
            yield str(node.value + 1)
        elif isinstance(node.value, float):
            yield repr(node.value * 2 if node.value else 1.0)
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        swapped = copy(node)  # an operator without a counterpart stays
        swapped.op = OPERATORS.get(type(node.op), type(node.op))()
        yield ast.unparse(swapped)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        swapped = ast.Compare(node.left, [OPERATORS[type(node.ops[0])]()], node.comparators)
        yield ast.unparse(swapped)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield ast.unparse(node.operand)


def _of_texts(node: ast.AST) -> bool:
    """Whether texts are put together, or types: ``"a" + name``, ``int | None``."""
    if isinstance(node, ast.BinOp):
        return _of_texts(node.left) or _of_texts(node.right)
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr) or ast.unparse(node).endswith("ndarray")


def near(path: str, texts: dict[str, str]) -> list[str]:
    """The test files that are to notice a change in a module, the closest first.

    ``texts``: of every test file. That of the module's name, those that import it, and those that
    import something of its room and take no library; if there are none, all of the room's folders.
    """
    module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    room, _, own = module.rpartition(".")
    homes = next((MODULES[name] for name in MODULES if path.startswith(name)), ("tests",))
    ranks: dict[str, tuple[int, int]] = {}
    for name, text in texts.items():
        if not name.startswith(homes) or any(word in name for word in LIBRARIES):
            continue
        imports = [line for line in text.splitlines() if line.startswith(("from ", "import "))]
        rank = 3
        if Path(name).stem == f"test_{own}":
            rank = 0
        elif any(
            line.startswith((f"from {module} ", f"import {module}"))
            or (line.startswith(f"from {room} import") and own in line.replace(",", " ").split())
            for line in imports
        ):
            rank = 1
        elif "importorskip" not in text and any(
            line.startswith(f"from {room}") for line in imports
        ):
            rank = 2
        ranks[name] = rank, len(text)
    close = [name for name, (rank, _) in ranks.items() if rank < 3]
    return sorted(close or ranks, key=lambda name: ranks[name])


class Copy:
    """A copy of the checkout whose files may be changed; results and the like are linked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failing: dict[str, bool] = {}  # tests that fail without a change too
        for each in ROOT.iterdir():
            if each.name in ("probe", "tests"):
                shutil.copytree(each, folder / each.name, symlinks=True)
            elif not each.name.startswith((".git", "build")):
                (folder / each.name).symlink_to(each)

    def noticed(self, mutation: Mutation, tests: list[str]) -> str:
        """The first test that fails with a change and not without; empty if none does."""
        path = self.folder / mutation.path
        plain = path.read_text("utf-8")
        while True:
            path.write_text(mutation.source, "utf-8")
            failed = self._first_failure(tests)
            path.write_text(plain, "utf-8")
            if "::" not in failed:
                return failed
            if failed not in self.failing:
                self.failing[failed] = bool(self._first_failure([failed]))
            if not self.failing[failed]:
                return failed

    def _first_failure(self, tests: list[str]) -> str:
        """The test that fails first, or what else went wrong; empty where all pass."""
        command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider"]
        command += ["-p", "no:xdist", "-m", "not slow", "--tb=no", *tests]
        command += [f"--deselect={name}" for name, fails in self.failing.items() if fails]
        # bytecode is kept by seconds: a file that is changed twice in one would be the old one
        environment = os.environ | {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        with tempfile.TemporaryFile("w+") as out:
            child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # a loop that never ends may fill the memory before it is given up
                preexec_fn=partial(resource.setrlimit, resource.RLIMIT_DATA, (MEMORY, MEMORY)),
            )
            size, since = 0, time.monotonic()
            while child.poll() is None:
                time.sleep(0.2)
                if os.fstat(out.fileno()).st_size != size:
                    size, since = os.fstat(out.fileno()).st_size, time.monotonic()
                elif time.monotonic() - since > PATIENCE:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
                    return "it does not end"
            if child.returncode in (0, 5):  # 5: all of its tests are slow
                return ""
            out.seek(0)
            lines = out.read().splitlines()
        failed = [line.split(" ")[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return failed[0] if failed else (lines or ["no output"])[-1]


def drawn(only: list[str], count: int, seed: int) -> list[Mutation]:
    """Draws ``count`` changes of the modules, each file's by its size."""
    files = [
        path
        for name in only or MODULES
        for path in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).glob("*.py")))
    ]
    every = [
        change
        for path in files
        for change in mutations(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def run(changes: list[Mutation]) -> list[Mutation]:
    """Runs the tests of every change, prints what came of it, and returns what was missed."""
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Copy(Path(folder))
        tests = sorted((ROOT / "tests").rglob("test_*.py"))
        texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in tests}
        for change in changes:
            why = checkout.noticed(change, near(change.path, texts))
            print(f"caught {change}  [{why}]" if why else f"MISSED {change}", flush=True)
            missed += [] if why else [change]
    caught = len(changes) - len(missed)
    print(f"{caught} of {len(changes)} caught ({caught / max(1, len(changes)):.0%})")
    for test, fails in checkout.failing.items():
        if fails:
            print(f"{test} fails without a change, and was not asked")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40, help="changes to make (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="which of them are drawn")
    parser.add_argument("--only", action="append", default=[], help="a file or a folder")
    parser.add_argument("--list", action="store_true", help="print the changes alone")
    given = parser.parse_args()
    changes = drawn(given.only, given.count, given.seed)
    if given.list:
        print("\n".join(map(str, changes)))
        return 0
    return 1 if run(changes) else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The listing shows the flow and imports follow it; the child's files run on old Pythons."""

import ast
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import probe
from probe.targets import backends

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "probe"
# A file may import those before it. A folder is one entry; inside it there are no cycles either.
ORDER = list(probe.ROOMS)
CHILD = [
    *(PACKAGE / room / "__init__.py" for room in ("case", "targets", "sizes")),
    *(PACKAGE / "case" / f"{n}.py" for n in ("floats", "geometry", "layout", "operation", "ulp")),
    *(PACKAGE / "targets" / f"{name}.py" for name in ("child", "compare")),
    *sorted((PACKAGE / "targets" / "backends").glob("*.py")),
    PACKAGE / "sizes" / "stable.py",
]
# What a child file may import beside the standard library, NumPy and our own child files, and that
# only when it is needed.
LIBRARIES = {"ml_dtypes", "onnx"} | {
    backends.get(name).module.partition(".")[0] for name in backends.BACKENDS
} - {"numpy", "probe"}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def imported(path, lazily=True):
    """Dotted names that a file imports, without those for type checkers only."""
    found = set()
    pending = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, ast.FunctionDef) and not lazily:
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name}: say the full name, `from probe import ...`"
            found |= {
                full if (full := f"{node.module}.{name.name}") in FILES else node.module
                for name in node.names
            }
        pending += ast.iter_child_nodes(node)
    return found


def room(module):
    return module.split(".")[1] if "." in module else ""


def test_every_room_has_its_place_in_the_order():
    rooms = {room(module) for module in FILES} - {"", "__main__"}
    assert rooms == set(ORDER), f"probe.ROOMS, against the folder: {sorted(rooms ^ set(ORDER))}"


@pytest.mark.parametrize("module", [name for name in FILES if room(name) in ORDER])
def test_imports_point_to_the_left(module):
    place = ORDER.index(room(module))
    for other in imported(FILES[module]):
        if other.startswith("probe.") and room(other) != room(module):
            assert ORDER.index(room(other)) < place, f"{module} imports {other}"


def test_the_package_needs_nothing_of_the_laboratory():
    """``experiments/lib`` isn't installed: a wheel has to do without it."""
    laboratory = {"lib", "experiments", "tests"}
    for module, path in FILES.items():
        assert not laboratory & {name.partition(".")[0] for name in imported(path)}, module


def test_there_is_no_cycle():
    graph = {module: imported(path) & set(FILES) - {module} for module, path in FILES.items()}
    while graph:
        leaves = {module for module, others in graph.items() if not others & set(graph)}
        assert leaves, f"a cycle among {sorted(graph)}"
        graph = {module: others for module, others in graph.items() if module not in leaves}


@pytest.mark.parametrize("path", CHILD, ids=module_of)
def test_the_child_imports_the_child_numpy_and_one_library(path):
    own = {module_of(other) for other in CHILD}
    for name in imported(path):
        top = name.split(".")[0]
        others = {"numpy", *LIBRARIES, *sys.stdlib_module_names}
        assert name in own if top == "probe" else top in others, f"{module_of(path)} imports {name}"


@pytest.mark.parametrize("path", CHILD, ids=module_of)
def test_a_backend_can_be_imported_without_its_library(path):
    for name in imported(path, lazily=False):
        assert name.split(".")[0] not in LIBRARIES, f"{path.name} imports {name}"


def old_python():
    """An interpreter of Python 3.6, or None."""
    candidates = [shutil.which("python3.6")]
    candidates += map(str, Path.home().glob(".pyenv/versions/3.6.*/bin/python"))
    for candidate in filter(None, candidates):
        command = [candidate, "-c", "import sys; assert sys.version_info[:2] == (3, 6)"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def test_child_files_compile_on_python_3_6():
    python = old_python()
    if python is None:
        pytest.skip("there is no Python 3.6 on this machine")
    check = "import sys\nfor name in sys.argv[1:]: compile(open(name).read(), name, 'exec')"
    command = [python, "-c", check, *map(str, CHILD)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", CHILD, ids=module_of)
def test_child_files_have_no_syntax_younger_than_3_6(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 7))
    futures = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not any(node.module == "__future__" for node in futures)
    assert "dataclasses" not in imported(path)


@pytest.mark.parametrize("heavy", ["numpy", "pandas", "pyarrow", "tensorflow", "matplotlib"])
def test_importing_probe_imports_nothing(heavy):
    code = f"import sys, probe; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_public_names_are_there():
    for name in probe.__all__:
        assert getattr(probe, name).__name__.rpartition(".")[2] == name
    assert set(probe.__all__) < set(dir(probe))
    with pytest.raises(AttributeError, match=r"probe.nonsense: .*Case"):
        _ = probe.nonsense

"""Oracles: what probe computes, answers and costs, to hold a redesign against what was before it.

    python .ci/oracle.py record build/before          # before the first step; --quick in minutes
    python .ci/oracle.py record build/after --only pairs --quick
    python .ci/oracle.py compare build/before build/after

Parts (``--only`` takes several, with commas; what is recorded already is not recorded again):

    pairs     to_json of the pairs of real_models: verdicts, sources, causes, compared elements
    commands  --json of some 80 command lines, without seconds and paths
    tests     to_json of every probe.first_difference that the tests of recordings ask for
    runs      runs of the user's function, and peak memory, of a first_difference
    reveals   calls and seconds of reveals
    sweeps    comparisons a second
    bits      digests of what every target computes (digests.py; 40 minutes, quick an eighth)

It records the checkout that `import probe` finds, so one copy of this file serves two worktrees,
and every model, library and test file runs in a process of its own. ``compare`` prints a line a
part and what differs below it, and exits with 1 where something is lost: another verdict, first
source, kind of cause or answer, fewer compared or explained, more unknown, more runs or calls, a
refuted row.
What is gained, words that changed, and speeds (as ratios) are printed and lose nothing;
``--strict`` counts them too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import probe

HERE = Path(__file__).resolve().parent
ROOT = Path(probe.__file__).resolve().parent.parent
"""The checkout that is recorded."""

sys.path.append(str(ROOT / "experiments"))  # the models that experiments share

CHILD = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONPATH": f"{ROOT}:{ROOT}/experiments",
}


class Found(NamedTuple):
    """What a comparison of one part came to: ``lost`` makes it fail, the rest is only said."""

    same: int
    lost: list[str]
    other: list[str]


# --- what is kept of an answer ---

VOLATILE = {
    *("seconds", "store", "path", "out", "folder", "script", "elapsed", "plain_seconds", "memory"),
    *("watched_seconds", "version", "versions", "machine", "facts", "host", "date", "commit"),
    *(
        "when",
        "run_id",
        "created",
        "pid",
        "throughput",
        "cost",
        "ratio",
        "overhead",
        "bytes",
        "slower",
    ),
}
"""Fields that are others in every run."""


def plain(value: Any, folder: str = "") -> Any:
    """Returns an answer without what no two runs share."""
    if isinstance(value, dict):
        return {
            k: plain(v, folder)
            for k, v in value.items()
            if k not in VOLATILE and not k.endswith("_fixed")
        }
    if isinstance(value, list | tuple):
        return [plain(one, folder) for one in value]
    if isinstance(value, str):
        value = value.replace(folder, "DIR") if folder else value
        value = value.replace(str(ROOT), "ROOT")
        value = re.sub(r"0x[0-9a-f]{9,}", "0xADDRESS", value)
        return re.sub(r"\b\d+(\.\d+)?(e-?\d+)? ?(s|ms|seconds|minutes|times)\b", "N", value)
    return value


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each number and word of an answer, with where it stands."""
    if isinstance(value, dict | list):
        every = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in every:
            yield from leaves(one, f"{at}.{key}" if at else str(key))
    else:
        yield at, value


def shared(before: Any, after: Any) -> Any:
    """Returns the second answer without the fields that it has and the first hasn't."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {key: shared(one, after[key]) for key, one in before.items() if key in after}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [shared(a, b) for a, b in zip(before, after, strict=True)]
    return after


def apart(before: Any, after: Any, most: int = 4) -> str:
    """Returns in words where two answers differ; empty if they don't."""
    one, two = dict(leaves(before)), dict(leaves(after))
    keys = [key for key in {**one, **two} if one.get(key, "none") != two.get(key, "none")]
    said = [f"{key}: {one.get(key, 'none')!s:.60} -> {two.get(key, 'none')!s:.60}" for key in keys]
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return "; ".join(said[:most]) + more


# --- pairs: real_models, and those of tests ---

QUICK = (
    *(("numbers", "numpy"), ("residual", "torch"), ("encoder", "torch"), ("lstm", "torch")),
    *(("gpt", "torch"), ("blocks", "jax"), ("residual without norms", "litert")),
    *(("codec (pytorch #104587)", "torch"), ("both ways", "keras")),
)
"""Models that a quick record walks: small, with seeded weights."""

FEW = 3
"""Variations of each of them."""

PATIENCE = 600.0
"""Seconds for the causes of a pair: enough that a slow machine explains no less than a fast one."""


def models(quick: bool) -> list[Any]:
    from lib.models import every

    return [one for one in every() if not quick or (one.name, one.target) in QUICK]


def chosen(model: Any, quick: bool) -> list[Any]:
    """The variations of a model: of a quick one a few, one of each kind ahead."""
    if not quick:
        return list(model.variations)
    firsts = {one.vary: one for one in reversed(model.variations)}
    others = [one for one in model.variations if one not in firsts.values()]
    return [*reversed(firsts.values()), *others][: max(FEW, len(firsts))]


def record_pairs(folder: Path, quick: bool) -> None:
    for model in models(quick):
        path = folder / "pairs" / f"{name_of(f'{model.target} {model.name}')}.json"
        wanted = {f"{one.vary} {one.at} {one.against}" for one in chosen(model, quick)}
        if wanted - kept(path).keys():
            child("pairs", str(path), model.name, model.target, "quick" * quick)


def child_pairs(path: Path, name: str, target: str, quick: str) -> None:
    (model,) = (one for one in models(False) if (one.name, one.target) == (name, target))
    backend = re.search("backend=([a-z]+)", target)
    if backend:
        os.environ["KERAS_BACKEND"] = backend[1]
    done = kept(path)
    sides = model.sides(ROOT / "build" / "models")
    for one in chosen(model, bool(quick)):
        key = f"{one.vary} {one.at} {one.against}"
        if key in done:
            continue
        begun = time.monotonic()
        try:
            done[key] = plain(walked(sides(one), target))
        except Exception as error:  # a package, a library or a compiler that isn't here
            done[key] = {"refused": plain(f"{type(error).__name__}: {error}")[:200]}
        write(path, done)
        said = done[key].get("verdict") or done[key].get("refused")
        print(f"{target} {name}, {key}: {said}, {time.monotonic() - begun:.0f} s", flush=True)


def walked(sides: tuple[Any, Any], target: str) -> dict[str, Any]:
    """Returns the answer about two functions or recorders, as ``first_difference`` gives it."""
    from lib.walking import recorders
    from probe.diff.walk import walk
    from probe.ui.answers.first_difference import ComparisonQuestion, Walked

    left, right = recorders(sides, target)
    return dict(
        Walked(
            walk(left, right, seconds=PATIENCE), ComparisonQuestion("", "left", "right")
        ).to_json()
    )


def compare_pairs(before: Path, after: Path, part: str = "pairs") -> Found:
    one, two = ({f"{p.stem}: {k}": v for p in files(side, part) for k, v in kept(p).items()}
                for side in (before, after))  # fmt: skip
    found = Found(0, [], [])
    same = 0
    for key in one.keys() & two.keys():
        lost, other = losses(one[key], two[key])
        found.lost.extend(f"{key}: {why}" for why in lost)
        found.other.extend(f"{key}: {why}" for why in other)
        same += not lost and not other
    found.other.extend(f"{key}: not recorded after" for key in one if key not in two)
    return found._replace(same=same)


def losses(before: dict[str, Any], after: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Returns what an answer about two runs lost, and what else changed in it."""
    after = shared(before, after)
    if before == after:
        return [], []
    if "refused" in before or "refused" in after:
        both = [one.get("refused", one.get("verdict")) for one in (before, after)]
        said = [f"refused: {both[0]} -> {both[1]}"]
        worse = "refused" in after and "refused" not in before
        return (said, []) if worse else ([], said)
    lost, other = list[str](), list[str]()
    for key in ("verdict", "first"):
        if before[key] != after[key]:
            lost.append(f"{key} {before[key]} -> {after[key]}")
    causes = [(one.get("first_cause"), _first_cause(one)) for one in (before, after)]
    if causes[0] != causes[1]:
        (lost if causes[0][1] else other).append(f"first cause {causes[0][1]} -> {causes[1][1]}")
    compared = [sum(one["compared"] or 0 for one in side["operations"]) for side in (before, after)]
    for name, pick, more in (
        ("examined operations", lambda one: one["examined"], True),
        ("explained operations", _explained, True),
        ("replayed elements", _replayed, True),
        ("unknown operations", lambda one: sum(u["operations"] for u in one["unknown"]), False),
        ("outputs compared", lambda one: sum(o["compared"] for o in one["outputs"]), True),
        ("outputs differing", lambda one: sum(o["differing"] or 0 for o in one["outputs"]), True),
        ("close values assumed", lambda one: sum("close" in n for n in one["notes"]), False),
    ):
        a, b = pick(before), pick(after)
        if a != b:
            worse = (b < a) == more
            (lost if worse else other).append(f"{name} {a:,} -> {b:,}")
    if len(before["operations"]) == len(after["operations"]):
        fewer = [
            (b["name"], a["compared"], b["compared"])
            for a, b in zip(before["operations"], after["operations"], strict=True)
            if (b["compared"] or 0) < (a["compared"] or 0)
        ]
        lost += [f"{n} compares {a:,} -> {b:,}" for n, a, b in fewer[:3]]
    elif compared[0] != compared[1]:
        (lost if compared[1] < compared[0] else other).append(
            f"compared elements {compared[0]:,} -> {compared[1]:,}"
        )
    if not lost and not other:
        other.append(f"words: {apart(before, after, 2)}")
    return lost, other


def _first_cause(one: dict[str, Any]) -> Any:
    first: dict[str, Any] = next((o for o in one["operations"] if o["name"] == one["first"]), {})
    return (first.get("explanation") or {}).get("kind") or first.get("cause")


def _explained(one: dict[str, Any]) -> int:
    return sum(bool((o.get("explanation") or {}).get("kind")) for o in one["operations"])


def _replayed(one: dict[str, Any]) -> int:
    return sum((o.get("explanation") or {}).get("replayed") or 0 for o in one["operations"])


# --- the tests' own pairs ---

TESTS = (
    "recording/test_related recording/test_related_close recording/test_matching_arguments "
    "recording/test_whole_models recorders/test_torch recorders/test_ndarray "
    "answers/test_first_difference"
).split()
QUICK_TESTS = TESTS[:3]


def record_tests(folder: Path, quick: bool) -> None:
    for name in QUICK_TESTS if quick else TESTS:
        path = folder / "tests" / f"{name_of(name)}.json"
        if not path.exists() and (ROOT / "tests" / f"{name}.py").exists():
            child("tests", str(path), name)


def child_tests(path: Path, name: str) -> None:
    import pytest

    done: dict[str, Any] = {}
    real = probe.first_difference

    def watched(*given: Any, **named: Any) -> Any:
        found = real(*given, **named)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0].rpartition("::")[2]
        number = sum(key.startswith(f"{test} ") for key in done)
        done[f"{test} {number}"] = plain(found.to_json())
        return found

    probe.first_difference = watched
    os.chdir(ROOT)
    words = "-q -n 0 --no-header -p no:cacheprovider -W ignore".split()
    pytest.main([f"tests/{name}.py", *words, "-m", "not slow"])
    write(path, done)


# --- commands ---

QUICK_TARGETS, TARGETS = (
    ("reference", "numpy"),
    ("torch", "tensorflow", "jax", "onnxruntime", "litert"),
)


def record_commands(folder: Path, quick: bool) -> None:
    """Each target's command lines run in one process, one behind the other, in a folder."""
    each, own, some = sections()
    for target in QUICK_TARGETS if quick else QUICK_TARGETS + TARGETS:
        asked(folder, name_of(target), [f"{line} --target {target}" for line in each])
    asked(folder, "own", own)
    if not quick:
        asked(folder, "models", some)


def sections() -> list[list[str]]:
    """Returns the command lines of oracle_commands.txt, in its three sections."""
    found: list[list[str]] = []
    words = dict[str, str]()
    for line in (HERE / "oracle_commands.txt").read_text().splitlines():
        if line.startswith("["):
            found.append([])
        elif line and not line.startswith("#"):
            if found:
                found[-1].append(line.format(**words))
            else:
                name, _, text = line.partition(" = ")
                words[name] = text
    return found


def asked(folder: Path, name: str, lines: list[str]) -> None:
    path = folder / "commands" / f"{name}.json"
    if any(line not in kept(path) for line in lines):
        child("commands", str(path), *lines)


def child_commands(path: Path, *lines: str) -> None:
    from probe.ui.cli import shell

    done = {}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        sys.path.insert(0, place)
        os.environ["PYTHONPATH"] += os.pathsep + place  # models are imported by targets too
        Path("model.py").write_text((HERE / "oracle_model.py").read_text())
        if any(".onnx" in line for line in lines):
            exported()
        for line in lines:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = shell.run([*line.split(), "--json"])
            told = [one for one in err.getvalue().splitlines() if one.startswith("probe: ")]
            try:
                answer = json.loads(out.getvalue())
            except ValueError:
                answer = out.getvalue()
            keeps = None if line in ("machine", "targets", "doctor") else answer
            if keeps is None and isinstance(answer, dict):
                keeps = {"keys": sorted(answer)}
            done[line] = plain({"status": status, "told": told, "answer": keeps}, place)
            write(path, done)
            print(f"probe {line}: {status} {' '.join(told)[:80]}", flush=True)


def exported() -> None:
    """Writes residual.onnx, as PyTorch's module of that name computes it."""
    import model
    import torch

    x = torch.zeros(4, 3, 16, 16)
    words = {"dynamic_axes": {"x": {0: "n"}}, "dynamo": False}
    torch.onnx.export(model.residual, (x,), "residual.onnx", input_names=["x"], **words)


def compare_commands(before: Path, after: Path) -> Found:
    found, same = Found(0, [], []), 0
    for path in files(before, "commands"):
        one, two = kept(path), kept(after / "commands" / path.name)
        for line in one.keys() & two.keys():
            a, b = one[line], two[line]
            walks = [
                isinstance(x["answer"], dict) and "operations_total" in x["answer"] for x in (a, b)
            ]
            b = shared(a, b)
            if a == b:
                same += 1
            elif all(walks) and a["status"] == b["status"]:
                lost, other = losses(a["answer"], b["answer"])
                found.lost.extend(f"probe {line}: {why}" for why in lost)
                found.other.extend(f"probe {line}: {why}" for why in other)
            else:
                found.lost.append(f"probe {line}: {apart(a, b)}")
    return found._replace(same=same)


# --- runs, memory, reveals, sweeps ---


def record_runs(folder: Path, quick: bool) -> None:
    path = folder / "runs.json"
    for name in ("numpy", "torch") if quick else ("numpy", "torch", "tensorflow", "jax"):
        if name not in kept(path):
            child("runs", str(path), name)


def child_runs(path: Path, name: str) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 200)).astype(np.float32)
    weights = [rng.standard_normal((200, 200)).astype(np.float32) for _ in range(6)]
    if name == "torch":
        import torch

        array, act = torch.from_numpy, torch.relu
    elif name == "tensorflow":
        import tensorflow

        array, act = tensorflow.constant, tensorflow.nn.relu
    elif name == "jax":
        import jax

        array, act = jax.numpy.asarray, jax.nn.relu
    else:
        array, act = np.asarray, lambda y: np.maximum(y, np.float32(0))
    held = [array(w) for w in weights]
    counts = [0, 0]

    def side(number: int, rows: int) -> Callable[..., Any]:
        def model(y: Any) -> Any:
            counts[number] += 1
            y = y[:rows]
            for w in held:
                y = act(y @ w)
            return y

        return model

    left, right = side(0, 1), side(1, 8)
    left(array(x)), right(array(x))
    counts[:] = [0, 0]
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    begun = time.perf_counter()
    found = probe.first_difference(left, right, inputs=[array(x)])
    seconds = time.perf_counter() - begun
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    told = {"runs": max(counts), "verdict": found.verdict, "seconds": seconds}
    told["peak MB"] = int(peak[1]) / 1024 if peak else None
    write(path, kept(path) | {name: told})
    print(f"first_difference of {name}: {told}", flush=True)


CASES = (
    *(
        "--op conv1d --kernel 5 --in-channels 8 --filters 4 --length 12",
        "--op sum --in-channels 100 --length 2",
    ),
    *(
        "--op matmul --in-channels 64 --filters 8 --length 4",
        "--op dense --in-channels 64 --filters 8",
    ),
    "--op conv2d --kernel 3x3 --in-channels 4 --filters 4 --length 8 --height 8",
)


def record_reveals(folder: Path, quick: bool) -> None:
    path = folder / "reveals.json"
    for target in QUICK_TARGETS if quick else QUICK_TARGETS + TARGETS:
        if not any(key.startswith(f"{target} ") for key in kept(path)):
            child("reveals", str(path), target)


def child_reveals(path: Path, target: str) -> None:
    from probe.ui.cli import shell

    done = kept(path)
    for case in CASES:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = shell.run(["order", *case.split(), "--target", target, "--json"])
        told = json.loads(out.getvalue())
        keys = ("calls", "seconds", "outputs", "replayed", "orders")
        done[f"{target} {case}"] = {"status": status} | {k: told.get(k) for k in keys}
    write(path, done)
    print(f"reveals of {target}", flush=True)


def record_sweeps(folder: Path, quick: bool) -> None:
    path = folder / "sweeps.json"
    for target in QUICK_TARGETS if quick else QUICK_TARGETS + TARGETS:
        if target not in kept(path):
            child("sweeps", str(path), target)


def child_sweeps(path: Path, target: str) -> None:
    case = probe.Case("matmul", in_channels=40, filters=4)  # which every library has
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        found = probe.sweep(case, range(1, 201), target).to_json()
        times.append(time.perf_counter() - begun)
    told = {"seconds": min(times), "rate": 200 / min(times)} | {
        key: found.get(key) for key in ("compared", "differing", "max_ulp")
    }
    write(path, kept(path) | {target: told})
    print(f"sweeps of {target}: {told['rate']:.0f} lengths a second", flush=True)


def compare_costs(before: Path, after: Path, part: str) -> Found:
    """Numbers that must be the same, or not more (runs, calls); seconds and memory as ratios."""
    one, two = kept(before / f"{part}.json"), kept(after / f"{part}.json")
    found, same, ratios = Found(0, [], []), 0, dict[str, list[float]]()
    for key in one.keys() & two.keys():
        a, b = dict(one[key]), dict(two[key])
        for name in ("seconds", "rate", "peak MB"):
            before_, after_ = a.pop(name, None), b.pop(name, None)
            if before_ and after_ and name != "rate":
                ratios.setdefault(name, []).append(after_ / before_)
        for name in ("runs", "calls"):
            if (a.get(name) or 0) > (b.get(name) or 0):
                found.other.append(f"{key}: {name} {a.pop(name)} -> {b.pop(name)}")
        if a == b:
            same += 1
        else:
            found.lost.append(f"{key}: {apart(a, b)}")
    for name, some in ratios.items():
        found.other.append(f"{name}, after over before: {min(some):.2f} to {max(some):.2f}")
    return found._replace(same=same)


# --- bits ---


def record_bits(folder: Path, quick: bool) -> None:
    words = ["--quick"] if quick else []
    command = [sys.executable, str(HERE / "digests.py"), "record", str(folder / "bits"), *words]
    subprocess.run(command, cwd=ROOT, check=True)


def compare_bits(before: Path, after: Path) -> Found:
    command = [sys.executable, str(HERE / "digests.py"), "compare"]
    done = subprocess.run(
        [*command, str(before / "bits"), str(after / "bits")],
        capture_output=True,
        text=True,
        check=False,
    )
    first, *more = (done.stdout or done.stderr[-400:]).splitlines() or ["no answer"]
    same = re.match(r"(\d+) of", first)
    lost = [first, *more] if done.returncode else []
    return Found(int(same[1]) if same else 0, lost, [])


# --- the command ---

MOST, WIDE = 25, 300
"""Lines a part that `compare` prints, and their length."""

Record = Callable[[Path, bool], None]
PARTS: dict[str, tuple[Record, Callable[[Path, Path], Found]]] = {
    "pairs": (record_pairs, compare_pairs),
    "commands": (record_commands, compare_commands),
    "tests": (record_tests, lambda a, b: compare_pairs(a, b, "tests")),
    "runs": (record_runs, lambda a, b: compare_costs(a, b, "runs")),
    "reveals": (record_reveals, lambda a, b: compare_costs(a, b, "reveals")),
    "sweeps": (record_sweeps, lambda a, b: compare_costs(a, b, "sweeps")),
    "bits": (record_bits, compare_bits),
}


def kept(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, default=str))


def files(folder: Path, part: str) -> list[Path]:
    return sorted((folder / part).glob("*.json"))


def name_of(text: str) -> str:
    return re.sub("[^a-zA-Z0-9]+", "_", text).strip("_")


def child(part: str, path: str, *words: str) -> None:
    """Records a piece of a part in a process of its own; one that dies leaves the others."""
    command = [sys.executable, str(Path(__file__).resolve()), "child", part, path, *words]
    done = subprocess.run(
        command, env=os.environ | CHILD, cwd=ROOT, check=False, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:  # what libraries print beside is of no use but then
        last = " / ".join(done.stderr.splitlines()[-3:])
        print(f"{part} {' '.join(words)[:80]}: ended with {done.returncode}: {last}", flush=True)


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        part, path, *words = sys.argv[2:]
        globals()[f"child_{part}"](Path(path).resolve(), *words)
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--quick", action="store_true", help="small models, few targets: minutes")
    parser.add_argument("--strict", action="store_true", help="whatever changed is a difference")
    given = parser.parse_args()
    parts = given.only.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"--only {','.join(unknown)}: parts are {', '.join(PARTS)}")
    if len(given.folders) != (1 if given.do == "record" else 2):
        parser.error("record takes one folder, compare two")
    folders = [one.resolve() for one in given.folders]
    if given.do == "record":
        for part in parts:
            begun = time.monotonic()
            PARTS[part][0](folders[0], given.quick)
            print(f"{part}: recorded in {time.monotonic() - begun:.0f} s", flush=True)
        return 0
    return compare(folders[0], folders[1], parts, given.strict)


def compare(before: Path, after: Path, parts: list[str], strict: bool) -> int:
    failed = False
    for part in parts:
        names = (part, f"{part}.json")
        there = [any((side / name).exists() for name in names) for side in (before, after)]
        if not all(there):
            print(f"{part}: not recorded on both sides")
            continue
        found = PARTS[part][1](before, after)
        word = "DIFFERENT" if found.lost or (strict and found.other) else "same"
        failed |= word == "DIFFERENT"
        counts = f"{found.same} equal, {len(found.lost)} lost, {len(found.other)} otherwise changed"
        print(f"{part}: {word}: {counts}")
        for sign, some in (("-", found.lost), ("~", found.other)):
            for one in sorted(some)[:MOST]:
                print(f"  {sign} {one[:WIDE]}")
            if len(some) > MOST:
                print(f"  {sign} and {len(some) - MOST} more")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Does `bits.lock` cry wolf, does it name what changed bits?

Eleven results of seven libraries are computed under three limits of instructions and with one and
two processors, three times each, in processes of their own. Each of these is a lock against which
all others are checked: a check that fails although no release and no code changed is a false alarm.

Then releases that moved bits (ONNX Runtime, JAX, OpenBLAS below NumPy), and a planted change of a
user's code: `probe check lock` runs in one environment, `probe check` in the other, and has to name
the cause, and of a release the operation. Releases are installed into probe's cache. Half an hour
on two processors, most of it imports.

Writes results/lock/<machine>/*.parquet; notebooks/lock.ipynb draws them. What is stored already is
not measured twice.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from lib import frame
from lib.locked import CHECKS
from lib.onnx_files import onnx_file
from probe import Store
from probe.case.errors import TargetError
from probe.sweep.plan import current_shard
from probe.targets.progress import silent
from probe.ui.lock.checks import LockFile, judged_check
from probe.ui.lock.conditions import CORES_OF, LEVELS, limiting_variables
from probe.ui.lock.runs import Command, Rerun, exit_status, overlay, run_again

THREADS = (1, 2)
REPEATS = 3
AT_ONCE = 8
"""Processes that run at once: what is measured are bits, no times."""

TEST = """
import pytest
from lib.locked import CHECKS


@pytest.mark.parametrize("name", CHECKS)
def test(bits, name):
    bits.check(CHECKS[name]())
"""

FUNCTIONS = """
import numpy as np


draws = np.random.default_rng(0)
X, W = (draws.standard_normal(n).astype(np.float32) for n in ((64, 1024), (1024, 64)))


def product(x, w):
    return np.tanh(x @ w)


def jax_sum():
    import jax

    return jax.numpy.sum(jax.numpy.asarray(X), axis=-1)


def torch_layers():
    import torch

    x = torch.from_numpy(X) @ torch.from_numpy(W)
    return torch.nn.functional.gelu(torch.softmax(x, -1))
"""
ELU = "[a] a = MatMul(x, v) [b] b = Elu(a) [y] y = MatMul(b, w)"


def write_inputs(folder: Path) -> None:
    """What ``FUNCTIONS`` are called with, and a file of ``ELU``."""
    x, w = drawn((64, 1024), (1024, 64))
    np.savez(folder / "xw.npz", x=x, w=w)
    np.savez(folder / "x.npz", x=x[:4, :64])
    first, last = drawn((64, 48), (48, 32))
    file = onnx_file(f"(float[4,64] x) => (float[4,32] y) {{ {ELU} }}", v=first, w=last)
    (folder / "elu.onnx").write_bytes(file)


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """As ``FUNCTIONS`` draw them."""
    draws = np.random.default_rng(0)
    return [draws.standard_normal(shape).astype(np.float32) for shape in shapes]


GELU = "gelu(torch.softmax(x, -1))", "gelu(torch.softmax(x, -1), approximate='tanh')"


@dataclass(frozen=True)
class Change:
    """Something that moves bits: ``words`` of ``probe check lock``; releases by module on both
    sides; ``preload``: OpenBLAS' wheel in front of NumPy's; ``edit``: text of the functions,
    and its replacement."""

    what: str
    target: str
    words: str
    old: Mapping[str, str]
    new: Mapping[str, str]
    preload: bool = False
    edit: tuple[str, str] = ("", "")

    @property
    def name(self) -> str:
        """Returns ``Elu: onnxruntime 1.20.0 -> 1.21.1``."""
        moved = [f"{n} {old} -> {self.new[n]}" for n, old in self.old.items() if n in MOVED]
        return f"{self.what}: {moved[0] if moved else 'a line of the code'}"


MOVED = ("onnxruntime", "jax", "scipy_openblas64")

JAX = [{"jax": one, "jaxlib": one} for one in ("0.10.1", "0.10.2")]
OPENBLAS = [{"scipy_openblas64": f"0.3.{one}"} for one in ("31.188.0", "33.201.0")]
PRODUCT = "functions:product --inputs xw.npz"
CHANGES = (
    Change(
        *("Elu", "onnxruntime", "elu.onnx --inputs x.npz"),
        *({"onnxruntime": "1.20.0"}, {"onnxruntime": "1.21.1"}),
    ),
    Change("sum", "jax", "functions:jax_sum", JAX[0], JAX[1]),
    Change("product", "numpy", PRODUCT, OPENBLAS[0], OPENBLAS[1], preload=True),
    Change("GELU", "torch", "functions:torch_layers", {}, {}, edit=GELU),
)


@frame.script
def main(experiment: frame.Experiment) -> None:
    with experiment.store() as (kept, tell):
        run = frame.stored_run("reference", kept, experiment.name)
        say = partial(tell, 0, 0)
        # a shard (--shard 1/3) has the alarms, or some of the changes
        mine = current_shard().part(["alarms", *([] if experiment.quick else CHANGES)])
        if "alarms" in mine:
            alarms(kept, run, experiment.quick, say)
        known = {key[2] for key in kept.done_keys("verdicts")}
        some = [one for one in mine if isinstance(one, Change) and one.name not in known]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for change, found in zip(some, pool.map(named_cause, some), strict=True):
                say(change.name)
                kept.append("verdicts", {"run_id": run} | found)


Side = tuple[str, int]
"""Conditions in words, and the number of the repetition."""


def alarms(kept: Store, run: str, quick: bool, say: Callable[[str], None]) -> None:
    """Stores the verdict of each check under each condition against each lock, as exit status."""
    if any(key[1] in CHECKS for key in kept.done_keys("measurements")):
        return
    with tempfile.TemporaryDirectory(prefix="probe-") as made:
        folder = Path(made)
        (folder / "test_bits.py").write_text(TEST)
        found = observed(folder, quick, say)
        rows = []
        locks = {label: [one] for (label, repeat), one in found.items() if repeat == 0}
        for name, entries in (*locks.items(), ("all", [one for (one,) in locks.values()])):
            lock = LockFile()
            for one in entries:
                for check, bits in one.checks.items():
                    lock.accept(check, one.facts, bits)
            for (label, repeat), here in found.items():
                for check, bits in here.checks.items():
                    if check in lock.checks:
                        told = judged_check(lock, check, check, bits, here.facts)
                        row: dict[str, Any] = {"run_id": run}
                        row |= {"subject": check.partition("[")[2].rstrip("]")}
                        row |= {"variant": f"{name} | {label}", "size": int(np.prod(bits.shape))}
                        row |= {"repeat": repeat, "value": exit_status([told])}
                        rows.append(row | {"unit": "exit status"})
        kept.append("measurements", rows)


def observed(folder: Path, quick: bool, say: Callable[[str], None]) -> dict[Side, Rerun]:
    """The bits and conditions of all checks, under each limit and number of processors."""
    words, path = pytest_in(folder)
    asked: dict[Side, Command] = {}
    for level, count in itertools.product(*((LEVELS[:2], (1,)) if quick else (LEVELS, THREADS))):
        variables: dict[str, str | int] = {**limiting_variables(level), **path, CORES_OF: count}
        command = Command([*words, *["-k", "numpy"] * quick], folder, variables)
        for repeat in range(1 if quick else REPEATS):
            asked[f"{level}, {count}", repeat] = command

    def run(number: int) -> tuple[Side, Rerun]:
        side, command = list(asked.items())[number]
        out = folder / f"run{number}"
        out.mkdir()
        one = run_again(command, out)
        say(f"{side[0]}, {side[1] + 1} of {REPEATS}: {one.why or len(one.checks)}")
        return side, one

    # the slowest first
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(pool.map(run, reversed(range(len(asked)))))
    for (label, _), one in found.items():
        if one.why:
            raise TargetError(label, "error", one.why)
    return dict(sorted(found.items()))


ROOT = Path(__file__).resolve().parent.parent
INSTALLED = any(one.name == "bits" for one in metadata.entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "probe.ui.lock.plugin"]


def pytest_in(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The words that run the checks, and the variables that find them."""
    words = [sys.executable, "-m", "pytest", *PLUGIN, "-q", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(Path(__file__).parent), str(ROOT)])
    return [*words, f"--rootdir={folder}"], {"PYTHONPATH": path}


def in_words(one: Mapping[str, Any]) -> str:
    """Cause, operation, class and kind of what changed, with bars between."""
    why = one["why"] or {}
    told = (why.get("said") or why.get("cause"), why.get("operation"), why.get("class"))
    return " | ".join(str(part or "not known") for part in (*told, why.get("kind")))


def named_cause(change: Change) -> dict[str, Any]:
    """What `probe check` says of what `probe check lock` kept in the other environment."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="probe-") as made:
        folder = Path(made)
        (folder / "functions.py").write_text(FUNCTIONS)
        write_inputs(folder)
        words = ["lock", *change.words.split(), "--name", change.what.replace(" ", "-")]
        told = in_environment(change, change.old, words, folder)
        (folder / "functions.py").write_text(FUNCTIONS.replace(*change.edit))
        words = ["check", "--why", "install", "--trust", "--json"]
        done = in_environment(change, change.new, words, folder)
    row = {"part": "lock", "name": change.name, "target": change.target, "dtype": "", "summands": 0}
    checks = json.loads(done.stdout or "{}").get("checks")
    said = in_words(checks[0]) if checks else (told.stderr + done.stderr).strip()[-300:]
    if checks and checks[0]["verdict"] != "changed":
        said = checks[0]["verdict"]
    return row | {"conditions": said, "seconds": time.monotonic() - begun}


def in_environment(
    change: Change, releases: Mapping[str, str], words: list[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Runs ``probe`` in an environment with these releases before everything else."""
    before = [ROOT]
    if releases:
        found = overlay(releases, True, silent)
        if not isinstance(found, Path):
            raise TargetError(" ".join(releases), "unavailable", found)
        before = [found, ROOT]
    variables = Command([], Path(), {}, before).environment()
    if change.preload:
        library = before[0] / "scipy_openblas64" / "lib" / "libscipy_openblas64_.so"
        variables["LD_PRELOAD"] = str(library)
    return subprocess.run(
        [sys.executable, "-m", "probe", *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    main()

"""Digests of what every target here computes: the part ``bits`` of oracle.py, or by themselves.

    python .ci/digests.py record build/before     # before the first step
    python .ci/digests.py record build/after      # any time later, in the same environment
    python .ci/digests.py compare build/before build/after

`record` sweeps the grids of length_sweep and frameworks (each comparison keeps the digests of both
sides). Some 40 minutes on two processors; --quick takes an eighth of the shapes. What is there
already is not run again.
`compare` says how many digests are the same, and exits with 1 where any is not, or is missing.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "experiments"))


import frameworks
import length_sweep
from probe import Case, Store, Target, load
from probe.sweep.bits import sweep_cases

TEXTS = list(
    dict.fromkeys(
        [
            *frameworks.TARGETS,
            *"tensorflow,mode=graph tensorflow,xla=1 tensorflow,weights=constant numpy".split(),
            *"tensorflow,algorithm=elementwise keras,xla=1 torch,linear=0".split(),
        ]
    )
)


def others() -> list[tuple[Case, str, list[int]]]:
    """Every operation in every dtype, with the words that each has: case, axis, values."""
    found = []
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for op, kernel in (
            ("conv1d", "4"),
            ("conv2d", "2x3"),
            ("conv3d", "2x2x3"),
            ("depthwise_conv2d", "3x2"),
        ):
            for words in (
                {"padding": "same", "stride": 2},
                {"padding": "0:1", "bias": "normal"},
                {"padding": "same_lower"},
                {"dilation": 2, "padding": "caffe"},
                {"groups": 2, "filters": 6, "bias": "normal"},
            ):
                if op.startswith("depthwise"):
                    words = {k: v for k, v in words.items() if k != "groups"} | {"filters": 8}
                case = Case(op, kernel, in_channels=4, dtype=dtype, **{"filters": 3} | words)
                found.append((case, "length", [9, 12, 17]))
            case = Case(op, kernel, in_channels=4, filters=8, dtype=dtype, length=11)
            found.append((case, "batch", [1, 3]))
            found.append((case, "filters", [4, 8]))
            if not op.startswith("depthwise"):
                found.append((case, "channels", [2, 4]))
        for op in ("matmul", "dot", "sum"):
            filters = {} if op == "sum" else {"filters": 5}
            bias = {} if op == "sum" else {"bias": "normal"}
            case = Case(op, in_channels=33, dtype=dtype, **filters)
            # a sum has no bias: the same case twice is no sweep's
            both = dict.fromkeys((case, case.with_(**bias)))
            found += [(one, "length", [1, 3, 8]) for one in both]
        found.append(
            (Case("matmul", in_channels=33, filters=1, dtype=dtype, batch=2), "length", [1, 5])
        )
        dense = Case("dense", in_channels=40, filters=7, dtype=dtype)
        found += [(one, "batch", [1, 4, 9]) for one in (dense, dense.with_(bias="normal"))]
        for op, kernel in (
            ("max_pool1d", 3),
            ("avg_pool1d", 3),
            ("max_pool2d", "3x2"),
            ("avg_pool2d", "3x2"),
        ):
            for words in (
                {},
                {"padding": "same", "stride": 2},
                {"padding": "1:0", "pad_with": "zeros"},
                {"padding": 1, "ceil_mode": True, "stride": 2},
                {"padding": "caffe"},
            ):
                case = Case(op, kernel, in_channels=4, dtype=dtype, **words)
                found.append((case, "length", [8, 9, 13]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--quick", action="store_true", help="an eighth of the shapes")
    parser.add_argument("--only", default="", help="targets whose text starts so")
    given = parser.parse_args()
    if given.do == "compare":
        return compare(*given.folders)
    record(given.folders[0], 8 if given.quick else 1, given.only)
    return 0


def record(folder: Path, step: int, only: str) -> None:
    grids = [
        (cases[::step], length_sweep.TARGETS + frameworks.TARGETS, lengths)
        for cases, lengths in length_sweep.grid()
    ]
    for cases, texts, lengths in grids:
        targets = [Target.parse(text) for text in dict.fromkeys(texts) if text.startswith(only)]
        with Store(folder / "sweep") as store:
            found = sweep_cases(cases, targets, lengths, store=store, control="differing", keep=0)
        for text, one in found.targets.items():
            print(text, one.comparisons, "comparisons", len(one.failures), "failures", flush=True)
    groups: dict[tuple[str, tuple[int, ...]], list[Case]] = {}
    for case, vary, values in others():
        groups.setdefault((vary, tuple(values)), []).append(case)
    targets = [Target.parse(text) for text in TEXTS if text.startswith(only)]
    for (vary, values), cases in groups.items():
        with Store(folder / "others") as store:
            sweep_cases(cases, targets, values, vary, store=store, control="differing", keep=0)
    print("other operations", flush=True)


def compare(before: Path, after: Path) -> int:
    sides = []
    for folder in (before, after):
        found = {}
        for name in ("sweep", "others"):
            table = load(folder / name).comparisons
            keys = zip(table.target, table.case_id, table["at"], table.against, strict=True)
            for key, *both in zip(keys, table.digest_at, table.digest_against, strict=True):
                found[key] = tuple(both)
            table = load(folder / name).failures
            for key in zip(table.target, table.case_id, table.kind, strict=True):
                found[key] = "refused"
        sides.append(found)
    shared = [key for key in sides[1] if key in sides[0]]
    other = [key for key in shared if sides[0][key] != sides[1][key]]
    ran = {key[0] for key in sides[1]}
    missing = [key for key in sides[0] if key[0] in ran and key not in sides[1]]
    print(f"{len(shared) - len(other)} of {len(shared)} the same; {len(missing)} missing")
    for key in [*other, *missing][:20]:
        print("other:" if key in sides[1] else "missing:", *key)
    return bool(other or missing)


if __name__ == "__main__":
    sys.exit(main())

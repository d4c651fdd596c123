"""What each release of a library needs to be installed today: data, and how to look it up.

A row holds from its version on, up to the next row of its library. Found by installing 35 releases
of TensorFlow (2026-11): newer uploads of their dependencies broke what the pins hold back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probe.errors import InputError


@dataclass(frozen=True)
class Pins:
    """Needs of the releases from ``since`` on: Python ``python``, and ``beside``, requirements."""

    since: str
    python: str
    beside: tuple[str, ...] = ()


RELEASES: dict[str, tuple[Pins, ...]] = {
    "tensorflow": (
        Pins("0.12", "3.6"),
        Pins("1.13", "3.7", ("protobuf<3.21",)),
        Pins("2.10", "3.7"),
        Pins("2.12", "3.11"),
        Pins("2.14", "3.11", ("numpy<2",)),
        Pins("2.15", "3.11"),
    ),
    "keras": (Pins("3.0", "3.11", ("tensorflow-cpu",)),),
    "torch": (
        Pins("0.4", "3.6", ("numpy",)),
        Pins("1.0", "3.7", ("numpy",)),
        Pins("2.0", "3.11", ("numpy<2",)),
        Pins("2.3", "3.11", ("numpy",)),
    ),
    "jax": (
        Pins("0.4", "3.11", ("numpy<2", "scipy<1.13")),
        Pins("0.4.30", "3.11"),
    ),
    "onnxruntime": (
        Pins("1.2", "3.7", ("onnx<1.13", "protobuf<3.21")),
        Pins("1.15", "3.11", ("onnx<1.17", "numpy<2")),
        Pins("1.19", "3.11", ("onnx",)),
    ),
    "litert": (Pins("1.0", "3.11"),),
}
"""By the name of a target, oldest first."""

DISTRIBUTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "tensorflow": (("tensorflow-cpu", "1.15.0"), ("tensorflow-cpu", "2.1"), ("tensorflow", "0")),
    "jax": (("jax[cpu]", "0"),),
    "litert": (("ai-edge-litert", "0"),),
}
"""Distributions to try, each with the version from which it exists (a patch level: that one only).

``tensorflow-cpu`` is half as large as ``tensorflow``, and the same on a processor."""

RELEASED: dict[str, tuple[str, ...]] = {
    "tensorflow": (
        *(
            "0.12.1",
            "1.0.0",
            "1.1.0",
            "1.2.1",
            "1.3.0",
            "1.4.0",
            "1.5.0",
            "1.6.0",
            "1.7.0",
            "1.8.0",
        ),
        *("1.9.0", "1.10.0", "1.11.0", "1.12.0", "1.13.1", "1.14.0", "1.15.0", "2.0.0", "2.1.0"),
        *("2.2.0", "2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0", "2.8.0", "2.9.0", "2.10.0"),
        *("2.11.0", "2.12.0", "2.13.0", "2.14.0", "2.15.0", "2.16.1", "2.17.0", "2.18.0"),
        *("2.19.0", "2.20.0", "2.21.0"),
    ),
    "torch": (
        *("1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0", "1.7.0", "1.8.0", "1.9.0"),
        *("1.10.0", "1.11.0", "1.12.0", "1.13.0", "2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0"),
        *("2.5.0", "2.6.0", "2.7.0", "2.8.0", "2.9.0", "2.10.0", "2.11.0", "2.12.0", "2.13.0"),
    ),
    "onnxruntime": (
        *("1.2.0", "1.3.0", "1.4.0", "1.5.1", "1.6.0", "1.7.0", "1.8.0", "1.9.0", "1.10.0"),
        *("1.11.0", "1.12.0", "1.13.1", "1.14.0", "1.15.0", "1.16.0", "1.17.0", "1.18.0"),
        *("1.19.0", "1.20.0", "1.21.0", "1.22.0", "1.23.0", "1.24.1", "1.25.0", "1.26.0"),
        *("1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.0"),
    ),
}
"""Releases to search for a change, one a minor version: patch releases seldom change a kernel."""

OLD_PIP = {"3.6": ("pip==21.3.1",)}
"""What pip itself needs on a Python before it can install anything."""

PIP_BESIDE = {
    "3.6": (
        "numpy<1.17",
        "protobuf<3.18",
        "markdown<3.3",
        "werkzeug<2",
        "wheel<0.38",
        "absl-py<1.3",
    )
}
"""What pip needs beside TensorFlow on a Python; uv resolves these by itself."""


@dataclass(frozen=True)
class Recipe:
    """How a release is installed. ``choices``: requirements of which the first that works counts.

    ``pip_beside``: what pip needs beside them, and uv doesn't.
    """

    library: str
    version: str
    python: str
    choices: tuple[str, ...]
    beside: tuple[str, ...]
    pip_beside: tuple[str, ...]


def recipe(library: str, version: str, arm64: bool = False) -> Recipe:
    """The recipe of a release. ``arm64``: wheels of that processor. InputError: not known."""
    rows = RELEASES.get(library, ())
    place = f"{library}=={version}"
    if not rows:
        todo = f"there are recipes for {', '.join(RELEASES)}"
        raise InputError("target", place, f"no recipe installs releases of {library}", todo)
    found = [row for row in rows if number(row.since) <= number(version)]
    if not found:
        why = f"releases before {rows[0].since} can't be installed"
        raise InputError("target", place, why, "take a later one")
    pins = found[-1]
    choices = [f"{name}=={version}" for name in _distributions(library, version, arm64)]
    pip_beside = PIP_BESIDE.get(pins.python, ()) if library == "tensorflow" else ()
    return Recipe(library, version, pins.python, tuple(choices), pins.beside, pip_beside)


def _distributions(library: str, version: str, arm64: bool) -> list[str]:
    known = DISTRIBUTIONS.get(library, ((library, "0"),))
    fits = [
        name
        for name, since in known
        if (version == since if since.count(".") == 2 else number(since) <= number(version))
    ]
    return [name for name in fits if not (arm64 and name == "tensorflow-cpu")]


def same(one: str, other: str) -> bool:
    """Whether two spellings name one release: 2.4 and 2.4.0, 2.13.0 and 2.13.0+cpu."""
    parts = [number(text) for text in (one, other)]
    width = max(map(len, parts))
    padded = [part + (0,) * (width - len(part)) for part in parts]
    return padded[0] == padded[1]


def number(version: str) -> tuple[int, ...]:
    """The numbers of a version's release part, for comparing: 2.4.0rc1 is (2, 4, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()

"""Which remedies there are for a target: switches, ways around its operator, other operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from probe import backends, target
from probe.errors import InputError
from probe.target import Target

CHUNKS = (64, 256)
"""Outputs a call that chunks are tried with."""

SWITCHES = (
    ("threads", "1", "one thread"),
    ("deterministic", "1", "run-to-run determinism, which promises nothing about lengths"),
    ("onednn", "0", "without oneDNN"),
    ("onednn", "1", "with oneDNN"),
    ("mkldnn", "0", "without oneDNN"),
    ("isa", "sse41", "no instructions beyond SSE 4.1"),
    ("isa", "avx2", "no instructions beyond AVX2"),
    ("isa", "avx512_core", "no instructions beyond AVX-512"),
    ("xnnpack", "0", "without XNNPACK"),
    ("xla", "1", "compiled by XLA"),
)
"""Switches that people try, with what they mean."""

NAMES = ("pad", "layerwise", "layerwise,xla=1")
"""Remedies that ``measure`` adds when orders are known; the last two of networks alone."""

STABLE = ("tensorflow", "torch")


@dataclass(frozen=True)
class Remedy:
    """One thing to do. ``spec``: what ``backends.remedied`` puts in the operator's place, or None.

    ``where``: the target that it runs on; ``doc``: what it is, in a few words.
    """

    name: str
    where: Target
    doc: str
    spec: dict[str, Any] | None = field(default=None, hash=False)


def candidates(where: Target, chunks: Sequence[int] = CHUNKS) -> list[Remedy]:
    """Remedies for a target, the target as it is first, named ``default``.

    Those of ``NAMES`` are not among them: they are made when orders are known.
    """
    found = [Remedy("default", where, "the operator as it is")]
    found += [
        Remedy(f"chunks={size}", where, f"calls of {size} outputs each", _chunks(size))
        for size in sorted(set(chunks))
    ]
    found.append(Remedy("float64", where, "the operator in float64", {"kind": "float64"}))
    found += [Remedy(f"{key}={value}", other, doc) for key, value, doc, other in _switched(where)]
    if where.name in STABLE:
        found += _stable(where)
    return found


def _chunks(size: int) -> dict[str, Any]:
    return {"kind": "chunks", "outputs": size}


def _switched(where: Target) -> Iterator[tuple[str, str, str, Target]]:
    keys = backends.get(where.name).keys
    for key, value, doc in SWITCHES:
        if key in keys and dict(where.switches).get(key) != value:
            try:
                yield key, value, doc, where.with_(**{key: value})
            except InputError:  # a switch that contradicts the target's own
                continue


def _stable(where: Target) -> Iterator[Remedy]:
    """probe.stable as the target runs it, in float64, and compiled where there is a compiler."""
    plain = {"kind": "stable", "accumulate": None}
    wide = {"kind": "stable", "accumulate": "float64"}
    yield Remedy("stable", where, "probe.stable", plain)
    yield Remedy("stable,float64", where, "probe.stable, added in float64", wide)
    if where.name == "tensorflow" and "xla" not in dict(where.switches):
        try:
            compiled = where.with_(xla=1)
        except InputError:
            return
        yield Remedy("stable,float64,xla=1", compiled, "the same, compiled by XLA", wide)


def unavailable(remedy: Remedy) -> str | None:
    """Why a remedy's target can't run here, or None."""
    return target.unavailable(remedy.where)

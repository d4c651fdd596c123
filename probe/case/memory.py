"""Checks whether a run fits into the free memory before anything is allocated.

A run holds its operands and outputs several times: as they are drawn, on the way to the child,
there, in the library's own layout, and as they are compared. ``COPIES`` and ``DRAWN`` say how
often. What is not asked for is refused by the system where a command runs: ``limit_to_free``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from probe.case.errors import InputError

if TYPE_CHECKING:
    from probe.case.case import Summed

# Bytes of a run for each byte of operands and outputs, in both processes together. Measured at the
# peak of sweeps of a million positions: 4.5 (reference), 4.7 (ONNX Runtime), 6.9 (PyTorch).
COPIES = 7

# Bytes an element while operands are drawn. Measured: 34 (``normal``), 24 (``cancel``).
DRAWN = 36

# A cgroup limit this large means unlimited: version 1 writes the largest number of pages.
UNLIMITED = 1 << 60


# Bytes that are not looked for: asking the system takes a tenth of a short sum's reveal.
TRIFLE = 1 << 20


def require(case: Summed) -> None:
    """Raises InputError where a run of ``case`` (its length set) needs more memory than is free.

    It names the argument that contributes most. Where the system doesn't say how much is free
    nothing is refused.
    """
    shapes = case.input_shape(), case.weight_shape, case.output_shape()
    rank = len(case.weight_shape) - 2
    space = ("height",) * (rank - 1) + ("length",) * (rank > 0)
    names = ("batch", *space, "in_channels"), ("kernel",) * rank + ("in_channels", "filters")
    named = zip((*names, ("batch", *space, "filters")), shapes, strict=True)
    axes, shape = max(named, key=lambda pair: math.prod(pair[1]))
    size, name = max(zip(shape, axes, strict=True), key=lambda pair: pair[0])
    require_room(need(shapes[:2], shapes[2:], case.dtype), name, size)


def need(drawn: Iterable[tuple[int, ...]], shapes: Iterable[tuple[int, ...]], dtype: str) -> int:
    """Bytes of a run on arrays of these shapes: ``drawn`` are operands, ``shapes`` are outputs."""
    from probe.case import floats  # late: a command is limited before it imports NumPy

    operands = [math.prod(shape) for shape in drawn]
    elements = sum(operands) + sum(math.prod(shape) for shape in shapes)
    item = floats.container_of_format(dtype).itemsize
    return max(DRAWN * max(operands, default=0), COPIES * item * elements)


def require_room(needed: int, name: str, value: int) -> None:
    """Raises InputError, which blames ``name=value``, where that many bytes are not free."""
    if needed <= TRIFLE:
        return
    available = free()
    if available is not None and needed > available:
        why = f"it needs {_bytes_text(needed)}, and {_bytes_text(available)} are free"
        raise InputError(name, value, why, "use a smaller one, or a machine with more memory")


# A gigabyte that comes out of a hundredth of its size is no model and no inputs: archives of a few
# megabytes may unpack to more than a machine has.
UNPACKED, RATIO = 1 << 30, 100


def require_unpackable(name: str, path: Path, unpacked: int) -> None:
    """Raises InputError, which blames ``name=path``, where so many bytes come out of a file."""
    size = path.stat().st_size
    if unpacked > max(UNPACKED, RATIO * size):
        why = f"it unpacks to {_bytes_text(unpacked)}, {unpacked // max(size, 1):,} times its size"
        raise InputError(name, path, why, "give a file that holds less")


# Bytes beyond what is free: stacks of threads and the like are counted, and hardly used.
SPARE = 2 << 30


def limit_to_free() -> None:
    """Lets the system refuse this process and its children what is far more than is free.

    A library's MemoryError is then a line or a refusal of one step, where the process was killed.
    Nothing is done where the system doesn't say how much is free.
    """
    available = free()
    if available is None:
        return
    import resource  # not on Windows

    fields = dict(line.split(":", 1) for line in _lines_of(Path("/proc/self/status")))
    taken = int(fields["VmData"].split()[0]) << 10
    limit, (_, most) = taken + available + SPARE, resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def _bytes_text(count: int) -> str:
    """Bytes as people write them: ``1.2 GB``."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB")):
        if count >= 1 << power:
            size = count / (1 << power)
            return f"{size:.0f} {unit}" if size >= 10 else f"{size:.1f} {unit}"
    return f"{count} bytes"


def free(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take, on Linux; None where the system doesn't say.

    That is MemAvailable, or what a cgroup (a container's limit) leaves, where that is less.
    ``root``: the folder that holds ``proc`` and ``sys``.
    """
    limits = _cgroups(root)
    for line in _lines_of(root / "proc/meminfo"):
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            limits.append(int(size.split()[0]) << 10)
    return max(min(limits), 0) if limits else None


def _cgroups(root: Path) -> list[int]:
    """What every limit on this process leaves: version 2's, and version 1's memory controller's."""
    limits = []
    for line in _lines_of(root / "proc/self/cgroup"):
        _, controllers, place = line.split(":", 2)
        folder = root / "sys/fs/cgroup"
        names = ("memory.max", "memory.current", "inactive_file")
        if controllers:
            if "memory" not in controllers.split(","):
                continue
            folder /= "memory"
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        parts = [part for part in place.split("/") if part not in ("", "..")]
        # inside a container the path may be the host's, and the folder itself the container's
        for count in range(len(parts), -1, -1):
            group = folder.joinpath(*parts[:count])
            most, taken = ((_lines_of(group / name) or [""])[0] for name in names[:2])
            # ``max``, or there is no such file
            if not (most.isdigit() and taken.isdigit()) or int(most) >= UNLIMITED:
                continue
            lines = (line.split() for line in _lines_of(group / "memory.stat"))
            # files that it holds in memory can be given up
            held = sum(int(line[1]) for line in lines if line[:1] == [names[2]])
            limits.append(int(most) - int(taken) + held)
    return limits


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return []

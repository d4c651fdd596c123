"""Runs the report's case and a grid of channels on other processors, limited or emulated.

oneDNN's limits (sse41, avx2, avx512) on this machine, beside a Nehalem, a Sandy Bridge, a Haswell
and a Skylake server that qemu stands in for, and arm64; oneDNN on and off, one and two threads. The
installed TensorFlow, and releases of the report's time, for which qemu's old processors were new.

Needs qemu-user and, for arm64, ``probe targets install tensorflow@arm64``; releases are installed
if they are missing, and stay. An emulated processor takes minutes. What can't run is stored as
such.

Writes results/processors/<machine>/*.parquet; notebooks/processors.ipynb says who agrees with whom.
Targets that are stored already are not measured again.
"""

from __future__ import annotations

from itertools import product

from lib import frame
from lib.orders import measure_by_order, measured
from probe import Case, Target
from probe.case.errors import ProbeError
from probe.sweep import plan
from probe.sweep.printing import Output
from probe.targets.installation import install_target, is_there

TELLING = Case(op="conv2d", kernel="1x5", operands="cancel")
"""The same shape with operands that show nearly every changed order."""

GRID = [
    Case("conv1d", kernel, channels, filters, operands="cancel")
    for kernel, channels, filters in product((3, 5), (1, 16, 64), (1, 8, 64))
]
CHANNELS = Case("conv1d", 3, 16, 8, operands="cancel")

LENGTHS = (5, 6, 7, 8, 9, 10, 11, 12, 16, 19)
REVEALED = {TELLING: (5, 6, 7, 8, 19), CHANNELS: (5, 12, 19)}

PROCESSORS = ("haswell", "arm64", "sandybridge", "skylake-server", "nehalem")
LIMITS = ("avx512_core", "avx2", "sse41")
THREADS = (1, 2)


def targets() -> list[str]:
    """Native ones first, then the emulated, those that tell most in front."""
    switches = ["", ",onednn=0"]
    native = [f"tensorflow{one},threads={n}" for one in switches for n in THREADS]
    native += [f"tensorflow,onednn=1,isa={isa},threads={n}" for isa in LIMITS for n in THREADS]
    native += [f"tensorflow,onednn=0,isa={isa},threads=1" for isa in LIMITS]
    old = ["", "@nehalem", "@haswell"]
    early = [f"tensorflow=={version}{cpu}" for version in ("1.2.1", "1.15.0") for cpu in old]
    once = [f"tensorflow@{cpu},onednn=0,threads=1" for cpu in PROCESSORS]
    again = [f"tensorflow@{cpu},onednn=1,threads=1" for cpu in PROCESSORS[:-1]]
    twice = [f"tensorflow@{cpu},onednn={n},threads=2" for n in (0, 1) for cpu in PROCESSORS[:-1]]
    return [Target.parse(text).text for text in [*native, *early, *once, *again, *twice]]


@frame.script
def main(experiment: frame.Experiment) -> None:
    out = Output()
    with experiment.store() as (kept, _):
        before = measured(kept)
        for text in plan.questions_of_part(frame.QUICK if experiment.quick else targets()):
            where = Target.parse(text)
            if text in before:
                continue
            try:
                if where.version is not None and not is_there(where):
                    install_target(where)
            except ProbeError as error:  # the sweep stores it as a failure
                out.note(str(error))
            found = measure_by_order(
                where, [TELLING, *GRID], LENGTHS, kept, experiment.name, REVEALED
            )
            for failure in found.failures[:1]:
                out.note(f"{text}: {failure.kind}: {failure.message}")


if __name__ == "__main__":
    main()

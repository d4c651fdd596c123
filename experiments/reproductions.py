"""Does a script confirm every finding in fresh processes, and how small is its case?

200 differences of `length_sweep` are drawn at random, and a few of each target from the stores of
the other experiments, other libraries and axes among them. Each is treated as `probe report`
does: reduced while it keeps its cause and its kernels, explained, written as a script of the
library and NumPy, and run in a fresh process, which must print the bits that were measured in
another. One to two hours on two processors.

Writes results/reproductions/<machine>/*.parquet; notebooks/reproductions.ipynb draws them. Run it
again: what a script has confirmed is not tried again, what none has is.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from lib import frame
from lib.trials import attempt, draw
from probe import Case
from probe.targets import machine

RESULTS = Path(__file__).resolve().parent.parent / "results"

DRAWS = {"length_sweep": 200}
"""How many findings of an experiment's results are drawn, whichever targets they are of."""

FEW = {"frameworks": 6, "batch_invariance": 3, "filter_subsets": 3, "accumulation_orders": 3}
"""The same for each target of the results."""


@frame.script
def main(experiment: frame.Experiment) -> None:
    if experiment.quick:
        with TemporaryDirectory() as folder:  # of a target that is made to switch its order
            swept = Path(folder) / "length_sweep"
            cases = [Case("conv1d", kernel, operands="cancel", bias=0.5) for kernel in (3, 5)]
            findings = frame.Experiment("findings", swept)
            findings.sweep([(cases, range(5, 21), "length")], frame.QUICK[1:])
            attempt(experiment, draw(swept, 6))
        return
    draws = {name: draw(RESULTS / name, number) for name, number in DRAWS.items()}
    there = [name for name in FEW if (RESULTS / name / machine.label()).is_dir()]
    draws |= {name: draw(RESULTS / name, FEW[name], each=True) for name in there}
    for drawn in draws.values():
        attempt(experiment, drawn)


if __name__ == "__main__":
    main()

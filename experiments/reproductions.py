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

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lib import frame
from lib.trials import Drawn, attempt, draw
from probe import Case, Store
from probe.targets import machine

NAME = "reproductions"

RESULTS = Path(__file__).resolve().parent.parent / "results"

DRAWS = {"length_sweep": 200}
"""How many findings of an experiment's results are drawn, whichever targets they are of."""

FEW = {"frameworks": 6, "batch_invariance": 3, "filter_subsets": 3, "accumulation_orders": 3}
"""The same for each target of the results."""

PROCESSES = 1
"""Fresh ones for each script, where `probe report` takes three: TensorFlow's cost seconds."""

QUICK = "reference,algorithm=pairwise,length_switch=9"


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Draws, reproduces, stores and prints; whether Ctrl-C ended it."""
    if quick:
        with found_quickly() as swept:
            return measured(store, "length_sweep", draw(swept, 6))
    draws = {name: draw(RESULTS / name, number) for name, number in DRAWS.items()}
    there = [name for name in FEW if (RESULTS / name / machine.label()).is_dir()]
    draws |= {name: draw(RESULTS / name, FEW[name], each=True) for name in there}
    return any(measured(store, name, drawn) for name, drawn in draws.items())


def measured(store: Path, source: str, drawn: list[Drawn]) -> bool:
    """Tries every finding of a source; whether Ctrl-C ended it."""
    with Store.here(store) as kept, frame.bar(source) as progress:
        tried = attempt(drawn, kept, NAME, PROCESSES, progress)
    return frame.told(tried, f"of {len(drawn)} findings of {source} confirmed")


@contextmanager
def found_quickly() -> Iterator[Path]:
    """A store of a target that is made to switch its order."""
    cases = [Case("conv1d", kernel, operands="cancel", bias=0.5) for kernel in (3, 5)]
    with TemporaryDirectory() as folder:
        swept = Path(folder) / "length_sweep"
        frame.swept(swept, "findings", [(cases, range(5, 21), "length")], [QUICK])
        yield swept


if __name__ == "__main__":
    main()

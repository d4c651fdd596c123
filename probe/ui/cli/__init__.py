"""The command line reads words, calls the rooms, and prints what they found.

Results go to stdout (``--json``: exactly one object), progress and notes to stderr. It exits with
0 when done, 1 for a finding where ``--fail-on`` asks for it, 2 where the input is wrong or needs
more memory than is free, 3 where the target failed, 70 after a mistake of probe's own (EX_SOFTWARE;
please report it) and 130 after Ctrl-C or SIGTERM. Nothing heavy is imported before a command runs.

``shell`` runs the commands and prints errors, ``options`` has what several commands share; the
commands are in ``cases`` (of a case), ``models``, and ``housekeeping`` (targets, stores,
experiments, the lock).
"""

from __future__ import annotations

import gc
import sys

from probe.case.errors import BASE, INTERRUPTED, InputError, lacking
from probe.case.memory import limit_to_free
from probe.targets.budget import interrupted, supervised


def main() -> None:
    """Runs the command in ``sys.argv`` and exits with its status."""
    sys.exit(supervised(_run, "--json" in sys.argv))


def _run() -> int:
    limit_to_free()
    try:
        from probe.ui.cli import shell
    except ModuleNotFoundError as error:  # without click no command can report it
        if error.name not in BASE:
            raise
        print(f"probe: {lacking(error)}", file=sys.stderr)
        return InputError.exit_code
    status = shell.run(sys.argv[1:])
    if "duckdb" not in sys.modules:  # which prints of leaks where its objects outlive it
        gc.freeze()  # else Python searches all objects of all libraries for cycles as it ends
    return INTERRUPTED if interrupted.is_set() else status

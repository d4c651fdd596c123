"""Which conditions pin the bits of a model or a function: searched as those of a case are."""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from probe import installation
from probe.answers.record import GivenModel
from probe.errors import InputError, Nondeterministic, TargetError
from probe.launch import open_session
from probe.progress import Say, silent
from probe.recording.apart import Apart, is_own_library
from probe.recording.recording import Run
from probe.recording.replayed import Port, TargetRuns, replay_steadily
from probe.recording.subject import is_function
from probe.switch_points.bisection import Conditions, ReleaseStep, search_conditions
from probe.target import Target

# Further runs in the same process: what does not repeat its bits has no condition to find.
CONTROLS = 2

# Runs of what does not repeat them, of which the different results are counted.
COUNTED = 20


def bisect(given: GivenModel, left: Target, right: Target, tell: Say = silent) -> Conditions:
    """Returns the smallest sets of ``left``'s conditions that bring its outputs back on ``right``.

    ``given``: a file, or ``"module:function"``, which each set of conditions runs in a process of
    its own, on the same inputs; what is compared are the bits of all outputs, with their shapes and
    dtypes. Where an end is of another release or processor, a recording is replayed on both, and
    steps say what of it ran there. Errors: InputError, also where the function does not repeat its
    own bits at an end.
    """
    text, trust = given.text("between"), given.trust
    # a function is not imported in this process: it declares no inputs
    arrays = given.arrays(() if is_function(text) else given.opened().inputs)
    if not all(is_own_library(one, text) for one in (left, right)):
        with ExitStack() as running:
            folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="probe-")))
            run = TargetRuns(text, folder, running, trust).base(left, arrays, "the run")
            return search_conditions(left, right, partial(_replayed_step, run=run, tell=tell))

    def ask(where: Target) -> ReleaseStep:
        tell(f"running {where.text}")
        try:
            with Apart(text, where, trust) as process:
                seen = [_digest_of_outputs(process.plain(arrays)) for _ in range(1 + CONTROLS)]
                if len(set(seen)) > 1:
                    # how many results there are says whether it is two states or noise
                    more = COUNTED - len(seen)
                    seen += [_digest_of_outputs(process.plain(arrays)) for _ in range(more)]
                    why = f"it does not repeat its bits: {len(set(seen))} results in {COUNTED} runs"
                    return ReleaseStep(where.text, None, why=why)
        except TargetError as error:
            return ReleaseStep(where.text, None, why=error.why)
        except InputError as error:
            if error.name in ("target", "model"):  # this release can't run it, or can't be run
                return ReleaseStep(where.text, None, why=error.why)
            raise
        return ReleaseStep(where.text, seen[0], "")

    return search_conditions(left, right, ask)


def _replayed_step(where: Target, run: Run, tell: Say) -> ReleaseStep:
    tell(f"running {where.text}")
    try:
        if where.version is not None:
            installation.install_target(where)
        with open_session(where) as session:
            found = replay_steadily(run, Port(session), f"the run on {where.text}")
    except (TargetError, Nondeterministic) as error:
        return ReleaseStep(where.text, None, why=getattr(error, "why", str(error)))
    if found.alone and not found.there:
        # all that computes ran in the library of this process, the same one on every target
        return ReleaseStep(where.text, None, why=found.said)
    results = [one for one in found.results if one is not None]
    return ReleaseStep(where.text, _digest_of_outputs(results), found.said)


def _digest_of_outputs(outputs: list[Any]) -> str:
    """Returns a short name of the bits of all outputs."""
    found = hashlib.sha256()
    for one in outputs:
        array = np.ascontiguousarray(one)
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:12]

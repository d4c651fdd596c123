"""``python -m probe.lock.running SPEC``: computes a check that is no test, in a process of its own.

SPEC is JSON: ``check``, ``variables`` (of the target's switches; set before anything is imported),
and ``model`` with ``inputs``, ``shapes``, ``seed``, ``trust``, or ``case``; and ``target``.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any


def main(spec: dict[str, Any]) -> None:
    """Writes the bits into the folder that the caller gave by a variable."""
    os.environ.update(spec["variables"])
    from probe.errors import InputError, ProbeError
    from probe.lock.session import OUT, BitsSession

    told: dict[str, Any]
    session = BitsSession(Path(os.environ[OUT]) / "none.lock")
    try:
        with ExitStack() as running:
            outputs = _case(spec, running) if "case" in spec else _model(spec, running, session)
    except ProbeError as error:
        told = {"why": getattr(error, "why", str(error))}
        if isinstance(error, InputError):
            told = {"input": [error.name, str(error.value), error.why, error.todo]}
        Path(os.environ[OUT], "error.json").write_text(json.dumps(told))
        raise SystemExit(error.exit_code) from None
    for number, array in enumerate(outputs):
        name = f"{spec['check']}::{number}" if len(outputs) > 1 else spec["check"]
        session.checked(name, spec["check"], array, ("", 0))
    session.finish()


def _case(spec: dict[str, Any], running: ExitStack) -> list[Any]:
    from probe.case import Case
    from probe.launch import AnySession, open_session
    from probe.recording.apart import needs_other_interpreter
    from probe.target import Target

    where, case = Target.parse(spec["target"]), Case(**json.loads(spec["case"]))
    session: AnySession = open_session(where, inline=not needs_other_interpreter(where))
    running.enter_context(session)
    x, w, b = case.operands()
    arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
    return [session.request({"do": "run", "spec": case.spec()}, arrays)[1]["y"]]


def _model(spec: dict[str, Any], running: ExitStack, session: Any) -> list[Any]:
    from probe.answers.record import arrays_for
    from probe.launch import open_session
    from probe.lock.session import RECORD
    from probe.recording.apart import model_switches
    from probe.recording.inputs import shapes_of
    from probe.recording.subject import open_model
    from probe.target import Target

    within, library = None, None
    if spec.get("target"):
        where = Target.parse(spec["target"])
        within, library = model_switches(where, spec["model"]), where.name
        running.enter_context(open_session(where, inline=True))
    subject = open_model(spec["model"], spec.get("trust") == "1", within, library)
    inputs = Path(spec["inputs"]) if spec.get("inputs") else None
    shapes = shapes_of(spec["shapes"].split()) if spec.get("shapes") else {}
    arrays = arrays_for(subject, inputs, shapes, int(spec.get("seed", 0)))
    recorder = subject.recorder(arrays)
    found: list[Any] = recorder.plain()
    if os.environ.get(RECORD):
        session.ran(spec["check"], recorder)
    return found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

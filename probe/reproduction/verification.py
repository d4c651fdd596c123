"""Whether what a folder reproduces is still there: its script, run again, on any machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.errors import InputError, TargetError
from probe.reproduction import proof
from probe.target import Target


@dataclass
class Verified:
    """``verdict``: ``still there``, ``gone`` or ``can't tell``; ``why``: what the script said.

    ``same_bits``: whether it printed the bits of the machine where it was written; None where it
    can't be told. ``interpreter``: ``target`` or ``own``, where the target is not here.
    """

    verdict: str
    why: str
    runs: int
    same_bits: bool | None
    interpreter: str
    targets: list[str]

    def to_json(self) -> dict[str, Any]:
        """What ``probe verify --json`` prints."""
        return vars(self)


def verify(folder: Path, times: int = 3) -> Verified:
    """Runs a folder's script ``times`` times with its target's interpreter, else with this one.

    InputError: no reproduction is in the folder. What can't be told is no error.
    """
    about, script = _about(folder), folder / "reproduce.py"
    if not script.is_file():
        raise InputError("dir", folder, "there is no reproduce.py in it", "give a reproduction")
    interpreter, why, runs = "target", "", []
    try:
        targets = [Target.parse(text) for text in about["targets"]]
        pair = (targets[0], targets[-1])
        proof.command(script, pair)
    except (TargetError, InputError) as error:
        interpreter, why = "own", str(error)
    for _ in range(times):
        if interpreter == "target":
            runs.append(proof.run(script.resolve(), pair))
        else:
            runs.append(proof.own_interpreter(script.resolve()))
    found, said = proof.verdict(runs)
    if found == proof.CANNOT_TELL and why:
        said = f"{said}; {why}"
    same = None
    if found == proof.VERDICTS[proof.DIFFERS]:
        printed = {tuple(one.bits) for one in runs}
        same = printed == {tuple(tuple(pair) for pair in about.get("bits", []))}
    return Verified(found, said, len(runs), same, interpreter, list(about["targets"]))


def _about(folder: Path) -> dict[str, Any]:
    """``machine.json`` of a folder. InputError."""
    path = folder / "machine.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(found, dict) and found["targets"]
    except OSError as error:
        why = f"no machine.json can be read in it ({error.strerror})"
        raise InputError("dir", folder, why, "give a folder of `probe reproduce`") from None
    except (ValueError, KeyError, AssertionError):
        why = "its machine.json is not one of `probe reproduce`"
        raise InputError("dir", folder, why, "write the folder again") from None
    return dict(found)

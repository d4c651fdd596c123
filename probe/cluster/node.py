"""Runs on a node of a cluster: reports the node's facts, and answers shards.

A shard comes as JSON text; what goes back are tables of the store as bytes of Arrow's
stream format, and the facts of the node, taken again. Nothing of a shard is executed but the
options of a sweep, and an experiment of this checkout by its name.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from probe import machine, schema
from probe.campaign import Sessions, run_row
from probe.errors import ProbeError
from probe.launch import open_session
from probe.store import Store, parquet
from probe.sweeps import SweepRequest, answer_request
from probe.target import Target, installed_version, why_unavailable

# What a node says of itself: ``name``, ``machine`` (``machine.facts``), and by target ``why`` it
# can't run (None) and the ``run`` that it expects, a row of ``runs`` without its time.
Said = dict[str, Any]

_OWN = threading.local()


def one_line(error: BaseException) -> str:
    """Returns an error's first line that says something, without what may not be published."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return machine.publishable(f"{type(error).__name__}: {lines[0]}")[:300]


def raises_text(function: Callable[[str], Said]) -> Callable[[str], Said]:
    """What a function raises becomes a RuntimeError of one line: our own errors, and those of
    libraries that are not installed here, could not be unpickled where they arrive."""

    @functools.wraps(function)
    def answered(text: str) -> Said:
        try:
            return function(text)
        except Exception as error:
            raise RuntimeError(one_line(error)) from None

    return answered


@raises_text
def node_facts(text: str) -> Said:
    """Says what this node is. ``text``: a JSON list of target texts, or of ``*`` for a script."""
    worker = _worker()
    return {
        "name": str(worker.name),
        "address": worker.address,
        "machine": machine.afresh(),
        "targets": {one: _libraries() if one == "*" else _target(one) for one in json.loads(text)},
    }


def _worker() -> Any:  # tests put another one in its place
    from distributed import get_worker

    return get_worker()


def _target(text: str) -> dict[str, Any]:
    try:
        where = Target.parse(text)
        why = why_unavailable(where)
    except ProbeError as error:
        return {"why": str(error), "run": {}}
    session = open_session(where)
    row = run_row(where, session.expected_facts(), session.variables)
    session.close()
    del row["started"]
    return {"why": why, "run": row}


def _libraries() -> dict[str, Any]:
    """All that decides what an experiment measures here, in the place of one target's run."""
    from probe import backends

    found = {name: installed_version(backends.get(name)) for name in backends.known_backends()}
    row = {"python_version": sys.version.split()[0], "cores": machine.cores(), **found}
    text = json.dumps([machine.label(), row], sort_keys=True)
    return {
        "why": None,
        "run": {"run_id": hashlib.sha256(text.encode()).hexdigest()[:16], **row},
    }


@raises_text
def answer_sweep(text: str) -> dict[str, Any]:
    """Answers one target's shard of a sweep, as one process would: ``said`` and ``tables``.

    ``text``: ``target``, and a ``SweepRequest`` as JSON. The target's process stays for its next
    shard.
    """
    asked = json.loads(text)
    where = Target.parse(asked["target"])
    if not hasattr(_OWN, "sessions"):
        _OWN.sessions = Sessions()
    _OWN.sessions.close(where)
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        request = SweepRequest.from_json(asked)
        answer_request(request, [where], Store(folder), 1, opens=_OWN.sessions.get, close=False)
        tables = _packed_tables(Path(folder))
    return {"said": node_facts(json.dumps([asked["target"]])), "tables": tables}


def _packed_tables(folder: Path) -> dict[str, bytes]:
    """Returns the rows of a store that count, by table."""
    there = [name for name in schema.TABLES if parquet.files(folder, name)]
    return {name: pack_table(parquet.read_table(folder, name)) for name in there}


def pack_table(rows: pa.Table) -> bytes:
    """Returns rows as bytes of Arrow's stream format, compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


@raises_text
def answer_script(text: str) -> dict[str, Any]:
    """Runs one shard of an experiment in a process of its own, and answers alike.

    ``text``: ``name``, ``digest`` (of the script's text: the node must have the same one),
    ``quick``, ``shard`` (``2/8``). ``status`` and ``stderr`` say how it ended.
    """
    asked = json.loads(text)
    path, status, told = script_path(asked["name"]), 2, ""
    tables: dict[str, bytes] = {}
    if path is None or file_digest(path) != asked["digest"]:
        told = "this node's checkout does not have the same script"
    else:
        with tempfile.TemporaryDirectory(prefix="probe-") as folder:
            command = [sys.executable, str(path), "--store", folder, "--shard", asked["shard"]]
            if asked["quick"]:
                command.append("--quick")
            if dies := shutil.which("setpriv"):  # a node that is killed leaves no script behind
                command = [dies, "--pdeathsig", "TERM", *command]
            own = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                env=own,
            )
            status, told = done.returncode, machine.publishable(done.stderr[-2000:])
            label = machine.label()
            found = [one for one in Path(folder).rglob(label) if one.is_dir()]
            tables = _packed_tables(found[0]) if len(found) == 1 else {}
    said = node_facts(json.dumps(["*"]))
    return {"said": said, "status": status, "stderr": told, "tables": tables}


def script_path(name: str) -> Path | None:
    """Returns the experiment of this name in probe's checkout; None where there is none."""
    path = Path(__file__).resolve().parents[2] / "experiments" / f"{name}.py"
    return path if Path(name).name == name and path.is_file() else None


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()

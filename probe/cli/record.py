"""Commands ``probe record`` and ``probe diff``: a run on disk, and two of them compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.cli.network import (
    REPORT,
    give_two_runs,
    refuse_written_folder,
    users_output_to_stderr,
)
from probe.cli.options import (
    PATH,
    ModelRun,
    Shared,
    Words,
    fail_on_option,
    option,
    output_options,
    run_options,
)
from probe.errors import InputError

if TYPE_CHECKING:
    from probe.printing import Output

MOST = "Bytes of values to store, such as 500M or 2G; of larger recordings the rest as digests."
TRUST = (
    "Run the operations of the recordings again, from their recorded Python code, to find causes "
    "and write reports. Use it only for recordings whose origin you trust."
)
WHERE = (
    "Run the model in a separate process with this target's switches (see `probe targets`); on a "
    "different library, version or processor what was recorded is replayed."
)
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@click.command(cls=Words, short_help="Record a run of a model, operation by operation.")
@click.argument("model", metavar="MODEL")
@option("--out folder", "RUN", "The new folder to write.", type=PATH, required=True)
@run_options()
@option("--most", "BYTES", MOST, default="2G", show_default=True)
@option("--target", "T", WHERE, cls=Shared)
@output_options
def record(
    model: str, run: ModelRun, out: Output, folder: Path, most: str, target: str | None
) -> int:
    """Runs a model and stores the inputs and outputs of every operation, to compare two runs later.

    \b
      probe record model.onnx --inputs x.npz --out run_a
      probe record module:function --target torch,threads=1 --out run_b
      probe diff run_a run_b

    MODEL is module:function, which is called with the inputs in order, or a model file as `probe
    network` takes it. It runs three times, to check that two runs give the same bits and that
    recording does not change them. The folder has no host name, user name or path, and nothing in
    it is pickled, so you may send it to others.
    """
    from probe.answers import record as answers
    from probe.cli.show import walks

    with out.progress("record") as tell, users_output_to_stderr():
        given = {"most": bytes_of(most), "target": target, **run.arguments()}
        found = answers.record(model, folder, progress=tell.say, **given)
    out.give(found.report(), lambda: walks.recorded_run(found))
    return 0


def bytes_of(text: str) -> int:
    """Returns the bytes of ``2G``. Raises InputError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not found:
        raise InputError("most", text, "it is not a number of bytes", "write 500M or 2G")
    return int(float(found[1]) * (1 << UNITS[found[2].upper()]))


@click.command(cls=Words, short_help="Find the first operation at which two recorded runs differ.")
@click.argument("left", metavar="RUN", type=PATH)
@click.argument("right", metavar="RUN", type=PATH)
@option("--report", "DIR", REPORT, type=PATH)
@option("--trust", None, TRUST, is_flag=True)
@option("--time", "5m", "Stop looking for causes after 5m (90s, 2h, 1h30m).")
@fail_on_option(
    finding="outputs that must agree differ, stand elsewhere or read different inputs, or this is "
    "unknown"
)
@output_options
def diff(
    left: Path,
    right: Path,
    report: Path | None,
    trust: bool,
    time: str | None,
    out: Output,
) -> int:
    """Compares two recordings of `probe record`, from two machines, releases, switches or batches.

    It names the first operation whose inputs agree but whose outputs differ, how far the difference
    spreads, and whether a decision (argmax, top 5, sign) changes. Recordings of different models,
    weights or inputs are refused, and the message names the first difference. No code of a
    recording is run, and no library is needed; with --trust the operations that differ are run
    again to find the causes.
    """
    from probe.answers import first_difference as answers

    refuse_written_folder(report)
    with out.progress("diff") as tell:
        found = answers.diff(left, right, trust=trust, time=time, progress=tell.say)
    return give_two_runs(found, report, out)

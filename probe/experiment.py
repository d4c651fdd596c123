"""The frame of the scripts in ``experiments/``: two options, a bar, and every error as one line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from probe.cli.output import Output
from probe.cli.shell import INTERRUPTED
from probe.errors import ProbeError
from probe.sweep import Progress

Main = Callable[[Path, bool], "bool | None"]


def script(main: Main) -> click.Command:
    """The command of an experiment, whose options are ``--store`` and ``--quick``.

    ``main(store, quick)`` gets the folder that the machine's folder lies in: ``results/NAME`` of
    the checkout, or ``build/quick/NAME`` for a quick run, which must not mix with results. It
    returns whether Ctrl-C ended it. ``NAME`` is the script's file name.
    """
    path = Path(sys.modules[main.__module__].__file__ or "").resolve()
    root, name = path.parent.parent, path.stem

    @click.command(name, help=sys.modules[main.__module__].__doc__)
    @click.option("--store", type=click.Path(path_type=Path), help=f"default: results/{name}")
    @click.option("--quick", is_flag=True, help="a few seconds on NumPy alone, to try it out")
    @functools.wraps(main)
    def command(store: Path | None, quick: bool) -> None:
        kept = root / "build" / "quick" if quick else root / "results"
        try:
            interrupted = main(store or kept / name, quick)
        except ProbeError as error:
            click.echo(f"{name}: {error}", err=True)
            sys.exit(error.exit_code)
        if interrupted:
            sys.exit(INTERRUPTED)

    return command


@contextmanager
def bar(what: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr; what it gives is a sweep's ``progress``."""
    with Output().progress(what) as tell:
        yield lambda now: tell(now.done, now.total, now.target)

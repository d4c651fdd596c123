"""The frame around every command: which there are, and every error as one line and a status."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from probe.errors import ProbeError, TargetError

COMMANDS = {
    "targets": "here",
    "machine": "here",
    "sweep": "sweep",
    "window": "window",
    "order": "order",
    "explain": "explain",
    "thresholds": "thresholds",
    "network": "network",
    "emulate": "emulate",
    "remedies": "remedies",
    "shrink": "shrink",
    "reproduce": "reproduce",
    "verify": "reproduce",
    "results": "results",
    "merge": "results",
    "run": "experiment",
    "install": "install",
    "bisect": "bisect",
}
"""Every command, in the order in which ``probe --help`` lists them, and the module that has it."""

INTERRUPTED = 130
BROKEN = 70
"""Exit statuses after Ctrl-C, and for a mistake of ours (sysexits' EX_SOFTWARE)."""


class Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"probe.cli.{COMMANDS[cmd_name]}")
        found: click.Command = getattr(module, cmd_name)
        return found


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from probe import machine

        click.echo(f"probe {machine.version()}")
        ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Why the same convolution gives other bits when only the length, batch or device changed.

    \b
      probe targets                         what can run here
      probe sweep CASE --lengths 5..40      where bits differ, and by how much
      probe explain CASE --at 5 --against 40   why

    CASE stands for options such as --op conv1d --kernel 5 --in-channels 64 --filters 64, or for
    --case FILE.json. Exit status: 0 done, 1 a finding where --fail-on asks for it, 2 the input is
    wrong, 3 the target failed.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """The exit status of ``probe ARGUMENTS``. Errors become one line on stderr.

    0 done, 1 a finding where ``--fail-on`` asks for it, 2 wrong input or too little memory, 3 the
    target failed, 70 a mistake of probe's own, 130 interrupted.
    """
    try:
        return commands.main(list(arguments), "probe", standalone_mode=False) or 0
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        _say(_usage(error))
        return 2
    except BrokenPipeError:  # the reader of our stdout has left: `probe targets | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _failed(error, "--verbose" in arguments)


def _failed(error: Exception, verbose: bool) -> int:
    """Says what went wrong; ``verbose`` adds what the target printed, or our traceback."""
    if isinstance(error, TargetError):
        more = "" if verbose or not error.stderr else "; --verbose shows what it printed"
        _say(f"{error}{more}")
        if verbose and error.stderr:
            click.echo(error.stderr, err=True)
        return error.exit_code
    if isinstance(error, ProbeError):
        _say(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.strerror:
        _say(f"file={error.filename or '(output)'}: {error.strerror}; check it and try again")
        return 2
    if isinstance(error, MemoryError):
        _say(f"memory={error or 'all of it'}: more than is free; use a smaller case")
        return ProbeError.exit_code
    if verbose:
        traceback.print_exception(error)
    told = "" if verbose else "; --verbose shows where, please report it"
    _say(f"error={type(error).__name__}: a mistake of probe's: {error}{told}")
    return BROKEN


def _say(text: str) -> None:
    """One line on stderr, whatever the text holds."""
    click.echo(f"probe: {' '.join(text.split())}", err=True)


def _usage(error: click.ClickException) -> str:
    """click's complaint as ``name=value: why; what to do``."""
    ctx = getattr(error, "ctx", None)
    todo = f"see {ctx.command_path if ctx else 'probe'} --help"
    if isinstance(error, click.NoSuchOption):
        near = " or ".join(error.possibilities or [])
        todo = f"did you mean {near}?" if near else todo
        return f"option={error.option_name}: there is no such option; {todo}"
    if isinstance(error, click.MissingParameter) and error.param:
        option = error.param.param_type_name == "option"
        name = error.param.opts[0].lstrip("-") if option else error.param.human_readable_name
        return f"{name}=(none): it is needed; {todo}"
    if isinstance(error, click.BadOptionUsage):
        return f"{error.option_name.lstrip('-')}=(none): it needs a value; {todo}"
    told = error.message.rstrip(".")
    for pattern, form in _COMPLAINTS:
        if found := re.match(pattern, told):
            about = getattr(getattr(error, "param", None), "name", None)
            return form.format(*found.groups(), name=about, todo=todo, there=", ".join(COMMANDS))
    return f"{error.format_message().rstrip('.')}; {todo}"


_COMPLAINTS = (
    (r"No such command '(.*)'", "command={0}: there is no such command; use one of {there}"),
    (r"Got unexpected extra arguments? \((.*)\)", "argument={0}: it is not expected; {todo}"),
    (r"'(.*)' is not one of (.*)", "{name}={0}: unknown; use one of {1}"),
)
"""What click says, and how we say it."""

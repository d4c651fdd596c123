"""Runs the commands, and prints every error as one line; has ``probe help``."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from probe.case.errors import (
    BASE,
    COMMAND,
    INTERRUPTED,
    InputError,
    ProbeError,
    TargetError,
    lacking,
    one_of,
    printable,
)
from probe.targets import budget

# Every command, in the order in which ``probe --help`` lists them: where it is in this folder, and
# the name that it had before, which still runs. Two words: a further form of the first, which the
# help of that one lists.
COMMANDS = {
    "MODEL": ("models.examine", "examine"),
    "diff": ("models.diff", "network"),
    "record": ("models.record", ""),
    "explain": ("cases.explain", ""),
    "order": ("cases.order", ""),
    "order window": ("cases.window", "window"),
    "sweep": ("cases.sweep", ""),
    "fix": ("models.fix", "remedies"),
    "fix sizes": ("cases.sizes", "thresholds"),
    "fix padding": ("models.padding", ""),
    "report": ("cases.report", "reproduce"),
    "report shrink": ("cases.shrink", "shrink"),
    "report verify": ("cases.verify", "verify"),
    "report emulate": ("cases.emulate", "emulate"),
    "bisect": ("cases.bisect", ""),
    "check": ("housekeeping.check", ""),
    "check lock": ("housekeeping.lock", "lock"),
    "check setup": ("housekeeping.setup", "setup"),
    "results": ("housekeeping.results", ""),
    "results merge": ("housekeeping.merge", "merge"),
    "targets": ("housekeeping.targets", ""),
    "targets machine": ("housekeeping.machine", "machine"),
    "targets doctor": ("housekeeping.doctor", "doctor"),
    "targets install": ("housekeeping.install", "install"),
    "run": ("housekeeping.run", ""),
    "demo": ("housekeeping.demo", ""),
}
RENAMED = {before: name for name, (_, before) in COMMANDS.items() if before}

# Exit status after a mistake of ours (sysexits' EX_SOFTWARE).
BROKEN = 70


def stop_writing() -> None:
    """After the reader of our stdout has left, as of ``probe targets | head -1``: Python flushes it
    once more as it ends, and would print a traceback of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if " " not in name]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # only now: `probe --help` and a shell that completes words import no other command
        module, _, function = COMMANDS[cmd_name][0].partition(".")
        command: click.Command = getattr(import_module(f"probe.ui.cli.{module}"), function)
        forms = [name for name in COMMANDS if name.startswith(f"{cmd_name} ")]
        if forms:
            lines = []
            for name in forms:
                form = self.get_command(ctx, name)
                assert form is not None
                lines.append(f"  probe {name:<16} {form.get_short_help_str(100)}")
            command.epilog = "\n".join(["\b", "Further:", *lines])
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """``probe MODEL`` needs no command, others one word or two; ``probe help X`` is
        ``probe X --help``."""
        if args[0] == "help":
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        if args[0] in RENAMED:
            new = RENAMED[args[0]]
            click.echo(f"note: probe {args[0]} is now probe {new}", err=True)
            args = [*new.split(), *args[1:]]
        for count in (2, 1):
            name = " ".join(args[:count])
            if len(args) >= count and name in COMMANDS:
                return name, self.get_command(ctx, name), args[count:]
        saved = os.path.isfile(os.path.join(args[0], "saved_model.pb"))  # TensorFlow's folders
        if saved or re.search(MODELS, args[0]):
            # what is varied is a question of two runs: `probe MODEL` has no option for it
            varied = any(word.partition("=")[0] == "--vary" for word in args)
            return "", self.get_command(ctx, "diff" if varied else "MODEL"), args
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would end with 1, which says that something was found
            stop_writing()
            return 0


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from probe.targets import machine

        click.echo(f"probe {machine.version()}")
        ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Explains why the same convolution, dense layer or model returns slightly different numbers.

    Floating-point addition is not associative, and libraries choose the order of additions by
    shape, device and version.

    \b
      probe MODEL                              which operation differs, why, the fix and its cost
      probe targets                            lists what can run here
      probe sweep CASE --lengths 5..40         finds the lengths at which bits differ
      probe explain CASE --at 5 --against 40   explains why two lengths differ
      probe diff MODEL --vary batch --at 1 --against 8      names the operation in a model

    CASE stands for options such as --op conv1d --kernel 5 --in-channels 64 --filters 64, or for
    --case FILE.json; `probe order --help` lists them. Differences are counted in ulp, units
    in the last place: 1 ulp is the distance from a floating-point number to the next one.

    \b
    Exit status:
      0    done
      1    a finding that --fail-on names
      2    the input is wrong
      3    the target failed, or the answer is unknown
      70   an internal error of probe
      130  interrupted, by Ctrl-C or SIGTERM
    With --json an error is also printed as an object on stdout:
      {"error": {"name", "value", "why", "todo", "kind"}, "exit"}

    To complete commands and options in bash (zsh and fish are similar):

    \b
      eval "$(_PROBE_COMPLETE=bash_source probe)"
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """The exit status of ``probe ARGUMENTS``. Errors become one line on stderr.

    0 done, 1 a finding where ``--fail-on`` asks for it, 2 wrong input or too little memory, 3 the
    target failed, 70 a mistake of probe's own, 130 interrupted. With ``--json`` errors are one
    object on stdout too: ``error`` (``name``, ``value``, ``why``, ``todo``, ``kind``; None for
    what does not apply) and ``exit``, the status.
    """
    budget.note("")
    COMMAND.append("probe")  # messages name options, not arguments
    try:
        with budget.within(None):
            return commands.main(list(arguments), "probe", standalone_mode=False) or 0
    except (Exception, KeyboardInterrupt) as error:
        shown: BaseException = error
        if isinstance(error, click.ClickException):
            shown = _usage(error, arguments)
        elif isinstance(error, TargetError) and error.kind == "unavailable":
            shown = _instead(error, arguments)
        if isinstance(error, ModuleNotFoundError) and error.name in (*BASE, *OPTIONAL):
            shown = lacking(error)
        verbose = "--verbose" in arguments
        line, status, parts = _described(shown, verbose)
        if verbose and status == BROKEN:
            traceback.print_exception(shown)
        # one line, whatever a library's message holds
        click.echo(f"probe: {printable(' '.join(line.split()))}", err=True)
        if verbose and isinstance(shown, TargetError) and shown.stderr:
            click.echo(shown.stderr, err=True)
        if "--json" in arguments:
            entry = dict(zip(("name", "value", "why", "todo", "kind"), parts, strict=True))
            try:
                click.echo(json.dumps({"error": entry, "exit": status}))
            except BrokenPipeError:
                stop_writing()
        return status
    finally:
        COMMAND.pop()


def _instead(error: TargetError, arguments: Sequence[str]) -> TargetError:
    """The error, with the libraries that are here where the default target is not."""
    from probe.targets import backends
    from probe.targets.target import Target, why_unavailable
    from probe.ui.cli.options import DEFAULT_TARGET

    # the words themselves, as the error may come from deep below the options
    has_target = any(word.split("=")[0] in ("--target", "--and", "--from") for word in arguments)
    if has_target or error.target != DEFAULT_TARGET:
        return error
    present = [name for name in backends.known_backends() if why_unavailable(Target(name)) is None]
    why = f"{error.why}, or give --target with a library that is here: {', '.join(present)}"
    return TargetError(error.target, error.kind, why, error.stderr)


# Packages that probe's base does without, as import calls them.
OPTIONAL = ("duckdb", "jinja2", "matplotlib", "ml_dtypes", "xxhash")

CHECK = "check it and try again"


# What errors that name no input and no target are called in JSON.
KINDS = {
    "StoreError": "store",
    "NothingKnown": "time",
    "Nondeterministic": "nondeterministic",
    "Misaligned": "alignment",
    "NotASum": "not-a-sum",
    "NotReproduced": "not-reproduced",
}


def _described(error: BaseException, verbose: bool) -> tuple[str, int, tuple[object, ...]]:
    """An error's line on stderr, the exit status, and what ``--json`` has of it: name,
    value, why, what to do, and kind (``input``, a TargetError's, or what it is)."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        doing = budget.noted()
        line = f"interrupted{doing and f': {doing}; no answer yet'}"
        return line, INTERRUPTED, (None, None, line, None, "interrupted")
    if isinstance(error, InputError):
        value = None if error.value is None else str(error.value)
        parts = (error.name, value, error.why, error.todo or None, "input")
        return str(error), error.exit_code, parts
    if isinstance(error, TargetError):
        more = "" if verbose or not error.stderr else "; --verbose shows what it printed"
        parts = ("target", error.target, error.why, None, error.kind)
        return f"{error}{more}", error.exit_code, parts
    if isinstance(error, ProbeError):
        # every message is written as name=value: why; what to do, and JSON has the parts
        match = re.fullmatch(r"([\w-]+)=(.*?): (.*?)(?:; (.*))?", str(error))
        words = match.groups() if match else (None, None, str(error), None)
        return str(error), error.exit_code, (*words, KINDS.get(type(error).__name__, "input"))
    if isinstance(error, OSError) and error.strerror:
        line = f"file={error.filename or '(output)'}: {error.strerror}; {CHECK}"
        return line, 2, ("file", error.filename, error.strerror, CHECK, "file")
    name = type(error).__name__
    mistake = ("error", name, str(error), "please report it", "mistake-of-probe")
    if isinstance(error, MemoryError):
        line = f"memory={error or 'all of it'}: more than is free; use a smaller case"
        return line, ProbeError.exit_code, mistake
    more = "" if verbose else "; --verbose shows where, please report it"
    return f"error={name}: an internal error of probe: {error}{more}", BROKEN, mistake


# What looks like a model's file, or like ``module:function``.
MODELS = r"\.(onnx|tflite|keras|h5|hdf5|pt2|pt|pth|caffemodel|prototxt)$|^[A-Za-z_][\w.]*:[A-Za-z_]"


def _usage(error: click.ClickException, arguments: Sequence[str]) -> ProbeError:
    """click's complaint in our words: ``name=value: why; what to do``."""
    names = [" ".join(arguments[at : at + n]) for n in (2, 1) for at in range(len(arguments))]
    command = next((name for name in names if name in COMMANDS), "")
    todo = f"see probe {command} --help" if command else "see probe --help"
    if isinstance(error, click.NoSuchOption):
        first = command.partition(" ")[0]
        if first and error.option_name in arguments[: arguments.index(first)]:
            todo = f"options follow the command: probe {command} {error.option_name} ..."
            return InputError("option", error.option_name, "it precedes the command", todo)
        near = " or ".join(error.possibilities or [])
        todo = f"did you mean {near}?" if near else todo
        return InputError("option", error.option_name, "there is no such option", todo)
    if isinstance(error, click.MissingParameter) and error.param:
        option = error.param.param_type_name == "option"
        name = error.param.opts[0].lstrip("-") if option else error.param.human_readable_name
        if option:
            todo = f"give {error.param.opts[0]} {error.param.metavar or 'VALUE'}"
        return InputError(name, "(none)", "it is required", todo)
    if isinstance(error, click.BadOptionUsage):
        return InputError(error.option_name.lstrip("-"), "(none)", "it needs a value", todo)
    text = error.message.rstrip(".")
    # click has no class of its own for these three: only the text says which it is
    if match := re.match(r"No such command '(.*)'", text):
        listed = [name for name in COMMANDS if " " not in name]
        why, todo = "there is no such command", one_of(match[1], listed)
        module, _, name = match[1].removesuffix(".py").rpartition(".")
        files = [match[1].removesuffix(".py"), module]
        imported = [os.path.isfile(f"{stem.replace('.', '/')}.py") for stem in files]
        if os.path.exists(match[1]) and not match[1].endswith(".py"):
            why = "it is a file of no known model format"
            if os.path.isdir(match[1]):
                why = "it is a folder without saved_model.pb"
            todo = "use one of " + MODELS.partition(")")[0][3:].replace("|", ", ")
        elif any(imported):
            name = f"{module}:{name}" if imported[1] else f"{files[0]}:NAME"
            todo = f"a model in a Python file is named as Python imports it: probe {name}"
        return InputError("command", match[1], why, todo)
    if match := re.match(r"Got unexpected extra arguments? \((.*)\)", text):
        from probe.case.case import ALIASES
        from probe.case.operation import OPERATIONS

        # an operation without --op, or a model of another command
        first, *_ = match[1].split() or [match[1]]
        if first.lower() in (*OPERATIONS, *ALIASES):
            todo = f"write --op {first}"
        elif re.search(MODELS, first):
            todo = "a model is examined by another command: "
            todo += f"probe {first}, or probe diff {first}"
        return InputError("argument", match[1], "it is not expected", todo)
    if match := re.match(r"'(.*)' is not (?:one of )?('.*')", text):
        name = getattr(getattr(error, "param", None), "name", None) or "value"
        known = [word.strip("' ") for word in match[2].split(",")]
        return InputError(name, match[1], "unknown", one_of(match[1], known))
    return ProbeError(f"{error.format_message().rstrip('.')}; {todo}")

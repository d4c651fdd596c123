"""Options that several commands share: the case's words, the target, ``--json``, ``--fail-on``."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from probe.case import Case
    from probe.target import Target

Command = Callable[..., Any]

SHARED = "Options that the commands share"
"""The heading of the last part of every help."""


class Shared(click.Option):
    """An option that means the same in every command that has it: the last ones of its help."""


class Words(click.Command):
    """A command whose help lists its own options first, and whose values a shell can complete."""

    def __init__(self, *given: Any, **named: Any) -> None:
        from probe.cli.completion import VALUES

        super().__init__(*given, **named)
        for param in self.params:
            if param.name in VALUES and isinstance(param, click.Option):
                param._custom_shell_complete = VALUES[param.name]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                last = isinstance(param, Shared) or "--help" in param.opts
                (shared if last else own).append(record)
        for heading, records in (("Options", own), (SHARED, shared)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


CASE_WORDS = {
    "op": ("conv1d|conv2d|dense|...", "The operator; dense, or linear: rows of a dense layer."),
    "kernel": ("5|1x5", "Kernel size; one number serves every axis."),
    "in_channels": ("N", "Input channels; 1 if not given."),
    "filters": ("N", "Output channels; 1 if not given (depthwise: the channels)."),
    "stride": ("N|1x2", "Stride; 1 if not given."),
    "dilation": ("N|1x2", "Dilation; 1 if not given."),
    "groups": ("N", "Channel groups; 1 if not given."),
    "padding": ("valid|same|same_lower|caffe|N|L:R", "Padding, one N or L:R an axis."),
    "ceil_mode": ("true", "Pooling: the last window may reach beyond the padded input."),
    "pad_with": ("nothing|zeros", "Pooling: what padding puts into windows; nothing if not given."),
    "batch": ("N", "Batch size, the rows of a dense layer; 1 if not given."),
    "height": ("N|4x6", "The spatial axes before the last; the kernel's extent if not given."),
    "length": ("N", "The last spatial axis."),
    "dtype": ("float32|float64|float16|bfloat16", "Format of all operands; float32 if not given."),
    "operands": ("normal|ramp|cancel|...", "Which operands are generated; normal if not given."),
    "seed": ("N", "Seed of the generated operands; 0 if not given."),
    "weights": ("-0.7,1.1,...", "These weights, row by row, instead of generated ones."),
    "bias": ("0.04|normal|a,b,...", "One bias for all filters, one for each, or generated ones."),
    "split": ("N", "Add the first N channels in one call and the others in a second one."),
}
"""The words of a case, as in ``Case(...)``: what the command line shows for a value, and help."""

DEFAULT_TARGET = "tensorflow"


def case_options(command: Command) -> Command:
    """Adds the case's words and ``--case FILE``; the command gets ``words``, for ``case_of``."""

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        words = {name: given.pop(name) for name in (*CASE_WORDS, "case_file")}
        return command(words={k: v for k, v in words.items() if v is not None}, **given)

    doc = "A JSON file with a case; other words change it."
    file = click.option("--case", "case_file", metavar="FILE", help=doc, cls=Shared)
    found = file(wrapped)
    for name, (shown, doc) in reversed(CASE_WORDS.items()):
        found = click.option(_flag(name), name, metavar=shown, help=doc, cls=Shared)(found)
    return found


def case_of(words: Mapping[str, str]) -> Case:
    """The case that the given words say. Raises InputError."""
    from probe.case import Case
    from probe.errors import InputError

    given: dict[str, Any] = dict(words)
    if file := given.pop("case_file", None):
        found = Case.from_file(file)
        return found.with_(**given) if given else found
    if "op" not in given:
        raise InputError("op", "(none)", "a case needs it", "give --op conv1d, or --case FILE")
    return Case(**given)


def ask_for(words: Mapping[str, str], **others: tuple[bool, str]) -> None:
    """Asks at once for everything that is missing, where that is more than one thing. InputError.

    ``others``: what is needed beside the case: whether it was given, and how one gives it.
    """
    from probe.errors import InputError
    from probe.operation import OF_CASES, OPERATIONS

    missing: dict[str, str] = {}
    if "case_file" not in words:
        op = words.get("op")
        if op is None:
            missing["op"] = "--op conv1d"
        if "kernel" not in words and (op is None or (op in OF_CASES and OPERATIONS[op].windows)):
            missing["kernel"] = "--kernel 5" + " (products and sums have none)" * (op is None)
    missing |= {name: how for name, (given, how) in others.items() if not given}
    if len(missing) > 1:
        todo = f"give {', '.join(missing.values())}"
        todo += ", or a case with --case FILE" if "op" in missing else ""
        raise InputError(", ".join(missing), "(none)", "they are needed", todo)


def ask_for_runs(
    words: Mapping[str, str],
    vary: str | None,
    at: str | None,
    against: str | None,
    others: bool,
) -> None:
    """``ask_for`` what two runs need. ``others``: the right side has a target or padding."""
    known = has_length(words)
    need = {"length": (known, "--length N")}
    if axis_given(words, vary) == "length":
        need = {"at": (known or at is not None, "--at A")}
    how = "--against B (or --against-target U, --against-padding P)"
    ask_for(words, **need, against=(others or against is not None, how))


def has_length(words: Mapping[str, str]) -> bool:
    """Whether no length has to be asked for: it is given, a file may give it, or there is none."""
    return bool({"length", "case_file"} & set(words)) or axis_given(words, None) != "length"


def axis_given(words: Mapping[str, str], vary: str | None) -> str:
    """The axis that is varied, as far as the words say: ``vary``, or the operation's own."""
    from probe.case import ALIASES
    from probe.operation import OF_CASES, OPERATIONS

    if vary is not None:
        return vary
    op = str(words.get("op", "")).lower()
    op = ALIASES.get(op, op)
    return "batch" if op in OF_CASES and not OPERATIONS[op].spatial_rank else "length"


def command_line(case: Case, leave_out: tuple[str, ...] = ()) -> str:
    """The words that make this case on a command line, without those at their defaults."""
    from probe.arguments import by, padding_text
    from probe.case import Case

    plain = Case(case.op, case.kernel, case.in_channels).arguments()
    parts = []
    for name, value in case.arguments().items():
        needed = name == "op" or (name == "kernel" and case.operation.windows)
        if name in leave_out or (value == plain[name] and not needed):
            continue
        if name == "padding":
            value = padding_text(value)
        elif isinstance(value, tuple):
            value = by(value) if isinstance(value[0], int) else ",".join(map(repr, value))
        parts.append(f"{_flag(name)} {shlex.quote(str(value))}")
    if case.in_channels != 1:
        parts.insert(2, f"--in-channels {case.in_channels}")
    return " ".join(parts)


def number(name: str, text: str | None) -> int | None:
    """A whole number from 1 up; None where the option was not given. Raises InputError."""
    from probe.arguments import count

    return None if text is None else count(name, text)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def target_option(several: bool = False) -> Callable[[Command], Command]:
    """Adds ``--target``: a text, or with ``several`` a tuple of texts."""
    doc = "Where it runs: NAME[==VERSION][@DEVICE][,key=value...], see `probe targets`" + (
        "; may be given again." if several else "."
    )
    default: Any = (DEFAULT_TARGET,) if several else DEFAULT_TARGET
    return click.option(
        *("--target", "targets" if several else "target"),
        metavar="T",
        multiple=several,
        default=default,
        show_default=DEFAULT_TARGET,
        help=doc,
        cls=Shared,
    )


def targets_of(texts: tuple[str, ...]) -> list[Target]:
    """The targets of the texts, each once. Raises InputError."""
    from probe.target import Target

    return list(dict.fromkeys(Target.parse(text) for text in texts))


def trust_option(command: Command) -> Command:
    """Adds ``--trust``; the command gets ``trust``, for ``Network.load``."""
    doc = (
        "Read a model file that runs code of its own: a pickled PyTorch module, Keras' Lambda or "
        "classes that are not Keras' own. Give it for files whose origin you trust."
    )
    return click.option("--trust", is_flag=True, help=doc)(command)


def output_options(command: Command) -> Command:
    """Adds ``--json`` and ``--verbose``; the command gets ``out``, an ``Output``."""

    @functools.wraps(command)
    def wrapped(as_json: bool, verbose: bool, **given: Any) -> Any:
        from probe.cli.output import Output

        return command(out=Output(as_json, verbose), **given)

    doc = "Show what a failing target printed, or where probe failed."
    found = click.option("--verbose", is_flag=True, help=doc, cls=Shared)(wrapped)
    doc = "Print one JSON object instead of text."
    return click.option("--json", "as_json", is_flag=True, help=doc, cls=Shared)(found)


def fail_on_option(**what: str) -> Callable[[Command], Command]:
    """Adds ``--fail-on`` with these choices and what each stands for."""
    choices = "; ".join(f"{name}: {meaning}" for name, meaning in what.items())
    doc = f"Exit with 1 on a finding. {choices}."
    return click.option("--fail-on", type=click.Choice(list(what)), help=doc)

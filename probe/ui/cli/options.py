"""Defines options that several commands share, and turns words into cases and targets."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from probe.case.errors import InputError, refuse

if TYPE_CHECKING:
    from probe.case.case import Case
    from probe.targets.target import Target

Command = Callable[..., Any]

PATH = click.Path(path_type=Path)

# The heading of the last part of every help.
SHARED = "Options that the commands share"


class Shared(click.Option):
    """An option that means the same in every command that has it: the last ones of its help."""


PADDINGS = "valid|same|same_lower|caffe|N|L:R"


class OptionsByScope(click.Command):
    """A command whose help lists its own options first, then those that commands share."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        command_records: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            if not isinstance(param, click.Option):
                continue
            of_case = param.name in CASE_WORDS and isinstance(param, Shared)
            # two thirds of the help of ten commands would be these, all alike
            if of_case and param.name != "op" and self.name != LISTS_CASES:
                continue
            if record := param.get_help_record(ctx):
                if of_case and self.name != LISTS_CASES:
                    about = f"What is computed: `probe {LISTS_CASES} --help` lists these options."
                    record = "--op OP, --kernel 5, ...", about
                last = isinstance(param, Shared) or "--help" in param.opts
                (shared if last else command_records).append(record)
        for heading, records in (("Options", command_records), (SHARED, shared)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


# The command whose help lists the options of a case, for all others.
LISTS_CASES = "order"


def option(
    flags: str, shown: str | None, help: str, least: int = 1, **more: Any
) -> Callable[[Command], Command]:
    """``click.option`` of flags (and perhaps a name) in words. What it takes follows from what is
    shown for a value: ``N`` is a number of at least ``least``, ``1..8`` are several, ascending,
    ``DIR``, ``FILE`` and the like are paths; anything else is text."""

    def as_numbers(_: click.Context, param: click.Parameter, value: Any) -> Any:
        from probe.case import arguments  # late: a command's help needs no NumPy

        if value is None or shown == "N":
            return arguments.optional_number(str(param.name), value, least)
        return arguments.whole_numbers(str(param.name), value)

    if "type" not in more and (shown == "N" or re.match(r"\d+\.\.", shown or "")):
        more |= {"type": str, "callback": as_numbers}
    elif shown in ("DIR", "FILE", "RUN", "STORE"):
        more.setdefault("type", PATH)
    more.setdefault("show_default", "default" in more and not more.get("is_flag"))
    return click.option(*flags.split(), metavar=shown, help=help, **more)


def added_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that adds several options; the command's help lists them in this order."""
    # decorators apply from the last one up, and click lists the first one first
    return lambda command: functools.reduce(lambda below, add: add(below), options[::-1], command)


# The words of a case, as in ``Case(...)``: what the command line shows for a value, and help.
CASE_WORDS = {
    "op": (
        "conv1d|conv2d|conv3d|depthwise_conv2d|conv1d_transpose|conv2d_transpose|dense|matmul|...",
        "The operation, for example conv1d or dense (also: linear).",
    ),
    "kernel": ("5|1x5", "Kernel size; one number applies to every axis."),
    "in_channels": ("N", "Input channels; 1 if not given."),
    "filters": ("N", "Output channels; 1 if not given (depthwise: the channels)."),
    "stride": ("N|1x2", "Stride; 1 if not given."),
    "dilation": ("N|1x2", "Dilation; 1 if not given."),
    "groups": ("N", "Channel groups; 1 if not given."),
    "padding": (
        PADDINGS,
        "Padding; N or L:R for each axis. Transposed: what is cut off; 1:0 is PyTorch's padding=1, "
        "output_padding=1.",
    ),
    "ceil_mode": ("true", "Pooling: the last window may reach beyond the padded input."),
    "pad_with": (
        "nothing|zeros",
        "Pooling: what padding counts as; nothing (left out) if not given.",
    ),
    "batch": ("N", "Batch size, of a dense layer its rows; 1 if not given."),
    "height": ("N|4x6", "Sizes of the spatial axes before the last; as --length if not given."),
    "length": ("N", "Size of the last spatial axis."),
    "dtype": ("float32|float64|float16|bfloat16", "Format of all operands; float32 if not given."),
    "operands": ("normal|ramp|cancel|...", "Which operands are generated; normal if not given."),
    "seed": ("N", "Seed of the generated operands; 0 if not given."),
    "weights": ("-0.7,1.1,...", "Your weights, row by row, instead of generated ones."),
    "bias": ("0.04|normal|a,b,...", "One bias, one for each filter, or normal (generated)."),
    "layout": (
        "contiguous|transposed|channels_last|strided|offset:N",
        "How the library's tensors lie in memory; contiguous if not given.",
    ),
    "put": ("x[0,1]=nan", "Set elements of x, w or b (nan, inf, 1e38); separate several by ;."),
    "split": ("N", "Sum over the first N channels in one call and over the rest in a second one."),
}

DEFAULT_TARGET = "tensorflow"


def case_options(command: Command) -> Command:
    """Adds the words of a case and ``--case FILE``; the command gets ``words``."""

    @functools.wraps(command)
    def wrapped(**options: Any) -> Any:
        words = {name: options.pop(name) for name in (*CASE_WORDS, "case_file")}
        return command(words={k: v for k, v in words.items() if v is not None}, **options)

    words = [
        option(f"{flag_of(name)} {name}", shown, doc, cls=Shared, type=str)
        for name, (shown, doc) in CASE_WORDS.items()
    ]
    doc = "A JSON file with a case; the options above override it."
    return added_options(*words, option("--case case_file", "FILE", doc, cls=Shared, type=str))(
        wrapped
    )


def case_of_words(words: Mapping[str, str]) -> Case:
    """The case that options define, by their names in ``CASE_WORDS``. Raises InputError."""
    from probe.case.case import Case

    options: dict[str, Any] = dict(words)
    if file := options.pop("case_file", None):
        case = Case.from_file(file)
        return case.with_(**options) if options else case
    if "op" not in options:
        raise InputError("op", "(none)", "it is required", "give --op conv1d, or --case FILE")
    case = Case(**options)
    # `--op conv2d --kernel 3 --length 32` was a picture of 3 x 32: as high as the kernel
    if case.spatial_rank > 1 and case.length is not None and case.height is None:
        case = case.with_(height=(case.length,) * (case.spatial_rank - 1))
    return case


def sized_case(words: Mapping[str, str]) -> Case:
    """``case_of_words`` of a case whose length is given. Raises InputError."""
    from probe.case.case import require_length

    return require_length(case_of_words(words))


def flag_of(name: str) -> str:
    """An option as it is typed, by the name that commands get it under."""
    return "--case" if name == "case_file" else "--" + name.replace("_", "-")


def refuse_case(words: Mapping[str, str]) -> None:
    """Refuses words of a case beside a model. InputError."""
    for name, value in words.items():
        why = "the model defines what is computed"
        raise InputError(name, value, why, f"leave out {flag_of(name)}")


def target_option(
    several: bool = False, default: str | None = DEFAULT_TARGET
) -> Callable[[Command], Command]:
    """Adds ``--target``: a text, or with ``several`` a tuple of texts."""
    doc = (
        "The library that runs it, with version, device and switches: "
        "NAME[==VERSION][@DEVICE][,key=value...]; `probe targets` lists them."
    )
    doc += " May be given several times." if several else ""
    flags = "--target targets" if several else "--target"
    # click takes the default of a repeated option as a tuple, and shows it as one
    click_default: Any = (default,) if several and default else default
    more = {"multiple": several, "default": click_default, "show_default": default or False}
    return option(flags, "T", doc, cls=Shared, **more)


def parsed_targets(texts: tuple[str, ...]) -> list[Target]:
    """The targets of the texts, each once. Raises InputError."""
    from probe.targets.target import Target

    return list(dict.fromkeys(Target.parse(text) for text in texts))


# Commands that start a process which prints its own progress.
OWN_PROGRESS = ("run",)


def output_options(command: Command) -> Command:
    """Adds ``--json`` and ``--verbose``; the command gets ``out``, an ``Output``."""

    @functools.wraps(command)
    def wrapped(as_json: bool, verbose: bool, **options: Any) -> Any:
        from probe.sweep.printing import Output

        out = Output(as_json, verbose, options.pop("fail_on", None))
        # two voices on one stderr would tell of the same work twice
        if command.__name__ in OWN_PROGRESS:
            return command(out=out, **options)
        with out.progress(command.__name__):
            return command(out=out, **options)

    flag: dict[str, Any] = {"is_flag": True, "cls": Shared}
    verbose = "After a failure, show what the target printed, or probe's traceback."
    return added_options(
        option("--json as_json", None, "Print one JSON object instead of text.", **flag),
        option("--verbose", None, verbose, **flag),
    )(wrapped)


def fail_on_option(**what: str) -> Callable[[Command], Command]:
    """Adds ``--fail-on`` with these choices and what each stands for: ``out`` has what is given."""
    choices = "; ".join(f"{name}: {meaning}" for name, meaning in what.items())
    doc = f"Exit with status 1 on a finding. {choices}."
    return click.option("--fail-on", type=click.Choice(list(what)), help=doc)


INPUTS = "Inputs from an .npz file, in the model's order or by name; random ones if not given."
SHAPE = "Shape of a generated input: x=1x3x224x224; may be given several times."
TRUST = (
    "Allow a model file that runs code when it is read: a pickled PyTorch module, a Keras Lambda "
    "layer or custom Keras classes. Use it only for files whose origin you trust."
)


class ModelRun(NamedTuple):
    """What a model is run on, in words: ``--inputs``, ``--shape``, ``--seed`` and ``--trust``."""

    inputs: Path | None
    shapes: tuple[str, ...]
    seed: int | None
    trust: bool

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for ``probe.examine`` and the like; no ``seed`` if the command has no
        such option. InputError: a shape is wrong."""
        from probe.record.inputs import shapes_of

        arguments = {"inputs": self.inputs, "shapes": shapes_of(self.shapes), "trust": self.trust}
        return arguments if self.seed is None else arguments | {"seed": self.seed}

    def refuse_beside_case(self) -> None:
        """A case generates its own operands. InputError."""
        of_model = {"inputs": self.inputs, "shape": self.shapes, "trust": self.trust}
        refuse(of_model, "a case generates its own operands", "give a model, or leave it out")


def run_options(
    subject: str = "", seeded: bool = True, trust: str = TRUST
) -> Callable[[Command], Command]:
    """Adds what a model is run on; the command gets ``run``, a ``ModelRun``.

    ``subject``: how the help of each begins, as ``Of a model: `` where a case is possible too.
    ``seeded``: there is a ``--seed`` for the inputs alone; a case has one of its own. ``trust``:
    the help of ``--trust``.
    """

    def added(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(**options: Any) -> Any:
            seed = options.pop("seed") if seeded else None
            words = {name: options.pop(name) for name in ("inputs", "shapes", "trust")}
            return command(run=ModelRun(seed=seed, **words), **options)

        seed = option("--seed", "N", "Seed of generated inputs.", least=0, default=0)
        options = [
            option("--inputs", "FILE", f"{subject}{INPUTS}"),
            option("--shape shapes", "X=1x64", f"{subject}{SHAPE}", multiple=True),
        ]
        if seeded:
            options.append(seed)
        options.append(option("--trust", None, trust, is_flag=True))
        return added_options(*options)(wrapped)

    return added


def on_command_line(name: str) -> bool:
    """Whether an option stands on the command line, by the name that the command gets."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


SIDES = ("at", "against", "vary", "against_target", "against_padding")


class AskedRuns(NamedTuple):
    """Two runs of a case: its words, the left target, and ``SIDES`` as functions take them, values
    of an axis as numbers or layouts' words."""

    words: dict[str, str]
    target: str
    sides: Mapping[str, Any]

    def refuse_beside(self, store: Path, *more: str) -> None:
        """Raises InputError where runs, or ``more``, are given although a store says them."""
        names = [name for name in (*self.words, *SIDES, "target", *more) if on_command_line(name)]
        if names:
            flags = ", ".join(map(flag_of, names))
            why = "the store defines the cases, targets and lengths"
            raise InputError("from", store, why, f"leave out {flags}, or --from")


AT = "The length (or batch, ...) of the left run; the case's own if not given."
VARIED = "What is varied: length (default), batch (default of dense), filters, channels or layout."
AXES = "length|batch|filters|channels|layout"


def sides_options(command: Command) -> Command:
    """Adds the options of ``SIDES``, below those of a case and ``--target``; the command gets all
    as ``runs``."""

    @functools.wraps(command)
    def wrapped(**options: Any) -> Any:
        sides = {name: options.pop(name) for name in SIDES}
        for name in ("at", "against"):
            sides[name] = axis_value(name, sides[name], sides["vary"])
        runs = AskedRuns(options.pop("words"), options.pop("target"), sides)
        return command(runs=runs, **options)

    return added_options(
        option("--at", "A", f"{AT} --length A means the same as --at A."),
        option("--against", "B", "The length (or batch, ...) of the right run."),
        option("--vary", AXES, VARIED),
        option("--against-target", "U", "A different target for the right run."),
        option("--against-padding", PADDINGS, "A different padding for the right run."),
    )(wrapped)


ZEROS = "equal: +0 and -0 agree, and are counted; differ: they differ, by 0 ulp."
zeros_option = option("--zeros", "equal|differ", ZEROS, default="equal")
KERNELS = "said: name the kernels that the library reports, which starts it once more; or none."


def kernels_option(default: str) -> Callable[[Command], Command]:
    """Adds ``--kernels``: evidence beside causes."""
    return option("--kernels", "none|said", KERNELS, default=default)


TIME = "Stop after 5m (90s, 2h, 1h30m); what is known by then is printed."

BY = (
    "What a smaller case must preserve: bits: outputs that differ; order: different orders "
    "or roundings of the sums, independent of the operands."
)
budget_options = added_options(
    option("--by", "bits|order", BY, default="bits"),
    option("--most", "N", "How many cases to try.", default=300),
)


def axis_value(name: str, text: str | None, vary: str | None) -> int | str | None:
    """A value of the axis ``vary``: a layout's word, else a number. Raises InputError."""
    from probe.case.arguments import optional_number

    return text if vary == "layout" else optional_number(name, text)

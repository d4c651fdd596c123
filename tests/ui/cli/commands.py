"""Command lines, drawn by Hypothesis from the commands themselves, and what each has to keep to.

Targets are NumPy's, in this process; commands that install or run experiments are not drawn.
"""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import click
from hypothesis import strategies as st

import probe
from probe.targets import launch
from probe.targets.target import Target
from probe.ui.cli import shell

LEFT_OUT = ("targets install", "bisect", "run", "fix sizes")
"""What would install releases, or measures for minutes as it is."""

STATUSES = {0, 1, 2, 3}
SECONDS, TIMES = 20, 6
"""What a target's answer may take here, as in a process of its own; a command that needs more than
so many such times hangs."""

NUMBERS = ["1", "2", "3", "5", "8", "9", "12", "0", "-1", "1.5", "1e3", "nan", "9" * 30, "٣", "0x5"]
LENGTHS = "5..9 5,7,9..12 9..5 5.. .. 5..9:0 5..20:5 7 1..1000001 5..9,x".split()
SIZES = ["3", "1x5", "3x3", "2x2x2", "x", "1x", "3x-1", "5x5x5x5", "0"]
TARGETS = [
    *("reference", "numpy", "reference,algorithm=pairwise,length_switch=8", "numpy,threads=1"),
    *("reference,algorithm=random", "reference,algorithm=winograd", "reference==9", "numpy@cuda:0"),
    *("", ",", "@", "==", "reference,", "reference,x", "nonsense", "reference,algorithm="),
    *("numpy,,", "reference,algorithm=pairwise,algorithm=blocked", "caffe", "tensorflow==0.0.1"),
]
WILD = [
    *("", " ", "-", "--", "None", "true", "normal", "%s", "{}", "{0", "\\", "'", '"', "\n"),
    *("\udcff", "é", "\u202e", "a" * 3000, "[", "[[1]]", "*", "~", "a=b", ":", "::", ";"),
    *("x[0]=nan", "w[9,9]=1", "../x", "no/such/file", "/dev/null", "/dev/null/x", ".", ".."),
    *("/proc/self/mem", "conv1d.json"),
]
KNOWN: dict[str, list[str]] = {
    "op": ["conv1d", "conv2d", "conv3d", "sum", "dot", "matmul", "dense", "depthwise_conv2d",
           "max_pool1d", "avg_pool2d", "Conv1D", "cnov1d"],
    "kernel": SIZES, "stride": SIZES, "dilation": SIZES, "height": SIZES,
    "padding": ["valid", "same", "same_lower", "caffe", "1", "0:1", "2:2,1", "-1", "9:", "99"],
    "dtype": ["float32", "float64", "float16", "bfloat16", "int8"],
    "operands": ["normal", "ramp", "cancel", "ones", "integers", "no"],
    "weights": ["1,2,3", "0.5", "nan", "1e99", ",", "-0.7,1.1,0.3,2,5"],
    "bias": ["normal", "0.04", "a,b", "1,2,3"],
    "layout": ["contiguous", "transposed", "channels_last", "strided", "offset:4", "offset:x"],
    "layouts": ["transposed", "transposed,offset:16", "contiguous"],
    "put": ["x[0]=nan", "x[0,1,0]=inf;w[1]=0", "b[0]=1", "x[=1", "x[99]=nan"],
    "vary": ["length", "batch", "filters", "channels", "layout"], "axis": ["length", "batch"],
    "values": LENGTHS, "lengths": LENGTHS, "sizes": LENGTHS,
    "shard": ["1/2", "2/1", "a/b", "1/999"],
    "time": ["1s", "0s", "9", "1h1", "5m"], "zeros": ["differ", "equal"], "by": ["bits", "order"],
    "control": ["every", "differing"], "targets": TARGETS, "target": TARGETS,
    "against_target": TARGETS, "also": TARGETS, "most": ["1G", "0", "5 MB", "-1"],
    "model": ["nine-layers", "nine-layers:width=2,kernel=3", "nine-layers:width=0", "x.json",
              "no.onnx", "os:getcwd", "json:loads", "nothing:nothing", "conv1d.json"],
    "case_file": ["conv1d.json", "broken.json", "no.json", ".", "/dev/null"],
    "only": ["pad", "float64", "no"],
}  # fmt: skip
"""Values that an option takes, or nearly; beside them every option gets numbers and WILD ones."""

FIRST = {
    "op": "conv1d",
    "kernel": "3",
    "in_channels": "2",
    "length": "6",
    "at": "6",
    "against": "9",
}
"""What is given most often, so that commands come further than to what they lack."""


REAL = probe.Session  # kept by the package before a stand-in is there to be kept


class Within(launch.InlineSession):
    """A target in this process, whatever limits it is given; processes are tested elsewhere.

    ``asked``: how many requests are being answered, which the time limit of a process would end.
    """

    asked = 0

    def __init__(self, where: Target, *_: Any, **__: Any) -> None:
        super().__init__(where)

    def stream(self, header: Any, arrays: Any = None) -> Iterator[launch.Answer]:
        """As its base class has it."""
        Within.asked += 1
        try:
            yield from super().stream(header, arrays)
        finally:
            Within.asked -= 1


@contextmanager
def in_this_process(monkeypatch: Any) -> Iterator[None]:
    """Targets ``reference`` and ``numpy`` run in this process: a start takes as long as an answer.

    Other targets, whose switches are variables of a process, run in theirs.
    """

    def made(where: Target, *given: Any, **limits: Any) -> launch.AnySession:
        own = where.name in ("reference", "numpy") and not where.version
        plain = own and not launch.library_variables(where)
        return Within(where) if plain else REAL(where, *given, **limits)

    with monkeypatch.context() as patch:
        patch.setattr(launch, "Session", made)
        yield
    restore(made)


def restore(stand_in: Any) -> None:
    """Gives the real Session back to modules that were imported while ``stand_in`` stood for it."""
    for name, one in list(sys.modules.items()):
        if name.startswith("probe") and vars(one).get("Session") is stand_in:
            one.Session = REAL


def values(param: click.Parameter) -> st.SearchStrategy[str]:
    """Values of one option or argument: its own, numbers, and others."""
    if isinstance(param.type, click.Choice):
        return st.sampled_from([*map(str, param.type.choices), *WILD[:4]])
    mine = KNOWN.get(param.name or "", NUMBERS)
    own = st.sampled_from(mine)
    other = st.sampled_from(WILD) | st.sampled_from(NUMBERS) | text()
    return st.integers(0, 9).flatmap(lambda n: own if n < 8 else other)


def text() -> st.SearchStrategy[str]:
    """What the system passes on a command line: anything without a NUL."""
    return st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=12)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """The words of one command line."""
    name = draw(st.sampled_from([one for one in shell.COMMANDS if one not in LEFT_OUT]))
    command = shell.commands.get_command(click.Context(shell.commands), name)
    assert command is not None
    words = name.split()
    options = [one for one in command.params if isinstance(one, click.Option)]
    names = {one.name for one in options}
    for option, value in FIRST.items():
        if option in names and draw(st.integers(0, 9)) < 8:
            words += [f"--{option.replace('_', '-')}", value]
    if "targets" in names or "target" in names:
        words += ["--target", draw(st.sampled_from(TARGETS[:3]))]
    for option in draw(st.lists(st.sampled_from(options), max_size=5)):
        flag = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        words += [flag] if option.is_flag else [flag, draw(values(option))]
    for argument in (one for one in command.params if isinstance(one, click.Argument)):
        times = draw(st.integers(0, 2)) if argument.nargs != 1 else draw(st.integers(0, 8)) > 0
        words[len(name.split()) : len(name.split())] = [
            draw(values(argument)) for _ in range(times)
        ]
    if draw(st.integers(0, 3)) == 0:
        words.append("--json")
    if draw(st.integers(0, 19)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(WILD) | text()))
    return words


@contextmanager
def not_for_ever(words: Sequence[str]) -> Iterator[None]:
    """Ends an answer that takes longer than ``SECONDS``; AssertionError: the command goes on."""
    rung = []

    def ring(*_: object) -> None:
        rung.append(1)
        if Within.asked or len(rung) >= TIMES:
            raise ZeroDivisionError(f"no answer within {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    try:
        yield
        assert len(rung) < TIMES, f"no end within {TIMES * SECONDS} s: {words}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ran(capsys: Any, text: str, *more: str) -> tuple[int, str, str]:
    """Runs ``probe TEXT`` and returns its status, stdout and stderr."""
    status = shell.run([*text.split(), *more])
    return (status, *capsys.readouterr())


def answered(capsys: Any, command: str, status: int = 0) -> tuple[Any, str]:
    """Returns the object that a command prints with --json, and its text: nothing on stderr."""
    assert shell.run([*command.split(), "--json"]) == status
    found = json.loads(capsys.readouterr().out)
    assert shell.run(command.split()) == status
    text, err = capsys.readouterr()
    assert not err and "\x1b" not in text
    return found, text


def kept_to(words: Sequence[str]) -> int:
    """Runs a command line in this process and checks what every one has to keep to: its status."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape"), io.StringIO()
    with not_for_ever(words), redirect_stdout(out), redirect_stderr(err):
        status = shell.run(words)
    out.seek(0)
    printed, told = out.read(), err.getvalue()
    assert status in STATUSES, (words, status, told[-2000:])
    shown = "--verbose" in words  # then the target's own traceback is what was asked for
    assert shown or "Traceback" not in told, (words, told)
    wrong = [line for line in told.splitlines() if line.startswith("probe: ")]
    assert len(wrong) <= 1, (words, told)
    assert status != 2 or wrong, (words, "nothing is said of what is wrong")
    if "--json" in words and "--help" not in words and "-h" not in words and status != 0:
        json.loads(printed)
    return status

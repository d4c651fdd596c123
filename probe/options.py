"""The options of questions, each declared once: commands, Python functions and nodes read these.

A command makes ``--NAME`` of one and passes on the word that was written; the function that the
question is asks ``checked_options`` for the value, so that both refuse the same with the same line.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Option(NamedTuple):
    """One option: its help, what a command line shows for the value, and which values it takes.

    ``shown`` None: a flag. ``choices``: one of these words; ``least``: a whole number from it up,
    or None. ``flags``: how a command spells it, where that is not ``--NAME`` alone.
    """

    help: str
    shown: str | None = None
    default: Any = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    flags: str = ""

    def check(self, name: str, value: Any) -> Any:
        """Returns the value of what was given, perhaps as a text. Raises InputError."""
        from probe.arguments import choice, whole_number  # late: a command's help needs no NumPy

        if self.choices:
            return choice(name, value, self.choices)
        if self.least is None or value is None:
            return value
        return whole_number(name, value, self.least)


VARIED = "What is varied: length (default), batch (default of dense), filters, channels or layout."
OPTIONS = {
    "at": Option("The length (or batch, ...) of the left run; the case's own if not given.", "A"),
    "against": Option("The length (or batch, ...) of the right run.", "B"),
    "vary": Option(VARIED, "AXIS"),
    "against_target": Option("A different target for the right run.", "U"),
    "against_padding": Option("A different padding for the right run.", "P"),
    "lengths": Option(
        "The lengths (or batches, ...) to run: 5..64, 5..64:3, 5,7,9..12. Each is compared with "
        "the largest. --length 5..64 means the same. Layouts are names such as "
        "transposed,offset:16; each is compared with contiguous, and by default all that the "
        "targets support are run.",
        "5..64",
        flags="--lengths --layouts --values values",
    ),
    "by": Option(
        "bits: compares outputs; order: reveals and compares the order and rounding of their "
        "sums, which is independent of the operands.",
        "WHAT",
        "bits",
        ("bits", "order"),
    ),
    "control": Option(
        "Which shapes are run a second time, with different memory alignment, to check that they "
        "repeat: every shape, or only differing ones.",
        "WHICH",
        "every",
        ("every", "differing"),
    ),
    "keep": Option(
        "How many differing outputs of each comparison are stored (the first N and the largest); "
        "1000000 if not given.",
        "N",
        least=0,
    ),
    "workers": Option(
        "How many targets run at once; one per processor if not given.", "N", least=1
    ),
    "zeros": Option(
        "equal: +0 and -0 agree, and are counted; differ: they differ, by 0 ulp.",
        "WHICH",
        "equal",
        ("equal", "differ"),
    ),
    "shard": Option(
        "Run only the I-th of N parts, for job arrays and CI matrices. Each part has its own "
        "folder in the store; the store can be read as one.",
        "I/N",
        "1/1",
    ),
    "cluster": Option(
        "Run on a cluster: local:2 starts two processes here; tcp://HOST:PORT is a Dask "
        "scheduler. Results are stored here, in one folder for each machine. A target may then "
        "include machine=LABEL.",
        "ADDRESS",
    ),
    "time": Option(
        "Stop after 30m (90s, 2h, 1h30m). What runs lies evenly over the whole range of lengths. "
        "The command reports what was left out and continues with it when it is run again.",
        "30m",
    ),
    "kernels": Option(
        "said: those that the library reports; all: also symbols sampled while it runs; none. "
        "Each source of names starts the target once more.",
        "WHICH",
        "said",
        ("said", "all", "none"),
    ),
    "upto": Option(
        "The largest size: of lengths 1000000 if not given, of batches 1024.", "N", least=1
    ),
    "scan": Option(
        "Run all of the N smallest sizes. If not given: 64, and as many more as take some seconds.",
        "N",
        least=1,
    ),
    "seconds": Option(
        "Start no new size after S seconds; --time 5m ends the one at work too.", "S", least=1
    ),
}


def checked_options(**given: Any) -> list[Any]:
    """Returns the values of options in the order in which they are given. Raises InputError."""
    return [OPTIONS[name].check(name, value) for name, value in given.items()]

"""``probe remedies``: what to do about lengths that change bits, and what each thing costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli import numbers
from probe.cli.options import (
    Words,
    ask_for,
    case_of,
    case_options,
    fail_on_option,
    number,
    output_options,
    target_option,
    targets_of,
    trust_option,
)

if TYPE_CHECKING:
    from probe.answers.remedies import Remedied
    from probe.cli.output import Output
    from probe.target import Target


@click.command(cls=Words, short_help="What keeps the bits at every length, and what it costs.")
@click.argument("model", required=False)
@case_options
@click.option(
    "--lengths",
    metavar="5..40,512",
    help="Of a case: lengths, each compared with the largest. Of a model: lengths of content.",
)
@click.option(
    "--fixed",
    metavar="N",
    help="Of a model: the fixed length, the one that content is padded to where it is used; the "
    "model's own if it says one and this is not given.",
)
@click.option(
    "--content",
    metavar="N",
    help="The length at which costs are told; about a tenth of the largest if not given.",
)
@click.option(
    "--chunks",
    metavar="64,256",
    help="Outputs of the chunks that are tried; 64,256 if not given.",
)
@click.option(
    "--only", metavar="pad,stable", help="Only these remedies, separated by spaces or commas."
)
@target_option()
@click.option(
    "--store",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keep the results in DIR/<machine>; nothing is kept if not given.",
)
@trust_option
@fail_on_option(
    finding="lengths change the default's way of adding and no remedy is exact, or that is unknown "
    "because the model is read in part"
)
@output_options
def remedies(
    model: str | None,
    words: dict[str, str],
    lengths: str | None,
    fixed: str | None,
    content: str | None,
    chunks: str | None,
    only: str | None,
    target: str,
    folder: Path | None,
    trust: bool,
    fail_on: str | None,
    out: Output,
) -> int:
    """Judges every remedy of a case, or of the network MODEL, times it and compares it.

    A remedy is exact where every output is added in the same order, with the same roundings, at
    each of the lengths; no operands are lucky. All are timed in turns in one run: pad to a safe
    length, chunks of one size, float64, one thread, the library's switches, probe.stable. MODEL
    is a file of Keras, PyTorch or ONNX, or nine-layers, and is read as a chain of layers (see
    `probe network`); where it is read in part nothing is recommended, and the first line says so.
    """
    from probe.cli.show import remedies as show
    from probe.errors import InputError

    if model is None:
        ask_for(words, lengths=(lengths is not None, "--lengths 5..40,512"))
    if lengths is None:
        raise InputError("lengths", "(none)", "it is needed", "give --lengths 5..40,512")
    (where,) = targets_of((target,))
    given: dict[str, Any] = {
        "lengths": numbers.parse("lengths", lengths),
        "content": number("content", content),
    }
    given["chunks"] = None if chunks is None else numbers.parse("chunks", chunks)
    given["only"] = None if only is None else _names(only, where)
    given["fixed"] = number("fixed", fixed)
    with out.progress("remedies") as tell:
        found = _measured(
            model, words, where, given | {"progress": tell, "store": folder, "trust": trust}
        )
    told = found.report()
    out.give(told, lambda: show.summary(found.found))
    return int(bool(fail_on) and told["recommended"] is None)


def _measured(
    model: str | None, words: dict[str, str], where: Target, given: dict[str, Any]
) -> Remedied:
    """The remedies of the case that the words say, or of the model."""
    from probe.answers.remedies import remedies as remedied
    from probe.errors import InputError

    if model is not None and words:
        name, value = next(iter(words.items()))
        raise InputError(name, value, "the model says what is computed", f"leave out --{name}")
    subject = case_of(words) if model is None else model
    return remedied(subject, given.pop("lengths"), where, **given)


def _names(text: str, where: Target) -> list[str]:
    """Remedies by name; commas within a name such as ``stable,float64`` need spaces around it."""
    from probe.errors import InputError
    from probe.remedies import candidates
    from probe.remedies.candidates import NAMES

    words = text.split() if " " in text.strip() else text.replace(",", " ").split()
    known = [*(one.name for one in candidates(where)), *NAMES]
    for word in words:
        if word not in known and not word.startswith("chunks="):
            raise InputError("only", word, "no remedy has this name", f"use {', '.join(known)}")
    return words

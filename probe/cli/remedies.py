"""``probe remedies``: what to do about lengths that change bits, and what each thing costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli import numbers
from probe.cli.options import (
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
    from probe.cli.output import Output
    from probe.remedies import Measured
    from probe.remedies.measure import Progress
    from probe.target import Target


@click.command(short_help="What keeps the bits at every length, and what it costs.")
@click.argument("model", required=False)
@case_options
@click.option(
    "--lengths",
    metavar="5..40,512",
    required=True,
    help="Of a case: lengths, each compared with the largest. Of a model: lengths of content.",
)
@click.option(
    "--fixed",
    metavar="N",
    help="Of a model: the size that it pads to; its own if not given.",
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
    lengths: str,
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
    from probe.remedies.rows import report, rows
    from probe.store import Store

    (where,) = targets_of((target,))
    given: dict[str, Any] = {
        "lengths": numbers.parse("lengths", lengths),
        "at": number("content", content),
    }
    given["chunks"] = None if chunks is None else numbers.parse("chunks", chunks)
    given["only"] = None if only is None else _names(only, where)
    given["fixed"] = number("fixed", fixed)
    with out.progress("remedies") as tell:
        found = _measured(model, words, where, given | {"trust": trust}, tell)
    if folder is not None:
        with Store.here(folder) as store:
            for table, found_rows in rows(found).items():
                store.append(table, found_rows)
    told = report(found)
    out.give(told, lambda: show.summary(found))
    return int(bool(fail_on) and told["recommended"] is None)


def _measured(
    model: str | None,
    words: dict[str, str],
    where: Target,
    given: dict[str, Any],
    tell: Progress,
) -> Measured:
    """The remedies of the case that the words say, or of the model."""
    from probe.errors import InputError
    from probe.remedies import measure, measure_network

    more: dict[str, Any] = {"only": given["only"], "progress": tell}
    if given["chunks"]:
        more["chunks"] = given["chunks"]
    if model is None:
        if given["fixed"] is not None:
            why = "a case is compared with its largest length"
            raise InputError("fixed", given["fixed"], why, "add it to --lengths")
        case = case_of(words)
        return measure(case, where, given["lengths"], content=given["at"], **more)
    if words:
        name, value = next(iter(words.items()))
        raise InputError(name, value, "the model says what is computed", f"leave out --{name}")
    from probe.network import Network

    network = Network.load(model, trust=given["trust"])
    return measure_network(
        network,
        where,
        given["lengths"],
        given["fixed"],
        at=given["at"],
        **more,
    )


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

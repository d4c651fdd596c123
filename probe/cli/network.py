"""``probe network`` and ``probe remedies``: whole networks, and what to do about lengths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    PATH,
    Words,
    ask_for,
    case_of,
    case_options,
    fail_on_option,
    number,
    numbers,
    option,
    output_options,
    target_option,
    targets_of,
    trust_option,
)
from probe.errors import InputError

if TYPE_CHECKING:
    from probe.printing import Output
    from probe.target import Target

FIXED = (
    "The fixed length: the one that content is padded to where the network is used, with which "
    "every shorter run is compared. The model's own if it says one and this is not given."
)
CONTENT = (
    "Lengths of content, such as 1..64; 1, a tenth and a quarter of the fixed length if not given."
)
PLAN = (
    "Write plan.json and padded.py there, for all contents up to the longest of --lengths; in a "
    "folder a target where there are several. Refused for a model that is read in part."
)
UNKNOWN = "or that is unknown because the model is read in part"


@click.command(
    cls=Words,
    short_help="Why a chain of layers changes with its padding, and how far to pad it.",
)
@click.argument("model", metavar="MODEL")
@option("--fixed", "N", FIXED)
@option("--lengths", "LENGTHS", CONTENT)
@option("--padded", "N", "Pad to this length instead of each content's least.")
@option("--value", None, "What padding holds.", type=float, default=0.0, show_default=True)
@option("--height", "N|4x6", "The spatial axes before the length.")
@option("--seed", "N", "Seed of the content.", default="0", show_default=True)
@option("--safe/--no-safe", None, "Seek safe lengths.", default=True, show_default=True)
@option("--plan", "DIR", PLAN, type=PATH)
@trust_option
@target_option(several=True)
@fail_on_option(finding=f"some outputs that read content have other bits or are lacking, {UNKNOWN}")
@output_options
def network(
    model: str,
    fixed: str | None,
    lengths: str | None,
    padded: str | None,
    value: float,
    height: str | None,
    seed: str,
    safe: bool,
    plan: Path | None,
    trust: bool,
    targets: tuple[str, ...],
    fail_on: str | None,
    out: Output,
) -> int:
    """Runs a network at a short padded length and at its fixed one, and compares all activations.

    MODEL is a Keras file (.keras, .h5), a pickled PyTorch module (.pt, with --trust), an ONNX model
    (.onnx), a description (.json), or the network of the report, nine-layers:width=16,kernel=5. It
    is read as a chain: each layer fed by the one before it alone. From the first layer on that
    joins branches, carries a state or reads all positions it is not judged: then the first line
    says which part is, and the verdict is unknown, whatever the part does. Of two spatial
    axes the length is the one that the model leaves open, or the longer one. The layer
    where bits first differ is explained as probe explain does. Last come, for every content
    length, the shortest padded length and the shortest one that changes no bit. Where one of
    several targets fails, the others are told, and the exit status is 3.
    """
    from probe.answers import network as answers
    from probe.arguments import count
    from probe.cli.show import networks as show

    where = targets_of(targets)
    with out.working(f"reading {model}"):
        loaded = answers.read(model, height, number("fixed", fixed), trust)
    found = answers.network(
        *(loaded, where),
        lengths=None if lengths is None else numbers("lengths", lengths),
        fixed=number("fixed", fixed),
        padded=number("padded", padded),
        value=value,
        seed=count("seed", seed, least=0),
        safe=safe,
        plan=plan,
        bars=out.progress,
    )
    shown = (found.described, found.found, found.failures, out.results.width, found.written)
    out.give(found.report(), lambda: show.networks(*shown))
    return 3 if found.failures else int(bool(fail_on) and found.finding)


LENGTHS = "Of a case: lengths, each compared with the largest. Of a model: lengths of content."
OF_MODEL = (
    "Of a model: the fixed length, the one that content is padded to where it is used; the model's "
    "own if it says one and this is not given."
)
AT = "The length at which costs are told; about a tenth of the largest if not given."


@click.command(cls=Words, short_help="What keeps the bits at every length, and what it costs.")
@click.argument("model", required=False)
@case_options
@option("--lengths", "5..40,512", LENGTHS)
@option("--fixed", "N", OF_MODEL)
@option("--content", "N", AT)
@option("--chunks", "64,256", "Outputs of the chunks that are tried; 64,256 if not given.")
@option("--only", "pad,stable", "Only these remedies, separated by spaces or commas.")
@target_option()
@option(
    *("--store", "DIR", "Keep the results in DIR/<machine>; nothing is kept if not given."),
    type=PATH,
)
@trust_option
@fail_on_option(
    finding=f"lengths change the default's way of adding and no remedy is exact, {UNKNOWN}"
)
@output_options
def remedies(
    model: str | None,
    words: dict[str, str],
    lengths: str | None,
    target: str,
    fail_on: str | None,
    out: Output,
    **given: Any,
) -> int:
    """Judges every remedy of a case, or of the network MODEL, times it and compares it.

    A remedy is exact where every output is added in the same order, with the same roundings, at
    each of the lengths; no finite operands are lucky. All are timed in turns in one run: pad to a
    safe length, chunks of one size, float64, one thread, the library's switches, probe.stable.
    MODEL is a file of Keras, PyTorch or ONNX, or nine-layers, and is read as a chain of layers (see
    `probe network`); where it is read in part nothing is recommended, and the first line says so.
    """
    from probe.answers.network import remedies as remedied
    from probe.cli.show import networks as show

    if model is None:
        ask_for(words, lengths=(lengths is not None, "--lengths 5..40,512"))
    if lengths is None:
        raise InputError("lengths", "(none)", "it is needed", "give --lengths 5..40,512")
    (where,) = targets_of((target,))
    values, chunks, only = numbers("lengths", lengths), given["chunks"], given["only"]
    given["content"] = number("content", given["content"])
    given["chunks"] = None if chunks is None else numbers("chunks", chunks)
    given["only"] = None if only is None else _names(only, where)
    given["fixed"] = number("fixed", given["fixed"])
    if model is not None and words:
        name, value = next(iter(words.items()))
        raise InputError(name, value, "the model says what is computed", f"leave out --{name}")
    with out.progress("remedies") as tell:
        subject = case_of(words) if model is None else model
        found = remedied(subject, values, where, progress=tell, **given)
    told = found.report()
    out.give(told, lambda: show.remedies(found.found))
    return int(bool(fail_on) and told["recommended"] is None)


def _names(text: str, where: Target) -> list[str]:
    """Remedies by name; commas within a name such as ``stable,float64`` need spaces around it."""
    from probe.remedies import candidates
    from probe.remedies.remedy import NAMES

    words = text.split() if " " in text.strip() else text.replace(",", " ").split()
    known = [*(one.name for one in candidates(where)), *NAMES]
    for word in words:
        if word not in known and not word.startswith("chunks="):
            raise InputError("only", word, "no remedy has this name", f"use {', '.join(known)}")
    return words

"""``probe network``: a whole network, short against fixed, layer by layer, and how far to pad."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.cli import numbers
from probe.cli.options import (
    Words,
    fail_on_option,
    number,
    output_options,
    target_option,
    targets_of,
    trust_option,
)

if TYPE_CHECKING:
    from probe.cli.output import Output

FIXED = (
    "The fixed length: the one that content is padded to where the network is used, with which "
    "every shorter run is compared. The model's own if it says one and this is not given."
)


@click.command(
    cls=Words,
    short_help="Why a chain of layers changes with its padding, and how far to pad it.",
)
@click.argument("model", metavar="MODEL")
@click.option("--fixed", metavar="N", help=FIXED)
@click.option(
    "--lengths",
    metavar="LENGTHS",
    help="Lengths of content, such as 1..64; 1, a tenth and a quarter of the fixed length if not "
    "given.",
)
@click.option("--padded", metavar="N", help="Pad to this length instead of each content's least.")
@click.option("--value", type=float, default=0.0, show_default=True, help="What padding holds.")
@click.option("--height", metavar="N|4x6", help="The spatial axes before the length.")
@click.option("--seed", metavar="N", default="0", show_default=True, help="Seed of the content.")
@click.option("--safe/--no-safe", default=True, show_default=True, help="Seek safe lengths.")
@click.option(
    "--plan",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write plan.json and padded.py there, for all contents up to the longest of --lengths; "
    "in a folder a target where there are several. Refused for a model that is read in part.",
)
@trust_option
@target_option(several=True)
@fail_on_option(
    finding="some outputs that read content have other bits or are lacking, or that is unknown "
    "because the model is read in part"
)
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
    from probe.answers.network import network as examined
    from probe.answers.network import read
    from probe.arguments import count
    from probe.cli.show import networks as show

    where = targets_of(targets)
    with out.working(f"reading {model}"):
        loaded = read(model, height, number("fixed", fixed), trust)
    found = examined(
        *(loaded, where),
        lengths=None if lengths is None else numbers.parse("lengths", lengths),
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

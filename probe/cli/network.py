"""``probe network``: a whole network, short against fixed, layer by layer, and how far to pad."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli import numbers
from probe.cli.options import (
    fail_on_option,
    number,
    output_options,
    target_option,
    targets_of,
    trust_option,
)

if TYPE_CHECKING:
    from probe.cli.output import Output
    from probe.network import Geometry
    from probe.network.report import Report
    from probe.target import Target


@click.command(short_help="Why a chain of layers changes with its padding, and how far to pad it.")
@click.argument("model", metavar="MODEL")
@click.option("--fixed", metavar="N", help="The fixed length; the model's own if not given.")
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
    says which part is, and the verdict is unknown unless that part itself differs. Of two spatial
    axes the length is the one that the model leaves open, or the longer one. The layer
    where bits first differ is explained as probe explain does. Last come, for every content
    length, the shortest padded length and the shortest one that changes no bit. Where one of
    several targets fails, the others are told, and the exit status is 3.
    """
    from probe.case.arguments import count, sizes
    from probe.cli.show import networks as show
    from probe.errors import InputError
    from probe.network import Network
    from probe.network.plan import refused
    from probe.network.report import described, verdict

    where = targets_of(targets)
    shape = None if height is None else sizes("height", height, height.count("x") + 1)
    with out.working(f"reading {model}"):
        loaded = Network.load(model, shape, trust)
    if plan is not None and loaded.part:
        raise refused("plan", plan, loaded.part)
    length = number("fixed", fixed) or loaded.fixed
    if length is None:
        raise InputError("fixed", None, "the model does not say a length", "give --fixed N")
    geometry = loaded.geometry(length)
    contents = _contents(lengths, length)
    for one in contents:
        geometry.check(one)
    to, drawn = number("padded", padded), count("seed", seed, least=0)
    asked = (geometry, contents, to, value, drawn, safe, plan is not None, out)
    reports, failures = _all(where, asked)
    saved = _saved(plan, reports, len(where) > 1)
    told = described(loaded, length)
    found: dict[str, Any] = {"verdict": verdict(reports, bool(failures))}
    found |= {name: told[name] for name in ("examined", "operations_total", "part")}
    found |= {"network": told, "targets": {one.target: one.to_json() for one in reports}}
    out.give(
        found | {"failures": failures, "written": saved},
        lambda: show.networks(told, reports, failures, out.results.width, saved),
    )
    if failures:
        return 3
    return int(bool(fail_on) and any(report.finding for report in reports))


def _contents(lengths: str | None, fixed: int) -> list[int]:
    if lengths is not None:
        return numbers.parse("lengths", lengths)
    return sorted({1, max(fixed // 10, 1), max(fixed // 4, 1)})


def _all(where: list[Target], asked: tuple[Any, ...]) -> tuple[list[Report], list[dict[str, str]]]:
    """Every target's report, and which of several targets failed. Raises TargetError of one."""
    from probe.errors import TargetError

    reports: list[Report] = []
    failures: list[dict[str, str]] = []
    for target in where:
        try:
            reports.append(_examined(target, *asked))
        except TargetError as error:
            if len(where) == 1:
                raise
            failures.append({"target": target.text, "kind": error.kind, "message": error.why})
    return reports, failures


def _examined(
    where: Target,
    geometry: Geometry,
    contents: list[int],
    padded: int | None,
    value: float,
    seed: int,
    safe: bool,
    every: bool,
    out: Output,
) -> Report:
    """One target's report, in a session of its own."""
    from probe.launch import open_session
    from probe.network.report import examine

    wanted = list(range(1, max(contents) + 1)) if every else contents
    with out.progress(where.text) as tell, open_session(where) as session:
        return examine(
            *(session, geometry, contents, padded, value, seed),
            safe=wanted if safe or every else (),
            progress=tell,
        )


def _saved(folder: Path | None, reports: list[Report], several: bool) -> list[str]:
    """Writes the plans, in a folder a target where there are ``several``; the files' names."""
    if folder is None:
        return []
    found: list[str] = []
    for report in reports:
        assert report.plan is not None
        name = "".join(c if c.isalnum() or c in "._=-" else "-" for c in report.target)
        into = folder / name if several else folder
        found += map(str, report.plan.save(into))
    return found

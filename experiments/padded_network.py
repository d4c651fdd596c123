"""Runs a network on little padding: which outputs change, where, and why?

Eight times a convolution and a max-pool, then one more convolution, made for inputs of 4,096
positions, in several widths: an ONNX model that is recorded, and replayed on each target. Contents
of 1 to 1,024 positions are padded to the least length that has every output which reads them, and
compared with the full size, layer by layer; the first divergence is explained; the shortest padded
lengths that change no bit are found and checked; what a difference decides and what each way costs
is measured. Hours on two processors: some networks are run at 1,024 lengths.

Writes results/padded_network/<machine>/*.parquet; notebooks/padded_network.ipynb draws them. What
is stored already is not measured twice.
"""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from lib import frame
from lib.padding import Measured, Request, measure
from probe import Store, Target
from probe.printing import Output
from probe.target import why_unavailable

FIXED = 4096
EVERY = range(1, 1025)
"""Every length of content, where a run is cheap."""

SOME = (1, 2, 100, 200, 256, 257, 410, 512, 513, 700, 768, 769, 1000, 1024)
"""Both sides of every step of the padded length, and between."""

COST = {FIXED: (1, 200, 410, 1024), 16384: (1, 800, 1638, 4096)}
"""Contents of which each way is timed: a twentieth, a tenth and a quarter of the full size.

A single position shows what calling the operations costs, whatever they compute.
"""

EVERY_SIZE = [(width, fixed) for fixed in COST for width in (16, 64, 128)]
TIMED = {
    "tensorflow,onednn=0,mode=graph": EVERY_SIZE,
    "tensorflow,onednn=0,mode=graph,threads=1": EVERY_SIZE,
    "tensorflow,onednn=0": EVERY_SIZE[:3],
    **dict.fromkeys(("torch", "jax", "onnxruntime", "litert,xnnpack=0"), EVERY_SIZE[:2]),
}
"""Width and full size of the networks that are timed. On one thread the full run can't do better
than a short one by sharing its work."""

MAIN = """
    tensorflow,onednn=0
    tensorflow,onednn=0,contraction=0
""".split()
"""Where every content is run: Eigen's matrix products, with and without their custom kernel."""

OTHERS = """
    tensorflow
    tensorflow,isa=avx2
    tensorflow,isa=sse41
    tensorflow,onednn=0,threads=1
    tensorflow,onednn=0,mode=graph
    tensorflow==1.2.1
    keras,onednn=0
    torch
    torch,mkldnn=0
    onnxruntime
    litert
    litert,xnnpack=0
    opencv
    jax
    tensorflow,xla=1
""".split()


def network(width: int, seed: int = 0, padding: str = "valid") -> str:
    """Returns what ``NineLayers.parse`` makes the nine layers from."""
    same = "" if padding == "valid" else f",padding={padding}"
    return f"nine-layers:width={width},seed={seed}{same}"


WIDTHS = (16, 1, 64)
SAME = network(16, padding="same")
"""SAME padding: windows that meet the padding of the layers."""

SAME_ON = (*MAIN, "tensorflow", "torch", "onnxruntime")

QUICK = "nine-layers:width=2,blocks=3"


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    with Store.here(store) as kept, Output().progress("padded network") as tell:
        found = measure(wishes(quick), kept, "padded_network", tell)
    show(found)
    return found.interrupted


def wishes(quick: bool) -> list[tuple[Target, list[Request]]]:
    """Returns what is measured, target by target; targets that can't run here are left out."""
    if quick:
        small = Request(QUICK, 160, range(1, 30, 7), 1, (8, 9), (10,), 2)
        texts = ("reference", "reference,algorithm=pairwise,length_switch=9")
        return [(Target.parse(text), [small]) for text in texts]
    found = [(text, [wish(network(width), EVERY) for width in WIDTHS]) for text in MAIN]
    found += [(text, [wish(network(width), SOME) for width in WIDTHS]) for text in OTHERS[:2]]
    found += [(text, [wish(network(width), SOME) for width in WIDTHS[:2]]) for text in OTHERS[2:]]
    found += [(text, [wish(SAME, SOME)]) for text in SAME_ON]
    found += [(text, [wish(network(width, 1), EVERY) for width in WIDTHS]) for text in MAIN]
    found += [(text, [wish(network(1, 2), EVERY)]) for text in MAIN]
    found += [(text, [costs(*size) for size in sizes]) for text, sizes in TIMED.items()]
    targets = [(Target.parse(text), each) for text, each in found]
    return [(where, each) for where, each in targets if why_unavailable(where) is None]


def wish(source: str, contents: range | tuple[int, ...]) -> Request:
    """One network at every content; decisions at a sixteenth of them where there are many."""
    decided = contents[::16] if len(contents) > 100 else contents
    return Request(source, FIXED, contents, 1, decided)


def costs(width: int, fixed: int) -> Request:
    """Returns the time that each way of running a network takes."""
    source = f"nine-layers:width={width}"
    return Request(source, fixed, (), costs=COST[fixed])


def show(found: Measured) -> None:
    """Prints a summary of the measurement."""
    out = Output().results
    out.print(
        f"{found.found} networks on targets measured, {found.before} were stored before: "
        f"{found.diverging:,} of {found.comparisons:,} valid lengths diverge at the least padded "
        f"length, {found.explained:,} of these explained and replayed"
    )
    out.print(
        f"valid lengths with a different bit at the safe length: {found.inexact:,}",
        style="red" if found.inexact else "green",
    )
    out.print(
        f"end to end in the library: {found.otherwise:,} of {found.programs:,} valid lengths with "
        "a different bit at the safe length",
        style="red" if found.otherwise else "green",
    )
    for text, failures in found.failures.items():
        out.print(Text(f"{text}: {'; '.join(dict.fromkeys(failures))}", "yellow"))


if __name__ == "__main__":
    main()

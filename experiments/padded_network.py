"""A network run on little padding instead of its fixed size: which outputs change, where, and why.

Eight times a convolution and a max-pool, then one more convolution, made for inputs of 4,096
positions, in several widths. Contents of 1 to 1,024 positions are padded to the least length that
has every output which reads them, and compared with the fixed size, layer by layer; the first
divergence is explained; the shortest padded lengths that change no bit are found and checked; what
a difference decides and what each way costs is measured. An hour on two processors.

Writes results/padded_network/<machine>/*.parquet; notebooks/padded_network.ipynb draws them. What
is stored already is not measured twice.
"""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from probe import Store, Target, experiment
from probe.cli.output import Output
from probe.network import Network
from probe.network.measurement import Measured, Wish, measure
from probe.target import unavailable

FIXED = 4096
EVERY = range(1, 1025)
"""Every length of content, where a run is cheap."""

SOME = (1, 2, 100, 200, 256, 257, 410, 512, 513, 700, 768, 769, 1000, 1024)
"""Both sides of every step of the padded length, and between."""

COST = (200, 410, 1024)
"""Contents of which each way is timed: a twentieth, a tenth and a quarter of the fixed size."""

TIMED = {
    "tensorflow,onednn=0,mode=graph": (16, 64, 128),
    "tensorflow,onednn=0": (16, 64, 128),
    "torch": (16, 64),
}

MAIN = """
    tensorflow,onednn=0
    tensorflow,onednn=0,contraction=0
""".split()
"""Where every content is run: Eigen's matrix products, with and without their custom kernel."""

DEFAULT = "tensorflow"

OTHERS = """
    tensorflow,isa=avx2
    tensorflow,isa=sse41
    tensorflow,onednn=0,threads=1
    tensorflow==1.2.1
    torch
    torch,mkldnn=0
    jax
    onnxruntime
    keras,onednn=0
    tensorflow,onednn=0,mode=graph
""".split()

COMPILED = "tensorflow,xla=1"
"""XLA compiles every size anew, so it is asked about one network and a few contents."""

NETWORKS = tuple(
    f"nine-layers:width={width},seed={seed}" for width in (1, 16, 64) for seed in (0, 1)
)
ALIKE = "nine-layers:width=16,seed=0,padding=same"
"""SAME padding: windows that meet the padding of the layers."""

QUICK = "nine-layers:width=2,blocks=3"


@experiment.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    with Store.here(store) as kept, Output().progress("padded network") as tell:
        found = measure(wishes(quick), kept, "padded_network", tell)
    show(found)
    return found.interrupted


def wishes(quick: bool) -> list[tuple[Target, list[Wish]]]:
    """What is measured, target by target; targets that can't run here are left out."""
    if quick:
        small = Wish(Network.load(QUICK), QUICK, 160, range(1, 30, 7), 1, (8, 9), True, (10,), 2)
        texts = ("reference", "reference,algorithm=pairwise,length_switch=9")
        return [(Target.parse(text), [small]) for text in texts]
    found = [(text, [wish(source, EVERY) for source in NETWORKS[::2]]) for text in MAIN]
    found.append((DEFAULT, [wish(source, SOME) for source in NETWORKS[::2]]))
    found += [(text, [costs(width) for width in widths]) for text, widths in TIMED.items()]
    found += [(text, [wish(NETWORKS[2], SOME)]) for text in OTHERS]
    found += [(text, [wish(source, SOME) for source in (ALIKE, *NETWORKS[1::2])]) for text in MAIN]
    found.append((COMPILED, [wish(NETWORKS[2], SOME[4:6], layerwise=False)]))
    targets = [(Target.parse(text), each) for text, each in found]
    return [(where, each) for where, each in targets if unavailable(where) is None]


def wish(source: str, contents: range | tuple[int, ...], layerwise: bool = True) -> Wish:
    """One network at every content; decisions at an eighth of them where there are many."""
    decided = contents[::8] if len(contents) > 100 else contents
    return Wish(Network.load(source), source, FIXED, contents, 1, decided, layerwise)


def costs(width: int) -> Wish:
    """The time that each way of running a network takes."""
    source = f"nine-layers:width={width}"
    return Wish(Network.load(source), source, FIXED, (), costs=COST)


def show(found: Measured) -> None:
    """What was measured, in a few lines."""
    out = Output().results
    out.print(
        f"{found.networks} networks on targets measured, {found.before} were stored before: "
        f"{found.diverging:,} of {found.comparisons:,} contents diverge at the least padded "
        f"length, {found.explained:,} of these explained and replayed"
    )
    out.print(
        f"contents with another bit at the safe length: {found.inexact:,}",
        style="red" if found.inexact else "green",
    )
    for text, failures in found.failures.items():
        out.print(Text(f"{text}: {'; '.join(dict.fromkeys(failures))}", "yellow"))


if __name__ == "__main__":
    main()

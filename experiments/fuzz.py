"""Does probe explain every difference, miss none and invent none? Random cases on all targets.

Random operations, shapes, strides, dilations, groups, formats and layouts, at two lengths, batches
or numbers of filters, or on two targets; with operands that are normal, that cancel, that are
tiny, infinite or NaN. Each pair is explained, and refereed by the libraries' own calls, which
share no line with what probe runs: they say whether the outputs are right, whether a difference
was missed, and whether one was reported that is not there. An hour on two processors.

Before that, pairs of functions whose difference is planted, so that the cause is known: a different
argument, order, rounding or formula, the remainder of a vector loop, or nothing. The answer of
`first_difference` has to be the planted cause, or unknown. About five minutes.

First of all, `probe fix sizes` says of random cases at which sizes all rows add alike. Every
class, floor and piece that it promises is compared with direct calls at each of its sizes. Ten
minutes.

Writes results/fuzz/<machine>/*.parquet; notebooks/fuzz.ipynb draws them. Another `SEED` draws
other trials, a larger `TRIALS` goes on from here; what is stored already is not tried again.
"""

from __future__ import annotations

from lib import frame, planted
from lib.frame import patient
from lib.fuzzing import OPERATIONS, Drawing, Fuzzing
from lib.promises import Promises, drawn
from lib.referee import LAYOUTS

SEED = 0
TRIALS = 330
"""Of each target."""

HERE = {"normal": 3, "cancel": 3, "tiny": 2, "infinite": 1, "nan": 1}
"""Kinds of operands, and how often each is drawn."""

ALL = {"float32": 5, "bfloat16": 2, "float16": 2, "float64": 1}
WIDE = {"float32": 4, "float64": 1}
NARROW = {"float32": 4, "float16": 1}
SINGLE = {"float32": 1}
PRODUCTS = {"matmul": 3, "dense": 2, "sum": 1}
WINDOWS = {name: often for name, often in OPERATIONS.items() if name not in PRODUCTS}

# Limited to older instructions, TensorFlow refuses 16-bit formats, or its process dies (SIGSEGV).
TARGETS = {
    "tensorflow": Drawing(ALL, HERE, OPERATIONS, others=["torch", "jax", "tensorflow,onednn=0"]),
    "tensorflow,onednn=0": Drawing(ALL, HERE, OPERATIONS, others=["tensorflow"]),
    "tensorflow,onednn=0,contraction=0": Drawing(ALL, HERE, OPERATIONS),
    "tensorflow,isa=avx2": Drawing(WIDE, HERE, OPERATIONS, others=["tensorflow"]),
    "tensorflow,isa=sse41": Drawing(WIDE, HERE, OPERATIONS),
    "tensorflow,xla=1": Drawing(ALL, HERE, OPERATIONS, others=["jax", "tensorflow"]),
    "torch": Drawing(ALL, HERE, OPERATIONS, LAYOUTS, ["torch,mkldnn=0", "tensorflow", "jax"]),
    "torch,mkldnn=0": Drawing(ALL, HERE, OPERATIONS, LAYOUTS),
    "jax": Drawing(ALL, HERE, OPERATIONS, others=["torch"]),
    "onnxruntime": Drawing(NARROW, HERE, OPERATIONS, others=["torch"]),
    "onnxruntime,weights=argument": Drawing(NARROW, HERE, OPERATIONS),
    "litert": Drawing(SINGLE, HERE, WINDOWS, others=["tensorflow"]),
    "litert,xnnpack=0": Drawing(SINGLE, HERE, WINDOWS),
    "opencv": Drawing(SINGLE, HERE, WINDOWS, others=["onnxruntime"]),
    "keras": Drawing(ALL, HERE, {**OPERATIONS, "sum": 0, "matmul": 0}, others=["torch"]),
    "numpy": Drawing({"float32": 3, "float64": 1, "float16": 1}, HERE, PRODUCTS),
}

PLANTED = {"numpy": 400, "torch": 300, "jax": 160, "tensorflow": 160}
"""Pairs of functions of each library whose difference is planted."""

QUICK_PLANTED = {"numpy": 26}
"""Every kind more than twice, without another library."""

PROMISES = {
    "tensorflow": 12,
    "tensorflow,onednn=0": 12,
    "tensorflow,isa=avx2": 12,
    "torch": 24,
    "torch,mkldnn=0": 12,
    "jax": 5,
    "onnxruntime": 12,
    "keras": 6,
    "numpy": 24,
}
"""Cases of each target whose classes and floors are asked for: those that are called directly
without a model to convert for each size; JAX compiles each call."""

QUICK = {
    text: Drawing(SINGLE, {"normal": 1, "cancel": 1}, {"conv1d": 2, "matmul": 1})
    for text in ("reference", "reference,algorithm=pairwise,length_switch=9")
}

QUICK_PROMISES = {"numpy": 3}
"""The reference has no library that could be called directly."""


@frame.script
def main(experiment: frame.Experiment) -> None:
    drawings, count, workers = (QUICK, 12, None) if experiment.quick else (TARGETS, TRIALS, 2)
    doubles = QUICK_PLANTED if experiment.quick else PLANTED
    promises = QUICK_PROMISES if experiment.quick else PROMISES
    cases = [
        (text, case)
        for text, number in promises.items()
        for case in drawn(TARGETS[text], text, number, SEED)
    ]
    # what takes minutes first
    experiment.ask(Promises, cases, "cases asked for classes", patient, workers, referees={})
    pairs = [(text, some) for text, n in doubles.items() for some in planted.numbers(n)]
    experiment.ask(planted.Planting, pairs, "planted doubles", seed=SEED)
    trials = [(text, one) for text in drawings for one in drawings[text].trials(text, count, SEED)]
    experiment.ask(Fuzzing, trials, "trials", patient, workers, sides={})


if __name__ == "__main__":
    main()

"""Two runs: which outputs must agree, what differs, and why.

``shapes`` says what is compared, ``runs`` computes one side of it and reveals how its outputs are
added, ``judged`` pairs the outputs of two runs and names the cause of each difference.
"""

from probe.comparison.judged import CAUSES, Comparison, Pairs, classes_of, compared
from probe.comparison.runs import MOST_KNOWN, Revealer, Run, outputs, read_windows, revealed, run
from probe.comparison.shapes import Arrays, Blocks, Shapes

__all__ = [
    "CAUSES",
    "MOST_KNOWN",
    "Arrays",
    "Blocks",
    "Comparison",
    "Pairs",
    "Revealer",
    "Run",
    "Shapes",
    "classes_of",
    "compared",
    "outputs",
    "read_windows",
    "revealed",
    "run",
]

"""Compares two runs: which outputs must agree, what differs, and why.

``runs`` says what is compared, computes each side and reveals how its outputs are added;
``judged`` pairs the outputs of two runs and names the cause of each difference; ``outputs``
compares what a user's runs return by index, and says what a difference changes.
"""

from probe.explain.comparison.judged import (
    CAUSES,
    Comparison,
    OutputPairs,
    classes_of,
    compare_shapes,
)
from probe.explain.comparison.runs import (
    MOST_KNOWN,
    Arrays,
    Blocks,
    CaseRun,
    ComparedShapes,
    Finding,
    Revealer,
    outputs_of_call,
    run_and_reveal,
    run_case,
)

__all__ = ["CAUSES", "MOST_KNOWN", "Arrays", "Blocks", "CaseRun", "ComparedShapes", "Comparison"]
__all__ += ["Finding", "OutputPairs", "Revealer", "classes_of", "compare_shapes"]
__all__ += ["outputs_of_call", "run_and_reveal", "run_case"]

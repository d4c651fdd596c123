"""Encloses all results that rounding can give: what lies outside is no rounding.

``sums`` encloses sums of products, whatever the order of their additions, the fusing of their
products and the formats of their accumulators, and says where a result stands to that;
``operations`` what any other operation can give. A result outside is *beyond rounding*: a bug,
another formula, or other inputs. A result inside is *within rounding*: not refuted, which does not
mean that some order gives it.
"""

from probe.enclosure.sums import (
    BEYOND,
    UNKNOWN,
    WITHIN,
    Accuracy,
    Enclosure,
    RoundingVerdict,
    of_operands,
    of_sums,
)

__all__ = [
    "BEYOND",
    "UNKNOWN",
    "WITHIN",
    "Accuracy",
    "Enclosure",
    "RoundingVerdict",
    "of_operands",
    "of_sums",
]

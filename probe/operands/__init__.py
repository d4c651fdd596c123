"""Operand bits, the same for all time: no library's random stream is used.

``draw`` is the generator, ``kinds`` what is made of it, ``cancel`` the kind whose sums show any
change of order or rounding.
"""

from probe.operands.draw import below, hashes, normal
from probe.operands.kinds import KINDS, VERSION, Drawn, Kind, generate

__all__ = ["KINDS", "VERSION", "Drawn", "Kind", "below", "generate", "hashes", "normal"]

"""What of two runs must agree, found by running.

The right run is repeated with other content in whatever the left run has not: other samples, later
positions, padding behind a mask (``recording.lacking``). An element whose bits no repetition
changes depends on nothing that the left lacks, so the left must have it too
(``recording.repeated``). Operations are paired by name, module and order, their values by index
(``pairing``); where the programs differ values are paired by being close on two independent inputs
(``by_value``). ``match`` puts it together, ``walk`` compares and explains. No operation is
described in words anywhere here.
"""

from probe.agreement.match import RunningMatch, Sides
from probe.agreement.running import by_running

__all__ = ["RunningMatch", "Sides", "by_running"]

"""What a user may do about lengths that change bits: is it exact, what it costs, how near it is.

``candidates`` says what there is for a target, ``running`` puts a remedy in the operator's place
and times all of them in turns in one run, ``measure`` and ``networks`` judge each by its revealed
orders (never by luck) and compare it with the exact sums, ``found`` is what came out, with the
cheapest that is exact.
"""

from probe import public
from probe.remedies.candidates import Remedy, candidates
from probe.remedies.found import Advice, Found, Measured, advise, report, rows
from probe.remedies.measure import measure
from probe.remedies.networks import measure_network
from probe.remedies.running import Remedied, Sessions

__all__ = [
    "Advice",
    "Found",
    "Measured",
    "Remedied",
    "Remedy",
    "Sessions",
    "advise",
    "candidates",
    "measure",
    "measure_network",
    "report",
    "rows",
]

public.opens(__name__)

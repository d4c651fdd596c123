"""What a user may do about lengths that change bits: is it exact, what it costs, how near it is.

``candidates`` says what there is for a target, ``session`` puts a remedy in the operator's place,
``measure`` judges each by its revealed orders (never by luck), times all of them in turns in one
run and compares them with the exact sums; ``advice`` picks the cheapest that is exact.
"""

from probe import public
from probe.remedies.advice import Advice, advise
from probe.remedies.candidates import Remedy, candidates
from probe.remedies.found import Found, Measured
from probe.remedies.measure import measure
from probe.remedies.networks import measure_network
from probe.remedies.session import Remedied

__all__ = [
    "Advice",
    "Found",
    "Measured",
    "Remedied",
    "Remedy",
    "advise",
    "candidates",
    "measure",
    "measure_network",
]

public.opens(__name__)

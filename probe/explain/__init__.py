"""Why two runs differ, with replay as proof: of one case, of a whole store, of many conventions.

``runs`` answers for two runs, ``causes`` for every difference in a store, ``conventions`` reads
which inputs outputs read, ``evidence`` shows one differing output in full, and ``rows`` are what
the store keeps of orders.
"""

from probe import public
from probe.explain.runs import explain

__all__ = ["explain"]

public.opens(__name__)

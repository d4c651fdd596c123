"""Why two runs differ, with replay as proof: of one case, or of a whole store.

``evidence`` answers for two runs and shows one differing output in full, ``causes`` answers for
every difference in a store.
"""

from probe import public
from probe.explain.evidence import explain

__all__ = ["explain"]

public.opens(__name__)

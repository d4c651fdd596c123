"""Explains why two runs differ, of one case or of a whole store; replay is the proof.

``evidence`` answers for two runs and shows one differing output in full, ``causes`` answers for
every difference in a store.
"""

from probe.explaining.evidence import explain_case

__all__ = ["explain_case"]

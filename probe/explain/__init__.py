"""Explains why two runs differ, of one case or of a whole store; replay is the proof.

Read ``runs`` (a case at two shapes, computed and its orders revealed), ``comparison`` (which
outputs must agree, what differs, and by which cause), ``evidence`` (both runs explained, and one
differing output in full) and ``verdict`` (rounding or a bug). ``enclosure`` has all results that
rounding can give: what lies outside is a bug. ``outputs`` compares what a user's runs return, and
its ``verdict_of`` says ``equal``. ``causes`` answers for every difference in a store. ``kernels``
asks the library which of its kernels ran.
"""

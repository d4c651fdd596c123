"""Explains why two runs differ, of one case or of a whole store; replay is the proof.

Read ``evidence`` (two runs, and one differing output in full) and ``comparison`` (which outputs
must agree, what differs, and by which cause; its ``outputs.verdict_of`` says ``equal``). ``causes``
answers for every difference in a store. ``enclosure`` has all results that rounding can give: what
lies outside is a bug. ``kernels`` asks the library which of its kernels ran.
"""

"""Answers questions asked in Python or on the command line.

Each question has a file with the function that ``probe.explain(...)`` or the like calls; the
command of the same name calls it too and prints what comes back, so that ``to_json()`` is what
``--json`` prints. ``answer`` defines what all answers have in common.

Of a case: ``sweep``, ``explain``, ``order``, ``thresholds``; ``bisect`` finds what pins the bits,
``reproduce`` writes the folder for a report. Of a model: ``examine`` asks everything, ``network``
what padding changes (``padded``) or where two runs differ (``two_runs``, ``first_difference``),
``record`` keeps a run. Of two values: ``same_bits``. ``stored`` summarises stores, ``doctor`` says
what works on this machine, ``demo`` shows what moves a bit without a library.
"""

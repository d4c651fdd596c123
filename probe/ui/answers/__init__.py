"""Answers questions asked in Python or on the command line.

Here are the functions that ``probe.explain(...)`` or the like call; the command of the same name
calls them too and prints what comes back, so that ``to_json()`` is what ``--json`` prints.
``answer`` defines what all answers have in common: a result is data, and its three lines, its JSON,
the text of a terminal (``views``) and the picture of a notebook are made of it there.

Of a case: ``cases`` (explain, window, order, thresholds), ``sweep``, which also summarises stores,
and ``reproduce``, which writes the folder for a report. Of a model: ``examine`` asks everything,
``network`` what padding changes, ``two_runs`` and ``first_difference`` where two runs differ;
``two_runs`` also keeps a run, and finds which conditions pin the bits. Of two values:
``same_bits``. ``doctor`` says what works on this machine, and shows what moves a bit without a
library.
"""

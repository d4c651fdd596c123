"""Answers questions asked in Python or on the command line.

Each question has a file with the function that ``probe.explain(...)`` or the like calls; the
command of the same name calls it too and prints what comes back, so that ``to_json()`` is what
``--json`` prints. ``answer`` defines what all answers have in common.
"""

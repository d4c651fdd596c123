"""Answers questions asked in Python or on the command line.

One file a question, each with the function that ``probe.explain(...)`` and the like call; the
command of the same name calls it too and prints what comes back, so that ``to_json()`` is what
``--json`` prints. ``answer`` says what all answers have in common.
"""

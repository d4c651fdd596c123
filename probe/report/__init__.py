"""Writes the folder for a bug report, and revealed runs that replay with NumPy.

``folder`` shrinks a finding with its cause kept (``shrink`` makes it smaller), explains it, proves
its script in fresh processes and writes the folder; ``proof.verify`` runs it again. ``program``
writes scripts, also the shortest one; ``report`` is what a report says, under the headings of a
project's form. ``proof`` also writes a revealed run for NumPy, with ``evaluator`` copied into it.
``recorded`` writes the folder of an operation of a model: as a case, or with its operands.
``plots`` and ``trees`` draw the pictures.
"""

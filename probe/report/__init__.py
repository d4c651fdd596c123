"""Writes the folder for a bug report, and revealed runs that replay with NumPy.

``folder.reproduce`` shrinks a finding, explains it, writes its script (``program``) and proves it
in fresh processes; ``folder.write_folder`` writes the folder, ``proof.verify`` runs it again.

``program`` writes scripts, also the shortest one; ``failing`` decides whether a smaller case still
fails, ``shrink`` makes it smaller. ``report`` is what a report says, under the headings of a
project's form. ``proof`` also writes a revealed run for NumPy, with ``evaluator`` copied into it.
``recorded`` writes the folder of an operation of a model: as a case, or with its operands.
``plots`` and ``trees`` draw the pictures.
"""

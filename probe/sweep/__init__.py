"""Runs cases x targets x values of an axis, compares each with the longest, and stores it.

Read ``plan`` (what is computed of a case, which part of it a shard asks, and the rows of the
store), then ``bits``, which runs on all targets what is not stored yet, the likeliest first where
time is short, and sums up what differed. Below it ``campaign`` runs many questions on targets and
survives what fails; beside it ``cluster`` gives parts of them to other machines. ``store`` writes
rows and merges folders, ``stored`` reads those that count, ``files`` writes and verifies one file.
``printing`` is the console: tables, counts, ranges of numbers.
"""

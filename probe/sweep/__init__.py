"""Runs cases x targets x values of an axis, compares each with the longest, and stores it.

``plan`` says what is computed of a case and makes the rows of the store, ``bits`` runs on all
targets what is not stored yet, the likeliest first where time is short, ``summary`` says what was
found. ``campaign`` runs many questions on targets and survives what fails, ``cluster`` gives parts
of them to other machines, ``store`` keeps rows as parquet, ``printing`` prints tables.
"""

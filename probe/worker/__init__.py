"""Runs inside the target's interpreter: the child, with NumPy and one library, Python 3.6 up.

``child`` serves the parent's requests, ``call`` calls an operator or a network, ``compare`` runs
sweeps and edited operands, ``protocol`` sends frames both ways; the parent reads it too.
"""

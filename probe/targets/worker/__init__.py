"""Runs inside the target's interpreter: the child, with NumPy and one library, Python 3.6 up.

``child`` calls an operator or a network as the parent requests, ``compare`` runs sweeps and edited
operands, ``protocol`` sends frames both ways; the parent reads it too.
"""

"""Runs inside the target's interpreter: the child, with NumPy and one library, Python 3.6 up."""

"""Searches over shapes and releases: by order, without operands; thresholds; bisection."""

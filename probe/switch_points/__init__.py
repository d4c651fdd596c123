"""Finds where a target changes how it adds, along an axis or between releases.

``by_order`` reveals a case at every value that is asked for and compares orders and roundings, not
bits; ``search`` finds the lengths and batches up to a large one at which a target switches, most of
them by ``recognition`` alone; ``floors`` says which sizes add alike. ``bisection`` searches
releases and what else pins the bits, with the ``fewest`` runs.
"""

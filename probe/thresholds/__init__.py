"""Where a target changes how it adds: along an axis, or from one release to the next.

``by_order`` reveals a case at every value that is asked for and compares orders and roundings, not
bits; ``search`` finds the lengths up to a million at which a target switches, most of them by
``recognition`` alone, on the operands of ``periodic``; ``bisection`` searches releases.
"""

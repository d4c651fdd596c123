"""Where along an axis a target changes how it adds: orders and roundings are compared, not bits.

``by_order`` reveals a case at every value that is asked for; ``search`` finds the lengths up to a
million at which a target switches, most of them by ``recognition`` alone, on the operands of
``periodic``.
"""

"""At which sizes a model gives the same bits, found by running it as its users do.

``marks`` has the operands that sizes are tried with, and tells which outputs read content and
whether two runs give them alike; ``search`` finds the least padded size that holds; ``orders`` asks
the operations of that one for the order of their sums; ``plan`` writes it down for the user.
"""

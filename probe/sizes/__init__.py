"""At which sizes a case or a model gives the same bits, found by running it as its users do.

Of a case on a target: ``recognition`` marks the places of a call and names their summations;
``thresholds`` runs sizes up to a large one, and ``floors`` says which of them add alike.
``by_order`` reveals a case at every value that is asked for. ``bisection`` searches releases and
conditions, with the ``fewest`` runs.

Of a model: ``marks`` has the operands that sizes are tried with, and tells which outputs read
content and whether two runs give them alike; ``search`` finds the least padded size that holds;
``orders`` asks the operations of that one for the order of their sums; ``plan`` writes it down for
the user.

What keeps the bits, and at what cost: ``fixes`` of a case, ``model_fixes`` of a model;
``invariant`` is the mode that is one of them.
"""

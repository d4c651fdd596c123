"""At which sizes a case or a model gives the same bits, found by running it as its users do.

``bisection`` has the search itself: which sizes have the same mark, by doubling and bisection; it
searches releases and conditions so too.

Of a case on a target: ``recognition`` marks the places of a call and names their summations;
``thresholds`` runs sizes up to a large one, and says which of them add alike. ``orders`` reveals a
case at every value that is asked for.

Of a model: ``orders`` has the operands that sizes are tried with, tells whether two runs give what
reads content alike, and asks operations for the order of their sums; ``search`` finds the least
padded size that holds.

What keeps the bits, and at what cost: ``fixes`` of a case, ``model_fixes`` of a model, with the
plan of padded sizes for its user; ``invariant`` is the mode that is one of them, ``stable`` a
convolution whose outputs depend on their windows alone.
"""

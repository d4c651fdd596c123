"""What the scripts in ``experiments/`` and their notebooks share; only ``probe run`` uses it too.

``running`` runs a script and its notebook, ``frame`` is what a script begins with, ``notebook``
reads its results, ``pictures``, ``windows`` and ``sums`` draw them.
"""

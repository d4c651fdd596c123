"""Shared by the scripts in ``experiments/``, their notebooks and ``probe run``.

``frame`` is what a script begins with, and runs a script and its notebook. ``conventions`` measures
which inputs outputs read, ``padding`` how networks change with it, ``trials`` makes findings into
scripts, ``reports`` runs the cases of public reports on every target. ``notebook`` reads results,
``machines`` those of several processors; ``pictures``, ``networks``, ``windows`` and ``sums`` draw
them.
"""

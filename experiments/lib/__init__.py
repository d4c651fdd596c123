"""Shared by the scripts in ``experiments/`` and their notebooks; no part of the package.

``frame`` is what a script begins with. ``conventions`` measures
which inputs outputs read, ``padding`` how networks change with it, ``trials`` makes findings into
scripts, ``reports`` runs the cases of public reports on every target. ``notebook`` reads results,
``machines`` those of several processors; ``pictures``, ``networks``, ``windows`` and ``sums`` draw
them.
"""

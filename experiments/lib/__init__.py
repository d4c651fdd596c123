"""Shared by the scripts in ``experiments/`` and their notebooks; no part of the package.

``frame`` is what a script begins with. ``conventions`` measures which inputs outputs read,
``orders`` how a target adds them,
``padding`` how networks change with it, ``walking`` two runs of a model under ``variations``,
``trials`` makes findings into scripts, ``reports`` runs the cases of public reports on every
target, ``locked`` has the results that a lock keeps.

What has to hold is drawn at random: ``fuzzing`` pairs of runs, ``planted`` pairs whose difference
is known, ``promises`` cases of ``probe fix sizes``; ``referee`` computes by the libraries' own
calls. ``invariance`` says what is run in the invariant mode, ``invariance_torch``,
``invariance_models`` and ``invariance_programs`` on which library.

Models: ``models`` lists them, from ``torch_models`` and ``keras_models``; ``nine_layers`` is the
report's. ``notebook`` reads results, ``machines`` those of several processors; ``pictures``,
``networks``, ``windows`` and ``sums`` draw them.
"""

"""Shared by the scripts in ``experiments/`` and their notebooks; no part of the package.

``frame`` is what a script begins with, ``answering`` asks what is not stored, ``onnx_files`` writes
models. ``conventions`` measures which inputs outputs read,
``orders`` how a target adds them, ``walking`` two runs of a model, ``trials`` makes findings into
scripts, ``reports`` runs the cases of public reports on every target, ``locked`` has the results
that a lock keeps.

What has to hold is drawn at random: ``fuzzing`` pairs of runs, ``planted`` pairs whose difference
is known, ``promises`` cases of ``probe fix sizes``; ``referee`` computes by the libraries' own
calls. ``invariance`` says what is run in the invariant mode, ``invariance_torch`` PyTorch's layers
and models, ``invariance_programs`` those of other libraries.

``scheduled`` has models in pieces with mistakes planted, and a referee of its own.

Models: ``models`` has them all, ``nine_layers`` is the report's. ``notebook`` reads results,
``machines`` those of several processors; ``pictures``, ``windows`` and ``sums`` draw them.
"""

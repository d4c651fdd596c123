"""Reveals and replays the order and the roundings with which every output is added.

``fprev`` is the published algorithm, for one output; the rest refines it. ``masks`` asks an
operator, ``reveal`` grows trees of its answers for all outputs at once (those of long sums are
guessed), ``rounding``, ``fusion`` and ``flush`` find what is fused, kept wider and made zero,
``replay`` evaluates a tree in NumPy, ``orders`` puts them together for all outputs of one call,
``functions`` for any Python function that adds.

``windows`` reveals which inputs an output reads, and those that it reads without a weight, and
``pools`` how pools are computed. ``summation`` is a ``tree`` with its roundings, ``arithmetic``
rounds exact sums once.
"""

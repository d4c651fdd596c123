"""Reveals and replays the order and the roundings with which every output is added.

``masks`` asks an operator, ``reveal`` makes trees of its answers (those of long sums are a
``guess`` that ``proof`` proves: ``regular``), ``rounding`` finds what is fused and what is kept
wider, ``replay`` evaluates a tree in NumPy, ``orders`` puts them together for all outputs of one
call, ``functions`` for any Python function that adds.
"""

"""Chains of layers that experiments run on targets, layer by layer.

The network of the original report, and the tables that experiments store of it. ``chain`` says what
a network is, ``description`` its JSON, ``geometry`` which activations read content, ``running``
computes all activations on a target, ``comparison`` finds where short and full run part and why,
``safe`` the shortest padded lengths that change no bit, ``layerwise`` pads every layer by itself,
``remedies`` measures what keeps the bits, ``checks`` counts what differs. What users call is
:mod:`probe.padding`, which takes any model.
"""

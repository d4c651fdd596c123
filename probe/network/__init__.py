"""Whole networks: a chain of layers, run at small padded sizes and at the one it was made for.

``layers`` and ``chain`` say what a network is, ``description`` its JSON, ``geometry`` which
activations read content, ``axes`` swaps the two axes of models whose first one is long, ``readers``
read models of Keras, PyTorch and ONNX, ``running`` computes all activations on a target,
``comparison`` finds where short and fixed part and why, ``safe`` the shortest padded lengths that
change no bit, ``plan`` writes them down for the user, ``consequence`` says what a difference
decides.
"""

from probe import public
from probe.network.chain import Network, Suffix
from probe.network.geometry import Geometry, Requirement
from probe.network.layers import Layer

__all__ = ["Geometry", "Layer", "Network", "Requirement", "Suffix"]

public.opens(__name__)

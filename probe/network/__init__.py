"""Runs chains of layers at short padded sizes, and compares them with the full size.

``chain`` says what a network is, ``description`` its JSON, ``geometry`` which activations read
content. ``reading`` says which file has which reader and where a chain ends, ``keras_model``,
``onnx_model`` and ``torch_module`` read models and import their library when they are asked,
``trust`` finds out what a file would run before its library sees it. ``running`` computes all
activations on a target, ``comparison`` finds where short and fixed part, why, and what that
decides, ``safe`` the shortest padded lengths that change no bit, ``plan`` writes them down for the
user.
"""

from probe import public
from probe.network.chain import Layer, Network, Suffix
from probe.network.geometry import Geometry, Requirement

__all__ = ["Geometry", "Layer", "Network", "Requirement", "Suffix"]

public.opens(__name__)

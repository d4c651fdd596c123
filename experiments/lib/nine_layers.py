"""The network of the original report, as a model of each library: recorded like any other.

``probe fix padding experiments.lib.nine_layers:keras --fixed 4096 --lengths 1..4``, or ``:torch``
with ``--shape x=1x1x1x4096``. Eight times a convolution and a max-pool, made for 4,096 positions,
then one more convolution. Weights are drawn from a seed, normal, with a variance of 2 / products
(He and others, "Delving Deep into Rectifiers", 2015), so that activations keep their size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.operands import normal

KERNEL = 5
SPREAD = 0.1
"""Standard deviation of the biases."""


@dataclass(frozen=True)
class NineLayers:
    """``blocks`` times conv2d 1 x 5, ReLU and max-pool 1 x 2, then one conv2d; height 1.

    All convolutions have a bias and ``width`` filters, the last one too. ``padding``, ``valid`` or
    ``same``: of convolutions and pools.
    """

    width: int = 16
    seed: int = 0
    blocks: int = 8
    padding: str = "valid"

    def convolutions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weights (1, kernel, in_channels, width) and biases (width,)."""
        drawn = []
        for number in range(self.blocks + 1):
            channels, draw = self.width if number else 1, (self.seed << 20) + 12 * number
            spread, shape = math.sqrt(2 / KERNEL / channels), (1, KERNEL, channels, self.width)
            weights = (spread * normal(draw, "w", shape)).astype(np.float32)
            drawn.append((weights, (SPREAD * normal(draw + 1, "w", shape[-1:])).astype(np.float32)))
        return drawn


def torch_module(**words: Any) -> Any:
    """A PyTorch module, in evaluation and without gradients; the network's padding is valid."""
    from torch import from_numpy, nn

    parts: list[Any] = []
    for weights, bias in NineLayers(**words).convolutions():
        layer = nn.Conv2d(*weights.shape[2:], (1, KERNEL))
        held = np.ascontiguousarray(weights.transpose(3, 2, 0, 1))
        layer.load_state_dict({"weight": from_numpy(held), "bias": from_numpy(bias)})
        parts += [layer, nn.ReLU(), nn.MaxPool2d((1, 2), (1, 2))]
    return nn.Sequential(*parts[:-2]).eval().requires_grad_(False)


def keras_model(**words: Any) -> Any:
    """A Keras model of any length."""
    import keras

    network, layers = NineLayers(**words), keras.layers
    convolutions, padding = network.convolutions(), network.padding
    parts: list[Any] = [keras.Input((1, None, 1), name="x")]
    for n in range(1, len(convolutions) + 1):
        parts += [
            layers.Conv2D(network.width, (1, KERNEL), padding=padding, name=f"conv{n}"),
            layers.ReLU(name=f"relu{n}"),
            layers.MaxPool2D((1, 2), (1, 2), padding=padding, name=f"pool{n}"),
        ]
    model = keras.Sequential(parts[:-2])
    for n, (weights, bias) in enumerate(convolutions, 1):
        model.get_layer(f"conv{n}").set_weights([weights, bias])
    return model


def onnx_model(path: Path, **words: Any) -> Path:
    """Writes an ONNX file of any length; its path."""
    # pages run the other functions from the root of the repository, where nothing is called lib
    from lib.onnx_files import onnx_file

    network, held, lines, last = NineLayers(**words), dict[str, np.ndarray](), list[str](), "x"
    same = ', auto_pad="SAME_UPPER"' if network.padding == "same" else ""
    for n, (weights, bias) in enumerate(network.convolutions(), 1):
        held |= {f"w{n}": np.ascontiguousarray(weights.transpose(3, 2, 0, 1)), f"b{n}": bias}
        lines += [
            f"[conv{n}] conv{n} = Conv <kernel_shape=[1, {KERNEL}]{same}> ({last}, w{n}, b{n})",
            f"[relu{n}] relu{n} = Relu(conv{n})",
            f"[pool{n}] pool{n} = MaxPool <kernel_shape=[1, 2], strides=[1, 2]{same}> (relu{n})",
        ]
        last = f"pool{n}"
    ends = f"(float[1,1,1,before] x) => (float[1,{network.width},1,after] conv{n})"
    path.write_bytes(onnx_file(f"{ends} {{ {chr(10).join(lines[:-2])} }}", **held))
    return path


def __getattr__(name: str) -> Any:
    if name in ("torch", "keras"):
        return torch_module() if name == "torch" else keras_model()
    raise AttributeError(name)

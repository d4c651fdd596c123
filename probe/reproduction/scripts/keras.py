"""Keras 3 layers, called on tensors."""

from __future__ import annotations

from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction.scripts import tensorflow
from probe.reproduction.scripts.contract import Library, flat, lines, pairs_of, refuse, restored
from probe.target import Target
from probe.window import code


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    switches = dict(target.switches)
    below = switches.get("backend", "tensorflow")
    imports: tuple[str, ...] = ("import keras",)
    setup: tuple[str, ...] = ()
    if below == "tensorflow":
        imports = ("import keras", "import tensorflow as tf")
        setup = tensorflow.configured(target, "2.16", False)
    body = [*built(target, case), *called(case, switches)]
    if below == "tensorflow" and not setup and "tf." not in "".join(body):
        imports = imports[:1]
    modules = ("keras", below)
    return Library("Keras", "keras.__version__", imports, tuple(body), setup, modules)


def built(target: Target, case: Case) -> list[str]:
    """``model``: a function of a tensor, made of layers with these weights."""
    if case.pool:
        text = code.keras_pooling(case, pairs_of(case))
        return ["", "def model(x):", *(f"    {line}" for line in lines(text)), "    return y", ""]
    kind = f', dtype="{case.dtype}"' if case.dtype != "float32" else ""
    bias = case.bias is not None
    if case.op in ("matmul", "dense"):
        layer, before = f"keras.layers.Dense({case.filters}, use_bias={bias}{kind})", []
    elif case.op in ("dot", "sum"):
        raise refuse(target, f"op={case.op}")
    else:
        *before, last = lines(_convolution(case))
        layer = last.removeprefix("y = ").removesuffix(")(x)") + f", use_bias={bias}{kind})"
    rank = (None,) * (1 + case.spatial_rank)
    found = [f"layer = {layer}", f"layer.build({(*rank, case.in_channels)})"]
    found.append("layer.kernel.assign(w.reshape(layer.kernel.shape))")
    found += ["layer.bias.assign(b)"] * bias
    found += ["", "def model(x):", *(f"    {line}" for line in before), "    return layer(x)", ""]
    return found


def _convolution(case: Case) -> str:
    """The layer in Keras' words; explicit padding is explicit in the backend too."""
    if isinstance(case.padding, str) and case.padding in ("same", "valid"):
        return code.keras_convolution(case, pairs_of(case))
    return code.keras_convolution(case.with_(padding=pairs_of(case)), pairs_of(case))


def called(case: Case, switches: dict[str, str]) -> list[str]:
    """The call: eager, or in a tf.function."""
    found, x = [], flat(case, vector=False)[0]
    if switches.get("mode") == "graph" or switches.get("xla") == "1":
        rank = 1 + case.spatial_rank - (case.op == "matmul" and case.batch == 1)
        spec = f"tf.TensorSpec({(*(None,) * rank, case.in_channels)}, tf.{case.dtype})"
        options = f"input_signature=[{spec}]"
        options += ", jit_compile=True" if switches.get("xla") == "1" else ""
        found.append(f"model = tf.function(model, {options})")
    kind = ', "bfloat16"' if case.dtype == "bfloat16" else ""
    found.append(f"y = model(keras.ops.convert_to_tensor({x}{kind}))")
    wide = 'keras.ops.cast(y, "float32")' if kind else "y"
    found.append(f"y = keras.ops.convert_to_numpy({wide})")
    return [*found, f"return {restored(case, 'y')}"]

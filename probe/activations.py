"""Defines the activations: what each computes in NumPy, and how each library spells it.

A spelling is lines of source of which the last is an expression in ``x``, the activations, channels
last; ``{alpha}`` stands for the parameter of those that have one, ``{name}`` for our name of it. In
NumPy's, ``number`` makes a number of x's dtype. PyTorch's x has its channels first. LiteRT's are
operators of a graph under the schema's names, which take values and numbers, as TensorFlow's
converter writes them: RELU and RELU6 are fused into the operator that makes their x where that can.
Caffe's are a layer's type and its fields; Gelu, Selu, Softsign and HardSigmoid are OpenCV's own.
ONNX's are nodes, see :class:`ActivationNode`.

Targets' interpreters import this (Python 3.6, NumPy 1.11).
"""

import math
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

# Of selu: Klambauer and others, "Self-Normalizing Neural Networks", 2017.
SCALE, SLOPE = 1.0507009873554805, 1.6732632423543772


class ActivationNode(NamedTuple):
    """One ONNX node of the value before it; of an activation's first node that is ``x``.

    ``given``: further inputs, constants or ``"x"``. ``attributes``: ``"alpha"`` is the parameter.
    """

    kind: str
    given: Tuple[Any, ...] = ()
    attributes: Mapping[str, Any] = {}


class Activation(NamedTuple):
    """One activation: its spelling in each library, and what is known of its bits.

    ``roundings``: how many of its operations round, where all are IEEE's, so that every library has
    NumPy's bits; None where a library computes the function in its own way. ``at_one``:
    by library, the spelling where alpha is 1. ``older``: by library, the spelling in releases that
    lack the name. ``module``: the class of ``torch.nn`` that computes it, empty where models with
    it are not read.
    """

    numpy: str
    litert: str
    caffe: Tuple[str, str]
    onnx: Tuple[ActivationNode, ...]
    tensorflow: str = "tf.nn.{name}(x)"
    torch: str = "F.{name}(x)"
    jax: str = "jax.nn.{name}(x)"
    keras: str = "keras.activations.{name}(x)"
    module: str = ""
    roundings: Optional[int] = None
    at_one: Mapping[str, str] = {}
    older: Mapping[str, str] = {}


# Functions of one element, or (softmax) of the channels of one position.
ACTIVATIONS: Dict[str, Activation] = {
    "relu": Activation(
        numpy="np.maximum(x, 0)",
        litert="RELU(x)",
        caffe=("ReLU", ""),
        onnx=(ActivationNode("Relu"),),
        module="ReLU",
        roundings=0,
    ),
    "relu6": Activation(
        numpy="np.minimum(np.maximum(x, 0), 6)",
        litert="RELU6(x)",
        caffe=("ReLU6", ""),
        onnx=(ActivationNode("Clip", (0, 6)),),
        module="ReLU6",
        roundings=0,
    ),
    "leaky_relu": Activation(
        numpy="np.where(x > 0, x, x * x.dtype.type({alpha}))",
        tensorflow="tf.nn.leaky_relu(x, {alpha})",
        torch="F.leaky_relu(x, {alpha})",
        jax="jax.nn.leaky_relu(x, {alpha})",
        keras="keras.activations.leaky_relu(x, negative_slope={alpha})",
        litert="LEAKY_RELU(x, alpha={alpha})",
        caffe=("ReLU", "relu_param {{ negative_slope: {alpha} }}"),
        onnx=(ActivationNode("LeakyRelu", (), {"alpha": "alpha"}),),
        module="LeakyReLU",
        roundings=1,
    ),
    "sigmoid": Activation(
        numpy="1 / (1 + np.exp(-x))",
        torch="torch.sigmoid(x)",
        litert="LOGISTIC(x)",
        caffe=("Sigmoid", ""),
        onnx=(ActivationNode("Sigmoid"),),
        module="Sigmoid",
    ),
    "tanh": Activation(
        numpy="np.tanh(x)",
        torch="torch.tanh(x)",
        jax="jax.numpy.tanh(x)",
        litert="TANH(x)",
        caffe=("TanH", ""),
        onnx=(ActivationNode("Tanh"),),
        module="Tanh",
    ),
    "softmax": Activation(
        numpy="raised = np.exp(x - x.max(axis=-1, keepdims=True))\n"
        "raised / raised.sum(axis=-1, keepdims=True)",
        torch="F.softmax(x, 1)",
        litert="SOFTMAX(x, beta=1.0)",
        caffe=("Softmax", "softmax_param {{ axis: 1 }}"),
        onnx=(ActivationNode("Softmax", (), {"axis": 1}),),
    ),
    "elu": Activation(
        numpy="np.where(x > 0, x, number({alpha}) * np.expm1(x))",
        tensorflow="tf.where(x > 0, x, {alpha} * tf.math.expm1(x))",
        torch="F.elu(x, {alpha})",
        jax="jax.nn.elu(x, {alpha})",
        keras="keras.activations.elu(x, alpha={alpha})",
        litert="y = ELU(x)\nz = MUL(y, {alpha})\nSELECT(GREATER(x, 0), y, z)",
        caffe=("ELU", "elu_param {{ alpha: {alpha} }}"),
        onnx=(ActivationNode("Elu", (), {"alpha": "alpha"}),),
        module="ELU",
        at_one={"tensorflow": "tf.nn.elu(x)", "litert": "ELU(x)"},
    ),
    "selu": Activation(
        numpy=f"scale, slope = number({SCALE}), number({SLOPE})\n"
        "np.where(x > 0, scale * x, scale * (slope * np.expm1(x)))",
        litert=f"y = MUL(SUB(EXP(x), 1), {SCALE * SLOPE})\n"
        f"z = MUL(x, {SCALE})\nSELECT(GREATER(x, 0), z, y)",
        caffe=("Selu", ""),
        onnx=(ActivationNode("Selu"),),
        module="SELU",
    ),
    "softplus": Activation(
        numpy="np.logaddexp(x, number(0))",
        litert="LOG(ADD(EXP(x), 1))",
        caffe=("BNLL", ""),
        onnx=(ActivationNode("Softplus"),),
        module="Softplus",
    ),
    "softsign": Activation(
        numpy="x / (1 + np.abs(x))",
        jax="jax.nn.soft_sign(x)",
        litert="DIV(x, ADD(ABS(x), 1))",
        caffe=("Softsign", ""),
        onnx=(ActivationNode("Softsign"),),
        module="Softsign",
    ),
    "gelu": Activation(  # x times the normal distribution's integral up to x
        numpy="wide = x.astype(np.float64)\n"
        "erf = np.vectorize(math.erf, otypes=[np.float64])\n"
        "wide * 0.5 * (1 + erf(wide / math.sqrt(2)))",
        jax="jax.nn.gelu(x, approximate=False)",
        litert="GELU(x)",
        caffe=("Gelu", ""),
        onnx=(  # the nodes that exporters write, which ONNX Runtime fuses
            ActivationNode("Div", (math.sqrt(2),)),
            ActivationNode("Erf"),
            ActivationNode("Add", (1,)),
            ActivationNode("Mul", ("x",)),
            ActivationNode("Mul", (0.5,)),
        ),
        module="GELU",
    ),
    "silu": Activation(
        numpy="x * (1 / (1 + np.exp(-x)))",
        litert="MUL(x, LOGISTIC(x))",
        caffe=("Swish", ""),
        onnx=(ActivationNode("Sigmoid"), ActivationNode("Mul", ("x",))),
        module="SiLU",
        older={"tensorflow": "tf.nn.swish(x)"},
    ),
    "hard_sigmoid": Activation(
        numpy="np.minimum(np.maximum(x + 3, 0), 6) / 6",
        tensorflow="tf.nn.relu6(x + 3) / 6",
        torch="F.relu6(x + 3) / 6",
        litert="MUL(RELU6(ADD(x, 3)), 1 / 6)",
        caffe=("HardSigmoid", f"hard_sigmoid_param {{{{ alpha: {1 / 6} beta: 0.5 }}}}"),
        onnx=(ActivationNode("HardSigmoid", (), {"alpha": 1 / 6, "beta": 0.5}),),
        roundings=2,
    ),
    "exp": Activation(
        numpy="np.exp(x)",
        tensorflow="tf.exp(x)",
        torch="torch.exp(x)",
        jax="jax.numpy.exp(x)",
        keras="keras.ops.exp(x)",
        litert="EXP(x)",
        caffe=("Exp", ""),
        onnx=(ActivationNode("Exp"),),
    ),
}


def activation_rounds_once(name: str) -> bool:
    """Returns whether an activation rounds at most once, so that all libraries agree."""
    roundings = ACTIVATIONS[name].roundings
    return roundings is not None and roundings < 2


def spelling_lines(
    name: str, library: str, alpha: float = 1.0, x: str = "x", older: bool = False
) -> List[str]:
    """Returns a spelling's lines of the value named ``x``; the last line is an expression.

    ``library``: a field of :class:`Activation` that is text. ``older``: as releases had it that
    lack today's name.
    """
    row = ACTIVATIONS[name]
    text = getattr(row, library)
    if alpha == 1.0:
        text = row.at_one.get(library, text)
    if older:
        text = row.older.get(library, text)
    return re.sub(r"\bx\b", x, text.format(name=name, alpha=alpha)).split("\n")


def caffe_layer(name: str, alpha: float = 1.0) -> Tuple[str, str]:
    """Returns the type and the fields of a Caffe layer, with the parameter put in."""
    kind, fields = ACTIVATIONS[name].caffe
    return kind, fields.format(alpha=alpha)


def onnx(name: str, alpha: float = 1.0) -> List[ActivationNode]:
    """Returns the ONNX nodes with the parameter put in."""
    return [
        node._replace(
            attributes={
                word: alpha if value == "alpha" else value
                for word, value in node.attributes.items()
            }
        )
        for node in ACTIVATIONS[name].onnx
    ]


def compiled_spelling(
    spelled: List[str], given: Mapping[str, Any], name: str = "activation"
) -> Callable:
    """Returns f(x) of a spelling's lines; ``given``: the names that they use."""
    body = ["    " + line for line in spelled[:-1]] + ["    return " + spelled[-1]]
    scope: Dict[str, Any] = dict(given)
    exec("\n".join(["def function(x):"] + body), scope)
    function: Callable = scope["function"]
    function.__name__ = name
    return function


def numpy_activation(name: str, alpha: float = 1.0) -> Callable[[np.ndarray], np.ndarray]:
    """Returns f(x) in NumPy for arrays of any float dtype, which it keeps; it gives no warnings."""
    spelled = ["number = x.dtype.type"] + spelling_lines(name, "numpy", alpha)
    computed = compiled_spelling(spelled, {"np": np, "math": math}, name)

    def activation(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            result: np.ndarray = computed(x).astype(x.dtype)
            return result

    return activation

"""Writes known.md: what is known of each operation in each library, asked of the libraries here.

    python docs/known.py

A letter stands in the table because the code just did what it says: the order of a small call was
revealed and replayed, its recorded operation was taken for a sum, the invariant mode gave it equal
bits in two batches. Nothing is listed by hand, so a library that loses a kernel loses its letter.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.case import Case
from probe.case.errors import InputError, ProbeError, TargetError
from probe.case.operation import OPERATIONS
from probe.diff.sums import sum_of
from probe.explain.runs import run_and_reveal
from probe.record.recording import record_run
from probe.record.subject import function_recorder, open_model
from probe.sizes import stable
from probe.targets import backends, machine
from probe.targets.launch import AnySession, open_session
from probe.targets.target import Target, installed_version, why_unavailable
from probe.ui.answers.cases import Ordered

PAGE = Path(__file__).with_suffix(".md")
LEFT_OUT = ("keras", "reference")  # Keras calls another library, and reference is NumPy
HEAD = """# What is known: operations and libraries

See what `probe` can say of an operation in a library.
`python docs/known.py` asks them.

| letter | what the program did for it |
| --- | --- |
| O | `probe order` revealed how the outputs of a small call are added |
| R | the replay in NumPy has the library's bits |
| C | in a [model](models.md) its sums are compared, for a [cause](causes.md); others are named |
| F | [`stable.invariant`](same_bits.md) gave it the same bits alone and in a batch of eight |

A dash: the library does not have it. A maximum has no order. A library without C and F is a target
for single operations and whole files.

"""
# What the rows are in models, as a user writes them. ``x`` and ``w`` are arrays of the library.
PROGRAMS = {
    "torch": {
        "sum": "x.sum(-1)",
        "matmul": "torch.bmm(x, x.mT)",
        "dense": "F.linear(x, w)",
        "conv1d": "F.conv1d(x, w)",
        "conv2d": "F.conv2d(x, w)",
        "conv3d": "F.conv3d(x, w)",
        "depthwise_conv2d": "F.conv2d(x, w, groups=4)",
        "conv1d_transpose": "F.conv_transpose1d(x, w)",
        "conv2d_transpose": "F.conv_transpose2d(x, w)",
        "avg_pool2d": "F.avg_pool2d(x, 2)",
        "max_pool2d": "F.max_pool2d(x, 2)",
        "mean": "x.mean(-1)",
        "softmax": "F.softmax(x, -1)",
        "layer norm": "F.layer_norm(x, x.shape[-1:])",
        "exp": "x.exp()",
        "attention": "F.scaled_dot_product_attention(x, x, x)",
    },
    "tensorflow": {
        "sum": "tf.reduce_sum(x, -1)",
        "matmul": "tf.matmul(x, x, transpose_b=True)",
        "dense": "tf.matmul(x, w)",
        "conv1d": 'tf.nn.conv1d(x, w, 1, "VALID")',
        "conv2d": 'tf.nn.conv2d(x, w, 1, "VALID")',
        "conv3d": 'tf.nn.conv3d(x, w, [1] * 5, "VALID")',
        "depthwise_conv2d": 'tf.nn.depthwise_conv2d(x, w, [1] * 4, "VALID")',
        "conv1d_transpose": 'tf.nn.conv1d_transpose(x, w, [tf.shape(x)[0], 11, 5], 1, "VALID")',
        "conv2d_transpose": 'tf.nn.conv2d_transpose(x, w, [tf.shape(x)[0], 11, 11, 5], 1, "VALID")',
        "avg_pool2d": 'tf.nn.avg_pool2d(x, 2, 2, "VALID")',
        "max_pool2d": 'tf.nn.max_pool2d(x, 2, 2, "VALID")',
        "mean": "tf.reduce_mean(x, -1)",
        "softmax": "tf.nn.softmax(x)",
        "exp": "tf.exp(x)",
    },
    "jax": {
        "sum": "jnp.sum(x, -1)",
        "matmul": 'jnp.einsum("bmk,bnk->bmn", x, x)',
        "dense": "x @ w",
        "conv1d": 'lax.conv(x, w, (1,), "VALID")',
        "conv2d": 'lax.conv(x, w, (1, 1), "VALID")',
        "conv3d": 'lax.conv(x, w, (1, 1, 1), "VALID")',
        "depthwise_conv2d": """
            lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=4)""",
        "conv1d_transpose": """lax.conv_transpose(
            x, w, (1,), "VALID", dimension_numbers=("NCH", "IOH", "NCH"))""",
        "conv2d_transpose": """lax.conv_transpose(
            x, w, (1, 1), "VALID", dimension_numbers=("NCHW", "IOHW", "NCHW"))""",
        "avg_pool2d": 'lax.reduce_window(x, 0.0, lax.add, *[(1, 1, 2, 2)] * 2, "VALID") / 4',
        "max_pool2d": 'lax.reduce_window(x, -jnp.inf, lax.max, *[(1, 1, 2, 2)] * 2, "VALID")',
        "mean": "jnp.mean(x, -1)",
        "softmax": "jax.nn.softmax(x)",
        "exp": "jnp.exp(x)",
        "attention": "jax.nn.dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None])",
    },
    "numpy": {
        "sum": "x.sum(-1)",
        "matmul": "np.matmul(x, x.swapaxes(-1, -2))",
        "dense": "x @ w",
        "mean": "x.mean(-1)",
        "exp": "np.exp(x)",
    },
}
# ONNX: the node of a file, as the kind of operator, its inputs and its attributes.
NODES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sum": ("ReduceSum", "x last", {"keepdims": 0}),
    "matmul": ("MatMul", "x w", {}),
    "dense": ("Gemm", "x w", {}),
    "conv1d": ("Conv", "x w", {}),
    "conv2d": ("Conv", "x w", {}),
    "conv3d": ("Conv", "x w", {}),
    "depthwise_conv2d": ("Conv", "x w", {"group": 4}),
    "conv1d_transpose": ("ConvTranspose", "x w", {}),
    "conv2d_transpose": ("ConvTranspose", "x w", {}),
    "avg_pool2d": ("AveragePool", "x", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "max_pool2d": ("MaxPool", "x", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "mean": ("ReduceMean", "x last", {"keepdims": 0}),
    "softmax": ("Softmax", "x", {}),
    "layer norm": ("LayerNormalization", "x scale", {}),
    "exp": ("Exp", "x", {}),
}
BATCH = 8
# Channels come last in TensorFlow; shapes of one sample, and of weights (filters first).
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "matmul": ((4, 16), ()),
    "attention": ((4, 16), ()),
    "dense": ((16,), (5, 16)),
    "conv1d": ((4, 9), (5, 4, 3)),
    "conv2d": ((4, 9, 9), (5, 4, 3, 3)),
    "conv3d": ((4, 5, 5, 5), (5, 4, 3, 3, 3)),
    "depthwise_conv2d": ((4, 9, 9), (4, 1, 3, 3)),
    "conv1d_transpose": ((4, 9), (4, 5, 3)),
    "conv2d_transpose": ((4, 9, 9), (4, 5, 3, 3)),
    "avg_pool2d": ((4, 8, 8), ()),
    "max_pool2d": ((4, 8, 8), ()),
}
OF_MODELS = ("mean", "softmax", "layer norm", "exp", "attention")
ROWS = (*OPERATIONS, *OF_MODELS)


def operands(library: str, row: str) -> tuple[np.ndarray, np.ndarray]:
    """x (batch, ...) and w in the library's own layout; w is empty where there are no weights."""
    sample, weights = SHAPES.get(row, ((16,), ()))
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((BATCH, *sample), weights))
    if row == "dense" and library != "torch":
        w = w.T
    if library == "tensorflow" and ("conv" in row or "pool" in row):
        x = np.moveaxis(x, 1, -1)
        if w.ndim:  # (filters, channels, *kernel) becomes (*kernel, channels, filters)
            w = w.transpose(*range(2, w.ndim), 1, 0)
            w = w.swapaxes(-1, -2) if row.startswith("depthwise") else w
    return np.ascontiguousarray(x), np.ascontiguousarray(w)


@cache
def names_of(library: str) -> dict[str, Any]:
    """The modules that a library's programs name, and ``array``, which makes its arrays."""
    if library == "torch":
        import torch

        return {"torch": torch, "F": torch.nn.functional, "array": torch.from_numpy}
    if library == "tensorflow":
        import tensorflow as tf

        return {"tf": tf, "array": tf.constant}
    if library == "jax":
        import jax
        from jax import lax

        return {"jax": jax, "jnp": jax.numpy, "lax": lax, "array": jax.numpy.asarray}
    return {"np": np, "array": np.asarray}


def program(library: str, row: str) -> Callable[[Any], Any]:
    """A function of x, which has its weights as a user's program holds them."""
    names = names_of(library)
    w = names["array"](operands(library, row)[1])
    function: Callable[[Any], Any] = eval(
        f"lambda x: {PROGRAMS[library][row].strip()}", names | {"w": w}
    )
    return function


def onnx_file(row: str) -> bytes:
    """A file of one node, whose batch is open."""
    import onnx
    from onnx import helper, numpy_helper

    x, w = operands("onnxruntime", row)
    kind, inputs, attributes = NODES[row]
    if row == "matmul":
        w = np.ascontiguousarray(x[0].T)
    last, scale = np.array([-1], np.int64), np.ones(x.shape[-1:], np.float32)
    constants = {"w": w, "last": last, "scale": scale}
    graph = helper.make_graph(
        [helper.make_node(kind, inputs.split(), ["y"], **attributes)],
        "model",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", *x.shape[1:]])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(constants[name], name) for name in inputs.split()[1:]],
    )
    opset = helper.make_opsetid("", 18)
    model: bytes = helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()
    return model


def letters_of_case(session: AnySession, row: str) -> str:
    """O and R of a small case; a dash where the library has no such operation."""
    shape = OPERATIONS[row]
    filters = None if shape.depthwise or not shape.weighted else 3
    case = Case(row, 3 if shape.windows else None, 4, filters)
    case = case.with_(batch=3) if row == "dense" else case.with_(length=9)
    if shape.spatial_rank > 1:
        case = case.with_(height=(6,) * (shape.spatial_rank - 1))
    try:
        found = Ordered(run_and_reveal(session, case)).to_json()
    except TargetError as error:
        if error.kind != "unsupported":
            raise
        return "-"
    if found["refusal"] == "unsupported":
        return "-"
    revealed = bool(found["orders"])
    return "O" * revealed + "R" * (revealed and found["replayed"] == found["outputs"])


def is_a_sum(library: str, row: str) -> bool:
    """Whether a recorded operation of that program is asked for the order of its sums."""
    x, _ = operands(library, row)
    if library == "onnxruntime":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(onnx_file(row))
            run = record_run(open_model(path).recorder({"x": x}))
    else:
        function, given = program(library, row), names_of(library)["array"](x)
        recorder = function_recorder(lambda: function(given), bare=(function, [x]))
        run = record_run(recorder)
    for operation in run.operations:
        reads = [run.values[number] for number in operation.reads]
        output = run.values[operation.gives[0]]
        try:
            dtypes = [*(value.dtype for value in reads), output.dtype]
            sum_of(operation.meaning, [value.shape for value in reads], output.shape, dtypes)
            return True
        except InputError:
            continue
    return False


def keeps_its_bits(library: str, row: str) -> bool:
    """Whether the invariant mode gives the first sample the same bits alone and among eight."""
    x, _ = operands(library, row)
    model: Any = onnx_file(row) if library == "onnxruntime" else program(library, row)
    given = x
    if library == "torch":
        import torch

        class Module(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return model(x)

        given = torch.from_numpy(x)
        with torch.no_grad():
            same, report = stable.invariant(Module().eval(), [1, BATCH], example=given)
            return not report.left and bits(same(given[:1])) == bits(same(given)[:1])
    if library == "tensorflow":
        import keras

        class Layer(keras.layers.Layer):
            def call(self, x: Any) -> Any:
                return model(x)

        keras_model = keras.Sequential([keras.Input(x.shape[1:]), Layer()])
        same, report = stable.invariant(keras_model, [1, BATCH], example=x)
        return not report.left and bits(same(x[:1])) == bits(same(x)[:1])
    if library == "onnxruntime":
        same, _ = stable.invariant(model, [1, BATCH], example={"x": x})
        first, every = (same({"x": x[:size]})[0] for size in (1, BATCH))
        return bits(first) == bits(every[:1])
    given = names_of(library)["array"](x)
    same, _ = stable.invariant(model, [1, BATCH], example=given, batched=0)
    return bits(same(given[:1])) == bits(same(given)[:1])


def bits(value: Any) -> bytes:
    return np.asarray(value).tobytes()


def column(library: str, rows: Sequence[str] = ROWS) -> list[str]:
    """The letters of a library, row by row."""
    found = []
    with open_session(Target(library)) as session:
        for row in rows:
            place = letters_of_case(session, row) if row in OPERATIONS else ""
            if row in (NODES if library == "onnxruntime" else PROGRAMS.get(library, ())):
                place += "C" * is_a_sum(library, row)
                # what the mode refuses gets no letter; its samples overflow some functions
                with suppress(ProbeError), np.errstate(over="ignore"):
                    place += "F" * keeps_its_bits(library, row)
            found.append(place)
    return found


def page() -> str:
    """The whole page."""
    known = [name for name in backends.known_backends() if name not in LEFT_OUT]
    here = [name for name in known if why_unavailable(Target(name)) is None]
    rows = zip(ROWS, *map(column, here), strict=True)
    lines = [["operation", *here], ["---"] * (len(here) + 1), *rows]
    table = "\n".join(f"|{'|'.join(cells)}|" for cells in lines)
    releases = ", ".join(f"{name} {installed_version(backends.get(name))}" for name in here)
    return f"{HEAD}{table}\n\nMeasured on {machine.label()}: {releases}.\n"


if __name__ == "__main__":
    PAGE.write_text(page())

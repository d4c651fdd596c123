"""ONNX Runtime: a model of one node, made with the onnx package; weights are initializers."""

from __future__ import annotations

from probe.backends import onnxruntime as backend
from probe.backends import onnxruntime_convolution as convolution
from probe.backends import onnxruntime_pooling as pooling
from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction import layout
from probe.reproduction.scripts.contract import Library, flat, refuse, restored
from probe.target import Target

CHANNELS_FIRST = (
    "x = np.ascontiguousarray(np.moveaxis(x, -1, 1))",
    "w = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1)))",
)

OPTIONS = '    """How it runs."""'


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    if case.dtype not in backend.TYPES:
        raise refuse(target, f"dtype={case.dtype}")
    constant = dict(target.switches).get("weights", "constant") == "constant"
    kind, pool = f"TensorProto.{backend.TYPES[case.dtype]}", bool(case.pool)
    product = case.operation.kind == "product"
    x, w = flat(case)
    if case.op == "dense":
        body = ["w = w.T.copy()"]
    elif product:
        body = [f"x = {x}"] * (x != "x") + [f"w = {w}"] * (w != "w")
    else:
        body = list(CHANNELS_FIRST[: 1 + (not pool)])
    names = [*(["w"] if case.weighted else []), *(["b"] if case.bias is not None else [])]
    fed = [f'value_info("x", {kind}, {layout.literal(_open(case))})']
    if not constant:
        fed += [f'value_info("{name}", {kind}, {name}.shape)' for name in names]
    room = pooling if pool else convolution
    y = "None" if product else layout.literal(["batch", case.filters, *_sizes(case, "out")])
    opset, ir = (room.OPSET, room.IR_VERSION)
    body += ["value_info = helper.make_tensor_value_info", f"nodes = [{', '.join(nodes(case))}]"]
    graph = [f"[{', '.join(fed)}]", f'[value_info("y", {kind}, {y})]']
    kept = [f'numpy_helper.from_array({name}, "{name}")' for name in names] if constant else []
    graph += [f"[{', '.join(kept)}]"] * bool(kept)
    body.append(f'graph = helper.make_graph(nodes, "model", {", ".join(graph)})')
    body.append(f'opset = helper.make_opsetid("", {opset})')
    body.append(f"model = helper.make_model(graph, opset_imports=[opset], ir_version={ir})")
    given = 'model.SerializeToString(), options(), providers=["CPUExecutionProvider"]'
    body.append(f"session = onnxruntime.InferenceSession({given})")
    feeds = ["x", *([] if constant else names)]
    shown = ", ".join(f'"{name}": {name}' for name in feeds)
    body.append(f'y = session.run(["y"], {{{shown}}})[0]')
    body.append(f"return {restored(case, 'y') if product else 'np.moveaxis(y, 1, -1)'}")
    imports = ["import onnxruntime", "from onnx import TensorProto, helper"]
    imports[1] += ", numpy_helper" * bool(kept)
    setup = options(target)
    modules = ("onnxruntime", "onnx")
    version_text = "onnxruntime.__version__"
    return Library("ONNX Runtime", version_text, tuple(imports), tuple(body), setup, modules)


def _sizes(case: Case, name: str) -> list[str]:
    return [f"{name}{axis}" for axis in range(case.spatial_rank)]


def _open(case: Case) -> list[object]:
    """The shape of x with open sizes."""
    if case.operation.kind != "product":
        return ["batch", case.in_channels, *_sizes(case, "size")]
    if case.op == "dense":
        return ["batch", case.in_channels]
    x = flat(case)[0]
    rank = {"x": 3, "x[0]": 2, "x[0, 0]": 1}[x]
    return [*(f"size{axis}" for axis in range(rank - 1)), case.in_channels]


def nodes(case: Case) -> list[str]:
    """The nodes from x, w and b to y, as text."""
    rank, bias = len(_open(case)), case.bias is not None
    if case.op == "sum":
        return [_node("ReduceSum", ["x"], ["y"], {"axes": [rank - 1], "keepdims": 0})]
    if case.op == "dense":
        return [_node("Gemm", ["x", "w", "b"][: 2 + bias], ["y"], {"transB": 1})]
    if case.operation.kind == "product":
        vector = case.op == "dot" and case.filters == 1
        if not bias:
            return [_node("MatMul", ["x", "w"], ["y"], {})]
        if rank == 2 and not vector:
            return [_node("Gemm", ["x", "w", "b"], ["y"], {})]
        product = _node("MatMul", ["x", "w"], ["product"], {})
        return [product, _node("Add", ["product", "b"], ["y"], {})]
    if case.pool:
        spec = case.spec()
        words = pooling.attributes(spec)
        name = pooling.NODES[case.pool]
        if not pooling.zeros_first(spec):
            return [_node(name, ["x"], ["y"], words)]
        before, after = zip(*spec["padding"], strict=True)
        sizes = [0, 0, *before, 0, 0, *after]
        tensor = f'helper.make_tensor("sizes", TensorProto.INT64, [{len(sizes)}], {sizes})'
        constant = f'helper.make_node("Constant", [], ["sizes"], value={tensor})'
        padded = _node("Pad", ["x", "sizes"], ["padded"], {})
        return [constant, padded, _node(name, ["padded"], ["y"], words)]
    return [_node("Conv", ["x", "w", "b"][: 2 + bias], ["y"], convolution.attributes(case.spec()))]


def _node(name: str, inputs: list[str], outputs: list[str], words: dict[str, object]) -> str:
    shown = "".join(f", {key}={layout.literal(value)}" for key, value in words.items())
    given, gives = layout.literal(inputs), layout.literal(outputs)
    return f'helper.make_node("{name}", {given}, {gives}{shown})'


def options(target: Target) -> tuple[str, ...]:
    """The function ``options``."""
    switches = dict(target.switches)
    found = [
        "",
        "def options():",
        OPTIONS,
        "    found = onnxruntime.SessionOptions()",
    ]
    found.append("    found.log_severity_level = 4")
    if "threads" in switches:
        found.append(f"    found.intra_op_num_threads = {switches['threads']}")
        found.append("    found.inter_op_num_threads = 1")
    if "deterministic" in switches:
        found.append(f"    found.use_deterministic_compute = {switches['deterministic'] == '1'}")
    return (*found, "    return found")

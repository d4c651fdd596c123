"""TensorFlow: eager calls, a tf.function, or a session of 1.x, as ``probe.backends.tensorflow``."""

from __future__ import annotations

import itertools

from probe.case import Case
from probe.comparison import Arrays
from probe.reproduction import literals
from probe.reproduction.scripts.contract import (
    Library,
    flat,
    lines,
    pairs_of,
    refuse,
    release,
    restored,
)
from probe.target import Target
from probe.window import code

PRODUCTS = {
    "matmul": "tf.matmul(x, w)",
    "dot": "tf.tensordot(x, w, 1)",
    "sum": "tf.reduce_sum(x, 2)",
    "dense": "tf.matmul(x, w)",
}

OPTIONS = '    """How it runs."""'


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case`` with this release."""
    switches, old = dict(target.switches), release(version) < (2, 0)
    session = old and switches.get("mode") != "eager"
    if switches.get("algorithm") == "elementwise":
        computed = by_hand(target, case, session or traced(switches))
    else:
        computed = old_call(target, case) if old else call(case)
    if session:
        body = in_session(target, case, computed)
    elif traced(switches):
        body = in_function(case, computed, switches, version)
    else:
        body = eager(case, computed)
    imports = ("import tensorflow as tf",)
    setup = configured(target, version, session)
    return Library("TensorFlow", "tf.__version__", imports, body, setup, ("tensorflow",))


def traced(switches: dict[str, str]) -> bool:
    """Whether the call is part of a tf.function."""
    graph = switches.get("mode") == "graph" or switches.get("weights") == "constant"
    return graph or switches.get("xla") == "1"


def call(case: Case) -> list[str]:
    """From x and w to y, both tensors, without the bias."""
    if case.op in PRODUCTS:
        return [f"y = {PRODUCTS[case.op]}"]
    write = code.POOLING if case.pool else code.CONVOLUTIONS
    return list(lines(write["tensorflow"](case, pairs_of(case))))


def old_call(target: Target, case: Case) -> list[str]:
    """The same before 2.0: explicit padding is ``tf.pad``'s, and dilations have other names."""
    if case.op in PRODUCTS:
        return [f"y = {PRODUCTS[case.op]}"]
    if case.pool:
        return _old_pool(case)
    found, word = [], str(case.padding).upper()
    if not isinstance(case.padding, str) or case.padding == "caffe":
        around = [[0, 0], *map(list, pairs_of(case)), [0, 0]]
        found, word = [f"x = tf.pad(x, {around})"], "VALID"
    stride, dilation, dilated = list(case.stride), list(case.dilation), set(case.dilation) != {1}
    words = {"strides": str([1, *stride, 1]), "padding": f'"{word}"'}
    name = f"tf.nn.{case.op}"
    if case.op == "conv1d":
        words = {"stride": str(stride[0]), "padding": f'"{word}"'}
        words |= {"dilations": str(dilation[0])} if dilated else {}
    elif case.op == "conv3d" and dilated:
        name = "tf.nn.convolution"
        words |= {"strides": str(stride), "dilations": str(dilation)}
    elif case.op == "depthwise_conv2d" and dilated:
        words |= {"rate": str(dilation)}
    elif dilated:
        words |= {"dilations": str([1, *dilation, 1])}
    return [*found, f"y = {name}(x, w, {code.keywords(words)})"]


def _old_pool(case: Case) -> list[str]:
    text = code.tensorflow_pooling(case, pairs_of(case))
    if case.spatial_rank == 2:  # under this name in every release, and with sizes of four axes
        name, sizes = f"tf.nn.{case.op}", (case.kernel, case.stride)
        old = ", ".join(map(code.one_or_all, sizes))
        new = ", ".join(str([1, *size, 1]) for size in sizes)
        text = text.replace(f", {old}, padding", f", {new}, padding").replace(name, name[:-2])
    return list(lines(text))


SUM = (
    "product = tf.multiply(seen, w[k, c])",
    "y = product if y is None else tf.add(y, product)",
)
GRAPH_SUM = (
    "# subtracted, since grappler makes one AddN of a chain of additions",
    "product = tf.multiply(seen, w[k, c] if y is None else -w[k, c])",
    "y = product if y is None else tf.subtract(y, product)",
)


def by_hand(target: Target, case: Case, graph: bool) -> list[str]:
    """A tf.multiply and a tf.add for each product, in the order of the window."""
    if not case.operation.windows or case.pool:
        raise refuse(target, f"{case.label} with algorithm=elementwise")
    found, around = [], pairs_of(case)
    if any(map(any, around)):
        found.append(f"x = tf.pad(x, {[[0, 0], *map(list, around), [0, 0]]})")
    places = itertools.product(*map(range, case.kernel))
    starts = [tuple(i * d for i, d in zip(p, case.dilation, strict=True)) for p in places]
    letters = "ijk"[: case.spatial_rank]
    seen = ", ".join(
        f"{i} : {i} + {(n - 1) * s + 1} : {s}"
        for i, n, s in zip(letters, case.output_spatial(), case.stride, strict=True)
    )
    depth, each = case.group_channels, case.filters // case.groups
    several = case.groups > 1
    shape = [len(starts), depth, *([case.groups, each] if several else [case.filters])]
    channels = f"c::{depth}, None" if several else "c, None"
    found += [
        "y = None",
        f"w = tf.reshape(w, {shape})",
        f"for k, ({', '.join(letters)}{',' * (len(letters) == 1)}) in enumerate({starts}):",
        f"    for c in range({depth}):",
        f"        seen = x[:, {seen}, {channels}]",
        *[f"        {line}" for line in (GRAPH_SUM if graph else SUM)],
    ]
    outputs = [-1, *case.output_spatial(), case.filters]
    return found + [f"y = tf.reshape(y, {outputs})"] * several


def shaped(case: Case) -> str:
    """The expression of w in tf.nn's shape, of an array."""
    if case.op != "depthwise_conv2d":
        return flat(case)[1]
    multiplier = case.filters // case.in_channels
    return f"w.reshape({(*case.kernel, case.in_channels, multiplier)})"


def tensor(case: Case, value: str) -> str:
    """A tensor of an array."""
    if case.dtype == "bfloat16":
        return f"tf.cast(tf.constant({value}), tf.bfloat16)"
    return f"tf.constant({value})"


def _result(case: Case, y: str = "y") -> str:
    wide = f"tf.cast({y}, tf.float32)" if case.dtype == "bfloat16" else y
    return restored(case, f"{wide}.numpy()")


def _given(case: Case) -> list[str]:
    """Names of what is handed over."""
    return ["x", *(["w"] if case.weighted else []), *(["b"] if case.bias is not None else [])]


def _tensors(case: Case) -> list[str]:
    found = [f"x = {tensor(case, flat(case)[0])}"]
    found += [f"w = {tensor(case, shaped(case))}"] if case.weighted else []
    return found + ([f"b = {tensor(case, 'b')}"] if case.bias is not None else [])


def _biased(case: Case) -> list[str]:
    if case.bias is None:
        return []
    vector = case.op == "dot" and 1 in (case.length, case.filters)
    return ["y = y + b" if vector else "y = tf.nn.bias_add(y, b)"]


def eager(case: Case, computed: list[str]) -> tuple[str, ...]:
    """Eager tensors."""
    found = [*_tensors(case), *computed, *_biased(case), f"return {_result(case)}"]
    return tuple(found)


def in_function(
    case: Case, computed: list[str], switches: dict[str, str], version: str
) -> tuple[str, ...]:
    """A tf.function whose sizes are open; ``weights=constant``: only x is its argument."""
    constant = switches.get("weights") == "constant"
    given = ["x"] if constant else _given(case)
    signature = [f"tf.TensorSpec({shape}, {_dtype(case)})" for shape in _shapes(case)]
    options = f"input_signature=[{', '.join(signature[: len(given)])}]"
    if switches.get("xla") == "1":
        word = "jit_compile" if release(version) >= (2, 5) else "experimental_compile"
        options += f", {word}=True"
    found = ["", f"@tf.function({options})", f"def traced({', '.join(given)}):"]
    inner = [*computed, *_biased(case), "return y"]
    if constant:  # names of the outer function can't be assigned to in the inner one
        first = [f"weights, bias = {shaped(case) if case.weighted else 'None'}, b"]
        inner = [*_constants(case), *inner]
        found = first + found
    found += [f"    {line}" for line in inner]
    arguments = ", ".join(_arguments(case)[: len(given)])
    return (*found, "", f"y = traced({arguments})", f"return {_result(case)}")


def _constants(case: Case) -> list[str]:
    found = [f"w = {tensor(case, 'weights')}"] if case.weighted else []
    return found + ([f"b = {tensor(case, 'bias')}"] if case.bias is not None else [])


def _arguments(case: Case) -> list[str]:
    return [line.partition(" = ")[2] for line in _tensors(case)]


def _dtype(case: Case) -> str:
    return f"tf.{case.dtype}"


def _shapes(case: Case) -> list[tuple[int | None, ...]]:
    """Of the tensors that are fed: batch and sizes are open."""
    rank = 1 + case.spatial_rank
    kernel: tuple[int | None, ...] = (*case.kernel, case.group_channels, case.filters)
    if case.op == "depthwise_conv2d":
        kernel = (*case.kernel, case.in_channels, case.filters // case.in_channels)
    if case.op in ("matmul", "dot"):
        x, w = flat(case)
        rank = rank if x == "x" else x.count(",") * -1 + 1
        kernel = (case.in_channels,) if w.count(",") else (case.in_channels, case.filters)
    found: list[tuple[int | None, ...]] = [(*(None,) * rank, case.in_channels)]
    found += [kernel] if case.weighted else []
    return found + ([(case.filters,)] if case.bias is not None else [])


def in_session(target: Target, case: Case, computed: list[str]) -> tuple[str, ...]:
    """A graph with fed placeholders and a session; ``weights=constant``: only x is fed."""
    if case.op == "dot" or (case.op == "matmul" and case.batch > 1):
        raise refuse(target, f"{case.label} before 2.0")
    narrow = case.dtype == "bfloat16"
    constant = dict(target.switches).get("weights") == "constant"
    names, shapes, arrays = _given(case), _shapes(case), [flat(case)[0]]
    arrays += [shaped(case)] if case.weighted else []
    arrays += ["b"] if case.bias is not None else []
    fed = 1 if constant else len(names)
    inner = [f"{n} = {tensor(case, a)}" for n, a in zip(names[fed:], arrays[fed:], strict=True)]
    kind = f"tf.{literals.plain(case.dtype)}"
    shown = ", ".join(f"tf.placeholder({kind}, {shape})" for shape in shapes[:fed])
    used = "[tf.cast(one, tf.bfloat16) for one in fed]" if narrow else "fed"
    inner += [f"fed = [{shown}]", f"{', '.join(names[:fed]) if fed > 1 else '(x,)'} = {used}"]
    feeds = ", ".join(f"fed[{k}]: given[{k}]" for k in range(fed))
    inner += [*computed, *_biased(case), *["y = tf.cast(y, tf.float32)"] * narrow]
    inner.append("with tf.Session(config=config()) as session:")
    inner.append(f"    y = session.run(y, {{{feeds}}})")
    found = [f"given = [{', '.join(arrays[:fed])}]"]
    found.append('with tf.Graph().as_default(), tf.device("/cpu:0"):')
    return (*found, *(f"    {line}" for line in inner), f"return {restored(case, 'y')}")


def configured(target: Target, version: str, session: bool) -> tuple[str, ...]:
    """Threads, determinism, device; before 2.0 the function ``config``."""
    switches = dict(target.switches)
    if session or release(version) < (2, 0):
        found = [
            "",
            "def config():",
            OPTIONS,
            "    found = tf.ConfigProto(allow_soft_placement=True)",
        ]
        if "threads" in switches:
            found.append(f"    found.intra_op_parallelism_threads = {switches['threads']}")
            found.append("    found.inter_op_parallelism_threads = 1")
        if switches.get("xla") == "1":
            level = "tf.OptimizerOptions.ON_1"
            found.append(f"    found.graph_options.optimizer_options.global_jit_level = {level}")
        found.append("    return found")
        if not session:
            found += ["", "", "tf.enable_eager_execution(config=config())"]
        return tuple(found)
    found = []
    if "threads" in switches:
        found.append(f"tf.config.threading.set_intra_op_parallelism_threads({switches['threads']})")
        found.append("tf.config.threading.set_inter_op_parallelism_threads(1)")
    if switches.get("deterministic") == "1" and release(version) >= (2, 9):
        found += ["tf.random.set_seed(1)", "tf.config.experimental.enable_op_determinism()"]
    if target.device.startswith("gpu"):
        number = target.device.partition(":")[2]
        gpus = 'tf.config.list_physical_devices("GPU")'
        found.append(f'tf.config.set_visible_devices({gpus}[{number}], "GPU")')
    return tuple(found)

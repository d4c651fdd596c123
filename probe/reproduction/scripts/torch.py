"""PyTorch: torch.nn.functional on contiguous channels-first tensors."""

from __future__ import annotations

from probe.backends import torch_products
from probe.backends.products import OPS
from probe.case import Case
from probe.case.operators import OPERATORS
from probe.comparison import Arrays
from probe.reproduction.scripts.contract import Library, flat, lines, pairs_of, restored
from probe.target import Target
from probe.window import code


def library(target: Target, version: str, case: Case, operands: Arrays) -> Library:
    """How a script computes ``case``."""
    where = "" if target.device == "cpu" else f', device="{target.device}"'
    imports: tuple[str, ...] = ("import torch", "import torch.nn.functional as F")
    body = product(target, case, where) if case.op in OPS else convolution(case, where)
    if case.op in OPS:
        imports = imports[: 1 + ("F." in "".join(body))]
    return Library("PyTorch", "torch.__version__", imports, body, configured(target), ("torch",))


def tensor(case: Case, value: str, where: str) -> str:
    """A tensor of its own of an array; PyTorch's memory is aligned, NumPy's may not be."""
    kind = ", dtype=torch.bfloat16" if case.dtype == "bfloat16" else ""
    return f"torch.tensor({value}{kind}{where})"


def array(case: Case, where: str) -> str:
    """The array of y."""
    wide = ".float()" if case.dtype == "bfloat16" else ""
    return f"y{'.cpu()' * bool(where)}{wide}.numpy()"


def convolution(case: Case, where: str) -> tuple[str, ...]:
    """F.conv or F's pooling, channels first."""
    # a view with one channel has strides that tell PyTorch another memory format; a copy has not
    found = ["x = np.moveaxis(x, -1, 1).copy()", f"x = {tensor(case, 'x', where)}"]
    pool = OPERATORS[case.op].pool
    text = (code.POOLING if pool else code.CONVOLUTIONS)["torch"](case, pairs_of(case))
    if not pool:
        found.append("w = np.moveaxis(w, (-1, -2), (0, 1)).copy()")
        found.append(f"w = {tensor(case, 'w', where)}")
    if case.bias is not None:
        found.append(f"b = {tensor(case, 'b', where)}")
        text = text.replace("(x, w,", "(x, w, b,")
    found += lines(text)
    return (*found, f"return np.moveaxis({array(case, where)}, 1, -1)")


def product(target: Target, case: Case, where: str) -> tuple[str, ...]:
    """torch.matmul, F.linear or torch.sum."""
    linear = torch_products.is_linear(case.spec(), dict(target.switches))
    x, w = flat(case)
    found = [f"x = {tensor(case, x, where)}"]
    if case.op == "sum":
        return (*found, "y = torch.sum(x, -1)", f"return {restored(case, array(case, where))}")
    w = f"{w}.T.copy()" if linear else w
    found.append(f"w = {tensor(case, w, where)}")
    if case.bias is not None:
        found.append(f"b = {tensor(case, 'b', where)}")
    if linear:
        found.append("y = F.linear(x, w" + ", b" * (case.bias is not None) + ")")
    else:
        found.append("y = torch.matmul(x, w)" + " + b" * (case.bias is not None))
    return (*found, f"return {restored(case, array(case, where))}")


def configured(target: Target) -> tuple[str, ...]:
    """The switches that are not variables."""
    switches = dict(target.switches)
    texts = {
        "threads": "torch.set_num_threads({})",
        "mkldnn": "torch.backends.mkldnn.set_flags({})",
        "deterministic": "torch.use_deterministic_algorithms({})",
        "tf32": "torch.backends.cudnn.allow_tf32 = {}",
        "benchmark": "torch.backends.cudnn.benchmark = {}",
    }
    flags = {"0": "False", "1": "True"}
    found = ["torch.set_grad_enabled(False)"]
    for name, text in texts.items():
        if name in switches:
            value = switches[name]
            found.append(text.format(value if name == "threads" else flags[value]))
    return tuple(found)

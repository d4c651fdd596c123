"""PyTorch's matrix products and sums: ``torch.matmul``, ``F.linear`` and ``torch.sum``.

``torch.matmul`` is ``torch.mm`` on two matrices, ``torch.mv`` and ``torch.dot`` where ``dot`` hands
over vectors, and on a stack of matrices one ``mm`` of all their rows. ``F.linear`` keeps w as
(filters, in_channels) and takes the bias with it, as layers do: that is the default with a bias,
and what ``dense`` means.
"""

from probe.backends.contract import Unsupported


def is_linear(spec, switches):
    """Whether ``F.linear`` computes this spec."""
    if "linear" not in switches:
        return spec["op"] == "dense" or (spec["op"] == "matmul" and spec["bias"])
    if switches["linear"] == "1" and spec["op"] not in ("matmul", "dense"):
        raise Unsupported(f"op={spec['op']}: linear=1 is for matmul and dense")
    return switches["linear"] == "1"


def operator(torch, spec, linear):
    """f(x, w, b) for a spec."""
    if spec["op"] == "sum":
        return lambda x, w, b: torch.sum(x, -1)
    if linear:
        return torch.nn.functional.linear
    matmul = torch.matmul
    return lambda x, w, b: matmul(x, w) if b is None else matmul(x, w) + b

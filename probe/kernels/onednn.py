"""The source ``onednn-verbose``: the primitives that oneDNN logs while it executes a call.

Source: oneDNN developer guide, "Verbose Mode". Its lines, from the present to the past::

    onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,...   3.3 on
    onednn_verbose,primitive,exec,cpu,convolution,jit:avx2,...                      3.1
    onednn_verbose,exec,cpu,convolution,jit:avx2,...                                2.0
    dnnl_verbose,exec,cpu,convolution,jit:avx2,...                                  1.0
    mkldnn_verbose,exec,convolution,jit:avx2,...                                    0.x
"""

from __future__ import annotations

import re

from probe import backends
from probe.kernels.question import KEY, Kernel, Question
from probe.launch import Session
from probe.target import Target

SOURCE = "onednn-verbose"

TALK = {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1", "MKLDNN_VERBOSE": "1"}
"""The variable under its present name and those before oneDNN 2.0 and 1.0."""

SILENT = "oneDNN printed nothing: the operator did not go through it"

_EXECUTED = re.compile(
    r"(?:onednn|dnnl|mkldnn)_verbose,(?:[\w.]+,){0,3}?exec,(?:[cg]pu\d*,)?"
    r"(?P<primitive>[a-z]\w*),(?P<implementation>[\w:+.-]*),"
)


def applies(target: Target) -> bool:
    """Whether the library carries oneDNN: then it has the switch ``isa``."""
    return "isa" in backends.get(target.name).keys


def observe(question: Question) -> Kernel:
    """Runs the call once in a process that logs. Errors: TargetError."""
    with question.session(TALK) as session:
        return logged(session)


def logged(session: Session) -> Kernel:
    """What the process logs as it runs the loaded call once; it was started with ``TALK``."""
    mark = session.mark()
    session.request({"do": "run", "key": KEY})
    return Kernel.of(SOURCE, primitives(session.stderr_since(mark)), SILENT)


def primitives(log: str) -> list[str]:
    """Every executed primitive as ``convolution brg_conv_fwd:avx512_core``, in order.

    The matrix product that TensorFlow calls inside Eigen's is ``gemm_api``, without an
    implementation. Lines of another kind (info, create, the library's own log) are passed over.
    """
    found = _EXECUTED.finditer(log)
    return [f"{one['primitive']} {one['implementation']}".strip() for one in found]

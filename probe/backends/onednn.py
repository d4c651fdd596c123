"""Limits the instructions that oneDNN uses: names, variables, and the CPU flags they need.

TensorFlow and PyTorch both carry oneDNN, which reads these variables once, when it is loaded.
Source: oneDNN developer guide, "CPU dispatcher control". Eigen's and XLA's kernels ignore them.
"""

from probe.backends.contract import Key

#: Limit -> the flags of /proc/cpuinfo that a CPU must have for the limit to be the one in effect.
ISA = {
    "sse41": ("sse4_1",),
    "avx": ("avx",),
    "avx2": ("avx2", "fma"),
    "avx2_vnni": ("avx2", "fma", "avx_vnni"),
    "avx512_core": ("avx512f", "avx512bw", "avx512vl", "avx512dq"),
    "avx512_core_vnni": ("avx512f", "avx512_vnni"),
    "avx512_core_bf16": ("avx512f", "avx512_vnni", "avx512_bf16"),
    "avx512_core_fp16": ("avx512f", "avx512_bf16", "avx512_fp16"),
    "avx512_core_amx": ("avx512f", "amx_tile", "amx_int8", "amx_bf16"),
}

#: The ``isa`` switch of every target that carries oneDNN.
KEY = Key(tuple(ISA), "the best this CPU has", "newest instructions that oneDNN may use")


def isa_variables(switches):
    """Returns the variables of the ``isa`` switch: today's name, and the one before oneDNN 2.1."""
    if "isa" not in switches:
        return {}
    limit = switches["isa"].upper()
    return {"ONEDNN_MAX_CPU_ISA": limit, "DNNL_MAX_CPU_ISA": limit}

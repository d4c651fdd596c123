"""What the library itself says it ran: logs as they were recorded, and the real thing.

Recorded with TensorFlow 2.21 (oneDNN 3.7) on an AMD EPYC with AVX-512.
"""

from importlib import util

import pytest

from probe.case.case import Case
from probe.case.errors import TargetError
from probe.explain import kernels
from probe.explain.kernels import Kernel
from probe.targets.backends.reference import Reference
from probe.targets.launch import InlineSession
from probe.targets.target import Target

CASE = Case(op="conv1d", kernel=5, in_channels=64, filters=1, length=64)

HEAD = """onednn_verbose,v1,info,oneDNN v3.7.3 (commit N/A)
onednn_verbose,v1,info,cpu,runtime:threadpool,nthr:2
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind
"""
CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,"
    "src:f32::blocked:acdb::f0 wei:f32::blocked:cdba::f0 bia:undef::undef::: "
    "dst:f32::blocked:abcd::f0,attr-scratchpad:user,alg:convolution_direct,"
    "mb1_ic64oc1_ih1oh1kh1sh1dh0ph0_iw5ow1kw5sw1dw0pw0,0.0241699\n"
)
GEMM_API = (
    "onednn_verbose,v1,primitive,exec,cpu,gemm_api,,undef,src_f32::blocked:ab:f0 "
    "wei_f32::blocked:ab:f0 dst_f32::blocked:ab:f0,,,2x320:320x1,5.64185\n"
)
REORDER = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:acdb::f0,,\n"


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (HEAD, []),
        (HEAD + CONVOLUTION, ["convolution brg_conv_fwd:avx512_core"]),
        ("I0000 00:00 a warning " + GEMM_API, ["gemm_api"]),
        (REORDER + CONVOLUTION, ["reorder jit:uni", "convolution brg_conv_fwd:avx512_core"]),
        (
            "onednn_verbose,primitive,exec,cpu,matmul,gemm:jit,undef,src_f32,,,2x3:3x4,0.1",
            ["matmul gemm:jit"],
        ),
        (
            "dnnl_verbose,exec,cpu,convolution,gemm:jit,forward_training,src_f32,",
            ["convolution gemm:jit"],
        ),
        ("mkldnn_verbose,exec,convolution,jit:avx2,forward,fsrc:,", ["convolution jit:avx2"]),
        ("mkldnn_verbose,create,convolution,jit:avx2,forward,fsrc:,", []),
    ],
)
def test_executed_primitives_are_read_from_every_release_s_log(log, found):
    assert kernels.primitives(log) == found


def inline(target, extra=None):
    return InlineSession(target)


def test_a_target_that_fails_is_missing_and_no_error(monkeypatch):
    def failing(target, extra=None):
        raise TargetError("tensorflow", "crash", "exit status 1", "/srv/ada: core dumped")

    monkeypatch.setattr(kernels, "Session", failing)
    found = kernels.observe(Target.parse("tensorflow"), CASE, at=7)
    assert found == [
        Kernel("onednn-verbose", None, "the target failed (crash) when it was queried")
    ]


def test_a_library_that_can_be_asked_names_its_own_sources(monkeypatch):
    def answer(self, spec, shapes):
        return {"backend-choice": [f"{spec['op']} of {shapes['x'][1]}"], "other": []}

    monkeypatch.setattr(kernels, "Session", inline)
    reference = Target.parse("reference")
    assert kernels.observe(reference, CASE) == []
    monkeypatch.setattr(Reference, "kernels", answer)
    found = kernels.observe(reference, CASE, at=9)
    none = "the library reports no kernel"
    named = [("backend-choice", "conv1d of 9", None), ("other", None, none)]
    assert [kernel[:3] for kernel in found] == named
    assert kernels.by_source(found) == {"backend-choice": ["conv1d of 9"], "other": [f"({none})"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tensorflow,onednn=1", "convolution "),
        # Eigen works alone, without oneDNN
        ("tensorflow,onednn=0,contraction=0", None),
    ],
)
def test_onednn_names_its_convolution_and_is_silent_where_it_is_not_used(text, named):
    if util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed here")
    found = kernels.observe(Target.parse(text), CASE, at=6)[0]
    assert found.source == "onednn-verbose"
    if named is None:
        assert found.kernel is None and found.missing == kernels.SILENT
    else:
        assert found.kernel.startswith(named)


# ruff: noqa: E501
LOG = """\
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:abcd::f0 dst:f32::blocked:aBcd16b::f0,,,2x8,1
onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx512_core,forward_training,src:f32:a:blocked:aBcd16b::f0 wei:f32:ap:blocked:ABcd16b16a::f0 bia:f32:a:blocked:a::f0 dst:f32:ap:blocked:aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,mb2_ic16oc8_ih1oh1kh1sh1dh0ph0_iw40ow36kw5sw1dw0pw0,6
onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,src:f32::blocked:acdb::f0 wei:f32::blocked:cdba::f0 bia:undef::undef::: dst:f32::blocked:acdb::f0,attr-scratchpad:user,alg:convolution_direct,mb1_ic16oc32_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1,7
onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,src:bf16::blocked:ab::f0 wei:bf16::blocked:ba::f0 bia:bf16::blocked:ab::f0_mask2 dst:bf16::blocked:ab::f0,attr-scratchpad:user,,5x64:64x8,3
onednn_verbose,v1,primitive,exec,cpu,gemm_api,,undef,src_f32::blocked:ab:f0 wei_f32::blocked:ab:f0 dst_f32::blocked:ab:f0,,,5x64:64x8,38
"""


def test_the_log_becomes_commands_of_benchdnn():
    shape = "mb2_ic16oc8_ih1oh1kh1sh1dh0ph0_iw40ow36kw5sw1dw0pw0"
    other = "mb1_ic16oc32_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1"
    tail = "--attr-scratchpad=user"
    assert kernels.benchdnn(LOG + LOG) == [
        "benchdnn --conv --dir=FWD_B --dt=f32:f32:f32 --stag=any --wtag=any --dtag=any "
        f"{tail} --alg=direct {shape}",
        "benchdnn --conv --dir=FWD_D --dt=f32:f32:f32 --stag=acdb --wtag=cdba --dtag=acdb "
        f"{tail} --alg=direct {other}",
        "benchdnn --matmul --dt=bf16:bf16:bf16 --bia-dt=bf16 --bia_mask=2 --stag=ab --wtag=ba "
        f"--dtag=ab {tail} 5x64:64x8",
    ]
    assert kernels.benchdnn("nothing\nonednn_verbose,exec,cpu,convolution,jit:avx2,a,b\n") == []

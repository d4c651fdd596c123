"""What the library itself says it ran: logs and samples as they were recorded, and the real thing.

Recorded with TensorFlow 2.21 (oneDNN 3.7) and perf 6.1 on an AMD EPYC with AVX-512.
"""

import platform
import shutil
from contextlib import contextmanager
from importlib import util

import pytest

from probe.case import schema
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.explain import kernels
from probe.explain.kernels import KEY, Kernel, KernelQuestion
from probe.targets.backends.reference import Reference
from probe.targets.launch import InlineSession
from probe.targets.target import Target

CASE = Case(op="conv1d", kernel=5, in_channels=64, filters=1, length=64)
TENSORFLOW = Target.parse("tensorflow")

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


def test_names_are_unique_and_in_order():
    twice = kernels.primitives(REORDER + CONVOLUTION + CONVOLUTION + REORDER)
    found = Kernel.of("onednn-verbose", twice, "nothing")
    assert found.names == ("reorder jit:uni", "convolution brg_conv_fwd:avx512_core")
    assert found.missing is None


def test_nothing_to_name_is_null_with_a_reason():
    assert Kernel.of("onednn-verbose", [], kernels.SILENT)[:3] == (
        "onednn-verbose",
        None,
        kernels.SILENT,
    )


MAPPER = "Eigen::internal::TensorContractionInputMapper<float, long, 1, Eigen::array<long, 1ul> >"


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (
            f"Eigen::internal::general_matrix_vector_product<long, float, {MAPPER}, 1, false, 0>::"
            f"run(long, long, {MAPPER} const&, float*, long, float)",
            "Eigen::internal::general_matrix_vector_product",
        ),
        (
            "Eigen::internal::gebp_kernel<float, float, long, Eigen::internal::blas_data_mapper"
            "<float, long, 0, 0, 1>, 8, 4, false, false>::operator()(float const*, long) const",
            "Eigen::internal::gebp_kernel",
        ),
        (
            "void Eigen::internal::gemm_pack_colmajor_block<float, long>(float*, long)",
            "Eigen::internal::gemm_pack_colmajor_block",
        ),
        (
            "std::_Function_handler<void (int, int), dnnl::impl::cpu::x64::brgemm_convolution_fwd_t"
            "<(dnnl::impl::cpu::x64::cpu_isa_t)880>::execute(dnnl::impl::exec_ctx_t const&) const::"
            "{lambda(int, int)#1}>::_M_invoke(std::_Any_data const&, int&&, int&&)",
            "dnnl::impl::cpu::x64::brgemm_convolution_fwd_t::execute",
        ),
        (
            "tensorflow::(anonymous namespace)::Buffer<float>::~Buffer()",
            "tensorflow::Buffer::~Buffer",
        ),
        ("std::ostream& std::operator<< <char>(std::ostream&, char)", "std::operator<<"),
        ("dnnl_sgemm", "dnnl_sgemm"),
        ("", ""),
    ],
)
def test_a_symbol_is_shortened_to_what_a_reader_knows(full, short):
    assert kernels.shorten(full) == short


def test_generated_code_has_one_name_whatever_its_process():
    places = ("[JIT] tid 17854", "//anon", "memfd:x (deleted)", "perf-12.map", "anon_inode:[x]")
    assert {kernels.readable("0x00007f4a6c1bb000", place) for place in places} == {"jit"}


def test_generated_code_that_onednn_named_keeps_the_name_without_its_number():
    found = kernels.readable("jit_avx512_core_f32_copy_an_kern.0", "[JIT] tid 17854")
    assert found == "jit_avx512_core_f32_copy_an_kern"


REPORT = "\n".join(
    (
        "3528       \tlibpython3.11.so.1.0   \t[.] _PyEval_EvalFrameDefault",
        "123        \tlibtensorflow_framework.so.2\t[.] _ZN10tensorflow6Tensor3runEv",
        "13         \tlibtensorflow_cc.so.2  \t[.] _ZN5Eigen8internal11gebp_kernelIfEclEv",
        "4          \tlibtensorflow_cc.so.2  \t[.] _ZN5Eigen8internal11gebp_kernelIdEclEv",
        "1          \t/opt/x/libtensorflow_cc.so.2\t[.] _ZN5Eigen8internal9packed_atEv",
        "9          \t[JIT] tid 17854        \t[.] 0x00007f4a6c1bb000",
        "5          \tlibtensorflow_cc.so.2  \t[.] 0x0000000033877c30",
        "7          \tlibtensorflow_cc.so.2  \t[.] _ZN5Eigen4PoolC1Ev",
        "",
    )
)


def test_a_report_is_counted_by_readable_names():
    if kernels.demangle("_ZN1a1bEv") != "a::b()":
        pytest.skip("libstdc++, which demangles, is not on this machine")
    found = kernels.numerical(REPORT)
    assert found == {"Eigen::internal::gebp_kernel": 17, "jit": 9, "Eigen::internal::packed_at": 1}
    assert kernels.top(found) == ["Eigen::internal::gebp_kernel", "jit"]


def test_too_few_samples_name_nothing():
    assert kernels.top(kernels.numerical("4\t[JIT] tid 1\t[.] 0x0")) == []
    assert kernels.top(kernels.numerical("")) == []


@pytest.mark.parametrize(
    "said",
    [
        "Error: No permission to enable cpu-clock:u event. /srv/ada/x pid 17",
        "Access to performance monitoring is limited; see perf_event_paranoid",
        "WARNING: perf not found for kernel 6.1.0-17",
        "something else at /srv/ada/x, pid 17",
    ],
)
def test_a_refusal_is_said_in_one_line_of_ours(said):
    why = kernels.refusal(255, said)
    assert why and "ada" not in why and "17" not in why and "\n" not in why


def test_without_perf_the_column_says_so(monkeypatch):
    monkeypatch.setattr(kernels.sys, "platform", "linux")
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    found = kernels.observe(TENSORFLOW, CASE, sources=["symbols"])
    assert found == [Kernel("symbols", None, "perf is not installed; Debian: linux-perf")]
    monkeypatch.setattr(kernels.sys, "platform", "darwin")
    assert (
        kernels.sampled_symbols(KernelQuestion(TENSORFLOW, CASE)).missing
        == "perf samples on Linux only"
    )


def test_a_target_that_fails_is_missing_and_no_error(monkeypatch):
    def failing(question):
        raise TargetError("tensorflow", "crash", "exit status 1", "/srv/ada: core dumped")

    source = kernels.KernelSource(lambda target: True, failing)
    monkeypatch.setitem(kernels.SOURCES, "symbols", source)
    found = kernels.observe(TENSORFLOW, CASE, sources=["symbols"])
    assert found == [Kernel("symbols", None, "the target failed (crash) when it was queried")]


def test_a_new_source_is_an_entry_of_the_registry(monkeypatch):
    seen = []

    def dump(question):
        seen.append(question.case.length)
        return Kernel.of("xla-dump", ["fusion", "fusion", "dot"], "no dump")

    source = kernels.KernelSource(lambda target: target.name == "tensorflow", dump)
    monkeypatch.setitem(kernels.SOURCES, "xla-dump", source)
    (found,) = kernels.observe(TENSORFLOW, CASE, at=7, sources=["xla-dump"])
    assert found.names == ("fusion", "dot") and seen == [7]
    assert kernels.observe(Target.parse("reference"), CASE, sources=["xla-dump"]) == []


def test_a_library_that_can_be_asked_names_its_own_sources(monkeypatch):
    def answer(self, spec, shapes):
        return {"backend-choice": [f"{spec['op']} of {shapes['x'][1]}"], "other": []}

    @contextmanager
    def inline(question, extra=None):
        x, w, _ = question.case.operands()
        with InlineSession(question.target) as session:
            load = {"do": "load", "key": KEY, "spec": question.case.spec()}
            session.request(load, {"x": x, "w": w})
            yield session

    monkeypatch.setattr(KernelQuestion, "session", inline)
    reference = Target.parse("reference")
    assert kernels.observe(reference, CASE) == []
    monkeypatch.setattr(Reference, "kernels", answer)
    found = kernels.observe(reference, CASE, at=9)
    none = "the library reports no kernel"
    named = [("backend-choice", "conv1d of 9", None), ("other", None, none)]
    assert [kernel[:3] for kernel in found] == named
    assert kernels.by_source(found) == {"backend-choice": ["conv1d of 9"], "other": [f"({none})"]}


def test_rows_have_the_columns_of_the_table():
    place = {"run_id": "0", "case_id": "1", "target": "tensorflow", "vary": "length", "at": 5}
    (row,) = kernels.kernel_rows(place, [Kernel("symbols", "jit")])
    assert list(row) == schema.column_names("kernels")


def test_wrong_arguments_are_the_user_s_errors():
    with pytest.raises(InputError, match="source=nonsense"):
        kernels.observe(TENSORFLOW, CASE, sources=["nonsense"])


def observed(text, at, source):
    if util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed here")
    if source == "symbols" and shutil.which("perf") is None:
        pytest.skip(kernels.NOT_INSTALLED)
    (found,) = kernels.observe(Target.parse(text), CASE, at=at, sources=[source])
    if found.kernel is None and found.missing.startswith("perf"):
        pytest.skip(found.missing)
    return found


@pytest.mark.slow
def test_onednn_names_its_convolution():
    found = observed("tensorflow,onednn=1", 6, "onednn-verbose")
    assert found.kernel.startswith("convolution ")


@pytest.mark.slow
def test_onednn_is_silent_where_eigen_works_alone():
    found = observed("tensorflow,onednn=0,contraction=0", 6, "onednn-verbose")
    assert found[:3] == ("onednn-verbose", None, kernels.SILENT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "at", "names"),
    [
        ("tensorflow,onednn=0", 5, ["general_matrix_vector_product"]),
        ("tensorflow,onednn=0", 6, ["gemm_pack_colmajor_block", "dnnl_gemm_kernel"]),
        ("tensorflow,onednn=0,contraction=0", 6, ["gebp_kernel"]),
    ],
)
def test_the_kernel_behind_the_length_is_sampled(text, at, names):
    """Names of x86 kernels, one at least; the library's own contraction calls others elsewhere."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip(f"this is {platform.machine()}, and these kernels are x86's")
    sampled = observed(text, at, "symbols").names
    assert any(f"Eigen::internal::{name}" in sampled for name in names)


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

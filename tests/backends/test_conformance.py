"""Every backend that is installed gives the exact result, and says what it refuses.

Each target is one child process. Bits in the tests marked ``golden`` are facts
about TensorFlow 2.21.0 on x86-64 with AVX-512 VNNI (first seen on an AMD EPYC, Zen 5).
"""

from __future__ import annotations

import numpy as np
import pytest

from probe import backends, floats, launch, target
from probe.backends import conformance, rewritten
from probe.backends.arrays import Arrays
from probe.backends.contract import Backend, Key, Unsupported
from probe.backends.source import ValueShapes
from probe.backends.tensorflow import TensorFlow, error_line
from probe.case import Case
from probe.comparison import outputs_of_call
from probe.errors import InputError, TargetError
from probe.operation import case_program, layer_program
from probe.target import Target
from tests.backends import conforming

pytestmark = pytest.mark.long

WEIGHTS = [-0.7313, -1.1043, 1.8492, 1.3007, -0.1033]


@pytest.fixture(scope="module")
def ask():
    """ask(target text): ``run(spec, x, w, b)`` of a child process; skips if it can't run.

    The last four children are kept.
    """
    sessions: dict[str, launch.Session] = {}

    def run_of(text):
        if why := target.why_unavailable(Target.parse(text)):
            pytest.skip(f"{text}: {why}")
        if text not in sessions:
            for oldest in list(sessions)[: max(len(sessions) - 3, 0)]:
                sessions.pop(oldest).close()
            sessions[text] = launch.Session(Target.parse(text)).start()
        return conformance.asking(sessions[text])

    run_of.sessions = sessions
    yield run_of
    for session in sessions.values():
        session.close()


def wrong(findings):
    return [found for found in findings if found.verdict == "wrong"]


def refused(findings):
    """What was refused, in one form for each kind of spec."""
    specs = [found.spec for found in findings if found.verdict == "unsupported"]
    return {
        (spec["op"], max(spec["stride"]) > 1, max(spec["dilation"]) > 1, spec["groups"])
        for spec in specs
    }


@pytest.mark.parametrize("name", backends.known_backends())
def test_a_backend_describes_itself_without_its_library(name):
    backend = backends.get(name)
    assert issubclass(backend, Backend) and backend.name == name
    assert backend.distributions and backend.module and backend.doc and "cpu" in backend.devices
    for key in backend.keys.values():
        assert isinstance(key, Key) and key.doc and key.default and key.describe()


def test_an_unknown_backend_is_an_error_that_lists_the_known():
    with pytest.raises(KeyError, match="theano is none of: tensorflow"):
        backends.get("theano")


def test_the_expected_outputs_are_those_of_a_convolution_written_down_by_hand():
    spec = conformance.spec("conv1d", [3], in_channels=2, padding="same", stride=[2], bias=True)
    x = np.array([1, 10, 2, 20, 3, 30, 4, 40]).reshape(1, 4, 2)
    w = np.array([1, 0, 0, 1, 2, 0]).reshape(3, 2, 1)
    # ceil(4 / 2) = 2 outputs, one zero is missing: it goes after the input.
    expected = [[1 + 20 + 2 * 3 + 5], [3 + 40 + 0 + 5]]
    assert conformance.exact_outputs(spec, x, w, np.array([5])).tolist() == [expected]


def test_a_wrong_backend_is_found_out_and_told_where():
    def off_by_one(spec, x, w, b):
        y = conformance.exact_outputs(spec, *conformance.integer_operands(spec, [9], 2)[:2], b)
        y[1, 2, 0] += 1
        return floats.round_to(y.astype(float), "float32")

    spec = conformance.spec("conv1d", [3])
    found = conformance.compare_spec(spec, [9], 2, off_by_one)
    assert found.verdict == "wrong" and "out[1, 2, 0]=" in found.detail
    short = conformance.compare_spec(spec, [9], 2, lambda *given: off_by_one(*given)[:, 1:])
    assert "float32[2, 6, 1], expected float32[2, 7, 1]" in short.detail


def test_a_backend_that_changes_its_mind_is_found_out():
    calls = []

    def drifting(spec, x, w, b):
        calls.append(0)
        return np.full((1, 7, 1), len(calls), np.float32)

    found = conformance.compare_spec(conformance.spec("conv1d", [3]), [9], 1, drifting)
    assert found.detail == "the same call gave different bits"


def test_small_integers_stay_exact_in_every_format():
    for spec, sizes, batch in conformance.specs(("float16", "bfloat16")):
        x, w, b = conformance.integer_operands(spec, sizes, batch)
        largest = conformance.exact_outputs(
            spec, abs(x), abs(w), None if b is None else abs(b)
        ).max()
        assert largest <= 2 ** floats.FORMATS[spec["dtype"]].precision


def test_scipy_conforms_and_refuses_what_it_has_not(ask):
    findings = conformance.check(ask("scipy"))
    assert not wrong(findings)
    agreed = {found.spec["op"] for found in findings if found.verdict == "agrees"}
    assert {"conv1d", "conv2d", "matmul", "dense"} <= agreed
    unsupported = [found.spec for found in findings if found.verdict == "unsupported"]
    convolutions = [one for one in unsupported if one["op"] == "conv1d"]
    for name in ("stride", "dilation"):
        assert any(set(one[name]) != {1} for one in convolutions)
    assert any(one["groups"] > 1 for one in convolutions)


def test_a_processors_kernels_that_openblas_lacks_are_not_taken_for_another_ones():
    with pytest.raises(InputError, match="leave one of the two out"):
        Target.parse("numpy,core=Haswell,isa=avx2")
    session = launch.Session(Target.parse("numpy,core=VORTEX"))
    with pytest.raises(TargetError, match=r"core=VORTEX: .*no (such kernels|OpenBLAS)"):
        session.start()
    session.close()


def test_levels_of_numpys_own_loops_disable_what_is_above_them():
    variables = Arrays.environment({"cpu": "x86_v3"}, "cpu")["NPY_DISABLE_CPU_FEATURES"].split()
    assert {"X86_V4", "AVX512F", "AVX512_SPR"} <= set(variables)
    assert not {"AVX2", "X86_V3", "FMA3"} & set(variables)


@pytest.mark.slow
def test_reference_conforms_and_refuses_nothing(ask):
    findings = conformance.check(ask("reference"))
    assert {found.verdict for found in findings} == {"agrees"}


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ("tensorflow", conformance.DTYPES),
        ("tensorflow,onednn=0", ("float32", "float16")),
        ("tensorflow,onednn=0,contraction=0", ("float32",)),
        ("keras", ("float32",)),
    ],
)
@pytest.mark.slow
def test_tensorflow_and_keras_conform(ask, text, dtypes):
    findings = conformance.check(ask(text), dtypes)
    assert not wrong(findings)
    assert {found.verdict for found in findings} == {"agrees", "unsupported"}


@pytest.mark.parametrize(
    "text",
    [
        "tensorflow,mode=graph",
        "tensorflow,xla=1",
        "tensorflow,weights=constant",
        "keras,mode=graph",
    ],
)
@pytest.mark.slow
def test_graphs_conform(ask, text):
    run = ask(text)
    chosen = list(conformance.specs(("float32", "bfloat16")))[::9]
    assert not wrong([conformance.compare_spec(*one, run) for one in chosen])


@pytest.mark.slow
def test_what_tensorflow_refuses_on_a_cpu_is_known(ask):
    findings = conformance.check(ask("tensorflow"), ("float32",))
    known = {
        ("conv3d", False, False, 2),  # groups
        ("conv3d", True, True, 1),  # strides and dilations
        ("depthwise_conv2d", True, True, 3),
        ("depthwise_conv2d", True, False, 3),  # unlike strides, where oneDNN is off
    }
    assert refused(findings) <= known


def test_a_refusal_is_one_line_that_says_why(ask):
    run = ask("tensorflow,onednn=0")
    spec = conformance.spec("conv3d", [2, 2, 2], in_channels=4, filters=6, groups=2)
    found = conformance.compare_spec(spec, [3, 3, 5], 1, run)
    assert found.verdict == "unsupported"
    assert "TensorFlow refuses: " in found.detail and "\n" not in found.detail
    assert "{{" not in found.detail and "/" not in found.detail.split("refuses")[1]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("{{function_node f}} No such stride. [Op:Conv3D] name: ", "No such stride."),
        ("in user code:\n\n    File x, line 1\n\n    ValueError: bad rank\n", "bad rank"),
        ("Exception encountered when calling Conv1D.call().\n\n\x1b[1mToo few\x1b[0m", "Too few"),
        ("Graph execution error:\n\nDetected at\nNot here\n\t [[{{node a}}]] [Op:f]", "Not here"),
        (
            "Graph execution error:\n\nNode: 'a'\nToo deep\n\nOriginal stack trace for a:\n  File",
            "Too deep",
        ),
        ("", "ValueError"),
    ],
)
def test_one_line_of_a_librarys_error(message, line):
    assert error_line(ValueError(message)) == line


@pytest.mark.slow
def test_facts_say_version_device_threads_and_whether_onednn_is_on(ask):
    ask("tensorflow,onednn=0")
    facts = ask.sessions["tensorflow,onednn=0"].facts
    assert facts["library"] == "tensorflow" and facts["library_version"].count(".") == 2
    assert facts["devices"] == ["cpu"] and facts["threads"] is None
    assert facts["onednn"] is False and facts["mode"] == "eager"


@pytest.mark.slow
def test_constant_weights_are_rebuilt_for_new_weights(ask):
    run = ask("tensorflow,weights=constant")
    spec = conformance.spec("conv1d", [2], bias=True)
    x, one = np.arange(4, dtype=np.float32).reshape(1, 4, 1), np.ones((2, 1, 1), np.float32)
    bias = np.array([1], np.float32)
    assert run(spec, x, one, bias).ravel().tolist() == [2, 4, 6]
    assert run(spec, x, 2 * one, bias).ravel().tolist() == [3, 7, 11]
    assert run(spec, x, 2 * one, 0 * bias).ravel().tolist() == [2, 6, 10]


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_unavailable(monkeypatch):
    if why := target.why_unavailable(Target.parse("tensorflow")):
        pytest.skip(why)
    monkeypatch.setattr(target, "gpus", lambda: 9)
    session = launch.Session(Target.parse("tensorflow@gpu:8"))
    with pytest.raises(TargetError) as caught:
        session.start()
    session.close()
    assert caught.value.kind == "unavailable" and "gpu:8" in str(caught.value)


def test_the_environment_says_the_switches():
    switches = {"onednn": "0", "contraction": "0", "isa": "avx512_core", "deterministic": "1"}
    assert TensorFlow.environment(switches, "cpu").items() >= {
        ("TF_ENABLE_ONEDNN_OPTS", "0"),
        ("TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL", "0"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"),
        ("DNNL_MAX_CPU_ISA", "AVX512_CORE"),
        ("TF_DETERMINISTIC_OPS", "1"),
        ("CUDA_VISIBLE_DEVICES", "-1"),
    }
    defaults = set(TensorFlow.environment({}, "gpu:0"))
    assert defaults == {"TF_CPP_MIN_LOG_LEVEL", "ABSL_MIN_LOG_LEVEL"}


def recorded(ask, text):
    """``ask(text)`` where the report's bits were recorded; a processor without skips at once."""
    why = "recorded with TensorFlow 2.21.0 on a CPU with AVX-512 VNNI"
    if not {"avx512f", "avx512_vnni"} <= target.cpu_flags():
        pytest.skip(why)
    run = ask(text)
    if ask.sessions[text].facts["library_version"] != "2.21.0":
        pytest.skip(why)
    return run


def report(run, length):
    """The report's outputs, as hexadecimal bits: conv2d 1x5, VALID, input 10 * [0, 1, ...]."""
    spec = conformance.spec("conv2d", [1, 5], bias=True)
    x = 10 * np.arange(length, dtype=np.float32).reshape(1, 1, length, 1)
    w = np.array(WEIGHTS, np.float32).reshape(1, 5, 1, 1)
    y = run(spec, x, w, np.array([0.0401], np.float32))
    return " ".join(f"{bits:08X}" for bits in y.ravel().view(np.uint32))


@pytest.mark.golden
@pytest.mark.parametrize(
    ("text", "seven", "eight"),
    [
        (
            "tensorflow",
            "42737AFB 4291F5CF 42AA2E21",
            "42737AFB 4291F5CF 42AA2E21 42C26673",
        ),
        (
            "tensorflow,onednn=0",
            "42737AFD 4291F5CF 42AA2E20",
            "42737AFD 4291F5CF 42AA2E20 42C26673",
        ),
        (
            "tensorflow,onednn=0,contraction=0",
            "42737AFD 4291F5D0 42AA2E22",
            "42737AFD 4291F5D0 42AA2E22 42C26672",
        ),
    ],
)
def test_the_reports_bits(ask, text, seven, eight):
    run = recorded(ask, text)
    assert report(run, 7) == seven
    assert report(run, 8) == eight


@pytest.mark.golden
def test_the_reports_failure_is_alive_with_eigens_own_contraction(ask):
    run = recorded(ask, "tensorflow,onednn=0,contraction=0")
    longest = report(run, 19).split()
    changed = [n for n in range(5, 19) if report(run, n).split() != longest[: n - 4]]
    assert changed == [9, 10, 11, 13, 14, 15]


def test_an_operator_refused_by_the_backend_itself_is_unsupported():
    spec = conformance.spec("depthwise_conv2d", [3, 3], in_channels=2, filters=2)
    program = case_program(dict(spec, stride=[2, 2], dilation=[2, 2]))
    with pytest.raises(Unsupported, match="strides or dilations"):
        TensorFlow().described({}, "cpu", "").emit(program, ValueShapes(program, (1, 5, 5, 2)))


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_keras_has_no_float64_where_it_computes_in_float32(library):
    backend = backends.get("keras")().described({"backend": library}, "cpu", "3.15")
    case = case_program(conformance.spec("matmul", [1], dtype="float64"))
    with pytest.raises(Unsupported, match="dtype=float64: .* in float32"):
        backend.emit(case, ValueShapes(case, (1, 5, 1)))


@pytest.mark.parametrize(
    ("library", "call"), [("torch", "F.linear("), ("onnxruntime", '"Transpose"')]
)
def test_a_model_of_one_product_is_a_product_of_the_rows_of_all_positions(library, call):
    backend = backends.get(library)().described({}, "cpu", "")
    product = conformance.spec("matmul", [1], in_channels=4, filters=3)
    model, case = layer_program([product]), case_program(product)
    lines = "\n".join(backend.emit(model, ValueShapes(model, (1, 2, 5, 4))).body())
    assert call in lines
    assert call not in "\n".join(backend.emit(case, ValueShapes(case, (1, 5, 4))).body())


def test_linear_as_a_switch_is_for_products_alone():
    backend = backends.get("torch")().described({"linear": "1"}, "cpu", "")
    for op in ("conv1d", "sum", "dot", "avg_pool1d"):
        with pytest.raises(Unsupported, match="linear=1 is for matmul and dense"):
            backend.operator(conformance.spec(op, [1]))
    backend.operator(conformance.spec("matmul", [1]))


@pytest.mark.parametrize("words", [{"op": "max_pool1d"}, {"split": 1, "in_channels": 2}])
def test_a_stable_operator_of_a_pool_or_of_two_calls_is_refused(words):
    backend = backends.get("tensorflow")().described({}, "cpu", "")
    spec = {**conformance.spec("conv1d", [3]), **words, "remedy": {"kind": "stable"}}
    with pytest.raises(Unsupported, match="remedies are for single convolutions"):
        rewritten.spec_operator(backend, spec)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d"])
def test_what_onednn_has_no_primitive_for_is_unsupported(op, dtype):
    limited = Target.parse("tensorflow,isa=avx2")
    if why := target.why_unavailable(limited):
        pytest.skip(why)
    case = Case(op, 3, 4, 4, 12, dtype=dtype)
    with launch.open_session(limited) as session:
        try:
            outputs_of_call(session, case)
        except TargetError as error:
            refused = error
        else:
            pytest.skip("AVX2 has a primitive for it in this release")
    assert refused.kind == "unsupported" and "refuses" in refused.why


@pytest.mark.parametrize(
    "text", ["onnxruntime", "onnxruntime,weights=argument", "opencv", "litert", "reference"]
)
def test_new_weights_and_a_new_bias_count(started, text):
    spec = conformance.spec("conv1d", [2], bias=True)
    x, one = np.arange(4, dtype=np.float32).reshape(1, 4, 1), np.ones((2, 1, 1), np.float32)
    bias = np.array([1], np.float32)
    for w, b, expected in (
        (one, bias, [2, 4, 6]),
        (2 * one, bias, [3, 7, 11]),
        (one, 0 * bias, [1, 3, 5]),
    ):
        assert conforming.run(started(text), spec, x, w, b).ravel().tolist() == expected


LACKING = [
    ("onnxruntime", "float64", "NOT_IMPLEMENTED"),
    ("onnxruntime", "bfloat16", "it can't be fed from NumPy"),
    ("opencv", "float64", "float32"),
    ("opencv", "bfloat16", "float32"),
    ("openvino,precision=f32", "float64", "computes it in float32"),
    ("openvino,precision=f32", "bfloat16", "NumPy lacks it"),
    ("litert,xnnpack=0", "float16", "LiteRT refuses: .*kTfLiteFloat32"),
]


@pytest.mark.parametrize(("text", "dtype", "why"), LACKING)
def test_formats_that_a_library_lacks_are_unsupported(started, text, dtype, why):
    kind = "uint16" if dtype == "bfloat16" else dtype
    spec = conformance.spec("conv1d", [2], dtype=dtype)
    with pytest.raises(TargetError, match=why) as caught:
        conforming.run(started(text), spec, np.ones((1, 4, 1), kind), np.ones((2, 1, 1), kind))
    assert caught.value.kind == "unsupported"

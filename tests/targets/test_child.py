"""The child's answers: cuts, masks, errors that are answers too, and the frames to and fro."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from probe.case import operands, ulp
from probe.case.case import Case
from probe.targets import child
from probe.targets.backends.contract import Unavailable, Unsupported


def started(algorithm: str = "sequential") -> child.Worker:
    made = child.Worker()
    request = {"do": "start", "backend": "reference", "switches": {"algorithm": algorithm}}
    ask(made, request)
    return made


def answers(made: child.Worker, request: dict, arrays: dict | None = None) -> list:
    found = list(made.handle(request, arrays or {}))
    assert [bool(header.get("done")) for header, _ in found] == [False] * (len(found) - 1) + [True]
    return found


def ask(made: child.Worker, request: dict, arrays: dict | None = None) -> tuple[dict, dict]:
    return answers(made, request, arrays)[-1]


def operands_of(case: Case) -> dict[str, np.ndarray]:
    x, w, b = operands.generate(case)
    return {"x": x, "w": w} | ({} if b is None else {"b": b})


def loaded(case: Case, algorithm: str = "sequential") -> child.Worker:
    made = started(algorithm)
    assert (
        "error"
        not in ask(made, {"do": "load", "key": "k", "spec": case.spec()}, operands_of(case))[0]
    )
    return made


CASE = Case(op="conv1d", kernel=3, in_channels=4, filters=3, length=20, batch=2, bias=0.5)


def test_facts_name_library_and_versions():
    made = child.Worker()
    header, _ = ask(made, {"do": "start", "backend": "reference"})
    assert {"library", "library_version", "numpy_version", "python_version"} <= set(header["facts"])


@pytest.mark.parametrize("vary", ["length", "batch", "filters"])
def test_a_cut_is_the_smaller_case(vary):
    made = loaded(CASE)
    value = {"length": 9, "batch": 1, "filters": 2}[vary]
    _, arrays = ask(made, {"do": "run", "key": "k", "at": {vary: value}})
    small = CASE.with_(**{vary: value})
    _, alone = ask(made, {"do": "run", "spec": small.spec()}, operands_of(small))
    assert arrays["y"].shape == small.output_shape()
    assert ulp.equal(arrays["y"], alone["y"], "float32")


@pytest.mark.parametrize("mode", ["weights", "inputs"])
def test_masks_are_calls_with_edited_operands(mode):
    made, arrays = loaded(CASE), operands_of(CASE)
    edited = arrays["w" if mode == "weights" else "x"]
    draw = np.random.default_rng(1)
    counts = np.array([0, 3, 1, 5])
    edits = {
        "offsets": np.concatenate([[0], np.cumsum(counts)]),
        "flat": draw.choice(edited.size, counts.sum(), replace=False),
        "values": draw.random(counts.sum()).astype(np.float32),
        "b_offsets": np.array([0, 0, 1, 1, 2]),
        "b_flat": np.array([2, 0]),
        "b_values": np.array([7, 8], np.float32),
    }
    header, found = ask(made, {"do": "masks", "key": "k", "mode": mode}, edits)
    assert found["outputs"].shape == (4, *CASE.output_shape()) and header["first"] == 0
    for number in range(4):
        copy = {name: array.copy() for name, array in arrays.items()}
        for before, name in (("", "w" if mode == "weights" else "x"), ("b_", "b")):
            own = slice(*edits[f"{before}offsets"][number : number + 2])
            copy[name].reshape(-1)[edits[f"{before}flat"][own]] = edits[f"{before}values"][own]
        _, alone = ask(made, {"do": "run", "spec": CASE.spec()}, copy)
        assert ulp.equal(found["outputs"][number], alone["y"], "float32")
    chosen = {"do": "masks", "key": "k", "mode": mode}
    _, some = ask(made, chosen, edits | {"select": np.array([5, 0])})
    assert (some["outputs"] == found["outputs"].reshape(4, -1)[:, [5, 0]]).all()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"do": "nonsense"}, "no such request"),
        ({"do": "run", "key": "other"}, "key=other: nothing is loaded"),
        ({"do": "run", "key": "k", "at": {"length": 99}}, "length=99"),
        ({"do": "run", "key": "k", "at": {"channels": 9}}, "channels=9: the operands have"),
        ({"do": "start", "backend": "nonsense"}, "nonsense"),
    ],
)
def test_a_wrong_request_is_answered(request_, why):
    header, arrays = ask(loaded(CASE), request_)
    assert header["error"] == "error" and why in header["message"] and not arrays


NO_PRIMITIVE = (
    "Operation received an exception:Status: 3, message: could not create a primitive "
    "descriptor for the convolution forward propagation primitive"
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError("x"), "memory"),
        (type("ResourceExhaustedError", (Exception,), {})("x"), "memory"),
        (Unsupported("x"), "unsupported"),
        (Unavailable("x"), "unavailable"),
        (type("UnimplementedError", (Exception,), {})("x"), "unsupported"),
        (RuntimeError("\"slow_conv2d_cpu\" not implemented for 'Half'"), "unsupported"),
        (type("AbortedError", (Exception,), {})(NO_PRIMITIVE), "unsupported"),
        (RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Conv"), "unsupported"),
        (ValueError("x\ny"), "error"),
    ],
)
def test_kinds_of_errors(error, kind):
    found, message = child.describe(error)
    assert found == kind and "\n" not in message


DTYPES = ["float16", "float32", "float64", "uint16", "uint64", "int64", "bool"]


class Trickle(io.RawIOBase):
    """A pipe at its worst: one byte at a time, both ways."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)

    def readinto(self, view: memoryview) -> int:
        count = min(1, len(self.data), len(view))
        view[:count] = self.data[:count]
        del self.data[:count]
        return count

    def write(self, view: memoryview) -> int:
        self.data += bytes(view[:1])
        return min(1, len(view))


def frame(header: dict, found: dict | None = None) -> bytes:
    stream = io.BytesIO()
    child.send(stream, header, found)
    return stream.getvalue()


@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no failure
)
@given(
    st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=4),
    st.lists(
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))
        ),
        max_size=3,
    ),
)
def test_what_goes_in_comes_out(header, found):
    sent = {f"a{i}": array for i, array in enumerate(found)}
    stream = Trickle(frame(header, sent))
    got, came = child.receive(stream)
    assert got == header
    assert list(came) == list(sent)
    for name, array in sent.items():
        assert came[name].dtype == array.dtype and came[name].shape == array.shape
        assert came[name].tobytes() == array.tobytes()
        assert came[name].flags.writeable


def test_frames_follow_each_other_and_the_end_is_closed():
    stream = io.BytesIO(frame({"n": 1}) + frame({"n": 2}, {"x": np.zeros((0, 3))}))
    assert child.receive(stream)[0] == {"n": 1}
    assert child.receive(stream)[1]["x"].shape == (0, 3)
    with pytest.raises(child.Closed):
        child.receive(stream)


def test_slices_and_other_byte_orders_keep_their_values():
    x = np.arange(24, dtype=">i4").reshape(2, 3, 4)[:, ::2, ::-1]
    _, came = child.receive(io.BytesIO(frame({}, {"x": x})))
    assert (came["x"] == x).all()


@given(st.integers(min_value=1))
def test_a_frame_cut_off_anywhere_says_so(cut):
    whole = frame({"do": "load"}, {"x": np.ones(9, np.float32)})
    with pytest.raises(child.ProtocolError, match="cut off") as error:
        child.receive(io.BytesIO(whole[: 1 + cut % (len(whole) - 1)]))
    assert not isinstance(error.value, child.Closed)


@given(st.binary(min_size=13, max_size=200))
def test_garbage_is_no_frame(data):
    with pytest.raises(child.ProtocolError):
        child.receive(io.BytesIO(data))


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.ones(2, complex)])
def test_a_dtype_that_cannot_travel_is_refused(array):
    with pytest.raises(child.ProtocolError, match="can't travel"):
        child.send(io.BytesIO(), {}, {"x": array})

"""Frames: what goes in comes out, and anything else is an error that says what was wrong."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from probe.targets.worker import protocol

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
    protocol.send(stream, header, found)
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
    got, came = protocol.receive(stream)
    assert got == header
    assert list(came) == list(sent)
    for name, array in sent.items():
        assert came[name].dtype == array.dtype and came[name].shape == array.shape
        assert came[name].tobytes() == array.tobytes()
        assert came[name].flags.writeable


def test_frames_follow_each_other_and_the_end_is_closed():
    stream = io.BytesIO(frame({"n": 1}) + frame({"n": 2}, {"x": np.zeros((0, 3))}))
    assert protocol.receive(stream)[0] == {"n": 1}
    assert protocol.receive(stream)[1]["x"].shape == (0, 3)
    with pytest.raises(protocol.Closed):
        protocol.receive(stream)


def test_slices_and_other_byte_orders_keep_their_values():
    x = np.arange(24, dtype=">i4").reshape(2, 3, 4)[:, ::2, ::-1]
    _, came = protocol.receive(io.BytesIO(frame({}, {"x": x})))
    assert (came["x"] == x).all()


@given(st.integers(min_value=1))
def test_a_frame_cut_off_anywhere_says_so(cut):
    whole = frame({"do": "load"}, {"x": np.ones(9, np.float32)})
    with pytest.raises(protocol.ProtocolError, match="cut off") as error:
        protocol.receive(io.BytesIO(whole[: 1 + cut % (len(whole) - 1)]))
    assert not isinstance(error.value, protocol.Closed)


@given(st.binary(min_size=13, max_size=200))
def test_garbage_is_no_frame(data):
    with pytest.raises(protocol.ProtocolError):
        protocol.receive(io.BytesIO(data))


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.ones(2, complex)])
def test_a_dtype_that_cannot_travel_is_refused(array):
    with pytest.raises(protocol.ProtocolError, match="can't travel"):
        protocol.send(io.BytesIO(), {}, {"x": array})

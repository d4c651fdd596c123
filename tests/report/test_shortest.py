"""Short scripts: numbers that are written out have the bits that were measured."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from probe.report import program


@given(st.sampled_from([16, 32, 64]), st.data())
def test_a_written_number_has_the_same_bits(width, data):
    dtype = f"float{width}"
    value = data.draw(st.floats(width=width, allow_nan=False) | st.sampled_from([-0.0, 3.0]))
    written = program._shortest_decimal(value, dtype)
    read = np.dtype(dtype).type(eval(written))
    assert read.tobytes() == np.dtype(dtype).type(value).tobytes(), written

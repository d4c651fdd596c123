"""Operations over groups of places: attention, and what its masks hide."""

from __future__ import annotations

import numpy as np
import pytest

from probe import floats
from probe.semantics.groups import lowest
from probe.semantics.labels import of_content


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_a_mask_hides_by_minus_infinity_and_by_the_lowest_number(dtype: str) -> None:
    least = floats.largest_finite(dtype)
    held = floats.round_to(np.array([-np.inf, -least, least, np.inf, -least / 2]), dtype)
    hides = np.isin(of_content(held).array, lowest(dtype))
    assert hides.tolist() == [True, True, False, False, False]

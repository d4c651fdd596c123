"""Functions whose bits depend on the place: what the place decides is told from what it doesn't."""

import numpy as np

from probe.diff import place

LANES = 8


def vectorised(x):
    """tanh in lanes of 8; of what is left over one input in 32 is rounded the other way."""
    y, rest = np.tanh(x), x.size - x.size % LANES
    tail, given = y.reshape(-1)[rest:], np.ascontiguousarray(x).reshape(-1)[rest:]
    odd = given.view(np.uint32) % 32 == 5
    tail[odd] = np.nextafter(tail[odd], np.float32(0))
    return y


def test_what_the_place_decides_is_reproduced_and_nothing_else():
    def neighbours(reads):
        (x,) = reads
        y = vectorised(x)
        y[..., 4, :] += x[..., 3, :]
        return y

    x = np.random.default_rng(3).normal(size=(1, 9, 3)).astype(np.float32)
    side = place.PlacedFunction(neighbours, [x], ["float32"] * 2, neighbours([x]), np.arange(27))
    fourth = np.arange(27) // 3 == 4
    came = np.array([side.came(number) for number in range(27)])
    assert not came[fourth].any() and came[~fourth].all()

"""A run is watched: it has to repeat, and whether watching changes it is said."""

import numpy as np

from probe.diff.watched import watched
from tests.record.taped import Taped, network, normal

X = normal(6, 32)
RANDOM = np.random.default_rng(5)


class Watched(Taped):
    """Watching changes what is computed, as it changes a fusion."""

    def __init__(self, program):
        super().__init__(program)
        self.fused = True

    def plain(self):
        return [one + np.float32(1) for one in super().plain()]


def test_watching_that_changes_the_bits_is_said():
    run, notes = watched(Watched(network(X).program), "the left side")
    assert len(notes) == 1 and "the left side: recording changes" in notes[0]
    assert run.plain_results[0].tobytes() != run.results[0].tobytes()
    assert watched(network(X), "it")[1] == []

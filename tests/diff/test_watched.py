"""A run is watched: it has to repeat, and whether watching changes it is said."""

import numpy as np
import pytest

from probe.case import layout
from probe.case.errors import Misaligned, Nondeterministic
from probe.diff.watched import watched
from probe.order.semantics import Contracts
from tests.record.doubles import Doubles, Step, either_way
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


def test_operands_that_move_from_run_to_run_are_not_called_nondeterministic():
    w, at = normal(32, 24), [0, 4, 8, 12]

    def moving(x, w):
        return either_way(x[..., :, None] * w, w.ctypes.data % 16 in (0, 8))

    class Moving(Doubles):
        def record(self, visit):
            at.append(at.pop(0))
            self.inputs["w"] = layout.copied(w, at[0])
            return super().record(visit)

    step = Step("Dense", Contracts("mk,kn->mn"), moving, ["x", "w"])
    with pytest.raises(Misaligned, match="bytes behind a multiple of 64: w at .*, then at") as told:
        watched(Moving({"x": X}, [step]), "it")
    assert "number 1 of 1" in str(told.value) and "nondeterministic" not in str(told.value)
    drawn = Step("Noise", Contracts("mk,kn->mn"), lambda x, w: x @ w * RANDOM.random(), ["x", "w"])
    with pytest.raises(Nondeterministic) as told:
        watched(Moving({"x": X}, [drawn]), "it")
    assert not isinstance(told.value, Misaligned)

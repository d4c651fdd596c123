"""Two runs in the right order: repeatable, the same model and inputs, compared, explained."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.errors import InputError, Nondeterministic
from probe.diff import walk
from probe.order.semantics import Each, Unknown
from probe.ui.answers.first_difference import ComparisonQuestion, Walked
from tests.record import causes
from tests.record.taped import Taped, apart, network, normal, sought

pytestmark = pytest.mark.long

X = normal(6, 32)


def verdicts(found):
    return [one.verdict for one in found.operations]


def test_the_same_run_twice_is_equal():
    found = walk.walk(network(X), network(X), explain=False)
    assert verdicts(found) == ["equal"] * 5 and found.verdict == "equal"
    assert found.first is None and not found.notes and found.same_inputs


def test_the_first_source_is_the_planted_one_and_gets_its_cause(monkeypatch):
    asked = causes.planted(monkeypatch)
    found = walk.walk(*apart(X))
    assert found.first is found.operations[0] and found.first.op == "Dense"
    assert verdicts(found)[0] == "source" and set(verdicts(found)[1:]) <= {"carried", "healed"}
    assert asked == [found.first] and found.first.cause == "order" and found.causes[0].why


def test_what_reads_more_than_was_said_is_no_source(monkeypatch):
    cause = causes.Cause(kind="", why="it reads more: this is not a source", refuted=True)
    monkeypatch.setattr(walk, "find_cause", lambda *_, **__: cause)
    found = walk.walk(*apart(X))
    assert found.first is None and found.operations[0].verdict == "unknown"
    assert found.operations[0].note == cause.why
    # nothing is carried from what is no source
    assert set(verdicts(found)) <= {"unknown", "equal", "healed"}
    assert walk.NO_SOURCE in {one.note for one in found.operations}


def test_what_reads_more_than_was_said_is_no_source_without_its_explanation_either():
    """A function described as elementwise reads the rows of the whole batch."""

    def program(x):
        def run(tape):
            y = tape.ran("Odd", Each("odd"), lambda a: a + a.sum(0), tape.relu(x))
            return tape.add(y, tape.relu(y))

        return Taped(run)

    rows = np.abs(X) + 1
    for explain in (True, False):
        found = walk.walk(program(rows[:3]), program(rows), explain=explain)
        odd = next(one for one in found.operations if one.op == "Odd")
        assert found.first is None and odd.verdict == "unknown"
        assert "carried" not in verdicts(found)
    found = walk.walk(*apart(X), explain=False)
    assert found.first is found.operations[0]  # and what is one stays one


def test_bits_that_differ_inside_of_equal_outputs_are_said_to():
    left, right = apart(X)

    def rounded(recorder):
        def program(tape):
            y = recorder.program(tape)
            return tape.ran("Sign", Each("sign"), np.sign, y)

        return Taped(program)

    found = Walked(walk.walk(rounded(left), rounded(right), explain=False), ComparisonQuestion())
    assert found.verdict == "equal" and found.found.first is not None
    assert found.lines()[1].startswith("the outputs agree, the bits inside differ; first: Dense")


def test_explaining_ends_with_the_time(monkeypatch):
    causes.planted(monkeypatch)
    w = normal(32, 24)

    def run(blocks):
        program = lambda tape: [tape.dense(X, tape.weight(w), blocks) for _ in range(3)]  # noqa: E731
        return Taped(program)

    bits = run(1).plain()[0].tobytes()
    other = sought(run, lambda one: one.plain()[0].tobytes() != bits)
    found = walk.walk(run(1), other, seconds=-1.0)
    assert len(found.causes) == 1 and "1 of the 3 operations" in found.notes[-1]


def test_rows_of_a_batch_must_agree_with_the_whole():
    found = walk.walk(network(X[:2]), network(X), explain=False)
    assert not found.same_inputs and found.verdict == "equal"
    assert [one.compared for one in found.operations] == [48, 48, 64, 64, 64]


def test_a_run_that_does_not_repeat_is_refused_with_the_operation():
    noisy = Taped(lambda tape: tape.relu(tape.noise(tape.relu(X))))
    for sides, name in (((noisy, noisy), "left"), ((network(X), noisy), "right")):
        with pytest.raises(Nondeterministic, match=rf"the {name} side .* Dropout, number 2 of 3"):
            walk.walk(*sides)


def test_a_run_that_starts_from_other_values_each_time_is_refused():
    started = Taped(lambda tape: tape.relu(np.random.default_rng().normal(size=(3, 4))))
    with pytest.raises(Nondeterministic, match="starts from different values"):
        walk.walk(started, started)


def test_what_repeats_nowhere_and_reaches_nothing_is_no_source():
    def program(tape):
        tape.noise(X)
        return tape.relu(X)

    found = walk.walk(Taped(program), Taped(program), explain=False)
    assert verdicts(found) == ["unknown", "equal"] and "each time" in found.operations[0].note
    assert found.first is None


def test_other_weights_are_named_and_the_outputs_compared_all_the_same():
    found = walk.walk(network(X), network(X, seed=3))
    assert "block.first has different weights on the two sides (w)" in found.different_weights
    assert (
        found.verdict == "differs" and found.outputs_by_index[0].differing and found.first is None
    )


def test_another_number_of_outputs_is_refused():
    two = Taped(lambda tape: (tape.relu(X), tape.relu(X)))
    with pytest.raises(InputError, match="outputs=1 and 2"):
        walk.walk(Taped(lambda tape: tape.relu(X)), two)


def test_other_operations_on_the_same_inputs_have_outputs_compared():
    """As eager against compiled: they are close, so all that leads to them is one source."""

    def fused(tape):
        w = normal(32, 24)
        call = lambda a: np.maximum((a @ w).astype(np.float32), 0)  # noqa: E731
        return tape.ran("Compiled", Unknown("compiled"), call, X)

    def eager(tape):
        return tape.relu(tape.dense(X, tape.weight(normal(32, 24)), 1))

    found = walk.walk(Taped(eager), Taped(fused), explain=False)
    assert found.outputs[0].compared == 144
    apart_ = (Taped(eager).plain()[0] != Taped(fused).plain()[0]).any()
    assert (found.first and found.first.op) == ("Dense + Relu against Compiled" if apart_ else None)
    assert found.verdict == ("differs" if apart_ else "equal")

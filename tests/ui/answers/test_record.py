"""Digests of a run's operations, and the first that changed."""

from probe.ui.answers.two_runs import first_changed


def test_operations_are_compared_in_their_order():
    old = ["aten.mm a.b 01", "aten.relu - 02", "aten.mm c 03"]
    assert first_changed(old, old) == ""
    assert first_changed(old, [*old[:2], "aten.mm c 04"]) == "operation 3 of 3: aten.mm at c"
    assert "is run, where it was aten.relu" in first_changed(old, [old[0], "aten.gelu - 07"])
    assert "2 operations are run, where it was 3" in first_changed(old, old[:2])
    assert first_changed([], old) == ""

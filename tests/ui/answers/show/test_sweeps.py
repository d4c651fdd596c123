"""What is said of a sweep: what agreed, what failed, and nothing beyond."""

import pytest

from probe.case.case import Case
from probe.sweep.bits import sweep_cases
from probe.sweep.printing import Output
from probe.sweep.store import Store
from probe.targets.target import Target
from probe.ui.answers.show import sweeps as show
from probe.ui.answers.sweep import Swept
from tests.sweep.test_bits import faulty

pytestmark = pytest.mark.long


CASE = Case(op="conv1d", kernel=5, in_channels=16, filters=3, operands="cancel")


REFERENCE = Target("reference")


def test_where_a_value_failed_nothing_is_promised_of_it(tmp_path, capsys):
    sessions = faulty(tmp_path / "log", **{"8": "SIGKILL"})
    with Store(tmp_path / "m") as store:
        found = sweep_cases([CASE], [REFERENCE], range(6, 12), store=store, opens=sessions)
    assert not found.differing and found.failures
    Output().results.print(show.sweep_by_bits(Swept(found, CASE, range(6, 12))))
    assert "what failed is not known" in (out := capsys.readouterr().out)
    assert "with these operands" not in out and "--by order" not in out

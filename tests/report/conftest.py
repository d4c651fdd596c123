"""The reproduction that several files of tests look at."""

import pytest

from probe.case.case import Case
from probe.explain.runs import Finding
from probe.report import folder
from probe.targets.target import Target


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A reproduction of a finding of the reference, and its folder."""
    out = tmp_path_factory.mktemp("reproduction") / "out"
    case = Case(op="conv1d", kernel=5, operands="cancel")
    switches = Target.parse("reference,algorithm=pairwise,length_switch=8")
    finding = Finding.of(case, "length", 6, 20)
    found = folder.reproduce(finding, switches, times=2)
    folder.write_folder(found, out)
    return found, out

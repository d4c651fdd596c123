"""The experiments on every library: each tried out on NumPy alone."""

import runpy
from pathlib import Path

from probe import load

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


def ran(name, store):
    """The results of a quick run."""
    script = runpy.run_path(str(EXPERIMENTS / f"{name}.py"))
    assert not script["main"](["--quick", "--store", str(store)], standalone_mode=False)
    return load(store)


def test_doubles_compute_each_filter_by_itself(tmp_path):
    found = ran("filter_subsets", tmp_path)
    assert len(found.comparisons) and not found.comparisons.differing.any()
    assert set(found.comparisons.vary) == {"filters"} and not len(found.failures)

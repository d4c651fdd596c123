"""Conditions: what decides bits here, in what an entry differs, and what brings it back."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from probe.ui.lock import conditions
from probe.ui.lock.checks import Bits, LockFile, read_lock
from probe.ui.lock.conditions import conditions_key, facts_apart, restoring
from tests.ui.lock.projects import HERE


def test_what_brings_conditions_back():
    flag = facts_apart(HERE, HERE | {"flag.OPENBLAS_CORETYPE": "Haswell"})
    assert restoring(*next(iter(flag.items()))) == {"OPENBLAS_CORETYPE": ""}
    threads = facts_apart(HERE | {"cores": 1, "threads.numpy": 1}, HERE)
    assert restoring(*next(iter(threads.items()))) == {"PROBE_CORES": 1, "OPENBLAS_NUM_THREADS": 1}
    older = facts_apart(HERE | {"isa": "avx2", "blas.numpy": "Haswell"}, HERE)
    found = restoring(*next(iter(older.items())))
    assert found["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert found["OPENBLAS_CORETYPE"] == "Haswell"
    assert found["XLA_FLAGS"].endswith("--xla_cpu_max_isa=AVX2")


def test_conditions_here_are_publishable_and_stable():
    found = conditions.here()
    assert found == conditions.here()
    assert found["library.numpy"] == np.__version__
    assert all("/" not in str(one) for name, one in found.items() if not name.startswith("flag."))
    assert conditions_key(found) == conditions_key(dict(reversed(found.items())))


def test_a_lock_of_a_process_that_uses_a_gpu_is_read_again(tmp_path, monkeypatch):
    gpu = SimpleNamespace(is_initialized=lambda: True, get_device_name=lambda: "NVIDIA H100")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=gpu, __version__="2.4.0"))
    facts, lock = conditions.here(), LockFile()
    named = lock.accept("test_a", facts, Bits("float32", (2,), "0" * 32))
    (tmp_path / "bits.lock").write_text(lock.text())
    assert read_lock(tmp_path / "bits.lock").conditions == {named: facts}
    other = facts_apart(facts, facts | {"gpu": "NVIDIA L4"})
    assert other == {"processor": {"gpu": ("NVIDIA H100", "NVIDIA L4")}}


def test_an_openblas_has_a_release_of_its_own():
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    found = conditions.here().get("openblas.numpy")
    if found is None or not blas["name"].startswith("scipy-openblas"):
        pytest.skip("NumPy has another BLAS, or this system does not say what is loaded")
    assert found == blas["version"]
    newer = HERE | {"openblas.numpy": "0.3.34"}
    assert facts_apart(HERE, newer) == {}  # an older lock does not say it
    older = HERE | {"openblas.numpy": "0.3.31"}
    assert facts_apart(older, newer) == {"release numpy": {"openblas.numpy": ("0.3.31", "0.3.34")}}
    # the core that it took follows from the release, where both are known to differ
    assert [*facts_apart(older, newer | {"blas.numpy": "Zen"})] == ["release numpy"]
    assert [*facts_apart(HERE, newer | {"blas.numpy": "Zen"})] == ["processor"]


def test_a_library_of_the_lock_that_is_not_loaded_has_its_release_too():
    found = conditions.here(["xgboost", "numpy"])
    assert found["library.numpy"] == np.__version__
    assert found["library.xgboost"]  # none, or what is installed


def test_tensorflows_default_is_of_the_processor_unless_a_variable_chooses():
    """Another machine's bits were said to be its instructions', which don't bring them back."""
    on = HERE | {"library.tensorflow": "2.21.0", "onednn.tensorflow": 1}
    off = on | {"onednn.tensorflow": 0}
    (apart,) = facts_apart(off, on).items()
    assert apart == ("processor", {"onednn.tensorflow": (0, 1)})
    assert restoring(*apart)["TF_ENABLE_ONEDNN_OPTS"] == 0
    assert facts_apart(HERE | {"library.tensorflow": "2.21.0"}, on) == {}  # an older lock
    chosen = off | {"flag.TF_ENABLE_ONEDNN_OPTS": "0"}
    assert [*facts_apart(chosen, on)] == ["flag TF_ENABLE_ONEDNN_OPTS"]
    older = off | {"library.tensorflow": "2.8.0"}
    assert [*facts_apart(older, on)] == ["release tensorflow"]
    port = sys.modules.get("tensorflow.python.util._pywrap_util_port")
    assert conditions.here().get("onednn.tensorflow") == (port and int(port.IsMklEnabled()))

"""A script holds the lines that were measured: both give the same bits, for every library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from probe.targets import target
from probe.targets.launch import library_variables
from probe.targets.target import Target

SCRIPT = Path(__file__).with_name("as_printed.py")
QUICK = ("numpy", "torch", "onnxruntime")
SLOW = (
    "torch,mkldnn=0",
    *("tensorflow", "tensorflow,mode=graph", "tensorflow,xla=1", "tensorflow,weights=constant"),
    *("keras", "keras,backend=torch", "keras,backend=jax", "jax", "onnxruntime,weights=argument"),
    *("openvino", "litert", "litert,xnnpack=0", "opencv"),
)


@pytest.mark.parametrize(
    "text", [*QUICK, *(pytest.param(text, marks=pytest.mark.slow) for text in SLOW)]
)
@pytest.mark.slow_at("torch")
def test_a_script_has_the_bits_that_the_worker_measured(text):
    where = Target.parse(text)
    if why := target.why_unavailable(where):
        pytest.skip(f"{text}: {why}")
    environment = {**os.environ, **library_variables(where)}
    environment["PYTHONPATH"] = str(SCRIPT.parents[3])
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), text], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert [label for label, said in found if said == "other"] == []
    assert [said for _, said in found].count("same") >= 3, found

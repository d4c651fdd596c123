"""Facts of the machine: complete, and publishable."""

import getpass
import socket
from pathlib import Path

import pytest

from probe.case import schema
from probe.targets import machine

EPYC = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC 9R14 96-Core Processor
flags\t\t: fpu sse4_1 avx avx2 fma avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16

processor\t: 1
model\t\t: 99
"""
CORE = """vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 60
model name\t: Intel(R) Core(TM) i7-4770 CPU @ 3.40GHz
flags\t\t: fpu sse4_1 avx avx2 fma
"""
ARM = """processor\t: 0
Features\t: fp asimd sve
CPU implementer\t: 0x41
"""
CACHED = (machine._cpu, machine.facts, machine.label, machine.isa, machine.private_names)


@pytest.fixture
def pretend(monkeypatch):
    """Call it with the text of a ``/proc/cpuinfo`` to be on that machine."""

    def be(text):
        for function in CACHED:
            function.cache_clear()
        monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
        monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")

    yield be
    monkeypatch.undo()
    for function in CACHED:
        function.cache_clear()


def test_facts_are_columns_of_runs():
    assert set(machine.facts()) < set(schema.column_names("runs"))
    assert machine.facts()["schema_version"] == schema.VERSION
    assert machine.facts()["cores"] == machine.cores() >= 1


@pytest.mark.parametrize(
    ("text", "label", "isa"),
    [
        (EPYC, "amd-epyc-fam25-model17-avx512", "avx512_core_bf16"),
        (CORE, "intel-core-fam6-model60-avx2", "avx2"),
        (ARM, "arm0x41-sve", "sve"),
        ("", "aarch64-unknown", None),
    ],
)
def test_label_and_isa_are_read_from_the_processor(pretend, text, label, isa):
    pretend(text)
    assert machine.isa() == isa
    assert machine.label() == label


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("File /usr/lib/python3/x.py line 3", "File .../x.py line 3"),
        ("at ~" + "/code/probe/x.py:3", "at .../x.py:3"),
        ("C:" + "\\Users\\me\\x.py failed", "...\\x.py failed"),
        ("from https://me:secret@index.example/sim" + "ple/ now", "from (address) now"),
        ("3/4 of NHWC/x, and/or 1x5", "3/4 of NHWC/x, and/or 1x5"),
        ("", ""),
    ],
)
def test_publishable_takes_paths_and_addresses_out(text, left):
    assert machine.publishable(text) == left


def test_publishable_takes_host_and_user_out(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.lab")
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    machine.private_names.cache_clear()
    assert machine.publishable("ada@node17.lab: adapt node17") == "(user)@(host): adapt (host)"
    monkeypatch.undo()
    machine.private_names.cache_clear()

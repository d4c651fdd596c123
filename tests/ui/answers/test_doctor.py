"""What is here, what is missing with its command, and what answers wrong; and ``probe demo``: the
numbers of a report, recomputed."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from probe.case.errors import TargetError, TimeOver
from probe.targets import backends, target
from probe.ui.answers import doctor
from probe.ui.cli import shell


@pytest.fixture
def few(monkeypatch):
    """The libraries that are looked at: two that need nothing."""
    monkeypatch.setattr(backends, "known_backends", lambda: ["numpy", "reference"])


def by_part(found):
    return {check.part: check for check in found.checks}


def test_what_is_here_is_asked_and_replayed(few):
    found = by_part(doctor.examine_machine())
    for name in ("numpy", "reference"):
        assert found[name].state == "ok" and "15 of 15 outputs replayed" in found[name].said


def test_a_library_that_is_not_installed_is_missing_with_its_command(few, monkeypatch):
    why = "torch is not installed here; pip install torch"
    monkeypatch.setattr(doctor, "why_unavailable", lambda target: why)
    found = by_part(doctor.examine_machine())["numpy"]
    assert (found.state, found.said) == ("missing", "torch is not installed here")
    assert found.command == "pip install torch"


@pytest.mark.parametrize(
    "name", [name for name in backends.known_backends() if name != "reference"]
)
def test_a_library_is_installed_by_names_that_pip_knows(name, monkeypatch):
    """And by all of them: what the library's own switches need is among them, or keras' choice."""
    backend = backends.get(name)
    monkeypatch.setattr(target, "installed_version", lambda backend: None)
    said, _, command = str(target.why_unavailable(target.Target(name))).partition("; pip install ")
    assert backend.distributions[0] in said and backend.distributions[0] in command
    needed = {library for _, library in backend.requires({})} - {"tensorflow"}
    assert needed <= set(command.split())


def test_a_command_is_printed_on_one_line(few, monkeypatch, capsys):
    why = "x, which has a long name and much to say, is not installed here; pip install onnx x"
    monkeypatch.setattr(doctor, "why_unavailable", lambda target: why)
    assert shell.run(["targets", "doctor"]) == 0
    assert capsys.readouterr().out.count("pip install onnx x\n") == 2


def test_packages_that_were_left_out_are_named_with_what_they_add(few, monkeypatch):
    monkeypatch.setattr(doctor, "self_test", lambda name: {"outputs": 15, "replayed": 15})
    real = doctor.util.find_spec
    lacking = ("xxhash", "duckdb")
    monkeypatch.setattr(
        doctor.util, "find_spec", lambda name: None if name in lacking else real(name)
    )
    found = by_part(doctor.examine_machine())
    assert found["xxhash"].command == "pip install xxhash" and "models" in found["xxhash"].adds
    assert found["duckdb"].state == "missing" and "jinja2" not in found


def test_a_library_that_fails_is_wrong_and_the_others_are_examined(few, monkeypatch):
    def asked(name):
        if name == "numpy":
            raise TargetError(name, "crash", "signal 11")
        return {"outputs": 15, "replayed": 15}

    monkeypatch.setattr(doctor, "self_test", asked)
    found = by_part(doctor.examine_machine())
    assert "signal 11" in found["numpy"].said and found["reference"].state == "ok"


def test_what_was_examined_is_printed_where_the_time_is_over(few, monkeypatch, capsys):
    """The whole answer was lost where it was over while a library was asked."""

    def over(name):
        raise TimeOver("the time is over")

    monkeypatch.setattr(doctor, "self_test", over)
    assert shell.run(["targets", "doctor", "--time", "9m"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not finished: the time is over" in said and "not started: the time is over" in said


def test_variables_that_change_bits_are_named(few, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "self_test", lambda name: {"outputs": 15, "replayed": 15})
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert shell.run(["targets", "doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    named = {one["name"]: one for one in found["variables"]}
    assert named["OMP_NUM_THREADS"]["value"] == "3" and found["healthy"]
    assert "threads" in named["OMP_NUM_THREADS"]["decides"]


def test_what_does_not_work_ends_with_3(few, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "self_test", lambda name: {"outputs": 15, "replayed": 3})
    assert shell.run(["targets", "doctor"]) == 3
    assert "wrong" in (said := capsys.readouterr().out) and "3 of 15" in said


def test_a_default_that_goes_by_the_processor_is_in_the_librarys_line(monkeypatch):
    monkeypatch.setattr(backends, "known_backends", lambda: ["tensorflow"])
    monkeypatch.setattr(target, "cpu_flags", lambda: frozenset(["avx2"]))
    monkeypatch.setattr(target, "installed_version", lambda backend: "2.21.0")
    monkeypatch.setattr(doctor, "why_unavailable", lambda target: None)
    monkeypatch.setattr(doctor, "self_test", lambda name: {"outputs": 15, "replayed": 15})
    found = by_part(doctor.examine_machine())["tensorflow"]
    assert found.said.endswith("; oneDNN: off by default on this processor")


def test_a_library_that_is_missing_is_listed_once_with_how_many_variants_it_has(capsys):
    names = ("numpy", "tensorflow", "tensorflow,onednn=0", "tensorflow@cuda:0")
    row = {"version": "1", "doc": "adds"}
    rows = [
        row | {"target": name, "available": name == "numpy", "why": "not installed"}
        for name in names
    ]
    Console(width=120).print(doctor.targets_shown(rows))
    said = capsys.readouterr().out
    assert said.count("not installed") == 1 and "and 2 with switches or on other devices" in said


def test_the_demonstration_gives_the_numbers_that_the_report_printed():
    found = doctor.demo_json()
    assert found["replayed"]
    assert found["differing"] == [1, 2]
    bits = [one["bits"] for one in found["lengths"]["8"]]
    assert bits == ["42737afd", "4291f5cf", "42aa2e20", "42c26673"]
    told = doctor.demo_text()
    assert "s0 = p0 + p1 = -29.399 (0xc1eb3127)" in told

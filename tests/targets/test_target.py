"""Targets as text: what parses, what it says otherwise, and why a target can't run here."""

from __future__ import annotations

import pytest

from probe.case.errors import InputError
from probe.targets import backends, target
from probe.targets.target import Target, available_targets, why_unavailable


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tensorflow==2.0.0-rc1@gpu:1,onednn=0", "tensorflow==2.0.0-rc1@gpu:1,onednn=0"),
        ("tensorflow@arm64,onednn=0", "tensorflow@arm64,onednn=0"),
        ("tensorflow@cpu", "tensorflow"),
        ("tensorflow,contraction=0,onednn=0", "tensorflow,onednn=0,contraction=0"),
        (" tensorflow , threads=2, isa=avx2", "tensorflow,isa=avx2,threads=2"),
        ("tensorflow == 2.21.0 @ gpu:0", "tensorflow==2.21.0@gpu:0"),
        ("tensorflow@Skylake-Server", "tensorflow@skylake-server"),
    ],
)
def test_equal_targets_have_equal_texts(text, canonical):
    assert Target.parse(text) == Target.parse(canonical)
    assert str(Target.parse(text)) == Target.parse(text).text == canonical


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "use one of tensorflow"),
        ("theano", "theano: there is no such library; use one of tensorflow, keras"),
        ("tensorflow=2", "NAME"),
        ("tensorflow==new", "'new' is not a version"),
        ("tensorflow@cuda:0", "no device 'cuda:0'; use one of cpu, gpu:N, arm64"),
        ("reference@gpu:0", "use one of cpu"),
        ("tensorflow,onednn", "'onednn' is not a switch"),
        ("tensorflow,mkl=0", "no switch 'mkl'; use onednn=0|1, contraction=0|1, isa=sse41|avx|"),
        ("tensorflow,onednn=2", "onednn can't be '2'; use 0|1"),
        ("tensorflow,threads=0", "threads can't be '0'; use a whole number from 1"),
        ("tensorflow,onednn=0,onednn=1", "onednn is given twice"),
        ("tensorflow,mode=eager,xla=1", "xla=1 needs a graph"),
        ("keras,backend=jax,onednn=0", "onednn=0 is a switch of TensorFlow"),
    ],
)
def test_what_is_wrong_is_said_with_what_there_is(text, says):
    with pytest.raises(InputError) as caught:
        Target.parse(text)
    message = str(caught.value)
    assert message.startswith("target=") and says in message and "\n" not in message


def test_with_changes_parts_and_switches():
    one = Target.parse("tensorflow,onednn=0")
    assert one.with_(threads=2).text == "tensorflow,onednn=0,threads=2"
    assert one.with_(onednn=None).text == "tensorflow"
    assert one.with_(device="gpu:0", version="2.4.0").text == "tensorflow==2.4.0@gpu:0,onednn=0"
    assert one.text == "tensorflow,onednn=0"
    with pytest.raises(InputError):
        one.with_(sse=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tensorflow==1.2.1", "tensorflow==1.2.1 is not installed here (2.21.0 is)"),
        ("tensorflow@haswell", "haswell is emulated by qemu-x86_64, which is not installed"),
        ("keras,backend=jax", "jax, which these switches require, is not installed"),
        ("tensorflow,isa=avx2_vnni", "isa=avx2_vnni needs a CPU with avx_vnni"),
        ("tensorflow@gpu:0", "this machine has no GPU"),
    ],
)
def test_what_cannot_run_here_says_why(text, why, monkeypatch, tmp_path):
    """On a machine made up for the test: TensorFlow 2.21.0, AVX2, no JAX, no GPU, no qemu."""
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path))
    monkeypatch.setattr("probe.targets.environments.emulator_path", lambda name: None)
    monkeypatch.setattr(target.metadata, "version", lambda name: "2.21.0")
    found = target.util.find_spec
    monkeypatch.setattr(
        target.util, "find_spec", lambda name: None if name == "jax" else found(name)
    )
    monkeypatch.setattr(target, "cpu_flags", lambda: frozenset(["avx2", "fma"]))
    monkeypatch.setattr(target, "gpus", lambda: 0)
    monkeypatch.setattr(target.platform, "machine", lambda: "x86_64")
    assert why in str(why_unavailable(Target.parse(text)))
    assert why_unavailable(Target.parse("tensorflow,isa=avx2")) is None
    assert why_unavailable(Target.parse("tensorflow==2.21.0")) is None


def test_instruction_limits_are_for_x86(monkeypatch):
    monkeypatch.setattr(target.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(target, "installed_version", lambda backend: "2.21.0")
    why = why_unavailable(Target.parse("tensorflow,isa=avx2"))
    assert why == "isa=avx2 limits x86 instructions; this is aarch64"


def test_the_list_of_targets_covers_every_library_and_says_why_not():
    choices = available_targets()
    assert {choice.target.name for choice in choices} == set(backends.known_backends())
    texts = [choice.target.text for choice in choices]
    assert len(set(texts)) == len(texts)
    assert "tensorflow,onednn=0,contraction=0" in texts
    for choice in choices:
        assert choice.doc and choice.why == why_unavailable(choice.target)


@pytest.mark.parametrize(
    ("version", "flags", "onednn"),
    [
        ("2.21.0", "avx2 fma avx512f", "0"),
        ("2.21.0", "avx512f avx512_vnni", "1"),
        ("2.8.0", "avx512_vnni", "0"),
        ("2.21.0", "asimd sve", None),
    ],
)
def test_a_default_that_goes_by_the_processor_is_said(version, flags, onednn, monkeypatch):
    """With AVX2 alone TensorFlow is another program than on the next machine."""
    monkeypatch.setattr(target, "cpu_flags", lambda: frozenset(flags.split()))
    monkeypatch.setattr(target, "installed_version", lambda backend: version)
    (choice,) = (one for one in available_targets() if one.target.text == "tensorflow")
    assert choice.defaults == ({} if onednn is None else {"onednn": onednn})
    states = {"0": "off", "1": "on"}
    said = f"; oneDNN: {states[onednn]} by default on this processor" if onednn else "2.0 on"
    assert choice.doc.endswith(said)

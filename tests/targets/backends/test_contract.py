"""What every backend says of itself, and what an exception says of a refusal."""

from __future__ import annotations

import pytest

from probe.case.errors import TargetError
from probe.targets import backends, target
from probe.targets.backends.contract import Backend, Key
from probe.targets.launch import Session
from probe.targets.target import Target


@pytest.mark.parametrize("name", backends.known_backends())
def test_a_backend_describes_itself_without_its_library(name):
    backend = backends.get(name)
    assert issubclass(backend, Backend) and backend.name == name
    assert backend.distributions and backend.module and backend.doc and "cpu" in backend.devices
    for key in backend.keys.values():
        assert isinstance(key, Key) and key.doc and key.default and key.describe()


def test_an_unknown_backend_is_an_error_that_lists_the_known():
    with pytest.raises(KeyError, match="theano is none of: tensorflow"):
        backends.get("theano")


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("torch,tf32=0", "use @cuda:0, or no tf32"),
        pytest.param("torch@cuda:8", "cuda:8", marks=pytest.mark.slow),
        ("jax,tf32=0", "use @gpu:0, or no tf32"),
        ("jax@gpu:8", "JAX has no gpu"),
        pytest.param("tensorflow@gpu:8", "gpu:8", marks=pytest.mark.slow),
    ],
)
def test_what_needs_a_gpu_is_unavailable_without(monkeypatch, text, why):
    where = Target.parse(text)
    if absent := target.why_unavailable(Target.parse(where.name)):
        pytest.skip(absent)
    if where.name == "jax" and target.gpus():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(target, "gpus", lambda: 9)
    session = Session(where)
    with pytest.raises(TargetError, match=why) as caught:
        session.start()
    session.close()
    assert caught.value.kind == "unavailable"

"""The child's answers: cuts, sweeps, masks, and errors that are answers too."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import operands, ulp
from probe.case.case import Case
from probe.targets.backends.contract import Unavailable, Unsupported
from probe.targets.worker import child as worker


def started(algorithm: str = "sequential") -> worker.Worker:
    made = worker.Worker()
    request = {"do": "start", "backend": "reference", "switches": {"algorithm": algorithm}}
    ask(made, request)
    return made


def answers(made: worker.Worker, request: dict, arrays: dict | None = None) -> list:
    found = list(made.handle(request, arrays or {}))
    assert [bool(header.get("done")) for header, _ in found] == [False] * (len(found) - 1) + [True]
    return found


def ask(made: worker.Worker, request: dict, arrays: dict | None = None) -> tuple[dict, dict]:
    return answers(made, request, arrays)[-1]


def given(case: Case) -> dict[str, np.ndarray]:
    x, w, b = operands.generate(case)
    return {"x": x, "w": w} | ({} if b is None else {"b": b})


def loaded(case: Case, algorithm: str = "sequential") -> worker.Worker:
    made = started(algorithm)
    assert "error" not in ask(made, {"do": "load", "key": "k", "spec": case.spec()}, given(case))[0]
    return made


CASE = Case(op="conv1d", kernel=3, in_channels=4, filters=3, length=20, batch=2, bias=0.5)


def test_facts_name_library_and_versions():
    made = worker.Worker()
    header, _ = ask(made, {"do": "start", "backend": "reference"})
    assert {"library", "library_version", "numpy_version", "python_version"} <= set(header["facts"])


@pytest.mark.parametrize("vary", ["length", "batch", "filters"])
def test_a_cut_is_the_smaller_case(vary):
    made = loaded(CASE)
    value = {"length": 9, "batch": 1, "filters": 2}[vary]
    _, arrays = ask(made, {"do": "run", "key": "k", "at": {vary: value}})
    small = CASE.with_(**{vary: value})
    _, alone = ask(made, {"do": "run", "spec": small.spec()}, given(small))
    assert arrays["y"].shape == small.output_shape()
    assert ulp.equal(arrays["y"], alone["y"], "float32")


@pytest.mark.parametrize("mode", ["weights", "inputs"])
def test_masks_are_calls_with_edited_operands(mode):
    made, arrays = loaded(CASE), given(CASE)
    edited = arrays["w" if mode == "weights" else "x"]
    draw = np.random.default_rng(1)
    counts = np.array([0, 3, 1, 5])
    edits = {
        "offsets": np.concatenate([[0], np.cumsum(counts)]),
        "flat": draw.choice(edited.size, counts.sum(), replace=False),
        "values": draw.random(counts.sum()).astype(np.float32),
        "b_offsets": np.array([0, 0, 1, 1, 2]),
        "b_flat": np.array([2, 0]),
        "b_values": np.array([7, 8], np.float32),
    }
    header, found = ask(made, {"do": "masks", "key": "k", "mode": mode}, edits)
    assert found["outputs"].shape == (4, *CASE.output_shape()) and header["first"] == 0
    for number in range(4):
        copy = {name: array.copy() for name, array in arrays.items()}
        for before, name in (("", "w" if mode == "weights" else "x"), ("b_", "b")):
            own = slice(*edits[f"{before}offsets"][number : number + 2])
            copy[name].reshape(-1)[edits[f"{before}flat"][own]] = edits[f"{before}values"][own]
        _, alone = ask(made, {"do": "run", "spec": CASE.spec()}, copy)
        assert ulp.equal(found["outputs"][number], alone["y"], "float32")
    chosen = {"do": "masks", "key": "k", "mode": mode}
    _, some = ask(made, chosen, edits | {"select": np.array([5, 0])})
    assert (some["outputs"] == found["outputs"].reshape(4, -1)[:, [5, 0]]).all()


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"do": "nonsense"}, "no such request"),
        ({"do": "run", "key": "other"}, "key=other: nothing is loaded"),
        ({"do": "run", "key": "k", "at": {"length": 99}}, "length=99"),
        ({"do": "run", "key": "k", "at": {"channels": 9}}, "channels=9: the operands have"),
        ({"do": "start", "backend": "nonsense"}, "nonsense"),
    ],
)
def test_a_wrong_request_is_answered(request_, why):
    header, arrays = ask(loaded(CASE), request_)
    assert header["error"] == "error" and why in header["message"] and not arrays


NO_PRIMITIVE = (
    "Operation received an exception:Status: 3, message: could not create a primitive "
    "descriptor for the convolution forward propagation primitive"
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError("x"), "memory"),
        (type("ResourceExhaustedError", (Exception,), {})("x"), "memory"),
        (Unsupported("x"), "unsupported"),
        (Unavailable("x"), "unavailable"),
        (type("UnimplementedError", (Exception,), {})("x"), "unsupported"),
        (RuntimeError("\"slow_conv2d_cpu\" not implemented for 'Half'"), "unsupported"),
        (type("AbortedError", (Exception,), {})(NO_PRIMITIVE), "unsupported"),
        (RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Conv"), "unsupported"),
        (ValueError("x\ny"), "error"),
    ],
)
def test_kinds_of_errors(error, kind):
    found, message = worker.describe(error)
    assert found == kind and "\n" not in message

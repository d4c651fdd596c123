"""Operations of two runs that are asked for different things: the arguments are the cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import probe
from probe.case.errors import InputError

ROWS = np.random.default_rng(4).standard_normal((6, 20)).astype(np.float32)
Function = Callable[[Any], Any]


def told(left: Function, right: Function, **more: Any) -> Any:
    return probe.first_difference(left, right, inputs=[ROWS], **more)


PAIRS: dict[str, tuple[Function, Function, str]] = {
    "a factor": (lambda x: x * 0.5, lambda x: x * 0.25, "operand 2 0.5 against 0.25"),
    "a float32 factor": (
        lambda x: x * np.float32(0.5),
        lambda x: x * np.float32(0.25),
        "operand 2 0.5 against 0.25",
    ),
    "a bound": (lambda x: np.clip(x, -1, 1), lambda x: np.clip(x, -1, 0.5), "3 1 against 0.5"),
    "an epsilon": (
        lambda x: x / np.sqrt(x.var(1, keepdims=True) + 1e-5),
        lambda x: x / np.sqrt(x.var(1, keepdims=True) + 1e-3),
        "operand 2 1e-05 against 0.001",
    ),
    "degrees of freedom": (
        lambda x: np.var(x, axis=1),
        lambda x: np.var(x, axis=1, ddof=1),
        "ddof not given against 1",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_arguments_that_differ_are_the_cause(name: str) -> None:
    left, right, text = PAIRS[name]
    found = told(left, right)
    first = found.found.first
    assert found.verdict == "differs" and first.cause == "argument"
    assert first.arguments.endswith(text) and f"argument: {first.arguments}" in found.lines()[1]
    assert found.to_json()["operations"][first.left]["arguments"] == first.arguments


@pytest.mark.parametrize("right", [0.1 + 1e-12, np.float64(np.float32(0.1)), 1e300])
def test_arguments_that_differ_have_texts_that_differ(right: float) -> None:
    """float32 has both numbers as 0.1; NumPy compares with a float32 in float32."""
    found = told(lambda x: x.astype(float) * 0.1, lambda x: x.astype(float) * right)
    left, _, text = found.found.operations[-1].arguments.partition(" against ")
    assert left == "operand 2 0.1" and float(text) == right


def test_no_report_is_offered_of_what_was_asked_for(tmp_path: Any) -> None:
    left, right, _ = PAIRS["an epsilon"]
    found = told(left, right)
    assert "for a report" not in found.outcome() and "ask for different" in found.outcome()
    with pytest.raises(InputError, match="two runs ask for different things: .*1e-05 against"):
        found.reproduce(tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_all_that_follows_is_carried() -> None:
    found = told(lambda x: np.tanh(x * 0.5) + 1, lambda x: np.tanh(x * 0.25) + 1)
    assert [one.verdict for one in found.found.operations] == ["source", "carried", "carried"]
    assert found.found.outputs[0].compared == ROWS.size


def test_an_argument_that_does_not_matter_changes_nothing() -> None:
    one, other = (lambda x, a=a: np.tanh(np.clip(x, -a, a)) for a in (50, 60))
    found = told(one, other)
    assert found.verdict == "equal" and found.found.first is None


def test_sizes_are_no_arguments() -> None:
    """The divisor of a mean follows from the number of rows."""
    sides = {"inputs": {"x": ROWS}, "vary": "batch", "at": 3, "against": 6}
    found = probe.network(lambda x: x.sum(0) / float(len(x)), **sides)
    assert not any(one.arguments for one in found.found.operations)
    found = probe.network(lambda x: x.reshape(len(x), 4, 5) + 1, **sides)
    assert found.verdict == "equal" and not any(one.arguments for one in found.found.operations)


def test_operations_that_stand_for_others_are_not_taken_for_each_other() -> None:
    """What reads the two products is not the same operation."""
    found = told(lambda x: x * 0.5 + 1, lambda x: x * 0.25 * 2 + 1)
    assert found.verdict == "equal" and found.found.first is None


torch_pairs = {
    "gelu": "approximate none against tanh",
    "softplus": "beta 1 against 1.5",
    "elu": "alpha 1.0 against 0.7",
    "pow": "exponent 2.5 against 2.6",
    "layer_norm": "eps 1e-05 against 1e-06",
    "mul": "other 0.5 against 0.25",
}


@pytest.mark.parametrize("name", torch_pairs)
def test_arguments_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    v = torch.from_numpy(ROWS)
    left, right = {
        "gelu": (lambda: functional.gelu(v), lambda: functional.gelu(v, approximate="tanh")),
        "softplus": (lambda: functional.softplus(v), lambda: functional.softplus(v, beta=1.5)),
        "elu": (lambda: functional.elu(v), lambda: functional.elu(v, alpha=0.7)),
        "pow": (lambda: v.abs() ** 2.5, lambda: v.abs() ** 2.6),
        "layer_norm": (
            lambda: functional.layer_norm(v, (20,)),
            lambda: functional.layer_norm(v, (20,), eps=1e-6),
        ),
        "mul": (lambda: v * 0.5, lambda: v * 0.25),
    }[name]
    first = probe.first_difference(left, right).found.first
    assert first is not None and first.cause_text == f"argument: {torch_pairs[name]}"


def test_a_window_that_other_arguments_move_is_named_as_both() -> None:
    torch = pytest.importorskip("torch")
    v = torch.from_numpy(ROWS)[None]
    pool = torch.nn.functional.avg_pool1d
    found = probe.first_difference(
        lambda: pool(v, 3, 1, 1), lambda: pool(v, 3, 1, 1, count_include_pad=False)
    )
    assert found.verdict == "differs"
    assert found.found.first.cause_text == "window+argument: count_include_pad True against False"

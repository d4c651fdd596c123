"""A model behind a state: what it leaves is what it takes, whatever kind of object that is."""

from typing import Any

import numpy as np
import pytest

from probe.case.errors import InputError, TargetError
from probe.record.subject import FunctionSubject, Stepped, SteppedFunction, stepped

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).standard_normal((1, 6, 4)).astype(np.float32)
ALONG = [{"x": 1}]


class Cache:
    """As libraries have them: an object that grows in place."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


class Total(torch.nn.Module):  # type: ignore[misc,name-defined]
    """The sum of all positions so far, in bfloat16."""

    def forward(self, x: Any, cache: Any = None) -> tuple[Any, Any]:
        cache = Cache() if cache is None else cache
        cache.seen.append(x.to(torch.bfloat16))
        return torch.cat(cache.seen, 1).sum(1, keepdim=True) + 0 * x, cache


def test_an_object_that_is_written_in_place_and_holds_bfloat16_is_carried() -> None:
    steps = stepped(FunctionSubject(Total()), {"x": X}, ALONG, "stream:2")
    assert isinstance(steps, SteppedFunction) and steps.states == {"cache": 1}
    outputs, state = steps.advance({"x": X[:, :2]}, None)
    for _ in range(2):  # what a call writes into its state isn't kept
        second, _ = steps.advance({"x": X[:, 2:4]}, state)
        assert len(state["cache"].seen) == 1 and state["cache"].seen[0].dtype == torch.bfloat16
    held = torch.from_numpy(X[:, :4]).to(torch.bfloat16).sum(1, keepdim=True)
    np.testing.assert_array_equal(second[0], (held + torch.zeros(1, 2, 4)).numpy())
    assert len(outputs) == 1


@pytest.mark.parametrize("holder", ["tensor", "list", "object"])
def test_a_state_that_gradients_led_to_is_copied(holder: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.GRU(4, 3, batch_first=True)

    def function(x: Any, state: Any = None) -> tuple[Any, Any]:
        h = state
        if state is not None and holder != "tensor":
            h = state[0] if holder == "list" else state.seen[0]
        y, h = net(torch.as_tensor(x), h)
        left = Cache()
        left.seen.append(h)
        return y, {"tensor": h, "list": [h], "object": left}[holder]

    steps = stepped(FunctionSubject(function), {"x": X}, ALONG, "stream:3")
    first, state = steps.advance({"x": X[:, :3]}, None)
    second, _ = steps.advance({"x": X[:, 3:]}, state)
    whole = net(torch.from_numpy(X))[0].detach().numpy()
    np.testing.assert_allclose(np.concatenate([first[0], second[0]], 1), whole, rtol=1e-5)


def test_a_state_that_can_not_be_copied_is_refused_in_one_line() -> None:
    def function(x: Any, state: Any = None) -> tuple[Any, Any]:
        return torch.as_tensor(x) * 2, (n for n in range(3))

    steps = stepped(FunctionSubject(function), {"x": X}, ALONG, "stream:3")
    _, state = steps.advance({"x": X[:, :3]}, None)
    with pytest.raises(InputError, match="^state=.*can't be copied") as refused:
        steps.advance({"x": X[:, 3:]}, state)
    assert "\n" not in str(refused.value)


def test_a_function_that_waits_for_tensors_is_told_what_it_was_called_with() -> None:
    net = torch.nn.GRU(4, 3, batch_first=True)
    subject = FunctionSubject(lambda x, state=None: net(x, state))
    with pytest.raises(TargetError, match=r"ndarray float32 \[1, 6, 4\].*torch.from_numpy\(x\)"):
        stepped(subject, {"x": X}, ALONG, "stream:3")


def test_a_dictionary_says_by_its_names_what_is_the_state() -> None:
    class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, past: Any = None, scale: float = 1.0) -> dict[str, Any]:
            start = 0 if past is None else past
            y = (x.cumsum(1) + start) * scale
            return {"logits": y, "past": y[:, -1:]}

    steps = stepped(FunctionSubject(Named()), {"x": X}, ALONG, "stream:3")
    assert steps.states == {"past": "past"}
    outputs, state = steps.advance({"x": X[:, :3]}, None)
    outputs += steps.advance({"x": X[:, 3:]}, state)[0]
    np.testing.assert_allclose(np.concatenate(outputs, 1), X.cumsum(1), rtol=1e-5)


def test_functions_of_numpy_and_what_has_no_state_are_told_apart() -> None:
    def running(x: Any, state: Any = None) -> Any:
        total = np.cumsum(x, axis=1) + (np.float32(0) if state is None else state)
        return total, total[:, -1:]

    steps = stepped(FunctionSubject(running), {"x": X}, ALONG, "stream:3")
    assert type(steps) is Stepped and steps.states == {"state": 1}
    state = steps.advance({"x": X[:, :3]}, None)[1]
    np.testing.assert_array_equal(state["state"], X.cumsum(1)[:, 2:3])
    with pytest.raises(InputError, match="^at=stream:3"):
        stepped(FunctionSubject(torch.nn.Linear(4, 4)), {"x": X}, ALONG, "stream:3")
    assert not stepped(FunctionSubject(torch.nn.Linear(4, 4)), {"x": X}, ALONG, "").states

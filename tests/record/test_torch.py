"""PyTorch's recorder: the same bits as unwatched, each value once, each operation alone again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the recorder watches PyTorch")


import probe  # noqa: E402
from probe.case.errors import InputError  # noqa: E402
from probe.order.semantics import Moves, Unknown  # noqa: E402
from probe.record.contract import WEIGHT  # noqa: E402
from probe.record.recording import array_digest, record_run  # noqa: E402
from probe.record.torch import TorchRecorder, opened  # noqa: E402
from tests.record.recorded import alone, bits, events, wrong  # noqa: E402

pytestmark = pytest.mark.long

nn, F = torch.nn, torch.nn.functional
G = torch.Generator().manual_seed(3)
X = torch.randn(2, 6, 9, 9, generator=G)
Y = torch.randn(2, 7, 12, generator=G)


class Block(nn.Module):
    """A residual block with a norm over channels last, as a user writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.LayerNorm(6)
        self.register_buffer("shift", torch.randn(6, 1, 1, generator=G))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return (x + self.shift + F.gelu(y)).relu_()


MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "residual": (lambda: nn.Sequential(Block(), Block(), nn.AvgPool2d(2)), X),
    "channels last": (
        lambda: nn.Sequential(Block(), nn.Conv2d(6, 3, 1)).to(memory_format=torch.channels_last),
        X.to(memory_format=torch.channels_last),
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(12, 3, 16, batch_first=True), Y),
    "lstm": (lambda: nn.LSTM(12, 5, 2, batch_first=True, bidirectional=True), Y),
    "gru": (lambda: nn.GRU(12, 5, batch_first=True), Y),
    "picture": (
        lambda: nn.Sequential(
            *(nn.ConvTranspose2d(6, 4, 2, 2), nn.BatchNorm2d(4), nn.Upsample(scale_factor=2)),
            *(nn.Conv2d(4, 4, 3, groups=2), nn.MaxPool2d(2), nn.Flatten(), nn.Softmax(1)),
        ),
        X,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_watched_bits_are_unwatched_bits_and_each_operation_runs_alone(name: str) -> None:
    make, x = MODELS[name]
    torch.manual_seed(1)
    model = make().eval()
    live = record_run(TorchRecorder(lambda: model(x)))
    assert bits(live.results) == bits(TorchRecorder(lambda: model(x)).plain())
    assert not [why for event in events(TorchRecorder(lambda: model(x))) if (why := wrong(event))]
    with torch.no_grad():  # as scripts run lines
        assert alone(TorchRecorder(lambda: model(x)), lambda array, _: torch.from_numpy(array))[1]


def test_operations_are_told_where_they_are_and_weights_their_names() -> None:
    model = nn.Sequential(Block(), Block()).eval()
    recording = record_run(TorchRecorder(lambda: model(X)))
    convolution = next(o for o in recording.operations if o.op == "aten.convolution")
    assert convolution.path == "0.conv"
    names = {v.name for v in recording.values if v.role == WEIGHT}
    assert {"0.conv.weight", "0.norm.bias", "1.shift"} <= names
    assert sum(v.role == "input" for v in recording.values) == 1


def test_a_scalar_and_what_finds_nothing_are_compared() -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.nonzero(x[:, 0] > 1e9)[:, 0]
        return x.index_add(0, rows, x[rows] * 2), x.abs().max()

    found = probe.first_difference(lambda: run(Y), lambda: run(Y))
    told = [one["compared"] for one in found.to_json()["outputs"]]
    assert found.verdict == "equal" and told == [Y.numel(), 1]
    assert probe.first_difference(lambda: run(Y[:1]), lambda: run(Y)).verdict != "differs"


def test_inference_mode_and_random_numbers() -> None:
    def run() -> torch.Tensor:
        with torch.inference_mode():
            return F.dropout(Y.clone().add_(1), 0.5)

    torch.manual_seed(0)
    every = [event for event, *_ in events(TorchRecorder(run))]
    (*_, drawn) = [one for one in every if "bernoulli" in one.op or "dropout" in one.op]
    assert isinstance(drawn.meaning, Unknown)
    assert drawn.again is None


def test_numbers_are_drawn_alike_from_one_state_of_their_generator_alone() -> None:
    def drawn(*sizes: int) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            torch.manual_seed(0)
            return [torch.rand(n) for n in sizes][-1] * 2

        return call

    assert probe.first_difference(drawn(4, 5), drawn(4, 5)).verdict == "equal"
    found = probe.first_difference(drawn(4, 5), drawn(2, 5))
    assert found.verdict == "differs"  # by index; the state that it draws from is an argument
    assert found.first is None or found.first.arguments
    layer, x = nn.Dropout(0.5), torch.ones(4, 6)

    def twice(count: int) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            torch.manual_seed(0)
            return layer(layer(x[:count]))

        return call

    assert probe.first_difference(twice(4), twice(4)).verdict == "equal"
    found = probe.first_difference(twice(2), twice(4))  # the second draws behind other draws
    assert found.verdict == "differs" and (found.first is None or found.first.arguments)


def test_a_product_of_complex_numbers_may_be_rounded_in_several_ways() -> None:
    z = torch.complex(X, X.flip(0))
    every = record_run(TorchRecorder(lambda: (z * z, z + z, z.abs(), X * X))).operations
    found = [one.meaning.exact for one in every if "mul" in one.op or "a" in one.op[5:7]]
    assert found == [False, True, False, True], [one.op for one in every]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_model_files_need_trust(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(12, 3), nn.Tanh()).eval()
    script, pickled, weights = (tmp_path / f"{name}.pt" for name in ("script", "whole", "weights"))
    torch.jit.save(torch.jit.trace(model, Y), str(script))
    torch.save(model, pickled)
    torch.save(model.state_dict(), weights)
    for path, name in ((script, "input"), (pickled, "input")):
        with pytest.raises(InputError, match="trust=True"):
            opened(path)
        found = opened(path, trust=True)
        assert [one.name for one in found.inputs] == [name]
        recorder = found.recorder({name: Y.numpy()})
        assert bits(record_run(recorder).results) == bits([model(Y).detach().numpy()])
    with pytest.raises(InputError, match="weights alone"):
        opened(weights, trust=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_exported_programs_say_their_inputs(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(6, 3, 3), nn.ReLU()).eval()
    sizes = {0: torch.export.Dim("batch"), 3: torch.export.Dim("width", min=4)}
    torch.export.save(torch.export.export(model, (X,), dynamic_shapes=(sizes,)), tmp_path / "m.pt2")
    with pytest.raises(InputError, match="trust=True"):
        opened(tmp_path / "m.pt2")
    found = opened(tmp_path / "m.pt2", trust=True)
    assert found.inputs[0].shape == (None, 6, 9, None)
    assert found.inputs[0].dtype == "float32"
    recorder = found.recorder({found.inputs[0].name: X.numpy()})
    assert bits(recorder.plain()) == bits(record_run(recorder).results)
    with pytest.raises(AssertionError, match="size"):
        found.recorder({found.inputs[0].name: X.numpy()[0]})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_code_that_is_not_compiled_inside_a_compiled_function_is_watched_as_any_other() -> None:
    """The compiler looks at every frame then, and must leave those of the recorder alone."""

    def loop(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x.sin()
            torch._dynamo.graph_break()  # in a loop: the whole function runs as it is
        return x

    compiled = torch.compile(loop)
    live = record_run(TorchRecorder(lambda: compiled(Y)))
    assert [one.op for one in live.operations] == ["aten.sin", "aten.sin"]
    assert np.array_equal(live.results[0], Y.sin().sin().numpy())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_compiled_function_is_one_operation_with_its_own_bits() -> None:
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 3)).eval()
    compiled = torch.compile(model)
    try:
        plain = TorchRecorder(lambda: compiled(Y)).plain()
    except Exception as error:  # no C++ compiler here
        pytest.skip(f"torch.compile doesn't work here: {str(error)[:80]}")
    recorder = TorchRecorder(lambda: compiled(Y) + 1)
    live = record_run(recorder)
    assert [o.op for o in live.operations] == ["compiled", "aten.add.Tensor"]
    assert bits(live.results) == bits([plain[0] + np.float32(1)])
    assert "compiled" in recorder.note


def _encoder() -> Callable[[torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 1).eval()
    hidden = torch.arange(6) >= torch.tensor([[6], [4], [6], [2]])
    return lambda x: model(x, src_key_padding_mask=hidden[: len(x)])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@torch.no_grad()
def test_packed_sequences_are_no_error() -> None:
    x = torch.randn(4, 6, 16, generator=torch.Generator().manual_seed(6))
    model = _encoder()
    part = probe.first_difference(lambda: model(x[:2]), lambda: model(x))
    differing = int((model(x[:2]) != model(x)[:2]).sum())
    assert part.verdict == ("differs" if differing else "equal")
    same = probe.first_difference(lambda: model(x), lambda: model(x))
    assert same.verdict == "equal" and same.found.same_inputs


def test_what_is_called_with_gradients_is_compared_with_them() -> None:
    """PyTorch runs different kernels where gradients are on, which give different bits."""
    torch.manual_seed(0)
    x, layer = torch.randn(8, 20, 32), nn.LSTM(32, 40, batch_first=True).eval()
    left, right = (lambda: layer(x[:1])[0]), (lambda: layer(x)[0])
    found = probe.first_difference(left, right, explain=False)
    differing = int((left() != right()[:1]).sum())
    assert [(one.compared, one.differing) for one in found.outputs] == [(800, differing)]
    assert found.verdict == ("differs" if differing else "equal")


class Trained(torch.autograd.Function):
    """A kernel whose bits depend on whether gradients are on, on any processor."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, on: bool) -> torch.Tensor:
        return x.sin() * 1.25 if on else x.sin()

    @staticmethod
    def backward(context: Any, grad: torch.Tensor) -> Any:
        return grad, None


def test_a_run_is_recorded_with_gradients_where_they_are_on() -> None:
    weight, x = torch.randn(6, requires_grad=True), torch.randn(5, 6)
    trained = lambda: Trained.apply(x * weight, torch.is_grad_enabled())  # noqa: E731
    plain = torch.no_grad()(trained)
    assert probe.first_difference(trained, plain, explain=False).verdict == "differs"
    with torch.no_grad():
        assert probe.first_difference(trained, plain, explain=False).verdict == "equal"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_what_torch_func_transforms_is_recorded() -> None:
    """Weights that ``functional_call`` gives are wrapped, and gradients may be zeros that have no
    memory: PyTorch refuses to say where either lies."""
    from torch.func import functional_call, grad, jvp, vmap

    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh()), torch.randn(4, 6, generator=G)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    several = {name: torch.stack([weight, 2 * weight]) for name, weight in weights.items()}

    def called(weights: Any, x: Any) -> Any:
        return functional_call(model, weights, (x,))

    def gradients() -> list[Any]:
        each = vmap(grad(lambda w, x: called(w, x).sum()), in_dims=(None, 0))
        return list(each(weights, x).values())

    def ensemble() -> Any:
        return vmap(called, in_dims=(0, None))(several, x)

    def tangent() -> Any:
        return jvp(model, (x,), (x,))

    for run in (gradients, ensemble, tangent):
        recorder = TorchRecorder(run)
        recorded = record_run(recorder)
        outputs = [recorded.values[number].digest for number in recorded.outputs]
        assert outputs == [*map(array_digest, recorder.plain())]
        assert len(recorded.operations) > 2


@pytest.mark.parametrize(
    "beside", [float, lambda y: y.numpy(), bool], ids=["number", "array", "truth"]
)
def test_what_stands_beside_tensors_is_compared(beside: Callable[[Any], Any]) -> None:
    """``(logits, hidden.numpy())``: what was no tensor was left out, and the two were "equal"."""
    call = lambda at: (Y * 2, beside(Y.reshape(-1)[at : at + 1] - Y.reshape(-1)[0]))  # noqa: E731
    same = probe.first_difference(lambda: call(3), lambda: call(3), explain=False)
    other = probe.first_difference(lambda: call(0), lambda: call(3), explain=False)
    assert (same.verdict, other.verdict) == ("equal", "differs")
    assert [one["differing"] for one in other.to_json()["outputs"]] == [0, 1]


def test_another_shape_of_the_same_numbers_is_not_equal() -> None:
    found = probe.first_difference(lambda: Y.reshape(-1) * 1, lambda: Y * 1, explain=False)
    assert found.verdict == "unknown" and "output's shape is" in found.lines()[1]


class Named(nn.Module):
    """Outputs by name, not in the order of the names; changes its input."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x.mul_(2)
        return {"b": x + 1, "a": x.argmax(-1)}


def test_outputs_by_name_and_changed_inputs_are_compared_at_each_batch() -> None:
    """The first call's outputs were in another order than those of the later ones."""
    x = np.random.default_rng(0).normal(size=(4, 8)).astype("f4")
    found = probe.network(Named().eval(), inputs=x, vary="batch", at=1, against=4)
    assert found.verdict == "equal" and not found.found.notes
    assert [one["elements"] for one in found.to_json()["outputs"]] == [4, 32]


def test_a_module_that_returns_numpy_is_refused_in_one_line() -> None:
    class Numpy(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x).numpy()

    x = np.ones((4, 8), "f4")
    with pytest.raises(InputError, match="from which the library that computed them can't be seen"):
        probe.network(Numpy(8, 3).eval(), inputs=x, vary="batch", at=1, against=4)


# which value a tensor is, while memory changes


def test_a_change_through_a_view_makes_new_values() -> None:
    def run() -> Any:
        base = torch.zeros(3, 4)
        row = base[1]
        row += 2
        base[:, 2:].copy_(Y[0, :3, :2])
        return base * 1, row * 1, base.T[1] * 1

    live = record_run(TorchRecorder(run))
    assert bits(live.results) == bits(TorchRecorder(run).plain())
    renewed = [o for o in live.operations if o.op == "changed through a view"]
    assert renewed
    for event in events(TorchRecorder(run)):
        if event[0].op == "changed through a view":
            assert isinstance(event[0].meaning, Moves) and not wrong(event)


def test_an_input_that_the_run_changes_is_read_before() -> None:
    given = torch.ones(3)

    def run() -> torch.Tensor:
        return given.mul_(2) + 0

    (first, *_) = events(TorchRecorder(run))
    assert first[1][0].tolist() == [1, 1, 1]
    assert first[2][0].tolist() == [2, 2, 2]


def test_values_are_not_kept_and_addresses_not_mistaken() -> None:
    died = []

    def run() -> torch.Tensor:
        total = torch.zeros(1000)
        for n in range(20):
            one = Y.sum() + torch.full((1000,), float(n))
            reference = weakref.ref(one)
            total = total + one
            del one
            died.append(reference() is None)
        return total

    live = record_run(TorchRecorder(run))
    assert all(died)
    assert len(live.operations) == 1 + 20 * 4
    assert live.operations[-1].reads[0] == live.operations[-5].gives[0]


def test_what_nothing_was_written_into_is_no_value() -> None:
    recording = record_run(TorchRecorder(lambda: torch.empty(5).fill_(2.0) + 1))
    assert [o.op for o in recording.operations] == ["aten.fill_.Scalar", "aten.add.Tensor"]
    assert not recording.operations[0].reads


def _filled(x: torch.Tensor) -> torch.Tensor:
    """Memory that is filled part by part, read in between, as a cache of keys is."""
    found = torch.empty(len(x), 3, 8)
    for n in range(3):
        found[:, n] = x * (n + 1)
        found[:, n] += found[:, : n + 1].sum(1)
    return found


@pytest.mark.parametrize("function", [_filled, lambda x: F.pad(x[:, None], (2, 1), "circular") * 2])
def test_memory_that_is_filled_part_by_part_is_no_input(function: Callable[..., Any]) -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    found = probe.first_difference(lambda: function(x[1:3]), lambda: function(x))
    assert found.verdict == "equal" and not found.found.same_inputs
    (output,) = found.found.outputs
    assert output.compared == function(x[1:3]).numel()
    inputs = [v for v in found.found.left.values if v.given < 0 and len(v.shape) > 1]
    assert [v.shape for v in inputs] == [(6, 8)]


def test_a_view_has_the_digest_of_its_own_bits() -> None:
    x = torch.randn(5, 6)
    kept = TorchRecorder(lambda: (x.t()[1:].t().unsqueeze(0) + 1).transpose(1, 2))
    for _ in range(3):
        seen = list[str]()
        kept.record(
            lambda event, into=seen: into.extend(array_digest(g.array()) for g in event.gives)
        )
        live = record_run(kept)
        assert [live.values[n].digest for one in live.operations for n in one.gives] == seen
        x.neg_()

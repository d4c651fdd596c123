"""PyTorch's recorder: the same bits as unwatched, each value once, each operation alone again."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the recorder watches PyTorch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import probe  # noqa: E402
from probe import layout  # noqa: E402
from probe.errors import InputError  # noqa: E402
from probe.recorders.torch import TorchRecorder, opened, tensors  # noqa: E402
from probe.recorders.torch_values import lay_like, slot_of  # noqa: E402
from probe.recording.contract import WEIGHT, Operation  # noqa: E402
from probe.recording.judging import has_no_choice  # noqa: E402
from probe.recording.matching import labels_of  # noqa: E402
from probe.recording.recording import Run, array_digest, record_run  # noqa: E402
from probe.reproduction import recorded as reports  # noqa: E402
from probe.semantics import Moves, Unknown  # noqa: E402

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


def _events(
    function: Callable[[], Any],
) -> list[tuple[Operation, list[np.ndarray], list[np.ndarray]]]:
    """Returns every operation with the bits that it read and gave."""
    arrays, found = dict[Any, np.ndarray](), []

    def noted(one: Operation) -> None:
        for some in ([seen for seen in one.reads if seen.key not in arrays], one.gives):
            reads = [arrays.get(seen.key) for seen in one.reads]
            arrays.update({seen.key: np.array(seen.array(), order="C") for seen in some})
        found.append((one, reads, [arrays[seen.key] for seen in one.gives]))

    TorchRecorder(function).record(noted)
    return found


def _bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [np.ascontiguousarray(one).tobytes() for one in arrays]


@pytest.mark.parametrize("name", MODELS)
def test_watched_bits_are_unwatched_bits_and_each_operation_runs_alone(name: str) -> None:
    make, x = MODELS[name]
    torch.manual_seed(1)
    model = make().eval()
    live = record_run(TorchRecorder(lambda: model(x)))
    assert _bits(live.results) == _bits(TorchRecorder(lambda: model(x)).plain())
    assert not [o.op for o in live.operations if isinstance(o.meaning, Unknown)]
    for event, reads, gives in _events(lambda: model(x)):
        assert event.again is not None, event.op
        assert _bits(event.again(reads)) == _bits(gives), event.op


@pytest.mark.parametrize("name", ["residual", "picture", "encoder"])
def test_lines_compute_what_the_operation_computed(name: str) -> None:
    make, x = MODELS[name]
    torch.manual_seed(1)
    model = make().eval()
    written = 0
    for event, reads, gives in _events(lambda: model(x)):
        if event.lines is None:
            continue
        names = [f"x{n}" for n in range(len(reads))]
        scope: dict[str, Any] = {n: torch.from_numpy(a) for n, a in zip(names, reads, strict=True)}
        with torch.no_grad():
            exec("\n".join([*event.imports, *event.lines(names, "y")]), scope)
        made = scope["y"] if len(gives) > 1 else [scope["y"]]
        assert _bits([one.numpy() for one in made]) == _bits(gives), event.lines(names, "y")
        written += 1
    assert written


def test_operations_are_told_where_they_are_and_weights_their_names() -> None:
    model = nn.Sequential(Block(), Block()).eval()
    recording = record_run(TorchRecorder(lambda: model(X)))
    convolution = next(o for o in recording.operations if o.op == "aten.convolution")
    assert convolution.path == "0.conv"
    names = {v.name for v in recording.values if v.role == WEIGHT}
    assert {"0.conv.weight", "0.norm.bias", "1.shift"} <= names
    assert sum(v.role == "input" for v in recording.values) == 1


def test_a_change_through_a_view_makes_new_values() -> None:
    def run() -> Any:
        base = torch.zeros(3, 4)
        row = base[1]
        row += 2
        base[:, 2:].copy_(Y[0, :3, :2])
        return base * 1, row * 1, base.T[1] * 1

    live = record_run(TorchRecorder(run))
    assert _bits(live.results) == _bits(TorchRecorder(run).plain())
    renewed = [o for o in live.operations if o.op == "changed through a view"]
    assert renewed
    for event, reads, gives in _events(run):
        if event.op == "changed through a view":
            assert isinstance(event.meaning, Moves)
            assert _bits([event.meaning.move(*reads)]) == _bits(gives)


def test_an_input_that_the_run_changes_is_read_before() -> None:
    given = torch.ones(3)

    def run() -> torch.Tensor:
        return given.mul_(2) + 0

    (first, *_) = _events(run)
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


@dataclass
class Answer:
    """As transformers' models give it."""

    hidden: torch.Tensor
    pooled: tuple[torch.Tensor, ...] = ()


def test_outputs_of_any_kind_are_found() -> None:
    found = tensors({"a": Answer(X, (Y, X[0])), "b": [Y[0], 3, None]})
    assert [one.shape for one in found] == [X.shape, Y.shape, X[0].shape, Y[0].shape]
    live = record_run(TorchRecorder(lambda: Answer(X + 1, (Y * 2,))))
    assert len(live.results) == 2
    one, other = {"a": X, "b": X.exp()}, {"b": X.exp(), "a": X}
    assert probe.first_difference(lambda: one, lambda: other).verdict == "equal"


def test_numbers_of_eight_bits_are_compared_as_bytes() -> None:
    def run() -> torch.Tensor:
        return (Y.to(torch.float8_e4m3fn).to(torch.float32) * 2).to(torch.float8_e5m2)

    live = record_run(TorchRecorder(run))
    kinds = [live.values[one.gives[0]].dtype for one in live.operations]
    assert kinds == ["uint8", "float32", "float32", "uint8"]
    assert np.array_equal(live.results[0], run().view(torch.uint8).numpy())
    for event, reads, gives in _events(run):  # each runs alone on its bytes
        assert event.again is not None and _bits(event.again(reads)) == _bits(gives)


def test_a_scalar_and_what_finds_nothing_are_compared() -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.nonzero(x[:, 0] > 1e9)[:, 0]
        return x.index_add(0, rows, x[rows] * 2), x.abs().max()

    found = probe.first_difference(lambda: run(Y), lambda: run(Y))
    told = [one["compared"] for one in found.to_json()["outputs"]]
    assert found.verdict == "equal" and told == [Y.numel(), 1]
    assert probe.first_difference(lambda: run(Y[:1]), lambda: run(Y)).verdict != "differs"


@pytest.mark.parametrize(("axis", "start", "places"), [(3, 0, 0), (3, 4, 0), (2, 4, 0), (2, 0, 48)])
def test_places_of_maxima_agree_at_the_same_place_alone(axis: int, start: int, places: int) -> None:
    """They count through the whole input: rows of another width begin elsewhere."""
    x = torch.randn(2, 3, 8, 8, generator=G)
    part = x.narrow(axis, start, 4)
    found = probe.first_difference(lambda: F.max_pool2d(part, 2), lambda: F.max_pool2d(x, 2))
    assert found.found.first is None and found.verdict == "equal"
    (pool,) = (one for one in found.found.operations if "max_pool" in one.op)
    assert pool.gives[0].compared == 48 and pool.gives[1].compared <= places


def test_inference_mode_and_random_numbers() -> None:
    def run() -> torch.Tensor:
        with torch.inference_mode():
            return F.dropout(Y.clone().add_(1), 0.5)

    torch.manual_seed(0)
    (*_, drawn) = [e for e, *_ in _events(run) if "bernoulli" in e.op or "dropout" in e.op]
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
    assert found.verdict == "unknown" and found.first is None
    layer, x = nn.Dropout(0.5), torch.ones(4, 6)

    def twice(count: int) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            torch.manual_seed(0)
            return layer(layer(x[:count]))

        return call

    assert probe.first_difference(twice(4), twice(4)).verdict == "equal"
    assert probe.first_difference(twice(2), twice(4)).verdict != "differs"


def test_a_product_of_complex_numbers_may_be_rounded_in_several_ways() -> None:
    z = torch.complex(X, X.flip(0))
    every = record_run(TorchRecorder(lambda: (z * z, z + z, z.abs(), X * X))).operations
    found = [has_no_choice(one.meaning) for one in every if "mul" in one.op or "a" in one.op[5:7]]
    assert found == [False, True, False, True], [one.op for one in every]


@pytest.mark.filterwarnings("ignore")
def test_packed_weights_are_told_apart_and_shapes_without_numbers_refused() -> None:
    def packed(seed: int) -> Any:
        torch.manual_seed(seed)
        return torch.ao.nn.quantized.dynamic.Linear(12, 3)

    def told(seed: int) -> Any:
        model = packed(seed)
        model.set_weight_bias(
            torch.quantize_per_tensor(torch.randn(3, 12), 0.1, 0, torch.qint8), None
        )
        return record_run(TorchRecorder(lambda: model(Y))).operations[0].attributes

    assert told(1) == told(1) != told(2)
    with pytest.raises(InputError, match="it has a shape and no numbers"):
        probe.first_difference(*[lambda: torch.zeros(3, device="meta") + 1] * 2)
    found = record_run(TorchRecorder(lambda: Y.to("meta").size(0) * Y))
    assert [one.op for one in found.operations] == ["aten.mul.Tensor"]


def test_operations_of_other_libraries_are_not_taken_for_atens() -> None:
    @torch.library.custom_op("probe_test::relu", mutates_args=())
    def other(x: torch.Tensor) -> torch.Tensor:
        return x.flip(0).sin()

    (event, *_), *_ = [e for e in _events(lambda: other(Y)) if "probe_test" in e[0].op]
    assert isinstance(event.meaning, Unknown)


def test_what_nothing_was_written_into_is_no_value() -> None:
    recording = record_run(TorchRecorder(lambda: torch.empty(5).fill_(2.0) + 1))
    assert [o.op for o in recording.operations] == ["aten.fill_.Scalar", "aten.add.Tensor"]
    assert not recording.operations[0].reads


def test_operands_lie_in_memory_as_they_did() -> None:
    wide = torch.arange(60, dtype=torch.float32)
    for one in (wide[1:25].view(4, 6).T, wide[:6].expand(3, 6), X.permute(0, 2, 3, 1), wide[7]):
        other = lay_like(one.numpy(), slot_of(one))
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    assert lay_like(np.ones((5, 6), np.float32), slot_of(wide[:24].view(6, 4).T)).stride() == (1, 5)
    uneven = lay_like(np.arange(18, dtype=np.float32).reshape(3, 6), slot_of(wide[:6].expand(3, 6)))
    assert uneven[2, 5] == 17


def laid_at(one: torch.Tensor, address: int) -> torch.Tensor:
    """The same values in memory that somebody else has allocated: mapped, or NumPy's."""
    bits = one.contiguous().view(torch.uint8).numpy().reshape(-1)
    return torch.from_numpy(layout.copied(bits, address)).view(one.dtype).view(one.shape)


@pytest.mark.parametrize("address", [*range(0, 64, 4), 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_operands_begin_where_they_began(address: int, dtype: Any) -> None:
    whole = laid_at(torch.arange(24).reshape(4, 6).to(dtype), address)
    seen: list[list[int]] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.add.Tensor:
                seen.append([one.data_ptr() % 64 for one in args])
            return func(*args, **(kwargs or {}))

    for one in (whole, whole.T, whole[1:, ::2], whole[:1].expand(4, 6), whole[2, 3]):
        at = one.data_ptr() % 64
        ((event, arrays, gives),) = _events(lambda one=one: torch.add(one, one))  # type: ignore[misc]
        assert [read.address for read in event.reads] == [at, at]
        assert event.again is not None and _bits(event.again(arrays)) == _bits(gives)
        with Watching():
            event.again(arrays)
            event.again.moved([12, None])(arrays)  # type: ignore[attr-defined]
        assert seen[-2:] == [[at, at], [12, at]]
        scope: dict[str, Any] = {"np": np, "torch": torch}
        scope |= {f"x{n}": torch.tensor(a).view(dtype) for n, a in enumerate(arrays)}
        exec("\n".join(event.lines(["x0", "x1"], "y")), scope)
        assert [scope[f"x{n}"].data_ptr() % 64 for n in (0, 1)] == [at, at]
        assert scope["x0"].stride() == one.stride() and torch.equal(scope["x0"], one)


def test_a_weight_that_begins_elsewhere_is_found_and_its_script_gives_the_bits(
    tmp_path: Path,
) -> None:
    """As safetensors puts it: 8 bytes behind a multiple of 16, in memory that it maps."""
    x, w, b = X.reshape(-1)[:96].reshape(1, 96), torch.randn(64, 96), torch.randn(64)
    other = [laid_at(w, at) for at in (4, 8, 12, 32)]
    rows = [F.linear(x, one, b) for one in (w, *other)]
    apart = next((n for n, row in enumerate(rows) if not torch.equal(row, rows[0])), None)
    if apart is None:
        pytest.skip("this processor's product does not depend on the address")
    moved = other[apart - 1]
    found = probe.first_difference(lambda: F.linear(x, w, b), lambda: F.linear(x, moved, b))
    (cause,), walked = found.found.causes.values(), found.found
    assert cause.kind == "alignment" and cause.replayed == cause.differing > 0
    assert walked.first is not None
    both = walked.left, walked.right
    made = reports.write_operation(tmp_path / "out", both, walked.first, cause, times=1)
    assert f"{cause.differing} of 64 outputs differ" in repr(made)


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
        assert _bits(record_run(recorder).results) == _bits([model(Y).detach().numpy()])
        with pytest.raises(InputError, match="no such input"):
            found.recorder({"other": Y.numpy()})
        with pytest.raises(InputError, match="needs it"):
            found.recorder({})
    with pytest.raises(InputError, match="weights alone"):
        opened(weights, trust=True)
    with pytest.raises(InputError, match="no such file"):
        opened(tmp_path / "missing.pt", trust=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.slow
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
    assert _bits(recorder.plain()) == _bits(record_run(recorder).results)
    with pytest.raises(InputError, match="has shape"):
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
    assert _bits(live.results) == _bits([plain[0] + np.float32(1)])
    assert "compiled" in recorder.note


def test_an_operation_alone_runs_on_the_threads_that_it_was_recorded_with(monkeypatch):
    before, told, events = torch.get_num_threads(), [], []

    def function():
        torch.set_num_threads(1)
        return torch.relu(x)

    x = torch.randn(5)
    try:
        recorder = TorchRecorder(function)
        recorder.record(events.append)
        assert recorder.target == "torch,threads=1"
        torch.set_num_threads(2)
        monkeypatch.setattr(torch, "set_num_threads", told.append)
        events[0].again([x.numpy()])
        assert told == [1, 2]
    finally:
        monkeypatch.undo()
        torch.set_num_threads(before)


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


TAKEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "turned round": lambda x: x.flip(0),
    "shuffled": lambda x: x[torch.tensor([2, 0, 1, 3])],
    "two of its rows": lambda x: x[1:3],
}


@pytest.mark.parametrize("name", TAKEN)
def test_rows_in_another_order_are_not_the_same_inputs(name: str) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(4))
    taken = TAKEN[name]
    model = lambda x: (torch.sin(x), torch.cumsum(x, 1))  # noqa: E731
    found = probe.first_difference(lambda: model(taken(x)), lambda: model(x))
    assert found.verdict == "equal" and found.first is None and not found.found.same_inputs
    assert all(one.compared == taken(x).numel() for one in found.found.outputs)


def test_last_states_of_a_shorter_input_need_not_agree() -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(4))
    model = lambda x: (torch.cumsum(x, 1)[:, -1], torch.cumsum(x, 1))  # noqa: E731
    found = probe.first_difference(lambda: model(x[:, :5]), lambda: model(x))
    assert [one.compared for one in found.found.outputs] == [0, 20]
    assert found.verdict == "unknown" and not any(one.differing for one in found.found.operations)


def test_inputs_may_be_read_elsewhere_on_the_other_side() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(5))
    hidden = torch.zeros(4, 6, dtype=torch.bool)
    found = probe.first_difference(
        lambda: x[1:2] * 2, lambda: torch.where(hidden[:, :1], 0, x.clone()) * 2
    )
    assert found.verdict in ("equal", "unknown") and found.first is None


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
    assert part.verdict == "unknown"
    same = probe.first_difference(lambda: model(x), lambda: model(x))
    assert same.verdict == "equal" and same.found.same_inputs


def _said(recording: Run) -> list:
    """All that a recording says, in plain words."""
    return [
        [(one.shape, one.dtype, one.digest, one.role, one.name) for one in recording.values],
        [(o.name, o.op, o.reads, o.gives, repr(o.attributes)) for o in recording.operations],
    ]


def test_a_second_recording_says_what_a_first_one_would() -> None:
    x, layer, index = torch.randn(5, 6), torch.nn.Linear(6, 6), torch.tensor([0, 2, 4])
    numbers = [2.0]

    def run() -> torch.Tensor:
        y = layer(x).t()[index] * numbers[0]
        return y.transpose(0, 1).reshape(-1).expand(2, -1)

    kept = TorchRecorder(run)
    record_run(kept)
    with torch.no_grad():
        layer.weight.mul_(3)
    index.copy_(torch.tensor([5, 1, 1]))
    numbers[0] = -0.5
    again, fresh = record_run(kept), record_run(TorchRecorder(run))
    assert _said(again) == _said(fresh)
    for one, other in zip(*labels_of(again, fresh), strict=True):
        assert np.array_equal(one.array, other.array)  # what is picked, by the index as it is now


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


ROWS_ALONE = {
    "diagonal": lambda x: torch.diagonal(x, 1, 1, 2) * 2,
    "distances": lambda x: torch.cdist(x, x),
    "gates": F.glu,
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0])).float(),
    "determinant": torch.linalg.det,
    "sums": lambda x: torch.zeros_like(x).scatter_reduce(1, (x > 9).long(), x, "sum"),
}


@pytest.mark.parametrize("name", ROWS_ALONE)
def test_one_changed_row_leaves_what_does_not_read_it(name: str) -> None:
    x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(7))
    other = x.clone()
    other[1, 2, 3] += 2
    model = ROWS_ALONE[name]
    found = probe.first_difference(lambda: model(x), lambda: model(other)).found
    assert not [one.op for one in found.operations if one.verdict in ("unknown", "source")]
    (pair,) = found.outputs
    assert pair.known and 0 < pair.compared < model(x).numel()


def test_heads_of_queries_that_share_keys_agree_with_keys_repeated() -> None:
    q = torch.randn(2, 6, 5, 4, generator=G)
    k, v = torch.randn(2, 2, 2, 5, 4, generator=G)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def repeated() -> torch.Tensor:
        return attention(q, *(one.repeat_interleave(3, 1) for one in (k, v)))

    def compared(left: Any, right: Any) -> int:
        (found,) = probe.first_difference(left, right).to_json()["outputs"]
        return int(found["compared"])

    whole = lambda: attention(q, k, v)  # noqa: E731
    assert compared(whole, repeated) == q.numel()
    assert compared(lambda: attention(q[:, 3:], k[:, 1:], v[:, 1:]), whole) == q.numel() // 2
    assert compared(lambda: attention(q[:, 3:], k[:, :1], v[:, :1]), whole) == 0


def on(threads: int, function: Callable[[], Any]) -> Callable[[], Any]:
    """A function that sets the threads for itself, and sets them back."""

    def run() -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return function()
        finally:
            torch.set_num_threads(before)

    return run


def test_the_threads_are_those_that_operations_ran_on() -> None:
    sides = [record_run(TorchRecorder(on(n, lambda: X.sin()))) for n in (1, 3)]
    assert [one.target for one in sides] == ["torch,threads=1", "torch,threads=3"]
    mixed = record_run(TorchRecorder(lambda: (on(1, X.sin)(), on(3, X.cos)(), on(3, X.tan)())))
    assert mixed.target == "torch,threads=3"
    lines = [mixed.operations[n].lines(["x"], "y") for n in range(3)]  # type: ignore[misc]
    assert [one[0] for one in lines] == [f"torch.set_num_threads({n})" for n in (1, 3, 3)]


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("name", ["plain", "causal", "bool", "padded", "bool padded"])
@torch.no_grad()
def test_attention_in_evaluation_mode_is_compared(name: str, weighed: bool) -> None:
    padded = "padded" in name
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True).eval(), torch.randn(4, 5, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(5) if name == "causal" else None
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if "bool" in name else mask
    hidden = torch.zeros(4, 5, dtype=torch.bool)
    hidden[:, 3:] = True

    def run(count: int) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            some = x[:count]
            words = {"key_padding_mask": hidden[:count]} if padded else {}
            return layer(some, some, some, attn_mask=mask, need_weights=weighed, **words)[0]  # type: ignore[no-any-return]

        return call

    found = probe.first_difference(run(2), run(4))
    differing = int((run(2)() != run(4)()[:2]).sum())
    (one,) = found.outputs
    assert (one.compared, one.differing) == (2 * 5 * 16, differing)


@pytest.mark.parametrize("name", ["lstm", "gru", "attention"])
def test_what_is_called_with_gradients_is_compared_with_them(name: str) -> None:
    """PyTorch runs different kernels where gradients are on, which give different bits."""
    torch.manual_seed(0)
    x = torch.randn(8, 20, 32)
    made = {"lstm": nn.LSTM, "gru": nn.GRU, "attention": nn.MultiheadAttention}[name]
    layer = made(32, 40 if name != "attention" else 4, batch_first=True).eval()

    def run(count: int) -> Callable[[], torch.Tensor]:
        some = x[:count]
        given = (some,) * 3 if name == "attention" else (some,)
        return lambda: layer(*given)[0]  # type: ignore[no-any-return]

    found = probe.first_difference(run(1), run(8), explain=False)
    (one,) = found.outputs
    differing = int((run(1)() != run(8)()[:1]).sum())
    assert (one.compared, one.differing) == (run(1)().numel(), differing)
    assert found.verdict == ("differs" if differing else "equal")


class Trained(torch.autograd.Function):
    """A kernel whose bits depend on whether gradients are on, on any processor."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, on: bool) -> torch.Tensor:
        return x.sin() * 1.25 if on else x.sin()

    @staticmethod
    def backward(context: Any, grad: torch.Tensor) -> Any:
        return grad, None


def test_gradients_that_decide_bits_stay_on_and_are_noted() -> None:
    weight = torch.randn(6, requires_grad=True)
    call = lambda x: Trained.apply(x * weight, torch.is_grad_enabled())  # noqa: E731
    x = torch.randn(5, 6)
    trained = lambda: call(x)  # noqa: E731

    @torch.no_grad()
    def plain() -> torch.Tensor:
        return call(x)

    found = probe.first_difference(trained, plain, explain=False)
    assert found.verdict == "differs"
    assert any("recorded with gradients" in note for note in found.found.notes)
    with torch.no_grad():
        found = probe.first_difference(trained, plain, explain=False)
    assert found.verdict == "equal" and not found.found.notes


def test_zeros_of_different_signs_make_no_source() -> None:
    x, zeros = torch.randn(8, 12), torch.zeros(8, 12)
    for call in (torch.copysign, torch.atan2):
        first, second = (zeros, -x.abs()) if call is torch.atan2 else (x, zeros)
        left = lambda: call(first, second)  # noqa: E731, B023
        right = lambda: call(first * -1, second) if call is torch.atan2 else call(x, -zeros)  # noqa: E731, B023
        for explain in (False, True):
            found = probe.first_difference(left, right, explain=explain)
            assert found.verdict == "differs" and found.found.first is None


def test_a_group_reads_once_what_its_operation_reads_twice() -> None:
    """Attention to itself against the same as several operations: queries, keys and values."""
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True).eval(), torch.randn(8, 9, 16)

    def by_hand() -> torch.Tensor:
        both = (layer.in_proj_weight, layer.in_proj_bias)
        q, k, v = F.linear(x, *both).reshape(8, 9, 3, 2, 8).permute(2, 0, 3, 1, 4)
        seen = torch.softmax(q @ k.transpose(-2, -1) / 8**0.5, -1) @ v
        return layer.out_proj(seen.transpose(1, 2).reshape(8, 9, 16))

    with torch.no_grad():
        found = probe.first_difference(lambda: layer(x, x, x)[0], by_hand)
    assert found.verdict in ("equal", "differs")


def test_attention_of_one_row_does_not_agree_with_that_of_others() -> None:
    """Keys that lie like the queries are not the queries."""
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True).eval(), torch.randn(4, 5, 16)
    other = x.flip(1)  # lies as x does
    with torch.no_grad():
        sides = [
            record_run(TorchRecorder(lambda one=one: layer(one, x, x)[0])) for one in (x, other)
        ]
    kinds = [[one.op for one in side.operations] for side in sides]
    assert any("native_multi_head" in op for op in kinds[0])
    found = probe.first_difference(lambda: layer(x, x, x)[0], lambda: layer(other, x, x)[0])
    assert found.verdict != "equal"


@pytest.mark.parametrize("how", ["index_add", "scatter_add", "index_put"])
def test_sums_into_places_stay_sources_where_their_terms_are_permuted(how: str) -> None:
    random = torch.Generator().manual_seed(1)
    source, to = (torch.randint(0, 9, (80,), generator=random) for _ in range(2))
    h, w = torch.randn(9, 4, generator=random), torch.randn(4, 4, generator=random)

    def run(order: torch.Tensor) -> Callable[[], torch.Tensor]:
        def call() -> torch.Tensor:
            terms, at = (h @ w)[source[order]], to[order]
            if how == "index_add":
                return torch.zeros(9, 4).index_add_(0, at, terms).relu()
            if how == "index_put":
                return torch.zeros(9, 4).index_put((at,), terms, accumulate=True).relu()
            return torch.zeros(9, 4).scatter_add(0, at[:, None].expand(-1, 4), terms).relu()

        return call

    for seed in range(8):
        other = torch.randperm(80, generator=torch.Generator().manual_seed(seed))
        found = probe.first_difference(run(torch.arange(80)), run(other))
        if found.verdict == "differs":
            assert found.first is not None and how in found.first.op
            return
    raise AssertionError("no order of 80 terms rounds otherwise")

"""A model in pieces: what is rounding, and what is a mistake, as a user asks it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probe
from probe.case.errors import InputError
from probe.ui.answers.schedule import Scheduled

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.long

nn, F = torch.nn, torch.nn.functional

X = np.random.default_rng(0).standard_normal((1, 12, 16)).astype(np.float32)


class Decoder(nn.Module):  # type: ignore[misc,name-defined]
    """A causal layer with a cache; ``bug``: what is wrong where there is one."""

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        torch.manual_seed(1)
        self.qkv, self.out, self.bug = nn.Linear(16, 48), nn.Linear(16, 16), bug
        self.places = nn.Parameter(torch.randn(32, 16) / 10)

    def forward(self, x: Any, cache: Any = None) -> tuple[Any, Any]:
        n, past = x.shape[1], 0 if cache is None else cache.shape[2]
        x = x + self.places[0 if self.bug == "positions" else past :][:n]
        q, k, v = self.qkv(x).chunk(3, -1)
        if cache is not None and self.bug != "dropped":
            k, v = (torch.cat([old, new], 1) for old, new in zip(cache, (k, v), strict=True))
        many = k.shape[1]
        late = torch.ones(n, many, dtype=bool).triu(
            many - n + 1 + (self.bug == "mask" and past > 0)
        )
        weights = (q @ k.transpose(1, 2) / 4).masked_fill(late, float("-inf")).softmax(-1)
        return x + self.out(weights @ v), torch.stack([k, v])


def asked(model: Any, at: str, x: np.ndarray = X, vary: str = "schedule", **more: Any) -> Scheduled:
    how: dict[str, Any] = {"explain": False, "progress": lambda _: None} | more
    answer = probe.network(model, vary=vary, at=at, inputs={"x": x}, **how)
    assert isinstance(answer, Scheduled)
    return answer


def test_a_cached_step_that_is_right_differs_by_rounding_alone() -> None:
    answer = asked(Decoder().eval(), "cached:8+1*4")
    assert not answer.mistakes and answer.to_json()["compared"] == 5
    assert answer.verdict in ("equal", "differs")
    assert all(output.not_compared == 0 for piece in answer.found for output in piece.differences)


def test_a_right_step_is_named_at_its_first_operation_as_the_library_called_alone_says() -> None:
    model = Decoder().eval()
    answer = asked(model, "cached:8+1*4")
    start, stop = next(each.piece.kept[0] for each in answer.found if each.differing_inside)
    with torch.no_grad():  # the referee: the products of these rows, and of all
        h, own = torch.from_numpy(X) + model.places[:12], slice(start, stop)
        part, whole = model.qkv(h[:, own]), model.qkv(h)
        q, k, _ = whole.chunk(3, -1)
        scores = q[:, own] @ k[:, :stop].transpose(1, 2), (q @ k.transpose(1, 2))[:, own, :stop]
    counts = {
        "aten.addmm": int((part != whole[:, own]).sum()),
        "aten.bmm": int((scores[0] != scores[1]).sum()),
    }
    first = answer.walked and answer.walked.found.first
    assert first is not None and (first.op, first.differing) in counts.items()
    assert first.op == next(name for name, count in counts.items() if count)


ENTERS = {"dropped": "aten._softmax", "mask": "aten.triu", "positions": "aten.slice.Tensor"}


@pytest.mark.parametrize("bug", ENTERS)
def test_a_planted_mistake_is_no_rounding(bug: str) -> None:
    answer = asked(Decoder(bug).eval(), "cached:8+2*2")
    assert answer.enters == ENTERS[bug] and answer.enters in answer.lines()[2]
    assert answer.verdict == "differs" and answer.mistakes
    report = answer.to_json()
    assert (report["far"] if bug == "positions" else report["window"]) > 0
    assert report["pieces"][0]["window"] == 0  # the prompt has no state


def test_chunks_say_their_overlap_and_grid_and_which_sizes_keep_the_bits() -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 32)).astype(np.float32)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(3, 4, 3, padding=1), nn.MaxPool1d(2), nn.ConvTranspose1d(4, 2, 2, 2)
    )
    answer = asked(model.eval(), "chunks:8+overlap:2", x, sizes=[8, 16])
    report = answer.to_json()
    assert report["context"] == {"before": 1, "after": 1} and report["grid"] == 2
    assert not answer.mistakes and [entry["at"] for entry in report["safe"]] == [8, 16]
    with torch.no_grad():  # the referee
        whole = model(torch.from_numpy(x)).numpy()
        parts = [
            model(torch.from_numpy(x[..., max(0, n - 2) : n + 10])).numpy()[..., min(n, 2) :][
                ..., :8
            ]
            for n in range(0, 32, 8)
        ]
    assert sum(o.differing for p in answer.found for o in p.differences) == int(
        (np.concatenate(parts, -1) != whole).sum()
    )
    # at a place of three the pool's maxima are others'
    assert asked(model.eval(), "chunks:7+overlap:1", x).enters.startswith("aten.max_pool")
    short = asked(model.eval(), "chunks:8", x)
    assert short.enters == "aten.convolution at 0"
    assert "window" in short.mistakes[0] and "overlap" in short.lines()[2]


def test_a_size_that_is_not_safe_has_the_operation_that_forbids_it() -> None:
    class Short(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            # as a kernel does that another length takes
            y = x.exp() * (1.0000002 if x.shape[1] < 4 else 1.0)
            return y.sum(-1) * (1.0000002 if x.shape[1] < 8 else 1.0)

    answer = asked(Short(), "prefix:9", vary="schedule:x:1", sizes=[2, 6, 10])
    found = {each["at"]: (each["verdict"], each["operation"]) for each in answer.safe}
    assert found[10] == ("equal", None) and found[2][0] == found[6][0] == "differs"
    assert found[2][1] and found[6][1]
    assert f"({found[6][1]})" in answer.lines()[2]


@pytest.mark.parametrize("drops", [False, True])
def test_a_model_of_whole_windows_that_nothing_watches_is_compared(drops: bool) -> None:
    def windows(x: Any, context: Any = None) -> tuple[Any, Any]:
        """Four samples a window and two of the one before, as another library's session."""
        before = [0.0, 0.0] if context is None or drops else context.reshape(-1).tolist()
        every = before + np.asarray(x).reshape(-1).tolist()
        if x.shape[1] % 4:
            raise ValueError("a window has 4 samples")
        sums = [sum(every[n : n + 6]) for n in range(0, x.shape[1], 4)]
        return np.array([sums], np.float32), np.array([every[-2:]], np.float32)

    x = X[0, :, :2].reshape(1, -1)
    answer = asked(windows, "stream:8", x, "schedule:x:1", explain=True)
    assert len(answer.found) == 3 and bool(answer.mistakes) == drops
    assert answer.verdict == ("differs" if drops else "equal")
    assert not drops or any("operations were not compared" in note for note in answer.notes)


def test_functions_in_pieces_are_laid_where_they_belong() -> None:
    model, x = Decoder().eval(), torch.from_numpy(X)
    with torch.no_grad():
        cache = model(x[:, :8])[1]
        steps = [lambda: model(x[:, :8])[0], lambda: model(x[:, 8:], cache)[0]]
        answer = probe.diff(pieces=steps, whole=lambda: model(x)[0], explain=False)
    assert isinstance(answer, Scheduled)
    assert [piece.piece.text for piece in answer.found] == ["0:8", "8:12"] and not answer.mistakes
    with pytest.raises(InputError, match="pieces="):
        probe.diff(pieces=[], whole=lambda: x)


@pytest.mark.parametrize("spans", [[(0, 8)], [(4, 12)], [(0, 3), (5, 12)], [(8, 12), (0, 8)]])
def test_a_part_is_not_the_whole(spans: list[tuple[int, int]]) -> None:
    x = torch.from_numpy(X)

    def piece(start: int, stop: int) -> Any:
        return lambda: (x * 2)[:, start:stop]

    answer = probe.diff(pieces=[piece(*span) for span in spans], whole=lambda: x * 2)
    missing = (12 - sum(stop - start for start, stop in spans)) * 16
    assert isinstance(answer, Scheduled) and answer.to_json()["uncovered"] == missing
    assert (answer.verdict == "equal") == (not missing)
    assert not missing or f"{missing} outputs of the whole are in no piece" in answer.lines()[1]
    assert "equal" not in answer.lines()[1] or not missing


def test_pieces_of_numpy_are_compared_and_not_explained() -> None:
    w = np.random.default_rng(5).standard_normal((16, 9)).astype(np.float32)
    rows = X[0]
    pieces = [lambda: rows[:5] @ w, lambda: rows[5:] @ w]
    answer = probe.diff(pieces=pieces, whole=lambda: rows @ w)
    differing = int((np.concatenate([piece() for piece in pieces]) != rows @ w).sum())
    assert isinstance(answer, Scheduled) and not answer.mistakes and answer.walked is None
    assert sum(o.differing for p in answer.found for o in p.differences) == differing
    assert bool(answer.notes) == bool(differing)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"at": "chunk:8"}, "at"),
        ({"at": "stream:4"}, "at"),
        ({"at": "chunks:4", "against": 8}, "against"),
        ({"at": "chunks:4", "against_target": "torch"}, "against_target"),
        ({"at": "draft:4", "sizes": [2]}, "sizes"),
        ({"at": "chunks:4", "vary": "schedule:y:1"}, "vary"),
    ],
)
def test_what_makes_no_sense_is_one_line(more: dict[str, Any], word: str) -> None:
    given = {"vary": "schedule", "inputs": {"x": X}, "progress": lambda _: None}
    arguments: dict[str, Any] = given | more
    with pytest.raises(InputError, match=f"^{word}="):
        probe.network(nn.Linear(16, 4), **arguments)


def test_tiles_are_compared_with_the_whole_operation_by_operation() -> None:
    x = np.random.default_rng(2).standard_normal((1, 3, 24, 24)).astype(np.float32)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 2, 3, padding=1))
    answer = asked(model.eval(), "tiles:8x12+overlap:1", x, explain=True)
    assert [context.before for context in answer.contexts] == [2, 2]
    assert answer.walked is not None and answer.walked.found.examined == 3
    assert all(piece.window and not piece.far for piece in answer.found)


def test_an_output_that_no_piece_has_is_not_called_equal() -> None:
    class Both(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> tuple[Any, Any]:
            return x * 2, x.mean(1)

    answer = asked(Both(), "chunks:4", vary="schedule:x:1")
    assert answer.verdict == "unknown" and all(
        p.differences[0].differing == 0 for p in answer.found
    )


def test_rounding_of_bfloat16_is_no_mistake() -> None:
    class Short(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            # as a kernel does that another length takes
            short = x.to(torch.bfloat16)
            return short * 1.0078125 if x.shape[1] < 12 else short

    answer = asked(Short(), "chunks:4", vary="schedule:x:1")
    report = answer.to_json()
    assert answer.verdict == "differs" and not answer.mistakes
    # nor is a size promised, of which the format hides most
    sizes = asked(Short(), "chunks:4", vary="schedule:x:1", sizes=[4, 12]).safe
    assert [entry["verdict"] for entry in sizes] == ["differs", "unknown"]
    assert max(o["max_ulp"] for piece in report["pieces"] for o in piece["outputs"]) <= 2


def test_a_dropped_state_that_passes_a_tolerance_is_no_rounding() -> None:
    class Leaks(nn.Module):  # type: ignore[misc,name-defined]
        """Adds 3e-4 of the number before; the state isn't kept."""

        def forward(self, x: Any, state: Any = None) -> tuple[Any, Any]:
            before = torch.zeros(1, 1, 16) if state is None else state
            return x + 3e-4 * torch.cat([before, x[:, :-1]], 1), 0 * x[:, -1:]

    answer = asked(Leaks(), "stream:4", vary="schedule:x:1")
    outputs = [each for piece in answer.found for each in piece.differences]
    assert max(each.max_abs or 0 for each in outputs) < 1e-3 and answer.mistakes
    windows = [piece.window for piece in answer.found]
    assert windows[0] == 0 and min(windows[1:]) > 12


def test_a_bidirectional_net_has_no_overlap_that_is_enough() -> None:
    class Both(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.LSTM(16, 4, batch_first=True, bidirectional=True)

        def forward(self, x: Any) -> Any:
            return self.net(x)[0]

    answer = asked(Both().eval(), "chunks:6+overlap:3", vary="schedule:x:1")
    assert answer.mistakes and "no overlap is enough" in answer.lines()[2]


def test_samples_that_are_given_twice_are_named_where_there_are_more() -> None:
    torch.manual_seed(0)
    x = np.random.default_rng(1).standard_normal((1, 3, 32)).astype(np.float32)
    model = nn.Sequential(nn.Conv1d(3, 4, 1), nn.ConvTranspose1d(4, 2, 4, 2)).eval()
    answer = asked(model, "chunks:8", x)
    assert answer.to_json()["doubled"] > 0 and answer.enters == "aten.convolution at 1"


@pytest.mark.parametrize("drops", [False, True])
def test_a_file_with_a_state_is_named_at_its_operation(drops: bool, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind, draw = onnx.helper, onnx.TensorProto.FLOAT, np.random.default_rng(0)
    shapes = {"w": (1, 24, 16), "r": (1, 24, 8)}
    given = [("x", [12, 1, 16]), ("h", [1, 1, 8])]
    made = [("y", [12, 1, 1, 8]), ("left", [1, 1, 8])]
    graph = helper.make_graph(
        [
            helper.make_node(
                "GRU", ["x", "w", "r", "", "", "" if drops else "h"], ["y", "end"], hidden_size=8
            ),
            helper.make_node("Add" if drops else "Identity", ["end", "h"][: 1 + drops], ["left"]),
        ],
        "g",
        [
            helper.make_tensor_value_info(n, kind, ["n", *s[1:]] if n == "x" else s)
            for n, s in given
        ],
        [helper.make_tensor_value_info(n, kind, ["n", *s[1:]] if n == "y" else s) for n, s in made],
        [
            onnx.numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32) / 4, name)
            for name, shape in shapes.items()
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "gru.onnx")
    inputs = {"x": X.transpose(1, 0, 2), "h": np.zeros((1, 1, 8), np.float32)}
    how: Any = {"vary": "schedule:x:0", "at": "stream:4", "explain": False}
    answer = probe.network(tmp_path / "gru.onnx", inputs=inputs, progress=lambda _: None, **how)
    assert isinstance(answer, Scheduled) and bool(answer.mistakes) == drops
    assert answer.enters == ("GRU at y" if drops else "")


def test_a_model_of_keras_in_memory_carries_its_state() -> None:
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    x, h = keras.Input((None, 16), name="x"), keras.Input((8,), name="h")
    outputs = keras.layers.GRU(8, return_sequences=True, return_state=True)(x, initial_state=h)
    inputs = {"x": X, "h": np.zeros((1, 8), np.float32)}
    how: Any = {"at": "stream:4", "explain": False, "progress": lambda _: None}
    model = keras.Model([x, h], list(outputs))
    answer = probe.network(model, vary="schedule:x:1", inputs=inputs, **how)
    assert isinstance(answer, Scheduled) and answer.stateful and not answer.mistakes
    assert [piece.piece.text for piece in answer.found] == ["0:4", "4:8", "8:12"]


def test_a_scan_whose_state_is_dropped_is_compared_where_its_state_is_not_read() -> None:
    """What reads the state gets other operands in pieces than in the whole: no source."""
    jax = pytest.importorskip("jax")
    jnp, draw = jax.numpy, np.random.default_rng(0)
    w, u = (draw.standard_normal((size, 8)).astype(np.float32) / 4 for size in (16, 8))

    def model(x: Any, state: Any = None) -> Any:
        def cell(h: Any, line: Any) -> Any:
            h = jnp.tanh(line @ w + h @ u)
            return h, h

        end, states = jax.lax.scan(cell, jnp.zeros((1, 8), np.float32), jnp.asarray(x))
        return states * 2, end

    answer = asked(model, "stream:4", X.transpose(1, 0, 2)[:8], "schedule:x:0")
    assert answer.mistakes and answer.walked and not answer.walked.found.sources
    products = [r for r in answer.walked.found.operations if r.op == "dot_general"]
    counts = [(r.verdict, r.compared) for r in products if None not in r.ends]
    assert sorted(counts) == [("equal", 8)] * 4 + [("unknown", 0)] * 4

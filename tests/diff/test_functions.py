"""Two functions: what each lacks is found by running them, whatever they are given."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import probe
from probe.diff.functions import Reader, rows_read

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.long

F, nn = torch.nn.functional, torch.nn


def tensor(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


PICTURE, FILTERS, SIGNAL, KERNEL = (
    tensor(4, 3, 8, 8),
    tensor(4, 3, 3, 3, seed=1),
    tensor(1, 1, 6, seed=2),
    tensor(1, 1, 2, seed=3),
)


def differing(left: Any, right: Any) -> int:
    return int((np.asarray(left) != np.asarray(right)).sum())


def found(left: Callable[..., Any], right: Callable[..., Any], **more: Any) -> Any:
    return probe.first_difference(left, right, explain=False, **more)


def examined(answer: Any) -> float:
    told = answer.to_json()
    return float(told["examined"] / told["operations_total"])


class Decoder(nn.Module):
    """Causal attention with a cache; ``late``: by how much its mask is off (a bug)."""

    def __init__(self, size: int = 16, late: int = 0, scale: float = 4.0) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.late, self.scale = late, scale

    def forward(self, x: Any, cache: Any = None) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        self.cache = k, v
        hidden = torch.ones(x.shape[1], k.shape[1], dtype=torch.bool)
        hidden = hidden.triu(k.shape[1] - x.shape[1] + 1 + self.late)
        scores = (q @ k.mT / self.scale).masked_fill(hidden, -torch.inf)
        return x + self.out(torch.relu(scores.softmax(-1) @ v))


@torch.no_grad()
def test_a_mask_that_is_off_by_one_is_the_source_of_a_sample_and_of_all() -> None:
    right, wrong, x = Decoder().eval(), Decoder(late=1).eval(), tensor(3, 7, 16)
    for rows in (1, 3):
        answer = found(lambda: right(x[:rows]), lambda: wrong(x[:rows]))  # noqa: B023
        (output,) = answer.to_json()["outputs"]
        assert answer.verdict == "differs"
        assert output["differing"] == differing(right(x[:rows]), wrong(x[:rows])) > 0
        assert answer.first.op == "aten.triu" and examined(answer) == 1
        assert answer.first.arguments == "diagonal 1 against 2"


def test_paddings_that_differ_are_named_on_both_sides_of_a_sample() -> None:
    pads = [F.pad(PICTURE[:1], (1, 1, 1, 1), mode=mode) for mode in ("constant", "reflect")]
    zeros = lambda: F.conv2d(F.pad(PICTURE[:1], (1, 1, 1, 1)), FILTERS)  # noqa: E731
    reflected = lambda: F.conv2d(F.pad(PICTURE[:1], (1, 1, 1, 1), mode="reflect"), FILTERS)  # noqa: E731
    answer = found(zeros, reflected)
    count = differing(zeros(), reflected())
    assert (answer.verdict, answer.first.differing) == ("differs", differing(*pads)) and count > 0
    assert "constant_pad_nd" in answer.first.op and "reflection_pad2d" in answer.first.op
    with pytest.raises(AssertionError, match=f"{count} of 256") as raised:
        probe.assert_same_bits(zeros, reflected)
    assert "equal" not in str(raised.value)


def test_a_crop_of_the_result_and_of_the_input_have_another_window() -> None:
    conv = lambda x: F.conv1d(F.pad(x, (1, 0)), KERNEL)  # noqa: E731
    sides = lambda: conv(SIGNAL)[:, :, 3:], lambda: conv(SIGNAL[:, :, 3:])
    answer = found(*sides)
    count = differing(*(side() for side in sides))
    told = answer.to_json()
    assert (answer.verdict, told["window"], told["outputs"][0]["differing"]) == (
        "differs",
        1,
        count,
    )
    assert not answer.found.sources and f"{count} of 3 outputs" in answer.lines()[0]


def rounds(x: Any) -> Any:
    """Other bits where there is one row, in its last step."""
    return torch.sin(torch.tanh(x)) * (1 + 2**-20 * (len(x) == 1))


ROWS = tensor(6, 9, seed=5)
PIECE = ROWS[2:3].clone()
PARTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "a slice": (lambda: rounds(ROWS[:1]), lambda: rounds(ROWS)),
    "one in between": (lambda: rounds(ROWS[2:3]), lambda: rounds(ROWS)),
    "a copy of it": (lambda: rounds(PIECE), lambda: rounds(ROWS)),
    "the whole first": (lambda: rounds(ROWS), lambda: rounds(PIECE)),
    "its rows one by one": (
        lambda: rounds(ROWS[1:2]),
        lambda: torch.cat([torch.sin(torch.tanh(row[None])) * 1 for row in ROWS]),
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_rows_are_found_in_what_the_other_side_holds(name: str) -> None:
    answer = found(*PARTS[name])
    (output,) = answer.to_json()["outputs"]
    assert answer.verdict == "differs" and output["elements"] == 9
    assert [r.op for r in answer.found.sources] == ["aten.mul.Tensor"]


def test_rows_that_read_each_other_are_no_source() -> None:
    over = lambda x: torch.tanh(x - x.mean(0))  # noqa: E731
    answer = found(lambda: over(ROWS[:3]), lambda: over(ROWS))
    assert not answer.found.sources and answer.verdict != "equal"


def test_other_numbers_in_one_array_are_a_window_of_what_reads_them() -> None:
    """A mask of NumPy, off by one in a row."""
    x, masks = tensor(4, 6), [np.tril(np.ones((4, 6), bool), k) for k in (0, 1)]
    masks[1][2:] = masks[0][2:]
    sides = [
        lambda mask=mask: torch.where(torch.from_numpy(mask), torch.sin(x), 0.0).sum(1)
        for mask in masks
    ]
    answer = found(*sides)
    assert answer.verdict == "differs" and not answer.found.sources
    assert answer.to_json()["outputs"][0]["differing"] == differing(sides[0](), sides[1]())
    assert answer.to_json()["window"] == 2


@torch.no_grad()
@pytest.mark.parametrize(("start", "size"), [(4, 1), (2, 3)])
def test_a_step_behind_a_cache_is_compared_whole(start: int, size: int) -> None:
    decoder, x = Decoder().eval(), tensor(1, 7, 16)
    decoder(x[:, :start])
    cache = decoder.cache
    step = lambda: decoder(x[:, start : start + size], cache)  # noqa: E731
    answer = found(step, lambda: decoder(x))
    (output,) = answer.to_json()["outputs"]
    assert output["elements"] == size * 16 and answer.to_json()["window"] == 0
    assert output["differing"] == differing(step(), decoder(x)[:, start : start + size])
    assert examined(answer) >= 0.9
    turned = found(lambda: decoder(x), step)
    assert turned.to_json()["outputs"][0]["elements"] == size * 16 and examined(turned) >= 0.9


@torch.no_grad()
def test_a_factor_behind_a_cache_is_named_as_nothing_follows_from_a_size_there() -> None:
    decoder, wrong, x = Decoder().eval(), Decoder(scale=4.5).eval(), tensor(1, 7, 16)
    decoder(x[:, :5])
    cache = decoder.cache
    answer = found(lambda: wrong(x[:, 5:6], cache), lambda: decoder(x))
    (scaled,) = [r for r in answer.found.operations if r.arguments]
    assert (scaled.op, scaled.arguments) == ("aten.div.Tensor", "other 4.5 against 4.0")
    assert scaled.compared == scaled.differing == 6 and answer.to_json()["window"] == 0


@torch.no_grad()
def test_a_step_at_a_wrong_position_has_no_source_among_what_reads_that_position() -> None:
    decoder, places, x = Decoder().eval(), tensor(9, 16, seed=8), tensor(1, 7, 16)
    decoder(x[:, :5] + places[:5])
    cache = decoder.cache
    step = lambda: decoder(x[:, 5:6] + places[6:7], cache)  # noqa: E731
    answer = found(step, lambda: decoder(x + places[:7]))
    assert answer.verdict == "differs" and not answer.found.sources


def test_a_chunk_without_what_stands_before_has_a_window_and_one_with_its_state_has_none() -> None:
    x, weight = tensor(2, 3, 24), tensor(3, 3, 5, seed=9)
    whole = lambda: torch.tanh(F.conv1d(F.pad(x, (4, 0)), weight))  # noqa: E731
    alone = lambda: torch.tanh(F.conv1d(F.pad(x[:, :, 10:20], (4, 0)), weight))  # noqa: E731
    state = x[:, :, 6:10].clone()
    stream = lambda: torch.tanh(F.conv1d(torch.cat([state, x[:, :, 10:20]], 2), weight))  # noqa: E731
    for chunk, window in ((alone, 2 * 3 * 4), (stream, 0)):
        answer = found(chunk, whole)
        (output,) = answer.to_json()["outputs"]
        assert output["differing"] == differing(chunk(), whole()[:, :, 10:20])
        assert (output["elements"], answer.to_json()["window"]) == (60, window)
        assert not answer.found.sources or not window


def test_steps_of_a_loop_are_compared_with_their_own() -> None:
    torch.manual_seed(1)
    cell, x = nn.GRUCell(4, 6).eval(), tensor(1, 7, 4)

    def loop(part: Any, state: Any) -> Any:
        states = []
        for n in range(part.shape[1]):
            state = cell(part[:, n], state)
            states.append(state)
        return torch.stack(states, 1)

    zeros = torch.zeros(1, 6)
    with torch.no_grad():
        state = loop(x[:, :3], zeros)[:, -1]
    answer = found(lambda: loop(x[:, 3:5], state), lambda: loop(x, zeros))
    left = answer.found.left.operations
    regions = [r for r in answer.found.operations if r.left is not None and r.right is not None]
    assert sum(len(r.members[0]) for r in regions if r.compared) >= 0.9 * len(left)
    assert answer.to_json()["outputs"][0]["elements"] == 12


@torch.no_grad()
def test_a_chunk_and_a_step_of_a_recurrent_layer_are_compared_behind_their_state() -> None:
    torch.manual_seed(0)
    gru, cell = nn.GRU(6, 8, batch_first=True).eval(), nn.GRUCell(6, 8).eval()
    x, state = tensor(2, 6, 6), None

    def loop(x: Any) -> Any:
        states, state = [], None
        for n in range(x.shape[1]):
            state = cell(x[:, n], state)
            states.append(state)
        return torch.stack(states, 1)

    state, before = gru(x[:, :2])[1].clone(), loop(x[:, :3])[:, -1].clone()
    sides = (
        (lambda: gru(x[:, 2:4], state)[0], lambda: gru(x)[0][:, 2:4]),
        (lambda: cell(x[:, 3], before), lambda: loop(x[:, :4])[:, -1]),
    )
    for left, right in sides:
        answer = found(left, right)
        own = len(answer.found.left.operations)
        assert answer.verdict == "equal" and answer.found.examined > 0.9 * own


def gru(x: Any, state: Any, weights: Any, swapped: bool = False) -> Any:
    """A step by hand; ``swapped``: its first two gates are exchanged (a mistake)."""
    left, right = (x @ weights[0]).chunk(3, -1), (state @ weights[1]).chunk(3, -1)
    update, reset = (torch.sigmoid(left[n] + right[n]) for n in ((1, 0) if swapped else (0, 1)))
    new = torch.tanh(left[2] + reset * right[2])
    return (1 - update) * new + update * state


def test_a_step_by_hand_does_not_read_the_first_state_and_exchanged_gates_are_named() -> None:
    weights, x, zeros = (
        (tensor(4, 18, seed=3), tensor(6, 18, seed=4)),
        tensor(2, 5, 4),
        tensor(2, 6),
    )

    def loop() -> Any:
        states = [zeros]
        for n in range(5):
            states.append(gru(x[:, n], states[-1], weights))
        return torch.stack(states[1:], 1)

    before = loop()[:, 2].clone()
    answer = found(lambda: gru(x[:, 3], before, weights), lambda: loop()[:, 3])
    assert answer.verdict == "equal" and answer.to_json()["window"] == 0
    for whole in (lambda: gru(x[:, 3], before, weights), lambda: loop()[:, 3]):
        answer = found(lambda: gru(x[:, 3], before, weights, True), whole)
        assert answer.first.op == "aten.add.Tensor"
        assert "split.Tensor[1] against aten.split.Tensor" in answer.first.arguments


def test_a_maximum_over_another_axis_is_named_and_not_what_reads_it() -> None:
    def softmax(axis: int) -> Callable[[], Any]:
        x = ROWS.reshape(2, 3, 9)

        def shares() -> Any:
            y = torch.exp(x - torch.amax(x, axis, keepdim=True))
            return y / y.sum(axis, keepdim=True)

        return shares

    (source,) = found(softmax(-1), softmax(-2)).found.sources
    assert (source.op, source.arguments) == ("aten.amax", "dim [-1] against [-2]")


SATURATES: dict[str, Callable[[Any], Any]] = {
    "tanh": torch.tanh,
    "clip": lambda u: u.clamp(-2, 2),
    "hard-swish": F.hardswish,
    "quantised": lambda u: torch.fake_quantize_per_tensor_affine(u, 0.05, 0, -128, 127),
}


@pytest.mark.parametrize("name", SATURATES)
def test_what_saturates_with_a_product_and_without_it_is_no_source(name: str) -> None:
    """Of x @ w one product is left out: no element of the results must agree."""
    x, w, b = tensor(7, 61, seed=1), tensor(61, 43, seed=2), tensor(43, seed=3)
    answer = found(
        lambda: SATURATES[name](x @ w + b), lambda: SATURATES[name](x[:, :60] @ w[:60] + b)
    )
    assert answer.verdict == "differs" and not answer.found.sources
    assert answer.to_json()["window"] == 7 * 43


def test_a_divisor_that_is_the_length_is_no_source_of_operands_of_one_shape() -> None:
    class First(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[:, :1].tanh() / x.shape[1]

    answer = probe.network(
        First().eval(), inputs={"x": ROWS.numpy()}, vary="x:1", at=4, against=9, explain=False
    )
    assert not answer.found.sources
    assert [r.cause for r in answer.found.operations if "div" in r.op] == ["window"]


@torch.no_grad()
def test_layers_of_other_names_are_paired_by_kind_and_order() -> None:
    dense = nn.Linear(9, 6)
    left, right = (
        nn.Sequential(OrderedDict({f"{name}_in": dense, f"{name}_out": nn.LayerNorm(6, eps=eps)}))
        for name, eps in (("one", 1e-5), ("other", 1e-2))
    )
    answer = found(lambda: left(ROWS), lambda: right(ROWS))
    assert (answer.first.op, answer.first.arguments) == (
        "aten.native_layer_norm",
        "eps 1e-05 against 0.01",
    )


def test_random_numbers_are_no_source_but_for_the_state_that_they_are_drawn_from() -> None:
    def drawn(*sizes: int) -> Callable[[], Any]:
        def call() -> Any:
            torch.manual_seed(0)
            return F.dropout([torch.rand(n) for n in sizes][-1] + 1)

        return call

    answer = found(drawn(4, 5), drawn(2, 5))
    assert answer.verdict == "differs" and all(r.arguments for r in answer.found.sources)


def test_numpy_and_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = ROWS.numpy()
    up = np.float32(1 + 2**-20)

    def numpy(x: np.ndarray, count: int) -> np.ndarray:
        y = np.tanh(x[:count])
        return np.sin(y * up if count == 1 else y * np.float32(1))

    answer = found(lambda x: numpy(x, 1), lambda x: numpy(x, 6), inputs=x)
    assert answer.verdict == "differs" and [r.op for r in answer.found.sources] == ["multiply"]
    jax = found(lambda: jnp.sin(jnp.tanh(x[:1])), lambda: jnp.sin(jnp.tanh(x)))
    assert jax.to_json()["outputs"][0]["elements"] == 9 and examined(jax) == 1


LEFT, RIGHT = tensor(6, 300, seed=11), tensor(300, 7, seed=12)


@pytest.mark.parametrize(("factor", "kind"), [(1.0, "order"), (1.00001, "algorithm")])
def test_a_product_in_two_pieces_is_another_order_and_another_formula_if_it_is_scaled(
    factor: float, kind: str
) -> None:
    begin, end = LEFT[:, :150] @ RIGHT[:150], (LEFT[:, 150:] * factor) @ RIGHT[150:]
    answer = probe.first_difference(
        lambda: LEFT @ RIGHT,
        lambda: LEFT[:, :150] @ RIGHT[:150] + (LEFT[:, 150:] * factor) @ RIGHT[150:],
    )
    count = differing(LEFT @ RIGHT, begin + end)
    assert count > 0 and answer.to_json()["outputs"][0]["differing"] == count
    assert answer.first.cause == kind


def test_a_convolution_that_begins_one_further_on_is_no_source() -> None:
    rows, kernel = tensor(5, 8, 12, seed=21), tensor(4, 8, 3, seed=22)
    answer = found(
        lambda: F.conv1d(rows[..., :-1], kernel, stride=2),
        lambda: F.conv1d(rows[..., 1:], kernel, stride=2),
    )
    assert answer.verdict == "differs" and not answer.found.sources


def test_what_all_reads_more_is_laid_by_index_and_counted_as_window() -> None:
    total = lambda x: torch.tanh(x - x.sum(0, keepdim=True))  # noqa: E731
    for rows in (slice(0, 4), slice(1, 5)):
        count = differing(total(ROWS[rows]), total(ROWS)[rows])
        for sides in ((ROWS[rows], ROWS), (ROWS, ROWS[rows])):
            answer = found(*(lambda x=x: total(x) for x in sides))
            told = answer.to_json()
            assert (answer.verdict, told["window"]) == ("differs", 36)
            assert told["outputs"][0]["differing"] == count > 0 and not answer.found.sources


def test_no_output_that_is_nan_on_one_side_is_said_to_read_other_inputs() -> None:
    sides = lambda x, w: np.sqrt(x) @ w, lambda x, w: np.sqrt(np.abs(x)) @ w
    with np.errstate(invalid="ignore"):
        answer = found(*sides, inputs=[LEFT.numpy(), RIGHT.numpy()])
    told = answer.to_json()
    assert (answer.verdict, told["window"], told["outputs"][0]["nan"]) == ("differs", 0, 42)


def test_sums_of_the_same_products_have_a_cause_wherever_their_factors_stand() -> None:
    """One library call turns a product of one row and of many in other ways: it had no cause."""
    x, w, v = tensor(1, 12, 384), tensor(384, 96, seed=1), tensor(384, 96, seed=2)
    with torch.no_grad():
        cache = (x[:, :11] @ w).transpose(1, 2).contiguous()

    def step() -> Any:
        keys = torch.cat([cache, (x[:, 11:] @ w).transpose(1, 2)], 2)
        return (x[:, 11:] @ v) @ keys

    for left, right in (
        (step, lambda: (x @ v) @ (x @ w).transpose(1, 2)),
        (
            lambda: torch.einsum("btd,de->bet", x[:, 11:], w),
            lambda: torch.einsum("btd,de->bet", x, w),
        ),
    ):
        with torch.no_grad():
            found = probe.first_difference(left, right, progress=lambda _: None).found
        for region in found.sources[:1]:  # none where a processor adds one row as it adds twelve
            cause = found.causes[found.operations.index(region)]
            assert cause.kind and cause.explained and cause.replayed == region.differing


# which elements a program does not read, whatever it does with them

X = np.random.default_rng(0).standard_normal((8, 5, 12)).astype("f4")
IDS = np.arange(40).reshape(8, 5) % 7
MASK = np.arange(12) < np.array([[12], [9], [12]])

BOXES: dict[str, tuple[np.ndarray, Callable[[np.ndarray], np.ndarray], object]] = {
    "all": (X, np.tanh, np.s_[:]),
    "a sample": (X, lambda x: x[3:4] * 2, np.s_[3:4]),
    "a beginning": (X, lambda x: x[..., :5].sum(-1), np.s_[..., :5]),
    "a box": (X, lambda x: x[2:, 1, 3:9], np.s_[2:, 1:2, 3:9]),
    "the last": (X, lambda x: x[..., -1:], np.s_[..., -1:]),
    "nothing": (X, lambda x: np.zeros(3), np.s_[:0]),
    "rows of ids": (IDS, lambda x: np.eye(7)[x[:2]], np.s_[:2]),
    "of a mask": (MASK, lambda x: x[:2].astype("f4"), np.s_[:2]),
}


def reader(array: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> tuple[Reader, list]:
    runs = list[int]()

    def run(arrays):
        runs.append(1)
        return function(arrays["x"]).tobytes()

    return Reader(run, {"x": array}, {"x": str(array.dtype)}), runs


@pytest.mark.parametrize("name", BOXES)
def test_the_rest_of_a_part_is_not_read(name: str) -> None:
    array, function, part = BOXES[name]
    expected = np.ones(array.shape, bool)
    expected[part] = False
    asked, runs = reader(array, function)
    assert np.array_equal(asked.unread("x"), expected)
    assert len(runs) < 50


def test_lines_between_are_asked_where_it_is_wanted() -> None:
    asked, _ = reader(X, lambda x: x[:, :, [0, 3, 4, 11]])
    assert not asked.unread("x").any()
    found = asked.unread("x", inside=True)
    assert [n for n in range(12) if not found[..., n].all()] == [0, 3, 4, 11]


def test_rows_that_an_element_of_a_result_depends_on() -> None:
    x = {"x": np.arange(8.0), "scale": np.float64(2.0)}

    def sums(x, scale):
        return [np.cumsum(x) * scale, x[2:5].sum()]

    found = rows_read(sums, x, 0, 3)
    assert found["x"].tolist() == [True] * 4 + [False] * 4 and found["scale"].all()
    assert np.flatnonzero(rows_read(sums, x, 1, 0)["x"]).tolist() == [2, 3, 4]
    assert not rows_read(sums, x, 1, 0)["scale"].any()


def test_exchanged_layers_of_one_kind_are_told_apart_by_their_numbers() -> None:
    """``operand 1 aten.addmm against aten.addmm`` said nothing."""
    x, first, second = tensor(8, 40), nn.Linear(40, 64), nn.Linear(40, 64)
    answer = found(
        lambda: torch.sigmoid(first(x)) * torch.tanh(second(x)),
        lambda: torch.sigmoid(second(x)) * torch.tanh(first(x)),
    )
    assert answer.first.arguments == (
        "operand 1 aten.addmm (number 2) against aten.addmm (number 5)"
    )

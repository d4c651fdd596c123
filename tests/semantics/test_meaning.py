"""Meanings against the truth: equal labels are equal numbers, and the same has equal labels."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="meanings are tried on PyTorch's operations")

from tests.recorders.truth import agreed, both  # noqa: E402

F = torch.nn.functional
G = torch.Generator().manual_seed(16)


def _new(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=G)


X = _new(4, 6, 8, 8)
Y = _new(4, 7, 12)
M = torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1] * 7, [1] * 5 + [0] * 2, [1] * 7])


def _weights(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(_new(*shape), requires_grad=False)


W, V, TABLE, LINE, LINES = (_weights(*n) for n in ((12, 12), (12, 12), (20, 12), (6,), (12,)))
KERNEL, DEPTH, BACK = _weights(4, 6, 3, 3), _weights(12, 1, 3, 3), _weights(6, 3, 3, 3)
PAIRS = _weights(4, 3, 3, 3)
WORDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7], [9] * 7, [3, 2, 3, 8, 4, 6, 2]])


def _masked(y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = y @ y.transpose(1, 2)
    seen = torch.softmax(scores + torch.where(mask[:, None] > 0, 0.0, -torch.inf), -1)
    return (seen @ y)[:, :3]


def _mean(y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    share = mask[..., None].double()
    return (y * share).sum(1) / share.sum(1)


def _heads(y: torch.Tensor) -> torch.Tensor:
    batch, length, _ = y.shape
    q = F.linear(y, W, LINES).view(batch, length, 3, 4).transpose(1, 2)
    k = F.linear(y, V).view(batch, length, 3, 4).transpose(1, 2)
    seen = torch.softmax(torch.matmul(q, k.transpose(2, 3)) / 2, -1)
    return torch.matmul(seen, k).transpose(1, 2).reshape(batch, length, 12)


def _linear_attention(y: torch.Tensor) -> torch.Tensor:
    """Where the batch is 1, einsum lays out, merges and turns its products otherwise."""
    batch, length, _ = y.shape
    q, k, v = F.linear(y, W).view(batch, length, 3, 2, 2).permute(2, 0, 3, 1, 4)
    states = torch.einsum("bhnd,bhne->bhde", k, v)
    norm = torch.einsum("bhnd,bhd->bhn", q, k.sum(2))
    return torch.einsum("bhnd,bhde,bhn->bhne", q, states, norm)


def _written(y: torch.Tensor) -> torch.Tensor:
    found = torch.zeros(y.shape, dtype=y.dtype)
    for step in range(y.shape[1]):
        found[:, step] = y[:, : step + 1].sum(1)
    found[:, 0].mul_(2)
    return found.relu_() + found


BY_BATCH = {
    "convolution": lambda x: F.conv2d(x, KERNEL, padding=1, stride=2),
    "depthwise": lambda x: F.conv2d(x, DEPTH, groups=6, dilation=2),
    "grouped": lambda x: F.conv2d(x, PAIRS, groups=2),
    "transposed": lambda x: F.conv_transpose2d(x, BACK, stride=2, padding=1, output_padding=1),
    "grouped transposed": lambda x: F.conv_transpose2d(x, BACK, groups=3),
    "convolutions behind each other": lambda x: (
        F.conv2d(F.conv2d(x, KERNEL), KERNEL[:, :4]) + F.conv2d(x, KERNEL)[:, :, 2:, 2:]
    ),
    "max pool": lambda x: F.max_pool2d(x, 3, 2, padding=1, ceil_mode=True),
    "average": lambda x: F.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True),
    "average of what is there": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 4)[..., 1:] * F.adaptive_avg_pool2d(x, (4, 3)),
    "batch norm": lambda x: F.batch_norm(x, LINE, LINE.abs() + 1, LINE, LINE + 1),
    "group norm": lambda x: F.group_norm(x, 3, LINE, LINE + 1),
    "instance norm": lambda x: F.instance_norm(x),
    "instance norm of filters": lambda x: F.instance_norm(F.conv2d(x, KERNEL), weight=LINE[:4]),
    "nearest": lambda x: F.interpolate(x, scale_factor=2)[..., 3:],
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "shuffle": lambda x: F.pixel_shuffle(F.conv2d(x, KERNEL), 2),
    "cat": lambda x: torch.cat([F.conv2d(x, KERNEL), F.conv2d(x, -KERNEL)], 1).relu(),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=1.5) * F.pad(x, (2, 1, 3, 0), mode="reflect"),
    "reductions": lambda x: x.amax((2, 3)) + x.var((2, 3)) - x.sum((2, 3)) + x.mean((2, 3)),
    "largest": lambda x: x.flatten(1).max(1).values + x.flatten(1).argmax(1),
    "circular": lambda x: F.conv2d(F.pad(x, (1, 1, 2, 2), mode="circular"), KERNEL),
    "roll": lambda x: x.roll(2, 3) - x.flip(2) + x.tile(1, 1, 1, 1).tril() - x.triu(1),
    "moves": lambda x: x.permute(0, 2, 3, 1).reshape(len(x), -1).unfold(1, 5, 3).movedim(1, 2),
    "select": lambda x: x[:, 1] - x[:, 2] + x.index_select(1, torch.tensor([3, 5, 3]))[:, 2],
    "powers": lambda x: (x.abs() + 1) ** 1.5 / (x * x + 1) - (2 - x),
}


@pytest.mark.parametrize("name", BY_BATCH)
@pytest.mark.slow_at("convolution")
def test_a_part_of_the_batch_agrees_with_the_whole_batch(name: str) -> None:
    function = BY_BATCH[name]
    assert agreed(both(lambda: function(X[1:2]), lambda: function(X))) == 1


def _sums(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Each row of the first with each of the second: not the same the other way round."""
    return (one[:, :, None] + two[:, None]).tanh()


BY_ROW = {
    "linear": lambda y: F.linear(y, W, LINES).tanh(),
    "layer norm": lambda y: F.layer_norm(y, (12,), LINES, LINES + 1),
    "rms norm": lambda y: F.rms_norm(y, (12,), LINES),
    "attention by hand": _heads,
    "attention": lambda y: F.scaled_dot_product_attention(y[:, None], y[:, None] @ W, y[:, None]),
    "einsum": lambda y: torch.einsum("bld,de,bme->blm", y, W, y),
    "stack": lambda y: torch.stack([F.linear(y, W), F.linear(y, V)], 2).sum(2),
    "chunk": lambda y: torch.sub(*F.linear(y, W).chunk(2, -1)),
    "queries and keys": lambda y: torch.einsum("btc,bsc->bts", *F.linear(y, W).chunk(2, -1)),
    "keys and queries": lambda y: _sums(*F.linear(y, W).chunk(2, -1)) - _sums(*y.chunk(2, -1)),
    "split": lambda y: torch.cat(F.linear(y, W).split([3, 4, 5], -1)[::-1], -1),
    "outer": lambda y: F.linear(y, W)[..., None] - F.linear(y, W)[..., None, :],
    "outer, turned": lambda y: F.linear(y, W)[..., None, :] - F.linear(y, W)[..., None],
    "written through a view": _written,
    "linear attention": _linear_attention,
    "cumulative": lambda y: y.cumsum(1) * y.cumsum(2),
    "cumulative behind features": lambda y: F.linear(y, W).cumsum(1),
    "sorted": lambda y: y.sort(1).values + y.topk(12, -1).values,
    "third smallest": lambda y: y.kthvalue(3, dim=1).values + y.kthvalue(2, 1, True).values[:, 0],
    "glu": lambda y: F.silu(F.linear(y, W)) * F.linear(y, V) + F.gelu(y),
    "turned weights": lambda y: y @ W - y @ W.T + y @ V.mT @ W,
    "clamped": lambda y: y.clamp(-1, 1) * F.relu6(y) + F.hardtanh(y),
    "log": lambda y: F.log_softmax(F.linear(y, W), -1) + F.softmax(y, 1),
    "gathered": lambda y: y.gather(1, torch.tensor([[[2] * 12]]).expand(len(y), 1, 12)),
}


@pytest.mark.parametrize("name", BY_ROW)
def test_a_row_agrees_with_the_same_row_among_others(name: str) -> None:
    function = BY_ROW[name]
    assert agreed(both(lambda: function(Y[2:3]), lambda: function(Y))) == 1


RECURRENT = {
    "lstm": lambda: torch.nn.LSTM(12, 5, batch_first=True, bidirectional=True).double(),
    "lstm by oneDNN": lambda: torch.nn.LSTM(12, 5, 2, batch_first=True),
    "gru": lambda: torch.nn.GRU(12, 5, 2, batch_first=True).double(),
    "encoder": lambda: torch.nn.TransformerEncoderLayer(12, 3, 8, batch_first=True).double(),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.slow_at("lstm by oneDNN")
def test_layers_of_several_operations(name: str) -> None:
    model = RECURRENT[name]().eval()
    y = Y.to(next(model.parameters()).dtype)
    if y.dtype == torch.float64:
        assert agreed(both(lambda: model(y[:1]), lambda: model(y))) == 1
        return
    for part in (y[:1], y[:, :5]):  # not exact: the labels alone are looked at
        assert agreed(both(lambda part=part: model(part), lambda: model(y), near=1e-4)) == 1


def test_what_a_mask_hides_adds_nothing() -> None:
    alone = both(lambda: _masked(Y[:1, :3], M[:1, :3]), lambda: _masked(Y, M))
    assert agreed(alone) == 1
    assert agreed(both(lambda: _mean(Y[:1, :3], M[:1, :3]), lambda: _mean(Y, M))) == 1


@pytest.mark.parametrize("boolean", [True, False])
def test_attention_in_one_piece_with_a_mask(boolean: bool) -> None:
    def attends(y: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        if mask is not None:
            mask = mask[:, None, None] > 0
            mask = mask if boolean else torch.where(mask, 0.0, -torch.inf).double()
        y = y[:, None]
        return F.scaled_dot_product_attention(y, y, y, attn_mask=mask)[:, 0, :3]

    assert agreed(both(lambda: attends(Y[:1, :3], None), lambda: attends(Y, M))) == 1
    causal = lambda y: F.scaled_dot_product_attention(y, y, y, is_causal=True)  # noqa: E731
    assert agreed(both(lambda: causal(Y[:, None, :4]), lambda: causal(Y[:, None]))) == 1


def test_an_encoder_layer_in_one_piece_with_padding() -> None:
    model = torch.nn.TransformerEncoderLayer(12, 3, 8, batch_first=True).double().eval()
    hidden = M == 0
    sides = both(lambda: model(Y[:1, :3]), lambda: model(Y, src_key_padding_mask=hidden))
    assert agreed(sides) == 1


def test_rows_of_a_table() -> None:
    def looked_up(words: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.embedding(words, TABLE), (12,)) + TABLE[: words.shape[1]]

    assert agreed(both(lambda: looked_up(WORDS[:1, :4]), lambda: looked_up(WORDS))) == 1


CROPS = {
    "convolution": (lambda x: F.conv2d(x, KERNEL, padding=1), 4 / 5),
    "pool": (lambda x: F.max_pool2d(x, 2), 2 / 2),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), 1.0),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), 9 / 10),
    "average": (lambda x: F.avg_pool2d(x, 3, 2, 1), 2 / 3),
}


@pytest.mark.parametrize("name", CROPS)
def test_what_a_shorter_input_has_in_common(name: str) -> None:
    function, share = CROPS[name]
    found = agreed(both(lambda: function(X[..., :5, :]), lambda: function(X)))
    assert found == pytest.approx(share, abs=0.01)


attend, _grouped = F.scaled_dot_product_attention, BY_BATCH["grouped"]
_normed = partial(F.layer_norm, Y, (12,))
_trained = partial(F.batch_norm, running_mean=None, running_var=None, training=True)

DIFFERENT = {
    "the matrix or its transpose": (lambda: Y @ W, lambda: Y @ W.T),
    "a - b or b - a": (lambda: F.linear(Y, W) - Y, lambda: Y - F.linear(Y, W)),
    "rows or columns first": (lambda: (W @ V).view(6, 24), lambda: (V @ W).view(6, 24)),
    "another slope": (lambda: F.leaky_relu(Y, 0.1), lambda: F.leaky_relu(Y, 0.2)),
    "another epsilon": (lambda: F.layer_norm(Y, (12,)), lambda: F.layer_norm(Y, (12,), eps=0.1)),
    "another gelu": (lambda: F.gelu(Y), lambda: F.gelu(Y, approximate="tanh")),
    "scale or offset": (lambda: _normed(LINES), lambda: _normed(None, LINES)),
    "another axis": (lambda: Y[:, :, :7].softmax(1), lambda: Y[:, :, :7].softmax(2)),
    "another group": (lambda: _grouped(X), lambda: _grouped(X.flip(1))),
    "another step": (lambda: F.conv2d(X, KERNEL), lambda: F.conv2d(X, KERNEL, dilation=2)),
    "rounded on the way": (lambda: Y.tanh(), lambda: Y.half().double().tanh()),
    "another factor": (lambda: torch.add(Y, Y.tanh()), lambda: torch.add(Y, Y.tanh(), alpha=2)),
    "another scale of attention": (lambda: attend(Y, Y, Y), lambda: attend(Y, Y, Y, scale=1.0)),
    "norms of the whole batch": (lambda: _trained(X[:2]), lambda: _trained(X)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_has_different_labels(name: str) -> None:
    assert agreed(both(*DIFFERENT[name])) == 0


def test_weights_of_modules() -> None:
    """Their labels leave out the index: the same has to come out as with arrays."""
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(6, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()),
        *(torch.nn.Conv2d(8, 8, 3, groups=4), torch.nn.GroupNorm(4, 8), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(32, 12), torch.nn.LayerNorm(12)),
    )
    model = model.double().eval()
    assert agreed(both(lambda: model(X[2:3]), lambda: model(X))) == 1

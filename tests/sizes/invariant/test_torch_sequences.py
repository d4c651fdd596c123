"""Recurrent layers and attention keep a sample's bits, in PyTorch, Keras and ONNX Runtime."""

import numpy as np
import pytest

from probe.sizes import stable
from tests.sizes.invariant.models import dependent, differing, ends, of

pytestmark = pytest.mark.long

SIZES = (1, 2, 3, 5, 11, 23)  # beside the 24 samples that there are; the classes are those of 24
PARTS = ends(24, *SIZES)


def cancelling(draw, shape):
    """Weights each of which has nearly its opposite in its row: their sums are rounding errors."""
    w = draw.normal(size=shape).reshape(shape[0], -1)
    half = w.shape[1] // 2
    w[:, half : 2 * half] = -w[:, :half] * (1 + 1e-6 * draw.normal(size=(len(w), half)))
    return w[:, draw.permutation(w.shape[1])].reshape(shape)


def samples(draw, *shape):
    """Of either sign, over 12 binades."""
    return (draw.normal(size=shape) * np.exp2(draw.integers(-6, 7, shape))).astype("float32")


def loaded(torch, module, tell):
    """Puts weights into a module that show a different order, or drawn ones."""
    draw = np.random.default_rng(4)
    with torch.no_grad():
        for one in module.parameters():
            w = draw.normal(size=one.shape) / max(one.shape) ** 0.5
            w = cancelling(draw, one.shape) if tell and one.dim() > 1 else w
            one.copy_(torch.from_numpy(w))
    return module.eval()


def require_alike(torch, module, *inputs):
    """Every part of a batch has the bits of the whole, and nothing is left."""
    model, report = stable.invariant(module, (1, 24))
    leaves = torch.utils._pytree.tree_leaves
    whole = leaves(model(*inputs))
    assert report.complete, report
    for start, size in PARTS:
        at = slice(start, start + size)
        wanted = [y[at] for y in whole]
        parts = leaves(model(*(x[at] for x in inputs)))
        torch.testing.assert_close(parts, wanted, rtol=0, atol=0, equal_nan=True)
    return model, report


def batch_first(torch, layer, packed=False):
    """A recurrent layer whose states are given and returned with their samples first."""

    class Sequence(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, lengths=None):
            rnn = torch.nn.utils.rnn
            if lengths is not None:
                words = {"batch_first": True, "enforce_sorted": False}
                x = rnn.pack_padded_sequence(x, lengths, **words)
            y, states = self.layer(x)
            if lengths is not None:
                y, _ = rnn.pad_packed_sequence(y, batch_first=True, total_length=7)
            states = states if isinstance(states, tuple) else (states,)
            return y, *(one.transpose(0, 1) for one in states)

    return Sequence()


@pytest.mark.parametrize(
    ("kind", "bias", "tell"), [("GRU", True, True), ("LSTM", False, True), ("RNN", True, False)]
)
def test_recurrent_layers_of_any_width_keep_their_bits(torch, kind, bias, tell):
    words = {"num_layers": 2, "bidirectional": True, "bias": bias, "batch_first": True}
    module = loaded(torch, batch_first(torch, getattr(torch.nn, kind)(19, 21, **words)), tell)
    x = torch.from_numpy(samples(np.random.default_rng(1), 24, 7, 19))
    model, _ = require_alike(torch, module, x)
    with torch.no_grad():
        for mine, plain in zip(model(x), module(x), strict=True):
            assert torch.allclose(mine, plain, atol=1e-5)


@pytest.mark.slow
def test_packed_sequences_of_a_gru_keep_their_bits_and_those_of_an_lstm_are_reported(torch):
    draw = np.random.default_rng(1)
    given = (*map(torch.tensor, (samples(draw, 24, 7, 19), draw.integers(1, 8, 24))),)
    for kind in (torch.nn.GRU, torch.nn.LSTM):
        layer = batch_first(torch, kind(19, 21, bidirectional=True, batch_first=True))
        if kind is torch.nn.GRU:
            require_alike(torch, loaded(torch, layer, True), *given)
    model, report = stable.invariant(layer.eval(), (1, 24))
    model(*given)
    assert all(name.startswith("LSTM 7x19") for name in report.left) and report.left


@pytest.mark.slow
def test_what_a_gru_makes_of_infinite_inputs_is_what_the_library_makes(torch):
    module = loaded(torch, batch_first(torch, torch.nn.GRU(19, 21, batch_first=True)), False)
    x = torch.from_numpy(samples(np.random.default_rng(1), 24, 7, 19))
    x[2, 3, 4], x[5, 6, 7], x[9, 0, 0] = float("inf"), float("-inf"), float("nan")
    model, report = require_alike(torch, module, x)
    y, plain = model(x)[0], torch.no_grad()(module)(x)[0]
    assert torch.equal(y.isnan(), plain.isnan()) and y.isnan().any()
    assert torch.allclose(y, plain, atol=1e-5, equal_nan=True)
    assert any("21 numbers of a state" in note for note in report.table.notes)


@pytest.mark.slow
def test_weights_that_need_no_gradients_are_multiplied_as_others(torch):
    module = loaded(torch, batch_first(torch, torch.nn.GRU(19, 32, batch_first=True)), True)
    x = torch.from_numpy(samples(np.random.default_rng(1), 24, 7, 19))
    wanted = require_alike(torch, module, x)[0](x)
    module.requires_grad_(False)
    assert all(map(torch.equal, require_alike(torch, module, x)[0](x), wanted))


def attentions(torch):
    """Modules of attention by name, and the shapes of what each takes beside its samples."""
    attend = torch.nn.functional.scaled_dot_product_attention

    class Called(torch.nn.Module):
        def __init__(self, function, *parts):
            super().__init__()
            self.function, self.parts = function, torch.nn.ModuleList(parts)

        def forward(self, *given):
            return self.function(*self.parts, *given)

    def heads(width, many=3):
        return torch.nn.MultiheadAttention(width, many, batch_first=True)

    def behind(layer, x, m):
        return layer(x, x, x, key_padding_mask=m < 0, need_weights=False)[0]

    causal = torch.ones(11, 11, dtype=torch.bool).tril()
    return {
        "own weights": (Called(lambda a, x: a(x, x, x, need_weights=False)[0], heads(24)), []),
        "given weights": (Called(lambda a, x: a(x, x, x)[0], heads(24)), []),
        "behind a mask": (Called(behind, heads(24)), [(11,)]),
        "decoder": (torch.nn.TransformerDecoderLayer(24, 3, 48, batch_first=True), [(7, 24)]),
        "encoder": (torch.nn.TransformerEncoderLayer(24, 3, 48, batch_first=True), []),
        "two axes": (Called(lambda x: attend(x[:, None], x[:, None], x[:, None], causal)), []),
        "groups": (Called(lambda x, y: attend(x[:, None], y, y, enable_gqa=True)), [(1, 13, 24)]),
        "odd width": (Called(lambda x: attend(*(x[:, None, :, :10],) * 3, is_causal=True)), []),
    }


ATTENTIONS = (
    *("own weights", "given weights", "behind a mask", "decoder", "encoder", "two axes"),
    *("groups", "odd width"),
)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_keeps_its_bits_in_every_batch(torch, name):
    module, more = attentions(torch)[name]
    draw = np.random.default_rng(2)
    x = [samples(draw, 24, 11, 24), *(samples(draw, 24, *shape) for shape in more)]
    if name == "behind a mask":
        x[1][:, 0] = 1  # not all keys of a sample are hidden
    require_alike(torch, loaded(torch, module, True), *map(torch.from_numpy, x))


def recurrent_file(draw):
    """Two layers in both directions, of 17 channels and 24 numbers a state; steps come first."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, of_array = onnx.helper, onnx.numpy_helper.from_array
    nodes, weights, x = [], {"flat": np.array([0, 0, -1])}, "x"
    for layer, inputs in enumerate((17, 48)):
        shapes = {"W": (2, 96, inputs), "R": (2, 96, 24), "B": (2, 192)}
        for name, shape in shapes.items():
            w = draw.normal(size=shape) / shape[-1] ** 0.5
            if name != "B":
                w = cancelling(draw, (shape[0] * shape[1], shape[2])).reshape(shape)
            weights[f"{name}{layer}"] = w.astype("float32")
        given = [x, *(f"{name}{layer}" for name in "WRB"), "lengths"]
        words = {"hidden_size": 24, "direction": "bidirectional"}
        nodes.append(make.make_node("LSTM", given, [f"y{layer}"], **words))
        nodes.append(make.make_node("Transpose", [f"y{layer}"], [f"t{layer}"], perm=[0, 2, 1, 3]))
        nodes.append(make.make_node("Reshape", [f"t{layer}", "flat"], [x := f"z{layer}"]))
    value, kinds = make.make_tensor_value_info, onnx.TensorProto
    graph = make.make_graph(
        nodes,
        "sequences",
        [
            value("x", kinds.FLOAT, [9, "samples", 17]),
            value("lengths", kinds.INT32, ["samples"]),
        ],
        [value(x, kinds.FLOAT, None)],
        [of_array(one, name) for name, one in weights.items()],
    )
    opset = [make.make_opsetid("", 17)]
    return make.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


def test_recurrent_layers_of_onnx_keep_their_bits():
    """ONNX Runtime multiplies as many rows as the longest sample has steps: one step is one row."""
    draw = np.random.default_rng(6)
    file, lengths = recurrent_file(draw), draw.permutation(np.arange(24) % 9 + 1).astype("int32")
    inputs = samples(draw, 9, 24, 17), lengths
    named = {"x": 1, "lengths": 0}
    same, report = stable.invariant(file, range(1, 25), example=inputs, batched=named, threads=2)
    assert not report.left, report
    whole = same(*inputs)[0]
    for start, size in PARTS:
        index = slice(start, start + size)
        (part,) = same(inputs[0][:, index], lengths[index])
        assert np.array_equal(part, whole[:, index]), (size, start)


def block(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.norm = nn.LayerNorm(16)
            self.wide, self.narrow = nn.Linear(16, 24), nn.Linear(24, 16)

        def forward(self, x, behind=None):
            told = {"key_padding_mask": behind, "need_weights": False}
            x = self.norm(x + self.attention(x, x, x, **told)[0])
            return x + self.narrow(torch.nn.functional.gelu(self.wide(x)))

    return Block().eval()


def test_a_sentence_has_the_same_bits_alone_in_a_batch_and_padded(torch):
    model, report = stable.invariant(
        block(torch), {"batch": [1, 8], "length": range(1, 33)}, strict=True
    )
    x = torch.randn(8, 32, 16)
    behind = torch.zeros(8, 32, dtype=torch.bool)
    lengths = [32, 1, 5, 17, 16, 31, 2, 9]
    for row, length in enumerate(lengths):
        behind[row, length:] = True
    batch = model(x, behind)
    for row, length in enumerate(lengths):
        alone = model(x[row : row + 1, :length])
        assert differing(torch, alone[0], batch[row, :length]) == 0, length
    turned = torch.arange(7, -1, -1)
    assert differing(torch, model(x[turned], behind[turned]), batch[turned]) == 0
    assert report.complete and not report.limited and len(repr(report).splitlines()) == 3


@pytest.mark.parametrize(("kind", "dtype"), [("GRU", "float32"), ("RNN", "float64")])
def test_recurrent_layers_keep_their_bits_alone_and_in_any_layout(torch, kind, dtype):
    """PyTorch adds a bias first or last, by how the steps lie in memory: one sample lies both."""
    dtype = getattr(torch, dtype)

    class Laid(torch.nn.Module):
        def __init__(self, channels, width, first):
            super().__init__()
            made = getattr(torch.nn, kind)
            self.layer = made(channels, width, batch_first=first, bidirectional=True)
            self.first, self.contiguous = first, True

        def forward(self, x):
            x = x if self.first else x.transpose(0, 1)
            y, states = self.layer(x.contiguous() if self.contiguous else x)
            y = y if self.first else y.transpose(0, 1)
            states = states if isinstance(states, torch.Tensor) else torch.cat(states, 2)
            return torch.cat([y.flatten(1), states.transpose(0, 1).flatten(1)], 1)

    for channels, width, first in ((100, 16, True), (64, 24, False)):
        model, report = stable.invariant(Laid(channels, width, first).eval().to(dtype), (1, 16))
        x = torch.randn(16, 3, channels, dtype=dtype)
        whole = model(x)
        for model.contiguous in (True, False, True):
            assert torch.equal(model(x), whole)
            assert not dependent(model, x, parts=[(3, 1), (2, 9)])
        assert report.complete, report


def test_a_mask_that_is_made_wider_hides_all_that_is_behind(torch):
    from probe.sizes.invariant.torch_sequences import masked_wide

    q, seen = torch.zeros(1, 1, 2, 4), torch.tensor([[[[True, False], [True, True]]]])
    wide = masked_wide(seen, q, 2, 5)
    assert torch.equal(wide[..., :2, :2].isinf(), ~seen) and wide[..., :2, 2:].isinf().all()
    assert not wide[..., 2:, :].isinf().all(-1).any()  # no row attends to nothing


def test_a_gru_is_the_library_s_own_call_where_that_has_the_bits(torch):
    """Whole vectors: the batch is filled up to one at which each operation is in its class."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            met.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    model, report = stable.invariant(torch.nn.GRU(64, 64, batch_first=True).eval(), (1, 32))
    x = torch.randn(32, 7, 64)
    for _ in range(2):
        whole, met = model(x)[0], []
    if any("size 32 " in note for note in report.table.notes):
        pytest.skip("here no call of 32 rows is in the class")
    with Counted():
        assert torch.equal(model(x)[0], whole)
    assert "aten::sigmoid_" in met and "aten::sigmoid" not in met


def test_keys_behind_a_mask_do_not_hide_how_the_others_are_added(torch, monkeypatch):
    """Half of the heads add the last four of 8 keys first, as another thread of MKL may: of which
    nothing shows where three of them are masked."""
    from probe.sizes.invariant import torch_sequences

    def attention(q, k, v, attn_mask=None):
        shares = torch.softmax(q @ k.transpose(-1, -2) + attn_mask, -1)
        parts = (shares[..., None] * v[..., None, :, :]).unbind(-2)
        y = sum(parts[1:], parts[0])
        others = sum(parts[1:4], parts[0]) + sum(parts[5:], parts[4])
        return torch.cat([y[: len(y) // 2], others[len(y) // 2 :]])

    monkeypatch.setattr(torch_sequences, "scaled_dot_product_attention", attention)
    shapes = ((3, 8), (8, 8), (8, 8))
    assert not torch_sequences.Heads(shapes, torch.float32, True, {}).mark(4)


@pytest.mark.parametrize(
    ("width", "longest"), [(16, 48), pytest.param(40, 160, marks=pytest.mark.slow)]
)
def test_a_step_behind_a_cache_of_any_length_has_the_bits_of_the_whole(torch, width, longest):
    """Each N: behind as many keys as there are, and behind a cache of one size with a mask."""
    attend = torch.nn.functional.scaled_dot_product_attention
    steps = of(torch, lambda q, k, v, m=None: attend(q, k, v, attn_mask=m))
    whole = of(torch, lambda q, k, v: attend(q, k, v, is_causal=True))
    sizes = {"batch": [1, 3], "length": range(1, longest + 1)}
    (step, report), (full, _) = (
        stable.invariant(each, sizes, strict=True) for each in (steps, whole)
    )
    draw = np.random.default_rng(3)
    q, k, v = (
        torch.tensor(draw.normal(size=(3, 2, longest, width)), dtype=torch.float32) for _ in "qkv"
    )
    wanted, plain, behind = full(q, k, v), whole(q, k, v), torch.arange(longest)
    apart = 0
    for n in range(1, longest + 1):
        row, seen = slice(n - 1, n), (behind < n)[None, None, None]
        grown = step(q[:, :, row], k[:, :, :n], v[:, :, :n])
        assert torch.equal(grown, wanted[:, :, row]), n
        assert torch.equal(step(q[:, :, row], k, v, seen), grown), n
        assert torch.equal(step(q[1:2, :, row], k[1:2, :, :n], v[1:2, :, :n]), grown[1:2]), n
        apart += differing(torch, steps(q[:, :, row], k[:, :, :n], v[:, :, :n]), plain[:, :, row])
    assert report.complete and not report.limited
    assert apart, "the library's own steps have the bits of the whole: this shows nothing here"


def test_a_step_whose_largest_length_has_rows_of_its_own_is_not_promised(torch):
    """The last rows of 33 are multiplied one or two at a time, as no others are."""
    attend = torch.nn.functional.scaled_dot_product_attention
    model, report = stable.invariant(of(torch, attend), {"batch": [1], "length": range(1, 34)})
    model(*(torch.randn(1, 2, rows, 20) for rows in (1, 33, 33)))
    if not report.limited:
        pytest.skip("here the last row of 33 is multiplied as the others are")
    assert "let the largest length be a multiple of 16" in str(report.limited)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_drafts_and_pieces_of_a_prompt_have_the_bits_of_the_whole(dtype):
    torch = pytest.importorskip("torch")

    class Cached(torch.nn.Module):
        """Attention behind a cache, (samples, n, 32) in 4 heads."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.qkv = torch.nn.Linear(32, 96).to(getattr(torch, dtype))

        def forward(self, x, cache=None):
            n = x.shape[1]
            q, *kv = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
            new = torch.stack(kv)
            kept = new if cache is None else torch.cat([cache, new], 3)
            many = kept.shape[3]
            seen = torch.ones(n, many, dtype=torch.bool).tril(many - n)
            mask = None if n == 1 else seen
            return torch.nn.functional.scaled_dot_product_attention(q, *kept, mask), kept

    x = torch.randn(1, 52, 32, generator=torch.Generator().manual_seed(0))
    x = x.to(getattr(torch, dtype))
    sizes = {"batch": range(1, 3), "length": range(1, 53)}
    model, report = stable.invariant(Cached().eval(), sizes, example=(x,))
    whole = model(x)[0]
    for cuts in ([1] * 52, [7, 3, 1, 8, 33], [20, 17, 15], [40, 4, 8], [33, *[1] * 19]):
        parts, cache, at = [], None, 0
        for size in cuts:
            y, cache = model(x[:, at : at + size], cache)
            parts.append(y)
            at += size
        assert torch.equal(torch.cat(parts, 2), whole), cuts
    assert not any("attention" in text for text in report.limited)

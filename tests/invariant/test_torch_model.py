"""PyTorch's models in the invariant mode."""

import copy
import io
import json
import pickle
import warnings

import numpy as np
import pytest

from probe import stable, ulp
from probe.errors import InputError
from probe.invariant.report import NotInvariant


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    before = found.get_num_threads()
    found.manual_seed(0)
    yield found
    found.set_num_threads(before)


def differing(torch, a, b):
    a, b = (one.detach().contiguous().numpy() for one in (a, b))
    return len(ulp.differences(a, b, "float32").index)


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


def test_attention_with_its_own_weights_is_in_one_class_at_every_batch(torch):
    """PyTorch adds its bias with the products where the batch is 1, and behind them elsewhere."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    model, report = stable.invariant(layer, (1, 8), strict=True)
    x = torch.randn(8, 5, 16)
    alone = model(x[3:4])
    whole = model(x)
    assert torch.equal(alone, whole[3:4]) and torch.equal(model(x[2:7]), whole[2:7])
    with torch.no_grad():
        assert torch.allclose(whole, layer(x), atol=1e-4)
    assert report.complete


def test_a_convolutional_network_keeps_its_largest_bits_at_every_batch(torch):
    nn = torch.nn
    plain = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
        nn.Softmax(-1),
    ).eval()
    model, report = stable.invariant(plain, range(1, 17), strict=True)
    x = torch.randn(16, 3, 11, 11)
    with torch.no_grad():
        whole = plain(x)
    if not report.table.notes:
        assert differing(torch, model(x), whole) == 0
    whole = model(x)
    for count in (1, 2, 5, 16):
        assert differing(torch, model(x[16 - count :]), whole[16 - count :]) == 0
    last = x[:1].contiguous(memory_format=torch.channels_last)
    assert differing(torch, model(last), whole[:1]) == 0
    with torch.inference_mode():
        assert differing(torch, model(x[:3]), whole[:3]) == 0


@pytest.mark.parametrize(("channels", "filters"), [(32, 10), (33, 10), (28, 2), (64, 48)])
@pytest.mark.parametrize("kind", ["linear", "matmul", "bmm"])
def test_where_operands_begin_in_memory_does_not_matter(torch, kind, channels, filters):
    """Rows of odd lengths begin at any place in a vector, and so do weights that are mapped."""
    size = channels * filters
    weight = torch.nn.Parameter(torch.randn(size + 1)[1:].view(filters, channels))

    class Product(torch.nn.Module):
        def forward(self, x):
            if kind == "bmm":
                return torch.bmm(x[:, None], weight.t().expand(len(x), channels, filters))
            return torch.nn.functional.linear(x, weight) if kind == "linear" else x @ weight.t()

    model, report = stable.invariant(Product().eval(), [1, 64])
    x = torch.randn(64, channels)
    whole = model(x)
    for start, count in ((0, 1), (1, 1), (3, 2), (1, 9), (5, 16), (2, 33), (1, 63)):
        part = model(x[start : start + count])
        assert torch.equal(part, whole[start : start + count]), (start, count)
    assert report.complete, report


def test_strides_of_axes_of_one_do_not_matter(torch):
    model, _ = stable.invariant(torch.nn.Linear(1, 77).eval(), [64])
    x = torch.randn(64, 1)
    whole, odd = model(x), torch.empty(1, 64).t()
    odd.copy_(x)
    assert differing(torch, model(odd), whole) == 0
    assert all(differing(torch, model(x[n : n + 1]), whole[n : n + 1]) == 0 for n in range(8))


CALLS = {
    "linear by name": lambda f, x, w: f.linear(x, weight=w, bias=w[:, 0]),
    "input by name": lambda f, x, w: f.linear(input=x, weight=w),
    "matmul": lambda f, x, w: x @ w.t(),
    "rows of several axes": lambda f, x, w: x.unflatten(1, (3, 11)).matmul(w[:, :11].t()),
    "bmm": lambda f, x, w: (x[:, :, None] @ x[:, None, :7]).flatten(1),
    "conv1d": lambda f, x, w: f.conv1d(x[:, None], w[:4, None, :5], w[:4, 9], padding=2),
    "conv1d, a list": lambda f, x, w: f.conv1d(x[:, None], w[:4, None, :5], stride=[2]),
    "conv1d, same": lambda f, x, w: f.conv1d(x[:, None], w[:4, None, :5], padding="same"),
    "conv2d": lambda f, x, w: f.conv2d(
        x.view(-1, 1, 3, 11), w[:8, :9].view(8, 1, 3, 3), None, (1, 2)
    ),
    "grouped": lambda f, x, w: f.conv1d(x.view(-1, 3, 11), w[:6, None, :3], groups=3, dilation=2),
    "transposed": lambda f, x, w: f.conv_transpose1d(
        x.view(-1, 3, 11), w[:3, :12].view(3, 4, 3), dilation=2
    ),
    "batch_norm": lambda f, x, w: f.batch_norm(x, w[0], w[1].abs(), weight=w[2], eps=1e-3),
    "softmax": lambda f, x, w: f.softmax(x, 1) + x.softmax(dim=-1).log(),
    "elements": lambda f, x, w: f.silu(x, inplace=False) + x.sigmoid().tanh(),
    "in place": lambda f, x, w: f.silu(x.clone(), inplace=True),
    "glu": lambda f, x, w: f.glu(f.prelu(x[:, 1:], w[0, :1])),
    "instance_norm": lambda f, x, w: f.instance_norm(x.view(-1, 3, 11), weight=w[0, :3]).mean(2),
    "powers": lambda f, x, w: 1.37**x + (x * 9).long().abs() ** 1.3 + 1.7 ** (x * 9).long(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_keeps_its_largest_bits_however_it_is_called(torch, name):
    class Called(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(33, 33))

        def forward(self, x):
            return CALLS[name](torch.nn.functional, x, self.w)

    plain = Called().eval()
    model, report = stable.invariant(plain, (1, 48), strict=name != "bmm")
    x = torch.randn(48, 33)
    with torch.no_grad():
        native = plain(x)
    for _ in range(2):  # what is found at the first call is called at once the second time
        whole = model(x)
        assert report.table.notes or differing(torch, whole, native) == 0
        for part in (slice(1), slice(5, 7), slice(20, 47)):
            assert differing(torch, model(x[part]), whole[part]) == 0
        assert differing(torch, model(x.t().clone().t()[3:9]), whole[3:9]) == 0


def test_layers_one_after_the_other_have_the_bits_that_they_have_within_a_module(torch):
    nn = torch.nn
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(24, 24))
    plain = nn.Sequential(
        *(nn.Conv1d(3, 6, 2), nn.BatchNorm1d(6), nn.ReLU(), nn.Flatten(), nn.Dropout()),
        *(nn.Linear(24, 24), nn.Sequential(nn.LayerNorm(24), nn.GELU(), nn.SiLU()), weighted),
        *(nn.AdaptiveAvgPool1d(7), nn.Linear(7, 4)),
    ).eval()
    hooked = []
    plain[5].register_forward_hook(lambda *given: hooked.append(len(given[1][0])))

    class Within(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = plain

        def forward(self, x):
            return self.inner(x)

    (one, report), (other, _) = (
        stable.invariant(part.eval(), (1, 16)) for part in (plain, Within())
    )
    x = torch.randn(16, 3, 5)
    for count in (16, 1, 5, 16, 1, 5):
        assert differing(torch, one(x[:count]), other(x[:count])) == 0
    assert hooked[-6:] == [16, 16, 1, 1, 5, 5] and report.complete
    plain[5] = nn.Linear(24, 24, bias=False).eval()
    assert differing(torch, one(x[:5]), other(x[:5])) == 0


def test_an_lstm_keeps_its_bits_along_the_batch(torch):
    plain = torch.nn.LSTM(6, 9, batch_first=True, bidirectional=True).eval()
    model, report = stable.invariant(plain, (1, 16), strict=True)
    x = torch.randn(16, 5, 6)
    whole, (hidden, cells) = model(x)
    with torch.no_grad():
        assert torch.allclose(whole, plain(x)[0], atol=1e-5)
    for start, count in ((0, 1), (15, 1), (3, 9)):
        y, (h, c) = model(x[start : start + count])
        assert differing(torch, y, whole[start : start + count]) == 0
        for here, there in ((h, hidden), (c, cells)):
            assert differing(torch, here, there[:, start : start + count].contiguous()) == 0
    assert report.complete


def test_a_result_that_is_written_elsewhere_is_reported(torch):
    class Written(torch.nn.Module):
        def forward(self, x):
            return torch.mm(x, x.t(), out=torch.empty(len(x), len(x)))

    _, report = stable.invariant(Written().eval(), (1, 8), example=torch.randn(8, 3))
    assert any("mm" in name for name in report.left)


def test_few_samples_are_given_to_onednn_where_that_has_the_bits(torch):
    from probe.invariant.torch_calls import TorchConvolution
    from probe.invariant.torch_products import OneDNN

    for shape, kernel in (((4, 20), (6, 4, 3)), ((4, 9, 7), (6, 4, 3, 1))):
        words = {"stride": (1,) * (len(shape) - 1), "padding": (1,) * (len(shape) - 1)}
        like = TorchConvolution(shape, kernel, torch.float32, True, words)
        x, w = (torch.randint(-9, 9, one).float() for one in ((3, *shape), kernel))
        for bias in (w.flatten()[:6], w.flatten()[: 6 * 4 : 4]):  # also one with gaps in memory
            y = OneDNN(like).call((x,), (w, bias))
            assert torch.equal(y, like.call((x,), (w, bias)))


def kept(torch):
    """A layer one row of which is computed from a turned copy of its weights, as told to 64."""
    from probe.invariant.torch_products import Copies

    for channels, filters in ((384, 96), (100, 130), (768, 64), (33, 65), (500, 24)):
        layer, copies = torch.nn.Linear(channels, filters).eval(), []
        with pytest.MonkeyPatch.context() as patch:
            get = Copies.get
            patch.setattr(Copies, "get", lambda self, w: copies.append(w) or get(self, w))  # noqa: B023
            model, _ = stable.invariant(layer, [64], example=torch.randn(1, channels))
        if copies:
            return layer, model, torch.randn(64, channels)
    pytest.skip("here no layer of these is computed from a copy of its weights")


@pytest.mark.parametrize("how", ["no_grad", "data", "replaced", "loaded"])
def test_weights_that_change_are_noticed_with_few_rows(torch, how):
    layer, model, x = kept(torch)
    before, new = model(x[:1]), torch.randn_like(layer.weight)
    if how == "no_grad":
        with torch.no_grad():
            layer.weight[3, 5] += 1
    elif how == "data":
        layer.weight.data.mul_(0.5)
    elif how == "replaced":
        layer.weight.data = new
    else:
        layer.load_state_dict({"weight": new, "bias": layer.bias})
    assert differing(torch, model(x[:1]), before)
    assert differing(torch, model(x[:1]), model(x)[:1]) == 0


def test_without_room_for_copies_few_rows_keep_their_bits(torch, monkeypatch):
    from probe.invariant import torch_products

    monkeypatch.setattr(torch_products, "MEMORY", 0)
    _, model, x = kept(torch)
    whole = model(x)
    for count in (1, 2, 3, 17):
        assert differing(torch, model(x[:count]), whole[:count]) == 0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("block", [4, 7, 20])
def test_blocks_of_channels_are_added_up(torch, bias, block):
    from probe.invariant.torch_calls import TorchLinear
    from probe.invariant.torch_products import Turned

    whole = TorchLinear(20, 6, torch.float32, bias)
    x, w, b = (torch.randint(-9, 9, shape).float() for shape in ((3, 20), (6, 20), (6,)))
    y = Turned(whole, block).call((x,), (w.t().contiguous(), b if bias else None))
    assert torch.equal(y, whole.call((x,), (w, b if bias else None)))


@pytest.mark.slow
def test_a_number_of_threads_without_the_chosen_bits_has_a_class_of_its_own(torch):
    """Two threads share the channels of this layer out on some processors, one thread does not."""
    layer, x = torch.nn.Linear(1280, 1000).eval(), torch.randn(32, 1280)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        model, report = stable.invariant(layer, (1, 32), strict=True)
        for threads in (2, 1, 2):
            torch.set_num_threads(threads)
            whole = model(x)
            for part in (slice(1), slice(31, 32), slice(3, 20), slice(20, 32)):
                assert torch.equal(model(x[part]), whole[part])
    finally:
        torch.set_num_threads(before)
    assert not report.left


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_zeros_of_maxima_have_one_sign_at_every_place(torch, dtype):
    class Maxima(torch.nn.Module):
        def forward(self, x):
            low = torch.maximum(x, -x).amax(1)
            return low, torch.minimum(x, -x), torch.clamp(x, -x, x), x.max(1).values

    zeros = torch.tensor([0.0, -0.0], dtype=getattr(torch, dtype))
    x = zeros[torch.randint(2, (41, 19), generator=torch.Generator().manual_seed(2))]
    x[:, 3] = 1
    model, report = stable.invariant(Maxima().eval(), (1, 41), example=x)
    whole = model(x)
    for count in (1, 2, 7, 16, 17, 40):
        for part, all_of in zip(model(x[:count]), whole, strict=True):
            assert torch.equal(torch.signbit(part), torch.signbit(all_of[:count]))
    assert not report.left


def test_what_is_not_known_is_reported_and_refused_when_strict(torch):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.svdvals(x.view(-1, 2, 4)) + 1

    model, report = stable.invariant(Odd().eval())
    model(torch.randn(3, 8))
    assert not report.complete and any("svd" in name for name in report.left)
    model, _ = stable.invariant(Odd().eval(), strict=True)
    with pytest.raises(Exception, match="svd.*not known.*outside of the model"):
        model(torch.randn(3, 8))


def test_a_sum_over_the_batch_is_not_called_invariant(torch):
    class Centred(torch.nn.Module):
        def forward(self, x):
            return x - x.mean(0)

    _, report = stable.invariant(Centred().eval(), example=torch.randn(4, 3))
    assert any("mean" in name for name in report.left)


@pytest.mark.parametrize("form", ["columns", "inside", "groups"])
def test_an_operation_whose_shape_has_the_batch_is_reported_and_refused(torch, form):
    weight = torch.nn.Parameter(torch.randn(12, 6))

    class Turned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            if form == "columns":
                return (self.weight @ x.T).T
            if form == "inside":
                return x.T.contiguous().reshape(2, 3, -1).sum(1).T
            groups = x.reshape(1, -1, 1), self.weight[:, :, None].repeat(len(x), 1, 1)
            return torch.nn.functional.conv1d(*groups, groups=len(x)).view(len(x), -1)

    x = torch.randn(9, 6)
    model, report = stable.invariant(Turned().eval(), sizes=(1, 8))
    model(x[:8])
    for count in (8, 5, 9):
        model(x[:count])
    assert 1 <= len(report.left) <= 2  # the batch may be one of the weights' strides too
    assert all("the batch is a part of its shape" in told for told in report.left.values())
    strict, _ = stable.invariant(Turned().eval(), sizes=(1, 8), strict=True)
    with pytest.raises(NotInvariant, match="the batch is a part of its shape"):
        strict(x[:8])


def test_sums_into_places_and_complex_numbers_are_not_called_exact(torch):
    class Sums(torch.nn.Module):
        def forward(self, x, add):
            places = torch.arange(len(x))[:, None].expand_as(x), torch.arange(x.shape[1]) % 2
            return torch.index_put(x.new_zeros(len(x), 2), places, x, accumulate=add)

    model, report = stable.invariant(Sums().eval())
    model(torch.randn(4, 2), False)
    assert report.complete
    model(torch.randn(4, 6), True)
    assert [one.split()[0] for one in report.left] == ["index_put"]
    linear = torch.nn.Linear(3, 4, dtype=torch.complex64).eval()
    model, report = stable.invariant(linear)
    x = torch.randn(2, 3, dtype=torch.complex64)
    assert torch.equal(model(x), linear(x))
    assert {one.partition(" of ")[0] for one in report.left} >= {
        "complex weights",
        "complex inputs",
    }


def test_bits_that_the_unchanged_model_has_not_are_noted(torch):
    """Samples of a batch one by one: the class of a convolution is that of the whole batch."""
    torch.manual_seed(3)
    conv = torch.nn.Conv1d(6, 9, 3).eval()

    class Apart(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv

        def forward(self, x):
            return torch.stack([self.conv(one) for one in x])

    x = torch.randn(16, 6, 40)
    for module in (Apart().eval(), conv):
        model, report = stable.invariant(module, sizes=(1, 16), example=x)
        same = torch.equal(model(x), module(x))
        assert same != any("numbers of the example differ" in one for one in report.table.notes)
    assert same


def test_one_shape_is_named_for_all_batches_of_what_is_left(torch):
    class Odd(torch.nn.Module):
        def forward(self, x):
            odd = x.t()[:, None]
            pair = x[:, :2], x[:, 1:3]
            return torch.addcmul(x, x, x), torch.addcmul(*pair, x[:, :2]), odd.addcmul(odd, odd)

    model, report = stable.invariant(Odd().eval())
    for count in range(1, 6):
        model(torch.rand(count, 7))
    assert list(report.left) == [
        "addcmul of 1x7, 1x7, 1x7",
        "addcmul of 1x2, 1x2, 1x2",
        "addcmul of 7x1x1, 7x1x1, 7x1x1",
    ]


def test_functions_have_a_class_where_few_samples_are_named(torch):
    """A vector is longer than the samples: it is elements that are counted."""
    model, report = stable.invariant(torch.nn.Sigmoid().eval(), sizes=range(1, 5))
    x = torch.randn(13, 33)
    every = model(x)
    assert report.complete and all(
        torch.equal(model(x[row : row + 1]), every[row : row + 1]) for row in range(13)
    )


def test_training_is_refused(torch):
    layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout())
    with pytest.raises(InputError, match="model.eval"):
        stable.invariant(layer)
    model, _ = stable.invariant(layer.eval())
    layer[1].train()
    with pytest.raises(InputError, match="training is not covered"):
        model(torch.zeros(2, 3))


def small(torch):
    """A model of a few layers, for calls in every context."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(96, 130), nn.GELU(), nn.Linear(130, 40)).eval()


def dependent(model, x):
    """How many numbers of single samples and small batches differ from those of the whole."""
    whole = model(x)
    return sum(
        int((model(x[start : start + count]) != whole[start : start + count]).sum())
        for start, count in ((0, 1), (3, 1), (1, 2), (5, 3), (0, 7))
    )


@pytest.mark.parametrize("how", ["deepcopy", "copy", "pickle", "save"])
def test_a_copy_is_in_the_mode_with_weights_of_its_own(torch, how):
    model, _ = stable.invariant(small(torch), range(1, 17))
    x = torch.randn(16, 96)
    whole, buffer = model(x), io.BytesIO()
    if how == "save":
        torch.save(model, buffer)
        made = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    else:
        ways = {"copy": copy.copy, "deepcopy": copy.deepcopy}
        made = ways.get(how, lambda one: pickle.loads(pickle.dumps(one)))(model)
    assert differing(torch, made(x), whole) == 0 and dependent(made, x) == 0
    with torch.no_grad():
        made[0].weight.mul_(2)
    assert differing(torch, made(x), whole)
    assert (differing(torch, model(x), whole) == 0) == (how != "copy")
    assert made.invariant_report.complete


def test_what_is_set_on_a_model_in_the_mode_counts(torch):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.scale = torch.nn.Linear(96, 40), 1.0

        def forward(self, x):
            return self.linear(x) * self.scale

    plain, x, p = Scaled().eval(), torch.randn(16, 96), torch.randn(40, 40)
    model, _ = stable.invariant(plain, range(1, 17))
    before = model(x)
    model.scale = 2.0
    assert torch.equal(model(x), before * 2) and plain.scale == 2.0
    plain.scale = 1.0
    assert torch.equal(model(x), before) and torch.equal(model.forward(x), before)
    twice = {name: 2 * value for name, value in model.state_dict().items()}
    functional = torch.func.functional_call
    assert torch.equal(functional(model, twice, (x[:1],)), functional(model, twice, (x,))[:1])
    model.register_forward_hook(lambda module, given, y: y @ p)
    assert torch.allclose(model(x), before @ p, atol=1e-3) and dependent(model, x) == 0
    plain.forward = lambda x: x @ x[:1].new_ones(96, 9)
    model._forward_hooks.clear()
    assert model(x).shape == (16, 9) and dependent(model, x) == 0
    del plain.forward
    torch.nn.utils.parametrize.register_parametrization(model.linear, "weight", torch.nn.Tanh())
    with pytest.raises(InputError, match="training is not covered"):
        plain.train() and model(x)
    plain.eval()
    assert dependent(model, x) == 0


def test_a_model_parametrized_in_the_mode_stays_in_it(torch):
    model, _ = stable.invariant(torch.nn.Linear(96, 40).eval(), range(1, 17))
    x = torch.randn(16, 96)
    before = model(x)
    torch.nn.utils.parametrize.register_parametrization(model, "weight", torch.nn.Tanh().eval())
    assert differing(torch, model(x), before) and dependent(model, x) == 0


def traced(torch, model, x, how):
    """A call of a model that is transformed, traced or exported."""
    if how == "onnx":
        torch.onnx.export(model, (x,), io.BytesIO(), dynamo=False)
    if how == "dual":
        with torch.autograd.forward_ad.dual_level():
            model(torch.autograd.forward_ad.make_dual(x, x))
    ways = {
        "vmap": lambda: torch.func.vmap(model)(x),
        "grad": lambda: torch.func.grad(lambda one: model(one).sum())(x),
        "jvp": lambda: torch.func.jvp(model, (x,), (x,)),
        "jacobian": lambda: torch.autograd.functional.jacobian(model, x),
        "trace": lambda: torch.jit.trace(model, x),
        "script": lambda: torch.jit.script(model),
        "fx": lambda: torch.fx.symbolic_trace(model),
        "export": lambda: torch.export.export(model, (x,), strict=False),
        "make_fx": lambda: torch.fx.experimental.proxy_tensor.make_fx(model)(x),
        "meta": lambda: model(x.to("meta")),
        "slice": lambda: model[:2](x),
    }
    ways.get(how, lambda: None)()


CONTEXTS = (
    *("vmap", "grad", "jvp", "dual", "jacobian", "trace", "script", "fx", "onnx", "slice"),
    *(pytest.param(one, marks=pytest.mark.slow) for one in ("export", "make_fx", "meta")),
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", CONTEXTS)
def test_what_would_leave_the_mode_is_one_line(torch, how):
    model, _ = stable.invariant(small(torch), (1, 3))
    x = torch.randn(3, 96)
    model(x)  # the second call of a shape takes a shorter way
    for given in (x, x[:2]):
        with pytest.raises(InputError, match="^model=Sequential: [^\n]*; [^\n]*$"):
            traced(torch, model, given, how)


@pytest.mark.parametrize("where", ["around", "within"])
def test_inference_mode_runs_the_operations_that_are_run_outside(torch, where):
    """In it operations arrive whole, and PyTorch's own parts of them are different ones there."""

    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = torch.nn.GRU(19, 32, batch_first=True, bidirectional=True)
            self.w = torch.nn.Parameter(torch.randn(9, 8))

        def forward(self, x):
            with torch.inference_mode(where == "within" and inside):
                y = torch.nn.functional.interpolate(x[:, None], scale_factor=1.7, mode="bilinear")
                steps = y[:, 0, :, :18].unflatten(2, (2, 9)) @ self.w
                return torch.cat([self.gru(x.clone())[0].flatten(1), steps.flatten(1)], 1)

    inside = False
    model, report = stable.invariant(Parts().eval(), range(1, 17))
    x = torch.randn(16, 11, 19)
    whole = model(x)
    assert dependent(model, x) == 0
    rows, inside = {row.operation for row in report.rows}, True
    with torch.inference_mode(where == "around"):
        again = model(x.clone())
        assert differing(torch, again, whole) == 0 and dependent(model, x.clone()) == 0
    assert {row.operation for row in report.rows} == rows and report.complete


def test_what_is_changed_in_place_in_inference_mode_is_changed(torch):
    model, _ = stable.invariant(torch.nn.ReLU(inplace=True).eval())
    with torch.inference_mode():
        x = torch.randn(3, 5)
        model(x)
        assert (x >= 0).all()
        counted = torch.nn.BatchNorm1d(5).eval()
        counted.register_buffer("calls", torch.zeros(1))
    counted.forward = lambda x: x + counted.calls.add_(1)
    model, _ = stable.invariant(counted)
    with pytest.raises(InputError, match="make the model outside of torch.inference_mode"):
        model(torch.randn(3, 5))


def test_autocast_within_a_part_keeps_its_bits(torch):
    class Cast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = torch.nn.Linear(96, 80), torch.nn.Linear(80, 40)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = torch.nn.functional.layer_norm(torch.nn.functional.gelu(self.one(x)), (80,))
                mixed = y[:, None] @ y[:, :, None]
            return self.other(y.float()) + mixed[:, 0].float()

    plain, x = Cast().eval(), torch.randn(16, 96)
    model, report = stable.invariant(plain, range(1, 17), strict=True)
    with torch.no_grad():
        assert torch.allclose(model(x), plain(x), rtol=0.1, atol=0.1)
    assert dependent(model, x) == 0 and report.complete
    assert any("bfloat16" in row.operation for row in report.rows)


def test_sparse_inputs_are_run_and_reported(torch):
    model, report = stable.invariant(torch.nn.Linear(9, 4).eval(), (1, 3))
    x = torch.randn(3, 9)
    for _ in range(2):
        assert torch.allclose(model(x), model(x.to_sparse()), atol=1e-5)
    assert not report.complete


def test_a_batch_without_samples_is_empty_and_hides_nothing(torch):
    nn = torch.nn

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            parts = nn.LayerNorm(16), nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 16)
            self.expert, self.norm = nn.Sequential(*parts), nn.GroupNorm(2, 16)

        def forward(self, x):
            none = x[x[:, 0] > 1e9]
            return self.expert(x) + self.norm(x) + (self.expert(none) + self.norm(none)).sum(0)

    model, report = stable.invariant(Experts().eval(), (1, 8), strict=True)
    x = torch.randn(8, 16)
    assert dependent(model, x) == 0 and model(x[:0]).shape == (0, 16) and report.complete
    for layer in (
        nn.GRU(5, 4, batch_first=True),
        nn.TransformerEncoderLayer(5, 1, 8, batch_first=True),
    ):
        model, report = stable.invariant(layer.eval(), (1, 8), strict=True)
        y = model(torch.randn(0, 3, 5))
        assert len(y[0] if isinstance(y, tuple) else y) == 0 and report.complete


class Written:
    """Attention as people write it, with products of pairs of matrices."""

    @staticmethod
    def made(torch):
        class Attention(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.all = torch.nn.Linear(32, 96)

            def forward(self, x):
                q, k, v = self.all(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
                return (
                    ((q @ k.transpose(-1, -2) / 8**0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
                )

        return Attention().eval()


def test_strict_takes_attention_written_by_hand_where_no_lengths_are_wanted(torch):
    x = torch.randn(16, 9, 32)
    model, report = stable.invariant(Written.made(torch), range(1, 17), strict=True)
    assert dependent(model, x) == 0 and report.complete and not report.limited
    sizes = {"batch": range(1, 17), "length": range(1, 10)}
    _, report = stable.invariant(Written.made(torch), sizes, example=x)
    assert any("bmm" in name for name in report.limited)
    with pytest.raises(NotInvariant, match="in Attention: products of pairs"):
        stable.invariant(Written.made(torch), sizes, strict=True, example=x)


def test_what_is_left_names_its_modules(torch):
    nn = torch.nn

    class Gamma(nn.Module):
        def forward(self, x):
            return torch.addcmul(x, x, x)

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.rest = (
                nn.Sequential(nn.Linear(4, 4), Gamma()),
                nn.ModuleList([Gamma()]),
            )

        def forward(self, x):
            return torch.addcdiv(self.rest[0](self.first(x)), x, x)

    plain, x = Named().eval(), torch.rand(3, 4)
    _, report = stable.invariant(plain, example=x)
    one, two = "addcmul of 3x4, 3x4, 3x4", "addcdiv of 3x4, 3x4, 3x4"
    wanted = {one: ["first.1", "rest.0"], two: ["Named"]}
    assert report.modules == report.to_json()["modules"] == wanted
    assert f"{one} in first.1, rest.0, {two} in Named" in repr(report)
    _, report = stable.invariant(plain.first, example=x)
    assert report.modules == {one: ["1"]}
    with pytest.raises(NotInvariant, match=f"^operation={one} in first.1: it is not known"):
        stable.invariant(plain, strict=True, example=x)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("GRU", "float64"), ("GRU", "float32"), ("RNN", "float64"), ("LSTM", "float64")],
)
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
            for start, count in ((0, 16), (3, 1), (2, 9)):
                part = model(x[start : start + count])
                assert torch.equal(part, whole[start : start + count]), (start, count)
        assert report.complete, report


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


def test_a_table_travels_and_is_checked(torch, tmp_path):
    layer, path, x = torch.nn.Linear(24, 9).eval(), tmp_path / "table.json", torch.randn(40, 24)
    model, report = stable.invariant(layer, [40], example=x)
    wanted = [model(x[:count]) for count in (1, 3, 40)]
    report.save(path)
    model, report = stable.invariant(layer, [40], table=path)
    found = [model(x[:count]) for count in (1, 3, 40)]
    assert all(differing(torch, a, b) == 0 for a, b in zip(wanted, found, strict=True))
    assert not report.table.notes and report.table.trusted
    told = json.loads(path.read_text())
    told["environment"]["version"] = "0.1"
    marks = told["operations"]["linear 24 -> 9 with bias float32"]["marks"]
    marks[next(iter(marks))] = {"3": "elsewhere", "40": "elsewhere"}
    path.write_text(json.dumps(told))
    model, report = stable.invariant(layer, [40], table=path)
    found = [model(x[:count]) for count in (1, 3, 40)]
    assert all(differing(torch, a, b) == 0 for a, b in zip(wanted, found, strict=True))
    assert any("another version" in note for note in report.table.notes)
    assert any("checked anew" in note and "size 3" in note for note in report.table.notes)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', "no table"])
def test_a_file_that_is_no_table_is_one_line(torch, tmp_path, text):
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(InputError, match="table=table.json: it is not a table"):
        stable.invariant(torch.nn.Linear(2, 2).eval(), table=tmp_path / "table.json")


def test_sums_are_certified_when_asked(torch):
    _, report = stable.invariant(torch.nn.Linear(9, 16).eval(), [8], example=torch.randn(8, 9))
    told = report.certify()
    assert all(
        one.startswith(("certified: all outputs", "not certified: ")) for one in told.values()
    )
    assert [row.certified for row in report.rows] == [told[row.operation] for row in report.rows]


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["Linear(96, 64)", "Conv1d(6, 8, 3, stride=2)"])
def test_a_quicker_way_for_few_samples_is_certified_too(torch, layer):
    """Linear layers have one where the library adds few rows of turned weights as it adds many."""
    made = eval(f"torch.nn.{layer}.eval()", {"torch": torch})
    x = torch.randn(64, *((6, 21) if "Conv" in layer else (96,)))
    model, report = stable.invariant(made, [1, 2, 4, 8, 64], example=x)
    for size in (1, 2, 4, 8):
        assert torch.equal(model(x[:size]), model(x)[:size])
    told = report.certify()
    assert len(told) == len(report.rows)
    for key, words in told.items():
        assert words.startswith(("certified: all outputs of sizes ", "not certified: ")), key
        assert "different order" not in words, key
        if words.startswith("certified"):
            assert ("of the usual way" in words) == ("few rows" in key or "by oneDNN" in key)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"like": "fastest"}, "like=fastest"),
        ({"sizes": [0]}, "whole numbers"),
        ({"sizes": 8}, "several sizes"),
        ({"sizes": {"width": [3]}}, "sizes=width"),
    ],
)
def test_mistaken_words_are_one_line(torch, words, why):
    with pytest.raises(InputError, match=why):
        stable.invariant(torch.nn.Linear(2, 2).eval(), **words)


def test_no_module_is_one_line():
    with pytest.raises(InputError, match="model=int"):
        stable.invariant(3)


# samples, and what they read


def module(torch, function):
    """A layer and a function of it and the arguments, as a model."""

    class Made(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(12, 7)

        def forward(self, *args, **words):
            return function(self.layer, *args, **words)

    return Made().eval()


def loop(layer, x):
    while not (x.abs() < 1).all():
        x = x / 2
    return layer(x)


READING = {
    "maximum": lambda layer, x: layer(x / x.abs().max()),
    "first": lambda layer, x: layer(x - x[:1]),
    "sort": lambda layer, x: layer(x.sort(0).values),
    "loop": loop,
    "number": lambda layer, x: layer(x) * int((x > 0).sum()),
    "any": lambda layer, x: layer(x) * (1 + torch_any(x)),
    "mask": lambda layer, x: layer(x) + x.masked_select(x > 0).max(),
    "places": lambda layer, x: layer(x.flip(0)),
    "batch": lambda layer, x: layer(x) * len(x),
    "few": lambda layer, x: layer(x - x[:1]) if len(x) > 4 else layer(x),
    "numpy": lambda layer, x: layer(x) * float(x.numpy().max()),
}


def torch_any(x):
    return (x > 100).any().float()


@pytest.mark.parametrize("name", READING)
def test_samples_that_read_each_other_by_exact_operations_are_reported(torch, name):
    plain, x = module(torch, READING[name]), torch.randn(8, 12)
    model, report = stable.invariant(plain, (1, 8))
    for count in (3, 1, 8):
        model(x[:count])
    assert list(report.left) == ["samples that read each other"] and not report.complete
    strict, _ = stable.invariant(plain, (1, 8), strict=True)
    with pytest.raises(NotInvariant, match="samples that read each other.*: .*change") as caught:
        [strict(x[:count]) for count in (3, 1, 8)]
    assert "\n" not in str(caught.value)


def over(x):
    return x / x.abs().max()


NUMBERS = {
    "floating-point": (1.0, 2.0),
    "whole": (100, 200),
    "tensor of no axes": (np.float32(1), np.float32(2)),
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("way", ["by place", "by name", "in a dictionary"])
def test_a_number_that_chooses_a_branch_is_asked_about(torch, kind, way):
    low, high = NUMBERS[kind]
    if kind.startswith("tensor"):
        low, high = torch.tensor(low), torch.tensor(high)
    taken = {
        "by place": lambda layer, x, t: layer(over(x) if t > low else x),
        "by name": lambda layer, x, t=None: layer(over(x) if t > low else x),
        "in a dictionary": lambda layer, d: layer(over(d["x"]) if d["t"] > low else d["x"]),
    }[way]
    model, report = stable.invariant(module(torch, taken), (1, 8))
    x = torch.randn(8, 12)

    def call(count, t):
        if way == "in a dictionary":
            return model({"x": x[:count], "t": t})
        return model(x[:count], t=t) if way == "by name" else model(x[:count], t)

    for count in (1, 3, 8):
        call(count, low)
    assert report.complete
    for count in (1, 3, 8):
        call(count, high)
    assert list(report.left) == ["samples that read each other"]


def test_numbers_that_are_new_at_each_call_are_soon_not_asked_about(torch):
    runs = []

    def scaled(layer, x, t):
        runs.append(t)
        return layer(x) * t

    model, report = stable.invariant(module(torch, scaled), (1, 8))
    x = torch.randn(8, 12)
    for step in range(20):
        model(x, 1000.0 + step)
    before = len(runs)
    for step in range(20):
        model(x, 2000.0 + step)
    assert len(runs) == before + 20 and report.complete


CHANGED = {
    "hook before": lambda model: model.register_forward_pre_hook(lambda m, x: (over(x[0]),)),
    "hook inside": lambda model: model[1].register_forward_hook(lambda m, x, y: over(y)),
    "layer": lambda model: model.__setitem__(1, module_of(over)),
    "more layers": lambda model: model.append(module_of(over)),
    "layer inside": lambda model: model[0].add_module("1", module_of(over)),
}


def module_of(function):
    import torch

    class Made(torch.nn.Module):
        def forward(self, x):
            return function(x)

    return Made().eval()


@pytest.mark.parametrize("whose", ["made", "given", "copy"])
@pytest.mark.parametrize("name", CHANGED)
def test_a_model_that_was_changed_is_asked_about_again(torch, name, whose):
    nn = torch.nn
    plain = nn.Sequential(nn.Sequential(nn.Linear(12, 12)), nn.ReLU(), nn.Linear(12, 7)).eval()
    model, report = stable.invariant(plain, (1, 8))
    if whose == "copy":
        model = copy.deepcopy(model)
        report = model.invariant_report
    x = torch.randn(8, 12)
    for count in (1, 3, 8):
        model(x[:count])
    assert report.complete
    CHANGED[name](plain if whose == "given" else model)
    for count in (1, 3, 8):
        model(x[:count])
    assert list(report.left) == ["samples that read each other"]


def test_a_hook_of_a_different_model_or_an_exact_layer_leaves_a_model_complete(torch):
    nn = torch.nn
    plain = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 7)).eval()
    model, report = stable.invariant(plain, (1, 8), strict=True)
    x = torch.randn(8, 12)
    for count in (1, 8):
        model(x[:count])
    nn.ReLU().register_forward_hook(lambda m, given, y: over(y))
    model[1] = nn.GELU()
    model.append(nn.Linear(7, 5))
    whole = model(x)
    assert report.complete and all(
        torch.equal(model(x[n : n + 1]), whole[n : n + 1]) for n in range(8)
    )


def test_a_nested_tensor_inside_is_reported(torch):
    def nested(layer, x):
        rows = torch.nested.nested_tensor([one[None] for one in x])
        return torch.nested.to_padded_tensor(layer(rows), 0.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of nested tensors
        model, report = stable.invariant(module(torch, nested), (1, 8))
        model(torch.randn(3, 12))
    assert not report.complete


OWN = {
    "sorted": lambda layer, x: layer(x.sort(1).values.gather(1, x.argsort(1))),
    "chosen": lambda layer, x: torch_experts(layer, x),
    "masked": lambda layer, x: layer(x.where(x > 0, -x).cumsum(1)),
    "three rows": lambda layer, x: layer(x.repeat_interleave(3, 0)),
    "written": lambda layer, x: layer(x.mul_(3)),
    "several": lambda layer, x: {"y": layer(x), "places": [x.argmax(1), None, 2.5, layer.weight]},
}


def torch_experts(layer, x):
    y, chosen = layer(x), x.argmax(1) % 2
    for one in range(2):
        at = (chosen == one).nonzero()[:, 0]
        y[at] = layer(x[at]) * (1 + one)
    return y


@pytest.mark.parametrize("name", OWN)
def test_samples_that_read_themselves_alone_are_not_refused(torch, name):
    model, report = stable.invariant(module(torch, OWN[name]), (1, 8), strict=True)
    for count in (8, 1, 5):
        model(torch.randn(count, 12))
    assert report.complete


def turned(layer, x):
    """The batch stands along the columns of a product."""
    return (layer.weight @ x.T).T


ARGUMENTS = {
    "dictionary": (lambda layer, d: turned(layer, d["x"]), lambda x: (({"x": x},), {})),
    "list": (lambda layer, d: turned(layer, d[0][0]), lambda x: (([(x, None)],), {})),
    "scalar": (lambda layer, x, t: turned(layer, x) * t, lambda x: ((x, 0.5), {})),
    "tensor of no axes": (lambda layer, x, t: turned(layer, x) * t, None),
    "places": (lambda layer, x, at: turned(layer, x + at), None),
    "words": (lambda layer, x=None, at=1: turned(layer, x), lambda x: ((), {"x": x})),
}


@pytest.mark.parametrize("kind", ["turned", "straight"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_batch_is_found_in_arguments_of_any_structure(torch, name, kind):
    function, made = ARGUMENTS[name]
    if made is None:
        beside = torch.tensor(0.5) if "tensor" in name else torch.arange(12.0)[None]
        made = lambda x: ((x, beside), {})  # noqa: E731
    if kind == "straight":
        plain, given = module(torch, lambda layer, *a, **w: layer(inside(a, w))), made
        model, report = stable.invariant(plain, (1, 8), strict=True)
    else:
        plain, given = module(torch, function), made
        model, report = stable.invariant(plain, (1, 8))
    x = torch.randn(8, 12)
    for count in (8, 1, 5):
        args, words = given(x[:count])
        model(*args, **words)
    assert report.complete == (kind == "straight")
    assert all("the batch is a part of its shape" in told for told in report.left.values())


def inside(args, words):
    """The first tensor with a batch in nested arguments."""
    from torch.utils._pytree import tree_leaves

    return next(one for one in tree_leaves((args, words)) if getattr(one, "ndim", 0) == 2)


def test_samples_along_another_axis_are_named(torch):
    plain, x = torch.nn.LSTM(6, 9).eval(), torch.randn(5, 16, 6)
    _, report = stable.invariant(plain, (1, 16), example=x)
    assert report.left and all("batched=1" in why for why in report.left.values())
    model, report = stable.invariant(plain, (1, 16), batched=1, strict=True)
    whole = model(x)[0]
    for start, count in ((0, 1), (15, 1), (3, 9)):
        part = slice(start, start + count)
        assert torch.equal(model(x[:, part])[0], whole[:, part])
    assert report.complete
    with pytest.raises(InputError, match="batched=.*not axes of one number of samples"):
        stable.invariant(plain, (1, 16), batched=(0, 0), example=(x, (x[:1], x[:1])))


def test_two_arguments_either_of_which_may_be_the_samples_are_reported(torch):
    plain = module(torch, lambda layer, x, w: x @ w.T)
    given = torch.randn(8, 12), torch.randn(5, 12)
    _, report = stable.invariant(plain, (1, 8), example=given)
    assert not report.complete and all("(0, None)" in why for why in report.left.values())
    _, report = stable.invariant(plain, (1, 8), batched=(0, None), example=given, strict=True)
    assert report.complete


def test_an_argument_that_cannot_be_read_is_reported(torch):
    class Held:
        def __init__(self, x):
            self.x = x

    plain = module(torch, lambda layer, held: layer(held.x))
    _, report = stable.invariant(plain, (1, 8), example=Held(torch.randn(8, 12)))
    assert list(report.left) == ["samples among the arguments"]


def test_a_model_that_counts_its_calls_keeps_its_count(torch):
    plain = module(torch, lambda layer, x: layer(x))
    plain.register_buffer("calls", torch.zeros((), dtype=torch.long))
    plain.register_forward_pre_hook(lambda *given: None)
    inner = plain.forward

    def forward(x):
        plain.calls += 1
        return inner(x)

    plain.forward = forward
    model, report = stable.invariant(plain, (1, 8))
    model(torch.randn(8, 12))
    assert int(plain.calls) == 1 and report.complete


@pytest.fixture
def settings(torch):
    """Sets them back."""
    flags, precision = torch.backends.mkldnn.set_flags(), torch.get_float32_matmul_precision()
    yield
    torch.backends.mkldnn.set_flags(flags[0])
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("name", ["precision", "mkldnn"])
def test_settings_that_change_have_classes_of_their_own(torch, settings, name):
    plain, x = torch.nn.Linear(64, 48).eval(), torch.randn(16, 64)
    model, report = stable.invariant(plain, (1, 16), example=x)
    before, rows = model(x), len(report.rows)
    if name == "precision":
        torch.set_float32_matmul_precision("medium")
    else:
        torch.backends.mkldnn.set_flags(False)
    whole = model(x)
    assert len(report.rows) > rows and any("a class of its own" in n for n in report.table.notes)
    for count in (1, 2, 5, 15):
        assert torch.equal(model(x[:count]), whole[:count])
    torch.set_float32_matmul_precision("highest")
    torch.backends.mkldnn.set_flags(True)
    assert torch.equal(model(x), before) and report.complete


def test_a_setting_that_a_model_changes_inside_is_reported(torch, settings):
    def function(layer, x):
        y = layer(x)
        before = torch.backends.mkldnn.set_flags(False)
        y = y * layer(x)
        torch.backends.mkldnn.set_flags(before[0])
        return y

    _, report = stable.invariant(module(torch, function), (1, 8), example=torch.randn(8, 12))
    assert any("linear with mkldnn=False" in name for name in report.left)


def test_an_operation_of_somebody_else_is_not_known_by_its_name(torch):
    with torch.library._scoped_library("probe_mine", "DEF") as library:
        for name in ("gather", "view", "avg_pool2d"):
            library.define(f"{name}(Tensor x, Tensor w) -> Tensor")
            library.impl(name, lambda x, w: torch.mm(x, w), "CPU")
            called = getattr(torch.ops.probe_mine, name)
            for one in (called, called.default):
                plain = module(torch, lambda layer, x, one=one: one(layer(x), x[0, :7, None] * 1))
                _, report = stable.invariant(plain, (1, 8), example=torch.randn(8, 12))
                assert any(f"probe_mine::{name}" in left for left in report.left), report


@pytest.mark.slow
def test_compiling_an_invariant_model_leaves_its_bits(torch):
    nn = torch.nn
    model, _ = stable.invariant(nn.Sequential(nn.Linear(40, 24), nn.GELU()).eval(), [16])
    x = torch.randn(16, 40)
    whole, compiled = model(x), torch.compile(model, backend="eager")
    assert differing(torch, compiled(x), whole) == 0
    assert differing(torch, compiled(x[3:4]), whole[3:4]) == 0


def test_what_is_run_unseen_is_one_line(torch):
    """TorchScript's operations, and formats that autocast changes."""
    linear = torch.nn.Linear(3, 4).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # people have such files still
        script = torch.jit.script(linear)
    for module in (script, torch.nn.Sequential(script).eval()):
        with pytest.raises(InputError, match="is TorchScript") as caught:
            stable.invariant(module)
        assert "\n" not in str(caught.value)
    model, _ = stable.invariant(linear)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(InputError, match="autocast changes formats"),
    ):
        model(torch.zeros(2, 3))


def test_a_model_with_a_compiled_part_is_one_line(torch):
    part = torch.nn.Linear(3, 3)
    part.compile(backend="eager")
    with pytest.raises(InputError, match="0 is compiled"):
        stable.invariant(torch.nn.Sequential(part).eval())

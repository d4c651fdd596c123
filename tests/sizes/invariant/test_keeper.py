"""Which class an operation runs in, what is left and where it was met, which orders it has."""

import pytest

from probe.sizes import stable
from probe.sizes.invariant.keeper import BOUND, NotInvariant
from tests.sizes.invariant.models import dependent, of


@pytest.mark.slow
def test_a_number_of_threads_without_the_chosen_bits_is_reported(torch):
    """Two threads share the channels of this layer out on some processors, one thread does not."""
    layer, x = torch.nn.Linear(1280, 1000).eval(), torch.randn(32, 1280)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        model, report = stable.invariant(layer, (1, 32))
        for threads in (2, 1, 2):
            torch.set_num_threads(threads)
            apart = dependent(model, x, parts=[(0, 1), (31, 1), (3, 17), (20, 12)])
            assert not apart or (threads == 1 and "1 threads" in str(report.left))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("form", ["columns", "inside", "groups"])
def test_an_operation_whose_shape_has_the_batch_is_reported_and_refused(torch, form):
    weight = torch.nn.Parameter(torch.randn(12, 6))

    def function(x):
        if form == "columns":
            return (weight @ x.T).T
        if form == "inside":
            return x.T.contiguous().reshape(2, 3, -1).sum(1).T
        groups = x.reshape(1, -1, 1), weight[:, :, None].repeat(len(x), 1, 1)
        return torch.nn.functional.conv1d(*groups, groups=len(x)).view(len(x), -1)

    turned, x = of(torch, function), torch.randn(9, 6)
    model, report = stable.invariant(turned, sizes=(1, 8))
    model(x[:8])
    for count in (8, 5, 9):
        model(x[:count])
    assert 1 <= len(report.left) <= 2  # the batch may be one of the weights' strides too
    assert all(told.startswith(BOUND) for told in report.left.values())
    strict, _ = stable.invariant(turned, sizes=(1, 8), strict=True)
    with pytest.raises(NotInvariant, match="the batch is a part of its shape"):
        strict(x[:8])


def test_one_shape_is_named_for_all_batches_of_what_is_left(torch):
    def function(x):
        odd = x.t()[:, None]
        pair = x[:, :2], x[:, 1:3]
        return torch.addcmul(x, x, x), torch.addcmul(*pair, x[:, :2]), odd.addcmul(odd, odd)

    model, report = stable.invariant(of(torch, function))
    for count in range(1, 6):
        model(torch.rand(count, 7))
    assert list(report.left) == [
        "addcmul of 1x7, 1x7, 1x7",
        "addcmul of 1x2, 1x2, 1x2",
        "addcmul of 7x1x1, 7x1x1, 7x1x1",
    ]


def attention(torch):
    """Attention as people write it, with products of pairs of matrices."""

    def function(x):
        q, k, v = every(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        shares = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
        return (shares @ v).transpose(1, 2).flatten(2)

    every = torch.nn.Linear(32, 96)
    return of(torch, function)


def test_strict_takes_attention_written_by_hand_where_no_lengths_are_wanted(torch):
    x = torch.randn(16, 9, 32)
    model, report = stable.invariant(attention(torch), range(1, 17), strict=True)
    assert not dependent(model, x) and report.complete and not report.limited
    sizes = {"batch": range(1, 17), "length": range(1, 10)}
    _, report = stable.invariant(attention(torch), sizes, example=x)
    assert any("bmm" in name for name in report.limited)
    with pytest.raises(NotInvariant, match="bmm.*: products of pairs"):
        stable.invariant(attention(torch), sizes, strict=True, example=x)


def test_orders_are_revealed_when_asked(torch):
    _, report = stable.invariant(torch.nn.Linear(9, 16).eval(), [8], example=torch.randn(8, 9))
    told = report.orders()
    assert all(one.startswith(("same: all outputs", "not known: ")) for one in told.values())
    assert [row.orders for row in report.rows] == [told[row.operation] for row in report.rows]


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["Linear(96, 64)", "Conv1d(6, 8, 3, stride=2)"])
def test_a_quicker_way_for_few_samples_has_the_same_order(torch, layer):
    """Linear layers have one where the library adds few rows of turned weights as it adds many."""
    made = eval(f"torch.nn.{layer}.eval()", {"torch": torch})
    x = torch.randn(64, *((6, 21) if "Conv" in layer else (96,)))
    model, report = stable.invariant(made, [1, 2, 4, 8, 64], example=x)
    assert not dependent(model, x, parts=[(0, 1), (0, 2), (0, 4), (0, 8)])
    told = report.orders()
    assert len(told) == len(report.rows)
    for key, words in told.items():
        assert words.startswith(("same: all outputs of sizes ", "not known: ")), key
        assert "different order" not in words, key
        if words.startswith("same"):
            assert ("of the usual way" in words) == ("few rows" in key or "by oneDNN" in key)

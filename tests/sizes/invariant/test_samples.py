"""Samples that read each other are found, in arguments of any structure."""

import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from probe.sizes.invariant.keeper import NotInvariant
from probe.sizes.invariant.samples import MIXED, UNREAD
from tests.sizes.invariant.models import module


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
    assert list(report.left) == [MIXED] and not report.complete
    strict, _ = stable.invariant(plain, (1, 8), strict=True)
    with pytest.raises(NotInvariant, match=f"{MIXED}.*: .*change") as caught:
        [strict(x[:count]) for count in (3, 1, 8)]
    assert "\n" not in str(caught.value)


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
    assert list(report.left) == [UNREAD]

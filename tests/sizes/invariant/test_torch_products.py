"""Products in the invariant mode: einsums of samples, and other ways for few rows or samples."""

import numpy as np
import pytest

from probe.sizes import stable
from tests.sizes.invariant.models import dependent, differing, of

ROWS = {  # equation: one sample and the weights; the batch is the letter b
    "bc,cf": ((33,), (33, 20)),
    "fc,bc->bf": ((33,), (20, 33)),
    "bc,c->b": ((65,), (65,)),
    "bc,cf->bf": ((1,), (1, 20)),
    "bld,dhk->blhk": ((5, 24), (24, 2, 9)),
    "bhlk, hkd -> bld": ((2, 5, 9), (2, 9, 24)),
    "b...c,fc->b...f": ((3, 2, 33), (20, 33)),
    "bhld,hed->bhle": ((3, 4, 40), (3, 8, 40)),
}
OTHERS = {  # pairs of matrices, and what is no such product
    "bij,bjk->bik": ((5, 2, 7), (5, 7, 3)),
    "...qd,...kd->...qk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bc,bc->b": ((5, 9), (5, 9)),
    "bi,bj->bij": ((5, 2), (5, 3)),
    "ibnd,jbnd->ijbn": ((2, 3, 4, 5), (6, 3, 4, 5)),
    "bij,jk->bk": ((5, 2, 7), (7, 3)),
    "bii,ic->bc": ((5, 4, 4), (4, 3)),
    "xbc,bcd->xbd": ((4, 1, 5), (3, 5, 2)),
}


def summing(torch, equation, w):
    """A module whose batch is the letter b; the weights stand where the equation has them."""

    def function(x):
        return torch.einsum(equation, *((w, x) if equation.startswith("f") else (x, w)))

    w = torch.nn.Parameter(w)
    return of(torch, function)


@pytest.mark.parametrize(
    ("equation", "dtype"), [*((one, "float32") for one in ROWS), ("fc,bc->bf", "bfloat16")]
)
def test_rows_of_an_einsum_have_the_same_bits_at_every_batch(torch, equation, dtype):
    sample, weights = ROWS[equation]
    kind = {"dtype": getattr(torch, dtype)}
    plain = summing(torch, equation, torch.randn(weights, **kind))
    model, report = stable.invariant(plain, (1, 48), strict=True)
    x = torch.randn(48, *sample, **kind)
    assert not dependent(model, x, parts=((0, 48), (5, 1), (0, 2), (1, 3), (31, 17), (3, 44)))
    every = torch.empty(2 * len(x), *sample, **kind)[::2].copy_(x)
    assert torch.equal(model(every), model(x))
    assert report.complete


@pytest.mark.parametrize("equation", ["bc,fc->fb", "cb,cf->bf", "bsc,cf->sbf"])
def test_an_einsum_whose_samples_are_not_first_is_reported(torch, equation):
    w = torch.nn.Parameter(torch.randn(20, 33) if equation[3:5] == "fc" else torch.randn(33, 20))
    turned = equation.startswith("cb")
    plain = of(torch, lambda x: torch.einsum(equation, x.t() if turned else x, w))
    model, report = stable.invariant(plain, (1, 48))
    x = torch.randn(48, *((7, 33) if "s" in equation else (33,)))
    assert torch.allclose(model(x), plain(x), atol=1e-5) and not report.complete


def test_an_einsum_gives_the_numbers_that_pytorch_gives(torch):
    """Of whole numbers, whose sums are exact in any order."""
    rows = {equation: ((3, *sample), weights) for equation, (sample, weights) in ROWS.items()}
    for equation, shapes in (rows | OTHERS).items():
        x, w = (torch.randint(-9, 9, shape).float() for shape in shapes)
        plain = summing(torch, equation, w)
        model, _ = stable.invariant(plain, (3,))
        with torch.no_grad():
            assert torch.equal(model(x), plain(x)), equation


@pytest.mark.parametrize(
    "equation", ["bi,kij,bj->bk", "bi,ij,jk->bk", "ij,jk,bi->bk", "bi,bj,kij->bk"]
)
def test_three_operands_have_the_same_bits_at_every_batch(torch, equation):
    sizes = {"b": 24, "i": 19, "j": 11, "k": 7}
    draw, parts = np.random.default_rng(3), equation.partition("->")[0].split(",")
    shapes = [[sizes[letter] for letter in part] for part in parts]
    given = [torch.from_numpy(draw.normal(size=shape).astype("float32")) for shape in shapes]
    along = ["b" in part for part in parts]

    def function(*samples):
        both = iter(samples), iter(held)
        return torch.einsum(equation, *(next(both[not its]) for its in along))

    held = [torch.nn.Parameter(one) for one, its in zip(given, along, strict=True) if not its]
    samples = [one for one, its in zip(given, along, strict=True) if its]
    model, report = stable.invariant(of(torch, function), (1, 24), example=tuple(samples))
    assert report.complete, report
    assert torch.allclose(model(*samples), torch.einsum(equation, *given), atol=1e-3)
    assert not dependent(model, *samples, parts=[(0, size) for size in (1, 2, 3, 5, 11, 23)])


def kept(torch):
    """A layer one row of which is computed from a turned copy of its weights, as told to 64."""
    from probe.sizes.invariant.torch_products import Copies

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
    from probe.sizes.invariant import torch_products

    monkeypatch.setattr(torch_products, "MEMORY", 0)
    _, model, x = kept(torch)
    assert not dependent(model, x, parts=[(0, 1), (0, 2), (0, 3), (0, 17)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("block", [4, 7, 20])
@pytest.mark.parametrize("way", ["Turned", "WeightedSums"])
@pytest.mark.parametrize("rows", [1, 3])
def test_blocks_of_channels_are_added_up(torch, bias, block, way, rows):
    from probe.sizes.invariant import torch_products
    from probe.sizes.invariant.torch_calls import TorchLinear

    whole = TorchLinear(20, 6, torch.float32, bias)
    x, w, b = (torch.randint(-9, 9, shape).float() for shape in ((rows, 20), (6, 20), (6,)))
    operation = getattr(torch_products, way)(whole, block)
    y = operation.call((x,), (w.t().contiguous(), b if bias else None))
    assert y.is_contiguous()
    assert torch.equal(y, whole.call((x,), (w, b if bias else None)))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):  # as the plain model
        operation.call((torch.ones(rows, 21),), (w.t().contiguous(), b if bias else None))

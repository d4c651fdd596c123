"""PyTorch's models in the invariant mode.

Calls of PyTorch's functions: layers by themselves, inference mode, autocast, odd tensors.
"""

import copy
import io
import json
import pickle
import warnings

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.sizes import stable
from probe.sizes.invariant.samples import MIXED
from tests.sizes.invariant.models import dependent, differing, module, of, over, small


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
    assert not dependent(model, x, parts=[(16 - count, count) for count in (1, 2, 5, 16)])
    last = x[:1].contiguous(memory_format=torch.channels_last)
    assert differing(torch, model(last), whole[:1]) == 0
    with torch.inference_mode():
        assert differing(torch, model(x[:3]), whole[:3]) == 0


def test_training_is_refused(torch):
    layer = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout())
    with pytest.raises(InputError, match="model.eval"):
        stable.invariant(layer)
    from probe.sizes.invariant.torch_model import require_evaluation

    model, _ = stable.invariant(layer.eval())
    require_evaluation(model)
    layer[1].train()
    with pytest.raises(InputError, match="training is not covered"):
        model(torch.zeros(2, 3))


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
    assert torch.allclose(model(x), before @ p, atol=1e-3) and not dependent(model, x)
    plain.forward = lambda x: x @ x[:1].new_ones(96, 9)
    model._forward_hooks.clear()
    assert model(x).shape == (16, 9) and not dependent(model, x)
    del plain.forward
    torch.nn.utils.parametrize.register_parametrization(model.linear, "weight", torch.nn.Tanh())
    with pytest.raises(InputError, match="training is not covered"):
        plain.train() and model(x)
    plain.eval()
    assert not dependent(model, x)


def test_a_model_parametrized_in_the_mode_is_one_line(torch):
    model, _ = stable.invariant(torch.nn.Linear(96, 40).eval(), range(1, 17))
    torch.nn.utils.parametrize.register_parametrization(model, "weight", torch.nn.Tanh().eval())
    with pytest.raises(InputError, match="its class was changed, as by a parametrization"):
        model(torch.randn(16, 96))


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
        "copy": lambda: copy.copy(model),
        "deepcopy": lambda: copy.deepcopy(model),
        "pickle": lambda: pickle.dumps(model),
    }
    ways.get(how, lambda: None)()


CONTEXTS = (
    *("vmap", "grad", "jvp", "dual", "jacobian", "trace", "script", "fx", "onnx", "slice"),
    *("copy", "deepcopy", "pickle"),
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


def test_a_table_travels_and_is_checked(torch, tmp_path):
    layer, path, x = torch.nn.Linear(24, 9).eval(), tmp_path / "table.json", torch.randn(40, 24)
    model, report = stable.invariant(layer, [40], example=x)
    wanted = [model(x[:count]) for count in (1, 3, 40)]
    report.save(path)
    model, report = stable.invariant(layer, [40], table=path)
    assert all(torch.equal(model(x[: len(y)]), y) for y in wanted)
    assert not report.table.notes and report.table.trusted
    told = json.loads(path.read_text())
    told["environment"]["version"] = "0.1"
    path.write_text(json.dumps(told))
    model, report = stable.invariant(layer, [40], table=path)
    assert all(torch.equal(model(x[: len(y)]), y) for y in wanted)
    assert any("another version" in note for note in report.table.notes)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"like": "fastest"}, "like=fastest"),
        ({"example": "length"}, "example=str: the model does not take it: TypeError"),
        ({"strict": "no"}, "strict=no: it is neither True nor False"),
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


NUMBERS = {
    "floating-point": (1.0, 2.0),
    "whole": (100, 200),
    "tensor of no axes": (np.float32(1), np.float32(2)),
}


@pytest.mark.parametrize(
    ("way", "kind"), list(zip(["by place", "by name", "in a dictionary"], NUMBERS, strict=True))
)
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
    assert list(report.left) == [MIXED]


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
    for part in (script, torch.nn.Sequential(script).eval()):
        with pytest.raises(InputError, match="is TorchScript") as caught:
            stable.invariant(part)
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


@pytest.mark.slow
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

    within = of(torch, lambda x: within.inner(x))
    within.inner = plain
    (one, report), (other, _) = (stable.invariant(part, (1, 16)) for part in (plain, within))
    x = torch.randn(16, 3, 5)
    for count in (16, 1, 5, 16, 1, 5):
        assert differing(torch, one(x[:count]), other(x[:count])) == 0
    assert hooked[-6:] == [16, 16, 1, 1, 5, 5] and report.complete
    plain[5] = nn.Linear(24, 24, bias=False).eval()
    assert differing(torch, one(x[:5]), other(x[:5])) == 0


def test_inference_mode_runs_the_operations_that_are_run_outside(torch):
    """In it operations arrive whole, and PyTorch's own parts of them are different ones there."""

    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = torch.nn.GRU(19, 32, batch_first=True, bidirectional=True)
            self.w = torch.nn.Parameter(torch.randn(9, 8))

        def forward(self, x):
            y = torch.nn.functional.interpolate(x[:, None], scale_factor=1.7, mode="bilinear")
            steps = y[:, 0, :, :18].unflatten(2, (2, 9)) @ self.w
            return torch.cat([self.gru(x.clone())[0].flatten(1), steps.flatten(1)], 1)

    model, report = stable.invariant(Parts().eval(), range(1, 17))
    x = torch.randn(16, 11, 19)
    whole = model(x)
    assert not dependent(model, x)
    rows = {row.operation for row in report.rows}
    with torch.inference_mode():
        again = model(x.clone())
        assert differing(torch, again, whole) == 0 and not dependent(model, x.clone())
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


def test_autocast_within_a_part_is_one_line(torch):
    def cast(layer, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)

    with pytest.raises(InputError, match="model=a part of it: autocast"):
        stable.invariant(module(torch, cast))[0](torch.randn(3, 12))


def test_sparse_inputs_are_one_line(torch):
    model, _ = stable.invariant(torch.nn.Linear(9, 4).eval(), (1, 3))
    x = torch.randn(3, 9)
    model(x)
    with pytest.raises(InputError, match="sparse, nested, or on a different device"):
        model(x.to_sparse())


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
    assert not dependent(model, x) and model(x[:0]).shape == (0, 16) and report.complete
    for layer in (
        nn.GRU(5, 4, batch_first=True),
        nn.TransformerEncoderLayer(5, 1, 8, batch_first=True),
    ):
        model, report = stable.invariant(layer.eval(), (1, 8), strict=True)
        y = model(torch.randn(0, 3, 5))
        assert len(y[0] if isinstance(y, tuple) else y) == 0 and report.complete

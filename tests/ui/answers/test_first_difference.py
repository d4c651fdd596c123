"""Two runs of a model: what an answer says of the first source, of outputs, of what is unknown."""

import json
import sys

import numpy as np
import pytest

import probe
from probe.case.errors import InputError, NothingKnown
from probe.diff.difference import APART
from probe.diff.walk import UNCOMPARED
from probe.order.semantics import Unknown
from probe.ui.answers import first_difference as answers
from tests.record import causes
from tests.record.taped import Taped, apart, network, normal

X = normal(6, 32)


@pytest.fixture
def planted(monkeypatch):
    return causes.planted(monkeypatch)


def test_the_json_has_the_words_of_the_design(planted):
    told = probe.first_difference(*apart(X)).to_json()
    assert (told["verdict"], told["examined"], told["operations_total"]) == ("differs", 5, 5)
    assert told["first"] == told["operations"][0]["name"]
    keys = {"name", "op", "verdict", "differing", "max_ulp", "cause"}
    assert all(keys <= set(one) for one in told["operations"])
    assert told["operations"][0]["verdict"] == "source"
    assert told["operations"][0]["cause"] == "order"
    (output,) = told["outputs"]
    assert output["differing"]
    assert [one["decision"] for one in output["decisions"]] == ["argmax", "top-5", "threshold"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_an_answer_is_three_lines_and_a_picture(planted):
    found = probe.first_difference(*apart(X))
    lines = repr(found).splitlines()
    assert len(lines) == 3 and all(0 < len(line) <= 100 for line in (lines[0], lines[2]))
    assert "differ" in lines[0] and "Dense at block.first" in lines[1]
    assert "5 operations" in lines[1]
    assert "order" in lines[1] and "outputs differ" in lines[2]
    assert found._repr_png_().startswith(b"\x89PNG")
    assert found.operations[0].verdict == "source" and found.first.name == "block.first"


def test_equal_runs_say_so(planted):
    found = probe.first_difference(network(X), network(X))
    assert found.verdict == "equal" and not found.finding and not planted
    assert "equal" in repr(found).splitlines()[1]
    with pytest.raises(InputError, match="source=.*nothing to report"):
        found.reproduce("report")


def test_nothing_known_is_unknown_and_a_finding():
    def strange(x):
        return Taped(lambda tape: tape.ran("Odd", Unknown("no word"), lambda a: a * a.sum(), x))

    found = probe.first_difference(strange(X[:2]), strange(X), explain=False)
    assert found.verdict == "unknown" and found.finding
    assert "it is not known which outputs must agree" in repr(found)
    told = found.to_json()
    assert {one["reason"] for one in told["operations"]} == {APART}
    assert "belong together" in str(found)


def test_the_report_is_of_the_source_that_is_named(planted, monkeypatch):
    from types import SimpleNamespace

    written = []
    folder = SimpleNamespace(no_case="")
    fake = SimpleNamespace(
        write_operation=lambda *given: written.append(given) or folder, ModelScript=dict
    )
    monkeypatch.setitem(sys.modules, "probe.report.recorded", fake)
    found = probe.first_difference(*apart(X))
    found.reproduce("report")
    found.reproduce("report", "block.first")
    assert [str(one[0]) for one in written] == ["report"] * 2
    assert written[0][2] is found.first and written[0][3].kind == "order"
    assert folder.no_case  # no target runs tapes, so that it is no case
    with pytest.raises(InputError, match="source=head: this operation is not a source"):
        found.reproduce("report", "head")


def test_all_outputs_are_counted_not_only_the_worst(planted):
    one, other = normal(32, 24), normal(32, 24, seed=5)

    def run(blocks):
        return Taped(lambda t: (t.dense(X, t.weight(one), blocks), t.dense(X, t.weight(other), 2)))

    def both(blocks):
        return Taped(lambda t: tuple(t.dense(X, t.weight(w), blocks) for w in (one, other)))

    found = probe.first_difference(both(1), both(5))
    total = sum(one.differing for one in found.outputs)
    assert all(one.differing for one in found.outputs)
    most = max(one.max_ulp for one in found.outputs)
    assert f"{total} of 288 outputs differ, up to {most:,} ulp" in found.outcome()
    half = probe.first_difference(run(2), run(5))  # one of the two differs
    assert "of 288 outputs differ" in half.outcome()


def test_time_is_a_limit_and_says_that_there_is_no_answer_yet():
    left, right = apart(X)
    with pytest.raises(NothingKnown, match="no answer yet"):
        probe.first_difference(left, right, time="0.001s")
    with pytest.raises(InputError, match="time=soon"):
        probe.first_difference(left, right, time="soon")
    assert probe.first_difference(left, right, time="5m").found.causes


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_against_nan_and_infinity_are_counted_in_valid_json(number):
    torch = pytest.importorskip("torch")
    x = torch.tensor(normal(4, 6))
    x[1, 2] = number
    found = probe.first_difference(
        lambda x: x.clamp(-9, 9).nan_to_num() * 2, lambda x: x * 2, inputs=x
    )
    text = json.dumps(found.to_json(), allow_nan=False)
    assert [o["differing"] for o in json.loads(text)["outputs"]] == [1] and str(found.shown())


def test_where_the_time_was_over_before_operations_were_compared_the_answer_says_so():
    found = probe.first_difference(*apart(X)).found
    found.operations.clear()
    found.notes.append(f"{UNCOMPARED}: the 20 s of --time were over")
    first, _ = answers.Walked(found, answers.ComparisonQuestion("", "left", "right")).ending()
    assert first == f"differs: {found.notes[-1]}"


def test_functions_of_other_libraries_say_which_rows_their_outputs_read():
    pandas = pytest.importorskip("pandas")
    x = np.array([100_000.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])

    def rolling(x):
        return np.asarray(pandas.Series(x).rolling(3).std())[-1]

    def direct(x):
        return np.std(x[-3:], ddof=1)

    found = probe.first_difference(rolling, direct, inputs=(x,))
    assert found.window == 1 and found.verdict == "differs"
    assert found.classes == {"equal": 0, "explained rounding": 0, "not explained": 1}
    whole, note = found.to_json()["notes"]
    assert whole.startswith("the functions are compared as a whole: ")
    assert "on the left reads rows x0[0..6], on the right reads rows x0[4..6]" in note
    if found.found.first is not None:
        assert found.found.first.cause == "window"
    again = probe.first_difference(rolling, rolling, inputs=(x,))
    assert again.verdict == "equal" and again.to_json()["notes"] == [whole]


def test_a_scale_of_the_whole_batch_is_named_and_no_rounding():
    torch = pytest.importorskip("torch")

    def quantised(x):  # as dynamic quantisation takes its scale
        x = torch.as_tensor(x)
        return torch.tanh(x / x.abs().max())

    x = np.random.default_rng(0).standard_normal((4, 6)).astype("f4")
    walked = probe.network(quantised, inputs={"x": x}, vary="batch", at=1, against=4)
    first, last = walked.ending()
    assert first.startswith("window: ") and first.endswith("; from aten.max on")
    assert last.startswith("no output has to agree") and walked.verdict == "differs"
    assert walked.classes["explained rounding"] == 0


def test_steps_of_a_longer_series_backwards_are_window_and_no_exchanged_operand():
    torch = pytest.importorskip("torch")
    torch.manual_seed(4)
    x, w, u = torch.randn(3, 6, 4), torch.randn(4, 5), torch.randn(5, 5)

    def backwards(x):
        state, states = torch.zeros(3, 5), []
        for step in reversed(x.unbind(1)):
            state = torch.tanh(step @ w + state @ u)
            states.append(state)
        return torch.stack(states[::-1], 1)

    walked = probe.first_difference(lambda: backwards(x[:, :4]), lambda: backwards(x))
    assert walked.window == 60 and walked.found.first is None
    assert walked.ending()[0].startswith("window: 60 of 60 outputs")
    assert walked.ending()[1].startswith("no output has to agree")


def test_outputs_that_read_the_other_samples_are_no_rounding_though_a_source_before_them_is():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((8, 384)).astype("f4")
    # of which this processor adds some otherwise where there are fewer rows
    layers = [torch.nn.Linear(384, width) for width in (64, 100, 256)]

    def normed(x):
        y = torch.cat([layer(torch.as_tensor(x)) for layer in layers], 1)
        return (y - y.mean(0)) / y.std(0, unbiased=False)

    with torch.no_grad():
        walked = probe.network(normed, inputs={"x": x}, vary="batch", at=2, against=8)
    assert walked.verdict == "differs" and walked.classes["explained rounding"] == 0


def test_a_port_that_pads_otherwise_is_no_rounding_and_what_reads_the_same_is_said():
    """SAME of an even length at stride 2 pads behind alone; the first of both layers is right."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(1, 3, 8, 8)).astype("f4")
    kernels = [drawn.normal(size=(4, n, 3, 3)).astype("f4") for n in (3, 4)]

    def original():
        y = jax.numpy.asarray(x)
        for kernel, padding in zip(kernels, (((1, 1), (1, 1)), "SAME"), strict=True):
            y = jax.nn.relu(jax.lax.conv_general_dilated(y, kernel, (2, 2), padding))
        return y

    def port():
        y = torch.from_numpy(x)
        for kernel in kernels:
            y = torch.relu(torch.conv2d(y, torch.from_numpy(kernel), stride=2, padding=1))
        return y

    with torch.no_grad():
        first, _ = probe.first_difference(original, port).ending()
    assert first.startswith("window: ") and "(4, 4" in first, first
    assert "reads what the left one reads: x = F.pad(x, (0, 1, 0, 1))" in first


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_a_weight_transposed_by_mistake_is_no_rounding_though_its_numbers_are_the_same(kind):
    torch = pytest.importorskip("torch")
    x, make = {
        "linear": (normal(4, 24), lambda: torch.nn.Linear(24, 24)),
        "conv": (normal(2, 3, 9, 9), lambda: torch.nn.Conv2d(3, 5, 3)),
    }[kind]
    right, mistaken, x = make(), make(), torch.tensor(x)
    weight = right.weight.transpose(-1, -2).contiguous()
    mistaken.load_state_dict({"weight": weight, "bias": right.bias})
    found = answers.first_difference(lambda: right(x).relu(), lambda: mistaken(x).relu())
    assert found.finding and found.found.first is None
    assert found.classes["explained rounding"] == 0 == found.found.rounding.explained
    assert "weights permuted" in found.lines()[1] and "transpose" in found.lines()[1]


def test_what_a_mask_hides_is_not_read_more_where_one_operation_is_run_alone():
    """Zeros stood in the place of a mask's infinities: attention read what it hid, and its
    difference was no source."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval()

    def attended(x, hidden):
        x, hidden = torch.as_tensor(x), torch.as_tensor(hidden)
        return layer(x, x, x, key_padding_mask=hidden, need_weights=False)[0]

    x = np.random.default_rng(0).standard_normal((8, 40, 64)).astype("f4")
    hidden = np.zeros((8, 40), bool)
    x[:, 7:], hidden[:, 7:] = 0, True
    with torch.no_grad():
        words = {
            "inputs": {"x": x, "hidden": hidden},
            "vary": "x:1,hidden:1",
            "at": 7,
            "against": 40,
        }
        found = probe.network(attended, **words).found
    assert not any("not expected to read" in op.note for op in found.operations)
    assert found.verdict == "equal" or found.first is not None


@pytest.mark.parametrize(("factor", "enters"), [(2, ""), (2.0001, ""), (2.5, "aten.mul.Tensor")])
def test_a_wrong_factor_behind_another_order_is_no_rounding(factor, enters):
    """It has other inputs on both sides, so it is no source: its own difference counts."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x, w, order = torch.randn(16, 300), torch.randn(300, 64), torch.randperm(300)
    found = answers.first_difference(
        lambda: ((x @ w) * 2).relu(), lambda: ((x[:, order] @ w[order]) * factor).relu()
    )
    assert found.found.first.op == "aten.mm"
    assert (found.classes["explained rounding"] > 0) == (factor == 2)
    assert found.found.enters == enters and (enters in found.lines()[1])


def behind_a_product(torch):
    """Pairs whose first source is rounding, and that compute something else besides."""
    functional = torch.nn.functional
    layers = (torch.nn.Linear(96, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))
    model = torch.nn.Sequential(*layers).eval()
    x, p, xs = torch.randn(8, 96), torch.randperm(96), torch.randn(40, 32)
    weight, bias, z = torch.randn(16, 16), torch.randn(16), torch.randn(3, 5, 16)

    def turned(values):
        first = model[0]
        inner = functional.linear(values[:, p], first.weight[:, p], first.bias)
        return model[2](model[1](inner))

    def norm(values, eps):
        return functional.layer_norm(values, (32,), eps=eps)

    return {
        "nothing": (lambda: model(x), lambda: turned(x)),
        "a factor": (lambda: model(x[:1]), lambda: model(x) * 2.5),
        "a small factor": (lambda: model(x), lambda: turned(x) * 1.0001),
        "elements moved": (lambda: model(x[:1]), lambda: model(x).roll(1, 1)),
        "no bias": (lambda: model(x[:1]), lambda: model[:2](x) @ model[2].weight.T),
        "a cast": (lambda: xs.sum(0), lambda: xs.flip(0).sum(0).half().float()),
        "a turned weight": (
            lambda: functional.linear(z, weight, bias),
            lambda: z @ weight + bias,
        ),
        "another eps": (lambda: norm(model(x[:1]), 1e-5), lambda: norm(model(x), 1e-3)),
        "a shifted slice": (lambda: model(x[:1])[:, :16], lambda: model(x)[:, 1:17]),
        "through NumPy": (
            lambda: model(x[:1]),
            lambda: torch.from_numpy(model(x).numpy() * np.float32(1.01)),
        ),
        "through NumPy and on": (
            lambda: model(x[:1]).relu() + 1,
            lambda: torch.from_numpy(model(x).numpy() * np.float32(1.0001)).relu() + 1,
        ),
    }


def test_only_rounding_is_called_explained():
    """What one side alone does behind a source that replays was called explained rounding."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    with torch.no_grad():
        for what, pair in behind_a_product(torch).items():
            found = answers.first_difference(*pair)
            assert found.verdict == ("differs" if what != "nothing" else found.verdict), what
            if what != "nothing":
                assert found.classes["explained rounding"] == 0, what
            elif found.verdict == "differs":
                assert found.classes["not explained"] == 0
